"""Exercises of 12_training."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.compare import difference
from txcourse.checking.guard import CandidateError
from txcourse.checking.toys import GradientDescent, Translator
from txcourse.solutions import training as solutions


def number(value: Any) -> Any:
    """Tensors and arrays of one number as a float; anything else as it is."""
    if isinstance(value, Tensor | np.ndarray | np.number) and value.ndim == 0:
        return float(value)
    return value


# -- the loss --------------------------------------------------------------------------------------------------------

_LOSS = (
    Mistake("no_smoothing", "target", "`smoothing` has no effect: the target is one-hot."),
    Mistake("smoothing_fixed", "target", "The target is smoothed by 0.1 whatever `smoothing` is."),
    Mistake("smoothing_over_others", "target", "The other convention: smoothing / (V − 1) on the V − 1 other classes and 1 − smoothing on the target. Here every class gets smoothing / V, the target too, as in PyTorch."),
    Mistake("smoothing_over_v_minus_2", "target", "The other convention: smoothing / (V − 2) on the classes other than the target and the padding. Here every class gets smoothing / V, as in PyTorch."),
    Mistake("smoothing_over_others_twice", "target", "The other classes get smoothing / (V − 2) each, the padding class too: that sums to more than 1. Every class gets smoothing / V."),
    Mistake("smoothing_over_all_but_padding", "target", "smoothing is spread over all classes but the padding, smoothing / (V − 1) each; it goes on every class, smoothing / V each."),
    Mistake("padding_class_without_share", "target", "The padding class gets no share of smoothing / V; every class does."),
    Mistake("no_share_on_target", "target", "The target class gets 1 − smoothing alone; as every class it also gets smoothing / V (otherwise the sum is below 1)."),
    Mistake("others_v_minus_1_and_target", "target", "smoothing / (V − 1) on every class, the target too: that sums to more than 1. It is smoothing / V."),
    Mistake("smoothing_on_target", "target", "The weights are exchanged: the target gets smoothing and the uniform part 1 − smoothing."),
    Mistake("one_minus_smoothing_missing", "target", "The one-hot part is not weighted by 1 − smoothing: the target sums to more than 1."),
    Mistake("uniform_part_missing", "target", "The one-hot part is weighted by 1 − smoothing, but the uniform part, smoothing / V on every class, is missing."),
    Mistake("smoothing_not_divided", "target", "Every class gets the whole of smoothing; it is divided by V (the mean over classes, not the sum)."),
    Mistake("smoothing_over_d", "target", "smoothing is divided by V twice (a mean where a sum over smoothing / V is meant, or the reverse)."),
    Mistake("uniform_part_subtracted", "target", "The uniform part of the target has the wrong sign."),
    Mistake("only_uniform", "target", "Only the uniform part of the target is used."),
    Mistake("pad_not_ignored", "padding", "Padding counts like real tokens; it should not count at all."),
    Mistake("pad_in_mean", "padding", "Padding's losses are zero, but the mean is still taken over all positions; divide by the number of real tokens."),
    Mistake("padding_divided_twice", "padding", "Padding counts in the sum but not in the number of tokens by which it is divided."),
    Mistake("uniform_part_counts_padding", "padding", "Padding is left out of the one-hot part, but not of the uniform part of the target."),
    Mistake("uniform_part_mean_over_all", "padding", "The uniform part is averaged over all positions, padding included; average it over real tokens."),
    Mistake("pad_id_ignored", "padding", "Padding is taken to be id 0 whatever `pad_id` is."),
    Mistake("default_pad_id", "padding", "Without `pad_id` padding is not id 0."),
    Mistake("greater_than_pad", "padding", "Targets are compared with > pad_id: ids below pad_id are real tokens too (use !=)."),
    Mistake("only_padding", "padding", "The mask is the wrong way round: the mean is taken over padding alone."),
    Mistake("padding_by_prediction", "padding", "Positions are left out by the most likely class, not by the target: a token counts when its target is not pad_id."),
    Mistake("sum", "reduction", "The losses are summed; take their mean over the real tokens."),
    Mistake("not_reduced", "reduction", "There is one loss for each token; return their mean over the real tokens."),
    Mistake("mean_of_sequences", "reduction", "The other convention: a mean for each sequence, and then the mean of those. Here every real token has the same weight."),
    Mistake("divided_by_sequences", "reduction", "The other convention: the sum is divided by the number of sequences. Here it is divided by the number of real tokens."),
    Mistake("mean_over_classes_too", "reduction", "The mean is also taken over the classes: the result is V times too small."),
    Mistake("divided_by_batch_and_length", "reduction", "The mean over real tokens is divided once more, by the size of the batch."),
    Mistake("off_by_one_count", "reduction", "The number of real tokens by which the sum is divided is too large by one."),
    Mistake("softmax_twice", "softmax", "The softmax is taken twice: the logits become probabilities, and those go into log-softmax."),
    Mistake("no_softmax", "softmax", "The logits are used as if they were log-probabilities; take log_softmax over the classes first."),
    Mistake("no_logarithm", "softmax", "The loss is built from probabilities; their logarithm is missing."),
    Mistake("softmax_over_positions", "softmax", "The softmax goes over the positions; it belongs over the classes, the last axis."),
    Mistake("softmax_over_batch", "softmax", "The softmax goes over the first axis; it belongs over the classes, the last axis."),
    Mistake("softmax_over_all_tokens", "softmax", "The softmax goes over all tokens of the batch; it belongs over the classes, the last axis."),
    Mistake("softmax_over_real_tokens", "softmax", "The softmax goes over the real tokens of the batch; it belongs over the classes, the last axis."),
    Mistake("classes_scrambled", "softmax", "The logits are reshaped where a transpose is meant: (B, T, V) becomes (B, V, T) with shuffled classes."),
    Mistake("positions_exchanged", "softmax", "Batch and positions are exchanged in the logits but not in the targets (or the reverse)."),
    Mistake("shifted_again", "shift", "Targets and logits are shifted against each other once more; they are shifted already when they come in."),
    Mistake("base_two", "softmax", "The logarithm is to base 2; the natural one is meant."),
    Mistake("sign", "sign", "The sign is wrong: the loss is minus the mean log-probability, so that less is better."),
    Mistake("perplexity", "sign", "The result is exp of the loss, the perplexity."),
    Mistake("divergence", "sign", "The other convention: the divergence KL(target ‖ model), which is smaller by the entropy of the target. Here the cross entropy itself is asked for."),
    Mistake("confidence_penalty", "sign", "The entropy of the prediction is added in place of a smoothed target: that is the confidence penalty."),
)  # fmt: skip


def _target_distribution(on: frozenset[str], one_hot: Tensor, smoothing: float, pad_id: int) -> Tensor:
    """The smoothed target (n, V)."""
    v = one_hot.shape[-1]
    if "smoothing_fixed" in on:
        smoothing = 0.1
    pad = torch.zeros(v, dtype=one_hot.dtype)
    pad[pad_id] = 1.0
    rest = (1 - smoothing) * one_hot
    shares: dict[str, Callable[[], Tensor]] = {
        "no_smoothing": lambda: one_hot,
        "smoothing_over_others": lambda: rest + smoothing / (v - 1) * (1 - one_hot),
        "smoothing_over_v_minus_2": lambda: rest + smoothing / (v - 2) * (1 - one_hot) * (1 - pad),
        "smoothing_over_others_twice": lambda: rest + smoothing / (v - 2) * (1 - one_hot),
        "smoothing_over_all_but_padding": lambda: rest + smoothing / (v - 1) * (1 - pad),
        "padding_class_without_share": lambda: rest + smoothing / v * (1 - pad),
        "no_share_on_target": lambda: rest + smoothing / v * (1 - one_hot),
        "others_v_minus_1_and_target": lambda: rest + smoothing / (v - 1),
        "smoothing_on_target": lambda: smoothing * one_hot + (1 - smoothing) / v,
        "one_minus_smoothing_missing": lambda: one_hot + smoothing / v,
        "uniform_part_missing": lambda: rest,
        "smoothing_not_divided": lambda: rest + smoothing,
        "smoothing_over_d": lambda: rest + smoothing / v**2,
        "uniform_part_subtracted": lambda: rest - smoothing / v,
        "only_uniform": lambda: 0 * rest + smoothing / v,
    }
    return next((share() for name, share in shares.items() if name in on), rest + smoothing / v)


def _log_probabilities(on: frozenset[str], logits: Tensor, real: Tensor) -> Tensor:
    if "softmax_twice" in on:
        return logits.softmax(-1).log_softmax(-1)
    if "no_softmax" in on:
        return logits
    if "no_logarithm" in on:
        return logits.softmax(-1)
    if "softmax_over_positions" in on:
        return logits.log_softmax(-2)
    if "softmax_over_batch" in on:
        return logits.log_softmax(0)
    if "softmax_over_all_tokens" in on:
        return logits.flatten(0, -2).log_softmax(0).view(logits.shape)
    if "softmax_over_real_tokens" in on:
        result = torch.zeros_like(logits)
        result[real] = logits[real].log_softmax(0)
        return result
    if "classes_scrambled" in on and logits.dim() == 3:
        b, t, v = logits.shape
        return logits.reshape(b, v, t).transpose(1, 2).log_softmax(-1)
    if "positions_exchanged" in on and logits.dim() == 3:
        return logits.transpose(0, 1).reshape(logits.shape).log_softmax(-1)
    if "base_two" in on:
        return logits.log_softmax(-1) / math.log(2)
    return logits.log_softmax(-1)


def _loss_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def label_smoothed_cross_entropy(
        logits: Tensor, targets: Tensor, smoothing: float, pad_id: int | None = None
    ) -> Tensor:
        if "shifted_again" in on and targets.dim() > 1:
            logits, targets = logits[:, :-1], targets[:, 1:]
        nothing_ignored = pad_id is None and "default_pad_id" in on
        pad_id = pad_id or 0
        real = targets > pad_id if "greater_than_pad" in on else targets != pad_id
        if "pad_id_ignored" in on:
            real = targets != 0
        elif "padding_by_prediction" in on:
            real = logits.argmax(-1) != pad_id
        elif "only_padding" in on:
            real = ~real
        one_hot = nn.functional.one_hot(targets, logits.shape[-1]).to(logits.dtype)
        q = _target_distribution(on, one_hot, smoothing, pad_id)  # (..., V)
        log_p = _log_probabilities(on, logits, real)
        losses = -(q * log_p).sum(-1)  # (...)
        if "confidence_penalty" in on:
            losses = -(one_hot * log_p).sum(-1) + smoothing * (log_p.exp() * log_p).sum(-1)
        if "divergence" in on:
            losses = losses + torch.special.xlogy(q, q).sum(-1)
        count = real.sum()
        if "pad_not_ignored" in on or nothing_ignored:
            counted, count = torch.ones_like(real), torch.tensor(real.numel())
        elif "padding_divided_twice" in on:
            counted = torch.ones_like(real)
        else:
            counted = real
            count = torch.tensor(real.numel()) if "pad_in_mean" in on else count
        if "off_by_one_count" in on:
            count = count + 1
        kept = losses.masked_fill(~counted, 0.0)
        extra: Tensor | float = 0.0
        if {"uniform_part_counts_padding", "uniform_part_mean_over_all"} & on:
            uniform = -smoothing * log_p.mean(-1)
            kept = (losses - uniform).masked_fill(~real, 0.0)
            if "uniform_part_counts_padding" in on:
                kept = kept + uniform
            else:
                extra = uniform.mean()
        total = kept.sum()
        if "sum" in on:
            result = total
        elif "not_reduced" in on:
            result = kept
        elif "mean_of_sequences" in on and targets.dim() > 1:
            result = (kept.sum(-1) / counted.sum(-1).clamp(min=1)).mean()
        elif "divided_by_sequences" in on:
            result = total / targets.shape[0]
        else:
            result = total / count.clamp(min=1) + extra
        if "mean_over_classes_too" in on:
            result = result / logits.shape[-1]
        elif "divided_by_batch_and_length" in on:
            result = result / targets.shape[0]
        return -result if "sign" in on else result.exp() if "perplexity" in on else result

    return label_smoothed_cross_entropy


def _logits(seed: int, *shape: int) -> Tensor:
    return 1.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _targets(seed: int, pad_id: int | None = 0) -> Tensor:
    """Ids (3, 5) below 7 with 0, 1 and 3 paddings at the end; without padding when `pad_id` is None."""
    targets = torch.randint(0, 7, (3, 5), generator=torch.Generator().manual_seed(seed))
    targets[0, :3] = torch.tensor([1, 6, 3])  # ids on both sides of every pad_id that is used
    if pad_id is None:
        return targets.clamp(min=1)
    targets[targets == pad_id] = 5 if pad_id != 5 else 2
    if pad_id:
        targets[0, 3] = 0
    targets[1, 4:], targets[2, 2:] = pad_id, pad_id
    return targets


def _loss_probes(seed: int) -> list[Probe]:
    return [
        Probe((_logits(seed, 3, 5, 7), _targets(seed), 0.1)),
        Probe((_logits(seed + 1, 3, 5, 7), _targets(seed + 1, 4), 0.3, 4)),
        Probe((_logits(seed + 2, 15, 7), _targets(seed + 2).flatten(), 0.2)),
        Probe((_logits(seed + 3, 3, 5, 7), _targets(seed + 3), 0.0)),
    ]


def _loss(c: Context, *args: Any, what: str = "the loss", tolerance: float = 1e-5) -> None:
    got, want = c.subject.call(*args), c.reference(*args)
    c.expect(got, want, what, rtol=tolerance, atol=tolerance)


def _loss_values(c: Context) -> None:
    _loss(c, _logits(c.seed, 3, 5, 7), _targets(c.seed, None), 0.1)


def _loss_by_hand(c: Context) -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    _loss(
        c, logits, torch.tensor([0]), 0.1, 3, what="the loss of logits (2, 0, 0, 0), target 0", tolerance=1e-5
    )


def _loss_plain(c: Context) -> None:
    _loss(c, _logits(c.seed, 3, 5, 7), _targets(c.seed), 0.0, what="the loss with smoothing = 0")


def _loss_padding(c: Context) -> None:
    logits, targets = _logits(c.seed, 3, 5, 7), _targets(c.seed)
    _loss(c, logits, targets, 0.1, what="the loss with padding")
    before = c.subject.call(logits, targets, 0.1)
    logits[targets == 0] += c.randn(int((targets == 0).sum()), 7, dtype=torch.float64)
    after = c.subject.call(logits, targets, 0.1)
    if not torch.allclose(before, after, rtol=1e-9):
        raise Wrong("The loss changes when the logits at padding change; padding should not count.")


def _loss_pad_id(c: Context) -> None:
    for pad_id in (4, 6):
        _loss(
            c,
            _logits(c.seed, 3, 5, 7),
            _targets(c.seed, pad_id),
            0.3,
            pad_id,
            what=f"the loss with pad_id = {pad_id}",
        )


def _loss_two_axes(c: Context) -> None:
    _loss(c, _logits(c.seed, 15, 7), _targets(c.seed).flatten(), 0.2, what="the loss of logits (15, 7)")
    _loss(c, _logits(c.seed, 3, 1, 7), _targets(c.seed)[:, :1], 0.2, what="the loss of logits (3, 1, 7)")


def _loss_nothing(c: Context) -> None:
    logits = _logits(c.seed, 2, 3, 7)
    got = c.subject.call(logits, torch.full((2, 3), 4), 0.1, 4)
    text = difference(got, 0.0, what="the loss without any real token")
    if text is None:
        return
    value = number(got)
    if isinstance(value, float) and not math.isfinite(value):
        name = "nan_without_real_tokens" if math.isnan(value) else "infinite_without_real_tokens"
        raise Wrong(f"Without any real token the loss is {value} (a division by 0); it should be 0.", name)
    raise Wrong(text[0].upper() + text[1:])


def _loss_large(c: Context) -> None:
    logits, targets = _logits(c.seed, 3, 5, 7).float(), _targets(c.seed)
    for shift in (200, -200):
        got = c.subject.call(shift + logits, targets, 0.1)
        if isinstance(got, Tensor) and not got.isfinite().all():
            raise Wrong(
                f"For logits near {shift} the loss is {float(got.flatten()[0])}: exp is taken of the logits themselves. "
                "log_softmax subtracts their maximum first.",
                "overflows",
            )
        _loss(c, shift + logits, targets, 0.1, what=f"the loss of logits near {shift}", tolerance=1e-4)
    args = torch.tensor([[200.0, 0.0, 0.0, 0.0]]), torch.tensor([1]), 0.1, 3
    got = c.subject.call(*args)
    if difference(got, c.reference(*args), rtol=1e-4) is not None:
        raise Wrong(
            f"For logits (200, 0, 0, 0) and target 1 the loss is {float(got):g}; it should be 195. There a softmax rounds to 0, "
            "and no small number added or minimum set mends its logarithm. log_softmax does not pass through it.",
            "logarithm_of_softmax",
        )


def _loss_gradient(c: Context) -> None:
    c.same_gradients(_logits(c.seed, 3, 5, 7), _targets(c.seed), 0.1, wrt={"logits": 0}, rtol=1e-5, atol=1e-7)


def _loss_kept(c: Context) -> None:
    args = (_logits(c.seed, 3, 5, 7), _targets(c.seed, 4), 0.1, 4)
    for i, (a, b) in enumerate(zip(args[:2], c.subject.observe(*args)[1], strict=False)):
        if not torch.equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")
    turned = _logits(c.seed, 5, 3, 7).transpose(0, 1)
    _loss(c, turned, _targets(c.seed), 0.1, what="the loss of logits that are not contiguous")


# -- the learning rate -----------------------------------------------------------------------------------------------

_NOAM = (
    Mistake("steps_from_0", "step", "Steps are counted from 0 (step + 1 is used); here they count from 1, and only step 0 is taken as step 1."),
    Mistake("step_minus_one", "step", "The rate is that of the step before (step − 1 is used); steps count from 1."),
    Mistake("no_warmup", "shape", "There is no warm-up: the rate is step^−0.5 from the start."),
    Mistake("constant_warmup", "shape", "The rate is constant during the warm-up; it should grow linearly from 0."),
    Mistake("no_decay", "shape", "The rate grows without end: step^−0.5 after the warm-up is missing."),
    Mistake("constant_after_warmup", "shape", "The rate stays at its peak after the warm-up; it should fall like step^−0.5."),
    Mistake("maximum", "shape", "The larger of the two terms is taken; it is the smaller one."),
    Mistake("sum_of_terms", "shape", "The two terms are added; take the smaller one."),
    Mistake("product_of_terms", "shape", "The two terms are multiplied; take the smaller one."),
    Mistake("exponents_exchanged", "shape", "step and warmup are exchanged: the terms are step^−0.5 and step · warmup^−1.5."),
    Mistake("warmup_power_minus_half", "shape", "The warm-up term is step · warmup^−0.5; the power of warmup is −1.5."),
    Mistake("warmup_power_minus_one", "shape", "The warm-up term is step / warmup; it is step · warmup^−1.5, so that both terms meet at step = warmup."),
    Mistake("decay_power_minus_one", "shape", "After the warm-up the rate falls like 1/step; it should fall like step^−0.5."),
    Mistake("decay_power_minus_1_5", "shape", "After the warm-up the rate falls like step^−1.5; it should fall like step^−0.5."),
    Mistake("linear_decay", "shape", "After the warm-up the rate falls linearly; it should fall like step^−0.5."),
    Mistake("exponential_warmup", "shape", "The warm-up is not linear in step; it should be."),
    Mistake("quadratic_warmup", "shape", "The warm-up is not linear in step (a power other than 1); it should be."),
    Mistake("root_warmup", "shape", "The warm-up grows like the root of step; it should be linear in step."),
    Mistake("starts_at_decay_one", "shape", "After the warm-up the decay starts anew, from step − warmup; it is step^−0.5 throughout."),
    Mistake("no_d_model", "d_model", "d_model^−0.5 is missing."),
    Mistake("d_model_power_plus", "d_model", "The rate is multiplied by √d_model; it is d_model^−0.5."),
    Mistake("d_model_power_minus_one", "d_model", "The rate is divided by d_model, not by its root."),
    Mistake("d_model_power_minus_1_5", "d_model", "The power of d_model is −1.5; it is −0.5."),
    Mistake("peak_is_one", "d_model", "The rate is scaled so that its peak is `factor` (it is multiplied by √warmup, and d_model is missing)."),
    Mistake("peak_at_d_model", "d_model", "The rate is multiplied by √warmup, so that its peak does not depend on warmup; that is another schedule."),
    Mistake("factor_ignored", "factor", "`factor` has no effect; the rate is multiplied by it."),
    Mistake("factor_added", "factor", "`factor` is added; it multiplies the rate."),
    Mistake("factor_divides", "factor", "The rate is divided by `factor`; it is multiplied by it."),
    Mistake("factor_twice", "factor", "`factor` is applied twice."),
    Mistake("factor_on_one_term", "factor", "`factor` multiplies only one of the two terms."),
    Mistake("factor_in_root", "factor", "`factor` multiplies d_model, under the power; it multiplies the whole."),
    Mistake("default_factor_2", "default", "Without `factor` the rate is doubled; the default is 1."),
)  # fmt: skip


def _noam_variant(on: frozenset[str]) -> Callable[..., float]:
    def noam_lr(step: int, d_model: int, warmup: int, factor: float | None = None) -> float:
        factor = (2.0 if "default_factor_2" in on else 1.0) if factor is None else factor
        s: float = step + 1 if "steps_from_0" in on else step - 1 if "step_minus_one" in on else step
        s = max(s, 1)
        decay, rise = s**-0.5, s * warmup**-1.5
        shapes: dict[str, Callable[[], float]] = {
            "no_warmup": lambda: decay,
            "constant_warmup": lambda: max(s, warmup) ** -0.5,
            "no_decay": lambda: rise,
            "constant_after_warmup": lambda: min(warmup**-0.5, rise),
            "maximum": lambda: max(decay, rise),
            "sum_of_terms": lambda: decay + rise,
            "product_of_terms": lambda: decay * rise,
            "exponents_exchanged": lambda: min(warmup**-0.5, warmup * s**-1.5),
            "warmup_power_minus_half": lambda: min(decay, s * warmup**-0.5),
            "warmup_power_minus_one": lambda: min(decay, s / warmup),
            "decay_power_minus_one": lambda: min(1 / s, rise),
            "decay_power_minus_1_5": lambda: min(s**-1.5, rise),
            "linear_decay": lambda: max(min(rise, warmup**-0.5 * (2 - s / warmup)), 0.0),
            "exponential_warmup": lambda: min(
                decay, warmup**-0.5 * (math.exp(s / warmup) - 1) / (math.e - 1)
            ),
            "quadratic_warmup": lambda: min(decay, s**1.5 * warmup**-1.5),
            "root_warmup": lambda: min(decay, s**0.5 * warmup**-1.5),
            "starts_at_decay_one": lambda: rise if s <= warmup else (s - warmup) ** -0.5,
            "factor_on_one_term": lambda: min(factor * decay, rise) / factor,
        }
        shape = next((f() for name, f in shapes.items() if name in on), min(decay, rise))
        powers = {"no_d_model": 0.0, "d_model_power_plus": 0.5, "d_model_power_minus_one": -1.0, "d_model_power_minus_1_5": -1.5, "peak_is_one": 0.0}  # fmt: skip
        rate = d_model ** next((p for name, p in powers.items() if name in on), -0.5) * shape
        if {"peak_is_one", "peak_at_d_model"} & on:
            rate *= warmup**0.5
        if "factor_added" in on:
            rate += factor
        elif "factor_divides" in on:
            rate /= factor
        elif "factor_in_root" in on:
            rate *= factor**-0.5
        elif "factor_twice" in on:
            rate *= factor**2
        elif "factor_ignored" not in on:
            rate *= factor
        return rate

    return noam_lr


def _noam_magnified(noam_lr: Any) -> Callable[..., float]:
    return lambda *args: (
        1e6 * number(noam_lr(*args))
    )  # rates are small: a comparison should not take them for 0


def _noam_steps(seed: int) -> list[tuple[int, int, int]]:
    warmup, d_model = 40 + seed % 17, 48 + seed % 13
    return [
        (step, d_model, warmup)
        for step in (1, 2, 7, warmup // 2, warmup - 1, warmup, warmup + 1, 3 * warmup, 1000)
    ]


def _noam_probes(seed: int) -> list[Probe]:
    steps = _noam_steps(seed)
    return [*(Probe(x) for x in steps), *(Probe((*x, 2.5)) for x in steps), Probe((4000, 512, 4000))]


def _noam(c: Context, *args: Any, **named: Any) -> None:
    said = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in named.items())])
    c.expect(
        c.subject.call(*args, **named), c.reference(*args, **named), f"noam_lr({said})", rtol=1e-5, atol=0.0
    )


def _noam_warmup(c: Context) -> None:
    for args in _noam_steps(c.seed)[:5]:
        _noam(c, *args)


def _noam_decay(c: Context) -> None:
    for args in _noam_steps(c.seed)[5:]:
        _noam(c, *args)


def _noam_paper(c: Context) -> None:
    for step in (1, 100, 4000, 100_000):
        _noam(c, step, 512, 4000)


def _noam_factor(c: Context) -> None:
    for args in _noam_steps(c.seed):
        _noam(c, *args, 2.5)
    _noam(c, *_noam_steps(c.seed)[2], factor=0.5)


def _noam_zero(c: Context) -> None:
    for args in ((0, *_noam_steps(c.seed)[0][1:]), (0, 512, 4000), (0, 512, 4000, 2.5)):
        got, first = (c.subject.call(step, *args[1:]) for step in (0, 1))
        said = f"noam_lr({', '.join(map(str, args))})"
        value = number(got)
        if value == 0 and number(first) != 0:
            raise Wrong(f"{said} is 0; it should equal that of step 1.", "zero_at_step_0")
        if isinstance(value, float) and not math.isfinite(value):
            raise Wrong(f"{said} is {value}; it should equal that of step 1.", "infinite_at_step_0")
        if difference(got, number(first), rtol=1e-5, atol=0.0) is not None:
            raise Wrong(f"{said} is {got}; it should equal that of step 1, {first}.", "step_0_unlike_step_1")


# -- Adam ------------------------------------------------------------------------------------------------------------

_ADAM = (
    Mistake("no_bias_correction", "correction", "The moments are not corrected: divide m by 1 − β₁ᵗ and v by 1 − β₂ᵗ."),
    Mistake("m_not_corrected", "correction", "The first moment is not corrected: divide m by 1 − β₁ᵗ."),
    Mistake("v_not_corrected", "correction", "The second moment is not corrected: divide v by 1 − β₂ᵗ."),
    Mistake("corrected_without_power", "correction", "The moments are divided by 1 − β at every step; it is 1 − βᵗ, with t the number of the step, kept in `state`."),
    Mistake("correction_multiplied", "correction", "The moments are multiplied by 1 − βᵗ; they are divided by it."),
    Mistake("corrections_exchanged", "correction", "The corrections are exchanged: m belongs to β₁ and v to β₂."),
    Mistake("root_without_correction", "correction", "The correction of v stands outside the root, √v / (1 − β₂ᵗ); v is corrected first: √(v / (1 − β₂ᵗ))."),
    Mistake("one_correction_for_both", "correction", "Both moments are corrected with β₁; v belongs to β₂."),
    Mistake("t_from_0", "t", "t counts from 0, so the first correction divides by 0; it counts from 1."),
    Mistake("t_one_too_large", "t", "t is too large by one: the first step is t = 1."),
    Mistake("t_counts_parameters", "t", "t grows with every parameter; it should count the steps."),
    Mistake("corrected_moments_stored", "stored", "The corrected moments are stored and corrected again in the next step; store m and v as they are."),
    Mistake("state_not_kept", "stored", "Nothing of one step reaches the next: m, v and t have to be kept in `state`."),
    Mistake("state_shared", "stored", "All parameters share one m and v; each needs its own."),
    Mistake("state_shared_by_shape", "stored", "Parameters of equal shape share one m and v; each needs its own."),
    Mistake("eps_in_root", "eps", "eps stands inside the root: it is √v̂ + eps."),
    Mistake("no_eps", "eps", "eps is missing: it is √v̂ + eps."),
    Mistake("default_eps_1e_8", "eps", "Without `eps` 1e-8 is used; the default is 1e-9."),
    Mistake("eps_multiplied", "eps", "eps is subtracted; it is √v̂ + eps."),
    Mistake("default_beta_2_0_999", "betas", "Without `betas` β₂ is 0.999; the default here is (0.9, 0.98), the paper's."),
    Mistake("betas_exchanged", "betas", "β₁ and β₂ are exchanged: β₁ belongs to m, β₂ to v."),
    Mistake("betas_fixed", "betas", "`betas` is not used: the defaults are taken whatever it is."),
    Mistake("beta_1_for_both", "betas", "β₁ is used for both moments; v belongs to β₂."),
    Mistake("beta_2_for_both", "betas", "β₂ is used for both moments; m belongs to β₁."),
    Mistake("betas_complemented", "betas", "β and 1 − β are exchanged: m ← β₁ m + (1 − β₁) g."),
    Mistake("m_accumulates", "m", "m ← β₁ m + g: the factor 1 − β₁ of the gradient is missing."),
    Mistake("m_sums", "m", "m adds up all gradients without forgetting: m ← β₁ m + (1 − β₁) g."),
    Mistake("no_first_moment", "m", "The gradient itself is used where the first moment m belongs."),
    Mistake("nesterov", "m", "The gradient enters once more beside m (Nesterov's momentum); Adam uses m alone."),
    Mistake("v_accumulates", "v", "v ← β₂ v + g²: the factor 1 − β₂ of the square is missing."),
    Mistake("v_sums", "v", "v adds up all squares without forgetting (as in Adagrad): v ← β₂ v + (1 − β₂) g²."),
    Mistake("no_second_moment", "v", "The step is not divided by √v̂ + eps."),
    Mistake("no_root", "v", "The step is divided by v̂, not by its root."),
    Mistake("gradient_not_squared", "v", "v is made of the gradient where its square belongs."),
    Mistake("absolute_gradient", "v", "v is made of |g| where g² belongs."),
    Mistake("largest_v", "v", "The largest v so far is used (as in AMSGrad); Adam uses the present one."),
    Mistake("squared_first_moment", "v", "v is made of the square of m; it is made of the square of the gradient."),
    Mistake("mean_of_squares", "v", "One v is used for a whole parameter (the mean or the norm of its squares); each number has its own."),
    Mistake("ascent", "step", "The parameters move with the gradient; they should move against it."),
    Mistake("lr_ignored", "step", "`lr` has no effect on the step."),
    Mistake("lr_of_the_first_step", "step", "The lr of the first step is used in all later ones; lr is given anew at every step, as the schedule wants it."),
    Mistake("lr_decays", "step", "The step is also divided by √t; lr is used as it is."),
    Mistake("weight_decay", "step", "The parameters also shrink (weight decay); Adam has none."),
    Mistake("none_as_zero", "none", "A parameter whose gradient is None still moves; it should be skipped, its moments unchanged."),
    Mistake("none_shifts", "none", "Gradients that are None are left out before the pairing, so that later parameters get each other's gradients."),
    Mistake("stops_at_none", "none", "At the first gradient that is None the loop ends; skip only that parameter."),
    Mistake("all_skipped_for_none", "none", "When one gradient is None no parameter moves; skip only that one."),
    Mistake("only_first_parameter", "only", "Only the first parameter moves."),
    Mistake("not_in_place", "place", "The parameters do not change: a new tensor is made where the parameter has to be changed in place (p -= …, p.sub_(…), p.data = …)."),
)  # fmt: skip


def _adam_variant(on: frozenset[str]) -> Callable[..., None]:
    @torch.no_grad()
    def adam_step(
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        state: dict[Any, Any],
        lr: float,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
    ) -> None:
        if betas is None or "betas_fixed" in on:
            betas = (0.9, 0.999) if "default_beta_2_0_999" in on else (0.9, 0.98)
        if eps is None:
            eps = 1e-8 if "default_eps_1e_8" in on else 1e-9
        if "lr_of_the_first_step" in on:
            lr = state.setdefault("lr", lr)
        b1, b2 = betas
        if "betas_exchanged" in on:
            b1, b2 = b2, b1
        elif "beta_1_for_both" in on:
            b2 = b1
        elif "beta_2_for_both" in on:
            b1 = b2
        elif "betas_complemented" in on:
            b1, b2 = 1 - b1, 1 - b2
        if "none_shifts" in on:
            gradients = [g for g in gradients if g is not None]
        if "all_skipped_for_none" in on and any(g is None for g in gradients):
            return
        if "state_not_kept" in on:
            state = {}
        state["all"] = state.get("all", 0) + 1
        for i, (p, g) in enumerate(zip(parameters, gradients, strict=False)):
            if "only_first_parameter" in on and i:
                break
            if g is None:
                if "stops_at_none" in on:
                    break
                if "none_as_zero" not in on:
                    continue
                g = torch.zeros_like(p)
            state["each"] = state.get("each", 0) + 1
            key = "shared" if "state_shared" in on else tuple(p.shape) if "state_shared_by_shape" in on else i
            zero = torch.zeros_like(p)
            own = state.setdefault(key, {"t": 0, "m": zero, "v": zero, "top": zero})
            own["t"] += 1
            counters = {
                "t_for_all": state["all"],
                "state_shared": state["all"],
                "t_counts_parameters": state["each"],
            }
            t = next((k for name, k in counters.items() if name in on), own["t"])
            t += 1 if "t_one_too_large" in on else -1 if "t_from_0" in on else 0
            k1 = 1.0 if {"m_accumulates", "m_sums"} & on else 1 - b1
            k2 = 1.0 if {"v_accumulates", "v_sums"} & on else 1 - b2
            m = own["m"] * (1.0 if "m_sums" in on else b1) + k1 * g
            squares: dict[str, Callable[[], Tensor]] = {
                "gradient_not_squared": lambda g=g: g,
                "absolute_gradient": lambda g=g: g.abs(),
                "squared_first_moment": lambda m=m: m**2,
                "mean_of_squares": lambda g=g: (g**2).mean().expand_as(g),
            }
            square = next((f() for name, f in squares.items() if name in on), g**2)
            v = own["v"] * (1.0 if "v_sums" in on else b2) + k2 * square
            own["m"], own["v"], own["top"] = m, v, torch.maximum(own["top"], v)
            if "largest_v" in on:
                v = own["top"]
            c1, c2 = (1 - b1, 1 - b2) if "corrected_without_power" in on else (1 - b1**t, 1 - b2**t)
            if "corrections_exchanged" in on:
                c1, c2 = c2, c1
            elif "one_correction_for_both" in on:
                c2 = c1
            elif "correction_multiplied" in on:
                c1, c2 = 1 / c1, 1 / c2
            elif "root_without_correction" in on:
                c2 = c2**2
            if {"no_bias_correction", "m_not_corrected"} & on:
                c1 = 1.0
            if {"no_bias_correction", "v_not_corrected"} & on:
                c2 = 1.0
            m_hat, v_hat = m / c1, v / c2
            if "corrected_moments_stored" in on:
                own["m"], own["v"] = m_hat, v_hat
            if "no_first_moment" in on:
                m_hat = g
            elif "nesterov" in on:
                m_hat = b1 * m_hat + (1 - b1) * g / c1
            root = v_hat if "no_root" in on else v_hat.sqrt()
            if "eps_in_root" in on:
                divisor = (v_hat + eps).sqrt()
            elif "eps_hat" in on:
                divisor = root + eps / c2**0.5
            else:
                divisor = root + (0.0 if "no_eps" in on else -eps if "eps_multiplied" in on else eps)
            step = m_hat if "no_second_moment" in on else m_hat / divisor
            if "weight_decay" in on:
                step = step + 0.01 * p
            rate = 1.0 if "lr_ignored" in on else lr / own["t"] ** 0.5 if "lr_decays" in on else lr
            if "not_in_place" not in on:
                p += (rate if "ascent" in on else -rate) * step

    return adam_step


_TASTES = [
    frozenset(s) for s in ((), ("eps_hat",), ("t_for_all",), ("eps_hat", "t_for_all"))
]  # all are right


def run_adam(
    adam_step: Callable[..., Any],
    starts: Sequence[Tensor],
    steps: Sequence[Sequence[Tensor | None]],
    lr: float | Sequence[float],
    *settings: Any,
) -> tuple[list[list[Tensor]], bool]:
    """The parameters after each step from `starts`, and whether the gradients were left as they were; `lr` is one for all
    steps, or one for each."""
    parameters, state, after, kept = [p.clone() for p in starts], {}, [], True
    for n, gradients in enumerate(steps):
        given = [None if g is None else g.clone() for g in gradients]
        adam_step(parameters, given, state, lr if isinstance(lr, float) else lr[n], *settings)
        after.append([p.detach().clone() for p in parameters])
        same = (
            g is None or (h is not None and torch.equal(g, h)) for g, h in zip(gradients, given, strict=False)
        )
        kept = kept and len(given) == len(gradients) and all(same)
    return after, kept


def _adam_case(
    seed: int, n_steps: int, scale: float = 1.0, skip: tuple[tuple[int, int], ...] = ()
) -> tuple[Any, Any]:
    """Three parameters, two of equal shape, and gradients for some steps, None at the pairs (step, parameter) in `skip`."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    shapes = ((3, 4), (5,), (5,))
    starts = [normal(*s) for s in shapes]
    steps: list[list[Tensor | None]] = []
    for step in range(n_steps):
        row = [scale * (0.3 + step) * normal(*s) for s in shapes]
        steps.append([None if (step, i) in skip else x for i, x in enumerate(row)])
    return starts, steps


