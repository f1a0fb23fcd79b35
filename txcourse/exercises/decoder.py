"""Exercises of 09_decoder."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.exercises import multi_head_attention as attention
from txcourse.exercises.attention import random_mask
from txcourse.exercises.encoder import (
    ATTENTION,
    MASK,
    SOME_FORMS,
    STACK,
    Stack,
    random_in_training,
    sublayers,
    three_layers,
    turned,
)
from txcourse.exercises.feed_forward_and_residuals import (
    EPS,
    FEED_FORWARD_INSIDE,
    FLAG,
    NORM_INSIDE,
    dropped,
    dropped_inside,
    forms,
    inputs_kept,
    normal,
    one_tensor,
    order,
    path,
    registered,
    same_every_time,
    same_parameter_gradients,
    shows,
)
from txcourse.solutions import decoder as solutions
from txcourse.solutions.attention import causal_mask

# -- the layer with switches -------------------------------------------------------------------------------------------

LAYER = (
    Mistake("memory_ignored", "cross", "The cross-attention takes keys and values from the decoder itself: the memory is not used."),
    Mistake("memory_ignored_under_tgt_mask", "cross", "The second attention takes keys and values from the decoder itself, with tgt_mask: the memory is not used."),
    Mistake("memory_ignored_under_memory_mask", "cross", "The cross-attention takes keys and values from the decoder itself: the memory is not used."),
    Mistake("memory_as_query", "cross", "The memory gives the queries of the cross-attention and the decoder keys and values; it should be the other way round."),
    Mistake("values_from_decoder", "cross", "The cross-attention takes its keys from the memory and its values from the decoder; both are the memory."),
    Mistake("keys_from_decoder", "cross", "The cross-attention takes its values from the memory and its keys from the decoder; both are the memory."),
    Mistake("cross_attention_is_self_attention", "cross", "Both attentions are one and the same module; each has its own weights."),
    Mistake("memory_joined_to_decoder", "cross", "The cross-attention takes memory and decoder together for keys and values; only the memory belongs there."),
    Mistake("memory_normed", "memory", "The memory goes through a LayerNorm of the layer; it is used as it comes."),
    Mistake("memory_normed_in_pre_norm", "memory", "In pre-norm the memory goes through a LayerNorm of the layer; it is used as it comes."),
    Mistake("query_not_normed", "memory", "In pre-norm: the queries of the cross-attention are not normed."),
    Mistake("no_cross_attention", "wiring", "There is no cross-attention: self-attention is followed by the feed-forward."),
    Mistake("no_self_attention", "wiring", "There is no self-attention: cross-attention stands first."),
    Mistake("cross_attention_first", "wiring", "Cross-attention stands before self-attention."),
    Mistake("feed_forward_before_cross_attention", "wiring", "The feed-forward stands between the two attentions; it comes last."),
    Mistake("feed_forward_first", "wiring", "The feed-forward stands first; it comes last."),
    Mistake("cross_attention_gets_layer_input", "wiring", "The cross-attention's queries come from the layer's input; they should come from what the self-attention block gives."),
    Mistake("feed_forward_gets_layer_input", "wiring", "The feed-forward works on the layer's input; it should work on what the cross-attention block gives."),
    Mistake("residual_from_layer_input", "wiring", "Around cross-attention and feed-forward the layer's input is added; it should be the sublayer's own input."),
    Mistake("residual_from_memory", "wiring", "Around the cross-attention the memory is added; it should be the sublayer's own input."),
    Mistake("norm_shared", "norms", "All sublayers share one LayerNorm; each has its own."),
    Mistake("norm_shared_by_attentions", "norms", "Both attentions share one LayerNorm; each has its own."),
    Mistake("norm_shared_by_last_two", "norms", "Cross-attention and feed-forward share one LayerNorm; each has its own."),
    Mistake("extra_norm_after_layer", "norms", "The layer ends with one more LayerNorm."),
    Mistake("keys_not_normed", "pre_keys", "In pre-norm: only the queries of the self-attention are normed; keys and values come from LayerNorm(x) too."),
)  # fmt: skip
MASKS = (
    Mistake("tgt_mask_ignored", "layer_mask", "tgt_mask is not used: a position sees everything in the target."),
    Mistake("memory_mask_ignored", "layer_mask", "memory_mask is not used: the memory's padding is attended to."),
    Mistake("tgt_mask_transposed", "layer_mask", "tgt_mask is transposed: a position sees the later ones, not the earlier."),
    Mistake("masks_exchanged", "layer_mask", "tgt_mask and memory_mask are exchanged."),
    Mistake("tgt_mask_on_cross_attention", "layer_mask", "The cross-attention gets tgt_mask; it should get memory_mask."),
    Mistake("memory_mask_on_self_attention", "layer_mask", "The self-attention gets memory_mask; it should get tgt_mask."),
    Mistake("both_masks_on_cross_attention", "layer_mask", "The cross-attention gets tgt_mask besides memory_mask: it hides the source from early positions."),
    Mistake("causal_without_mask", "layer_mask", "The self-attention is causal whatever tgt_mask says; the caller says what is hidden, and without a mask nothing is."),
)  # fmt: skip


def decoder_layer(on: frozenset[str]) -> type[nn.Module]:
    """DecoderLayer with the mistakes in `on`; without any, right."""
    attend, feed, norm = sublayers(on)

    class DecoderLayer(nn.Module):
        def __init__(
            self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
        ) -> None:
            super().__init__()
            self.self_attention = attend(d_model, n_heads, dropout)
            self.cross_attention = attend(d_model, n_heads, dropout)
            if "cross_attention_is_self_attention" in on:
                self.cross_attention = self.self_attention
            self.feed_forward = feed(d_model, d_ff, dropout)
            norms = [norm(d_model) for _ in range(3 + ("extra_norm_after_layer" in on))]
            if {"norm_shared", "norm_shared_by_attentions"} & on:
                norms[1] = norms[0]
            if {"norm_shared", "norm_shared_by_last_two"} & on:
                norms[2] = norms[1]
            self.norms = nn.ModuleList(norms)
            self.dropout = nn.Dropout(dropout)
            self.pre = order(on, norm_first)
            names = ("self_attention_", "cross_attention_", "feed_forward_")
            self.around = [path(on, self.pre, name) for name in names]

        def forward(
            self, x: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None
        ) -> Tensor:
            start, masks = x, _masks(on, x, tgt_mask, memory_mask)
            if "memory_normed" in on or ("memory_normed_in_pre_norm" in on and self.pre):
                memory = self.norms[1](memory)

            def attended(y: Tensor) -> Tensor:
                key = start if "keys_not_normed" in on and self.pre else y
                return self.dropout(self.self_attention(y, key, key, masks[0]))

            def crossed(y: Tensor) -> Tensor:
                if "query_not_normed" in on and self.pre:
                    y = x
                if "cross_attention_gets_layer_input" in on:
                    y = self.norms[1](start) if self.pre else start
                query, key, value = y, memory, memory
                mask = masks[1]
                if "memory_ignored" in on:
                    key, value, mask = y, y, None
                elif "memory_ignored_under_tgt_mask" in on:
                    key, value, mask = y, y, masks[0]
                elif "memory_ignored_under_memory_mask" in on:
                    key = value = y
                elif "memory_as_query" in on:
                    query, key, value = memory, y, y
                elif "values_from_decoder" in on:
                    value = y
                elif "keys_from_decoder" in on:
                    key = y
                elif "memory_joined_to_decoder" in on:
                    key = value = torch.cat([memory, y], dim=1)
                    mask = None if mask is None else _widened(mask, y.shape[1])
                return self.dropout(self.cross_attention(query, key, value, mask))

            def fed(y: Tensor) -> Tensor:
                if "feed_forward_gets_layer_input" in on:
                    y = self.norms[2](start) if self.pre else start
                return self.dropout(self.feed_forward(y))

            steps = [(0, attended), (1, crossed), (2, fed)]
            if "no_cross_attention" in on:
                steps = [steps[0], steps[2]]
            elif "no_self_attention" in on:
                steps = steps[1:]
            elif "cross_attention_first" in on:
                steps = [steps[1], steps[0], steps[2]]
            elif "feed_forward_before_cross_attention" in on:
                steps = [steps[0], steps[2], steps[1]]
            elif "feed_forward_first" in on:
                steps = [steps[2], steps[0], steps[1]]
            for i, step in steps:
                other = None
                if "residual_from_layer_input" in on and i > 0:
                    other = start
                elif "residual_from_memory" in on and i == 1:
                    other = memory
                if other is None:
                    x = self.around[i](x, step, self.norms[i])
                else:
                    x = other + step(self.norms[i](x)) if self.pre else self.norms[i](other + step(x))
            return self.norms[3](x) if "extra_norm_after_layer" in on else x

    return DecoderLayer


def _masks(
    on: frozenset[str], x: Tensor, tgt_mask: Tensor | None, memory_mask: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The masks of self-attention and cross-attention with the mistakes in `on`."""
    tgt_mask, memory_mask = turned(on, tgt_mask), turned(on, memory_mask)
    causal = causal_mask(x.shape[1])
    if "tgt_mask_ignored" in on:
        return None, memory_mask
    if "memory_mask_ignored" in on:
        return tgt_mask, None
    if "tgt_mask_transposed" in on and tgt_mask is not None:
        return tgt_mask.transpose(-2, -1), memory_mask
    if "masks_exchanged" in on:
        return memory_mask, tgt_mask
    if "tgt_mask_on_cross_attention" in on:
        return tgt_mask, tgt_mask
    if "memory_mask_on_self_attention" in on:
        return memory_mask, memory_mask
    if "both_masks_on_cross_attention" in on and tgt_mask is not None and memory_mask is not None:
        return tgt_mask, tgt_mask & memory_mask
    if "causal_without_mask" in on and tgt_mask is None:
        return causal, memory_mask
    return tgt_mask, memory_mask


