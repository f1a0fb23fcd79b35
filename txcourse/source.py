"""Reading notebook cells as source: what a cell defines, what it uses, and the part of it that one name needs.

Used wherever an answer leaves its notebook: when a passed answer is stored, and when a notebook is checked
from outside. Nothing here runs the code it reads.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__builtins__"}


@dataclass
class Statement:
    """One top-level statement of a cell: its text with the comments right above, what it binds and uses."""

    text: str
    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)  # names whose attribute or item it sets
    touches: set[str] = field(
        default_factory=set
    )  # names that it may change: `x.append(1)`, `setattr(x, ...)`, `@x.register`

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, (ast.Import, ast.ImportFrom))

    @property
    def is_ours(self) -> bool:
        """Whether this imports from the course: `from txcourse.mine import name` is no answer to the exercise `name`."""
        return isinstance(self.node, ast.ImportFrom) and (self.node.module or "").split(".")[0] == "txcourse"

    @property
    def is_check(self) -> bool:
        """Whether this is `name = check(name)`, or only `check(name)`."""
        value = getattr(self.node, "value", None)
        return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "check"

    def checks(self, name: str) -> bool:
        return self.is_check and name in self.binds | self.uses

    @property
    def is_stub(self) -> bool:
        """Whether this is a function, or a class of functions, as handed out: each raises NotImplementedError."""
        if isinstance(self.node, ast.ClassDef):
            methods = [n for n in self.node.body if isinstance(n, ast.FunctionDef)]
            return bool(methods) and all(map(_is_stub, methods))
        return isinstance(self.node, ast.FunctionDef) and _is_stub(self.node)


@dataclass(frozen=True)
class Cell:
    """A code cell of a notebook: its text, and the exercise that its metadata names."""

    text: str
    exercise: str | None = None

    def statements(self) -> list[Statement]:
        """Those of the text; none when it is no Python."""
        try:
            return statements(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []


def code_cells(notebook: Any) -> list[Cell]:
    """The code cells of a notebook's JSON, of any version of the format; what is malformed is left out."""
    return [
        Cell(source_of(cell), exercise_of(cell))
        for cell in _cells(notebook)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]


