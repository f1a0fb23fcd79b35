"""Exercises of 14_measuring_quality."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.solutions import measuring_quality as solutions

Tokens = Sequence[str]

# -- edit distance ---------------------------------------------------------------------------------------------------

_DISTANCE = (
    Mistake("substitution_costs_two", "cost", "A substitution counts as 2 (one deletion and one insertion); it costs 1 like the others."),
    Mistake("substitution_is_free", "cost", "Only the lengths count: a substitution costs nothing; it costs 1."),
    Mistake("insertion_is_free", "cost", "Tokens of b that a lacks cost nothing; each costs 1."),
    Mistake("deletion_is_free", "cost", "Tokens of a that b lacks cost nothing; each costs 1."),
    Mistake("equal_costs_one", "cost", "Equal tokens are charged as well: when both agree, the diagonal step is free."),
    Mistake("transposition_counts_once", "cost", "Two exchanged neighbours count as one edit (Damerau's distance, another convention); Levenshtein's counts two."),
    Mistake("first_row_zero", "start", "The first row of the table is zero: leading tokens of b are free. It should count 0, 1, 2, …"),
    Mistake("first_column_zero", "start", "The first column of the table is zero: leading tokens of a are free. It should count 0, 1, 2, …"),
    Mistake("borders_zero", "start", "The first row and column of the table are zero: leading tokens are free. They should count 0, 1, 2, …"),
    Mistake("best_of_last_row", "end", "The smallest value of the last row is returned: trailing tokens of b are free. The corner of the table is the distance."),
    Mistake("one_cell_early", "end", "The value before the corner of the table is returned: the last tokens are left out. The table has one row and column more than there are tokens."),
    Mistake("position_by_position", "method", "Tokens are compared place by place: one insertion at the front then spoils all the rest. Use the table of Levenshtein's distance."),
    Mistake("set_difference", "method", "The tokens are compared as sets: order and repetition are lost."),
    Mistake("common_subsequence", "method", "The result is the length of the longest common subsequence, not the number of edits."),
    Mistake("diagonal_only_when_equal", "method", "The diagonal is always taken when the two tokens agree or not, without trying the other two ways."),
    Mistake("joined_to_characters", "tokens", "The tokens are joined and compared letter by letter: AE against EH counts two. A token is one unit."),
    Mistake("divided_by_length", "scale", "The distance is divided by a length; the number of edits is asked for."),
    Mistake("divided_by_longer", "scale", "The distance is divided by the length of the longer list; the number of edits is asked for."),
    Mistake("one_too_many", "scale", "The result is one too large."),
)  # fmt: skip


def _distance_variant(on: frozenset[str]) -> Callable[[Tokens, Tokens], float]:
    def edit_distance(a: Tokens, b: Tokens) -> float:
        if "joined_to_characters" in on:
            a, b = "".join(a), "".join(b)
        if "position_by_position" in on:
            result: float = sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))
        elif "set_difference" in on:
            result = len(set(a) ^ set(b))
        else:
            result = _table(a, b, on)
        if "divided_by_length" in on:
            result = result / max(len(b), 1)
        if "divided_by_longer" in on:
            result = result / max(len(a), len(b), 1)
        return result + ("one_too_many" in on)

    return edit_distance


def _table(a: Tokens, b: Tokens, on: frozenset[str]) -> float:
    insertion, deletion = float("insertion_is_free" not in on), float("deletion_is_free" not in on)
    substitution = 2.0 if "substitution_costs_two" in on else 0.0 if "substitution_is_free" in on else 1.0
    row_step = 0.0 if {"first_row_zero", "borders_zero"} & on else insertion
    column_step = 0.0 if {"first_column_zero", "borders_zero"} & on else deletion
    if "common_subsequence" in on:
        row_step = column_step = 0.0
    rows = [[row_step * j for j in range(len(b) + 1)]]
    for i, x in enumerate(a, start=1):
        row = [column_step * i]
        for j, y in enumerate(b, start=1):
            diagonal = rows[-1][j - 1] + (substitution if x != y or "equal_costs_one" in on else 0.0)
            if "common_subsequence" in on:
                row.append(rows[-1][j - 1] + 1 if x == y else max(rows[-1][j], row[-1]))
                continue
            if "diagonal_only_when_equal" in on:
                row.append(diagonal)
                continue
            best = min(rows[-1][j] + deletion, row[-1] + insertion, diagonal)
            if "transposition_counts_once" in on and i > 1 and j > 1 and (x, a[i - 2]) == (b[j - 2], y):
                best = min(best, rows[-2][j - 2] + (x != y))
            row.append(best)
        rows.append(row)
    if "one_cell_early" in on:
        return rows[max(len(a) - 1, 0)][max(len(b) - 1, 0)]
    return min(rows[-1]) if "best_of_last_row" in on else rows[-1][-1]


_PHONEMES = ["K", "AE", "T", "S", "AH", "N", "ER", "IY"]


def _pairs(seed: int) -> list[tuple[list[str], list[str]]]:
    rng = random.Random(seed)
    made = [
        (["K", "AE", "T", "S"], ["AE", "T", "S"]),  # one at the front
        (["K", "AE", "T"], ["K", "AE", "T", "S"]),  # one at the end
        (["K", "T", "AE", "S"], ["K", "AE", "T", "S"]),  # two exchanged
        (["T", "S", "S"], ["S", "T", "T"]),
        (["AH", "N", "ER", "IY"], ["AH", "ER", "N"]),
    ]
    made += [
        ([rng.choice(_PHONEMES[:5]) for _ in range(n)], [rng.choice(_PHONEMES[:5]) for _ in range(m)])
        for n, m in ((6, 4), (3, 7), (8, 8))
    ]
    return made


def _distance_values(c: Context) -> None:
    for a, b in _pairs(c.seed):
        c.expect(
            c.subject.call(a, b),
            solutions.edit_distance(a, b),
            f"the distance from {' '.join(a)} to {' '.join(b)}",
        )


def _distance_empty(c: Context) -> None:
    for a, b in (([], ["K", "AE"]), (["K", "AE", "T"], []), ([], [])):
        c.expect(c.subject.call(a, b), len(a) + len(b), f"the distance from {a} to {b}")


def _distance_symmetric(c: Context) -> None:
    a, b = _pairs(c.seed)[-2]
    c.expect(c.subject.call(b, a), c.subject.call(a, b), "the distance the other way round")
    c.expect(c.subject.call(a, a), 0, "the distance of a list to itself")


def _distance_tokens(c: Context) -> None:
    c.expect(
        c.subject.call(["AE", "T"], ["EH", "T"]), 1, "the distance from AE T to EH T (a token is one unit)"
    )
    c.expect(
        c.subject.call(["A", "BC"], ["AB", "C"]), 2, "the distance from A BC to AB C (tokens are not joined)"
    )


def _lists_kept(c: Context, *args: Any) -> None:
    after = c.subject.observe(*args)[1]
    if tuple(args) != tuple(after):
        raise Wrong("Your code changes its arguments; work on copies.", "changes_its_input")


def _distance_kept(c: Context) -> None:
    for pair in _pairs(c.seed)[:2]:  # with a common end, and a common beginning
        _lists_kept(c, *pair)


# -- error rates -----------------------------------------------------------------------------------------------------

_RATES = (
    Mistake("mean_of_rates", "pooling", "The token rates of the sequences are averaged; sum the distances and the lengths over all sequences first, then divide once."),
    Mistake("first_reference_only", "choice", "Only the first reference of each sequence is looked at; any of them counts."),
    Mistake("last_reference_only", "choice", "Only the last reference of each sequence is looked at; any of them counts."),
    Mistake("worst_reference", "choice", "The reference with the largest distance is taken; take the closest."),
    Mistake("lowest_rate", "choice", "The reference with the lowest distance per token is taken; take the one with the smallest distance."),
    Mistake("ties_to_the_last", "choice", "Where two references are equally close the last is taken; take the first."),
    Mistake("ties_to_the_longest", "choice", "Where two references are equally close the longest is taken; take the first."),
    Mistake("ties_to_the_shortest", "choice", "Where two references are equally close the shortest is taken; take the first."),
    Mistake("all_references_counted", "choice", "Distances and lengths of all references are summed; only the closest one counts."),
    Mistake("distances_pooled_over_references", "choice", "The smallest distance is divided by the summed length of all references; divide by the closest one's."),
    Mistake("divided_by_hypothesis", "denominator", "The distances are divided by the lengths of the hypotheses; divide by those of the closest references."),
    Mistake("divided_by_longer", "denominator", "The distances are divided by the longer of hypothesis and reference; divide by the reference's length."),
    Mistake("divided_by_first", "denominator", "The distances are divided by the length of the first reference; divide by that of the closest one."),
    Mistake("divided_by_sequences", "denominator", "The summed distances are divided by the number of sequences; divide by the summed lengths of the closest references."),
    Mistake("characters_counted", "denominator", "The lengths are counted in characters; count tokens."),
    Mistake("percent", "scale", "The rates are in percent; fractions are asked for."),
    Mistake("token_rate_percent", "scale", "The token rate is in percent; a fraction is asked for."),
    Mistake("capped_at_one", "scale", "The token rate is cut off at 1; with many insertions it is larger."),
    Mistake("accuracy", "scale", "The second result is the share of right sequences; the share of wrong ones is asked for."),
    Mistake("both_accuracies", "scale", "Accuracies are returned; error rates are 1 minus those."),
    Mistake("swapped", "order", "The results are exchanged: first the token error rate, then the sequence error rate."),
    Mistake("sequence_by_first_reference", "sequence", "A sequence counts as right only when it equals the first reference; any of them will do."),
    Mistake("sequence_by_length", "sequence", "A sequence counts as right when its length is right; it has to equal a reference."),
    Mistake("sequence_needs_all", "sequence", "A sequence counts as right only when it equals all references; any of them will do."),
    Mistake("sequence_wrongs_summed", "sequence", "The number of wrong sequences is returned; divide it by the number of sequences."),
    Mistake("sequence_per_reference", "sequence", "The sequence rate is divided by the number of references, not by the number of hypotheses."),
    Mistake("position_by_position", "distance", "Tokens are compared place by place; use the edit distance."),
    Mistake("length_difference_ignored", "distance", "Tokens are compared place by place up to the shorter length; use the edit distance."),
)  # fmt: skip


def _rates_variant(on: frozenset[str]) -> Callable[..., tuple[float, float]]:
    def distance(a: Tokens, b: Tokens) -> float:
        if "position_by_position" in on:
            return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))
        if "length_difference_ignored" in on:
            return sum(x != y for x, y in zip(a, b, strict=False))
        return solutions.edit_distance(a, b)

    def choose(h: Tokens, references: Sequence[Tokens]) -> Tokens:
        if "first_reference_only" in on:
            return references[0]
        if "last_reference_only" in on:
            return references[-1]
        keys: dict[str, Callable[[Tokens], Any]] = {
            "worst_reference": lambda r: -distance(h, r),
            "lowest_rate": lambda r: distance(h, r) / max(len(r), 1),
            "ties_to_the_longest": lambda r: (distance(h, r), -len(r)),
            "ties_to_the_shortest": lambda r: (distance(h, r), len(r)),
        }
        key = next((k for name, k in keys.items() if name in on), lambda r: distance(h, r))
        return min(reversed(references) if "ties_to_the_last" in on else references, key=key)

    def size(tokens: Tokens) -> int:
        return sum(map(len, tokens)) if "characters_counted" in on else len(tokens)

    def error_rates(
        hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
    ) -> tuple[float, float]:
        errors: list[float] = []
        lengths: list[float] = []
        wrong = 0
        for h, rs in zip(hypotheses, references, strict=True):
            best = choose(h, rs)
            if "all_references_counted" in on:
                errors.append(sum(distance(h, r) for r in rs))
                lengths.append(sum(map(size, rs)))
            else:
                errors.append(distance(h, best))
                denominators = {
                    "divided_by_hypothesis": size(h),
                    "divided_by_longer": max(size(h), size(best)),
                    "divided_by_first": size(rs[0]),
                    "divided_by_sequences": 1,
                    "distances_pooled_over_references": sum(map(size, rs)),
                }
                lengths.append(next((d for name, d in denominators.items() if name in on), size(best)))
            right = list(h) in [list(r) for r in rs]
            if {"sequence_by_first_reference", "first_reference_only"} & on:
                right = list(h) == list(rs[0])
            if "last_reference_only" in on:
                right = list(h) == list(rs[-1])
            if "sequence_by_length" in on:
                right = len(h) in [len(r) for r in rs]
            if "sequence_needs_all" in on or "worst_reference" in on:
                right = all(list(h) == list(r) for r in rs)
            wrong += not right
        token = sum(errors) / max(sum(lengths), 1)
        if "mean_of_rates" in on:
            token = sum(e / max(n, 1) for e, n in zip(errors, lengths, strict=True)) / len(errors)
        if "capped_at_one" in on:
            token = min(token, 1.0)
        count = (
            1
            if "sequence_wrongs_summed" in on
            else sum(map(len, references))
            if "sequence_per_reference" in on
            else len(hypotheses)
        )
        sequence = wrong / count
        if {"percent", "token_rate_percent"} & on:
            token *= 100
        if "percent" in on:
            sequence *= 100
        if "both_accuracies" in on:
            token = 1 - token
        if {"accuracy", "both_accuracies"} & on:
            sequence = 1 - sequence
        return (sequence, token) if "swapped" in on else (token, sequence)

    return error_rates


def _corpus(seed: int) -> tuple[list[list[str]], list[list[list[str]]]]:
    """Hypotheses and alternatives: right by the first, right by the second only, ties of unequal length, and noise."""
    rng = random.Random(seed)
    hypotheses = [
        ["K", "AE", "T", "S"],
        ["R", "EH", "D"],
        ["T", "IY"],
        ["AH", "N", "AH", "N", "AH", "N", "ER", "S"],
    ]
    references = [
        [["K", "AE", "T", "S"]],
        [["R", "IY", "D", "ER"], ["R", "EH", "D"]],
        [["T"], ["T", "IY", "N"], ["T", "AH"]],  # each at distance 1
        [["K", "N", "AH"], ["AH", "N", "AH", "K", "K", "N", "ER"]],
    ]
    for n in (3, 5):
        hypotheses.append([rng.choice(_PHONEMES) for _ in range(n)])
        references.append([[rng.choice(_PHONEMES) for _ in range(rng.randint(2, 7))] for _ in range(3)])
    hypotheses.append(["M", "IY"])  # right by the first only
    references.append([["M", "IY"], ["M", "EH"]])
    hypotheses.append(["T"] * 9)  # a far reference that is long has the lower rate
    references.append([["T", "S"], ["AH"] * 10 + ["T"] * 3])
    return hypotheses, references


def _many_insertions(seed: int) -> tuple[list[list[str]], list[list[list[str]]]]:
    return [["T"] * 5 + ["S"] * (2 + seed % 3), ["K"]], [[["T"]], [["K", "K"], ["S"]]]


def _two_rates(c: Context, *args: Any) -> Any:
    got = c.subject.call(*args)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong("Return two numbers: (token error rate, sequence error rate).", "returns_one_number")
    return got


def _rates_values(c: Context) -> None:
    for i in range(3):
        args = _corpus(c.seed + 100 * i)
        got, want = _two_rates(c, *args), solutions.error_rates(*args)
        c.expect(got[0], want[0], "the token error rate")
        c.expect(got[1], want[1], "the sequence error rate")


def _rates_one(c: Context) -> None:
    args: Any = ([["T", "IY"]], [[["T"], ["T", "IY", "N"]]])
    got = _two_rates(c, *args)
    c.expect(got[0], 1.0, "the token error rate when two references are equally close (the first counts)")
    c.expect(got[1], 1.0, "the sequence error rate of one wrong sequence")


def _rates_right(c: Context) -> None:
    c.expect(
        tuple(_two_rates(c, [["A"], ["B", "C"]], [[["A"]], [["D"], ["B", "C"]]])),
        (0.0, 0.0),
        "the rates of right answers",
    )


def _rates_large(c: Context) -> None:
    args = _many_insertions(c.seed)
    c.expect(
        tuple(_two_rates(c, *args)), solutions.error_rates(*args), "the rates when there are many insertions"
    )


def _rates_kept(c: Context) -> None:
    _lists_kept(c, *_corpus(c.seed))


def _rates_empty_hypothesis(c: Context) -> None:
    args: Any = ([[], ["A"]], [[["A", "B"]], [["A"]]])
    c.expect(tuple(_two_rates(c, *args)), solutions.error_rates(*args), "the rates with an empty hypothesis")


# -- BLEU ------------------------------------------------------------------------------------------------------------

_BLEU = (
    Mistake("not_clipped", "clip", "An n-gram of the hypothesis counts as often as it occurs there; it counts at most as often as in the reference."),
    Mistake("ngrams_as_sets", "clip", "N-grams are counted as sets: repeated ones count once. Count each, at most as often as in the reference."),
    Mistake("clipped_over_corpus", "clip", "N-grams are matched against those of the whole corpus; match each hypothesis with its own reference."),
    Mistake("sentence_average", "pooling", "This is the mean of the sentences' BLEU; pool the counts over the corpus first."),
    Mistake("precisions_averaged", "pooling", "The precisions of the sentences are averaged; pool matches and totals over the corpus, then divide."),
    Mistake("no_brevity_penalty", "brevity", "The brevity penalty is missing: short output is not punished."),
    Mistake("brevity_exchanged", "brevity", "The brevity penalty has the lengths exchanged: it punishes long output, not short."),
    Mistake("brevity_always", "brevity", "exp(1 − r/c) is applied also when the output is longer than the reference: it then rewards length. It is at most 1."),
    Mistake("brevity_ratio", "brevity", "The brevity penalty is c/r; it should be exp(1 − r/c)."),
    Mistake("brevity_inverted_ratio", "brevity", "The brevity penalty is exp(1 − c/r) for short output; it should be exp(1 − r/c)."),
    Mistake("brevity_of_sentences", "brevity", "The brevity penalty is averaged over the sentences; it is computed once, from the summed lengths."),
    Mistake("arithmetic_mean", "mean", "The precisions are averaged; BLEU takes their geometric mean."),
    Mistake("product_without_root", "mean", "The product of the precisions is not taken to the power 1/4."),
    Mistake("unigrams_only", "orders", "Only single tokens are compared; use 1- to 4-grams."),
    Mistake("up_to_bigrams", "orders", "Only 1- and 2-grams are used; use 1- to 4-grams."),
    Mistake("up_to_trigrams", "orders", "Only 1- to 3-grams are used; use 1- to 4-grams."),
    Mistake("up_to_five", "orders", "5-grams are used too; use 1- to 4-grams."),
    Mistake("four_grams_only", "orders", "Only 4-grams are used; use 1- to 4-grams."),
    Mistake("fraction", "scale", "The result lies between 0 and 1; it should lie between 0 and 100."),
    Mistake("smoothed_add_one", "zero", "1 is added to the counts (smoothing); without smoothing is asked for."),
    Mistake("smoothed_add_one_higher", "zero", "1 is added to the counts of 2-grams and longer (another convention, for single sentences); without smoothing is asked for."),
    Mistake("smoothed_epsilon", "zero", "Where an order has no match a tiny number takes its place; the result should then be 0."),
    Mistake("zero_orders_skipped", "zero", "Orders without a match are left out of the mean; the result should then be 0."),
    Mistake("arguments_exchanged", "arguments", "Hypotheses and references are exchanged: the precision is that of the references."),
    Mistake("characters", "tokens", "The n-grams are of characters; they should be of tokens."),
    Mistake("across_sentences", "tokens", "N-grams run across the ends of sentences; each sentence has its own."),
    Mistake("last_ngram_missing", "tokens", "The last n-gram of each sentence is left out."),
    Mistake("recall", "denominator", "Matches are divided by the n-grams of the reference (that is recall); divide by those of the hypothesis."),
    Mistake("divided_by_tokens", "denominator", "Matches of every order are divided by the number of tokens; divide by the number of n-grams of that order."),
)  # fmt: skip


def _grams(tokens: Sequence[Any], n: int, on: frozenset[str]) -> Counter[tuple[Any, ...]]:
    end = len(tokens) - n + 1 - ("last_ngram_missing" in on)
    return Counter(tuple(tokens[i : i + n]) for i in range(max(end, 0)))


def _score(
    hypotheses: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]], on: frozenset[str]
) -> float:
    orders = next(
        (
            o
            for name, o in (
                ("unigrams_only", [1]),
                ("up_to_bigrams", [1, 2]),
                ("up_to_trigrams", [1, 2, 3]),
                ("up_to_five", [1, 2, 3, 4, 5]),
                ("four_grams_only", [4]),
            )
            if name in on
        ),
        [1, 2, 3, 4],
    )
    precisions: list[float] = []
    for n in orders:
        ours, theirs = [_grams(h, n, on) for h in hypotheses], [_grams(r, n, on) for r in references]
        if "ngrams_as_sets" in on:
            ours, theirs = [[Counter(set(x)) for x in side] for side in (ours, theirs)]
        if "clipped_over_corpus" in on:
            theirs = [sum(theirs, Counter())] * len(ours)
        if "not_clipped" in on:
            matches = [
                sum(k for gram, k in h.items() if gram in r) for h, r in zip(ours, theirs, strict=True)
            ]
        else:
            matches = [(h & r).total() for h, r in zip(ours, theirs, strict=True)]
        totals = [(r if "recall" in on else h).total() for h, r in zip(ours, theirs, strict=True)]
        if "divided_by_tokens" in on:
            totals = [len(h) for h in hypotheses]
        if "precisions_averaged" in on:
            precisions.append(
                sum(m / t if t else 0.0 for m, t in zip(matches, totals, strict=True)) / len(totals)
            )
            continue
        extra = float("smoothed_add_one" in on or ("smoothed_add_one_higher" in on and n > 1))
        matched, total = sum(matches) + extra, sum(totals) + extra
        precisions.append(matched / total if total else 0.0)
    if "smoothed_epsilon" in on:
        precisions = [max(p, 1e-9) for p in precisions]
    if "zero_orders_skipped" in on:
        precisions = [p for p in precisions if p > 0]
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    if not c or not precisions:
        return 0.0
    if "arithmetic_mean" in on:
        mean = sum(precisions) / len(precisions)
    elif min(precisions) <= 0:
        mean = 0.0
    else:
        logs = sum(map(math.log, precisions))
        mean = math.exp(logs if "product_without_root" in on else logs / len(precisions))
    penalty = min(1.0, math.exp(1 - r / c))
    if "no_brevity_penalty" in on:
        penalty = 1.0
    elif "brevity_exchanged" in on:
        penalty = min(1.0, math.exp(1 - c / r))
    elif "brevity_always" in on:
        penalty = math.exp(1 - r / c)
    elif "brevity_ratio" in on:
        penalty = min(1.0, c / r)
    elif "brevity_inverted_ratio" in on:
        penalty = 1.0 if c >= r else math.exp(1 - c / r)
    elif "brevity_of_sentences" in on:
        each = [
            min(1.0, math.exp(1 - len(b) / len(a))) if a else 0.0
            for a, b in zip(hypotheses, references, strict=True)
        ]
        penalty = sum(each) / len(each)
    return (1 if "fraction" in on else 100) * penalty * mean


def _bleu_variant(on: frozenset[str]) -> Callable[..., float]:
    def corpus_bleu(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> float:
        if "arguments_exchanged" in on:
            hypotheses, references = references, hypotheses
        if "characters" in on:
            hypotheses, references = [" ".join(h) for h in hypotheses], [" ".join(r) for r in references]
        if "across_sentences" in on:
            hypotheses, references = (
                [[t for h in hypotheses for t in h]],
                [[t for r in references for t in r]],
            )
        if "sentence_average" in on:
            return sum(_score([h], [r], on) for h, r in zip(hypotheses, references, strict=True)) / len(
                hypotheses
            )
        return _score(hypotheses, references, on)

    return corpus_bleu


_WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog"]


def _sentences(seed: int, longer: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """References and noisy copies: shorter in all, or longer; words repeat, so that clipping matters."""
    rng = random.Random(seed)
    references = [[rng.choice(_WORDS) for _ in range(n)] for n in (9, 14, 6, 11)]
    hypotheses = []
    for reference in references:
        noisy = list(reference)
        noisy[rng.randrange(len(noisy))] = "dog"
        hypotheses.append(noisy + noisy[:3] if longer else noisy[:-2])
    hypotheses[0] = hypotheses[0][:1] + hypotheses[0]  # a repeated word
    hypotheses[1] = references[1][:8] + references[1][:5]  # repeated n-grams
    if not longer:
        hypotheses[3] = hypotheses[3][:6]
    return hypotheses, references


def _no_match(seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Matches of 1 to 3 tokens, none of 4."""
    rng = random.Random(seed)
    words = rng.sample(_WORDS, 7)
    return [[*words[:3], "X", *words[4:6]], ["Y", words[0]]], [words, ["Z", words[0], words[1]]]


