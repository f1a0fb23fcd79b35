"""Find out which parameter of a module is which, by what it does.

A learner may lay out the weights in any way: fused or one matrix per head, transposed, as a convolution, under any
name. Two modules compute the same function when their single weights can be paired so that both give equal outputs
for all values. The pairing is found as one tests graphs for isomorphism, by refinement of colours:

1. all weights have one colour, and a colour is one value: both modules then compute the same, whatever the layout;
2. the gradient of a random combination of the outputs, which differs between weights with different jobs, splits the
   colours; each new colour gets a value of its own, and so on until nothing splits any more;
3. weights that still share a colour are interchangeable (the channels inside a head, the hidden units of a
   feed-forward): one of them, in either module, gets a colour of its own, and step 2 goes on.

When the modules compute different functions, outputs or colours disagree, mostly in the first round.
"""

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from txcourse.checking.compare import difference
from txcourse.checking.subject import outputs, respond

PRECISION = 1e-8  # relative; float64 on both sides


class Adjustable(Protocol):
    def size(self) -> int: ...
    def shapes(self) -> list[tuple[int, ...]]: ...
    def write(self, vector: Tensor) -> None: ...
    def outputs(self, probes: Sequence[Any]) -> list[Any]: ...
    def respond(self, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]: ...


Named = Sequence[tuple[str, tuple[int, ...]]]  # names and shapes of parameters


def left_out(name: str, patterns: Sequence[str]) -> bool:
    """Whether the parameter's name fits one of `patterns`, in which * stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Free:
    """A reference module whose parameters with names like one of `fixed` stay zero (a candidate may have no biases there)."""

    def __init__(self, module: nn.Module, fixed: tuple[str, ...] = ()):
        self.module = module
        named = [(left_out(n, fixed), p) for n, p in module.named_parameters()]
        self._free = [p for out, p in named if not out]
        keep = [torch.full((p.numel(),), not out) for out, p in named]
        self._mask = torch.cat(keep or [torch.zeros(0, dtype=torch.bool)])
        self._shapes = [tuple(p.shape) for p in self._free]
        self.names = [n for n, _ in module.named_parameters() if not left_out(n, fixed)]
        # One vector in which all parameters lie: a search writes hundreds of times.
        self._vector = torch.cat([p.detach().reshape(-1) for p in self._free] or [torch.zeros(0)])
        start = 0
        for out, p in named:
            if out:
                p.data.zero_()
            else:
                p.data = self._vector[start : start + p.numel()].view(p.shape)
                start += p.numel()

    def size(self) -> int:
        return len(self._vector)

    def shapes(self) -> list[tuple[int, ...]]:
        return self._shapes

    def read(self) -> Tensor:
        return self._vector

    def write(self, vector: Tensor) -> None:
        self._vector.copy_(vector)

    def outputs(self, probes: Sequence[Any]) -> list[Any]:
        return outputs(self.module, probes)

    def respond(self, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]:
        values, gradient = respond(self.module, probes, seed)
        return values, gradient[self._mask]


class Names:
    """Where the numbers of a candidate's parameters belong, by name: learnt on one size of a module, guessed for another."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[str, int] | None]] = {}  # name and index in the reference
        self._met: set[str] = set()  # the reference's parameters so far

    def learn(self, ours: Named, theirs: Free, pairing: np.ndarray, probes: Sequence[Any], seed: int) -> None:
        """Note where the numbers of `ours` belong by `pairing`.

        Numbers that have no say here (the embedding of an unused token) were paired at random: nothing is known of them.
        """
        if not theirs.size():
            return
        gradient = theirs.respond(probes, seed)[1].abs()
        has_say = (gradient > 1e-12 * gradient.max()).tolist()
        named = zip(theirs.names, theirs.shapes(), strict=True)
        places = [(n, i) for n, shape in named for i in range(math.prod(shape))]
        self._met.update(theirs.names)
        start = 0
        for name, shape in ours:
            end = start + math.prod(shape)
            self._places[name] = [places[i] if has_say[i] else None for i in pairing[start:end]]
            start = end

    def guess(self, ours: Named, theirs: Free) -> list[np.ndarray]:
        """The pairing in which every parameter has the place that was learnt, and new ones those that are left; or none."""
        size = sum(math.prod(shape) for _, shape in ours)
        if not self._places or size != theirs.size():
            return []
        spans, start = {}, 0
        for name, shape in zip(theirs.names, theirs.shapes(), strict=True):
            spans[name] = range(start, start + math.prod(shape))
            start += math.prod(shape)
        pairing, start = np.full(size, -1), 0
        owners: list[tuple[int, int, list[str]]] = []
        strangers: list[tuple[int, int]] = []
        for name, shape in ours:
            places, end = self._places.get(name, []), start + math.prod(shape)
            names = {place[0] for place in places if place}
            if len(places) == end - start and names <= spans.keys():
                pairing[start:end] = [-1 if p is None else spans[p[0]][p[1]] for p in places]
                owners.append((start, end, sorted(names)))
            else:
                strangers.append((start, end))
            start = end
        left = set(range(size)) - set(pairing.tolist())
        new = [name for name in spans if name not in self._met]
        for start, end in strangers:  # a new one takes the place of a new one of its size
            fits = [n for n in new if len(spans[n]) == end - start]
            if fits:
                pairing[start:end] = spans[fits[0]]
                left.difference_update(spans[fits[0]])
                new.remove(fits[0])
        for start, end, owned in owners:
            own = [i for n in owned for i in spans[n] if i in left]
            for k, i in zip(np.flatnonzero(pairing[start:end] < 0), own, strict=False):
                pairing[start + k] = i
                left.discard(i)
        if len(left) != (pairing < 0).sum():
            return []
        pairing[pairing < 0] = sorted(left)
        return [pairing]


