"""Exercises of 11_batching."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.solutions import batching as solutions

# -- collate ---------------------------------------------------------------------------------------------------------

_COLLATE = (
    Mistake("no_bos", "start", "bos is missing at the start of each row."),
    Mistake("bos_replaces_first", "start", "bos stands in the place of each sequence's first id; it comes before it."),
    Mistake("bos_id_ignored", "start", "Rows start with id 1 whatever `bos_id` is."),
    Mistake("starts_with_eos", "start", "Rows start with eos; they start with bos."),
    Mistake("no_eos", "end", "eos is missing after each sequence."),
    Mistake("ends_with_bos", "end", "Sequences end with bos; they end with eos."),
    Mistake("eos_replaces_last", "end", "eos stands in the place of each sequence's last id; it comes after it."),
    Mistake("eos_id_ignored", "end", "Sequences end with id 2 whatever `eos_id` is."),
    Mistake("eos_after_padding", "end", "eos stands after the padding; it comes right after the sequence."),
    Mistake("eos_only_in_longest", "end", "Only the longest rows have eos; every row has one."),
    Mistake("bos_left_out_where_there", "start", "bos is left out where a sequence begins with that id already; every row gets one more."),
    Mistake("eos_left_out_where_there", "end", "eos is left out where a sequence ends with that id already; every row gets one more."),
    Mistake("eos_twice", "end", "There are two eos after each sequence; one is asked for."),
    Mistake("bos_twice", "start", "There are two bos before each sequence; one is asked for."),
    Mistake("padded_after_bos", "padding", "The padding stands between bos and the sequence; it comes after eos."),
    Mistake("padded_left", "padding", "The padding stands on the left; it belongs on the right."),
    Mistake("pad_id_ignored", "padding", "Rows are padded with 0 whatever `pad_id` is."),
    Mistake("padded_with_eos", "padding", "Rows are padded with eos; they are padded with pad_id."),
    Mistake("padded_with_bos", "padding", "Rows are padded with bos; they are padded with pad_id."),
    Mistake("longest_without_eos", "width", "The longest rows have no eos: the batch is one column too narrow, or eos is written only where there is padding."),
    Mistake("extra_column", "width", "There is one column too many: the batch is as wide as its longest row."),
    Mistake("two_extra_columns", "width", "There are two columns too many: the batch is as wide as its longest row."),
    Mistake("cut_to_shortest", "width", "Rows are cut to the shortest one; they are padded to the longest."),
    Mistake("cut_to_first", "width", "Rows are cut or padded to the first one; they are padded to the longest."),
    Mistake("cut_by_two", "width", "The batch is as wide as the longest sequence without bos and eos, so that rows are cut."),
    Mistake("reversed_ids", "ids", "The ids of each sequence are reversed."),
    Mistake("zeros_dropped", "ids", "Ids that equal pad_id (or 0) are dropped from the sequences."),
    Mistake("sorted_by_length", "order", "The rows are sorted by length; they keep the order of `sequences`."),
    Mistake("reversed_rows", "order", "The rows are in reverse order."),
    Mistake("length_first", "type", "The result is (L, B); it should be (B, L)."),
    Mistake("floats", "type", "The result holds floating-point numbers; ids are integers."),
    Mistake("returns_list", "type", "The result is a list; it should be a tensor (B, L)."),
    Mistake("returns_mask_too", "type", "More than the batch is returned; return the tensor (B, L) alone."),
)  # fmt: skip


def _collate_variant(on: frozenset[str]) -> Callable[..., Any]:
    def collate(sequences: Sequence[Sequence[int]], pad_id: int, bos_id: int, eos_id: int) -> Any:
        first = 1 if "bos_id_ignored" in on else eos_id if "starts_with_eos" in on else bos_id
        last = 2 if "eos_id_ignored" in on else bos_id if "ends_with_bos" in on else eos_id
        pads = {"pad_id_ignored": 0, "padded_with_eos": eos_id, "padded_with_bos": bos_id}
        pad = next((v for name, v in pads.items() if name in on), pad_id)
        longest = max(map(len, sequences))
        rows = []
        for sequence in sequences:
            ids = list(sequence)
            if "reversed_ids" in on:
                ids.reverse()
            elif "zeros_dropped" in on:
                ids = [i for i in ids if i]
            if "bos_replaces_first" in on:
                ids = ids[1:]
            if "eos_replaces_last" in on:
                ids = ids[:-1]
            start = [] if "no_bos" in on else [first, first] if "bos_twice" in on else [first]
            if "bos_left_out_where_there" in on and ids[:1] == start:
                start = []
            without = {
                "no_eos": True,
                "eos_after_padding": True,
                "eos_only_in_longest": len(sequence) < longest,
            }
            end = [] if any(name in on and skipped for name, skipped in without.items()) else [last]
            if "eos_twice" in on:
                end = [last, last]
            elif "eos_left_out_where_there" in on and ids[-1:] == end:
                end = []
            rows.append([*start, *ids, *end])
        widths = [len(row) for row in rows]
        width = (
            max(widths)
            + ("extra_column" in on)
            + 2 * ("two_extra_columns" in on)
            - ("longest_without_eos" in on)
        )
        if "cut_to_shortest" in on:
            width = min(widths)
        elif "cut_to_first" in on:
            width = widths[0]
        elif "cut_by_two" in on:
            width = max(widths) - 2
        if "sorted_by_length" in on:
            rows.sort(key=len, reverse=True)
        elif "reversed_rows" in on:
            rows.reverse()
        padding = [[pad] * (width - len(row)) for row in rows]
        before = (
            0 if "padded_left" in on else 1 if "padded_after_bos" in on else width
        )  # ids before the padding
        rows = [[*row[:before], *p, *row[before:]] for row, p in zip(rows, padding, strict=True)]
        batch = torch.tensor([row[:width] + [last] * ("eos_after_padding" in on) for row in rows])
        if "length_first" in on:
            batch = batch.T
        if "floats" in on:
            return batch.float()
        if "returns_list" in on:
            return batch.tolist()
        return (batch, batch != pad) if "returns_mask_too" in on else batch

    return collate


def _sequences(seed: int, n: int = 5) -> list[list[int]]:
    """Ids from 10 on, of unequal lengths, the longest neither first nor last."""
    rng = random.Random(seed)
    lengths = [3, 1, 6, 2, 4][:n]
    shift = rng.randint(0, 2)
    return [[rng.randint(10, 30) for _ in range(k + shift)] for k in lengths]


def _collate_probes(seed: int) -> list[Probe]:
    with_zero, marked = _sequences(seed), _sequences(seed + 2)
    with_zero[2][1] = 0
    marked[2], marked[4] = [7, *marked[2]], [*marked[4], 3, 3]
    return [
        Probe((_sequences(seed), 0, 1, 2)),
        Probe((_sequences(seed + 1), 5, 7, 3)),
        Probe((with_zero, 4, 6, 8)),
        Probe((_sequences(seed, 1), 0, 1, 2)),
        Probe((marked, 5, 7, 3)),
    ]


def _whole(got: Any) -> None:
    if isinstance(got, Tensor) and got.is_floating_point():
        raise Wrong(f"Ids are integers; yours are floating-point numbers ({got.dtype}).", "floats")


def _collate(c: Context, what: str, *args: Any) -> None:
    got = c.subject.call(*args)
    _whole(got)
    c.expect(got, c.reference(*args), f"the batch{what}", axes="batch position")


def _collate_values(c: Context) -> None:
    _collate(c, "", _sequences(c.seed), 0, 1, 2)


def _collate_ids(c: Context) -> None:
    _collate(c, " for pad 5, bos 7, eos 3", _sequences(c.seed), 5, 7, 3)
    _collate(c, " for pad 9, bos 8, eos 0", _sequences(c.seed + 1), 9, 8, 0)


def _collate_equal(c: Context) -> None:
    _collate(c, " of a single sequence", _sequences(c.seed, 1), 0, 1, 2)
    _collate(c, " of sequences of equal length", [[10, 11, 12], [13, 14, 15]], 0, 1, 2)


def _collate_any_ids(c: Context) -> None:
    sequences = _sequences(c.seed)
    sequences[0][1], sequences[2][2], sequences[4][0] = 0, 7, 3
    _collate(c, " when the special ids stand in a sequence too", sequences, 0, 7, 3)
    sequences = [[11], [7, 12, 13], [14, 15, 3], [7, 3]]
    _collate(c, " when a sequence begins with bos or ends with eos", sequences, 0, 7, 3)


def _collate_large(c: Context) -> None:
    sequences = [[10, 300], [70_000 + c.seed] * 600, [130]]
    got = c.subject.call(sequences, 0, 1, 2)
    if isinstance(got, Tensor) and got.dtype in (torch.int8, torch.uint8, torch.int16):
        raise Wrong(
            f"{got.dtype} holds no number above {torch.iinfo(got.dtype).max}, and larger ids are changed; use torch.long.",
            "narrow_integers",
        )
    _whole(got)
    c.expect(
        got,
        c.reference(sequences, 0, 1, 2),
        "the batch of a long row with ids near 70,000",
        axes="batch position",
    )


def _collate_empty(c: Context) -> None:
    try:
        got = c.subject.call([[10, 11], [], [12]], 0, 1, 2)
    except CandidateError:  # nobody asks for such a row
        return
    if isinstance(got, Tensor) and len(got) < 3:
        raise Wrong(
            "A sequence without any id is a row too, bos and eos; yours leaves it out.",
            "drops_empty_sequences",
        )


def _collate_kept(c: Context) -> None:
    sequences = _sequences(c.seed)
    after = c.subject.observe(sequences, 0, 1, 2)[1][0]
    if after != sequences:
        raise Wrong("Your code changes the sequences it is given; build new lists.", "changes_its_input")


# -- shift_target ----------------------------------------------------------------------------------------------------

_SHIFT = (
    Mistake("exchanged", "shift", "Input and labels are exchanged: the input is tgt without its last token, the labels are tgt without its first."),
    Mistake("not_shifted", "shift", "Both are tgt itself: the model would see the token that it has to predict."),
    Mistake("both_inputs", "shift", "The labels equal the input, tgt without its last token; they are tgt without its first."),
    Mistake("both_labels", "shift", "The input equals the labels, tgt without its first token; it is tgt without its last."),
    Mistake("input_not_cut", "shift", "The input is all of tgt; its last token is left out, so that both have L − 1 positions."),
    Mistake("labels_not_cut", "shift", "The labels are all of tgt; its first token is left out."),
    Mistake("shifted_twice", "shift", "The shift is two positions: labels[t] should be the token right after input[t]."),
    Mistake("batch_shifted", "shift", "The batch is shifted, not the positions: cut the last axis."),
    Mistake("rolled", "shift", "The tokens are rolled round, so that a first token comes after the last; cut instead."),
    Mistake("labels_rolled", "shift", "The labels are rolled round, so that bos comes after the last; cut instead."),
    Mistake("labels_padded", "shift", "Both have L positions, a pad is appended to the labels; cut to L − 1 instead."),
    Mistake("bos_prepended", "shift", "A bos is put before tgt, which has one already; the input is tgt without its last token."),
    Mistake("input_right_padded", "shift", "The input's last token is overwritten, not cut: both should have L − 1 positions."),
    Mistake("last_sequence_end_cut", "shift", "The input loses its first token too; it is tgt without its last token alone."),
    Mistake("eos_removed_from_input", "eos", "eos is replaced in the input; it may stay there, since its label is padding and does not count. The input is tgt without its last token."),
    Mistake("first_overwritten", "eos", "The first token of the input is replaced by 1; it is the first of tgt, whatever stands there."),
    Mistake("padding_cut", "width", "Columns with nothing but padding are cut; both have L − 1 positions, whatever tgt holds."),
    Mistake("eos_removed_from_labels", "labels", "eos is replaced in the labels; it is the token with which the model says that it has ended, and it must be learnt."),
    Mistake("padding_relabelled", "labels", "Padding in the labels is replaced by another number (such as −100); the labels are tgt without its first token."),
    Mistake("labels_flattened", "labels", "The labels are flattened; they should be (B, L − 1)."),
    Mistake("input_only", "result", "Only the input is returned; return (input, labels)."),
    Mistake("labels_only", "result", "Only the labels are returned; return (input, labels)."),
    Mistake("mask_too", "result", "More than two things are returned; return (input, labels)."),
    Mistake("floats", "type", "The ids are floating-point numbers; they should stay integers."),
)  # fmt: skip


def _shift_variant(on: frozenset[str]) -> Callable[..., Any]:
    def shift_target(tgt: Tensor) -> Any:
        if "padding_cut" in on:
            tgt = tgt[:, : int((tgt != 0).sum(1).max())]
        pad = torch.zeros_like(tgt[:, :1])
        inputs, labels = tgt[:, :-1], tgt[:, 1:]
        shifts: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
            "exchanged": lambda: (labels, inputs),
            "not_shifted": lambda: (tgt, tgt),
            "both_inputs": lambda: (inputs, inputs),
            "both_labels": lambda: (labels, labels),
            "input_not_cut": lambda: (tgt, labels),
            "labels_not_cut": lambda: (inputs, tgt),
            "shifted_twice": lambda: (tgt[:, :-2], tgt[:, 2:]),
            "batch_shifted": lambda: (tgt[:-1], tgt[1:]),
            "rolled": lambda: (tgt.roll(1, 1), tgt),
            "labels_rolled": lambda: (tgt, tgt.roll(-1, 1)),
            "labels_padded": lambda: (tgt, torch.cat([labels, pad], 1)),
            "bos_prepended": lambda: (torch.cat([pad + 1, inputs], 1), tgt),
            "input_right_padded": lambda: (torch.cat([inputs, pad], 1), torch.cat([labels, pad], 1)),
            "last_sequence_end_cut": lambda: (tgt[:, 1:-1], labels),
        }
        inputs, labels = next((f() for name, f in shifts.items() if name in on), (inputs, labels))
        if "eos_removed_from_input" in on:
            inputs = inputs.masked_fill(inputs == 2, 0)
        elif "first_overwritten" in on:
            inputs = torch.cat([torch.ones_like(inputs[:, :1]), inputs[:, 1:]], 1)
        if "padding_relabelled" in on:
            labels = labels.masked_fill(labels == 0, -100)
        elif "eos_removed_from_labels" in on:
            labels = labels.masked_fill(labels == 2, 0)
        elif "labels_flattened" in on:
            labels = labels.reshape(-1)
        if "floats" in on:
            inputs, labels = inputs.float(), labels.float()
        results: dict[str, Any] = {
            "input_only": inputs,
            "labels_only": labels,
            "mask_too": (inputs, labels, labels != 0),
        }
        return next((v for name, v in results.items() if name in on), (inputs, labels))

    return shift_target


def _target(seed: int, rows: int = 4) -> Tensor:
    """bos, ids, eos and padding: (rows, 8)."""
    rng = random.Random(seed)
    lengths = [6, 2, 4, 1][:rows]
    return torch.tensor([[1, *(rng.randint(10, 30) for _ in range(n)), 2, *[0] * (6 - n)] for n in lengths])


def _shift_probes(seed: int) -> list[Probe]:
    tgt = _target(seed)
    wider, other_bos = functional.pad(tgt, (0, 2)), tgt.masked_fill(tgt == 1, 7)
    return [Probe((x,)) for x in (tgt, _target(seed + 1, 1), _target(seed + 2)[:3, :5], wider, other_bos)]


def _shift(c: Context, what: str, tgt: Tensor) -> None:
    got = c.subject.call(tgt)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong("Return two tensors: (input, labels).")
    for name, g, w in zip(("the input", "the labels"), got, solutions.shift_target(tgt), strict=True):
        _whole(g)
        c.expect(g, w, name + what, axes="batch position")


def _shift_values(c: Context) -> None:
    _shift(c, "", _target(c.seed))
    _shift(c, " of a single row", _target(c.seed, 1))


def _shift_last(c: Context) -> None:
    _shift(c, " of a tgt without padding or eos", _target(c.seed)[:3, :5])
    _shift(c, " of a tgt of length 2", torch.tensor([[1, 2], [1, 2]]))
    _shift(c, " of a tgt with padding alone in its last columns", functional.pad(_target(c.seed), (0, 2)))
    _shift(c, " of a tgt with 7 as bos", _target(c.seed).masked_fill(_target(c.seed) == 1, 7))


def _shift_kept(c: Context) -> None:
    tgt = _target(c.seed)
    if not torch.equal(c.subject.observe(tgt)[1][0], tgt):
        raise Wrong("Your code changes tgt in place; work on a copy.", "changes_its_input")


# -- token_batches: many answers are right, so that each property is tested, and names what breaks it --------------------


def _lengths(seed: int, n: int = 240) -> list[int]:
    """Lengths as of sentences, from 3 to about 45, in no order."""
    rng = random.Random(seed)
    return [min(45, max(3, round(rng.lognormvariate(2.6, 0.5)))) for _ in range(n)]


_NO_NUMBERS = "list, but some of its batches hold no numbers"


def _batches(c: Context, lengths: list[int], max_tokens: int, *seed: int | None) -> list[list[int]]:
    """The candidate's batches as lists of whole numbers; raises Wrong when they are none."""
    got = c.subject.through(_listed).call(lengths, max_tokens, *seed)
    if isinstance(got, str):
        names = {
            "NoneType": "returns_nothing",
            "generator": "returns_generator",
            _NO_NUMBERS: "no_numbers_in_batches",
        }
        raise Wrong(
            f"The result should be a list of batches, each a list of indices; yours is of type {got}.",
            names.get(got),
        )
    for number, batch in enumerate(got):
        if not isinstance(batch, list):
            raise Wrong(
                f"Each batch should be a list of indices; batch {number} is {batch!r}.", "not_a_list_of_lists"
            )
    return got


