"""Exercises of 14_measuring_quality."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.exercises.training import number
from txcourse.solutions import measuring_quality as solutions

Tokens = list[str]

# -- edit distance ---------------------------------------------------------------------------------------------------

_DISTANCE = (
    Mistake("substitution_costs_2", "cost", "A substitution costs 2 (or is not allowed at all); it costs 1, as an insertion and a deletion do."),
    Mistake("transposition_costs_1", "cost", "Exchanging two neighbours costs 1; here that is two edits (the Damerau distance is another one)."),
    Mistake("insertions_free", "cost", "Inserting a token costs nothing; it costs 1."),
    Mistake("deletions_free", "cost", "Deleting a token costs nothing; it costs 1."),
    Mistake("insertions_cost_2", "cost", "Inserting a token costs 2; it costs 1."),
    Mistake("deletions_cost_2", "cost", "Deleting a token costs 2; it costs 1."),
    Mistake("equal_tokens_cost_1", "cost", "Equal tokens cost 1 too; keeping a token costs nothing."),
    Mistake("equal_and_different_exchanged", "cost", "The cost is 1 for equal tokens and 0 for different ones; it is the other way round."),
    Mistake("no_insertions", "cost", "Insertions are not considered; all three edits are."),
    Mistake("no_deletions", "cost", "Deletions are not considered; all three edits are."),
    Mistake("largest", "cost", "The most expensive way is taken; take the cheapest."),
    Mistake("first_row_zero", "border", "Turning no token into b should cost len(b); your first row is 0, so that a may start anywhere in b."),
    Mistake("first_column_zero", "border", "Turning a into no token should cost len(a); your first column is 0, so that b may start anywhere in a."),
    Mistake("borders_zero", "border", "The first row and column are 0; they are 0, 1, 2, … ."),
    Mistake("borders_one", "border", "The first row and column are 1; they are 0, 1, 2, … ."),
    Mistake("border_off_by_one", "border", "The first row and column start at 1; they are 0, 1, 2, … ."),
    Mistake("last_row_minimum", "border", "The smallest number of the last row is returned; return its last one."),
    Mistake("token_before", "tokens", "The tokens compared are off by one: entry (i, j) of the table belongs to a[i − 1] and b[j − 1]."),
    Mistake("last_tokens_missing", "tokens", "The last tokens are not looked at: the table needs len + 1 rows and columns."),
    Mistake("first_tokens_missing", "tokens", "The first tokens are not looked at."),
    Mistake("positions_compared", "tokens", "Tokens are compared position by position; an inserted token then shifts all that follow."),
    Mistake("positions_without_rest", "tokens", "Tokens are compared position by position, and what is longer is not counted."),
    Mistake("lengths_only", "tokens", "Only the lengths are compared (or a substitution costs nothing)."),
    Mistake("order_ignored", "tokens", "The order of tokens does not count in your distance."),
    Mistake("repetitions_ignored", "tokens", "The sets of tokens are compared; order and repetitions count."),
    Mistake("length_of_common_subsequence", "tokens", "The length of the longest common subsequence is returned; that is a similarity. Count the edits."),
    Mistake("common_subsequence", "tokens", "The longer length minus the longest common subsequence is smaller or larger than the edit distance; use the table of Wagner and Fischer."),
    Mistake("characters_compared", "tokens", "The characters of the joined text are compared; the unit is the token."),
    Mistake("case_ignored", "tokens", "Upper and lower case are not told apart; tokens are equal or not."),
    Mistake("prefixes_compared", "tokens", "Tokens count as equal when one starts like the other (or contains it); they have to be equal."),
    Mistake("divided_by_longest", "result", "The distance is divided by the longer length; return the number of edits."),
    Mistake("divided_by_a", "result", "The distance is divided by the length of a; return the number of edits."),
    Mistake("divided_by_b", "result", "The distance is divided by the length of b; return the number of edits."),
    Mistake("similarity", "result", "The number of kept tokens (a similarity) is returned; return the number of edits."),
    Mistake("returns_table", "result", "The whole table (or its last row) is returned; return its last number."),
    Mistake("returns_row", "result", "The last row of the table is returned; return its last number."),
    Mistake("negative", "result", "The distance is negative."),
    Mistake("equal_or_not", "result", "The result only says whether a and b are equal."),
)  # fmt: skip


def _distance_table(on: frozenset[str], a: Sequence[str], b: Sequence[str]) -> list[list[int]]:
    sub = 2 if "substitution_costs_2" in on else 1
    insert = 0 if "insertions_free" in on else 2 if "insertions_cost_2" in on else 1
    delete = 0 if "deletions_free" in on else 2 if "deletions_cost_2" in on else 1
    far = 10**6

    def same(i: int, j: int) -> bool:
        x, y = (a[i - 2], b[j - 2]) if "token_before" in on else (a[i - 1], b[j - 1])
        if "case_ignored" in on:
            return x.lower() == y.lower()
        if "prefixes_compared" in on:
            return x.startswith(y) or y.startswith(x)
        return x == y

    def border(k: int, cost: int) -> int:
        if "borders_one" in on:
            return 1
        return k + 1 if "border_off_by_one" in on else k * cost

    zero_row, zero_column = (
        {"first_row_zero", "borders_zero"} & on,
        {"first_column_zero", "borders_zero"} & on,
    )
    table = [[0 if zero_row else border(j, insert) for j in range(len(b) + 1)]]
    for i in range(1, len(a) + 1):
        row = [0 if zero_column else border(i, delete)]
        for j in range(1, len(b) + 1):
            equal = same(i, j)
            if "equal_and_different_exchanged" in on:
                equal = not equal
            keep = table[i - 1][j - 1] + (1 if "equal_tokens_cost_1" in on else 0 if equal else sub)
            ways = [keep]
            ways += [] if "no_insertions" in on else [row[j - 1] + insert]
            ways += [] if "no_deletions" in on else [table[i - 1][j] + delete]
            swapped = i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]
            if "transposition_costs_1" in on and swapped:
                ways.append(table[i - 2][j - 2] + 1)
            row.append(max(ways) if "largest" in on else min(ways, default=far))
        table.append(row)
    return table


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        new = [0]
        for j, y in enumerate(b, start=1):
            new.append(row[j - 1] + 1 if x == y else max(row[j], new[j - 1]))
        row = new
    return row[-1]


def _distance_variant(on: frozenset[str]) -> Callable[..., Any]:
    def edit_distance(a: Sequence[str], b: Sequence[str]) -> Any:
        if "last_tokens_missing" in on:
            a, b = a[:-1], b[:-1]
        elif "first_tokens_missing" in on:
            a, b = a[1:], b[1:]
        elif "characters_compared" in on:
            a, b = list("".join(a)), list("".join(b))
        shorter, longer = sorted((len(a), len(b)))
        differ = sum(x != y for x, y in zip(a, b, strict=False))
        others: dict[str, Callable[[], int]] = {
            "positions_compared": lambda: differ + longer - shorter,
            "positions_without_rest": lambda: differ,
            "lengths_only": lambda: longer - shorter,
            "order_ignored": lambda: longer - (Counter(a) & Counter(b)).total(),
            "repetitions_ignored": lambda: len(set(a) ^ set(b)),
            "length_of_common_subsequence": lambda: _common(a, b),
            "common_subsequence": lambda: longer - _common(a, b),
        }
        other = next((f for name, f in others.items() if name in on), None)
        table = _distance_table(on, a, b)
        value: float = table[-1][-1] if other is None else other()
        if "last_row_minimum" in on:
            value = min(table[-1])
        results: dict[str, Callable[[], Any]] = {
            "divided_by_longest": lambda: value / max(longer, 1),
            "divided_by_a": lambda: value / max(len(a), 1),
            "divided_by_b": lambda: value / max(len(b), 1),
            "similarity": lambda: longer - value,
            "returns_table": lambda: table,
            "returns_row": lambda: table[-1],
            "negative": lambda: -value,
            "equal_or_not": lambda: int(list(a) != list(b)),
        }
        return next((f() for name, f in results.items() if name in on), value)

    return edit_distance


_PHONES = ["AH", "AH0", "B", "K", "S", "T"]


def _words(rng: random.Random, low: int, high: int, tokens: Sequence[str] = _PHONES) -> Tokens:
    return [rng.choice(tokens) for _ in range(rng.randint(low, high))]


_PAIRS: list[tuple[Tokens, Tokens]] = [
    ("K AE T".split(), "K AE T S".split()),
    ("K AE T S".split(), "K AE T".split()),
    ("S K AE T".split(), "K AE T".split()),
    ("K AE T".split(), "AE T K".split()),
    ("K AE T".split(), "K T AE".split()),
    ("K AE T".split(), "B AE T".split()),
    ("K AH T".split(), "K ah0 t".split()),
    ("AH AH0 AHX".split(), "AH0 AH X".split()),
    ("A B C D E".split(), "B C D E F".split()),
    ("A B A".split(), "B A B A B".split()),
]


def _distance_probes(seed: int) -> list[Probe]:
    rng = random.Random(seed)
    pairs = [(_words(rng, 1, 6), _words(rng, 1, 6)) for _ in range(12)]
    return [Probe((list(a), list(b))) for a, b in (*_PAIRS, *pairs)]


def _distance(c: Context, a: Tokens, b: Tokens) -> None:
    got, want = c.subject.call(a, b), solutions.edit_distance(a, b)
    c.expect(got, want, f"the distance of {' '.join(a) or '(no token)'} and {' '.join(b) or '(no token)'}")


def _distance_by_hand(c: Context) -> None:
    for a, b in _PAIRS:
        _distance(c, a, b)


def _distance_random(c: Context) -> None:
    rng = random.Random(c.seed)
    for _ in range(20):
        _distance(c, _words(rng, 1, 6), _words(rng, 1, 6))


def _distance_equal(c: Context) -> None:
    for n in (1, 3, 6):
        a = _words(random.Random(c.seed + n), n, n)
        _distance(c, a, list(a))


def _distance_empty(c: Context) -> None:
    for a, b in (([], ["B", "T"]), (["B", "T", "K"], []), ([], [])):
        if (a or b) and number(c.subject.call(a, b)) == 0:
            raise Wrong(
                "When one list is empty the distance is the length of the other; yours is 0.",
                "zero_for_empty",
            )
        _distance(c, a, b)


def _distance_kept(c: Context) -> None:
    for a, b in (("K AE T", "AE T S S"), ("K AE T", "K AE S S"), ("B AE T", "K AH AE T"), ("K AE", "K AE")):
        pair = [a.split(), b.split()]
        if list(c.subject.observe(*pair)[1]) != [a.split(), b.split()]:
            raise Wrong("Your code changes the lists it is given; work on copies.", "changes_its_input")
        first, second = c.subject.call(*pair), c.subject.call(*pair)
        c.expect(second, first, "the distance in a second call", mistake="keeps_state_between_calls")


def _distance_fast(c: Context) -> None:
    """Three calls for each pair of tokens make hundreds of millions of calls here."""
    a, b = "A B C D E F G H I J K L".split(), "M N O P E Q R S T U V W".split()
    try:
        _distance(c, a, b)
    except CandidateError as error:
        if error.kind != "timeout":
            raise
        raise Wrong(
            "Two lists of 12 tokens take too long. Fill a table, or keep each answer: there are only 13 × 13 pairs of prefixes.",
            "too_slow",
        ) from error


# -- error rates -----------------------------------------------------------------------------------------------------

_RATES = (
    Mistake("mean_of_rates", "pooling", "The rates of the sequences are averaged; all distances are summed and divided by the summed length of the references."),
    Mistake("divided_by_hypotheses", "pooling", "The distances are divided by the lengths of the hypotheses; divide by those of the closest references."),
    Mistake("divided_by_longer", "pooling", "The distances are divided by the longer of hypothesis and reference; divide by the length of the closest reference."),
    Mistake("divided_by_all_references", "pooling", "The distances are divided by the lengths of all references; only the closest one of each hypothesis counts."),
    Mistake("divided_by_mean_reference", "pooling", "The distances are divided by the mean length of the references; divide by that of the closest one."),
    Mistake("divided_by_first_reference", "pooling", "The distances are divided by the length of the first reference; divide by that of the closest one."),
    Mistake("divided_by_shortest_reference", "pooling", "The distances are divided by the length of the shortest reference; divide by that of the closest one."),
    Mistake("divided_by_longest_reference", "pooling", "The distances are divided by the length of the longest reference; divide by that of the closest one."),
    Mistake("divided_by_sequences", "pooling", "The distances are divided by the number of sequences; divide by the summed length of the closest references."),
    Mistake("not_divided", "pooling", "The sum of the distances is not divided by the summed length of the closest references."),
    Mistake("clipped_at_1", "pooling", "The token rate is cut off at 1; it can be larger when hypotheses are too long."),
    Mistake("each_clipped", "pooling", "A sequence counts at most as many errors as its reference has tokens; it can have more."),
    Mistake("first_reference_only", "choice", "Only the first reference of each hypothesis is used; the closest one counts."),
    Mistake("last_reference_only", "choice", "Only the last reference of each hypothesis is used; the closest one counts."),
    Mistake("farthest", "choice", "The farthest reference counts; it should be the closest."),
    Mistake("closest_by_rate", "choice", "The reference with the smallest rate is taken; it should be the one with the smallest distance."),
    Mistake("closest_by_length", "choice", "The reference of the most similar length is taken; it should be the one with the smallest distance."),
    Mistake("ties_to_last", "choice", "Of equally close references the last is taken; it should be the first."),
    Mistake("ties_to_shortest", "choice", "Of equally close references the shortest is taken; it should be the first."),
    Mistake("ties_to_longest", "choice", "Of equally close references the longest is taken; it should be the first."),
    Mistake("reference_as_tokens", "choice", "`references[i]` is taken for one list of tokens; it is a list of such lists, each of which counts as right."),
    Mistake("all_references", "choice", "The distances to all references are added up; only the closest one counts."),
    Mistake("mean_over_references", "choice", "Distances and lengths are averaged over the references; only the closest one counts."),
    Mistake("positions_compared", "distance", "Tokens are compared position by position; use the edit distance."),
    Mistake("substitution_costs_2", "distance", "A substitution counts as two errors; it is one."),
    Mistake("order_ignored", "distance", "The order of tokens does not count; use the edit distance."),
    Mistake("characters_compared", "distance", "Characters are compared; the unit is the token."),
    Mistake("sequence_against_first", "sequence", "A sequence counts as right only when it equals its first reference; equal to any is enough."),
    Mistake("sequence_against_all", "sequence", "A sequence counts as right only when it equals all references; equal to any is enough."),
    Mistake("sequence_by_length", "sequence", "A sequence counts as right when its length is right; its tokens have to be."),
    Mistake("sequence_in_any_order", "sequence", "A sequence counts as right when its tokens are, in any order; the order has to be right too."),
    Mistake("sequence_accuracy", "sequence", "The second number is the share of right sequences; it should be the share of wrong ones."),
    Mistake("sequence_count", "sequence", "The second number is a count; divide by the number of hypotheses."),
    Mistake("sequence_per_reference", "sequence", "Each reference counts as a sequence of its own; each hypothesis is right or wrong once."),
    Mistake("token_accuracy", "result", "The first number is 1 − the token error rate; return the error rate."),
    Mistake("accuracies", "result", "Both numbers are shares of what is right; return the shares of what is wrong."),
    Mistake("percent", "result", "The rates are in percent; return fractions."),
    Mistake("returns_swapped", "result", "The results are exchanged: first the token error rate, then the sequence error rate."),
    Mistake("returns_token_rate_only", "result", "Only the token error rate is returned; return both."),
    Mistake("rounded", "result", "The rates are rounded."),
    Mistake("whole_numbers", "result", "The division gives whole numbers (//); use /."),
)  # fmt: skip


def _rates_variant(on: frozenset[str]) -> Callable[..., Any]:
    costs = frozenset(
        on & {"positions_compared", "substitution_costs_2", "order_ignored", "characters_compared"}
    )
    distance = _distance_variant(costs)

    def error_rates(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Any:
        errors, lengths, shares, wrong, count = [], [], [], [], 0
        for h, listed in zip(hypotheses, references, strict=True):
            options: Any = [listed] if "reference_as_tokens" in on else listed
            ds = [distance(h, r) for r in options]
            keys: dict[str, Callable[[int], Any]] = {
                "first_reference_only": lambda i: i,
                "last_reference_only": lambda i: -i,
                "farthest": lambda i, ds=ds: -ds[i],
                "closest_by_rate": lambda i, ds=ds, o=options: ds[i] / len(o[i]),
                "closest_by_length": lambda i, o=options, h=h: abs(len(o[i]) - len(h)),
                "ties_to_last": lambda i, ds=ds: (ds[i], -i),
                "ties_to_shortest": lambda i, ds=ds, o=options: (ds[i], len(o[i])),
                "ties_to_longest": lambda i, ds=ds, o=options: (ds[i], -len(o[i])),
            }
            key = next((f for name, f in keys.items() if name in on), lambda i, ds=ds: ds[i])
            best = min(range(len(options)), key=key)
            sizes = [len(r) for r in options]
            d, n = float(ds[best]), float(len(options[best]))
            if "characters_compared" in on:
                n = float(len("".join(options[best])))
            if "all_references" in on:
                d, n = float(sum(ds)), float(sum(sizes))
            elif "mean_over_references" in on:
                d, n = sum(ds) / len(ds), sum(sizes) / len(ds)
            divisors: dict[str, float] = {
                "divided_by_hypotheses": len(h),
                "divided_by_longer": max(len(h), n),
                "divided_by_all_references": sum(sizes),
                "divided_by_mean_reference": sum(sizes) / len(sizes),
                "divided_by_first_reference": sizes[0],
                "divided_by_shortest_reference": min(sizes),
                "divided_by_longest_reference": max(sizes),
                "divided_by_sequences": 1,
            }
            n = next((v for name, v in divisors.items() if name in on), n)
            d = min(d, n) if "each_clipped" in on else d
            errors.append(d)
            lengths.append(n)
            shares.append(d / n if n else 0.0)
            rights: dict[str, Callable[[], bool]] = {
                "sequence_against_first": lambda h=h, o=options: h == o[0],
                "sequence_against_all": lambda h=h, o=options: all(h == r for r in o),
                "sequence_by_length": lambda h=h, o=options, b=best: len(h) == len(o[b]),
                "sequence_in_any_order": lambda h=h, o=options: any(sorted(h) == sorted(r) for r in o),
            }
            if "sequence_per_reference" in on:
                wrong += [h != r for r in options]
            else:
                wrong.append(
                    not next((f() for name, f in rights.items() if name in on), any(h == r for r in options))
                )
            count += 1
        total = sum(lengths)
        token = sum(errors) / total if total else sum(errors)
        if "mean_of_rates" in on:
            token = sum(shares) / count
        elif "not_divided" in on:
            token = sum(errors)
        elif "clipped_at_1" in on:
            token = min(token, 1.0)
        sequence = sum(wrong) / len(wrong)
        if "sequence_count" in on:
            sequence = float(sum(wrong))
        if {"sequence_accuracy", "accuracies"} & on:
            sequence = 1 - sequence
        if {"token_accuracy", "accuracies"} & on:
            token = 1 - token
        if "percent" in on:
            token, sequence = 100 * token, 100 * sequence
        elif "rounded" in on:
            token, sequence = round(token, 2), round(sequence, 2)
        elif "whole_numbers" in on:
            token, sequence = float(token // 1), float(sequence // 1)
        if "returns_token_rate_only" in on:
            return token
        return (sequence, token) if "returns_swapped" in on else (token, sequence)

    return error_rates


def _rates_case(seed: int, n: int, references: int) -> tuple[list[Tokens], list[list[Tokens]]]:
    """Hypotheses of unequal lengths, each with up to so many references; some are right."""
    rng = random.Random(seed)
    hypotheses, answers = [], []
    for i in range(n):
        options = [_words(rng, 1 + i, 4 + i) for _ in range(rng.randint(1, references) if i else references)]
        h = list(rng.choice(options))
        if i % 2:
            h[rng.randrange(len(h))] = "ZH"
        if i % 3 == 0:
            h = [*h, *_words(rng, 0, 2)]
        hypotheses.append(h)
        answers.append(options)
    return hypotheses, answers


_RATE_CASES: dict[str, tuple[list[str], list[list[str]]]] = {
    "one wrong token of six": (["b c d e f"], [["a b c d e f"]]),
    "sequences of unequal length": (["a", "a b c d e f g x"], [["b"], ["a b c d e f g h"]]),
    "the second reference is closer": (["a b", "p q"], [["a b c d", "a b"], ["r s t", "p q t"]]),
    "two references are equally close": (["x y", "m"], [["x", "x y z"], ["n o", "o"]]),
    "two are equally close, the longer first": (["x y", "k"], [["x y z", "x"], ["k"]]),
    "the closest by distance is not the closest by rate": (["a b c"], [["a", "a b c d e f", "a b c d e x y z w v u s"]]),
    "a hypothesis much longer than its reference": (["a b c d e f"], [["a"]]),
    "one hypothesis much too long and one right": (["a b c d e f", "a b c d e f g h"], [["a"], ["a b c d e f g h"]]),
    "an empty hypothesis": (["", "a"], [["a b c"], ["a"]]),
    "right by the last reference": (["a b", "c"], [["x", "y z", "a b"], ["d"]]),
    "right by the first reference": (["a b", "c"], [["a b", "x"], ["d"]]),
    "the right tokens in another order": (["b a c", "a"], [["a b c"], ["a"]]),
    "a shift by one token": (["x a b c d"], [["a b c d"]]),
}  # fmt: skip


def _rates_given(name: str) -> tuple[list[Tokens], list[list[Tokens]]]:
    hypotheses, references = _RATE_CASES[name]
    return [h.split() for h in hypotheses], [[r.split() for r in options] for options in references]


def _rates_probes(seed: int) -> list[Probe]:
    random_ones = [Probe(_rates_case(seed + i, n, k)) for i, (n, k) in enumerate(((3, 3), (5, 2), (4, 1)))]
    return [*random_ones, *(Probe(_rates_given(name)) for name in _RATE_CASES)]


def _rates(c: Context, what: str, hypotheses: list[Tokens], references: list[list[Tokens]]) -> None:
    got, want = c.subject.call(hypotheses, references), solutions.error_rates(hypotheses, references)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong("Return two numbers: (token error rate, sequence error rate).")
    for name, g, w in zip(("token", "sequence"), got, want, strict=True):
        c.expect(g, w, f"the {name} error rate {what}", rtol=1e-6)


def _rates_cases(*names: str) -> Callable[[Context], None]:
    def test(c: Context) -> None:
        for name in names:
            _rates(c, f"for {name}", *_rates_given(name))

    return test


def _rates_random(c: Context) -> None:
    for i, (n, k) in enumerate(((3, 1), (5, 3), (6, 2))):
        _rates(c, f"of {n} hypotheses", *_rates_case(c.seed + i, n, k))


def _rates_kept(c: Context) -> None:
    args = _rates_case(c.seed, 4, 3)
    if list(c.subject.observe(*args)[1]) != list(args):
        raise Wrong("Your code changes the lists it is given; work on copies.", "changes_its_input")


# -- BLEU ------------------------------------------------------------------------------------------------------------

_BLEU = (
    Mistake("sentence_average", "pooling", "The BLEU of single sentences is averaged; the counts are pooled over the corpus first."),
    Mistake("mean_of_precisions", "pooling", "The precisions of the sentences are averaged; pool the counts of the corpus, then divide."),
    Mistake("pooled_clipping", "pooling", "n-grams are clipped by their counts in the whole corpus; clip in each sentence, by its own reference."),
    Mistake("sentences_joined", "pooling", "The sentences are joined before n-grams are counted, so that n-grams cross their borders."),
    Mistake("no_clipping", "clipping", "n-grams are not clipped: each counts at most as often as in the reference."),
    Mistake("distinct_ngrams", "clipping", "Repetitions are dropped: count every n-gram, each at most as often as in the reference."),
    Mistake("distinct_matches", "clipping", "Each n-gram counts as one match at most; it counts at most as often as in the reference."),
    Mistake("larger_count", "clipping", "The larger of the two counts is taken; an n-gram matches as often as both have it, the smaller count."),
    Mistake("clipping_at_reference_only", "clipping", "The matches are the reference's counts, also when the hypothesis has fewer; take the smaller count."),
    Mistake("recall", "precision", "The matches are divided by the number of the reference's n-grams (a recall); divide by that of the hypothesis."),
    Mistake("arguments_exchanged", "precision", "Hypotheses and references are exchanged."),
    Mistake("divided_by_tokens", "precision", "The matches are divided by the number of tokens; divide by the number of n-grams of that order."),
    Mistake("last_ngram_missing", "precision", "The last n-gram of each sentence is missing: there are len − n + 1."),
    Mistake("partial_ngrams", "precision", "Shorter pieces at the end of a sentence are counted as n-grams; there are len − n + 1 whole ones."),
    Mistake("negative_totals", "precision", "A sentence shorter than n tokens adds len − n + 1, a negative number, to the number of n-grams; it has none and adds 0."),
    Mistake("at_least_one_ngram", "precision", "A sentence shorter than n tokens adds 1 to the number of n-grams; it has none and adds 0."),
    Mistake("short_sentences_skipped", "precision", "Sentences shorter than four tokens are left out; their shorter n-grams count."),
    Mistake("no_brevity_penalty", "brevity", "The brevity penalty is missing: exp(1 − r/c) when the hypotheses are shorter than the references."),
    Mistake("brevity_inverted", "brevity", "The penalty falls on hypotheses that are too long; it falls on those that are too short."),
    Mistake("brevity_always", "brevity", "exp(1 − r/c) is used also when the hypotheses are longer; the penalty is at most 1."),
    Mistake("brevity_exchanged", "brevity", "r and c are exchanged: the penalty is exp(1 − r/c) with r the references' and c the hypotheses' length."),
    Mistake("brevity_linear", "brevity", "The penalty is c / r; it is exp(1 − r/c)."),
    Mistake("brevity_without_1", "brevity", "The penalty is exp(−r/c); it is exp(1 − r/c)."),
    Mistake("brevity_per_sentence", "brevity", "The penalty is taken for each sentence and averaged; it is taken once, of the summed lengths."),
    Mistake("brevity_in_root", "brevity", "The penalty is taken into the geometric mean; it multiplies that mean."),
    Mistake("add_one", "smoothing", "Counts are smoothed by adding one; here there is no smoothing."),
    Mistake("add_one_above_unigrams", "smoothing", "Counts of 2-grams and longer are smoothed by adding one; here there is no smoothing."),
    Mistake("small_number", "smoothing", "A small number is used where an order has no match; the result is then 0."),
    Mistake("orders_without_match_skipped", "smoothing", "Orders without a match are left out; the result is then 0."),
    Mistake("orders_without_ngrams_skipped", "smoothing", "Orders of which the hypotheses have no n-gram are left out; the result is then 0."),
    Mistake("arithmetic_mean", "mean", "The arithmetic mean of the precisions is taken; take the geometric one."),
    Mistake("product", "mean", "The precisions are multiplied; the geometric mean also takes the fourth root."),
    Mistake("square_root", "mean", "The square root of the product is taken; it is the fourth root, one for each order."),
    Mistake("sum_of_logarithms", "mean", "The logarithms are summed, with the brevity penalty missing or exp missing; it is exp of their mean."),
    Mistake("decreasing_weights", "mean", "The orders have different weights; each has 1/4."),
    Mistake("unigrams_only", "orders", "Only 1-grams are counted; orders 1 to 4 are."),
    Mistake("up_to_2", "orders", "Only 1- and 2-grams are counted; orders 1 to 4 are."),
    Mistake("up_to_3", "orders", "Only 1- to 3-grams are counted; orders 1 to 4 are."),
    Mistake("up_to_5", "orders", "5-grams are counted too; orders 1 to 4 are."),
    Mistake("from_2", "orders", "1-grams are left out; orders 1 to 4 are counted."),
    Mistake("only_4", "orders", "Only 4-grams are counted; orders 1 to 4 are."),
    Mistake("orders_0_to_3", "orders", "The orders counted are off by one; orders 1 to 4 are counted."),
    Mistake("joined_ngrams", "unit", "The tokens of an n-gram are joined without a separator, so that A BC and AB C are the same; compare tuples of tokens."),
    Mistake("characters", "unit", "n-grams of characters are counted; the unit is the token."),
    Mistake("skip_grams", "unit", "n-grams are not neighbouring tokens; they should be."),
    Mistake("non_overlapping", "unit", "n-grams do not overlap (the sentence is cut into pieces); one starts at every token."),
    Mistake("unordered", "unit", "The order inside of n-grams is ignored."),
    Mistake("lower_case", "unit", "Upper and lower case are not told apart; tokens are equal or not."),
    Mistake("fraction", "result", "The result lies between 0 and 1; it should lie between 0 and 100."),
    Mistake("ten_thousand", "result", "The result is multiplied by 100 twice."),
    Mistake("rounded", "result", "The result is rounded."),
    Mistake("returns_precisions", "result", "The precisions are returned too; return the score alone."),
    Mistake("nan_without_match", "zero", "Without a match the result is NaN; it should be 0."),
)  # fmt: skip


def _ngrams(on: frozenset[str], tokens: Sequence[str], n: int) -> list[Any]:
    if "lower_case" in on:
        tokens = [t.lower() for t in tokens]
    last = len(tokens) if "partial_ngrams" in on else len(tokens) - n + 1 - ("last_ngram_missing" in on)
    if "skip_grams" in on:
        return [tuple(tokens[i : i + 2 * n : 2]) for i in range(last) if len(tokens[i : i + 2 * n : 2]) == n]
    grams = [tuple(tokens[i : i + n]) for i in range(0, last, n if "non_overlapping" in on else 1)]
    if "joined_ngrams" in on:
        return ["".join(g) for g in grams]
    return [tuple(sorted(g)) for g in grams] if "unordered" in on else grams


def _clipped(on: frozenset[str], h: Counter[Any], r: Counter[Any]) -> int:
    if "no_clipping" in on:
        return sum(k for g, k in h.items() if g in r)
    if {"distinct_ngrams", "distinct_matches"} & on:
        return sum(g in r for g in h)
    if "larger_count" in on:
        return (h | r).total()
    if "clipping_at_reference_only" in on:
        return sum(r[g] for g in h)
    return (h & r).total()


_ORDERS = {"unigrams_only": (1,), "up_to_2": (1, 2), "up_to_3": (1, 2, 3), "up_to_5": (1, 2, 3, 4, 5), "from_2": (2, 3, 4), "only_4": (4,), "orders_0_to_3": (2, 3, 4, 5)}  # fmt: skip


def _bleu_variant(on: frozenset[str]) -> Callable[..., Any]:
    def corpus_bleu(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> Any:
        pairs = list(zip(hypotheses, references, strict=True))
        if "arguments_exchanged" in on:
            pairs = [(r, h) for h, r in pairs]
        if "characters" in on:
            pairs = [(list(" ".join(h)), list(" ".join(r))) for h, r in pairs]
        if "short_sentences_skipped" in on:
            pairs = [(h, r) for h, r in pairs if len(h) >= 4]
        if "sentence_average" in on:
            inner = _bleu_variant(on - {"sentence_average"})
            return sum(inner([h], [r]) for h, r in pairs) / max(len(pairs), 1)
        if "sentences_joined" in on:
            pairs = [([t for h, _ in pairs for t in h], [t for _, r in pairs for t in r])]
        orders = next((o for name, o in _ORDERS.items() if name in on), (1, 2, 3, 4))
        precisions: list[float | None] = []
        for n in orders:
            matches, totals, shares = 0.0, 0.0, []
            all_h: Counter[Any] = Counter()
            all_r: Counter[Any] = Counter()
            for hypothesis, reference in pairs:
                h, r = Counter(_ngrams(on, hypothesis, n)), Counter(_ngrams(on, reference, n))
                all_h, all_r = all_h + h, all_r + r
                if "divided_by_tokens" in on:
                    total = float(len(hypothesis))
                elif {"negative_totals", "at_least_one_ngram"} & on:
                    total = float(max(len(hypothesis) - n + 1, 1 if "at_least_one_ngram" in on else -n))
                else:
                    counted = r if "recall" in on else h
                    total = float(len(counted) if "distinct_ngrams" in on else counted.total())
                match = float(_clipped(on, h, r))
                matches, totals = matches + match, totals + total
                if total:
                    shares.append(match / total)
            if "pooled_clipping" in on:
                matches = float(_clipped(on, all_h, all_r))
            if "add_one" in on or ("add_one_above_unigrams" in on and n > 1):
                matches, totals = matches + 1, totals + 1
            precision = matches / totals if totals else None
            if "mean_of_precisions" in on and totals:
                precision = sum(shares) / len(shares)
            precisions.append(precision)
        if "orders_without_ngrams_skipped" in on:
            precisions = [p for p in precisions if p is not None]
        if "orders_without_match_skipped" in on:
            precisions = [p for p in precisions if p]
        if "small_number" in on:
            precisions = [p or 1e-9 for p in precisions]
        c, r_length = float(sum(len(h) for h, _ in pairs)), float(sum(len(r) for _, r in pairs))
        zero = not precisions or not all(precisions)
        if zero and "arithmetic_mean" not in on:
            return math.nan if "nan_without_match" in on else 0.0
        logs = [math.log(p) if p else -math.inf for p in precisions]
        weights = [1 / len(logs)] * len(logs)
        if "decreasing_weights" in on:
            weights = [w / 10 for w in (4.0, 3.0, 2.0, 1.0)][: len(logs)]
        elif "product" in on:
            weights = [1.0] * len(logs)
        elif "square_root" in on:
            weights = [0.5] * len(logs)
        mean = math.exp(sum(w * x for w, x in zip(weights, logs, strict=True)))
        if "arithmetic_mean" in on:
            mean = sum(p or 0.0 for p in precisions) / len(precisions)
        elif "sum_of_logarithms" in on:
            mean = sum(logs) / len(logs)
        penalties: dict[str, Callable[[], float]] = {
            "no_brevity_penalty": lambda: 1.0,
            "brevity_inverted": lambda: math.exp(min(0.0, 1 - c / r_length)),
            "brevity_always": lambda: math.exp(1 - r_length / c),
            "brevity_exchanged": lambda: math.exp(1 - c / r_length) if c < r_length else 1.0,
            "brevity_linear": lambda: min(1.0, c / r_length),
            "brevity_without_1": lambda: math.exp(-r_length / c) if c < r_length else 1.0,
            "brevity_per_sentence": lambda: sum(
                math.exp(min(0.0, 1 - len(r) / len(h))) if h else 0.0 for h, r in pairs
            ) / len(pairs),
            "brevity_in_root": lambda: math.exp(min(0.0, 1 - r_length / c)) ** 0.25,
        }  # fmt: skip
        penalty = next((f() for name, f in penalties.items() if name in on), None)
        if penalty is None:
            penalty = math.exp(min(0.0, 1 - r_length / c)) if c else 0.0
        score = penalty * mean * (1 if "fraction" in on else 10_000 if "ten_thousand" in on else 100)
        if "returns_precisions" in on:
            return score, precisions
        return float(round(score)) if "rounded" in on else score

    return corpus_bleu


_WORDS = "the a cat dog sat ran on mat The".split()


def _bleu_case(
    seed: int, n: int, kept: float, low: int = 3, high: int = 11
) -> tuple[list[Tokens], list[Tokens]]:
    """References of unequal lengths, and hypotheses that share much with them; of all lengths together `kept`."""
    rng = random.Random(seed)
    hypotheses, references = [], []
    for i in range(n):
        r = _words(rng, low, high, _WORDS)
        if i == 0:
            r = [*_words(rng, 8, 10, _WORDS), "on", "the", "mat"]
        h = list(r)
        if i % 2:
            h[rng.randrange(len(h))] = rng.choice(_WORDS)
        cut = max(1, round(len(h) * kept))
        h = [*h, *_words(rng, 3, 3, _WORDS)][:cut] if kept > 1 else h[:cut]
        hypotheses.append(h)
        references.append(r)
    return hypotheses, references


_BLEU_CASES: dict[str, tuple[list[str], list[str]]] = {
    "a hypothesis that repeats itself": (["the the the the cat sat on the mat the the"], ["the cat sat on the mat and the dog sat"]),
    "a perfect sentence and a bad one": (["a b c d e f", "x y"], ["a b c d e f", "z w"]),
    "a sentence that is too short": (["the cat sat on"], ["the cat sat on the mat"]),
    "a sentence that is too long": (["the cat sat on the mat the the"], ["the cat sat on the mat"]),
    "short and long sentences": (["a b c d e f g h", "p q r s"], ["a b c d e", "p q r s t u v w x y"]),
    "tokens that come back in other sentences": (["a a b c d e", "a f g h i j"], ["b c d e f g", "a a a f g h i j"]),
    "upper and lower case": (["The Cat sat on the mat"], ["the cat sat on the mat today"]),
    "two halves in another order": (["e f g h a b c d"], ["a b c d e f g h"]),
    "tokens that are alike when joined": (["A BC D E F", "p q r s"], ["AB C D E F", "p q r s"]),
}  # fmt: skip
_BLEU_ZEROS: dict[str, tuple[list[str], list[str]]] = {
    "no token in common": (["a b c d e"], ["v w x y z"]),
    "no 4-gram in common": (["a b c x d e f"], ["a b c y d e f"]),
    "no 2-gram in common": (["a b c d e"], ["e d c b a"]),
    "sentences of three tokens": (["a b c", "d e f"], ["a b c", "d e f"]),
    "an empty hypothesis beside a short one": (["", "a b c"], ["a b c d", "a b c"]),
}


def _bleu_given(
    cases: dict[str, tuple[list[str], list[str]]], name: str
) -> tuple[list[Tokens], list[Tokens]]:
    return tuple([s.split() for s in side] for side in cases[name])  # type: ignore[return-value]


def _bleu_probes(seed: int) -> list[Probe]:
    probes = [
        Probe(_bleu_case(seed + i, n, kept))
        for i, (n, kept) in enumerate(((3, 1.0), (4, 0.8), (4, 1.2), (3, 0.9)))
    ]
    probes += [Probe(_bleu_given(_BLEU_CASES, name)) for name in _BLEU_CASES]
    return probes + [Probe(_bleu_given(_BLEU_ZEROS, name)) for name in list(_BLEU_ZEROS)[:4]]


def _bleu(c: Context, what: str, hypotheses: list[Tokens], references: list[Tokens]) -> None:
    got, want = c.subject.call(hypotheses, references), solutions.corpus_bleu(hypotheses, references)
    c.expect(got, want, f"the BLEU of {what}", rtol=1e-6)


def _bleu_cases(*names: str) -> Callable[[Context], None]:
    def test(c: Context) -> None:
        for name in names:
            _bleu(c, name, *_bleu_given(_BLEU_CASES, name))

    return test


def _bleu_perfect(c: Context) -> None:
    references = [_words(random.Random(c.seed + i), 4 + i, 9 + i, _WORDS) for i in range(3)]
    _bleu(c, "hypotheses equal to their references", [list(r) for r in references], references)


def _bleu_random(c: Context) -> None:
    for i, kept in enumerate((1.0, 0.8, 1.25, 0.6)):
        _bleu(c, "a corpus of five sentences", *_bleu_case(c.seed + i, 5, kept))


def _bleu_zero(c: Context) -> None:
    for name in _BLEU_ZEROS:
        _bleu(c, name, *_bleu_given(_BLEU_ZEROS, name))


def _bleu_kept(c: Context) -> None:
    args = _bleu_case(c.seed, 4, 0.9)
    if list(c.subject.observe(*args)[1]) != list(args):
        raise Wrong("Your code changes the lists it is given; work on copies.", "changes_its_input")


_exercise = partial(Exercise, notebook="14_measuring_quality")

EXERCISES = (
    _exercise(
        name="edit_distance",
        points=2,
        difficulty=2,
        minutes=20,
        hints=(
            "What does it cost to turn the first i tokens of a into the first j of b, if you know that for fewer tokens?",
            "A table of (len(a) + 1) × (len(b) + 1): its first row and column are 0, 1, 2, …; each other entry is the smallest of three neighbours plus a cost.",
            "table[i][j] = min(table[i-1][j] + 1, table[i][j-1] + 1, table[i-1][j-1] + (a[i-1] != b[j-1]))",
        ),
        reference=solutions.edit_distance,
        tests=(
            Test("equal", "is 0 for equal lists", _distance_equal),
            Test("by_hand", "is right for pairs that one can do by hand", _distance_by_hand),
            Test("random", "is right for random pairs", _distance_random),
            Test("empty", "takes empty lists", _distance_empty, crash="crashes_on_empty"),
            Test("inputs_kept", "leaves its inputs as they were and keeps nothing between calls", _distance_kept),
            Test("fast", "is quick for two lists of 12 tokens", _distance_fast),
        ),
        mistakes=_DISTANCE,
        variant=_distance_variant,
        probes=_distance_probes,
    ),
    _exercise(
        name="error_rates",
        points=2,
        difficulty=1,
        minutes=15,
        hints=(
            "When one word has 2 phonemes and another has 10, should an error weigh the same in both?",
            "For each hypothesis find the closest reference by edit_distance; add up distances and lengths, and divide once, at the end.",
            "distances = [edit_distance(h, r) for r in options]; closest = distances.index(min(distances)); errors += distances[closest]; tokens += len(options[closest])",
        ),
        reference=solutions.error_rates,
        tests=(
            Test("one", "divides the errors by the length of the reference", _rates_cases("one wrong token of six", "a shift by one token")),
            Test("pooled", "pools over sequences of unequal length", _rates_cases("sequences of unequal length")),
            Test("closest", "takes the closest reference", _rates_cases("the second reference is closer", "the closest by distance is not the closest by rate"), crash="crashes_with_several_references"),
            Test("ties", "takes the first of equally close references", _rates_cases("two references are equally close", "two are equally close, the longer first")),
            Test("sequence", "a sequence is right when it equals any reference", _rates_cases("right by the last reference", "right by the first reference", "the right tokens in another order")),
            Test("long", "can be more than 1, and takes an empty hypothesis", _rates_cases("a hypothesis much longer than its reference", "one hypothesis much too long and one right", "an empty hypothesis"), crash="crashes_on_empty_hypothesis"),
            Test("random", "is right for random sequences", _rates_random),
            Test("inputs_kept", "leaves its inputs as they were", _rates_kept),
        ),
        mistakes=_RATES,
        variant=_rates_variant,
        probes=_rates_probes,
    ),
    _exercise(
        name="corpus_bleu",
        points=3,
        difficulty=2,
        minutes=30,
        hints=(
            "What would a hypothesis score that says “the” seven times, if every “the” counted as a match?",
            "For each order: matches and totals summed over all sentences first, then divided. Matches: the intersection of two Counters of n-grams.",
            "score = 100 * exp(mean of log(matches / total)) * exp(min(0, 1 − r / c)); 0 when one of the matches is 0.",
        ),
        reference=solutions.corpus_bleu,
        tests=(
            Test("perfect", "is 100 when all hypotheses equal their references", _bleu_perfect),
            Test("clipping", "counts an n-gram at most as often as the reference has it", _bleu_cases("a hypothesis that repeats itself", "tokens that come back in other sentences")),
            Test("pooled", "pools counts over the corpus", _bleu_cases("a perfect sentence and a bad one", "short and long sentences")),
            Test("brevity", "punishes short hypotheses, and only those", _bleu_cases("a sentence that is too short", "a sentence that is too long")),
            Test("tokens", "counts n-grams of tokens, in their order", _bleu_cases("upper and lower case", "two halves in another order", "tokens that are alike when joined")),
            Test("random", "is right for random corpora", _bleu_random),
            Test("zero", "is 0 when some order has no match", _bleu_zero, crash="crashes_without_match"),
            Test("inputs_kept", "leaves its inputs as they were", _bleu_kept),
        ),
        mistakes=_BLEU,
        variant=_bleu_variant,
        probes=_bleu_probes,
    ),
)  # fmt: skip