def _adam_probes(seed: int) -> list[Probe]:
    starts, steps = _adam_case(seed, 3)
    alike = starts[1:], [row[1:] for row in steps]
    return [
        Probe(([starts[1]], [row[1:2] for row in steps[:2]], 0.07)),
        Probe((*alike, 0.07)),
        Probe((*_adam_case(seed, 4), 0.07)),
        Probe((*_adam_case(seed, 3), 0.3, (0.7, 0.95), 0.2)),
        Probe((*_adam_case(seed, 3), (0.1, 0.2, 0.05))),
        Probe((*_adam_case(seed + 1, 1, 1e-7), 0.07)),
        Probe((*_adam_case(seed + 2, 2, skip=((0, 1), (1, 1))), 0.07)),
        Probe((*_adam_case(seed + 3, 2, skip=((1, 1),)), 0.07)),
        Probe((*_adam_case(seed + 4, 1, skip=((0, 0), (0, 1), (0, 2))), 0.07)),
    ]


def _adam(c: Context, what: str, starts: Any, steps: Any, *settings: Any) -> None:
    try:
        got, kept = c.subject.through(_adam_through).call(starts, steps, *settings)
    except CandidateError as error:
        if isinstance(error.error, KeyError):
            raise Wrong(
                f"`state` starts as an empty dictionary: your code looks for {error.error} in it before putting it there.",
                "state_not_initialised",
            ) from error
        raise
    wants = [run_adam(_adam_variant(taste), starts, steps, *settings)[0] for taste in _TASTES]
    if any(difference(got, want, rtol=2e-5, atol=1e-9) is None for want in wants):
        if not kept:
            raise Wrong(
                "Your code changes the gradients it is given; change the parameters only.",
                "changes_its_input",
            )
        return
    for n, (after, want) in enumerate(zip(got, wants[0], strict=True), start=1):
        for i, (a, w) in enumerate(zip(after, want, strict=True)):
            c.expect(a, w, f"parameter {i} after step {n}{what}", rtol=2e-5, atol=1e-9)


