"""Exercises of 07_feed_forward_and_residuals."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.solutions import feed_forward_and_residuals as solutions

_ALMOST = 1 - 1e-7  # a rate of dropout that drops everything, and is safe where somebody divides by 1 - rate
_RATE = 0.25  # not a half, so that nn.Dropout(1 - rate) shows
_ROWS = 800  # of one position each: a share among them is known to 0.02

# -- what the tests of all layers share --------------------------------------------------------------------------------


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_tensor(got: Any) -> Tensor:
    if isinstance(got, tuple | list):
        raise Wrong(f"Return the output alone, not a {type(got).__name__}.", "returns_tuple")
    if got is None:
        raise Wrong("The result is None: is a return missing?", "returns_nothing")
    if not isinstance(got, Tensor):
        raise Wrong(f"Return a tensor; yours is {type(got).__name__}.", f"returns_{type(got).__name__}")
    return got


def registered(c: Context, count: str, **changes: Any) -> None:
    """The parameters are where PyTorch sees them, and as many as in the reference or a version of it that is right."""
    from txcourse.checking.exercise import omissions, parameter_sizes

    module = c.build(**changes)
    if hidden := module.unregistered():
        raise Wrong(
            f"PyTorch does not see the parameters in `{hidden[0]}`: use nn.ModuleList or nn.Parameter, or they are never trained.",
            "parameters_not_registered",
        )
    reference = c.reference(**{**(c.exercise.sizes or {}), **changes})
    if not omissions(parameter_sizes(reference), module.size(), c.exercise.optional):
        wanted = sum(p.numel() for p in reference.parameters())
        raise Wrong(f"{count}: {wanted} numbers in all. Yours has {module.size()}.")


def shows(mistake: str, call: Callable[[], Any]) -> Any:
    """What `call` gives. Where the calls before it gave a result, that it raises shows this mistake."""
    try:
        return call()
    except CandidateError as error:
        if error.kind != "raised":
            raise
        raise Wrong(error.sentence, mistake) from error


def defaults(c: Context, **wanted: Any) -> None:
    """The signature's default values, where it states any, are those of the statement."""
    stated = c.subject.defaults()
    for name, want in wanted.items():
        if name in stated and stated[name] != want:
            raise Wrong(
                f"The default of `{name}` should be {want}; yours is {stated[name]}.", f"default_of_{name}"
            )


def inputs_kept(c: Context, *args: Any, **changes: Any) -> None:
    """The candidate leaves its arguments as they were, and takes tensors that are not contiguous."""
    for changed in ({}, *([changes] if changes else [])):
        module = c.build(**changed).double()
        for i, (a, b) in enumerate(zip(args, module.observe(*args)[1], strict=True)):
            if isinstance(a, Tensor) and not torch.equal(a, b):
                raise Wrong(
                    f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input"
                )
        strided = [
            a.transpose(0, 1).contiguous().transpose(0, 1)
            if isinstance(a, Tensor) and a.is_floating_point()
            else a
            for a in args
        ]
        got = shows("needs_contiguous_input", lambda: module.call(*strided))  # noqa: B023
        c.expect(
            got, module.call(*args), "the output for inputs that are not contiguous", mistake="needs_contiguous_input",
        )  # fmt: skip


def same_every_time(c: Context, *args: Any, **changes: Any) -> None:
    """No dropout in evaluation, none in training with rate 0; no state is carried from call to call."""
    module = c.build(dropout=0.5, **changes).double()
    first = module.call(*args)
    if not torch.equal(first, module.call(*args)):
        raise Wrong(
            "In evaluation mode the output changes from call to call: dropout must be off there.",
            "dropout_in_eval",
        )
    module = c.build(dropout=0.0, **changes).double()
    module.train(True)
    if not torch.equal(module.call(*args), module.call(*args)):
        raise Wrong(
            "With dropout=0.0 two calls in training mode differ: something is left to chance that this rate does not reach.",
            "dropout_argument_ignored",
        )


def right_rate(scale: float) -> None:
    """What dropout with _RATE keeps is multiplied by 1 / (1 − rate)."""
    right = 1 / (1 - _RATE)
    if abs(scale - right) < 1e-3:
        return
    if abs(scale - 1) < 1e-3:
        raise Wrong(
            "What dropout keeps should be divided by 1 − rate; yours keeps its size.", "dropout_not_rescaled"
        )
    if abs(scale - 1 / _RATE) < 1e-3:
        raise Wrong(
            "`dropout` is the share that is dropped; yours is the share that is kept.",
            "dropout_is_share_kept",
        )
    raise Wrong(
        f"With dropout={_RATE} what is kept should be multiplied by 1/(1 − {_RATE}) = {right:.3g}; yours is by {scale:.3g}.",
        "dropout_rate_wrong",
    )


def known_row(features: int) -> Tensor:
    """A row of mean 0 and variance 1, which a LayerNorm with gain 1 and shift 0 leaves as it is."""
    row = torch.tensor([1.0, -1, 2, -2, 0.5, 3, -3, -0.5], dtype=torch.float64)[-features:]
    return F.layer_norm(row, (features,))


def added(out: Tensor, row: Tensor) -> Tensor:
    """What was added to `row` in all features but the last three, for each row of `out`.

    Norms with gain 1 and shift 0 may have followed: in each row they are affine, and the last three features, to which
    nothing is added, tell how.
    """
    last = out[:, -1:]
    before = (out - last) * (row[-3] - row[-1]) / (out[:, -3:-2] - last) + row[-1]
    if not torch.allclose(before[:, -3:], row[-3:].expand(len(out), 3), atol=1e-3):
        raise Wrong(
            "Where the sublayers give 0, dropout changes something in training: it acts on x, too; it belongs on what the sublayers give.",
            "dropout_on_the_path_of_x",
        )
    return before[:, :-3] - row[:-3]


def same_parameter_gradients(
    c: Context, ours: Any, theirs: nn.Module, probes: list[Probe], what: str
) -> None:
    """The gradients of paired parameters are equal."""
    values, got = ours.respond(probes, c.seed)
    wanted, want = c.respond(theirs, probes)
    if not torch.allclose(got, want, rtol=1e-4, atol=1e-5 * float(want.max())):
        right = all(
            torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
            for a, b in zip(values, wanted, strict=True)
        )
        raise Wrong(
            f"{what} gives the right output, but gradients of its parameters are wrong: is something cut off by detach, .data or no_grad?",
            "gradient_cut_off" if right else None,
        )


# -- feed-forward --------------------------------------------------------------------------------------------------------

