"""Answers to the exercises of 14, right and wrong."""

import math
from collections import Counter, defaultdict
from functools import lru_cache

import numpy as np

# -- edit distance: right --------------------------------------------------------------------------------------------


def distance_table(a, b):
    d = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        d[i][0] = i
    for j in range(len(b) + 1):
        d[0][j] = j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            if a[i - 1] == b[j - 1]:
                d[i][j] = d[i - 1][j - 1]
            else:
                d[i][j] = 1 + min(d[i - 1][j], d[i][j - 1], d[i - 1][j - 1])
    return d[len(a)][len(b)]


def distance_recursive(a, b):
    @lru_cache(maxsize=None)
    def of(i, j):
        if i == len(a) or j == len(b):
            return len(a) - i + len(b) - j
        if a[i] == b[j]:
            return of(i + 1, j + 1)
        return 1 + min(of(i + 1, j), of(i, j + 1), of(i + 1, j + 1))

    return of(0, 0)


def distance_numpy(a, b):
    row = np.arange(len(b) + 1)
    for i, x in enumerate(a):
        changed = np.minimum(row[1:] + 1, row[:-1] + np.array([x != y for y in b], dtype=int))
        new = np.concatenate([[i + 1], changed])
        for j in range(1, len(new)):
            new[j] = min(new[j], new[j - 1] + 1)
        row = new
    return row[-1]


def distance_search(a, b):
    """Breadth first over (i, j)."""
    reached, edits = {(0, 0)}, 0
    while True:
        grown = set()
        for i, j in reached:
            while i < len(a) and j < len(b) and a[i] == b[j]:
                i, j = i + 1, j + 1
            grown.add((i, j))
        if (len(a), len(b)) in grown:
            return edits
        edits += 1
        steps = {(i + di, j + dj) for i, j in grown for di, dj in ((0, 1), (1, 0), (1, 1))}
        reached = {(i, j) for i, j in steps if i <= len(a) and j <= len(b)}


class DistanceObject:
    def __init__(self):
        self.known = {}

    def __call__(self, a, b, cost=1):
        if not a:
            return len(b) * cost
        if not b:
            return len(a) * cost
        key = tuple(a), tuple(b)
        if key not in self.known:
            rest = (self(a[1:], b), self(a, b[1:]), self(a[1:], b[1:]) - (a[0] == b[0]))
            self.known[key] = cost + min(rest)
        return self.known[key]


# -- edit distance: wrong --------------------------------------------------------------------------------------------


def distance_again_and_again(a, b):
    if not a or not b:
        return len(a) + len(b)
    if a[-1] == b[-1]:
        return distance_again_and_again(a[:-1], b[:-1])
    shorter = (a[:-1], b), (a, b[:-1]), (a[:-1], b[:-1])
    return 1 + min(distance_again_and_again(x, y) for x, y in shorter)


def distance_hamming(a, b):
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))


def distance_hamming_crash(a, b):
    return sum(a[i] != b[i] for i in range(len(a)))


def distance_indel(a, b):
    d = [[i + j for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            same = d[i - 1][j - 1] if a[i - 1] == b[j - 1] else d[i - 1][j - 1] + 2
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, same)
    return d[-1][-1]


def distance_damerau(a, b):
    d = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                d[i][j] = min(d[i][j], d[i - 2][j - 2] + 1)
    return d[-1][-1]


def distance_zero_borders(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return int(d[-1, -1])


def distance_characters(a, b):
    return distance_table("".join(a), "".join(b))


def distance_sets(a, b):
    return len(set(a) ^ set(b))


def distance_normalised(a, b):
    return distance_table(a, b) / max(len(a), len(b), 1)


def distance_off_by_one(a, b):
    d = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a)):
        for j in range(1, len(b)):
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return d[len(a) - 1][len(b) - 1]


def distance_no_substitution_cost(a, b):
    d = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1])
    return d[-1][-1]


def distance_returns_table(a, b):
    d = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return d