def _listed(token_batches: Any) -> Callable[..., Any]:
    """The result in plain lists of whole numbers, or the name of its type."""

    def listed(*args: Any) -> Any:
        result = token_batches(*args)
        if not isinstance(result, list | tuple):
            return type(result).__name__
        try:
            return [[int(i) for i in batch] if hasattr(batch, "__iter__") else batch for batch in result]
        except TypeError:  # int() takes no pair
            return _NO_NUMBERS

    return listed


def _check_every_once(batches: list[list[int]], lengths: list[int], max_tokens: int) -> None:
    n = len(lengths)
    counts = Counter(i for batch in batches for i in batch)
    if any(not batch for batch in batches):
        raise Wrong("One of your batches is empty.", "empty_batch")
    if counts == Counter(lengths) and counts != Counter(range(n)):
        raise Wrong(
            "Your batches hold the lengths themselves; they should hold indices into `lengths`.",
            "returns_lengths",
        )
    outside = [i for i in counts if not 0 <= i < n]
    if outside:
        raise Wrong(
            f"Index {outside[0]} is not an index into `lengths`, which has {n} entries.", "index_out_of_range"
        )
    twice = [i for i, k in counts.items() if k > 1]
    if twice:
        raise Wrong(
            f"Every example should occur once; {twice[0]} occurs {counts[twice[0]]} times.",
            "repeats_examples",
        )
    missing = [i for i in range(n) if i not in counts]
    if not missing:
        return
    text = f"Every example should occur once; {len(missing)} of {n} are missing, such as {missing[0]} of length {lengths[missing[0]]}."
    if all(lengths[i] > max_tokens for i in missing):
        raise Wrong(
            f"{text} A single example longer than max_tokens is a batch of its own.", "drops_long_examples"
        )
    order = sorted(range(n), key=lambda i: lengths[i])
    ends = (set(order[-len(missing) :]), set(order[: len(missing)]), set(range(n - len(missing), n)))
    longest, shortest = (pick(lengths[i] for i in missing) for pick in (max, min))
    one_end = (
        longest == min(lengths)
        or shortest == max(lengths)
        or set(missing) in ends
        or len(missing) * longest <= max_tokens
    )
    if one_end and len(batches) > 1:
        raise Wrong(f"{text} The last batch, which is not full, seems to be lost.", "drops_last_batch")
    raise Wrong(text, "drops_examples")


