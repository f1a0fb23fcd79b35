"""The loss on the development words against the size of the model and against the number of training pairs.

python benchmarks/scaling.py txcourse/pretrained/scaling.json

Every run has the same small budget of updates. The loss is in nats per phoneme, the right ones before it given, without
label smoothing. Notebook 15 fits and repeats parts of it.
"""

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from txcourse import data
from txcourse.data import Dataset
from txcourse.solutions.batching import collate, shift_target
from txcourse.solutions.transformer import count_parameters
from txcourse.training import load_config, train

STEPS, SEEDS = 600, (1, 2, 3)
SIZES = (8, 16, 24, 32, 48, 64, 96, 128)  # d_model, with 4 heads, 2 + 2 layers, d_ff = 4 d_model
PAIRS = (1_000, 3_000, 10_000, 30_000)  # and all
MIDDLE = 48  # d_model of the runs over the number of pairs


@torch.no_grad()
def dev_loss(model: torch.nn.Module, dataset: Dataset) -> float:
    """Nats per phoneme on the development set, every listed pronunciation of a word counted."""
    pairs = sorted(((s, t) for s, answers in dataset.dev for t in answers), key=lambda pair: len(pair[0]))
    total, labels = 0.0, 0
    for start in range(0, len(pairs), 256):
        some = pairs[start : start + 256]
        src = collate([dataset.source.encode(s) for s, _ in some], 0, 1, 2)
        inputs, wanted = shift_target(collate([dataset.target.encode(t) for _, t in some], 0, 1, 2))
        logits = model.eval()(src, inputs).flatten(0, 1)  # (B·T, V)
        total += F.cross_entropy(logits, wanted.flatten(), ignore_index=0, reduction="sum").item()
        labels += int((wanted != 0).sum())
    return total / labels


def run(dataset: Dataset, d_model: int, seed: int) -> tuple[int, float]:
    """Parameters and development loss of one run."""
    sizes = {"d_model": d_model, "d_ff": 4 * d_model, "smoothing": 0.0}
    config = load_config("pronunciation").replace(**sizes, steps=STEPS, evaluate_every=STEPS, seed=seed)
    model, _ = train(config, replace(dataset, dev=dataset.dev[:1]), progress=False)
    return count_parameters(model), dev_loss(model, dataset)


def main(out: Path) -> None:
    dataset, started = data.load("pronunciation"), time.process_time()
    result: dict[str, object] = {"made": "python benchmarks/scaling.py", "steps": STEPS, "seeds": SEEDS}
    sizes, pairs = [], []
    for d_model in SIZES:
        runs = [run(dataset, d_model, seed) for seed in SEEDS]
        sizes.append({"d_model": d_model, "parameters": runs[0][0], "losses": [round(r[1], 4) for r in runs]})
        print(sizes[-1], flush=True)
    for n in PAIRS:
        fewer = replace(dataset, train=random.Random(0).sample(dataset.train, n))
        losses = [round(run(fewer, MIDDLE, seed)[1], 4) for seed in SEEDS]
        pairs.append({"pairs": n, "losses": losses})
        print(pairs[-1], flush=True)
    whole = next(row["losses"] for row in sizes if row["d_model"] == MIDDLE)
    pairs.append({"pairs": len(dataset.train), "losses": whole})
    seconds = round(time.process_time() - started)
    result |= {"cpu_seconds": seconds, "sizes": sizes, "pairs": {"d_model": MIDDLE, "runs": pairs}}
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