def _widened(mask: Tensor, more: int) -> Tensor:
    return torch.cat([mask, mask.new_ones(*mask.shape[:-1], more)], dim=-1)


def decoder(on: frozenset[str]) -> type[nn.Module]:
    """Decoder with the mistakes in `on`; without any, right."""
    layer = decoder_layer(on)

    class Decoder(nn.Module):
        def __init__(
            self, n_layers: int, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
        ) -> None:  # fmt: skip
            super().__init__()
            self.stack = Stack(on, layer, n_layers, d_model, norm_first, n_heads, d_ff, dropout)

        def forward(
            self, x: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None
        ) -> Tensor:
            stack, first = self.stack, x

            def call(i: int, layer: nn.Module, y: Tensor) -> Tensor:
                if "memory_for_first_layer_only" in on and i > 0:
                    return layer(y, y, tgt_mask, tgt_mask)
                if "memory_is_decoder_input" in on:
                    return layer(y, first, tgt_mask, memory_mask)
                if "tgt_mask_for_first_layer_only" in on and i > 0:
                    return layer(y, memory, None, memory_mask)
                before_last = i < len(stack.layers) - 1
                if "tgt_mask_for_last_layer_only" in on and before_last:
                    return layer(y, memory, None, memory_mask)
                if "memory_mask_for_last_layer_only" in on and before_last:
                    return layer(y, memory, tgt_mask, None)
                if "memory_mask_for_first_layer_only" in on and i > 0:
                    return layer(y, memory, tgt_mask, None)
                return layer(y, memory, stack.mask(i, tgt_mask), stack.mask(i, memory_mask))

            return stack.run(x, call)

    return Decoder


