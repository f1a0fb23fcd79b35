"""update and reset: answers move along, nothing of the learner's is lost."""

import json
from pathlib import Path

import pytest

from tests.learner.conftest import cells
from txcourse.errors import UserError
from txcourse.learner import answers, course
from txcourse.learner.workspace import Workspace

STUB = "def causal_mask(length):\n    raise NotImplementedError"
ANSWER = "def causal_mask(length):\n    return 'mine'"
PADDING = "def padding_mask(tokens, pad_id=0):\n    raise NotImplementedError"
CHECK = "causal_mask = check(causal_mask)"
FIRST = cells("import torch", ("causal_mask", STUB), CHECK, ("padding_mask", PADDING))
SECOND = cells(
    "import torch  # new", "x = 1", ("padding_mask", PADDING), ("causal_mask", STUB + "  # new"), CHECK
)
NAME = "03_attention.ipynb"


@pytest.fixture
def begun(work: Workspace, delivered: Path) -> Workspace:
    """A workspace with the first version of the notebook; the course has the second."""
    (delivered / NAME).write_text(FIRST)
    course.bring_missing(work)
    (delivered / NAME).write_text(SECOND)
    return work


def edit(work: Workspace, old: str, new: str) -> str:
    file = work.root / NAME
    text = file.read_text().replace(json.dumps(old), json.dumps(new))
    assert json.dumps(new) in text
    file.write_text(text)
    return text


def exercise_cells(work: Workspace) -> dict[str, str]:
    found = json.loads((work.root / NAME).read_text())["cells"]
    return {c["metadata"]["txcourse"]["exercise"]: c["source"] for c in found if c["metadata"]}


def dated(work: Workspace) -> list[Path]:
    return sorted(work.root.glob("03_attention.20*.ipynb"))


def test_an_answer_moves_into_the_new_version(begun: Workspace) -> None:
    before = edit(begun, STUB, ANSWER)
    lines = course.update(begun)
    assert exercise_cells(begun) == {"causal_mask": ANSWER, "padding_mask": PADDING}
    assert "# new" in (begun.root / NAME).read_text()
    assert [file.read_text() for file in dated(begun)] == [before]
    assert lines == [
        f"03_attention: new version with your 1 answer; your file is kept as {dated(begun)[0].name}"
    ]
    assert course.update(begun) == ["03_attention: up to date"] and len(dated(begun)) == 1


def test_an_untouched_notebook_is_replaced(begun: Workspace) -> None:
    assert course.update(begun) == ["03_attention: new version"]
    assert (begun.root / NAME).read_text() == SECOND and not dated(begun)


def test_a_stub_that_was_not_touched_is_the_new_one(begun: Workspace) -> None:
    edit(begun, "import torch", "import torch  # my note")
    course.update(begun)
    assert exercise_cells(begun)["causal_mask"].endswith("# new") and "my note" in dated(begun)[0].read_text()


def test_an_answer_in_a_cell_without_metadata_is_found(begun: Workspace) -> None:
    text = edit(begun, STUB, ANSWER).replace('"exercise": "causal_mask"', '"other": 1')
    (begun.root / NAME).write_text(text)
    course.update(begun)
    assert exercise_cells(begun)["causal_mask"] == ANSWER


def test_an_answer_without_a_place_is_named(begun: Workspace, delivered: Path) -> None:
    edit(begun, STUB, ANSWER)
    (delivered / NAME).write_text(cells(("padding_mask", PADDING)))
    assert "causal_mask is no longer an exercise" in "\n".join(course.update(begun))


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"cells": 3}', '{"cells": [1]}', "\x00\xff"])
def test_a_broken_notebook_is_kept_and_replaced(begun: Workspace, broken: str) -> None:
    (begun.root / NAME).write_text(broken)
    course.update(begun)
    assert exercise_cells(begun)["padding_mask"] == PADDING
    assert [file.read_text() for file in dated(begun)] == [broken]


def test_a_deleted_notebook_comes_back(begun: Workspace) -> None:
    (begun.root / NAME).unlink()
    assert course.update(begun) == ["03_attention: new"]


def test_lab_tells_of_newer_versions_and_touches_nothing(begun: Workspace) -> None:
    before = (begun.root / NAME).read_text()
    course.bring_missing(begun)
    assert course.newer(begun) == ["03_attention"] and (begun.root / NAME).read_text() == before


def test_reset_of_one_exercise(begun: Workspace) -> None:
    edit(begun, PADDING, "def padding_mask(t):\n    return 1")
    before = edit(begun, STUB, ANSWER)
    answers.store(begun, "03_attention", "causal_mask", ANSWER, ["causal_mask"])
    begun.set_record("causal_mask", passed=True, tries=3)
    lines = course.reset("causal_mask", begun)
    assert exercise_cells(begun)["causal_mask"].startswith("def causal_mask(length):\n    raise")
    assert exercise_cells(begun)["padding_mask"].endswith("return 1")
    assert [file.read_text() for file in dated(begun)] == [before]
    assert "mine" not in answers.answer_file(begun, "03_attention").read_text()
    assert "mine" in next((begun.answers / "earlier").iterdir()).read_text()
    assert course.status("causal_mask", begun) == "open"
    assert len(lines) == 3


def test_reset_of_a_notebook(begun: Workspace) -> None:
    before = edit(begun, STUB, ANSWER)
    course.reset("attention", begun)
    assert (begun.root / NAME).read_text() == json.dumps(json.loads(SECOND), indent=1) + "\n"
    assert dated(begun)[0].read_text() == before


def test_reset_of_something_else(begun: Workspace) -> None:
    with pytest.raises(UserError, match="no exercise or notebook `nothing`; notebooks: 03_attention"):
        course.reset("nothing", begun)
