"""What a student notebook looks like, and that every claim of the course stands in a cell that asserts it."""

import ast
from pathlib import Path

import pytest

from txcourse import exercises, notebooks

from .claims import CLAIMS

STUDENT = notebooks.student_notebooks()
each_notebook = pytest.mark.parametrize("path", STUDENT, ids=lambda p: p.stem)


@each_notebook
def test_form(path: Path) -> None:
    assert notebooks.problems(path) == []


@each_notebook
def test_file_is_stripped(path: Path) -> None:
    assert notebooks.strip(notebooks.read(path)) == notebooks.read(path)


@each_notebook
def test_exercises_are_those_of_the_course(path: Path) -> None:
    """Same names as txcourse.exercises has for this notebook, and the text states its difficulty and minutes."""
    cells = notebooks.read(path).cells
    asked = [name for cell in cells if (name := notebooks.exercise_of(cell))]
    assert set(asked) == {n for n in exercises.names() if exercises.get(n).notebook == path.stem}
    statements = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for name in asked:
        known = exercises.get(name)
        statement = statements.split(f"### Exercise: `{name}`")[1].splitlines()[1]
        dots = "●" * known.difficulty + "○" * (3 - known.difficulty)
        assert statement.startswith(f"{dots} · {known.minutes} minutes"), name


@each_notebook
def test_claims(path: Path) -> None:
    wanted = {f"claim-{number}" for number, places in CLAIMS.items() if path.stem in places}
    tagged = {
        tag: cell.source
        for cell in notebooks.read(path).cells
        for tag in cell.metadata.get("tags", [])
        if tag.startswith("claim-")
    }
    assert tagged.keys() == wanted
    for tag, source in tagged.items():
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(source))), tag
