"""15: attention names the first token at every distance, recurrent layers at short ones only; five seeds."""

import pytest

from . import margins


@pytest.mark.slow
def test_margins() -> None:
    found = margins.run("15_why_transformers_work")  # the notebook's own assertions hold
    right: dict[str, list[list[float]]] = {}
    for kind in ("recurrent", "LSTM", "attention"):
        right[kind] = [
            [found["train_recall"](kind, length, found["recall_steps"], seed)[1] for seed in range(5)]
            for length in found["recall_lengths"]
        ]
        print(kind, right[kind])
    assert min(map(min, right["attention"])) > 0.97
    assert max(right["recurrent"][-1] + right["LSTM"][-1]) < 0.4 and min(right["LSTM"][0]) > 0.97
