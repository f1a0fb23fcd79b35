"""02: the gap over length, with and without attention, on five seeds that the notebook does not use."""

import pytest
import torch

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run("02_sequence_to_sequence", seed="seed = 1")  # its own assertions hold, too
    for seed in range(1, 6):
        found["seed"] = seed  # the cells' functions read it
        plain, wide, attending = found["train"](False), found["train"](False, d=128), found["train"](True)
        long = [found["letters_right"](model, 20) for model in (attending, wide, plain)]
        short = found["letters_right"](plain, 2)
        shares = [found["own_or_previous"](found["effect_of_each_letter"](m)) for m in (plain, attending)]
        with torch.no_grad():
            attending(found["src"], found["tgt"])
        off = attending.weights[0, :-1].argmax(-1) - torch.arange(10)
        print(
            f"seed {seed}: 20 letters right, attention {long[0]:.2f}, none {long[2]:.2f}, none wide {long[1]:.2f};"
        )
        print(
            f"  2 letters, none {short:.2f}; own output and next, none {shares[0]:.2f}, attention {shares[1]:.2f}"
        )
        print(f"  looks at the right letter or its neighbour: {(off.abs() <= 1).sum()} of 10")
        assert long[0] > 0.75 and long[2] < 0.27 and long[0] > long[1] + 0.45 and short > 0.93
        assert shares[1] > 0.7 and shares[0] < 0.45 and (off.abs() <= 1).sum() >= 8
