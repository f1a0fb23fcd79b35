"""Exercises of 01_tokens_and_embeddings."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.checking.subject import ModuleSubject
from txcourse.solutions import tokens_and_embeddings as solutions


def _plain(value: Any) -> Any:
    """Tensors, arrays and tuples as lists: which of them holds the ids is the learner's choice."""
    if isinstance(value, Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


# -- vocabulary ------------------------------------------------------------------------------------------------------

SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]

_VOCABULARY = (
    Mistake("ties_by_appearance", "order", "Tokens of equal count stand in the order in which they occur; they belong in alphabetical order."),
    Mistake("ties_backwards", "order", "Tokens of equal count stand in reverse alphabetical order (reverse=True turns both keys round); sort by (-count, token)."),
    Mistake("rising_count", "order", "The rarest tokens come first; the most frequent ones should."),
    Mistake("alphabetical", "order", "The tokens stand in alphabetical order; they should stand by falling count first."),
    Mistake("reverse_alphabetical", "order", "The tokens stand in reverse alphabetical order; they should stand by falling count."),
    Mistake("by_appearance", "order", "The tokens stand in the order in which they occur; they should stand by falling count."),
    Mistake("specials_last", "specials", "The four special tokens stand at the end; they have the ids 0 to 3."),
    Mistake("specials_missing", "specials", "The four special tokens are missing from `tokens`."),
    Mistake("unk_second", "specials", "The special tokens stand as <pad> <unk> <bos> <eos>; the order is <pad> <bos> <eos> <unk>."),
    Mistake("unk_first", "specials", "The special tokens stand as <unk> <pad> <bos> <eos>; the order is <pad> <bos> <eos> <unk>."),
    Mistake("specials_sorted", "specials", "The special tokens are sorted among themselves; the order is <pad> <bos> <eos> <unk>."),
    Mistake("specials_counted", "specials", "The special tokens are sorted among the others by count; they should stand first."),
    Mistake("min_count_ignored", "min_count", "`min_count` is not used: rare tokens are kept."),
    Mistake("min_count_exclusive", "min_count", "A token that occurs exactly min_count times is left out; it should be kept."),
    Mistake("min_count_default", "min_count", "Without min_count tokens that occur once are left out; the default is 1."),
    Mistake("counts_sequences", "count", "The count is the number of sequences that hold the token; it should be the number of times it occurs."),
    Mistake("first_sequence_only", "count", "Only the first sequence is counted."),
    Mistake("lowercased", "case", "Tokens are changed to lower case; they should stay as they are."),
    Mistake("unknown_dropped", "unknown", "Unknown tokens are left out by encode; they should become <unk>."),
    Mistake("unknown_raises", "unknown", "encode raises an error for an unknown token; it should become <unk>."),
    Mistake("unknown_is_pad", "unknown", "Unknown tokens become the id of <pad>; they should become that of <unk>."),
    Mistake("unknown_is_none", "unknown", "Unknown tokens become None; they should become the id of <unk>."),
    Mistake("adds_bos_and_eos", "adds", "encode adds <bos> and <eos>; it should not."),
    Mistake("adds_eos", "adds", "encode adds <eos>; it should not."),
    Mistake("adds_bos", "adds", "encode adds <bos>; it should not."),
    Mistake("ids_without_specials", "adds", "encode numbers the tokens without the four special ones: each id is 4 too small."),
    Mistake("never_skips", "decode", "decode keeps the special tokens; with skip_special=True they are left out."),
    Mistake("always_skips", "decode", "decode leaves the special tokens out with skip_special=False too."),
    Mistake("skip_default_false", "decode", "Without skip_special decode keeps the special tokens; the default is True."),
    Mistake("skip_inverted", "decode", "skip_special works the wrong way round."),
    Mistake("keeps_unk", "decode", "decode keeps <unk> with skip_special=True; it is one of the four special tokens."),
    Mistake("skips_pad_only", "decode", "decode leaves out <pad> alone; with skip_special=True it leaves out all four special tokens."),
    Mistake("stops_at_eos", "decode", "decode stops at <eos>; it should go on to the end."),
    Mistake("joins_tokens", "decode", "decode returns one string; it should return a list of tokens."),
    Mistake("len_without_specials", "len", "The length does not count the four special tokens; it is the number of all tokens."),
    Mistake("repeated_token", "repeat", "A token stands in `tokens` as often as it occurs; it should stand there once."),
)  # fmt: skip


def _vocabulary_variant(on: frozenset[str]) -> Callable[..., Any]:
    class Vocabulary:
        def __init__(self, sequences: Iterable[Sequence[str]], min_count: int | None = None) -> None:
            if min_count is None:
                min_count = 2 if "min_count_default" in on else 1
            rows = [[self.case(t) for t in row] for row in sequences]
            rows = rows[:1] if "first_sequence_only" in on else rows
            every = [t for row in rows for t in (dict.fromkeys(row) if "counts_sequences" in on else row)]
            counts = Counter(every)
            if "min_count_ignored" in on:
                min_count = 0
            kept = [t for t in counts if counts[t] >= min_count + ("min_count_exclusive" in on)]
            specials = list(SPECIALS)
            if "unk_second" in on:
                specials = ["<pad>", "<unk>", "<bos>", "<eos>"]
            elif "unk_first" in on:
                specials = ["<unk>", "<pad>", "<bos>", "<eos>"]
            elif "specials_sorted" in on:
                specials = sorted(specials)
            elif "specials_missing" in on:
                specials = []
            elif "specials_counted" in on:
                kept, specials = kept + specials, []
            if "alphabetical" in on or "reverse_alphabetical" in on:
                kept = sorted(kept, reverse="reverse_alphabetical" in on)
            elif "ties_by_appearance" in on:
                kept = sorted(kept, key=lambda t: -counts[t])
            elif "ties_backwards" in on:
                kept = sorted(kept, key=lambda t: (counts[t], t), reverse=True)
            elif "rising_count" in on:
                kept = sorted(kept, key=lambda t: (counts[t], t))
            elif "by_appearance" not in on:
                kept = sorted(kept, key=lambda t: (-counts[t], t))
            if "repeated_token" in on:
                kept = [t for t in kept for _ in range(counts[t])]
            self.tokens = kept + specials if "specials_last" in on else specials + kept
            numbered = (
                [t for t in self.tokens if t not in SPECIALS] if "ids_without_specials" in on else self.tokens
            )
            self.ids = {t: i for i, t in enumerate(numbered)}

        @staticmethod
        def case(token: str) -> str:
            return token.lower() if "lowercased" in on else token

        def __len__(self) -> int:
            return len(self.tokens) - (4 if "len_without_specials" in on else 0)

        def encode(self, tokens: Iterable[str]) -> list[Any]:
            tokens = [self.case(t) for t in tokens]
            if "unknown_raises" in on:
                ids: list[Any] = [self.ids[t] for t in tokens]
            elif "unknown_dropped" in on:
                ids = [self.ids[t] for t in tokens if t in self.ids]
            elif "unknown_is_none" in on:
                ids = [self.ids.get(t) for t in tokens]
            else:
                other = "<pad>" if "unknown_is_pad" in on else "<unk>"
                ids = [self.ids[t if t in self.ids else other] for t in tokens]
            if {"adds_bos", "adds_bos_and_eos"} & on:
                ids = [self.ids["<bos>"], *ids]
            if {"adds_eos", "adds_bos_and_eos"} & on:
                ids = [*ids, self.ids["<eos>"]]
            return ids

        def decode(self, ids: Iterable[int], skip_special: bool | None = None) -> Any:
            if skip_special is None:
                skip_special = "skip_default_false" not in on
            if {"always_skips", "never_skips"} & on:
                skip_special = "always_skips" in on
            if "skip_inverted" in on:
                skip_special = not skip_special
            skipped = ["<pad>"] if "skips_pad_only" in on else SPECIALS[:3] if "keeps_unk" in on else SPECIALS
            tokens = [self.tokens[i] for i in ids]
            if "stops_at_eos" in on and "<eos>" in tokens:
                tokens = tokens[: tokens.index("<eos>")]
            tokens = [t for t in tokens if not (skip_special and t in skipped)]
            return " ".join(tokens) if "joins_tokens" in on else tokens

    return Vocabulary