def distance_empty_crashes(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return min(row[-1], row[-1] + (a[-1] != a[-1]))


def distance_pops(a, b):
    value = distance_table(a, b)
    while a:
        a.pop()
    return value


def distance_maximum(a, b):
    d = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i][j] = max(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1][-1]


def distance_strips(a, b):
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    return distance_table(a, b)


def distance_common_length(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            d[i + 1, j + 1] = d[i, j] + 1 if x == y else max(d[i, j + 1], d[i + 1, j])
    return d[-1, -1]


# -- error rates -----------------------------------------------------------------------------------------------------


def rates_plain(hypotheses, references):
    errors = length = wrong = 0
    for h, options in zip(hypotheses, references, strict=True):
        best = min(options, key=lambda r: distance_table(h, r))
        errors += distance_table(h, best)
        length += len(best)
        if h not in options:
            wrong += 1
    return errors / length, wrong / len(hypotheses)


def rates_list(hypotheses, references):
    pairs = []
    for h, options in zip(hypotheses, references, strict=True):
        pairs.append(min([(distance_recursive(h, r), k, len(r)) for k, r in enumerate(options)]))
    exact = [
        any(list(h) == list(r) for r in options) for h, options in zip(hypotheses, references, strict=True)
    ]
    return [sum(p[0] for p in pairs) / sum(p[2] for p in pairs), 1 - sum(exact) / len(exact)]


def rates_numpy(hypotheses, references, **unused):
    totals = np.zeros(3)
    for i in range(len(hypotheses)):
        distances = np.array([distance_table(hypotheses[i], r) for r in references[i]])
        k = distances.argmin()
        totals += (distances[k], len(references[i][k]), distances[k] != 0)
    return totals[0] / totals[1], totals[2] / len(hypotheses)


class RatesObject:
    def __call__(self, hypotheses, references):
        edits, tokens, failures = 0, 0, []
        for h, options in zip(hypotheses, references, strict=True):
            closest, smallest = None, math.inf
            for r in options:
                d = distance_numpy(h, r)
                if d < smallest:
                    closest, smallest = r, d
            edits, tokens = edits + smallest, tokens + len(closest)
            failures.append(tuple(h) not in {tuple(r) for r in options})
        return edits / tokens, np.mean(failures)


def rates_macro(hypotheses, references):
    shares, wrong = [], 0
    for h, options in zip(hypotheses, references, strict=True):
        best = min(options, key=lambda r: distance_table(h, r))
        shares.append(distance_table(h, best) / len(best))
        wrong += h not in options
    return sum(shares) / len(shares), wrong / len(hypotheses)


def rates_first(hypotheses, references):
    return rates_plain(hypotheses, [options[:1] for options in references])


def rates_first_for_tokens(hypotheses, references):
    return rates_first(hypotheses, references)[0], rates_plain(hypotheses, references)[1]


def rates_hypothesis_length(hypotheses, references):
    errors = sum(min(distance_table(h, r) for r in o) for h, o in zip(hypotheses, references, strict=True))
    return errors / sum(map(len, hypotheses)), rates_plain(hypotheses, references)[1]


def rates_first_length(hypotheses, references):
    errors = sum(min(distance_table(h, r) for r in o) for h, o in zip(hypotheses, references, strict=True))
    return errors / sum(len(o[0]) for o in references), rates_plain(hypotheses, references)[1]


def rates_percent(hypotheses, references):
    token, sequence = rates_plain(hypotheses, references)
    return 100 * token, 100 * sequence


def rates_accuracy(hypotheses, references):
    token, sequence = rates_plain(hypotheses, references)
    return token, 1 - sequence


def rates_last_tie(hypotheses, references):
    return rates_plain(hypotheses, [list(reversed(options)) for options in references])


def rates_by_rate(hypotheses, references):
    errors = length = wrong = 0
    for h, options in zip(hypotheses, references, strict=True):
        best = min(options, key=lambda r: distance_table(h, r) / len(r))
        errors += distance_table(h, best)
        length += len(best)
        wrong += h not in options
    return errors / length, wrong / len(hypotheses)


def rates_positions(hypotheses, references):
    errors = length = wrong = 0
    for h, options in zip(hypotheses, references, strict=True):
        best = min(options, key=lambda r: distance_hamming(h, r))
        errors += distance_hamming(h, best)
        length += len(best)
        wrong += h not in options
    return errors / length, wrong / len(hypotheses)


def rates_sequence_first(hypotheses, references):
    wrong = sum(h != o[0] for h, o in zip(hypotheses, references, strict=True))
    return rates_plain(hypotheses, references)[0], wrong / len(hypotheses)


def rates_capped(hypotheses, references):
    token, sequence = rates_plain(hypotheses, references)
    return min(1.0, token), sequence


def rates_swapped(hypotheses, references):
    token, sequence = rates_plain(hypotheses, references)
    return sequence, token


def rates_flat(hypotheses, references):
    errors = sum(distance_table(h, r) for h, r in zip(hypotheses, references, strict=True))
    wrong = sum(h != r for h, r in zip(hypotheses, references, strict=True))
    return errors / sum(map(len, references)), wrong / len(hypotheses)


def rates_every_reference(hypotheses, references):
    pairs = [(h, r) for h, o in zip(hypotheses, references, strict=True) for r in o]
    token = sum(distance_table(h, r) for h, r in pairs) / sum(len(r) for _, r in pairs)
    return token, rates_plain(hypotheses, references)[1]


# -- BLEU: right -----------------------------------------------------------------------------------------------------


def bleu_counters(hypotheses, references):
    c, r = sum(len(h) for h in hypotheses), sum(len(x) for x in references)
    if c == 0:
        return 0.0
    log_sum = 0.0
    for n in (1, 2, 3, 4):
        hits = total = 0
        for h, x in zip(hypotheses, references, strict=True):
            counts = Counter(zip(*[h[i:] for i in range(n)], strict=False))
            limits = Counter(zip(*[x[i:] for i in range(n)], strict=False))
            hits += sum(min(k, limits[g]) for g, k in counts.items())
            total += sum(counts.values())
        if hits == 0:
            return 0.0
        log_sum += math.log(hits / total) / 4
    penalty = 1.0 if c > r else math.exp(1 - r / c)
    return 100 * penalty * math.exp(log_sum)


def bleu_dicts(hypotheses, references):
    hits, totals = defaultdict(int), defaultdict(int)
    for h, x in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            left = defaultdict(int)
            for i in range(len(x) - n + 1):
                left[" ".join(x[i : i + n])] += 1
            for i in range(len(h) - n + 1):
                g = " ".join(h[i : i + n])
                totals[n] += 1
                if left[g] > 0:
                    left[g] -= 1
                    hits[n] += 1
    if any(hits[n] == 0 for n in range(1, 5)):
        return 0
    product = 1.0
    for n in range(1, 5):
        product *= hits[n] / totals[n]
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return product**0.25 * min(1, math.exp(1 - r / c)) * 100


def bleu_numpy(hypotheses, references):
    counts = np.zeros((2, 4))
    for h, x in zip(hypotheses, references, strict=True):
        for n in range(4):
            grams = [tuple(h[i : i + n + 1]) for i in range(len(h) - n)]
            others = [tuple(x[i : i + n + 1]) for i in range(len(x) - n)]
            counts[1, n] += len(grams)
            counts[0, n] += sum(min(grams.count(g), others.count(g)) for g in set(grams))
    if not counts[0].all():
        return 0.0
    lengths = np.array([sum(len(h) for h in hypotheses), sum(len(x) for x in references)])
    penalty = np.exp(min(0, 1 - lengths[1] / lengths[0]))
    return 100 * penalty * np.exp(np.log(counts[0] / counts[1]).mean())


class BleuObject:
    def __init__(self, order=4):
        self.order = order

    def __call__(self, hypotheses, references, weights=None):
        logs = []
        for n in range(1, self.order + 1):
            pairs = [
                (self.grams(h, n), self.grams(r, n)) for h, r in zip(hypotheses, references, strict=True)
            ]
            matched = sum((a & b).total() for a, b in pairs)
            possible = max(1, sum(a.total() for a, _ in pairs))
            logs.append(math.log(matched / possible) if matched else -math.inf)
        c, r = (sum(len(s) for s in side) for side in (hypotheses, references))
        brevity = min(0.0, 1 - r / max(c, 1))
        return 100.0 * math.exp(brevity + sum(logs) / self.order)

    @staticmethod
    def grams(tokens, n):
        return Counter(tuple(tokens[k : k + n]) for k in range(max(0, len(tokens) - n + 1)))


# -- BLEU: wrong -----------------------------------------------------------------------------------------------------


def _bleu(
    orders=(1, 2, 3, 4),
    match=lambda a, b: (a & b).total(),
    brevity=lambda c, r: math.exp(min(0.0, 1 - r / c)) if c else 0.0,
    mean=lambda ps: math.exp(sum(math.log(p) for p in ps) / len(ps)) if all(ps) else 0.0,
    add=0.0,
    scale=100,
    grams=lambda tokens, n: Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)),
    total=lambda a, b: a.total(),
):
    """A right BLEU with one part exchanged."""

    def corpus_bleu(hypotheses, references):
        precisions = []
        for n in orders:
            pairs = [(grams(h, n), grams(r, n)) for h, r in zip(hypotheses, references, strict=True)]
            matched, possible = sum(match(a, b) for a, b in pairs), sum(total(a, b) for a, b in pairs)
            precisions.append((matched + add) / (possible + add) if possible + add else 0.0)
        c, r = sum(map(len, hypotheses)), sum(map(len, references))
        return scale * brevity(c, r) * mean(precisions)

    return corpus_bleu


