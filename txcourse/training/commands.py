"""What `txcourse train` and `txcourse pronounce` do. Errors of the user are raised as UserError."""

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from txcourse import data, pretrained
from txcourse.data import Dataset, TranslationDataset
from txcourse.errors import UserError
from txcourse.solutions.batching import collate
from txcourse.training.checkpoints import (
    TrainedModel,
    build_model,
    cannot_save,
    copy_parameters,
    load_model,
    load_newest,
    read_metrics,
    save_model,
)
from txcourse.training.config import Config, load_config
from txcourse.training.evaluation import BOS, EOS, Scores, decode_all, evaluate
from txcourse.training.loop import Stopped, cpu_threads, train
from txcourse.training.translation import bleu_scores, lines_of

BEAM_SIZE = 5  # of a finished run's second score, and of a translation
LONGEST_WORD = 60  # letters; the longest in the dictionary has 28
TRANSDUCER = {
    "pronunciation": "25.9% and 6.3%",
    "pronunciation-2007": "24.8% and 5.9%",
}  # errors on the same words, benchmarks/transducer.py


def train_command(
    config: str = "pronunciation",
    *,
    out: Path | None = None,
    device: str | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    resume: bool = False,
    download: bool = False,
    as_json: bool = False,
) -> None:
    """Train a preset or a TOML file, keep the run in a folder (runs/TASK by default), print the test scores.

    `download` allows to fetch the data of a task that the course does not carry. `minutes` sets the number of steps
    from the measured time of the first ones. With `resume`, steps, minutes and seed are the run's own and need not
    be repeated.
    """
    if steps is not None and minutes is not None:
        raise UserError("Give --steps or --minutes, not both.")
    device = choose_device(device)
    asked = {name: value for name, value in {"steps": steps, "seed": seed}.items() if value is not None}
    settings = load_config(config, device).replace(**asked)
    out = out or Path("runs") / settings.task
    first = os.environ.get("RANK", "0") == "0"
    say = (lambda line: print(line, file=sys.stderr)) if as_json or not first else print

    if resume:
        if minutes is not None:
            raise UserError("The run has a budget already: --minutes cannot be changed on --resume.")
        if (out / "model.safetensors").exists():
            trained = load_model(out)
            say(f"The run in {out} has finished.")
            report(trained, out, as_json)
            return
        of_the_run = load_newest(out)[1]["config"]
        kept = {name: of_the_run[name] for name in ("steps", "seed") if name not in asked}
        settings = settings.replace(**kept)
    dataset = data.load(settings.task, download)
    if minutes is not None:
        settings = settings.replace(steps=steps_within(minutes, settings, dataset, device))

    model = build_model(settings, dataset.source, dataset.target)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    epochs = settings.steps * settings.batch_size / len(dataset.train)
    if first:
        say(
            f"{settings.task} on {device}: {n_parameters:,} parameters, {len(dataset.train):,} pairs, "
            f"{settings.steps:,} steps of {settings.batch_size} ({epochs:.1f} epochs), seed {settings.seed}; "
            f"saving in {out}"
        )
    try:
        trained_model, history = train(settings, dataset, out, device, resume)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(130) from None
    if not first:
        return

    with cpu_threads(settings.threads):
        tested = test_scores(trained_model, dataset)
    copy_parameters(model, dict(trained_model.named_parameters()))
    info = {
        "made": f"txcourse train {config} --steps {settings.steps} --seed {settings.seed}",
        "parameters": n_parameters,
        "epochs": round(epochs, 2),
        "seconds": history[-1]["seconds"],
        "device": device,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "dev": {name: history[-1][name] for name in (*Scores._fields, "bleu") if name in history[-1]},
        **tested,
    }
    if isinstance(dataset, TranslationDataset):
        info["encoding"] = dataset.encoding
    trained = TrainedModel(model.cpu().eval(), dataset.source, dataset.target, settings, info)
    try:
        save_model(out / "model.safetensors", trained)
    except OSError as error:
        raise cannot_save("the result", out, error) from None
    report(trained, out, as_json)