def _vocabulary_calls(construct: Callable[..., Any]) -> Callable[..., Any]:
    """What a vocabulary answers to all that can be asked."""

    def attempt(ask: Callable[[], Any]) -> Any:
        try:
            return _plain(ask())
        except Exception:
            return "raised"

    def calls(sequences: Any, known: Any, unknown: Any, ids: Any, *min_count: int) -> list[Any]:
        v = construct(sequences, *min_count)
        questions: list[Callable[[], Any]] = [
            lambda: v.tokens,
            lambda: len(v),
            lambda: v.encode(known),
            lambda: v.encode(unknown),
            lambda: v.decode(ids),
            lambda: v.decode(ids, False),
            lambda: v.decode(ids, True),
        ]
        return [attempt(q) for q in questions]

    return calls


def _corpus(seed: int) -> tuple[list[list[str]], list[str]]:
    """Sequences in which counts, ties, and numbers of sequences all order the tokens differently; and their tokens."""
    rng = random.Random(seed)
    letters = rng.sample("abcdefghijklm", 9)
    tokens = ["X" + letters[0], *letters[1:]]
    tied = sorted(tokens[4:7], reverse=True)  # the first of them to occur is the last of the alphabet
    a, b, c, d = tokens[:4]
    sequences = [
        [*tied, d],
        [a, b, b, b, c],
        [b, b, a, a, c, a, a, a],
        [b, *tied, d, c, tokens[7]],
        [c, tokens[8]],
    ]
    return sequences, tokens


def _vocabulary_probes(seed: int) -> list[Probe]:
    sequences, tokens = _corpus(seed)
    a, b, c = tokens[:3]
    ids = [1, 5, 0, 4, 3, 6, 2, 4, 0]
    return [
        Probe((sequences, [c, a, b, c], [a, "?", b], ids)),
        Probe((sequences, [c, a, b, c], [a, "?", tokens[8], b], ids, 2)),
        Probe((sequences, [c, a, b, c], [a, tokens[4], b], ids, 3)),
    ]


def _build(c: Context, *min_count: int) -> tuple[ModuleSubject, Any, list[str]]:
    sequences, tokens = _corpus(c.seed)
    return c.subject.build(sequences, *min_count), c.reference(sequences, *min_count), tokens


def _tokens_of(c: Context, ours: ModuleSubject) -> Any:
    try:
        tokens = ours.attribute("tokens")
    except CandidateError as error:
        if isinstance(error.error, AttributeError):
            raise Wrong(
                "A vocabulary should have an attribute `tokens`, the list of its tokens.", "no_tokens"
            ) from error
        raise
    if not isinstance(_plain(tokens), list):
        raise Wrong(
            f"`tokens` should be a list of tokens; yours is a {type(tokens).__name__}.", "tokens_not_a_list"
        )
    return _plain(tokens)


def _vocabulary_specials(c: Context) -> None:
    ours, _, _ = _build(c)
    tokens = _tokens_of(c, ours)
    if tokens[:4] != SPECIALS:
        sentence = f"`tokens` should begin with <pad> <bos> <eos> <unk>; yours begins with {' '.join(map(str, tokens[:4]))}."
        if sorted(tokens[:4]) == sorted(SPECIALS):
            raise Wrong(sentence, "specials_order")
        raise Wrong(sentence, "specials_not_first" if set(SPECIALS) <= set(tokens) else "specials_missing")


def _vocabulary_order(c: Context) -> None:
    ours, theirs, _ = _build(c)
    c.expect(_tokens_of(c, ours), theirs.tokens, "`tokens`")


def _vocabulary_min_count(c: Context) -> None:
    for min_count in (2, 3):
        ours, theirs, _ = _build(c, min_count)
        c.expect(_tokens_of(c, ours), theirs.tokens, f"`tokens` for min_count={min_count}")
    sequences, _ = _corpus(c.seed)
    ours = c.subject.build(sequences, min_count=100)
    c.expect(_tokens_of(c, ours), SPECIALS, "`tokens` when no token is frequent enough")


def _vocabulary_len(c: Context) -> None:
    ours, theirs, _ = _build(c)
    c.expect(ours.call(method="__len__"), len(theirs), "len(vocabulary)")


def _vocabulary_encode(c: Context) -> None:
    ours, theirs, (a, b, third, *_) = _build(c)
    words = [third, a, b, third]
    c.expect(_plain(ours.call(words, method="encode")), theirs.encode(words), "encode of known tokens")
    c.expect(_plain(ours.call([], method="encode")), [], "encode of no tokens")


def _vocabulary_unknown(c: Context) -> None:
    ours, theirs, (a, b, *_) = _build(c)
    words = [a, "?", b, "unheard"]
    got, want = _plain(ours.call(words, method="encode")), theirs.encode(words)
    known = isinstance(got, list) and len(got) == 4 and got[::2] == want[::2]
    c.expect(got, want, "encode of known and unknown tokens", mistake="unknown_not_unk" if known else None)
    ours, theirs, (a, *_, rare) = _build(c, 2)
    got, want = _plain(ours.call([a, rare], method="encode")), theirs.encode([a, rare])
    known = isinstance(got, list) and len(got) == 2 and got[0] == want[0]
    c.expect(got, want, "encode of a token below min_count", mistake="rare_token_not_unk" if known else None)


def _vocabulary_decode(c: Context) -> None:
    ours, theirs, _ = _build(c)
    ids = [1, 5, 0, 4, 3, 6, 2, 4, 0]
    c.expect(_plain(ours.call(ids, method="decode")), theirs.decode(ids), "decode")
    c.expect(
        _plain(ours.call(ids, False, method="decode")),
        theirs.decode(ids, False),
        "decode with skip_special=False",
    )
    c.expect(
        _plain(ours.call(ids, skip_special=True, method="decode")),
        theirs.decode(ids),
        "decode with skip_special=True",
    )


def _vocabulary_round_trip(c: Context) -> None:
    sequences, _ = _corpus(c.seed)
    ours = c.subject.build(sequences)
    for sequence in sequences:
        ids = ours.call(sequence, method="encode")
        c.expect(_plain(ours.call(ids, method="decode")), sequence, "decode(encode(tokens))")


_fresh = count()


def _vocabulary_alone(c: Context) -> None:
    first = c.subject.build([["q", "q", "r"]])
    before = _tokens_of(c, first)
    new = f"new{next(_fresh)}"  # a word that no vocabulary of an earlier call can know
    other = c.subject.build([[new, new + "a"]])
    own = _tokens_of(c, other)
    again = _tokens_of(c, c.subject.build([["q", "q", "r"]]))
    for what, tokens in (
        ("after another was made", _tokens_of(c, first)),
        ("made again after another", again),
    ):
        if tokens != before:
            raise Wrong(
                f"`tokens` of a vocabulary {what} should be {before} as before; yours is {str(tokens)[:80]}. "
                "Do vocabularies share a list?",
                "shares_state",
            )
    try:
        other.call(["?", new + "b"], method="encode")
    except CandidateError as error:
        if error.kind == "timeout":
            raise
    if _tokens_of(c, other) != own:
        raise Wrong(
            "encode adds the unknown token to `tokens`; it should only look tokens up.", "encode_adds_tokens"
        )
    sequences, _ = _corpus(c.seed)
    after = c.subject.observe(sequences)[1][0]
    c.expect(after, sequences, "the sequences afterwards", mistake="changes_its_input")


# -- padding ---------------------------------------------------------------------------------------------------------

