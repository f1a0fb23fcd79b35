"""14 Measuring quality: edit distance, error rates, BLEU."""

import math
from collections import Counter
from collections.abc import Sequence


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The smallest number of insertions, deletions and substitutions of tokens that turns a into b.

    Source: Levenshtein (1966); the table row by row: Wagner and Fischer (1974).
    """
    previous = list(range(len(b) + 1))  # distances from no token of a to the first 0, 1, … tokens of b
    for i, token_a in enumerate(a, start=1):
        current = [i]
        for j, token_b in enumerate(b, start=1):
            substituted = previous[j - 1] + (token_a != token_b)
            current.append(min(previous[j] + 1, current[j - 1] + 1, substituted))
        previous = current
    return previous[-1]


def error_rates(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[float, float]:
    """(token error rate, sequence error rate), as fractions.

    `references` holds, for each hypothesis, a list of token lists that count as right. Token rate: the edit
    distances to the closest reference, summed, divided by the summed lengths of those references (ties:
    the first one). Sequence rate: the share of hypotheses that equal none of their references.
    `hypotheses` and `references` have the same length.
    """
    errors = tokens = wrong = 0
    for hypothesis, alternatives in zip(hypotheses, references, strict=True):
        distances = [edit_distance(hypothesis, reference) for reference in alternatives]
        closest = distances.index(min(distances))
        errors += distances[closest]
        tokens += len(alternatives[closest])
        wrong += distances[closest] > 0
    return errors / max(tokens, 1), wrong / max(len(hypotheses), 1)


def corpus_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """BLEU of a corpus, 0 to 100: lists of tokens, one reference for each hypothesis.

    The geometric mean of the precisions for 1- to 4-grams, times the brevity penalty. A precision is the
    number of n-grams that the reference has too (each at most as often as there), divided by the number
    of n-grams, both summed over the corpus. The penalty is exp(1 − r/c) when the hypotheses together (c
    tokens) are shorter than the references (r tokens), else 1. No smoothing: 0 when some order has no
    match. The two lists have the same length.

    Source: Papineni et al. (2002), "BLEU", section 2.3.
    """
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            ngrams = Counter(tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n + 1))
            allowed = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
            matches[n - 1] += (ngrams & allowed).total()
            totals[n - 1] += ngrams.total()
    if min(matches) == 0:
        return 0.0
    log_precision = sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * math.exp(min(0.0, 1 - r / c) + log_precision)
