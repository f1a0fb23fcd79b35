"""Small models and an optimizer, built from plain tensors, that note how they are used.

They stand in for trained models where an exercise takes one, and can be rebuilt from plain values in another process.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class ToyModel(nn.Module):
    """Notes for each call whether any part of the model was in training mode, whether gradients were recorded, and the
    shape of tgt."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[bool, bool, tuple[int, ...]]] = []

    def note(self, tgt: Tensor) -> None:
        training = any(module.training for module in self.modules())
        self.calls.append((training, torch.is_grad_enabled(), tuple(tgt.shape)))


class Translator(ToyModel):
    """Logits (B, T, V) that depend on the source's real tokens (id 0 is padding) and, at each position, on its own token.

    `weights`: embeddings of source (V_src, d) and target tokens (V, d), and the output matrix (d, V).
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.source, self.target, self.output = (nn.Parameter(w.clone()) for w in weights)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        self.note(tgt)
        real = (src != 0).to(self.source.dtype)  # (B, S)
        context = (self.source[src] * real[..., None]).sum(1) / real.sum(1, keepdim=True)  # (B, d)
        return (self.target[tgt] + context[:, None]).tanh() @ self.output  # (B, T, V)


class RandomLogits(ToyModel):
    """Logits of the next token, looked up in `rows` (n, V) by a number made of the source and the whole prefix."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)  # code asks the parameters for their device
        self.part = nn.Identity()  # its mode should follow the model's

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        self.note(tgt)
        n = self.rows.shape[0]
        state = (src * torch.arange(3, 3 + 2 * src.shape[1], 2)).sum(1, keepdim=True) * 31  # (B, 1)
        place = (torch.arange(tgt.shape[1]) + 1) ** 2  # (T)
        state = (state + ((tgt + 2) * (7 * place + tgt * place**2)).cumsum(1)) % n  # (B, T)
        return self.rows[state]  # (B, T, V)


class ListedProbabilities(ToyModel):
    """The logarithms of next-token probabilities, listed by prefix.

    `entries`: pairs of a prefix and V probabilities. After other prefixes the logits are the logarithms of `otherwise`,
    sharpened a little more at each position, so that the order of two tokens makes a difference.
    """

    def __init__(
        self, entries: Sequence[tuple[Sequence[int], Sequence[float]]], otherwise: Sequence[float]
    ) -> None:
        super().__init__()
        self.table = {tuple(prefix): torch.tensor(row).log() for prefix, row in entries}
        self.otherwise = nn.Parameter(torch.tensor(otherwise).log())

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        self.note(tgt)
        rows = [
            torch.stack(
                [self.table.get(tuple(row[: t + 1]), self.otherwise * (1 + t / 10)) for t in range(len(row))]
            )
            for row in tgt.tolist()
        ]
        return torch.stack(rows)  # (B, T, V)


class GradientDescent:
    """Plain gradient descent with the interface of a torch.optim.Optimizer (whose import takes seconds)."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Any, Any] = {}
        self.steps = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.param_groups[0]["params"]:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter -= self.param_groups[0]["lr"] * parameter.grad