FEED_FORWARD = (
    Mistake("no_relu", "activation", "There is no ReLU between the two linear maps: together they are only one linear map."),
    Mistake("relu_after_second", "activation", "The ReLU stands after the second linear map; it belongs between the two."),
    Mistake("relu_on_both", "activation", "There is a second ReLU, on the result; only the hidden features get one."),
    Mistake("relu_on_input", "activation", "The ReLU acts on the input; it belongs on the hidden features, after the first map."),
    Mistake("gelu", "activation", "The non-linearity is GELU; this is the other convention (of BERT and GPT), the paper has ReLU."),
    Mistake("gelu_tanh", "activation", "The non-linearity is GELU (its tanh form); this is the other convention (of GPT-2), the paper has ReLU."),
    Mistake("silu", "activation", "The non-linearity is SiLU (swish); this is another convention, the paper has ReLU."),
    Mistake("leaky_relu", "activation", "The non-linearity is a leaky ReLU: negative features should become exactly 0."),
    Mistake("sigmoid", "activation", "The non-linearity is a sigmoid; it should be ReLU."),
    Mistake("tanh", "activation", "The non-linearity is tanh; it should be ReLU."),
    Mistake("elu", "activation", "The non-linearity is ELU; it should be ReLU."),
    Mistake("softplus", "activation", "The non-linearity is softplus; it should be ReLU."),
    Mistake("relu6", "activation", "The hidden features are cut off at 6 (ReLU6); ReLU has no upper end."),
    Mistake("absolute_value", "activation", "The hidden features are made positive by their absolute value; ReLU makes negative ones 0."),
    Mistake("quick_gelu", "activation", "The non-linearity is h · sigmoid(1.702 h), an approximation of GELU; the paper has ReLU."),
    Mistake("selu", "activation", "The non-linearity is SELU; it should be ReLU."),
    Mistake("mish", "activation", "The non-linearity is Mish; it should be ReLU."),
    Mistake("hardswish", "activation", "The non-linearity is hard-swish; it should be ReLU."),
    Mistake("negative_part", "activation", "The hidden features keep their negative part, min(0, h); it should be max(0, h)."),
    Mistake("squared_relu", "activation", "The ReLU is squared; it should be max(0, h) itself."),
    Mistake("softmax_for_relu", "activation", "There is a softmax over the hidden features where the ReLU belongs."),
    Mistake("no_first_bias", "biases", "The first linear map has no bias b₁."),
    Mistake("no_second_bias", "biases", "The second linear map has no bias b₂."),
    Mistake("no_biases", "biases", "The two linear maps have no biases b₁ and b₂."),
    Mistake("d_ff_ignored", "width", "The hidden width is 4·d_model whatever d_ff says."),
    Mistake("hidden_width_d_model", "width", "The hidden width is d_model; it should be d_ff."),
    Mistake("weights_tied", "weights", "The second map is the first one transposed; each has weights of its own."),
    Mistake("extra_hidden_layer", "weights", "There is one more layer (d_ff, d_ff) between the two linear maps."),
    Mistake("gated", "weights", "The hidden features are multiplied by a second, linear branch (a gated unit); that is another design, the paper has max(0, xW₁ + b₁)W₂ + b₂."),
    Mistake("mixes_positions", "positions", "Neighbouring positions are mixed (a convolution wider than 1); each position is to be treated alone."),
    Mistake("feed_forward_residual_inside", "ff_extra", "The input is added to the feed-forward's result: the residual connection is not part of it."),
    Mistake("residual_and_norm_inside", "ff_extra", "The feed-forward adds its input and normalises the sum: the residual connection and its LayerNorm are not part of it."),
    Mistake("norm_of_input_inside", "ff_extra", "There is a LayerNorm on the input inside the feed-forward; it is not part of it."),
    Mistake("norm_inside", "ff_extra", "There is a LayerNorm inside the feed-forward; it is not part of it."),
)  # fmt: skip
_RARE = (
    "quick_gelu",
    "selu",
    "mish",
    "hardswish",
    "norm_of_input_inside",
)  # a search in a layer has less time
FEED_FORWARD_INSIDE = tuple(
    m for m in FEED_FORWARD if m.id not in (*_RARE, "relu6")
)  # behind a norm nothing grows to 6

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "no_relu": lambda h: h,
    "relu_after_second": lambda h: h,
    "relu_on_input": lambda h: h,
    "gelu": F.gelu,
    "gelu_tanh": lambda h: F.gelu(h, approximate="tanh"),
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": F.elu,
    "softplus": F.softplus,
    "relu6": F.relu6,
    "absolute_value": torch.abs,
    "quick_gelu": lambda h: h * torch.sigmoid(1.702 * h),
    "selu": F.selu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "negative_part": lambda h: h.clamp(max=0),
    "squared_relu": lambda h: h.relu() ** 2,
    "softmax_for_relu": lambda h: h.softmax(-1),
}


def feed_forward(on: frozenset[str]) -> type[nn.Module]:
    """PositionwiseFeedForward with the mistakes in `on`; without any, right."""
    activation = next((f for name, f in _ACTIVATIONS.items() if name in on), torch.relu)

    class PositionwiseFeedForward(nn.Module):
        def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
            super().__init__()
            width = {"d_ff_ignored": 4 * d_model, "hidden_width_d_model": d_model}
            d_ff = next((w for name, w in width.items() if name in on), d_ff)
            self.linear_1 = nn.Linear(d_model, d_ff, bias=not {"no_first_bias", "no_biases"} & on)
            if "gated" in on:
                self.gate = nn.Linear(d_model, d_ff)
            if "mixes_positions" in on:
                self.linear_1 = nn.Conv1d(d_model, d_ff, 3, padding=1)  # type: ignore[assignment]
            if "extra_hidden_layer" in on:
                self.middle = nn.Linear(d_ff, d_ff)
            if "weights_tied" in on:
                self.bias_2 = nn.Parameter(torch.zeros(d_model))
            else:
                self.linear_2 = nn.Linear(d_ff, d_model, bias=not {"no_second_bias", "no_biases"} & on)
            if {"norm_inside", "norm_of_input_inside", "residual_and_norm_inside"} & on:
                self.norm = nn.LayerNorm(d_model)
            self.dropout = nn.Dropout(dropout)

        def forward(self, x: Tensor) -> Tensor:
            source = x
            if "relu_on_input" in on:
                x = x.relu()
            if "norm_of_input_inside" in on:
                x = self.norm(x)
            if "mixes_positions" in on:
                hidden = self.linear_1(x.transpose(1, 2)).transpose(1, 2)
            else:
                hidden = self.linear_1(x)
            hidden = activation(hidden)
            if "gated" in on:
                hidden = hidden * self.gate(x)
            if "extra_hidden_layer" in on:
                hidden = self.middle(hidden).relu()
            hidden = self.dropout(hidden)
            out = (
                hidden @ self.linear_1.weight + self.bias_2 if "weights_tied" in on else self.linear_2(hidden)
            )
            if {"relu_after_second", "relu_on_both"} & on:
                out = out.relu()
            if {"feed_forward_residual_inside", "residual_and_norm_inside"} & on:
                out = out + source
            if {"norm_inside", "residual_and_norm_inside"} & on:
                out = self.norm(out)
            return out

    return PositionwiseFeedForward


