"""04 Attention gradients: back-propagation by hand, in NumPy."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def numerical_gradient(
    f: Callable[[np.ndarray], float], x: Float[np.ndarray, "..."], eps: float = 1e-6
) -> Float[np.ndarray, "..."]:
    """Gradient of a scalar f by central differences, (f(x + eps) − f(x − eps)) / (2 eps), entry by entry.

    Returns an array of the shape of x; x itself is left unchanged.
    """
    x = np.array(x, dtype=np.float64)  # a copy; in float32 the differences would drown in rounding
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        original = x[index]
        x[index] = original + eps
        above = float(f(x))
        x[index] = original - eps
        below = float(f(x))
        x[index] = original
        gradient[index] = (above - below) / (2 * eps)
    return gradient


def softmax_backward(
    weights: Float[np.ndarray, "..."], grad_weights: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Gradient with respect to the input of a softmax over the last axis, given that of its output.

    `weights` is the output of the softmax. All three arrays have the same shape.
    """
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)  # (..., 1)
    return weights * (grad_weights - mean)


def attention_backward(
    query: Float[np.ndarray, "query d_k"],
    key: Float[np.ndarray, "key d_k"],
    value: Float[np.ndarray, "key d_v"],
    grad_output: Float[np.ndarray, "query d_v"],
) -> tuple[Float[np.ndarray, "query d_k"], Float[np.ndarray, "key d_k"], Float[np.ndarray, "key d_v"]]:
    """Gradients (dQ, dK, dV) of scaled dot-product attention, one sequence, no mask.

    Shapes: query (T_q, d_k), key (T_k, d_k), value (T_k, d_v), grad_output (T_q, d_v); each gradient has
    the shape of its array.

    Source: the chain rule applied to Vaswani et al. (2017), equation 1.
    """
    scale = 1 / math.sqrt(query.shape[-1])
    scores = query @ key.T * scale  # (T_q, T_k)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)  # (T_q, T_k)
    grad_value = weights.T @ grad_output  # (T_k, d_v)
    grad_scores = softmax_backward(weights, grad_output @ value.T)  # (T_q, T_k)
    grad_query = grad_scores @ key * scale  # (T_q, d_k)
    grad_key = grad_scores.T @ query * scale  # (T_k, d_k)
    return grad_query, grad_key, grad_value


def layer_norm_backward(
    x: Float[np.ndarray, "... d"],
    grad_output: Float[np.ndarray, "... d"],
    gamma: Float[np.ndarray, " d"],
    eps: float = 1e-5,
) -> tuple[Float[np.ndarray, "... d"], Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Gradients (dx, dgamma, dbeta) of (x − mean) / √(variance + eps) · gamma + beta over the last axis.

    Shapes: x and grad_output (..., d), gamma (d) → dx (..., d); dgamma and dbeta (d), summed over all
    other axes. The variance is the biased one.

    Source: the chain rule applied to Ba, Kiros and Hinton (2016), section 3.
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    normed = centred / std
    others = tuple(range(x.ndim - 1))
    grad_gamma = (grad_output * normed).sum(axis=others)  # (d)
    grad_beta = grad_output.sum(axis=others)  # (d)
    grad_normed = grad_output * gamma
    through_mean = grad_normed.mean(axis=-1, keepdims=True)
    through_std = normed * (grad_normed * normed).mean(axis=-1, keepdims=True)
    return (grad_normed - through_mean - through_std) / std, grad_gamma, grad_beta
