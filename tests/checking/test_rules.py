"""What an exercise does not allow is seen by what runs, under any name, and said as that."""

import functools
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checking.test_engine import right
from txcourse import exercises, run_check
from txcourse.checking.rules import RULES

NAME = "scaled_dot_product_attention"
hidden_name = F.scaled_dot_product_attention


def by_alias(query, key, value, mask=None):
    return hidden_name(query, key, value, mask), right(query, key, value, mask)[1]


def by_getattr(query, key, value, mask=None):
    return getattr(F, "scaled_dot_" + "product_attention")(query, key, value, mask), right(
        query, key, value, mask
    )[1]


def by_torch(query, key, value, mask=None):
    kernel = torch._C._nn.scaled_dot_product_attention
    return kernel(query, key, value, mask), right(query, key, value, mask)[1]


def when_asked_for_gradients(query, key, value, mask=None):
    if query.requires_grad:
        return F.scaled_dot_product_attention(query, key, value, mask), right(query, key, value, mask)[1]
    return right(query, key, value, mask)


def by_the_course(query, key, value, mask=None):
    from txcourse.solutions.attention import scaled_dot_product_attention as borrowed

    return borrowed(query, key, value, mask)


@pytest.mark.parametrize(
    "candidate", [by_alias, by_getattr, by_torch, when_asked_for_gradients, by_the_course]
)
def test_functions(candidate) -> None:
    report = run_check(NAME, candidate, seed=0)
    assert report.mistake == "not_allowed" and "Your code" in report.message


def compiled():
    unit = torch.jit.CompilationUnit("def f(x: Tensor, dim: int):\n    return x.soft" + "max(dim)\n")
    return lambda x, dim=-1: unit.f(x, dim)


def by_attention(x, dim=-1):
    rows = x.transpose(dim, -1).unsqueeze(-2)
    eye = torch.eye(rows.size(-1), dtype=x.dtype).expand(*rows.shape[:-2], -1, -1)
    kernel = getattr(F, "scaled_dot_" + "product_attention")
    return kernel(torch.zeros_like(rows), eye, eye, attn_mask=rows).squeeze(-2).transpose(dim, -1)


@pytest.mark.parametrize("candidate", [compiled(), by_attention])
def test_a_softmax_inside_something_else(candidate) -> None:
    assert run_check("softmax", candidate, seed=0).mistake == "not_allowed"


def test_modules_and_subclasses() -> None:
    class Mine(nn.MultiheadAttention):
        pass

    class Wrapped(nn.Module):
        def __init__(self, d_model, n_heads, dropout=0.0):
            super().__init__()
            self.inner = vars(nn)["Multihead" + "Attention"](d_model, n_heads, dropout, batch_first=True)

        def forward(self, query, key, value, mask=None):
            return self.inner(query, key, value)[0]

    for candidate in (nn.MultiheadAttention, Mine, Wrapped, functools.partial(Wrapped, dropout=0.1)):
        assert run_check("MultiHeadAttention", candidate, seed=0).mistake == "not_allowed"


def test_the_courses_objects_are_no_answers() -> None:
    from txcourse.solutions.multi_head_attention import MultiHeadAttention

    class Subclass(MultiHeadAttention):
        pass

    for candidate in (MultiHeadAttention, Subclass, functools.partial(MultiHeadAttention)):
        assert run_check("MultiHeadAttention", candidate, seed=0).mistake == "not_allowed"


def test_what_is_allowed_is_not_confused_with_it() -> None:
    def scaled_dot_product_attention(query, key, value, mask=None):
        """Not F.scaled_dot_product_attention."""
        return right(query, key, value, mask)

    assert run_check(NAME, scaled_dot_product_attention, seed=0).passed


def test_every_rule_is_known() -> None:
    used = {rule for name in exercises.names() for rule in exercises.get(name).not_allowed}
    assert used <= set(RULES)


def test_the_first_check_imports_no_compiler() -> None:
    """PyTorch imports its compiler when a mode like ours sees its first operation: a second within the learner's call."""
    script = (
        "import sys, torch, txcourse\n"
        "f = lambda step, d_model, warmup, factor=1.0: factor * d_model**-0.5 * torch.tensor(\n"
        "    [max(step, 1) ** -0.5, max(step, 1) * warmup**-1.5], dtype=torch.float64).min().item()\n"
        "assert txcourse.run_check('noam_lr', f).passed\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
