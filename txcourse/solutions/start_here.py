"""00 Start here: a softmax that does not overflow, and the linear layer."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def softmax(x: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    """exp(x) divided by its sum along `dim`, for inputs of any size.

    Same shape as x; every slice along `dim` sums to 1. Large inputs such as 1000 must not overflow.
    A slice that is -inf everywhere gives zeros.
    """
    largest = x.detach().amax(dim, keepdim=True)  # softmax(x) = softmax(x - c): a constant for the gradient
    largest = largest.masked_fill(largest == -math.inf, 0.0)  # -inf - (-inf) would be NaN
    exps = (x - largest).exp()
    total = exps.sum(dim, keepdim=True)
    return exps / (total + (total == 0))  # all -inf: 0 / 1


class Linear(nn.Module):
    """x Wᵀ + b on the last axis.

    Parameters: `weight` (d_out, d_in) and `bias` (d_out), or `bias` None with bias=False. No two rows of
    `weight` start equal; uniform in ±1/√d_in is usual.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_in)
        self.weight = nn.Parameter(torch.empty(d_out, d_in).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """x (..., d_in) → (..., d_out)."""
        y = x @ self.weight.T  # (..., d_out)
        return y if self.bias is None else y + self.bias
