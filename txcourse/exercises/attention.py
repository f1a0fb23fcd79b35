"""Exercises of 03_attention."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.compare import difference
from txcourse.solutions import attention as solutions

# -- the reference with switches -------------------------------------------------------------------------------------

SCALE = (
    Mistake("no_scale", "scale", "Your scores are not divided by √d_k."),
    Mistake("scale_by_d_k", "scale", "Your scores are divided by d_k, not by its square root."),
    Mistake(
        "scale_by_sqrt_keys",
        "scale",
        "Your scores are divided by the root of the number of keys, not by √d_k.",
    ),
    Mistake(
        "scale_by_sqrt_d_v", "scale", "Your scores are divided by √d_v, the width of the values, not by √d_k."
    ),
    Mistake(
        "multiplied_by_scale", "scale", "Your scores are multiplied by √d_k; they should be divided by it."
    ),
    Mistake(
        "scale_after_softmax",
        "scale",
        "Your weights are divided by √d_k after the softmax; divide the scores before it.",
    ),
)
SOFTMAX = (
    Mistake(
        "softmax_over_queries",
        "softmax",
        "Your weights are those of a softmax over the query axis; it goes over the keys.",
    ),
    Mistake(
        "no_softmax",
        "softmax",
        "Your weights are the scores themselves: the softmax over the keys is missing.",
    ),
    Mistake(
        "not_normalised",
        "softmax",
        "Your weights are exp(scores) without division by their sum over the keys.",
    ),
)
MASK = (
    Mistake("mask_ignored", "mask", "Your result does not depend on the mask."),
    Mistake("mask_inverted", "mask", "Your mask works the wrong way round: True means that a query may attend to a key."),
    Mistake("mask_after_softmax", "mask", "Your mask zeroes the weights after the softmax, so the others no longer sum to 1; mask the scores before it."),
    Mistake("mask_fill_near_zero", "mask", "Forbidden scores become 0 or nearly 0 (scores * mask, or a fill such as -1e-9), and exp(0) = 1 still gives them weight; they need a very negative number."),
    Mistake("mask_added", "mask", "Your mask is added to the scores as 0 and 1; forbidden scores need a very negative value instead."),
    Mistake("mask_fill_positive", "mask", "Forbidden scores get a large positive number: they take all the weight."),
    Mistake("mask_fill_too_weak", "mask", "Forbidden scores get a number that is not negative enough (such as -1e4): large scores reach it."),
    Mistake("mask_on_values", "mask", "Your mask does not touch the scores: it zeroes values of forbidden keys, which still take their weight."),
)  # fmt: skip
ONLY_HERE = (
    Mistake("mask_transposed", "mask", "Your mask is transposed: its rows are the queries, its columns the keys."),
    Mistake("softmax_over_axis_1", "softmax", "Your softmax runs over axis 1 (so does F.softmax without `dim`, for four axes): those are the heads; it goes over the keys, the last axis."),
    Mistake("softmax_over_axis_0", "softmax", "Your softmax runs over axis 0, the batch; it goes over the keys, the last axis."),
)  # fmt: skip
FULL_ROW = (
    Mistake("full_row_nan", "full_row", "A row in which every key is forbidden gives NaN; it should give zero weights and a zero output."),
    Mistake("full_row_uniform", "full_row", "A row in which every key is forbidden gives the mean of the values; it should give zeros."),
    Mistake("full_row_weights_kept", "full_row", "A row in which every key is forbidden gives an output of zeros, but the weights that are returned are not zero there."),
)  # fmt: skip
OTHER = (
    Mistake("key_reshaped", "key", "The keys are reshaped where a transpose is meant: the shape fits, the numbers are shuffled."),
    Mistake("returns_scores", "returns", "The second result should be the weights after the softmax; yours are the scores."),
    Mistake("returns_masked_late", "returns", "The second result are the weights as they were before the mask."),
    Mistake("returns_swapped", "returns", "The results are exchanged: first the output, then the weights."),
    Mistake("returns_output_only", "returns", "Only the output is returned; return (output, weights)."),
    Mistake("output_not_weighted", "value", "The output is the mean of the values: the weights are not used in it."),
    Mistake("weights_from_values", "value", "The scores are computed from the values where the keys belong."),
)  # fmt: skip


def attend(on: frozenset[str]) -> Callable[..., tuple[Tensor, Tensor]]:
    """scaled_dot_product_attention with the mistakes in `on`; without any, right."""

    def attention(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if "weights_from_values" in on:
            key = value
        flipped = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
        scores = query @ (flipped if "key_reshaped" in on else key.transpose(-2, -1))  # (..., T_q, T_k)
        root = math.sqrt(query.shape[-1])
        divisors = {
            "no_scale": 1.0,
            "scale_by_d_k": root**2,
            "scale_by_sqrt_keys": math.sqrt(key.shape[-2]),
            "scale_by_sqrt_d_v": math.sqrt(value.shape[-1]),
            "multiplied_by_scale": 1 / root,
            "scale_after_softmax": 1.0,
        }
        scores = scores / next((d for name, d in divisors.items() if name in on), root)
        raw = scores
        if mask is not None and "mask_transposed" in on and mask.shape[-1] == mask.shape[-2]:
            mask = mask.transpose(-2, -1)
        if mask is not None and "mask_inverted" in on:
            mask = ~mask
        fills = {"mask_fill_positive": 1e9, "mask_fill_too_weak": -1e4, "mask_fill_near_zero": 0.0}
        fill = next((v for name, v in fills.items() if name in on), None)
        unmasked = {"mask_ignored", "mask_after_softmax", "mask_on_values"} & on
        if mask is None or unmasked:
            pass
        elif "mask_added" in on:
            scores = scores + mask
        else:
            scores = scores.masked_fill(~mask, -math.inf if fill is None else fill)
        axes = {"softmax_over_queries": -2, "softmax_over_axis_1": 1, "softmax_over_axis_0": 0}
        axis = next((a for name, a in axes.items() if name in on), -1)
        full: Tensor | None = None  # where nothing is allowed
        if "no_softmax" in on:
            weights = scores.masked_fill(scores == -math.inf, 0.0)
        elif "not_normalised" in on:
            weights = scores.exp()
        else:
            # A slice of only -inf: subtracting 0 instead of its maximum keeps zeros where NaN would arise.
            top = scores.amax(axis, keepdim=True)
            exp = (scores - top.masked_fill(top == -math.inf, 0.0).detach()).exp()
            total = exp.sum(axis, keepdim=True)
            weights = exp / (total.masked_fill(total == 0, 1.0))
            full = (total == 0).expand_as(weights)
            if "full_row_nan" in on:
                weights = weights.masked_fill(full, math.nan)
            if "full_row_uniform" in on:
                weights = weights.masked_fill(full, 1 / weights.shape[axis])
        if {"mask_after_softmax", "zeroed_after"} & on and mask is not None:
            weights = weights * mask
        if "scale_after_softmax" in on:
            weights = weights / root
        if "mask_on_values" in on and mask is not None and mask.shape[-2] == 1:
            value = value * mask.transpose(-2, -1)
        output = (
            value.mean(-2, keepdim=True).expand(*weights.shape[:-1], -1)
            if "output_not_weighted" in on
            else weights @ value
        )
        if "full_row_weights_kept" in on and full is not None:
            weights = weights.masked_fill(full, 1 / weights.shape[axis])
        if "returns_scores" in on:
            return output, raw if mask is None else scores
        if "returns_masked_late" in on:
            return output, raw.softmax(-1)
        if "returns_swapped" in on:
            return weights, output
        if "returns_output_only" in on:
            return output  # type: ignore[return-value]
        return output, weights

    return attention


def _inputs(
    seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.5
) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    query = scale * torch.randn(2, 3, 5, 4, generator=g, dtype=dtype)  # (B, h, T_q, d_k)
    key = scale * torch.randn(2, 3, 7, 4, generator=g, dtype=dtype)  # (B, h, T_k, d_k)
    return query, key, torch.randn(2, 3, 7, 6, generator=g, dtype=dtype)  # (B, h, T_k, d_v)


def random_mask(seed: int, *shape: int) -> Tensor:
    """A boolean mask that hides about half of the keys and leaves at least one to every query and one query to a key."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[..., 0] = True
    mask[..., -1] = False
    return mask


