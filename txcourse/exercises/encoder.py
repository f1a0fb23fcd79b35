"""Exercises of 08_encoder."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.exercises import multi_head_attention as attention
from txcourse.exercises.attention import random_mask
from txcourse.exercises.feed_forward_and_residuals import (
    EPS,
    FEED_FORWARD_INSIDE,
    FLAG,
    NORM_INSIDE,
    defaults,
    dropped,
    dropped_inside,
    feed_forward,
    forms,
    inputs_kept,
    layer_norm,
    normal,
    one_tensor,
    order,
    path,
    registered,
    same_every_time,
    same_parameter_gradients,
    shows,
)
from txcourse.solutions import encoder as solutions

# -- the layer with switches -------------------------------------------------------------------------------------------

# Of the mistakes of attention: not those that self-attention cannot show, nor a fill that only huge scores reach.
ATTENTION = tuple(
    m for m in attention.MODULE if m.axis not in ("sources", "returns") and m.id != "mask_fill_too_weak"
)
SOME_FORMS = (
    "no_residual",
    "no_norm",
    "norm_on_sublayer_output",
    "residual_is_normed",
    "norm_on_residual_only",
    "norm_before_and_after",
    "output_added_to_itself",
    "sublayer_discarded",
)
LAYER = (
    Mistake("norm_shared", "norms", "All sublayers share one LayerNorm; each has its own."),
    Mistake("extra_norm_after_layer", "norms", "The layer ends with one more LayerNorm."),
    Mistake("extra_norm_before_layer", "norms", "The layer begins with one more LayerNorm."),
    Mistake("feed_forward_first", "wiring", "The feed-forward stands before the attention."),
    Mistake("feed_forward_gets_layer_input", "wiring", "The feed-forward works on the layer's input; it should work on what the attention block gives."),
    Mistake("residual_from_layer_input", "wiring", "Around the feed-forward the layer's input is added; it should be the feed-forward's own input."),
    Mistake("sublayers_in_parallel", "wiring", "Attention and feed-forward both work on the layer's input, side by side; they follow each other."),
    Mistake("one_residual_around_both", "wiring", "One residual path leads around attention and feed-forward together; each has its own."),
    Mistake("keys_not_normed", "pre_keys", "In pre-norm: only the queries are normed; keys and values come from LayerNorm(x) too."),
    Mistake("values_not_normed", "pre_keys", "In pre-norm: only queries and keys are normed; the values come from LayerNorm(x) too."),
    Mistake("queries_not_normed", "pre_keys", "In pre-norm: only keys and values are normed; the queries come from LayerNorm(x) too."),
    Mistake("feed_forward_twice", "wiring", "The feed-forward is applied twice."),
    Mistake("attention_twice", "wiring", "The self-attention is applied twice."),
    Mistake("hidden_rows_zeroed", "layer_mask", "The rows of positions that the mask hides are set to 0 in the result; the mask is for the attention alone."),
    Mistake("causal", "layer_mask", "The self-attention is causal: no position sees a later one. In the encoder each sees everything that the mask does not hide."),
)  # fmt: skip
MASK = (
    Mistake("mask_of_first_sample", "layer_mask", "The mask of the first sample is used for the whole batch."),
    Mistake("mask_on_query_axis", "layer_mask", "The padding mask hides the rows of padded queries; it should hide padded keys from all queries."),
    Mistake("mask_on_query_axis_zeroed", "layer_mask", "The padding mask hides the rows of padded queries; it should hide padded keys from all queries."),
)  # fmt: skip


def turned(on: frozenset[str], mask: Tensor | None) -> Tensor | None:
    """The mask with the mistakes in `on`."""
    if mask is not None and mask.dim() == 4:
        if "mask_of_first_sample" in on:
            return mask[:1]
        if mask.shape[2] == 1 and {"mask_on_query_axis", "mask_on_query_axis_zeroed"} & on:
            return mask.transpose(2, 3)
    return mask


def sublayers(on: frozenset[str]) -> tuple[type[nn.Module], type[nn.Module], type[nn.Module]]:
    """Attention, feed-forward and LayerNorm with the mistakes in `on`."""
    if "mask_on_query_axis" in on:
        on = on | {"full_row_uniform"}
    return attention.variant(on), feed_forward(on), layer_norm(on)


def encoder_layer(on: frozenset[str]) -> type[nn.Module]:
    """EncoderLayer with the mistakes in `on`; without any, right."""
    attend, feed, norm = sublayers(on)

    class EncoderLayer(nn.Module):
        def __init__(
            self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
        ) -> None:
            super().__init__()
            self.self_attention = attend(d_model, n_heads, dropout)
            self.feed_forward = feed(d_model, d_ff, dropout)
            self.norms = nn.ModuleList(norm(d_model) for _ in range(2))
            if "norm_shared" in on:
                self.norms[1] = self.norms[0]
            if {"extra_norm_after_layer", "extra_norm_before_layer"} & on:
                self.norms.append(norm(d_model))
            self.dropout = nn.Dropout(dropout)
            self.pre = order(on, norm_first)
            self.around_attention = path(on, self.pre, "self_attention_")
            self.around_feed_forward = path(on, self.pre, "feed_forward_")

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            mask = turned(on, mask)
            if "causal" in on:
                causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
                mask = causal if mask is None else causal & mask
            if "extra_norm_before_layer" in on:
                x = self.norms[2](x)
            start = x

            def attended(y: Tensor) -> Tensor:
                def raw(*mistakes: str) -> Tensor:
                    return start if {*mistakes} & on and self.pre else y

                key, value = raw("keys_not_normed"), raw("keys_not_normed", "values_not_normed")
                return self.dropout(self.self_attention(raw("queries_not_normed"), key, value, mask))

            def fed(y: Tensor) -> Tensor:
                if "feed_forward_gets_layer_input" in on:
                    y = self.norms[1](start) if self.pre else start
                return self.dropout(self.feed_forward(y))

            if "feed_forward_first" in on:
                x = self.around_feed_forward(x, fed, self.norms[1])
                x = self.around_attention(x, attended, self.norms[0])
            elif "sublayers_in_parallel" in on:
                a, b = (self.norms[0](x), self.norms[1](x)) if self.pre else (x, x)
                x = x + attended(a) + fed(b)
                x = x if self.pre else self.norms[1](self.norms[0](x))
            elif "one_residual_around_both" in on:
                if self.pre:
                    x = x + fed(self.norms[1](attended(self.norms[0](x))))
                else:
                    x = self.norms[1](x + fed(self.norms[0](attended(x))))
            elif "residual_from_layer_input" in on:
                x = self.around_attention(x, attended, self.norms[0])
                if self.pre:
                    x = start + fed(self.norms[1](x))
                else:
                    x = self.norms[1](start + fed(x))
            else:
                for _ in range(1 + ("attention_twice" in on)):
                    x = self.around_attention(x, attended, self.norms[0])
                for _ in range(1 + ("feed_forward_twice" in on)):
                    x = self.around_feed_forward(x, fed, self.norms[1])
            if "hidden_rows_zeroed" in on and mask is not None and mask.dim() == 4:
                x = x * mask[:, 0, :1].transpose(1, 2)
            return self.norms[2](x) if "extra_norm_after_layer" in on else x

    return EncoderLayer


STACK = (
    Mistake("layers_shared", "layers", "All layers are one and the same object, so they share their weights; each has its own."),
    Mistake("one_layer_too_few", "layers", "There is one layer too few."),
    Mistake("one_layer_too_many", "layers", "There is one layer too many."),
    Mistake("only_one_layer_counts", "layers", "Only one layer has a say (every layer gets the stack's input, or the loop ends after one); each should get the output of the one before."),
    Mistake("layers_in_parallel", "layers", "Every layer gets the stack's input and their outputs are added up; each should get the output of the one before."),
    Mistake("residual_around_layers", "layers", "The input of each layer is added to its output once more; the residual paths are inside the layers."),
    Mistake("residual_around_stack", "layers", "The stack's input is added to its output; the residual paths are inside the layers."),
    Mistake("mask_for_first_layer_only", "layer_mask", "Only the first layer gets the mask."),
    Mistake("mask_for_last_layer_only", "layer_mask", "Only the last layer gets the mask."),
    Mistake("no_final_norm", "final", "In pre-norm the final LayerNorm is missing: the sum that leaves the last layer has not been normalised."),
    Mistake("final_norm_in_post_norm", "final", "In post-norm there is a final LayerNorm (this is nn.Transformer's convention); the paper has none, and only pre-norm needs one."),
    Mistake("final_norm_inverted", "final", "The final LayerNorm stands in post-norm and is missing in pre-norm; it should be the other way round."),
    Mistake("final_norm_twice", "final", "In pre-norm the final LayerNorm acts twice."),
    Mistake("final_norm_after_each_layer", "final", "In pre-norm the final LayerNorm acts after each layer; it belongs after the last one."),
    Mistake("norm_of_input", "final", "There is a LayerNorm on the stack's input, and none on its output."),
    Mistake("norm_first_not_passed_on", "flag", "The layers do not get norm_first: in pre-norm they are still post-norm."),
)  # fmt: skip


def final_norm(on: frozenset[str], norm_first: bool) -> bool:
    """Whether a stack with the mistakes in `on` has the final norm."""
    if "no_final_norm" in on:
        return False
    if "norm_first_not_passed_on" not in on:
        norm_first = order(on, norm_first)
    return "final_norm_in_post_norm" in on or norm_first != ("final_norm_inverted" in on)


class Stack(nn.Module):
    """The layers and the final norm of an encoder or a decoder with the mistakes in `on`."""

    def __init__(
        self, on: frozenset[str], layer: Any, n_layers: int, d_model: int, norm_first: bool, *args: Any
    ) -> None:
        super().__init__()
        n_layers += ("one_layer_too_many" in on) - ("one_layer_too_few" in on)
        inner = False if "norm_first_not_passed_on" in on else norm_first
        self.layers = nn.ModuleList(layer(d_model, *args, inner) for _ in range(n_layers))
        if "layers_shared" in on:
            self.layers = nn.ModuleList([self.layers[0]] * n_layers)
        self.norm = layer_norm(on)(d_model) if final_norm(on, norm_first) or "norm_of_input" in on else None
        self.on = on

    def run(self, x: Tensor, call: Any) -> Tensor:
        """x through all layers; `call` applies layer number i."""
        on, start = self.on, x
        if "norm_of_input" in on and self.norm is not None:
            x = self.norm(x)
        used = list(enumerate(self.layers))
        if "only_one_layer_counts" in on:
            used = used[-1:]
        if "layers_in_parallel" in on:
            x = sum(call(i, layer, start) for i, layer in used)
        else:
            for i, layer in used:
                after = call(i, layer, x)
                x = after + x if "residual_around_layers" in on else after
                if "final_norm_after_each_layer" in on and self.norm is not None:
                    x = self.norm(x)
        if "residual_around_stack" in on:
            x = x + start
        if self.norm is None or {"norm_of_input", "final_norm_after_each_layer"} & on:
            return x
        return self.norm(self.norm(x)) if "final_norm_twice" in on else self.norm(x)

    def mask(self, i: int, mask: Tensor | None) -> Tensor | None:
        """The mask that layer i gets."""
        if "mask_for_first_layer_only" in self.on and i > 0:
            return None
        return None if "mask_for_last_layer_only" in self.on and i < len(self.layers) - 1 else mask


def encoder(on: frozenset[str]) -> type[nn.Module]:
    """Encoder with the mistakes in `on`; without any, right."""
    layer = encoder_layer(on)

    class Encoder(nn.Module):
        def __init__(
            self, n_layers: int, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False
        ) -> None:  # fmt: skip
            super().__init__()
            self.stack = Stack(on, layer, n_layers, d_model, norm_first, n_heads, d_ff, dropout)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return self.stack.run(x, lambda i, layer, y: layer(y, self.stack.mask(i, mask)))

    return Encoder


# -- tests -------------------------------------------------------------------------------------------------------------

_D, _T, _B = 8, 5, 3  # d_model, positions, batch; 2 heads of width 4


def _x(c: Context, scale: float = 1.0) -> Tensor:
    return c.randn(_B, _T, _D, dtype=torch.float64, scale=scale)


def _probes(seed: int) -> list[Probe]:
    return [
        Probe((1.5 * normal(seed, _B, _T, _D) + 0.3, random_mask(seed, _B, 1, 1, _T))),
        Probe((normal(seed + 1, _B, _T, _D),)),
    ]


def _shape(c: Context) -> None:
    for t, norm_first in ((_T, False), (_T, True), (1, False)):
        got = one_tensor(c.build(norm_first=norm_first).call(c.randn(_B, t, _D)))
        c.expect(got, torch.zeros(_B, t, _D), "the output", axes="batch position d_model", atol=math.inf)


def _layer_registered(c: Context) -> None:
    registered(c, "One attention (4·d_model² and up to 4·d_model biases), one feed-forward, two LayerNorms")


def _post(c: Context) -> None:
    c.twin()


def _pre(c: Context) -> None:
    c.twin(norm_first=True)


def _hidden(c: Context) -> None:
    """Whatever stands at hidden positions changes nothing at the others, and hidden rows stay numbers."""
    for norm_first in (False, True):
        module, x = c.build(norm_first=norm_first).double(), _x(c)
        mask = random_mask(c.seed, _B, 1, 1, _T)
        real = mask[:, 0, 0]
        module.call(x)
        before = shows("mask_not_broadcast", lambda: module.call(x, mask))  # noqa: B023
        if bool(before[real].isfinite().all()) and bool(before[~real].isnan().any()):
            raise Wrong(
                "Rows of padded positions are NaN: the mask hides queries where it should hide keys.",
                "mask_on_query_axis",
            )
        after = module.call(torch.where(real[..., None], x, x.flip(0) + 3 * normal(c.seed, _B, _T, _D)), mask)
        if not torch.allclose(before[real], after[real], atol=1e-9):
            raise Wrong("What stands at a position that the mask hides changes the output at others.")


def _large(c: Context) -> None:
    """Post-norm, where the first attention sees the input as it is: scores of ten thousands, in some samples far below 0,
    and near each other, so that a mask behind the softmax is right, too."""
    module, mask = c.build().double(), torch.tensor([True, True, False, False, False])[None, None, None]
    for scale, spread in ((0.0, 0.5), (300.0, 0.01)):
        x = c.randn(40, 1, _D, dtype=torch.float64, scale=scale) + c.randn(
            40, _T, _D, dtype=torch.float64, scale=spread
        )
        alone, hidden = module.call(x[:, :2]), module.call(x, mask.expand(40, 1, 1, _T))[:, :2]
        if not torch.allclose(alone, hidden, atol=1e-6):
            if not scale:
                raise Wrong(
                    "Positions 2, 3 and 4, which the mask hides, change the output at positions 0 and 1."
                )
            raise Wrong(
                "When scores are large, hidden positions are attended to: their scores get a number that is not negative enough.",
                "mask_fill_too_weak",
            )


def _alone(c: Context) -> None:
    module, x = c.build().double(), _x(c)
    whole = module.call(x)
    mixes_samples, mixes_positions = (
        not torch.allclose(module.call(x[part]), whole[part], atol=1e-6)
        for part in (slice(1, 2), (slice(None), slice(2, 3)))
    )
    if mixes_samples and not mixes_positions:
        raise Wrong(
            "A position sees the other samples of the batch, and not the other positions of its own: attention runs over the wrong axis (B, T and d_model come in this order).",
            "attends_over_batch",
        )
    c.expect(module.call(x[1:2]), whole[1:2], "the output of sample 1 alone", axes="batch position d_model")
    turn = torch.tensor([3, 0, 4, 2, 1])
    c.expect(
        module.call(x[:, turn]),
        whole[:, turn],
        "the output of permuted positions",
        axes="batch position d_model",
    )


def _gradients(c: Context) -> None:
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        x, mask = _x(c), random_mask(c.seed, _B, 1, 1, _T)
        c.same_gradients(x, mask, wrt={"x": 0}, ours=ours, theirs=theirs)
        same_parameter_gradients(c, ours, theirs, [Probe((x, mask))], "The module")


def _dropout(c: Context) -> None:
    x = _x(c)
    for norm_first in (False, True):
        same_every_time(c, x, norm_first=norm_first)
        if c.exercise.name == "EncoderLayer":
            dropped(c, x, norm_first=norm_first, sublayers=2)
    random_in_training(c, x)


def _dropout_inside(c: Context) -> None:
    for norm_first in (False, True) if c.exercise.name == "EncoderLayer" else (False,):
        dropped_inside(c, inputs=1, norm_first=norm_first)


def _masks(c: Context) -> None:
    """The forms of MultiHeadAttention's mask."""
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        x = _x(c)
        for shape in ((_B, 1, 1, _T), (_B, 1, _T, _T), (_T, _T)):
            mask = random_mask(c.seed, *shape)
            got = shows("mask_not_broadcast", lambda: ours.call(x, mask))  # noqa: B023
            if shape[-2] > 1 and torch.allclose(got, theirs(x, mask[..., :1, :])):
                raise Wrong(
                    f"Of a mask {shape} only the first row is used; each query has a row of its own.",
                    "mask_of_first_query",
                )
            c.expect(got, theirs(x, mask), f"the output with a mask {shape}", axes="batch position d_model")


