"""10: one small batch is learnt by heart, on five seeds that the notebook does not use."""

from . import margins


def test_margins() -> None:
    found = margins.run("10_transformer", seeds="seeds = range(5, 10)")  # its own assertions hold, too
    print("largest loss on the batch after", found["steps"], "steps:", found["curves"][:, -1].max().item())
    print("smallest first loss:", found["curves"][:, 0].min().item())
    assert found["curves"][:, -1].max() < 0.03
