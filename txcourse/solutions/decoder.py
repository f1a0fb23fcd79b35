"""09 Decoder: masked self-attention, cross-attention to the memory, feed-forward, N times."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from txcourse.solutions.feed_forward_and_residuals import (
    LayerNorm,
    PositionwiseFeedForward,
    ResidualConnection,
)
from txcourse.solutions.multi_head_attention import MultiHeadAttention


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward, each inside its own residual connection.

    In cross-attention the queries come from the decoder, keys and values are the memory (the encoder's
    output). Dropout with the same rate on both attentions' weights, after the ReLU and on the three
    sublayers' outputs. norm_first=False is post-norm (the paper), True is pre-norm; the memory is used as
    it comes in both.

    Source: Vaswani et al. (2017), sections 3.1 and 3.2.3, figure 1 (right).
    """

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm_first) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tgt_mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """x (B, T, d_model), memory (B, S, d_model) → (B, T, d_model).

        tgt_mask says which target positions a target position may attend to, memory_mask which source
        positions; forms as in MultiHeadAttention, True = may attend.
        """
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, tgt_mask))
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, memory, memory_mask))
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of n_layers decoder layers, none sharing weights with another.

    Every layer attends to the same memory. Pre-norm (norm_first=True) ends with one more LayerNorm,
    post-norm does not.

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
            DecoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tgt_mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """x (B, T, d_model), memory (B, S, d_model), masks as in DecoderLayer → (B, T, d_model)."""
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask)
        return x if self.norm is None else self.norm(x)
