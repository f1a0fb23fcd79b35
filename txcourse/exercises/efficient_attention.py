"""Exercises of 16_efficient_attention."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.exercises.attention import unchanged
from txcourse.solutions import efficient_attention as solutions

# PyTorch functions with which numbers leave it: what is computed elsewhere has no gradient, and is allowed.
_LEAVING = {"numpy", "__array__", "item", "tolist", "__float__", "numbers of tensors"}


def _gradients(c: Context, *args: object, wrt: dict[str, int], exact: float = 1e-6) -> None:
    """Of what PyTorch computes, no part may be cut off from the inputs. When PyTorch itself refuses the gradient, since a
    tensor was changed in place or leaves it, nobody is misled."""
    try:
        c.same_gradients(*args, wrt=wrt, rtol=exact, atol=exact)
    except CandidateError as error:
        if type(error.error) is not RuntimeError:
            raise
    except Wrong as wrong:
        if wrong.mistake != "gradient_cut_off" or not _LEAVING & set(c.subject.functions(*args)):
            raise


# -- a local window --------------------------------------------------------------------------------------------------

_WINDOW = (
    Mistake("strictly_less", "window", "The window is one too narrow on each side: |i − j| = window is still allowed."),
    Mistake("one_too_wide", "window", "The window is one too wide on each side: |i − j| may be at most window."),
    Mistake("window_is_total", "window", "The other convention: your `window` is the width of the whole window, half of it on each side. Here it is the reach on one side, |i − j| ≤ window."),
    Mistake("window_doubled", "window", "Your window reaches 2 · window to each side; |i − j| may be at most window."),
    Mistake("window_ignored", "window", "`window` has no effect: every position sees every other."),
    Mistake("past_only", "side", "Your window looks back only; |i − j| ≤ window reaches to both sides."),
    Mistake("future_only", "side", "Your window looks ahead only; |i − j| ≤ window reaches to both sides."),
    Mistake("past_unlimited", "side", "Your window is limited on one side only: the distance is i − j without its absolute value."),
    Mistake("future_unlimited", "side", "Your window is limited on one side only: the distance is j − i without its absolute value."),
    Mistake("blocks", "side", "The sequence is cut into blocks that see only themselves; the window moves with the position."),
    Mistake("blocks_of_full_width", "side", "The sequence is cut into blocks of 2 · window + 1 that see only themselves; the window moves with the position."),
    Mistake("wraps_around", "side", "Your window goes around the ends: the first position sees the last. The sequence is no circle."),
    Mistake("without_itself", "diagonal", "The diagonal is False: a position sees itself, |i − i| = 0."),
    Mistake("edges_cut", "diagonal", "The first and the last rows are empty: near the ends the window is shorter, but not gone."),
    Mistake("inverted", "polarity", "True and False are exchanged: True means that a position may be attended to."),
    Mistake("numbers", "type", "The mask holds numbers; it should be boolean."),
    Mistake("minus_infinity", "type", "The mask holds 0 and -inf, to be added; it should be boolean, True where the distance is at most window."),
    Mistake("extra_axes", "shape", "The mask has axes of size 1 in front; (T, T) is asked for."),
)  # fmt: skip


def _window_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def local_attention_mask(length: int, window: int) -> Tensor:
        i = torch.arange(length)
        offset = i[:, None] - i  # (T, T), positive where the key is in the past
        reach = window
        if "window_is_total" in on:
            reach = window // 2
        elif "window_doubled" in on:
            reach = 2 * window
        elif "window_ignored" in on:
            reach = length
        elif "strictly_less" in on:
            reach = window - 1
        elif "one_too_wide" in on:
            reach = window + 1
        sides: dict[str, Callable[[], Tensor]] = {
            "past_only": lambda: (offset >= 0) & (offset <= reach),
            "future_only": lambda: (offset <= 0) & (offset >= -reach),
            "past_unlimited": lambda: offset >= -reach,
            "future_unlimited": lambda: offset <= reach,
            "blocks": lambda: i[:, None] // max(reach, 1) == i // max(reach, 1),
            "blocks_of_full_width": lambda: i[:, None] // max(2 * reach + 1, 1) == i // max(2 * reach + 1, 1),
            "wraps_around": lambda: torch.minimum(offset.abs(), length - offset.abs()) <= reach,
        }
        mask = next((f() for name, f in sides.items() if name in on), offset.abs() <= reach)
        if "without_itself" in on:
            mask = mask & (offset != 0)
        if "edges_cut" in on:
            whole = (i >= reach) & (i < length - reach)
            mask = mask & whole[:, None]
        if "inverted" in on:
            mask = ~mask
        if "extra_axes" in on:
            mask = mask[None, None]
        if "numbers" in on:
            return mask.float()
        if "minus_infinity" in on:
            return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return mask

    return local_attention_mask


def _window_values(c: Context) -> None:
    for length, window in ((7, 2), (8 + c.seed % 4, 1), (11, 3)):
        what = f"local_attention_mask({length}, {window})"
        c.same(length, window, what=what, axes="query key")


def _window_extremes(c: Context) -> None:
    for length, window in ((6, 0), (4, 9), (1, 1)):
        c.same(length, window, what=f"local_attention_mask({length}, {window})", axes="query key")


def _window_type(c: Context) -> None:
    got = c.subject.call(5, 1)
    if isinstance(got, Tensor) and got.dtype != torch.bool:
        raise Wrong(f"The mask should be boolean (torch.bool); yours is {got.dtype}.")


# -- linear attention ------------------------------------------------------------------------------------------------

_LINEAR = (
    Mistake("elu_without_one", "feature", "φ is elu without + 1: it is negative for negative inputs, and the sums can be 0."),
    Mistake("relu_feature", "feature", "φ is relu; it should be elu(x) + 1."),
    Mistake("exp_feature", "feature", "φ is exp; it should be elu(x) + 1."),
    Mistake("softplus_feature", "feature", "φ is softplus; it should be elu(x) + 1."),
    Mistake("sigmoid_feature", "feature", "φ is the sigmoid; it should be elu(x) + 1."),
    Mistake("relu_plus_one", "feature", "φ is relu(x) + 1; it should be elu(x) + 1."),
    Mistake("one_inside_elu", "feature", "φ is elu(x + 1); the 1 is added after: elu(x) + 1."),
    Mistake("no_feature_map", "feature", "φ is missing: queries and keys are multiplied as they are."),
    Mistake("feature_of_query_only", "feature", "φ is applied to the query only; keys need it too."),
    Mistake("feature_of_key_only", "feature", "φ is applied to the key only; queries need it too."),
    Mistake("feature_twice", "feature", "φ is applied twice."),
    Mistake("softmax_features", "feature", "The features are softmaxes of query and key; φ should be elu(x) + 1."),
    Mistake("softmax_attention", "kind", "You return softmax attention; the weights should be φ(q) · φ(k), divided by their sum."),
    Mistake("softmax_attention_unscaled", "kind", "You return softmax attention without scale; the weights should be φ(q) · φ(k), divided by their sum."),
    Mistake("softmax_of_products", "kind", "You take a softmax of φ(q) · φ(k); the products themselves, divided by their sum, are the weights."),
    Mistake("query_scaled", "scale", "The query is divided by √d before φ; here nothing is scaled."),
    Mistake("both_scaled", "scale", "Query and key are divided by √d before φ; here nothing is scaled."),
    Mistake("both_scaled_by_fourth_root", "scale", "Query and key are divided by the fourth root of d before φ; here nothing is scaled."),
    Mistake("no_normaliser", "normaliser", "The division by the sum of φ(q) · φ(k) over the keys is missing."),
    Mistake("normaliser_multiplied", "normaliser", "You multiply by the sum of φ(q) · φ(k); divide by it."),
    Mistake("normaliser_not_causal", "normaliser", "When causal, the sum you divide by runs over all keys; it should run over j ≤ i, as the other one does."),
    Mistake("numerator_not_causal", "normaliser", "When causal, the weighted sum of the values runs over all keys; only the sum you divide by stops at i."),
    Mistake("divided_by_number_of_keys", "normaliser", "You divide by the number of positions; divide by the sum of φ(q) · φ(k) over them."),
    Mistake("divided_by_sum_of_keys", "normaliser", "You divide by the sum of φ(k) alone; the query belongs to it: φ(q_i) · Σ φ(k_j)."),
    Mistake("normalised_over_queries", "normaliser", "The weights are divided by their sum over the queries; it goes over the keys."),
    Mistake("causal_ignored", "causal", "`causal` has no effect: position i still sees later ones."),
    Mistake("always_causal", "causal", "Your attention is causal also when `causal` is False."),
    Mistake("causal_by_default", "causal", "By default `causal` is False."),
    Mistake("causal_strict", "causal", "When causal, position i does not see itself; j ≤ i includes j = i."),
    Mistake("causal_reversed", "causal", "When causal, position i sees itself and later ones; it should see j ≤ i."),
    Mistake("causal_inverted", "causal", "`causal` works the wrong way round."),
    Mistake("nothing_summed_up", "causal", "When causal, the state of position i holds key i alone; add up those before it."),
    Mistake("mask_ignored", "mask", "Your result does not depend on key_mask."),
    Mistake("mask_inverted", "mask", "key_mask works the wrong way round: True means that the key may be attended to."),
    Mistake("padding_in_normaliser", "mask", "Keys with key_mask False are left out of the values' sum but still counted in the sum you divide by."),
    Mistake("padding_in_numerator", "mask", "Keys with key_mask False are left out of the sum you divide by, but their values are still added."),
    Mistake("mask_before_feature", "mask", "Hidden keys are set to 0 before φ, and φ(0) = 1 still gives them weight; zero φ(k) instead."),
    Mistake("mask_on_queries", "mask", "key_mask zeroes rows of the output: it hides queries where it should hide keys."),
    Mistake("mask_ignored_when_causal", "mask", "With `causal` your key_mask has no effect."),
    Mistake("mask_of_first_sequence", "mask", "The key_mask of the first sequence is used for the whole batch."),
    Mistake("state_transposed", "state", "Keys and values are exchanged in the sum of their products: it should be φ(k) times vᵀ, so that φ(q) meets φ(k)."),
    Mistake("heads_summed", "state", "The sums run over the heads too; each head has its own."),
    Mistake("batch_summed", "state", "The sums run over the batch too; each sequence has its own."),
)  # fmt: skip


def _linear_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    features: dict[str, Callable[[Tensor], Tensor]] = {
        "elu_without_one": F.elu,
        "relu_feature": torch.relu,
        "exp_feature": torch.exp,
        "softplus_feature": F.softplus,
        "sigmoid_feature": torch.sigmoid,
        "relu_plus_one": lambda x: x.relu() + 1,
        "one_inside_elu": lambda x: F.elu(x + 1),
        "no_feature_map": lambda x: x,
        "feature_twice": lambda x: F.elu(F.elu(x) + 1) + 1,
    }
    phi = next((f for name, f in features.items() if name in on), lambda x: F.elu(x) + 1)

    def linear_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        causal: bool | None = None,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        if causal is None:
            causal = "causal_by_default" in on
        causal = (causal != ("causal_inverted" in on)) or "always_causal" in on
        causal = causal and "causal_ignored" not in on
        t, d = query.shape[-2:]
        keep = torch.ones(t, t, dtype=query.dtype)
        if causal:
            keep = keep.tril(-1 if "causal_strict" in on else 0)
            if "causal_reversed" in on:
                keep = torch.ones(t, t, dtype=query.dtype).triu()
            elif "nothing_summed_up" in on:
                keep = torch.eye(t, dtype=query.dtype)
        hide = None
        if (
            key_mask is not None
            and "mask_ignored" not in on
            and not (causal and "mask_ignored_when_causal" in on)
        ):
            hide = key_mask if "mask_inverted" in on else ~key_mask
            if "mask_of_first_sequence" in on:
                hide = hide[:1].expand_as(hide)
            hide = hide[:, None, None, :]  # (B, 1, 1, T)
        if hide is not None and "mask_before_feature" in on:
            key, hide = key.masked_fill(hide.transpose(-2, -1), 0.0), None
        scales = {"query_scaled": (d**-0.5, 1.0), "both_scaled": (d**-0.5, d**-0.5), "both_scaled_by_fourth_root": (d**-0.25, d**-0.25)}  # fmt: skip
        of_query, of_key = next((s for name, s in scales.items() if name in on), (1.0, 1.0))
        q, k = of_query * query, of_key * key
        softmaxed = {"softmax_attention": d**-0.5, "softmax_attention_unscaled": 1.0}
        if (scale := next((s for name, s in softmaxed.items() if name in on), None)) is not None:
            weights = (scale * q @ k.transpose(-2, -1)).exp()
        else:
            if "softmax_features" in on:
                q, k = q.softmax(-1), k.softmax(-2)
            else:
                q = q if "feature_of_key_only" in on else phi(q)
                k = k if "feature_of_query_only" in on else phi(k)
            weights = q @ k.transpose(-2, -1)  # (B, h, T, T)
            if "softmax_of_products" in on:
                weights = weights.exp()
        above, below = weights * keep, weights * keep  # of the numerator and of the denominator
        if causal and "normaliser_not_causal" in on:
            below = weights
        if causal and "numerator_not_causal" in on:
            above = weights
        if hide is not None and "mask_on_queries" not in on:
            above = above if "padding_in_numerator" in on else above.masked_fill(hide, 0.0)
            below = below if "padding_in_normaliser" in on else below.masked_fill(hide, 0.0)
        if "state_transposed" in on:  # v · q in the place of φ(k) · φ(q): possible since both have d features
            unit = torch.where(weights == 0, 0.0, above / weights)
            weighted = (unit * (q @ value.transpose(-2, -1))) @ k
        else:
            weighted = above @ value
        total = below.sum(-1, keepdim=True)
        for name, axis in (("heads_summed", 1), ("batch_summed", 0)):
            if name in on:
                size = query.shape[axis]
                every = [_rolled(q, k, value, above, weights, below, axis, i) for i in range(size)]
                weighted, total = sum(w for w, _ in every), sum(n for _, n in every)  # type: ignore[assignment]
        if "no_normaliser" in on:
            output = weighted
        elif "normaliser_multiplied" in on:
            output = weighted * total
        elif "divided_by_number_of_keys" in on:
            output = weighted / t
        elif "divided_by_sum_of_keys" in on:
            kept = torch.where(weights == 0, 0.0, below / weights)
            output = weighted / (kept @ k).sum(-1, keepdim=True)
        elif "normalised_over_queries" in on:
            output = (above / below.sum(-2, keepdim=True).clamp(min=1e-12)) @ value
        else:
            output = weighted / total
        if key_mask is not None and "mask_on_queries" in on:
            output = output * key_mask[:, None, :, None]
        return output

    return linear_attention


def _rolled(
    q: Tensor, k: Tensor, value: Tensor, above: Tensor, weights: Tensor, below: Tensor, axis: int, i: int
) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of each query with the keys of the head (or sequence) `i` further on."""
    products = q @ k.roll(i, axis).transpose(-2, -1)
    kept = [torch.where(weights == 0, 0.0, m / weights).roll(i, axis) for m in (above, below)]
    return (products * kept[0]) @ value.roll(i, axis), (products * kept[1]).sum(-1, keepdim=True)


