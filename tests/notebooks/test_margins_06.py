"""06: order needs positions, and what happens beyond the trained length, on five seeds that the notebook does not use."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run(
        "06_positional_encoding", seeds="seeds = range(5, 10)"
    )  # its own assertions hold, too
    reached, beyond = found["reached"], found["beyond"]
    print("no positions, best seed:", max(reached["no positions"]), "bound:", found["best_without_order"])
    print("sinusoidal and learned, worst seed:", min(reached["sinusoidal"]), min(reached["learned"]))
    print("at length 32: sinusoidal, best seed:", beyond["sinusoidal"][:, 2].max().item())
    print("at length 32: rotary, worst seed:", beyond["rotary"][:, 2].min().item())
    assert beyond["rotary"][:, 2].min() > beyond["sinusoidal"][:, 2].max() + 0.1
