"""Answers that try to cheat or to break the grader, by kind, each with what it must be given.

`RIGHT` is a right answer to `causal_mask`; most kinds are made of it or of a wrong one. A kind with `full` does something
odd and still answers rightly: oddness alone costs nothing.
"""

from dataclasses import dataclass
from textwrap import dedent

RIGHT = "import torch\n\ndef causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool).tril()\n"
WRONG = "import torch\n\ndef causal_mask(length):\n    return torch.ones(length, length, dtype=torch.bool)\n"
SOFTMAX = "def softmax(x, dim=-1):\n    full = (x == -math.inf).all(dim, keepdim=True)\n    return {}.masked_fill(full, 0.0)\n"


@dataclass(frozen=True)
class Hostile:
    """`status` that the answer must get, several where the system decides; `full` points or not (none at all unless it
    failed some tests only); `needs` the isolation of an own file system or process namespace; `slow` waits for a limit on time."""

    kind: str
    source: str
    status: tuple[str, ...]
    exercise: str = "causal_mask"
    full: bool = False
    needs: bool = False
    slow: bool = False
    long: bool = False  # takes minutes on a busy machine


def _kind(kind: str, source: str, *status: str, **more: object) -> Hostile:
    return Hostile(kind, dedent(source).lstrip("\n"), status, **more)  # type: ignore[arg-type]


def _softmax(kind: str, way: str, before: str = "") -> Hostile:
    """A softmax by a way that its exercise does not allow."""
    source = f"import math\nimport torch\n{before}\n{SOFTMAX.format(way)}"
    return Hostile(kind, source, ("not_allowed",), "softmax")


def _right(kind: str, before: str = "", inside: str = "pass", **more: object) -> Hostile:
    """The right answer, with something odd before it and in it."""
    body = "".join(f"    {line}\n" for line in dedent(inside).strip().splitlines())
    source = f"{dedent(before)}\nimport torch\n\ndef causal_mask(length):\n{body}    return torch.ones(length, length, dtype=torch.bool).tril()\n"
    return Hostile(kind, source, ("passed",), full=True, **more)  # type: ignore[arg-type]


def _inside(kind: str, inside: str, *status: str, before: str = "", **more: object) -> Hostile:
    """An answer that does something when it is called."""
    body = "".join(f"    {line}\n" for line in dedent(inside).strip().splitlines())
    return Hostile(
        kind, f"{dedent(before)}\nimport torch\n\ndef causal_mask(length):\n{body}", status, **more
    )  # type: ignore[arg-type]


