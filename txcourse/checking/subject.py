"""The candidate, behind the few calls that a test may make of it.

Tests never touch the candidate itself: everything goes through `Subject` and `ModuleSubject`, which take and return
tensors and plain values only. A subject that lives in another process can therefore stand in for these.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from txcourse.checking.guard import CandidateError, Unwatched, Watchdog, guarded


def copied(value: Any) -> Any:
    """A deep copy of tensors, arrays and containers; everything else is passed on as it is."""
    if isinstance(value, Tensor):
        if value.is_contiguous():
            return value.detach().clone()
        return value.detach().clone(memory_format=torch.preserve_format)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {copied(k): copied(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(v) for v in value)
    return value


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    if type(value) in (list, tuple):
        return type(value)(_detached(v) for v in value)
    return value


def _differentiable(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, tuple | list):
        return [t for v in value for t in _differentiable(v)]
    return []


def cotangent(shape: Sequence[int], seed: int) -> Tensor:
    """The fixed random direction in which the gradient of an output of this shape is taken."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _scalar(value: Any, seed: int, where: Tensor | None = None) -> Tensor:
    outputs = _differentiable(value)
    if not outputs:
        raise CandidateError(
            "raised", "The result holds no tensor of floating-point numbers to differentiate."
        )
    total = outputs[0].new_zeros((), dtype=torch.float64)
    for i, output in enumerate(outputs):
        direction = cotangent(output.shape, seed + i)
        terms = direction * output.double()
        total = total + (terms if where is None else terms * where).sum()
    if not total.requires_grad:
        raise CandidateError(
            "raised",
            "No gradient reaches the inputs: the result is cut off from them (detach, .data, no_grad or NumPy?).",
        )
    return total


def _gradients(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    wrt: Sequence[int],
    seed: int,
    output: int | None,
) -> tuple[Any, list[Tensor]]:
    inputs = [copied(a) for a in args]
    for i in wrt:
        inputs[i] = inputs[i].requires_grad_()
    value = function(*inputs, **copied(kwargs))
    grads = torch.autograd.grad(
        _scalar(value if output is None else value[output], seed), [inputs[i] for i in wrt], allow_unused=True
    )
    filled = [
        torch.zeros_like(inputs[i]) if g is None else g.detach() for i, g in zip(wrt, grads, strict=True)
    ]
    return _detached(value), filled


class _Called(TorchFunctionMode):
    """Notes the PyTorch functions that are called, and the size of the largest tensor that one returns; a view counts as
    what it is a view of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.numbers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        copied = func in (torch.tensor, torch.as_tensor) and _differentiable(
            args
        )  # numbers without a gradient
        self.names.append("numbers of tensors" if copied else getattr(func, "__name__", ""))
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                held = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numbers = max(self.numbers, held)
        return result


class Subject:
    """A function or class to be judged."""

    def __init__(self, candidate: Any, watchdog: Watchdog | Unwatched):
        self._candidate, self.watchdog = candidate, watchdog

    def seed(self, seed: int) -> None:
        """Set the random numbers that the candidate draws."""
        torch.manual_seed(seed)

    def start_naming(self) -> None:
        """The tests are over, and calls that follow only find the mistake's name: where time is counted, it starts anew."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The candidate's result for copies of `args`; raises CandidateError when it gives none."""
        return self.observe(*args, **kwargs)[0]

    def observe(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result, and the arguments as they are afterwards."""
        own, named = copied(tuple(args)), copied(kwargs)
        value = guarded(self.watchdog, lambda: self._candidate(*own, **named))
        return _detached(value), own

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        """As call, with the arguments and the result handed over as they are (for tests of what is shared or attached)."""
        return guarded(self.watchdog, lambda: self._candidate(*args, **kwargs))

    def largest(self, *args: Any, **kwargs: Any) -> int:
        """The size, in numbers, of the largest tensor that PyTorch holds for the candidate during the call."""
        with _Called() as seen:
            self.call(*args, **kwargs)
        return seen.numbers

    def functions(self, *args: Any, **kwargs: Any) -> list[str]:
        """The names of the PyTorch functions that the candidate calls, one after the other; of those that make a tensor of
        the numbers of others, "numbers of tensors"."""
        with _Called() as seen:
            self.call(*args, **kwargs)
        return seen.names

    def gradients(
        self, *args: Any, wrt: Sequence[int], seed: int = 0, output: int | None = None, **kwargs: Any
    ) -> tuple[Any, list[Tensor]]:
        """The result, and its gradients in a fixed random direction with respect to the arguments numbered in `wrt`.

        `output` picks one of several results.
        """
        return guarded(self.watchdog, lambda: _gradients(self._candidate, args, kwargs, wrt, seed, output))

    def defaults(self) -> dict[str, Any]:
        """The default values that the candidate's signature states; empty where Python cannot tell."""
        try:
            parameters = inspect.signature(self._candidate).parameters.values()
        except (TypeError, ValueError):
            return {}
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    def through(self, adapter: Callable[[Any], Callable[..., Any]] | None) -> "Subject":
        """The function that `adapter` makes of the candidate, a class, as a subject of its own."""
        return self if adapter is None else Subject(adapter(self._candidate), self.watchdog)

    def build(self, *args: Any, **kwargs: Any) -> "ModuleSubject":
        """Calls the candidate to construct a module."""
        return ModuleSubject(self.raw(*args, **kwargs), self.watchdog)