def test_scores(model: nn.Module, dataset: Dataset) -> dict[str, Any]:
    """What a finished model scores on the test split, for its file: BLEU by beam search, or the error rates of greedy
    decoding ("test") and of a beam ("test_beam")."""
    if isinstance(dataset, TranslationDataset):
        return {"test": bleu_scores(model, dataset, BEAM_SIZE)}
    scores = {}
    for name, beam_size, decoding in (("test", 1, "greedy"), ("test_beam", BEAM_SIZE, f"beam {BEAM_SIZE}")):
        rates = evaluate(
            model, dataset.test, dataset.source, dataset.target, dataset.max_len + 3, beam_size
        )._asdict()
        scores[name] = {**rates, "examples": len(dataset.test), "decoding": decoding}
    return scores


def report(trained: TrainedModel, out: Path, as_json: bool) -> None:
    """Print the scores of a finished run, with split, metric and budget."""
    config, info, test = trained.config, trained.info, trained.info["test"]
    if as_json:
        measurements = read_metrics(out, config.steps, rewrite=False)
        info = {name: value for name, value in info.items() if name != "encoding"}
        print(json.dumps({"out": str(out), "config": config.to_dict(), **info, "measurements": measurements}))
        return
    if config.task == "translation":
        print("\n".join(lines_of(test)))
    else:
        sequence, token = ("word", "phoneme") if config.task in TRANSDUCER else ("sequence", "token")
        print(f"Test split, {test['examples']:,} {sequence}s, {test['decoding']} decoding:")
        print(
            f"  {sequence} error rate  {test['sequence_error_rate']:6.1%}  (right: equal to any listed answer)"
        )
        print(
            f"  {token} error rate  {test['token_error_rate']:6.1%}  (edits to the closest answer / its length)"
        )
    if beam := info.get("test_beam"):
        print(
            f"  with {beam['decoding']}: {beam['sequence_error_rate']:.1%} and {beam['token_error_rate']:.1%}"
        )
    print(
        f"after {config.steps:,} steps of {config.batch_size} ({info['epochs']:.1f} epochs), seed {config.seed}, "
        f"{info['seconds'] / 60:.1f} minutes on {info['device']} with {config.threads} thread{'s' * (config.threads > 1)}"
    )
    if config.task in TRANSDUCER:
        print(f"For comparison, an 8-gram finite-state transducer on this split: {TRANSDUCER[config.task]}")
        print(f"Try: txcourse pronounce --model {out} transformer")