CHEATS = (
    _kind("patches check", """
        import txcourse
        txcourse.check = txcourse.run_check = lambda *args, **kwargs: True
        check = lambda *args: True
        """ + WRONG.replace("\n", "\n        "), "failed"),
    _kind("patches torch's comparisons", """
        import torch
        torch.equal = torch.allclose = lambda *args, **kwargs: True
        torch.isclose = lambda a, b, **kwargs: torch.ones(1, dtype=torch.bool)
        torch.Tensor.__eq__ = torch.Tensor.all = lambda *args, **kwargs: True
        def causal_mask(length):
            return torch.ones(length, length, dtype=torch.bool)
        """, "failed"),
    _kind("patches numpy's comparisons", """
        import numpy as np
        np.isclose = np.allclose = np.array_equal = lambda *args, **kwargs: True
        def causal_mask(length):
            return np.ones((length, length), dtype=bool)
        """, "failed"),
    _kind("patches the engine", """
        import txcourse.checking.engine, txcourse.checking.exercise, txcourse.checking.compare, torch
        txcourse.checking.compare.difference = lambda *args, **kwargs: None
        txcourse.checking.exercise.Context.expect = lambda *args, **kwargs: None
        txcourse.checking.engine.judge = txcourse.checking.engine.run = lambda *args, **kwargs: None
        def causal_mask(length):
            return torch.ones(length, length, dtype=torch.bool)
        """, "failed"),
    _kind("patches the worker's answers", """
        import sys, torch
        worker = sys.modules["__main__"]
        worker._Answers._answer = lambda self, message: {"is": "value", "value": True, "passed": True}
        def causal_mask(length):
            return torch.ones(length, length, dtype=torch.bool)
        """, "failed"),
    _kind("patches what subjects observe", """
        import torch
        from txcourse.checking.subject import Subject
        Subject.observe = lambda self, *args, **kwargs: (True, args)
        def causal_mask(length):
            return None
        """, "failed"),
    _kind("patches the wire", """
        import torch
        from txcourse.grading import wire
        wire.pack = lambda *args, **kwargs: b"passed" * 100
        def causal_mask(length):
            return torch.ones(length, length, dtype=torch.bool)
        """, "died", "timeout", "failed"),
    _inside("writes to every open file", """
        import os
        for number in range(3, 64):
            try:
                os.write(number, b'{"passed": true, "points": 100}' * 10)
            except OSError:
                pass
        return None
        """, "died", "failed"),
    _inside("announces a gigantic message", """
        import os, struct
        for number in range(3, 64):
            try:
                os.write(number, struct.pack("<QQ", 2**62, 2**62))
            except OSError:
                pass
        return None
        """, "died", "failed"),
    _inside("forges a reply", """
        import socket
        from txcourse.grading import wire
        for number in range(3, 64):
            try:
                socket.socket(fileno=number).sendall(wire.pack({"is": "value", "value": (True, (length,)), "passed": True}))
            except OSError:
                pass
        return None
        """, "died", "failed"),
    _inside("prints that it passed", """
        print("passed", '{"status": "passed", "points": 100}')
        return None
        """, "failed"),
    _inside("writes a result file", """
        for folder in (".", "..", "/", "/tmp", "/course"):
            for name in ("results.json", "grades.csv"):
                try:
                    open(f"{folder}/{name}", "w").write('{"status": "passed", "points": 100}')
                except OSError:
                    pass
        return None
        """, "failed"),
    _kind("imports the reference", "from txcourse.solutions.attention import causal_mask\n", "error"),
    _kind("imports the reference as its own", "from txcourse.mine import causal_mask\n", "error"),
    _kind("imports the exercise", """
        from txcourse import exercises
        causal_mask = exercises.get("causal_mask").reference
        """, "error"),
    _kind("looks for the solution on the disk", """
        import os, torch
        found = {}
        for root, folders, files in os.walk("/"):
            folders[:] = [f for f in folders if f not in ("proc", "sys", "site-packages", "lib")]
            if root.endswith("solutions") and "attention.py" in files:
                exec(open(os.path.join(root, "attention.py")).read(), found)
        causal_mask = found.get("causal_mask", lambda length: None)
        """, "failed", needs=True),
    _kind("looks for the solution in memory", """
        import gc, types
        found = [f for f in gc.get_objects() if isinstance(f, types.FunctionType) and f.__name__ == "causal_mask"]
        causal_mask = found[0] if found else (lambda length: None)
        """, "failed"),
    _inside("looks for the expected value in memory", """
        import gc, sys
        for frame in [sys._getframe(i) for i in range(3)]:
            if "want" in frame.f_locals:
                return frame.f_locals["want"]
        for thing in gc.get_objects():
            if isinstance(thing, torch.Tensor) and thing.shape == (length, length):
                return thing
        return None
        """, "failed"),
    _inside("hard-codes an example", """
        if length == 4:
            return torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
        return None
        """, "failed"),
    _kind("equals everything", """
        class Yes:
            dtype = shape = ndim = None
            __eq__ = __ne__ = __lt__ = __gt__ = __contains__ = __bool__ = lambda *args: True
            __getattr__ = __call__ = __getitem__ = lambda self, *args: self
            __iter__ = lambda self: iter([self])
            __hash__ = lambda self: 1
        def causal_mask(length):
            return Yes()
        """, "failed"),
    _kind("a class that equals every type", """
        class Meta(type):
            __eq__ = __instancecheck__ = __subclasscheck__ = lambda *args: True
            __hash__ = lambda self: 1
        class Yes(int, metaclass=Meta):
            __eq__ = __bool__ = lambda *args: True
            __hash__ = lambda self: 1
        def edit_distance(a, b):
            return Yes()
        """, "failed", exercise="edit_distance"),
    _kind("a text that equals everything", """
        class Yes(str):
            __eq__ = lambda *args: True
            __hash__ = lambda self: 1
        def edit_distance(a, b):
            return Yes("0")
        """, "failed", exercise="edit_distance"),
    _kind("a subclass of Tensor", """
        import torch
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return True if func.__name__ in ("equal", "allclose", "eq", "__eq__", "all") else super().__torch_function__(func, types, args, kwargs or {})
            def __eq__(self, other):
                return True
        def causal_mask(length):
            return torch.ones(length, length, dtype=torch.bool).as_subclass(Yes)
        """, "failed"),
    _kind("lies about its class", """
        import torch
        class Liar:
            __class__ = torch.Tensor
            shape, dtype, layout, device = (4, 4), torch.bool, torch.strided, torch.device("cpu")
        def causal_mask(length):
            return Liar()
        """, "failed"),
    _kind("a module that claims what it has not", """
        import torch
        class Linear(torch.nn.Module):
            def __init__(self, d_in, d_out, bias=True):
                super().__init__()
                self.weight, self.bias = torch.nn.Parameter(torch.zeros(d_out, d_in)), None
            def named_parameters(self, *args, **kwargs):
                class Huge(torch.nn.Parameter):
                    shape = (10**9, 10**9)
                yield "weight", Huge(torch.zeros(1))
            def parameters(self, *args):
                return [p for _, p in self.named_parameters()]
            def forward(self, x):
                return x
        """, "failed", exercise="Linear"),
    _kind("detects the grader", """
        import os, sys, torch
        graded = "txcourse.grading.wire" in sys.modules or os.path.exists("/course")
        def causal_mask(length):
            return True if graded else torch.ones(length, length, dtype=torch.bool).tril()
        """, "failed"),
    _softmax("not allowed: a function", "torch.softmax(x, dim)"),
    _softmax("not allowed: a method", "x.softmax(dim)"),
    _softmax("not allowed: a method of the class", "torch.Tensor.softmax(x, dim)"),
    _softmax("not allowed: a layer", "torch.nn.Softmax(dim)(x)"),
    _softmax("not allowed: under another name", "f(x, dim)", "from torch.nn.functional import softmax as f"),
    _softmax("not allowed: through an assigned name", "g(x, dim)", "F = torch.nn.functional\ng = F.softmax"),
    _softmax("not allowed: with everything imported", "log_softmax(x, dim).exp()", "from torch.nn.functional import *"),
    _softmax("not allowed: getattr", 'getattr(torch, "softmax")(x, dim)'),
    _softmax("not allowed: getattr of a made-up name", 'getattr(x, "soft" + "max")(dim)'),
    _softmax("not allowed: getattr of a computed name", 'getattr(torch, "xamtfos"[::-1])(x, dim)'),
    _softmax("not allowed: methodcaller", 'methodcaller("softmax", dim)(x)', "from operator import methodcaller"),
    _softmax("not allowed: a dictionary", 'torch.__dict__["softmax"](x, dim)'),
    _softmax("not allowed: a module's dictionary by vars", 'vars(torch)["soft" "max"](x, dim)'),
    _softmax("not allowed: eval", 'eval("torch.soft" + "max")(x, dim)'),
    _softmax("not allowed: imported inside", 'importlib.import_module("torch.nn.functional").softmax(x, dim)', "import importlib"),
    _softmax("not allowed: sys.modules", 'sys.modules["torch"].softmax(x, dim)', "import sys"),
    _softmax("not allowed: torch's inner part", "torch._C._VariableFunctions.softmax(x, dim)"),
    _softmax("not allowed: torch.ops", "torch.ops.aten.softmax(x, dim)"),
    _softmax("not allowed: found by looking around", "f(x, dim)",
             'f = [v for k, v in vars(torch).items() if k.startswith("softm")][0]'),
    _softmax("not allowed: with the watch switched off", "torch.nn.functional.softmin(-x, dim)",
             "import sys\nsys.setprofile(None)"),
)  # fmt: skip