DECODER = (
    Mistake("memory_for_first_layer_only", "memory_passed", "Only the first layer gets the memory; every layer attends to it."),
    Mistake("memory_is_decoder_input", "memory_passed", "The layers get the decoder's own input where the memory belongs."),
    Mistake("tgt_mask_for_first_layer_only", "layer_mask", "Only the first layer gets tgt_mask."),
    Mistake("tgt_mask_for_last_layer_only", "layer_mask", "Only the last layer gets tgt_mask."),
    Mistake("memory_mask_for_last_layer_only", "layer_mask", "Only the last layer gets memory_mask."),
    Mistake("memory_mask_for_first_layer_only", "layer_mask", "Only the first layer gets memory_mask."),
)  # fmt: skip

# -- tests -------------------------------------------------------------------------------------------------------------

_D, _T, _S, _B = 8, 5, 7, 3  # d_model, target, source, batch; 2 heads of width 4


def _x(c: Context, t: int = _T, scale: float = 1.0) -> Tensor:
    return c.randn(_B, t, _D, dtype=torch.float64, scale=scale)


def _arguments(seed: int, s: int = _S) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, memory = 1.5 * normal(seed, _B, _T, _D) + 0.3, 1.2 * normal(seed + 1, _B, s, _D) - 0.2
    return x, memory, causal_mask(_T), random_mask(seed, _B, 1, 1, s)


