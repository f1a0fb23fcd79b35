"""How good a model is: decode freely, compare with every listed answer."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from torch import nn

from txcourse.data import Example
from txcourse.fast import Decoding, FastTransformer
from txcourse.solutions.batching import collate
from txcourse.solutions.decoding import beam_search, greedy_decode
from txcourse.solutions.measuring_quality import error_rates
from txcourse.solutions.tokens_and_embeddings import Vocabulary

BOS, EOS = 1, 2


class Scores(NamedTuple):
    """Fractions, in the task's words: tokens are phonemes, sequences are words."""

    token_error_rate: float  # summed distance to the closest reference / summed length of that reference
    sequence_error_rate: float  # sequences that equal none of their references


def decode_all(
    model: nn.Module | Sequence[FastTransformer],
    sources: list[list[str]],
    source: Vocabulary,
    target: Vocabulary,
    max_len: int,
    beam_size: int = 1,
    length_penalty: float = 1.0,
    batch_size: int = 512,
) -> list[list[str]]:
    """The answer to each source, as tokens: greedy, or by beam search when beam_size is above 1.

    `model` is any `model(src, tgt) -> logits`, or a list of the course's models, which decode together: the mean of
    their probabilities counts.
    """
    fast = [model] if isinstance(model, FastTransformer) else model
    decoding = None if isinstance(fast, nn.Module) else Decoding(fast)
    first = fast if isinstance(fast, nn.Module) else fast[0]
    device = next(first.parameters()).device
    answers: list[list[str]] = [[] for _ in sources]
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # batches with little padding
    batch_size = max(1, batch_size // beam_size)
    for start in range(0, len(by_length), batch_size):
        rows = by_length[start : start + batch_size]
        src = collate([source.encode(sources[i]) for i in rows], pad_id=0, bos_id=BOS, eos_id=EOS).to(device)
        if beam_size == 1:
            search = decoding.greedy if decoding else partial(greedy_decode, first)
            decoded = search(src, max_len, BOS, EOS).tolist()
        elif decoding:
            decoded = [ids for ids, _ in decoding.beam(src, max_len, BOS, EOS, beam_size, length_penalty)]
        else:  # one source at a time, without its padding
            alone = (row[row != 0][None] for row in src)
            decoded = [
                beam_search(first, row, max_len, BOS, EOS, beam_size, length_penalty)[0] for row in alone
            ]
        for i, ids in zip(rows, decoded, strict=True):
            answers[i] = target.decode(ids)
    return answers


def evaluate(
    model: nn.Module | Sequence[FastTransformer],
    examples: list[Example],
    source: Vocabulary,
    target: Vocabulary,
    max_len: int,
    beam_size: int = 1,
    length_penalty: float = 1.0,
) -> Scores:
    """Decode every example (see decode_all) and compare with all its references."""
    sources = [tokens for tokens, _ in examples]
    answers = decode_all(model, sources, source, target, max_len, beam_size, length_penalty)
    return Scores(*error_rates(answers, [references for _, references in examples]))
