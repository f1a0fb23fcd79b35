"""CPU time, or peak memory, of a training step of several implementations, in turns. peers.py says who they are.

    python benchmarks/training_step.py [ROUNDS]
    python benchmarks/training_step.py memory

Every round runs one step of each contestant on the same batch; a ratio is the CPU time of nn.Transformer divided by
the contestant's in the same round (above 1 is faster), given as median [min max]. One thread, fused Adam, label
smoothing 0.1. Memory: growth of the resident set from the finished model to the peak of three steps, each contestant
in a process of its own, and its ratio to nn.Transformer's (Linux).

  m        64 sequences of 20 to 40 tokens padded on the right
  default  the capstone's model on its own batches: d_model 96, 4 heads, 2 + 2 layers, d_ff 384, pre-norm, no dropout
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from peers import SIZE, SIZE_M, VOCABULARY, Marian, TorchTransformer, batch_m, transformers_version
from torch import Tensor, nn

from txcourse import data
from txcourse.fast import FastTransformer
from txcourse.solutions.transformer import Transformer
from txcourse.training import load_config
from txcourse.training.batches import TrainingBatches

FIRST = "nn.Transformer"


def contestants(src_vocab: int, tgt_vocab: int, size: dict) -> dict[str, Callable[[], nn.Module]]:
    made: dict[str, Callable[[], nn.Module]] = {
        FIRST: lambda: TorchTransformer(src_vocab, tgt_vocab, **size),
        "nn.Transformer at its best": lambda: TorchTransformer(
            src_vocab, tgt_vocab, at_its_best=True, **size
        ),
        "txcourse, plain": lambda: Transformer(src_vocab, tgt_vocab, max_len=256, **size),
        "txcourse, fast": lambda: FastTransformer(src_vocab, tgt_vocab, max_len=256, **size),
    }
    if size == SIZE_M and transformers_version():
        made["Marian"] = lambda: Marian(VOCABULARY, **SIZE)
    return made


def make_step(model: nn.Module) -> Callable[[Tensor, Tensor], None]:
    """One update. The fast form has its own loss; it is the same mean over the real targets."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(src: Tensor, tgt: Tensor) -> None:
        inputs, labels = tgt[:, :-1], tgt[:, 1:]
        if isinstance(model, FastTransformer):
            loss = model.summed_loss(src, tgt, smoothing=0.1) / (labels != 0).sum()
        else:
            logits = model(src, inputs).flatten(0, 1)
            loss = F.cross_entropy(logits, labels.flatten(), ignore_index=0, label_smoothing=0.1)
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


def race(name: str, vocabularies: tuple[int, int], size: dict, batches: list[tuple[Tensor, Tensor]]) -> None:
    torch.manual_seed(0)
    steps = {key: make_step(make()) for key, make in contestants(*vocabularies, size).items()}
    times: dict[str, list[float]] = {key: [] for key in steps}
    for i, batch in enumerate(batches):
        for key, step in steps.items():
            started = time.process_time()
            step(*batch)
            if i >= 2:  # the first two warm up
                times[key].append(time.process_time() - started)
    for key, spent in times.items():
        ratios = [a / b for a, b in zip(times[FIRST], spent, strict=True)]
        print(
            f"{name:8} {key:27} {1000 * statistics.median(spent):7.1f} ms   "
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f} {max(ratios):.2f}]",
            flush=True,
        )


def memory_of(field: str) -> float:
    """VmRSS (now) or VmHWM (the highest so far) of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def growth(key: str) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = make_step(contestants(VOCABULARY, VOCABULARY, SIZE_M)[key]())
    generator = torch.Generator().manual_seed(0)
    batches = [batch_m(generator) for _ in range(3)]
    before = memory_of("VmRSS")
    for batch in batches:
        step(*batch)
    return memory_of("VmHWM") - before


def memory() -> None:
    grown = {}
    for key in contestants(VOCABULARY, VOCABULARY, SIZE_M):
        run = subprocess.run([sys.executable, __file__, "growth", key], capture_output=True, check=True)
        grown[key] = float(run.stdout)
        print(f"m        {key:27} {grown[key]:7.0f} MiB  {grown[key] / grown[FIRST]:.2f}", flush=True)


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers_version()}, {rounds} rounds, one thread")
    generator = torch.Generator().manual_seed(0)
    race("m", (VOCABULARY, VOCABULARY), SIZE_M, [batch_m(generator) for _ in range(rounds + 2)])

    config, dataset = load_config("pronunciation"), data.load("pronunciation")
    stream = TrainingBatches(dataset.train, dataset.source, dataset.target, config.batch_size, seed=1)
    batches = [stream.tensors(stream.indices(i), torch.device("cpu")) for i in range(4 * rounds + 2)]
    size = {name: getattr(config, name) for name in SIZE_M}
    race("default", (len(dataset.source), len(dataset.target)), size, batches)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["memory"]:
            memory()
        case ["growth", key]:
            print(growth(key))
        case rest:
            main(int(rest[0]) if rest else 12)
