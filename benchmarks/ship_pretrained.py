"""Make txcourse/pretrained/model.safetensors from a finished run, in half precision, and measure what was written.

python benchmarks/ship_pretrained.py runs/pronunciation
"""

import json
import sys
from pathlib import Path

import torch

from txcourse import data, pretrained
from txcourse.training import evaluate, load_model, save_model


def main(run: Path) -> None:
    file = pretrained.FOLDER / "model.safetensors"
    trained = load_model(run)
    save_model(file, trained, torch.float16)

    shipped = load_model(file)
    dataset = data.load(shipped.config.task)
    for split, examples in (("dev", dataset.dev), ("test", dataset.test)):
        scores = evaluate(shipped.model, examples, shipped.source, shipped.target, dataset.max_len + 3)
        trained.info[split] = {**scores._asdict(), "examples": len(examples), "decoding": "greedy"}
    save_model(file, trained, torch.float16)  # again, with the scores of the rounded weights
    summary = {"config": trained.config.to_dict(), **trained.info, "bytes": file.stat().st_size}
    (pretrained.FOLDER / "model.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary["test"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