class ModuleSubject:
    """A constructed module (or any object) of the candidate."""

    def __init__(self, module: Any, watchdog: Watchdog | Unwatched):
        self._module, self.watchdog = module, watchdog
        self._dtype = torch.float32

    @property
    def is_module(self) -> bool:
        return isinstance(self._module, nn.Module)

    def _do(self, function: Callable[[], Any]) -> Any:
        torch.set_default_dtype(self._dtype)  # so that tables made on the fly are as exact as the weights
        try:
            return guarded(self.watchdog, function)
        finally:
            torch.set_default_dtype(torch.float32)

    def _method(self, method: str) -> Callable[..., Any]:
        return self._module if method == "forward" else getattr(self._module, method)

    def call(self, *args: Any, method: str = "forward", **kwargs: Any) -> Any:
        return self.observe(*args, method=method, **kwargs)[0]

    def observe(self, *args: Any, method: str = "forward", **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        own, named = copied(tuple(args)), copied(kwargs)
        value = self._do(lambda: self._method(method)(*own, **named))
        return _detached(value), own

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        """The output as it is, attached to its graph."""
        return self._do(lambda: self._module(*args, **kwargs))

    def gradients(
        self, *args: Any, wrt: Sequence[int], seed: int = 0, method: str = "forward", **kwargs: Any
    ) -> tuple[Any, list[Tensor]]:
        return self._do(lambda: _gradients(self._method(method), args, kwargs, wrt, seed, None))

    def attribute(self, name: str) -> Any:
        """The value of an attribute; raises CandidateError when there is none."""
        return self._do(lambda: getattr(self._module, name))

    # -- state ------------------------------------------------------------------------------------------------------

    def train(self, mode: bool) -> None:
        self._do(lambda: self._module.train(mode))

    def double(self) -> "ModuleSubject":
        self._do(lambda: self._module.double())
        self._dtype = torch.float64
        return self

    def sharpen(self, tables: Sequence[Tensor]) -> None:
        """Replace constants that differ from one of `tables` by rounding alone: deep in a model, the noise of a table
        made in float32 grows until equal modules seem to differ."""
        modules = self._module.modules() if self.is_module else ()
        for store in (s for module in modules for s in (module._buffers, vars(module))):
            for name, value in list(store.items()):
                if type(value) is not Tensor or not value.is_floating_point():
                    continue
                for table in tables:
                    if value.squeeze().shape == table.squeeze().shape:
                        exact = table.detach().double().reshape(value.shape)
                        if torch.allclose(value.detach().double(), exact, rtol=0.0, atol=1e-4):
                            store[name] = exact.clone()

    def usual_eps(self, eps: float) -> None:
        """Set every smaller eps, known by its name, to `eps`: where a norm's own is a matter of taste."""
        for module in self._module.modules() if self.is_module else ():
            for name, value in vars(module).items():
                if "eps" in name and type(value) is float and 0 < value < eps:
                    vars(module)[name] = eps

    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every parameter, each shared one once."""
        return [(n, tuple(p.shape)) for n, p in self._module.named_parameters()] if self.is_module else []

    def buffers(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(n, tuple(b.shape)) for n, b in self._module.named_buffers()] if self.is_module else []

    def frozen(self) -> list[str]:
        """Names of the parameters that do not require a gradient."""
        return (
            [n for n, p in self._module.named_parameters() if not p.requires_grad] if self.is_module else []
        )

    def plain_tensors(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors that are held as ordinary attributes, neither parameters nor buffers."""
        parts = self._module.modules() if self.is_module else ()
        return [tuple(v.shape) for part in parts for v in vars(part).values() if isinstance(v, Tensor)]

    def unregistered(self) -> list[str]:
        """Attributes that hold parameters or modules where PyTorch does not see them (plain lists and dictionaries)."""
        if not self.is_module:
            return []
        known = {id(p) for p in self._module.parameters()}
        found = []
        for path, module in self._module.named_modules():
            for name, value in vars(module).items():
                if name.startswith("_") and name in ("_parameters", "_buffers", "_modules"):
                    continue
                if any(id(p) not in known for p in _hidden_parameters(value)):
                    found.append(f"{path}.{name}".lstrip("."))
        return found

    def size(self) -> int:
        return sum(p.numel() for p in self._module.parameters()) if self.is_module else 0

    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in self._module.parameters()] if self.is_module else []

    def read(self) -> Tensor:
        """All parameters, one after another, in one vector."""
        return torch.cat(
            [p.detach().reshape(-1).double() for p in self._module.parameters()] or [torch.zeros(0)]
        )

    def write(self, vector: Tensor) -> None:
        start = 0
        with torch.no_grad():
            for p in self._module.parameters():
                p.copy_(vector[start : start + p.numel()].view(p.shape))
                start += p.numel()

    def outputs(self, probes: Sequence[Any]) -> list[Any]:
        return self._do(lambda: outputs(self._module, probes))

    def respond(self, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]:
        """The outputs for `probes`, and the gradient of all parameters in a fixed random direction of those outputs."""
        return self._do(lambda: respond(self._module, probes, seed))


