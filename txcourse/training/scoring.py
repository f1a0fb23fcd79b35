"""`txcourse score`: error rates, or BLEU, of finished runs, greedy and with a beam, alone, averaged, together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from txcourse import data, pretrained
from txcourse.data import Dataset, TranslationDataset
from txcourse.errors import UserError
from txcourse.fast import FastTransformer
from txcourse.training.checkpoints import (
    TrainedModel,
    average_weights,
    build_model,
    copy_parameters,
    list_checkpoints,
    load_model,
    read_tensors,
    saved_config,
)
from txcourse.training.commands import choose_device
from txcourse.training.evaluation import evaluate
from txcourse.training.translation import bleu_scores, lines_of


def score_command(
    runs: list[Path],
    *,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    average: int | None = None,
    split: str = "test",
    device: str | None = None,
    as_json: bool = False,
) -> None:
    """Print the error rates of a run, of a translation BLEU; of several as an ensemble (the mean of their
    probabilities).

    `runs` are folders of runs or files of models, none for the model that comes with the course. With `average`, a
    run counts with the mean of its last checkpoints in place of its result, finished or not.
    """
    if split not in ("dev", "test"):
        raise UserError(f"Unknown split {split!r}: choose dev or test.")
    for name, value in (("--beam", beam_size), ("--average", 1 if average is None else average)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, not {value}.")
    if average is not None and not runs:
        raise UserError("The model that comes with the course has no checkpoints to average: name a run.")
    device = choose_device(device)
    trained = [load_run(run, average) for run in runs or [pretrained.FOLDER]]
    first = trained[0]
    if first.config.task == "translation" and split != "test":
        raise UserError("Translations are measured on the three tests only: leave --split away.")
    for run, other in zip(runs, trained, strict=False):
        if (other.config.task, other.source.tokens, other.target.tokens) != (
            first.config.task,
            first.source.tokens,
            first.target.tokens,
        ):
            raise UserError(f"{run} has another task or vocabulary than {runs[0]}: no ensemble of the two.")

    dataset = data.load(first.config.task)
    models = [member.model.to(device).eval() for member in trained]
    sizes = (1, beam_size)[: 1 + (beam_size > 1)]
    if isinstance(dataset, TranslationDataset):
        rows = [bleu_scores(models, dataset, size, length_penalty) for size in sizes]
    else:
        rows = [score(models, dataset, split, size, length_penalty) for size in sizes]
    names = [str(run) for run in runs] or ["the model of the course"]
    if as_json:
        print(json.dumps([{"runs": names, "average": average, **row} for row in rows]))
        return
    mean = f", each the mean of its last {average} checkpoints" if average else ""
    if first.config.task == "translation":
        print(f"{' + '.join(names)}{mean}", *(line for row in rows for line in lines_of(row)), sep="\n")
        return
    print(f"{' + '.join(names)}{mean}; {split} split, {rows[0]['examples']:,} sequences")
    print(f"{'decoding':<28} {'sequences wrong':>15} {'tokens wrong':>13}")
    for row in rows:
        print(f"{row['decoding']:<28} {row['sequence_error_rate']:>15.2%} {row['token_error_rate']:>13.2%}")


def load_run(run: Path, average: int | None) -> TrainedModel:
    """The result of a run, or the mean of its last `average` checkpoints. Raises UserError."""
    if average is None:
        return load_model(run)
    paths = [path for path in list_checkpoints(run) if "00000000" not in path.name]
    if len(paths) < average:
        raise UserError(
            f"{run} holds {len(paths)} checkpoints, not {average}: a run keeps as many as its setting `average`."
        )
    paths = paths[-average:]
    config = saved_config(read_tensors(paths[-1])[1])
    dataset = data.load(config.task)
    model = build_model(config, dataset.source, dataset.target)
    copy_parameters(model, average_weights(paths))
    return TrainedModel(model, dataset.source, dataset.target, config, {})


def score(
    models: nn.Module | Sequence[FastTransformer],
    dataset: Dataset,
    split: str,
    beam_size: int = 1,
    length_penalty: float = 1.0,
) -> dict[str, Any]:
    """One row of a table of results: split, number of examples, decoding, and the two error rates."""
    examples = dataset.dev if split == "dev" else dataset.test
    limit = dataset.max_len + 3
    scores = evaluate(models, examples, dataset.source, dataset.target, limit, beam_size, length_penalty)
    decoding = "greedy" if beam_size == 1 else f"beam {beam_size}, length penalty {length_penalty:g}"
    return {"split": split, "examples": len(examples), "decoding": decoding, **scores._asdict()}
