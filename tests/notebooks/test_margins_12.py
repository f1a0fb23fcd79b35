"""12: copying and reversing are learnt, and what each missing ingredient costs, on five seeds."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run(
        "12_training",
        seeds="seeds = range(5)",
        ablation_seeds="ablation_seeds = range(5)",
    )  # the notebook's own assertions have held for all five
    for name, shares in found["right"].items():
        print(f"{name}: unseen words right, worst seed {min(shares):.2f}")
    for name, losses in found["costs"].items():
        print(f"{name}: loss on unseen words from {losses.min():.2f} to {losses.max():.2f}")
    print("no warm-up costs, by factor, least and most:", *found["cost"].aminmax(dim=0))
    print("without smoothing, more certain than right by:", found["gap"][0.0], "with it:", found["gap"][0.1])
    costs = found["costs"]
    assert costs["nothing missing"].max() < 0.4 and costs["no shift"].min() > 4
    assert costs["bad batch, no clipping"].min() > costs["bad batch, clipping"].max() + 1
    assert costs["β₂ = 0.999, not corrected"].min() > costs["β₂ = 0.999, corrected"].max() + 0.8
    assert found["gap"][0.0].min() > found["gap"][0.1].max()