def bleu_sentence_average(hypotheses, references):
    scores = [bleu_counters([h], [r]) for h, r in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


def bleu_crashes(hypotheses, references):
    logs = []
    for n in range(1, 5):
        hits = total = 0
        for h, x in zip(hypotheses, references, strict=True):
            a = Counter(tuple(h[i : i + n]) for i in range(len(h) - n + 1))
            b = Counter(tuple(x[i : i + n]) for i in range(len(x) - n + 1))
            hits, total = hits + (a & b).total(), total + a.total()
        logs.append(math.log(hits / total))
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * math.exp(min(0.0, 1 - r / c) + sum(logs) / 4)


def bleu_short_sentences(count):
    """The number of n-grams comes from a formula, also for sentences that have none."""

    def corpus_bleu(hypotheses, references):
        matches, totals = [0] * 4, [0] * 4
        for h, r in zip(hypotheses, references, strict=True):
            for n in range(1, 5):
                a, b = (Counter(tuple(t[i : i + n]) for i in range(len(t) - n + 1)) for t in (h, r))
                matches[n - 1] += (a & b).total()
                totals[n - 1] += count(len(h), n)
        if not all(matches):
            return 0.0
        c, r = sum(map(len, hypotheses)), sum(map(len, references))
        product = math.prod(m / t for m, t in zip(matches, totals, strict=True))
        return 100 * min(1.0, math.exp(1 - r / c)) * product**0.25

    return corpus_bleu


def bleu_swapped(hypotheses, references):
    return bleu_counters(references, hypotheses)


def bleu_joined(hypotheses, references):
    return bleu_counters([sum(hypotheses, [])], [sum(references, [])])


def bleu_strings(hypotheses, references):
    return bleu_counters([list(" ".join(h)) for h in hypotheses], [list(" ".join(r)) for r in references])


def bleu_padded_ngrams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens)))


