"""The exercises of the course: one module per notebook, in the order of the course."""

import importlib
import random
from functools import cache
from typing import Any

from txcourse.checking import Exercise, Report, run

MODULES = (
    "start_here",
    "tokens_and_embeddings",
    "sequence_to_sequence",
    "attention",
    "attention_gradients",
    "multi_head_attention",
    "positional_encoding",
    "feed_forward_and_residuals",
    "encoder",
    "decoder",
    "transformer",
    "batching",
    "training",
    "decoding",
    "measuring_quality",
    "why_transformers_work",
    "efficient_attention",
)


@cache
def _all() -> dict[str, Exercise]:
    modules = [importlib.import_module(f"txcourse.exercises.{name}") for name in MODULES]
    return {exercise.name: exercise for module in modules for exercise in module.EXERCISES}


def names() -> list[str]:
    """The names of all exercises, in the order of the course."""
    return list(_all())


def get(name: str) -> Exercise:
    """The exercise of this name; raises KeyError when there is none."""
    return _all()[name]


def run_check(name: str, candidate: Any, *, seed: int | None = None) -> Report:
    """Judge `candidate` as an answer to the exercise `name`; never raises and never prints.

    `seed` fixes the random inputs; without it they differ from call to call (0 … 255). Seeds, the default dtype, the
    number of threads, the grad mode and the candidate's own mode are afterwards as they were before.
    """
    if not isinstance(name, str) or name not in _all():
        message = f"There is no exercise named {name!r}; txcourse.exercises.names() lists them."
        return Report(str(name), False, (), "no_such_exercise", message, 0.0)
    return run(get(name), candidate, random.SystemRandom().randrange(256) if seed is None else seed)