def _check_size(batches: list[list[int]], lengths: list[int], max_tokens: int) -> None:
    def cost(batch: list[int]) -> int:
        return len(batch) * max(lengths[i] for i in batch)

    over = [batch for batch in batches if len(batch) > 1 and cost(batch) > max_tokens]
    if not over:
        return
    b = over[0]
    longest = max(lengths[i] for i in b)
    text = f"A batch of {len(b)} examples, the longest of {longest} tokens, takes {cost(b)} places with its padding; max_tokens is {max_tokens}."
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    if all(0 <= i < len(order) for batch in batches for i in batch):
        mapped = [[order[i] for i in batch] for batch in batches]
        if all(len(m) == 1 or cost(m) <= max_tokens for m in mapped):
            raise Wrong(
                f"{text} Your indices count in the sorted list; they should be indices into `lengths`.",
                "indices_of_sorted_list",
            )
    if all(len(batch) <= max_tokens for batch in batches) and max(map(len, batches)) == max_tokens:
        raise Wrong(f"{text} You limit the number of examples, not that of tokens.", "counts_examples")
    several = [batch for batch in batches if len(batch) > 1]
    if all(len(batch) * lengths[batch[-1]] <= max_tokens for batch in several):
        raise Wrong(f"{text} It is size × longest, not size × the length of the last.", "newest_counts")
    sums = [sum(lengths[i] for i in batch) for batch in several]
    if max(sums) <= max_tokens and sum(sums) / len(sums) > 0.8 * max_tokens:
        raise Wrong(
            f"{text} Padding counts too: it is size × longest, not the sum of the lengths.",
            "padding_not_counted",
        )
    if all(len(batch) * lengths[batch[0]] <= max_tokens for batch in several):
        raise Wrong(f"{text} It is size × longest, not size × the length of the first.", "first_counts")
    by_length = [sorted(lengths[i] for i in batch) for batch in over]
    if all((len(x) - 1) * x[-1] <= max_tokens for x in by_length):
        raise Wrong(
            f"{text} Your batches have one example too many: look before you add it.", "one_example_too_many"
        )
    if all(len(x) * x[0] <= max_tokens for x in by_length):
        raise Wrong(f"{text} It is size × longest, not size × shortest.", "shortest_counts")
    if all(cost(batch) <= 1.1 * max_tokens for batch in over):
        raise Wrong(f"{text} The limit has to hold for every batch.", "slightly_too_large")
    raise Wrong(text, "batches_too_large")


