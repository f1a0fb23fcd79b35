"""08 Encoder: self-attention and feed-forward, each inside a residual connection, N times."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from txcourse.solutions.feed_forward_and_residuals import (
    LayerNorm,
    PositionwiseFeedForward,
    ResidualConnection,
)
from txcourse.solutions.multi_head_attention import MultiHeadAttention


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its own residual connection.

    Dropout with the same rate on the attention weights, after the ReLU and on both sublayers' outputs.
    norm_first=False is post-norm (the paper), True is pre-norm.

    Source: Vaswani et al. (2017), section 3.1, figure 1 (left).
    """

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm_first) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """x (B, T, d_model), mask as in MultiHeadAttention (True = may attend) → (B, T, d_model)."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of n_layers encoder layers, none sharing weights with another.

    Pre-norm (norm_first=True) ends with one more LayerNorm, because the sum that leaves the last layer
    has not been normalised; post-norm does not.

    Source: Vaswani et al. (2017), section 3.1.
    """

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """x (B, T, d_model), the same mask for every layer → (B, T, d_model)."""
        for layer in self.layers:
            x = layer(x, mask)
        return x if self.norm is None else self.norm(x)
