"""03 Attention: softmax(QKᵀ/√d_k)V, first with loops, then with matrices, and the two masks."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def attention_by_loops(
    query: Float[np.ndarray, "query d_k"],
    key: Float[np.ndarray, "key d_k"],
    value: Float[np.ndarray, "key d_v"],
) -> Float[np.ndarray, "query d_v"]:
    """Scaled dot-product attention of one sequence, written with explicit loops.

    For each query: one score per key, q · k / √d_k; a softmax over the keys turns the scores into
    weights; the output is the sum of the values, each times its weight. Large scores must not overflow.
    Shapes: query (T_q, d_k), key (T_k, d_k), value (T_k, d_v) → (T_q, d_v). NumPy arrays.

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    n_queries, d_k = query.shape
    n_keys, d_v = value.shape
    output = np.zeros((n_queries, d_v))
    for i in range(n_queries):
        scores = np.zeros(n_keys)
        for j in range(n_keys):
            for c in range(d_k):
                scores[j] += query[i, c] * key[j, c]
            scores[j] /= math.sqrt(d_k)
        weights = np.exp(scores - scores.max())  # the same softmax, without overflow
        weights /= weights.sum()
        for j in range(n_keys):
            for c in range(d_v):
                output[i, c] += weights[j] * value[j, c]
    return output


def scaled_dot_product_attention(
    query: Float[Tensor, "... query d_k"],
    key: Float[Tensor, "... key d_k"],
    value: Float[Tensor, "... key d_v"],
    mask: Bool[Tensor, "... #query #key"] | None = None,
) -> tuple[Float[Tensor, "... query d_v"], Float[Tensor, "... query key"]]:
    """softmax(QKᵀ/√d_k)V with an optional mask; returns (output, weights).

    Shapes: query (..., T_q, d_k), key (..., T_k, d_k), value (..., T_k, d_v), with any equal leading
    dimensions → output (..., T_q, d_v), weights (..., T_q, T_k). The mask is boolean, broadcastable
    to (..., T_q, T_k), and True means "may attend": a forbidden key gets weight 0 and the others
    share 1. A row in which every key is forbidden gives zero weights and a zero output, and the
    gradients stay finite.

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T_q, T_k)
    if mask is not None:
        # The smallest finite number, not -inf: softmax of a row of only -inf would be NaN.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (..., T_q, T_k)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # changes fully masked rows only
    return weights @ value, weights  # (..., T_q, d_v), (..., T_q, T_k)


def padding_mask(tokens: Int[Tensor, "batch length"], pad_id: int = 0) -> Bool[Tensor, "batch 1 1 length"]:
    """Mask that hides the padding among the keys: True where a token is real.

    Shapes: tokens (B, T) → (B, 1, 1, T), so that it broadcasts over heads and queries.
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int) -> Bool[Tensor, "length length"]:
    """Mask that hides the future: position i may attend to positions 0 … i, itself included.

    Shape: (T, T), boolean, True on and below the diagonal.

    Source: Vaswani et al. (2017), section 3.2.3.
    """
    return torch.ones(length, length, dtype=torch.bool).tril()
