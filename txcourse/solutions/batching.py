"""11 Batching: sequences to padded batches, decoder input and labels, batches with little padding."""

import random
from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from txcourse.solutions.tokens_and_embeddings import pad_sequences


def collate(
    sequences: Sequence[Sequence[int]], pad_id: int, bos_id: int, eos_id: int
) -> Int[Tensor, "batch length"]:
    """bos + ids + eos for each sequence, padded on the right: a LongTensor (B, L)."""
    return pad_sequences([[bos_id, *sequence, eos_id] for sequence in sequences], pad_id)


def shift_target(
    tgt: Int[Tensor, "batch length"],
) -> tuple[Int[Tensor, "batch length-1"], Int[Tensor, "batch length-1"]]:
    """(decoder input, labels) of the targets (B, L), both (B, L − 1): labels[t] is what follows input[t].

    Source: Vaswani et al. (2017), section 3.1 ("shifted right").
    """
    return tgt[:, :-1], tgt[:, 1:]


def token_batches(lengths: Sequence[int], max_tokens: int, seed: int | None = None) -> list[list[int]]:
    """Group examples of like length into batches: lists of indices into `lengths`, every example once.

    The number of examples times the longest of them is at most max_tokens, unless a single example
    exceeds it, which is then alone. With many examples at most 10 % of all positions are padding, and a
    batch has on average at least max_tokens / 5 tokens without it. The same call gives the same batches.
    A seed shuffles their order.

    Source: Vaswani et al. (2017), section 5.1.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    tokens = 0  # of the examples in the batch, without padding
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        size = (len(batch) + 1) * lengths[i]  # the newest is the longest
        padding = size - tokens - lengths[i]
        if batch and (size > max_tokens or padding > size / 10):
            batches.append(batch)
            batch, tokens = [], 0
        batch.append(i)
        tokens += lengths[i]
    if batch:
        batches.append(batch)
    if seed is not None:
        random.Random(seed).shuffle(batches)
    return batches