def _cells(notebook: Any) -> Iterator[Any]:
    if not isinstance(notebook, dict):
        return
    for holder in (notebook, *_list(notebook.get("worksheets"))):  # format 3 has worksheets
        if isinstance(holder, dict):
            yield from _list(holder.get("cells"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def source_of(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(map(str, _list(source)))


def exercise_of(cell: dict[str, Any]) -> str | None:
    """The exercise that the metadata of a cell name, or None."""
    ours = cell["metadata"].get("txcourse") if isinstance(cell.get("metadata"), dict) else None
    name = ours.get("exercise") if isinstance(ours, dict) else None
    return name if isinstance(name, str) else None


def candidate(cells: Sequence[Cell], name: str) -> int | None:
    """Which cell holds the answer to an exercise: the last one marked as it that defines it, else the last definition
    before its check cell, else the last one, else the marked cell as it is. Stubs, and imports from the course, count
    only where nothing else does.
    """
    marked: list[int] = []
    before: list[int] = []
    after: list[int] = []
    stubs, as_it_is = set(), None
    checked = False
    for i, cell in enumerate(cells):
        found = cell.statements()
        as_it_is = i if cell.exercise == name else as_it_is
        defining = [s for s in found if name in s.binds and not s.is_check]
        if defining:
            (marked if cell.exercise == name else after if checked else before).append(i)
            if all(s.is_stub or s.is_ours for s in defining):
                stubs.add(i)
        checked = checked or any(s.checks(name) for s in found)
    defined = [*after, *before, *marked]
    return next(reversed([i for i in defined if i not in stubs] or defined), as_it_is)


def statements(cell: str) -> list[Statement]:
    """The top-level statements of a cell, in order.

    Raises:
        SyntaxError: the cell is no Python. (Lines of IPython's own, such as `%...`, `!...` and `name?`, are left out, and
            so is an indentation of the whole cell, which IPython takes off too.)
    """
    lines = re.split(r"\r\n|\r|\n", cell)  # not splitlines: to Python a form feed or U+2028 ends no line
    try:
        body = ast.parse(cell).body
    except SyntaxError:
        indent = re.match(r"\s*?([ \t]*)(?=\S)", cell)
        width = len(indent[1]) if indent else 0
        lines = [line[width:] if line[:width].isspace() else line for line in lines]
        lines = [_python(line) for line in lines]
        body = ast.parse("\n".join(lines)).body
    found: list[Statement] = []
    last = 0  # number of lines already taken
    for node in body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        while first > last and lines[first - 1].startswith("#"):
            first -= 1
        end = node.end_lineno or node.lineno
        alone = first >= last and lines[end - 1][len(_upto(lines[end - 1], node)) :].strip()[:1] in ("", "#")
        text = "\n".join(lines[first:end]) if alone else ast.unparse(node)  # a line may hold several
        found.append(_analysed(Statement(text, node)))
        last = end
    return found


_IPYTHON = re.compile(r"[%!].*|\s*(%%?[A-Za-z]|[!?]).*|[\w., ]+=\s*[%!](?!=).*|\s*[%\w.*]+\?\??\s*")


def _python(line: str) -> str:
    """The line, or where it is IPython's (`%time f()`, `files = !ls`, `torch.exp?`) one that does nothing."""
    if not _IPYTHON.fullmatch(line):
        return line
    return line[: len(line) - len(line.lstrip())] + "pass" if line[:1].isspace() else ""


def _upto(line: str, node: ast.stmt) -> str:
    """The part of the node's last line that belongs to it (offsets count bytes)."""
    return line.encode()[: node.end_col_offset].decode()


def _analysed(statement: Statement) -> Statement:
    node = statement.node
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        statement.binds = {(alias.asname or alias.name.split(".")[0]) for alias in node.names}
        return statement
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            statement.binds.add(symbol.get_name())
        if symbol.is_referenced():
            statement.uses.add(symbol.get_name())
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        inner.extend(scope.get_children())
        statement.uses |= {
            s.get_name()
            for s in scope.get_symbols()
            if s.is_global() and (s.is_referenced() or s.is_declared_global())  # `global n; n += 1`
        }
    for child in ast.walk(node):
        if isinstance(child, (ast.Attribute, ast.Subscript)) and isinstance(child.ctx, ast.Store):
            statement.changes |= _root(child)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        statement.changes = set()  # what a body sets when it is called is no business of the module
        statement.touches = set().union(
            *(_root(d) for d in node.decorator_list if not isinstance(d, ast.Name))
        )
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        by_name = isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr") and call.args
        statement.touches = _root(call.args[0] if by_name else call.func)
    return statement


def _root(node: ast.expr) -> set[str]:
    """The `x` of `x.a[0].b(1)`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _is_stub(function: ast.FunctionDef) -> bool:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])


def part_for(name: str, body: list[Statement], touched: bool = False) -> tuple[list[Statement], set[str]]:
    """The statements of `body` that `name` needs, in order, and the names that none of them binds.

    Statements that neither bind a needed name nor set an attribute of one (prints, tests of the learner's)
    are left out; with `touched`, those stay that may change one that is not imported, by a call.
    """
    wanted = {name}
    imported = set().union(*(s.binds for s in body if s.is_import)) if touched else set()
    kept: set[int] = set()
    while True:
        new = {
            i
            for i, s in enumerate(body)
            if i not in kept
            and not s.is_check
            and ((s.binds | s.changes) & wanted or (touched and s.touches & wanted - imported))
        }
        if not new:
            break
        kept |= new
        for i in new:
            wanted |= body[i].uses
    kept |= {i for i, s in enumerate(body) if kept and ast.unparse(s.node).startswith("from __future__")}
    part = [body[i] for i in sorted(kept)]
    bound = set().union(*(s.binds for s in part)) if part else set()
    missing = set().union(*(s.uses for s in part)) - bound - _BUILTINS if part else {name}
    return part, missing


def import_of(name: str, body: list[Statement]) -> str | None:
    """The import line of `body` that binds `name`, for that name alone; the last one counts."""
    for statement in reversed(body):
        node = statement.node
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for alias in node.names:
            if (alias.asname or alias.name.split(".")[0]) == name:
                kept = [alias]
                if isinstance(node, ast.Import):
                    return ast.unparse(ast.Import(names=kept))
                return ast.unparse(ast.ImportFrom(module=node.module, names=kept, level=node.level))
    return None
