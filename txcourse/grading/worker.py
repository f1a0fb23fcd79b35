"""What runs inside the sandbox: one process that has imported torch and forks for each exercise.

The fork executes the student's source and answers calls of what it defines. It holds no test and no expected value, and
nothing that it says is trusted: the worst that code can do here is to give up its own points.
"""

import builtins
import ctypes
import gc
import importlib
import io
import linecache
import os
import random
import socket
import struct
import subprocess
import sys
import types
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from txcourse.checking.exercise import Probe
from txcourse.checking.guard import CandidateError, Unwatched, guarded
from txcourse.checking.rules import Watch
from txcourse.checking.subject import ModuleSubject, Subject
from txcourse.grading import wire

try:
    import resource
except ImportError:  # Windows, where nothing is graded
    resource = None  # type: ignore[assignment]

_USUAL = (  # what answers import
    "bisect collections contextlib copy dataclasses enum functools heapq itertools jaxtyping json operator re string time "
    "typing warnings numpy.linalg numpy.random torch.nn.functional torch.nn.utils.rnn"
)
_KILL = 9  # _KILL, which Windows lacks
_ENDED = struct.Struct("<i?")
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    user, *limits = map(int, sys.argv[2:])
    _warm_up()
    _clean()  # of what imports have left
    _protect(user)  # afterwards: not every file of a package is everybody's to read
    control.sendall(b"!")
    while hasattr(os, "fork"):
        order, handed, _, _ = socket.recv_fds(control, 1, 1)
        if order == b"R":
            child = os.fork()
            if child == 0:
                control.close()
                _exercise(socket.socket(fileno=handed[0]), limits)
            os.close(handed[0])
        elif order == b"K":
            control.sendall(_ENDED.pack(_end(child), _clean()))
        else:
            os._exit(0)


def _warm_up() -> None:
    """What the first calls import or set up is made here once; a fork then starts with it."""
    for name in _USUAL.split():
        importlib.import_module(name)
    from torch.nn import functional as F

    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(2, 3, 4, dtype=dtype, requires_grad=True)
        layer, norm = nn.Linear(4, 4).to(dtype), nn.LayerNorm(4).to(dtype)
        y = F.dropout(norm(layer(x)).softmax(-1) @ x.transpose(1, 2), 0.5).relu().double()
        torch.autograd.grad(
            y, [x], torch.ones_like(y), allow_unused=True
        )  # imports 500 modules the first time
    torch.isclose(x, x).all()
    gc.collect()
    gc.freeze()


def _protect(user: int) -> None:
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if sys.platform == "linux":
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write("1000")
        except OSError:
            pass
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no fork can look into this process


def _end(child: int) -> int:
    """Kill whatever the exercise has left running; the exit status of its process, negative for a signal."""
    status = 0
    while True:
        if os.getpid() == 1:  # of the sandbox's own process namespace
            try:
                os.kill(-1, _KILL)
            except ProcessLookupError:
                pass
        else:
            for pid in [child, *_descendants()]:
                try:
                    os.kill(pid, _KILL)
                except ProcessLookupError:
                    pass
        try:
            pid, result = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = os.waitstatus_to_exitcode(result)


