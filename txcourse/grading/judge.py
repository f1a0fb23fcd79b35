"""Judge one student's answer to one exercise: tests here, the student's code in the sandbox."""

import ast
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from txcourse.checking import rules
from txcourse.checking.engine import judge
from txcourse.checking.guard import CandidateError, preserved
from txcourse.checking.report import Report
from txcourse.grading import references
from txcourse.grading.assignment import Asked, Assignment
from txcourse.grading.remote import Far, RemoteSubject
from txcourse.grading.sandbox import Sandbox

STATUSES = ("passed", "failed", "error", "timeout", "died", "missing", "not_allowed")
_LONGEST = 500_000  # characters of an answer's source
_NAMING = 4.0  # seconds of processor time for the search of a mistake's name; no mark depends on it


@dataclass(frozen=True)
class Judgement:
    """`tests`: name, title, passed, message. `output`: what the student's code printed, cut."""

    name: str
    status: str
    points: float
    max_points: float
    tests: tuple[tuple[str, str, bool, str], ...]
    mistake: str | None
    message: str
    seconds: float
    output: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        return asdict(self)


class Judge:
    """One a process: holds a sandbox, in which a worker waits that has imported torch.

    Raises:
        UserError: this machine cannot run a sandbox.
    """

    def __init__(self, assignment: Assignment, level: str | None = None):
        self._assignment = assignment
        self._asked = {asked.exercise.name for asked in assignment.asked}
        self._sandbox = Sandbox(assignment.limits, level)
        x = torch.ones(1, requires_grad=True)  # while it starts: the first gradient imports for a second
        torch.autograd.grad(x * 2, x, torch.ones(1))
        self.level = self._sandbox.level

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sandbox.close()

    def judge(self, asked: Asked, source: str | None) -> Judgement:
        """Judge an answer's source: all that it needs but references. None is no answer.

        Raises:
            UserError: the sandbox does not start any more. Nothing that the answer does raises.
        """
        start = time.perf_counter()
        name, most = asked.exercise.name, float(asked.points)
        if source is None or not source.strip():
            return Judgement(name, "missing", 0.0, most, (), None, "There is no answer.", 0.0, "")
        status, report, output = self._report(asked, source)
        tests = tuple((t.name, t.title, t.passed, _clean(t.message)) for t in report.tests)
        count = max(len(asked.exercise.tests), 1)
        share = 1.0 if report.passed else sum(t.passed for t in report.tests) / count
        points = round(most * share, 2) if status in ("passed", "failed", "timeout", "died") else 0.0
        seconds = round(time.perf_counter() - start, 3)
        return Judgement(
            name, status, points, most, tests, report.mistake, _clean(report.message), seconds, _clean(output)
        )

    def _report(self, asked: Asked, source: str) -> tuple[str, Report, str]:
        """Status, report and output."""
        exercise, name = asked.exercise, asked.exercise.name

        def bad(message: str, mistake: str | None = None) -> Report:
            return Report(name, False, (), mistake, message, 0.0)

        try:
            if len(source) > _LONGEST:
                raise ValueError("it is too long")
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return "error", bad(f"Your code cannot be read as Python: {error}"), ""
        rule = rules.in_source(tree, exercise.not_allowed)
        if rule is not None:
            return "not_allowed", bad(rule, "not_allowed"), ""
        mine = references.available(tree, name, self._asked)
        seed = self._seed(name)
        run = self._sandbox.run()
        far = Far(run)
        subject = RemoteSubject(far)

        def broken(exercise_it: Callable[[], None]) -> str | None:
            far.ask(do="watch_on")
            try:
                exercise_it()
            except CandidateError as error:
                if error.kind in ("timeout", "died"):
                    raise
            ran = far.ask(do="watch_off", not_allowed=list(exercise.not_allowed)).get("value")
            return rules.called(ran) if ran in exercise.not_allowed else None

        try:
            given = references.sources(mine)
            kind = far.ask(do="define", source=source, name=name, given=given, mine=mine, seed=seed)["value"]
            if kind == "undefined":
                return "error", bad(f"Your code does not define {name}."), run.close()
            if kind != "callable":
                message = f"{name} should be a function or class; this is {_clean(str(kind))[:80]}."
                return "error", bad(message, "not_callable"), run.close()
            with preserved(None):
                watch = broken if exercise.not_allowed else None
                report = judge(exercise, subject, seed, _NAMING, watch)
        except CandidateError as error:
            status = error.kind if error.kind in ("timeout", "died") else "error"
            report = bad(error.sentence)
            if error.kind == "not_started":
                status = "missing"
        else:
            stopped = run.stopped
            status = (
                "passed" if report.passed
                else "not_allowed" if report.mistake == "not_allowed"
                else "missing" if not report.started
                else stopped.kind if stopped is not None
                else "failed"
            )  # fmt: skip
        return status, report, run.close()

    def _seed(self, name: str) -> int:
        """The seed of an exercise's random inputs, the same every time."""
        digest = hashlib.sha256(f"{self._assignment.seed}:{name}".encode()).digest()
        return digest[0]


def _clean(text: str) -> str:
    """Text that can be written to any file."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