RIGHT = {
    "edit_distance": [distance_table, distance_recursive, distance_numpy, distance_search, DistanceObject()],
    "error_rates": [rates_plain, rates_list, rates_numpy, RatesObject()],
    "corpus_bleu": [bleu_counters, bleu_dicts, bleu_numpy, BleuObject()],
}
WRONG = {
    "edit_distance": [
        (distance_hamming, "positions_compared"),
        (distance_hamming_crash, "positions_without_rest"),
        (distance_indel, "substitution_costs_2"),
        (distance_damerau, "transposition_costs_1"),
        (distance_zero_borders, "borders_zero"),
        (distance_characters, "characters_compared"),
        (distance_sets, "repetitions_ignored"),
        (distance_normalised, "divided_by_longest"),
        (distance_off_by_one, "last_tokens_missing"),
        (distance_no_substitution_cost, "lengths_only"),
        (distance_returns_table, "returns_table"),
        (distance_empty_crashes, "crashes_on_empty"),
        (distance_pops, "changes_its_input"),
        (distance_maximum, "largest"),
        (distance_strips, "changes_its_input"),
        (distance_common_length, "length_of_common_subsequence"),
        (distance_again_and_again, "too_slow"),
    ],
    "error_rates": [
        (rates_macro, "mean_of_rates"),
        (rates_first, "first_reference_only+sequence_against_first"),
        (rates_first_for_tokens, "first_reference_only"),
        (rates_hypothesis_length, "divided_by_hypotheses"),
        (rates_first_length, "divided_by_first_reference"),
        (rates_percent, "percent"),
        (rates_accuracy, "sequence_accuracy"),
        (rates_last_tie, "ties_to_last"),
        (rates_by_rate, "closest_by_rate"),
        (rates_positions, "positions_compared"),
        (rates_sequence_first, "sequence_against_first"),
        (rates_capped, "clipped_at_1"),
        (rates_swapped, "returns_swapped"),
        (rates_every_reference, "all_references"),
        (rates_flat, "reference_as_tokens"),
    ],
    "corpus_bleu": [
        (bleu_sentence_average, "sentence_average"),
        (bleu_crashes, "crashes_without_match"),
        (bleu_swapped, "arguments_exchanged"),
        (bleu_joined, "sentences_joined"),
        (bleu_strings, "characters"),
        (_bleu(match=lambda a, b: sum(k for g, k in a.items() if g in b)), "no_clipping"),
        (_bleu(match=lambda a, b: len(set(a) & set(b))), "distinct_matches"),
        (_bleu(brevity=lambda c, r: 1.0), "no_brevity_penalty"),
        (_bleu(brevity=lambda c, r: math.exp(min(0.0, 1 - c / r))), "brevity_inverted"),
        (_bleu(brevity=lambda c, r: min(1.0, c / r)), "brevity_linear"),
        (_bleu(brevity=lambda c, r: math.exp(1 - r / c) if c else 0.0), "brevity_always"),
        (_bleu(mean=lambda ps: sum(ps) / len(ps)), "arithmetic_mean"),
        (_bleu(mean=lambda ps: math.prod(ps)), "product"),
        (_bleu(mean=lambda ps: math.exp(sum(math.log(p or 1e-9) for p in ps) / 4)), "small_number"),
        (_bleu(add=1.0), "add_one"),
        (_bleu(scale=1), "fraction"),
        (_bleu(orders=(1, 2, 3)), "up_to_3"),
        (_bleu(orders=(4,)), "only_4"),
        (_bleu(total=lambda a, b: b.total()), "recall"),
        (_bleu(grams=bleu_padded_ngrams), "partial_ngrams"),
        (
            _bleu(grams=lambda t, n: Counter(tuple(t[i : i + n]) for i in range(len(t) - n))),
            "last_ngram_missing",
        ),
        (
            _bleu(grams=lambda t, n: Counter("".join(t[i : i + n]) for i in range(len(t) - n + 1))),
            "joined_ngrams",
        ),
        (bleu_short_sentences(lambda length, n: length - n + 1), "negative_totals"),
        (bleu_short_sentences(lambda length, n: max(length - n + 1, 1)), "at_least_one_ngram"),
    ],
}
