"""07: post-norm learns with warm-up only, pre-norm with and without, a stack without residual not at all; five seeds."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run("07_feed_forward_and_residuals", train_seeds="train_seeds = range(5)")
    final = found["final"]  # the notebook's own assertions have held for all five
    for (kind, name), losses in final.items():
        print(f"{kind}, {name}: loss from {losses.min():.4f} to {losses.max():.4f}")
    learnt = [final["post-norm", "warm-up"], final["pre-norm", "no warm-up"], final["pre-norm", "warm-up"]]
    assert max(losses.max() for losses in learnt) < 0.05
    assert final["post-norm", "no warm-up"].min() > 0.5
