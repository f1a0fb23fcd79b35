"""What an exercise does not allow: seen by what runs, aliases included, and by the source."""

import ast
import functools
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from txcourse.checking.guard import CandidateError


@dataclass(frozen=True)
class Rule:
    """`functions`: names of PyTorch functions; `code`: (end of a file's folder or name, start of a qualified name)."""

    functions: frozenset[str] = frozenset()
    code: tuple[tuple[str, str], ...] = ()


def _rule(functions: str = "", *code: tuple[str, str]) -> Rule:
    return Rule(frozenset(functions.split()), code)


_NN = "torch/nn/modules/"
RULES = {
    "softmax": _rule(
        "softmax log_softmax softmin gumbel_softmax _softmax _log_softmax cross_entropy cross_entropy_loss "
        "scaled_dot_product_attention multi_head_attention_forward _native_multi_head_attention",  # each has one inside
        ("scipy/special/", "softmax"), ("scipy/special/", "log_softmax")),
    "nn.Linear": _rule("", (_NN + "linear.py", "Linear."), (_NN + "linear.py", "LazyLinear.")),
    "F.linear": _rule("linear bilinear"),
    "pad_sequence": _rule("pad_sequence", ("torch/nn/utils/rnn.py", "pad_sequence")),
    "nn.RNN": _rule("rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell", (_NN + "rnn.py", "RNN")),
    "nn.GRU": _rule("gru gru_cell", (_NN + "rnn.py", "GRU")),
    "F.scaled_dot_product_attention": _rule("scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu"),
    "nn.MultiheadAttention": _rule("_native_multi_head_attention", (_NN + "activation.py", "MultiheadAttention.")),
    "F.multi_head_attention_forward": _rule("multi_head_attention_forward"),
    "nn.LayerNorm": _rule("", (_NN + "normalization.py", "LayerNorm.")),
    "F.layer_norm": _rule("layer_norm native_layer_norm"),
    "nn.Transformer": _rule(
        "_transformer_encoder_layer_fwd",  # its static method that makes a mask is nobody's point, and allowed
        *((_NN + "transformer.py", start) for start in ("Transformer.__init__", "TransformerEncoder", "TransformerDecoder")),
    ),
    "F.cross_entropy": _rule("cross_entropy cross_entropy_loss"),
    "nn.CrossEntropyLoss": _rule("", (_NN + "loss.py", "CrossEntropyLoss.")),
    "F.kl_div": _rule("kl_div"),
    "torch.optim": _rule("_fused_adam_ _fused_adamw_", ("torch/optim/", "")),
    "clip_grad_norm_": _rule("clip_grad_norm_", ("torch/nn/utils/clip_grad.py", "clip_grad_norm_")),
}  # fmt: skip


class _Seen(TorchFunctionMode):
    """Notes the names of all PyTorch functions called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def broken(
    not_allowed: Iterable[str], reference: Any, candidate: Any, exercise_it: Callable[[], None]
) -> str | None:
    """The sentence of the rule that `candidate` breaks while `exercise_it` calls it, or None.

    Raises CandidateError when a call does not end.
    """
    if (text := _course_object(candidate)) is not None:
        return text
    for name in used_in_source(candidate, not_allowed):
        return f"Your code uses {name}, which this exercise does not allow: it is what you are to write."
    watch = Watch()
    watch.start()
    try:
        exercise_it()
    except CandidateError as error:
        if error.kind == "timeout":
            raise
    finally:
        watch.stop()
    if watch.codes & {(code, code.co_filename) for code in _codes_of(reference)}:
        return "Your code calls the course's own solution; write it yourself (reveal shows it when you are stuck)."
    ran = watch.ran(not_allowed)
    return None if ran is None else called(ran)


def called(name: str) -> str:
    return f"Your code calls {name}, which this exercise does not allow: it is what you are to write."


class _Kernels(TorchDispatchMode):
    """Notes the names of the operations that come down to PyTorch's kernels: compiled TorchScript has no functions."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: PyTorch would import its compiler, a second of modules, within the first call of the learner's code."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(getattr(func, "__name__", "").split(".")[0])  # "_softmax.default"
        return func(*args, **(kwargs or {}))