_AXES = "batch head query d"


def _linear_inputs(seed: int, dtype: torch.dtype = torch.float32, length: int = 7) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    inputs = [1.5 * torch.randn(2, 3, length, 5, generator=g, dtype=dtype) for _ in range(3)]  # (B, h, T, d)
    for m in inputs[:2]:  # no sum is so small that 1e-6 more of it would show
        m[..., 0] = m[..., 0].abs() + 1
    return inputs


def _key_mask(seed: int, length: int = 7) -> Tensor:
    """Hides some keys, differently in the two sequences, and not the first."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(2, length, generator=g) < 0.5
    mask[:, 0] = True
    mask[0, 2], mask[1, 2], mask[0, -1], mask[1, -1] = False, True, True, False
    return mask


def _linear_probes(seed: int) -> list[Probe]:
    # In double precision: the sums of some mistaken features nearly cancel.
    inputs, mask = _linear_inputs(seed, torch.float64), _key_mask(seed)
    return [
        Probe((*inputs,)),
        Probe((*inputs, True)),
        Probe((*inputs, False, mask)),
        Probe((*inputs, True, mask)),
    ]


def _linear(c: Context, *args: object, inputs: list[Tensor] | None = None, exact: float = 1e-5) -> None:
    """Right answers may add some 1e-6 to the sum that they divide by."""
    given = inputs or _linear_inputs(c.seed)
    c.same(*given, *args, what="the output", axes=_AXES, rtol=exact, atol=exact)


def _linear_values(c: Context) -> None:
    _linear(c)
    _linear(c, False)
    _linear(c, inputs=[m[:1, :1] for m in _linear_inputs(c.seed)])


def _linear_causal(c: Context) -> None:
    _linear(c, True)


def _linear_mask(c: Context) -> None:
    for i in range(2):
        _linear(c, False, _key_mask(c.seed + i))
    inputs = _linear_inputs(c.seed)
    got = c.subject.call(*inputs, key_mask=_key_mask(c.seed))
    want = c.reference(*inputs, key_mask=_key_mask(c.seed))
    c.expect(got, want, "the output", axes=_AXES, rtol=1e-5, atol=1e-5)


def _linear_mask_causal(c: Context) -> None:
    _linear(c, True, _key_mask(c.seed))


def _linear_hidden(c: Context) -> None:
    inputs, mask = _linear_inputs(c.seed), _key_mask(c.seed)
    before = c.subject.call(*inputs, False, mask)
    hidden = ~mask[:, None, :, None]
    changed = [inputs[0], *(m + 3.0 * hidden for m in inputs[1:])]
    after = c.subject.call(*changed, False, mask)
    if not torch.allclose(before, after, atol=1e-5):
        raise Wrong(
            "Keys that key_mask hides have an influence: changing them and their values changes the output."
        )


def _linear_average(c: Context) -> None:
    query, key, value = _linear_inputs(c.seed)
    value = torch.full_like(value, 2.0)
    for causal in (False, True):
        what = f"the average of values that are all 2 (causal={causal})"
        c.expect(c.subject.call(query, key, value, causal), value, what, axes=_AXES, atol=1e-5)
    # Draws the line for a number added to the sum: 1e-5 passes whatever the seed, 1e-4 never.
    key = torch.full((1, 1, 2, 5), -40.0)  # φ is 0
    key[..., 0, 0] = 1.0  # φ is 2
    query, value = key[..., :1, :].expand_as(key), torch.full_like(key, 2.0)
    for causal in (False, True):
        got = c.subject.call(query, key, value, causal)
        what = "the average of values that are all 2, where φ(q) · φ(k) sum to 4,"
        c.expect(got, value, what, axes=_AXES, rtol=0.0, atol=1e-5)


def _linear_length_one(c: Context) -> None:
    for causal in (False, True):
        _linear(c, causal, inputs=_linear_inputs(c.seed, length=1))


def _linear_dtype(c: Context) -> None:
    query, key, value = _linear_inputs(c.seed, torch.float64)
    inputs = [
        query + 100,
        key + 100,
        value,
    ]  # with sums so large that a tiny number added to them does not show
    for causal in (False, True):
        got = c.subject.call(*inputs, causal, _key_mask(c.seed))
        if isinstance(got, Tensor) and got.dtype != torch.float64:
            raise Wrong(
                f"For float64 inputs the output should be float64; yours is {got.dtype}.", "wrong_dtype"
            )
        _linear(c, causal, _key_mask(c.seed), inputs=inputs, exact=1e-9)


def _linear_gradients(c: Context) -> None:
    inputs, mask = _linear_inputs(c.seed, torch.float64, length=4), _key_mask(c.seed, 4)
    for more in ((), (True,), (False, mask), (True, mask)):
        _gradients(c, *inputs, *more, wrt={"query": 0, "key": 1, "value": 2}, exact=1e-4)


def _linear_kept(c: Context) -> None:
    inputs = _linear_inputs(c.seed)
    for causal in (False, True):
        unchanged(c, *inputs, causal, _key_mask(c.seed))
    turned = [m.transpose(1, 2).contiguous().transpose(1, 2) for m in inputs]  # as heads are cut
    _linear(c, True, inputs=turned)


# -- the block-wise softmax ------------------------------------------------------------------------------------------

_ONLINE = (
    Mistake("no_scale", "scale", "Your scores are not divided by √d."),
    Mistake("scale_by_d", "scale", "Your scores are divided by d, not by its square root."),
    Mistake("scale_by_sqrt_keys", "scale", "Your scores are divided by the root of the number of keys, not by √d."),
    Mistake("scale_by_sqrt_block", "scale", "Your scores are divided by the root of the block's size, not by √d."),
    Mistake("multiplied_by_scale", "scale", "Your scores are multiplied by √d; they should be divided by it."),
    Mistake("nothing_rescaled", "rescale", "When the maximum rises, what was summed before is still relative to the old one: multiply sum and output by exp(old maximum − new maximum)."),
    Mistake("output_not_rescaled", "rescale", "When the maximum rises, only the running sum is multiplied by exp(old − new maximum); the running output needs it too."),
    Mistake("sum_not_rescaled", "rescale", "When the maximum rises, only the running output is multiplied by exp(old − new maximum); the running sum needs it too."),
    Mistake("rescale_inverted", "rescale", "You rescale by exp(new − old maximum); it is exp(old − new maximum), at most 1."),
    Mistake("new_block_rescaled", "rescale", "You multiply the new block's part by exp(old − new maximum); it is what was summed before that needs it."),
    Mistake("no_maximum", "maximum", "Large scores overflow: exp(score) is taken without subtracting the maximum."),
    Mistake("maximum_starts_at_zero", "maximum", "Your running maximum starts at 0, or not far below: when all scores are far below it, every exponential is 0 and you divide 0 by 0. Start at −inf."),
    Mistake("maximum_starts_too_high", "maximum", "Your running maximum starts at a number that all scores can be far below: every exponential is then 0, and you divide 0 by 0. Start at −inf."),
    Mistake("maximum_over_queries", "maximum", "Your maximum is taken over the queries too; each query has its own, else a query with low scores divides 0 by 0."),
    Mistake("maximum_not_running", "maximum", "You keep the maximum of the newest block, not the largest so far: when it falls, exp(old − new) overflows."),
    Mistake("no_division", "sum", "The division by the running sum at the end is missing."),
    Mistake("divided_in_each_block", "sum", "You divide by the running sum in each block and go on with the quotient; divide once, at the end."),
    Mistake("average_of_blocks", "sum", "You take a softmax in each block and average the blocks' outputs; a block counts as much as its exp(scores) sum to."),
    Mistake("sum_of_blocks", "sum", "You take a softmax in each block and add the blocks' outputs; the weights of all blocks together must sum to 1."),
    Mistake("sum_of_last_block", "sum", "The sum that you divide by is that of the last block alone; keep adding to it."),
    Mistake("output_of_last_block", "sum", "The output is that of the last block alone; keep adding to it."),
    Mistake("short_block_dropped", "blocks", "The last, shorter block is left out when `block` does not divide the number of keys."),
    Mistake("first_block_only", "blocks", "Only the first block is read: the return stands inside the loop, or the loop ends early."),
    Mistake("last_block_only", "blocks", "Only the last block counts: each block starts anew."),
    Mistake("keys_counted_by_queries", "blocks", "The loop runs over the number of queries; the blocks are cut from the keys."),
    Mistake("values_of_first_block", "blocks", "The values are those of the first block each time."),
)  # fmt: skip


def _online_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def online_softmax_attention(query: Tensor, key: Tensor, value: Tensor, block: int) -> Tensor:
        n, d = key.shape[-2:]
        root = math.sqrt(d)
        divisors = {
            "no_scale": 1.0,
            "scale_by_d": root**2,
            "scale_by_sqrt_keys": math.sqrt(n),
            "scale_by_sqrt_block": math.sqrt(block),
            "multiplied_by_scale": 1 / root,
        }
        divisor = next((v for name, v in divisors.items() if name in on), root)
        last = query.shape[-2] if "keys_counted_by_queries" in on else n
        starts = [*range(0, last, block)]
        if "short_block_dropped" in on:
            starts = [s for s in starts if s + block <= n]
        if "first_block_only" in on:
            starts = starts[:1]
        if "last_block_only" in on:
            starts = starts[-1:]
        start = 0.0 if {"no_maximum", "maximum_starts_at_zero"} & on else -math.inf
        if "maximum_starts_too_high" in on:
            start = -1e4
        top = torch.full_like(query[..., :1], start)
        total, output = torch.zeros_like(top), torch.zeros_like(query)
        alone = []
        for s in starts:
            k, v = key[..., s : s + block, :], value[..., s : s + block, :]
            if "values_of_first_block" in on:
                v = value[..., : k.shape[-2], :]
            scores = query @ k.transpose(-2, -1) / divisor
            highest = scores.amax(-1, keepdim=True)
            if "maximum_over_queries" in on:
                highest = highest.amax(-2, keepdim=True).expand_as(highest)
            new = torch.maximum(top, highest)
            if "no_maximum" in on:
                new = top
            elif "maximum_not_running" in on:
                new = highest
            weights, scale = (scores - new).exp(), (top - new).exp()
            if "rescale_inverted" in on:
                scale = torch.where(top == -math.inf, 0.0, (new - top).exp())
            part, added = weights @ v, weights.sum(-1, keepdim=True)
            if "new_block_rescaled" in on:
                first = top == -math.inf
                part, added = (torch.where(first, m, m * scale) for m in (part, added))
                scale = torch.ones_like(scale)
            one = torch.ones_like(scale)
            total = (one if {"sum_not_rescaled", "nothing_rescaled"} & on else scale) * total
            output = (one if {"output_not_rescaled", "nothing_rescaled"} & on else scale) * output
            total = added if "sum_of_last_block" in on else total + added
            output = part if "output_of_last_block" in on else output + part
            if "divided_in_each_block" in on:
                output = output / total
            alone.append(scores.softmax(-1) @ v)
            top = new
        if "average_of_blocks" in on or "sum_of_blocks" in on:
            together = torch.stack(alone).sum(0)
            return together / len(alone) if "average_of_blocks" in on else together
        return output if {"no_division", "divided_in_each_block"} & on else output / total

    return online_softmax_attention


def _online_inputs(seed: int, dtype: torch.dtype = torch.float32, keys: int = 11) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = [(2, 3, 5, 4), (2, 3, keys, 4), (2, 3, keys, 4)]  # (B, h, T_q, d), (B, h, T_k, d)
    query, key, value = (torch.randn(*shape, generator=g, dtype=dtype) for shape in shapes)
    return [2.0 * query, 1.5 * key, value]


def _shifted(
    seed: int, rows: tuple[float, ...], falling: bool = False, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Inputs whose scores are, row by row, near the given numbers; `falling`: and of the other sign for later keys."""
    query, key, value = _online_inputs(seed, dtype)
    query[..., 0] = torch.tensor(rows).repeat(5)[:5] * 2.0  # times 1 / √4
    key[..., 0] = 1.0
    if falling:
        key[..., 4:, 0] = -1.0
    return [query, key, value]


