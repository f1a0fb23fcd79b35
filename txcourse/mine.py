"""The parts built so far: `from txcourse.mine import MultiHeadAttention` gives the learner's version when it
passed its check, else the reference, and says which.

A reference that is made of other parts takes the learner's versions of those: with only the attention passed,
the Transformer of this module still attends by the learner's code.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from txcourse.learner import answers, workspace
from txcourse.source import part_for, statements

_loaded: dict[str, tuple[str, ModuleType]] = {}  # stored module -> (its text, the module)
_mixed: dict[
    str, tuple[dict[str, int], Any, dict[str, Any]]
] = {}  # reference -> (parts by id, it, the parts)
_told: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    from txcourse import exercises

    if name.startswith("__") or name not in exercises.names():
        raise AttributeError(f"`{name}` is no exercise of the course")
    part, origin = _find(name)
    if not answers.running and _told.get(name) != origin:
        _told[name] = origin
        print(f"{name}: {origin}")
    return part


def __dir__() -> list[str]:
    from txcourse import exercises

    return [*exercises.names(), "origin"]


def origin(part: type | object) -> str:
    """Whose code a part of a model is: "yours", "reference" (of the course) or "library".

    Args:
        part: a class or an object, such as one of `model.modules()`.
    """
    module = (part if isinstance(part, type) else type(part)).__module__
    top = module.split(".")[0]
    if top in (answers.PACKAGE, "__main__"):
        return "yours"
    return "reference" if top == "txcourse" else "library"


def _find(name: str) -> tuple[Any, str]:
    """The object and where it is from, in words that start with "yours" or "the reference"."""
    from txcourse import exercises
    from txcourse.learner import kept_here

    if name in kept_here:
        return kept_here[name], "yours, from this session"
    exercise = exercises.get(name)
    here = workspace.find()
    if here is None and not kept_here:
        return exercise.reference, "the reference"
    part, with_yours = _reference(exercise)
    why = "the reference" + (f", with your own {', '.join(with_yours)}" if with_yours else "")
    path = answers.answer_file(here, exercise.notebook) if here else None
    if path is None or name not in answers.blocks(path):
        return part, f"{why} (yours has not passed yet)"
    shown = path.relative_to(path.parent.parent)
    if f"{answers.PACKAGE}.{path.stem}" in answers.running:
        return part, f"{why} (your parts ask for each other in a circle)"
    try:
        return getattr(_load(path), name), f"yours, from {shown}"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return (
            part,
            f"{why}, as {shown} does not import ({reason}); run its check again in {exercise.notebook}",
        )


def _load(path: Path) -> ModuleType:
    """The stored module; run again when its text has changed."""
    text = path.read_text(encoding="utf-8")
    known = _loaded.get(str(path))
    if known is None or known[0] != text:
        known = _loaded[str(path)] = (text, answers.execute(text, path, f"{answers.PACKAGE}.{path.stem}"))
    return known[1]


def _reference(exercise: Any) -> tuple[Any, list[str]]:
    """The reference, or a copy of it that is made of the learner's parts, and the names of those."""
    from txcourse import exercises

    module = sys.modules[exercise.reference.__module__]
    if module.__file__ is None or not module.__name__.startswith("txcourse.solutions."):
        return exercise.reference, []
    source = Path(module.__file__).read_text(encoding="utf-8")
    needed, _ = part_for(exercise.name, statements(source))
    names = set().union(*(statement.binds for statement in needed)) - {exercise.name}
    found = {name: _find(name)[0] for name in exercises.names() if name in names}
    own = {name: part for name, part in found.items() if part is not exercises.get(name).reference}
    if not own:
        return exercise.reference, []
    made_of = {name: id(part) for name, part in own.items()}
    if exercise.name not in _mixed or _mixed[exercise.name][0] != made_of:
        copy = ModuleType(module.__name__)
        exec(compile(source, module.__file__, "exec", dont_inherit=True), copy.__dict__)
        copy.__dict__.update(own)  # functions and classes look names up when they are called
        _mixed[exercise.name] = (made_of, getattr(copy, exercise.name), own)
    return _mixed[exercise.name][1], list(own)