def _large(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All scores near -20,000, so that a forbidden score of -10,000 would win."""
    query, key, value = _inputs(seed, torch.float64, 0.5)
    key[..., 0] = -200.0 * math.sqrt(4)
    query[..., 0] = 100.0
    return query, key, value, random_mask(seed, 5, 7)


def _sdpa_probes(seed: int) -> list[Probe]:
    query, key, value = _inputs(seed)
    full = random_mask(seed, 5, 7)
    full[2] = False
    return [
        Probe((query, key, value)),
        Probe((query, key, value, random_mask(seed, 2, 1, 1, 7))),
        Probe((query, key, value, random_mask(seed, 5, 7))),
        Probe(_large(seed)),
        Probe((query, key, value, full)),
        Probe((query, key, value[..., :4])),  # d_v = d_k: values can be taken for keys
        Probe((query, key[..., :5, :], value[..., :5, :], torch.ones(5, 5, dtype=torch.bool).tril())),
    ]


_AXES = "batch head query"


def _expect_attention(c: Context, *args: Tensor, tolerance: float = 1e-5) -> None:
    got, want = c.subject.call(*args), solutions.scaled_dot_product_attention(*args)
    if not isinstance(got, tuple | list) or len(got) != 2:
        only = "returns_output_only" if isinstance(got, Tensor) else "returns_not_two"
        raise Wrong("Return two things: (output, weights).", only)
    c.expect(got[0], want[0], "the output", axes=_AXES + " d_v", rtol=tolerance, atol=tolerance)
    c.expect(got[1], want[1], "the weights", axes=_AXES + " key", rtol=tolerance, atol=tolerance)


def _unmasked(c: Context) -> None:
    _expect_attention(c, *_inputs(c.seed))


def _one_key(c: Context) -> None:
    query, key, value = _inputs(c.seed)
    _expect_attention(c, query, key[..., :1, :], value[..., :1, :])


_MILD = 0.8  # scores so near to each other that weights * mask / (their sum + 1e-9) is right, too


def _mask_shapes(c: Context) -> None:
    for i, shape in enumerate([(5, 7), (2, 1, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7)]):
        _expect_attention(c, *_inputs(c.seed, scale=_MILD), random_mask(c.seed + i, *shape))


def _square(c: Context) -> None:
    query, key, value = _inputs(c.seed, scale=_MILD)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    _expect_attention(c, query, key[..., :5, :], value[..., :5, :], mask)


def _forbidden(c: Context) -> None:
    query, key, value = _inputs(c.seed, scale=_MILD)
    mask = random_mask(c.seed, 5, 7)
    before = c.subject.call(query, key, value, mask)[0]
    hidden = ~mask[3]
    key[..., hidden, :] += c.randn(2, 3, int(hidden.sum()), 4)
    value[..., hidden, :] += 1.0
    after = c.subject.call(query, key, value, mask)[0]
    if not torch.allclose(before[:, :, 3], after[:, :, 3], atol=1e-5):
        j = int(hidden.nonzero()[0])
        raise Wrong(
            f"Row 3 attends to position {j}, which the mask forbids: changing that key and value changes it."
        )


def _large_scores(c: Context) -> None:
    _expect_attention(
        c, *_large(c.seed), tolerance=5e-3
    )  # float32 inside, a matter of taste, keeps 3 digits here


def _full_row(c: Context) -> None:
    query, key, value = _inputs(c.seed, scale=_MILD)
    mask = random_mask(c.seed, 5, 7)
    mask[2] = False
    output, weights = c.subject.call(query, key, value, mask)
    for what, got in (("output", output), ("weights", weights)):
        row = got[:, :, 2]
        if not bool((row == 0).all()):
            text = "NaN" if row.isnan().any() else f"values such as {float(row.flatten()[0]):.3g}"
            raise Wrong(f"Query 2 may attend to no key: its {what} should be zeros, yours hold {text}.")
    _expect_attention(c, query, key, value, mask)
    _, grads = c.subject.gradients(query, key, value, mask, wrt=[0, 1, 2])
    if not all(bool(g.isfinite().all()) for g in grads):
        raise Wrong(
            "With a row in which every key is forbidden the gradients should stay finite; yours hold NaN.",
            "full_row_gradient_nan",
        )


def _stable(c: Context) -> None:
    query, key, value = _inputs(c.seed, scale=60.0)
    _expect_attention(c, query, key, value, tolerance=1e-4)


def _leading(c: Context) -> None:
    query, key, value = _inputs(c.seed)
    for args in ((query[0, 0], key[0, 0], value[0, 0]), (query[None], key[None], value[None])):
        got, want = c.subject.call(*args), solutions.scaled_dot_product_attention(*args)
        c.expect(got, want, "the result for other leading dimensions")


def _gradients(c: Context) -> None:
    args = (*_inputs(c.seed, torch.float64, _MILD), random_mask(c.seed, 2, 1, 5, 7))
    wrt = {"query": 0, "key": 1, "value": 2}
    c.same_gradients(*args, wrt=wrt, output=0, rtol=1e-5, atol=1e-5)


def unchanged(c: Context, *args: object) -> None:
    """The candidate leaves its arguments as they were, and also takes tensors that are not contiguous."""
    after = c.subject.observe(*args)[1]
    for i, (a, b) in enumerate(zip(args, after, strict=True)):
        if isinstance(a, Tensor) and not torch.equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")


def _inputs_kept(c: Context) -> None:
    query, key, value = _inputs(c.seed)
    unchanged(c, query, key, value, random_mask(c.seed, 5, 7))
    turned = [t.transpose(-2, -1).contiguous().transpose(-2, -1) for t in (query, key, value)]
    _expect_attention(c, *turned)


def _dtype(c: Context) -> None:
    inputs = _inputs(c.seed, torch.float64)
    for got in c.subject.call(*inputs, random_mask(c.seed, 5, 7)):
        if got.dtype != torch.float64:
            raise Wrong(
                f"For float64 inputs the results should be float64; yours are {got.dtype}.", "wrong_dtype"
            )
    _expect_attention(c, *inputs, tolerance=1e-6)


def _same_each_time(c: Context) -> None:
    query, key, value = _inputs(c.seed)
    results = [c.subject.call(query, key, value) for _ in range(2)]
    first, second = (
        [t for t in r if isinstance(t, Tensor)] if isinstance(r, tuple | list) else [] for r in results
    )
    if difference(second, first) is not None:
        raise Wrong(
            "Two calls with the same inputs give different results: something in it is random. "
            "(F.dropout drops in every call unless it is told training=False.)",
            "random",
        )


# -- attention by loops ----------------------------------------------------------------------------------------------


def _arrays(seed: int, d_v: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 1.5 * rng.normal(size=(5, 4)), 1.5 * rng.normal(size=(7, 4)), rng.normal(size=(7, d_v))


_LOOPS = (
    Mistake("only_first_query", "rows", "Only query 0 gets an output: the return stands inside the loop over the queries."),
    Mistake("sum_not_reset", "rows", "The sums of one query go on into the next: start each query's output at 0."),
    Mistake("only_last_value", "value", "Only the last key's value, times its weight, is in the output: each one overwrites the one before (= where += belongs)."),
    Mistake("only_last_feature", "key", "The scores are products of the last features alone: each product overwrites the one before (= where += belongs)."),
    Mistake("as_many_keys_as_queries", "keys", "Only the first T_q keys are used: the loop over the keys counts the queries."),
    Mistake("last_key_missing", "keys", "The last key is left out."),
    Mistake("earlier_keys_only", "keys", "Query i sees the keys 0 to i alone; here nothing is masked, it sees all of them."),
)  # fmt: skip


def _loops_variant(on: frozenset[str]) -> Callable[..., np.ndarray]:
    def by_loops(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        q, k, v = (torch.as_tensor(np.array(x, dtype=float)) for x in (query, key, value))
        if {"as_many_keys_as_queries", "last_key_missing"} & on:
            n = len(q) if "as_many_keys_as_queries" in on else len(k) - 1
            k, v = k[:n], v[:n]
        if "only_last_feature" in on:
            q[:, :-1] = 0
        mask = torch.ones(len(q), len(k), dtype=torch.bool).tril() if "earlier_keys_only" in on else None
        if "only_last_value" in on:
            v[:-1] = 0
        output = attend(on)(q, k, v, mask)[0].numpy()
        if "only_first_query" in on:
            output[1:] = 0
        return output.cumsum(0) if "sum_not_reset" in on else output

    return by_loops


def _loops_values(c: Context) -> None:
    c.same(*_arrays(c.seed), what="the output", axes="query d_v")


def _loops_one_key(c: Context) -> None:
    query, key, value = _arrays(c.seed)
    c.same(query, key[:1], value[:1], what="the output", axes="query d_v")


def _loops_large(c: Context) -> None:
    query, key, value = _arrays(c.seed)
    args = (30 * query, 30 * key, value)
    with np.errstate(all="ignore"):
        got = c.subject.call(*args)
        if not np.isfinite(np.asarray(got, dtype=float)).all():
            text = "For large scores the output is not finite: exp overflows, or is 0 everywhere. Subtract the largest score of the row first."
            raise Wrong(text, "softmax_overflows")
    c.expect(got, solutions.attention_by_loops(*args), "the output for large scores")


def _loops_kept(c: Context) -> None:
    args = _arrays(c.seed)
    for i, (a, b) in enumerate(zip(args, c.subject.observe(*args)[1], strict=True)):
        if not np.array_equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")


# -- masks -----------------------------------------------------------------------------------------------------------

_PADDING = (
    Mistake("inverted", "polarity", "True and False are exchanged: True means that the token is real."),
    Mistake("query_axis", "shape", "The length stands on the query axis, (B, 1, T, 1): that hides rows where it should hide keys."),
    Mistake("not_broadcastable", "shape", "The shape is (B, T); it needs two axes of size 1, (B, 1, 1, T), to broadcast over heads and queries."),
    Mistake("three_axes", "shape", "The shape is (B, 1, T); one axis is missing: (B, 1, 1, T)."),
    Mistake("full_matrix", "shape", "The mask is repeated to (B, 1, T, T); (B, 1, 1, T) is asked for and broadcasts to that."),
    Mistake("queries_hidden_too", "shape", "The rows of padding are hidden as well, (B, 1, T, T); only the keys are hidden, (B, 1, 1, T)."),
    Mistake("axes_in_front", "shape", "The two axes of size 1 stand in front, (1, 1, B, T); they belong behind the batch, (B, 1, 1, T)."),
    Mistake("axes_at_the_end", "shape", "The two axes of size 1 stand at the end, (B, T, 1, 1); they belong behind the batch, (B, 1, 1, T)."),
    Mistake("false_from_first_padding_on", "where", "Everything behind the first padding is False; a real token is True wherever it stands."),
    Mistake("first_by_count", "where", "The first n positions are True, n the number of real tokens; padding on the left or in the middle is then taken for real."),
    Mistake("pad_id_ignored", "pad", "The padding id is taken to be 0 whatever `pad_id` says."),
    Mistake("greater_than_pad", "pad", "Tokens are compared with > where != is meant: ids below pad_id are real tokens too."),
    Mistake("numbers", "type", "The mask holds floating-point numbers; it should be boolean."),
    Mistake("integers", "type", "The mask holds the integers 0 and 1; it should be boolean."),
    Mistake("minus_infinity", "type", "The mask holds 0 and -inf, to be added; it should be boolean, True where a token is real."),
)  # fmt: skip


def _padding_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def padding_mask(tokens: Tensor, pad_id: int = 0) -> Tensor:
        pad = 0 if "pad_id_ignored" in on else pad_id
        mask = tokens > pad if "greater_than_pad" in on else tokens != pad
        if "false_from_first_padding_on" in on:
            mask = mask.cumprod(1).bool()
        elif "first_by_count" in on:
            mask = torch.arange(tokens.shape[1]) < mask.sum(1, keepdim=True)
        if "inverted" in on:
            mask = ~mask
        if "queries_hidden_too" in on:
            mask = mask[:, None, :, None] & mask[:, None, None, :]
        elif "axes_in_front" in on:
            mask = mask[None, None]
        elif "axes_at_the_end" in on:
            mask = mask[:, :, None, None]
        elif "query_axis" in on:
            mask = mask[:, None, :, None]
        elif "three_axes" in on:
            mask = mask[:, None, :]
        elif "full_matrix" in on:
            mask = mask[:, None, None, :].repeat(1, 1, tokens.shape[1], 1)
        elif "not_broadcastable" not in on:
            mask = mask[:, None, None, :]
        if "numbers" in on:
            return mask.float()
        if "integers" in on:
            return mask.long()
        if "minus_infinity" in on:
            return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return mask

    return padding_mask


def _tokens(seed: int, pad_id: int) -> Tensor:
    tokens = torch.randint(0, 9, (2, 5), generator=torch.Generator().manual_seed(seed))
    tokens[tokens == pad_id] = 9
    tokens[0, 3:], tokens[1, 4:], tokens[1, 0] = pad_id, pad_id, 1 if pad_id else 4
    return tokens


def _scattered(seed: int, pad_id: int) -> Tensor:
    """Tokens with padding on the left, and in the middle."""
    tokens = torch.randint(1, 7, (3, 6), generator=torch.Generator().manual_seed(seed))
    tokens[0, :2], tokens[1, 2], tokens[1, 5] = pad_id, pad_id, pad_id
    return tokens


def _boolean(c: Context, *args: object) -> None:
    got = c.subject.call(*args)
    if isinstance(got, Tensor) and got.dtype != torch.bool:
        raise Wrong(f"The mask should be boolean (torch.bool); yours is {got.dtype}.")


def _padding_values(c: Context) -> None:
    c.same(_tokens(c.seed, 0), what="the mask", axes="batch head query key")


def _padding_other_id(c: Context) -> None:
    c.same(_tokens(c.seed, 7), 7, what="the mask for pad_id = 7", axes="batch head query key")


def _padding_anywhere(c: Context) -> None:
    for pad_id in (0, 7):
        what = "the mask for padding on the left and in the middle"
        c.same(_scattered(c.seed, pad_id), pad_id, what=what, axes="batch head query key")


def _padding_type(c: Context) -> None:
    _boolean(c, _tokens(c.seed, 0))


_CAUSAL = (
    Mistake("upper", "triangle", "The triangle is the upper one: position i sees the future and not the past."),
    Mistake("strict", "diagonal", "The diagonal is False: a position may attend to itself."),
    Mistake("one_too_many", "diagonal", "Each position also sees the next one: the diagonal is off by one."),
    Mistake("inverted", "polarity", "True and False are exchanged: True means that a position may be attended to."),
    Mistake("everything", "triangle", "Every position sees every other: nothing is hidden."),
    Mistake("numbers", "type", "The mask holds floating-point numbers; it should be boolean."),
    Mistake("integers", "type", "The mask holds the integers 0 and 1; it should be boolean."),
    Mistake("minus_infinity", "type", "The mask holds 0 and -inf, to be added; it should be boolean, True on and below the diagonal."),
    Mistake("extra_axes", "shape", "The mask has axes of size 1 in front; (T, T) is asked for."),
)  # fmt: skip


def _causal_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def causal_mask(length: int) -> Tensor:
        offset = -1 if "strict" in on else 1 if "one_too_many" in on else 0
        mask = torch.ones(length, length, dtype=torch.bool)
        if "everything" not in on:
            mask = mask.triu(-offset) if "upper" in on else mask.tril(offset)
        if "inverted" in on:
            mask = ~mask
        if "extra_axes" in on:
            mask = mask[None, None]
        if "numbers" in on:
            return mask.float()
        if "integers" in on:
            return mask.long()
        if "minus_infinity" in on:
            return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return mask

    return causal_mask


def _causal_values(c: Context) -> None:
    c.same(5 + c.seed % 3, what="the mask", axes="query key")


def _causal_diagonal(c: Context) -> None:
    got = c.subject.call(4)
    if not bool(torch.as_tensor(got).bool().diagonal(dim1=-2, dim2=-1).all()):
        raise Wrong("Every position may attend to itself: the diagonal should be True.")


def _causal_small(c: Context) -> None:
    c.same(1, what="the mask of length 1")


def _causal_type(c: Context) -> None:
    _boolean(c, 4)


_exercise = partial(Exercise, notebook="03_attention")

EXERCISES = (
    _exercise(
        name="attention_by_loops",
        points=2,
        difficulty=1,
        minutes=12,
        hints=(
            "For one query: which numbers do you need before you can take the mean of the values?",
            "One score for each key: the sum over c of query[i, c] * key[j, c], divided by √d_k. Then a softmax over j.",
            "weights = np.exp(scores - scores.max()); weights /= weights.sum(); output[i] += weights[j] * value[j] for every j.",
        ),
        reference=solutions.attention_by_loops,
        tests=(
            Test("values", "gives softmax(q·k/√d_k)-weighted sums of the values", _loops_values),
            Test("one_key", "with one key returns its value", _loops_one_key, crash="crashes_with_one_key"),
            Test("large_scores", "stays finite for large scores", _loops_large),
            Test("inputs_kept", "leaves its inputs as they were", _loops_kept),
        ),
        mistakes=(*SCALE, *SOFTMAX, *(m for m in OTHER if m.axis in ("key", "value")), *_LOOPS),
        variant=_loops_variant,
        probes=lambda seed: [Probe(_arrays(seed)), Probe(_arrays(seed, d_v=4))],
    ),
    _exercise(
        name="scaled_dot_product_attention",
        points=4,
        difficulty=2,
        minutes=20,
        hints=(
            "What is the shape of the scores, and over which of its axes must the weights sum to 1?",
            "scores = query @ key.transpose(-2, -1) / √d_k; give forbidden scores a very negative value before the softmax.",
            "After the softmax set the weights to 0 where the mask is False: this changes only rows in which every key is forbidden.",
        ),
        reference=solutions.scaled_dot_product_attention,
        tests=(
            Test("same_each_time", "gives the same result each time", _same_each_time),
            Test("values", "equals softmax(QKᵀ/√d_k)V without a mask", _unmasked),
            Test("one_key", "with one key returns its value with weight 1", _one_key),
            Test(
                "mask",
                "equals the formula with masks of every shape that broadcasts",
                _mask_shapes,
                crash="mask_not_broadcast",
            ),
            Test("square", "hides the future with a causal mask", _square),
            Test("forbidden", "a forbidden key has no influence", _forbidden),
            Test("large_scores", "a forbidden key has no influence when scores are large", _large_scores),
            Test("full_row", "a query without any allowed key gives zeros, and finite gradients", _full_row),
            Test("stable", "stays finite for large scores", _stable),
            Test("leading", "takes any leading dimensions", _leading, crash="fixed_number_of_dimensions"),
            Test("gradients", "has the right gradients", _gradients),
            Test(
                "inputs_kept",
                "leaves its inputs as they were, contiguous or not",
                _inputs_kept,
                crash="needs_contiguous_input",
            ),
            Test("dtype", "works in double precision", _dtype, crash="fixed_dtype"),
        ),
        mistakes=(*SCALE, *SOFTMAX, *ONLY_HERE, *MASK, *FULL_ROW, *OTHER),
        variant=attend,
        neutral=("zeroed_after",),  # weights * mask behind the softmax, besides
        probes=_sdpa_probes,
        not_allowed=(
            "F.scaled_dot_product_attention",
            "nn.MultiheadAttention",
            "F.multi_head_attention_forward",
        ),
    ),
    _exercise(
        name="padding_mask",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "Which tokens should be True, the real ones or the padding?",
            "Compare with pad_id, then add axes of size 1 for the heads and the queries.",
            "return (tokens != pad_id)[:, None, None, :]",
        ),
        reference=solutions.padding_mask,
        tests=(
            Test("values", "is True exactly at real tokens, with shape (B, 1, 1, T)", _padding_values),
            Test("pad_id", "uses the pad_id it is given", _padding_other_id),
            Test("anywhere", "is False at padding wherever it stands", _padding_anywhere),
            Test("boolean", "is boolean", _padding_type),
        ),
        mistakes=_PADDING,
        variant=_padding_variant,
        probes=lambda seed: [
            Probe((_tokens(seed, 0),)),
            Probe((_tokens(seed, 7), 7)),
            Probe((_scattered(seed, 0),)),
        ],
    ),
    _exercise(
        name="causal_mask",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "May a position attend to itself? What does the first row of the mask look like?",
            "Row i is a query, column j a key; True where j ≤ i.",
            "return torch.ones(length, length, dtype=torch.bool).tril()",
        ),
        reference=solutions.causal_mask,
        tests=(
            Test("values", "is True on and below the diagonal", _causal_values),
            Test("diagonal", "lets a position attend to itself", _causal_diagonal),
            Test("small", "works for length 1", _causal_small, crash="crashes_at_length_1"),
            Test("boolean", "is boolean", _causal_type),
        ),
        mistakes=_CAUSAL,
        variant=_causal_variant,
        probes=lambda seed: [Probe((5,)), Probe((3 + seed % 4,))],
    ),
)
