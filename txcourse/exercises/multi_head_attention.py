"""Exercises of 05_multi_head_attention."""

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.exercises.attention import MASK, SCALE, SOFTMAX, attend, random_mask
from txcourse.solutions import multi_head_attention as solutions

# -- splitting and merging -------------------------------------------------------------------------------------------

_SPLIT = (
    Mistake("view_without_transpose", "layout", "The tensor is reshaped to (B, h, T, d_k) in one step, which mixes positions and features; cut the features first, then exchange the axes."),
    Mistake("head_last", "layout", "The features are cut as (d_k, h): head i takes every h-th feature; it should take d_k neighbouring ones."),
    Mistake("not_transposed", "layout", "The axes are (B, T, h, d_k); the heads belong before the positions: (B, h, T, d_k)."),
    Mistake("width_before_positions", "layout", "The axes are (B, h, d_k, T); the positions belong before the features: (B, h, T, d_k)."),
    Mistake("cut_along_positions", "layout", "The positions are cut into n_heads pieces; the features should be."),
    Mistake("heads_into_batch", "layout", "Batch and heads are one axis, (B·h, T, d_k); they should be two."),
    Mistake("heads_first", "layout", "The heads stand before the batch; the order is (B, h, T, d_k)."),
    Mistake("heads_and_width_exchanged", "layout", "n_heads and d_k are exchanged: there are d_k heads of width n_heads."),
    Mistake("no_error", "error", "A d_model that n_heads does not divide should be a ValueError that says so."),
)  # fmt: skip