def _adam_through(adam_step: Any) -> Callable[..., Any]:
    return partial(run_adam, adam_step)


def _adam_first(c: Context) -> None:
    starts, steps = _adam_case(c.seed, 2)
    _adam(c, "", [starts[0]], [row[:1] for row in steps[:1]], 0.1)
    _adam(c, "", [starts[0]], [row[:1] for row in steps], 0.1)


def _adam_later(c: Context) -> None:
    _adam(c, "", *_adam_case(c.seed, 5), 0.1)


def _adam_settings(c: Context) -> None:
    _adam(c, " with betas (0.7, 0.95), eps 0.2", *_adam_case(c.seed, 4), 0.3, (0.7, 0.95), 0.2)


def _adam_schedule(c: Context) -> None:
    _adam(c, " with lr 0.1, 0.2 and 0.05", *_adam_case(c.seed, 3), (0.1, 0.2, 0.05))


def _adam_tiny(c: Context) -> None:
    _adam(c, " with gradients near 1e-7", *_adam_case(c.seed, 2, 1e-7), 0.1)


def _adam_none(c: Context) -> None:
    _adam(c, " (parameter 1 has no gradient)", *_adam_case(c.seed, 3, skip=((0, 1), (1, 1), (2, 1))), 0.1)
    _adam(c, " (parameter 0 has no gradient)", *_adam_case(c.seed, 2, skip=((0, 0), (1, 0))), 0.1)
    _adam(c, " (parameter 1 had no gradient in step 2)", *_adam_case(c.seed, 3, skip=((1, 1),)), 0.1)
    _adam(c, " without any gradient", *_adam_case(c.seed, 1, skip=((0, 0), (0, 1), (0, 2))), 0.1)


