"""Right and wrong answers, written from the statements alone: the right ones pass, the wrong ones fail and are named.

Each module in bank/ holds RIGHT (exercise → candidates) and WRONG (exercise → pairs of a candidate and the mistake that
the report must name, or None where no name can be asked for).
"""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from txcourse import exercises

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "bank").glob("[a-z]*.py"))}


@cache
def bank(module: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bank_{module}", FILES[module])
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# Answers in unusual layouts are matched weight by weight there, which takes seconds: their wrong ones are for `make slow`.
LAYERS = ("EncoderLayer", "Encoder", "DecoderLayer", "Decoder", "Transformer")
MOST = [pytest.param(n, marks=pytest.mark.slow) if n in LAYERS else n for n in exercises.names()]


def _of(name: str) -> ModuleType:
    module = exercises.get(name).notebook[3:]
    if module not in FILES:
        pytest.skip(f"no bank for {module}")
    return bank(module)


def _label(number: int, candidate: object) -> str:
    return f"{number} {getattr(candidate, '__name__', type(candidate).__name__)}"


def _rejected_right(name: str, seeds: range) -> list[str]:
    found = []
    for i, candidate in enumerate(_of(name).RIGHT[name]):
        for seed in seeds:
            report = exercises.run_check(name, candidate, seed=seed)
            if not report.passed:
                found.append(f"{_label(i, candidate)} seed {seed}: {report.message}")
                break
    return found


def _misjudged_wrong(name: str, seeds: range) -> list[str]:
    """Wrong answers that pass, or whose mistake is named otherwise."""
    found = []
    for i, (candidate, mistake) in enumerate(_of(name).WRONG[name]):
        for seed in seeds:
            report = exercises.run_check(name, candidate, seed=seed)
            if report.passed or (mistake is not None and report.mistake != mistake):
                outcome = "passes" if report.passed else report.mistake
                found.append(f"{_label(i, candidate)} seed {seed}: {outcome}, not {mistake}")
                break
    return found


@pytest.mark.parametrize("name", exercises.names())
def test_right_answers_pass(name: str) -> None:
    assert _rejected_right(name, range(2)) == []


@pytest.mark.parametrize("name", MOST)
def test_wrong_answers_fail_and_are_named(name: str) -> None:
    assert _misjudged_wrong(name, range(1)) == []


@pytest.mark.parametrize("name", exercises.names())
def test_bank_is_large_enough(name: str) -> None:
    module = _of(name)
    assert len(module.RIGHT[name]) >= 4 and len(module.WRONG[name]) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", exercises.names())
def test_on_many_seeds(name: str) -> None:
    seeds = range(5, 25)
    assert _rejected_right(name, seeds) + _misjudged_wrong(name, seeds) == []