def _probes(seed: int) -> list[Probe]:
    x, memory = normal(seed + 3, _B, _T, _D), normal(seed + 4, _B, _S, _D)
    return [Probe(_arguments(seed, s=_T)), Probe((x, memory)), Probe(_arguments(seed + 5))]


def _shape(c: Context) -> None:
    module = c.build()
    one_tensor(c.build(norm_first=True).call(c.randn(_B, _T, _D), c.randn(_B, _T, _D)))
    for t, s in ((_T, _T), (_T, _S), (1, _S), (_T, 1)):
        try:
            got = one_tensor(module.call(c.randn(_B, t, _D), c.randn(_B, s, _D)))
        except CandidateError as error:
            if t == s or error.kind != "raised":
                raise
            raise Wrong(
                f"With {t} target and {s} source positions: {error.sentence}", "needs_equal_lengths"
            ) from error
        c.expect(got, torch.zeros(_B, t, _D), "the output", axes="batch target d_model", atol=math.inf)


def _layer_registered(c: Context) -> None:
    registered(
        c, "Two attentions (4·d_model² and up to 4·d_model biases each), one feed-forward, three LayerNorms"
    )


def _post(c: Context) -> None:
    c.twin()


def _pre(c: Context) -> None:
    c.twin(norm_first=True)


def _alone(c: Context) -> None:
    module, x, memory = c.build().double(), _x(c), _x(c, _S)
    whole = module.call(x, memory)
    c.expect(
        module.call(x[1:2], memory[1:2]),
        whole[1:2],
        "the output of sample 1 alone",
        axes="batch target d_model",
    )
    turn = torch.tensor([3, 0, 6, 4, 2, 5, 1])
    c.expect(
        module.call(x, memory[:, turn]),
        whole,
        "the output for a memory in another order",
        axes="batch target d_model",
    )


def _future(c: Context) -> None:
    """The gradient of an output with respect to later inputs is exactly zero, and to earlier ones it is not."""
    for norm_first in (False, True):
        module = c.build(norm_first=norm_first).double()
        x, memory = _x(c), _x(c, _S)
        before = module.call(x, memory, causal_mask(_T))
        after = module.call(torch.cat([x[:, :3], _x(c)[:, 3:]], dim=1), memory, causal_mask(_T))
        if not torch.allclose(before[:, :3], after[:, :3], atol=1e-12):
            t = int((before != after).any(-1).any(0).nonzero()[0])
            raise Wrong(f"With a causal mask, the output of position {t} changes when positions 3 and 4 do.")
        if torch.equal(before[:, 3:], after[:, 3:]):
            raise Wrong("The output of a position does not depend on its own input.")


def _memory(c: Context) -> None:
    """Every position depends on every source position that is not hidden, and on no other."""
    for norm_first in (False, True):
        module = c.build(norm_first=norm_first).double()
        x, memory, tgt_mask, memory_mask = _arguments(c.seed)
        before = module.call(x, memory, tgt_mask, memory_mask)
        hidden = ~memory_mask[:, 0, 0, :, None]
        after = module.call(x, torch.where(hidden, memory + 1 + _x(c, _S), memory), tgt_mask, memory_mask)
        if not torch.allclose(before, after, atol=1e-9):
            raise Wrong("What stands at source positions that memory_mask hides changes the output.")
        moved = memory.clone()
        moved[:, 0] += 1 + _x(c, 1)[:, 0]  # never hidden
        after = module.call(x, moved, tgt_mask, memory_mask)
        same = (before == after).all(-1).any(0)
        if bool(same.all()):
            raise Wrong("The output does not depend on the memory.")
        if bool(same.any()):
            raise Wrong(
                f"Target position {int(same.nonzero()[0])} does not see source position 0: every target position sees the whole source."
            )


