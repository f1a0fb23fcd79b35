"""Files of a run, written so that a kill, a full disk or a power cut at any moment leaves a good one.

A run's folder holds

    checkpoints/step-00000500.safetensors   the full state: weights, optimiser, step, sums (the last few)
    metrics.jsonl                           one line per measurement
    model.safetensors                       the result: weights, configuration, vocabularies, scores

Weights and optimiser are the tensors of the file; everything else is JSON in its header.
"""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from txcourse.errors import UserError
from txcourse.fast import FastTransformer
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.training.config import Config


class DamagedFile(UserError):
    """A file of a run that cannot be used any more."""


FORMAT = 1  # raised when a file of today could not be read any more


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is, at every moment, either the old one or the complete new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    with suppress(OSError):  # the new name is in the folder's own data; Windows cannot sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Save tensors and a JSON header as one safetensors file, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(contiguous, {"txcourse": json.dumps({"format": FORMAT, **header})}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of such a file. Raises UserError, in one line, when it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["txcourse"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (SafetensorError, KeyError, ValueError):
        raise DamagedFile(f"{path} is damaged or was not written by txcourse.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    if header.get("format") != FORMAT:
        raise UserError(f"{path} was written by another version of txcourse (format {header.get('format')}).")
    return tensors, header


# The full state of a run


@dataclass
class State:
    """Where a run stands, besides weights and optimiser. Data order and random numbers follow from the step."""

    step: int = 0
    seconds: float = 0.0  # spent so far, interruptions not counted
    measured_at: float = 0.0  # `seconds` at the last measurement
    loss_sum: float = 0.0  # this and what follows: since the last measurement
    targets: int = 0
    tokens: int = 0

    def tokens_per_second(self) -> int:
        return round(self.tokens / max(self.seconds - self.measured_at, 1e-9))


def list_checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*.safetensors"))


def save_checkpoint(
    run: Path, state: State, config: Config, model: nn.Module, optimizer: torch.optim.Optimizer, keep: int
) -> None:
    """Save the full state, then delete all checkpoints but the last `keep`.

    Raises UserError when there is no space or no permission, and then leaves the older ones as they are.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():  # a shared tensor comes once
        tensors[f"model/{name}"] = parameter
        for key, value in optimizer.state[parameter].items():  # step, exp_avg, exp_avg_sq; nothing at step 0
            tensors[f"{key}/{name}"] = value
    header = {"config": config.to_dict(), "state": asdict(state)}
    try:
        write_tensors(run / "checkpoints" / f"step-{state.step:08d}.safetensors", tensors, header)
    except OSError as error:
        raise cannot_save(f"step {state.step}", run, error) from None
    for path in list_checkpoints(run)[:-keep]:
        path.unlink(missing_ok=True)


def cannot_save(what: str, run: Path, error: OSError) -> UserError:
    """One line: what could not be saved, why, and what is still there."""
    saved = list_checkpoints(run)
    intact = f" {saved[-1]} is intact: make room, then continue with --resume." if saved else ""
    return UserError(f"Cannot save {what} in {run}: {error.strerror or error}.{intact}")


def load_newest(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of the newest good checkpoint; damaged newer ones are reported on stderr and deleted.

    Raises UserError when there is no good one.
    """
    for left_by_a_kill in (run / "checkpoints").glob(".*.tmp"):
        left_by_a_kill.unlink(missing_ok=True)
    damaged = []
    for path in reversed(list_checkpoints(run)):
        try:
            tensors, header = read_tensors(path)
        except DamagedFile as error:
            damaged.append(path)
            print(f"{error} Using the one before it.", file=sys.stderr)
            continue
        for other in damaged:
            other.unlink(missing_ok=True)
        return tensors, header
    raise UserError(f"There is no usable checkpoint in {run}: start without --resume.")


def load_state(run: Path, config: Config) -> tuple[State, dict[str, Tensor]]:
    """Where the run stands, and the tensors for `restore`. Raises UserError when it has another configuration."""
    tensors, header = load_newest(run)
    of_the_run = saved_config(header).to_dict()
    for name, value in config.to_dict().items():
        if of_the_run[name] != value:
            raise UserError(
                f"The run in {run} has {name} = {of_the_run[name]}, not {value}: resume it with its own "
                "settings, or choose another --out."
            )
    return State(**header["state"]), tensors


def saved_config(header: dict[str, Any]) -> Config:
    """The configuration in a file; settings that did not exist yet have their default. Raises UserError."""
    try:
        return Config(**header["config"])
    except TypeError:
        raise UserError(
            "The file has settings that this txcourse does not know: a newer one wrote it."
        ) from None


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the tensors of a checkpoint into the model and its optimiser."""
    copy_parameters(model, tensors, prefix="model/")
    for name, parameter in model.named_parameters():
        if f"step/{name}" in tensors:
            optimizer.state[parameter] = {
                "step": tensors[f"step/{name}"].to(parameter.device),
                "exp_avg": tensors[f"exp_avg/{name}"].to(parameter.device),
                "exp_avg_sq": tensors[f"exp_avg_sq/{name}"].to(parameter.device),
            }


def copy_parameters(model: nn.Module, tensors: dict[str, Tensor], prefix: str = "") -> None:
    """Copy tensors into the parameters of the same name. Raises UserError when the two do not fit."""
    parameters = dict(model.named_parameters())
    saved = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if {n: p.shape for n, p in parameters.items()} != {n: t.shape for n, t in saved.items()}:
        raise UserError("The weights are those of another model: names or shapes of the parameters differ.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])


def append_metrics(run: Path, measurement: dict[str, Any]) -> None:
    """Add one line to the run's metrics.jsonl. Raises UserError when there is no space."""
    try:
        with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(measurement) + "\n")
    except OSError as error:
        raise cannot_save("a measurement", run, error) from None


