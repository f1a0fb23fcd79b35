"""The references pass their checks, and every known mistake is rejected and named as itself; pairs too."""

import inspect
import itertools
import random
import sys
from typing import Any

import pytest

from tests.exercises.test_bank import MOST
from txcourse import exercises
from txcourse.checking import Exercise, run


def pairs(exercise: Exercise) -> list[tuple[str, str]]:
    return [(a.id, b.id) for a, b in itertools.combinations(exercise.mistakes, 2) if a.axis != b.axis]


def judge(exercise: Exercise, on: tuple[str, ...], seed: int) -> Any:
    assert exercise.variant is not None
    return run(exercise, exercise.variant(frozenset(on)), seed, ours=True)


def as_a_learner_types_it(reference: Any) -> Any:
    """The reference, defined anew, as in a notebook whose cell was filled with it."""
    scope = {**vars(sys.modules[reference.__module__]), "__name__": "notebook"}
    exec(compile(inspect.getsource(reference), "<cell>", "exec", dont_inherit=True), scope)
    return scope[reference.__name__]


@pytest.mark.parametrize("name", exercises.names())
def test_reference_passes(name: str) -> None:
    answer = as_a_learner_types_it(exercises.get(name).reference)
    for seed in (0, 1, 100, 255):
        report = exercises.run_check(name, answer, seed=seed)
        assert report.passed, report.to_text()


@pytest.mark.parametrize("name", exercises.names())
def test_the_courses_own_object_is_no_answer(name: str) -> None:
    assert exercises.run_check(name, exercises.get(name).reference).mistake == "not_allowed"


@pytest.mark.parametrize("name", MOST)
def test_single_mistakes_are_named(name: str) -> None:
    exercise = exercises.get(name)
    reports = {m.id: judge(exercise, (m.id,), seed=7) for m in exercise.mistakes}
    assert {m: (r.passed, r.mistake) for m, r in reports.items() if r.passed or r.mistake != m} == {}


def _accepted(name: str, chosen: list[tuple[str, str]], seed: int) -> list[tuple[str, str]]:
    exercise = exercises.get(name)
    assert exercise.variant is not None or not chosen
    return [
        on
        for on in chosen
        if run(exercise, exercise.variant(frozenset(on)), seed, naming=0, ours=True).passed
    ]  # type: ignore[misc]


@pytest.mark.parametrize("name", MOST)
def test_pairs_of_mistakes_are_rejected(name: str) -> None:
    known = pairs(exercises.get(name))
    assert _accepted(name, random.Random(0).sample(known, min(12, len(known))), seed=11) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", exercises.names())
def test_all_pairs_on_other_seeds(name: str) -> None:
    for seed in (23, 131):
        assert _accepted(name, pairs(exercises.get(name)), seed) == []


@pytest.mark.parametrize("name", exercises.names())
def test_statement_is_complete(name: str) -> None:
    exercise = exercises.get(name)
    assert exercise.points > 0 and exercise.difficulty in (1, 2, 3) and exercise.minutes > 0
    assert len(exercise.hints) == 3 and all(exercise.hints)
    assert len({t.name for t in exercise.tests}) == len(exercise.tests)
    ids = [m.id for m in exercise.mistakes]
    assert len(set(ids)) == len(ids) and all(m.sentence.endswith(".") for m in exercise.mistakes)
