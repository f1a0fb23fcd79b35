"""What the judge decides: right, wrong and hostile answers, in the strongest sandbox that this machine has."""

import ast
from collections.abc import Iterator

import pytest

from tests.grading import answers, hostile
from txcourse import exercises
from txcourse.checking import rules
from txcourse.grading.assignment import Assignment, build
from txcourse.grading.judge import Judge, Judgement

WHOLE = build({"exercises": exercises.names(), "seed": 3, "limits": {"seconds": 20}})
SHORT = build({"exercises": exercises.names(), "seed": 3, "limits": {"seconds": 1.5, "memory": 2**30}})


@pytest.fixture(scope="module")
def whole() -> Iterator[Judge]:
    with Judge(WHOLE) as judge:
        yield judge


@pytest.fixture(scope="module")
def short() -> Iterator[Judge]:
    with Judge(SHORT) as judge:
        yield judge


def judged(judge: Judge, name: str, source: str | None, assignment: Assignment = WHOLE) -> Judgement:
    return judge.judge(next(a for a in assignment.asked if a.name == name), source)


@pytest.mark.parametrize("name", exercises.names())
def test_references_pass(whole: Judge, name: str) -> None:
    judgement = judged(whole, name, answers.reference(name))
    assert (judgement.status, judgement.points) == ("passed", judgement.max_points), judgement


ALIKE = [
    *("softmax", "Linear", "causal_mask", "numerical_gradient"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("clip_gradients", "count_parameters", "token_batches", "MultiHeadAttention")
    ),
]


@pytest.mark.parametrize("name", ALIKE)
def test_verdicts_and_names_are_those_of_run_check(whole: Judge, name: str) -> None:
    for source in answers.right(name):
        judgement = judged(whole, name, source)
        assert judgement.status == "passed", judgement
    for source, mistake in answers.wrong(name):
        judgement = judged(whole, name, source)
        assert judgement.status in ("failed", "not_allowed") and judgement.points < judgement.max_points
        assert mistake in (None, judgement.mistake), (judgement, source)


@pytest.mark.parametrize("name", [n for n in exercises.names() if exercises.get(n).not_allowed])
def test_rules_read_in_the_source(name: str) -> None:
    """No right answer breaks one, and the bank's answers that do are seen to without running them."""
    rule = exercises.get(name).not_allowed
    for source in (answers.reference(name), *answers.right(name)):
        assert rules.in_source(ast.parse(source), rule) is None, source
    for source, mistake in answers.wrong(name):
        assert (rules.in_source(ast.parse(source), rule) is not None) == (mistake == "not_allowed"), source


CASES = [pytest.param(c, id=c.kind, marks=pytest.mark.slow if c.long else ()) for c in hostile.ALL]


@pytest.mark.parametrize("case", CASES)
def test_hostile_answers(whole: Judge, short: Judge, case: hostile.Hostile) -> None:
    judge, assignment = (short, SHORT) if case.slow else (whole, WHOLE)
    if case.needs and judge.level not in ("bubblewrap", "user namespace"):
        pytest.skip(f"no own file system and processes at the level {judge.level}")
    judgement = judged(judge, case.exercise, case.source, assignment)
    assert judgement.status in case.status, judgement
    if case.full:
        assert judgement.points == judgement.max_points
    else:
        assert judgement.points < judgement.max_points
        assert judgement.status in ("failed", "died", "timeout") or judgement.points == 0
    str(judgement.to_dict()).encode()
    assert len(judgement.output) <= assignment.limits.output
    after = judged(judge, "causal_mask", hostile.RIGHT, assignment)  # the next student is not harmed
    assert after.status == "passed", after


def test_judgements_are_the_same_every_time(whole: Judge) -> None:
    """Also of answers that draw random numbers, and in another sandbox."""
    guesses = [
        "import torch\n\ndef causal_mask(length):\n    return torch.rand(length, length) < 0.5\n",
        "import random\n\ndef edit_distance(a, b):\n    return random.choice([len(a), len(b), len(set(a) | set(b))])\n",
    ]
    cases = [
        ("causal_mask", guesses[0]),
        ("edit_distance", guesses[1]),
        ("Linear", answers.wrong("Linear")[0][0]),
    ]
    first = [judged(whole, name, source).to_dict() | {"seconds": 0} for name, source in cases]
    with Judge(WHOLE) as other:
        for (name, source), wanted in reversed(list(zip(cases, first, strict=True))):
            assert judged(other, name, source).to_dict() | {"seconds": 0} == wanted


def test_no_answer_and_partial_credit(whole: Judge) -> None:
    assert judged(whole, "causal_mask", None).status == "missing"
    part = judged(whole, "causal_mask", hostile.WRONG)
    passed = sum(test[2] for test in part.tests)
    assert 0 < passed < len(part.tests) and part.points == round(
        part.max_points * passed / len(part.tests), 2
    )
