"""Answers to the exercises of 12, right and wrong."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# -- loss: right -----------------------------------------------------------------------------------------------------


def loss_distribution(logits, targets, smoothing, pad_id=0):
    v = logits.size(-1)
    logits, targets = logits.reshape(-1, v), targets.reshape(-1)
    q = torch.full_like(logits, smoothing / v)
    q.scatter_add_(1, targets[:, None], torch.full_like(logits[:, :1], 1 - smoothing))
    loss = -(q * torch.log_softmax(logits, -1)).sum(-1)
    mask = targets != pad_id
    return (loss * mask).sum() / mask.sum().clamp(min=1)


def loss_nll(logits, targets, smoothing, pad_id=0):
    log_p = F.log_softmax(logits, dim=-1).flatten(0, -2)
    targets = targets.flatten()
    n = int((targets != pad_id).sum())
    if n == 0:
        return logits.sum() * 0.0
    nll = F.nll_loss(log_p, targets, ignore_index=pad_id, reduction="sum")
    smooth = -log_p.mean(-1)[targets != pad_id].sum()
    return ((1 - smoothing) * nll + smoothing * smooth) / n


def loss_loops(logits, targets, smoothing, pad_id=0):
    v = logits.shape[-1]
    total, n = logits.new_zeros(()), 0
    for row, target in zip(logits.reshape(-1, v), targets.reshape(-1).tolist(), strict=True):
        if target == pad_id:
            continue
        log_p = row - torch.logsumexp(row, 0)
        for k in range(v):
            total = total - (smoothing / v + (1 - smoothing if k == target else 0)) * log_p[k]
        n += 1
    return total / n if n else total


def loss_manual_log_softmax(logits, targets, smoothing, pad_id=0, **unused):
    z = logits - logits.max(dim=-1, keepdim=True).values
    log_p = z - z.exp().sum(-1, keepdim=True).log()
    hot = F.one_hot(targets, logits.shape[-1]).to(log_p.dtype)
    hot = hot * (1 - smoothing) + smoothing / logits.shape[-1]
    per_token = -torch.einsum("...v,...v->...", hot, log_p)
    real = (targets != pad_id).to(per_token.dtype)
    return (per_token * real).sum() / torch.clamp(real.sum(), min=1.0)


class LossObject:
    def __call__(self, logits, targets, smoothing, pad_id=0):
        keep = targets.ne(pad_id)
        if not keep.any():
            return torch.tensor(0.0)
        log_p = logits[keep].log_softmax(-1).log_softmax(-1)
        rows = torch.arange(len(log_p))
        return ((smoothing - 1) * log_p[rows, targets[keep]] - smoothing * log_p.mean(1)).mean()


# -- loss: wrong -----------------------------------------------------------------------------------------------------


def loss_mean_over_all(logits, targets, smoothing, pad_id=0):
    log_p = F.log_softmax(logits, -1)
    nll = -log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    loss = (1 - smoothing) * nll + smoothing * -log_p.mean(-1)
    return (loss * (targets != pad_id)).mean()


def loss_padding_counts(logits, targets, smoothing, pad_id=0):
    log_p = F.log_softmax(logits, -1)
    nll = -log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return ((1 - smoothing) * nll + smoothing * -log_p.mean(-1)).mean()


def loss_others(logits, targets, smoothing, pad_id=0):
    v = logits.size(-1)
    logits, targets = logits.reshape(-1, v), targets.reshape(-1)
    q = torch.full_like(logits, smoothing / (v - 1))
    q.scatter_(1, targets[:, None], 1 - smoothing)
    mask = targets != pad_id
    return (-(q * logits.log_softmax(-1)).sum(-1) * mask).sum() / mask.sum().clamp(min=1)


def loss_annotated(logits, targets, smoothing, pad_id=0):
    v = logits.size(-1)
    x, y = logits.reshape(-1, v).log_softmax(-1), targets.reshape(-1)
    true = torch.full_like(x, smoothing / (v - 2))
    true.scatter_(1, y[:, None], 1 - smoothing)
    true[:, pad_id] = 0
    true[y == pad_id] = 0
    return -(true * x).sum() / max(int((y != pad_id).sum()), 1)


def loss_annotated_kl(logits, targets, smoothing, pad_id=0):
    v = logits.size(-1)
    x, y = logits.reshape(-1, v).log_softmax(-1), targets.reshape(-1)
    true = torch.full_like(x, smoothing / (v - 2))
    true.scatter_(1, y[:, None], 1 - smoothing)
    true[:, pad_id] = 0
    true[y == pad_id] = 0
    kl = torch.where(true > 0, true * (true.clamp(min=1e-30).log() - x), torch.zeros_like(x))
    return kl.sum() / max(int((y != pad_id).sum()), 1)


def loss_sum(logits, targets, smoothing, pad_id=0):
    m = targets != pad_id
    log_p = logits[m].log_softmax(-1)
    nll = -log_p[torch.arange(len(log_p)), targets[m]]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1)).sum()


def loss_no_default_pad(logits, targets, smoothing, pad_id=0):
    m = targets != 0
    log_p = logits[m].log_softmax(-1)
    nll = -log_p[torch.arange(len(log_p)), targets[m]]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1)).sum() / max(len(nll), 1)


def loss_nan_when_empty(logits, targets, smoothing, pad_id=0):
    m = targets != pad_id
    log_p = logits[m].log_softmax(-1)
    nll = -log_p[torch.arange(len(log_p)), targets[m]]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1)).mean()


def loss_softmax_twice(logits, targets, smoothing, pad_id=0):
    return loss_nll(torch.softmax(logits, -1), targets, smoothing, pad_id)


def loss_smoothing_of_padding(logits, targets, smoothing, pad_id=0):
    log_p = F.log_softmax(logits, -1).flatten(0, -2)
    y = targets.flatten()
    n = (y != pad_id).sum().clamp(min=1)
    nll = F.nll_loss(log_p, y, ignore_index=pad_id, reduction="sum") / n
    return (1 - smoothing) * nll + smoothing * -log_p.mean(-1).mean()


def loss_sum_of_log_probs(logits, targets, smoothing, pad_id=0):
    m = targets != pad_id
    log_p = logits[m].log_softmax(-1)
    nll = -log_p[torch.arange(len(log_p)), targets[m]]
    return ((1 - smoothing) * nll - smoothing * log_p.sum(-1)).sum() / max(len(nll), 1)


def loss_sequences(logits, targets, smoothing, pad_id=0):
    log_p = logits.log_softmax(-1)
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    m = (targets != pad_id).to(log_p.dtype)
    loss = ((1 - smoothing) * nll - smoothing * log_p.mean(-1)) * m
    return (loss.sum(-1) / m.sum(-1).clamp(min=1)).mean()


def loss_naive_exp(logits, targets, smoothing, pad_id=0):
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    log_p = p.log()
    m = targets != pad_id
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    loss = ((1 - smoothing) * nll - smoothing * log_p.mean(-1))[m]
    return loss.sum() / max(int(m.sum()), 1)


def loss_log_of_softmax(logits, targets, smoothing, pad_id=0, eps=0.0):
    log_p = (logits.softmax(-1) + eps).log()
    m = targets != pad_id
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1))[m].sum() / max(int(m.sum()), 1)


def loss_log_of_softmax_and_eps(logits, targets, smoothing, pad_id=0):
    return loss_log_of_softmax(logits, targets, smoothing, pad_id, 1e-9)


def loss_not_reduced(logits, targets, smoothing, pad_id=0):
    log_p = logits.log_softmax(-1)
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1)) * (targets != pad_id)


def loss_viewed(logits, targets, smoothing, pad_id=0):
    if logits.dim() == 3:
        b, t, v = logits.shape
        log_p = logits.reshape(b, v, t).log_softmax(1).transpose(1, 2)
    else:
        log_p = logits.log_softmax(-1)
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    m = targets != pad_id
    return (((1 - smoothing) * nll - smoothing * log_p.mean(-1)) * m).sum() / m.sum().clamp(min=1)


def loss_item(logits, targets, smoothing, pad_id=0):
    return loss_nll(logits, targets, smoothing, pad_id).item()


def loss_library(logits, targets, smoothing, pad_id=0):
    v = logits.size(-1)
    return F.cross_entropy(
        logits.reshape(-1, v), targets.reshape(-1), ignore_index=pad_id, label_smoothing=smoothing
    )


def loss_detached(logits, targets, smoothing, pad_id=0):
    return loss_nll(logits.detach(), targets, smoothing, pad_id)


def loss_in_place(logits, targets, smoothing, pad_id=0):
    real = targets != pad_id
    targets[~real] = 0
    log_p = logits.log_softmax(-1)
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    return (((1 - smoothing) * nll - smoothing * log_p.mean(-1)) * real).sum() / real.sum().clamp(min=1)


def loss_positive_sign(logits, targets, smoothing, pad_id=0):
    return -loss_nll(logits, targets, smoothing, pad_id)


def loss_two_or_three_axes(logits, targets, smoothing, pad_id=0):
    if logits.dim() == 3:
        b, t, v = logits.shape
        logits, targets = logits.reshape(b * t, v), targets.reshape(b * t)
    log_p, real = logits.log_softmax(1), targets != pad_id
    loss = -(1 - smoothing) * log_p.gather(1, targets[:, None])[:, 0] - smoothing * log_p.mean(1)
    return (loss * real).sum() / real.sum().clamp(min=1)


def loss_three_axes_only(logits, targets, smoothing, pad_id=0):
    b, t, v = logits.shape
    return loss_nll(logits.reshape(b * t, v), targets.reshape(b * t), smoothing, pad_id)


# -- schedule --------------------------------------------------------------------------------------------------------


def noam_max(step, d_model, warmup, factor=1.0):
    step = max(1, step)
    return factor / math.sqrt(d_model) * min(1 / math.sqrt(step), step / warmup**1.5)


def noam_branches(step, d_model, warmup, factor=1.0):
    if step == 0:
        step = 1
    scale = factor * d_model ** (-0.5)
    if step < warmup:
        return scale * step * warmup ** (-1.5)
    return scale * step ** (-0.5)


def noam_tensor(step, d_model, warmup, factor=1.0):
    s = torch.tensor(float(max(step, 1)), dtype=torch.float64)
    return factor * d_model**-0.5 * torch.minimum(s**-0.5, s * warmup**-1.5)


def noam_numpy(step, d_model, warmup, factor=1.0, last_epoch=-1):
    s = np.maximum(step, 1).astype(float)
    return factor * np.float64(d_model) ** -0.5 * np.minimum(s**-0.5, s * np.float64(warmup) ** -1.5)


noam_lambda = lambda step, d_model, warmup, factor=1.0: (  # noqa: E731
    factor * (d_model * max(step, 1)) ** -0.5 * min(1.0, (max(step, 1) / warmup) ** 1.5)
)


def noam_crashes(step, d_model, warmup, factor=1.0):
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_zero(step, d_model, warmup, factor=1.0):
    if step == 0:
        return 0.0
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_plus_one(step, d_model, warmup, factor=1.0):
    step += 1
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_maximum(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * d_model**-0.5 * max(step**-0.5, step * warmup**-1.5)


def noam_no_d_model(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * min(step**-0.5, step * warmup**-1.5)


def noam_power(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * d_model**0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_half(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)


def noam_no_factor(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_linear_then_constant(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * d_model**-0.5 * warmup**-0.5 * min(1.0, step / warmup)


def noam_peak(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * min(step / warmup, (warmup / step) ** 0.5)


def noam_exchanged(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    return factor * d_model**-0.5 * min(warmup**-0.5, warmup * step**-1.5)


def noam_crashes_and_no_factor(step, d_model, warmup, factor=1.0):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_linear_decay(step, d_model, warmup, factor=1.0):
    step = max(step, 1)
    peak = factor * d_model**-0.5 * warmup**-0.5
    if step <= warmup:
        return peak * step / warmup
    return max(0.0, peak * (1 - (step - warmup) / warmup))


# -- Adam ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def adam_index(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    b1, b2 = betas
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        if g is None:
            continue
        m, v, t = state.get(i, (torch.zeros_like(p), torch.zeros_like(p), 0))
        t += 1
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        state[i] = (m, v, t)
        p -= lr * (m / (1 - b1**t)) / (torch.sqrt(v / (1 - b2**t)) + eps)


def adam_data(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    if not state:
        state["t"] = 0
        state["m"] = [torch.zeros_like(p.data) for p in parameters]
        state["v"] = [torch.zeros_like(p.data) for p in parameters]
    state["t"] += 1
    t = state["t"]
    for k, p in enumerate(parameters):
        g = gradients[k]
        if g is None:
            continue
        m, v = state["m"][k], state["v"][k]
        m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
        v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        p.data.addcdiv_(m / (1 - betas[0] ** t), (v / (1 - betas[1] ** t)).sqrt().add_(eps), value=-lr)


def adam_eps_hat(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    b1, b2 = betas
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            if g is not None:
                s = state.setdefault(id(p), {"step": 0, "exp_avg": 0.0, "exp_avg_sq": 0.0})
                s["step"] += 1
                s["exp_avg"] = s["exp_avg"] * b1 + g * (1 - b1)
                s["exp_avg_sq"] = s["exp_avg_sq"] * b2 + g.square() * (1 - b2)
                size = lr * math.sqrt(1 - b2 ** s["step"]) / (1 - b1 ** s["step"])
                p.add_(s["exp_avg"] / (s["exp_avg_sq"].sqrt() + eps), alpha=-size)


class AdamObject:
    @torch.no_grad()
    def __call__(self, parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
        for p, g in zip(list(parameters), list(gradients), strict=True):
            if g is None:
                continue
            if p not in state:
                state[p] = [torch.zeros_like(p), torch.zeros_like(p), 0]
            m, v, _ = state[p]
            m.lerp_(g, 1 - betas[0])
            v.lerp_(g**2, 1 - betas[1])
            state[p][2] += 1
            t = state[p][2]
            new = p - lr * m.div(1 - betas[0] ** t) / (v.div(1 - betas[1] ** t) ** 0.5 + eps)
            p.copy_(new)


@torch.no_grad()
def adam_no_correction(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        if g is None:
            continue
        m, v = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        state[i] = (m, v)
        p -= lr * m / (v.sqrt() + eps)


def _adam(change):
    """A right Adam with one line changed by `change`."""

    @torch.no_grad()
    def adam_step(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
        b1, b2 = betas
        for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
            if g is None:
                continue
            m, v, t = state.get(i, (torch.zeros_like(p), torch.zeros_like(p), 0))
            t += 1
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            state[i] = (m, v, t)
            change(p, m, v, t, lr, b1, b2, eps)

    return adam_step


def _eps_in_root(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1**t)) / torch.sqrt(v / (1 - b2**t) + eps)


def _no_root(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1**t)) / (v / (1 - b2**t) + eps)


def _not_in_place(p, m, v, t, lr, b1, b2, eps):
    p = p - lr * (m / (1 - b1**t)) / (torch.sqrt(v / (1 - b2**t)) + eps)


def _t_from_zero(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1 ** (t - 1))) / (torch.sqrt(v / (1 - b2 ** (t - 1))) + eps)


def _only_m(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1**t)) / (torch.sqrt(v) + eps)


def _ascent(p, m, v, t, lr, b1, b2, eps):
    p += lr * (m / (1 - b1**t)) / (torch.sqrt(v / (1 - b2**t)) + eps)


def _no_power(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1)) / (torch.sqrt(v / (1 - b2)) + eps)


def adam_default_betas(parameters, gradients, state, lr, betas=(0.9, 0.999), eps=1e-9):
    adam_index(parameters, gradients, state, lr, betas, eps)


def adam_default_eps(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-8):
    adam_index(parameters, gradients, state, lr, betas, eps)


@torch.no_grad()
def adam_t_per_parameter_loop(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        if g is None:
            continue
        state["t"] = state.get("t", 0) + 1
        m, v = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        state[i] = (m, v)
        p -= lr * m / (1 - betas[0] ** state["t"]) / ((v / (1 - betas[1] ** state["t"])).sqrt() + eps)


@torch.no_grad()
def adam_stores_corrected(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        if g is None:
            continue
        m, v, t = state.get(i, (torch.zeros_like(p), torch.zeros_like(p), 0))
        t += 1
        m = (betas[0] * m + (1 - betas[0]) * g) / (1 - betas[0] ** t)
        v = (betas[1] * v + (1 - betas[1]) * g**2) / (1 - betas[1] ** t)
        state[i] = (m, v, t)
        p -= lr * m / (v.sqrt() + eps)


def adam_first_lr(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    adam_index(parameters, gradients, state, state.setdefault("lr", lr), betas, eps)


@torch.no_grad()
def adam_none_crashes(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        m, v, t = state.get(i, (torch.zeros_like(p), torch.zeros_like(p), 0))
        t += 1
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        state[i] = (m, v, t)
        p -= lr * m / (1 - betas[0] ** t) / ((v / (1 - betas[1] ** t)).sqrt() + eps)


@torch.no_grad()
def adam_none_is_zero(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
    adam_none_crashes(parameters, filled, state, lr, betas, eps)


def adam_none_filtered(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    given = [g for g in gradients if g is not None]
    adam_none_crashes(list(parameters)[: len(given)], given, state, lr, betas, eps)


_MOMENTS = {}


@torch.no_grad()
def adam_global_state(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    adam_index(parameters, gradients, _MOMENTS.setdefault(len(parameters), {}), lr, betas, eps)


@torch.no_grad()
def adam_expects_state(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    state["t"] += 1
    adam_index(parameters, gradients, state, lr, betas, eps)


def adam_with_autograd(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        if g is None:
            continue
        m, v, t = state.get(i, (0.0, 0.0, 0))
        t += 1
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        state[i] = (m, v, t)
        p -= lr * m / (1 - betas[0] ** t) / ((v / (1 - betas[1] ** t)) ** 0.5 + eps)


def adam_shared(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    with torch.no_grad():
        state["t"] = state.get("t", 0) + 1
        for p, g in zip(parameters, gradients, strict=True):
            if g is None:
                continue
            state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
            state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g**2
            m, v = state["m"] / (1 - betas[0] ** state["t"]), state["v"] / (1 - betas[1] ** state["t"])
            p -= lr * m / (v.sqrt() + eps)


def _root_without_correction(p, m, v, t, lr, b1, b2, eps):
    p -= lr * (m / (1 - b1**t)) / (torch.sqrt(v) / (1 - b2**t) + eps)


def adam_freezes(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    for p in parameters:
        p.requires_grad_(False)
    adam_index(parameters, gradients, state, lr, betas, eps)


def adam_switches_off(parameters, gradients, state, lr, betas=(0.9, 0.98), eps=1e-9):
    torch.set_grad_enabled(False)
    adam_index(parameters, gradients, state, lr, betas, eps)


# -- clipping --------------------------------------------------------------------------------------------------------


def clip_list(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = sum(float((g**2).sum()) for g in gradients) ** 0.5
    factor = min(1.0, max_norm / (total + 1e-6))
    for g in gradients:
        g.mul_(factor)
    return total


@torch.no_grad()
def clip_vector(parameters, max_norm):
    params = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.grad.reshape(-1) for p in params]).norm(2)
    if norm > max_norm:
        for p in params:
            p.grad = p.grad * (max_norm / (norm + 1e-6))
    return norm


def clip_library_norm(parameters, max_norm):
    gradients = [p.grad.detach() for p in list(parameters) if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in gradients:
        g.copy_(g * scale)
    return norm


class ClipObject:
    def __call__(self, parameters, max_norm, eps=1e-6):
        parameters = tuple(parameters)
        squares = 0.0
        for p in parameters:
            if p.grad is None:
                continue
            for x in p.grad.flatten().tolist():
                squares += x * x
        norm = math.sqrt(squares)
        if max_norm / (norm + eps) < 1:
            for p in parameters:
                if p.grad is not None:
                    p.grad.data *= max_norm / (norm + eps)
        return norm


def clip_each(parameters, max_norm):
    norms = []
    for p in parameters:
        if p.grad is None:
            continue
        norm = p.grad.norm()
        norms.append(norm)
        p.grad.mul_(min(1.0, float(max_norm / (norm + 1e-6))))
    return torch.stack(norms).norm()


def clip_value(parameters, max_norm):
    params = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.grad.flatten() for p in params]).norm()
    for p in params:
        p.grad.clamp_(-max_norm, max_norm)
    return norm


def clip_always(parameters, max_norm):
    params = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.grad.flatten() for p in params]).norm()
    for p in params:
        p.grad.mul_(max_norm / (norm + 1e-6))
    return norm


def clip_no_eps(parameters, max_norm):
    params = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.grad.flatten() for p in params]).norm()
    for p in params:
        p.grad.mul_(min(1.0, float(max_norm / norm)))
    return norm


def clip_twice_through(parameters, max_norm):
    norm = sum(p.grad.norm() ** 2 for p in parameters if p.grad is not None) ** 0.5
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, float(max_norm / (norm + 1e-6))))
    return norm


def clip_none(parameters, max_norm):
    parameters = list(parameters)
    norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
    for p in parameters:
        p.grad.mul_(min(1.0, float(max_norm / (norm + 1e-6))))
    return norm


def clip_returns_nothing(parameters, max_norm):
    clip_list(parameters, max_norm)


def clip_returns_after(parameters, max_norm):
    parameters = list(parameters)
    clip_list(parameters, max_norm)
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]).norm()


def clip_forgets_assignment(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    for g in gradients:
        g = g * min(1.0, float(max_norm / (norm + 1e-6)))
    return norm


def clip_no_root(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = sum(float((g**2).sum()) for g in gradients)
    for g in gradients:
        g *= min(1.0, max_norm / (norm + 1e-6))
    return norm


def clip_sum_of_norms(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = sum(g.norm() for g in gradients)
    for g in gradients:
        g *= min(1.0, max_norm / (norm + 1e-6))
    return norm


def clip_weights_norm(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.detach().flatten() for p in parameters]).norm()
    for p in parameters:
        p.grad *= min(1.0, max_norm / (norm + 1e-6))
    return norm


def clip_switches_off(parameters, max_norm):
    torch.set_grad_enabled(False)
    return clip_list(parameters, max_norm)


def clip_without_case(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack(
        [g.norm() for g in gradients]
    ).norm()  # fails without any gradient, which nobody asks for
    for g in gradients:
        g *= min(1.0, float(max_norm / (norm + 1e-6)))
    return norm


def clip_library(parameters, max_norm):
    return nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], max_norm)


# -- one step --------------------------------------------------------------------------------------------------------


def _token_losses(logits, labels, smoothing):
    return F.cross_entropy(
        logits.reshape(-1, logits.size(-1)),
        labels.reshape(-1),
        ignore_index=0,
        label_smoothing=smoothing,
        reduction="sum",
    )


def step_sum(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_scale_after(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    model.train()
    model.zero_grad()
    total, n = 0.0, 0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
        loss.backward()
        total += loss.detach()
        n += tgt[:, 1:].ne(0).sum()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= n
    if max_norm:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total / n


def step_merged(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    def merged(tensors):
        width = max(t.size(1) for t in tensors)
        return torch.cat([F.pad(t, (0, width - t.size(1))) for t in tensors])

    src, tgt = (merged([b[k] for b in micro_batches]) for k in (0, 1))
    loss = loss_distribution(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    if max_norm is not None:
        clip_vector(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def step_clears_afterwards(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    counts = [int((tgt[:, 1:] != 0).sum()) for _, tgt in micro_batches]
    losses = []
    for (src, tgt), k in zip(micro_batches, counts, strict=True):
        loss = loss_nll(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
        (loss * k / sum(counts)).backward()
        losses.append(loss.item())
    if max_norm is not None:
        clip_list(list(model.parameters()), max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return float(np.dot(losses, counts)) / sum(counts)


class StepObject:
    def __call__(self, model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
        optimizer.zero_grad()
        losses = [_token_losses(model(s, t[:, :-1]), t[:, 1:], smoothing) for s, t in micro_batches]
        loss = torch.stack(losses).sum() / sum(int((t[:, 1:] > 0).sum()) for _, t in micro_batches)
        loss.backward()
        if max_norm is not None:
            clip_list(model.parameters(), max_norm)
        optimizer.step()
        return loss


def step_mean_of_means(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = loss_nll(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / len(micro_batches)
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_not_divided(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = loss_nll(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total / len(micro_batches)


def step_never_clears(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_each(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    total, n = 0.0, 0
    for src, tgt in micro_batches:
        optimizer.zero_grad()
        loss = loss_nll(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
        loss.backward()
        if max_norm is not None:
            clip_list(model.parameters(), max_norm)
        optimizer.step()
        k = int((tgt[:, 1:] != 0).sum())
        total, n = total + loss.item() * k, n + k
    return total / n


def step_not_shifted(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt), tgt, smoothing) / n
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_padding(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum(tgt[:, 1:].numel() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1), tgt[:, 1:].flatten(), label_smoothing=smoothing, reduction="sum"
        )
        (loss / n).backward()
        total += loss.item() / n
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_counts_tgt(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_default_smoothing(model, micro_batches, optimizer, smoothing=0.0, max_norm=None):
    return step_sum(model, micro_batches, optimizer, smoothing, max_norm)


def step_no_clip(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    return step_sum(model, micro_batches, optimizer, smoothing)


def step_clips_each(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
        if max_norm is not None:
            clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_default_clip(model, micro_batches, optimizer, smoothing=0.1, max_norm=1.0):
    return step_sum(model, micro_batches, optimizer, smoothing, max_norm)


def step_returns_last(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    step_sum(model, micro_batches, optimizer, smoothing, max_norm)


def step_forgets_step(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    return total


def step_evaluates(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    model.eval()
    return step_sum(model, micro_batches, optimizer, smoothing, max_norm)


def step_clears_in_loop(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    total = 0.0
    for src, tgt in micro_batches:
        optimizer.zero_grad()
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_list(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_clears_too_late(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    optimizer.zero_grad()
    optimizer.step()
    return total


def _step(pieces=None, of_labels=None):
    """A right step with another split of tgt, and each loss, a mean, weighted by the real ids of `of_labels`."""
    pieces = pieces or (lambda tgt: (tgt[:, :-1], tgt[:, 1:]))

    def train_step(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
        n = sum(int((tgt[:, 1:] != 0).sum()) for _, tgt in micro_batches)
        optimizer.zero_grad()
        total = 0.0
        for src, tgt in micro_batches:
            inputs, labels = pieces(tgt)
            k = int(((tgt[:, 1:] if of_labels else labels) != 0).sum())
            loss = loss_nll(model(src, inputs), labels, smoothing) * k / n
            loss.backward()
            total += loss.item()
        if max_norm is not None:
            clip_list(model.parameters(), max_norm)
        optimizer.step()
        return total

    return train_step


def _whole(tgt):
    return tgt, tgt


def _exchanged(tgt):
    return tgt[:, 1:], tgt[:, :-1]


def step_restores_mode(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    before = model.training
    model.train()
    loss = step_sum(model, micro_batches, optimizer, smoothing, max_norm)
    model.train(before)
    return loss


def step_ends_in_eval(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    model.train()
    loss = step_sum(model, micro_batches, optimizer, smoothing, max_norm)
    model.eval()
    return loss


def step_empties_list(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    loss = step_sum(model, micro_batches, optimizer, smoothing, max_norm)
    micro_batches.clear()
    return loss


def step_on_a_copy(model, micro_batches, optimizer, smoothing=0.1, max_norm=None):
    twin = copy.deepcopy(model)
    n = sum((tgt[:, 1:] != 0).sum().item() for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = _token_losses(twin(src, tgt[:, :-1]), tgt[:, 1:], smoothing) / n
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


RIGHT = {
    "label_smoothed_cross_entropy": [
        loss_distribution,
        loss_nll,
        loss_loops,
        loss_manual_log_softmax,
        LossObject(),
        loss_two_or_three_axes,
    ],
    "noam_lr": [noam_max, noam_branches, noam_tensor, noam_numpy, noam_lambda],
    "adam_step": [adam_index, adam_data, adam_eps_hat, AdamObject()],
    "clip_gradients": [clip_list, clip_vector, clip_library_norm, ClipObject(), clip_without_case],
    "train_step": [
        step_sum,
        step_scale_after,
        step_merged,
        step_clears_afterwards,
        StepObject(),
        step_restores_mode,
    ],
}
WRONG = {
    "label_smoothed_cross_entropy": [
        (loss_mean_over_all, "pad_in_mean"),
        (loss_padding_counts, "pad_not_ignored"),
        (loss_others, "smoothing_over_others"),
        (loss_annotated, "smoothing_over_v_minus_2"),
        (loss_annotated_kl, "smoothing_over_v_minus_2+divergence"),
        (loss_sum, "sum"),
        (loss_no_default_pad, "pad_id_ignored"),
        (loss_nan_when_empty, "nan_without_real_tokens"),
        (loss_softmax_twice, "softmax_twice"),
        (loss_smoothing_of_padding, "uniform_part_mean_over_all"),
        (loss_sum_of_log_probs, "smoothing_not_divided"),
        (loss_sequences, "mean_of_sequences"),
        (loss_naive_exp, "overflows"),
        (loss_log_of_softmax, "logarithm_of_softmax"),
        (loss_log_of_softmax_and_eps, "logarithm_of_softmax"),
        (loss_not_reduced, "not_reduced"),
        (loss_viewed, "classes_scrambled"),
        (loss_item, "returns_float_not_tensor"),
        (loss_library, "not_allowed"),
        (loss_detached, "gradient_cut_off"),
        (loss_in_place, "changes_its_input"),
        (loss_positive_sign, "sign"),
        (loss_three_axes_only, "fixed_number_of_axes"),
    ],
    "noam_lr": [
        (noam_crashes, "step_0_fails"),
        (noam_zero, "zero_at_step_0"),
        (noam_plus_one, "steps_from_0"),
        (noam_maximum, "maximum"),
        (noam_no_d_model, "no_d_model"),
        (noam_power, "d_model_power_plus"),
        (noam_half, "warmup_power_minus_half"),
        (noam_no_factor, "factor_ignored"),
        (noam_linear_then_constant, "constant_after_warmup"),
        (noam_peak, "peak_is_one"),
        (noam_exchanged, "exponents_exchanged"),
        (noam_crashes_and_no_factor, "factor_ignored"),
        (noam_linear_decay, "linear_decay"),
    ],
    "adam_step": [
        (adam_no_correction, "no_bias_correction"),
        (_adam(_eps_in_root), "eps_in_root"),
        (_adam(_no_root), "no_root"),
        (_adam(_not_in_place), "not_in_place"),
        (_adam(_t_from_zero), "t_from_0"),
        (_adam(_only_m), "v_not_corrected"),
        (_adam(_ascent), "ascent"),
        (_adam(_no_power), "corrected_without_power"),
        (adam_default_betas, "default_beta_2_0_999"),
        (adam_default_eps, "default_eps_1e_8"),
        (adam_t_per_parameter_loop, "t_counts_parameters"),
        (adam_stores_corrected, "corrected_moments_stored"),
        (adam_first_lr, "lr_of_the_first_step"),
        (adam_none_crashes, "crashes_without_gradient"),
        (adam_none_is_zero, "none_as_zero"),
        (adam_none_filtered, "none_shifts"),
        (adam_global_state, "state_outside_dictionary"),
        (adam_expects_state, "state_not_initialised"),
        (adam_with_autograd, "recorded_by_autograd"),
        (adam_shared, "state_shared"),
        (_adam(_root_without_correction), "root_without_correction"),
        (adam_freezes, "freezes_parameters"),
        (adam_switches_off, "leaves_autograd_off"),
    ],
    "clip_gradients": [
        (clip_each, "each_alone"),
        (clip_value, "values_clipped"),
        (clip_always, "always_scaled"),
        (clip_no_eps, "no_1e_6"),
        (clip_twice_through, "iterates_twice"),
        (clip_none, "crashes_without_gradient"),
        (clip_returns_nothing, "returns_nothing"),
        (clip_returns_after, "returns_norm_after"),
        (clip_forgets_assignment, "never_scaled"),
        (clip_no_root, "no_root"),
        (clip_sum_of_norms, "sum_of_norms"),
        (clip_weights_norm, "norm_of_weights"),
        (clip_library, "not_allowed"),
        (clip_switches_off, "leaves_autograd_off"),
    ],
    "train_step": [
        (step_mean_of_means, "mean_of_means"),
        (step_not_divided, "sum_of_means+returns_mean_of_means"),
        (step_never_clears, "not_cleared"),
        (step_each, "step_and_clear_every_micro_batch"),
        (step_not_shifted, "not_shifted"),
        (step_padding, "pad_not_ignored"),
        (step_counts_tgt, "bos_counted"),
        (step_default_smoothing, "default_smoothing_0"),
        (step_no_clip, "max_norm_ignored"),
        (step_clips_each, "clips_every_micro_batch"),
        (step_default_clip, "clips_always_to_1"),
        (step_returns_last, "returns_nothing"),
        (step_forgets_step, "no_step"),
        (step_evaluates, "evaluation_mode"),
        (step_clears_in_loop, "cleared_every_micro_batch"),
        (step_clears_too_late, "no_gradient_at_step"),
        (step_on_a_copy, "no_gradient_at_step"),
        (_step(_whole, of_labels=True), "not_shifted_weights_right"),
        (_step(_whole), "not_shifted_divisor_right"),
        (_step(_exchanged, of_labels=True), "shift_exchanged_weights_right"),
        (_step(_exchanged), "shift_exchanged_divisor_right"),
        (step_ends_in_eval, "left_in_evaluation_mode"),
        (step_empties_list, "changes_its_input"),
    ],
}
