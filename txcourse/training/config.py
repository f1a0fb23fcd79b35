"""What a training run needs to know, from a small TOML file or from Python."""

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from txcourse.data import TASKS
from txcourse.errors import UserError

PRESETS = Path(__file__).parent


@dataclass(frozen=True)
class Config:
    """One run. On a CPU it decides the result to the last bit."""

    task: str = "pronunciation"
    # the model
    d_model: int = 96
    n_heads: int = 4
    n_layers: int = 2
    d_ff: int = 384
    dropout: float = 0.0
    norm_first: bool = True
    positions: str = "sinusoidal"  # or "learned", or "none"
    tie_embeddings: bool | str = True  # "all": the source embedding is tied, too
    # the updates
    steps: int = 6200
    batch_size: int = 96  # examples in one update, over all processes and micro-batches
    micro_batches: int = 1  # pieces in which a process works through its part of the batch, to save memory
    peak_lr: float = 3e-3
    warmup: float = 0.05  # part of the steps in which the rate rises linearly
    final_lr: float = 0.01  # the rate at the last step, as a part of the peak
    beta2: float = 0.98
    smoothing: float = 0.1
    max_norm: float = 1.0
    seed: int = 1
    threads: int = (
        1  # of a CPU; more gain little on small matrices, and lose much when others use the machine
    )
    # measuring and saving
    evaluate_every: int = 500  # steps between two measurements on the development set, each with a checkpoint
    average: int = 1  # the result is the mean of the weights of so many last checkpoints

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "tie_embeddings" and value == "all":
                continue
            wanted = field.type if isinstance(field.type, type) else type(field.default)
            if wanted is float and type(value) is int:
                object.__setattr__(self, field.name, float(value))
            elif type(value) is not wanted:
                raise UserError(f"{field.name} must be {wanted.__name__}, not {value!r}.")
        for name in ("d_model", "n_heads", "n_layers", "d_ff", "steps", "batch_size", "micro_batches"):
            _require(getattr(self, name) >= 1, name, "at least 1", self)
        for name in ("threads", "evaluate_every", "average"):
            _require(getattr(self, name) >= 1, name, "at least 1", self)
        for name in ("dropout", "smoothing", "warmup", "beta2"):
            _require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1", self)
        kinds = ("sinusoidal", "learned", "none")
        _require(self.positions in kinds, "positions", f"one of {', '.join(kinds)}", self)
        _require(self.peak_lr > 0, "peak_lr", "above 0", self)
        _require(self.max_norm > 0, "max_norm", "above 0", self)
        _require(0 <= self.final_lr <= 1, "final_lr", "between 0 and 1", self)
        _require(self.d_model % self.n_heads == 0, "d_model", f"divisible by n_heads ({self.n_heads})", self)
        _require(self.task in TASKS, "task", f"one of {', '.join(TASKS)}", self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def replace(self, **changes: Any) -> "Config":
        return replace(self, **changes)


def _require(holds: bool, name: str, what: str, config: Config) -> None:
    if not holds:
        raise UserError(f"{name} must be {what}, not {getattr(config, name)!r}.")


def presets() -> list[str]:
    """The names of the configurations that come with the course."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_config(name: str, device: str = "cpu") -> Config:
    """The configuration of a preset ("pronunciation") or of a TOML file, with the section of the device applied.

    Raises UserError when there is none of that name, or when it holds something else than settings of `Config`.
    """
    path = PRESETS / f"{name}.toml" if name in presets() else Path(name)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"No configuration {name!r}: give the path of a TOML file, or one of {', '.join(presets())}."
        ) from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}.") from None

    sections = {key: settings.pop(key) for key in list(settings) if isinstance(settings[key], dict)}
    if unknown := set(sections) - {"cpu", "cuda", "mps"}:
        raise UserError(f"{path}: unknown section [{min(unknown)}]; sections are cpu, cuda and mps.")
    settings |= sections.get(device, {})
    if unknown := set(settings) - {field.name for field in fields(Config)}:
        raise UserError(f"{path}: unknown setting {min(unknown)!r}.")
    return Config(**settings)
