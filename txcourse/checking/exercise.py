"""What an exercise consists of: statement, reference, tests, and the model of its known mistakes."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from txcourse.checking import matching
from txcourse.checking.compare import difference
from txcourse.checking.guard import CandidateError
from txcourse.checking.matching import Free, Matcher, Names, left_out
from txcourse.checking.subject import ModuleSubject, Subject


class Wrong(Exception):
    """A test's finding: a sentence, the mistake when the finding proves it, and two matrices to draw (wanted, got)."""

    def __init__(
        self, sentence: str, mistake: str | None = None, picture: tuple[Tensor, Tensor] | None = None
    ):
        super().__init__(sentence)
        self.sentence, self.mistake, self.picture = sentence, mistake, picture


@dataclass(frozen=True)
class Test:
    """One mechanism. `title` is what the learner reads; `crash` names the mistake proved by raising in this test alone."""

    name: str
    title: str
    run: Callable[["Context"], None]
    crash: str | None = None


@dataclass(frozen=True)
class Mistake:
    """A switch of the mistaken reference. Of switches with the same axis at most one is on."""

    id: str
    axis: str
    sentence: str


@dataclass(frozen=True)
class Probe:
    """One call: of a function, or of a method of a module; only the outputs at `where` count."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    method: str = "forward"
    where: Tensor | None = None


@dataclass(frozen=True)
class Exercise:
    name: str
    notebook: str
    points: int
    difficulty: int
    minutes: int
    hints: tuple[str, str, str]
    reference: Callable[..., Any]
    tests: tuple[Test, ...]
    mistakes: tuple[Mistake, ...] = ()
    variant: Callable[[frozenset[str]], Callable[..., Any]] | None = None  # the reference with these mistakes
    neutral: tuple[str, ...] = ()  # switches that are a matter of taste here, and must not hide a mistake
    probes: Callable[[int], Sequence[Probe]] | None = None  # the calls on which a mistake is recognised
    sizes: dict[str, Any] | None = (
        None  # for a module: the arguments with which it is constructed for `probes`
    )
    as_function: Callable[[Any], Callable[..., Any]] | None = None  # for other classes: what `probes` call
    optional: tuple[
        tuple[str, ...], ...
    ] = ()  # sets of parameters (patterns of names) that a right module may lack
    also_right: tuple[frozenset[str], ...] = ()  # switches with which the reference is right as well
    settings: tuple[dict[str, Any], ...] = ({},)  # changes of `sizes` with which a mistake must show alike
    eps: float | None = None  # of a right module's norms, where a smaller one is a matter of taste
    precision: float = 1e-8  # noise that a right module may show, from constants rounded to float32
    not_allowed: tuple[str, ...] = ()
    stretch: bool = False

    def construct(self, subject: Subject, **changes: Any) -> ModuleSubject:
        """A module of the candidate's with the exercise's sizes and `changes`: by position as far as possible, since
        an answer may give its arguments other names."""
        sizes = {**(self.sizes or {}), **changes}
        args = []
        for name in inspect.signature(self.reference).parameters:
            if name not in sizes:
                break
            args.append(sizes.pop(name))
        return subject.build(*args, **sizes)


class Context:
    """What a test sees: the candidate as a subject, the reference, and random numbers of this run's seed."""

    def __init__(self, exercise: Exercise, subject: Subject, seed: int):
        self.exercise, self.subject, self.seed = exercise, subject, seed
        self.reference = exercise.reference
        self.generator = torch.Generator().manual_seed(seed)
        self._twins: dict[str, tuple[ModuleSubject, nn.Module] | None] = {}
        self._pairings: list[np.ndarray] = []  # found for other twins of this run, tried first
        self._names = Names()  # the same by name
        self._paired: dict[int, tuple[Free, np.ndarray]] = {}  # by the id of the reference's twin

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=self.generator, dtype=dtype)

    def randint(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def expect(
        self, got: Any, want: Any, what: str = "the result", *, mistake: str | None = None, **how: Any
    ) -> None:
        """Raises Wrong when `got` differs from `want`; see compare.difference for `how`."""
        text = difference(got, want, what=what, **how)
        if text is not None:
            if got is None:
                mistake = "returns_nothing"
            elif isinstance(want, Tensor) and not isinstance(got, Tensor):
                mistake = mistake or f"returns_{type(got).__name__}_not_tensor"
            if text.startswith(("the ", "item ")):  # names of code, such as dQ, keep their first letter
                text = text[0].upper() + text[1:]
            raise Wrong(text, mistake, _picture(want, got))

    def same(self, *args: Any, what: str = "the result", mistake: str | None = None, **how: Any) -> None:
        """The candidate's result for `args` equals the reference's."""
        self.expect(self.subject.call(*args), self.reference(*args), what, mistake=mistake, **how)

    def same_gradients(
        self,
        *args: Any,
        wrt: dict[str, int],
        ours: Subject | ModuleSubject | None = None,
        theirs: Callable[..., Any] | None = None,
        output: int | None = None,
        rtol: float = 1e-6,
        atol: float = 1e-9,
        **kwargs: Any,
    ) -> None:
        """The gradients with respect to the named arguments equal the reference's; give float64 `args`.

        `ours` and `theirs` stand in for the candidate and the reference, as a pair of twins does.
        """
        ours = ours or self.subject
        judge = Subject(theirs or self.reference, self.subject.watchdog)
        how: dict[str, Any] = {"wrt": list(wrt.values()), "seed": self.seed, **kwargs}
        if output is not None:
            how["output"] = output
        try:
            value, got = ours.gradients(*args, **how)
        except CandidateError as error:
            if error.error is None and error.kind == "raised":
                raise Wrong(error.sentence, "gradient_cut_off") from error
            raise
        wanted, want = judge.gradients(*args, **how)
        right = (
            difference(value, wanted) is None
        )  # of a wrong value the gradient is wrong too: that proves nothing
        for name, g, w in zip(wrt, got, want, strict=True):
            cut = not g.any() and bool(w.any())
            mistake = f"no_gradient_to_{name}" if cut else "wrong_gradient" if right else None
            self.expect(g, w, f"the gradient with respect to {name}", mistake=mistake, rtol=rtol, atol=atol)

    def build(self, **changes: Any) -> ModuleSubject:
        """A module of the candidate's, constructed with the exercise's sizes and `changes`, in evaluation mode."""
        try:
            built = self.exercise.construct(self.subject, **changes)
        except CandidateError as error:
            if "before Module.__init__() call" in str(error.error):
                raise Wrong(
                    f"{error.sentence}. Call super().__init__() first.", "super_init_missing"
                ) from error
            raise
        if not built.is_module:
            raise Wrong("Constructing it should give an nn.Module.", "not_a_module")
        built.train(False)
        return built

    def twin(self, **changes: Any) -> tuple[ModuleSubject, Any]:
        """The candidate's module and the reference's with equal random weights, in float64 and evaluation mode.

        Raises Wrong when no pairing of their weights makes the two compute the same.
        """
        key = repr(sorted(changes.items()))
        if key not in self._twins:
            self._twins[key] = self._find_twin(changes)
        twins = self._twins[key]
        if twins is None:
            raise Wrong("However your weights are set, the module does not compute what the formula says.")
        return twins

    def respond(self, theirs: nn.Module, probes: Sequence[Probe]) -> tuple[list[Any], Tensor]:
        """Outputs and parameters' gradient of a twin of the reference, the gradient in the order of the candidate's."""
        free, pairing = self._paired[id(theirs)]
        values, gradient = free.respond(probes, self.seed)
        return values, gradient[pairing]

    def copy_weights(self, ours: ModuleSubject, theirs: nn.Module) -> None:
        """Give `ours` the weights that `theirs`, its twin, has now."""
        free, pairing = self._paired[id(theirs)]
        ours.write(free.read()[pairing])

    def _find_twin(self, changes: dict[str, Any]) -> tuple[ModuleSubject, nn.Module] | None:
        exercise, sizes = self.exercise, {**(self.exercise.sizes or {}), **changes}
        assert exercise.probes is not None
        ours, probes = self.build(**changes).double(), exercise.probes(self.seed)
        ours.sharpen([b for b in self.reference(**sizes).double().buffers() if b.is_floating_point()])
        if exercise.eps is not None:
            ours.usual_eps(exercise.eps)
        right = [self.reference]
        failed = any(twins is None for twins in self._twins.values())  # then a short look is enough
        if exercise.variant is not None and not failed:
            right += [exercise.variant(on) for on in exercise.also_right]
        made = {i: {} for i in range(len(right))}  # type: dict[int, dict[tuple[str, ...], Free]]
        for precision in sorted({matching.PRECISION, exercise.precision}):
            matcher = Matcher(ours, probes, self.seed, precision)
            for i, construct in enumerate(right):
                for fixed in omissions(parameter_sizes(construct(**sizes)), ours.size(), exercise.optional):
                    if fixed not in made[i]:
                        made[i][fixed] = Free(construct(**sizes).double().eval(), fixed)
                    theirs = made[i][fixed]
                    guesses = [*self._names.guess(ours.parameters(), theirs), *self._pairings]
                    pairing = matcher.pair(theirs, guesses, short=failed)
                    if pairing is not None:
                        self._pairings.append(pairing)
                        matcher.agree(theirs, pairing, probes, self.seed)  # leaves both with equal weights
                        self._names.learn(ours.parameters(), theirs, pairing, probes, self.seed)
                        self._paired[id(theirs.module)] = theirs, pairing
                        return ours, theirs.module
        return None


def parameter_sizes(module: nn.Module) -> list[tuple[str, int]]:
    return [(n, p.numel()) for n, p in module.named_parameters()]


def omissions(
    named: Sequence[tuple[str, int]], size: int, optional: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """The sets of optional parameters without which those in `named` are `size` numbers; none when nothing is missing."""
    total = sum(k for _, k in named)
    if total == size:
        return [()]
    return [fixed for fixed in optional if total - sum(k for n, k in named if left_out(n, fixed)) == size]


def _picture(want: Any, got: Any) -> tuple[Tensor, Tensor] | None:
    if not (isinstance(want, Tensor) and isinstance(got, Tensor)) or want.shape != got.shape or want.ndim < 2:
        return None
    if want.shape[-1] > 32 or want.shape[-2] > 32:
        return None
    first = [m.reshape(-1, *m.shape[-2:])[0].detach().double() for m in (want, got)]
    return first[0], first[1]
