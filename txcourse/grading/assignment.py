"""What is asked: which exercises for how many points, until when, within which limits.

An assignment is a TOML file, every line of which may be left out but one that names exercises:

    title = "Attention"
    notebooks = ["03_attention"]           # all exercises of these notebooks
    exercises = ["softmax"]                # and these
    leave_out = ["attention_by_loops"]     # but not these
    own = ["entropy.py"]                   # and those of a file of yours: EXERCISES = (Exercise(...),)
    due = 2027-03-01T23:59:00+01:00        # without an offset: local time
    seed = 81623                           # of the random inputs; keep it to yourself

    [points]                               # in place of the exercise's own
    causal_mask = 3

    [limits]                               # of one exercise; see Limits
    seconds = 20
"""

import hashlib
import importlib.util
import json
import os
import secrets
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txcourse import __version__
from txcourse.errors import UserError

if TYPE_CHECKING:
    from txcourse.checking import Exercise


@dataclass(frozen=True)
class Limits:
    """What one exercise may take."""

    seconds: float = (
        10.0  # of processor time, and of wall time on an idle machine; naming the mistake not counted
    )
    memory: int = 2 * 2**30  # bytes, over what importing torch takes
    processes: int = 32
    files: int = 64  # open at the same time
    written: int = 16 * 2**20  # bytes of a file
    output: int = 2**20  # bytes of stdout and stderr that are kept


@dataclass(frozen=True)
class Asked:
    """An exercise of the assignment and its points here."""

    exercise: "Exercise"
    points: float

    @property
    def name(self) -> str:
        return self.exercise.name


