"""Answers to the exercises of 01, right and wrong."""

import itertools
import math
import re
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

# -- Vocabulary: right -----------------------------------------------------------------------------------------------


class VocabularyLoops:
    def __init__(self, sequences, min_count=1):
        counts = {}
        for sequence in sequences:
            for token in sequence:
                counts[token] = counts.get(token, 0) + 1
        words = [w for w in sorted(counts) if counts[w] >= min_count]
        words.sort(key=lambda w: counts[w], reverse=True)  # stable
        self.itos = ["<pad>", "<bos>", "<eos>", "<unk>"] + words
        self.stoi = dict(zip(self.itos, range(len(self.itos)), strict=True))

    @property
    def tokens(self):
        return self.itos

    def __len__(self):
        return len(self.itos)

    def encode(self, tokens):
        out = []
        for t in tokens:
            out.append(self.stoi[t] if t in self.stoi else 3)
        return out

    def decode(self, ids, skip_special=True):
        out = []
        for i in ids:
            if skip_special and i <= 3:
                continue
            out.append(self.itos[i])
        return out


class VocabularyTensor:
    SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

    def __init__(self, sequences, min_count=1, specials=SPECIALS):
        counter = Counter(itertools.chain.from_iterable(sequences))
        pairs = sorted(counter.items(), key=lambda kv: (-kv[1], kv[0]))
        self.tokens = list(specials)
        for token, count in pairs:
            if count >= min_count and token not in specials:
                self.tokens.append(token)
        self.lookup = defaultdict(lambda: 3)
        self.lookup.update({t: i for i, t in enumerate(self.tokens)})

    def __len__(self):
        return len(self.lookup) if len(self.lookup) == len(self.tokens) else len(self.tokens)

    def encode(self, tokens):
        return torch.tensor([self.lookup[t] for t in tokens], dtype=torch.long)

    def decode(self, ids, skip_special=True):
        words = [self.tokens[int(i)] for i in ids]
        return [w for w in words if w not in self.SPECIALS] if skip_special else words


class VocabularyList(list):
    def __init__(self, sequences, min_count=1):
        flat = [t for s in sequences for t in s]
        kept = {t for t in flat if flat.count(t) >= min_count}
        super().__init__(
            ["<pad>", "<bos>", "<eos>", "<unk>", *sorted(kept, key=lambda t: (-flat.count(t), t))]
        )
        self.tokens = tuple(self)

    def encode(self, tokens):
        return tuple(self.index(t) if t in self else self.index("<unk>") for t in tokens)

    def decode(self, ids, skip_special=True):
        return tuple(self[i] for i in ids if i > 3 or not skip_special)


class VocabularyTry:
    def __init__(self, sequences, min_count=1):
        c = Counter()
        for s in sequences:
            c.update(s)
        c = OrderedDict((t, n) for t, n in c.most_common() if n >= min_count)
        self.tokens = ["<pad>", "<bos>", "<eos>", "<unk>"]
        for n in sorted(set(c.values()), reverse=True):
            self.tokens += sorted(t for t in c if c[t] == n)

    def __len__(self):
        return len(self.tokens)

    def encode(self, tokens):
        def one(t):
            try:
                return self.tokens.index(t)
            except ValueError:
                return self.tokens.index("<unk>")

        return list(map(one, tokens))

    def decode(self, ids, skip_special=True):
        special = set(self.tokens[:4])
        return [t for t in (self.tokens[i] for i in ids) if not skip_special or t not in special]


# -- Vocabulary: wrong -----------------------------------------------------------------------------------------------


class _Vocabulary(VocabularyLoops):
    """With the parts that the wrong ones change."""

    tokens = None

    def __init__(self, sequences, min_count=1):
        counts = Counter(t for s in sequences for t in s)
        self.tokens = self.order(counts, min_count)
        self.itos = self.tokens
        self.stoi = {t: i for i, t in enumerate(self.tokens)}

    def order(self, counts, min_count):
        kept = [t for t in counts if counts[t] >= min_count]
        return ["<pad>", "<bos>", "<eos>", "<unk>"] + sorted(kept, key=lambda t: (-counts[t], t))


class VocabularyMostCommon(_Vocabulary):
    def order(self, counts, min_count):
        kept = [t for t, n in counts.most_common() if n >= min_count]
        return ["<pad>", "<bos>", "<eos>", "<unk>"] + kept


class VocabularyReverse(_Vocabulary):
    def order(self, counts, min_count):
        kept = sorted(((n, t) for t, n in counts.items() if n >= min_count), reverse=True)
        return ["<pad>", "<bos>", "<eos>", "<unk>"] + [t for _, t in kept]


class VocabularyAlphabet(_Vocabulary):
    def order(self, counts, min_count):
        return ["<pad>", "<bos>", "<eos>", "<unk>"] + sorted(t for t in counts if counts[t] >= min_count)


class VocabularySpecialsLast(_Vocabulary):
    def order(self, counts, min_count):
        return super().order(counts, min_count)[4:] + ["<pad>", "<bos>", "<eos>", "<unk>"]

    def encode(self, tokens):
        return [self.stoi.get(t, self.stoi["<unk>"]) for t in tokens]

    def decode(self, ids, skip_special=True):
        words = [self.tokens[i] for i in ids]
        return [w for w in words if not (skip_special and w in ("<pad>", "<bos>", "<eos>", "<unk>"))]


