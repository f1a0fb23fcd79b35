"""Cells run as a notebook runs them: compiled under a name that is no file, their text in linecache."""

import json
import linecache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from txcourse import learner, mine
from txcourse.learner import course, workspace


class Notebook:
    """The kernel of a notebook, without the kernel."""

    def __init__(self, folder: str):
        self.folder = folder
        self.module = ModuleType("__main__")
        self.names: dict[str, Any] = self.module.__dict__

    def run(self, cell: str) -> None:
        file = f"{self.folder}/ipykernel_1/{hash(cell)}.py"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec", dont_inherit=True), self.names)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No workspace, nothing remembered from another test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(workspace.VARIABLE, raising=False)
    for module, name in (
        (learner, "kept_here"),
        (learner, "_shown_hints"),
        (mine, "_mixed"),
        (mine, "_told"),
    ):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(learner, "_told_where", False)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> workspace.Workspace:
    """An empty workspace, named by the environment."""
    made = workspace.create(tmp_path / "work")
    monkeypatch.setenv(workspace.VARIABLE, str(made.root))
    return made


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(str(tmp_path))


def cells(*sources: str | tuple[str, str]) -> str:
    """A notebook's text. A pair is an exercise: its name, and the stub."""
    made = []
    for i, source in enumerate(sources):
        name, text = source if isinstance(source, tuple) else (None, source)
        metadata = {"txcourse": {"exercise": name}} if name else {}
        made.append(
            {
                "cell_type": "code",
                "id": f"c{i}",
                "metadata": metadata,
                "source": text,
                "outputs": [],
                "execution_count": None,
            }
        )
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}, indent=1)


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the installed course's notebooks."""
    folder = tmp_path / "course"
    folder.mkdir()
    monkeypatch.setattr(course, "notebook_files", lambda: sorted(folder.glob("*.ipynb")))
    return folder
