"""Name the mistake: find the smallest set of switches with which the reference behaves as the candidate does."""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from txcourse.checking.compare import difference
from txcourse.checking.exercise import Exercise, Mistake, Probe, omissions
from txcourse.checking.guard import CandidateError, Unwatched, Watchdog
from txcourse.checking.matching import Adjustable, Free, Matcher, Names, Used, left_out
from txcourse.checking.subject import ModuleSubject, Subject

_SECOND_SEED = 7919  # a name counts only when it also holds on inputs of this other seed


def diagnose(
    exercise: Exercise,
    subject: Subject,
    seed: int,
    watchdog: Watchdog | Unwatched,
    seconds: float,
    most: int = 2,
) -> tuple[Mistake, ...]:
    """The mistakes, `most` at most, that together reproduce the candidate's behaviour on two seeds; empty when none or if it is right."""
    if exercise.variant is None or exercise.probes is None:
        return ()
    deadline = time.thread_time() + seconds
    explain = _Module if exercise.sizes is not None else _Function
    try:
        explained = explain(exercise, subject, seed, watchdog)
    except CandidateError:
        return ()
    neutral = [frozenset(), *(frozenset([switch]) for switch in exercise.neutral)]
    if any(explained.is_like(taste) for taste in neutral):
        return ()
    ways = [*explained.ways]
    if explained.has_unused:
        ways.insert(1, "used")
    searches = [(1, neutral[0], way) for way in ways[:-1]]  # the likely ones first
    searches += [(1, taste, way) for way in ways for taste in neutral]
    searches += [(2, taste, way) for way in explained.ways for taste in neutral if most > 1]
    for count, taste, way in dict.fromkeys(searches):
        for mistakes in itertools.combinations(exercise.mistakes, count):
            if len({m.axis for m in mistakes}) < count:
                continue
            if explained.is_like(taste.union(m.id for m in mistakes), way):
                return mistakes
            if time.thread_time() > deadline:
                return ()
        if way == "used" and explained.is_like(taste, way):
            return (_UNUSED,)
    return ()


_UNUSED = Mistake(
    "unused_parameters", "", "Your module holds parameters that its output does not depend on: they are made and never used."
)  # fmt: skip


def _same(a: Any, b: Any) -> bool:
    return difference(a, b, rtol=2e-5, atol=1e-6) is None and (a is None) == (b is None)


class _Function:
    has_unused = False

    def __init__(self, exercise: Exercise, subject: Subject, seed: int, watchdog: Watchdog | Unwatched):
        assert exercise.variant is not None and exercise.probes is not None
        self._variant, self._watchdog, self._adapter = exercise.variant, watchdog, exercise.as_function
        subject = subject.through(self._adapter)
        self._probes = [*exercise.probes(seed), *exercise.probes(seed + _SECOND_SEED)]
        self._outcomes = [_outcome(subject, probe) for probe in self._probes]
        right = Subject(exercise.reference, watchdog).through(self._adapter)
        wrong = [
            o for p, o in zip(self._probes, self._outcomes, strict=True) if not _same(_outcome(right, p), o)
        ]
        if all(
            isinstance(o, str) for o in wrong
        ):  # it differs from the reference by raising alone: no evidence
            raise CandidateError("raised", "no result to recognise a mistake by")
        # A candidate may raise in a special case besides: its mistake still shows where it gives a result.
        self.ways = ("any", "results") if any(isinstance(o, str) for o in self._outcomes) else ("any",)

    def is_like(self, on: frozenset[str], way: str = "any") -> bool:
        subject = Subject(self._variant(on), self._watchdog).through(self._adapter)
        return all(
            _same(_outcome(subject, p), o)
            for p, o in zip(self._probes, self._outcomes, strict=True)
            if way == "any" or not isinstance(o, str)
        )


def _outcome(subject: Subject, probe: Probe) -> Any:
    """What a call gives and leaves behind in its arguments; "raised" when it raises."""
    try:
        value, after = subject.observe(*probe.args, **probe.kwargs)
    except CandidateError as error:
        if error.kind == "timeout":
            raise
        return f"raised {type(error.error).__name__}" if isinstance(error.error, ValueError) else "raised"
    return _comparable((value, after))