@dataclass(frozen=True)
class Assignment:
    """`plain` is the same without objects: it can be sent to another process, stored, and built again."""

    title: str
    asked: tuple[Asked, ...]
    due: datetime | None
    seed: int
    limits: Limits
    plain: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Changes when anything changes that a mark depends on. The title and the due date are none of it."""
        marks = {name: value for name, value in self.plain.items() if name not in ("title", "due", "drawn")}
        digest = hashlib.sha256(json.dumps([__version__, marks], sort_keys=True).encode())
        for file in self.plain.get("own", []):
            digest.update(Path(file).read_bytes())
        return digest.hexdigest()

    @property
    def max_points(self) -> float:
        return sum(asked.points for asked in self.asked)


_KEYS = {"title", "notebooks", "exercises", "leave_out", "own", "due", "seed", "points", "limits"}


def read(file: Path) -> Assignment:
    """The assignment of a TOML file; paths in `own` are relative to it.

    Raises:
        UserError: it cannot be read, or asks for what does not exist.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the assignment {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from error
    if unknown := sorted(found.keys() - _KEYS):
        raise UserError(f"{file}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}")
    for key in ("notebooks", "exercises", "leave_out", "own"):
        _require(file, key, found.get(key, []), lambda v: isinstance(v, list) and all(map(_is_text, v)))
    for key in ("points", "limits"):
        _require(
            file, key, found.get(key, {}), lambda v: isinstance(v, dict) and all(map(_is_count, v.values()))
        )
    _require(file, "title", found.get("title", ""), _is_text)
    _require(file, "due", found.get("due", date.min), lambda v: isinstance(v, date))
    _require(file, "seed", found.get("seed", 0), lambda v: isinstance(v, int) and v >= 0)
    due = found.get("due")
    found["due"] = due.isoformat() if due else None
    found["own"] = [str((file.parent / each).resolve()) for each in found.get("own", [])]
    found.setdefault("title", file.stem)
    try:
        return build(found)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def of_notebooks(names: Iterable[str], due: str | None = None) -> Assignment:
    """All exercises of the named notebooks ("03", "attention" or "03_attention"), or of the whole course."""
    names = [_notebook(name) for name in names]
    title = ", ".join(names) or "the whole course"
    return build({"title": title, "notebooks": names or _notebooks(), "due": due})


def build(plain: dict[str, Any]) -> Assignment:
    """The assignment of plain values, as in the file; `plain` of an assignment gives the same one again.

    Raises:
        UserError: an exercise or notebook that does not exist, no exercise at all, an own file that fails.
    """
    from txcourse import exercises

    known = {name: exercises.get(name) for name in exercises.names()}
    chosen: dict[str, Exercise] = {}
    for notebook in plain.get("notebooks", []):
        chosen |= {e.name: e for e in known.values() if e.notebook == _notebook(notebook)}
    for name in plain.get("exercises", []):
        chosen[_among(name, known)] = known[name]
    order = {name: number for number, name in enumerate(known)}
    chosen = dict(sorted(chosen.items(), key=lambda pair: order[pair[0]]))
    for file in plain.get("own", []):
        for exercise in _own(Path(file)):
            if exercise.name in known:
                raise UserError(f"{file}: the course has an exercise {exercise.name!r}; choose another name")
            chosen[exercise.name] = exercise
    points = plain.get("points", {})
    for name in [*plain.get("leave_out", []), *points]:
        _among(name, chosen)
    for name in plain.get("leave_out", []):
        del chosen[name]
    if not chosen:
        raise UserError("no exercise is asked for; name notebooks or exercises")
    limits = plain.get("limits", {})
    for name in limits:
        _among(name, [limit.name for limit in fields(Limits)])
    full: dict[str, Any] = {
        "title": plain.get("title") or "assignment",
        "notebooks": [],
        "exercises": [name for name in chosen if name in known],
        "leave_out": [name for name in plain.get("leave_out", []) if name not in known],  # of an own file
        "own": [str(file) for file in plain.get("own", [])],
        "due": parse_due(plain["due"]).isoformat() if plain.get("due") else None,
        "seed": _secret() if plain.get("seed") is None else plain["seed"],
        "drawn": plain.get("drawn", plain.get("seed") is None),
        "points": {name: float(points.get(name, exercise.points)) for name, exercise in chosen.items()},
        "limits": {limit.name: limits.get(limit.name, limit.default) for limit in fields(Limits)},
    }
    return Assignment(
        title=full["title"],
        asked=tuple(Asked(exercise, full["points"][name]) for name, exercise in chosen.items()),
        due=datetime.fromisoformat(full["due"]) if full["due"] else None,
        seed=full["seed"],
        limits=Limits(**full["limits"]),
        plain=full,
    )


def to_toml(assignment: Assignment, own: list[str]) -> str:
    """The assignment as a file, with these paths to the instructor's own exercises."""
    plain, text = assignment.plain, partial(json.dumps, ensure_ascii=False)
    lines = [f"{key} = {text(plain[key])}" for key in ("title", "exercises", "leave_out")]
    lines += [f"own = {text(own)}", *([f"due = {plain['due']}"] if plain["due"] else [])]
    lines += [f"seed = {plain['seed']}  # keep it to yourself", "", "[points]"]
    lines += [f"{text(name)} = {value:g}" for name, value in plain["points"].items()]
    lines += ["", "[limits]", *(f"{name} = {value}" for name, value in plain["limits"].items())]
    return "\n".join(lines) + "\n"


def parse_due(text: str) -> datetime:
    """A moment such as 2027-03-01, 2027-03-01T18:00 or 2027-03-01T18:00+01:00; a day alone means its end.

    Raises:
        UserError: it is none.
    """
    try:
        due = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UserError(f"{text!r} is no date; write it like 2027-03-01T23:59 or 2027-03-01") from None
    if len(text.strip()) <= len("2027-03-01"):
        due = due.replace(hour=23, minute=59, second=59)
    return due.astimezone()


def _require(file: Path, key: str, value: Any, right: Any) -> None:
    if not right(value):
        raise UserError(
            f"{file}: the value of {key!r} is not what it should be; the example in docs/instructors.md shows it"
        )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _among(name: str, known: Iterable[str]) -> str:
    if name not in known:
        raise UserError(f"there is no {name!r} here; there are: {', '.join(known)}")
    return name


def _notebooks() -> list[str]:
    from txcourse import exercises

    return list(dict.fromkeys(exercises.get(name).notebook for name in exercises.names()))


def _notebook(name: str) -> str:
    wanted = name.removesuffix(".ipynb")
    for notebook in _notebooks():
        if wanted in (notebook, *notebook.split("_", 1)):
            return notebook
    raise UserError(f"no notebook {name!r} has exercises; these have: {', '.join(_notebooks())}")


def _own(file: Path) -> "tuple[Exercise, ...]":
    """The exercises of an instructor's file."""
    from txcourse.checking import Exercise

    name = f"txcourse_own_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UserError(f"there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes look themselves up there
    try:
        spec.loader.exec_module(module)
        found = tuple(module.EXERCISES)
    except Exception as error:
        raise UserError(f"{file} stops with {type(error).__name__}: {error}") from error
    if not found or not all(isinstance(each, Exercise) for each in found):
        raise UserError(f"{file}: EXERCISES should be a tuple of txcourse.checking.Exercise")
    return found


def _secret() -> int:
    """A seed that is this user's, drawn once: marks stay the same from run to run, and nobody else knows it."""
    file = Path.home() / ".txcourse" / "grading_seed"
    try:
        file.parent.mkdir(exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(str(secrets.randbelow(2**31)))
    except OSError:
        pass
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return secrets.randbelow(2**31)