_UP, _DOWN, _APART, _DEEP = (200.0,), (-200.0,), (150.0, -150.0), (-2e6,)


def _online_probes(seed: int) -> list[Probe]:
    inputs = _online_inputs(seed)
    return [
        *(Probe((*inputs, block)) for block in (1, 3, 4, 11, 20)),
        *(Probe((*_shifted(seed, rows), 4)) for rows in (_UP, _DOWN, _APART)),
        Probe((*_shifted(seed, _UP, falling=True), 4)),
        Probe((*_shifted(seed, _DEEP, dtype=torch.float64), 4)),
    ]


def _online(c: Context, inputs: list[Tensor], block: int, exact: float = 1e-5) -> None:
    what = f"the output with block = {block}"
    c.same(*inputs, block, what=what, axes=_AXES, rtol=exact, atol=exact)


def _online_whole(c: Context) -> None:
    for block in (11, 20):
        _online(c, _online_inputs(c.seed), block)
    _online(c, [m[:1, :1] for m in _online_inputs(c.seed)], 11)


def _online_blocks(c: Context) -> None:
    for block in (1, 3, 4, 6):
        _online(c, _online_inputs(c.seed), block)
    _online(c, _online_inputs(c.seed, keys=12), 4)


def _online_stable(c: Context) -> None:
    cases = {
        "near 200": _shifted(c.seed, _UP),
        "near −200": _shifted(c.seed, _DOWN),
        "near 150 for some queries and near −150 for the others": _shifted(c.seed, _APART),
        "near 200 for the first keys and near −200 for later ones": _shifted(c.seed, _UP, falling=True),
        "near −2,000,000": _shifted(c.seed, _DEEP, dtype=torch.float64),
    }
    for scores, inputs in cases.items():
        got = c.subject.call(*inputs, 4)
        if isinstance(got, Tensor) and got.shape == inputs[0].shape and not bool(got.isfinite().all()):
            raise Wrong(f"With scores {scores} your output is not finite.")
        _online(c, inputs, 4, 1e-4)


