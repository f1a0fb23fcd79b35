"""05 Multi-head attention: Concat(head_1 … head_h) W^O, for self- and cross-attention."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from txcourse.solutions.attention import scaled_dot_product_attention


def split_heads(
    x: Float[Tensor, "batch length d_model"], n_heads: int
) -> Float[Tensor, "batch heads length d_k"]:
    """Cut the features into heads: head i takes features i·d_k … (i+1)·d_k − 1.

    Shapes: (B, T, d_model) → (B, h, T, d_k) with d_k = d_model / h.
    Raises ValueError when d_model is not divisible by n_heads.
    """
    batch, length, d_model = x.shape
    if d_model % n_heads:
        raise ValueError(f"d_model = {d_model} is not divisible by n_heads = {n_heads}")
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)  # (B, h, T, d_k)


def merge_heads(x: Float[Tensor, "batch heads length d_k"]) -> Float[Tensor, "batch length d_model"]:
    """Put the heads side by side again, the inverse of split_heads: (B, h, T, d_k) → (B, T, h·d_k)."""
    return x.transpose(1, 2).flatten(2)  # (B, T, d_model)


class MultiHeadAttention(nn.Module):
    """h attentions side by side, each in its own projection of d_model / h features.

    head_i = Attention(query W_i^Q, key W_i^K, value W_i^V); the heads are put side by side and
    multiplied by W^O. Dropout acts on the attention weights. The four projections may have biases.
    After each call `weights` holds the attention weights before dropout, detached: (B, h, T_q, T_k).

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.weights: Tensor | None = None

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """query (B, T_q, d_model), key and value (B, T_k, d_model) → (B, T_q, d_model).

        The mask is (T_q, T_k), (B, 1, 1, T_k) or (B, 1, T_q, T_k), True = may attend. A mask with three
        dimensions is a ValueError: its first one would line up with the heads, not with the batch.
        """
        if mask is not None and mask.dim() == 3:
            raise ValueError(f"mask of shape {tuple(mask.shape)}: use (T_q, T_k) or (B, 1, T_q, T_k)")
        q = split_heads(self.w_q(query), self.n_heads)  # (B, h, T_q, d_k)
        k = split_heads(self.w_k(key), self.n_heads)  # (B, h, T_k, d_k)
        v = split_heads(self.w_v(value), self.n_heads)  # (B, h, T_k, d_k)
        _, weights = scaled_dot_product_attention(q, k, v, mask)  # (B, h, T_q, T_k)
        self.weights = weights.detach()
        heads = self.dropout(weights) @ v  # (B, h, T_q, d_k)
        return self.w_o(merge_heads(heads))  # (B, T_q, d_model)