def _bleu_values(c: Context) -> None:
    for i in range(3):
        args = _sentences(c.seed + 100 * i)
        c.same(*args, what="the BLEU of hypotheses that are too short")


def _bleu_longer(c: Context) -> None:
    c.same(*_sentences(c.seed, longer=True), what="the BLEU of hypotheses that are too long")


def _bleu_zero(c: Context) -> None:
    c.same(*_no_match(c.seed), what="the BLEU when no 4-gram matches")
    c.same([["a", "b", "c"]], [["a", "b", "c"]], what="the BLEU when there are no 4-grams at all")
    c.same([["x"] * 5], [["y"] * 5], what="the BLEU when nothing matches")


def _bleu_perfect(c: Context) -> None:
    references = _sentences(c.seed)[1]
    c.expect(c.subject.call(references, references), 100.0, "the BLEU of the references themselves")


def _bleu_clipping(c: Context) -> None:
    args: Any = (
        [["the"] * 7 + ["cat", "is", "on", "mat"]],
        [["the", "cat", "is", "on", "the", "mat", "the", "cat", "is", "on", "mat"]],
    )
    c.same(*args, what="the BLEU of a hypothesis that repeats a word")


def _bleu_short_sentence(c: Context) -> None:
    hypotheses, references = _sentences(c.seed)
    c.same(
        [*hypotheses, ["a", "mat"]], [*references, ["a", "mat"]], what="the BLEU with a sentence of two words"
    )


