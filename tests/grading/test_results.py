"""Tables and pages: what is in them, and that nothing in a name or an answer gets out of its place."""

import csv
import json
import re
from html.parser import HTMLParser

import pytest

from tests.grading.conftest import Graded
from txcourse.grading import results
from txcourse.grading.results import plain, points, table, without_values

VALUES = [
    (
        "The output first differs at [0, 1] (query 0, key 1): expected 0.6312, yours -0.21; largest difference 1.3, 30 of 36 values differ.",
        "The output first differs at [0, 1] (query 0, key 1); 30 of 36 values differ.",
    ),
    (
        "The result first differs: expected 1.5, yours nan; 4 of 9 values are NaN.",
        "The result first differs; 4 of 9 values are NaN.",
    ),
    ("The score should be 0.12345; yours is 0.5.", "The score is not what it should be."),
    ("The list should be ['a', 'b. c']; yours is ['x'].", "The list is not what it should be."),
    (
        "The list should be [1, 2]; yours is None (is a return missing?).",
        "The list is not what it should be.",
    ),
    ("`weight` should have shape (7, 5); yours has (5, 7).", None),
    ("The mask should be boolean (torch.bool); yours is torch.float32.", None),
    ("Your scores are not divided by √d_k.", None),
    ("", None),
]


@pytest.mark.parametrize(("message", "shown"), VALUES)
def test_values_are_left_out(message: str, shown: str | None) -> None:
    assert without_values(message) == (message if shown is None else shown)


def test_every_message_of_values_is_known() -> None:
    """The messages of the comparison itself: none of them shows what was expected."""
    import torch

    from txcourse.checking.compare import difference

    secret = 0.4711
    for got, want in (
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, secret])),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, secret])),
        (3.0, secret),
        ([1, 2], [1, 4711]),
        (["a"], ["4711"]),
        ("a", "4711"),
        ((torch.tensor(1.0),), (torch.tensor(secret),)),
        (None, [4711, 3]),
    ):
        message = difference(got, want)
        assert message is not None and "4711" not in without_values(message), message


@pytest.mark.parametrize(
    ("cell", "safe"),
    [("=1+1", "'=1+1"), ("+1 a", "'+1 a"), ("-x", "'-x"), ("@x", "'@x"), ("\tx", "'\tx"), ("-3.5", "-3.5"), ("3", "3"), ("a=b", "a=b"), (None, ""), ("", "")],
)  # fmt: skip
def test_a_cell_is_no_formula(cell: str | None, safe: str) -> None:
    assert plain(cell) == safe


def test_points() -> None:
    assert [points(p) for p in (None, 0.0, 2.0, 0.5, 1.25, 10.0, 1 / 3)] == [
        "",
        "0",
        "2",
        "0.5",
        "1.25",
        "10",
        "0.33",
    ]


def test_grades(graded: Graded) -> None:
    text = (graded.out / "grades.csv").read_text(encoding="utf-8-sig")
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == [
        "id",
        "name",
        "email",
        "padding_mask",
        "causal_mask",
        "total",
        "out_of",
        "late",
        "state",
    ]
    assert {len(row) for row in rows} == {9} and len(rows) == len(graded.expected) + 1
    assert not any(cell[:1] in "=+-@\t\r" for row in rows for cell in row if cell)
    by_id = {row[0]: row for row in rows}
    assert by_id["one_answer"][3:] == ["1", "0", "1", "2", "", "graded"]
    assert by_id["empty"][3:] == ["0", "0", "0", "2", "", "unreadable"]


def test_results_hold_no_seed(graded: Graded) -> None:
    found = json.loads((graded.out / "results.json").read_text(encoding="utf-8"))
    assert "seed" not in found["assignment"] and found["format"] == 1
    levels = {s["isolation"] for s in found["students"] if s["state"] == "graded"}
    assert len(levels) == 1 and levels <= {"bubblewrap", "user namespace", "other user", "limits only"}
    causal = found["class"][1]
    assert causal["name"] == "causal_mask" and causal["statuses"]["missing"] >= 4


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


OURS = set(
    "html head meta title style body h1 h2 p b bdi br table tr th td a code span div details summary pre".split()
)


def test_pages_hold_our_tags_alone(graded: Graded) -> None:
    pages = [graded.out / "class.html", *(graded.out / "feedback").iterdir()]
    assert len(pages) == len(graded.expected) + 1
    for page in pages:
        seen = _Tags()
        seen.feed(page.read_text(encoding="utf-8"))
        assert seen.tags <= OURS, page
        assert seen.attributes <= set("lang charset http-equiv content name class style href id dir".split())


def test_names_are_shown_as_they_are(graded: Graded) -> None:
    text = (graded.out / "class.html").read_text(encoding="utf-8")
    if "🦊 fox" not in graded.expected:
        pytest.skip("not on this system")
    assert (
        "&lt;script&gt;alert(1)" in text
        and "&amp;amp;" in text
        and "{{ 7 * 7 }}" in text
        and "🦊 fox" in text
    )


def test_the_feedback_says_what_the_notebook_says(graded: Graded) -> None:
    (found,) = (s for s in graded.results.to_dict()["students"] if s["id"] == "one_that_is_no_python")
    page = (graded.out / found["feedback"]).read_text(encoding="utf-8")
    assert "<b>1</b> of 2 points" in page and "cannot be read as Python" in page and "Hint 3" in page
    assert re.search(r"padding_mask</code></a></td><td class=\"passed\">passed</td>", page)


def test_answers_that_are_alike(graded: Graded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The masks are too short to be compared; here they are not."""
    assert graded.results.to_dict()["similar"] == []
    longer = [
        each
        for each in graded.results.graded
        if each.submission.student.id in ("right", "no_metadata", "stubs")
    ]
    for each in longer:
        for e in (each.result or {})["exercises"]:
            monkeypatch.setitem(e, "alike", "h" if e["source"] and e["name"] == "causal_mask" else None)
    assert results.similar(graded.results.assignment, longer) == [
        {"exercise": "causal_mask", "reference": False, "students": ["no_metadata", "right"]}
    ]


def test_a_table_can_be_read_again() -> None:
    rows = [["a", 'b "c"', "d,e"], ["f;g", "h\ni", ""]]
    assert list(csv.reader(table(rows, ";").splitlines(keepends=True), delimiter=";")) == rows