class Used:
    """A module without the parameters on which its outputs for `probes` do not depend."""

    def __init__(self, module: Adjustable, probes: Sequence[Any], seed: int):
        self._module = module
        generator = torch.Generator().manual_seed(seed)
        self._vector = 0.6 * torch.randn(module.size(), generator=generator, dtype=torch.float64)
        module.write(self._vector)
        gradient = module.respond(probes[:1], seed)[1].abs()
        parts = gradient.split([math.prod(shape) for shape in module.shapes()])
        least = 1e-12 * float(gradient.max()) if len(gradient) else 0.0
        self.used = used = [bool((part > least).any()) for part in parts]
        self._shapes = [shape for shape, u in zip(module.shapes(), used, strict=True) if u]
        self._mask = torch.cat(
            [torch.full((len(part),), u) for part, u in zip(parts, used, strict=True)]
            or [torch.zeros(0, dtype=torch.bool)]
        )

    def size(self) -> int:
        return int(self._mask.sum())

    def shapes(self) -> list[tuple[int, ...]]:
        return self._shapes

    def write(self, vector: Tensor) -> None:
        self._vector[self._mask] = vector
        self._module.write(self._vector)

    def outputs(self, probes: Sequence[Any]) -> list[Any]:
        return self._module.outputs(probes)

    def respond(self, probes: Sequence[Any], seed: int) -> tuple[list[Any], Tensor]:
        values, gradient = self._module.respond(probes, seed)
        return values, gradient[self._mask]


def same_output(probe: Any, a: Any, b: Any, precision: float = PRECISION) -> bool:
    rtol, atol = 100 * precision, precision
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        return bool((close if probe.where is None else close | ~probe.where).all())
    return difference(a, b, rtol=rtol, atol=atol) is None


def _same_outputs(probes: Sequence[Any], ours: list[Any], theirs: list[Any], precision: float) -> bool:
    return all(same_output(p, a, b, precision) for p, a, b in zip(probes, ours, theirs, strict=True))


