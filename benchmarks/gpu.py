"""The rows of docs/results.md that need a GPU, in at most nine minutes on one, without a network there.

    python benchmarks/gpu.py pack runs/gpu      here: write the data into runs/gpu/data.json.gz (16 MB at most)
    python benchmarks/gpu.py run runs/gpu       there: train and measure; the same command goes on with what is unfinished
    python benchmarks/gpu.py score runs/gpu     here: BLEU of the translations, with sacreBLEU

`run` needs Python 3.11, torch 2.11, NumPy, safetensors and tqdm, and nothing else; what of them is not there can be
brought along: pip install --no-deps --target runs/gpu/packages safetensors tqdm, and PYTHONPATH=runs/gpu/packages
there. `score` needs sacremoses, too. The stages come in order of worth:
the capstone's own model, the translation, the split of 2007. Each fits its number of steps into its share of the time by
the speed of its first steps, keeps checkpoints in a folder of its own and stops cleanly when the share is spent; what a
stage leaves over goes to the next ones. The table at the end says "not measured" for what was not reached.
"""

import _thread
import argparse
import gzip
import json
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
try:
    import jaxtyping  # noqa: F401
except ImportError:  # only annotations need it: any shape of a tensor is then a tensor
    shape = type("Shape", (), {"__class_getitem__": classmethod(lambda cls, item: item[0])})
    sys.modules["jaxtyping"] = types.ModuleType("jaxtyping")
    vars(sys.modules["jaxtyping"]).update(dict.fromkeys(("Bool", "Float", "Int", "Num", "Shaped"), shape))

import torch
from torch import nn

from txcourse import data
from txcourse.data import Dataset, TranslationDataset
from txcourse.data.translation import cut, join
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.solutions.transformer import count_parameters
from txcourse.training import Config, Stopped, TrainedModel, load_config, save_model, train
from txcourse.training.batches import TrainingBatches
from txcourse.training.checkpoints import build_model, list_checkpoints, load_newest
from txcourse.training.evaluation import decode_all, evaluate
from txcourse.training.loop import SummedLoss, measure
from txcourse.training.translation import quick_bleu, score_texts

SHARES = {"pronunciation": 270.0, "translation": 120.0, "pronunciation-2007": 140.0}  # seconds of each stage
LEAST = 20.0  # a stage with less than so many seconds is not begun
BEAM_SIZE = 5


# The data, brought along in one file


def pack(file: Path, datasets: list[Dataset]) -> None:
    """Write datasets so that reading them needs no package; tokens hold no space."""
    content = {}
    for dataset in datasets:
        content[dataset.name] = entry = {
            "train": [[" ".join(src), " ".join(tgt)] for src, tgt in dataset.train],
            **{
                name: [[" ".join(src), *map(" ".join, references)] for src, references in examples]
                for name, examples in (("dev", dataset.dev), ("test", dataset.test))
            },
            "max_len": dataset.max_len,
        }
        if isinstance(dataset, TranslationDataset):
            entry["texts"], entry["encoding"] = dataset.texts, dataset.encoding
            entry["tests"] = {
                name: [" ".join(pieces) for pieces in cut(dataset.encoding, english)]
                for name, (english, _) in dataset.texts.items()
            }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(content).encode()))


@dataclass(frozen=True)
class PackedTranslation(TranslationDataset):
    tests: dict[str, list[list[str]]]  # the English side of each test set, in pieces


def unpack(file: Path) -> dict[str, Dataset]:
    """The datasets of a file that `pack` wrote."""
    datasets: dict[str, Dataset] = {}
    for name, entry in json.loads(gzip.decompress(file.read_bytes())).items():
        pairs = [(src.split(" "), tgt.split(" ")) for src, tgt in entry["train"]]
        sources, targets = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        dev, test = (
            [(src.split(" "), [tgt.split(" ") for tgt in references]) for src, *references in entry[split]]
            for split in ("dev", "test")
        )
        if "encoding" in entry:
            joint = Vocabulary(sources + targets)
            tests = {key: [line.split(" ") for line in lines] for key, lines in entry["tests"].items()}
            texts = {key: (english, german) for key, (english, german) in entry["texts"].items()}
            datasets[name] = PackedTranslation(
                name, joint, joint, pairs, dev, test, entry["max_len"], texts, entry["encoding"], tests
            )
        else:
            source, target = Vocabulary(sources), Vocabulary(targets)
            datasets[name] = Dataset(name, source, target, pairs, dev, test, entry["max_len"])
    return datasets


