"""Stand-ins for the subjects of a check whose candidate lives in another process.

Every answer may be a lie. It is taken for what it says and compared with the expected value like any other answer;
here only its form is checked, so that the tests get the kind of value that they would get from a candidate nearby.
"""

import builtins
import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from txcourse.checking.exercise import Probe
from txcourse.checking.guard import CandidateError, Unwatched
from txcourse.checking.subject import ModuleSubject, Subject
from txcourse.grading import wire
from txcourse.grading.sandbox import Run, Stopped
from txcourse.source import Statement, part_for, statements

_LARGEST = 5_000_000  # numbers in the parameters of a module


class Far:
    """A conversation with the process of one exercise."""

    def __init__(self, run: Run):
        self._run = run
        self._functions: list[Callable[..., Any]] = []
        self._models: list[nn.Module] = []
        self._graphs: list[tuple[Tensor, list[Any]]] = []
        self._adapters: dict[tuple[int, str], int] = {}
        self.start_anew = run.start_anew

    def ask(self, **message: Any) -> dict[str, Any]:
        """The answer to a message.

        Raises:
            CandidateError: the student's code raised, does not end, or ended the process.
        """
        self._graphs.clear()
        answer = self._exchange(message)
        while answer.get("is") in ("far", "backward"):
            answer = self._exchange(self._called(answer))
        if answer.get("is") == "error":
            raise _error(answer)
        for number, state in answer.get("models", ()):
            _take_over(self._models[number], state)
        return answer

    def through(self, handle: int, adapter: Callable[..., Any]) -> int:
        key = (handle, adapter.__name__)
        if key not in self._adapters:
            answer = self.ask(do="through", on=handle, source=source_of(adapter), name=adapter.__name__)
            self._adapters[key] = answer["number"]
        return self._adapters[key]

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            data = wire.pack(message, self._special)
            answer = wire.unpack(*self._run.exchange(data), self._restore)
        except Stopped as stopped:
            raise CandidateError(stopped.kind, stopped.sentence) from None
        except wire.WireError as error:
            raise CandidateError("raised", f"Your result cannot be read: {error}.") from None
        if not isinstance(answer, dict):
            raise _unusable()
        return answer

    def _special(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, Probe):
            return "probe", (value.args, value.kwargs, value.method, value.where)
        if isinstance(value, nn.Module):
            self._models.append(value)
            return "model", {"number": len(self._models) - 1, **_description(value)}
        if callable(value):
            self._functions.append(value)
            return "call", len(self._functions) - 1
        return None

    def _restore(self, tag: str, value: Any) -> Any:
        if tag in ("model", "call"):
            return (self._models if tag == "model" else self._functions)[value]
        raise wire.WireError("an unknown kind of value")

    def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call of one of our functions, or of its gradient."""
        try:
            if message["is"] == "backward":
                output, args = self._graphs[message["graph"]]
                leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
                found = iter(torch.autograd.grad(output, leaves, message["gradient"], retain_graph=True))
                wanted = (isinstance(a, Tensor) and a.requires_grad for a in args)
                return {"value": [next(found) if w else None for w in wanted]}
            args = list(message["args"])
            value = self._functions[message["number"]](*args)
            if isinstance(value, Tensor) and value.requires_grad:
                self._graphs.append((value, args))
                value = value.detach()
            return {"value": value, "graph": len(self._graphs) - 1}
        except Exception as error:  # of a call that our function does not take, or that nobody would make
            return {"raises": type(error).__name__, "text": str(error)[:200]}


class RemoteSubject(Subject):
    def __init__(self, far: Far, handle: int = 0):
        self._far, self._handle, self.watchdog = far, handle, Unwatched()

    def _call(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._far.ask(do="call", on=self._handle, method=method, args=tuple(args), kwargs=kwargs)

    def seed(self, seed: int) -> None:
        self._far.ask(do="seed", seed=seed)

    def start_naming(self) -> None:
        self._far.start_anew()

    def observe(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        return _observed(self._call("observe", args, kwargs), len(args))

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("raw", args, kwargs).get("value")

    def largest(self, *args: Any, **kwargs: Any) -> int:
        found = self._call("largest", args, kwargs).get("value")
        if type(found) is not int:
            raise _unusable()
        return found

    def functions(self, *args: Any, **kwargs: Any) -> list[str]:
        return _texts(self._call("functions", args, kwargs))

    def gradients(
        self, *args: Any, wrt: Sequence[int], seed: int = 0, output: int | None = None, **kwargs: Any
    ) -> tuple[Any, list[Tensor]]:
        how = {"wrt": list(wrt), "seed": seed, "output": output}
        return _with_gradients(self._call("gradients", args, {**how, **kwargs}), len(wrt))

    def defaults(self) -> dict[str, Any]:
        found = self._call("defaults", (), {}).get("value")
        return found if isinstance(found, dict) else {}

    def through(self, adapter: Callable[[Any], Callable[..., Any]] | None) -> Subject:
        return self if adapter is None else RemoteSubject(self._far, self._far.through(self._handle, adapter))

    def build(self, *args: Any, **kwargs: Any) -> ModuleSubject:
        return RemoteModule(self._far, self._call("build", args, kwargs))


class RemoteModule(ModuleSubject):
    def __init__(self, far: Far, built: dict[str, Any]):
        if type(built.get("number")) is not int:
            raise _unusable()
        self._far, self._handle = far, built["number"]
        self._is_module = built.get("is_module") is True
        self._shapes: list[tuple[int, ...]] = []
        self._unwritten: Tensor | None = None
        self._note_shapes(built)

    @property
    def is_module(self) -> bool:
        return self._is_module

    def _call(self, called: str, *args: Any, **kwargs: Any) -> Any:
        message: dict[str, Any] = {}
        if self._unwritten is not None:
            message["write"], self._unwritten = self._unwritten, None
        answer = self._far.ask(do="call", on=self._handle, method=called, args=args, kwargs=kwargs, **message)
        self._note_shapes(answer)
        return answer

    def _note_shapes(self, answer: dict[str, Any]) -> None:
        if "shapes" in answer:
            self._shapes = _shapes(answer["shapes"])

    def observe(self, *args: Any, method: str = "forward", **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        return _observed(self._call("observe", *args, method=method, **kwargs), len(args))

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("raw", *args, **kwargs).get("value")

    def gradients(
        self, *args: Any, wrt: Sequence[int], seed: int = 0, method: str = "forward", **kwargs: Any
    ) -> tuple[Any, list[Tensor]]:
        how = {"wrt": list(wrt), "seed": seed, "method": method}
        return _with_gradients(self._call("gradients", *args, **how, **kwargs), len(wrt))

    def attribute(self, name: str) -> Any:
        return self._call("attribute", name).get("value")

    def train(self, mode: bool) -> None:
        self._call("train", mode)

    def double(self) -> "ModuleSubject":
        self._call("double")
        return self

    def sharpen(self, tables: Sequence[Tensor]) -> None:
        if tables:
            self._call("sharpen", list(tables))

    def usual_eps(self, eps: float) -> None:
        self._call("usual_eps", eps)

    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._named("parameters")

    def buffers(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._named("buffers")

    def _named(self, method: str) -> list[tuple[str, tuple[int, ...]]]:
        found = self._call(method).get("value")
        if not isinstance(found, list) or not all(
            isinstance(f, tuple) and len(f) == 2 and isinstance(f[0], str) for f in found
        ):
            raise _unusable()
        return list(zip([name for name, _ in found], _shapes([shape for _, shape in found]), strict=True))

    def frozen(self) -> list[str]:
        return _texts(self._call("frozen"))

    def unregistered(self) -> list[str]:
        return _texts(self._call("unregistered"))

    def plain_tensors(self) -> list[tuple[int, ...]]:
        return _shapes(self._call("plain_tensors").get("value"))

    def size(self) -> int:
        return sum(map(math.prod, self._shapes))

    def shapes(self) -> list[tuple[int, ...]]:
        return self._shapes

    def read(self) -> Tensor:
        return self._vector(self._call("read").get("value"))

    def write(self, vector: Tensor) -> None:
        if vector.numel() < self.size():
            raise ValueError("fewer numbers than parameters")
        self._unwritten = vector.clone()

    def outputs(self, probes: Sequence[Any]) -> list[Any]:
        found = self._call("outputs", list(probes)).get("value")
        if not isinstance(found, list) or len(found) != len(probes):
            raise _unusable()
        return found

    def respond(self, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]:
        found = self._call("respond", list(probes), seed).get("value")
        if not (
            isinstance(found, tuple)
            and len(found) == 2
            and isinstance(found[0], list)
            and len(found[0]) == len(probes)
        ):
            raise _unusable()
        return found[0], self._vector(found[1])

    def _vector(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.shape != (self.size(),) or not value.is_floating_point():
            raise _unusable()
        return value.double()


def _unusable() -> CandidateError:
    return CandidateError("raised", "Your code has changed how its process answers; no result can be read.")


def _observed(answer: dict[str, Any], count: int) -> tuple[Any, tuple[Any, ...]]:
    value = answer.get("value")
    if not (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[1], tuple)
        and len(value[1]) == count
    ):
        raise _unusable()
    return value


def _with_gradients(answer: dict[str, Any], count: int) -> tuple[Any, list[Tensor]]:
    value = answer.get("value")
    if not (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[1], list)
        and len(value[1]) == count
        and all(isinstance(g, Tensor) for g in value[1])
    ):
        raise _unusable()
    return value


def _shapes(value: Any) -> list[tuple[int, ...]]:
    if not isinstance(value, list) or not all(
        isinstance(s, tuple) and all(type(n) is int and n >= 0 for n in s) for s in value
    ):
        raise _unusable()
    if sum(map(math.prod, value)) > _LARGEST:
        raise CandidateError("raised", "Your module has millions of parameters, far more than it should.")
    return value


def _texts(answer: dict[str, Any]) -> list[str]:
    value = answer.get("value")
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _unusable()
    return value


def _error(answer: dict[str, Any]) -> CandidateError:
    """The error that the other side describes, with an exception of the nearest built-in class."""
    kind, text = answer.get("kind"), answer.get("text")
    if kind not in ("raised", "not_started") or not isinstance(text, str):
        return _unusable()
    classes = [c for c in answer.get("classes") or () if isinstance(c, str)]
    error: BaseException | None = None
    for name in classes:
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, BaseException):
            try:
                error = known(*answer.get("args", ()))
            except Exception:  # one that needs other arguments
                error = Exception(text)
            break
    if classes and error is not None and classes[0] != type(error).__name__ and classes[0].isidentifier():
        error = type(classes[0], (type(error),), {})(*error.args)
    return CandidateError(kind, text[:600], error)


# -- models ----------------------------------------------------------------------------------------------------------

_PLAIN = (bool, int, float, str, type(None), tuple)


def _description(model: nn.Module) -> dict[str, Any]:
    """The parts of a model without its code: classes by name, numbers, parameters (each once), buffers, children."""
    parts: list[nn.Module] = []
    for part in model.modules():
        parts.append(part)
    numbers = {id(p): i for i, p in enumerate(parts)}
    tensors: list[Tensor] = []
    known: dict[int, int] = {}

    def number(parameter: nn.Parameter | None) -> int | None:
        if parameter is None:
            return None
        if id(parameter) not in known:
            known[id(parameter)] = len(tensors)
            tensors.append(parameter)
        return known[id(parameter)]

    described = [
        {
            "class": (type(part).__module__, type(part).__name__),
            "plain": {k: v for k, v in vars(part).items() if isinstance(v, _PLAIN)},
            "parameters": {
                k: n for k, p in part._parameters.items() if (n := number(p)) is not None
            },
            "buffers": dict(part._buffers),
            "children": {k: numbers[id(m)] for k, m in part._modules.items() if m is not None},
        }
        for part in parts
    ]  # fmt: skip
    return {"parts": described, "tensors": tensors}


def _take_over(model: nn.Module, state: Any) -> None:
    """Give `model` the parameters that its copy has now; those that are still the same stay the same here."""
    original: list[nn.Parameter] = []
    for part in model.modules():
        for p in part._parameters.values():
            if p is not None and not any(p is o for o in original):
                original.append(p)
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, number, value in state:
        if name not in names or not isinstance(value, Tensor):
            raise _unusable()
        path, _, leaf = name.rpartition(".")
        if number is None:
            parameter = nn.Parameter(value.detach(), value.requires_grad)
        else:
            parameter = original[number]
            parameter.data = value.detach()
            parameter.requires_grad_(value.requires_grad)
        model.get_submodule(path)._parameters[leaf] = parameter


# -- adapters --------------------------------------------------------------------------------------------------------


@cache
def _statements(file: str) -> list[Statement]:
    return statements(Path(file).read_text(encoding="utf-8"))


def source_of(adapter: Callable[..., Any]) -> str:
    """The source of a function of an exercise's module that stands between tests and candidate, with what it uses: it
    has to run where the candidate is. Neither a solution nor a test is part of it."""
    pieces: dict[str, str] = {}
    _collect(inspect.getfile(adapter), adapter.__name__, pieces)
    text = "\n\n".join(reversed(pieces.values()))
    if "txcourse.solutions" in text:
        raise ValueError(f"{adapter.__name__} uses a solution, which must not leave the grader")
    return text


def _collect(file: str, name: str, pieces: dict[str, str]) -> None:
    part, missing = part_for(name, _statements(file))
    used = set().union(*(s.uses for s in part))
    lines = []
    for statement in part:
        node = statement.node
        home = getattr(node, "module", None) or ""
        if statement.is_import and home.startswith("txcourse."):
            for alias in node.names:  # type: ignore[attr-defined]
                if alias.name not in used:
                    continue
                if home.startswith("txcourse.checking"):
                    lines.append(f"from {home} import {alias.name}")
                else:
                    _collect(str(Path(file).with_name(home.split(".")[-1] + ".py")), alias.name, pieces)
        else:
            lines.append(statement.text)
    if missing:
        raise ValueError(f"{name} in {file} uses {sorted(missing)}, which nothing there defines")
    pieces[f"{file}:{name}"] = "\n\n".join(lines)