def _descendants() -> list[int]:
    """The processes below this one."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                pass
    below = {os.getpid()}
    found: list[int] = []
    while True:
        new = [pid for pid, parent in parents.items() if parent in below and pid not in below]
        if not new:
            return found
        below.update(new)
        found += new


def _clean() -> bool:
    """Empty the folder in which the exercise ran; False when something in it resists."""
    names = os.listdir(".")
    if names:  # rm, which takes folders in folders without end
        subprocess.run(["rm", "-rf", "--", *(f"./{name}" for name in names)], stderr=subprocess.DEVNULL)
    return not names or not os.listdir(".")


def _exercise(connection: socket.socket, limits: list[int]) -> None:
    try:
        os.setpgid(0, 0)
        memory, processes, files, written, seconds = limits
        size = 0
        if os.path.exists("/proc/self/statm"):
            with open("/proc/self/statm") as statm:
                size = int(statm.read().split()[0]) * resource.getpagesize()
        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, files),
            (resource.RLIMIT_FSIZE, written),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_NPROC, processes),
            *(((resource.RLIMIT_AS, size + memory),) if size else ()),
        ):
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        os.mkdir("work")
        os.chdir("work")
        builtins.input = _no_input
        _Answers(connection).serve()
    except BaseException:
        pass
    os._exit(0)


def _no_input(*_: object) -> str:
    raise RuntimeError("input() waits for a person; a check cannot answer it")


class _Answers:
    """Does what the grader asks for, with the objects that the student's code made."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._things: list[Subject | ModuleSubject] = []
        self._shapes: dict[int, list[tuple[int, ...]]] = {}  # of modules' parameters, as last reported
        self._models: dict[int, tuple[nn.Module, list[nn.Parameter]]] = {}  # those that the grader sent
        self._space: dict[str, Any] = {}
        self._watch = Watch()

    def serve(self) -> None:
        while True:
            try:
                message = self._receive()
            except EOFError:
                return
            self._send(self._answer(message))
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass

    def _receive(self) -> Any:
        return wire.receive(self._connection, self._restore)

    def _send(self, message: Any) -> None:
        self._connection.sendall(wire.pack(message, self._special))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return getattr(self, f"_{message['do']}")(**{k: v for k, v in message.items() if k != "do"})
        except CandidateError as error:
            return {"is": "error", "kind": error.kind, "text": error.sentence, **_described(error.error)}
        except BaseException as error:  # for instance memory that does not suffice for the answer
            text = f"Your code raised {type(error).__name__}: {error}"[:400]
            return {"is": "error", "kind": "raised", "text": text, **_described(error)}

    # -- what the grader may ask for ------------------------------------------------------------------------------------

    def _define(self, source: str, name: str, given: dict[str, str], mine: list[str], seed: int) -> Any:
        """Execute the source; `given` are pieces of the course's solutions by module, of which `mine` are at hand by name."""
        self._seed(seed)
        self._space = _notebook()
        found = _solutions(given)
        self._space |= {each: found[each] for each in mine}
        _module("txcourse.mine", **{each: found[each] for each in mine})
        file = f"<the cell of {name}>"
        linecache.cache[file] = (len(source), None, io.StringIO(source).readlines(), file)
        guarded(
            Unwatched(),
            lambda: exec(compile(source, file, "exec", dont_inherit=True), self._space),
        )
        if name not in self._space:
            return {"is": "value", "value": "undefined"}
        candidate = self._space[name]
        self._things = [Subject(candidate, Unwatched())]
        return {"is": "value", "value": "callable" if callable(candidate) else type(candidate).__name__}

    def _seed(self, seed: int) -> Any:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        return {"is": "value", "value": None}

    def _through(self, on: int, source: str, name: str) -> Any:
        space: dict[str, Any] = {"__name__": "adapter"}
        exec(compile(source, "<adapter>", "exec", dont_inherit=True), space)
        return self._kept(self._things[on].through(space[name]))  # type: ignore[union-attr]

    def _call(self, on: int, method: str, args: Any, kwargs: Any, write: Tensor | None = None) -> Any:
        thing = self._things[on]
        if write is not None:
            thing.write(write)  # type: ignore[union-attr]
        result = getattr(thing, method)(*args, **kwargs)
        if result is thing:
            result = None
        if isinstance(result, Subject | ModuleSubject):
            return self._kept(result)
        answer = {"is": "value", "value": result, **self._new_shapes(on)}
        models = {id(a) for a in args if isinstance(a, nn.Module)}
        if method == "raw" and models:
            answer["models"] = [
                (k, _state(*model)) for k, model in self._models.items() if id(model[0]) in models
            ]
        return answer

    def _kept(self, thing: Subject | ModuleSubject) -> Any:
        self._things.append(thing)
        number = len(self._things) - 1
        is_module = isinstance(thing, ModuleSubject) and thing.is_module
        return {"is": "thing", "number": number, "is_module": is_module, **self._new_shapes(number)}

    def _new_shapes(self, number: int) -> dict[str, Any]:
        thing = self._things[number]
        if isinstance(thing, ModuleSubject):
            shapes = thing.shapes()
            if shapes != self._shapes.get(number):
                self._shapes[number] = shapes
                return {"shapes": shapes}
        return {}

    def _watch_on(self) -> Any:
        self._watch.start()
        return {"is": "value", "value": None}

    def _watch_off(self, not_allowed: list[str]) -> Any:
        self._watch.stop()
        return {"is": "value", "value": self._watch.ran(not_allowed)}

    # -- what the grader sends that is more than a value -----------------------------------------------------------------

    def _special(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, _Far):
            return "call", value.number
        for number, (model, _) in self._models.items():
            if value is model:
                return "model", number
        return None

    def _restore(self, tag: str, value: Any) -> Any:
        if tag == "probe":
            return Probe(*value)
        if tag == "call":
            return _Far(self, value)
        assert tag == "model"
        model, parameters = self._built(value["parts"], value["tensors"])
        self._models[value["number"]] = model, parameters
        return model

    def _built(
        self, parts: list[dict[str, Any]], tensors: list[Tensor]
    ) -> tuple[nn.Module, list[nn.Parameter]]:
        """The model that `parts` describe: torch's own layers, and others by name, from the student's cell if it has them."""
        parameters = [nn.Parameter(t.detach(), t.requires_grad) for t in tensors]
        modules: list[nn.Module] = []
        for part in parts:
            home, name = part["class"]
            kind = getattr(sys.modules[home], name) if home.startswith("torch.nn.") else self._space.get(name)
            if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
                kind = type(name, (nn.Module,), {})
            module: nn.Module = kind.__new__(kind)  # type: ignore[call-overload]
            nn.Module.__init__(module)
            vars(module).update(part["plain"])
            module._parameters.update({n: parameters[i] for n, i in part["parameters"].items()})
            module._buffers.update(part["buffers"])
            modules.append(module)
        for module, part in zip(modules, parts, strict=True):
            module._modules.update({n: modules[i] for n, i in part["children"].items()})
        return modules[0], parameters

    def far(self, message: dict[str, Any]) -> Any:
        """Call one of the grader's own functions."""
        self._send(message)
        reply = self._receive()
        if "raises" in reply:
            kind = getattr(builtins, reply["raises"], RuntimeError)
            raise kind(reply["text"])
        return reply