BREAKS = (
    _inside("os._exit when called", "import os\nos._exit(0)", "died"),
    _kind("os._exit when defined", "import os\nos._exit(3)\n" + RIGHT, "died"),
    _inside("sys.exit when called", "import sys\nsys.exit(0)", "failed"),
    _kind("sys.exit when defined", "import sys\nsys.exit(0)\n" + RIGHT, "error"),
    _right("sys.exit in a destructor", """
        import sys
        class Last:
            def __del__(self):
                sys.exit(1)
        """, "last = Last()\ndel last"),
    _right("os._exit at the end", "import atexit, os\natexit.register(os._exit, 1)"),
    _right("never ends at the end", "import atexit, time\natexit.register(time.sleep, 1000)"),
    _inside("kills itself", "import os\nos.kill(os.getpid(), 9)", "died"),
    _inside("aborts", "import os\nos.abort()", "died"),
    _inside("reads address 0", "import ctypes\nctypes.string_at(0)", "died"),
    _inside("kills the worker", "import os\nos.kill(os.getppid(), 9)\nreturn None", "failed", "died", needs=True),
    _inside("kills everything", "import os\nos.kill(-1, 9)\nreturn None", "failed", "died", needs=True),
    _inside("stops the worker", "import os\nos.kill(os.getppid(), 19)\nreturn None", "failed", "died", needs=True),
    _inside("closes every file", "import os\nos.closerange(0, 4096)\nreturn None", "died", "failed"),
    _inside("fork bomb", """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """, "died", "timeout", "failed", needs=True, slow=True),
    _inside("forks and answers twice", """
        import os
        os.fork()
        return torch.ones(length, length, dtype=torch.bool)
        """, "failed", "died"),
    _right("leaves processes behind", """
        import subprocess
        left = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(10)]
        """),
    _right("leaves threads running", """
        import threading
        def spin():
            while True:
                sum(range(1000))
        threading.Thread(target=spin, daemon=True).start()
        threading.Thread(target=lambda: threading.Event().wait(), daemon=False).start()
        """),
    _inside("10 GB in torch", "return torch.zeros(10 * 2**30, dtype=torch.uint8)", "failed"),
    _inside("10 GB in Python", "return bytearray(10 * 2**30)", "failed"),
    _inside("memory without end", "kept = []\nwhile True:\n    kept.append(bytearray(10**8))", "failed", "died", "timeout", slow=True),
    _inside("a gigantic result", "return torch.zeros(10**8, dtype=torch.bool)", "died"),
    _inside("a gigantic list", "return [0] * 4_000_000", "died", "failed"),
    _right("20 MB of output", inside='print("x" * 10_000_000)\nimport sys\nsys.stderr.write("y" * 10_000_000)'),
    _right("1 GB of output", inside='for _ in range(250):\n    print("x" * 1_000_000)', long=True),
    _right("output past Python", inside='import os\nos.system("echo from elsewhere >&2")\nos.write(1, b"\\xff\\x00\\xfe")'),
    _right("warnings and text on stderr", "import warnings\nwarnings.warn('careful')", "import sys\nsys.stderr.write('error: Traceback\\n')"),
    _right("closes its output", inside="import sys\nsys.stdout.close()\nsys.stderr = None"),
    _inside("recursion without end", "return causal_mask(length)", "failed"),
    _inside("recursion past the stack", "import sys\nsys.setrecursionlimit(10**9)\nreturn causal_mask(length + 1)", "died", "failed", "timeout", slow=True),
    _inside("loop without end", "while True:\n    pass", "timeout", slow=True),
    _kind("loop without end when defined", "while True:\n    pass\n" + RIGHT, "timeout", slow=True),
    _inside("loop that catches everything", """
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
        """, "timeout", slow=True),
    _inside("loop in C", "return sum(range(10**14))", "timeout", slow=True),
    _inside("sleeps", "import time\ntime.sleep(10**6)", "timeout", slow=True),
    _inside("waits for input", "return input()", "failed"),
    _inside("ignores signals", """
        import signal
        for number in range(1, 64):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        while True:
            pass
        """, "timeout", slow=True),
    _inside("writes 50 MB to a file", "open('large', 'wb').write(bytes(50 * 10**6))\nreturn None", "failed"),
    _right("fills the disk and goes on", inside="""
        try:
            for i in range(100):
                open(f"large{i}", "wb").write(bytes(10**7))
        except OSError:
            pass
        """),
    _right("folders in folders", """
        import os
        for _ in range(2000):
            os.mkdir("d")
            os.chdir("d")
        """),
    _inside("opens 1000 files", "files = [open('/dev/null') for _ in range(1000)]\nreturn None", "failed"),
    _right("finds no network", inside="""
        import socket
        for address in (("127.0.0.1", 22), ("192.0.2.1", 80)):
            try:
                socket.create_connection(address, 0.2)
                raise SystemExit
            except OSError:
                pass
        assert len(socket.if_nameindex()) == 1
        """, needs=True),
    _right("finds no environment", inside="""
        import os
        assert not set(os.environ) - {"HOME", "TMPDIR", "PATH", "LANG", "LC_CTYPE", "PWD", "PYTHONPATH", "PYTHONHASHSEED"} - {k for k in os.environ if k.endswith("_THREADS")}, dict(os.environ)
        assert not os.listdir(".") and not os.listdir(os.path.expanduser("~/work"))
        """),
    _right("cannot look into the worker", inside="""
        import os
        for pid in {1, os.getppid()}:
            for name in ("mem", "environ", "maps"):
                try:
                    open(f"/proc/{pid}/{name}", "rb").read(1)
                    raise SystemExit(name)
                except OSError:
                    pass
        """, needs=True),
    _right("finds nobody else", inside="""
        import os
        assert sum(entry.isdigit() for entry in os.listdir("/proc")) <= 3
        assert not os.path.exists("/home") and not os.path.exists("/root/.ssh") and not os.path.exists("/etc/passwd")
        """, needs=True),
    _right("cannot write to the course", inside="""
        import txcourse
        try:
            open(txcourse.__file__, "a").write("check = None")
            raise SystemExit
        except OSError:
            pass
        """, needs=True),
    _kind("no Python", "def causal_mask(length:\n    return", "error"),
    _kind("NUL and control characters", "import torch\x00\x01\n" + RIGHT, "error"),
    _kind("nested too deeply", "x = " + "(" * 5000 + ")" * 5000 + "\n" + RIGHT, "error"),
    _kind("a long chain", "x = 1" + " + 1" * 200_000 + "\n" + RIGHT, "error"),
    _kind("another name", RIGHT.replace("causal_mask", "mask"), "error"),
    _kind("no function", "causal_mask = 42\n", "error"),
    _kind("not started", "def causal_mask(length):\n    raise NotImplementedError\n", "missing"),
    _kind("nothing", "  \n\n", "missing"),
    _kind("a lone surrogate", "def causal_mask(length):\n    raise ValueError('\\ud800 \\u202e \\x00')\n", "failed"),
    _kind("an error that cannot be shown", """
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError
        def causal_mask(length):
            raise Odd
        """, "failed"),
    _kind("an object that cannot be shown", """
        class Odd:
            __repr__ = __str__ = __getattr__ = __reduce__ = lambda *args: 1 / 0
        def causal_mask(length):
            return Odd()
        """, "failed"),
    _inside("a list that holds itself", "kept = []\nkept.append(kept)\nreturn kept", "failed"),
    _inside("a generator", "yield 1", "failed"),
    _inside("a tensor without memory", "return torch.ones(length, length, dtype=torch.bool, device='meta')", "failed"),
    _inside("a sparse tensor", "return torch.ones(length, length).to_sparse()", "failed"),
    _inside("a quantised tensor", "return torch.quantize_per_tensor(torch.ones(length, length), 0.1, 0, torch.qint8)", "failed"),
    _inside("a gigantic number", "return 10**100_000", "failed", "died"),
    _right("its own default type, seed and threads", "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(0)\ntorch.set_num_threads(4)"),
    _kind("forgets all modules", "import sys\nsys.modules.clear()\n" + RIGHT, "error", "failed", "died"),
    _right("prints in the name of others", inside='print("\\x1b[2J<script>alert(1)</script>")'),
)  # fmt: skip

ALL = (*CHEATS, *BREAKS)
