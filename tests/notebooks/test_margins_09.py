"""09: random digits cannot be predicted, except by a mask that is off by one; on seeds that the notebook does not use."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run("09_decoder", seeds="seeds = range(5, 10)")  # its own assertions hold, too
    honest, cheating = found["honest"][:, -20:].mean(1), found["cheating"][:, -20:].mean(1)
    print(f"loss with the causal mask: from {honest.min():.3f}; off by one: up to {cheating.max():.3f}")
    assert honest.min() > 2.05 and cheating.max() < 0.5