def _online_never_whole(c: Context) -> None:
    n_queries, n_keys, block = 16, 128, 8
    inputs = [c.randn(1, 1, n, 1) for n in (n_queries, n_keys, n_keys)]
    largest, scores = c.subject.largest(*inputs, block), n_queries * block
    if largest > 4 * scores:  # some more: keys and values side by side, or the maxima of all blocks
        text = f"For {n_queries} queries, {n_keys} keys and block = {block} your code makes a tensor of {largest:,} numbers; a block has {n_queries} × {block} = {scores} scores."
        raise Wrong(
            text, "all_scores_at_once" if largest >= n_queries * n_keys else "more_scores_than_a_block"
        )


def _online_over_keys(c: Context) -> None:
    """Rows of all keys, for a few queries at a time, are no larger than a block when those are few enough."""
    few, more_queries, more_keys = (
        len(c.subject.functions(*(c.randn(1, 1, n, 1) for n in sizes), 2))
        for sizes in ((2, 2, 2), (8, 2, 2), (2, 12, 12))
    )
    if more_keys == few < more_queries:
        text = "Your code takes more steps for more queries and none for more keys: it goes through the queries, and scores all keys for each. Cut keys and values into blocks, and score each block for all queries."
        raise Wrong(text, "blocks_of_queries")