def _described(error: BaseException | None) -> dict[str, Any]:
    """What the tests look at in an exception: the names of its classes, and its arguments."""
    if error is None:
        return {"classes": [], "args": []}
    return {
        "classes": [c.__name__ for c in type(error).__mro__],
        "args": [a if type(a) in (str, int, float) else str(a) for a in error.args[:4]],
    }


def _notebook() -> dict[str, Any]:
    """The namespace in which the source runs, with the names of the course that do nothing here."""
    import txcourse

    def check(thing: Any, *_: Any, **__: Any) -> Any:
        return thing

    for name in ("check", "hint", "reveal", "progress", "run_check"):
        setattr(txcourse, name, check if name == "check" else lambda *_, **__: None)
    return vars(_module("notebook"))


def _module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


def _solutions(given: dict[str, str]) -> dict[str, Any]:
    """Everything that the given pieces of the solutions define; each piece is a module, in an order in which they import."""
    found: dict[str, Any] = {}
    if given:
        _module("txcourse.solutions", __path__=[])
    for name, source in given.items():
        module = _module(f"txcourse.solutions.{name}")
        file = f"<solutions {name}>"
        linecache.cache[file] = (len(source), None, io.StringIO(source).readlines(), file)
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
        found |= vars(module)
    return found


def _state(model: nn.Module, sent: list[nn.Parameter]) -> list[tuple[str, int | None, Tensor]]:
    """The parameters of a model that was sent: under each name the number that it was sent as, None for a new one."""
    numbers = {id(p): i for i, p in enumerate(sent)}
    return [(n, numbers.get(id(p)), p) for n, p in model.named_parameters(remove_duplicate=False)]


class _Far:
    """A function of the grader's: a call of it is answered there, its gradient too."""

    def __init__(self, answers: _Answers, number: int):
        self._answers, self.number = answers, number

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return _Through.apply(self._answers, self.number, *args)
        return self._answers.far({"is": "far", "number": self.number, "args": args})["value"]


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, answers: _Answers, number: int, *args: Any) -> Any:
        reply = answers.far({"is": "far", "number": number, "args": args})
        ctx.answers, ctx.graph = answers, reply["graph"]
        return reply["value"]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        reply = ctx.answers.far({"is": "backward", "graph": ctx.graph, "gradient": gradient})
        return None, None, *reply["value"]


if __name__ == "__main__":
    main()