def _ff_shape(c: Context) -> None:
    got = one_tensor(c.build().call(c.randn(2, 5, 6)))
    if got.shape == (2, 5, 13):
        raise Wrong("The hidden features come out; the second map leads back to d_model.", "returns_hidden")
    c.expect(got, torch.zeros(2, 5, 6), "the output", axes="batch position d_model", atol=math.inf)


def _ff_registered(c: Context) -> None:
    registered(c, "d_model·d_ff + d_ff and d_ff·d_model + d_model (d_model 6, d_ff 13)")


def _ff_values(c: Context) -> None:
    c.twin()


def _ff_positions(c: Context) -> None:
    module, x = c.build().double(), c.randn(3, 5, 6, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 2, 1])
    c.expect(
        module.call(x[:, order]), module.call(x)[:, order], "the output of permuted positions",
        axes="batch position d_model", mistake="mixes_positions",
    )  # fmt: skip
    c.expect(module.call(x[:, 1:2]), module.call(x)[:, 1:2], "the output of one position alone")


def _ff_gradients(c: Context) -> None:
    ours, theirs = c.twin()
    x = c.randn(2, 5, 6, dtype=torch.float64)
    c.same_gradients(x, wrt={"x": 0}, ours=ours, theirs=theirs)
    same_parameter_gradients(c, ours, theirs, [Probe((x,))], "The feed-forward")


def _ff_dropout(c: Context) -> None:
    """From a row's six features its three hidden ones are known: each should be 0, or divided by 1 − rate."""
    same_every_time(c, c.randn(2, 5, 6, dtype=torch.float64))
    ours, theirs = c.twin(d_ff=3, dropout=_RATE)
    hidden = torch.zeros(3)
    while not bool((hidden > 0.1).all()):  # all three features alive
        x = 2 * c.randn(1, 1, 6, dtype=torch.float64).expand(1, 400, 6).clone()
        hidden = theirs.linear_1(x[0, 0]).relu().detach()
    full = theirs(x)[0, 0].detach()
    ours.train(True)
    rows, again = ours.call(x)[0], ours.call(x)[0]
    ours.train(False)
    if torch.allclose(rows, full.expand_as(rows)):
        raise Wrong(f"In training mode dropout={_RATE} changes nothing.", "dropout_unused")
    if torch.equal(rows, again):
        raise Wrong(
            "Two calls in training mode drop the same: each call draws anew.", "dropout_not_drawn_anew"
        )
    second, bias = theirs.linear_2.weight.detach(), theirs.linear_2.bias.detach()
    ratio = (rows - bias) @ torch.linalg.pinv(second).T / hidden  # (400, 3)
    if not torch.allclose(ratio * hidden @ second.T + bias, rows):  # no hidden features give these rows
        if not bool((rows == 0).any()):
            raise Wrong(_NO_DROPOUT, "dropout_misplaced")
        if all(torch.allclose(kept, kept[:1]) for kept in (column[column != 0] for column in rows.T)):
            raise Wrong("Dropout acts on the result; it belongs after the ReLU.", "dropout_on_output")
        raise Wrong("Dropout acts on the result too; it belongs after the ReLU alone.", "dropout_twice")
    kept = ratio.abs() > 1e-6
    scale = ratio[kept].mean() if bool(kept.any()) else ratio.new_zeros(())
    if not bool(kept.any()) or not torch.allclose(ratio[kept], scale):
        patterns = torch.tensor(list(product((0.0, 1 / (1 - _RATE)), repeat=6)), dtype=torch.float64)
        if _among(rows, theirs(patterns * x[0, 0]).detach()):
            raise Wrong("Dropout acts on the input; it belongs after the ReLU.", "dropout_on_input")
        raise Wrong(_NO_DROPOUT, "dropout_misplaced")
    right_rate(float(scale))
    share = float(kept.all(1).double().mean())
    if not 0.25 < share < 0.6:
        raise Wrong(
            f"With dropout={_RATE} about {(1 - _RATE) ** 3:.0%} of rows keep all three features; {share:.0%} of yours do: each number should be drawn on its own.",
            "dropout_not_independent",
        )


_NO_DROPOUT = "In training each hidden feature, after the ReLU, should be set to 0 or divided by 1 − rate; yours does something else."


def _among(rows: Tensor, possible: Tensor) -> bool:
    return bool((torch.cdist(rows, possible).min(dim=1).values < 1e-6).all())


def _ff_default(c: Context) -> None:
    defaults(c, dropout=0.0)
    module, x = c.build(), c.randn(2, 5, 6)
    module.train(True)
    if not torch.equal(module.call(x), module.call(x)):
        raise Wrong("Without the argument dropout there should be none.", "default_of_dropout")


def _ff_kept(c: Context) -> None:
    inputs_kept(c, c.randn(2, 5, 6, dtype=torch.float64))


# -- LayerNorm -----------------------------------------------------------------------------------------------------------

