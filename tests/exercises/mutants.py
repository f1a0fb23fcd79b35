"""Wrong versions of the references, made by changing one node of their syntax trees."""

import ast
import copy
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

_BINARY: dict[type, list[type]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.MatMult: [],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}
_COMPARE: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The node's wrong versions."""
    if isinstance(node, ast.BinOp):
        for operator in _BINARY.get(type(node.op), []):
            yield ast.BinOp(node.left, operator(), node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for comparison in _COMPARE.get(type(node.ops[0]), []):
            yield ast.Compare(node.left, [comparison()], node.comparators)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.Not):
        yield node.operand
    elif (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        yield ast.UnaryOp(ast.USub(), ast.Constant(node.operand.value + 1))
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
        if node.value not in (0, 1):
            yield ast.Constant(0 * node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.If):
        yield ast.If(ast.Constant(False), node.body, node.orelse)
    elif isinstance(node, ast.AugAssign | ast.Expr) and not _is_docstring(node):
        yield ast.Pass()


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes whose change can matter: annotations and docstrings are left alone."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef):
            parts += [node.returns, *node.decorator_list]
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts.append(node.annotation)
        if _is_docstring(node):
            parts.append(node)
        for part in parts:
            if part is not None:
                skipped |= {id(n) for n in ast.walk(part)}
    return [n for n in ast.walk(tree) if id(n) not in skipped]


def mutants(reference: Any) -> Iterator[tuple[str, Any]]:
    """(what was changed, the mutant) for each change; mutants that do not even compile are left out.

    A description is "old line -> new line", and names the exercise's code only, so that it survives moves.
    """
    source = textwrap.dedent(inspect.getsource(reference))
    tree = ast.parse(source)
    lines = ast.unparse(tree).splitlines()
    space = vars(sys.modules[reference.__module__])
    for number, node in enumerate(_nodes(tree)):
        for change in _changes(node):
            changed = copy.deepcopy(tree)
            target = _nodes(changed)[number]
            _Replace(target, copy.deepcopy(change)).visit(changed)
            ast.fix_missing_locations(changed)
            text = ast.unparse(changed)
            if text.splitlines() == lines:
                continue
            scope = {**space, "__name__": "mutant"}
            try:
                exec(
                    compile("from __future__ import annotations\n" + text, f"<mutant {number}>", "exec"),
                    scope,
                )
            except Exception:
                continue
            yield _description(lines, text.splitlines()), scope[reference.__name__]


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, change: ast.AST):
        self.target, self.change = target, change

    def visit(self, node: ast.AST) -> Any:
        return self.change if node is self.target else self.generic_visit(node)


def _description(old: list[str], new: list[str]) -> str:
    start = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    before, after = (" ; ".join(x.strip() for x in part[start : len(part) - end]) for part in (old, new))
    return f"{before} -> {after}"