_PAD = (
    Mistake("pads_left", "side", "The padding stands on the left; it belongs on the right."),
    Mistake("pads_both_sides", "side", "The padding is spread over both sides; it belongs on the right."),
    Mistake("reversed", "side", "The sequences are turned round."),
    Mistake("pad_id_ignored", "pad", "The padding is 0 whatever `pad_id` says."),
    Mistake("pads_with_last", "pad", "The last id is repeated as padding; the padding is pad_id."),
    Mistake("pads_with_minus_one", "pad", "The padding is -1; it should be pad_id."),
    Mistake("cut_to_shortest", "length", "The sequences are cut to the shortest one; they should be padded to the longest."),
    Mistake("cut_to_first", "length", "All rows have the length of the first sequence; they should have that of the longest."),
    Mistake("one_too_long", "length", "There is a column of padding too many: the longest sequence needs none."),
    Mistake("one_too_short", "length", "The last id of the longest sequence is cut off."),
    Mistake("transposed", "shape", "The result is (longest, B); it should be (B, longest)."),
    Mistake("float", "type", "The result holds floating-point numbers; it should be a LongTensor (torch.long)."),
    Mistake("int32", "type", "The result is of type int32; it should be a LongTensor (torch.long)."),
    Mistake("list", "type", "The result is a list of lists; it should be a LongTensor."),
    Mistake("array", "type", "The result is a NumPy array; it should be a LongTensor."),
    Mistake("rows_shared", "copies", "All rows are one and the same list: [row] * B holds it B times, so that each sequence overwrites the one before in all of them. Make a row for each."),
    Mistake("sorted_by_length", "order", "The rows are sorted by length; they should stay in the order of the sequences."),
    Mistake("drops_empty", "order", "An empty sequence has no row; it should be a row of padding."),
    Mistake("returns_lengths", "returns", "The lengths are returned too; only the padded tensor is asked for."),
    Mistake("returns_mask", "returns", "A mask is returned too; only the padded tensor is asked for."),
)  # fmt: skip


