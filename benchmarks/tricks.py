"""What each trick of txcourse/fast.py gains: the CPU time without it divided by the time with all, in turns.

    python benchmarks/tricks.py [ROUNDS]

Training steps of size m (peers.py), and greedy decoding of one source and of 64, 40 tokens each. One thread; median
[min max].
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from peers import SIZE_M, VOCABULARY, batch_m
from torch import Tensor
from training_step import make_step

from txcourse import fast


class Padded(fast.Packing):
    """Everything is computed on padding, too, output layer and loss included."""

    def __init__(self, real: Tensor) -> None:
        super().__init__(real)
        self.index, self.full = torch.arange(real.numel()), True


def fused_self_attention(
    layer: Any, x: Tensor, packing: fast.Packing, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Query, key and value by one product, which needs their weights side by side."""
    projections = (layer.w_q, layer.w_k, layer.w_v)
    weight, bias = (torch.cat([getattr(p, name) for p in projections]) for name in ("weight", "bias"))
    qkv = packing.grid(F.linear(x, weight, bias)).unflatten(2, (3, layer.n_heads, -1))
    return layer.w_o(packing.pack(fast.attend(layer, *qkv.permute(2, 0, 3, 1, 4), mask, causal)))


def kernel_attention(
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    p = layer.dropout.p if layer.training else 0.0
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p, is_causal=causal)
    return out.transpose(1, 2).flatten(2)


class WholeLoss:
    """All logits of the real targets at once, and PyTorch's own loss and gradient."""

    @staticmethod
    def apply(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        logits = F.linear(hidden, weight, bias)
        return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)


class WithoutSums(fast.Projection):
    """A single row is multiplied like several."""

    LONG = 0


class WithoutPacking(fast.Projection):
    """Several rows are multiplied by the transposed weights."""

    def __init__(self, *layers: torch.nn.Linear, **arguments: int) -> None:
        super().__init__(*layers, **arguments)
        self.packed = None


class AsStored(WithoutPacking):
    """The weights lie as in nn.Linear."""

    LONG = 0

    def __init__(self, *layers: torch.nn.Linear, **arguments: int) -> None:
        super().__init__(*layers, **arguments)
        self.weight = self.weight.t().contiguous().t()


class RowsOfKeys(fast.StepLayer):
    """The memory's keys lie as PyTorch's kernel wants them."""

    def memory_keys_values(self, memory: Tensor, packing: fast.Packing) -> tuple[Tensor, Tensor]:
        key, value = super().memory_keys_values(memory, packing)
        return key.mT.contiguous().mT, value


def kernel_look_up(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    query, key, value = (
        x.unflatten(0, (1 if hidden is None else len(hidden), -1)) for x in (query, key.mT, value)
    )
    mask = None if hidden is None else ~hidden
    return F.scaled_dot_product_attention(query, key, value, mask).flatten(0, 1)


TRAINING: dict[str, dict[str, Any]] = {
    "with all": {},
    "without packing": {"Packing": Padded},
    "with one product for q, k, v": {"self_attention": fused_self_attention},
    "without the cheap dropout": {"dropout": lambda x, layer: layer(x)},
    "without attention by matrices": {"attend": kernel_attention},
    "without the loss in chunks": {"LinearCrossEntropy": WholeLoss},
}
DECODING: dict[str, dict[str, Any]] = {
    "with all": {},
    "without the order of reading": {"Projection": AsStored},
    "without sums of rows": {"Projection": WithoutSums},
    "without oneDNN's packing": {"Projection": WithoutPacking},
    "without attention by matrices": {"StepLayer": RowsOfKeys, "look_up": kernel_look_up},
    "without argmax by blocks": {"argmax": lambda x: x.argmax(-1)},
}


def race(title: str, variants: dict[str, dict[str, Any]], rounds: int, make: Callable[[], Callable]) -> None:
    """`make` prepares what is timed, with the names of `fast` replaced as in the variant."""
    before = {name: getattr(fast, name) for changes in variants.values() for name in changes}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for i in range(rounds + 1):
        for name, changes in variants.items():
            for key, value in (before | changes).items():
                setattr(fast, key, value)
            run = make()
            started = time.process_time()
            run()
            if i >= 1:  # the first one warms up
                times[name].append(time.process_time() - started)
    for key, value in before.items():
        setattr(fast, key, value)
    for name, spent in times.items():
        ratios = [a / b for a, b in zip(spent, times["with all"], strict=True)]
        print(
            f"{title:20} {name:30} {1000 * statistics.median(spent):8.1f} ms   "
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f} {max(ratios):.2f}]",
            flush=True,
        )


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = fast.FastTransformer(VOCABULARY, VOCABULARY, max_len=256, **SIZE_M)
    step, batch = make_step(model), batch_m(generator)
    race("training, m", TRAINING, rounds, lambda: lambda: step(*batch))

    model.eval()
    for n in (1, 64):
        src = batch[0][:n]

        def greedy(src: Tensor = src) -> Callable:
            decoding = fast.Decoding([model])
            return lambda: decoding.greedy(src, 41, 1, -1)

        race(f"greedy, {n} of m", DECODING, 4 * rounds if n == 1 else rounds, greedy)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
