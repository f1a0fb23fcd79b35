"""Run the tests of an exercise against a candidate and report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from txcourse.checking import diagnosis, rules
from txcourse.checking.exercise import Context, Exercise, Mistake, Probe, Wrong
from txcourse.checking.guard import CandidateError, Watchdog, preserved
from txcourse.checking.report import Report, TestResult
from txcourse.checking.subject import Subject

_NO_END = {"timeout": "does_not_end", "died": "ends_python"}  # mistakes after which no test can run


def run(
    exercise: Exercise,
    candidate: Any,
    seed: int,
    *,
    seconds: float = 5.0,
    naming: float = 2.0,
    ours: bool = False,
) -> Report:
    """Judge `candidate`; never raises, never prints, and leaves seeds, modes and settings as they were.

    `seconds` limits each call of the candidate, `naming` the search for the mistake's name (0: none). `ours` says that the
    candidate may come from this package (the tests of the tests need that).
    """
    start = time.perf_counter()
    try:
        with preserved(candidate):
            watchdog = Watchdog(seconds)
            try:
                report = _judge(exercise, candidate, seed, watchdog, naming, ours)
            finally:
                watchdog.close()
    except Exception as error:  # an object that fails when it is only looked at
        message = f"Your answer cannot be looked at: it raises {type(error).__name__} outside of any call."
        report = Report(exercise.name, False, (), None, message, 0.0)
    return replace(report, seconds=time.perf_counter() - start)


def _judge(
    exercise: Exercise, candidate: Any, seed: int, watchdog: Watchdog, naming: float, ours: bool
) -> Report:
    name = exercise.name
    if not callable(candidate):
        message = f"{name} should be a function or class; this is {type(candidate).__name__}."
        return Report(name, False, (), "not_callable", message, 0.0)
    subject = Subject(candidate, watchdog)

    def broken(exercise_it: Callable[[], None]) -> str | None:
        return rules.broken(exercise.not_allowed, exercise.reference, candidate, exercise_it)

    return judge(exercise, subject, seed, naming, None if ours else broken)


def judge(
    exercise: Exercise,
    subject: Subject,
    seed: int,
    naming: float,
    broken: Callable[[Callable[[], None]], str | None] | None,
) -> Report:
    """Judge a candidate wherever it lives. `broken` is given a function that calls it once, and gives the sentence of the
    rule that it breaks, or None."""
    name = exercise.name
    if broken is not None:
        probes = (
            exercise.probes(seed) if exercise.probes else ()
        )  # made here: making them may call a reference
        try:
            rule = broken(lambda: _exercise_once(exercise, subject, probes))
        except CandidateError as error:  # it does not end, or ends the process
            test = TestResult("ends", "comes to an end", False, error.sentence)
            return Report(name, False, (test,), _NO_END[error.kind], error.sentence, 0.0)
        if rule is not None:
            test = TestResult("allowed", "uses what is allowed", False, rule)
            return Report(name, False, (test,), "not_allowed", rule, 0.0)
    context = Context(exercise, subject, seed)
    results: list[TestResult] = []
    proved: list[tuple[str, str]] = []  # what a test alone has shown: the mistake's name, and a sentence
    picture, hanging, untouched = None, False, 0
    for number, t in enumerate(exercise.tests):
        if hanging:
            results.append(
                TestResult(t.name, t.title, False, "Not run, because an earlier call did not end.")
            )
            continue
        torch.manual_seed(seed)
        subject.seed(seed)
        context.generator.manual_seed(1000 * seed + number)
        try:
            t.run(context)
            results.append(TestResult(t.name, t.title, True))
        except CandidateError as error:
            hanging, untouched = error.kind in _NO_END, untouched + (error.kind == "not_started")
            results.append(TestResult(t.name, t.title, False, error.sentence))
            if hanging:
                proved.append((_NO_END[error.kind], error.sentence))
            elif t.crash and len(results) > 1 and all(r.passed for r in results[:-1]):
                proved.append((t.crash, error.sentence))
        except Wrong as wrong:
            results.append(TestResult(t.name, t.title, False, wrong.sentence))
            picture = picture or wrong.picture
            if wrong.mistake:
                proved.append((wrong.mistake, wrong.sentence))
        except Exception as error:  # the candidate gave something with which the test cannot even compute
            message = f"Your result cannot be used as it is ({type(error).__name__}: {str(error)[:200]})."
            results.append(TestResult(t.name, t.title, False, message))
    if untouched == len(exercise.tests):
        return Report(name, False, tuple(results), None, results[0].message, 0.0, started=False)
    failed = [r for r in results if not r.passed]
    if not failed:
        return Report(name, True, tuple(results), None, f"All {len(results)} tests passed.", 0.0)
    mistakes: tuple[Mistake, ...] = ()
    if not hanging and naming > 0:
        subject.start_naming()
        most = 1 if proved else 2
        mistakes = diagnosis.diagnose(exercise, subject, seed, subject.watchdog, naming, most)
    named, message = proved[0] if proved else (None, failed[0].message)
    if mistakes:
        named, message = "+".join(m.id for m in mistakes), " ".join(m.sentence for m in mistakes)
    return Report(name, False, tuple(results), named, message, 0.0, picture=picture)


def _exercise_once(exercise: Exercise, subject: Subject, probes: Sequence[Probe]) -> None:
    """Call the candidate on every probe, for the rules to watch."""
    module = exercise.construct(subject) if exercise.sizes is not None else None
    for probe in probes:
        if module is None:
            subject.through(exercise.as_function).call(*probe.args, **probe.kwargs)
        elif module.is_module:
            module.call(*probe.args, method=probe.method, **probe.kwargs)
