"""The parts built so far: `from txcourse.mine import MultiHeadAttention` gives the learner's version when it
passed its check, else the reference, and says which.

A reference that is made of other parts takes the learner's versions of those: with only the attention passed,
the Transformer of this module still attends by the learner's code.
"""

import dis
import inspect
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from txcourse.learner import answers, workspace
from txcourse.source import part_for, statements

_loaded: dict[str, tuple[str, ModuleType]] = {}  # stored module -> (its text, the module)
_mixed: dict[
    str, tuple[dict[str, int], Any, dict[str, Any]]
] = {}  # reference -> (parts by id, it, the parts)
_told: dict[str, str] = {}


class Found(NamedTuple):
    """A part, where it is from in words, and the names of the learner's parts that it is or is made of."""

    part: Any
    words: str
    yours: tuple[str, ...]


def __getattr__(name: str) -> Any:
    from txcourse import exercises

    if name.startswith("__") or name not in exercises.names():
        raise AttributeError(f"`{name}` is no exercise of the course")
    found = _find(name)
    if not answers.running and _told.get(name) != found.words:
        _told[name] = found.words
        print(f"{name}: {found.words}")
    return found.part


def __dir__() -> list[str]:
    from txcourse import exercises

    return [*exercises.names(), "origin", "parts"]


def origin(part: type | object) -> str:
    """Whose code a part of a model is: "yours", "reference" (of the course) or "library".

    Args:
        part: a class, a function or an object, such as one of `model.modules()`.
    """
    defined = part if hasattr(part, "__qualname__") else type(part)  # classes and functions have that name
    top = (defined.__module__ or "").split(".")[0]
    if top in (answers.PACKAGE, "__main__"):
        return "yours"
    return "reference" if top == "txcourse" else "library"


def parts(model: Any) -> dict[str, str]:
    """Whose code runs in a model, by name: {"Transformer": "yours", "Linear": "library", ...}, see `origin`.

    Lists the class of every module, and the functions and classes of yours or the course's that their methods
    read as global names, such as `scaled_dot_product_attention`. Two parts of one name: "yours and reference".

    Args:
        model: a `torch.nn.Module`.
    """
    found: dict[str, str] = {}
    todo: list[Any] = [type(module) for module in model.modules()]
    seen: set[Any] = set()
    while todo:
        part = todo.pop(0)
        if part in seen:
            continue
        seen.add(part)
        whose = {*found.get(part.__name__, "").split(" and "), origin(part)} - {""}
        found[part.__name__] = " and ".join(sorted(whose, reverse=True))
        if origin(part) != "library":
            values = vars(part).values() if isinstance(part, type) else [part]
            functions = [inspect.unwrap(v) for v in values if isinstance(v, FunctionType)]
            named = [f.__globals__.get(name) for f in functions for name in _globals_of(f.__code__)]
            todo += [n for n in named if isinstance(n, type | FunctionType) and origin(n) != "library"]
    return found


def _globals_of(code: CodeType) -> list[str]:
    """The global names that a piece of code, and the functions inside it, read."""
    names = [i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"]
    inner = [_globals_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return list(dict.fromkeys(sum(inner, names)))


def _find(name: str) -> Found:
    from txcourse import exercises
    from txcourse.learner import kept_here

    if name in kept_here:
        return Found(kept_here[name], "yours, from this session", (name,))
    exercise = exercises.get(name)
    here = workspace.find()
    if here is None and not kept_here:
        return Found(exercise.reference, "the reference", ())
    part, yours = _reference(exercise)
    why = "the reference" + (f", made with your {', '.join(yours)}" if yours else "")
    path = answers.answer_file(here, exercise.notebook) if here else None
    if path is None or name not in answers.blocks(path):
        return Found(part, f"{why}; its check has not passed yet", yours)
    if f"{answers.PACKAGE}.{path.stem}" in answers.running:
        return Found(part, f"{why}; your parts ask for each other in a circle", yours)
    shown = path.relative_to(path.parent.parent)
    try:
        return Found(getattr(_load(path), name), f"yours, from {shown}", (name,))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        lost = f"as {shown} does not import ({reason}); run its check again in {exercise.notebook}"
        return Found(part, f"{why}, {lost}", yours)


def _load(path: Path) -> ModuleType:
    """The stored module; run again when its text has changed."""
    text = path.read_text(encoding="utf-8")
    known = _loaded.get(str(path))
    if known is None or known[0] != text:
        known = _loaded[str(path)] = (text, answers.execute(text, path, f"{answers.PACKAGE}.{path.stem}"))
    return known[1]


def _reference(exercise: Any) -> tuple[Any, tuple[str, ...]]:
    """The reference, or a copy of it that is made of the learner's parts, and the names of those."""
    from txcourse import exercises

    found = {name: _find(name) for name in _parts(exercise.name)}
    own = {name: f.part for name, f in found.items() if f.part is not exercises.get(name).reference}
    if not own:
        return exercise.reference, ()
    made_of = {name: id(part) for name, part in own.items()}
    if exercise.name not in _mixed or _mixed[exercise.name][0] != made_of:
        module = sys.modules[exercise.reference.__module__]
        copy = ModuleType(module.__name__)
        exec(
            compile(inspect.getsource(module), str(module.__file__), "exec", dont_inherit=True), copy.__dict__
        )
        copy.__dict__.update(own)  # functions and classes look names up when they are called
        _mixed[exercise.name] = (made_of, getattr(copy, exercise.name), own)
    yours = {name: None for f in found.values() for name in f.yours}  # each once, in order
    return _mixed[exercise.name][1], tuple(yours)


@cache
def _parts(name: str) -> tuple[str, ...]:
    """The other exercises that the reference of an exercise uses."""
    from txcourse import exercises

    module = sys.modules[exercises.get(name).reference.__module__]
    needed, _ = part_for(name, statements(inspect.getsource(module)))
    names = set().union(*(statement.binds for statement in needed)) - {name}
    return tuple(other for other in exercises.names() if other in names)