def _online_gradients(c: Context) -> None:
    _gradients(c, *_online_inputs(c.seed, torch.float64), 4, wrt={"query": 0, "key": 1, "value": 2})


def _online_kept(c: Context) -> None:
    inputs = _online_inputs(c.seed)
    unchanged(c, *inputs, 4)
    _online(c, [m.transpose(1, 2).contiguous().transpose(1, 2) for m in inputs], 4)


def _online_dtype(c: Context) -> None:
    inputs = _online_inputs(c.seed, torch.float64)
    got = c.subject.call(*inputs, 4)
    if isinstance(got, Tensor) and got.dtype != torch.float64:
        raise Wrong(f"For float64 inputs the output should be float64; yours is {got.dtype}.", "wrong_dtype")
    _online(c, inputs, 4, 1e-9)


# -- a state-space layer ---------------------------------------------------------------------------------------------

_SCAN = (
    Mistake("a_ignored", "a", "`a` has no effect: the state adds up everything and forgets nothing."),
    Mistake("a_on_input_too", "a", "`a` multiplies the new input as well: h_t = a ⊙ h_{t−1} + b x_t, so x_t enters with b alone."),
    Mistake("a_absolute", "a", "The sign of `a` is lost; a negative number makes the state alternate."),
    Mistake("a_exponentiated", "a", "The state is multiplied by exp(a); here `a` is the factor itself."),
    Mistake("a_negative_exponentiated", "a", "The state is multiplied by exp(−a); here `a` is the factor itself."),
    Mistake("a_sigmoid", "a", "The state is multiplied by sigmoid(a); here `a` is the factor itself."),
    Mistake("a_squared", "a", "The state is multiplied by a²: `a` acts twice in each step."),
    Mistake("a_plus_one", "a", "The state is multiplied by 1 + a: the old state stands alone as well. h_t = a ⊙ h_{t−1} + b x_t."),
    Mistake("a_times_b", "a", "The state is multiplied by a ⊙ b; it should be `a` alone, and x_t is multiplied by `b`."),
    Mistake("a_and_b_exchanged", "a", "`a` and `b` are exchanged: `a` multiplies the old state, `b` the new input."),
    Mistake("a_and_c_exchanged", "a", "`a` and `c` are exchanged: `a` multiplies the old state, `c` reads the new one out."),
    Mistake("b_for_a", "a", "The old state is multiplied by `b`; it should be `a`."),
    Mistake("c_for_a", "a", "The old state is multiplied by `c`; it should be `a`."),
    Mistake("moving_average", "b", "The input enters with (1 − a) b; here it is b alone."),
    Mistake("b_ignored", "b", "`b` has no effect."),
    Mistake("b_twice", "b", "`b` acts twice."),
    Mistake("b_and_c_not_used", "b", "Neither `b` nor `c` has an effect."),
    Mistake("c_ignored", "c", "`c` has no effect: y_t is the sum over the state; it should be the sum of c times the state."),
    Mistake("mean_over_state", "c", "You take the mean over the state; y_t = c · h_t is a sum."),
    Mistake("b_for_c", "c", "The state is read out with `b`; it should be `c`."),
    Mistake("skip_added", "output", "x_t is added to the output; here it passes through the state only."),
    Mistake("output_before_update", "output", "y_t is read before x_t has entered the state; it is c · h_t, after the update."),
    Mistake("output_summed_up", "output", "The outputs are added up over time."),
    Mistake("tanh_in_state", "state", "There is a tanh in your recurrence; a state-space layer is linear."),
    Mistake("starts_at_one", "state", "The state starts at 1; h_{−1} = 0."),
    Mistake("starts_at_b", "state", "The state starts at b; h_{−1} = 0."),
    Mistake("state_not_kept", "state", "Every step starts from a state of 0: nothing is remembered."),
    Mistake("state_goes_on_to_next_sequence", "state", "The state of one sequence goes on into the next one of the batch; each starts at 0."),
    Mistake("state_of_all_sequences", "state", "The sequences of the batch share one state; each has its own."),
    Mistake("backwards", "order", "The sequence is read from its end."),
    Mistake("reads_both_ways", "order", "Your convolution also reads later inputs: it is not causal (pad on the left only, or cut at T)."),
    Mistake("circular", "order", "The convolution goes around: the end of the sequence comes back at its beginning. Pad with zeros to twice the length before the FFT."),
    Mistake("kernel_not_flipped", "order", "conv1d does not flip its kernel: the oldest input gets the newest weight."),
    Mistake("returns_states", "shape", "You return the states (B, T, n); y_t = c · h_t is one number, (B, T)."),
    Mistake("returns_last", "shape", "You return the last output alone; there is one for every position, (B, T)."),
    Mistake("time_first", "shape", "The result is (T, B); it should be (B, T)."),
    Mistake("extra_axis", "shape", "The result has an axis of size 1 at its end, (B, T, 1); it should be (B, T)."),
)  # fmt: skip


