"""Answers to the exercises of 14_measuring_quality, right and wrong, as people write them."""

import math
from collections import Counter
from functools import lru_cache

import numpy as np
import torch

# -- edit_distance ---------------------------------------------------------------------------------------------------


def distance_array(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    d[:, 0], d[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


def distance_recursive(a, b):
    @lru_cache(None)
    def d(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return d(len(a), len(b))


def distance_tensor(a, b, weights=(1, 1, 1)):
    row = torch.arange(len(b) + 1)
    for x in a:
        new = row.clone()
        new[0] = row[0] + weights[0]
        for j, y in enumerate(b):
            new[j + 1] = min(
                row[j + 1] + weights[0], new[j] + weights[1], row[j] + (0 if x == y else weights[2])
            )
        row = new
    return row[-1].item()


def distance_dictionary(a, b):
    d = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for j in range(1, len(b) + 1):
        for i in range(1, len(a) + 1):
            if a[i - 1] == b[j - 1]:
                d[i, j] = d[i - 1, j - 1]
            else:
                d[i, j] = 1 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[len(a), len(b)]


def distance_two(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + 2 * (x != y)))
        row = new
    return row[-1]


def distance_zip(a, b):
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))


def distance_strings(a, b):
    return distance_dictionary("".join(a), "".join(b))


def distance_normalised(a, b):
    return distance_array(a, b) / max(len(a), len(b), 1)