class Watch:
    """Notes, between start and stop, the PyTorch functions and the Python code that this thread runs."""

    def __init__(self) -> None:
        self._seen = _Seen()
        self._kernels = _Kernels(self._seen.names)
        self.codes: set[tuple[types.CodeType, str]] = set()  # equal code elsewhere is somebody's own

    def _profile(self, frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.codes.add((frame.f_code, frame.f_code.co_filename))

    def start(self) -> None:
        self._before = sys.getprofile()
        self._kernels.__enter__()
        self._seen.__enter__()
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(self._before)
        self._seen.__exit__(None, None, None)
        self._kernels.__exit__(None, None, None)

    def ran(self, not_allowed: Iterable[str]) -> str | None:
        """The first of these names that stands for something that ran."""
        for name in not_allowed:
            rule = RULES[name]
            if self._seen.names & rule.functions or any(
                part in code.co_filename.replace("\\", "/") and code.co_qualname.startswith(start)
                for code, _ in self.codes
                for part, start in rule.code
            ):
                return name
        return None


def _course_object(candidate: Any) -> str | None:
    while isinstance(candidate, functools.partial):
        candidate = candidate.func
    owners = candidate.__mro__ if isinstance(candidate, type) else (candidate,)
    packages = {(getattr(owner, "__module__", None) or "").split(".")[0] for owner in owners}
    if "txcourse" in packages:
        return "This is the course's own object, not your answer: define it in the exercise's cell."
    if "my_transformer" in packages:
        return "This is the answer that was stored before, imported: define it in the exercise's cell."
    return None


def _codes_of(thing: Any) -> Iterable[types.CodeType]:
    members = vars(thing).values() if isinstance(thing, type) else (thing,)
    functions = [
        inspect.unwrap(m) for m in members if isinstance(m, types.FunctionType)
    ]  # under @torch.no_grad()
    return [f.__code__ for f in functions]


def used_in_source(candidate: Any, not_allowed: Iterable[str]) -> list[str]:
    """The names of `not_allowed` that the source refers to through a module (`F.linear`, `torch.optim.Adam`)."""
    source = source_of(candidate)
    try:
        tree = ast.parse(textwrap.dedent(source)) if source else None
    except SyntaxError:
        return []
    if tree is None:
        return []
    space = _globals_of(candidate)
    used = set()
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    makes_a_mask = {id(node.value) for node in attributes if node.attr == "generate_square_subsequent_mask"}
    for node in attributes:
        if id(node) not in makes_a_mask:
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and isinstance(space.get(root.id), types.ModuleType):
                used.add((space[root.id].__name__.split(".")[0], node.attr))
    found = []
    for name in not_allowed:
        last = name.split(".")[-1]
        heads = ("RNN", "GRU", "Transformer")
        if any(
            lib in ("torch", "scipy") and (attr == last or (last in heads and attr.startswith(last)))
            for lib, attr in used
        ):
            found.append(name)
    return found


def _globals_of(candidate: Any) -> dict[str, Any]:
    for member in (candidate, *(vars(candidate).values() if isinstance(candidate, type) else ())):
        if isinstance(member, types.FunctionType):
            return inspect.unwrap(member).__globals__
    return {}


def source_of(candidate: Any) -> str | None:
    """The source text of a function or class, also of a class from a notebook cell; None where there is none.

    `inspect.getsource` cannot find a class defined in a notebook on Python 3.11: its methods know their file.
    """
    try:
        if not isinstance(candidate, type):
            return inspect.getsource(candidate)
        for member in vars(candidate).values():
            if isinstance(member, types.FunctionType):
                text = "".join(linecache.getlines(member.__code__.co_filename))
                line = member.__code__.co_firstlineno
                for node in ast.walk(ast.parse(text)):
                    if (
                        isinstance(node, ast.ClassDef)
                        and node.name == candidate.__name__
                        and node.lineno <= line <= (node.end_lineno or 0)
                    ):
                        return ast.get_source_segment(text, node)
    except (OSError, TypeError, SyntaxError):
        return None
    return None


# -- source that is only read, because nothing that runs it can be trusted ---------------------------------------------

_LIBRARIES = ("torch", "scipy")
_BY_NAME = ("getattr", "methodcaller", "attrgetter", "import_module", "__import__")
_OUTSIDE = {"_C", "_VF", "ops", "overrides", "_python_dispatch"}  # parts of torch that nothing here watches
_HIDDEN = {"eval", "exec", "compile", "globals", "sys.setprofile", "sys.settrace", "sys._getframe"}


def in_source(tree: ast.AST, not_allowed: Iterable[str]) -> str | None:
    """The sentence of the rule that this source breaks, or None.

    Follows imports, assignments of one name to another, and `getattr` with a name that stands in the source. What hides
    its names (eval, exec, torch's inner parts) is not allowed where anything is.
    """
    words = {name: _words(name) for name in not_allowed}
    if not words:
        return None
    reader = _Reader(tree)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    methods = {"softmax", "log_softmax"} - (
        own - reader.functions
    )  # the rules' names that tensors have as methods
    for node in ast.walk(tree):
        path = reader.path(node)
        if path is None or id(node) in reader.harmless:
            continue
        parts = path.split(".")
        ours = parts[0] in _LIBRARIES
        for name, known in words.items():
            heads = tuple(h for h in ("RNN", "GRU", "Transformer") if h == name.split(".")[-1])
            if ours and (known & set(parts[1:]) or (heads and any(p.startswith(heads) for p in parts[1:]))):
                return (
                    f"Your code uses {name}, which this exercise does not allow: it is what you are to write."
                )
            if parts[0] == "?" and len(parts) == 2 and parts[1] in known & methods:
                return called(name)
        hides = path.removeprefix("builtins.") in _HIDDEN or parts[0] in ("ctypes", "gc") or "*" in parts
        if hides or (ours and _OUTSIDE & set(parts[1:])):
            return f"Your code hides what it calls ({ast.unparse(node)[:60]}), which this exercise does not allow."
    return None


def _words(name: str) -> frozenset[str]:
    """Names by which torch and scipy offer what is not allowed."""
    rule = RULES[name]
    found = {name.split(".")[-1], *rule.functions, *(start.split(".")[0] for _, start in rule.code if start)}
    if name == "softmax":
        found |= {"Softmax", "LogSoftmax", "Softmin", "Softmax2d"}
    return frozenset(found - {"RNN", "GRU", "Transformer"})


class _Reader:
    """Where the names of a source come from: "torch.nn.functional.softmax", "?.softmax" for a member of something
    unknown, "torch.*" for a member of torch under a name that the source computes."""

    def __init__(self, tree: ast.AST):
        nodes = list(ast.walk(tree))
        self._everything: str | None = None  # what is imported with *
        self._known: dict[str, str] = {
            name: name for name in ("eval", "exec", "compile", "globals", "__import__")
        }
        self.functions = {n.name for n in getattr(tree, "body", ()) if isinstance(n, ast.FunctionDef)}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.asname is not None
                    self._known[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if whole else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                if node.names[0].name == "*" and node.module.split(".")[0] in _LIBRARIES:
                    self._everything = node.module
                for alias in node.names:
                    self._known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        assigned = [
            (node.targets[0].id, node.value)
            for node in nodes
            if isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ]
        for _ in range(4):  # names of names
            for name, value in assigned:
                path = self.path(value)
                if path is not None and path.split(".")[0] != "?":
                    self._known.setdefault(name, path)
        masks = "generate_square_subsequent_mask"  # nobody's point
        self.harmless = {
            id(n) for m in nodes if isinstance(m, ast.Attribute) and m.attr == masks for n in ast.walk(m)
        }

    def path(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            everything = f"{self._everything}.{node.id}" if self._everything else None
            return self._known.get(node.id, everything) if isinstance(node.ctx, ast.Load) else None
        if isinstance(node, ast.Attribute):
            return self._member(node.value, node.attr) if node.attr != "__dict__" else self.path(node.value)
        if isinstance(node, ast.Subscript):  # torch.__dict__["softmax"], sys.modules["torch"]
            inside = self.path(node.value)
            text = _text(node.slice)
            if inside == "sys.modules":
                return text or "sys.*"
            if inside is None or inside.split(".")[0] not in _LIBRARIES:
                return None
            return f"{inside}.{text or '*'}"
        if isinstance(node, ast.Call):
            return self._called(node)
        return None

    def _member(self, owner: ast.AST, name: str) -> str | None:
        found = self.path(owner)
        if found is not None and found.split(".")[0] != "?":
            return f"{found}.{name}"
        return None if isinstance(owner, ast.Name) and owner.id == "self" else f"?.{name}"

    def _called(self, node: ast.Call) -> str | None:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name == "vars" and node.args:
            return self.path(node.args[0])
        if name not in _BY_NAME or not node.args:
            return None
        text = _text(node.args[-1] if name != "getattr" else node.args[min(1, len(node.args) - 1)])
        if name in ("import_module", "__import__"):
            return _text(node.args[0]) or "import.*"
        if name != "getattr":
            return f"?.{text}" if text else None
        owner = self.path(node.args[0])
        if owner is not None and owner.split(".")[0] in _LIBRARIES:
            return f"{owner}.{text or '*'}"
        return self._member(node.args[0], text) if text else None


def _text(node: ast.AST) -> str | None:
    """The text that an expression of constants gives."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        parts = [_text(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
        return None if None in parts else "".join(p or "" for p in parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        glue = _text(node.func.value)
        items = node.args[0] if node.args else None
        if glue is not None and isinstance(items, ast.List | ast.Tuple):
            parts = [_text(v) for v in items.elts]
            return None if None in parts else glue.join(p or "" for p in parts)
    return None