def random_in_training(c: Context, *args: Any) -> None:
    """By default the rate is 0.1: two calls in training differ."""
    defaults(c, dropout=0.1, norm_first=False)
    module = c.build().double()
    module.train(True)
    if torch.equal(module.call(*args), module.call(*args)):
        raise Wrong(
            "In training mode, with the default dropout of 0.1, two calls give the same.", "dropout_unused"
        )


def _kept(c: Context) -> None:
    inputs_kept(c, _x(c), random_mask(c.seed, _B, 1, 1, _T), norm_first=True)


def _stack_registered(c: Context) -> None:
    three_layers(c)
    registered(c, "Two layers with weights of their own and, in post-norm, nothing else")
    registered(c, "Two layers with weights of their own and, in pre-norm, a final LayerNorm", norm_first=True)


def three_layers(c: Context) -> None:
    one, two, three = (c.build(n_layers=n) for n in (1, 2, 3))
    if not two.unregistered() and two.size() == three.size():
        if one.size() == two.size() and len(two.parameters()) < 40:
            raise Wrong(
                "Three layers have as many parameters as one: the layers share them.", "layers_shared"
            )
        raise Wrong("Two and three layers have as many parameters: n_layers is not used.", "n_layers_ignored")
    registered(c, "Three layers with weights of their own", n_layers=3)