def distance_zeros(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


def distance_lcs(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            d[i + 1, j + 1] = d[i, j] + 1 if x == y else max(d[i, j + 1], d[i + 1, j])
    return d[-1, -1]


def distance_damerau(a, b):
    d = [[i + j if not i * j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                d[i][j] = min(d[i][j], d[i - 2][j - 2] + 1)
    return d[-1][-1]


def distance_small_table(a, b):
    if not a or not b:
        return len(a) + len(b)
    d = distance_array(a[:-1], b[:-1])
    return d


def distance_sets(a, b):
    return len(set(a).symmetric_difference(b))


def distance_pops(a, b):
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    return distance_array(a, b)


# -- error_rates -----------------------------------------------------------------------------------------------------


def _rates(choose=None, pool="micro", denominator=None, sequence=None, order="ts", scale=1):
    def error_rates(hypotheses, references):
        pairs, wrong = [], 0
        for h, rs in zip(hypotheses, references, strict=True):
            best = choose(h, rs) if choose else min(rs, key=lambda r: distance_recursive(tuple(h), tuple(r)))
            d = distance_recursive(tuple(h), tuple(best))
            pairs.append((d, denominator(h, rs, best) if denominator else len(best)))
            wrong += (sequence(h, rs) if sequence else h not in rs) * 1
        token = sum(d for d, _ in pairs) / sum(n for _, n in pairs)
        if pool == "macro":
            token = float(np.mean([d / n for d, n in pairs]))
        rates = (scale * token, scale * wrong / len(hypotheses))
        return rates if order == "ts" else rates[::-1]

    return error_rates


def rates_numpy(hypotheses, references):
    table = [
        np.array([distance_array(h, r) for r in rs]) for h, rs in zip(hypotheses, references, strict=True)
    ]
    best = [int(t.argmin()) for t in table]
    errors = np.array([t[b] for t, b in zip(table, best, strict=True)])
    lengths = np.array([len(rs[b]) for rs, b in zip(references, best, strict=True)])
    return errors.sum() / lengths.sum(), (errors > 0).mean()


def rates_loop(hypotheses, references):
    total, length, wrong = 0, 0, 0
    for i in range(len(hypotheses)):
        lowest, chosen = float("inf"), None
        for r in references[i]:
            d = distance_dictionary(hypotheses[i], r)
            if d < lowest:
                lowest, chosen = d, r
        total, length = total + lowest, length + len(chosen)
        wrong += 0 if any(hypotheses[i] == r for r in references[i]) else 1
    return [total / length, wrong / len(hypotheses)]


def rates_sorted(hypotheses, references, verbose=False):
    chosen = [
        sorted(rs, key=lambda r: distance_array(h, r))[0]
        for h, rs in zip(hypotheses, references, strict=True)
    ]
    d = [distance_array(h, r) for h, r in zip(hypotheses, chosen, strict=True)]
    return float(sum(d)) / sum(map(len, chosen)), np.count_nonzero(d) / len(d)


def closer_or_equal(h, rs):
    best = rs[0]
    for r in rs[1:]:
        if distance_array(h, r) <= distance_array(h, best):
            best = r
    return best


# -- corpus_bleu -----------------------------------------------------------------------------------------------------


def grams(tokens, n):
    return Counter(zip(*[tokens[i:] for i in range(n)], strict=False))


def _bleu(
    clip=True,
    brevity=lambda c, r: min(1, math.exp(1 - r / c)),
    orders=4,
    mean="geometric",
    scale=100,
    smooth=0,
    swap=False,
):
    def corpus_bleu(hypotheses, references):
        if swap:
            hypotheses, references = references, hypotheses
        c, r = sum(len(h) for h in hypotheses), sum(len(x) for x in references)
        precisions = []
        for n in range(1, orders + 1):
            matched = total = smooth
            for h, x in zip(hypotheses, references, strict=True):
                mine, theirs = grams(h, n), grams(x, n)
                matched += sum(min(k, theirs[g]) if clip else k * (g in theirs) for g, k in mine.items())
                total += sum(mine.values())
            precisions.append(matched / total if total else 0.0)
        if mean == "arithmetic":
            return scale * brevity(c, r) * sum(precisions) / orders
        if min(precisions) == 0:
            return 0.0
        return scale * brevity(c, r) * math.prod(precisions) ** (1 / orders)

    return corpus_bleu


def bleu_numpy(hypotheses, references):
    p = np.zeros((4, 2))
    for h, r in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            a = [" ".join(h[i : i + n]) for i in range(len(h) - n + 1)]
            b = [" ".join(r[i : i + n]) for i in range(len(r) - n + 1)]
            p[n - 1] += [sum(min(a.count(g), b.count(g)) for g in set(a)), len(a)]
    if (p[:, 0] == 0).any():
        return 0.0
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 1.0 if c > r else np.exp(1 - r / c)
    return 100 * bp * np.exp(np.log(p[:, 0] / p[:, 1]).mean())


def bleu_removing(hypotheses, references):
    logs, sizes = 0.0, [0, 0]
    for n in (1, 2, 3, 4):
        hits = count = 0
        for h, r in zip(hypotheses, references, strict=True):
            left = [tuple(r[i : i + n]) for i in range(len(r) - n + 1)]
            for i in range(len(h) - n + 1):
                count += 1
                if tuple(h[i : i + n]) in left:
                    left.remove(tuple(h[i : i + n]))
                    hits += 1
        if hits == 0:
            return 0
        logs += 0.25 * math.log(hits / count)
    for h, r in zip(hypotheses, references, strict=True):
        sizes[0] += len(h)
        sizes[1] += len(r)
    if sizes[0] < sizes[1]:
        logs += 1 - sizes[1] / sizes[0]
    return 100 * math.e**logs


class BleuObject:
    def __call__(self, hypotheses, references, max_order=4):
        return _bleu(orders=max_order)(hypotheses, references)


def bleu_sentences(hypotheses, references):
    return sum(_bleu()([h], [r]) if h else 0.0 for h, r in zip(hypotheses, references, strict=True)) / len(
        hypotheses
    )


def bleu_log_of_zero(hypotheses, references):
    m, t = [0] * 4, [0] * 4
    for h, r in zip(hypotheses, references, strict=True):
        for n in range(4):
            m[n] += (grams(h, n + 1) & grams(r, n + 1)).total()
            t[n] += grams(h, n + 1).total()
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return (
        100
        * min(1, math.exp(1 - r / c))
        * math.exp(sum(math.log(a / b) for a, b in zip(m, t, strict=True)) / 4)
    )


RIGHT = {
    "edit_distance": [distance_array, distance_recursive, distance_tensor, distance_dictionary],
    "error_rates": [_rates(), rates_numpy, rates_loop, rates_sorted],
    "corpus_bleu": [_bleu(), bleu_numpy, bleu_removing, BleuObject()],
}

WRONG = {
    "edit_distance": [
        (distance_two, "substitution_costs_two"),
        (distance_zip, "position_by_position"),
        (distance_strings, "joined_to_characters"),
        (distance_normalised, "divided_by_longer"),
        (distance_zeros, "borders_zero"),
        (distance_lcs, "common_subsequence"),
        (distance_damerau, "transposition_counts_once"),
        (distance_sets, "set_difference"),
        (distance_pops, "changes_its_input"),
        (distance_small_table, "one_cell_early"),
    ],
    "error_rates": [
        (_rates(pool="macro"), "mean_of_rates"),
        (_rates(choose=lambda h, rs: rs[0], sequence=lambda h, rs: h != rs[0]), "first_reference_only"),
        (_rates(sequence=lambda h, rs: h != rs[0]), "sequence_by_first_reference"),
        (_rates(sequence=lambda h, rs: h in rs), "accuracy"),
        (_rates(order="st"), "swapped"),
        (_rates(scale=100), "percent"),
        (_rates(denominator=lambda h, rs, best: len(h)), "divided_by_hypothesis"),
        (_rates(denominator=lambda h, rs, best: len(rs[0])), "divided_by_first"),
        (_rates(denominator=lambda h, rs, best: max(len(h), len(best))), "divided_by_longer"),
        (_rates(choose=closer_or_equal), "ties_to_the_last"),
        (_rates(choose=lambda h, rs: min(rs, key=lambda r: distance_array(h, r) / len(r))), "lowest_rate"),
    ],
    "corpus_bleu": [
        (_bleu(clip=False), "not_clipped"),
        (_bleu(brevity=lambda c, r: 1), "no_brevity_penalty"),
        (_bleu(brevity=lambda c, r: math.exp(1 - r / c)), "brevity_always"),
        (_bleu(brevity=lambda c, r: min(1, math.exp(1 - c / r))), "brevity_exchanged"),
        (_bleu(brevity=lambda c, r: min(1, c / r)), "brevity_ratio"),
        (_bleu(orders=2), "up_to_bigrams"),
        (_bleu(mean="arithmetic"), "arithmetic_mean"),
        (_bleu(scale=1), "fraction"),
        (_bleu(smooth=1), "smoothed_add_one"),
        (_bleu(swap=True), "arguments_exchanged"),
        (bleu_sentences, "sentence_average"),
        (bleu_log_of_zero, "crashes_without_a_match"),
    ],
}