def _on_parameters(adam_step: Callable[..., Any]) -> Callable[..., Any]:
    def on_parameters(
        starts: Sequence[Tensor], steps: Sequence[Sequence[Tensor]]
    ) -> tuple[list[Tensor], bool, bool]:
        parameters = [nn.Parameter(p.clone()) for p in starts]
        state: dict[Any, Any] = {}
        torch.set_grad_enabled(True)
        for gradients in steps:
            adam_step(parameters, [g.clone() for g in gradients], state, 0.1)
        recording, trained = torch.is_grad_enabled(), all(p.requires_grad for p in parameters)
        torch.set_grad_enabled(True)
        return [p.detach().clone() for p in parameters], recording, trained

    return on_parameters


def _adam_parameters(c: Context) -> None:
    starts, steps = _adam_case(c.seed, 2)
    got, recording, trained = c.subject.through(_on_parameters).call(starts, steps)
    want = run_adam(solutions.adam_step, starts, steps, 0.1)[0][-1]
    c.expect(got, want, "the list of parameters that require gradient, after two steps", rtol=2e-5)
    _still_recording(recording)
    if not trained:
        raise Wrong(
            "After your step parameters no longer require a gradient; leave requires_grad as it is.",
            "freezes_parameters",
        )


def _still_recording(recording: bool) -> None:
    if not recording:
        raise Wrong(
            "Your code leaves autograd switched off for all that follows. `with torch.no_grad():` (or the decorator) switches it on again.",
            "leaves_autograd_off",
        )


