"""The references that an answer may build on, as source, cut out of the solutions.

Each exercise is graded with the references of the exercises that come before it, so that an early mistake costs once.
What is judged, and whatever is built on it, is never among them.
"""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from txcourse import exercises, solutions
from txcourse.source import Statement, part_for, statements

_FOLDER = Path(solutions.__file__).parent
_Name = tuple[str, str]  # a module of the solutions, and something that it defines


@cache
def _statements(module: str) -> list[Statement]:
    return statements((_FOLDER / f"{module}.py").read_text(encoding="utf-8"))


def _home(exercise: str) -> str | None:
    """The module of the solutions that defines the exercise's reference; None for one that is not the course's."""
    if exercise not in exercises.names():
        return None
    return exercises.get(exercise).reference.__module__.rpartition("txcourse.solutions.")[2] or None


def _imports(statement: Statement) -> list[_Name]:
    """What a statement imports from other modules of the solutions."""
    node = statement.node
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("txcourse.solutions."):
        return [((node.module or "").split(".")[-1], alias.name) for alias in node.names]
    return []


@cache
def _needed(name: _Name) -> dict[_Name, tuple[list[Statement], frozenset[_Name]]]:
    """All that `name` needs: for each name its statements, and what they import from other modules."""
    module, _ = name
    part, _ = part_for(name[1], _statements(module))
    used = set().union(*(s.uses for s in part))
    imported = frozenset(i for s in part for i in _imports(s) if i[1] in used)
    found = {name: ([s for s in part if not _imports(s)], imported)}
    for other in imported:
        found |= _needed(other)
    return found


@cache
def _built_on(exercise: str) -> frozenset[str]:
    """The names that the reference of an exercise needs, its own included."""
    home = _home(exercise)
    found = _needed((home, exercise)) if home else {}
    return frozenset(s for part, _ in found.values() for statement in part for s in statement.binds)


def available(source: ast.AST, judged: str, asked: set[str]) -> list[str]:
    """The exercises whose references the source names and may have: of those that are asked for too, the ones that come
    earlier in the course."""
    order = exercises.names()
    last = order.index(judged) if judged in order else len(order)
    named = {node.id for node in ast.walk(source) if isinstance(node, ast.Name)} | {
        alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("txcourse")
        for alias in node.names
    }
    return [
        name
        for number, name in enumerate(order)
        if name in named and (name not in asked or number < last) and judged not in _built_on(name)
        if name != judged and _home(name)
    ]


def sources(names: list[str]) -> dict[str, str]:
    """The pieces of the solutions that define `names`, by module, each after those that it imports from."""
    return _sources(tuple(names))


@cache
def _sources(names: tuple[str, ...]) -> dict[str, str]:
    needed: dict[_Name, tuple[list[Statement], frozenset[_Name]]] = {}
    for name in names:
        needed |= _needed((_home(name) or "", name))
    modules = dict.fromkeys(module for module, _ in needed)
    imports = {
        m: {i for (home, _), (_, found) in needed.items() if home == m for i in found} for m in modules
    }
    pieces = {}
    for module in TopologicalSorter({m: {home for home, _ in imports[m]} for m in modules}).static_order():
        kept = {id(s) for (home, _), (part, _) in needed.items() if home == module for s in part}
        lines = [f"from txcourse.solutions.{home} import {name}" for home, name in sorted(imports[module])]
        lines += [s.text for s in _statements(module) if id(s) in kept]
        pieces[module] = "\n\n".join(lines) + "\n"
    return pieces
