"""Answers that passed, stored as ordinary modules: my_transformer/attention.py for 03_attention.

A module holds one block per exercise. A block is what the exercise's cell defines for it, together with the
import lines that it uses, wherever in the notebook they stand. Names that are exercises themselves come from
`txcourse.mine`; those lines are made anew whenever the module is written.
"""

import linecache
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from txcourse.learner.workspace import Workspace, keep, write
from txcourse.source import Statement, import_of, part_for, statements

_BLOCK = re.compile(r"^# %% exercise: (\w+)\n", re.MULTILINE)
PACKAGE = "my_transformer"
running: list[str] = []  # the stored modules that are being executed at this moment


class NotStored(Exception):
    """Why an answer that passed cannot be stored, in one line for the learner."""


def module_name(notebook: str) -> str:
    """03_attention -> attention"""
    return notebook.split("_", 1)[1]


def answer_file(workspace: Workspace, notebook: str) -> Path:
    return workspace.answers / f"{module_name(notebook)}.py"


def blocks(path: Path) -> dict[str, str]:
    """The stored answers of one module: name -> source."""
    try:
        parts = _BLOCK.split(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def store(workspace: Workspace, notebook: str, name: str, block: str, exercises: list[str]) -> Path:
    """Put one answer into its module; the module's old version is kept, dated, in my_transformer/earlier.

    Raises:
        NotStored: two answers of the module define the same name differently, or the module would not import.
        UserError: the file cannot be written.
    """
    path = answer_file(workspace, notebook)
    stored = blocks(path)
    if stored.get(name) == block.strip("\n"):
        return path
    _refuse_clash(name, block, {other: text for other, text in stored.items() if other != name})
    text = _render(notebook, stored | {name: block}, exercises)
    try:
        found = getattr(execute(text, path, f"{PACKAGE}._trial"), name, None)
    except Exception as error:
        raise NotStored(f"as a module of its own it stops with {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(f"{PACKAGE}._trial", None)
    if found is None:
        raise NotStored(f"the cell's own code does not define `{name}`")
    _replace(path, text)
    return path


def remove(workspace: Workspace, notebook: str, names: Iterable[str], exercises: list[str]) -> Path | None:
    """Take answers out of their module and return where the module's old version is kept."""
    path = answer_file(workspace, notebook)
    stored = blocks(path)
    left = {name: block for name, block in stored.items() if name not in set(names)}
    return _replace(path, _render(notebook, left, exercises)) if left != stored else None


def _replace(path: Path, text: str) -> Path | None:
    kept = keep(path, path.parent / "earlier") if path.exists() else None
    write(path, text)
    return kept


def _render(notebook: str, stored: dict[str, str], exercises: list[str]) -> str:
    """The module's text. Blocks stand in the order of the course; one block sees the names of the others."""
    order = [name for name in exercises if name in stored]
    used = set().union(*(part_for(name, statements(stored[name]))[1] for name in order)) if order else set()
    foreign = [name for name in exercises if name in used and name not in stored]
    future = [
        line for text in stored.values() for line in text.splitlines() if line.startswith("from __future__")
    ]
    head = [
        f'"""My answers to {notebook}: each was stored when its check passed, and is replaced when it passes again."""'
    ]
    head += sorted(set(future))
    if foreign:
        head += ["", f"from txcourse.mine import {', '.join(sorted(foreign))}"]
    text = "\n".join(head) + "\n"
    for name in order:
        body = "\n".join(line for line in stored[name].splitlines() if not line.startswith("from __future__"))
        text += f"\n\n# %% exercise: {name}\n" + body.strip("\n") + "\n"
    return text


def _refuse_clash(name: str, block: str, others: dict[str, str]) -> None:
    def bound(text: str) -> dict[str, str]:
        found = {}
        for statement in statements(text):
            for each in statement.binds:
                meaning = import_of(each, [statement]) if statement.is_import else statement.text
                found[each] = (meaning or "").replace("import torch.nn as nn", "from torch import nn")
        return found

    mine = bound(block)
    for other, text in others.items():
        for each, meaning in bound(text).items():
            if mine.get(each, meaning) != meaning and each != name:
                raise NotStored(
                    f"`{each}` means something else in your answer to `{other}`, "
                    "and both live in one module; give one of them another name"
                )


def execute(text: str, path: Path, name: str) -> ModuleType:
    """Run a stored module under `name`. (Not by the import system, whose cache of compiled files goes by the
    second and could show an answer that was replaced within one.)"""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    running.append(name)
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        running.remove(name)
    return module


def block_of(
    name: str, cell: str, others: Iterable[str], namespace: dict[str, Any], exercises: list[str]
) -> str:
    """What has to be stored for the exercise `name`: its part of `cell`, and the imports it uses.

    `others` are the notebook's other cells, oldest first; `namespace` is what the notebook's names mean now.

    Raises:
        NotStored: the cell is not readable, or it uses something that another cell defines.
    """
    try:
        part, missing = part_for(name, statements(cell))
    except SyntaxError as error:
        raise NotStored("its cell cannot be read as Python") from error
    if not part:
        raise NotStored(f"no cell was found that defines `{name}`")
    elsewhere: list[Statement] = []
    for text in others:
        try:
            elsewhere += statements(text)
        except SyntaxError:
            continue
    imports = []
    for each in sorted(missing - set(exercises)):
        line = import_of(each, elsewhere) or _import_from_object(each, namespace)
        if line is not None:
            imports.append(line)
        elif each in namespace or any(each in s.binds for s in elsewhere):
            raise NotStored(f"your answer uses `{each}`, defined in another cell; move it into this one")
    imports.sort(key=lambda line: (line.startswith("from"), line))
    return "\n".join([*imports, *(["\n"] if imports else []), *_texts(part, exercises)])


def _texts(part: list[Statement], exercises: list[str]) -> list[str]:
    """Statements with two blank lines around definitions; imports of other exercises are left to `_render`."""
    texts: list[str] = []
    for statement in part:
        if statement.is_import and statement.binds & set(exercises):
            continue
        big = not statement.is_import and hasattr(statement.node, "body")
        texts.append(("\n" if big and texts else "") + statement.text)
    return texts


def _import_from_object(name: str, namespace: dict[str, Any]) -> str | None:
    """An import line for an object whose own import was not found, such as one that came by `import *`."""
    value = namespace.get(name)
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    for module in (getattr(value, "__module__", None), "torch", "math", "numpy"):
        if isinstance(module, str) and not module.startswith(("__main__", "txcourse")):
            origin = getattr(value, "__name__", name)
            try:
                same = getattr(import_module(module), origin) is value
            except (ImportError, AttributeError):
                continue
            if same and value is not None:
                return f"from {module} import {origin}" + ("" if origin == name else f" as {name}")
    return None


def cells_of(candidate: Any, name: str) -> tuple[str, list[str], dict[str, Any]]:
    """The cell that defines `candidate`, the other cells run so far (oldest first), and the notebook's names.

    The text comes from linecache by the file name of the code: inspect.getsource fails for classes from
    notebook cells on Python 3.11.

    Raises:
        NotStored: no text was found.
    """
    function = _a_function_of(candidate)
    main = sys.modules["__main__"].__dict__
    namespace = function.__globals__ if function is not None else main
    file = function.__code__.co_filename if function is not None else ""
    if file and Path(file).is_file():  # a script, not a notebook
        return "".join(linecache.getlines(file)), [], namespace
    cells = {
        key: "".join(entry[2])
        for key, entry in list(linecache.cache.items())
        if len(entry) == 4 and not Path(key).is_file() and (not file or Path(key).parent == Path(file).parent)
    }
    last_run = {
        text.strip(): number for number, text in enumerate(main.get("In", []))
    }  # a cell may run again
    order = sorted(cells, key=lambda key: last_run.get(cells[key].strip(), -1))
    if file not in cells:  # no method of its own: the last cell that binds the name
        file = next((key for key in reversed(order) if _binds(cells[key], name)), "")
    if file not in cells:
        raise NotStored(f"the cell that defines `{name}` was not found")
    return cells[file], [cells[key] for key in order if key != file], namespace


def _a_function_of(candidate: Any) -> FunctionType | None:
    """A function written in Python that belongs to the candidate: itself, or a method of its class."""
    candidate = unwrap(candidate) if callable(candidate) else candidate
    if isinstance(candidate, FunctionType):
        return candidate
    owner = candidate if isinstance(candidate, type) else type(candidate)
    methods = [unwrap(value) for value in vars(owner).values() if callable(value)]
    own = [m for m in methods if isinstance(m, FunctionType) and m.__module__ == owner.__module__]
    return own[0] if own else None


def _binds(text: str, name: str) -> bool:
    try:
        return any(name in s.binds and not s.is_check for s in statements(text))
    except SyntaxError:
        return False
