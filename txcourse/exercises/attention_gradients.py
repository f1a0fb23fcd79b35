"""Exercises of 04_attention_gradients."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.compare import difference
from txcourse.solutions import attention_gradients as solutions

Function = Callable[[np.ndarray], float]


def _normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=shape)


def kept(c: Context, *args: Any) -> None:
    """The candidate leaves its arrays as they were."""
    for i, (a, b) in enumerate(zip(args, c.subject.observe(*args)[1], strict=True)):
        if isinstance(a, np.ndarray) and not np.array_equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")


# -- finite differences ----------------------------------------------------------------------------------------------

_NUMERICAL = (
    Mistake("forward_difference", "points", "The difference is (f(x + eps) − f(x)) / eps, to one side only; the central one is (f(x + eps) − f(x − eps)) / (2 eps)."),
    Mistake("backward_difference", "points", "The difference is (f(x) − f(x − eps)) / eps, to one side only; the central one is (f(x + eps) − f(x − eps)) / (2 eps)."),
    Mistake("half_steps", "points", "The steps are eps / 2 to each side; they are eps, and the division is by 2 eps."),
    Mistake("second_derivative", "points", "These are second differences, f(x + eps) − 2 f(x) + f(x − eps); the first ones are asked for."),
    Mistake("not_halved", "division", "The difference of the two values is divided by eps; they are 2 eps apart."),
    Mistake("not_divided", "division", "The difference is not divided by 2 eps."),
    Mistake("divided_by_two_only", "division", "The difference is divided by 2; divide by 2 eps."),
    Mistake("multiplied_by_eps", "division", "The difference is halved and multiplied by eps: a / 2 * eps is (a / 2) * eps; write a / (2 * eps)."),
    Mistake("divided_by_eps_squared", "division", "The difference is divided by eps²; divide by 2 eps."),
    Mistake("sign", "division", "The gradient has the wrong sign: it is f(x + eps) minus f(x − eps)."),
    Mistake("eps_ignored", "eps", "`eps` is not used: the step is always 1e-6."),
    Mistake("relative_step", "eps", "The step is eps times the entry; it is eps."),
    Mistake("no_difference", "points", "Every entry is 0, as if both values of f were taken at the same x: plus = x gives the array a second name and is no copy; x.copy() is one."),
    Mistake("all_entries_at_once", "entries", "All entries are moved at once; the gradient moves one entry at a time."),
    Mistake("not_put_back", "entries", "An entry is not put back before the next one is moved."),
    Mistake("copied_once", "entries", "The two moved copies are made once, before the loop, so that earlier entries are still moved; make them anew for each entry."),
    Mistake("first_entry_only", "entries", "Only the first entry is computed: the return stands inside the loop."),
    Mistake("first_axis_only", "entries", "A whole row is moved at once; the gradient moves one entry at a time."),
    Mistake("flattened", "shape", "The result is flat; it has the shape of x."),
    Mistake("summed", "shape", "The entries of the gradient are added up; it has the shape of x."),
    Mistake("transposed", "shape", "The gradient is transposed; it has the shape of x."),
)  # fmt: skip


def _numerical_variant(on: frozenset[str]) -> Callable[..., Any]:
    def numerical_gradient(f: Function, x: np.ndarray, eps: float = 1e-6) -> Any:
        x = np.array(x, dtype=np.float64)
        if "eps_ignored" in on:
            eps = 1e-6
        if "half_steps" in on:
            eps = eps / 2
        gradient = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            moved: Any = index
            if "all_entries_at_once" in on:
                moved = ...
            elif "first_axis_only" in on:
                moved = index[0]
            step: Any = eps * x[index] if "relative_step" in on else eps
            original, middle = x[moved].copy(), float(f(x))
            x[moved] = original + step
            above = float(f(x))
            x[moved] = original - step
            below = float(f(x))
            if "not_put_back" not in on:
                x[moved] = original
            if "copied_once" in on:
                earlier = np.zeros(x.size)
                earlier[: np.ravel_multi_index(index, x.shape) + 1] = eps
                above, below = (float(f(x + sign * earlier.reshape(x.shape))) for sign in (1, -1))
            if "forward_difference" in on:
                slope = 2 * (above - middle)
            elif "backward_difference" in on:
                slope = 2 * (middle - below)
            elif "second_derivative" in on:
                slope = (above - 2 * middle + below) * 2 / step
            elif "no_difference" in on:
                slope = 0.0
            else:
                slope = above - below
            divisors = {
                "not_halved": step,
                "not_divided": 1.0,
                "divided_by_two_only": 2.0,
                "multiplied_by_eps": 2 / step,
                "divided_by_eps_squared": step**2,
                "sign": -2 * step,
            }
            gradient[index] = slope / next((d for name, d in divisors.items() if name in on), 2 * step)
            if "first_entry_only" in on:
                break
        if "flattened" in on:
            return gradient.reshape(-1)
        return gradient.sum() if "summed" in on else gradient.T if "transposed" in on else gradient

    return numerical_gradient


def _cubic(seed: int, *shape: int) -> Function:
    """Every entry with another weight, every third derivative different from zero, neighbours coupled."""
    a, b = _normal(seed + 50, *shape), _normal(seed + 51, *shape)

    def f(x: np.ndarray) -> float:
        if x.shape != shape:
            raise ValueError(f"f takes an array of shape {shape}, not {x.shape}")
        return float((a * x**3 + b * x**2 + x).sum() + 0.3 * x.sum() ** 2)

    return f


def _numerical_probes(seed: int) -> list[Probe]:
    shapes = ((2, 3), (4,), (2, 2, 3))
    return [
        Probe((_cubic(seed, *s), _normal(seed, *s), eps))
        for s, eps in zip(shapes, (0.1, 0.25, 0.05), strict=True)
    ]


def _same_differences(c: Context, *cases: tuple[tuple[int, ...], float]) -> None:
    for shape, eps in cases:
        f, x = _cubic(c.seed, *shape), _normal(c.seed, *shape)
        c.expect(c.subject.call(f, x, eps), c.reference(f, x, eps), f"the gradient with eps = {eps}")


def _numerical_steps(c: Context) -> None:
    _same_differences(c, ((2, 3), 0.1), ((3, 3), 0.1))


def _numerical_axes(c: Context) -> None:
    _same_differences(c, ((4,), 0.25), ((2, 2, 3), 0.05))


def _numerical_small(c: Context) -> None:
    w = _normal(c.seed + 9, 3, 2)
    x = _normal(c.seed, 3, 2)
    got = c.subject.call(lambda y: float((w * np.sin(y)).sum()), x)
    c.expect(got, w * np.cos(x), "the gradient of Σ w sin(x)", rtol=1e-4, atol=1e-6)


def _numerical_default(c: Context) -> None:
    steps: list[float] = []
    x = _normal(c.seed, 2, 2) + 3.0

    def f(y: np.ndarray) -> float:
        steps.append(float(np.abs(np.asarray(y) - x).max()))
        return float((y**2).sum())

    c.subject.call(f, x)
    moved = [s for s in steps if s > 0]
    if moved and not all(0.5e-6 < s < 1.5e-6 for s in moved):
        raise Wrong(f"Without eps the step should be 1e-6; yours is {max(moved):.3g}.", "eps_default")


def _numerical_kept(c: Context) -> None:
    x = _normal(c.seed, 2, 3)
    for eps in (0.1, 1e-6):
        after = c.subject.observe(_cubic(c.seed, 2, 3), x, eps)[1][1]
        if not np.allclose(after, x, rtol=0, atol=1e-12):
            far = float(np.abs(after - x).max())
            raise Wrong(
                f"x should be as it was; after your call with eps = {eps} it differs by {far:.3g}.",
                "x_not_restored",
            )


# -- softmax ---------------------------------------------------------------------------------------------------------

_SOFTMAX_BACKWARD = (
    Mistake("no_mean", "jacobian", "Only weights · grad is returned: the part that all entries of a row share, Σ weights · grad, is not subtracted."),
    Mistake("diagonal_only", "jacobian", "Only the diagonal of the Jacobian is used, w (1 − w) grad: each output also depends on the other inputs of its row."),
    Mistake("mean_not_weighted", "jacobian", "The plain mean of grad is subtracted; it is the mean weighted by the weights, Σ weights · grad."),
    Mistake("sum_not_weighted", "jacobian", "The sum of grad is subtracted; it is the sum weighted by the weights, Σ weights · grad."),
    Mistake("product_averaged", "jacobian", "The mean of weights · grad is subtracted; it is their sum: the weights make it a mean already."),
    Mistake("own_weight_in_sum", "jacobian", "This is w_i (grad_i − w_i Σ grad): the Jacobian's entry (i, j) has the weights of both, w_i w_j, so that the sum is Σ w_j grad_j."),
    Mistake("weights_missing", "jacobian", "grad − Σ weights · grad is right inside; it is to be multiplied by the weights."),
    Mistake("weights_squared", "jacobian", "The weights are multiplied twice: w (w · grad − …)."),
    Mistake("logarithm", "jacobian", "This is the gradient of the log-softmax, grad − w Σ grad."),
    Mistake("passed_on", "jacobian", "grad is passed on as it is: the softmax has a Jacobian of its own."),
    Mistake("sigmoid", "jacobian", "This is the gradient of a sigmoid or of a square of the weights; the entries of a row depend on each other."),
    Mistake("sign", "sign", "The gradient has the wrong sign: it is w (grad − Σ w grad)."),
    Mistake("plus", "sign", "Σ weights · grad is added; subtract it."),
    Mistake("sum_over_queries", "axis", "The sum runs over the axis before the last; the softmax was over the last one."),
    Mistake("sum_over_everything", "axis", "The sum runs over the whole array; each row has its own."),
    Mistake("sum_over_first_axis", "axis", "The sum runs over axis 0; the softmax was over the last axis."),
    Mistake("sum_not_kept", "axis", "The sums lack keepdims=True: they line up with the wrong axis."),
    Mistake("softmax_again", "input", "A softmax is taken of the weights: they are its output already."),
)  # fmt: skip


def _softmax_rule(on: frozenset[str], w: np.ndarray, g: np.ndarray) -> np.ndarray:
    """softmax_backward with the mistakes in `on`; without any, right."""
    if "softmax_again" in on:
        w = np.exp(w) / np.exp(w).sum(-1, keepdims=True)
    axis: int | None = -1
    if "sum_over_queries" in on:
        axis = -2
    elif "sum_over_first_axis" in on:
        axis = 0
    elif "sum_over_everything" in on:
        axis = None

    def total(a: np.ndarray) -> np.ndarray:
        return a.sum(axis) if "sum_not_kept" in on else a.sum(axis, keepdims=True)

    if "passed_on" in on:
        result = g
    elif "no_mean" in on:
        result = w * g
    elif "diagonal_only" in on:
        result = w * (1 - w) * g
    elif "sigmoid" in on:
        result = w * (1 - w**2) * g
    elif "logarithm" in on:
        result = g - w * total(g)
    elif "mean_not_weighted" in on:
        result = w * (g - total(g) / g.shape[-1])
    elif "sum_not_weighted" in on:
        result = w * (g - total(g))
    elif "product_averaged" in on:
        result = w * (g - total(w * g) / g.shape[-1])
    elif "own_weight_in_sum" in on:
        result = w * (g - w * total(g))
    elif "weights_missing" in on:
        result = g - total(w * g)
    elif "weights_squared" in on:
        result = w * (w * g - total(w * g))
    else:
        result = w * (g + total(w * g) if "plus" in on else g - total(w * g))
    return -result if "sign" in on else result


def _weights(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    exps = np.exp(_normal(seed, *shape, scale=1.5))
    return exps / exps.sum(-1, keepdims=True), _normal(seed + 1, *shape)


def _softmax_probes(seed: int) -> list[Probe]:
    return [Probe(_weights(seed, *shape)) for shape in ((5, 7), (4, 4), (2, 3, 5))]


def _backward_values(c: Context) -> None:
    c.same(*_weights(c.seed, 5, 7), what="the gradient", axes="query key")
    c.same(*_weights(c.seed + 2, 4, 4), what="the gradient", axes="query key")


def _backward_axes(c: Context) -> None:
    for shape in ((6,), (2, 3, 5), (2, 2, 3, 4)):
        c.same(*_weights(c.seed, *shape), what=f"the gradient for arrays of shape {shape}")


def _backward_sum(c: Context) -> None:
    """Adding a constant to the scores of a row changes nothing, so the gradient of a row sums to zero."""
    got = c.subject.call(*_weights(c.seed, 3, 5))
    if isinstance(got, np.ndarray) and got.shape == (3, 5):
        c.expect(got.sum(-1), np.zeros(3), "the sum of each row of the gradient")


def _backward_saturated(c: Context) -> None:
    w = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    c.same(w, _normal(c.seed, 2, 3), what="the gradient for weights of 0 and 1")


def _backward_kept(c: Context) -> None:
    kept(c, *_weights(c.seed, 3, 5))


# -- attention -------------------------------------------------------------------------------------------------------

_ATTENTION_BACKWARD = (
    Mistake("no_scale", "scale", "The scores are not divided by √d_k, neither forward nor backward."),
    Mistake("scale_missing_backward", "scale", "dQ and dK lack the factor 1/√d_k, which stands between the scores and the products."),
    Mistake("scale_missing_forward", "scale", "The weights are computed from scores that are not divided by √d_k."),
    Mistake("scale_twice_backward", "scale", "dQ and dK are divided by √d_k twice."),
    Mistake("scale_twice_in_query", "scale", "dQ is divided by √d_k twice."),
    Mistake("scale_twice_in_key", "scale", "dK is divided by √d_k twice."),
    Mistake("scale_missing_in_query", "scale", "dQ lacks the factor 1/√d_k."),
    Mistake("scale_missing_in_key", "scale", "dK lacks the factor 1/√d_k."),
    Mistake("scale_by_d_k", "scale", "The scores are divided by d_k, not by its square root."),
    Mistake("scale_by_sqrt_d_v", "scale", "The scores are divided by √d_v, the width of the values, not by √d_k."),
    Mistake("scale_by_sqrt_keys", "scale", "The scores are divided by the root of the number of keys, not by √d_k."),
    Mistake("multiplied_by_scale", "scale", "dQ and dK are multiplied by √d_k; they should be divided by it."),
    Mistake("scaled_value", "value", "dV is divided by √d_k; the scale has no part in it."),
    Mistake("value_not_transposed", "value", "dV = weights · dO; it is the transposed weights · dO: the gradient of a value collects from all queries."),
    Mistake("value_from_grad_scores", "value", "dV is computed with dS; it is the transposed weights · dO."),
    Mistake("value_from_unscaled_grad_scores", "value", "dV is computed with dS; it is the transposed weights · dO."),
    Mistake("value_from_scores", "value", "dV uses the scores; it uses the weights after the softmax."),
    Mistake("value_without_weights", "value", "dV is the sum of the gradients of all outputs; each counts with its weight."),
    Mistake("key_not_transposed", "key", "dK = dS · Q; it is the transposed dS · Q: the gradient of a key collects from all queries."),
    Mistake("key_from_key", "key", "dK is computed with K; it is the transposed dS · Q."),
    Mistake("query_transposed", "query", "dQ = dSᵀ · K; it is dS · K."),
    Mistake("query_from_query", "query", "dQ is computed with Q; it is dS · K."),
    *(m for m in _SOFTMAX_BACKWARD if m.id not in ("sigmoid", "weights_squared", "sum_over_first_axis")),
    Mistake("all_negative", "sign", "All three gradients have the wrong sign."),
    Mistake("softmax_over_queries", "softmax", "The softmax runs over the queries; it goes over the keys."),
    Mistake("gradient_of_sum", "output", "grad_output is taken to be all ones."),
    Mistake("value_first", "returns", "The order of the results is (dV, dK, dQ); it is (dQ, dK, dV)."),
    Mistake("key_first", "returns", "The order of the results is (dK, dQ, dV); it is (dQ, dK, dV)."),
    Mistake("output_too", "returns", "The output is returned too; return (dQ, dK, dV)."),
)  # fmt: skip


def _attention_variant(on: frozenset[str]) -> Callable[..., Any]:
    def attention_backward(
        query: np.ndarray, key: np.ndarray, value: np.ndarray, grad_output: np.ndarray
    ) -> Any:
        d_k = query.shape[-1]
        root = 1 / math.sqrt(d_k)
        scales = {
            "no_scale": (1.0, 1.0, 1.0),
            "scale_missing_backward": (root, 1.0, 1.0),
            "scale_missing_forward": (1.0, root, root),
            "scale_twice_backward": (root, root**2, root**2),
            "scale_twice_in_query": (root, root**2, root),
            "scale_twice_in_key": (root, root, root**2),
            "scale_missing_in_query": (root, 1.0, root),
            "scale_missing_in_key": (root, root, 1.0),
            "scale_by_d_k": (1 / d_k,) * 3,
            "scale_by_sqrt_d_v": (1 / math.sqrt(value.shape[-1]),) * 3,
            "scale_by_sqrt_keys": (1 / math.sqrt(key.shape[0]),) * 3,
            "multiplied_by_scale": (root, 1 / root, 1 / root),
        }
        forward, in_query, in_key = next((s for name, s in scales.items() if name in on), (root,) * 3)
        if "gradient_of_sum" in on:
            grad_output = np.ones_like(grad_output)
        scores = query @ key.T * forward
        axis = 0 if "softmax_over_queries" in on else -1
        weights = np.exp(scores - scores.max(axis, keepdims=True))
        weights = weights / weights.sum(axis, keepdims=True)
        turned = weights if "value_not_transposed" in on else weights.T
        if "value_from_scores" in on:
            turned = scores.T
        elif "value_without_weights" in on:
            turned = np.ones_like(turned)
        grad_value = turned @ grad_output * (root if "scaled_value" in on else 1.0)
        if axis == 0:
            grad_scores = _softmax_rule(on, weights.T, (grad_output @ value.T).T).T
        else:
            grad_scores = _softmax_rule(on, weights, grad_output @ value.T)
        if {"value_from_grad_scores", "value_from_unscaled_grad_scores"} & on:
            grad_value = grad_scores.T @ grad_output * (root if "value_from_grad_scores" in on else 1.0)
        grad_query = (grad_scores.T if "query_transposed" in on else grad_scores) @ (
            query if "query_from_query" in on else key
        )
        grad_key = (grad_scores if "key_not_transposed" in on else grad_scores.T) @ (
            key if "key_from_key" in on else query
        )
        grad_query, grad_key = grad_query * in_query, grad_key * in_key
        if "all_negative" in on:
            grad_query, grad_key, grad_value = -grad_query, -grad_key, -grad_value
        if "value_first" in on:
            return grad_value, grad_key, grad_query
        if "key_first" in on:
            return grad_key, grad_query, grad_value
        results = grad_query, grad_key, grad_value
        return (*results, weights @ value) if "output_too" in on else results

    return attention_backward


def _attention_inputs(
    seed: int, t_q: int = 5, t_k: int = 7, d_k: int = 4, d_v: int = 6
) -> tuple[np.ndarray, ...]:
    shapes = ((t_q, d_k), (t_k, d_k), (t_k, d_v), (t_q, d_v))
    return tuple(_normal(seed + i, *shape, scale=1.2 if i < 2 else 1.0) for i, shape in enumerate(shapes))


def _attention_probes(seed: int) -> list[Probe]:
    return [
        Probe(_attention_inputs(seed)),
        Probe(_attention_inputs(seed + 9, 5, 5, 3, 2)),
        Probe(_attention_inputs(seed + 18, 4, 4, 4, 4)),
    ]


def _three(
    c: Context, got: Any, want: Any, names: tuple[str, str, str], mistakes: dict[str, str] | None = None
) -> None:
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise Wrong(f"Return three arrays: ({', '.join(names)}).", "returns_not_three")
    for name, g, w in zip(names, got, want, strict=True):
        c.expect(g, w, name, mistake=(mistakes or {}).get(name))


_QKV = ("dQ", "dK", "dV")


def _attention_values(c: Context) -> None:
    for sizes in ((5, 7, 4, 6), (4, 4, 4, 4), (3, 2, 5, 1)):
        args = _attention_inputs(c.seed, *sizes)
        _three(c, c.subject.call(*args), c.reference(*args), _QKV)


def _attention_value(c: Context) -> None:
    """With one key its weight is 1: dV is the sum of the gradients, dQ and dK are zero."""
    args = _attention_inputs(c.seed, 5, 1)
    got = c.subject.call(*args)
    _three(c, got, (np.zeros((5, 4)), np.zeros((1, 4)), args[3].sum(0, keepdims=True)), _QKV)


def _attention_one_query(c: Context) -> None:
    args = _attention_inputs(c.seed, 1, 6)
    _three(c, c.subject.call(*args), c.reference(*args), _QKV)


def _attention_large(c: Context) -> None:
    query, key, value, grad = _attention_inputs(c.seed)
    got = c.subject.call(30 * query, 30 * key, value, grad)
    finite = isinstance(got, tuple | list) and all(np.isfinite(np.asarray(g)).all() for g in got)
    if not finite:
        raise Wrong(
            "For large scores the gradients should stay finite: subtract the largest score of a row before exp.",
            "softmax_overflows",
        )
    _three(c, got, c.reference(30 * query, 30 * key, value, grad), _QKV)


def _attention_kept(c: Context) -> None:
    kept(c, *_attention_inputs(c.seed))


# -- LayerNorm -------------------------------------------------------------------------------------------------------

_NORM = (
    Mistake("mean_constant", "mean", "The mean is treated as a constant: the term − mean(grad · gamma) is missing in dx."),
    Mistake("statistics_constant", "mean", "Mean and variance are treated as constants: dx is more than grad · gamma / std."),
    Mistake("mean_term_not_divided", "mean", "The sum of grad · gamma is subtracted; it is its mean: 1/d is missing."),
    Mistake("mean_term_sign", "mean", "The mean of grad · gamma is added; it is subtracted."),
    Mistake("mean_term_without_gamma", "mean", "The mean of grad is subtracted; it is the mean of grad · gamma."),
    Mistake("variance_constant", "variance_term", "The variance is treated as a constant: the term with x̂ · mean(grad · gamma · x̂) is missing in dx."),
    Mistake("variance_term_not_divided", "variance_term", "The term of the variance uses a sum; it is a mean: 1/d is missing."),
    Mistake("variance_term_half", "variance_term", "The term of the variance is half as large as it should be: the 2 of the square is missing."),
    Mistake("variance_term_double", "variance_term", "The term of the variance is twice as large as it should be: the 1/2 of the root is missing."),
    Mistake("variance_term_over_length", "variance_term", "The term of the variance is divided by Σ x̂²; it is divided by d, which is a little more because of eps."),
    Mistake("variance_term_bessel", "variance_term", "The term of the variance has the factor d / (d − 1); the variance is the biased one, so it has none."),
    Mistake("variance_term_sign", "variance_term", "The term of the variance has the wrong sign: it is subtracted."),
    Mistake("variance_term_without_gamma", "variance_term", "The term of the variance uses grad; it uses grad · gamma."),
    Mistake("variance_term_with_x", "variance_term", "The term of the variance uses x; it uses the normalised x̂."),
    Mistake("variance_term_with_centred", "variance_term", "The term of the variance uses x − mean where the normalised x̂ belongs."),
    Mistake("divided_by_first_size", "sizes", "The sums of dx are divided by the size of the first axis, x.shape[0]; divide by d, the size of the last."),
    Mistake("no_mean_at_all", "mean", "This is the gradient of RMSNorm: x is divided by its root mean square, and its mean is never subtracted."),
    Mistake("unbiased_variance", "variance", "The variance divides by d − 1; here it is the biased one, which divides by d."),
    Mistake("eps_outside_root", "variance", "eps is added to the standard deviation; it belongs inside the root."),
    Mistake("unbiased_and_outside", "variance", "The variance divides by d − 1 and eps is added outside the root; it divides by d, and eps belongs inside."),
    Mistake("no_eps", "variance", "eps is not used."),
    Mistake("eps_squared", "variance", "eps² is added to the variance; add eps."),
    Mistake("no_gamma_in_dx", "gamma", "gamma is missing in dx."),
    Mistake("gamma_last", "gamma", "gamma multiplies dx at the end; it multiplies grad_output before the means are taken."),
    Mistake("gamma_divides", "gamma", "grad_output is divided by gamma; it is multiplied by it."),
    Mistake("not_divided_by_std", "std", "dx is not divided by the standard deviation."),
    Mistake("divided_by_variance", "std", "dx is divided by the variance; it is divided by the standard deviation."),
    Mistake("multiplied_by_std", "std", "dx is multiplied by the standard deviation; it is divided by it."),
    Mistake("dgamma_uses_x", "dgamma", "dgamma is the sum of grad · x; it is the sum of grad · x̂, the normalised x."),
    Mistake("dgamma_uses_centred", "dgamma", "dgamma is the sum of grad · (x − mean); it is the sum of grad · x̂, the normalised x."),
    Mistake("dgamma_times_gamma", "dgamma", "dgamma is multiplied by gamma; it does not depend on it."),
    Mistake("dgamma_without_x", "dgamma", "dgamma lacks the factor x̂."),
    Mistake("dbeta_times_gamma", "dbeta", "dbeta is multiplied by gamma; it is the sum of grad_output."),
    Mistake("dbeta_uses_x", "dbeta", "dbeta is multiplied by x̂; it is the sum of grad_output."),
    Mistake("dbeta_divided_by_std", "dbeta", "dbeta is divided by the standard deviation; it is the sum of grad_output."),
    Mistake("means", "sums", "dgamma and dbeta are means over the other axes; they are sums."),
    Mistake("not_summed", "sums", "dgamma and dbeta have the shape of x; sum them over all axes but the last."),
    Mistake("summed_over_first_axis", "sums", "dgamma and dbeta are summed over axis 0 only; sum them over all axes but the last."),
    Mistake("summed_over_last_axis", "sums", "dgamma and dbeta are summed over the last axis; sum them over all the others."),
    Mistake("axis_kept", "sums", "dgamma and dbeta keep axes of size 1; their shape is (d)."),
    Mistake("over_everything", "axis", "The statistics run over the whole array; each row of d numbers has its own."),
    Mistake("over_first_axis", "axis", "The statistics run over axis 0, as in batch normalisation; they run over the last axis."),
    Mistake("dbeta_before_dgamma", "returns", "The order of the results is (dx, dbeta, dgamma); it is (dx, dgamma, dbeta)."),
    Mistake("dx_last", "returns", "The order of the results is (dgamma, dbeta, dx); it is (dx, dgamma, dbeta)."),
    Mistake("dx_only", "returns", "Only dx is returned; return (dx, dgamma, dbeta)."),
)  # fmt: skip


def _norm_variant(on: frozenset[str]) -> Callable[..., Any]:
    def layer_norm_backward(
        x: np.ndarray, grad_output: np.ndarray, gamma: np.ndarray, eps: float = 1e-5
    ) -> Any:
        axis = 0 if "over_first_axis" in on else None if "over_everything" in on else -1
        d = x.size if axis is None else x.shape[axis]
        centred = x if "no_mean_at_all" in on else x - x.mean(axis, keepdims=True)
        variance = (centred**2).sum(axis, keepdims=True) / (
            d - 1 if {"unbiased_variance", "unbiased_and_outside"} & on else d
        )
        if "eps_outside_root" in on or "unbiased_and_outside" in on:
            std = np.sqrt(variance) + eps
        else:
            std = np.sqrt(variance + (0.0 if "no_eps" in on else eps**2 if "eps_squared" in on else eps))
        normed = centred / std
        scaled = grad_output * gamma
        if {"no_gamma_in_dx", "gamma_last"} & on:
            scaled = grad_output
        elif "gamma_divides" in on:
            scaled = grad_output / gamma
        dx = _through_statistics(on, x, centred, normed, scaled, grad_output, axis)
        powers = {"not_divided_by_std": 0, "divided_by_variance": 2, "multiplied_by_std": -1}
        dx = dx / std ** next((p for name, p in powers.items() if name in on), 1)
        dx = dx * gamma if "gamma_last" in on else dx
        factor: Any = normed
        if "dgamma_uses_x" in on:
            factor = x
        elif "dgamma_uses_centred" in on:
            factor = centred
        elif "dgamma_times_gamma" in on:
            factor = normed * gamma
        elif "dgamma_without_x" in on:
            factor = 1.0
        beta_factor: Any = 1.0
        if "dbeta_times_gamma" in on:
            beta_factor = gamma
        elif "dbeta_uses_x" in on:
            beta_factor = normed
        elif "dbeta_divided_by_std" in on:
            beta_factor = 1 / std
        dgamma, dbeta = _over_others(on, grad_output * factor), _over_others(on, grad_output * beta_factor)
        if "dbeta_before_dgamma" in on:
            return dx, dbeta, dgamma
        if "dx_last" in on:
            return dgamma, dbeta, dx
        return dx if "dx_only" in on else (dx, dgamma, dbeta)

    return layer_norm_backward


def _over_others(on: frozenset[str], a: np.ndarray) -> np.ndarray:
    others = tuple(range(a.ndim - 1))
    if "means" in on:
        return a.mean(axis=others)
    if "not_summed" in on:
        return a
    if "summed_over_first_axis" in on:
        return a.sum(axis=0)
    if "summed_over_last_axis" in on:
        return a.sum(axis=-1)
    return a.sum(axis=others, keepdims="axis_kept" in on)


def _through_statistics(
    on: frozenset[str],
    x: np.ndarray,
    centred: np.ndarray,
    normed: np.ndarray,
    scaled: np.ndarray,
    grad: np.ndarray,
    axis: int | None,
) -> np.ndarray:
    """dx times the standard deviation."""
    d = x.size if axis is None else x.shape[axis]

    def mean(a: np.ndarray) -> np.ndarray:
        return a.sum(axis, keepdims=True) / (x.shape[0] if "divided_by_first_size" in on else d)

    mean_term = mean(grad if "mean_term_without_gamma" in on else scaled)
    factors = {
        "mean_constant": 0,
        "statistics_constant": 0,
        "no_mean_at_all": 0,
        "mean_term_not_divided": d,
        "mean_term_sign": -1,
    }
    mean_term = mean_term * next((f for name, f in factors.items() if name in on), 1)
    if "variance_term_with_x" in on:
        normed = x
    elif "variance_term_with_centred" in on:
        normed = centred
    term = normed * mean((grad if "variance_term_without_gamma" in on else scaled) * normed)
    factors = {
        "variance_constant": 0,
        "statistics_constant": 0,
        "variance_term_over_length": 1 / mean(normed**2),
        "variance_term_bessel": d / (d - 1),
        "variance_term_not_divided": d,
        "variance_term_half": 0.5,
        "variance_term_double": 2,
        "variance_term_sign": -1,
    }
    return scaled - mean_term - term * next((f for name, f in factors.items() if name in on), 1)


def _norm_inputs(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x with another mean and size in each row; gamma of both signs, away from zero and one."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * rng.uniform(0.5, 2.0, size=(*shape[:-1], 1)) + rng.normal(
        size=(*shape[:-1], 1)
    )
    gamma = rng.uniform(0.4, 1.8, size=shape[-1:]) * rng.choice([-1, 1], size=shape[-1:])
    return x, rng.normal(size=shape), gamma


def _norm_probes(seed: int) -> list[Probe]:
    shapes = (((4, 6), 0.1), ((2, 3, 5), 0.3), ((5, 5), 0.1))
    small = _norm_inputs(seed + 3, 4, 6)
    return [
        *(Probe((*_norm_inputs(seed + i, *shape), eps)) for i, (shape, eps) in enumerate(shapes)),
        Probe((0.01 * small[0], *small[1:])),
    ]


_NAMES = ("dx", "dgamma", "dbeta")


def _norm_same(c: Context, args: tuple[Any, ...]) -> None:
    _three(c, c.subject.call(*args), c.reference(*args), _NAMES)


def _norm_values(c: Context) -> None:
    _norm_same(c, _norm_inputs(c.seed, 4, 6))
    _norm_same(c, _norm_inputs(c.seed + 1, 5, 5))


def _norm_axes(c: Context) -> None:
    for shape in ((2, 3, 5), (2, 2, 3, 4), (1, 6)):
        _norm_same(c, _norm_inputs(c.seed, *shape))


def _norm_row(c: Context) -> None:
    _norm_same(c, _norm_inputs(c.seed, 6))


def _norm_eps(c: Context) -> None:
    for eps in (0.1, 1.0):
        _norm_same(c, (*_norm_inputs(c.seed, 4, 6), eps))


def _norm_default(c: Context) -> None:
    """Rows so small that eps = 1e-5 counts."""
    x, grad, gamma = _norm_inputs(c.seed, 4, 6)
    x = 0.005 * x
    got, explicit = c.subject.call(x, grad, gamma), c.subject.call(x, grad, gamma, 1e-5)
    want = c.reference(x, grad, gamma)
    if difference(explicit, want) is None and difference(got, want) is not None:
        raise Wrong("Without the argument eps it should be 1e-5; yours is another number.", "eps_default")
    _three(c, got, want, _NAMES)


def _norm_orthogonal(c: Context) -> None:
    """A row moved as a whole, or stretched, has the same normalised values: dx has no part in these directions."""
    x, grad, gamma = _norm_inputs(c.seed, 4, 6)
    got = c.subject.call(x, grad, gamma, 1e-12)
    dx = got[0] if isinstance(got, tuple | list) and len(got) == 3 else None
    if isinstance(dx, np.ndarray | Tensor) and dx.shape == x.shape:
        dx = np.asarray(dx)
        c.expect(dx.sum(-1), np.zeros(4), "the sum of each row of dx")
        c.expect((dx * (x - x.mean(-1, keepdims=True))).sum(-1), np.zeros(4), "Σ dx (x − mean) of each row")


def _norm_kept(c: Context) -> None:
    kept(c, *_norm_inputs(c.seed, 3, 5))


_exercise = partial(Exercise, notebook="04_attention_gradients")

EXERCISES = (
    _exercise(
        name="numerical_gradient",
        points=1,
        difficulty=1,
        minutes=8,
        hints=(
            "How often must f be called for an x with six entries?",
            "For each index: keep the entry, move it by +eps and by −eps, call f both times, put it back.",
            "gradient[index] = (above - below) / (2 * eps), for index in np.ndindex(x.shape), on a copy of x.",
        ),
        reference=solutions.numerical_gradient,
        tests=(
            Test("steps", "equals (f(x + eps) − f(x − eps)) / (2 eps) for each entry", _numerical_steps),
            Test("axes", "takes an x with any number of axes", _numerical_axes, crash="fixed_number_of_dimensions"),
            Test("small", "comes close to the derivative with the default eps", _numerical_small),
            Test("default", "takes steps of 1e-6 by default", _numerical_default),
            Test("x_kept", "leaves x as it was", _numerical_kept),
        ),
        mistakes=_NUMERICAL,
        variant=_numerical_variant,
        probes=_numerical_probes,
    ),
    _exercise(
        name="softmax_backward",
        points=2,
        difficulty=2,
        minutes=8,
        hints=(
            "When one score grows, which weights of its row change, and what stays the same about their sum?",
            "∂w_i / ∂s_j = w_i (δ_ij − w_j). Multiply by grad and sum over i, for each j.",
            "weights * (grad_weights - (weights * grad_weights).sum(axis=-1, keepdims=True))",
        ),
        reference=solutions.softmax_backward,
        tests=(
            Test("values", "equals the Jacobian of the softmax times the gradient", _backward_values),
            Test("row_sums", "gives rows that sum to zero", _backward_sum),
            Test("axes", "takes any number of axes", _backward_axes, crash="fixed_number_of_dimensions"),
            Test("saturated", "takes weights of 0 and 1", _backward_saturated),
            Test("inputs_kept", "leaves its inputs as they were", _backward_kept),
        ),
        mistakes=_SOFTMAX_BACKWARD,
        variant=lambda on: lambda weights, grad_weights: _softmax_rule(on, weights, grad_weights),
        probes=_softmax_probes,
    ),
    _exercise(
        name="attention_backward",
        points=4,
        difficulty=3,
        minutes=18,
        hints=(
            "Write the forward pass in three lines: scores, weights, output. Which of them does each of Q, K, V enter?",
            "Backwards: dV = weightsᵀ dO; dweights = dO Vᵀ; then softmax_backward; the scale belongs to the scores.",
            "grad_scores = softmax_backward(weights, grad_output @ value.T) / √d_k; dQ = grad_scores @ key; dK = grad_scores.T @ query.",
        ),
        reference=solutions.attention_backward,
        tests=(
            Test("values", "equals the derivative of softmax(QKᵀ/√d_k)V", _attention_values),
            Test("one_key", "with one key only its value has a gradient", _attention_value, crash="crashes_with_one_key"),
            Test("one_query", "takes one query", _attention_one_query, crash="crashes_with_one_query"),
            Test("large_scores", "stays finite for large scores", _attention_large),
            Test("inputs_kept", "leaves its inputs as they were", _attention_kept),
        ),
        mistakes=_ATTENTION_BACKWARD,
        variant=_attention_variant,
        probes=_attention_probes,
    ),
    _exercise(
        name="layer_norm_backward",
        points=4,
        difficulty=3,
        minutes=16,
        hints=(
            "x enters the result in three ways: directly, through the mean, and through the variance.",
            "With x̂ = (x − mean) / std and g = grad · gamma, dx is g minus two means over the last axis, divided by std.",
            "dx = (g - g.mean(-1, keepdims=True) - x̂ * (g * x̂).mean(-1, keepdims=True)) / std",
        ),
        reference=solutions.layer_norm_backward,
        tests=(
            Test("values", "equals the derivatives of (x − mean) / √(variance + eps) · gamma + beta", _norm_values),
            Test("eps", "has eps inside the root", _norm_eps),
            Test("default", "takes eps = 1e-5 by default", _norm_default),
            Test("axes", "sums dgamma and dbeta over all axes but the last", _norm_axes, crash="fixed_number_of_dimensions"),
            Test("row", "takes a single row of shape (d)", _norm_row, crash="needs_an_axis_before_the_last"),
            Test("directions", "has no part along shifts and stretches of a row", _norm_orthogonal),
            Test("inputs_kept", "leaves its inputs as they were", _norm_kept),
        ),
        mistakes=_NORM,
        variant=_norm_variant,
        probes=_norm_probes,
    ),
)  # fmt: skip