# One stage


def run_stage(config: Config, dataset: Dataset, out: Path, device: str, seconds: float) -> dict[str, Any]:
    """Train and test within `seconds`; go on where an earlier call stopped. The row of the table, as a dictionary."""
    began = time.monotonic()
    resume = bool(list_checkpoints(out))
    if resume:
        config = Config(**load_newest(out)[1]["config"])
    else:
        speed = probe(config, dataset, device)
        spent = time.monotonic() - began
        per_step = speed["step"] + speed["measurement"] / config.evaluate_every
        # The test is about five measurements, and as much again three times for the beam.
        fitting = int((seconds - spent - 20 * speed["measurement"]) / per_step)
        config = config.replace(steps=max(100, min(config.steps, fitting)))
        config = config.replace(evaluate_every=min(config.evaluate_every, max(1, config.steps // 5)))
    try:
        with interrupted_after(began + seconds - time.monotonic()):
            model, history = train(config, dataset, out, device, resume)
    except Stopped as stopped:
        return {"state": f"not measured: {stopped}"}
    except KeyboardInterrupt:  # before the first or after the last step
        return {"state": "not measured: its time was over; the same command goes on"}
    row: dict[str, Any] = {
        "parameters": count_parameters(model),
        "steps": config.steps,
        "epochs": round(config.steps * config.batch_size / len(dataset.train), 1),
        "minutes": round(history[-1]["seconds"] / 60, 1),
        "dev": {name: history[-1][name] for name in ("bleu", "sequence_error_rate") if name in history[-1]},
    }
    keep(model, dataset, config, {**row, "device": device, "torch": torch.__version__}, out)
    row |= tested(model, dataset, out, began + seconds - time.monotonic())
    return row


def probe(config: Config, dataset: Dataset, device: str) -> dict[str, float]:
    """Seconds of a step and of a measurement. When compiling fails here, everything is left uncompiled."""
    where = torch.device(device)
    batches = TrainingBatches(dataset.train, dataset.source, dataset.target, config.batch_size, config.seed)
    model = build_model(config, dataset.source, dataset.target).to(where).train()
    adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)

    def steps(objective: nn.Module, first: int, last: int) -> float:
        started = time.monotonic()
        for step in range(first, last):
            src, tgt = batches.tensors(batches.indices(step), where)
            adam.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=where.type == "cuda"):
                objective(src, tgt).backward()
            adam.step()
        float(next(model.parameters()).sum())  # waits for the GPU
        return (time.monotonic() - started) / (last - first)

    objective: nn.Module = SummedLoss(model, config.smoothing)
    if where.type == "cuda":
        torch.set_float32_matmul_precision("high")
        objective.compile(dynamic=True)
        try:
            steps(objective, 0, 10)
        except Exception as error:  # no C compiler, for example: a slower run is better than none
            print(f"Compiling failed ({type(error).__name__}): going on without.", file=sys.stderr)
            torch.compiler.set_stance("force_eager")
    steps(objective, 0, 5)
    step = steps(objective, 5, 25)
    started = time.monotonic()
    measure(model.eval(), dataset)
    return {"step": step, "measurement": time.monotonic() - started}


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ask the loop to stop, as Ctrl-C does, after so many seconds: it saves its state first."""
    timer = threading.Timer(max(seconds, 0.1), _thread.interrupt_main)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def keep(model: nn.Module, dataset: Dataset, config: Config, info: dict[str, Any], out: Path) -> None:
    """Save the result where `txcourse score`, `pronounce` and `translate` find it."""
    fast: Any = build_model(config, dataset.source, dataset.target)
    fast.load_state_dict(model.state_dict())
    if isinstance(dataset, TranslationDataset):
        info = {**info, "encoding": dataset.encoding}
    save_model(
        out / "model.safetensors", TrainedModel(fast.eval(), dataset.source, dataset.target, config, info)
    )


def tested(model: nn.Module, dataset: Dataset, out: Path, seconds: float) -> dict[str, Any]:
    """Greedy test scores, and those of a beam when its time is there: a beam takes about three times as long."""
    scores: dict[str, Any] = {}
    for name, beam_size in (("greedy", 1), ("beam", BEAM_SIZE)):
        started = time.monotonic()
        if isinstance(dataset, PackedTranslation):
            texts = {}
            for test, pieces in dataset.tests.items():
                limit = dataset.max_len + 3
                answers = decode_all(model, pieces, dataset.source, dataset.target, limit, beam_size)
                texts[test] = [join(answer) for answer in answers]
                if test == "test_2016_flickr":
                    references = [tgt for _, (tgt,) in dataset.test]
                    scores[name] = f"about {quick_bleu(answers, references):.1f} BLEU"
            (out / f"{name}.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        else:
            rates = evaluate(
                model, dataset.test, dataset.source, dataset.target, dataset.max_len + 3, beam_size
            )
            scores[name] = f"{rates.sequence_error_rate:.2%} / {rates.token_error_rate:.2%}"
        if 3 * (time.monotonic() - started) > seconds - (time.monotonic() - started):
            break
        seconds -= time.monotonic() - started
    return scores


# All stages


def run(folder: Path, seconds: float, tiny: bool) -> None:
    """Every stage in turn, then the table. `tiny`: a dry run on the CPU with a tiny model, for the test."""
    began = time.monotonic()
    device = "cpu" if tiny else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("PyTorch finds no GPU here: --dry-run tries the script on a CPU.")
    try:
        datasets = unpack(folder / "data.json.gz")
    except FileNotFoundError:
        raise UserError(f"There is no {folder / 'data.json.gz'}: write it with pack {folder}.") from None
    rows = {}
    shares = {name: share * seconds / sum(SHARES.values()) for name, share in SHARES.items()}
    for name in shares:
        left = began + seconds - time.monotonic()
        mine = left - sum(list(shares.values())[list(shares).index(name) + 1 :])
        result = folder / name / "row.json"
        if result.exists():
            rows[name] = json.loads(result.read_text(encoding="utf-8"))
        elif name not in datasets:
            rows[name] = {"state": "not measured: no data"}
        elif mine < (LEAST if not tiny else 0):
            rows[name] = {"state": "not measured: no time left"}
        else:
            config = load_config(name, "cuda")
            if tiny:
                config = config.replace(d_model=16, n_heads=2, n_layers=1, d_ff=32, steps=120, batch_size=16)
            try:
                rows[name] = run_stage(config, datasets[name], folder / name, device, mine)
            except Exception as error:  # the other stages are worth their time all the same
                rows[name] = {"state": f"not measured: {type(error).__name__}: {error}"}
            if "state" not in rows[name]:
                result.write_text(json.dumps(rows[name]), encoding="utf-8")
        print(f"{name}: {rows[name]}", flush=True)
    print(table(rows, torch.cuda.get_device_name() if device == "cuda" else "CPU, a dry run"))


def table(rows: dict[str, dict[str, Any]], device: str) -> str:
    """The rows as they stand in docs/results.md."""
    lines = [
        f"| {device} | parameters | steps | epochs | minutes | test, greedy | test, beam {BEAM_SIZE} |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "state" in row:
            cells = [row["state"].replace("\n", " ").replace("|", "/"), "", "", "", "", ""]
        else:
            cells = [f"{row['parameters']:,}", f"{row['steps']:,}", f"{row['epochs']}", f"{row['minutes']}"]
            cells += [row.get(decoding, "not measured") for decoding in ("greedy", "beam")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("pack", "run", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0, help="of `run`, all stages together")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU")
    asked = parser.parse_args()
    if asked.what == "pack":
        datasets = []
        for name in SHARES:
            try:
                datasets.append(data.load(name))
            except UserError as missing:
                print(f"Without {name}: {missing}", file=sys.stderr)
        pack(asked.folder / "data.json.gz", datasets)
    elif asked.what == "run":
        run(asked.folder, asked.seconds, asked.dry_run)
    else:
        references = unpack(asked.folder / "data.json.gz")["translation"]
        assert isinstance(references, TranslationDataset)
        german = {test: texts[1] for test, texts in references.texts.items()}
        for file in sorted((asked.folder / "translation").glob("[bg]*.json")):
            print(
                file.stem,
                json.dumps(score_texts(json.loads(file.read_text(encoding="utf-8")), german), indent=1),
            )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
