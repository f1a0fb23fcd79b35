import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from txcourse.solutions.tokens_and_embeddings import (
    TokenEmbedding,
    Vocabulary,
    apply_bpe,
    learn_bpe,
    nearest_neighbours,
    pad_sequences,
)


def test_vocabulary() -> None:
    vocabulary = Vocabulary([["b", "a", "c"], ["c", "<eos>", "d"], ["c", "d"]])
    assert vocabulary.tokens == ["<pad>", "<bos>", "<eos>", "<unk>", "c", "d", "a", "b"]
    assert len(vocabulary) == 8
    assert vocabulary.encode(["a", "zebra", "<eos>", "c"]) == [6, 3, 2, 4]
    assert vocabulary.decode([1, 6, 3, 4, 2, 0]) == ["a", "c"]
    assert vocabulary.decode(torch.tensor([1, 6, 2]), skip_special=False) == ["<bos>", "a", "<eos>"]
    assert Vocabulary([["b", "a", "c"], ["c", "b"]], min_count=2).tokens[4:] == ["b", "c"]
    assert len(Vocabulary([])) == 4


def test_pad_sequences() -> None:
    padded = pad_sequences([[5, 6], [7], [], [8, 9, 10]], pad_id=3)
    assert padded.tolist() == [[5, 6, 3], [7, 3, 3], [3, 3, 3], [8, 9, 10]]
    assert padded.dtype == torch.long
    assert pad_sequences([]).shape == (0, 0)


def test_bpe_on_the_paper_s_words() -> None:
    merges = learn_bpe({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 4)
    assert merges == [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")]
    assert apply_bpe("lowest", merges) == ["low", "est"]
    assert apply_bpe("xyz", merges) == ["x", "y", "z"]
    assert apply_bpe("aaaaa", [("a", "a"), ("aa", "a"), ("aa", "aa")]) == ["aa", "aaa"]
    assert apply_bpe("aaaa", [("a", "a"), ("aa", "a"), ("aa", "aa")]) == ["aaaa"]


def test_bpe_counts_words_breaks_ties_and_stops() -> None:
    assert learn_bpe({"ab": 2, "cd": 3}, 1) == [("c", "d")]
    assert learn_bpe({"cd": 2, "ab": 2}, 9) == [("a", "b"), ("c", "d")]
    assert learn_bpe({"a": 7}, 5) == learn_bpe({}, 5) == []


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 9), max_size=6), st.integers(0, 12)
)
def test_bpe_pieces_join_to_the_word(counts: dict[str, int], n_merges: int) -> None:
    merges = learn_bpe(counts, n_merges)
    assert len(merges) <= n_merges
    for word in counts:
        assert "".join(apply_bpe(word, merges)) == word
    if len(merges) < n_merges:  # stopped early: every word is one piece
        assert all(apply_bpe(word, merges) == [word] for word in counts)


def test_token_embedding() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(1000, 16, pad_id=2)
    assert embedding.weight.shape == (1000, 16)
    assert abs(embedding.weight.std().item() - 16**-0.5) < 0.01
    tokens = torch.tensor([[5, 2, 7]])
    y = embedding(tokens)
    torch.testing.assert_close(y, embedding.weight[tokens] * math.sqrt(16))
    assert (y[0, 1] == 0).all()
    y.sum().backward()
    gradient = embedding.weight.grad
    assert gradient is not None
    assert (gradient[[5, 7]] == 4).all() and gradient.count_nonzero() == 32


def test_nearest_neighbours() -> None:
    table = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [9.0, 1.0], [0.1, 0.1], [0.0, 0.0]])
    assert nearest_neighbours(table, 0, 3).tolist() == [2, 3, 4]
    assert nearest_neighbours(table, 3, 9).tolist() == [2, 0, 4, 1]
