"""The engine: never raises, never prints, leaves everything as it was, and stops what can be stopped."""

import inspect
import logging
import random
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import txcourse
from txcourse import exercises, run_check
from txcourse.checking.guard import CandidateError, Watchdog, guarded

NAME = "scaled_dot_product_attention"


def right(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def test_signature_is_the_documented_one() -> None:
    parameters = inspect.signature(run_check).parameters
    assert (
        list(parameters) == ["name", "candidate", "seed"]
        and parameters["seed"].kind is inspect.Parameter.KEYWORD_ONLY
    )


def test_report_of_a_right_answer() -> None:
    report = run_check(NAME, right)
    assert report.passed and report.mistake is None and report.started
    assert all(t.passed and t.name for t in report.tests) and report.seconds > 0
    assert report.to_dict()["tests"][0]["name"] == report.tests[0].name
    assert "passed" in report.to_text() and "<table" in report._repr_html_()


def test_report_of_a_wrong_answer_names_the_mistake_and_draws() -> None:
    def wrong(query, key, value, mask=None):
        return right(query * query.shape[-1] ** 0.5, key, value, mask)

    report = run_check(NAME, wrong, seed=1)
    assert not report.passed and report.mistake == "no_scale" and "√d_k" in report.message
    assert "<svg" in report._repr_html_() and "WRONG" in report.to_text()


def test_html_is_escaped() -> None:
    def hostile(*args):
        raise ValueError("<script>alert(1)</script>")

    assert "<script>" not in run_check(NAME, hostile)._repr_html_()


def test_unknown_exercise_and_things_that_are_no_function() -> None:
    assert "no exercise" in run_check("nonsense", right).message
    assert not run_check(NAME, 3).passed and not run_check(NAME, None).passed


class OddModule:
    __module__ = 3  # type: ignore[assignment]

    def __call__(self, *args):
        return 1


class RaisesWhenLookedAt:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __call__(self, *args):
        return 1


@pytest.mark.parametrize("make", [OddModule, RaisesWhenLookedAt])
def test_objects_that_fail_when_looked_at_are_reported(make) -> None:
    report = run_check(NAME, make(), seed=0)
    assert not report.passed and report.message and report.seconds > 0


@pytest.mark.parametrize("name", [["x"], None, 3])
def test_names_that_are_no_text(name) -> None:
    assert run_check(name, right).mistake == "no_such_exercise"


def raises(*args, **kwargs):
    raise KeyError("x")


def exits(*args, **kwargs):
    sys.exit(0)


def interrupts(*args, **kwargs):
    raise KeyboardInterrupt


def recurses(*args, **kwargs):
    return recurses(*args, **kwargs)


def asks(*args, **kwargs):
    return input("name? ")


class Evil(BaseException):
    def __str__(self):
        raise RuntimeError("no text")


def evil(*args, **kwargs):
    raise Evil


class EqualToAll(torch.Tensor):
    def __eq__(self, other):
        return torch.ones(())


def forged(query, key, value, mask=None):
    return query.as_subclass(EqualToAll), key.as_subclass(EqualToAll)


@pytest.mark.parametrize(
    "candidate", [raises, exits, interrupts, recurses, asks, evil, forged, print, nn.Linear]
)
def test_whatever_happens_is_a_failed_test_with_a_sentence(
    candidate, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_check(NAME, candidate, seed=0)
    assert not report.passed and report.message and report.started
    assert capsys.readouterr() == ("", "")


def test_hundred_megabytes_of_output_go_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(*args):
        for _ in range(100):
            print("x" * 1_000_000)
        return right(*args)

    assert run_check(NAME, chatty, seed=0).passed
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_loop_without_end_is_stopped(threads: int) -> None:
    def stubborn(*args):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    start = time.monotonic()
    report = run_check(NAME, stubborn, seed=0)
    assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert report.mistake == "does_not_end" and time.monotonic() - start < 60


def test_on_a_busy_machine_a_right_answer_is_not_late(monkeypatch) -> None:
    """A thread that gets a tenth of the processor has ten times as long by the clock."""
    monkeypatch.setattr(time, "pthread_getcpuclockid", lambda thread: time.CLOCK_MONOTONIC, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 0.1 * time.monotonic(), raising=False)
    watchdog = Watchdog(0.2)
    try:
        assert guarded(watchdog, lambda: time.sleep(0.8)) is None
        with pytest.raises(CandidateError, match="had not ended"):
            guarded(watchdog, lambda: [time.sleep(0.1) for _ in range(100)])
    finally:
        watchdog.close()


def test_a_call_that_sleeps_has_no_more_time_than_one_that_works() -> None:
    watchdog = Watchdog(1.0)
    start = time.monotonic()
    try:
        with pytest.raises(CandidateError, match="had not ended"):
            guarded(watchdog, lambda: [time.sleep(0.5) for _ in range(1000)])
    finally:
        watchdog.close()
    assert time.monotonic() - start < 5


def test_gradients_left_switched_off_are_said_and_switched_on_again() -> None:
    def careless(query, key, value, mask=None):
        torch.set_grad_enabled(False)
        return right(query, key, value, mask)

    report = run_check(NAME, careless)
    assert not report.passed and torch.is_grad_enabled()
    assert "leaves it so when it returns" in report.tests[0].message


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")])
def test_what_surrounds_a_check_does_not_matter(around) -> None:
    with around():
        assert run_check(NAME, right).passed
    assert torch.zeros(1).device.type == "cpu"


def test_another_default_device_does_not_matter() -> None:
    torch.set_default_device("meta")
    try:
        assert run_check(NAME, right).passed
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


def test_what_an_answer_switches_on_is_switched_off_again(monkeypatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])

    def careless(query, key, value, mask=None):
        torch.set_default_device("meta")
        torch.autograd.set_detect_anomaly(True)
        logging.warning("here")
        return right(query, key, value, mask)

    run_check(NAME, careless)
    assert torch.zeros(1).device.type == "cpu" and not torch.is_anomaly_enabled()
    # a default device, even the CPU, is a mode that wraps every call
    assert torch.overrides._len_torch_function_stack() == 0
    assert logging.root.handlers == []


def test_a_crash_names_a_mistake_only_where_nothing_failed_before() -> None:
    def crashes_with_masks(query, key, value, mask=None):
        return right(query, key, value, mask and None)

    def crashes_and_is_wrong(query, key, value, mask=None):
        output, weights = crashes_with_masks(query, key, value, mask)
        return output + query.sum(), weights

    names = {t.crash for t in exercises.get(NAME).tests} - {None}
    assert run_check(NAME, crashes_with_masks).mistake in names
    assert run_check(NAME, crashes_and_is_wrong).mistake not in names


def test_a_stub_is_not_started() -> None:
    def stub(query, key, value, mask=None):
        raise NotImplementedError

    report = run_check(NAME, stub)
    assert not report.started and not report.passed and "Not started" in report.message


def test_half_an_answer_is_started() -> None:
    def half(query, key, value, mask=None):
        if mask is not None:
            raise NotImplementedError
        return right(query, key, value)

    assert run_check(NAME, half).started


def test_nothing_is_changed() -> None:
    def meddler(*args):
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        sys.setrecursionlimit(500)
        np.seterr(all="raise")
        return right(*args)

    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    limit, errors = sys.getrecursionlimit(), np.geterr()
    wanted = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    run_check(NAME, meddler)
    run_check(NAME, right)
    assert (
        torch.equal(torch.rand(3), wanted[0])
        and (np.random.rand(3) == wanted[1]).all()
        and random.random() == wanted[2]
    )
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert sys.getrecursionlimit() == limit and np.geterr() == errors


def test_works_without_gradients_and_in_double_precision_around_it() -> None:
    with torch.no_grad():
        assert run_check(NAME, right, seed=3).passed
        assert not torch.is_grad_enabled()
    torch.set_default_dtype(torch.float64)
    try:
        assert run_check(NAME, right, seed=3).passed
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_candidates_own_mode_is_kept() -> None:
    class Attention(nn.Module):
        def forward(self, query, key, value, mask=None):
            self.eval()
            return right(query, key, value, mask)

    candidate = Attention()
    assert run_check(NAME, candidate, seed=2).passed and candidate.training


def test_same_seed_same_report() -> None:
    first, second = (
        run_check("MultiHeadAttention", nn.MultiheadAttention, seed=9).to_dict() for _ in range(2)
    )
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_names_are_in_the_order_of_the_course() -> None:
    notebooks = [exercises.get(name).notebook for name in exercises.names()]
    assert notebooks == sorted(notebooks) and len(set(exercises.names())) == len(notebooks)
    assert txcourse.run_check is run_check
