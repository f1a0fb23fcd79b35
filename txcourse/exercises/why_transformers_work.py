"""Exercises of 15_why_transformers_work."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.exercises.multi_head_attention import raises_value_error
from txcourse.solutions import why_transformers_work as solutions

# -- path lengths ----------------------------------------------------------------------------------------------------

_PATHS = (
    Mistake("length_for_distance", "distance", "You count from the number of positions; the two ends are only length − 1 apart."),
    Mistake("kernel_centred", "kernel", "The other convention: your kernels look one position back and one ahead, so a layer brings only one position. Here they are causal: a layer reads its own position and the two before it."),
    Mistake("recurrent_counts_positions", "recurrent", "Your recurrent path has a step for every position; the first input is in the state already, so it takes length − 1 more."),
    Mistake("recurrent_minus_two", "recurrent", "Your recurrent path leaves out the step at the last position: it takes length − 1."),
    Mistake("recurrent_constant", "recurrent", "Your recurrent path does not grow with the length; every position after the first adds a step."),
    Mistake("recurrent_halved", "recurrent", "Your recurrent path is half as long as it is: the state passes one position per step, not two."),
    Mistake("recurrent_doubled", "recurrent", "Your recurrent path counts two operations for each step; a step is one."),
    Mistake("recurrent_logarithmic", "recurrent", "Your recurrent path grows like a logarithm; the steps wait for each other, so it is length − 1."),
    Mistake("convolutional_like_recurrent", "convolutional", "Your convolutional path brings one position per layer (a centred kernel, or kernel 2); a causal kernel of 3 reaches two positions back."),
    Mistake("convolutional_three_per_layer", "convolutional", "Your convolutional path brings three positions per layer; one of the three that a kernel reads is its own, so a layer brings two."),
    Mistake("convolutional_length_over_kernel", "convolutional", "Your convolutional path is length / 3, rounded up: that is the order of growth; a layer brings two positions, so it is (length − 1) / 2, rounded up."),
    Mistake("convolutional_length_over_kernel_down", "convolutional", "Your convolutional path is length / 3, rounded down: that is the order of growth; a layer brings two positions, so it is (length − 1) / 2, rounded up."),
    Mistake("convolutional_length_over_kernel_exactly", "convolutional", "Your convolutional path is length / 3, which is the order of growth; a layer brings two positions, and there are only whole layers."),
    Mistake("convolutional_rounded_down", "convolutional", "Your convolutional path is rounded down, so the last layer that is needed is missing."),
    Mistake("convolutional_not_rounded", "convolutional", "Your convolutional path is (length − 1) / 2 as it comes; there are only whole layers, so round it up."),
    Mistake("convolutional_one_too_many", "convolutional", "Your convolutional path has one layer too many for some lengths: it is (length − 1) / 2, rounded up, not length / 2, rounded up, or that plus 1."),
    Mistake("convolutional_always_one_too_many", "convolutional", "Your convolutional path has one layer too many."),
    Mistake("convolutional_constant", "convolutional", "Your convolutional path is 1 whatever the length; a kernel of 3 sees three positions, not all."),
    Mistake("convolutional_logarithmic", "convolutional", "Your convolutional path grows like a logarithm: that needs dilation."),
    Mistake("dilated_centred", "dilated", "The other convention for dilated: a centred kernel reaches 2ⁿ − 1 positions back with n layers (log₂ length, rounded up). Here it is causal and reaches 2 (2ⁿ − 1)."),
    Mistake("dilated_last_layer_only", "dilated", "Your dilated path looks at the reach of the last layer alone; the reaches of all layers add up, 2 + 4 + … + 2ⁿ."),
    Mistake("dilated_log_of_distance_down", "dilated", "Your dilated path is log₂(length − 1), rounded down; n layers reach 2 (2ⁿ − 1) positions back."),
    Mistake("dilated_base_three", "dilated", "Your dilated path grows with log₃ of the length, as if the dilation tripled; it doubles: 1, 2, 4, …."),
    Mistake("dilated_base_three_down", "dilated", "Your dilated path is log₃ of the length, rounded down; the dilation doubles, 1, 2, 4, …, and does not triple."),
    Mistake("dilated_not_rounded", "dilated", "Your dilated path is log₂ of the length as it comes; there are only whole layers."),
    Mistake("dilated_starts_at_two", "dilated", "Your dilation starts at 2; the first layer has dilation 1."),
    Mistake("dilated_length_for_distance", "dilated", "Your dilated path reaches `length` positions back; the two ends are only length − 1 apart."),
    Mistake("dilated_doubled", "dilated", "Your dilated path is twice as long as it should be: a layer is one operation."),
    Mistake("dilated_one_too_many", "dilated", "Your dilated path has one layer too many."),
    Mistake("dilated_one_too_few", "dilated", "Your dilated path has one layer too few."),
    Mistake("dilation_ignored", "dilated", "Your dilated path is that of plain convolutions: the dilation doubles from layer to layer, so the reach does too."),
    Mistake("dilated_constant", "dilated", "Your dilated path is 1 whatever the length; it grows with log₂ of the length."),
    Mistake("attention_grows", "attention", "Your path through attention grows with the length; every position reads every other directly, so it is 1."),
    Mistake("attention_counts_positions", "attention", "Your path through attention is the number of positions; every position reads every other directly, so it is 1."),
    Mistake("attention_two", "attention", "Your path through attention is 2; scores and weighted sum are one layer, so it is 1."),
    Mistake("attention_zero", "attention", "Your path through attention is 0; the layer itself is one operation."),
    Mistake("attention_squared", "attention", "You give the cost of attention, length²; its path is 1."),
    Mistake("attention_logarithmic", "attention", "Your path through attention grows like a logarithm; every position reads every other directly, so it is 1."),
)  # fmt: skip


def _paths_variant(on: frozenset[str]) -> Callable[..., float]:
    def layers(distance: float, first: int = 1, reads: int = 2) -> int:
        n, reach = 0, 0
        while reach < distance:
            reach += reads * first * 2**n
            n += 1
        return n

    def path_length(kind: str, length: int) -> float:
        distance = length if "length_for_distance" in on else length - 1
        reads = 1 if "kernel_centred" in on else 2  # new positions that a layer brings
        n = layers(distance, reads=reads)
        half = math.ceil(distance / reads)
        kinds: dict[str, tuple[float, dict[str, float]]] = {
            "recurrent": (
                distance,
                {
                    "counts_positions": length,
                    "minus_two": length - 2,
                    "constant": 1,
                    "halved": math.ceil(distance / 2),
                    "doubled": 2 * distance,
                    "logarithmic": math.ceil(math.log2(length)),
                },
            ),
            "convolutional": (
                half,
                {
                    "like_recurrent": distance,
                    "three_per_layer": math.ceil(distance / 3),
                    "length_over_kernel": math.ceil(length / 3),
                    "length_over_kernel_down": length // 3,
                    "length_over_kernel_exactly": length / 3,
                    "rounded_down": distance // 2,
                    "not_rounded": distance / 2,
                    "one_too_many": math.ceil(length / 2),
                    "always_one_too_many": half + 1,
                    "constant": 1,
                    "logarithmic": n,
                },
            ),
            "dilated": (
                n,
                {
                    "centred": layers(distance, reads=1),
                    "last_layer_only": math.ceil(math.log2(length - 1)),
                    "log_of_distance_down": int(math.log2(length - 1)),
                    "base_three": next(k for k in range(length) if 3**k >= length),
                    "base_three_down": next(k for k in range(length) if 3 ** (k + 1) > length),
                    "not_rounded": math.log2(length),
                    "starts_at_two": layers(distance, first=2),
                    "length_for_distance": layers(length),
                    "doubled": 2 * n,
                    "one_too_many": n + 1,
                    "one_too_few": n - 1,
                    "constant": 1,
                },
            ),
            "attention": (
                1,
                {
                    "grows": distance,
                    "counts_positions": length,
                    "two": 2,
                    "zero": 0,
                    "squared": length**2,
                    "logarithmic": math.ceil(math.log2(length)),
                },
            ),
        }
        if kind not in kinds:
            raise ValueError(kind)
        if kind == "dilated" and "dilation_ignored" in on:
            return half
        right, mistaken = kinds[kind]
        return next((value for name, value in mistaken.items() if f"{kind}_{name}" in on), right)

    return path_length


def _lengths(seed: int) -> list[int]:
    return [2, 3, 4, 5, 7, 8, 15, 16, 27, 32, 40 + seed % 50, 200 + seed]


def _paths(c: Context, kind: str) -> None:
    for length in _lengths(c.seed):
        got, want = c.subject.call(kind, length), c.reference(kind, length)
        c.expect(got, want, f'path_length("{kind}", {length})')


def _unknown_kind(c: Context) -> None:
    if not raises_value_error(lambda: c.subject.call("banana", 5)):
        raise Wrong('path_length("banana", 5) should be a ValueError.', "unknown_kind_not_refused")


# -- costs -----------------------------------------------------------------------------------------------------------

_ATTENTION_FLOPS = (
    Mistake("multiply_add_is_one", "unit", "Your count is half: a multiply-add is 2 operations, a multiplication and an addition."),
    Mistake("three_projections", "projections", "You count three projections; there are four: query, key, value and output."),
    Mistake("one_projection", "projections", "You count one projection; there are four: query, key, value and output."),
    Mistake("projections_halved", "projections", "The projections take 8 T d² (four of 2 T d²); you count half of that."),
    Mistake("projections_linear_in_width", "projections", "A projection multiplies each position by a (d, d) matrix, so its cost grows with d²; yours grows with d."),
    Mistake("projections_square_length", "projections", "Your projections grow with T² d; they act on each position alone: T d² each."),
    Mistake("feed_forward_counted", "projections", "You count the feed-forward part too; one self-attention layer is asked for."),
    Mistake("projections_always", "flag", "`projections=False` has no effect: without them 4 T² d is left."),
    Mistake("projections_never", "flag", "The projections are left out always; they belong to the count unless `projections` is False."),
    Mistake("projections_inverted", "flag", "`projections` works the wrong way round: True counts them."),
    Mistake("projections_off_by_default", "flag", "By default the projections are counted: projections=True."),
    Mistake("projections_only", "flag", "With `projections` you return their cost alone; that of scores and values belongs to it as well."),
    Mistake("one_product", "scores", "Your second part is 2 T² d: QKᵀ and the product of the weights with V take 2 T² d each, and nothing is saved by a mask."),
    Mistake("scores_linear_in_length", "scores", "Your second part does not grow with T²; there is a score for every pair of positions."),
    Mistake("scores_without_width", "scores", "Your second part leaves out the width: each of the T² scores is a sum of d products."),
    Mistake("scores_square_width", "scores", "Your second part grows with T² d²; each of the T² scores is a sum of d products, so it is T² d."),
    Mistake("scores_missing", "scores", "QKᵀ and the product of the weights with V are missing from your count."),
    Mistake("length_and_width_exchanged", "order", "Length and width are exchanged: the projections take T d², scores and values T² d."),
)  # fmt: skip


def _attention_flops_variant(on: frozenset[str]) -> Callable[..., float]:
    def attention_flops(length: int, d_model: int, projections: bool | None = None) -> float:
        if projections is None:
            projections = "projections_off_by_default" not in on
        t, d = (d_model, length) if "length_and_width_exchanged" in on else (length, d_model)
        parts = {
            "three_projections": 6 * t * d**2,
            "one_projection": 2 * t * d**2,
            "projections_halved": 4 * t * d**2,
            "projections_linear_in_width": 8 * t * d,
            "projections_square_length": 8 * t**2 * d,
            "feed_forward_counted": 24 * t * d**2,
        }
        of_projections = next((v for name, v in parts.items() if name in on), 8 * t * d**2)
        parts = {
            "one_product": 2 * t**2 * d,
            "scores_linear_in_length": 4 * t * d,
            "scores_without_width": 4 * t**2,
            "scores_square_width": 4 * t**2 * d**2,
            "scores_missing": 0,
        }
        scores = next((v for name, v in parts.items() if name in on), 4 * t**2 * d)
        counted = {
            "projections_always": True,
            "projections_never": False,
            "projections_inverted": not projections,
        }
        with_them = next((v for name, v in counted.items() if name in on), projections)
        total = of_projections * with_them + scores * (not with_them or "projections_only" not in on)
        return total / 2 if "multiply_add_is_one" in on else total

    return attention_flops


_RECURRENT_FLOPS = (
    Mistake("half_the_count", "unit", "Your count is half: either a multiply-add counts 1 where it is 2, or only one of the two products of a step is counted, of the input and of the state."),
    Mistake("twice_the_count", "unit", "Your count is twice what it should be: input and state side by side have size 2 d, but the matrix is (2 d, d), not (2 d, 2 d)."),
    Mistake("biases_counted", "unit", "You count adding the bias (T d for each gate); elementwise work is ignored here."),
    Mistake("gates_ignored", "gates", "`gates` has no effect: each gate has matrices of its own."),
    Mistake("gates_by_default", "gates", "By default there is one gate: a plain recurrent layer."),
    Mistake("gates_squared", "gates", "The cost grows with the number of gates, not with its square."),
    Mistake("gates_added", "gates", "`gates` is added where it should multiply."),
    Mistake("gates_on_one_matrix", "gates", "Only one of the two products of a step is multiplied by `gates`; each gate has a matrix for the input and one for the state."),
    Mistake("one_gate_more", "gates", "You count one gate more than `gates`; the new state of a plain layer is its one \"gate\"."),
    Mistake("length_ignored", "size", "The length is missing: the products are made at every step."),
    Mistake("length_and_width_exchanged", "size", "Length and width are exchanged: each of the T steps multiplies by (d, d) matrices, so it is T d²."),
    Mistake("width_not_squared", "size", "Your count grows with d; a (d, d) matrix times a vector takes d² multiply-adds."),
    Mistake("both_squared", "size", "Your count grows with T²; every step costs the same, so it is T d²."),
    Mistake("first_step_missing", "size", "You count length − 1 steps; every position is a step, the first too."),
)  # fmt: skip


def _recurrent_flops_variant(on: frozenset[str]) -> Callable[..., float]:
    def recurrent_flops(length: int, d_model: int, gates: int | None = None) -> float:
        if gates is None:
            gates = 4 if "gates_by_default" in on else 1
        t, d = length, d_model
        sizes = {
            "length_ignored": d**2,
            "length_and_width_exchanged": t**2 * d,
            "width_not_squared": t * d,
            "both_squared": t**2 * d**2,
            "first_step_missing": (t - 1) * d**2,
        }
        size = next((v for name, v in sizes.items() if name in on), t * d**2)
        factors = {
            "gates_ignored": 4.0,
            "gates_squared": 4.0 * gates**2,
            "gates_on_one_matrix": 2.0 + 2.0 * gates,
            "one_gate_more": 4.0 * (gates + 1),
        }
        total = size * next((v for name, v in factors.items() if name in on), 4.0 * gates)
        if "gates_added" in on:
            total = size * 4 + gates
        if "biases_counted" in on:
            total += gates * t * d
        return total * (0.5 if "half_the_count" in on else 2 if "twice_the_count" in on else 1)

    return recurrent_flops


def _sizes(seed: int) -> list[tuple[int, int]]:
    return [(5, 3), (7 + seed % 5, 16), (64, 11 + seed % 7), (1, 4)]


def _costs(c: Context, *more: Any) -> None:
    for size in _sizes(c.seed):
        said = ", ".join(str(x) for x in (*size, *more))
        what = f"{c.exercise.name}({said})"
        c.expect(c.subject.call(*size, *more), c.reference(*size, *more), what)


def _costs_by_name(c: Context, **named: Any) -> None:
    said = ", ".join(f"{k}={v}" for k, v in named.items())
    what = f"{c.exercise.name}(6, 10, {said})"
    c.expect(c.subject.call(6, 10, **named), c.reference(6, 10, **named), what)


def _without_projections(c: Context) -> None:
    _costs(c, False)
    _costs_by_name(c, projections=False)


def _with_gates(c: Context) -> None:
    _costs(c, 3)
    _costs_by_name(c, gates=4)


_exercise = partial(Exercise, notebook="15_why_transformers_work")

EXERCISES = (
    _exercise(
        name="path_length",
        points=2,
        difficulty=1,
        minutes=12,
        hints=(
            "How many positions further back does each added step or layer let the last position see?",
            "With dilation 1, 2, 4, … the layers reach 2, 4, 8, … further: add up until it is at least length − 1.",
            "convolutional: math.ceil((length − 1) / 2). dilated: n = 0; while 2 * (2**n - 1) < length - 1: n += 1.",
        ),
        reference=solutions.path_length,
        tests=(
            Test(
                "recurrent",
                "takes a step per position in a recurrent layer",
                partial(_paths, kind="recurrent"),
                crash="crashes_for_recurrent",
            ),
            Test(
                "convolutional",
                "counts layers of kernel 3",
                partial(_paths, kind="convolutional"),
                crash="crashes_for_convolutional",
            ),
            Test(
                "dilated",
                "counts layers with doubling dilation",
                partial(_paths, kind="dilated"),
                crash="crashes_for_dilated",
            ),
            Test(
                "attention",
                "is 1 for attention",
                partial(_paths, kind="attention"),
                crash="crashes_for_attention",
            ),
            Test("unknown", "refuses any other kind with a ValueError", _unknown_kind),
        ),
        mistakes=_PATHS,
        variant=_paths_variant,
        probes=lambda seed: [
            Probe((kind, length))
            for kind in ("recurrent", "convolutional", "dilated", "attention")
            for length in _lengths(seed)
        ],
    ),
    _exercise(
        name="attention_flops",
        points=1,
        difficulty=1,
        minutes=8,
        hints=(
            "A (m, k) matrix times a (k, n) matrix: how many multiply-adds is that?",
            "Four projections (T, d) × (d, d); then QKᵀ and weights × V, each T² d multiply-adds over all heads together.",
            "return 4 * length**2 * d_model + (8 * length * d_model**2 if projections else 0)",
        ),
        reference=solutions.attention_flops,
        tests=(
            Test("all", "counts projections, scores and values", _costs),
            Test(
                "inner",
                "counts 4 T² d without the projections",
                _without_projections,
                crash="no_projections_argument",
            ),
            Test(
                "stated",
                "takes projections=True as well",
                partial(_costs_by_name, projections=True),
                crash="no_projections_argument",
            ),
        ),
        mistakes=_ATTENTION_FLOPS,
        variant=_attention_flops_variant,
        probes=lambda seed: [
            Probe((*size, *more)) for size in _sizes(seed) for more in ((), (False,), (True,))
        ],
    ),
    _exercise(
        name="recurrent_flops",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "Which two products of a vector with a matrix does one step of a plain recurrent layer make?",
            "A vector of d times a (d, d) matrix is d² multiply-adds, 2 d² operations; twice per step and gate.",
            "return gates * 4 * length * d_model**2",
        ),
        reference=solutions.recurrent_flops,
        tests=(
            Test("plain", "counts a plain recurrent layer", _costs),
            Test("gates", "multiplies by the number of gates", _with_gates, crash="no_gates_argument"),
        ),
        mistakes=_RECURRENT_FLOPS,
        variant=_recurrent_flops_variant,
        probes=lambda seed: [Probe((*size, *more)) for size in _sizes(seed) for more in ((), (3,), (4,))],
    ),
)