def _large(c: Context) -> None:
    """Scores of ten thousands in the cross-attention, in some samples far below 0, and near each other, so that a mask
    behind the softmax is right, too: what is hidden stays hidden."""
    module, mask = c.build().double(), torch.tensor([True, True, False, False, False, False, False])
    for scale in (1.0, 3e5):
        x = c.randn(40, _T, _D, dtype=torch.float64)
        memory = c.randn(40, 1, _D, dtype=torch.float64, scale=scale)
        memory = memory + c.randn(40, _S, _D, dtype=torch.float64)
        alone = module.call(x, memory[:, :2])
        if not torch.allclose(alone, module.call(x, memory, None, mask.expand(40, 1, 1, _S)), atol=1e-6):
            if scale == 1.0:
                raise Wrong("Source positions 2 to 6, which memory_mask hides, change the output.")
            raise Wrong(
                "When scores are large, hidden source positions are attended to: their scores get a number that is not negative enough.",
                "mask_fill_too_weak",
            )


def _masks_taken(c: Context) -> None:
    """tgt_mask as the whole model makes it, (B, 1, T, T), causal and without padding; and the other forms."""
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        x, memory, causal, padding = _arguments(c.seed + 1)
        real = torch.arange(_T) < torch.tensor([2, _T, 3])[:, None]  # (B, T)
        both = causal & real[:, None, None, :]
        pairs = (both, padding), (causal, random_mask(c.seed, _B, 1, _T, _S)), (real[:, None, None, :], random_mask(c.seed, _T, _S))  # fmt: skip
        for tgt_mask, memory_mask in pairs:
            masks = tgt_mask, memory_mask
            got = shows("mask_not_broadcast", lambda: ours.call(x, memory, *masks)[real])  # noqa: B023
            want = theirs(x, memory, *masks)[real]
            if tgt_mask.dim() == 4 and torch.allclose(
                got, theirs(x, memory, tgt_mask[:1], memory_mask)[real]
            ):
                raise Wrong("The tgt_mask of the first sample is used for the whole batch.", "tgt_mask_of_first_sample")  # fmt: skip
            shapes = f"tgt_mask {tuple(tgt_mask.shape)} and memory_mask {tuple(memory_mask.shape)}"
            c.expect(got, want, f"the output with {shapes}", axes="position d_model")


def _gradients(c: Context) -> None:
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        args = _arguments(c.seed + 2)
        c.same_gradients(*args, wrt={"x": 0, "memory": 1}, ours=ours, theirs=theirs)
        same_parameter_gradients(c, ours, theirs, [Probe(args)], "The module")


def _dropout(c: Context) -> None:
    x, memory = _x(c), _x(c, _S)
    for norm_first in (False, True):
        same_every_time(c, x, memory, norm_first=norm_first)
        if c.exercise.name == "DecoderLayer":
            dropped(c, x, memory, norm_first=norm_first, sublayers=3)
    random_in_training(c, x, memory)


def _dropout_inside(c: Context) -> None:
    for norm_first in (False, True) if c.exercise.name == "DecoderLayer" else (False,):
        dropped_inside(c, inputs=2, norm_first=norm_first)


def _kept(c: Context) -> None:
    inputs_kept(c, *_arguments(c.seed), norm_first=True)


def _stack_registered(c: Context) -> None:
    three_layers(c)
    registered(c, "Two layers with weights of their own and, in post-norm, nothing else")
    registered(c, "Two layers with weights of their own and, in pre-norm, a final LayerNorm", norm_first=True)


def _one_layer(c: Context) -> None:
    c.twin(n_layers=1)