def _from_two_states(adam_step: Callable[..., Any]) -> Callable[..., Any]:
    def from_two_states(starts: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[list[Tensor]]:
        parameters, results = [p.clone() for p in starts], []
        for _ in range(2):
            for p, start in zip(parameters, starts, strict=True):
                p.copy_(start)
            adam_step(parameters, [g.clone() for g in gradients], {}, 0.1)
            results.append([p.clone() for p in parameters])
        return results

    return from_two_states


def _adam_state(c: Context) -> None:
    starts, steps = _adam_case(c.seed, 2)
    first, second = c.subject.through(_from_two_states).call(starts, steps[0])
    if difference(second, first, rtol=1e-9) is not None:
        raise Wrong(
            "With a new, empty `state` the same step gives another result: something is kept outside of `state`.",
            "state_outside_dictionary",
        )


# -- clipping --------------------------------------------------------------------------------------------------------

_CLIP = (
    Mistake("each_alone", "norm", "Each parameter is clipped by its own norm; it is one norm over all gradients together."),
    Mistake("sum_of_norms", "norm", "The norms of the parameters are added up; the norm over all is the root of the sum of their squares."),
    Mistake("mean_of_norms", "norm", "The mean of the parameters' norms is taken; the norm over all is the root of the sum of their squares."),
    Mistake("largest_norm", "norm", "The largest of the parameters' norms is taken; the norm over all is the root of the sum of their squares."),
    Mistake("no_root", "norm", "The root is missing: the norm is the root of the sum of the squares."),
    Mistake("sum_of_magnitudes", "norm", "The magnitudes are added up (1-norm); the Euclidean norm is the root of the sum of the squares."),
    Mistake("largest_value", "norm", "The largest magnitude is taken (maximum norm); the Euclidean norm is the root of the sum of the squares."),
    Mistake("mean_square", "norm", "The root of the mean of the squares is taken; the norm is the root of their sum."),
    Mistake("norm_of_weights", "norm", "The norm is that of the parameters; it should be that of their gradients."),
    Mistake("only_first", "norm", "The norm is that of the first gradient alone; it goes over all of them."),
    Mistake("only_last", "norm", "The norm is that of the last gradient alone; it goes over all of them."),
    Mistake("values_clipped", "scale", "Each value is cut off at ±max_norm; all gradients are to be scaled by the same factor."),
    Mistake("always_scaled", "scale", "Gradients whose norm is below max_norm are scaled up; the factor is at most 1."),
    Mistake("never_scaled", "scale", "The gradients do not change; they should be multiplied by the factor, in place."),
    Mistake("divided_by_norm", "scale", "Clipped gradients get norm 1; they should get norm max_norm."),
    Mistake("multiplied_by_max_norm", "scale", "Clipped gradients are multiplied by max_norm without division by the norm."),
    Mistake("factor_inverted", "scale", "The factor is norm / max_norm; it is max_norm / norm."),
    Mistake("comparison_inverted", "scale", "Gradients are scaled when the norm is below max_norm and left alone when it is above."),
    Mistake("weights_scaled", "scale", "The parameters are scaled; only their gradients should be."),
    Mistake("first_not_scaled", "scale", "Only some of the gradients are scaled; all of them are."),
    Mistake("squared_factor", "scale", "The factor is applied twice."),
    Mistake("no_1e_6", "eps", "The 1e-6 is missing: the factor is max_norm / (norm + 1e-6)."),
    Mistake("eps_1e_8", "eps", "1e-8 is added to the norm; the factor is max_norm / (norm + 1e-6)."),
    Mistake("eps_outside", "eps", "1e-6 is added to the factor; it is added to the norm: max_norm / (norm + 1e-6)."),
    Mistake("eps_on_max_norm", "eps", "1e-6 is added to max_norm; it is added to the norm: max_norm / (norm + 1e-6)."),
    Mistake("returns_norm_after", "returns", "The norm after clipping is returned; return the one before."),
    Mistake("returns_factor", "returns", "The factor is returned; return the norm before clipping."),
    Mistake("returns_square", "returns", "The square of the norm is returned; return the norm."),
    Mistake("returns_norm_plus_eps", "returns", "The norm is returned with 1e-6 added; return the norm itself."),
    Mistake("returns_nothing", "returns", "Nothing is returned; return the norm before clipping."),
    Mistake("returns_whether_clipped", "returns", "Return the norm before clipping, not whether it was too large."),
    Mistake("returns_gradients", "returns", "The gradients are returned; return the norm before clipping."),
)  # fmt: skip


def _clip_variant(on: frozenset[str]) -> Callable[..., Any]:
    @torch.no_grad()
    def clip_gradients(parameters: Sequence[Tensor], max_norm: float) -> Any:
        parameters = [p for p in parameters if p.grad is not None]
        gradients: list[Tensor] = [p.grad for p in parameters]
        if not gradients:
            return torch.tensor(0.0)
        own = [float(g.norm()) for g in gradients]
        values = torch.cat([g.flatten() for g in gradients])
        norms: dict[str, Callable[[], float]] = {
            "sum_of_norms": lambda: sum(own),
            "mean_of_norms": lambda: sum(own) / len(own),
            "largest_norm": lambda: max(own),
            "no_root": lambda: float((values**2).sum()),
            "sum_of_magnitudes": lambda: float(values.abs().sum()),
            "largest_value": lambda: float(values.abs().max()),
            "mean_square": lambda: float((values**2).mean().sqrt()),
            "norm_of_weights": lambda: float(torch.cat([p.detach().flatten() for p in parameters]).norm()),
            "only_first": lambda: own[0],
            "only_last": lambda: own[-1],
        }
        norm = next((f() for name, f in norms.items() if name in on), float(values.norm()))

        def factor(norm: float) -> float:
            eps = (
                0.0
                if {"no_1e_6", "eps_outside", "eps_on_max_norm"} & on
                else 1e-8
                if "eps_1e_8" in on
                else 1e-6
            )
            top = max_norm + (1e-6 if "eps_on_max_norm" in on else 0.0)
            value = norm / top if "factor_inverted" in on else top / (norm + eps) if norm + eps else 1.0
            if "eps_outside" in on:
                value += 1e-6
            if "divided_by_norm" in on and norm > max_norm:
                value = 1 / (norm + eps)
            elif "multiplied_by_max_norm" in on and norm > max_norm:
                value = max_norm
            if "comparison_inverted" in on:
                value = max(1.0, value)
            elif not {"always_scaled", "factor_inverted", "multiplied_by_max_norm"} & on:
                value = min(1.0, value)
            elif norm <= max_norm and "always_scaled" not in on:
                value = 1.0
            return value**2 if "squared_factor" in on else value

        factors = [factor(n) for n in own] if "each_alone" in on else [factor(norm)] * len(own)
        for i, (p, g, f) in enumerate(zip(parameters, gradients, factors, strict=True)):
            if "values_clipped" in on:
                g.clamp_(-max_norm, max_norm)
            elif "weights_scaled" in on:
                p *= f
            elif not ("never_scaled" in on or ("first_not_scaled" in on and i == 0)):
                g *= f
        after = float(torch.cat([g.flatten() for g in gradients]).norm())
        results: dict[str, Any] = {
            "returns_norm_after": after,
            "returns_factor": factors[0],
            "returns_square": norm**2,
            "returns_norm_plus_eps": norm + 1e-6,
            "returns_nothing": None,
            "returns_whether_clipped": norm > max_norm,
            "returns_gradients": gradients,
        }
        return next((v for name, v in results.items() if name in on), norm)

    return clip_gradients


def run_clip(
    clip_gradients: Callable[..., Any],
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    max_norm: float,
    form: str = "list",
) -> tuple[Any, list[Tensor | None], list[Tensor]]:
    """What is returned, and gradients and weights afterwards; `form` of the parameters: list, tuple, generator."""
    parameters = [nn.Parameter(w.clone()) for w in weights]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = None if g is None else g.clone()
    given: Any = {"list": parameters, "tuple": tuple(parameters), "generator": (p for p in parameters)}[form]
    result = number(clip_gradients(given, max_norm))
    after = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
    return result, after, [p.detach().clone() for p in parameters]


def _clip_through(clip_gradients: Any) -> Callable[..., Any]:
    return partial(run_clip, clip_gradients)


def _clip_magnified(clip_gradients: Any) -> Callable[..., Any]:
    def magnified(*args: Any) -> Any:
        result, gradients, weights = run_clip(clip_gradients, *args)
        if isinstance(result, float):
            result = 1e6 * result  # the 1e-6 in the formula should not be lost in a comparison
        return result, [None if g is None else 1e6 * g for g in gradients], weights

    return magnified


def _recording_after(clip_gradients: Any) -> Callable[..., bool]:
    def recording_after(*args: Any) -> bool:
        torch.set_grad_enabled(True)
        run_clip(clip_gradients, *args)
        recording = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return recording

    return recording_after


def _clip_case(
    seed: int, scale: float = 1.0, missing: tuple[int, ...] = ()
) -> tuple[list[Tensor], list[Tensor | None]]:
    g = torch.Generator().manual_seed(seed)
    shapes = ((3, 4), (5,), (2, 2))
    weights = [torch.randn(*s, generator=g, dtype=torch.float64) for s in shapes]
    sizes = (1.0, 2.0, 0.5)
    gradients = [
        scale * k * torch.randn(*s, generator=g, dtype=torch.float64)
        for k, s in zip(sizes, shapes, strict=True)
    ]
    return weights, [None if i in missing else x for i, x in enumerate(gradients)]


def _clip_probes(seed: int) -> list[Probe]:
    return [
        Probe((*_clip_case(seed), 0.7)),
        Probe((*_clip_case(seed), 3.0)),
        Probe((*_clip_case(seed, 2.0), 1.0)),
        Probe((*_clip_case(seed + 1), 100.0)),
        Probe((*_clip_case(seed + 2, 1e-5), 1e-6)),
        Probe((*_clip_case(seed + 3, missing=(1,)), 0.7)),
    ]


def _clip(c: Context, what: str, *args: Any) -> None:
    got = c.subject.through(_clip_through).call(*args)
    want = run_clip(solutions.clip_gradients, *args)
    for i, (g, w) in enumerate(zip(got[1], want[1], strict=True)):
        if w is None:
            if g is not None:
                raise Wrong(f"Parameter {i} has no gradient and should get none.", "gradient_from_nothing")
        else:
            c.expect(g, w, f"the gradient of parameter {i}{what}", rtol=1e-5, atol=1e-12)
    c.expect(got[2], want[2], "the list of parameters, which should not change,")
    c.expect(got[0], float(want[0]), f"the returned norm{what}", rtol=1e-5, atol=1e-12)


def _clip_large(c: Context) -> None:
    _clip(c, "", *_clip_case(c.seed), 0.7)
    _clip(c, " for max_norm = 2", *_clip_case(c.seed, 3.0), 2.0)


def _clip_small(c: Context) -> None:
    _clip(c, " when the norm is below max_norm", *_clip_case(c.seed), 100.0)


def _clip_tiny(c: Context) -> None:
    _clip(c, " for gradients near 1e-5 and max_norm = 1e-6", *_clip_case(c.seed, 1e-5), 1e-6)


def _clip_none(c: Context) -> None:
    for missing in ((1,), (0,), (0, 2)):
        _clip(c, " when some parameters have no gradient", *_clip_case(c.seed, missing=missing), 0.7)


def _clip_iterables(c: Context) -> None:
    for form in ("tuple", "generator"):
        args = (*_clip_case(c.seed), 0.7, form)
        got = c.subject.through(_clip_through).call(*args)
        if form == "generator" and difference(got[1], _clip_case(c.seed)[1]) is None:
            raise Wrong(
                "Given a generator, such as model.parameters(), your code scales nothing: it goes through the parameters "
                "twice, and a generator is used up after the first time. Make a list first.",
                "iterates_twice",
            )
        _clip(c, f" of a {form}", *args)


def _clip_autograd(c: Context) -> None:
    _still_recording(c.subject.through(_recording_after).call(*_clip_case(c.seed), 0.7))


# -- one step --------------------------------------------------------------------------------------------------------

# A wrong shift can go with the number of labels in the weights, or in what the sum is divided by: names of their own, so that
# no second mistake is named.
_NOT_SHIFTED = "The target is not shifted: the model sees the token that it has to predict. Use shift_target."
_EXCHANGED = "Decoder input and labels are exchanged: the input is tgt without its last token, the labels are tgt without its first."

_STEP = (
    Mistake("mean_of_means", "weight", "The losses of the micro-batches are averaged as if all had equally many tokens; weight each by its number of real tokens."),
    Mistake("sum_of_means", "weight", "The mean losses of the micro-batches are added up, so that the gradient grows with their number; weight each by its share of the real tokens."),
    Mistake("sum_of_tokens", "weight", "The losses are summed over tokens without division by their number."),
    Mistake("weighted_by_sequences", "weight", "The micro-batches are weighted by their number of sequences; weight them by their number of real tokens."),
    Mistake("weighted_by_positions", "weight", "The micro-batches are weighted by their number of positions, padding included; weight them by their number of real tokens."),
    Mistake("padding_in_mean", "weight", "The sum is divided by the number of positions, padding included; divide by the number of real tokens."),
    Mistake("bos_counted", "weight", "The sum is divided by the number of real tokens of tgt, bos included; count the labels."),
    Mistake("bos_counted_in_weights", "weight", "The micro-batches are weighted by the real tokens of tgt, bos included; count the labels."),
    Mistake("inputs_counted", "weight", "The sum is divided by the number of real tokens of the decoder's input; count the labels, which are what the loss is about."),
    Mistake("inputs_counted_in_weights", "weight", "The micro-batches are weighted by the real tokens of the decoder's input; count the labels, which are what the loss is about."),
    Mistake("running_count", "weight", "Each micro-batch is divided by the tokens counted so far; count those of all micro-batches first."),
    Mistake("divided_twice", "weight", "The loss is divided by the number of micro-batches although it is weighted by tokens already."),
    Mistake("not_cleared", "clear", "Old gradients are not cleared: the second step still has those of the first (optimizer.zero_grad())."),
    Mistake("cleared_every_micro_batch", "clear", "The gradients are cleared before every micro-batch, so that only the last one counts; clear them once."),
    Mistake("step_every_micro_batch", "update", "The optimizer steps after every micro-batch; it should step once, after all of them."),
    Mistake("step_and_clear_every_micro_batch", "update", "Every micro-batch is an update of its own; the optimizer should step once, after all of them."),
    Mistake("step_after_first_micro_batch", "update", "The optimizer steps after the first micro-batch and not after the last; it should step once, after all of them."),
    Mistake("no_step", "update", "The optimizer never steps."),
    Mistake("no_gradient_at_step", "update", "When the optimizer steps there is no gradient: it is cleared after backward, or backward is missing."),
    Mistake("two_steps", "update", "The optimizer steps twice."),
    Mistake("step_before_backward", "update", "The optimizer steps before the gradients of this call are there."),
    Mistake("ascent", "update", "The loss is maximised: its sign is wrong."),
    Mistake("only_first_micro_batch", "batches", "Only the first micro-batch is used."),
    Mistake("only_last_micro_batch", "batches", "Only the last micro-batch reaches the update."),
    Mistake("not_shifted", "shift", _NOT_SHIFTED),
    Mistake("not_shifted_weights_right", "shift", _NOT_SHIFTED),
    Mistake("not_shifted_divisor_right", "shift", _NOT_SHIFTED),
    Mistake("shifted_twice", "shift", "The target is shifted twice: the label of position t is the token after the next."),
    Mistake("input_not_cut", "shift", "The labels are not the tokens after the input's."),
    Mistake("shift_exchanged", "shift", _EXCHANGED),
    Mistake("shift_exchanged_weights_right", "shift", _EXCHANGED),
    Mistake("shift_exchanged_divisor_right", "shift", _EXCHANGED),
    Mistake("source_and_target_exchanged", "shift", "Source and target are exchanged."),
    Mistake("source_is_target", "shift", "The target is given as the source."),
    Mistake("smoothing_ignored", "smoothing", "`smoothing` has no effect: the loss is not smoothed."),
    Mistake("smoothing_fixed", "smoothing", "The loss is smoothed by 0.1 whatever `smoothing` is."),
    Mistake("default_smoothing_0", "smoothing", "Without `smoothing` the loss is not smoothed; the default is 0.1."),
    Mistake("smoothing_over_others", "smoothing", "The loss is smoothed with smoothing / (V − 1) on the other classes, the other convention; here every class gets smoothing / V."),
    Mistake("pad_not_ignored", "padding", "Padding counts in the loss; it should not count at all."),
    Mistake("pad_not_ignored_in_loss", "padding", "Padding counts in the losses of the micro-batches, though not in their weights; it should not count at all."),
    Mistake("pad_not_ignored_in_sum", "padding", "Padding counts in the sum, though not in the number of tokens by which it is divided; it should not count at all."),
    Mistake("max_norm_ignored", "clip", "`max_norm` has no effect on the update: the gradients are not clipped, or not between the last backward and the step."),
    Mistake("clips_every_micro_batch", "clip", "The gradients are clipped after every micro-batch; clip once, after all of them."),
    Mistake("clips_always_to_1", "clip", "Gradients are clipped to norm 1 without max_norm; without it they should not be clipped."),
    Mistake("clips_values", "clip", "Each value of the gradients is cut off at max_norm; their norm over all is to be clipped."),
    Mistake("clips_each_parameter", "clip", "Each parameter's gradient is clipped alone; clip the norm over all together."),
    Mistake("returns_mean_of_means", "returns", "The returned loss is the mean of the micro-batches' means; it should be the mean over all real tokens."),
    Mistake("returns_sum_of_means", "returns", "The returned loss is the sum of the micro-batches' means; it should be the mean over all real tokens."),
    Mistake("returns_sum", "returns", "The returned loss is a sum over tokens; it should be the mean over all real tokens."),
    Mistake("returns_last", "returns", "The returned loss is that of the last micro-batch; it should be the mean over all real tokens."),
    Mistake("returns_last_share", "returns", "The returned loss is the share of the last micro-batch alone; add up the shares of all."),
    Mistake("returns_first", "returns", "The returned loss is that of the first micro-batch; it should be the mean over all real tokens."),
    Mistake("returns_unsmoothed", "returns", "The returned loss is the one without smoothing; return the loss that is minimised."),
    Mistake("returns_loss_after", "returns", "The returned loss is the one after the update; return the one before."),
    Mistake("returns_list", "returns", "There is one loss for each micro-batch; return their mean over all real tokens, one number."),
    Mistake("returns_nothing", "returns", "Nothing is returned; return the mean loss over the real tokens."),
    Mistake("returns_perplexity", "returns", "exp of the mean loss is returned; return the mean loss."),
    Mistake("returns_norm", "returns", "The norm of the gradients is returned; return the mean loss over the real tokens."),
    Mistake("returns_loss_over_micro_batches", "returns", "The returned loss is divided by the number of micro-batches once more; it should be the mean over all real tokens."),
)  # fmt: skip


def _pieces(on: frozenset[str], src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Source, decoder input and labels."""
    inputs, labels = tgt[:, :-1], tgt[:, 1:]
    shifts: dict[str, Callable[[], tuple[Tensor, Tensor, Tensor]]] = {
        "not_shifted": lambda: (src, tgt, tgt),
        "shifted_twice": lambda: (src, tgt[:, :-2], tgt[:, 2:]),
        "input_not_cut": lambda: (src, inputs, inputs),
        "shift_exchanged": lambda: (src, labels, inputs),
        "source_and_target_exchanged": lambda: (tgt, src[:, :-1], src[:, 1:]),
        "source_is_target": lambda: (tgt, inputs, labels),
    }
    plain = {name.removesuffix("_weights_right").removesuffix("_divisor_right") for name in on}
    return next((f() for name, f in shifts.items() if name in plain), (src, inputs, labels))


def _step_variant(on: frozenset[str]) -> Callable[..., Any]:
    def loss_of(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        flags = {"smoothing_over_others"} & on
        if any(name.startswith("pad_not_ignored") for name in on):
            flags |= {"pad_not_ignored"}
        return _loss_variant(frozenset(flags))(
            logits, labels, 0.0 if "smoothing_ignored" in on else smoothing
        )

    def clip(model: nn.Module, max_norm: float | None) -> float:
        if "clips_always_to_1" in on and max_norm is None:
            max_norm = 1.0
        if max_norm is None or "max_norm_ignored" in on:
            return 0.0
        flags = (
            {"values_clipped"}
            if "clips_values" in on
            else {"each_alone"}
            if "clips_each_parameter" in on
            else set()
        )
        return float(_clip_variant(frozenset(flags))(list(model.parameters()), max_norm))

    def train_step(
        model: nn.Module,
        micro_batches: Any,
        optimizer: Any,
        smoothing: float | None = None,
        max_norm: float | None = None,
    ) -> Any:
        if smoothing is None:
            smoothing = 0.0 if "default_smoothing_0" in on else 0.1
        elif "smoothing_fixed" in on:
            smoothing = 0.1
        if "only_first_micro_batch" in on:
            micro_batches = micro_batches[:1]
        elif "only_last_micro_batch" in on:
            micro_batches = micro_batches[-1:]
        pieces = [_pieces(on, src, tgt) for src, tgt in micro_batches]
        counts = [int((labels != 0).sum()) for _, _, labels in pieces]
        with_bos = [int((tgt != 0).sum()) for _, tgt in micro_batches]
        of_inputs = [int((inputs != 0).sum()) for _, inputs, _ in pieces]
        positions = [labels.numel() for _, _, labels in pieces]
        sizes = [len(src) for src, _, _ in pieces]
        n = len(pieces)
        right = [int((tgt[:, 1:] != 0).sum()) for _, tgt in micro_batches]
        if any(name.endswith("_weights_right") for name in on):
            counts = right
        total = sum(right if any(name.endswith("_divisor_right") for name in on) else counts)
        weights = [k / total for k in counts]
        others: dict[str, Callable[[], list[float]]] = {
            "mean_of_means": lambda: [1 / n] * n,
            "sum_of_means": lambda: [1.0] * n,
            "sum_of_tokens": lambda: [float(k) for k in counts],
            "weighted_by_sequences": lambda: [k / sum(sizes) for k in sizes],
            "weighted_by_positions": lambda: [k / sum(positions) for k in positions],
            "padding_in_mean": lambda: [k / sum(positions) for k in counts],
            "step_and_clear_every_micro_batch": lambda: [1.0] * n,
            "divided_twice": lambda: [w / n for w in weights],
            "running_count": lambda: [k / sum(counts[: i + 1]) for i, k in enumerate(counts)],
            "bos_counted": lambda: [k / sum(with_bos) for k in counts],
            "bos_counted_in_weights": lambda: [k / sum(with_bos) for k in with_bos],
            "inputs_counted": lambda: [k / sum(of_inputs) for k in counts],
            "inputs_counted_in_weights": lambda: [k / sum(of_inputs) for k in of_inputs],
        }
        default = weights
        if "pad_not_ignored" in on:
            default = [k / sum(positions) for k in positions]
        elif "pad_not_ignored_in_sum" in on:
            default = [k / sum(counts) for k in positions]
        own = next((f() for name, f in others.items() if name in on), default)
        if "step_before_backward" in on:
            optimizer.step()
        if not {"not_cleared", "cleared_every_micro_batch"} & on:
            optimizer.zero_grad()
        losses, unsmoothed, norm = [], 0.0, 0.0
        for (src, inputs, labels), weight in zip(pieces, own, strict=True):
            if "cleared_every_micro_batch" in on:
                optimizer.zero_grad()
            logits = model(src, inputs)
            loss = loss_of(logits, labels, smoothing)
            unsmoothed += weight * loss_of(logits, labels, 0.0).item()
            if "no_gradient_at_step" not in on:
                (loss * (-weight if "ascent" in on else weight)).backward()
            losses.append(loss.item())
            if {"clips_every_micro_batch", "step_every_micro_batch", "step_and_clear_every_micro_batch"} & on:
                clip(model, max_norm)
            if {"step_every_micro_batch", "step_and_clear_every_micro_batch"} & on:
                optimizer.step()
            if "step_and_clear_every_micro_batch" in on:
                optimizer.zero_grad()
            if "step_after_first_micro_batch" in on and len(losses) == 1:
                clip(model, max_norm)
                optimizer.step()
        if "clips_every_micro_batch" not in on:
            norm = clip(model, max_norm)
        if "returns_norm" in on:
            norm = float(
                torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
            )
        steps = {"no_step": 0, "step_every_micro_batch": 0, "step_and_clear_every_micro_batch": 0, "step_before_backward": 0, "step_after_first_micro_batch": 0, "two_steps": 2}  # fmt: skip
        for _ in range(next((k for name, k in steps.items() if name in on), 1)):
            optimizer.step()
        mean_weights = weights if "step_and_clear_every_micro_batch" in on else own
        mean = sum(w * x for w, x in zip(mean_weights, losses, strict=True))

        def again(smoothing: float) -> float:
            with torch.no_grad():
                return sum(
                    w * loss_of(model(s, i), k, smoothing).item()
                    for w, (s, i, k) in zip(weights, pieces, strict=True)
                )

        results: dict[str, Callable[[], Any]] = {
            "returns_mean_of_means": lambda: sum(losses) / n,
            "returns_sum_of_means": lambda: sum(losses),
            "returns_sum": lambda: mean * sum(counts),
            "returns_last": lambda: losses[-1],
            "returns_last_share": lambda: own[-1] * losses[-1],
            "returns_first": lambda: losses[0],
            "returns_unsmoothed": lambda: unsmoothed,
            "returns_loss_after": lambda: again(smoothing),
            "returns_list": lambda: losses,
            "returns_nothing": lambda: None,
            "returns_perplexity": lambda: math.exp(mean),
            "returns_norm": lambda: norm,
            "returns_loss_over_micro_batches": lambda: mean / n,
        }
        return next((f() for name, f in results.items() if name in on), mean)

    return train_step


def run_steps(
    train_step: Callable[..., Any], weights: Sequence[Tensor], calls: Sequence[Any], *settings: Any
) -> tuple[list[tuple[Any, list[Tensor]]], int, list[bool], bool]:
    """(what is returned, the parameters) after each call, the number of optimizer steps, the mode in each call of the model,
    and the one in which it is left."""
    model = Translator(weights).train()
    optimizer = GradientDescent(model.parameters(), lr=2.0)
    results = []
    for micro_batches in calls:
        value = number(train_step(model, micro_batches, optimizer, *settings))
        results.append((value, [p.detach().clone() for p in model.parameters()]))
    return results, optimizer.steps, [training for training, _, _ in model.calls], model.training


def _step_through(train_step: Any) -> Callable[..., Any]:
    return partial(run_steps, train_step)


def _recognised(train_step: Any) -> Callable[..., Any]:
    return lambda *args: run_steps(train_step, *args)[:2]


def _step_case(seed: int, steep: bool = False) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
    """Weights of a model, and three micro-batches with 10, 6 and 1 real labels; `steep` makes gradients of norm 10 and more."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((12, 4), (11, 4), (4, 11))
    weights = [0.8 * torch.randn(*s, generator=g, dtype=torch.float64) for s in shapes]
    if steep:
        weights[2] *= 60.0
    batches = []
    for width, lengths in ((4, (5, 3)), (3, (2, 0, 1)), (2, (0,))):
        src = torch.randint(4, 11, (len(lengths), width), generator=g)
        src[0, width - 1] = 0
        rows = [[1, *torch.randint(4, 11, (n,), generator=g).tolist(), 2] for n in lengths]
        longest = max(len(r) for r in rows) + (len(rows) != 3)
        batches.append((src, torch.tensor([r + [0] * (longest - len(r)) for r in rows])))
    return weights, batches


def _step_probes(seed: int) -> list[Probe]:
    weights, batches = _step_case(seed)
    other = _step_case(seed + 1)[1]
    return [
        Probe((weights, [batches[1:]], 0.3)),
        Probe((weights, [batches, other])),
        Probe((weights, [batches], 0.1, 0.05)),
        Probe((weights, [batches], 0.1, 50.0)),
        Probe((_step_case(seed, steep=True)[0], [batches])),
    ]


def _steps(c: Context, what: str, *args: Any, returned: bool = False) -> None:
    got = c.subject.through(_step_through).call(*args)[0]
    for n, ((value, parameters), (loss, wanted)) in enumerate(
        zip(got, run_steps(solutions.train_step, *args)[0], strict=True), start=1
    ):
        if returned:
            c.expect(value, loss, f"the returned loss{what}", rtol=1e-5)
            continue
        name = f"the model after {'one call' if n == 1 else f'{n} calls'}{what}: parameter"
        for i, (p, w) in enumerate(zip(parameters, wanted, strict=True)):
            c.expect(p, w, f"{name} {i}", rtol=1e-5)


def _step_one(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    for batch in batches:
        _steps(c, " with one micro-batch", weights, [[batch]], 0.1)


def _step_union(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    _steps(c, " with three micro-batches", weights, [batches], 0.1)
    _steps(c, " with two micro-batches", weights, [batches[1:]], 0.1)
    _steps(c, " with large gradients", _step_case(c.seed, steep=True)[0], [batches], 0.1)


def _step_loss(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    _steps(c, " of one micro-batch", weights, [batches[:1]], 0.1, returned=True)
    _steps(c, " of three micro-batches", weights, [batches], 0.1, returned=True)


def _step_again(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    calls = [batches, _step_case(c.seed + 1)[1], batches[:1]]
    steps = c.subject.through(_step_through).call(weights, calls, 0.1)[1]
    _steps(c, "", weights, calls, 0.1)
    if steps != 3:
        raise Wrong(f"In three calls the optimizer should step three times; yours steps {steps} times.")


def _step_smoothing(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    for smoothing in (0.0, 0.4):
        _steps(c, f" with smoothing {smoothing}", weights, [batches], smoothing)
    _steps(c, " with the default smoothing", weights, [batches])
    _steps(c, " with the default smoothing", weights, [batches], returned=True)


def _step_clip(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    for max_norm in (0.05, 50.0):
        _steps(c, f" with max_norm {max_norm}", weights, [batches, batches], 0.1, max_norm)


def _step_mode(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    _, _, modes, left = c.subject.through(_step_through).call(weights, [batches], 0.1)
    if not all(modes):
        raise Wrong(
            "The model comes in training mode, and is in evaluation mode when it is called, so that dropout is off.",
            "evaluation_mode",
        )
    if not modes:
        raise Wrong("The model is never called.", "model_not_called")
    if not left:
        raise Wrong(
            "The model comes in training mode, and your step leaves it in evaluation mode.",
            "left_in_evaluation_mode",
        )


def _step_kept(c: Context) -> None:
    weights, batches = _step_case(c.seed)
    after = c.subject.through(_batches_after).call(weights, batches)
    if difference([x for pair in after for x in pair], [x for pair in batches for x in pair]) is not None:
        raise Wrong("Your code changes micro_batches, the list or the tensors in it.", "changes_its_input")


def _batches_after(train_step: Any) -> Callable[..., Any]:
    def batches_after(weights: Sequence[Tensor], batches: list[tuple[Tensor, Tensor]]) -> list[Any]:
        run_steps(train_step, weights, [batches])
        return batches

    return batches_after


_exercise = partial(Exercise, notebook="12_training")

EXERCISES = (
    _exercise(
        name="label_smoothed_cross_entropy",
        points=3,
        difficulty=2,
        minutes=20,
        hints=(
            "Written out, what is −Σ q log p when q is (1 − ε) on the target plus ε/V on every class? Which mean is the second part?",
            "log_probs = logits.log_softmax(-1); the loss of a token is (1 − ε) times −log_probs at its target, plus ε times the mean of −log_probs. Then the mean over tokens with target != pad_id.",
            "real = targets != pad_id; log_probs = logits[real].log_softmax(-1); of_target = log_probs.gather(-1, targets[real][:, None])[:, 0]; divide the sum by max(number of real tokens, 1).",
        ),
        reference=solutions.label_smoothed_cross_entropy,
        tests=(
            Test(
                "values",
                "equals −Σ target · log softmax(logits), without padding",
                _loss_values,
                crash="crashes_without_padding",
            ),
            Test(
                "by_hand", "gives 0.4908 for an example by hand", _loss_by_hand, crash="fixed_number_of_axes"
            ),
            Test("plain", "is the plain cross entropy for smoothing = 0", _loss_plain),
            Test(
                "padding",
                "takes the mean over real tokens: padding does not count",
                _loss_padding,
                crash="crashes_with_padding",
            ),
            Test("pad_id", "uses the pad_id it is given", _loss_pad_id),
            Test(
                "two_axes", "takes logits (N, V) and (B, T, V)", _loss_two_axes, crash="fixed_number_of_axes"
            ),
            Test(
                "nothing",
                "is 0 when there is no real token",
                _loss_nothing,
                crash="crashes_without_real_tokens",
            ),
            Test("large", "stays right for large logits", _loss_large),
            Test("gradient", "has the right gradient", _loss_gradient),
            Test(
                "inputs_kept",
                "leaves its inputs as they were, contiguous or not",
                _loss_kept,
                crash="needs_contiguous_input",
            ),
        ),
        mistakes=_LOSS,
        variant=_loss_variant,
        probes=_loss_probes,
        not_allowed=("F.cross_entropy", "nn.CrossEntropyLoss", "F.kl_div"),
    ),
    _exercise(
        name="noam_lr",
        points=1,
        difficulty=1,
        minutes=8,
        hints=(
            "For a small step, which of step^−0.5 and step · warmup^−1.5 is smaller? And for a large one?",
            "The rate is factor · d_model^−0.5 · min(step^−0.5, step · warmup^−1.5); step 0 is taken as step 1.",
            "step = max(step, 1); return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)",
        ),
        reference=solutions.noam_lr,
        tests=(
            Test("warmup", "grows linearly during the warm-up", _noam_warmup),
            Test("decay", "falls like step^−0.5 after it", _noam_decay),
            Test("paper", "gives the paper's values for d_model 512 and warmup 4000", _noam_paper),
            Test("factor", "is multiplied by factor", _noam_factor),
            Test("zero", "noam_lr(0) = noam_lr(1)", _noam_zero, crash="step_0_fails"),
        ),
        mistakes=_NOAM,
        variant=_noam_variant,
        probes=_noam_probes,
        as_function=_noam_magnified,
    ),
    _exercise(
        name="adam_step",
        points=3,
        difficulty=2,
        minutes=25,
        hints=(
            "What has to survive from one call to the next, and for each parameter on its own?",
            "m ← β₁ m + (1 − β₁) g and v ← β₂ v + (1 − β₂) g² are kept in `state`; m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) are not.",
            "Under torch.no_grad(): parameter -= lr * m_hat / (v_hat.sqrt() + eps), and `continue` when the gradient is None.",
        ),
        reference=solutions.adam_step,
        tests=(
            Test("first", "makes the first two steps of one parameter right", _adam_first),
            Test(
                "later",
                "keeps moments for each parameter: three parameters, five steps",
                _adam_later,
                crash="crashes_with_several_parameters",
            ),
            Test("settings", "uses lr, betas and eps as given", _adam_settings),
            Test("schedule", "uses the lr of each step", _adam_schedule),
            Test("tiny", "uses the default eps of 1e-9: tiny gradients", _adam_tiny),
            Test("none", "skips parameters without gradient", _adam_none, crash="crashes_without_gradient"),
            Test(
                "parameters",
                "works on parameters that require gradient",
                _adam_parameters,
                crash="recorded_by_autograd",
            ),
            Test("state", "keeps everything in `state`", _adam_state),
        ),
        mistakes=_ADAM,
        variant=_adam_variant,
        neutral=("eps_hat",),
        probes=_adam_probes,
        as_function=_adam_through,
        not_allowed=("torch.optim",),
    ),
    _exercise(
        name="clip_gradients",
        points=2,
        difficulty=1,
        minutes=12,
        hints=(
            "If all gradients were written into one long vector, what would its length be?",
            "The norm over all is the root of the sum of all squares. A generator can be gone through only once: make a list first.",
            "norm = torch.stack([g.norm() for g in gradients]).norm(); then g *= min(1, max_norm / (norm + 1e-6)) for each g; return norm.",
        ),
        reference=solutions.clip_gradients,
        tests=(
            Test(
                "large",
                "scales all gradients by max_norm / (norm + 1e-6) and returns the norm before",
                _clip_large,
            ),
            Test("small", "leaves small gradients alone", _clip_small),
            Test("tiny", "adds 1e-6 to the norm: tiny gradients", _clip_tiny),
            Test("none", "skips parameters without gradient", _clip_none, crash="crashes_without_gradient"),
            Test("iterables", "takes any iterable", _clip_iterables, crash="needs_a_list"),
            Test("autograd", "leaves autograd switched on", _clip_autograd),
        ),
        mistakes=_CLIP,
        variant=_clip_variant,
        probes=_clip_probes,
        as_function=_clip_magnified,
        not_allowed=("clip_grad_norm_",),
    ),
    _exercise(
        name="train_step",
        points=4,
        difficulty=3,
        minutes=30,
        hints=(
            "Two micro-batches have 10 and 2 real tokens. With which weights do their mean losses give the mean over all 12?",
            "Count the real labels of all micro-batches first. Clear the gradients once; for each micro-batch, backward of its mean loss times its share of the tokens; clip and step once.",
            "share = (labels != 0).sum() / n_tokens; (share * loss).backward(); after the loop clip_gradients(model.parameters(), max_norm) and optimizer.step().",
        ),
        reference=solutions.train_step,
        tests=(
            Test(
                "one", "one micro-batch: a step down the gradient of the mean over its real tokens", _step_one
            ),
            Test("union", "several: the same update as their union", _step_union),
            Test("loss", "returns the mean loss over the real tokens", _step_loss),
            Test("again", "starts every call from cleared gradients and steps once", _step_again),
            Test("smoothing", "smooths as it is told, by 0.1 otherwise", _step_smoothing),
            Test("clip", "clips once, when max_norm is given", _step_clip),
            Test("mode", "calls the model in training mode and leaves it there", _step_mode),
            Test("inputs_kept", "leaves the micro-batches as they were", _step_kept),
        ),
        mistakes=_STEP,
        variant=_step_variant,
        probes=_step_probes,
        as_function=_recognised,
    ),
)
