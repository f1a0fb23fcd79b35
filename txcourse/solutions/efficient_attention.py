"""16 Efficient attention: a local window, linear attention, the block-wise softmax, and a state-space layer."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def local_attention_mask(length: int, window: int) -> Bool[Tensor, "length length"]:
    """Mask of a local window: position i may attend to position j when |i − j| ≤ window.

    Shape: (T, T), boolean, True means "may attend". A row holds at most 2 · window + 1 times True.
    With window = 0 the diagonal is left.

    Source: Beltagy, Peters and Cohan (2020), section 3.1.
    """
    position = torch.arange(length)
    return (position[:, None] - position).abs() <= window


def linear_attention(
    query: Float[Tensor, "batch head length d"],
    key: Float[Tensor, "batch head length d"],
    value: Float[Tensor, "batch head length d"],
    causal: bool = False,
    key_mask: Bool[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "batch head length d"]:
    """Attention with the weight φ(q) · φ(k) in the place of exp(q · k / √d), φ(x) = elu(x) + 1.

    Output i is the sum over j of (φ(q_i) · φ(k_j)) v_j, divided by the sum over the same j of
    φ(q_i) · φ(k_j). j runs over all positions, or over j ≤ i when `causal`; those with key_mask False are
    left out of both sums (True means "may attend"). Nothing is scaled by √d. Every query is taken to have
    at least one key left. Computed with PyTorch, it lets the gradient through.
    Shapes: query, key, value (B, h, T, d), key_mask (B, T) → (B, h, T, d).

    Source: Katharopoulos et al. (2020), sections 3.2 and 3.3, equations 4 to 12.
    """
    phi_q, phi_k = F.elu(query) + 1, F.elu(key) + 1  # (B, h, T, d)
    if key_mask is not None:
        phi_k = phi_k * key_mask[:, None, :, None]
    if causal:
        state = (phi_k[..., None] * value[..., None, :]).cumsum(
            dim=2
        )  # (B, h, T, d, d): one for each position
        total = phi_k.cumsum(dim=2)  # (B, h, T, d)
    else:
        state = (phi_k.transpose(-2, -1) @ value)[:, :, None]  # (B, h, 1, d, d): one for all
        total = phi_k.sum(dim=2, keepdim=True)  # (B, h, 1, d)
    weighted = (phi_q[..., None, :] @ state).squeeze(-2)  # (B, h, T, d)
    return weighted / (phi_q * total).sum(dim=-1, keepdim=True)


def online_softmax_attention(
    query: Float[Tensor, "batch head query d"],
    key: Float[Tensor, "batch head key d"],
    value: Float[Tensor, "batch head key d"],
    block: int,
) -> Float[Tensor, "batch head query d"]:
    """softmax(QKᵀ/√d)V, exactly, from one block of `block` keys and values at a time.

    No tensor of scores is larger than (T_q, block). For each query a running maximum of the
    scores, the running sum of exp(score − maximum) and the running output are kept; when a block raises
    the maximum, sum and output are scaled down to it. The last block may be shorter. Finite however large
    the scores are. Computed with PyTorch, it lets the gradient through.
    Shapes: query (B, h, T_q, d), key and value (B, h, T_k, d) → (B, h, T_q, d).

    Source: Milakov and Gimelshein (2018), algorithm 3; Dao et al. (2022), section 3.1.
    """
    highest = torch.full_like(query[..., :1], -math.inf)  # (B, h, T_q, 1)
    total = torch.zeros_like(highest)  # (B, h, T_q, 1)
    output = torch.zeros_like(query)  # (B, h, T_q, d)
    for k, v in zip(key.split(block, dim=-2), value.split(block, dim=-2), strict=True):
        scores = query @ k.transpose(-2, -1) / math.sqrt(query.size(-1))  # (B, h, T_q, block)
        higher = torch.maximum(highest, scores.amax(dim=-1, keepdim=True))
        weights = (scores - higher).exp()
        scale = (highest - higher).exp()  # what was summed before was relative to the old maximum
        total = scale * total + weights.sum(dim=-1, keepdim=True)
        output = scale * output + weights @ v
        highest = higher
    return output / total


def state_space_scan(
    a: Float[Tensor, " n"],
    b: Float[Tensor, " n"],
    c: Float[Tensor, " n"],
    x: Float[Tensor, "batch length"],
) -> Float[Tensor, "batch length"]:
    """A diagonal state-space layer as a recurrence: h_t = a ⊙ h_{t−1} + b x_t, h_{−1} = 0, y_t = c · h_t.

    The input is one number per position, the state n numbers. a, b and c are real; a may be negative,
    zero or 1. Computed with PyTorch, it lets the gradient through.
    Shapes: a, b, c (n), x (B, T) → y (B, T).

    Source: Gu, Goel and Ré (2022), section 2.3, equation 3, with a diagonal matrix.
    """
    h = x.new_zeros(x.size(0), a.size(0))  # (B, n)
    outputs = []
    for x_t in x.unbind(dim=1):  # (B)
        h = a * h + b * x_t[:, None]  # (B, n)
        outputs.append(h @ c)  # (B)
    return torch.stack(outputs, dim=1)
