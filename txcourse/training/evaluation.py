"""How good a model is: decode freely, compare with every listed answer."""

from typing import NamedTuple

import torch
from torch import nn

from txcourse.data import Example
from txcourse.fast import FastTransformer
from txcourse.solutions.batching import collate
from txcourse.solutions.decoding import greedy_decode
from txcourse.solutions.measuring_quality import error_rates
from txcourse.solutions.tokens_and_embeddings import Vocabulary

BOS, EOS = 1, 2


class Scores(NamedTuple):
    """Fractions, in the task's words: tokens are phonemes, sequences are words."""

    token_error_rate: float  # summed distance to the closest reference / summed length of that reference
    sequence_error_rate: float  # sequences that equal none of their references


def decode_all(
    model: nn.Module,
    sources: list[list[str]],
    source: Vocabulary,
    target: Vocabulary,
    max_len: int,
    batch_size: int = 512,
) -> list[list[str]]:
    """The model's greedy answer to each source, as tokens. Works with any `model(src, tgt) -> logits`."""
    device = next(model.parameters()).device
    answers: list[list[str]] = [[] for _ in sources]
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # batches with little padding
    for start in range(0, len(by_length), batch_size):
        rows = by_length[start : start + batch_size]
        src = collate([source.encode(sources[i]) for i in rows], pad_id=0, bos_id=BOS, eos_id=EOS).to(device)
        with torch.no_grad():
            if isinstance(model, FastTransformer):
                decoded = model.greedy_decode(src, max_len, BOS, EOS)
            else:
                decoded = greedy_decode(model, src, max_len, BOS, EOS)
        for i, ids in zip(rows, decoded.tolist(), strict=True):
            answers[i] = target.decode(ids)
    return answers


def evaluate(
    model: nn.Module, examples: list[Example], source: Vocabulary, target: Vocabulary, max_len: int
) -> Scores:
    """Greedy decoding of every example, against all its references."""
    answers = decode_all(model, [tokens for tokens, _ in examples], source, target, max_len)
    return Scores(*error_rates(answers, [references for _, references in examples]))
