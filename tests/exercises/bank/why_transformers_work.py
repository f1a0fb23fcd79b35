"""Answers to the exercises of 15_why_transformers_work, right and wrong, as people write them."""

import math

import numpy as np
import torch

# -- path_length: right ----------------------------------------------------------------------------------------------


def path_closed_forms(kind, length):
    if kind == "recurrent":
        return length - 1
    if kind == "convolutional":
        return length // 2
    if kind == "dilated":
        return length.bit_length() - 1
    if kind == "attention":
        return 1
    raise ValueError(kind)


def path_match(kind: str, length: int) -> int:
    match kind:
        case "recurrent":
            return length - 1
        case "convolutional":
            return -(-(length - 1) // 2)
        case "dilated":
            return math.ceil(math.log2((length - 1) / 2 + 1))
        case "attention":
            return 1
        case _:
            raise ValueError(f"unknown kind {kind}")


def path_simulated(kind, length):
    """Follows which positions the last one can see."""
    if kind not in ("recurrent", "convolutional", "dilated", "attention"):
        raise ValueError("kind")
    farthest, n = 0, 0
    while farthest < length - 1:
        if kind == "recurrent":
            farthest += 1
        elif kind == "convolutional":
            farthest += 2
        elif kind == "dilated":
            farthest += 2 * 2**n
        else:
            farthest = length - 1
        n += 1
    return n


def path_table(kind, length):
    table = {
        "recurrent": lambda: length - 1,
        "convolutional": lambda: int(np.ceil((length - 1) / 2)),
        "dilated": lambda: next(n for n in range(64) if 1 + 2 * (2**n - 1) >= length),
        "attention": lambda: 1,
    }
    try:
        return table[kind]()
    except KeyError:
        raise ValueError(f"{kind!r}") from None


class PathObject:
    def __call__(self, kind, length, kernel=3):
        reach = kernel - 1
        if kind == "attention":
            return 1.0
        if kind == "recurrent":
            return torch.tensor(length - 1)
        if kind == "convolutional":
            return np.int64((length - 1 + reach - 1) // reach)
        if kind == "dilated":
            n, d, total = 0, 1, 0
            while total < length - 1:
                total, d, n = total + reach * d, d * 2, n + 1
            return n
        raise ValueError(kind)


# -- path_length: wrong ----------------------------------------------------------------------------------------------


def _path(recurrent=None, convolutional=None, dilated=None, attention=None, error=ValueError):
    rules = {
        "recurrent": recurrent or (lambda n: n - 1),
        "convolutional": convolutional or (lambda n: n // 2),
        "dilated": dilated or (lambda n: int(math.floor(math.log2(n)))),
        "attention": attention or (lambda n: 1),
    }

    def path_length(kind, length):
        if kind not in rules:
            if error is None:
                return None
            raise error(kind)
        return rules[kind](length)

    return path_length


def path_centred(kind, length):
    if kind == "recurrent" or kind == "convolutional":
        return length - 1
    if kind == "dilated":
        return math.ceil(math.log2(length))
    if kind == "attention":
        return 1
    raise ValueError


def path_counts_positions(kind, length):
    if kind == "recurrent":
        return length
    if kind == "convolutional":
        return math.ceil(length / 2)
    if kind == "dilated":
        n = 0
        while 2 * (2**n - 1) < length:
            n += 1
        return n
    if kind == "attention":
        return 1
    raise ValueError


def path_table_one(kind, length):
    """The orders of the paper's table, taken for numbers."""
    if kind == "recurrent":
        return length
    if kind == "convolutional":
        return length / 3
    if kind == "dilated":
        return math.log(length, 3)
    if kind == "attention":
        return 1
    raise ValueError


def path_dilated_to_length(length):
    n, reach = 0, 0
    while reach < length:
        n += 1
        reach += 2**n
    return n


def path_prints(kind, length):
    print(path_closed_forms(kind, length))


PATHS_WRONG = [
    (_path(recurrent=lambda n: n), "recurrent_counts_positions"),
    (_path(recurrent=lambda n: 1), "recurrent_constant"),
    (_path(convolutional=lambda n: n - 1), "convolutional_like_recurrent"),
    (_path(convolutional=lambda n: math.ceil((n - 1) / 3)), "convolutional_three_per_layer"),
    (_path(convolutional=lambda n: math.ceil(n / 3)), "convolutional_length_over_kernel"),
    (_path(convolutional=lambda n: (n - 1) // 2), "convolutional_rounded_down"),
    (_path(convolutional=lambda n: (n - 1) / 2), "convolutional_not_rounded"),
    (_path(convolutional=lambda n: n // 2 + 1), "convolutional_always_one_too_many"),
    (_path(dilated=lambda n: math.ceil(math.log2(n))), "dilated_centred"),
    (_path(dilated=lambda n: math.log2(n)), "dilated_not_rounded"),
    (
        _path(dilated=lambda n: next(k for k in range(99) if 3**k >= n)),
        "dilated_base_three",
    ),
    (_path(dilated=lambda n: n // 2), "dilation_ignored"),
    (_path(dilated=path_dilated_to_length), "dilated_length_for_distance"),
    (_path(dilated=lambda n: 2 * int(math.log2(n))), "dilated_doubled"),
    (_path(dilated=lambda n: int(math.log2(n)) + 1), "dilated_one_too_many"),
    (_path(attention=lambda n: n), "attention_counts_positions"),
    (_path(attention=lambda n: n * n), "attention_squared"),
    (_path(attention=lambda n: 0), "attention_zero"),
    (
        _path(recurrent=lambda n: n, attention=lambda n: 2),
        "recurrent_counts_positions+attention_two",
    ),
    (_path(error=None), "unknown_kind_not_refused"),
    (_path(error=KeyError), "unknown_kind_not_refused"),
    (path_centred, "kernel_centred"),
    (path_counts_positions, "length_for_distance"),
    (path_table_one, None),
    (path_prints, "returns_nothing"),
]

# -- attention_flops -------------------------------------------------------------------------------------------------


def attention_by_parts(length, d_model, projections=True):
    project = 2 * length * d_model * d_model
    scores = 2 * length * length * d_model
    weighted = 2 * length * length * d_model
    total = scores + weighted
    if projections:
        total += 4 * project
    return total


def attention_by_counting_products(length, d_model, projections=True, heads=1):
    flops = 0
    shapes = [(length, d_model, length), (length, length, d_model)]
    if projections:
        shapes += [(length, d_model, d_model)] * 4
    for m, k, n in shapes:
        flops += 2 * m * k * n
    return flops


attention_lambda = lambda length, d_model, projections=True: (  # noqa: E731
    4.0 * length * d_model * (2 * d_model * projections + length)
)


def attention_by_torch(length, d_model, projections=True):
    t, d = torch.tensor(length), torch.tensor(d_model)
    return 4 * t * t * d + (8 * t * d * d if projections else 0)


def _attention(full, inner=lambda t, d: 4 * t * t * d):
    def attention_flops(length, d_model, projections=True):
        return full(length, d_model) if projections else inner(length, d_model)

    return attention_flops


def attention_no_flag(length, d_model, projections=True):
    return 8 * length * d_model**2 + 4 * length**2 * d_model


def attention_never(length, d_model, projections=True):
    return 4 * length**2 * d_model


def attention_wrong_default(length, d_model, projections=False):
    return 4 * length**2 * d_model + (8 * length * d_model**2 if projections else 0)


def attention_two_arguments(length, d_model):
    return 8 * length * d_model**2 + 4 * length**2 * d_model


ATTENTION_WRONG = [
    (_attention(lambda t, d: 4 * t * d * d + 2 * t * t * d, lambda t, d: 2 * t * t * d), "multiply_add_is_one"),
    (_attention(lambda t, d: 6 * t * d * d + 4 * t * t * d), "three_projections"),
    (_attention(lambda t, d: 8 * t * d * d + 2 * t * t * d, lambda t, d: 2 * t * t * d), "one_product"),
    (_attention(lambda t, d: 8 * t * t * d + 4 * t * d * d, lambda t, d: 4 * t * d * d), "length_and_width_exchanged"),
    (attention_no_flag, "projections_always"),
    (attention_never, "projections_never"),
    (attention_wrong_default, "projections_off_by_default"),
    (_attention(lambda t, d: 4 * t * t * d, lambda t, d: 8 * t * d * d + 4 * t * t * d), "projections_inverted"),
    (_attention(lambda t, d: 8 * t * d * d), "projections_only"),
    (_attention(lambda t, d: 24 * t * d * d + 4 * t * t * d), "feed_forward_counted"),
    (_attention(lambda t, d: 8 * t * d * d + 4 * t * t, lambda t, d: 4 * t * t), "scores_without_width"),
    (_attention(lambda t, d: 8 * t * d + 4 * t * t * d), "projections_linear_in_width"),
    (_attention(lambda t, d: 4 * t * d * d + 4 * t * t * d), "projections_halved"),
    (
        _attention(lambda t, d: 6 * t * d * d + 2 * t * t * d, lambda t, d: 2 * t * t * d),
        "three_projections+one_product",
    ),
    (attention_two_arguments, "no_projections_argument"),
]  # fmt: skip

# -- recurrent_flops -------------------------------------------------------------------------------------------------


def recurrent_loop(length, d_model, gates=1):
    flops = 0
    for _ in range(length):
        for _ in range(gates):
            flops += 2 * d_model * d_model  # the input
            flops += 2 * d_model * d_model  # the state
    return flops


def recurrent_concatenated(length, d_model, gates=1):
    return length * 2 * (2 * d_model) * (gates * d_model)


def recurrent_numpy(length, d_model, gates=1):
    return np.prod([length, d_model, d_model, 4, gates])


class RecurrentObject:
    def __call__(self, length, d_model, gates=1, bias=False):
        per_step = 2 * sum(2 * d_model**2 for _ in ("input", "state"))
        return gates * length * per_step // 2


def _recurrent(formula, default=1):
    def recurrent_flops(length, d_model, gates=default):
        return formula(length, d_model, gates)

    return recurrent_flops


def recurrent_plain(length, d_model):
    return 4 * length * d_model**2


RECURRENT_WRONG = [
    (_recurrent(lambda t, d, g: g * 2 * t * d * d), "half_the_count"),
    (_recurrent(lambda t, d, g: g * 2 * t * (2 * d) ** 2), "twice_the_count"),
    (_recurrent(lambda t, d, g: 4 * t * d * d), "gates_ignored"),
    (_recurrent(lambda t, d, g: g * 4 * t * d * d, default=4), "gates_by_default"),
    (_recurrent(lambda t, d, g: g * 4 * t * t * d), "length_and_width_exchanged"),
    (_recurrent(lambda t, d, g: g * 4 * d * d), "length_ignored"),
    (_recurrent(lambda t, d, g: g * 4 * t * d), "width_not_squared"),
    (_recurrent(lambda t, d, g: g * 4 * (t - 1) * d * d), "first_step_missing"),
    (_recurrent(lambda t, d, g: 2 * t * d * d + g * 2 * t * d * d), "gates_on_one_matrix"),
    (_recurrent(lambda t, d, g: g * t * (4 * d * d + d)), "biases_counted"),
    (_recurrent(lambda t, d, g: (g + 1) * 4 * t * d * d), "one_gate_more"),
    (_recurrent(lambda t, d, g: g * g * 4 * t * d * d), "gates_squared"),
    (recurrent_plain, "no_gates_argument"),
]

RIGHT = {
    "path_length": [path_closed_forms, path_match, path_simulated, path_table, PathObject()],
    "attention_flops": [
        attention_by_parts,
        attention_by_counting_products,
        attention_lambda,
        attention_by_torch,
    ],
    "recurrent_flops": [recurrent_loop, recurrent_concatenated, recurrent_numpy, RecurrentObject()],
}
WRONG = {
    "path_length": PATHS_WRONG,
    "attention_flops": ATTENTION_WRONG,
    "recurrent_flops": RECURRENT_WRONG,
}