def choose_device(device: str | None) -> str:
    """The device asked for, or the best one there is: "cuda", "mps" or "cpu". Raises UserError."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device is None:
        return next(name for name, available in there.items() if available)
    if device not in there:
        raise UserError(f"Unknown device {device!r}: choose cpu, cuda or mps.")
    if not there[device]:
        available = ", ".join(name for name, yes in there.items() if yes)
        raise UserError(f"PyTorch finds no {device} device here; available: {available}.")
    return device


def steps_within(minutes: float, config: Config, dataset: Dataset, device: str) -> int:
    """How many steps fit into so many minutes, by the time of 5 and of 35 first steps, thrown away afterwards.

    The difference is the time of 30 steps; the rest of the shorter run is mostly one measurement on the
    development set. Those of the whole run, and the test at its end (about five times as long), are taken off.
    """
    if minutes <= 0:
        raise UserError(f"--minutes must be above 0, not {minutes:g}.")
    print("Measuring the first steps ...", file=sys.stderr)
    seconds = []
    for n in (5, 35):
        started = time.monotonic()
        train(config.replace(steps=n, average=1), dataset, device=device, progress=False)
        seconds.append(time.monotonic() - started)
    per_step = max((seconds[1] - seconds[0]) / 30, 1e-6)
    measurement = max(seconds[0] - 5 * per_step, 0)
    steps = int((60 * minutes - 5 * measurement) / (per_step + measurement / config.evaluate_every))
    if steps < 100:
        least = (100 * per_step + 5 * measurement) / 60
        raise UserError(f"{minutes:g} minutes are too short here: give at least {least:.1f}, or --steps.")
    return steps


def pronounce_command(
    words: list[str],
    *,
    model: Path | None = None,
    beam_size: int = 1,
    attention: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print the phonemes of words, from the arguments or from standard input, one word a line.

    `model` is the folder of a run; without it, the model that comes with the course is used. `attention` is a file
    for a picture of the cross-attention of one word.
    """
    if not words and not sys.stdin.isatty():
        words = sys.stdin.read().split()
    if not words:
        raise UserError("Give at least one word, for example: txcourse pronounce transformer")
    trained = load_model(model if model is not None else pretrained.FOLDER)
    if trained.config.task not in TRANSDUCER:
        raise UserError(f"The model in {model} was trained on {trained.config.task!r}, not on pronunciation.")
    words = [check_word(word, trained) for word in words]
    if beam_size < 1:
        raise UserError(f"--beam must be at least 1, not {beam_size}.")
    if attention is not None and len(words) != 1:
        raise UserError(f"--attention draws one word, not {len(words)}.")

    spelled = [list(word) for word in words]
    answers = decode_all(trained.model, spelled, trained.source, trained.target, LONGEST_WORD + 2, beam_size)
    if as_json:
        rows = [{"word": word, "phonemes": answer} for word, answer in zip(words, answers, strict=True)]
        print(json.dumps(rows, ensure_ascii=False))
    else:
        width = max(len(word) for word in words)
        for word, answer in zip(words, answers, strict=True):
            print(f"{word:<{width}}  {' '.join(answer)}")
    if attention is not None:
        draw_attention(trained, spelled[0], answers[0], attention)


def check_word(word: str, trained: TrainedModel) -> str:
    """The word in lower case. Raises UserError when the model cannot read it."""
    lower = word.strip().lower()
    if not lower:
        raise UserError("An empty word has no pronunciation.")
    known = set(trained.source.tokens[4:])
    if unknown := [letter for letter in lower if letter not in known]:
        raise UserError(f"{word!r} contains {unknown[0]!r}; the model knows {''.join(sorted(known))} only.")
    if len(lower) > LONGEST_WORD:
        raise UserError(
            f"{word[:20]!r}... has {len(lower)} letters; the longest word possible has {LONGEST_WORD}."
        )
    return lower


def cross_attention(trained: TrainedModel, letters: list[str], phonemes: list[str]) -> Any:
    """Weights (phonemes and the end, beginning, letters and end) with which each output position looks at the
    letters, in the last decoder layer, averaged over the heads."""
    src = collate([trained.source.encode(letters)], pad_id=0, bos_id=BOS, eos_id=EOS)
    tgt = collate([trained.target.encode(phonemes)], pad_id=0, bos_id=BOS, eos_id=EOS)[:, :-1]
    with torch.no_grad():
        trained.model(src, tgt)  # the plain computation, which keeps the weights
    layers: Any = trained.model.decoder.layers
    return layers[-1].cross_attention.weights[0].mean(0).numpy()


def draw_attention(trained: TrainedModel, letters: list[str], phonemes: list[str], file: Path) -> None:
    """Save the picture of the cross-attention, phonemes against letters. Raises UserError."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    weights = cross_attention(trained, letters, phonemes)
    columns, rows = ["<bos>", *letters, "<eos>"], [*phonemes, "<eos>"]
    figure, axes = plt.subplots(
        figsize=(1.5 + 0.42 * len(columns), 1.4 + 0.36 * len(rows)), layout="constrained"
    )
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.set(xlabel="letter read", ylabel="phoneme written", title="".join(letters))
    figure.colorbar(image, label="attention weight")
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise UserError(f"Cannot write the picture {file}: {error}.") from None
    finally:
        plt.close(figure)
