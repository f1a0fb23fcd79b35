"""06 Positional encoding: sinusoidal, learned, rotary."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def sinusoidal_positional_encoding(n_positions: int, d_model: int) -> Float[Tensor, "n_positions d_model"]:
    """Table of sines and cosines, one row per position (from 0).

    Column 2i is sin(pos / 10000^(2i / d_model)), column 2i + 1 the cosine of the same angle.
    An odd d_model ends with a sine. Shape: (n_positions, d_model).

    Source: Vaswani et al. (2017), section 3.5.
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (n, 1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i, one per pair
    angle = position / 10000 ** (even / d_model)  # (n, ceil(d / 2))
    table = torch.zeros(n_positions, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle[:, : d_model // 2].cos()  # an odd d_model has one cosine less
    return table.to(torch.get_default_dtype())


class PositionalEncoding(nn.Module):
    """Adds the sinusoidal table to the embeddings; dropout acts on the sum.

    The table moves with `.to()` and is no parameter.

    Source: Vaswani et al. (2017), sections 3.5 and 5.4.
    """

    table: Tensor

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.0) -> None:
        super().__init__()
        # Not persistent: a checkpoint needs no copy of a table that can be computed.
        self.register_buffer("table", sinusoidal_positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """x (B, T, d_model) → x + positions. Raises ValueError when T > max_len."""
        length, max_len = x.size(1), self.table.size(0)
        if length > max_len:
            raise ValueError(f"a sequence of {length} positions, but max_len = {max_len}")
        return self.dropout(x + self.table[:length])


class LearnedPositionalEmbedding(nn.Module):
    """Adds a learned vector per position: parameter `weight` (max_len, d_model).

    It may start with any small numbers; those of the reference are N(0, 1/d_model).

    Source: Vaswani et al. (2017), section 3.5 and table 3, row (E).
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_len, d_model) / d_model**0.5)

    def forward(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """x (B, T, d_model) → x + positions. Raises ValueError when T > max_len."""
        length, max_len = x.size(1), self.weight.size(0)
        if length > max_len:
            raise ValueError(f"a sequence of {length} positions, but max_len = {max_len}")
        return x + self.weight[:length]


def rotary_embedding(
    x: Float[Tensor, "batch heads length d"],
    positions: Int[Tensor, " length"],
    base: float = 10000.0,
) -> Float[Tensor, "batch heads length d"]:
    """Rotate each pair of features (2i, 2i + 1) by the angle position / base^(2i / d).

    (a, b) becomes (a cos − b sin, a sin + b cos). Applied to queries and keys, it makes their dot
    products depend on the distance of the positions only.
    Shapes: x (B, h, T, d) with even d, positions (T,) → (B, h, T, d).

    Source: Su et al. (2021), "RoFormer", section 3.2.2, equation 15.
    """
    d = x.size(-1)
    if d % 2:
        raise ValueError(f"rotary positions need an even number of features, got {d}")
    dtype = torch.promote_types(x.dtype, torch.float32)  # large positions are wrong in half precision
    even = torch.arange(0, d, 2, dtype=dtype, device=x.device)  # 2i, one per pair
    angle = positions.to(x.device, dtype)[:, None] / base ** (even / d)  # (T, d / 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]  # (B, h, T, d / 2)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)  # (B, h, T, d)
