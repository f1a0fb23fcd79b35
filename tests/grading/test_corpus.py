"""Files of every kind get the marks they should, and nothing else is touched."""

import pytest

from tests.grading import corpus
from tests.grading.conftest import Graded, fingerprint


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
