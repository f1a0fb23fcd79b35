"""Every change of one node of a reference is rejected, or listed as equivalent with the reason."""

import random

import pytest

from tests.exercises.equivalent import EQUIVALENT
from tests.exercises.mutants import mutants
from tests.exercises.test_bank import MOST
from txcourse import exercises
from txcourse.checking import run


def survivors(name: str, seed: int) -> list[str]:
    exercise, known = exercises.get(name), EQUIVALENT.get(name, {})
    return [
        change
        for change, mutant in mutants(exercise.reference)
        if change not in known and run(exercise, mutant, seed, seconds=2.0, naming=0, ours=True).passed
    ]


@pytest.mark.parametrize("name", MOST)
def test_mutants_are_rejected(name: str) -> None:
    assert survivors(name, seed=1) == []


@pytest.mark.parametrize("name", exercises.names())
def test_equivalents_exist(name: str) -> None:
    changes = {change for change, _ in mutants(exercises.get(name).reference)}
    assert set(EQUIVALENT.get(name, {})) <= changes, (
        "a listed change is made no longer: remove it from the list"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", exercises.names())
def test_mutants_are_rejected_on_other_seeds(name: str) -> None:
    for seed in random.Random(0).sample(range(256), 5):
        assert survivors(name, seed) == []
