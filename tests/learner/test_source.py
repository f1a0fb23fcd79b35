"""What a cell defines and uses."""

import pytest

from txcourse.source import import_of, part_for, statements

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
