"""05: heads specialise, and one head is not enough, on five seeds that the notebook does not use."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run(
        "05_multi_head_attention", seeds="seeds = range(5, 10)"
    )  # its own assertions hold, too
    print("smallest share of a head's weight on its relation:", found["looks_at"].max(-1).values.min().item())
    print("worst relation, 3 heads:", found["accuracy_3"].min().item())
    print("worst relation, 1 head, best seed:", found["accuracy_1"].min(1).values.max().item())
    assert found["looks_at"].max(-1).values.min() > 0.9