class Matcher:
    """A candidate that is to be matched with one or many references."""

    def __init__(self, candidate: Adjustable, probes: Sequence[Any], seed: int, precision: float = PRECISION):
        self._candidate, self._probes, self._seed = candidate, probes, seed
        self._precision = precision
        self._same: dict[tuple[int, ...], Tensor] = {}  # the value of every tensor of this shape
        self._by_shape: tuple[list[Any], list[Tensor]] | None = None
        self._order = np.arange(candidate.size())
        self._constant = torch.full((candidate.size(),), 0.5, dtype=torch.float64)
        self._at_random, self._at_constant = [self._outputs(v) for v in (self._random(seed), self._constant)]

    def _random(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return 0.6 * torch.randn(self._candidate.size(), generator=generator, dtype=torch.float64)

    def _outputs(self, values: Tensor) -> list[Any]:
        self._candidate.write(values)
        return self._candidate.outputs(self._probes)

    def pair(
        self, reference: Adjustable, guesses: Sequence[np.ndarray] = (), short: bool = False
    ) -> np.ndarray | None:
        """Element i of the candidate's weights is element `pairing[i]` of the reference's; None without a pairing.

        `short`: only guesses and the same parameters in another order are tried.
        """
        if self._candidate.size() != reference.size():
            return None
        if self._gives(
            reference, self._random(self._seed), self._at_random
        ):  # the same layout: most often so
            return self._order
        if not self._gives(reference, self._constant, self._at_constant):
            return None
        if (by_tensor := self.pair_tensors(reference)) is not None:
            return by_tensor
        n = reference.size()
        for guess in guesses:  # another size of the module may have more at its end, a last norm for example
            longer = np.concatenate([guess[:n], np.arange(len(guess), n)])
            if longer.max() < n and self.agree(reference, longer, self._probes, self._seed):
                return longer
        if short:
            return None
        # Where noise is allowed for it may also grow on the way: be less exact then; `agree` decides in the end.
        for looser in (1,) if self._precision == PRECISION else (1, 30, 1000):
            precision = looser * self._precision
            for at_once, probes in ((True, 1), (True, 2), (False, 2)):
                pairing, chosen = _refine(
                    self._candidate, reference, self._probes[:probes], self._seed, at_once, precision
                )
                if pairing is not None and self.agree(reference, pairing, self._probes, self._seed):
                    return pairing
                if pairing is None and not chosen:  # they differ whatever is chosen
                    break
        return None

    def _gives(self, reference: Adjustable, values: Tensor, wanted: list[Any]) -> bool:
        reference.write(values)
        outputs = zip(self._probes, wanted, strict=True)
        return all(
            same_output(p, reference.outputs([p])[0], w, self._precision) for p, w in outputs
        )  # stops at the first difference

    def pair_tensors(self, reference: Adjustable) -> np.ndarray | None:
        """A pairing of whole tensors of equal shape: the same parameters, in another order.

        Tensors of one shape hold equal values, so both modules compute the same however they are paired; the
        gradients then tell which is which.
        """
        shapes, wanted = self._candidate.shapes(), reference.shapes()
        if sorted(shapes) != sorted(wanted):
            return None
        value = self._same
        if not value:
            generator = torch.Generator().manual_seed(self._seed)
            for shape in sorted(set(shapes)):
                value[shape] = 0.6 * torch.randn(shape, generator=generator, dtype=torch.float64).reshape(-1)
        if self._by_shape is None:
            self._candidate.write(torch.cat([value[s] for s in shapes]))
            outputs, gradient = self._candidate.respond(self._probes[:1], self._seed)
            self._by_shape = outputs, list(gradient.split([len(value[s]) for s in shapes]))
        outputs, ours = self._by_shape
        reference.write(torch.cat([value[s] for s in wanted]))
        probe = self._probes[0]
        if not same_output(probe, reference.outputs([probe])[0], outputs[0], self._precision):
            return None
        theirs = reference.respond([probe], self._seed)[1].split([len(value[s]) for s in wanted])
        largest = max((float(g.abs().max()) for g in ours if len(g)), default=0.0)
        starts = np.cumsum([0, *(len(value[s]) for s in wanted)])
        free, parts = list(range(len(wanted))), []
        for shape, gradient in zip(shapes, ours, strict=True):
            near = [(float((theirs[j] - gradient).abs().max()), j) for j in free if wanted[j] == shape]
            distance, j = min(near)
            if not distance <= 100 * self._precision * largest:
                return None
            free.remove(j)
            parts.append(np.arange(starts[j], starts[j + 1]))
        pairing = np.concatenate(parts or [np.arange(0)])
        return pairing if self.agree(reference, pairing, self._probes, self._seed) else None

    def agree(self, reference: Adjustable, pairing: np.ndarray, probes: Sequence[Any], seed: int) -> bool:
        """Whether both give equal outputs with equal random weights, paired like this (they keep these weights)."""
        values = self._random(seed)
        reference.write(values)
        self._candidate.write(values[pairing])
        return _same_outputs(
            probes, self._candidate.outputs(probes), reference.outputs(probes), self._precision
        )


def _refine(
    candidate: Adjustable,
    reference: Adjustable,
    probes: Sequence[Any],
    seed: int,
    at_once: bool,
    precision: float,
) -> tuple[np.ndarray | None, bool]:
    """The pairing, and whether a choice among interchangeable weights was made on the way."""
    made = False
    n = candidate.size()
    rng = np.random.default_rng(seed)
    colours = np.zeros(2 * n, dtype=int)  # the candidate's, then the reference's
    waiting: np.ndarray | None = None  # the members of the colour from which one was taken last
    for step in range(20 * n):
        values = torch.from_numpy(
            rng.choice([-1, 1], colours.max() + 1) * rng.uniform(0.3, 1.0, colours.max() + 1)
        )
        if step == 0:
            values = torch.full_like(values, 0.5)
        candidate.write(values[colours[:n]])
        reference.write(values[colours[n:]])
        ours, our_gradient = candidate.respond(probes, seed + step)
        theirs, their_gradient = reference.respond(probes, seed + step)
        if not _same_outputs(probes, ours, theirs, precision):
            return None, made
        gradient = torch.cat([our_gradient, their_gradient]).numpy()
        if not np.isfinite(gradient).all():
            return None, made
        before = colours.max()
        colours = _split(colours, gradient, precision)
        counts = np.bincount(colours[:n], minlength=colours.max() + 1)
        if (counts != np.bincount(colours[n:], minlength=colours.max() + 1)).any():
            return None, made
        if colours.max() > before:
            continue
        alive = np.zeros(len(counts))
        np.maximum.at(alive, colours, np.abs(gradient))
        shared = np.flatnonzero((counts > 1) & (alive > precision * max(alive.max(), 1e-30)))
        if not len(shared):
            if step and (counts > 1).any() and step < 3:
                continue
            break
        made = True
        chosen = shared[np.argmin(counts[shared])]
        members, partners = np.flatnonzero(colours[:n] == chosen), n + np.flatnonzero(colours[n:] == chosen)
        whole = (
            at_once
            and waiting is not None
            and set(members) <= set(waiting)
            and len(members) == len(waiting) - 1
        )
        take = len(members) - 1 if whole else 1
        fresh = colours.max() + 1 + np.arange(take)
        colours[members[:take]], colours[partners[:take]] = fresh, fresh
        waiting = members
    pairing = np.empty(n, dtype=int)
    pairing[np.argsort(colours[:n], kind="stable")] = np.argsort(colours[n:], kind="stable")
    return pairing, made


def _split(colours: np.ndarray, gradient: np.ndarray, precision: float) -> np.ndarray:
    """New colours: the old ones, split wherever the sorted gradients leave a gap."""
    order = np.lexsort((gradient, colours))
    gap = np.diff(gradient[order]) > precision * max(np.abs(gradient).max(), 1e-30)
    fresh = np.concatenate([[0], np.cumsum(gap | (np.diff(colours[order]) > 0))])
    result = np.empty_like(colours)
    result[order] = fresh
    return result