def read_metrics(run: Path, up_to: int, rewrite: bool) -> list[dict[str, Any]]:
    """The measurements up to a step. With `rewrite`, later ones and half a line left by a kill are removed."""
    try:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    complete = [json.loads(line) for line in lines if line.endswith("\n")]
    kept = [measurement for measurement in complete if measurement["step"] <= up_to]
    if rewrite and len(kept) < len(lines):
        text = "".join(json.dumps(measurement) + "\n" for measurement in kept)
        write_atomically(run / "metrics.jsonl", text.encode())
    return kept


def average_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (Vaswani et al. 2017, section 6.1, averages the last 5)."""
    total: dict[str, Tensor] = {}
    paths = list(paths)
    for path in paths:
        for name, tensor in read_tensors(path)[0].items():
            if name.startswith("model/"):
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name.removeprefix("model/"): (tensor / len(paths)).float() for name, tensor in total.items()}


# The result of a run


@dataclass
class TrainedModel:
    """A model that can be used: with its vocabularies and how it was made."""

    model: FastTransformer
    source: Vocabulary
    target: Vocabulary
    config: Config
    info: dict[str, Any]  # steps, scores, versions


def build_model(config: Config, source: Vocabulary, target: Vocabulary) -> FastTransformer:
    """The untrained model of a configuration; its first weights follow from torch's random state."""
    model = FastTransformer(
        len(source),
        len(target),
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        d_ff=config.d_ff,
        dropout=config.dropout,
        norm_first=config.norm_first,
        tie_embeddings=config.tie_embeddings,
        max_len=256,
    )
    if config.positions == "learned":  # the table becomes a parameter
        del model.positions.table
        model.positions.table = nn.Parameter(torch.randn(256, config.d_model) / config.d_model**0.5)
    elif config.positions == "none":
        model.positions.table.zero_()
    return model


def save_model(path: Path, trained: TrainedModel, dtype: torch.dtype = torch.float32) -> None:
    """Save a result as one file: weights, configuration, vocabularies, how it was made."""
    weights = {name: parameter.to(dtype) for name, parameter in trained.model.named_parameters()}
    header = {
        "config": trained.config.to_dict(),
        "source": trained.source.tokens,
        "target": trained.target.tokens,
        "info": trained.info,
    }
    write_tensors(path, weights, header)


def load_model(path: Path) -> TrainedModel:
    """The model of a result file or of a run's folder, in evaluation mode.

    Raises UserError, in one line, when there is none, when it is damaged, or when the run has not finished.
    """
    if path.is_dir():
        if not (path / "model.safetensors").exists() and list_checkpoints(path):
            raise UserError(f"The run in {path} has not finished: continue it with --resume.")
        path = path / "model.safetensors"
    if not path.exists():
        place = f"in {path.parent}" if path.name == "model.safetensors" else f"at {path}"
        raise UserError(f"There is no trained model {place}: make one with txcourse train pronunciation.")
    tensors, header = read_tensors(path)
    source, target = vocabulary_of(header["source"]), vocabulary_of(header["target"])
    config = saved_config(header)
    model = build_model(config, source, target)
    copy_parameters(model, {name: tensor.float() for name, tensor in tensors.items()})
    return TrainedModel(model.eval(), source, target, config, header["info"])


def vocabulary_of(tokens: list[str]) -> Vocabulary:
    """The vocabulary with exactly these tokens, the four specials first.

    A token's place follows from its count, so the first one is counted most often.
    """
    real = tokens[4:]
    return Vocabulary([[token] * (len(real) - i) for i, token in enumerate(real)])
