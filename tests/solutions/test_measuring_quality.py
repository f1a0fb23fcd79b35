import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from txcourse.solutions.measuring_quality import corpus_bleu, edit_distance, error_rates

tokens = st.lists(st.sampled_from(["AH", "B", "K", "S", "T"]), max_size=9)
sentences = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


@given(tokens, tokens)
def test_edit_distance_equals_rapidfuzz(a: list[str], b: list[str]) -> None:
    assert edit_distance(a, b) == Levenshtein.distance(a, b)


def test_error_rates() -> None:
    a = list("abcdef")
    assert error_rates([list("bcdef")], [[a]]) == (1 / 6, 1.0)
    # the closest reference counts, the first of equally close ones; right when equal to any
    hypotheses = [list("ab"), list("xy"), []]
    references = [[list("abcd"), list("ab")], [list("x"), list("xyz")], [list("pq")]]
    assert error_rates(hypotheses, references) == ((0 + 1 + 2) / (2 + 1 + 2), 2 / 3)
    with pytest.raises(ValueError):
        error_rates([["a"]], [])


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5))
def test_bleu_equals_sacrebleu(pairs: list[tuple[list[str], list[str]]]) -> None:
    hypotheses, references = (list(side) for side in zip(*pairs, strict=True))
    expected = sacrebleu.corpus_bleu(
        [" ".join(h) for h in hypotheses],
        [[" ".join(r) for r in references]],
        tokenize="none",
        smooth_method="none",
        force=True,
    )
    assert corpus_bleu(hypotheses, references) == pytest.approx(expected.score, abs=1e-9)


def test_bleu_by_hand() -> None:
    reference = "the cat sat down on the mat".split()
    assert corpus_bleu([reference], [reference]) == pytest.approx(100)
    assert corpus_bleu([["the"] * 7], [reference]) == 0  # clipped, and no pair matches
    short = corpus_bleu([reference[:5]], [reference])  # every n-gram right, only too short
    assert short == pytest.approx(100 * 2.718281828 ** (1 - 7 / 5))
    assert corpus_bleu([[]], [reference]) == 0
    first, second = (["a", "b", "c", "d"], ["a", "b", "c", "d"]), (["x", "y"], ["z", "w"])
    pooled = corpus_bleu([first[0], second[0]], [first[1], second[1]])
    assert pooled != pytest.approx((100 + 0) / 2) and pooled > 0
    with pytest.raises(ValueError):
        corpus_bleu([["a"]], [])
