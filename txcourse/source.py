"""Reading notebook cells as source: what a cell defines, what it uses, and the part of it that one name needs.

Used wherever an answer leaves its notebook: when a passed answer is stored, and when a notebook is checked
from outside. Nothing here runs the code it reads.
"""

import ast
import builtins
import symtable
from dataclasses import dataclass, field

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__builtins__"}


@dataclass
class Statement:
    """One top-level statement of a cell: its text with the comments right above, what it binds and uses."""

    text: str
    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)  # names whose attribute or item it sets

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, (ast.Import, ast.ImportFrom))

    @property
    def is_check(self) -> bool:
        """Whether this is `name = check(name)`."""
        value = getattr(self.node, "value", None)
        return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "check"


def statements(cell: str) -> list[Statement]:
    """The top-level statements of a cell, in order.

    Raises:
        SyntaxError: the cell is no Python. (Lines of IPython's own, `%...` and `!...`, are left out.)
    """
    lines = cell.splitlines()
    try:
        body = ast.parse(cell).body
    except SyntaxError:
        lines = ["" if line.startswith(("%", "!")) else line for line in lines]
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
        statement.uses |= {s.get_name() for s in scope.get_symbols() if s.is_global() and s.is_referenced()}
    for child in ast.walk(node):
        if isinstance(child, (ast.Attribute, ast.Subscript)) and isinstance(child.ctx, ast.Store):
            root: ast.expr = child
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(root, ast.Name):
                statement.changes.add(root.id)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        statement.changes = set()  # what a body sets when it is called is no business of the module
    return statement


def part_for(name: str, body: list[Statement]) -> tuple[list[Statement], set[str]]:
    """The statements of `body` that `name` needs, in order, and the names that none of them binds.

    Statements that neither bind a needed name nor set an attribute of one (prints, tests of the learner's)
    are left out.
    """
    wanted = {name}
    kept: set[int] = set()
    while True:
        new = {
            i
            for i, s in enumerate(body)
            if i not in kept and not s.is_check and (s.binds | s.changes) & wanted
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
