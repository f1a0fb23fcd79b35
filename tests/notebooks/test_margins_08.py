"""08: the small encoder reads every rule with positions and not without, on five seeds."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run("08_encoder", train_seeds="train_seeds = range(5)")  # its own assertions hold, too
    print("worst letter with positions:", found["with_order"].min())
    print("worst letter without, best seed:", found["without_order"].min(1).max())
    assert found["with_order"].min() > 0.98
