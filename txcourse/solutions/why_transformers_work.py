"""15 Why Transformers work: how far apart two positions are, and what a layer costs."""

import math


def path_length(kind: str, length: int) -> int:
    """Operations, one after the other, between the two ends of a sequence of `length` positions.

    That is: the smallest number of steps or layers through which the first input reaches the last output.
    The length is at least 2.
    - "recurrent": length − 1, a step for every position after the first.
    - "convolutional": causal layers of kernel 3. A layer reads its own position and the two before it, so
      n layers reach 2n positions back: the smallest n with 2n ≥ length − 1.
    - "dilated": the same with dilation 1, 2, 4, …: n layers reach 2 + 4 + … + 2ⁿ = 2 (2ⁿ − 1) positions
      back, which must be at least length − 1.
    - "attention": 1, whatever the length.
    Any other kind is a ValueError.
    For the lengths 2, 3, 4, 8, 16: recurrent 1, 2, 3, 7, 15. Convolutional 1, 1, 2, 4, 8.
    Dilated 1, 1, 2, 3, 4. Attention 1, 1, 1, 1, 1.

    Source: Vaswani et al. (2017), section 4, table 1 (which gives the orders of growth).
    """
    distance = length - 1
    if kind == "recurrent":
        return distance
    if kind == "convolutional":
        return math.ceil(distance / 2)
    if kind == "dilated":
        return math.ceil(math.log2(distance / 2 + 1))  # solved for n
    if kind == "attention":
        return 1
    raise ValueError(f"kind is recurrent, convolutional, dilated or attention, not {kind!r}")


def attention_flops(length: int, d_model: int, projections: bool = True) -> int:
    """Operations of one self-attention layer on one sequence: 8 T d² + 4 T² d (T = length, d = d_model).

    A multiply-add is 2 operations; the softmax and other elementwise work is ignored. The four projections
    (query, key, value, output) take 2 T d² each, QKᵀ and the product of the weights with V take 2 T² d
    each, all heads together. Without `projections`: 4 T² d.

    Source: Vaswani et al. (2017), section 4, table 1 (which gives the order of the second part).
    """
    scores_and_values = 4 * length**2 * d_model
    return scores_and_values + (8 * length * d_model**2 if projections else 0)


def recurrent_flops(length: int, d_model: int, gates: int = 1) -> int:
    """Operations of one recurrent layer on one sequence: gates · 4 T d² (T = length, d = d_model).

    A multiply-add is 2 operations; elementwise work is ignored. Each step multiplies the input and the
    state, both of size d, by a (d, d) matrix for each gate. A plain recurrent layer has 1 "gate", a GRU 3,
    an LSTM 4.

    Source: Vaswani et al. (2017), section 4, table 1 (which gives the order).
    """
    return gates * 4 * length * d_model**2
