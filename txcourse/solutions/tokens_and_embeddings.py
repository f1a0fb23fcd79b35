"""01 Tokens and embeddings: from text to ids, sub-words and vectors."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Vocabulary:
    """The tokens of a corpus and their ids.

    `tokens` lists them by id: first <pad> <bos> <eos> <unk> (ids 0 to 3), then those that occur at least
    min_count times, by falling count, ties in alphabetical order. len(vocabulary) is their number.
    The sequences are lists of tokens and hold none of the four.
    """

    def __init__(self, sequences: Sequence[Sequence[str]], min_count: int = 1) -> None:
        specials = ["<pad>", "<bos>", "<eos>", "<unk>"]
        counts = Counter(token for sequence in sequences for token in sequence)
        kept = [token for token in counts if counts[token] >= min_count and token not in specials]
        self.tokens = specials + sorted(kept, key=lambda token: (-counts[token], token))
        self.ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the tokens; an unknown one becomes <unk>. Adds no <bos> and no <eos>."""
        return [self.ids.get(token, self.ids["<unk>"]) for token in tokens]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> list[str]:
        """Tokens of the ids, without the four specials unless skip_special=False."""
        return [self.tokens[int(i)] for i in ids if not (skip_special and i < 4)]


def pad_sequences(sequences: Sequence[Sequence[int]], pad_id: int = 0) -> Int[Tensor, "batch longest"]:
    """Stack sequences of ids of different lengths, padded on the right.

    Shape: a LongTensor (B, longest). Some of the sequences may be empty, not all.
    """
    longest = max((len(sequence) for sequence in sequences), default=0)
    padded = torch.full((len(sequences), longest), pad_id, dtype=torch.long)  # (B, longest)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = torch.as_tensor(sequence)
    return padded


def learn_bpe(word_counts: Mapping[str, int], n_merges: int) -> list[tuple[str, str]]:
    """Learn byte-pair merges from words and their counts.

    Words start as characters (any but spaces), without an end-of-word mark. Each step counts every adjacent
    pair of pieces, as often as its word occurs, and merges the most frequent pair everywhere; ties go to the
    lexicographically smallest pair. At most n_merges steps; stops early when no pair is left.
    Returns the merged pairs in the order learnt.

    Source: Sennrich, Haddow and Birch (2016), "Neural Machine Translation of Rare Words with Subword
    Units", section 3.2.
    """
    words = {word: list(word) for word in word_counts}
    merges: list[tuple[str, str]] = []
    while len(merges) < n_merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                counts[pair] += word_counts[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for word, pieces in words.items():
            merged: list[str] = []
            for piece in pieces:
                if merged and (merged[-1], piece) == best:
                    merged[-1] += piece
                else:
                    merged.append(piece)
            words[word] = merged
    return merges


def apply_bpe(word: str, merges: Sequence[tuple[str, str]]) -> list[str]:
    """Split a word into pieces: from characters, every merge in the order learnt, each left to right.

    "aaa" with the merge ("a", "a") gives ["aa", "a"].

    Source: Sennrich, Haddow and Birch (2016), section 3.2.
    """
    pieces = list(word)
    for pair in merges:
        merged: list[str] = []
        for piece in pieces:
            if merged and (merged[-1], piece) == tuple(pair):
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return pieces


class TokenEmbedding(nn.Module):
    """A learned vector per token, times √d_model.

    Parameter `weight` (vocab_size, d_model), starting at random; the row of pad_id is zero and receives no
    gradient through the lookup.

    Source: Vaswani et al. (2017), section 3.4.
    """

    def __init__(self, vocab_size: int, d_model: int, pad_id: int = 0) -> None:
        super().__init__()
        self.pad_id = pad_id
        weight = torch.randn(vocab_size, d_model) / math.sqrt(d_model)
        weight[pad_id] = 0.0
        self.weight = nn.Parameter(weight)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """tokens (B, T) → (B, T, d_model)."""
        vectors = F.embedding(tokens, self.weight, padding_idx=self.pad_id)  # (B, T, d_model)
        return vectors * math.sqrt(self.weight.size(1))


def nearest_neighbours(embedding: Float[Tensor, "vocab d"], index: int, k: int) -> Int[Tensor, " k"]:
    """The k rows most similar to row `index` by cosine, best first, without `index` itself.

    Shapes: embedding (V, d), no row of which is all zeros → ids (k), for k up to V − 1. Ties in any order.
    """
    rows = F.normalize(embedding, dim=-1)  # (V, d), each of length 1
    order = (rows @ rows[index]).argsort(descending=True, stable=True)  # (V)
    return order[order != index][:k]