def _scan_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def state_space_scan(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
        if "a_and_b_exchanged" in on:
            a, b = b, a
        if "a_and_c_exchanged" in on:
            a, c = c, a
        factors: dict[str, Callable[[], Tensor]] = {
            "a_ignored": lambda: torch.ones_like(a),
            "a_plus_one": lambda: 1 + a,
            "a_times_b": lambda: a * b,
            "b_for_a": lambda: b,
            "c_for_a": lambda: c,
            "a_absolute": a.abs,
            "a_exponentiated": a.exp,
            "a_negative_exponentiated": lambda: (-a).exp(),
            "a_sigmoid": a.sigmoid,
            "a_squared": lambda: a**2,
        }
        factor = next((f() for name, f in factors.items() if name in on), a)
        into: dict[str, Callable[[], Tensor]] = {
            "moving_average": lambda: (1 - a) * b,
            "b_ignored": lambda: torch.ones_like(b),
            "b_and_c_not_used": lambda: torch.ones_like(b),
            "b_twice": lambda: b**2,
        }
        inward = next((f() for name, f in into.items() if name in on), b)
        if "a_on_input_too" in on:
            inward = inward * factor
        outward = (
            torch.ones_like(c) if {"c_ignored", "b_and_c_not_used"} & on else b if "b_for_c" in on else c
        )
        if "mean_over_state" in on:
            outward = outward / len(c)
        batch, t = x.shape
        if "backwards" in on:
            x = x.flip(1)
        kernel = (outward * inward * factor ** torch.arange(t, dtype=x.dtype)[:, None]).sum(-1)  # (T)
        lag = torch.arange(t)[:, None] - torch.arange(t)  # (T, T): from s to t
        others: dict[str, Callable[[], Tensor]] = {
            "reads_both_ways": lambda: kernel[lag.abs()],
            "circular": lambda: kernel[lag % t],
            "kernel_not_flipped": lambda: kernel[(t - 1 - lag) % t].tril(),
        }
        matrix = next((f() for name, f in others.items() if name in on), None)
        if matrix is not None:
            return x @ matrix.T
        start = 1.0 if "starts_at_one" in on else b if "starts_at_b" in on else 0.0
        h = torch.zeros(batch, len(a), dtype=x.dtype) + start
        states, y = [], []
        if "state_goes_on_to_next_sequence" in on:  # one long sequence
            x = x.reshape(1, -1)
            h = h[:1]
        for x_t in x.unbind(1):
            before = h
            added = inward * x_t[:, None]
            if "state_of_all_sequences" in on:
                added = added.sum(0, keepdim=True).expand_as(added)
            h = added if "state_not_kept" in on else factor * h + added
            if "tanh_in_state" in on:
                h = h.tanh()
            states.append(h)
            y.append((before if "output_before_update" in on else h) @ outward)
        result = torch.stack(y, 1).reshape(batch, t)
        if "skip_added" in on:
            result = result + x.reshape(batch, t)
        if "output_summed_up" in on:
            result = result.cumsum(1)
        if "backwards" in on:
            result = result.flip(1)
        if "returns_states" in on:
            return torch.stack(states, 1).reshape(batch, t, -1)
        if "returns_last" in on:
            return result[:, -1]
        if "time_first" in on:
            return result.T
        return result[..., None] if "extra_axis" in on else result

    return state_space_scan


def _scan_inputs(
    seed: int, dtype: torch.dtype = torch.float32, length: int = 7, signs: bool = False, n: int = 3
) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    a = 0.3 + 0.6 * torch.rand(n, generator=g, dtype=dtype)
    if signs:
        a[0], a[1] = -a[0], 0.0
    b, c = (torch.randn(n, generator=g, dtype=dtype) for _ in range(2))
    b, c = (m + 0.5 * m.sign() for m in (b, c))
    return [a, b, c, torch.randn(2, length, generator=g, dtype=dtype)]


def _scan(c: Context, inputs: list[Tensor], what: str = "y", exact: float = 1e-5) -> None:
    c.same(*inputs, what=what, axes="batch length", rtol=exact, atol=exact)


def _scan_values(c: Context) -> None:
    _scan(c, _scan_inputs(c.seed))


def _scan_impulse(c: Context) -> None:
    a, b, out, x = _scan_inputs(c.seed)
    x = torch.zeros_like(x)
    x[0, 0], x[1, 2] = 1.0, 1.0
    _scan(c, [a, b, out, x], "the answer to a single 1 in the input")


def _scan_signs(c: Context) -> None:
    inputs = _scan_inputs(c.seed, signs=True)
    got = c.subject.call(*inputs)
    if isinstance(got, Tensor) and not bool(got.isfinite().all()):
        raise Wrong("With a negative number and 0 in `a` your output is not finite: there, a logarithm of `a` is not, nor a division by its powers.", "only_positive_a")  # fmt: skip
    _scan(c, inputs, "y for `a` with a negative number and 0")
    a, *rest = inputs
    _scan(c, [torch.ones_like(a), *rest], "y for `a` = 1")


def _scan_long(c: Context) -> None:
    inputs = _scan_inputs(c.seed, length=300)
    got = c.subject.call(*inputs)
    if isinstance(got, Tensor) and not bool(got.isfinite().all()):
        raise Wrong("For 300 positions and |a| < 1 your output is not finite: something in it grows from position to position.", "overflows_for_long_inputs")  # fmt: skip
    _scan(c, inputs, "y for 300 positions", 1e-4)


def _scan_small(c: Context) -> None:
    _scan(c, _scan_inputs(c.seed, length=1), "y for one position")
    _scan(c, _scan_inputs(c.seed, n=1), "y for a state of one number")
    a, b, out, x = _scan_inputs(c.seed)
    _scan(c, [a, b, out, x[:1]], "y for a batch of one")


def _scan_dtype(c: Context) -> None:
    inputs = _scan_inputs(c.seed, torch.float64)
    got = c.subject.call(*inputs)
    if isinstance(got, Tensor) and got.dtype != torch.float64:
        raise Wrong(f"For float64 inputs y should be float64; yours is {got.dtype}.", "wrong_dtype")
    _scan(c, inputs, exact=1e-9)


def _scan_twice(c: Context) -> None:
    inputs = _scan_inputs(c.seed)
    first, second = c.subject.call(*inputs), c.subject.call(*inputs)
    if isinstance(first, Tensor) and not torch.equal(first, second):
        raise Wrong("A second call with the same inputs gives another result: the state is kept between calls.", "state_kept_between_calls")  # fmt: skip
    unchanged(c, *inputs)


def _scan_gradients(c: Context) -> None:
    wrt = {"a": 0, "b": 1, "c": 2, "x": 3}
    _gradients(c, *_scan_inputs(c.seed, torch.float64), wrt=wrt)


_exercise = partial(Exercise, notebook="16_efficient_attention")

EXERCISES = (
    _exercise(
        name="local_attention_mask",
        points=1,
        difficulty=1,
        minutes=6,
        hints=(
            "Which positions does position 0 see with window = 1, and which does position 2?",
            "Make a column and a row of positions; their difference broadcasts to (T, T).",
            "return (i[:, None] - i[None, :]).abs() <= window, with i = torch.arange(length)",
        ),
        reference=solutions.local_attention_mask,
        tests=(
            Test("values", "is True exactly where |i − j| ≤ window", _window_values),
            Test("extremes", "works for window 0, a window longer than the sequence, and length 1", _window_extremes, crash="crashes_at_extremes"),
            Test("boolean", "is boolean", _window_type),
        ),
        mistakes=_WINDOW,
        variant=_window_variant,
        probes=lambda seed: [Probe(size) for size in ((7, 2), (8 + seed % 4, 1), (11, 3), (6, 0), (4, 9))],
    ),
    _exercise(
        name="linear_attention",
        points=4,
        difficulty=2,
        minutes=25,
        hints=(
            "In Σ_j (φ(q) · φ(k_j)) v_j, what can be summed over j before any query is known?",
            "Not causal: S = φ(K)ᵀ V, (d, d), and z = Σ φ(k_j), (d); then φ(q) S / (φ(q) · z). Causal: cumsum over positions.",
            "A hidden key leaves both sums when φ(k) is multiplied by key_mask[:, None, :, None].",
        ),
        reference=solutions.linear_attention,
        tests=(
            Test("values", "weights the values by φ(q) · φ(k) over all keys", _linear_values),
            Test("average", "is an average: values that are all equal come back", _linear_average),
            Test("causal", "sums over j ≤ i when causal", _linear_causal, crash="crashes_when_causal"),
            Test("key_mask", "leaves hidden keys out of both sums", _linear_mask, crash="crashes_with_key_mask"),
            Test("hidden", "does not depend on hidden keys", _linear_hidden),
            Test("causal_and_mask", "takes causal and key_mask together", _linear_mask_causal, crash="crashes_with_causal_and_key_mask"),
            Test("length_one", "works for a single position", _linear_length_one, crash="crashes_at_length_1"),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _linear_kept, crash="needs_contiguous_input"),
            Test("dtype", "works in double precision", _linear_dtype, crash="fixed_dtype"),
            Test("gradients", "lets the gradient through", _linear_gradients),
        ),
        mistakes=_LINEAR,
        variant=_linear_variant,
        probes=_linear_probes,
        not_allowed=("F.scaled_dot_product_attention", "nn.MultiheadAttention", "F.multi_head_attention_forward"),
    ),
    _exercise(
        name="online_softmax_attention",
        points=5,
        difficulty=3,
        minutes=30,
        hints=(
            "After the first block you know its maximum m, Σ exp(s − m) and Σ exp(s − m) v. What becomes of them when the next block has a larger maximum?",
            "Keep three things for each query: maximum, sum, output. A new maximum multiplies the old sum and output by exp(old − new).",
            "new = torch.maximum(m, s.amax(-1, keepdim=True)); p = (s - new).exp(); l = l * (m - new).exp() + p.sum(-1, keepdim=True); o = o * (m - new).exp() + p @ v; m = new",
        ),
        reference=solutions.online_softmax_attention,
        tests=(
            Test("one_block", "equals softmax(QKᵀ/√d)V when one block holds all keys", _online_whole),
            Test("blocks", "equals it with several blocks, the last one shorter", _online_blocks, crash="crashes_with_several_blocks"),
            Test("stable", "stays finite and right for scores far above and below 0", _online_stable),
            Test("never_whole", "makes no tensor of more scores than those of a block", _online_never_whole),
            Test("over_keys", "goes through the keys", _online_over_keys),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _online_kept, crash="needs_contiguous_input"),
            Test("dtype", "works in double precision", _online_dtype, crash="fixed_dtype"),
            Test("gradients", "lets the gradient through", _online_gradients),
        ),
        mistakes=_ONLINE,
        variant=_online_variant,
        probes=_online_probes,
        not_allowed=("F.scaled_dot_product_attention", "nn.MultiheadAttention", "F.multi_head_attention_forward"),
    ),
    _exercise(
        name="state_space_scan",
        points=2,
        difficulty=2,
        minutes=12,
        hints=(
            "What shape has the state of a batch, and which of a, b, c, x_t has to be stretched over which axis of it?",
            "A loop over time: h = a * h + b * x[:, t, None], (B, n); y_t = h @ c, (B).",
            "Start with h = torch.zeros(B, n, dtype=x.dtype), collect h @ c in a list, torch.stack(list, dim=1).",
        ),
        reference=solutions.state_space_scan,
        tests=(
            Test("values", "runs the recurrence and reads the state out at every position", _scan_values),
            Test("impulse", "answers a single 1 with c · aᵗ b from there on, and nothing before", _scan_impulse),
            Test("signs", "takes an `a` that is negative, 0 or 1", _scan_signs, crash="only_positive_a"),
            Test("long", "works for long inputs", _scan_long, crash="crashes_for_long_inputs"),
            Test("small", "works for one position, a state of one number, and a batch of one", _scan_small, crash="crashes_at_length_1"),
            Test("twice", "keeps nothing between calls and leaves its inputs as they were", _scan_twice),
            Test("dtype", "works in double precision", _scan_dtype, crash="fixed_dtype"),
            Test("gradients", "lets the gradient through", _scan_gradients),
        ),
        mistakes=_SCAN,
        variant=_scan_variant,
        probes=lambda seed: [  # the long one in double precision: some mistakes let the state grow, and its noise
            Probe((*_scan_inputs(seed, length=4),)),
            Probe((*_scan_inputs(seed, torch.float64, signs=True, length=9, n=4),)),
        ],
    ),
)  # fmt: skip