NORM = (
    Mistake("unbiased_variance", "variance", "The variance is divided by d_model − 1 (the unbiased one, the default of torch.var and torch.std); it should be divided by d_model."),
    Mistake("variance_not_divided", "variance", "The sum of squared deviations is not divided by d_model."),
    Mistake("mean_absolute_deviation", "variance", "The spread is the mean absolute deviation; it should be the root of the variance."),
    Mistake("variance_about_zero", "variance", "The mean of squares is used for the variance: subtract the mean before squaring."),
    Mistake("eps_outside_root", "root", "eps is added to the standard deviation, outside the root; it belongs inside: √(variance + eps)."),
    Mistake("no_root", "root", "The deviations are divided by the variance; it should be by its square root."),
    Mistake("root_of_deviation", "root", "The root is taken of the standard deviation; it should be of the variance."),
    Mistake("no_eps", "root", "eps is not used: a row of equal values gives NaN."),
    Mistake("eps_squared", "root", "The square of eps is added to the variance; eps itself is asked for."),
    Mistake("eps_ignored", "root", "eps is 1e-5 whatever the argument says."),
    Mistake("eps_is_least_variance", "root", "eps is used as the least variance, max(variance, eps); it should be added: √(variance + eps)."),
    Mistake("largest_deviation", "root", "The deviations are divided by the largest of them; it should be by the standard deviation."),
    Mistake("not_divided", "root", "The mean is subtracted, but nothing is divided by the standard deviation."),
    Mistake("no_centring", "mean", "The mean is not subtracted (this is RMSNorm, another convention): LayerNorm subtracts it."),
    Mistake("brackets_missing", "mean", "Brackets are missing: x − mean/√(variance + eps); it should be (x − mean)/√(variance + eps)."),
    Mistake("brackets_missing_before_gain", "mean", "Brackets are missing: x − mean/√(variance + eps)·gain + shift; it should be (x − mean)/√(variance + eps)·gain + shift."),
    Mistake("median_subtracted", "mean", "The median is subtracted; it should be the mean."),
    Mistake("mean_not_subtracted", "mean", "The values are divided by the deviation, but the mean is not subtracted from them."),
    Mistake("norm_over_sequence_and_features", "norm_axis", "Mean and variance run over positions and features together; each position is normalised alone, over its features."),
    Mistake("norm_over_sequence", "norm_axis", "Mean and variance run over the positions; they run over the features of one position."),
    Mistake("norm_over_batch", "norm_axis", "Mean and variance run over the batch; they run over the features of one position."),
    Mistake("norm_over_everything", "norm_axis", "Mean and variance run over the whole tensor; they run over the features of one position."),
    Mistake("scalar_gain_and_shift", "gain", "Gain and shift are single numbers; each feature has its own, so both have size d_model."),
    Mistake("scalar_gain", "gain", "The gain is a single number; each feature has its own."),
    Mistake("scalar_shift", "gain", "The shift is a single number; each feature has its own."),
    Mistake("no_gain", "gain", "There is no gain, or it is not used."),
    Mistake("no_shift", "gain", "There is no shift, or it is not used."),
    Mistake("no_gain_and_shift", "gain", "There are no gain and shift, or they are not used."),
    Mistake("gain_after_shift", "affine", "The shift is added before the gain is multiplied: (x̂ + shift)·gain; it should be x̂·gain + shift."),
    Mistake("affine_before_norm", "affine", "Gain and shift act on x before it is normalised; they belong after it."),
    Mistake("gain_plus_one", "affine", "The result is multiplied by 1 + gain; it should be by gain, which starts at one."),
    Mistake("shift_subtracted", "affine", "The shift is subtracted; it should be added."),
    Mistake("divided_by_gain", "affine", "The result is divided by the gain; it should be multiplied by it."),
)  # fmt: skip
BOTH = Mistake("unbiased_variance+eps_outside_root", "variance", "Your LayerNorm divides by std + eps with the unbiased std: the variance should be divided by d_model, and eps belongs inside the root.")  # fmt: skip


def layer_norm(on: frozenset[str]) -> type[nn.Module]:
    """LayerNorm with the mistakes in `on`; without any, right. "norm_eps_…" stand for a smaller eps, a matter of taste."""
    if BOTH.id in on:
        on = on | {"unbiased_variance", "eps_outside_root"}
    axes = {"norm_over_sequence_and_features": (-2, -1), "norm_over_sequence": (-2,), "norm_over_batch": (0,)}

    class LayerNorm(nn.Module):
        def __init__(self, d_model: int, eps: float = 1e-5) -> None:
            super().__init__()
            self.eps = 1e-5 if "eps_ignored" in on else eps
            if "norm_eps_1e-6" in on or "norm_eps_1e-12" in on:
                self.eps = 1e-6 if "norm_eps_1e-6" in on else 1e-12
            one = "scalar_gain_and_shift" in on
            if not {"no_gain", "no_gain_and_shift"} & on:
                self.gain = nn.Parameter(torch.ones(1 if one or "scalar_gain" in on else d_model))
            if not {"no_shift", "no_gain_and_shift"} & on:
                self.shift = nn.Parameter(torch.zeros(1 if one or "scalar_shift" in on else d_model))

        def forward(self, x: Tensor) -> Tensor:
            axis = next((a for name, a in axes.items() if name in on), (-1,))
            gain, shift = getattr(self, "gain", 1.0), getattr(self, "shift", 0.0)
            if "affine_before_norm" in on:
                x = x * gain + shift
            if "norm_over_everything" in on:
                axis = tuple(range(x.dim()))
            mean = x.mean(axis, keepdim=True)
            centred = x if "no_centring" in on else x - mean
            if "unbiased_variance" in on:
                count = math.prod(x.shape[a] for a in axis)
                variance = centred.square().sum(axis, keepdim=True) / (count - 1)
            elif "variance_not_divided" in on:
                variance = centred.square().sum(axis, keepdim=True)
            elif "mean_absolute_deviation" in on:
                variance = centred.abs().mean(axis, keepdim=True).square()
            else:
                square = (x if "variance_about_zero" in on else centred).square()
                variance = square.mean(axis, keepdim=True)
            if "eps_outside_root" in on:
                deviation = variance.sqrt() + self.eps
            elif "no_root" in on:
                deviation = variance + self.eps
            elif "root_of_deviation" in on:
                deviation = (variance.sqrt() + self.eps).sqrt()
            elif "no_eps" in on:
                deviation = variance.sqrt()
            elif "eps_squared" in on:
                deviation = (variance + self.eps**2).sqrt()
            elif "eps_is_least_variance" in on:
                deviation = variance.clamp(min=self.eps).sqrt()
            elif "largest_deviation" in on:
                deviation = centred.abs().amax(axis, keepdim=True) + self.eps
            elif "not_divided" in on:
                deviation = torch.ones_like(variance)
            else:
                deviation = (variance + self.eps).sqrt()
            out = (x if "mean_not_subtracted" in on else centred) / deviation
            if "affine_before_norm" in on:
                return out
            if "brackets_missing" in on:
                out = x - mean / deviation
            if "brackets_missing_before_gain" in on:
                return x - mean / deviation * gain + shift
            if "median_subtracted" in on:
                out = (x - x.median(-1, keepdim=True).values) / deviation
            if "gain_after_shift" in on:
                return (out + shift) * gain
            if "divided_by_gain" in on:
                return out / gain + shift
            if "gain_plus_one" in on:
                gain = 1 + gain
            return out * gain - shift if "shift_subtracted" in on else out * gain + shift

    return LayerNorm


def _norm_probes(seed: int) -> list[Probe]:
    x = normal(seed, 3, 5, 6)
    scales = torch.tensor([1.0, 3.0, 0.02, 0.3, 10.0], dtype=torch.float64)[:, None]
    return [Probe((x * scales + normal(seed + 1, 3, 5, 1),)), Probe((0.003 * x + 0.5,))]


