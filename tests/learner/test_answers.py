"""Stored answers are ordinary modules."""

import subprocess
import sys

import pytest

from tests.learner.conftest import Notebook
from txcourse.learner import answers
from txcourse.learner.answers import NotStored
from txcourse.learner.workspace import Workspace

NAMES = [
    "softmax",
    "scaled_dot_product_attention",
    "causal_mask",
    "MultiHeadAttention",
    "split_heads",
    "EncoderLayer",
]

IMPORTS = "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn\n"
ATTENTION = """def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return F.softmax(scores, -1) @ value
"""
SPLIT = "def split_heads(x, n_heads):\n    return x\n"
HEADS = """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.w = nn.Linear(d_model, d_model)

    def forward(self, x):
        return scaled_dot_product_attention(split_heads(self.w(x), 2), x, x)
"""


def block(notebook: Notebook, name: str) -> str:
    cell, others, namespace = answers.cells_of(notebook.names[name], name)
    return answers.block_of(name, cell, others, namespace, NAMES)


def keep(work: Workspace, notebook: Notebook, name: str, place: str = "03_attention") -> str:
    return answers.store(work, place, name, block(notebook, name), NAMES).read_text()


def test_the_module_runs_alone_with_the_imports_of_another_cell(work: Workspace, notebook: Notebook) -> None:
    notebook.run(IMPORTS)
    notebook.run(ATTENTION + "print('tried')\n")
    text = keep(work, notebook, "scaled_dot_product_attention")
    assert "import math\nimport torch.nn.functional as F\nfrom torch import Tensor\n" in text
    assert "nn" not in text.replace("torch.nn", "") and "print" not in text
    run = "import attention, torch; x = torch.eye(3); print(attention.scaled_dot_product_attention(x, x, x).shape)"
    done = subprocess.run([sys.executable, "-c", run], cwd=work.answers, capture_output=True, text=True)
    assert done.stdout == "torch.Size([3, 3])\n", done.stderr


def test_a_class_is_found_too(work: Workspace, notebook: Notebook) -> None:
    notebook.run(IMPORTS)
    notebook.run("scaled_dot_product_attention = split_heads = None")
    notebook.run("x = 1\n" + HEADS)
    text = keep(work, notebook, "MultiHeadAttention", "05_multi_head_attention")
    assert "from txcourse.mine import scaled_dot_product_attention, split_heads\n" in text
    assert "x = 1" not in text


def test_an_exercise_of_the_same_module_is_not_imported(work: Workspace, notebook: Notebook) -> None:
    notebook.run(IMPORTS + SPLIT)
    notebook.run(HEADS)
    keep(work, notebook, "MultiHeadAttention", "05_multi_head_attention")
    text = keep(work, notebook, "split_heads", "05_multi_head_attention")
    assert (
        "from txcourse.mine import scaled_dot_product_attention\n" in text
        and text.count("def split_heads") == 1
    )
    answers.remove(work, "05_multi_head_attention", ["split_heads"], NAMES)
    text = answers.answer_file(work, "05_multi_head_attention").read_text()
    assert "import scaled_dot_product_attention, split_heads\n" in text and "def split_heads" not in text


def test_blocks_are_replaced_one_by_one_and_the_old_module_is_kept(
    work: Workspace, notebook: Notebook
) -> None:
    notebook.run(IMPORTS + ATTENTION)
    keep(work, notebook, "scaled_dot_product_attention")
    notebook.run("def causal_mask(length):\n    return torch.ones(length, length).tril().bool()")
    first = keep(work, notebook, "causal_mask")
    notebook.run("def causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool).tril()")
    second = keep(work, notebook, "causal_mask")
    assert (
        second.count("def causal_mask") == 1 and "dtype=torch.bool" in second and ATTENTION.rstrip() in second
    )
    assert first in [file.read_text() for file in (work.answers / "earlier").iterdir()]
    before = sorted((work.answers / "earlier").iterdir())
    keep(work, notebook, "causal_mask")  # the same again: nothing to keep
    assert sorted((work.answers / "earlier").iterdir()) == before


@pytest.mark.parametrize(
    "helper", ["def scale(d):\n    return d**0.5", "scale = 4.0", "class scale:\n    pass"]
)
def test_a_helper_of_another_cell_is_reported_by_name(
    work: Workspace, notebook: Notebook, helper: str
) -> None:
    notebook.run(helper)
    notebook.run("def softmax(x, dim=-1):\n    return scale(x)")
    with pytest.raises(NotStored, match="uses `scale`, defined in another cell; move it"):
        block(notebook, "softmax")
    assert not work.answers.exists()


def test_a_helper_in_the_same_cell_moves_along(work: Workspace, notebook: Notebook) -> None:
    notebook.run(
        "BASE = 2\ndef scale(d):\n    return d * BASE\n\ndef softmax(x, dim=-1):\n    return scale(x)"
    )
    assert "BASE = 2" in keep(work, notebook, "softmax", "00_start_here")


def test_two_answers_may_not_give_one_name_two_meanings(work: Workspace, notebook: Notebook) -> None:
    notebook.run("def scale(d):\n    return d\n\ndef softmax(x, dim=-1):\n    return scale(x)")
    keep(work, notebook, "softmax")
    notebook.run("def scale(d):\n    return -d\n\ndef causal_mask(length):\n    return scale(length)")
    with pytest.raises(NotStored, match="`scale` means something else in your answer to `softmax`"):
        keep(work, notebook, "causal_mask")


def test_names_from_star_imports(work: Workspace, notebook: Notebook) -> None:
    notebook.run("from torch import *\nfrom math import *")
    notebook.run("def softmax(x: Tensor, dim=-1):\n    return exp(x) * sqrt(x.shape[0])")
    text = keep(work, notebook, "softmax", "00_start_here")
    assert "from math import sqrt" in text and "from torch import Tensor" in text


def test_future_imports_stand_first(work: Workspace, notebook: Notebook) -> None:
    notebook.run("import torch")
    notebook.run("from __future__ import annotations\n\ndef softmax(x: Undefined):\n    return torch.exp(x)")
    keep(work, notebook, "softmax", "00_start_here")


def test_what_would_not_import_is_not_stored(work: Workspace, notebook: Notebook) -> None:
    notebook.run("LIMIT = 1\ndef softmax(x):\n    return x * LIMIT")
    keep(work, notebook, "softmax", "00_start_here")
    text = answers.answer_file(work, "00_start_here").read_text()
    with pytest.raises(NotStored, match="ZeroDivisionError"):
        answers.store(
            work, "00_start_here", "causal_mask", "A = 1 / 0\ndef causal_mask():\n    return A", NAMES
        )
    assert answers.answer_file(work, "00_start_here").read_text() == text


def test_an_object_that_can_be_called_is_found_by_its_name(work: Workspace, notebook: Notebook) -> None:
    notebook.run(
        "class Attention:\n    def __call__(self, x):\n        return x\n\ncausal_mask = Attention()"
    )
    assert "causal_mask = Attention()" in keep(work, notebook, "causal_mask")


def test_an_alias_from_another_cell(work: Workspace, notebook: Notebook) -> None:
    notebook.run("def my_softmax(x, dim=-1):\n    return x\n\nsoftmax = my_softmax")
    assert "softmax = my_softmax" in keep(work, notebook, "softmax", "00_start_here")
