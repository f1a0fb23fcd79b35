"""Answers as a student hands them in, as source: the course's references, and the bank of right and wrong answers."""

import ast
from functools import cache
from pathlib import Path

from txcourse import exercises
from txcourse.grading import references
from txcourse.source import Statement, part_for, statements

BANK = Path(__file__).parents[1] / "exercises" / "bank"


def reference(name: str) -> str:
    """The reference of an exercise, with what else its own module of the solutions defines for it."""
    home = exercises.get(name).reference.__module__.split(".")[-1]
    return references.sources([name])[home]


@cache
def _bank(module: str) -> tuple[list[Statement], dict[str, dict[str, list[str]]]]:
    """The statements of a module of the bank, and the expressions in RIGHT and WRONG."""
    text = (BANK / f"{module}.py").read_text(encoding="utf-8")
    assigned: dict[str, ast.expr] = {}
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and node.value is not None:
            assigned[target.id] = node.value
    lists: dict[str, dict[str, list[str]]] = {}
    for kind in ("RIGHT", "WRONG"):
        lists[kind] = {}
        for key, value in zip(assigned[kind].keys, assigned[kind].values, strict=True):  # type: ignore[attr-defined]
            answers = assigned[value.id] if isinstance(value, ast.Name) else value
            lists[kind][ast.literal_eval(key)] = [ast.unparse(item) for item in answers.elts]
    return [s for s in statements(text) if not s.binds & {"RIGHT", "WRONG"}], lists


def _answer(name: str, expression: str) -> str:
    body, _ = _bank(exercises.get(name).notebook[3:])
    part, _ = part_for("answer_", [*body, *statements(f"answer_ = {expression}\n")])
    return "\n\n".join(s.text for s in part) + f"\n\n{name} = answer_\n"


def right(name: str) -> list[str]:
    """The bank's right answers to an exercise."""
    return [_answer(name, each) for each in _bank(exercises.get(name).notebook[3:])[1]["RIGHT"][name]]


def wrong(name: str) -> list[tuple[str, str | None]]:
    """The bank's wrong answers to an exercise, each with its mistake."""
    found = []
    for pair in _bank(exercises.get(name).notebook[3:])[1]["WRONG"][name]:
        expression, mistake = ast.parse(pair, mode="eval").body.elts  # type: ignore[attr-defined]
        found.append((_answer(name, ast.unparse(expression)), ast.literal_eval(mistake)))
    return found