def _norm_shape(c: Context) -> None:
    x = c.randn(3, 5, 6)
    got = one_tensor(c.build().call(x))
    c.expect(got, x, "the output", axes="batch position d_model", atol=math.inf)
    c.expect(
        got, F.layer_norm(x, (6,)), "the output of a fresh module, with gain one and shift zero,",
        axes="batch position d_model", rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def _norm_start(c: Context) -> None:
    """A module that computes the right formula and is wrong when fresh starts with a wrong gain or shift."""
    x = c.randn(3, 5, 6, dtype=torch.float64)
    got, right = c.build().double().call(x), F.layer_norm(x, (6,))
    if torch.allclose(got, right, atol=1e-6):
        return
    c.twin()
    if not bool(got.any()):
        raise Wrong("The gain starts at zero, so a fresh module gives zeros; it should start at one.", "gain_starts_at_zero")  # fmt: skip
    if torch.allclose(got, right + 1, atol=1e-6):
        raise Wrong("The shift starts at one; it should start at zero.", "shift_starts_at_one")
    raise Wrong("Gain and shift should start at one and zero in every feature; yours do not.", "wrong_start")


def _norm_registered(c: Context) -> None:
    registered(c, "gain and shift, each of size d_model = 6")


def _norm_values(c: Context) -> None:
    c.twin()


def _norm_eps(c: Context) -> None:
    """eps = 0.1 is far from negligible; 1e-5 shows where the variance is small."""
    ours, theirs = c.twin(eps=0.1)
    x = c.randn(3, 5, 6, dtype=torch.float64)
    c.expect(ours.call(x), theirs(x), "the output for eps = 0.1", axes="batch position d_model")


def _norm_default(c: Context) -> None:
    defaults(c, eps=1e-5)
    module, x = c.build().double(), 0.003 * c.randn(3, 5, 6, dtype=torch.float64)
    got = module.call(x)
    for eps in (1e-6, 1e-8, 1e-12, 1e-3, 1e-4):
        if torch.allclose(got, F.layer_norm(x, (6,), eps=eps), atol=1e-7):
            raise Wrong(f"Without the argument, eps should be 1e-5; yours is {eps:g}.", "default_of_eps")
    c.expect(
        got, F.layer_norm(x, (6,)), "the output for small inputs and the default eps", rtol=1e-5, atol=1e-7
    )


def _norm_alone(c: Context) -> None:
    module, x = c.build().double(), c.randn(3, 5, 6, dtype=torch.float64)
    whole = module.call(x)
    one = shows("fixed_shape", lambda: module.call(x[:, 2:3]))
    c.expect(one, whole[:, 2:3], "the output of position 2 alone", axes="batch position d_model")
    c.expect(module.call(x[1:2]), whole[1:2], "the output of sample 1 alone", axes="batch position d_model")


def _norm_equal(c: Context) -> None:
    module = c.build().double()
    got, grads = module.gradients(torch.full((2, 3, 6), 2.5, dtype=torch.float64), wrt=[0])
    c.expect(
        got, torch.zeros(2, 3, 6, dtype=torch.float64), "the output for a row of equal values", mistake=None
    )
    if not bool(grads[0].isfinite().all()):
        raise Wrong(
            "For a row of equal values the gradient is not finite: put eps inside the root.",
            "gradient_not_finite",
        )


def _norm_gradients(c: Context) -> None:
    ours, theirs = c.twin()
    x = c.randn(2, 5, 6, dtype=torch.float64)
    value, (got,) = ours.gradients(x, wrt=[0], seed=c.seed)
    if torch.allclose(value, theirs(x), rtol=1e-6):
        leaf = x.clone().requires_grad_()
        mean, deviation = x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        live_mean = leaf.mean(-1, keepdim=True)
        live = ((leaf - live_mean).square().mean(-1, keepdim=True) + 1e-5).sqrt()
        from txcourse.checking.subject import cotangent

        for cut in ((leaf - mean) / deviation, (leaf - mean) / live, (leaf - live_mean) / deviation):
            out = cut * theirs.gain.detach() + theirs.shift.detach()
            direction = cotangent(out.shape, c.seed)
            (wrong,) = torch.autograd.grad((out * direction).sum(), leaf, retain_graph=True)
            if torch.allclose(got, wrong, atol=1e-9):
                raise Wrong(
                    "The gradient ignores that mean or variance depend on x (detach, .data or no_grad?).",
                    "statistics_detached",
                )
    c.same_gradients(x, wrt={"x": 0}, ours=ours, theirs=theirs)
    same_parameter_gradients(c, ours, theirs, [Probe((x,))], "LayerNorm")


def _norm_kept(c: Context) -> None:
    inputs_kept(c, c.randn(2, 5, 6, dtype=torch.float64))


def _norm_modes(c: Context) -> None:
    """The same in training and evaluation, and after other inputs: no running averages."""
    module, x = c.build().double(), c.randn(2, 5, 6, dtype=torch.float64)
    first = module.call(x)
    module.train(True)
    module.call(c.randn(2, 5, 6, dtype=torch.float64) + 3)
    during = module.call(x)
    module.train(False)
    if not torch.allclose(first, during) or not torch.allclose(first, module.call(x)):
        raise Wrong(
            "The output depends on the mode or on earlier inputs: LayerNorm keeps no averages.", "keeps_state"
        )


# -- residual connection -------------------------------------------------------------------------------------------------

_Path = Callable[[Tensor, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], Tensor]

# form → (its sentence, in post-norm, in pre-norm); the first column of functions is what a post-norm branch computes
FORMS: dict[str, tuple[str, _Path, _Path]] = {
    "no_residual": ("x is not added to the sublayer's output.", lambda x, f, n: n(f(x)), lambda x, f, n: f(n(x))),
    "no_norm": ("There is no LayerNorm.", lambda x, f, n: x + f(x), lambda x, f, n: x + f(x)),
    "norm_on_sublayer_output": ("LayerNorm acts on the sublayer's output alone: x + LayerNorm(Sublayer(x)).", lambda x, f, n: x + n(f(x)), lambda x, f, n: x + n(f(x))),
    "residual_is_normed": ("The residual path carries LayerNorm(x) where it should carry x.", lambda x, f, n: n(x) + f(n(x)), lambda x, f, n: n(x) + f(n(x))),
    "norm_on_residual_only": ("LayerNorm acts on x alone: LayerNorm(x) + Sublayer(x).", lambda x, f, n: n(x) + f(x), lambda x, f, n: n(x) + f(x)),
    "norm_before_and_after": ("LayerNorm acts twice: on the sublayer's input and on the sum.", lambda x, f, n: n(x + f(n(x))), lambda x, f, n: n(x + f(n(x)))),
    "norm_twice": ("LayerNorm acts twice on the sum.", lambda x, f, n: n(n(x + f(x))), lambda x, f, n: x + f(n(n(x)))),
    "output_added_to_itself": ("The sublayer's output is added to itself; it should be added to x.", lambda x, f, n: n(f(x) + f(x)), lambda x, f, n: 2 * f(n(x))),
    "subtracted": ("The sublayer's output is subtracted from x; it should be added.", lambda x, f, n: n(x - f(x)), lambda x, f, n: x - f(n(x))),
    "averaged": ("x and the sublayer's output are averaged; they should be added.", lambda x, f, n: n((x + f(x)) / 2), lambda x, f, n: (x + f(n(x))) / 2),
    "residual_added_twice": ("x is added twice.", lambda x, f, n: x + n(x + f(x)), lambda x, f, n: x + (x + f(n(x)))),
    "residual_after_norm": ("x is added after LayerNorm: x + LayerNorm(x + Sublayer(x)).", lambda x, f, n: x + n(x + f(x)), lambda x, f, n: x + n(x + f(x))),
    "sublayer_twice": ("The sublayer is applied twice.", lambda x, f, n: n(x + f(f(x))), lambda x, f, n: x + f(f(n(x)))),
    "sublayer_discarded": ("The sublayer's output is not used.", lambda x, f, n: n(x), lambda x, f, n: x),
    "multiplied": ("x is multiplied by the sublayer's output; it should be added.", lambda x, f, n: n(x * f(x)), lambda x, f, n: x * f(n(x))),
}  # fmt: skip
_RIGHT: dict[bool, _Path] = {False: lambda x, f, n: n(x + f(x)), True: lambda x, f, n: x + f(n(x))}
_WHERE = {"": "", "post_": "In post-norm: ", "pre_": "In pre-norm: "}


def forms(sublayer: str = "", words: str = "", chosen: Sequence[str] = tuple(FORMS)) -> tuple[Mistake, ...]:
    """Switches for a wrong path around `sublayer` (around every one if none is named), in both orders of the norm or in one."""
    found = []
    for form in chosen:
        orders = ["", "post_", "pre_"]
        if form == "averaged":  # a factor before the norm changes nothing
            orders = ["pre_"]
        elif form in ("output_added_to_itself", "residual_added_twice"):  # in post-norm the same as another
            orders = ["", "pre_"]
        found += [
            Mistake(f"{sublayer}{order}{form}", "path", f"{words}{_WHERE[order]}{FORMS[form][0]}")
            for order in orders
        ]
    return tuple(found)


def path(on: frozenset[str], norm_first: bool, *sublayer: str) -> _Path:
    """How x, sublayer and norm are put together with the mistakes in `on`, for the sublayer of this name."""
    order = "pre_" if norm_first else "post_"
    for form, (_, post, pre) in FORMS.items():
        if any(f"{name}{o}{form}" in on for name in ("", *sublayer) for o in ("", order)):
            return pre if norm_first else post
    return _RIGHT[norm_first]


FLAG = (
    Mistake("norm_first_ignored", "flag", "norm_first=True changes nothing: it is always post-norm, LayerNorm(x + Sublayer(x))."),
    Mistake("always_pre_norm", "flag", "It is always pre-norm, x + Sublayer(LayerNorm(x)): this is today's convention; the paper's, asked for unless norm_first=True, is LayerNorm(x + Sublayer(x))."),
    Mistake("norm_first_inverted", "flag", "Pre-norm and post-norm are exchanged: norm_first=False is LayerNorm(x + Sublayer(x)), True is x + Sublayer(LayerNorm(x))."),
)  # fmt: skip


def order(on: frozenset[str], norm_first: bool) -> bool:
    """The order of the norm that a layer with the mistakes in `on` uses."""
    if "norm_first_ignored" in on:
        return False
    return "always_pre_norm" in on or norm_first != ("norm_first_inverted" in on)


NORM_INSIDE = (
    NORM[0],
    BOTH,
    *(m for m in NORM[1:] if m.id not in ("eps_is_least_variance", "largest_deviation", "median_subtracted", "affine_before_norm", "eps_squared", "eps_ignored", "no_eps", "gain_after_shift", "shift_subtracted", "divided_by_gain")),
)  # fmt: skip
EPS = ("norm_eps_1e-6", "norm_eps_1e-12")  # a smaller eps inside a layer is a matter of taste


def _residual_variant(on: frozenset[str]) -> type[nn.Module]:
    class ResidualConnection(nn.Module):
        def __init__(self, d_model: int, dropout: float = 0.0, norm_first: bool = False) -> None:
            super().__init__()
            self.norm = layer_norm(on)(d_model)
            self.path = path(on, order(on, norm_first))
            self.dropout = nn.Dropout(dropout)

        def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
            return self.path(x, lambda y: self.dropout(sublayer(y)), self.norm)

    return ResidualConnection


def _sublayer(seed: int) -> Callable[[Tensor], Tensor]:
    weight, bias = normal(seed + 11, 6, 6), normal(seed + 12, 6)

    def sublayer(y: Tensor) -> Tensor:
        return torch.tanh(y @ weight.to(y.dtype) + bias.to(y.dtype)) * 1.5

    return sublayer


def _residual_probes(seed: int) -> list[Probe]:
    return [Probe((2 * normal(seed, 3, 5, 6) + 0.5, _sublayer(seed)))]


def _residual_shape(c: Context) -> None:
    for norm_first in (False, True):
        got = one_tensor(c.build(norm_first=norm_first).call(c.randn(2, 5, 6), _sublayer(c.seed)))
        c.expect(got, torch.zeros(2, 5, 6), "the output", axes="batch position d_model", atol=math.inf)


def _residual_registered(c: Context) -> None:
    registered(c, "one LayerNorm: gain and shift, each of size d_model = 6")


def _residual_post(c: Context) -> None:
    c.twin()


def _residual_pre(c: Context) -> None:
    c.twin(norm_first=True)


def _residual_calls(c: Context) -> None:
    """The sublayer is called once, with what it should be called with."""
    for norm_first in (False, True):
        calls: list[Tensor] = []

        def sublayer(y: Tensor, calls: list[Tensor] = calls) -> Tensor:
            calls.append(y.detach().clone())
            return 0.5 * y

        c.build(norm_first=norm_first).double().call(c.randn(2, 5, 6, dtype=torch.float64), sublayer)
        if len(calls) != 1:
            raise Wrong(f"The sublayer should be called once; yours calls it {len(calls)} times.", "sublayer_called_twice" if calls else "sublayer_not_called")  # fmt: skip


def _residual_gradients(c: Context) -> None:
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        x, f = c.randn(2, 5, 6, dtype=torch.float64), _sublayer(c.seed)
        value, (got,) = ours.gradients(x, f, wrt=[0], seed=c.seed)
        if torch.allclose(value, theirs(x, f), rtol=1e-6):
            from txcourse.checking.subject import cotangent

            for name, residual, branch in (
                ("residual_detached", x, None), ("sublayer_output_detached", None, x),
            ):  # fmt: skip
                leaf = x.clone().requires_grad_()
                path_x, into = leaf if residual is None else residual, leaf if branch is None else branch
                out = path_x + f(theirs.norm(into)) if setting else theirs.norm(path_x + f(into))
                (wrong,) = torch.autograd.grad((out * cotangent(out.shape, c.seed)).sum(), leaf)
                if torch.allclose(got, wrong, atol=1e-9):
                    what = "the residual path" if residual is not None else "the sublayer"
                    raise Wrong(f"No gradient flows through {what} (detach, .data or no_grad?).", name)
        c.same_gradients(x, f, wrt={"x": 0}, ours=ours, theirs=theirs)
        same_parameter_gradients(c, ours, theirs, [Probe((x, f))], "The residual connection")


def _residual_dropout(c: Context) -> None:
    x = c.randn(2, 5, 6, dtype=torch.float64)
    f = _sublayer(c.seed)
    for norm_first in (False, True):
        same_every_time(c, x, f, norm_first=norm_first)
        dropped(c, x, f, norm_first=norm_first, sublayers=1)
    row = known_row(6)
    one = torch.tensor([1.0, 1, 1, 0, 0, 0], dtype=torch.float64)
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(dropout=_RATE, **setting)
        with torch.no_grad():
            for name, parameter in theirs.named_parameters():
                parameter.fill_(name.endswith("gain"))
        c.copy_weights(ours, theirs)
        x = row.expand(_ROWS, 1, 6).contiguous()
        ours.train(True)
        outputs = [ours.call(x, lambda y: one * y[..., 3:4] / row[3])[:, 0] for _ in range(2)]
        ours.train(False)
        if torch.equal(*outputs):
            raise Wrong("Two calls in training mode drop the same: each call draws anew.", "dropout_not_drawn_anew")  # fmt: skip
        scale = added(outputs[0], row)  # (rows, 3): of what the sublayer gave
        kept = scale.abs() > 1e-3
        one_scale = bool(kept.any()) and torch.allclose(scale[kept], scale[kept][0], atol=1e-3)
        if not one_scale or float((~kept).all(1).double().mean()) > 0.1:
            raise Wrong("In training each number of the sublayer's output should be set to 0 or divided by 1 − rate, and nothing else; yours drops something else, too, or whole rows.", "dropout_misplaced")  # fmt: skip
        right_rate(float(scale[kept][0]))
        share = float(kept.all(1).double().mean())
        if not 0.3 < share < 0.55:
            raise Wrong(
                f"With dropout={_RATE} about {(1 - _RATE) ** 3:.0%} of rows keep all of three numbers; {share:.0%} of yours do: each number should be drawn on its own.",
                "dropout_not_independent",
            )


def dropped(c: Context, *args: Any, norm_first: bool, sublayers: int) -> None:
    """With all of the sublayers' outputs dropped, post-norm leaves LayerNorm(x), repeated, and pre-norm leaves x."""
    module = c.build(dropout=_ALMOST, norm_first=norm_first).double()
    x = 30 * args[0]  # beside which eps, any that is right, is nothing
    args = (x, *args[1:])
    quiet = module.call(*args)
    module.train(True)
    got = module.call(*args)
    module.train(False)
    want = x
    for _ in range(0 if norm_first else sublayers):
        want = F.layer_norm(want, x.shape[-1:])
    if torch.allclose(got, want, rtol=1e-4, atol=1e-4):
        return
    if torch.allclose(got, quiet, rtol=1e-9):
        raise Wrong("In training mode dropout changes nothing.", "dropout_unused")
    if torch.allclose(got, quiet, rtol=1e-5, atol=1e-5):
        raise Wrong(
            "With a rate of almost 1 nothing is dropped: `dropout` is the share that is dropped; yours is the share that is kept.",
            "dropout_is_share_kept",
        )
    c.twin(**({"norm_first": True} if norm_first else {}))  # another formula would explain it, too
    if not bool(got.any()):
        raise Wrong(
            "Dropout reaches x, too (through the sum or the result), so the residual path is lost; it belongs on the sublayer's output.",
            "dropout_on_the_sum",
        )
    if sublayers == 1 and norm_first and torch.allclose(got, x + args[1](torch.zeros_like(x))):
        raise Wrong(
            "Dropout acts on the sublayer's input; it belongs on its output.", "dropout_on_sublayer_input"
        )
    raise Wrong(
        "Dropout should act on each sublayer's output before x is added; with everything dropped, "
        + ("x should come out." if norm_first else "only the normed x should come out."),
        "no_dropout_on_sublayer_output",
    )


_INSIDE = {"self_attention": "weights of the self-attention", "cross_attention": "weights of the cross-attention",
           "feed_forward": "hidden features of the feed-forward"}  # fmt: skip


def dropped_inside(c: Context, inputs: int, norm_first: bool) -> None:
    """Attention weights, hidden features and the sublayers' outputs are dropped, each on its own with the rate that is given.

    One sublayer at a time gives anything: in all features but the last three the same number, a value of one head or one
    hidden feature. Dropout inside drops these together, dropout of the output each on its own, and what both keep has
    been divided by 1 − rate twice. `inputs`: the number of tensors that the module takes.
    """
    ours, theirs = c.twin(dropout=_RATE, **({"norm_first": True} if norm_first else {}))
    parameters = dict(theirs.named_parameters())
    row = known_row(8)
    ours.train(True)
    for last in [name for name in parameters if name.endswith(("w_o.weight", "linear_2.weight"))]:
        place = last.removesuffix("w_o.weight").removesuffix("linear_2.weight")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.fill_(name.endswith("gain"))
            parameters[last][:5, 0] = 1.0
            if last.endswith("w_o.weight"):
                parameters[place + "w_v.weight"][0, 5] = 1 / row[5]
            else:
                parameters[place + "linear_1.bias"][0] = 1.0
        c.copy_weights(ours, theirs)
        out = ours.call(*[row.expand(_ROWS, 1, 8).contiguous() for _ in range(inputs)])[:, 0]
        sublayer = place.split(".")[-2]
        layer = f" of layer {int(place.split('layers.')[1].split('.')[0]) + 1}" if "layers." in place else ""
        _twice_dropped(added(out, row), sublayer, layer)
    ours.train(False)


def _twice_dropped(scale: Tensor, sublayer: str, layer: str) -> None:
    """`scale` (rows, 5): the share of one number that arrives in five features, after dropout before and behind the copying."""
    what, name = _INSIDE[sublayer] + layer, sublayer.replace("_", "-") + layer
    kept, factor = scale.abs() > 1e-3, 1 / (1 - _RATE)
    got = float(scale[kept][0]) if bool(kept.any()) else 0.0
    if not torch.allclose(scale[kept], torch.tensor(got, dtype=scale.dtype), atol=1e-3):
        raise Wrong(
            f"In training dropout should set numbers to 0 or divide them by 1 − rate; in the {name} it does something else.",
            "dropout_misplaced",
        )
    together = bool((kept.all(1) == kept.any(1)).all())
    lost = float((~kept).all(1).double().mean())  # a quarter: the number itself is dropped
    if bool(kept.all()) and abs(got - 1) < 1e-3:
        raise Wrong(f"No dropout reaches the {name}: neither its inside nor its output.", "no_dropout_in_sublayer")  # fmt: skip
    if together and 0.15 < lost < 0.35:
        raise Wrong(
            f"The output of the {name} is not dropped in training: dropout acts before x is added.",
            "no_dropout_on_sublayer_output",
        )
    if lost < 0.035:
        raise Wrong(
            f"The {what} are not dropped in training: hand `dropout` on to that part.",
            "no_dropout_on_hidden_features"
            if sublayer == "feed_forward"
            else f"no_dropout_on_{sublayer}_weights",
        )
    if abs(got - factor**2) > 1e-3 or not 0.15 < lost < 0.35:
        raise Wrong(
            f"With dropout={_RATE} the {what} and its output should be dropped once each, so that what is kept is multiplied by 1/(1 − {_RATE})² = {factor**2:.3g}; yours is by {got:.3g}.",
            "dropout_rate_wrong",
        )


def _residual_default(c: Context) -> None:
    defaults(c, dropout=0.0, norm_first=False)
    module, x = c.build(), c.randn(2, 5, 6)
    module.train(True)
    if not torch.equal(module.call(x, _sublayer(c.seed)), module.call(x, _sublayer(c.seed))):
        raise Wrong("Without the argument dropout there should be none.", "default_of_dropout")


def _residual_kept(c: Context) -> None:
    x = c.randn(2, 5, 6, dtype=torch.float64)
    inputs_kept(c, x, _sublayer(c.seed), norm_first=True)
    for norm_first in (False, True):
        after = c.build(norm_first=norm_first).double().observe(x, nn.Identity())[1][0]
        if not torch.equal(x, after):
            raise Wrong(
                "With a sublayer that gives its input back, your code changes x: it adds in place to what the sublayer gave.",
                "changes_its_input",
            )


_exercise = partial(Exercise, notebook="07_feed_forward_and_residuals")

EXERCISES = (
    _exercise(
        name="PositionwiseFeedForward",
        points=2,
        difficulty=1,
        minutes=10,
        hints=(
            "What would two linear maps in a row be without anything between them?",
            "One linear map to d_ff features, ReLU, dropout, one linear map back to d_model.",
            "return self.linear_2(self.dropout(self.linear_1(x).relu()))",
        ),
        reference=solutions.PositionwiseFeedForward,
        tests=(
            Test("shape", "gives (B, T, d_model)", _ff_shape),
            Test("registered", "has two linear maps with biases that PyTorch sees", _ff_registered),
            Test("positions", "treats each position alone, all in the same way", _ff_positions),
            Test("values", "equals max(0, xW₁ + b₁)W₂ + b₂ for equal weights", _ff_values),
            Test("gradients", "has the right gradients", _ff_gradients),
            Test("dropout", "drops hidden features in training, nothing in evaluation", _ff_dropout),
            Test("default", "drops nothing unless told to", _ff_default),
            Test("inputs_kept", "leaves its input as it was, contiguous or not", _ff_kept),
        ),
        mistakes=FEED_FORWARD,
        variant=feed_forward,
        probes=lambda seed: [Probe((4 * normal(seed, 2, 5, 6),)), Probe((normal(seed + 1, 2, 5, 6),))],
        sizes={"d_model": 6, "d_ff": 13},
    ),
    _exercise(
        name="LayerNorm",
        points=2,
        difficulty=1,
        minutes=12,
        hints=(
            "Over which numbers do mean and variance run: those of a batch, of a sentence, of one position?",
            "torch.var divides by n − 1 unless told otherwise (correction=0), and reductions need keepdim=True.",
            "(x - mean) / (variance + self.eps).sqrt() * self.gain + self.shift",
        ),
        reference=solutions.LayerNorm,
        tests=(
            Test("shape", "a fresh module normalises each position", _norm_shape),
            Test("start", "gain starts at one, shift at zero", _norm_start),
            Test("registered", "has gain and shift of size d_model that PyTorch sees", _norm_registered),
            Test("alone", "treats each position and sample alone", _norm_alone),
            Test("values", "equals (x − mean) / √(variance + eps) · gain + shift", _norm_values),
            Test("eps", "uses the eps that it is given, inside the root", _norm_eps),
            Test("default", "has eps = 1e-5 unless told otherwise", _norm_default),
            Test("equal", "gives zeros, and finite gradients, for a row of equal values", _norm_equal),
            Test("gradients", "has the right gradients", _norm_gradients),
            Test("modes", "is the same in training and evaluation", _norm_modes),
            Test("inputs_kept", "leaves its input as it was, contiguous or not", _norm_kept),
        ),
        mistakes=NORM,
        variant=layer_norm,
        probes=_norm_probes,
        sizes={"d_model": 6},
        settings=({}, {"eps": 0.1}),
        not_allowed=("nn.LayerNorm", "F.layer_norm"),
    ),
    _exercise(
        name="ResidualConnection",
        points=2,
        difficulty=1,
        minutes=12,
        hints=(
            "Where does the gradient go when the sublayer gives zeros?",
            "Post-norm normalises the sum; pre-norm normalises what goes into the sublayer and leaves the sum alone. Dropout acts on the sublayer's output in both.",
            "x + self.dropout(sublayer(self.norm(x))) if self.norm_first else self.norm(x + self.dropout(sublayer(x)))",
        ),
        reference=solutions.ResidualConnection,
        tests=(
            Test("shape", "gives (B, T, d_model)", _residual_shape),
            Test("registered", "has one LayerNorm that PyTorch sees", _residual_registered),
            Test("post_norm", "post-norm: equals LayerNorm(x + Sublayer(x))", _residual_post),
            Test("pre_norm", "pre-norm: equals x + Sublayer(LayerNorm(x))", _residual_pre),
            Test("calls", "calls the sublayer once", _residual_calls),
            Test("gradients", "gradients flow through both paths", _residual_gradients),
            Test("dropout", "drops the sublayer's output in training, nothing in evaluation", _residual_dropout),
            Test("default", "is post-norm without dropout unless told otherwise", _residual_default),
            Test("inputs_kept", "leaves its input as it was, contiguous or not", _residual_kept),
        ),
        mistakes=(*FLAG, *forms(), *NORM_INSIDE),
        variant=_residual_variant,
        probes=_residual_probes,
        sizes={"d_model": 6},
        settings=({}, {"norm_first": True}),
        neutral=EPS,
        eps=1e-5,
        also_right=tuple(frozenset([eps]) for eps in EPS),
    ),
)  # fmt: skip
