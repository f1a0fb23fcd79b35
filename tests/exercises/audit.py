"""A table of what the checks are worth, one line per exercise. Run it by `make audit`; it takes some minutes.

wrong: known / rejected / rightly named, over the bank's wrong answers and the single known mistakes; mutants: made /
rejected / equivalent; right: known / accepted; ms: median milliseconds of a check of a right answer, and of a wrong one
with the search for the mistake's name (CPU time of this process, one thread).
"""

import statistics
import sys
import time
from collections.abc import Callable

from tests.exercises.equivalent import EQUIVALENT
from tests.exercises.mutants import mutants
from tests.exercises.test_bank import bank
from txcourse import exercises
from txcourse.checking import Report, run

SEEDS = (3, 77)


def timed(check: Callable[[], Report], milliseconds: list[float]) -> Report:
    start = time.process_time()
    report = check()
    milliseconds.append(1000 * (time.process_time() - start))
    return report


def audit(name: str) -> list[int]:
    exercise = exercises.get(name)
    answers = bank(exercise.notebook[3:])
    right_ms: list[float] = []
    wrong_ms: list[float] = []
    wrong = [(c, m, False) for c, m in answers.WRONG[name]]
    if exercise.variant is not None:
        wrong += [(exercise.variant(frozenset([m.id])), m.id, True) for m in exercise.mistakes]
    rejected = named = killed = made = 0
    for candidate, mistake, ours in wrong:
        reports = [timed(lambda s=s: run(exercise, candidate, s, ours=ours), wrong_ms) for s in SEEDS]  # type: ignore[misc]  # noqa: B023
        rejected += not any(r.passed for r in reports)
        named += all(r.mistake is not None and r.mistake == mistake for r in reports)
    for _, mutant in mutants(exercise.reference):
        made += 1
        killed += not run(exercise, mutant, SEEDS[0], seconds=2.0, naming=0, ours=True).passed
    accepted = 0
    for candidate in answers.RIGHT[name]:
        accepted += all(timed(lambda s=s: run(exercise, candidate, s), right_ms).passed for s in SEEDS)  # type: ignore[misc]  # noqa: B023
    numbers = [
        len(wrong),
        rejected,
        named,
        made,
        killed,
        len(EQUIVALENT.get(name, {})),
        len(answers.RIGHT[name]),
        accepted,
    ]
    return [*numbers, round(statistics.median(right_ms)), round(statistics.median(wrong_ms))]


def main() -> None:
    header = "{:32} {:>22} {:>24} {:>14} {:>12}"
    print(header.format("", "wrong", "mutants", "right", "ms"))
    print(
        header.format(
            "exercise", "known rejected named", "made rejected equivalent", "known accepted", "right wrong"
        )
    )
    total = [0] * 8
    for name in sys.argv[1:] or exercises.names():
        n = audit(name)
        total = [a + b for a, b in zip(total, n[:8], strict=True)]
        print(
            f"{name:32} {n[0]:5} {n[1]:8} {n[2]:6}   {n[3]:4} {n[4]:8} {n[5]:10} {n[6]:5} {n[7]:8} {n[8]:6} {n[9]:5}",
            flush=True,
        )
    n = total
    print(f"{'all':32} {n[0]:5} {n[1]:8} {n[2]:6}   {n[3]:4} {n[4]:8} {n[5]:10} {n[6]:5} {n[7]:8}")


if __name__ == "__main__":
    main()
