"""What a cell defines and uses."""

import pytest

from txcourse.source import Cell, candidate, code_cells, import_of, part_for, statements

CELL = """import math
from torch import nn, Tensor
SIZE = 4  # for later
print("SIZE")

# scores are divided by this
def scale(d):
    return math.sqrt(d)
ROOT = scale(SIZE); other = 3

class Attention(nn.Module):
    factor = ROOT

    def forward(self, x: Tensor) -> Tensor:
        local = x * self.factor
        return helper(local)

Attention.name = "mine"
Attention = check(Attention)
for i in range(3): print(Attention)
"""


def test_part_holds_what_a_name_needs_and_nothing_else() -> None:
    part, missing = part_for("Attention", statements(CELL))
    text = "\n".join(statement.text for statement in part)
    assert missing == {"helper"}
    assert "# scores are divided by this\ndef scale" in text
    assert "ROOT = scale(SIZE)" in text and 'Attention.name = "mine"' in text and "SIZE = 4" in text
    assert "print" not in text and "check" not in text and "other" not in text


def test_part_runs_alone() -> None:
    part, _ = part_for("Attention", statements(CELL))
    names: dict = {}
    exec("\n".join(statement.text for statement in part), names)
    assert names["Attention"].factor == 2 and names["Attention"].name == "mine"


def test_names_of_inner_scopes_count_where_they_are_global() -> None:
    source = "def f(a):\n    b = 1\n    def g(c):\n        return [a + b + c + d for e in z]\n    return g"
    assert part_for("f", statements(source))[1] == {"d", "z"}


def test_a_name_that_is_missing() -> None:
    assert part_for("f", statements("x = 1")) == ([], {"f"})


@pytest.mark.parametrize(
    ("cell", "name", "line"),
    [
        ("import torch.nn.functional as F", "F", "import torch.nn.functional as F"),
        ("import torch.nn.functional", "torch", "import torch.nn.functional"),
        ("from torch import nn, Tensor as T", "T", "from torch import Tensor as T"),
        ("import math, sys", "sys", "import sys"),
        ("import math", "sys", None),
    ],
)
def test_import_of_one_name(cell: str, name: str, line: str | None) -> None:
    assert import_of(name, statements(cell)) == line


def test_lines_of_ipython_are_left_out_but_not_those_inside_strings() -> None:
    assert [s.text for s in statements("%matplotlib inline\n!ls\nx = 1")] == ["x = 1"]
    text = 'x = """\n%d\n"""'
    assert [s.text for s in statements(text)] == [text]


def test_a_cell_that_is_no_python() -> None:
    with pytest.raises(SyntaxError):
        statements("def f(:")


ANSWER = "def f(x):\n    return x"
STUB = 'def f(x):\n    """Doc."""\n    raise NotImplementedError("later")'
CHECK = "f = check(f)"


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ([Cell(ANSWER, "f"), Cell(ANSWER), Cell(CHECK), Cell(ANSWER)], 0),  # marked
        ([Cell(ANSWER, "f"), Cell(ANSWER, "f"), Cell("g = f", "f")], 1),  # copied with its mark
        ([Cell(ANSWER), Cell(ANSWER), Cell(CHECK), Cell(ANSWER)], 1),  # before its check
        ([Cell("1"), Cell(CHECK), Cell(ANSWER), Cell("2")], 2),  # anywhere
        (
            [Cell(STUB, "f"), Cell(CHECK), Cell(ANSWER)],
            2,
        ),  # the stub was left, the answer stands in a new cell
        ([Cell(ANSWER, "f"), Cell(STUB, "f")], 0),
        ([Cell(STUB, "f"), Cell(CHECK)], 0),
        ([Cell("def f(:", "f"), Cell(CHECK)], 0),  # so that somebody can say what is wrong with it
        ([Cell("g = 1"), Cell(CHECK)], None),
        ([], None),
    ],
)
def test_which_cell_is_the_answer(cells: list[Cell], wanted: int | None) -> None:
    assert candidate(cells, "f") == wanted


def test_cells_of_any_version_and_of_none() -> None:
    cell = {"cell_type": "code", "source": ["a = 1\n", "b = 2"], "metadata": {"txcourse": {"exercise": "a"}}}
    assert code_cells({"cells": [cell, {"cell_type": "markdown"}]}) == [Cell("a = 1\nb = 2", "a")]
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": "a = 1", "language": "python"}]}]}
    assert code_cells(old) == [Cell("a = 1")]
    for broken in (
        {"metadata": 3},
        {"metadata": {"txcourse": "f"}},
        {"metadata": {"txcourse": {"exercise": []}}},
    ):
        assert code_cells({"cells": [{"cell_type": "code"} | broken]}) == [Cell("")]
    for nothing in (None, 3, [], {}, {"cells": 3}, {"cells": [3]}, {"worksheets": {}}, {"worksheets": [[]]}):
        assert code_cells(nothing) == []