def _call(module: nn.Module, probe: Any) -> Any:
    function = module if probe.method == "forward" else getattr(module, probe.method)
    return function(*copied(tuple(probe.args)), **copied(probe.kwargs))


def outputs(module: nn.Module, probes: Sequence[Any]) -> list[Any]:
    """The outputs of `module` for `probes`."""
    with torch.no_grad():
        return [_call(module, probe) for probe in probes]


def respond(module: nn.Module, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]:
    """The outputs of `module` for `probes`, and the gradient of its parameters in a fixed random direction of those."""
    parameters = list(module.parameters())
    values, total = [], torch.zeros((), dtype=torch.float64)
    for i, probe in enumerate(probes):
        value = _call(module, probe)
        if any(output.requires_grad for output in _differentiable(value)):
            total = total + _scalar(value, seed + 10 * i, probe.where)
        values.append(_detached(value))
    grads: Sequence[Tensor | None] = [None] * len(parameters)  # no parameter has a say
    if total.requires_grad:
        grads = torch.autograd.grad(total, parameters, allow_unused=True)
    vector = [
        torch.zeros(p.numel(), dtype=torch.float64) if g is None else g.detach().reshape(-1).double()
        for p, g in zip(parameters, grads, strict=True)
    ]
    return values, torch.cat(vector or [torch.zeros(0, dtype=torch.float64)])


def _hidden_parameters(value: Any) -> list[Tensor]:
    if isinstance(value, nn.Parameter):
        return [value]
    if isinstance(value, nn.Module):
        return list(value.parameters())
    if isinstance(value, Tensor):
        return [value] if value.requires_grad and value.is_leaf else []
    if isinstance(value, list | tuple | set):
        return [p for v in value for p in _hidden_parameters(v)]
    if isinstance(value, dict):
        return [p for v in value.values() for p in _hidden_parameters(v)]
    return []