_exercise = partial(
    Exercise,
    notebook="09_decoder",
    neutral=EPS,
    eps=1e-5,
    also_right=tuple(frozenset([eps]) for eps in EPS),
    optional=attention.usual_optional("*self_attention", "*cross_attention"),
    not_allowed=("nn.Transformer",),
    probes=_probes,
    settings=({}, {"norm_first": True}),
)
_COMMON = (*LAYER, *MASKS, *forms(), *FLAG, *MASK, *ATTENTION, *FEED_FORWARD_INSIDE, *NORM_INSIDE)
_INSIDE: tuple[Any, ...] = (
    *forms("cross_attention_", "Around the cross-attention: ", SOME_FORMS),
    *forms("self_attention_", "Around the self-attention: ", SOME_FORMS),
    *forms("feed_forward_", "Around the feed-forward: ", SOME_FORMS),
)

EXERCISES = (
    _exercise(
        name="DecoderLayer",
        points=4,
        difficulty=2,
        minutes=20,
        hints=(
            "Which sublayer sees the target, which the source, and which only one position?",
            "Self-attention with tgt_mask, cross-attention whose queries are the decoder's and whose keys and values are the memory, with memory_mask, then the feed-forward; three residual connections.",
            "x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, memory, memory_mask))",
        ),
        reference=solutions.DecoderLayer,
        tests=(
            Test("shape", "gives (B, T, d_model), also without masks and for one position", _shape),
            Test("registered", "has two attentions, feed-forward and three norms that PyTorch sees", _layer_registered),
            Test("alone", "treats each sample alone, and the memory as a set", _alone),
            Test("future", "with a causal mask never sees the future", _future),
            Test("memory", "sees all of the memory that is not hidden", _memory),
            Test("post_norm", "post-norm: equals LayerNorm(x + Sublayer(x)), three times", _post),
            Test("pre_norm", "pre-norm: equals x + Sublayer(LayerNorm(x)), three times", _pre),
            Test("masks", "takes masks of every form that attention takes", _masks_taken),
            Test("large", "a hidden source position has no influence when scores are large", _large),
            Test("gradients", "has the right gradients", _gradients),
            Test("dropout", "drops the sublayers' outputs in training, nothing in evaluation", _dropout),
            Test("dropout_inside", "drops attention weights and hidden features too, with the same rate", _dropout_inside),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _kept),
        ),
        mistakes=(*_COMMON, *_INSIDE),
        variant=decoder_layer,
        sizes={"d_model": _D, "n_heads": 2, "d_ff": 6},
    ),
    _exercise(
        name="Decoder",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "What changes from layer to layer, and what stays the same for all of them?",
            "x goes from layer to layer; memory and both masks are the same for every layer. Only pre-norm needs one more LayerNorm at the end.",
            "for layer in self.layers: x = layer(x, memory, tgt_mask, memory_mask)",
        ),
        reference=solutions.Decoder,
        tests=(
            Test("shape", "gives (B, T, d_model), also without masks and for one position", _shape),
            Test("registered", "has layers with weights of their own, and a final norm in pre-norm only", _stack_registered),
            Test("alone", "treats each sample alone, and the memory as a set", _alone),
            Test("future", "with a causal mask never sees the future", _future),
            Test("memory", "sees all of the memory that is not hidden", _memory),
            Test("post_norm", "post-norm: equals the layers one after another", _post),
            Test("pre_norm", "pre-norm: equals the layers one after another, then LayerNorm", _pre),
            Test("one_layer", "with one layer equals this layer", _one_layer),
            Test("masks", "takes masks of every form that attention takes", _masks_taken),
            Test("gradients", "has the right gradients", _gradients),
            Test("dropout", "drops in training, nothing in evaluation", _dropout),
            Test("dropout_inside", "drops inside every layer, wherever a layer should", _dropout_inside),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _kept),
        ),
        mistakes=(*STACK, *DECODER, *_COMMON),
        variant=decoder,
        sizes={"n_layers": 2, "d_model": _D, "n_heads": 2, "d_ff": 6},
    ),
)  # fmt: skip