def _pad_variant(on: frozenset[str]) -> Callable[..., Any]:
    def pad_sequences(sequences: Sequence[Sequence[int]], pad_id: int = 0) -> Any:
        rows = [list(s) for s in sequences]
        if "sorted_by_length" in on:
            rows = sorted(rows, key=len, reverse=True)
        if "drops_empty" in on:
            rows = [r for r in rows if r]
        lengths = [len(r) for r in rows]
        longest = max(lengths)
        if "cut_to_shortest" in on:
            longest = min(lengths)
        elif "cut_to_first" in on:
            longest = lengths[0]
        longest += ("one_too_long" in on) - ("one_too_short" in on)
        pad = 0 if "pad_id_ignored" in on else -1 if "pads_with_minus_one" in on else pad_id
        padded = []
        for row in rows:
            row = row[:longest][::-1] if "reversed" in on else row[:longest]
            last = row[-1] if row and "pads_with_last" in on else pad
            missing = [last] * (longest - len(row))
            half = len(missing) // 2
            before = len(missing) if "pads_left" in on else half if "pads_both_sides" in on else 0
            padded.append(missing[:before] + row + missing[before:])
        if "rows_shared" in on:
            shared = [pad] * longest
            for row in rows:
                shared[: len(row[:longest])] = row[:longest]
            padded = [shared] * len(rows)
        result = torch.tensor(padded, dtype=torch.long).reshape(len(rows), longest)
        if "transposed" in on:
            result = result.T.contiguous()
        if "float" in on:
            result = result.float()
        elif "int32" in on:
            result = result.int()
        elif "list" in on:
            return result.tolist()
        elif "array" in on:
            return result.numpy()
        if "returns_lengths" in on:
            return result, torch.tensor(lengths)
        return (result, result != pad_id) if "returns_mask" in on else result

    return pad_sequences


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The result with its type beside it, which the comparison of numbers does not look at."""

    def call(*args: Any) -> Any:
        value = function(*args)
        return [str(value.dtype) if isinstance(value, Tensor) else type(value).__name__, value]

    return call


def _sequences(seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(10, 99) for _ in range(n)] for n in (3, 6, 2, 5)]


def _pad_probes(seed: int) -> list[Probe]:
    first = _sequences(seed)
    return [Probe((first,)), Probe((first, 7)), Probe(([*first[:2], [], *first[2:]], 9))]


def _pad_values(c: Context) -> None:
    c.same(_sequences(c.seed), what="the padded sequences", axes="batch length")
    c.same(_sequences(c.seed)[::-1], what="the padded sequences", axes="batch length")


def _pad_type(c: Context) -> None:
    got = c.subject.call(_sequences(c.seed))
    if isinstance(got, Tensor) and got.dtype != torch.long:
        raise Wrong(
            f"The result should be a LongTensor (torch.int64); yours is {got.dtype}.", "not_a_long_tensor"
        )


def _pad_id(c: Context) -> None:
    c.same(_sequences(c.seed), 7, what="the sequences padded with 7", axes="batch length")
    got = c.subject.call(_sequences(c.seed), pad_id=5)
    c.expect(got, c.reference(_sequences(c.seed), 5), "the sequences padded with 5", axes="batch length")


def _pad_ids_inside(c: Context) -> None:
    c.same([[0, 4, 0], [5, 0], [0]], what="the padded sequences when ids equal to pad_id occur in them")
    ids = [[0, 4, 0], [5, 0], [0]]
    for pad_id in (4, 7):
        got, want = c.subject.call(ids, pad_id), c.reference(ids, pad_id)
        if (
            isinstance(got, Tensor)
            and got.shape == want.shape
            and torch.equal(got, want.masked_fill(want == 0, pad_id))
        ):
            raise Wrong(f"Real ids of 0 become {pad_id} too; only the padding should.", "ids_replaced")
        c.expect(got, want, f"the ids 0 and 4 padded with {pad_id}")


def _pad_equal(c: Context) -> None:
    c.same([[4, 5, 6], [7, 8, 9]], what="the result for sequences of equal length")
    c.same([[4, 5, 6, 7]], what="the result for one sequence")


def _pad_empty(c: Context) -> None:
    c.same([[4, 5], [], [6]], 2, what="the result with an empty sequence among them")


def _pad_kept(c: Context) -> None:
    sequences = _sequences(c.seed)
    if c.subject.observe(sequences)[1][0] != sequences:
        raise Wrong("Your code changes the lists that it is given; pad copies of them.", "changes_its_input")


# -- byte-pair encoding ----------------------------------------------------------------------------------------------

_MERGING = (
    Mistake("merges_first_only", "merging", "Only the first occurrence of the pair in a word is merged; all of them should be."),
    Mistake("merges_from_the_right", "merging", "The pair is merged from the right: a a a becomes a aa where it should become aa a."),
    Mistake("merges_inside_pieces", "merging", "The pair is replaced in the joined text, which also meets the ends of longer pieces: merging (a, b) turns 'xa b' into 'xab'. Compare whole pieces."),
    Mistake("pattern_not_escaped", "merging", "The pair is searched for as a regular expression, in which characters such as . and + have a meaning of their own: use re.escape, or no pattern."),
    Mistake("merges_overlap", "merging", "A piece is used twice: after a merge, go on behind both of its pieces."),
    Mistake("loses_last_piece", "merging", "The last piece of a word gets lost when it is not part of a merge."),
)  # fmt: skip


def _merge(on: frozenset[str], pieces: list[str], pair: tuple[str, str]) -> list[str]:
    if "merges_inside_pieces" in on:
        return " ".join(pieces).replace(" ".join(pair), "".join(pair)).split(" ")
    if "pattern_not_escaped" in on:
        return re.sub(rf"(?<!\S){' '.join(pair)}(?!\S)", "".join(pair), " ".join(pieces)).split(" ")
    if "merges_from_the_right" in on:
        turned = _merge(frozenset(), [p[::-1] for p in pieces[::-1]], (pair[1][::-1], pair[0][::-1]))
        return [p[::-1] for p in turned[::-1]]
    merged, i, done = [], 0, False
    while i < len(pieces):
        if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == pair and not done:
            merged.append(pieces[i] + pieces[i + 1])
            overlap = (
                "merges_overlap" in on and i + 2 < len(pieces) and (pieces[i + 1], pieces[i + 2]) == pair
            )
            i += 1 if overlap else 2
            done = "merges_first_only" in on
        elif i + 1 == len(pieces) and "loses_last_piece" in on:
            break
        else:
            merged.append(pieces[i])
            i += 1
    return merged


_LEARN = (
    Mistake("word_counts_ignored", "counts", "Each word counts once; a pair counts as often as its word occurs."),
    Mistake("once_per_word", "counts", "A pair that stands twice in a word is counted once; count every place where it stands."),
    Mistake("counted_once", "counts", "The pairs are counted at the start only; count them again after each merge."),
    Mistake("ties_to_first_seen", "ties", "Of equally frequent pairs the first one seen is merged; it should be the lexicographically smallest."),
    Mistake("ties_to_last_seen", "ties", "Of equally frequent pairs the last one seen is merged; it should be the lexicographically smallest."),
    Mistake("ties_to_largest", "ties", "Of equally frequent pairs the lexicographically largest is merged; it should be the smallest (max over (count, pair) turns both round)."),
    Mistake("ties_by_joined_text", "ties", "Equally frequent pairs are compared by their joined text; compare the pairs themselves."),
    Mistake("ties_to_shortest", "ties", "Of equally frequent pairs the shortest is merged; it should be the lexicographically smallest."),
    Mistake("least_frequent", "ties", "The rarest pair is merged; it should be the most frequent."),
    Mistake("wordpiece_score", "ties", "The pairs are ranked by their count divided by those of their two pieces, as WordPiece does; here the most frequent pair is merged."),
    *_MERGING,
    Mistake("merges_in_one_word", "merging", "The pair is merged in the first word that has it; it should be merged in every word."),
    Mistake("across_words", "words", "Pairs are counted across the ends of words; each word stands alone."),
    Mistake("end_of_word_mark", "words", "Words end with a mark of their own (such as </w>); this is the other convention, here words have none."),
    Mistake("stops_at_count_one", "stop", "It stops when the best pair occurs only once; this is the other convention, here it stops when no pair is left."),
    Mistake("one_too_many", "stop", "There is one merge too many."),
    Mistake("one_too_few", "stop", "There is one merge too few."),
    Mistake("returns_joined", "returns", "The merged strings are returned; the pairs are asked for."),
    Mistake("returns_counts", "returns", "Each pair comes with its count; the pairs alone are asked for."),
    Mistake("returns_words_too", "returns", "The split words are returned too; only the list of pairs is asked for."),
)  # fmt: skip


def _count_pairs(
    on: frozenset[str], words: dict[str, list[str]], word_counts: dict[str, int]
) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for word, pieces in words.items():
        pairs = list(pairwise(pieces))
        for pair in dict.fromkeys(pairs) if "once_per_word" in on else pairs:
            counts[pair] += 1 if "word_counts_ignored" in on else word_counts[word]
    if "across_words" in on:
        for (_, left), (_, right) in pairwise(words.items()):
            counts[left[-1], right[0]] += 1
    return counts


def _best_pair(on: frozenset[str], counts: Counter[tuple[str, str]]) -> tuple[str, str]:
    top = min(counts.values()) if "least_frequent" in on else max(counts.values())
    tied = [pair for pair in counts if counts[pair] == top]
    if "ties_to_first_seen" in on:
        return tied[0]
    if "ties_to_last_seen" in on:
        return tied[-1]
    if "ties_to_largest" in on:
        return max(tied)
    if "ties_by_joined_text" in on:
        return min(tied, key="".join)
    return min(tied, key=lambda p: (len("".join(p)), p)) if "ties_to_shortest" in on else min(tied)


def _learn_variant(on: frozenset[str]) -> Callable[..., Any]:
    def learn_bpe(word_counts: dict[str, int], n_merges: int) -> Any:
        words = {word: list(word) for word in word_counts}
        if "end_of_word_mark" in on:
            words = {word: [*pieces, "</w>"] for word, pieces in words.items()}
        merges: list[Any] = []
        n_merges += ("one_too_many" in on) - ("one_too_few" in on)
        counts = _count_pairs(on, words, word_counts)
        while len(merges) < n_merges:
            if "counted_once" not in on:
                counts = _count_pairs(on, words, word_counts)
            if not counts or ("stops_at_count_one" in on and max(counts.values()) < 2):
                break
            if "wordpiece_score" in on:
                single: Counter[str] = Counter()
                for word, pieces in words.items():
                    for piece in pieces:
                        single[piece] += word_counts[word]
                scores = {(a, b): n / (single[a] * single[b]) for (a, b), n in counts.items()}
                best = min(scores, key=lambda pair: (-scores[pair], pair))
            else:
                best = _best_pair(on, counts)
            merges.append((best, counts[best]) if "returns_counts" in on else best)
            for word, pieces in words.items():
                words[word] = _merge(on, pieces, best)
                if "merges_in_one_word" in on and words[word] != pieces:
                    break
            if "counted_once" in on:
                del counts[best]
        if "returns_joined" in on:
            return ["".join(pair) for pair in merges]
        return (merges, words) if "returns_words_too" in on else merges

    return learn_bpe


# In the last two every known mistake shows in the merges, also where pairs such as (a, a) are counted without overlaps.
_CORPORA: tuple[dict[str, int], ...] = (
    {"low": 5, "lower": 2, "newest": 6, "widest": 3},
    {"ba": 4, "acb": 2, "aaaaa": 1, "bccbd": 2, "baaaaca": 2},
    {"cabb": 5, "baba": 4, "aaacb": 3, "aacaa": 1, "aaba": 5, "dda": 1},
)


# Characters that have a meaning in regular expressions.
_SIGNS = ({"a.b": 2, "axb": 1, "a.c": 1}, {"c++": 3, "a.b": 2, "axb": 1, "(a)": 2, "a*b": 1, "f(a)": 1})


def _random_corpus(seed: int) -> dict[str, int]:
    """Words without two equal letters side by side."""
    rng = random.Random(seed)
    words = {"".join(rng.choices("abcd", k=rng.randint(2, 7))): rng.randint(1, 4) for _ in range(12)}
    words = {w: n for w, n in words.items() if all(x != y for x, y in pairwise(w))}
    # ababab becomes ab ab ab, of which the pair (ab, ab) is counted once or twice
    return {w: n for w, n in words.items() if w[:2] * 3 != w[:6] and w[1:3] * 3 != w[1:7]} or {"abab": 2}


def _learn_probes(seed: int) -> list[Probe]:
    fixed = [Probe((dict(corpus), n)) for corpus in _CORPORA[1:] for n in (4, 100)]
    return [
        *fixed,
        Probe((_random_corpus(seed), 6)),
        Probe((_random_corpus(seed + 1), 3)),
        Probe((dict(_SIGNS[0]), 6)),
    ]


def _learn(c: Context, corpus: dict[str, int], n_merges: int, what: str) -> None:
    """The order and the pairs, whether a pair is a tuple or a list."""
    got, want = _plain(c.subject.call(corpus, n_merges)), _plain(c.reference(corpus, n_merges))
    if got == want:
        return
    if not isinstance(got, list):
        raise Wrong(f"{what} should be a list of pairs; yours is {type(got).__name__}.")
    if not all(isinstance(p, list) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in got):
        raise Wrong(f"{what}: the list should hold pairs of strings; yours holds {str(got)[:80]}.")
    if strange := set("".join("".join(pair) for pair in got)) - set("".join(corpus)):
        marked = [piece for pair in got if strange & set(piece := "".join(pair))]
        raise Wrong(
            f"Your pieces hold {sorted(strange)[0]!r}, which no word does: words are their characters here, without a mark.",
            "end_of_word_mark" if all(piece[-1] in strange for piece in marked) else "mark_added",
        )
    i = next((i for i, (x, y) in enumerate(zip(got, want, strict=False)) if x != y), None)
    if i is None:
        raise Wrong(f"{what}: there should be {len(want)} merges; yours has {len(got)}.")
    raise Wrong(f"{what}: merge {i} should be {tuple(want[i])}; yours is {tuple(got[i])}.")


def _learn_values(c: Context) -> None:
    _learn(c, dict(_CORPORA[0]), 5, "low, lower, newest, widest")
    for corpus in _CORPORA[1:]:
        _learn(c, dict(corpus), 4, f"For {corpus}")
    _learn(c, _random_corpus(c.seed), 6, f"For {_random_corpus(c.seed)}")


def _learn_counts(c: Context) -> None:
    """By words in place of their counts, or once for each word, another pair would win."""
    for corpus in ({"abc": 1, "abd": 1, "ce": 5}, {"abxab": 2, "cd": 3}):
        _learn(c, dict(corpus), 1, f"For {corpus}")


def _learn_signs(c: Context) -> None:
    for corpus in _SIGNS:
        _learn(c, dict(corpus), 8, f"For {corpus}")


def _learn_ties(c: Context) -> None:
    corpus = {"xy": 2, "ab": 2, "mn": 2}
    got = _plain(c.subject.call(dict(corpus), 3))
    pairs = [["a", "b"], ["m", "n"], ["x", "y"]]
    if isinstance(got, list) and got != pairs and sorted(map(str, got)) == sorted(map(str, pairs)):
        raise Wrong(
            f"For {corpus} all pairs are equally frequent: ('a', 'b') comes first. Yours starts with {tuple(got[0])}.",
            "ties_not_smallest",
        )
    _learn(c, corpus, 3, f"For {corpus}")


def _learn_stops(c: Context) -> None:
    try:
        for corpus in (*_CORPORA, {"a": 3, "b": 1}):
            _learn(c, dict(corpus), 100, "With n_merges=100")
    except CandidateError as error:
        if isinstance(error.error, ValueError | IndexError | KeyError):
            raise Wrong(
                f"When no pair is left, the list so far is returned. {error.sentence}", "does_not_stop"
            ) from error
        raise


def _learn_none(c: Context) -> None:
    _learn(c, dict(_CORPORA[0]), 0, "With n_merges=0")
    _learn(c, dict(_CORPORA[0]), 1, "With n_merges=1")


def _learn_kept(c: Context) -> None:
    corpus = dict(_CORPORA[0])
    if c.subject.observe(corpus, 4)[1][0] != corpus:
        raise Wrong("Your code changes the dictionary that it is given.", "changes_its_input")
    first, second = (_plain(c.subject.call(corpus, 4)) for _ in range(2))
    c.expect(second, first, "the result of a second call", mistake="keeps_state")


_APPLY = (
    *_MERGING,
    Mistake("order_ignored", "order", "The word is read once from left to right and any known pair is merged on the way; the merges are applied one after another in the order learnt."),
    Mistake("backwards", "order", "The merges are applied in reverse order; the first one learnt comes first."),
    Mistake("longest_piece", "order", "The longest known piece is cut off from the left each time; the merges are applied one after another in the order learnt."),
    Mistake("first_merge_only", "order", "It stops after the first merge that applies."),
    Mistake("merges_sorted", "order", "The merges are sorted first; they are applied in the order learnt."),
    Mistake("no_merges", "order", "No merge is applied: the result is the list of characters."),
    Mistake("whole_word", "order", "The result is the whole word: pieces are joined that no merge joins."),
    Mistake("end_of_word_mark", "words", "The word gets a mark at its end; this is the other convention, here words have none."),
    Mistake("continuation_mark", "words", "Every piece but the last ends with @@: this is another convention, here pieces hold the characters of the word alone."),
    Mistake("continuation_hashes", "words", "Every piece but the first begins with ##: this is another convention, here pieces hold the characters of the word alone."),
    Mistake("drops_unmerged", "words", "Characters that no merge knows are left out; they stay as pieces of their own."),
    Mistake("joined_text", "returns", "The result is one string with spaces; it should be a list of pieces."),
    Mistake("joined_word", "returns", "The pieces are joined to the word again; the result should be the list of pieces."),
    Mistake("no_repeats", "returns", "Each piece stands once in the result; pieces that occur twice should stand twice."),
)  # fmt: skip


def _apply_variant(on: frozenset[str]) -> Callable[..., Any]:
    def apply_bpe(word: str, merges: Sequence[tuple[str, str]]) -> Any:
        pieces = list(word) + (["</w>"] if "end_of_word_mark" in on else [])
        pairs = [(a, b) for a, b in merges]
        pairs = sorted(pairs) if "merges_sorted" in on else pairs
        if "drops_unmerged" in on:
            pieces = [p for p in pieces if any(p in pair for pair in pairs)]
        if "whole_word" in on:
            pieces = [word]
        elif "longest_piece" in on:
            known = {"".join(pair) for pair in pairs}
            pieces, start = [], 0
            while start < len(word):
                end = next(e for e in range(len(word), start, -1) if word[start:e] in known or e == start + 1)
                pieces.append(word[start:end])
                start = end
        elif "order_ignored" in on:
            merged: list[str] = []
            for piece in pieces:
                if merged and (merged[-1], piece) in pairs:
                    merged[-1] += piece
                else:
                    merged.append(piece)
            pieces = merged
        elif "no_merges" not in on:
            for pair in pairs[::-1] if "backwards" in on else pairs:
                before, pieces = pieces, _merge(on, pieces, pair)
                if "first_merge_only" in on and before != pieces:
                    break
        if "no_repeats" in on:
            pieces = list(dict.fromkeys(pieces))
        if "continuation_mark" in on:
            pieces = [f"{p}@@" for p in pieces[:-1]] + pieces[-1:]
        elif "continuation_hashes" in on:
            pieces = pieces[:1] + [f"##{p}" for p in pieces[1:]]
        if "joined_word" in on:
            return "".join(pieces)
        return " ".join(pieces) if "joined_text" in on else pieces

    return apply_bpe


def _words(seed: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Words, with merges that were learnt: in all of them the merge learnt first is also the one that applies first."""
    rng = random.Random(seed)
    found = []
    for corpus in _CORPORA:
        merges = solutions.learn_bpe(corpus, 8)
        letters = sorted(set("".join(corpus)))
        for word in (*corpus, *("".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(6))):
            if solutions.apply_bpe(word, merges) == _by_rank(word, merges):
                found.append((word, merges))
    return found


