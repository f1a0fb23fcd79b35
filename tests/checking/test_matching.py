"""Parameters are matched by what they do, whatever their layout; modules that compute something else are not."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from txcourse.checking import Probe
from txcourse.checking.guard import Watchdog
from txcourse.checking.matching import Free, Matcher
from txcourse.checking.subject import ModuleSubject


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 5), nn.Linear(5, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.second(self.first(x).relu()))


class Shuffled(nn.Module):
    """The same function: other order, transposed, one matrix cut in two, hidden units permuted."""

    def __init__(self, second_norm: bool = False) -> None:
        super().__init__()
        self.shift, self.gain = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(4))
        self.out = nn.Parameter(torch.randn(5, 4))
        self.left, self.right = nn.Linear(4, 2), nn.Parameter(torch.randn(4, 3))
        self.right_bias, self.out_bias = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1, 4))
        self.second_norm = second_norm

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.cat([x @ self.right + self.right_bias, self.left(x)], dim=-1).relu()
        y = x + hidden @ self.out + self.out_bias
        if self.second_norm:
            y = nn.functional.layer_norm(y, (4,))
        return nn.functional.layer_norm(y, (4,), self.gain, self.shift)


def probes(seed: int) -> list[Probe]:
    return [
        Probe((torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),))
    ]


def pair(candidate: nn.Module, reference: nn.Module, seed: int = 0) -> np.ndarray | None:
    watchdog = Watchdog(5.0)
    try:
        matcher = Matcher(ModuleSubject(candidate.double(), watchdog), probes(seed), seed)
        return matcher.pair(Free(reference.double()))
    finally:
        watchdog.close()


@pytest.mark.parametrize("seed", range(5))
def test_any_layout_is_matched(seed: int) -> None:
    candidate, reference = Shuffled().double(), Mlp().double()
    pairing = pair(candidate, reference, seed)
    assert pairing is not None and sorted(pairing) == list(range(len(pairing)))
    values = torch.randn(len(pairing), dtype=torch.float64)
    for module, vector in ((reference, values), (candidate, values[pairing])):
        nn.utils.vector_to_parameters(vector, module.parameters())
    x = torch.randn(7, 4, dtype=torch.float64)
    torch.testing.assert_close(candidate(x), reference(x))


@pytest.mark.parametrize("seed", range(5))
def test_another_function_is_not(seed: int) -> None:
    assert pair(Shuffled(second_norm=True), Mlp(), seed) is None


def test_another_number_of_parameters_is_not() -> None:
    assert pair(nn.Linear(4, 4), nn.Linear(4, 4, bias=False)) is None


def test_parameters_that_may_be_missing_stay_zero() -> None:
    reference = nn.Linear(4, 4).double()
    free = Free(reference, ("bias",))
    assert free.size() == 16 and not reference.bias.any()


def test_shared_weights_differ_from_two_of_them() -> None:
    class Twice(nn.Module):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a if shared else nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).relu())

    assert pair(Twice(True), Twice(False)) is None
    assert pair(Twice(True), Twice(True)) is not None
