"""17: what half a minute of training reaches, and what an ablation of 500 updates can and cannot tell; five seeds."""

import numpy as np
import pytest

from . import margins


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_margins(seed: int) -> None:
    found = margins.run("17_capstone", seed=f"seed = {seed}")  # the notebook's own assertions hold
    phonemes, words = found["live"]
    last_losses = np.mean(found["losses"][-50:])
    measured = found["measured"]
    measured["no warm-up"] = found["run"](warmup=0.0)
    measured["no positions"] = found["run"](positions="none")
    rates = {name: run["token_error_rate"] for name, run in measured.items()}
    print(f"seed {seed}: loss {last_losses:.3f}, words wrong {words:.3f}, phonemes wrong {phonemes:.3f}")
    print("  phonemes wrong: " + ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items()))
    assert last_losses < 1.18 and words < 0.66 and phonemes < 0.23
    assert rates["no positions"] > rates["default"] + 0.35 and rates["no decay"] > rates["default"] + 0.01