def _one_layer(c: Context) -> None:
    c.twin(n_layers=1)


def _depth(c: Context) -> None:
    """In pre-norm the output of a fresh stack has rows of mean 0 and variance 1 however large the input is."""
    got = c.build(norm_first=True).double().call(_x(c, 30.0))
    if not torch.allclose(got.var(-1, correction=0), torch.ones(_B, _T, dtype=torch.float64), rtol=0.05):
        raise Wrong(
            "In pre-norm the output of a fresh stack should be normalised: a final LayerNorm is missing."
        )


_exercise = partial(
    Exercise,
    notebook="08_encoder",
    neutral=EPS,
    eps=1e-5,
    also_right=tuple(frozenset([eps]) for eps in EPS),
    optional=attention.usual_optional("*self_attention"),
    not_allowed=("nn.Transformer",),
    probes=_probes,
    settings=({}, {"norm_first": True}),
)
_COMMON = (*LAYER, *forms(), *FLAG, *MASK, *ATTENTION, *FEED_FORWARD_INSIDE, *NORM_INSIDE)
_INSIDE = (
    *forms("self_attention_", "Around the self-attention: ", SOME_FORMS),
    *forms("feed_forward_", "Around the feed-forward: ", SOME_FORMS),
)

EXERCISES = (
    _exercise(
        name="EncoderLayer",
        points=3,
        difficulty=2,
        minutes=15,
        hints=(
            "Which two sublayers are there, and what stands around each of them?",
            "Each sublayer gets a ResidualConnection of its own. A sublayer is a function of one argument: wrap the attention in a lambda that passes y three times, and the mask.",
            "x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, mask)); return self.residuals[1](x, self.feed_forward)",
        ),
        reference=solutions.EncoderLayer,
        tests=(
            Test("shape", "gives (B, T, d_model), also without a mask and for one position", _shape),
            Test("registered", "has attention, feed-forward and two norms that PyTorch sees", _layer_registered),
            Test("alone", "treats each sample alone, and positions alike", _alone),
            Test("post_norm", "post-norm: equals LayerNorm(x + Sublayer(x)), twice", _post),
            Test("pre_norm", "pre-norm: equals x + Sublayer(LayerNorm(x)), twice", _pre),
            Test("hidden", "a hidden position has no influence", _hidden),
            Test("large", "a hidden position has no influence when scores are large", _large),
            Test("gradients", "has the right gradients", _gradients),
            Test("masks", "takes masks of every form that attention takes", _masks),
            Test("dropout", "drops the sublayers' outputs in training, nothing in evaluation", _dropout),
            Test("dropout_inside", "drops attention weights and hidden features too, with the same rate", _dropout_inside),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _kept),
        ),
        mistakes=(*_COMMON, *_INSIDE),
        variant=encoder_layer,
        sizes={"d_model": _D, "n_heads": 2, "d_ff": 6},
    ),
    _exercise(
        name="Encoder",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "What does one layer hand to the next, and what must each of them know besides?",
            "Put n_layers layers into an nn.ModuleList and give each the same mask. Only pre-norm needs one more LayerNorm at the end.",
            "for layer in self.layers: x = layer(x, mask); then return x if self.norm is None else self.norm(x)",
        ),
        reference=solutions.Encoder,
        tests=(
            Test("shape", "gives (B, T, d_model), also without a mask and for one position", _shape),
            Test("registered", "has layers with weights of their own, and a final norm in pre-norm only", _stack_registered),
            Test("alone", "treats each sample alone, and positions alike", _alone),
            Test("post_norm", "post-norm: equals the layers one after another", _post),
            Test("pre_norm", "pre-norm: equals the layers one after another, then LayerNorm", _pre),
            Test("one_layer", "with one layer equals this layer", _one_layer),
            Test("depth", "pre-norm ends with a LayerNorm", _depth),
            Test("hidden", "a hidden position has no influence", _hidden),
            Test("gradients", "has the right gradients", _gradients),
            Test("masks", "takes masks of every form that attention takes", _masks),
            Test("dropout", "drops in training, nothing in evaluation", _dropout),
            Test("dropout_inside", "drops inside every layer, wherever a layer should", _dropout_inside),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _kept),
        ),
        mistakes=(*STACK, *_COMMON),
        variant=encoder,
        sizes={"n_layers": 2, "d_model": _D, "n_heads": 2, "d_ff": 6},
    ),
)  # fmt: skip
