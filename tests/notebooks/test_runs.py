"""Solved copies are up to date and reproduce under nbval; student copies run with every exercise open."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from txcourse import notebooks
from txcourse.data.translation import MULTI30K
from txcourse.errors import UserError

from .test_form import each_notebook

SANITIZE = Path(__file__).with_name("sanitize.cfg")
each_stored_notebook = pytest.mark.parametrize("path", notebooks.stored_notebooks(), ids=lambda p: p.stem)


@each_stored_notebook
def test_solved_copy_is_up_to_date(path: Path) -> None:
    assert not notebooks.out_of_date(path), f"run: txcourse build {path.stem}"


@each_stored_notebook
def test_solved_copy_reproduces(path: Path, took: dict[str, dict[str, float]]) -> None:
    solved = notebooks.SOLVED / path.name
    started = time.perf_counter()
    options = [
        "--nbval",
        "--nbval-cell-timeout",
        str(notebooks.CELL_TIMEOUT),
        "--nbval-sanitize-with",
        str(SANITIZE),
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(solved)]
    run = subprocess.run(
        command,
        env=notebooks.kernel_environment(),
        capture_output=True,
        text=True,
        cwd=notebooks.PACKAGE.parent,
    )
    took[path.stem]["solved"] = round(time.perf_counter() - started, 1)
    assert run.returncode == 0, re.sub(r"\x1b\[[0-9;]*m", "", run.stdout)[-6000:]


@each_notebook
def test_student_copy_runs_with_every_exercise_open(path: Path, took: dict[str, dict[str, float]]) -> None:
    if path.stem == "18_translation":
        for package in ("tokenizers", "sacremoses"):
            pytest.importorskip(package)
        try:
            MULTI30K.read()
        except UserError as missing:
            pytest.skip(str(missing))
    started = time.perf_counter()
    run, passed = notebooks.execute(notebooks.read(path), quick=True)
    took[path.stem]["open"] = round(time.perf_counter() - started, 1)
    assert passed == set(), "a stub passes its check"
    checks = [
        cell for before, cell in zip(run.cells, run.cells[1:], strict=False) if notebooks.exercise_of(before)
    ]
    for cell in checks:
        text = "".join(output.get("text", "") + str(output.get("data", "")) for output in cell.outputs)
        assert "reference" in text, f"{cell.source}: does not say that it hands back the reference"


def test_no_solved_copy_without_its_student_notebook() -> None:
    names = {path.name for path in notebooks.stored_notebooks()}
    assert {path.name for path in notebooks.SOLVED.glob("*.ipynb")} <= names


@each_stored_notebook
def test_solved_copy_holds_references_only(path: Path) -> None:
    """Apart from filled exercises and outputs, both copies are the same, cell by cell."""
    student, solved = notebooks.read(path).cells, notebooks.read(notebooks.SOLVED / path.name).cells
    assert [c.id for c in student] == [c.id for c in solved]
    for before, after in zip(student, solved, strict=True):
        if notebooks.exercise_of(before):
            assert "raise NotImplementedError" not in after.source
        else:
            assert before.source == after.source
