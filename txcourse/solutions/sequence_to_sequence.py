"""02 Sequence to sequence: recurrent cells, and the first attentions."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def rnn_cell(
    x: Float[Tensor, "batch d_in"],
    h: Float[Tensor, "batch d"],
    w_xh: Float[Tensor, "d_in d"],
    w_hh: Float[Tensor, "d d"],
    b: Float[Tensor, " d"],
) -> Float[Tensor, "batch d"]:
    """One step of a plain recurrent layer: tanh(x w_xh + h w_hh + b).

    Shapes: x (B, d_in), h (B, d), w_xh (d_in, d), w_hh (d, d), b (d) → the next h (B, d).

    Source: Elman (1990).
    """
    return (x @ w_xh + h @ w_hh + b).tanh()


def gru_cell(
    x: Float[Tensor, "batch d_in"],
    h: Float[Tensor, "batch d"],
    w_ih: Float[Tensor, "3*d d_in"],
    w_hh: Float[Tensor, "3*d d"],
    b_ih: Float[Tensor, " 3*d"],
    b_hh: Float[Tensor, " 3*d"],
) -> Float[Tensor, "batch d"]:
    """One step of a gated recurrent unit, with PyTorch's layout of the weights.

    The rows of w_ih (3d, d_in), w_hh (3d, d), b_ih and b_hh (3d) belong to the gates in the order
    reset, update, new:
    r = σ(W_ir x + b_ir + W_hr h + b_hr), z = σ(W_iz x + b_iz + W_hz h + b_hz),
    n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn)), h' = (1 − z) ⊙ n + z ⊙ h.
    Shapes: x (B, d_in), h (B, d) → h' (B, d).

    Source: Cho et al. (2014), section 2.3; reset after the recurrent product as in PyTorch.
    """
    x_reset, x_update, x_new = (x @ w_ih.T + b_ih).chunk(3, dim=-1)  # (B, d) each
    h_reset, h_update, h_new = (h @ w_hh.T + b_hh).chunk(3, dim=-1)  # (B, d) each
    reset = (x_reset + h_reset).sigmoid()
    update = (x_update + h_update).sigmoid()
    new = (x_new + reset * h_new).tanh()
    return (1 - update) * new + update * h


def additive_attention(
    state: Float[Tensor, "batch d_state"],
    encoder_states: Float[Tensor, "batch length d_encoder"],
    w_s: Float[Tensor, "d_state d_attention"],
    w_e: Float[Tensor, "d_encoder d_attention"],
    v: Float[Tensor, " d_attention"],
    mask: Bool[Tensor, "batch length"] | None = None,
) -> tuple[Float[Tensor, "batch d_encoder"], Float[Tensor, "batch length"]]:
    """Attention with a small network as the score: vᵀ tanh(state w_s + encoder_state w_e).

    Shapes: state (B, d_s), encoder_states (B, S, d_e), w_s (d_s, a), w_e (d_e, a), v (a), mask (B, S) with
    True = may attend, somewhere in each row → (context (B, d_e), weights (B, S)).

    Source: Bahdanau, Cho and Bengio (2015), section 3.1 and appendix A.1.2.
    """
    hidden = ((state @ w_s)[:, None] + encoder_states @ w_e).tanh()  # (B, S, a)
    scores = hidden @ v  # (B, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (B, S)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # changes fully masked rows only
    context = (weights[:, None] @ encoder_states)[:, 0]  # (B, d_e)
    return context, weights


def dot_product_attention(
    state: Float[Tensor, "batch d"],
    encoder_states: Float[Tensor, "batch length d"],
    mask: Bool[Tensor, "batch length"] | None = None,
) -> tuple[Float[Tensor, "batch d"], Float[Tensor, "batch length"]]:
    """Attention with the dot product state · encoder_state as the score, unscaled.

    Shapes: state (B, d), encoder_states (B, S, d), mask (B, S) with True = may attend, somewhere in each
    row → (context (B, d), weights (B, S)). Large scores must not overflow.

    Source: Luong, Pham and Manning (2015), section 3.1 ("dot").
    """
    scores = (encoder_states @ state[:, :, None])[:, :, 0]  # (B, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (B, S)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # changes fully masked rows only
    context = (weights[:, None] @ encoder_states)[:, 0]  # (B, d)
    return context, weights