def _comparable(value: Any) -> Any:
    """Dictionaries and objects as lists, so that difference() looks inside."""
    if isinstance(value, dict):
        return [[_comparable(k), _comparable(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_comparable(v) for v in value]
    return value


_frees: dict[tuple[Any, ...], Free] = {}  # constructing modules is most of a search's time


def _mistaken(
    exercise: Exercise, setting: dict[str, Any], on: frozenset[str], fixed: tuple[str, ...] = ()
) -> Free:
    """The reference with the mistakes `on`, without the parameters `fixed`."""
    key = (exercise.name, repr(setting), on, fixed)
    if key in _frees:
        return _frees[key]
    assert exercise.variant is not None and exercise.sizes is not None
    free = Free(exercise.variant(on)(**{**exercise.sizes, **setting}).double().eval(), fixed)
    if len(on) < 2:  # there are thousands of pairs
        _frees[key] = free
    return free


class _Module:
    """The candidate, constructed in each of the exercise's settings: a mistake must show alike in all of them."""

    ways = ("tensors", "any")

    def __init__(self, exercise: Exercise, subject: Subject, seed: int, watchdog: Watchdog | Unwatched):
        first, *others = exercise.settings
        self._built: list[_Built] = [_Built(exercise, first, subject, seed)]
        self._others = [partial(_Built, exercise, setting, subject, seed) for setting in others]
        self.has_unused = self._built[0].has_unused

    def _settings(self) -> Iterator["_Built"]:
        yield from self._built
        while self._others:  # made when the first one does not tell
            make = self._others.pop(0)
            try:
                built = make()
            except CandidateError as error:
                if error.kind == "timeout":
                    raise
                continue
            self._built.append(built)
            yield built

    def is_like(self, on: frozenset[str], way: str = "any") -> bool:
        """Whether the reference with these mistakes behaves alike.

        `way`: "tensors", with the same parameters in any order, the quick way; "any", in any layout; "used", without
        the parameters that have no say.
        """
        names = Names()  # what one setting teaches about the layout helps with the next
        return all(built.is_like(on, way, names) for built in self._settings())


class _Built:
    def __init__(self, exercise: Exercise, setting: dict[str, Any], subject: Subject, seed: int):
        self._exercise, self._setting, self._seed = exercise, setting, seed
        assert exercise.variant is not None and exercise.probes is not None and exercise.sizes is not None
        self._ours: ModuleSubject = exercise.construct(subject, **setting)
        if not self._ours.is_module:
            raise CandidateError("raised", "not a module")
        self._ours.train(False)
        self._ours.double()
        self._probes, self._raising = self._works(exercise.probes(seed))
        self._fresh, _ = self._works(exercise.probes(seed + _SECOND_SEED))
        if not self._probes:
            raise CandidateError("raised", "no probe gives a result")
        first, again = self._ours.outputs(self._probes[:1]) + self._ours.outputs(self._probes[:1])
        if not isinstance(first, Tensor) or difference(again, first) is not None:
            raise CandidateError("raised", "not a tensor, or another one each time: the tests say so")
        sizes = {**exercise.sizes, **setting}
        self._ours.sharpen(
            [b for b in exercise.reference(**sizes).double().buffers() if b.is_floating_point()]
        )
        if exercise.eps is not None:
            self._ours.usual_eps(exercise.eps)
        self._matcher = Matcher(self._ours, self._probes, seed, exercise.precision)

    @cached_property
    def _used(self) -> Used:
        return Used(self._ours, self._probes, self._seed)

    @cached_property
    def has_unused(self) -> bool:
        right = _mistaken(self._exercise, self._setting, frozenset())
        without_say = (
            right.size() - Used(right, self._probes, self._seed).size()
        )  # a bias of keys, for example
        return self._ours.size() - self._used.size() > without_say

    @cached_property
    def _matcher_of_used(self) -> Matcher:
        return Matcher(self._used, self._probes, self._seed, self._exercise.precision)

    def _works(self, probes: Sequence[Probe]) -> tuple[list[Probe], list[Probe]]:
        good, bad = [], []
        for probe in probes:
            try:
                self._ours.outputs([probe])
                good.append(probe)
            except CandidateError as error:
                if error.kind == "timeout":
                    raise
                bad.append(probe)
        return good, bad

    def is_like(self, on: frozenset[str], way: str, names: Names) -> bool:
        matcher = self._matcher_of_used if way == "used" else self._matcher
        ours = self._ours.parameters()
        try:
            for theirs in self._used_of(on) if way == "used" else self._free_of(on, way):
                if any(not self._raises(theirs, probe) for probe in self._raising):
                    continue
                if way == "tensors":
                    pairing = matcher.pair_tensors(theirs)
                else:
                    pairing = matcher.pair(
                        theirs, names.guess(ours, theirs) if isinstance(theirs, Free) else ()
                    )
                if pairing is not None and matcher.agree(
                    theirs, pairing, self._fresh, self._seed + _SECOND_SEED
                ):
                    if isinstance(theirs, Free):
                        names.learn(ours, theirs, pairing, self._probes, self._seed)
                    return True
        except (CandidateError, RuntimeError, ValueError, IndexError, TypeError):
            return False
        return False

    def _free_of(self, on: frozenset[str], way: str) -> Iterator[Adjustable]:
        whole = _mistaken(self._exercise, self._setting, on)
        named = list(zip(whole.names, whole.shapes(), strict=True))
        sizes = [(name, math.prod(shape)) for name, shape in named]
        for fixed in omissions(sizes, self._ours.size(), self._exercise.optional):
            shapes = [shape for name, shape in named if not left_out(name, fixed)]
            if way != "tensors" or sorted(shapes) == sorted(self._ours.shapes()):
                yield _mistaken(self._exercise, self._setting, on, fixed)

    def _used_of(self, on: frozenset[str]) -> Iterator[Adjustable]:
        whole = _mistaken(self._exercise, self._setting, on)
        if whole.size() >= self._ours.size():  # with as many parameters, unused ones are found without this
            return
        used = Used(whole, self._probes, self._seed).used
        named = zip(whole.names, whole.shapes(), used, strict=True)
        sizes = [(name, math.prod(shape)) for name, shape, has_say in named if has_say]
        for fixed in ((), *self._exercise.optional):
            if self._used.size() == sum(k for name, k in sizes if not left_out(name, fixed)):
                yield Used(_mistaken(self._exercise, self._setting, on, fixed), self._probes, self._seed)

    @staticmethod
    def _raises(module: Adjustable, probe: Probe) -> bool:
        try:
            module.outputs([probe])
        except Exception:
            return True
        return False


def sentence(mistakes: Sequence[Mistake]) -> str:
    return " ".join(m.sentence for m in mistakes)