def _split_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def split_heads(x: Tensor, n_heads: int) -> Tensor:
        b, t, d = x.shape
        if d % n_heads:
            if "no_error" not in on:
                raise ValueError("not divisible")
            x, d = x[..., : d // n_heads * n_heads], d // n_heads * n_heads
        k = d // n_heads
        if "view_without_transpose" in on:
            return x.reshape(b, n_heads, t, k)
        if "cut_along_positions" in on:
            return torch.stack(x.chunk(n_heads, dim=1), dim=1)
        if "width_before_positions" in on:
            return x.reshape(b, t, n_heads, k).permute(0, 2, 3, 1)
        if "head_last" in on:
            return x.reshape(b, t, k, n_heads).permute(0, 3, 1, 2)
        if "heads_and_width_exchanged" in on:
            return x.reshape(b, t, k, n_heads).transpose(1, 2)
        x = x.reshape(b, t, n_heads, k)
        if "not_transposed" in on:
            return x
        x = x.transpose(1, 2)
        if "heads_into_batch" in on:
            return x.reshape(b * n_heads, t, k)
        return x.transpose(0, 1) if "heads_first" in on else x

    return split_heads


_MERGE = (
    Mistake("view_without_transpose", "layout", "(B, h, T, d_k) is reshaped to (B, T, d_model) in one step, which mixes heads and positions; exchange the axes first."),
    Mistake("head_last", "layout", "The features of the heads are interleaved; each head's d_k features should stay neighbours."),
    Mistake("batch_and_heads_exchanged", "layout", "Batch and heads are exchanged on the way back: samples of the batch get each other's heads."),
    Mistake("not_merged", "layout", "The axes are (B, T, h, d_k); the last two should be one, of size d_model."),
    Mistake("heads_summed", "layout", "The heads are added up; they should stand side by side."),
    Mistake("heads_averaged", "layout", "The heads are averaged; they should stand side by side."),
    Mistake("heads_maximum", "layout", "Of the heads only the largest number is kept; they should stand side by side."),
    Mistake("one_head_only", "layout", "Only head 0 is left; the heads should stand side by side."),
    Mistake("positions_first", "layout", "The axes are (T, B, d_model); the batch comes first."),
    Mistake("head_transposed", "layout", "Positions and features of each head are exchanged, transpose(2, 3); heads and positions should be."),
    Mistake("width_and_positions_exchanged", "layout", "The wrong axes are exchanged: the positions end up among the features."),
    Mistake("joined_along_positions", "layout", "The heads are joined along the positions; they should stand side by side in the features."),
    Mistake("heads_reversed", "layout", "The heads stand in reverse order."),
)  # fmt: skip


def _merge_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def merge_heads(x: Tensor) -> Tensor:
        b, h, t, k = x.shape
        if "view_without_transpose" in on:
            return x.reshape(b, t, h * k)
        if "batch_and_heads_exchanged" in on:
            return x.reshape(h, b, t, k).permute(1, 2, 0, 3).reshape(b, t, h * k)
        if "heads_summed" in on:
            return x.sum(1)
        if "heads_averaged" in on:
            return x.mean(1)
        if "heads_maximum" in on:
            return x.amax(1)
        if "one_head_only" in on:
            return x[:, 0]
        if "positions_first" in on:
            return x.permute(2, 0, 1, 3).reshape(t, b, h * k)
        if "head_transposed" in on:
            return x.transpose(2, 3).reshape(b, t, h * k)
        if "width_and_positions_exchanged" in on:
            return x.transpose(1, 3).reshape(b, k, t * h)
        if "joined_along_positions" in on:
            return x.reshape(b, h * t, k)
        if "heads_reversed" in on:
            x = x.flip(1)
        if "head_last" in on:
            return x.permute(0, 2, 3, 1).reshape(b, t, h * k)
        x = x.transpose(1, 2)
        return x if "not_merged" in on else x.reshape(b, t, h * k)

    return merge_heads


def _x(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _split_values(c: Context) -> None:
    c.same(c.randn(2, 5, 12), 3, what="the heads", axes="batch head length d_k")


def _split_one(c: Context) -> None:
    c.same(c.randn(2, 5, 6), 1, what="the result for one head", axes="batch head length d_k")
    c.same(c.randn(2, 5, 6), 6, what="the result for heads of width 1", axes="batch head length d_k")


def _split_error(c: Context) -> None:
    if not raises_value_error(lambda: c.subject.call(c.randn(2, 5, 10), 4)):
        raise Wrong("d_model = 10 with n_heads = 4 should be a ValueError.", "no_error")


def raises_value_error(call: Callable[[], Any]) -> bool:
    """Whether `call` raises ValueError; other errors, a wrong shape inside for example, are not what was asked for."""
    try:
        call()
    except CandidateError as error:
        if error.kind != "raised":
            raise
        return isinstance(error.error, ValueError)
    return False


def _strided(c: Context) -> None:
    x = c.randn(12, 5, 2).transpose(0, 2)  # (2, 5, 12), not contiguous
    c.same(x, 3, what="the heads of a tensor that is not contiguous")


def _split_gradient(c: Context) -> None:
    c.same_gradients(c.randn(2, 5, 12, dtype=torch.float64), 3, wrt={"x": 0})


def _merge_gradient(c: Context) -> None:
    c.same_gradients(c.randn(2, 3, 5, 4, dtype=torch.float64), wrt={"x": 0})


def _merge_values(c: Context) -> None:
    try:
        c.same(c.randn(2, 3, 5, 4), what="the merged heads", axes="batch length d_model")
    except CandidateError as error:
        if "view size is not compatible" in str(error.error):
            text = "After the exchange of axes the numbers are not in the order that view needs; reshape copies them into it."
            raise Wrong(f"{text} {error.sentence}", "view_after_transpose") from error
        raise


def _merge_ones(c: Context) -> None:
    for shape in ((1, 3, 5, 4), (2, 3, 1, 4), (2, 1, 5, 4)):
        x = c.randn(*shape)
        got, want = c.subject.call(x), c.reference(x)
        short = isinstance(got, Tensor) and got.shape == want.squeeze().shape != want.shape
        mistake = "drops_axes_of_size_1" if short else None
        what = f"the result for x of shape {shape}"
        c.expect(got, want, what, axes="batch length d_model", mistake=mistake)


def _merge_inverse(c: Context) -> None:
    x = c.randn(2, 5, 12)
    c.expect(
        c.subject.call(solutions.split_heads(x, 3)),
        x,
        "merge_heads(split_heads(x))",
        axes="batch length d_model",
    )


# -- the module ------------------------------------------------------------------------------------------------------

_BIASES = (
    "w_q.bias",
    "w_k.bias",
    "w_v.bias",
    "w_o.bias",
)  # the paper has none, nn.MultiheadAttention has all
OPTIONAL = tuple(some for n in range(1, 5) for some in combinations(_BIASES, n))


def usual_optional(*attentions: str) -> tuple[tuple[str, ...], ...]:
    """The biases that people leave out of models with these attentions (patterns): of all, or of some of them."""
    everywhere = [(attentions, some) for some in (_BIASES, _BIASES[:3], _BIASES[3:], _BIASES[1:2])]
    parts = [part for n in range(1, len(attentions)) for part in combinations(attentions, n)]
    somewhere = [(part, some) for part in parts for some in (_BIASES, _BIASES[:3])]
    return tuple(
        tuple(f"{a}.{bias}" for a in which for bias in some) for which, some in (*everywhere, *somewhere)
    )


MODULE = (
    *SCALE[:3],
    Mistake("scale_by_sqrt_d_model", "scale", "Your scores are divided by √d_model; each head works in d_k = d_model / h features, so √d_k belongs there."),
    *SCALE[4:],
    *SOFTMAX[:1],
    Mistake("softmax_over_heads", "softmax", "Your softmax runs over the heads; it goes over the keys."),
    *SOFTMAX[1:],
    *(m for m in MASK if m.id != "mask_on_values"),
    Mistake("split_without_transpose", "split", "The projections are reshaped to (B, h, T, d_k) in one step, which mixes positions and features."),
    Mistake("merge_without_transpose", "merge", "The heads are merged without exchanging axes first, which mixes heads and positions."),
    Mistake("merge_mixes_batch", "merge", "Batch and heads are exchanged when the heads are merged: samples get each other's heads."),
    Mistake("shared_projection", "projections", "Query, key and value go through one and the same matrix; each has its own."),
    Mistake("shared_key_value", "projections", "Keys and values go through one and the same matrix; each has its own."),
    Mistake("shared_query_key", "projections", "Queries and keys go through one and the same matrix; each has its own."),
    Mistake("projection_per_head_shared", "projections", "The input is cut into heads first and one small matrix (d_k, d_k) is used for all of them; each head's projection sees all d_model features."),
    Mistake("no_value_projection", "projections", "The values are not projected."),
    Mistake("no_output_projection", "output", "The output projection W^O is missing."),
    Mistake("output_projection_unused", "output", "W^O exists but is not applied."),
    Mistake("one_head", "heads", "The features are not cut into heads: this is attention with one head."),
    Mistake("keys_from_query", "sources", "Keys and values are computed from the query: this is self-attention whatever is passed."),
    Mistake("value_from_key", "sources", "The values are computed from `key`; the argument `value` is not used."),
    Mistake("key_from_value", "sources", "The keys are computed from `value`; the argument `key` is not used."),
    Mistake("query_and_key_exchanged", "sources", "Query and key are exchanged."),
    Mistake("residual_inside", "extra", "The query is added to the result: the residual connection is not part of this module."),
    Mistake("relu_on_output", "extra", "There is a ReLU on the result."),
    Mistake("returns_tuple", "returns", "The result should be the output alone; the weights go into the attribute `weights`."),
)  # fmt: skip
_MORE = (
    Mistake("scale_by_sqrt_heads", "scale", "Your scores are divided by the root of the number of heads; divide them by √d_k, the width of a head."),
    Mistake("mask_of_other_samples", "mask", "With heads and batch in one axis the mask is repeated in the wrong order: heads get the masks of other samples. repeat_interleave(n_heads, dim=0) fits, repeat does not."),
    Mistake("causal_always", "mask", "No query attends to a later key, although no mask says so: a causal mask is passed as `mask` where it is wanted."),
    Mistake("value_projected_twice", "projections", "The values go through the matrix of the keys and then through their own; project each input once."),
    Mistake("output_projected_twice", "output", "W^O is applied twice."),
    Mistake("sequence_first", "sources", "The inputs are taken as (T, B, d_model): the samples of a batch attend to each other. Here the batch comes first."),
    Mistake("queries_from_key", "sources", "The queries are computed from `key` and the keys from `query`."),
    Mistake("values_from_query", "sources", "The values are computed from `query`; they come from `value`."),
    Mistake("relu_on_projections", "extra", "There is a ReLU on queries, keys and values."),
)  # fmt: skip


def variant(on: frozenset[str]) -> type[nn.Module]:
    """MultiHeadAttention with the mistakes in `on`; without any, right."""

    class MultiHeadAttention(nn.Module):
        def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
            super().__init__()
            self.n_heads = 1 if "one_head" in on else n_heads
            self.d_k = d_model // self.n_heads
            size = self.d_k if "projection_per_head_shared" in on else d_model
            self.w_q = nn.Linear(size, size)
            shared = {"shared_projection", "shared_query_key"} & on
            self.w_k = self.w_q if shared else nn.Linear(size, size)
            if "no_value_projection" in on:
                self.w_v: nn.Module = nn.Identity()
            elif "shared_projection" in on:
                self.w_v = self.w_q
            else:
                self.w_v = self.w_k if "shared_key_value" in on else nn.Linear(size, size)
            self.w_o = nn.Identity() if "no_output_projection" in on else nn.Linear(d_model, d_model)
            self.dropout = nn.Dropout(dropout)
            self.weights: Tensor | None = None

        def split(self, x: Tensor) -> Tensor:
            b, t, _ = x.shape
            if "split_without_transpose" in on:
                return x.reshape(b, self.n_heads, t, self.d_k)
            return x.reshape(b, t, self.n_heads, self.d_k).transpose(1, 2)

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Any:
            if mask is not None and mask.dim() == 3:
                raise ValueError("mask with three dimensions")
            source = query
            if "keys_from_query" in on:
                key = value = query
            elif "value_from_key" in on:
                value = key
            elif "key_from_value" in on:
                key = value
            elif "query_and_key_exchanged" in on:
                query, key, value = key, query, query
            elif "sequence_first" in on:
                query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            elif "queries_from_key" in on:
                query, key = key, query
            elif "values_from_query" in on:
                value = query
            if "projection_per_head_shared" in on:
                q, k, v = (
                    w(self.split(x))
                    for w, x in zip((self.w_q, self.w_k, self.w_v), (query, key, value), strict=True)
                )
            else:
                q, k, v = (
                    self.split(w(x))
                    for w, x in zip((self.w_q, self.w_k, self.w_v), (query, key, value), strict=True)
                )
            if "value_projected_twice" in on:
                v = self.split(self.w_v(self.w_k(value)))
            if "relu_on_projections" in on:
                q, k, v = q.relu(), k.relu(), v.relu()
            heads, self.weights = _attend_heads(on, q, k, v, mask, self.dropout, self.n_heads)
            b, h, t, d_k = heads.shape
            if "merge_without_transpose" in on:
                merged = heads.reshape(b, t, h * d_k)
            elif "merge_mixes_batch" in on:
                merged = heads.reshape(h, b, t, d_k).permute(1, 2, 0, 3).reshape(b, t, h * d_k)
            else:
                merged = heads.transpose(1, 2).reshape(b, t, h * d_k)
            output = merged if "output_projection_unused" in on else self.w_o(merged)
            if "output_projected_twice" in on:
                output = self.w_o(output)
            if "sequence_first" in on:
                output = output.transpose(0, 1)
            if "residual_inside" in on:
                output = output + source
            if "relu_on_output" in on:
                output = output.relu()
            return (output, self.weights) if "returns_tuple" in on else output

    return MultiHeadAttention


def _attend_heads(
    on: frozenset[str], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: nn.Module, n_heads: int
) -> tuple[Tensor, Tensor]:
    if "scale_by_sqrt_d_model" in on:
        q = q / math.sqrt(n_heads)
    elif "scale_by_sqrt_heads" in on:
        q = q * math.sqrt(q.shape[-1] / n_heads)
    if "causal_always" in on:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        mask = past if mask is None else past & mask
    elif "mask_of_other_samples" in on and mask is not None and mask.dim() == 4:
        mask = mask[:, 0].repeat(n_heads, 1, 1).unflatten(0, (len(q), n_heads))
    if "softmax_over_heads" in on:  # attend() has no axis of heads: exchange it with that of the keys
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        fill = -1e9 if "full_row_uniform" in on else -math.inf
        scores = scores if mask is None else scores.masked_fill(~mask, fill)
        weights = scores.softmax(1).nan_to_num(0.0)
    else:
        weights = attend(on)(q, k, v, mask)[1]
    return dropout(weights) @ v, weights.detach()


_SIZES = {"d_model": 12, "n_heads": 3}


_NEAR = 0.2  # scores near each other: a mask behind the softmax and a division by the sum, even by sum + 1e-9, is right
_CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}  # and so is a softmax in float32


def _probes(seed: int) -> list[Probe]:
    query, key, value = (_x(seed + i, 2, t, 12, dtype=torch.float64) for i, t in enumerate((5, 7, 7)))
    query, near, keys = 0.5 * query, _NEAR * query, _NEAR * key
    return [
        Probe((query, key, value)),
        Probe((near, keys, value, random_mask(seed, 5, 7))),
        Probe((near, near, query, random_mask(seed, 5, 5))),
        Probe((near, keys, value, random_mask(seed + 1, 2, 1, 1, 7))),
        Probe((near, keys, value, random_mask(seed + 2, 2, 1, 5, 7))),
        # code that confuses the three may run when all have one length
        Probe((query, key[:, 2:].contiguous(), value[:, 1:6].contiguous())),
    ]


def _shape(c: Context) -> None:
    module = c.build()
    for t_q, t_k in ((5, 7), (1, 7), (5, 1)):
        key = c.randn(2, t_k, 12)
        got = module.call(c.randn(2, t_q, 12), key, key)
        if isinstance(got, tuple | list):
            raise Wrong(
                "Return the output alone, not a tuple; the weights go into the attribute `weights`.",
                "returns_tuple",
            )
        short = t_q == 1 and isinstance(got, Tensor) and got.shape == (2, 12)
        mistake = "drops_axes_of_size_1" if short else None
        want = torch.zeros(2, t_q, 12)
        c.expect(got, want, "the output", axes="batch query d_model", atol=math.inf, mistake=mistake)


def registered(c: Context, counts: set[int], statement: str) -> None:
    """The module's parameters are where PyTorch sees them, and as many as they should be."""
    module = c.build()
    if hidden := module.unregistered():
        raise Wrong(
            f"PyTorch does not see the parameters in `{hidden[0]}`: use nn.ModuleList or nn.Parameter, or they are never trained.",
            "parameters_not_registered",
        )
    if module.size() not in counts:
        raise Wrong(f"{statement} Yours has {module.size()}.", None)


def _registered(c: Context) -> None:
    square = 12 * 12
    counts = {4 * square + 12 * b for b in range(5)}
    registered(
        c, counts, f"Four projections hold 4·d_model² = {4 * square} weights, and up to {4 * 12} biases."
    )


def _one_key(c: Context) -> None:
    module, key = c.build(), c.randn(2, 1, 12)
    first = module.call(c.randn(2, 5, 12), c.randn(2, 1, 12), key)
    second = module.call(c.randn(2, 5, 12), c.randn(2, 1, 12), key)
    c.expect(
        second,
        first,
        "the output for one key, which has weight 1 whatever the query,",
        axes="batch query d_model",
    )


def _values(c: Context) -> None:
    c.twin()


def _independent(c: Context) -> None:
    """Samples do not see each other, and queries do not either."""
    module, (query, key) = (
        c.build().double(),
        (c.randn(3, 5, 12, dtype=torch.float64), c.randn(3, 7, 12, dtype=torch.float64)),
    )
    whole = module.call(query, key, key)
    alone = torch.cat([module.call(query[i : i + 1], key[i : i + 1], key[i : i + 1]) for i in range(3)])
    c.expect(alone, whole, "the output for each sample of the batch alone", axes="batch query d_model")
    first = module.call(query[:, :1], key, key)
    c.expect(first, whole[:, :1], "the output of query 0 alone", axes="batch query d_model")


def _forbidden(c: Context) -> None:
    module, query, key = (
        c.build().double(),
        c.randn(2, 5, 12, dtype=torch.float64),
        c.randn(2, 7, 12, dtype=torch.float64),
    )
    for shape in ((5, 7), (2, 1, 1, 7), (2, 1, 5, 7)):
        mask = random_mask(c.seed, *shape)
        hidden = ~mask.expand(2, 1, 5, 7)[1, 0, 3]
        other = key.clone()
        other[1, hidden] += 1.0
        before, after = module.call(query, key, key, mask), module.call(query, other, other, mask)
        if not torch.allclose(before[1, 3], after[1, 3], atol=1e-6):
            j = int(hidden.nonzero()[0])
            raise Wrong(
                f"With a mask of shape {shape}, query 3 attends to position {j}, which the mask forbids."
            )


def _masks(c: Context) -> None:
    ours, theirs = c.twin()
    query, key, value = (c.randn(2, t, 12, dtype=torch.float64) for t in (5, 7, 7))
    for shape in ((5, 7), (2, 1, 1, 7), (2, 1, 5, 7)):
        args = _NEAR * query, _NEAR * key, value, random_mask(c.seed, *shape)
        c.expect(ours.call(*args), theirs(*args), f"the output with a mask {shape}", **_CLOSE)


def _low_scores(c: Context) -> None:
    """In one head at least all scores are near -50,000, for the first sample or for the second."""
    ours, theirs = c.twin()
    one, other = c.randn(12, dtype=torch.float64), c.randn(12, dtype=torch.float64)
    with torch.no_grad():
        q, k = ((linear.weight @ x).view(3, 4) for linear, x in ((theirs.w_q, one), (theirs.w_k, other)))
    size = math.sqrt(50_000 / float(((q * k).sum(-1) / 2).abs().max()))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
    query = size * sign * one + c.randn(2, 5, 12, dtype=torch.float64)
    key = size * other + 0.01 * c.randn(2, 7, 12, dtype=torch.float64)
    value, mask = c.randn(2, 7, 12, dtype=torch.float64), random_mask(c.seed, 5, 7)
    before = ours.call(query, key, value, mask)
    after = ours.call(query, key, value + ~mask[3, :, None], mask)
    if not torch.allclose(before[:, 3], after[:, 3], rtol=1e-3, atol=1e-3):
        raise Wrong(
            "Where all scores of a query are very low, such as −50,000, it attends to positions that the mask forbids: "
            "forbidden scores need a number that is more negative (−1e9 or -inf).",
            "mask_fill_too_weak",
        )


def _three_dimensions(c: Context) -> None:
    module, key = c.build(), c.randn(3, 7, 12)  # a batch of 3 and 3 heads: it would fit by accident
    if not raises_value_error(lambda: module.call(c.randn(3, 5, 12), key, key, random_mask(c.seed, 3, 5, 7))):
        raise Wrong(
            "A mask (B, T_q, T_k) should be a ValueError: its first axis would line up with the heads.",
            "accepts_mask_of_three_dimensions",
        )


def _gradients(c: Context) -> None:
    ours, theirs = c.twin()
    query, key, value = (c.randn(2, t, 12, dtype=torch.float64) for t in (5, 7, 7))
    args = _NEAR * query, _NEAR * key, value, random_mask(c.seed, 5, 7)
    c.same_gradients(*args, wrt={"query": 0, "key": 1, "value": 2}, ours=ours, theirs=theirs, **_CLOSE)
    probes = [Probe(args)]
    got, want = ours.respond(probes, c.seed)[1], c.respond(theirs, probes)[1]
    sizes = [math.prod(shape) for _, shape in ours.parameters()]
    parts = zip(ours.parameters(), got.split(sizes), want.split(sizes), strict=True)
    for (name, _), ours_part, theirs_part in parts:
        if not ours_part.any() and theirs_part.abs().max() > 1e-9:  # that of a bias of the keys is 0
            raise Wrong(
                f"No gradient reaches `{name}`, so it would never be trained.", "no_gradient_to_weights"
            )
    c.expect(got, want, "the gradient of your weights", **_CLOSE)


def _evaluation(c: Context) -> None:
    module, query, key = c.build(dropout=0.5), c.randn(2, 5, 12), c.randn(2, 7, 12)
    if not torch.equal(module.call(query, key, key), module.call(query, key, key)):
        text = "In evaluation mode the output changes from call to call: dropout must be off there."
        raise Wrong(text, "dropout_in_eval")


_RATE = 0.25  # the share that is dropped differs from the share that is kept


def _dropout(c: Context) -> None:
    """Two equal keys have weight 1/2 each, so that a query gets of each head's value the share 0, 1/2 or 1, times 1/(1 − p)."""
    ours, theirs = c.twin(dropout=_RATE)
    query = c.randn(4, 15, 12, dtype=torch.float64)
    key = c.randn(1, 1, 12, dtype=torch.float64).expand(4, 2, 12).contiguous()
    ours.train(True)
    rows = ours.call(query, key, key)  # (B, T_q, d_model)
    several = c.randn(4, 7, 12, dtype=torch.float64)
    changed = not torch.allclose(ours.call(query, several, several), theirs(query, several, several).detach())
    ours.train(False)
    if not isinstance(rows, Tensor) or rows.shape != query.shape:
        raise Wrong("In training mode the output should be a tensor of shape (B, T_q, d_model), too.")
    with torch.no_grad():
        heads = theirs.w_v(key[0, 0]).view(3, 4)
        parts = (
            torch.block_diag(*heads) @ theirs.w_o.weight.T
        )  # (h, d_model): what each head adds to the output
        rows = rows.flatten(0, 1) - theirs.w_o.bias  # (B·T_q, d_model)
        shares = torch.linalg.lstsq(parts.T, rows.T).solution.T  # (B·T_q, h)
        elsewhere = not torch.allclose(shares @ parts, rows, **_CLOSE)
    if elsewhere:
        raise Wrong(
            "In training the output should be made of the values, with some weights dropped; yours drops something else, "
            "or something else as well.",
            "dropout_not_on_weights",
        )
    _judge_shares(shares, changed)


def _judge_shares(shares: Tensor, changed: bool) -> None:
    """`shares` (B·T_q, h) of the heads' values; `changed`: whether training matters when the keys differ."""

    def only(*allowed: float) -> bool:
        return bool((shares[..., None] - torch.tensor(allowed)).abs().amin(-1).le(1e-4).all())

    largest = float(shares.max())
    rate = 1 - 1 / largest if largest > 0 else 1.0  # that which the scale of the kept ones speaks of
    if only(1.0):
        if changed:
            text = "With equal keys dropout changes nothing, with different ones it does: it acts before the softmax, on the scores or on queries or keys; it should act on the weights."
            raise Wrong(text, "dropout_before_softmax")
        raise Wrong(f"In training mode dropout={_RATE} changes nothing.", "dropout_unused")
    if only(0.0, 1.0) and largest > 0:
        text = "The weights that are kept sum to 1 again: they should be divided by 1 − p, as nn.Dropout does, and by nothing else."
        raise Wrong(text, "dropout_renormalised")
    if only(0.0, 0.5, 1.0):
        text = "The weights that are kept should be divided by 1 − p, as nn.Dropout does."
        raise Wrong(text, "dropout_not_rescaled")
    if abs(rate - _RATE) > 1e-3 and only(0.0, largest / 2, largest):
        if abs(rate - 1 + _RATE) < 1e-3:
            text = f"`dropout` is the share that is dropped, not the share that is kept: for dropout={_RATE} yours drops {100 * rate:.0f} %."
            raise Wrong(text, "dropout_share_kept")
        raise Wrong(
            f"For dropout={_RATE} yours drops {100 * rate:.0f} % of the weights.", "dropout_wrong_rate"
        )
    dropped = 1 - (1 - _RATE) * shares  # 0, 1/2 or 1 of a query's two weights
    apart = bool((dropped - 0.5).abs().le(1e-3).any())  # the two keys of a query
    if only(0.0, 0.5 / (1 - _RATE), 1 / (1 - _RATE)):
        if not apart or dropped.std(dim=0).max() < 1e-3 or dropped.std(dim=1).max() < 1e-3:
            raise Wrong(
                "Dropout should drop each weight on its own; yours drops some together: those of a query, of a head, or of all heads.",
                "dropout_not_independent",
            )
        if abs(float(dropped.mean()) - _RATE) < 0.14:  # six standard deviations of 360 draws
            return
    raise Wrong(
        "The weights should be 0 or divided by 1 − p, each dropped with probability p.", "dropout_other"
    )


def _no_dropout(c: Context) -> None:
    for sizes, text in (
        ({"dropout": 0.0}, "With dropout=0.0"),
        ({}, "Without the argument dropout (its default is 0)"),
    ):
        module, x = c.build(**sizes), c.randn(2, 5, 12)
        before = module.call(x, x, x)
        module.train(True)
        if not torch.allclose(module.call(x, x, x), before):
            raise Wrong(f"{text} training mode changes the output.", "dropout_argument_ignored")


def _inputs_kept(c: Context) -> None:
    module = c.build()
    args = (c.randn(2, 5, 12), c.randn(2, 7, 12), c.randn(2, 7, 12), random_mask(c.seed, 5, 7))
    for i, (a, b) in enumerate(zip(args, module.observe(*args)[1], strict=True)):
        if not torch.equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")
    strided = [a.transpose(0, 1).contiguous().transpose(0, 1) for a in args[:3]]
    c.expect(module.call(*strided), module.call(*args[:3]), "the output for inputs that are not contiguous")


def _keeps_weights(c: Context) -> None:
    ours, theirs = c.twin(dropout=_RATE)
    query, key = (_NEAR * c.randn(2, t, 12, dtype=torch.float64) for t in (5, 7))
    ours.train(True)
    ours.call(query, key, key, random_mask(c.seed, 5, 7))
    ours.train(False)
    theirs(query, key, key, random_mask(c.seed, 5, 7))
    got = ours.attribute("weights")
    if got is None:
        raise Wrong(
            "After a call module.weights is None: forward should keep the weights there.", "weights_not_kept"
        )
    what = "module.weights (as they are before dropout)"
    c.expect(got, theirs.weights, what, axes="batch head query key", mistake="kept_weights_wrong", **_CLOSE)
    if got.requires_grad:
        raise Wrong("module.weights should be detached from the gradient.", "kept_weights_attached")


_exercise = partial(Exercise, notebook="05_multi_head_attention")

EXERCISES = (
    _exercise(
        name="split_heads",
        points=1,
        difficulty=1,
        minutes=8,
        hints=(
            "Which numbers of one token belong to head 0?",
            "First cut the last axis into (h, d_k), then bring the heads before the positions.",
            "x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2), after the test that raises ValueError.",
        ),
        reference=solutions.split_heads,
        tests=(
            Test("values", "head i takes features i·d_k … (i+1)·d_k − 1", _split_values),
            Test("one_head", "works for one head and for heads of width 1", _split_one, crash="fixed_number_of_heads"),
            Test("error", "refuses a d_model that n_heads does not divide", _split_error),
            Test("strided", "takes a tensor that is not contiguous", _strided, crash="needs_contiguous_input"),
            Test("gradient", "lets the gradient through", _split_gradient),
        ),
        mistakes=_SPLIT,
        variant=_split_variant,
        probes=lambda seed: [Probe((_x(seed, 2, t, d), h)) for t, d, h in ((5, 12, 3), (5, 10, 4), (6, 12, 3))],
    ),
    _exercise(
        name="merge_heads",
        points=1,
        difficulty=1,
        minutes=6,
        hints=(
            "What did split_heads do last? That has to be undone first.",
            "Exchange the axes of heads and positions, then make the last two axes one.",
            "x.transpose(1, 2).flatten(2)",
        ),
        reference=solutions.merge_heads,
        tests=(
            Test("values", "puts the heads side by side", _merge_values),
            Test("inverse", "undoes split_heads", _merge_inverse),
            Test("ones", "keeps axes of size 1: one sample, one position, one head", _merge_ones),
            Test("gradient", "lets the gradient through", _merge_gradient),
        ),
        mistakes=_MERGE,
        variant=_merge_variant,
        probes=lambda seed: [Probe((_x(seed, 2, 3, 5, 4),)), Probe((_x(seed, 3, 2, 4, 5),))],
    ),
    _exercise(
        name="MultiHeadAttention",
        points=6,
        difficulty=3,
        minutes=30,
        hints=(
            "How many matrices are there, and what is the shape of each?",
            "Project query, key and value with matrices of their own, split each into heads, attend, merge, project once more.",
            "The mask needs no change: (T_q, T_k), (B, 1, 1, T_k) and (B, 1, T_q, T_k) all broadcast to (B, h, T_q, T_k). Scale by √d_k, the width of a head.",
        ),
        reference=solutions.MultiHeadAttention,
        tests=(
            Test("shape", "gives (B, T_q, d_model), also when T_q and T_k differ", _shape, crash="needs_equal_lengths"),
            Test("evaluation", "is the same from call to call in evaluation mode", _evaluation),
            Test("registered", "has four projections that PyTorch sees", _registered),
            Test("one_key", "with one key depends on its value alone", _one_key),
            Test("independent", "treats each sample and each query alone", _independent),
            Test("forbidden", "a forbidden key has no influence", _forbidden, crash="mask_not_broadcast"),
            Test("values", "equals Concat(head_1 … head_h) W^O for equal weights", _values),
            Test("masks", "equals the formula with masks of every allowed shape", _masks, crash="mask_not_broadcast"),
            Test("low_scores", "a forbidden key has no influence, however low the other scores are", _low_scores),
            Test("mask_of_three_dimensions", "refuses a mask with three dimensions", _three_dimensions),
            Test("gradients", "has the right gradients", _gradients),
            Test("dropout", "drops attention weights in training", _dropout),
            Test("no_dropout", "is the same in training as in evaluation when dropout is 0", _no_dropout),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _inputs_kept, crash="needs_contiguous_input"),
            Test("keeps_weights", "keeps the weights before dropout, detached, in .weights", _keeps_weights, crash="weights_not_kept"),
        ),
        mistakes=(*MODULE, *_MORE),
        variant=variant,
        neutral=("full_row_uniform", "full_row_nan"),
        probes=_probes,
        sizes=_SIZES,
        optional=OPTIONAL,
        precision=3e-6,
        not_allowed=("nn.MultiheadAttention", "F.multi_head_attention_forward"),
    ),
)  # fmt: skip
