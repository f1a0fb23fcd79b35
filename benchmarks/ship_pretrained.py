"""Make txcourse/pretrained/model.safetensors from a finished run, in half precision, and measure what was written.

python benchmarks/ship_pretrained.py runs/pronunciation-long
"""

import json
import sys
from pathlib import Path

import torch

from txcourse import data, pretrained
from txcourse.training import load_model, save_model
from txcourse.training.scoring import score


def main(run: Path) -> None:
    file = pretrained.FOLDER / "model.safetensors"
    trained = load_model(run)
    save_model(file, trained, torch.float16)

    shipped, dataset = load_model(file), data.load(trained.config.task)
    for name, split, beam in (("dev", "dev", 1), ("test", "test", 1), ("test_beam", "test", 5)):
        trained.info[name] = score([shipped.model], dataset, split, beam)
    measured = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    names = ("step", "loss", "token_error_rate", "sequence_error_rate")
    trained.info["history"] = [{name: round(row[name], 4) for name in names} for row in measured]
    save_model(file, trained, torch.float16)  # again, with the scores of the rounded weights
    summary = {"config": trained.config.to_dict(), **trained.info, "bytes": file.stat().st_size}
    (pretrained.FOLDER / "model.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps([summary["test"], summary["test_beam"]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