def _by_rank(word: str, merges: Sequence[tuple[str, str]]) -> list[str]:
    """As apply_bpe, but always the earliest merge that is possible, also when a later one made it so."""
    pieces = list(word)
    while known := [pair for pair in pairwise(pieces) if pair in merges]:
        pieces = _merge(frozenset(), pieces, min(known, key=merges.index))
    return pieces


_HANDMADE = (
    ("aaa", [("a", "a")]),
    ("aaaaa", [("a", "a"), ("aa", "aa")]),
    ("abcab", [("b", "c"), ("a", "b")]),
    ("xabab", [("x", "a"), ("a", "b")]),
    ("abxa", [("x", "a"), ("b", "xa")]),
    ("abcd", [("a", "b"), ("c", "d"), ("ab", "cd")]),
    ("zebra", [("b", "r"), ("e", "br")]),
    ("abc", [("b", "c"), ("a", "b")]),
)


_WITH_SIGNS = (
    ("c++", [("+", "+")]),
    ("axa.b", [("a", "."), ("a.", "b")]),
    ("f(x)", [("(", "x"), ("f", "(x")]),
)


def _apply_probes(seed: int) -> list[Probe]:
    cases = (*_HANDMADE, *_WITH_SIGNS, *_words(seed)[:12])
    return [Probe((word, list(merges))) for word, merges in cases]


def _applied(c: Context, cases: Iterable[tuple[str, Any]]) -> None:
    for word, merges in cases:
        c.expect(
            _plain(c.subject.call(word, list(merges))), c.reference(word, merges), f"{word!r} with {merges}"
        )


def _apply_order(c: Context) -> None:
    _applied(c, _HANDMADE[2:3] + _HANDMADE[5:])


def _apply_left_to_right(c: Context) -> None:
    _applied(c, _HANDMADE[:2])


def _apply_whole_pieces(c: Context) -> None:
    _applied(c, _HANDMADE[3:5])


def _apply_signs(c: Context) -> None:
    _applied(c, _WITH_SIGNS)


def _apply_learnt(c: Context) -> None:
    _applied(c, _words(c.seed))


def _apply_edges(c: Context) -> None:
    _applied(c, [("cab", []), ("q", [("a", "b")]), ("xyz", [("a", "b")]), ("ab", [("a", "b")])])


def _apply_kept(c: Context) -> None:
    merges = list(_HANDMADE[5][1])
    if c.subject.observe("abcd", merges)[1][1] != merges:
        raise Wrong("Your code changes the list of merges that it is given.", "changes_its_input")


