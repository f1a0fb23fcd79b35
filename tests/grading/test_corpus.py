"""Files of every kind get the marks they should, and nothing else is touched."""

from pathlib import Path

import pytest

from tests.grading import corpus, hostile
from tests.grading.conftest import Graded, fingerprint
from tests.grading.making import IMPORTS, text
from txcourse import exercises
from txcourse.grading.assignment import build
from txcourse.grading.cut import cut
from txcourse.grading.grade import grade
from txcourse.source import Cell, statements


def test_there_are_many_kinds() -> None:
    assert len(corpus.KINDS) >= 55


def test_every_kind_gets_its_marks(graded: Graded) -> None:
    found = {s["id"]: (s["state"], s["points"]) for s in graded.results.to_dict()["students"]}
    wrong = {
        name: (found.get(name), wanted)
        for name, wanted in graded.expected.items()
        if found.get(name) != wanted
    }
    assert not wrong, "found, expected"
    assert found.keys() == graded.expected.keys()


def test_no_file_but_the_results_is_touched(graded: Graded) -> None:
    assert fingerprint(graded.folder) == graded.before


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ("empty", "is empty"),
        ("picture", "binary file"),
        ("merge_conflict", "JSON is broken"),
        ("bomb", "larger than 256 MiB"),
        ("zips_in_zips", "zips inside zips"),
        ("a_folder", "is an empty folder, not a notebook"),
        ("with_a_file", "only hw.py"),
        ("link_out", "is a link, not a file"),
        ("pipe", "is no ordinary file"),
    ],
)
def test_what_is_said_about_it(graded: Graded, student: str, said: str) -> None:
    if student not in graded.expected:
        pytest.skip("not on this system")
    (found,) = (s for s in graded.results.to_dict()["students"] if s["id"] == student)
    assert said in " ".join(found["problems"])
    page = (graded.out / found["feedback"]).read_text(encoding="utf-8")
    assert said in page


def test_an_answer_that_is_no_python_is_an_error_and_none_is_missing(graded: Graded) -> None:
    statuses = {
        s["id"]: {e["name"]: e["status"] for e in s["exercises"]}
        for s in graded.results.to_dict()["students"]
    }
    assert statuses["one_that_is_no_python"] == {"padding_mask": "passed", "causal_mask": "error"}
    assert statuses["one_answer"] == {"padding_mask": "passed", "causal_mask": "missing"}
    assert statuses["stubs"] == {"padding_mask": "missing", "causal_mask": "missing"}
    assert statuses["a_check_of_its_own"]["causal_mask"] == "failed"


@pytest.mark.parametrize("part", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_hostile_answers_in_notebooks(tmp_path: Path, part: str) -> None:
    """They cost their own exercise alone: the next one of the same student, and the next student, lose nothing."""
    kinds = [k for k in hostile.ALL if not (part == "some" and k.slow)][:: 5 if part == "some" else 1]
    (tmp_path / "in").mkdir()
    for number, kind in enumerate(kinds):
        cells = (
            IMPORTS,
            (kind.exercise, kind.source),
            ("padding_mask", corpus.PADDING),
            "padding_mask = check(padding_mask)",
        )
        (tmp_path / "in" / f"s{number:03}.ipynb").write_text(text(*cells))
    before = fingerprint(tmp_path)
    asked = build(
        {
            "exercises": sorted({"padding_mask", *(k.exercise for k in kinds)}),
            "seed": 1,
            "limits": {"seconds": 4},
        }
    )
    found = grade(tmp_path / "in", tmp_path / "out", asked, jobs=2, progress=False)
    assert len(found) == len(kinds)
    wrong = {}
    for kind, one in zip(kinds, found, strict=True):
        assert one.result is not None
        marks = {e["name"]: e for e in one.result["exercises"]}
        mine, other = marks[kind.exercise], marks["padding_mask"]
        whole = _cut_keeps_all(kind)  # else what did the harm was no part of the answer, and was never run
        if other["status"] != "passed" or (kind.full and mine["status"] != "passed"):
            wrong[kind.kind] = (mine["status"], other["status"])
        elif (
            whole
            and not kind.needs
            and (
                mine["status"] not in kind.status or (mine["points"] == mine["max_points"] and not kind.full)
            )
        ):
            wrong[kind.kind] = (mine["status"], mine["points"])
    assert not wrong
    assert fingerprint(tmp_path) == before


def _cut_keeps_all(kind: hostile.Hostile) -> bool:
    made = cut(
        [Cell(IMPORTS), Cell(kind.source, kind.exercise)], kind.exercise, [kind.exercise], exercises.names()
    )
    try:
        return (
            made is not None
            and statements(kind.source)[-1].text in made.sources[0]
            and all(s.text in made.sources[0] for s in statements(kind.source) if not s.is_import)
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