def _token_properties(c: Context, lengths: list[int], max_tokens: int, *seed: int | None) -> list[list[int]]:
    batches = _batches(c, lengths, max_tokens, *seed)
    _check_every_once(batches, lengths, max_tokens)
    _check_size(batches, lengths, max_tokens)
    return batches


def _token_every(c: Context) -> None:
    for i, (n, max_tokens) in enumerate(((240, 200), (97, 130), (1, 50), (7, 1000))):
        lengths = _lengths(c.seed + i, n)
        _check_every_once(_batches(c, lengths, max_tokens), lengths, max_tokens)


def _token_size(c: Context) -> None:
    for i, max_tokens in enumerate((200, 131, 97)):
        _token_properties(c, _lengths(c.seed + i), max_tokens)
    _token_properties(c, [5] * 8, 20)
    _token_properties(c, [7, 7, 7, 7, 7, 7], 20)


def _token_padding(c: Context) -> None:
    for i, max_tokens in enumerate((250, 180)):
        lengths = _lengths(c.seed + i)
        batches = _batches(c, lengths, max_tokens)
        _check_every_once(batches, lengths, max_tokens)
        places = sum(len(b) * max(lengths[k] for k in b) for b in batches)
        share = 1 - sum(lengths) / places
        if share > 0.1:
            raise Wrong(
                f"{100 * share:.0f} % of your batches is padding; at most 10 % should be. Put examples of like length together.",
                "lengths_not_grouped",
            )
        alone = sum(len(b) == 1 for b in batches)
        if alone == len(batches):
            raise Wrong(
                "Each of your batches holds one example; put together what fits into max_tokens.",
                "one_example_each",
            )
        if sum(lengths) / len(batches) < max_tokens / 5:
            fill = 100 * sum(lengths) / len(batches) / max_tokens
            raise Wrong(
                f"Your batches fill {fill:.0f} % of max_tokens on average; put more examples together.",
                "batches_too_small",
            )