# -- embedding -------------------------------------------------------------------------------------------------------

_EMBEDDING = (
    Mistake("no_scale", "scale", "The vectors are not multiplied by √d_model."),
    Mistake("divided_by_root", "scale", "The vectors are divided by √d_model; they should be multiplied by it."),
    Mistake("scaled_by_d_model", "scale", "The vectors are multiplied by d_model, not by its square root."),
    Mistake("scaled_by_root_of_vocabulary", "scale", "The vectors are multiplied by the root of the size of the vocabulary, not by √d_model."),
    Mistake("scaled_by_root_of_length", "scale", "The vectors are multiplied by the root of the number of positions, not by √d_model."),
    Mistake("normalised", "scale", "Each vector is brought to a fixed length; only the factor √d_model is asked for."),
    Mistake("positions_added", "extra", "Something that depends on the position is added; this module only looks vectors up."),
    Mistake("tanh", "extra", "There is a tanh on the result; this module only looks vectors up and scales them."),
    Mistake("features_first", "axes", "The result is (B, d_model, T); it should be (B, T, d_model)."),
    Mistake("length_first", "axes", "The result is (T, B, d_model); it should be (B, T, d_model)."),
    Mistake("flattened", "axes", "The result is (B·T, d_model); it should be (B, T, d_model)."),
    Mistake("summed", "axes", "The vectors of a sequence are added up; each position keeps its own."),
    Mistake("row_above", "rows", "Token i gets row i − 1 of the table."),
    Mistake("row_below", "rows", "Token i gets row i + 1 of the table."),
)  # fmt: skip


def _embedding_variant(on: frozenset[str]) -> Callable[..., nn.Module]:
    class TokenEmbedding(nn.Module):
        def __init__(self, vocab_size: int, d_model: int, pad_id: int = 0) -> None:
            super().__init__()
            self.pad_id = pad_id
            self.weight = nn.Parameter(torch.randn(vocab_size, d_model))
            with torch.no_grad():
                self.weight[pad_id] = 0.0

        def forward(self, tokens: Tensor) -> Tensor:
            rows, d_model = self.weight.shape
            if "row_above" in on or "row_below" in on:
                tokens = (tokens + (1 if "row_below" in on else -1)) % rows
            x = F.embedding(tokens, self.weight, padding_idx=self.pad_id)
            if "normalised" in on:
                x = F.normalize(x, dim=-1)
            factors = {
                "no_scale": 1.0,
                "divided_by_root": d_model**-0.5,
                "scaled_by_d_model": d_model,
                "scaled_by_root_of_vocabulary": rows**0.5,
                "scaled_by_root_of_length": tokens.shape[-1] ** 0.5,
                "normalised": 1.0,
            }
            x = x * next((f for name, f in factors.items() if name in on), math.sqrt(d_model))
            if "positions_added" in on:
                from txcourse.solutions.positional_encoding import sinusoidal_positional_encoding

                x = x + sinusoidal_positional_encoding(tokens.shape[1], d_model).to(x)
            if "tanh" in on:
                x = x.tanh()
            if "features_first" in on:
                return x.transpose(1, 2)
            if "length_first" in on:
                return x.transpose(0, 1)
            if "flattened" in on:
                return x.flatten(0, 1)
            return x.sum(1) if "summed" in on else x

    return TokenEmbedding


_SIZES = {"vocab_size": 9, "d_model": 6}


def _embedding_probes(seed: int) -> list[Probe]:
    """The first holds every token but padding, whose row may be fixed at zero."""
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(8, generator=g) + 1
    tokens = [order.view(2, 4), *(torch.randint(1, 9, shape, generator=g) for shape in ((2, 5), (3, 4)))]
    return [Probe((t,)) for t in tokens]


def _embedding_shape(c: Context) -> None:
    got = c.build().call(torch.tensor([[1, 2, 0], [8, 8, 4]]))
    c.expect(got, torch.zeros(2, 3, 6), "the output", axes="batch length d_model", atol=math.inf)


def _embedding_size(c: Context) -> None:
    module = c.build()
    if hidden := module.unregistered():
        raise Wrong(
            f"PyTorch does not see the parameters in `{hidden[0]}`: use nn.Parameter or nn.Embedding, or they are never trained.",
            "parameters_not_registered",
        )
    if module.size() == 0:
        raise Wrong(
            "The table should be a parameter; PyTorch sees none, so it is never trained.",
            "parameters_not_registered",
        )
    if module.size() != 54:
        raise Wrong(
            f"9 tokens with 6 features are 54 numbers; yours has {module.size()}.",
            "wrong_number_of_parameters",
        )


def _embedding_values(c: Context) -> None:
    c.twin()


def _embedding_pad(c: Context) -> None:
    """On fresh modules, before any weights are set."""
    for kwargs in ({}, {"pad_id": 3}, {"pad_id": 8}):
        pad = kwargs.get("pad_id", 0)
        got = c.build(**kwargs).call(torch.arange(9)[None])[0]
        zero = [i for i in range(9) if not got[i].any()]
        what = f"With pad_id={pad}" if kwargs else "Without pad_id"
        if len(zero) == 9:
            raise Wrong(
                "All vectors start at zero, so all tokens look alike: start them at random.", "starts_at_zero"
            )
        if pad not in zero:
            ignored = bool(kwargs) and 0 in zero
            other = "; yours is zero for token 0" if ignored else ""
            raise Wrong(
                f"{what} token {pad} should give zeros{other}.",
                "pad_id_ignored" if ignored else "pad_row_not_zero",
            )
        if len(zero) > 1:
            raise Wrong(
                f"{what} only token {pad} should give zeros; yours does for {zero}.", "other_rows_zero"
            )
        if bool((got[[i for i in range(9) if i != pad]] == got[1 if pad != 1 else 2]).all()):
            raise Wrong("All tokens start with the same vector: start them at random.", "rows_start_equal")


def _embedding_pad_gradient(c: Context) -> None:
    for pad in (0, 3):
        module = c.build(pad_id=pad).double()
        only = Probe((torch.full((2, 3), pad),))
        try:
            gradient = module.respond([only], c.seed)[1]
        except CandidateError as error:
            if error.error is not None:
                raise
            continue  # nothing depends on the parameters: no gradient either
        if gradient.any():
            raise Wrong(
                f"With pad_id={pad} the row of padding should receive no gradient; yours does.",
                "pad_row_receives_gradient",
            )


def _embedding_gradient(c: Context) -> None:
    """Each occurrence of a token adds to the gradient of its row: the sorted gradients do not depend on the layout."""
    ours, theirs = c.twin()
    probe = Probe((torch.tensor([[1, 2, 2, 8], [4, 8, 2, 5]]),))
    try:
        got = ours.respond([probe], c.seed)[1]
    except CandidateError as error:
        if error.error is None:
            raise Wrong(
                "No gradient reaches the table, so it would never be trained.", "gradient_cut_off"
            ) from error
        raise
    from txcourse.checking.matching import Free

    want = Free(theirs).respond([probe], c.seed)[1]
    mistake = "wrong_gradient" if got.any() else "gradient_cut_off"
    c.expect(got.sort().values, want.sort().values, "the gradient of the table", mistake=mistake)


def _embedding_last(c: Context) -> None:
    module = c.build(vocab_size=4, d_model=5)
    c.expect(
        module.call(torch.tensor([[3, 1]])),
        torch.zeros(1, 2, 5),
        "the output for the last token",
        atol=math.inf,
    )
    got = c.subject.build(7, 4, 2).call(torch.tensor([[2]]))
    c.expect(got, torch.zeros(1, 1, 4), "TokenEmbedding(7, 4, 2) of token 2")


def _embedding_kept(c: Context) -> None:
    module, tokens = c.build(), torch.tensor([[1, 0, 3], [5, 5, 0]])
    first, after = module.observe(tokens)
    if not torch.equal(after[0], tokens):
        raise Wrong("Your code changes the tokens that it is given.", "changes_its_input")
    c.expect(module.call(tokens), first, "the output of a second call", mistake="keeps_state")
    module.train(True)
    c.expect(module.call(tokens), first, "the output in training mode", mistake="differs_in_training")


