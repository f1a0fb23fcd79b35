"""07 Feed-forward, LayerNorm and residual connections, post-norm and pre-norm."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class PositionwiseFeedForward(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂ at each position, the same weights everywhere; dropout after the ReLU.

    Source: Vaswani et al. (2017), section 3.3, equation 2.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(d_model, d_ff)
        self.linear_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """x (B, T, d_model) → (B, T, d_model), through d_ff features."""
        hidden = self.linear_1(x).relu()  # (..., d_ff)
        return self.linear_2(self.dropout(hidden))


class LayerNorm(nn.Module):
    """Mean 0 and variance 1 over the last axis, then times gain plus shift, feature by feature.

    (x − mean) / √(variance + eps), with the biased variance (divided by d_model) and eps inside the
    root. Parameters: gain (ones) and shift (zeros), both of size d_model.

    Source: Ba, Kiros and Hinton (2016), "Layer Normalization", section 3.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """x (B, T, d_model) → (B, T, d_model)."""
        mean = x.mean(dim=-1, keepdim=True)  # (..., 1)
        variance = x.var(dim=-1, keepdim=True, correction=0)  # (..., 1)
        return (x - mean) / (variance + self.eps).sqrt() * self.gain + self.shift


class ResidualConnection(nn.Module):
    """The path around a sublayer, with its own LayerNorm; dropout acts on the sublayer's output.

    norm_first=False (the paper): LayerNorm(x + Dropout(Sublayer(x))).
    norm_first=True (today): x + Dropout(Sublayer(LayerNorm(x))).

    Source: Vaswani et al. (2017), sections 3.1 and 5.4; pre-norm: Xiong et al. (2020).
    """

    def __init__(self, d_model: int, dropout: float = 0.0, norm_first: bool = False) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self, x: Float[Tensor, "... d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "... d_model"]:
        """x (B, T, d_model) and a function of it that keeps its shape → (B, T, d_model)."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