def _token_long(c: Context) -> None:
    lengths = [*_lengths(c.seed, 30), 300, 260]
    batches = _token_properties(c, lengths, 200)
    _token_properties(c, [300, 5, 6], 200)
    _token_properties(c, [300], 200)
    if [30] not in batches or [31] not in batches:
        raise Wrong(
            "A single example longer than max_tokens should be a batch of its own.", "long_examples_not_alone"
        )


def _token_same(c: Context) -> None:
    lengths = _lengths(c.seed)
    for seed in ((), (0,), (5,)):
        first = _batches(c, lengths, 200, *seed)
        torch.manual_seed(c.seed + 1)
        random.seed(c.seed + 1)
        second = _batches(c, lengths, 200, *seed)
        if first != second:
            said = f"seed={seed[0]}" if seed else "no seed"
            raise Wrong(
                f"Two equal calls with {said} give different batches; the same call should give the same.",
                "not_reproducible" if seed else "random_without_seed",
            )


def _token_seed(c: Context) -> None:
    lengths = _lengths(c.seed)
    plain = _batches(c, lengths, 200)
    of_seeds = {seed: _batches(c, lengths, 200, seed) for seed in (0, 1, 2, 3)}
    for seed, batches in of_seeds.items():
        _check_every_once(batches, lengths, 200)
        longest = [max(lengths[i] for i in b) for b in batches]
        if batches == plain or longest in (sorted(longest), sorted(longest, reverse=True)):
            if seed == 0 and batches == plain and of_seeds[1] != plain:
                raise Wrong(
                    "seed=0 changes nothing, seed=1 does. 0 is a seed too (`if seed:` takes it for none, `if seed is not None:` does not).",
                    "seed_0_ignored",
                )
            raise Wrong(
                "With a seed the order of the batches should be shuffled; yours goes by length.",
                "seed_does_not_shuffle",
            )
        places = sum(len(b) * max(lengths[i] for i in b) for b in batches)
        if 1 - sum(lengths) / places > 0.1:
            raise Wrong(
                "With a seed examples of unlike length stand together; shuffle the order of the batches, not the examples.",
                "seed_shuffles_examples",
            )
        _check_size(batches, lengths, 200)
        if {frozenset(b) for b in batches} != {frozenset(b) for b in plain}:
            raise Wrong(
                f"With seed={seed} other examples stand together than without a seed. Only the order of the batches should be "
                "shuffled; what stands together stays together.",
                "seed_regroups",
            )
    if all(batches == of_seeds[0] for batches in of_seeds.values()):
        raise Wrong("All seeds give the same order.", "seed_fixed")