# -- neighbours ------------------------------------------------------------------------------------------------------

_NEIGHBOURS = (
    Mistake("dot_product", "measure", "The rows are compared by their dot products; the cosine divides by both lengths."),
    Mistake("distance", "measure", "The rows are compared by their distance, not by the cosine of their angle."),
    Mistake("absolute_cosine", "measure", "The absolute value of the cosine is used: opposite rows count as alike."),
    Mistake("squared_length", "measure", "The dot products are divided by the squared length of the row; divide by the length."),
    Mistake("row_sum_normalised", "measure", "The rows are divided by the sum of their magnitudes; the cosine needs their Euclidean length."),
    Mistake("columns_normalised", "measure", "The columns are normalised in place of the rows."),
    Mistake("cosine_over_columns", "measure", "The cosines run over the rows (dim=0), one for each feature; there should be one for each row."),
    Mistake("centred", "measure", "The mean of each row is subtracted first: that is the correlation, not the cosine."),
    Mistake("columns_centred", "measure", "The mean row is subtracted first; the cosine is that of the rows as they are."),
    Mistake("softmax_of_rows", "measure", "A softmax is taken of the rows first; the cosine is that of the rows as they are."),
    Mistake("least_similar", "order", "The least similar rows are returned; the most similar ones are asked for."),
    Mistake("best_last", "order", "The right rows stand with the best last; the best comes first."),
    Mistake("sorted_by_id", "order", "The right rows are sorted by their ids; the best comes first."),
    Mistake("includes_itself", "itself", "`index` itself is among the neighbours; it should be left out."),
    Mistake("one_too_few", "itself", "`index` is taken out after the best k were chosen: one is missing then."),
    Mistake("one_too_many", "itself", "There is one id too many: k are asked for."),
    Mistake("skips_the_best", "itself", "The best neighbour is left out along with `index`."),
    Mistake("itself_as_zero", "itself", "The similarity of `index` with itself is set to 0, which is more than those of rows that point away; use -inf."),
    Mistake("ids_shifted", "itself", "The row of `index` is cut out and the ids behind it are not moved back: they are one too small."),
    Mistake("first_row_asked", "index", "The neighbours are those of row 0 whatever `index` says."),
    Mistake("similarities", "returns", "The similarities are returned; the ids are asked for."),
    Mistake("pairs", "returns", "Ids and similarities are returned; the ids alone are asked for."),
    Mistake("rows", "returns", "The rows themselves are returned; their ids are asked for."),
)  # fmt: skip


def _neighbours_variant(on: frozenset[str]) -> Callable[..., Any]:
    def nearest_neighbours(embedding: Tensor, index: int, k: int) -> Any:
        x = embedding.double()
        if "first_row_asked" in on:
            index = 0
        if "centred" in on:
            x = x - x.mean(1, keepdim=True)
        elif "columns_centred" in on:
            x = x - x.mean(0)
        elif "softmax_of_rows" in on:
            x = x.softmax(-1)
        elif "columns_normalised" in on:
            x = x / x.norm(dim=0)
        elif "row_sum_normalised" in on:
            x = x / x.abs().sum(1, keepdim=True)
        lengths = x.norm(dim=1)
        similarity = x @ x[index]
        if "distance" in on:
            similarity = -(x - x[index]).norm(dim=1)
        elif "squared_length" in on:
            similarity = similarity / lengths**2
        elif not {"dot_product", "columns_normalised", "row_sum_normalised"} & on:
            similarity = similarity / (lengths * lengths[index])
        if "absolute_cosine" in on:
            similarity = similarity.abs()
        rank = -similarity if "least_similar" in on else similarity.clone()
        others = torch.tensor([i for i in range(len(x)) if i != index])
        if "cosine_over_columns" in on:
            rank = F.cosine_similarity(x, x[index][None], dim=0)
            rank[index] = -math.inf
            ids = rank.topk(k).indices
        elif "includes_itself" in on or "one_too_few" in on:
            ids = rank.argsort(descending=True)[:k]
            if "one_too_few" in on:
                ids = ids[ids != index]
        elif "skips_the_best" in on:
            ids = others[rank[others].argsort(descending=True)][1 : k + 1]
        elif "itself_as_zero" in on:
            rank[index] = 0.0
            ids = rank.argsort(descending=True)[:k]
        elif "ids_shifted" in on:
            ids = rank[others].argsort(descending=True)[:k]
        else:
            ids = others[rank[others].argsort(descending=True)][: k + ("one_too_many" in on)]
        if "best_last" in on:
            ids = ids.flip(0)
        elif "sorted_by_id" in on:
            ids = ids.sort().values
        if "similarities" in on:
            return similarity[ids]
        if "rows" in on:
            return embedding[ids].double()
        return (ids, similarity[ids]) if "pairs" in on else ids

    return nearest_neighbours


def _as_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: _plain(function(*args))


def _rows(seed: int, count: int = 9, d: int = 4) -> Tensor:
    """Rows of very different lengths whose cosines differ from each other by at least 0.001."""
    g = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(count, d, generator=g) * (0.3 + 3 * torch.rand(count, 1, generator=g)) + 0.4
        cosines = F.normalize(x, dim=1) @ F.normalize(x, dim=1).T
        if float(cosines.sort(dim=1).values.diff(dim=1).min()) > 1e-3:
            return x


def _neighbour_probes(seed: int) -> list[Probe]:
    return [
        Probe((_rows(seed + i), index, k)) for i, (index, k) in enumerate(((2, 3), (5, 8), (0, 4), (8, 1)))
    ]


def _nearest(
    c: Context, x: Tensor, index: int, k: int, what: str = "the ids", mistake: str | None = None
) -> None:
    got, want = _plain(c.subject.call(x, index, k)), c.reference(x, index, k).tolist()
    reordered = isinstance(got, list) and sorted(map(str, got)) == sorted(map(str, want))
    c.expect(got, want, what, mistake=mistake if reordered else None)


def _neighbours_values(c: Context) -> None:
    for i, (index, k) in enumerate(((2, 3), (0, 4), (8, 5))):
        _nearest(c, _rows(c.seed + i), index, k, f"the {k} nearest of row {index}")


def _neighbours_all(c: Context) -> None:
    _nearest(c, _rows(c.seed), 5, 8, "all 8 neighbours of row 5")
    _nearest(c, _rows(c.seed, 6, 3), 1, 1, "the nearest neighbour")


def _neighbours_lengths(c: Context) -> None:
    x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [50.0, 40.0], [-2.0, 0.1], [0.02, 0.001], [0.0, 3.0]])
    _nearest(c, x, 0, 5, "the neighbours of row 0", "not_the_cosine")
    x = torch.tensor([[2.0, 1.0], [1.0, 0.0], [3.0, 3.0], [-1.0, 0.5]])
    _nearest(c, x, 0, 3, "the neighbours of row 0", "not_the_cosine")


def _neighbours_copies(c: Context) -> None:
    """Rows that equal row `index`: they are neighbours, `index` itself still is not."""
    x = _rows(c.seed)
    for index in (2, 4, 7):
        y = x.clone()
        copies = sorted({1, 3, 5, 8})
        y[copies] = x[index]
        got = _plain(c.subject.call(y, index, 4))
        if not isinstance(got, list) or sorted(map(str, got)) != sorted(map(str, copies)):
            right = _plain(c.subject.call(x, index, 4)) == c.reference(x, index, 4).tolist()  # without copies
            raise Wrong(
                f"Rows {copies} equal row {index}, so they are its 4 nearest neighbours, and {index} is none; yours are {got}.",
                "leaves_out_the_first_instead_of_itself"
                if right and isinstance(got, list) and index in got
                else None,
            )


def _neighbours_opposite(c: Context) -> None:
    """A row with cosine -1 comes last, behind all others, and before `index`, which does not come at all."""
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
    for index, opposite in ((0, 2), (2, 0)):
        got, want = _plain(c.subject.call(x, index, 3)), c.reference(x, index, 3).tolist()
        if got == [*want[:-1], index]:
            raise Wrong(
                f"Row {opposite} points the opposite way (cosine −1) and is still the last neighbour of row {index}, "
                f"which is none itself; yours are {got}. Give {index} the similarity -inf.",
                "includes_itself",
            )
        c.expect(got, want, f"the neighbours of row {index}")


