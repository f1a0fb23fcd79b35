"""12 Training: the loss, the learning rate, Adam, clipping, and one step over several micro-batches."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from txcourse.solutions.batching import shift_target


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "... vocab"], targets: Int[Tensor, "..."], smoothing: float, pad_id: int = 0
) -> Float[Tensor, ""]:
    """Cross entropy with a softened target: (1 − smoothing) · one-hot + smoothing / V on every class.

    Shapes: logits (B, T, V) or (N, V), targets (B, T) or (N), all of them from 0 to V − 1 → a scalar, the
    mean over the real tokens (targets other than pad_id); 0 when there is none.

    Source: Vaswani et al. (2017), section 5.4; Szegedy et al. (2016), section 7.
    """
    real = targets != pad_id
    log_probs = logits[real].log_softmax(dim=-1)  # (n, V), n real tokens
    of_target = log_probs.gather(-1, targets[real][:, None])[:, 0]  # (n)
    losses = -(1 - smoothing) * of_target - smoothing * log_probs.mean(dim=-1)  # (n)
    return losses.sum() / max(len(losses), 1)


def noam_lr(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """Learning rate of a step, steps from 1: factor · d_model^−0.5 · min(step^−0.5, step · warmup^−1.5).

    noam_lr(0) = noam_lr(1).

    Source: Vaswani et al. (2017), section 5.3, equation 3.
    """
    step = max(step, 1)
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@torch.no_grad()
def adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    state: dict[Any, Any],
    lr: float,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-9,
) -> None:
    """One step of Adam, in place.

    m ← β₁ m + (1 − β₁) g and v ← β₂ v + (1 − β₂) g², both starting at zero; the parameter moves by
    −lr · m̂ / (√v̂ + eps) with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ), t counting the steps of that
    parameter from 1. `state` starts as an empty dictionary and keeps what the next step needs. A
    parameter whose gradient is None is skipped.

    Source: Kingma and Ba (2015), algorithm 1; β and eps from Vaswani et al. (2017), section 5.3.
    """
    beta_1, beta_2 = betas
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter not in state:
            state[parameter] = {"t": 0, "m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
        own = state[parameter]
        own["t"] += 1
        own["m"] = beta_1 * own["m"] + (1 - beta_1) * gradient
        own["v"] = beta_2 * own["v"] + (1 - beta_2) * gradient**2
        m_hat = own["m"] / (1 - beta_1 ** own["t"])
        v_hat = own["v"] / (1 - beta_2 ** own["t"])
        parameter -= lr * m_hat / (v_hat.sqrt() + eps)


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
    """Scale the gradients in place, all by the same factor min(1, max_norm / (norm + 1e-6)).

    `norm` is the Euclidean norm of all gradients together. `parameters` is any iterable; parameters whose
    gradient is None are skipped. Returns the norm before clipping, a scalar.

    Source: Pascanu, Mikolov and Bengio (2013), algorithm 1.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient *= factor
    return norm


def train_step(
    model: nn.Module,
    micro_batches: Sequence[tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"]]],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    max_norm: float | None = None,
) -> float:
    """One update from several micro-batches, equal to the update of their union as one batch.

    Each micro-batch is (src (B, S), tgt (B, L)), tgt with bos and eos; padding is id 0. The label-smoothed
    cross entropy of all real target tokens is averaged over all of them (not over micro-batches); gradients
    of earlier steps do not count; with max_norm the gradient is clipped once, before the step. A model in
    training mode stays in it. Returns the mean loss over the real tokens.

    Source: Vaswani et al. (2017), sections 5.1 to 5.4.
    """
    shifted = [(src, *shift_target(tgt)) for src, tgt in micro_batches]
    n_tokens = sum(int((labels != 0).sum()) for _, _, labels in shifted)
    optimizer.zero_grad()
    total = 0.0
    for src, inputs, labels in shifted:
        share = int((labels != 0).sum()) / max(n_tokens, 1)
        loss = share * label_smoothed_cross_entropy(model(src, inputs), labels, smoothing)
        loss.backward()  # adds to the gradients of the micro-batches before
        total += loss.item()
    if max_norm is not None:
        clip_gradients(model.parameters(), max_norm)
    optimizer.step()
    return total
