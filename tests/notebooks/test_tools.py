"""Filling, stubs, hashes and the checks of form, on small notebooks made here."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from txcourse import notebooks
from txcourse.errors import UserError

SOURCE = '''"""Module."""

import math

from torch import nn

_FACTOR = 2


# Twice the root.
def _helper(x: float) -> float:
    return _FACTOR * math.sqrt(x)


def double_root(x: float) -> float:
    """Twice the root of x."""
    return _helper(x)


class Layer(nn.Module):
    """A layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: float) -> float:
        """x → x times size."""
        return self._inner(x)

    def _inner(self, x: float) -> float:
        return double_root(x) * self.size
'''
TITLE = "# 03 · Attention\n\nAbout 20 minutes." + "\n<details></details>" * 3


def exercise_cell(name: str, text: str) -> nbformat.NotebookNode:
    return new_code_cell(text, metadata={"txcourse": {"exercise": name}})


def test_answer_brings_its_helpers_in_order_and_leaves_known_ones_out() -> None:
    text = notebooks.answer("double_root", SOURCE, known={"math"})
    assert (
        text.index("_FACTOR = 2")
        < text.index("# Twice the root.\ndef _helper")
        < text.index("def double_root")
    )
    assert notebooks.answer("Layer", SOURCE, known={"double_root"}).startswith("class Layer")
    with pytest.raises(UserError, match="no solution named 'missing'"):
        notebooks.answer("missing", SOURCE, set())


def test_stub_keeps_signatures_and_docstrings_and_nothing_else() -> None:
    for name in ("double_root", "Layer"):
        text = notebooks.stub(name, SOURCE)
        assert notebooks.interface(text, name) == notebooks.interface(SOURCE, name)
        assert "_inner" not in text and "_helper" not in text and "self.size" not in text
    space: dict[str, object] = {}
    exec(notebooks.stub("double_root", SOURCE), space)
    with pytest.raises(NotImplementedError):
        space["double_root"](1.0)  # type: ignore[operator]


def test_filled_cells_run() -> None:
    student = new_notebook(
        cells=[
            new_code_cell("import math\nfrom torch import nn"),
            exercise_cell("double_root", notebooks.stub("double_root", SOURCE)),
            exercise_cell("Layer", notebooks.stub("Layer", SOURCE)),
        ]
    )
    space: dict[str, object] = {}
    for cell in notebooks.fill(student, SOURCE).cells:
        exec(cell.source, space)
    assert space["Layer"](3).forward(4.0) == 12.0  # type: ignore[operator]
    assert "NotImplementedError" in student.cells[1].source  # the student copy is left alone


def test_strip_keeps_ids_tags_and_exercises_only() -> None:
    cell = new_code_cell("1", execution_count=3, metadata={"tags": ["a"], "collapsed": True})
    cell.outputs = [nbformat.v4.new_output("stream", text="1")]
    bare = notebooks.strip(new_notebook(cells=[cell], metadata={"vscode": {}}))
    assert bare.cells[0].id == cell.id and bare.cells[0].metadata == {"tags": ["a"]}
    assert (
        bare.cells[0].outputs == []
        and bare.cells[0].execution_count is None
        and "vscode" not in bare.metadata
    )


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([new_markdown_cell("Attention")], "not a title"),
        ([new_markdown_cell("# 03 · Attention")], "how many minutes"),
        ([new_markdown_cell(TITLE), new_markdown_cell("word " * 100)], "at most 420"),
        ([new_markdown_cell(TITLE.replace("<details>", ""))], "three questions"),
        ([new_markdown_cell(TITLE), new_code_cell("x = 1;")], "ends with ';'"),
        ([new_markdown_cell(TITLE), new_code_cell("x = 1", execution_count=1)], "has outputs"),
        ([new_markdown_cell(TITLE), new_code_cell("x = 1\n" * 41)], "longer than 40"),
        ([new_markdown_cell(TITLE), new_code_cell("x = 1\n" * 7)], "median code cell"),
        ([new_markdown_cell(TITLE), exercise_cell("nothing", "def nothing(): ...")], "not in attention.py"),
        (
            [
                new_markdown_cell(TITLE),
                exercise_cell("causal_mask", "def causal_mask(n): raise NotImplementedError"),
            ],
            "signature or docstring",
        ),
        ([new_markdown_cell(TITLE), exercise_cell("causal_mask", "x = 1")], "next code cell must be"),
        (
            [
                new_markdown_cell(TITLE),
                exercise_cell("causal_mask", "x = 1"),
                new_code_cell("causal_mask = check(causal_mask)"),
                new_code_cell("causal_mask = None"),
            ],
            "rebinds ['causal_mask']",
        ),
        (
            [new_markdown_cell(TITLE), new_markdown_cell("### Exercise: `x`\n●○○ · 5 minutes\n\nText.")],
            "no **Think first**",
        ),
    ],
)
def test_problems_are_found(tmp_path: Path, cells: list[nbformat.NotebookNode], sentence: str) -> None:
    path = tmp_path / "03_attention.ipynb"
    notebooks.write(new_notebook(cells=cells), path)
    assert any(sentence in problem for problem in notebooks.problems(path)), notebooks.problems(path)


def test_hash_sees_the_notebook_and_the_solutions_it_stands_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "txcourse"
    (package / "solutions").mkdir(parents=True)
    (package / "exercises").mkdir()
    monkeypatch.setattr(notebooks, "PACKAGE", package)
    own, base, plots = package / "solutions/b.py", package / "solutions/a.py", package / "plots.py"
    own.write_text("from txcourse.solutions.a import x\n")
    base.write_text("x = 1\n")
    plots.write_text("")
    path = tmp_path / "01_b.ipynb"
    cell = new_code_cell("from txcourse import check, plots")
    notebooks.write(new_notebook(cells=[cell]), path)
    seen = {notebooks.made_from(path)}
    for file in (base, own, plots, package / "exercises/b.py"):
        file.write_text((file.read_text() if file.exists() else "") + "# changed\n")
        seen.add(notebooks.made_from(path))
    cell.source += "\n"
    notebooks.write(new_notebook(cells=[cell]), path)
    seen.add(notebooks.made_from(path))
    assert len(seen) == 6
    cell.execution_count = 5  # an output of the learner's run changes nothing
    notebooks.write(new_notebook(cells=[cell]), path)
    assert notebooks.made_from(path) in seen


def test_unknown_notebook_is_one_line() -> None:
    with pytest.raises(UserError, match="no notebook named '99'"):
        notebooks.build(["99"])


def test_a_notebook_whose_data_may_not_be_shown_is_not_built() -> None:
    with pytest.raises(UserError, match=r"18_translation\.ipynb has no solved copy"):
        notebooks.build(["18"])
    assert not (notebooks.SOLVED / "18_translation.ipynb").exists()


def test_failing_cell_is_named() -> None:
    with pytest.raises(UserError, match="ZeroDivisionError"):
        notebooks.execute(new_notebook(cells=[new_code_cell("1 / 0")]))


def test_quick_run_replaces_budgets_and_leaves_trained_results_out() -> None:
    cells = [
        new_code_cell("steps = 100", metadata={"txcourse": {"quick": "steps = 1"}}),
        new_code_cell("assert steps == 100", metadata={"tags": ["needs-training"]}),
        new_code_cell("print(steps)"),
    ]
    run, _ = notebooks.execute(new_notebook(cells=cells), quick=True)
    assert run.cells[2].outputs[0].text == "1\n"