def _token_kept(c: Context) -> None:
    lengths = _lengths(c.seed, 20)
    for args in ((lengths, 60), (lengths, 60, 1)):
        if c.subject.observe(*args)[1][0] != lengths:
            raise Wrong(
                "Your code changes `lengths`, for instance by sorting it; sort indices instead.",
                "changes_its_input",
            )


_exercise = partial(Exercise, notebook="11_batching")

EXERCISES = (
    _exercise(
        name="collate",
        points=1,
        difficulty=1,
        minutes=8,
        hints=(
            "How long is the longest row once bos and eos are there?",
            "First make the lists bos + ids + eos, then pad all of them to the length of the longest.",
            "rows = [[bos_id, *ids, eos_id] for ids in sequences]; return pad_sequences(rows, pad_id)",
        ),
        reference=solutions.collate,
        tests=(
            Test("values", "gives bos + ids + eos, padded on the right", _collate_values),
            Test("ids", "uses pad_id, bos_id and eos_id as given", _collate_ids),
            Test("equal", "takes one sequence, and sequences of equal length", _collate_equal, crash="crashes_without_padding"),
            Test("any_ids", "keeps every id of the sequences", _collate_any_ids),
            Test("large", "takes long sequences and large ids", _collate_large, crash="large_ids_fail"),
            Test("empty", "leaves out no sequence", _collate_empty),
            Test("inputs_kept", "leaves the sequences as they were", _collate_kept),
        ),
        mistakes=_COLLATE,
        variant=_collate_variant,
        probes=_collate_probes,
    ),
    _exercise(
        name="shift_target",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "When the decoder has read bos, which token should it predict?",
            "The input is tgt without its last token, the labels are tgt without its first.",
            "return tgt[:, :-1], tgt[:, 1:]",
        ),
        reference=solutions.shift_target,
        tests=(
            Test("values", "labels[t] is the token after input[t]", _shift_values),
            Test("last", "cuts one position, whatever stands there and elsewhere", _shift_last),
            Test("inputs_kept", "leaves tgt as it was", _shift_kept),
        ),
        mistakes=_SHIFT,
        variant=_shift_variant,
        probes=_shift_probes,
    ),
    _exercise(
        name="token_batches",
        points=3,
        difficulty=2,
        minutes=20,
        hints=(
            "In which order should you go through the examples, so that neighbours have like lengths?",
            "Sort the indices by length; add an example to the batch unless (size + 1) × its length would exceed max_tokens, and then start a new one.",
            "for i in sorted(range(len(lengths)), key=lambda i: lengths[i]): if batch and (len(batch) + 1) * lengths[i] > max_tokens: batches.append(batch); batch = [] … random.Random(seed).shuffle(batches)",
        ),
        reference=solutions.token_batches,
        tests=(
            Test("inputs_kept", "leaves lengths as they were", _token_kept),
            Test("every", "has every example once", _token_every),
            Test("size", "size × longest is at most max_tokens", _token_size),
            Test("padding", "puts like lengths together: at most 10 % padding", _token_padding),
            Test("long", "makes a batch of its own of an example above max_tokens", _token_long, crash="crashes_for_long_examples"),
            Test("same", "gives the same batches for the same call", _token_same, crash="crashes_with_seed"),
            Test("seed", "shuffles the order of the batches by the seed", _token_seed, crash="crashes_with_seed"),
        ),
        probes=lambda seed: [Probe((_lengths(seed, 20), 60))],
    ),
)  # fmt: skip
