import math

import pytest
import torch
from torch import nn

from txcourse.solutions.start_here import Linear, softmax


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_softmax_equals_torch_with_gradient(dim: int) -> None:
    x = (10 * torch.randn(3, 4, 5, dtype=torch.float64)).requires_grad_()
    up = torch.randn(3, 4, 5, dtype=torch.float64)
    (ours,) = torch.autograd.grad(softmax(x, dim), x, up)
    (theirs,) = torch.autograd.grad(torch.softmax(x, dim), x, up)
    torch.testing.assert_close(softmax(x, dim), torch.softmax(x, dim))
    torch.testing.assert_close(ours, theirs)


def test_softmax_of_large_inputs_and_of_minus_infinity() -> None:
    x = torch.tensor([[1000.0, 1000.0, -1e4], [0.0, -math.inf, 0.0], [-math.inf] * 3], requires_grad=True)
    y = softmax(x)
    torch.testing.assert_close(y, torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    (y * torch.randn(3, 3)).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert (x.grad[2] == 0).all()


@pytest.mark.parametrize("bias", [True, False])
def test_linear_equals_torch(bias: bool) -> None:
    ours, theirs = Linear(4, 6, bias=bias), nn.Linear(4, 6, bias=bias)
    theirs.load_state_dict(ours.state_dict())  # the names are PyTorch's
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(ours(x), theirs(x))
    assert len(list(ours.parameters())) == 1 + bias
    assert Linear(4, 6).bias is not None
    for parameter in Linear(100, 200).parameters():
        assert -0.1 <= parameter.min() < -0.08 and 0.08 < parameter.max() <= 0.1
