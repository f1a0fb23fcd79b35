"""16: what each kind of layer can still do, on five seeds that the notebook does not use."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run(
        "16_efficient_attention",
        seeds="seeds = range(5, 10)",
        lengths="lengths = lengths[:5]",
    )  # its own assertions hold, too
    recall, local = found["recall"], found["local"]
    for task, reached in (("recall", recall), ("local", local)):
        for kind, accuracy in reached.items():
            print(f"{task}, {kind}: {accuracy.min():.3f} to {accuracy.max():.3f}")
    points = min(recall[kind].min() for kind in ("full", "grouped", "window and global"))
    assert points > recall["linear"].max() + 0.05 > recall["state space"].max() + 0.2
    assert min(local["window"].min(), local["state space"].min()) > local["linear"].max() + 0.1