def _neighbours_kept(c: Context) -> None:
    x = _rows(c.seed)
    if not torch.equal(c.subject.observe(x, 2, 3)[1][0], x):
        raise Wrong("Your code changes the embedding that it is given; work on a copy.", "changes_its_input")


_exercise = partial(Exercise, notebook="01_tokens_and_embeddings")

EXERCISES = (
    _exercise(
        name="Vocabulary",
        points=3,
        difficulty=1,
        minutes=10,
        hints=(
            "Two tokens occur equally often: by what are they ordered, and in which direction does each of the two keys go?",
            "Count with collections.Counter, keep what reaches min_count, sort by the pair (-count, token), put the four specials first.",
            "sorted(kept, key=lambda token: (-counts[token], token)); encode: [self.ids.get(token, 3) for token in tokens].",
        ),
        reference=solutions.Vocabulary,
        tests=(
            Test("alone", "shares nothing with other vocabularies and leaves its input as it was", _vocabulary_alone),
            Test("specials", "`tokens` begins with the four special tokens", _vocabulary_specials),
            Test("order", "orders tokens by falling count, ties by the alphabet", _vocabulary_order),
            Test("min_count", "keeps tokens that occur at least min_count times", _vocabulary_min_count, crash="crashes_with_min_count"),
            Test("len", "has the number of its tokens as length", _vocabulary_len, crash="no_len"),
            Test("encode", "encodes tokens as ids, without adding any", _vocabulary_encode),
            Test("unknown", "encodes unknown tokens as <unk>", _vocabulary_unknown, crash="unknown_raises"),
            Test("decode", "decodes ids, with or without the special tokens", _vocabulary_decode),
            Test("round_trip", "decodes what it encoded", _vocabulary_round_trip),
        ),
        mistakes=_VOCABULARY,
        variant=_vocabulary_variant,
        probes=_vocabulary_probes,
        as_function=_vocabulary_calls,
    ),
    _exercise(
        name="pad_sequences",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "How many columns does the result need, and what stands where a sequence has ended?",
            "Make a tensor (B, longest) full of pad_id, then write each sequence to the beginning of its row.",
            "padded = torch.full((len(sequences), longest), pad_id); then padded[i, :len(sequence)] = torch.tensor(sequence).",
        ),
        reference=solutions.pad_sequences,
        tests=(
            Test("values", "pads with 0 on the right, to the longest sequence", _pad_values),
            Test("type", "gives a LongTensor", _pad_type),
            Test("pad_id", "uses the pad_id it is given", _pad_id),
            Test("ids_inside", "keeps ids that happen to equal pad_id", _pad_ids_inside),
            Test("equal_lengths", "takes sequences of equal length, and one alone", _pad_equal, crash="crashes_without_padding"),
            Test("empty", "takes an empty sequence among others", _pad_empty, crash="crashes_on_empty_sequence"),
            Test("inputs_kept", "leaves the lists as they were", _pad_kept),
        ),
        mistakes=_PAD,
        variant=_pad_variant,
        probes=_pad_probes,
        as_function=_typed,
        not_allowed=("pad_sequence",),
    ),
    _exercise(
        name="learn_bpe",
        points=4,
        difficulty=3,
        minutes=15,
        hints=(
            "After a merge, which counts of pairs are still right?",
            "Keep each word as a list of pieces. In each step count all pairs anew, choose the best, and merge it in every word.",
            "best = min(counts, key=lambda pair: (-counts[pair], pair)); stop when counts is empty.",
        ),
        reference=solutions.learn_bpe,
        tests=(
            Test("values", "learns the right merges in the right order", _learn_values),
            Test("counts", "counts each pair wherever it stands, as often as its word occurs", _learn_counts),
            Test("ties", "takes the lexicographically smallest of equally frequent pairs", _learn_ties),
            Test("signs", "takes characters such as . and + as they are", _learn_signs),
            Test("number", "learns n_merges merges", _learn_none, crash="crashes_with_few_merges"),
            Test("stops", "stops when no pair is left", _learn_stops, crash="does_not_stop"),
            Test("inputs_kept", "leaves the counts as they were", _learn_kept),
        ),
        mistakes=_LEARN,
        variant=_learn_variant,
        probes=_learn_probes,
        as_function=_as_lists,
    ),
    _exercise(
        name="apply_bpe",
        points=2,
        difficulty=2,
        minutes=6,
        hints=(
            "'aaa' with the merge (a, a): which two of the three letters become one piece?",
            "Start from the characters. For each merge in turn go through the pieces from the left and join where the pair stands.",
            "if merged and (merged[-1], piece) == pair: merged[-1] += piece, else merged.append(piece). Mind that a joined piece is no longer the pair's left part.",
        ),
        reference=solutions.apply_bpe,
        tests=(
            Test("order", "applies the merges in the order learnt", _apply_order),
            Test("left_to_right", "merges from left to right, each piece once", _apply_left_to_right),
            Test("whole_pieces", "merges whole pieces only", _apply_whole_pieces),
            Test("signs", "takes characters such as . and + as they are", _apply_signs),
            Test("learnt", "splits words with merges that were learnt", _apply_learnt),
            Test("edges", "takes words that no merge applies to, and no merges", _apply_edges, crash="crashes_without_merge"),
            Test("inputs_kept", "leaves the merges as they were", _apply_kept),
        ),
        mistakes=_APPLY,
        variant=_apply_variant,
        probes=_apply_probes,
        as_function=_as_lists,
    ),
    _exercise(
        name="TokenEmbedding",
        points=2,
        difficulty=1,
        minutes=6,
        hints=(
            "Which row must stay zero, and what would change it during training?",
            "nn.Embedding has an argument padding_idx, which zeroes the row and keeps its gradient at zero. Initialise before that, not after.",
            "self.table = nn.Embedding(vocab_size, d_model, padding_idx=pad_id); forward: self.table(tokens) * math.sqrt(d_model).",
        ),
        reference=solutions.TokenEmbedding,
        tests=(
            Test("shape", "gives (B, T, d_model)", _embedding_shape),
            Test("parameters", "has one trained vector for each token", _embedding_size),
            Test("values", "equals the token's row times √d_model", _embedding_values),
            Test("pad", "starts with zeros for padding, and for padding alone", _embedding_pad, crash="crashes_with_pad_id"),
            Test("pad_gradient", "gives padding no gradient", _embedding_pad_gradient),
            Test("gradient", "gives each token's row its gradient", _embedding_gradient),
            Test("last_token", "knows every token of the vocabulary", _embedding_last, crash="too_few_rows"),
            Test("inputs_kept", "leaves the tokens as they were, and is the same each time", _embedding_kept),
        ),
        mistakes=_EMBEDDING,
        variant=_embedding_variant,
        probes=_embedding_probes,
        sizes=_SIZES,
    ),
    _exercise(
        name="nearest_neighbours",
        points=2,
        difficulty=1,
        minutes=6,
        hints=(
            "A long row has a large dot product with everything. How does the cosine take the lengths out?",
            "Divide every row by its length; the cosines are then one matrix-vector product. Take `index` out before choosing k.",
            "similarity = rows @ rows[index]; similarity[index] = -math.inf; return similarity.topk(k).indices",
        ),
        reference=solutions.nearest_neighbours,
        tests=(
            Test("values", "gives the k most similar rows, best first", _neighbours_values),
            Test("lengths", "goes by the angle, not by length or distance", _neighbours_lengths),
            Test("all", "gives all other rows for k = V − 1, and one for k = 1", _neighbours_all, crash="crashes_at_large_k"),
            Test("opposite", "counts a row that points the opposite way as a neighbour", _neighbours_opposite),
            Test("copies", "leaves out `index` itself also when other rows equal it", _neighbours_copies),
            Test("inputs_kept", "leaves the embedding as it was", _neighbours_kept),
        ),
        mistakes=_NEIGHBOURS,
        variant=_neighbours_variant,
        probes=_neighbour_probes,
        as_function=_as_lists,
    ),
)  # fmt: skip