class VocabularyUnkSecond(_Vocabulary):
    def order(self, counts, min_count):
        return ["<pad>", "<unk>", "<bos>", "<eos>"] + super().order(counts, min_count)[4:]

    def encode(self, tokens):
        return [self.stoi.get(t, self.stoi["<unk>"]) for t in tokens]


class VocabularyMoreThan(_Vocabulary):
    def order(self, counts, min_count):
        return super().order(counts, min_count + 1)


class VocabularyAll(_Vocabulary):
    def order(self, counts, min_count):
        return super().order(counts, 0)


class VocabularyKeyError(_Vocabulary):
    def encode(self, tokens):
        return [self.stoi[t] for t in tokens]


class VocabularyDrops(_Vocabulary):
    def encode(self, tokens):
        return [self.stoi[t] for t in tokens if t in self.stoi]


class VocabularyZero(_Vocabulary):
    def encode(self, tokens):
        return [self.stoi.get(t, 0) for t in tokens]


class VocabularyBosEos(_Vocabulary):
    def encode(self, tokens):
        return [1] + super().encode(tokens) + [2]


class VocabularyKeepsUnk(_Vocabulary):
    def decode(self, ids, skip_special=True):
        return [self.tokens[i] for i in ids if not (skip_special and i < 3)]


class VocabularyNeverSkips(_Vocabulary):
    def decode(self, ids, skip_special=True):
        return [self.tokens[i] for i in ids]


class VocabularyAlwaysSkips(_Vocabulary):
    def decode(self, ids, skip_special=True):
        return [self.tokens[i] for i in ids if i > 3]


class VocabularyString(_Vocabulary):
    def decode(self, ids, skip_special=True):
        return " ".join(super().decode(ids, skip_special))


class VocabularyUntilEos(_Vocabulary):
    def decode(self, ids, skip_special=True):
        out = []
        for i in ids:
            if i == 2:
                break
            if not (skip_special and i < 4):
                out.append(self.tokens[i])
        return out


class VocabularyNoLen:
    def __init__(self, sequences, min_count=1):
        inner = _Vocabulary(sequences, min_count)
        self.tokens, self.encode, self.decode = inner.tokens, inner.encode, inner.decode


class VocabularyGrows(_Vocabulary):
    def encode(self, tokens):
        out = super().encode(tokens)
        for t in tokens:
            if t not in self.stoi:
                self.stoi[t] = len(self.tokens)
                self.tokens.append(t)
        return out


class VocabularyShared:
    tokens = ["<pad>", "<bos>", "<eos>", "<unk>"]
    ids = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3}

    def __init__(self, sequences, min_count=1):
        counts = Counter(t for s in sequences for t in s)
        for t in sorted(counts, key=lambda t: (-counts[t], t)):
            if counts[t] >= min_count and t not in self.ids:
                self.ids[t] = len(self.tokens)
                self.tokens.append(t)

    def __len__(self):
        return len(self.tokens)

    def encode(self, tokens):
        return [self.ids.get(t, 3) for t in tokens]

    def decode(self, ids, skip_special=True):
        return [self.tokens[i] for i in ids if i > 3 or not skip_special]


class VocabularyDocuments(_Vocabulary):
    def __init__(self, sequences, min_count=1):
        super().__init__([set(s) for s in sequences], min_count)


class VocabularyUnsorted(_Vocabulary):
    def order(self, counts, min_count):
        return ["<pad>", "<bos>", "<eos>", "<unk>"] + [t for t in counts if counts[t] >= min_count]


class VocabularySpecialsInCorpus(_Vocabulary):
    """Right as well, since the sequences hold none: the four are not counted."""

    def order(self, counts, min_count):
        return super().order(
            Counter({t: n for t, n in counts.items() if t not in VocabularyTensor.SPECIALS}), min_count
        )


class VocabularyConcatenated(_Vocabulary):
    """Goes through the sequences twice, and takes lists only."""

    def __init__(self, sequences, min_count=1):
        counts = Counter(sum(sequences, []))  # noqa: RUF017
        assert sum(map(len, sequences)) == counts.total()
        super().__init__(sequences, min_count)


class VocabularyMethod(dict):
    def __init__(self, sequences, min_count=1):
        counts = Counter(t for s in sequences for t in s)
        kept = sorted((t for t in counts if counts[t] >= min_count), key=lambda t: (-counts[t], t))
        super().__init__({t: i for i, t in enumerate([*VocabularyTensor.SPECIALS, *kept])})

    def tokens(self):
        return list(self)

    def encode(self, tokens):
        return [self.get(t, 3) for t in tokens]

    def decode(self, ids, skip_special=True):
        return [list(self)[i] for i in ids if i > 3 or not skip_special]


class VocabularyIndex(_Vocabulary):
    def __init__(self, sequences, min_count=1):
        super().__init__(sequences, min_count)
        self.tokens = self.stoi


