"""`txcourse check NOTEBOOK`: whatever the cells do, each exercise gets a result."""

from pathlib import Path

import pytest

from tests.learner.conftest import cells
from txcourse.errors import UserError
from txcourse.learner import answers, status, terminal, worker
from txcourse.learner.workspace import Workspace

RIGHT = "def causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool).tril()"
IMPORTS = "import math\nimport time, os\nimport numpy as np\nimport torch\nfrom torch import Tensor"


def results(work: Workspace, **sources: str) -> dict[str, terminal.Result]:
    file = work.root / "03_attention.ipynb"
    file.write_text(cells(IMPORTS, "print('a' * 10_000_000)", *sources.items()))
    found = {result.name: result for result in terminal.check_notebook(str(file), 12)}
    assert list(found) == [
        "attention_by_loops",
        "scaled_dot_product_attention",
        "padding_mask",
        "causal_mask",
    ]
    return found


def test_right_wrong_open_and_missing(work: Workspace) -> None:
    found = results(
        work,
        causal_mask=RIGHT,
        padding_mask="def padding_mask(tokens, pad_id=0):\n    return (tokens == pad_id)[:, None, None]",
        attention_by_loops="def attention_by_loops(query, key, value):\n    raise NotImplementedError",
    )
    assert [name for name, result in found.items() if result.passed] == ["causal_mask"]
    assert "Not started" in found["attention_by_loops"].text
    assert "no cell of the notebook defines it" in found["scaled_dot_product_attention"].text
    assert found["padding_mask"].report["mistake"]
    states = [status(name, work) for name in found]
    assert states == ["open", "open", "tried", "done"]
    text = answers.answer_file(work, "03_attention").read_text()
    assert "import torch\n" in text and "def causal_mask" in text


def test_a_loop_in_c_and_a_process_that_ends_cost_one_exercise_each(work: Workspace) -> None:
    found = results(
        work,
        attention_by_loops="def attention_by_loops(query, key, value):\n    os._exit(3)",
        scaled_dot_product_attention=(
            "def scaled_dot_product_attention(query, key, value, mask=None):\n    return sum(iter(int, 1))"
        ),
        padding_mask="def padding_mask(tokens, pad_id=0):\n    return np.ones(10**12)",
        causal_mask=RIGHT,
    )
    assert "ended the process that ran it (exit code 3)" in found["attention_by_loops"].text
    assert "did not end within" in found["scaled_dot_product_attention"].text
    assert not found["padding_mask"].passed
    assert found["causal_mask"].passed


def test_cells_that_stop_on_their_own(work: Workspace) -> None:
    found = results(
        work,
        causal_mask="LIMIT = 1 / 0\ndef causal_mask(length):\n    return LIMIT",
        padding_mask="def padding_mask(tokens:\n    return 1",
        attention_by_loops="raise SystemExit\ndef attention_by_loops(q, k, v): pass",
    )
    assert "ZeroDivisionError" in found["causal_mask"].text
    assert "SyntaxError" in found["padding_mask"].text


def test_other_exercises_are_the_references() -> None:
    """An answer that builds on another, which is open in the notebook, is judged on its own."""
    cell = "def padding_mask(tokens, pad_id=0):\n    assert causal_mask(2)[1, 0]\n    return (tokens != pad_id)[:, None, None]"
    stub = "def causal_mask(length):\n    raise NotImplementedError"
    result = worker.run("padding_mask", "03_attention", cell, [IMPORTS, stub])
    assert result["passed"], result["text"]


def test_a_helper_of_another_cell_counts_but_is_not_stored(work: Workspace) -> None:
    cell = "def causal_mask(length):\n    return triangle(length)"
    helper = "def triangle(n):\n    return torch.ones(n, n, dtype=torch.bool).tril()"
    result = worker.run("causal_mask", "03_attention", cell, [IMPORTS, helper])
    assert result["passed"] and "uses `triangle`, defined in another cell" in result["text"]
    assert not work.answers.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("99_nothing", "no exercise or notebook"),
        ("a/b.ipynb", "there is no file"),
        ("03", "not there; `txcourse update`"),
    ],
)
def test_bad_names(work: Workspace, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(terminal.check_notebook(name, 5))


def test_a_file_that_is_no_notebook(work: Workspace, tmp_path: Path) -> None:
    (tmp_path / "03_attention.ipynb").write_text("{")
    with pytest.raises(UserError, match="not a notebook any more"):
        list(terminal.check_notebook(str(tmp_path / "03_attention.ipynb"), 5))
