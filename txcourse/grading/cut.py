"""Cut the source of one exercise out of a notebook, and compare such sources.

What is executed is the answer's cell and, transitively, the imports, functions, classes and assignments that it
names, in the order of the notebook. Names of earlier exercises, and of those that the assignment does not ask for, are
left to the references, so that an early mistake costs once.
"""

import ast
import builtins
import hashlib
import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from txcourse.checking import Exercise
from txcourse.source import Cell, Statement, candidate, part_for, statements


@dataclass(frozen=True)
class Cut:
    """`sources`: the answer with references for what it builds on and, where the student wrote that too, with the
    student's; then with the calls that may change something it needs. The best result counts. `own`: what of it the student wrote, for comparison with others."""

    sources: tuple[str, ...]
    own: str


def cut(cells: Sequence[Cell], name: str, asked: Collection[str], course: Sequence[str]) -> Cut | None:
    """The source of an answer; None when there is none, or only the stub.

    Args:
        asked: names of the exercises that the assignment asks for.
        course: names of all exercises of the course, in order.
    """
    where = candidate(cells, name)
    where = _broken(cells, name) if where is None else where
    if where is None:
        return None
    found = [cell.statements() for cell in cells]
    defining = [s for s in found[where] if name in s.binds and not s.is_check]
    if not defining:  # no Python: the error it gives is the answer's
        text = cells[where].text
        return Cut((text,), "") if text.strip() and not found[where] and not _blank(text) else None
    if all(s.is_stub or s.is_ours for s in defining):
        return None
    checks = (i for i in range(where, len(cells)) if any(s.checks(name) for s in found[i]))
    end = next(checks, len(cells) - 1) + 1
    others = {name} if not any(_builds_on_itself(s, name) for s in defining) else set()

    def source(given: set[str], touched: bool = False) -> tuple[str, list[Statement]]:
        """With the exercises in `given` left to the references."""
        before = _without([s for cell in found[:where] for s in cell], given | others, name)
        here = _without(found[where], given, name)
        between = _without([s for cell in found[where + 1 : end] for s in cell], given | {name}, name)
        late = _without([s for cell in found[end:] for s in cell], given | {name}, name)
        late = [*(s for s in between if s.is_import), *late]  # needed earlier than they stand
        between = [s for s in between if not s.is_import]
        lead: list[Statement] = []
        while True:
            part, missing = part_for(name, [*before, *lead, *here, *between], touched)
            new = [s for s in late if s.binds & (missing - given) and s not in lead and not s.is_check]
            if not new:
                break
            lead = [s for s in late if s in lead or s in new]
        if missing - given:
            part = [s for cell in found[:end] for s in cell if "*" in s.binds] + part
        return _text(part), part

    order = {each: number for number, each in enumerate(course)}
    known = set(course) - {name}
    earlier = {each for each in known if order[each] < order.get(name, len(order))}
    given = {each for each in known if each not in asked or each in earlier}
    first, part = source(given)
    second, _ = source({each for each in known if not _written(found, each)})
    third, _ = source(given, touched=True)
    own = "\n".join(ast.unparse(s.node) for s in part if not s.is_import)
    return Cut(tuple(dict.fromkeys((first, second, third))), own)


def _broken(cells: Sequence[Cell], name: str) -> int | None:
    """The last cell that is no Python and would define the name."""
    define = re.compile(rf"\b(def|class)\s+{re.escape(name)}\b")
    return next((i for i in reversed(range(len(cells))) if define.search(cells[i].text) and not cells[i].statements()), None)  # fmt: skip


def _blank(text: str) -> bool:
    return all(not line.strip() or line.strip().startswith(("#", "%", "!")) for line in text.splitlines())


def _builds_on_itself(statement: Statement, name: str) -> bool:
    """Whether it needs an earlier object of this name: `class X(X)`, `X = wrapped(X)`."""
    node = statement.node
    if isinstance(node, ast.ClassDef):
        outside: Iterable[ast.AST] = [*node.bases, *node.decorator_list]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        outside = node.decorator_list
    else:
        return name in statement.uses
    return any(isinstance(n, ast.Name) and n.id == name for tree in outside for n in ast.walk(tree))


def _written(found: list[list[Statement]], name: str) -> bool:
    """Whether the notebook has code for the exercise that is more than the stub."""
    return any(
        name in s.binds and not (s.is_check or s.is_stub or s.is_import) for cell in found for s in cell
    )


def _without(body: list[Statement], names: set[str], name: str) -> list[Statement]:
    """The statements that bind none of `names`, and no stubs. Of imports from other packages only `name` itself is taken
    out: `from torch.nn import Linear` is no answer to the exercise Linear."""
    kept = []
    for s in body:
        if s.is_import and isinstance(s.node, (ast.Import, ast.ImportFrom)):
            gone = names if s.is_ours else names & {name}
            left = [a for a in s.node.names if (a.asname or a.name.split(".")[0]) not in gone]
            if len(left) < len(s.node.names):
                if not left:
                    continue
                node = ast.Import(left) if isinstance(s.node, ast.Import) else ast.ImportFrom(s.node.module, left, s.node.level)  # fmt: skip
                s = replace(s, node=node, text=ast.unparse(node), binds={a.asname or a.name.split(".")[0] for a in left})  # fmt: skip
        elif s.binds & names or s.is_stub:
            continue
        kept.append(s)
    return kept


def _text(part: list[Statement]) -> str:
    first = [s.text for s in part if ast.unparse(s.node).startswith("from __future__")]
    rest = [s.text for s in part if not ast.unparse(s.node).startswith("from __future__")]
    return "\n\n\n".join([*first, *rest]) + "\n"


# Comparing answers

SHORT = 60  # nodes of a syntax tree: shorter answers are alike by chance


def fingerprint(source: str) -> str | None:
    """A hash that is the same for two sources that differ in names, comments, docstrings and annotations alone; None for short ones."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    tree = _Plain().visit(tree)
    bound: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes.add(node.attr)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
    renamed = _Renamed(bound - set(dir(builtins)), attributes)
    tree = renamed.visit(tree)
    if sum(1 for _ in ast.walk(tree)) < SHORT:
        return None
    return hashlib.sha256(ast.dump(tree).encode(errors="replace")).hexdigest()


def reference_fingerprint(exercise: Exercise, course: Collection[str]) -> str | None:
    """That of the exercise's reference, without the other exercises that it uses."""
    file = Path(inspect.getsourcefile(exercise.reference) or "")
    if not file.is_file():
        return None
    part, _ = part_for(exercise.name, statements(file.read_text(encoding="utf-8")))
    others = set(course) - {exercise.name}
    return fingerprint("\n".join(ast.unparse(s.node) for s in part if not (s.is_import or s.binds & others)))


class _Plain(ast.NodeTransformer):
    """Without docstrings and annotations."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value, lineno=0) if node.value is not None else None

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        return node


class _Renamed(ast.NodeTransformer):
    """Names in the order in which they occur."""

    def __init__(self, names: set[str], attributes: set[str]):
        self.names, self.attributes = names, attributes
        self.new: dict[str, str] = {}

    def _of(self, old: str) -> str:
        return self.new.setdefault(old, f"v{len(self.new)}") if old in self.names else old

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._of(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._of(node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in self.attributes:
            node.attr = self.new.setdefault("." + node.attr, f"v{len(self.new)}")
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._of(node.name)
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._of(node.name)
        self.generic_visit(node)
        return node