# -- pad_sequences ---------------------------------------------------------------------------------------------------


def pad_lists(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    return torch.tensor([list(s) + [pad_id] * (n - len(s)) for s in sequences], dtype=torch.long)


def pad_zip(sequences, pad_id=0, **unused):
    columns = itertools.zip_longest(*sequences, fillvalue=pad_id)
    return torch.LongTensor(list(columns)).T


def pad_numpy(sequences, pad_id=0):
    lengths = np.array([len(s) for s in sequences])
    out = np.full((len(sequences), lengths.max()), pad_id, dtype=np.int64)
    out[np.arange(lengths.max())[None] < lengths[:, None]] = np.concatenate(
        [np.asarray(s, dtype=np.int64) for s in sequences]
    )
    return torch.from_numpy(out)


def pad_functional(sequences, pad_id=0):
    longest = max(map(len, sequences))
    rows = [F.pad(torch.tensor(s, dtype=torch.long), (0, longest - len(s)), value=pad_id) for s in sequences]
    return torch.stack(rows)


class PadObject:
    def __call__(self, sequences, pad_id=0):
        longest = 0
        for s in sequences:
            longest = len(s) if len(s) > longest else longest
        out = torch.zeros(len(sequences), longest, dtype=torch.int64) + pad_id
        for i in range(len(sequences)):
            for j in range(len(sequences[i])):
                out[i][j] = sequences[i][j]
        return out


def pad_left(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    return torch.tensor([[pad_id] * (n - len(s)) + list(s) for s in sequences])


def pad_zeros(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    out = torch.zeros(len(sequences), n, dtype=torch.long)
    for i, s in enumerate(sequences):
        out[i, : len(s)] = torch.tensor(s, dtype=torch.long)
    return out


def pad_float(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    out = torch.full((len(sequences), n), float(pad_id))
    for i, s in enumerate(sequences):
        out[i, : len(s)] = torch.tensor(s)
    return out


def pad_transposed(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    return torch.tensor([list(s) + [pad_id] * (n - len(s)) for s in sequences]).T


def pad_in_place(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    for s in sequences:
        while len(s) < n:
            s.append(pad_id)
    return torch.tensor(sequences)


def pad_cut(sequences, pad_id=0):
    n = min(len(s) for s in sequences)
    return torch.tensor([list(s)[:n] for s in sequences], dtype=torch.long)


def pad_first(sequences, pad_id=0):
    n = len(sequences[0])
    return torch.tensor([(list(s) + [pad_id] * n)[:n] for s in sequences])


def pad_sorted(sequences, pad_id=0):
    rows = sorted(sequences, key=len, reverse=True)
    return pad_lists(rows, pad_id)


def pad_list_result(sequences, pad_id=0):
    return pad_lists(sequences, pad_id).tolist()


def pad_same_row(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    rows = [[pad_id] * n] * len(sequences)
    for row, s in zip(rows, sequences, strict=True):
        row[: len(s)] = s
    return torch.tensor(rows)


def pad_library(sequences, pad_id=0):
    return pad_sequence(
        [torch.tensor(s, dtype=torch.long) for s in sequences], batch_first=True, padding_value=pad_id
    )


def pad_library_by_module(sequences, pad_id=0):
    rows = [torch.tensor(s, dtype=torch.long) for s in sequences]
    return nn.utils.rnn.pad_sequence(rows, True, pad_id)


def pad_no_empty(sequences, pad_id=0):
    n = max(len(s) for s in sequences)
    return torch.tensor([list(s) + [pad_id] * (n - len(s)) for s in sequences if s])


def pad_extra(sequences, pad_id=0):
    n = max(len(s) for s in sequences) + 1
    return torch.tensor([list(s) + [pad_id] * (n - len(s)) for s in sequences])


def pad_all_zero_ids(sequences, pad_id=0):
    out = pad_lists(sequences, 0)
    out[out == 0] = pad_id
    return out


def pad_eos(sequences, pad_id=0):
    return pad_lists([list(s) + [2] for s in sequences], pad_id)


# -- learn_bpe -------------------------------------------------------------------------------------------------------


def _join(pieces, pair):
    out, i = [], 0
    while i < len(pieces):
        if i < len(pieces) - 1 and pieces[i] == pair[0] and pieces[i + 1] == pair[1]:
            out.append(pieces[i] + pieces[i + 1])
            i += 2
        else:
            out.append(pieces[i])
            i += 1
    return out


def learn_loops(word_counts, n_merges):
    corpus = [(list(w), c) for w, c in word_counts.items()]
    merges = []
    for _ in range(n_merges):
        stats = {}
        for pieces, c in corpus:
            for i in range(len(pieces) - 1):
                pair = (pieces[i], pieces[i + 1])
                stats[pair] = stats.get(pair, 0) + c
        if not stats:
            break
        top = max(stats.values())
        best = sorted(p for p in stats if stats[p] == top)[0]
        corpus = [(_join(pieces, best), c) for pieces, c in corpus]
        merges.append(best)
    return merges


def learn_regex(word_counts, n_merges):
    vocab = {" ".join(w): c for w, c in word_counts.items()}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for text, c in vocab.items():
            symbols = text.split()
            for a, b in zip(symbols, symbols[1:], strict=False):
                pairs[a, b] += c
        if len(pairs) == 0:
            return merges
        best = min(pairs.items(), key=lambda kv: (-kv[1], kv[0]))[0]
        pattern = re.compile(r"(?<!\S)" + re.escape(" ".join(best)) + r"(?!\S)")
        vocab = {pattern.sub("".join(best), text): c for text, c in vocab.items()}
        merges.append(list(best))
    return merges


def learn_recursive(word_counts, n_merges):
    def step(words, left):
        pairs = Counter()
        for pieces, c in words:
            for pair in itertools.pairwise(pieces):
                pairs[pair] += c
        if left == 0 or not pairs:
            return []
        best = max(sorted(pairs), key=pairs.__getitem__)
        return [best, *step([(tuple(_join(p, best)), c) for p, c in words], left - 1)]

    return step([(tuple(w), c) for w, c in word_counts.items()], n_merges)


class LearnObject:
    def __call__(self, word_counts, n_merges, verbose=False):
        words = {w: tuple(w) for w in word_counts}
        merges = ()
        for _ in range(n_merges):
            count = defaultdict(int)
            for w, pieces in words.items():
                for a, b in zip(pieces[:-1], pieces[1:], strict=True):
                    count[(a, b)] += word_counts[w]
            ranked = sorted(count.items(), key=lambda item: item[0])
            ranked = sorted(ranked, key=lambda item: item[1], reverse=True)
            if not ranked:
                break
            merges += (ranked[0][0],)
            words = {w: tuple(_join(p, ranked[0][0])) for w, p in words.items()}
        return merges


def _learn(choose, join=_join, weight=lambda c: c, stop=lambda stats: not stats, mark=()):
    def learn_bpe(word_counts, n_merges):
        corpus = [([*w, *mark], c) for w, c in word_counts.items()]
        merges = []
        for _ in range(n_merges):
            stats = Counter()
            for pieces, c in corpus:
                for pair in itertools.pairwise(pieces):
                    stats[pair] += weight(c)
            if stop(stats):
                break
            best = choose(stats)
            corpus = [(join(p, best), c) for p, c in corpus]
            merges.append(best)
        return merges

    return learn_bpe


def _smallest(stats):
    return min(stats, key=lambda p: (-stats[p], p))


def _replace(pieces, pair):
    return " ".join(pieces).replace(" ".join(pair), "".join(pair)).split()


def _first_only(pieces, pair):
    for i in range(len(pieces) - 1):
        if (pieces[i], pieces[i + 1]) == pair:
            return pieces[:i] + ["".join(pair)] + pieces[i + 2 :]
    return pieces


learn_first_seen = _learn(lambda stats: max(stats, key=stats.get))
learn_largest = _learn(lambda stats: max(stats, key=lambda p: (stats[p], p)))
learn_types = _learn(_smallest, weight=lambda c: 1)
learn_replace = _learn(_smallest, join=_replace)
learn_first_only = _learn(_smallest, join=_first_only)
learn_no_stop = _learn(_smallest, stop=lambda stats: False)
learn_frequency_two = _learn(_smallest, stop=lambda stats: not stats or max(stats.values()) < 2)
learn_mark = _learn(_smallest, mark=("</w>",))
learn_underscore = _learn(_smallest, mark=("_",))


def _unescaped(pieces, pair):
    pattern = re.compile(r"(?<!\S)" + " ".join(pair) + r"(?!\S)")
    return pattern.sub("".join(pair), " ".join(pieces)).split()


learn_unescaped = _learn(_smallest, join=_unescaped)


def learn_one_word(word_counts, n_merges):
    words = {w: list(w) for w in word_counts}
    merges = []
    for _ in range(n_merges):
        stats = Counter()
        for w, pieces in words.items():
            for pair in itertools.pairwise(pieces):
                stats[pair] += word_counts[w]
        if not stats:
            break
        best = _smallest(stats)
        merges.append(best)
        for w, pieces in words.items():
            words[w] = _join(pieces, best)
            if words[w] != pieces:
                break
    return merges


def learn_wordpiece(word_counts, n_merges):
    words = {w: list(w) for w in word_counts}
    merges = []
    for _ in range(n_merges):
        stats, single = Counter(), Counter()
        for w, pieces in words.items():
            for piece in pieces:
                single[piece] += word_counts[w]
            for pair in itertools.pairwise(pieces):
                stats[pair] += word_counts[w]
        if not stats:
            break
        best = min(stats, key=lambda p: (-stats[p] / (single[p[0]] * single[p[1]]), p))
        words = {w: _join(pieces, best) for w, pieces in words.items()}
        merges.append(best)
    return merges


def learn_start_mark(word_counts, n_merges):
    return learn_loops({"▁" + w: c for w, c in word_counts.items()}, n_merges)


def learn_joined(word_counts, n_merges):
    return ["".join(pair) for pair in learn_loops(word_counts, n_merges)]


def learn_once(word_counts, n_merges):
    stats = Counter()
    for w, c in word_counts.items():
        for pair in itertools.pairwise(w):
            stats[pair] += c
    return sorted(stats, key=lambda p: (-stats[p], p))[:n_merges]


def learn_one_more(word_counts, n_merges):
    return learn_loops(word_counts, n_merges + 1)


def learn_word_set(word_counts, n_merges):
    corpus = [(list(w), c) for w, c in word_counts.items()]
    merges = []
    for _ in range(n_merges):
        stats = Counter()
        for pieces, c in corpus:
            for pair in set(itertools.pairwise(pieces)):
                stats[pair] += c
        if not stats:
            break
        best = _smallest(stats)
        corpus = [(_join(p, best), c) for p, c in corpus]
        merges.append(best)
    return merges


def learn_destroys(word_counts, n_merges):
    merges = learn_loops(word_counts, n_merges)
    for w in list(word_counts):
        word_counts[" ".join(w)] = word_counts.pop(w)
    return merges


def learn_repeats_last(word_counts, n_merges):
    merges = learn_loops(word_counts, n_merges)
    return merges + merges[-1:] * (n_merges - len(merges))


# -- apply_bpe -------------------------------------------------------------------------------------------------------


def apply_loops(word, merges):
    pieces = [c for c in word]
    for pair in merges:
        pieces = _join(pieces, pair)
    return pieces


def apply_pop(word, merges):
    pieces = list(word)
    for a, b in merges:
        i = 0
        while i < len(pieces) - 1:
            if pieces[i] == a and pieces[i + 1] == b:
                pieces[i] = a + b
                pieces.pop(i + 1)
            i += 1
    return tuple(pieces)


def apply_regex(word, merges):
    text = " ".join(word)
    for a, b in merges:
        text = re.sub(rf"(?<!\S){re.escape(a)} {re.escape(b)}(?!\S)", a + b, text)
    return text.split()


def apply_ranked(word, merges):
    rank = {tuple(pair): i for i, pair in enumerate(merges)}
    pieces = list(word)
    while len(pieces) > 1:
        pair = min(itertools.pairwise(pieces), key=lambda p: rank.get(p, math.inf))
        if pair not in rank:
            break
        pieces = _join(pieces, pair)
    return pieces


def apply_recursive(word, merges):
    def go(pieces, pair):
        if len(pieces) < 2:
            return pieces
        if tuple(pieces[:2]) == tuple(pair):
            return [pieces[0] + pieces[1], *go(pieces[2:], pair)]
        return [pieces[0], *go(pieces[1:], pair)]

    pieces = list(word)
    for pair in merges:
        pieces = go(pieces, pair)
    return pieces


def apply_replace(word, merges):
    pieces = list(word)
    for pair in merges:
        pieces = _replace(pieces, pair)
    return pieces


def apply_first_only(word, merges):
    pieces = list(word)
    for pair in merges:
        pieces = _first_only(pieces, pair)
    return pieces


def apply_right(word, merges):
    pieces = list(word)
    for a, b in merges:
        i = len(pieces) - 2
        while i >= 0:
            if i + 1 < len(pieces) and pieces[i] == a and pieces[i + 1] == b:
                pieces[i : i + 2] = [a + b]
            i -= 1
    return pieces


def apply_one_pass(word, merges):
    out = []
    for c in word:
        if out and (out[-1], c) in merges:
            out[-1] += c
        else:
            out.append(c)
    return out


def apply_backwards(word, merges):
    return apply_loops(word, merges[::-1])


def apply_longest(word, merges):
    known = {a + b for a, b in merges}
    out = []
    while word:
        n = len(word)
        while n > 1 and word[:n] not in known:
            n -= 1
        out.append(word[:n])
        word = word[n:]
    return out


def apply_unescaped(word, merges):
    pieces = list(word)
    for pair in merges:
        pieces = _unescaped(pieces, pair)
    return pieces


def apply_unescaped_text(word, merges):
    text = " ".join(word)
    for a, b in merges:
        text = re.sub(r"(?<!\S)" + a + " " + b + r"(?!\S)", a + b, text)
    return text.split()


def apply_sorted(word, merges):
    return apply_loops(word, sorted(merges))


def apply_subword_nmt(word, merges):
    pieces = apply_loops(word, merges)
    return [piece + "@@" for piece in pieces[:-1]] + [pieces[-1]]


def apply_hashes(word, merges):
    pieces = apply_loops(word, merges)
    return [piece if i == 0 else "##" + piece for i, piece in enumerate(pieces)]


def apply_word(word, merges):
    return "".join(apply_loops(word, merges))


def apply_string(word, merges):
    return " ".join(apply_loops(word, merges))


def apply_loses_last(word, merges):
    pieces = list(word)
    for a, b in merges:
        out, i = [], 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == (a, b):
                out.append(a + b)
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        pieces = out
    return pieces


def apply_overlap(word, merges):
    pieces = list(word)
    for a, b in merges:
        out, skip = [], False
        for i, piece in enumerate(pieces):
            if i + 1 < len(pieces) and (piece, pieces[i + 1]) == (a, b):
                out.append(a + b)
                skip = True
            elif skip:
                skip = False
            else:
                out.append(piece)
        pieces = out
    return pieces


def apply_mark(word, merges):
    return apply_loops([*word, "</w>"], merges)


def apply_characters(word, merges):
    return list(word)


def apply_pops_merges(word, merges):
    pieces = list(word)
    while merges:
        pieces = _join(pieces, merges.pop(0))
    return pieces


def apply_chains(word, merges):
    """Joins onto a piece that was just made: right as long as no such pair is the same."""
    pieces = list(word)
    for a, b in merges:
        out = []
        for piece in pieces:
            if out and out[-1].endswith(a) and piece == b:
                out[-1] += piece
            else:
                out.append(piece)
        pieces = out
    return pieces


# -- TokenEmbedding --------------------------------------------------------------------------------------------------


class EmbeddingLibrary(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.d_model = d_model

    def forward(self, tokens):
        return self.table(tokens) * self.d_model**0.5


class EmbeddingMasked(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.w = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.pad = pad_id

    def forward(self, tokens):
        real = (tokens != self.pad).unsqueeze(-1)
        return self.w[tokens].masked_fill(~real, 0.0) * math.sqrt(self.w.shape[1])


class EmbeddingOneHot(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0, std=0.02):
        super().__init__()
        self.columns = nn.Linear(vocab_size, d_model, bias=False)
        self.vocab_size, self.pad, self.scale = vocab_size, pad_id, math.sqrt(d_model)
        with torch.no_grad():
            self.columns.weight[:, pad_id] = 0

    def forward(self, tokens):
        one_hot = F.one_hot(tokens, self.vocab_size).to(self.columns.weight.dtype)
        one_hot = one_hot * (tokens != self.pad)[..., None]
        return self.columns(one_hot * self.scale)


class EmbeddingInitialised(nn.Embedding):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, padding_idx=pad_id)
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].fill_(0)

    def forward(self, tokens):
        return super().forward(tokens).mul(self.embedding_dim**0.5)


class EmbeddingUniform(nn.Module):
    """Starts at random in another way."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        weight = torch.rand(vocab_size, d_model)
        weight[pad_id] = 0
        self.weight = nn.Parameter(weight)
        self.pad_id, self.factor = pad_id, d_model**0.5

    def forward(self, tokens):
        return F.embedding(tokens, self.weight, padding_idx=self.pad_id) * self.factor


class EmbeddingNoScale(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)

    def forward(self, tokens):
        return self.table(tokens)


class EmbeddingTimesD(EmbeddingLibrary):
    def forward(self, tokens):
        return self.table(tokens) * self.d_model


class EmbeddingDivided(EmbeddingLibrary):
    def forward(self, tokens):
        return self.table(tokens) / math.sqrt(self.d_model)


class EmbeddingNoPad(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.d_model = d_model

    def forward(self, tokens):
        return self.table(tokens) * math.sqrt(self.d_model)


class EmbeddingPadZero(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model, padding_idx=0)
        self.d_model = d_model

    def forward(self, tokens):
        return self.table(tokens) * math.sqrt(self.d_model)


class EmbeddingOverwritten(EmbeddingLibrary):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, pad_id)
        nn.init.xavier_uniform_(self.table.weight)


class EmbeddingPadTrained(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        weight = torch.randn(vocab_size, d_model)
        weight[pad_id] = 0
        self.weight = nn.Parameter(weight)

    def forward(self, tokens):
        return self.weight[tokens] * math.sqrt(self.weight.size(-1))


class EmbeddingPlain(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.weight = torch.randn(vocab_size, d_model, requires_grad=True)
        self.pad_id = pad_id

    def forward(self, tokens):
        return F.embedding(tokens, self.weight, self.pad_id) * math.sqrt(self.weight.size(-1))


class EmbeddingExtraRow(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size + 1, d_model, padding_idx=pad_id)

    def forward(self, tokens):
        return self.table(tokens) * math.sqrt(self.table.embedding_dim)


class EmbeddingDetached(EmbeddingLibrary):
    def forward(self, tokens):
        return self.table.weight.data[tokens] * math.sqrt(self.d_model)


class EmbeddingTurned(EmbeddingLibrary):
    def forward(self, tokens):
        return super().forward(tokens).transpose(0, 1)


class EmbeddingVocabularyScale(EmbeddingLibrary):
    def forward(self, tokens):
        return self.table(tokens) * math.sqrt(self.table.num_embeddings)


class EmbeddingZeros(EmbeddingLibrary):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, pad_id)
        nn.init.zeros_(self.table.weight)


class EmbeddingNoReturn(EmbeddingLibrary):
    def forward(self, tokens):
        x = self.table(tokens)
        x * math.sqrt(self.d_model)  # noqa: B018
        return x


class EmbeddingDropout(EmbeddingLibrary):
    def forward(self, tokens):
        return F.dropout(super().forward(tokens), 0.1, self.training)


# -- nearest_neighbours ----------------------------------------------------------------------------------------------


def near_topk(embedding, index, k):
    similarity = F.cosine_similarity(embedding, embedding[index][None], dim=-1)
    similarity[index] = -math.inf
    return similarity.topk(k).indices


def near_numpy(embedding, index, k):
    x = embedding.numpy()
    similarity = x @ x[index] / (np.linalg.norm(x, axis=1) * np.linalg.norm(x[index]))
    order = np.argsort(-similarity)
    return order[order != index][:k]


def near_lists(embedding, index, k):
    def cosine(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True)) / math.sqrt(
            sum(p * p for p in a) * sum(q * q for q in b)
        )

    rows = embedding.tolist()
    others = [i for i in range(len(rows)) if i != index]
    return sorted(others, key=lambda i: cosine(rows[i], rows[index]), reverse=True)[:k]


def near_unit_distance(embedding, index, k, eps=1e-12):
    unit = embedding / (embedding.norm(dim=1, keepdim=True) + eps)
    distance = torch.cdist(unit, unit[index : index + 1])[:, 0]
    distance[index] = float("inf")
    return torch.argsort(distance)[:k].tolist()


class NearObject:
    def __call__(self, embedding, index, k):
        unit = F.normalize(embedding, p=2, dim=1)
        similarity = torch.einsum("vd,d->v", unit, unit[index])
        similarity = similarity.masked_fill(torch.arange(len(unit)) == index, -2.0)
        return torch.topk(similarity, k)[1]


def near_plain_division(embedding, index, k):
    unit = embedding / embedding.norm(dim=1, keepdim=True)
    similarity = unit @ unit[index]
    similarity[index] = -2
    return similarity.argsort(descending=True)[:k]


def near_minus_one(embedding, index, k):
    unit = F.normalize(embedding, dim=1)
    similarity = unit @ unit[index]
    similarity[index] = -1
    return similarity.argsort(descending=True)[:k]


def near_dim_0(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index].expand_as(embedding), dim=0)
    s[index] = -math.inf
    return s.topk(k).indices


def near_dim_0_with_itself(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index], dim=0)
    return s.topk(min(k, len(s))).indices


def near_dot(embedding, index, k):
    s = embedding @ embedding[index]
    s[index] = -math.inf
    return s.topk(k).indices


def near_euclid(embedding, index, k):
    d = (embedding - embedding[index]).norm(dim=1)
    d[index] = math.inf
    return d.argsort()[:k]


def near_itself(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    return s.topk(k).indices


def near_skip_first(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    return s.topk(k + 1).indices[1:]


def near_ascending(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    order = s.argsort()
    return order[order != index][:k]


def near_best_last(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    order = s.argsort()
    return order[order != index][-k:]


def near_removed(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    s = torch.cat([s[:index], s[index + 1 :]])
    return s.topk(k).indices


def near_zero(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    s[index] = 0
    return s.topk(k).indices


def near_values(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    s[index] = -math.inf
    return s.topk(k).values


def near_both(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    s[index] = -math.inf
    return s.topk(k)


def near_one_short(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None])
    return [int(i) for i in s.topk(k).indices if i != index]


def near_absolute(embedding, index, k):
    s = F.cosine_similarity(embedding, embedding[index][None]).abs()
    s[index] = -math.inf
    return s.topk(k).indices


def near_columns(embedding, index, k):
    x = F.normalize(embedding, dim=0)
    s = x @ x[index]
    s[index] = -math.inf
    return s.topk(k).indices


def near_in_place(embedding, index, k):
    embedding /= embedding.norm(dim=1, keepdim=True)
    s = embedding @ embedding[index]
    s[index] = -math.inf
    return s.topk(k).indices


def near_half_normalised(embedding, index, k):
    s = (embedding @ embedding[index]) / embedding.norm(dim=1) ** 2
    s[index] = -math.inf
    return s.topk(k).indices


RIGHT = {
    "Vocabulary": [
        VocabularyLoops,
        VocabularyTensor,
        VocabularyList,
        VocabularyTry,
        _Vocabulary,
        VocabularySpecialsInCorpus,
        VocabularyConcatenated,
    ],
    "pad_sequences": [pad_lists, pad_zip, pad_numpy, pad_functional, PadObject()],
    "learn_bpe": [learn_loops, learn_regex, learn_recursive, LearnObject()],
    "apply_bpe": [apply_loops, apply_pop, apply_regex, apply_ranked, apply_recursive],
    "TokenEmbedding": [
        EmbeddingLibrary,
        EmbeddingMasked,
        EmbeddingOneHot,
        EmbeddingInitialised,
        EmbeddingUniform,
    ],
    "nearest_neighbours": [
        near_topk,
        near_numpy,
        near_lists,
        near_unit_distance,
        NearObject(),
        near_plain_division,
    ],
}

WRONG = {
    "Vocabulary": [
        (VocabularyMostCommon, "ties_by_appearance"),
        (VocabularyReverse, "ties_backwards"),
        (VocabularyAlphabet, "alphabetical"),
        (VocabularySpecialsLast, "specials_last"),
        (VocabularyUnkSecond, "unk_second"),
        (VocabularyMoreThan, "min_count_exclusive"),
        (VocabularyAll, "min_count_ignored"),
        (VocabularyKeyError, "unknown_raises"),
        (VocabularyDrops, "unknown_dropped"),
        (VocabularyZero, "unknown_is_pad"),
        (VocabularyBosEos, "adds_bos_and_eos"),
        (VocabularyKeepsUnk, "keeps_unk"),
        (VocabularyNeverSkips, "never_skips"),
        (VocabularyAlwaysSkips, "always_skips"),
        (VocabularyString, "joins_tokens"),
        (VocabularyUntilEos, "stops_at_eos"),
        (VocabularyNoLen, "no_len"),
        (VocabularyGrows, "encode_adds_tokens"),
        (VocabularyShared, "shares_state"),
        (VocabularyDocuments, "counts_sequences"),
        (VocabularyUnsorted, "by_appearance"),
        (VocabularyMethod, "tokens_not_a_list"),
        (VocabularyIndex, "tokens_not_a_list"),
    ],
    "pad_sequences": [
        (pad_left, "pads_left"),
        (pad_zeros, "pad_id_ignored"),
        (pad_float, "float"),
        (pad_transposed, "transposed"),
        (pad_in_place, "changes_its_input"),
        (pad_cut, "cut_to_shortest"),
        (pad_first, "cut_to_first"),
        (pad_sorted, "sorted_by_length"),
        (pad_list_result, "list"),
        (pad_same_row, "rows_shared"),
        (pad_library, "not_allowed"),
        (pad_library_by_module, "not_allowed"),
        (pad_no_empty, "drops_empty"),
        (pad_extra, "one_too_long"),
        (pad_all_zero_ids, "ids_replaced"),
        (pad_eos, None),
    ],
    "learn_bpe": [
        (learn_first_seen, "ties_to_first_seen"),
        (learn_largest, "ties_to_largest"),
        (learn_types, "word_counts_ignored"),
        (learn_replace, "merges_inside_pieces"),
        (learn_first_only, "merges_first_only"),
        (learn_no_stop, "does_not_stop"),
        (learn_frequency_two, "stops_at_count_one"),
        (learn_mark, "end_of_word_mark"),
        (learn_underscore, "end_of_word_mark"),
        (learn_start_mark, "mark_added"),
        (learn_unescaped, "pattern_not_escaped"),
        (learn_one_word, "merges_in_one_word"),
        (learn_wordpiece, "wordpiece_score"),
        (learn_joined, "returns_joined"),
        (learn_once, "counted_once"),
        (learn_one_more, "one_too_many"),
        (learn_word_set, "once_per_word"),
        (learn_destroys, "changes_its_input"),
        (learn_repeats_last, None),
    ],
    "apply_bpe": [
        (apply_replace, "merges_inside_pieces"),
        (apply_first_only, "merges_first_only"),
        (apply_right, "merges_from_the_right"),
        (apply_one_pass, "order_ignored"),
        (apply_backwards, "backwards"),
        (apply_longest, "longest_piece"),
        (apply_unescaped, "pattern_not_escaped"),
        (apply_unescaped_text, "pattern_not_escaped"),
        (apply_sorted, "merges_sorted"),
        (apply_subword_nmt, "continuation_mark"),
        (apply_hashes, "continuation_hashes"),
        (apply_word, "joined_word"),
        (apply_string, "joined_text"),
        (apply_loses_last, "loses_last_piece"),
        (apply_overlap, "merges_overlap"),
        (apply_mark, "end_of_word_mark"),
        (apply_characters, "no_merges"),
        (apply_pops_merges, "changes_its_input"),
        (apply_chains, None),
    ],
    "TokenEmbedding": [
        (EmbeddingNoScale, "no_scale"),
        (EmbeddingTimesD, "scaled_by_d_model"),
        (EmbeddingDivided, "divided_by_root"),
        (EmbeddingNoPad, "pad_row_not_zero"),
        (EmbeddingPadZero, "pad_id_ignored"),
        (EmbeddingOverwritten, "pad_row_not_zero"),
        (EmbeddingPadTrained, "pad_row_receives_gradient"),
        (EmbeddingPlain, "parameters_not_registered"),
        (EmbeddingExtraRow, "wrong_number_of_parameters"),
        (EmbeddingDetached, "gradient_cut_off"),
        (EmbeddingTurned, "length_first"),
        (EmbeddingVocabularyScale, "scaled_by_root_of_vocabulary"),
        (EmbeddingZeros, "starts_at_zero"),
        (EmbeddingNoReturn, "no_scale"),
        (EmbeddingDropout, "differs_in_training"),
    ],
    "nearest_neighbours": [
        (near_dot, "dot_product"),
        (near_euclid, "distance"),
        (near_itself, "includes_itself"),
        (near_skip_first, "leaves_out_the_first_instead_of_itself"),
        (near_ascending, "least_similar"),
        (near_best_last, "best_last"),
        (near_removed, "ids_shifted"),
        (near_zero, "itself_as_zero"),
        (near_values, "similarities"),
        (near_both, None),
        (near_one_short, "one_too_few"),
        (near_absolute, "absolute_cosine"),
        (near_columns, "columns_normalised"),
        (near_minus_one, "includes_itself"),
        (near_dim_0, "cosine_over_columns"),
        (near_dim_0_with_itself, None),
        (near_in_place, "changes_its_input"),
        (near_half_normalised, "squared_length"),
    ],
}
