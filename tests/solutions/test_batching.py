import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from txcourse.solutions.batching import collate, shift_target, token_batches


def test_collate_and_shift() -> None:
    batch = collate([[5, 6], [7, 8, 9], []], pad_id=3, bos_id=1, eos_id=2)
    assert batch.tolist() == [[1, 5, 6, 2, 3], [1, 7, 8, 9, 2], [1, 2, 3, 3, 3]]
    assert batch.dtype == torch.long
    inputs, labels = shift_target(batch)
    assert inputs.tolist()[0] == [1, 5, 6, 2] and labels.tolist()[0] == [5, 6, 2, 3]


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(1, 200), st.none() | st.integers(0, 9))
def test_token_batches_properties(lengths: list[int], max_tokens: int, seed: int | None) -> None:
    batches = token_batches(lengths, max_tokens, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) * longest <= max_tokens or len(batch) == 1
        assert len(batch) * longest - sum(lengths[i] for i in batch) <= 0.1 * len(batch) * longest
    assert batches == token_batches(lengths, max_tokens, seed)
    assert sorted(batches) == sorted(token_batches(lengths, max_tokens))  # a seed changes the order only


def test_token_batches_are_full_on_realistic_lengths() -> None:
    rng = random.Random(0)
    lengths = [max(1, round(rng.lognormvariate(2.5, 0.4))) for _ in range(20000)]  # like Multi30k
    batches = token_batches(lengths, 2000)
    assert len(batches) < 1.15 * sum(lengths) / 2000
    assert token_batches(lengths, 2000, seed=1) != token_batches(lengths, 2000, seed=2) != batches
    assert token_batches([5] * 8, 20) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert token_batches([], 10) == []
    assert token_batches([10, 8], 99) == [[1, 0]]  # 10 % padding is allowed
    assert token_batches([7, 9], 99) == [[0], [1]]  # 11 % is not