def _bleu_empty(c: Context) -> None:
    hypotheses, references = _sentences(c.seed)
    c.same([*hypotheses, []], [*references, ["a", "mat"]], what="the BLEU with an empty hypothesis")


def _bleu_kept(c: Context) -> None:
    _lists_kept(c, *_sentences(c.seed))


_exercise = partial(Exercise, notebook="14_measuring_quality")

EXERCISES = (
    _exercise(
        name="edit_distance",
        points=3,
        difficulty=2,
        minutes=20,
        hints=(
            "If you knew the distances for lists that are shorter by one token, how would you get this one?",
            "A table: entry (i, j) is the distance from the first i tokens of a to the first j tokens of b. Its first row and column count 0, 1, 2, …",
            "table[i][j] = min(table[i-1][j] + 1, table[i][j-1] + 1, table[i-1][j-1] + (a[i-1] != b[j-1]))",
        ),
        reference=solutions.edit_distance,
        tests=(
            Test("values", "counts the edits", _distance_values),
            Test("empty", "works for empty lists", _distance_empty, crash="crashes_on_empty_list"),
            Test("symmetric", "is the same in both directions, and 0 for equal lists", _distance_symmetric),
            Test("tokens", "takes a token as one unit", _distance_tokens),
            Test("inputs_kept", "leaves its inputs as they were", _distance_kept),
        ),
        mistakes=_DISTANCE,
        variant=_distance_variant,
        probes=lambda seed: [Probe(pair) for pair in _pairs(seed)],
    ),
    _exercise(
        name="error_rates",
        points=3,
        difficulty=2,
        minutes=15,
        hints=(
            "How many divisions are there in all: one for each sequence, or one at the end?",
            "For each hypothesis find the closest reference (the first when two are equally close); sum its distance and its length.",
            "distances = [edit_distance(h, r) for r in alternatives]; closest = distances.index(min(distances))",
        ),
        reference=solutions.error_rates,
        tests=(
            Test("values", "gives the token and the sequence error rate", _rates_values),
            Test("ties", "takes the first of equally close references", _rates_one),
            Test("right", "gives 0 and 0 when every sequence equals one of its references", _rates_right),
            Test("insertions", "can be above 1", _rates_large),
            Test("empty_hypothesis", "takes an empty hypothesis", _rates_empty_hypothesis, crash="crashes_on_empty_hypothesis"),
            Test("inputs_kept", "leaves its inputs as they were", _rates_kept),
        ),
        mistakes=_RATES,
        variant=_rates_variant,
        probes=lambda seed: [Probe(_corpus(seed)), Probe(_corpus(seed + 500)), Probe(_many_insertions(seed))],
    ),
    _exercise(
        name="corpus_bleu",
        points=4,
        difficulty=3,
        minutes=25,
        hints=(
            "A hypothesis says *the the the*. How many of its words should count as right?",
            "For each order: sum the matches, each n-gram at most as often as in its reference, and the number of n-grams, over the whole corpus. Divide once.",
            "(Counter(h_ngrams) & Counter(r_ngrams)).total() is the clipped count; 100 * exp(min(0, 1 - r / c) + mean of log(matches / totals)).",
        ),
        reference=solutions.corpus_bleu,
        tests=(
            Test("values", "equals BLEU where the hypotheses are too short", _bleu_values),
            Test("longer", "equals BLEU where the hypotheses are too long", _bleu_longer),
            Test("perfect", "gives 100 for the references themselves", _bleu_perfect),
            Test("clipping", "counts an n-gram at most as often as the reference has it", _bleu_clipping),
            Test("zero", "gives 0 when some order has no match", _bleu_zero, crash="crashes_without_a_match"),
            Test("short_sentence", "takes sentences that are shorter than four tokens", _bleu_short_sentence, crash="crashes_on_short_sentence"),
            Test("empty_hypothesis", "takes an empty hypothesis", _bleu_empty, crash="crashes_on_empty_hypothesis"),
            Test("inputs_kept", "leaves its inputs as they were", _bleu_kept),
        ),
        mistakes=_BLEU,
        variant=_bleu_variant,
        probes=lambda seed: [Probe(_sentences(seed)), Probe(_sentences(seed, longer=True)), Probe(_no_match(seed)), Probe(_sentences(seed + 900))],
    ),
)  # fmt: skip
