"""Run somebody else's code inside this process: with a time limit, without output, and leaving nothing changed."""

import builtins
import contextlib
import ctypes
import io
import linecache
import logging
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn


class CandidateError(Exception):
    """The candidate raised, did not end, or could not be called; `kind` is "raised", "timeout", "died" or "not_started"."""

    def __init__(self, kind: str, sentence: str, error: BaseException | None = None):
        super().__init__(sentence)
        self.kind, self.sentence, self.error = kind, sentence, error


_PATIENCE = 10  # a call may last so many times its limit on a machine that has little time for it
_IDLE = 0.001  # part of the time below which a thread sleeps and is not only crowded out


class _TimedOut(BaseException):
    """Stops a call. Code that catches everything in a loop would swallow it, so it arranges to be raised once more, on
    the next line that runs: inside the handler."""

    def __init__(self) -> None:
        handler = sys._getframe(1)  # an exception from outside is made where it is first handled
        if handler.f_code.co_filename != __file__:  # not in Watchdog.run, which must get to its end
            sys.settrace(_raise_again)
            handler.f_trace = _raise_again


def _raise_again(*_: object) -> None:
    raise _TimedOut


class Unwatched:
    """Lets calls last as long as they do, and their output pass: for code that somebody else watches over."""

    seconds = float("inf")
    quiet = False

    def run(self, function: Callable[[], Any]) -> Any:
        return function()


class Watchdog:
    """Raises an exception in the calling thread when a call lasts too long (this stops loops in Python, not in C).

    `seconds` are of that thread's processor time where the system tells it: on a busy machine a right answer is not late.
    A thread that does not even try to run is late after as many seconds of the clock.
    """

    quiet = True

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._thread_id = threading.get_ident()
        self._clock: Callable[[], float] = time.monotonic
        if hasattr(time, "pthread_getcpuclockid"):
            clock = time.pthread_getcpuclockid(self._thread_id)
            self._clock = lambda: time.clock_gettime(clock)
        self._condition = threading.Condition()
        self._call = 0  # the number of the running call; 0 when none runs
        self._started = 0
        self._closed = False
        self._sent = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _interrupt(self) -> None:
        # Never taken back with NULL: in Python 3.11 the pending flag would stay set, and a profiled call then hangs.
        self._sent = True
        target = ctypes.py_object(_TimedOut)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), target)

    def _watch(self) -> None:
        with self._condition:
            while not self._closed:
                call = self._call
                if not call:
                    self._condition.wait()
                elif self._lasts(call):
                    while self._call == call and not self._closed:  # again, for code that catches everything
                        self._interrupt()
                        self._condition.wait(0.1)

    def _lasts(self, call: int) -> bool:
        """Wait for the end of a call; whether it has used up its time before."""
        left, latest = self.seconds, time.monotonic() + _PATIENCE * self.seconds
        while left > 0 and time.monotonic() < latest:
            before = self._clock()
            if self._condition.wait_for(lambda: self._closed or self._call != call, left):
                return False
            used = self._clock() - before
            if used < _IDLE * left:
                return True
            left -= used
        return True

    def run(self, function: Callable[[], Any]) -> Any:
        with self._condition:
            self._started += 1
            self._call = self._started
            self._condition.notify()
        tracing = sys.gettrace()
        try:
            return function()
        finally:
            while True:  # until nothing more arrives: neither of the two may be left out
                try:
                    sys.settrace(
                        tracing
                    )  # first: with the tracing of _TimedOut even the call of _disarm would raise
                    self._disarm()
                    break
                except _TimedOut:
                    continue

    def _disarm(self) -> None:
        while True:
            try:
                with self._condition:
                    self._call = 0
                    self._condition.notify()
                if (
                    self._sent
                ):  # one that was sent and has not arrived must not hit what comes next: it does here
                    for _ in range(100):
                        pass
                    self._sent = False
                return
            except _TimedOut:
                sys.settrace(None)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()


class _Sink(io.TextIOBase):
    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


def _no_input(*_: object) -> str:
    raise RuntimeError("input() waits for a person; a check cannot answer it")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    asked = builtins.input
    sink = _Sink()
    try:
        builtins.input = _no_input
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            yield
    finally:
        builtins.input = asked


def _place(error: BaseException) -> str:
    """Where in the candidate's own code `error` arose, as " (line 3: `x = y @ z`)"."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f
        for f in frames
        if "site-packages" not in f.filename and not f.filename.startswith(_PACKAGE) and f.lineno
    ]
    if not own:
        return ""
    line = (linecache.getline(own[-1].filename, own[-1].lineno or 0) or own[-1].line or "").strip()
    return f" (line {own[-1].lineno}: `{line[:120]}`)" if line else ""


_PACKAGE = __file__.rsplit("checking", 1)[0]


_GRAD_LEFT = (
    "Your code switches the recording of gradients and leaves it so when it returns, for everything that comes after it; "
    "`with torch.no_grad():` switches back at its end."
)


def endless(seconds: float) -> str:
    return f"Your code had not ended after {seconds:g} seconds. Is there a loop without an end?"


def guarded(watchdog: Watchdog | Unwatched, function: Callable[[], Any]) -> Any:
    """Call `function`; whatever it raises, `SystemExit` included, becomes a CandidateError with a sentence."""
    grad = torch.is_grad_enabled()
    try:
        with _quiet() if watchdog.quiet else contextlib.nullcontext():
            result = watchdog.run(function)
        if torch.is_grad_enabled() != grad:
            raise CandidateError("raised", _GRAD_LEFT)
        return result
    except CandidateError:
        raise
    except _TimedOut:
        raise CandidateError("timeout", endless(watchdog.seconds)) from None
    except NotImplementedError as error:
        raise CandidateError(
            "not_started", "Not started: the cell still raises NotImplementedError.", error
        ) from error
    except RecursionError as error:
        raise CandidateError(
            "raised", "Your code calls itself without end (RecursionError).", error
        ) from error
    except SystemExit as error:
        message = "Your code tried to end Python (SystemExit); return a value instead."
        raise CandidateError("raised", message, error) from error
    except BaseException as error:
        try:
            what = " ".join(str(error).split())[:300]
        except Exception:
            what = "(its text cannot be shown)"
        message = f"Your code raised {type(error).__name__}: {what}{_place(error)}"
        raise CandidateError("raised", message, error) from error
    finally:
        torch.set_grad_enabled(grad)


@contextlib.contextmanager
def preserved(candidate: object) -> Iterator[None]:
    """Seeds, default dtype and device, threads, grad mode, log handlers and the candidate's own mode are afterwards as they
    were before."""
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    dtype, threads, grad = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    device, anomaly, handlers = (
        torch.get_default_device(),
        torch.is_anomaly_enabled(),
        [*logging.root.handlers],
    )
    on_cpu = contextlib.nullcontext() if device.type == "cpu" else torch.device("cpu")
    deterministic, limit, numpy_errors = (
        torch.are_deterministic_algorithms_enabled(),
        sys.getrecursionlimit(),
        np.geterr(),
    )
    modes = [(m, m.training) for m in candidate.modules()] if isinstance(candidate, nn.Module) else []
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), on_cpu:
            warnings.simplefilter("ignore")
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
            yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_anomaly_enabled(anomaly)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        logging.root.handlers[:] = handlers  # one made now would write into our sink for ever
        if (
            torch.are_deterministic_algorithms_enabled() != deterministic
        ):  # the call alone imports a second of modules
            torch.use_deterministic_algorithms(deterministic)
        sys.setrecursionlimit(limit)
        np.seterr(**numpy_errors)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for module, training in modes:
            module.training = training
