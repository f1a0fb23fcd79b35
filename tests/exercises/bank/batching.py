"""Answers to the exercises of 11, right and wrong."""

import random
from itertools import zip_longest

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

# -- collate ---------------------------------------------------------------------------------------------------------


def collate_lists(sequences, pad_id, bos_id, eos_id):
    rows = [[bos_id] + list(s) + [eos_id] for s in sequences]
    longest = max(len(r) for r in rows)
    return torch.tensor([r + [pad_id] * (longest - len(r)) for r in rows])


def collate_filled(sequences, pad_id, bos_id, eos_id):
    batch = torch.full((len(sequences), max(map(len, sequences)) + 2), pad_id, dtype=torch.long)
    batch[:, 0] = bos_id
    for i, s in enumerate(sequences):
        batch[i, 1 : len(s) + 1] = torch.LongTensor(s)
        batch[i, len(s) + 1] = eos_id
    return batch


def collate_library(sequences, pad_id, bos_id, eos_id):
    rows = [torch.tensor([bos_id, *s, eos_id]) for s in sequences]
    return pad_sequence(rows, batch_first=True, padding_value=pad_id)


def collate_zip(sequences, pad_id, bos_id, eos_id):
    columns = zip_longest(*[(bos_id, *s, eos_id) for s in sequences], fillvalue=pad_id)
    return torch.tensor(list(columns)).T


class CollateObject:
    def __call__(self, sequences, pad_id, bos_id, eos_id, dtype=np.int32):
        width = 2 + max(len(s) for s in sequences)
        rows = np.full((len(sequences), width), pad_id, dtype=dtype)
        for row, s in zip(rows, sequences, strict=True):
            row[0], row[1 : 1 + len(s)], row[1 + len(s)] = bos_id, s, eos_id
        return torch.from_numpy(rows)


def collate_sentinel(sequences, pad_id, bos_id, eos_id):
    batch = collate_filled(sequences, -1, bos_id, eos_id)
    return batch.masked_fill(batch < 0, pad_id)


def collate_cat(sequences, pad_id, bos_id, eos_id):
    bos, eos = torch.tensor([bos_id]), torch.tensor([eos_id])
    rows = [torch.cat([bos, torch.tensor(s), eos]) for s in sequences]
    return pad_sequence(rows, batch_first=True, padding_value=pad_id)


def collate_no_eos(sequences, pad_id, bos_id, eos_id):
    rows = [[bos_id] + s for s in sequences]
    longest = max(len(r) for r in rows)
    return torch.tensor([r + [pad_id] * (longest - len(r)) for r in rows])


def collate_no_bos(sequences, pad_id, bos_id, eos_id):
    rows = [s + [eos_id] for s in sequences]
    longest = max(len(r) for r in rows)
    return torch.tensor([r + [pad_id] * (longest - len(r)) for r in rows])


def collate_neither(sequences, pad_id, bos_id, eos_id):
    longest = max(len(r) for r in sequences)
    return torch.tensor([r + [pad_id] * (longest - len(r)) for r in sequences])


def collate_eos_last(sequences, pad_id, bos_id, eos_id):
    longest = max(len(s) for s in sequences)
    return torch.tensor([[bos_id] + s + [pad_id] * (longest - len(s)) + [eos_id] for s in sequences])


def collate_left(sequences, pad_id, bos_id, eos_id):
    rows = [[bos_id] + s + [eos_id] for s in sequences]
    longest = max(len(r) for r in rows)
    return torch.tensor([[pad_id] * (longest - len(r)) + r for r in rows])


def collate_cuts_eos(sequences, pad_id, bos_id, eos_id):
    longest = max(len(s) for s in sequences) + 1
    batch = torch.full((len(sequences), longest), pad_id)
    for i, s in enumerate(sequences):
        row = torch.tensor([bos_id] + s + [eos_id])[:longest]
        batch[i, : len(row)] = row
    return batch


def collate_pads_zero(sequences, pad_id, bos_id, eos_id):
    rows = [torch.tensor([bos_id, *s, eos_id]) for s in sequences]
    return pad_sequence(rows, batch_first=True)


def collate_time_first(sequences, pad_id, bos_id, eos_id):
    return pad_sequence([torch.tensor([bos_id, *s, eos_id]) for s in sequences], padding_value=pad_id)


def collate_sorted(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sorted(sequences, key=len, reverse=True), pad_id, bos_id, eos_id)


def collate_zip_shortest(sequences, pad_id, bos_id, eos_id):
    return torch.tensor(list(zip(*[(bos_id, *s, eos_id) for s in sequences], strict=False))).T


def collate_in_place(sequences, pad_id, bos_id, eos_id):
    for s in sequences:
        s.insert(0, bos_id)
        s.append(eos_id)
    return collate_neither(sequences, pad_id, bos_id, eos_id)


def collate_float(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sequences, pad_id, bos_id, eos_id).float()


def collate_returns_lists(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sequences, pad_id, bos_id, eos_id).tolist()


def collate_swapped_marks(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sequences, pad_id, eos_id, bos_id)


def collate_marks_once(sequences, pad_id, bos_id, eos_id):
    rows = []
    for s in sequences:
        start = [] if s[:1] == [bos_id] else [bos_id]
        rows.append(start + s + ([] if s[-1:] == [eos_id] else [eos_id]))
    longest = max(len(r) for r in rows)
    return torch.tensor([r + [pad_id] * (longest - len(r)) for r in rows])


def collate_eos_once(sequences, pad_id, bos_id, eos_id):
    rows = [s if s[-1:] == [eos_id] else [*s, eos_id] for s in sequences]
    longest = max(len(r) for r in rows)
    return torch.tensor([[bos_id] + r + [pad_id] * (longest - len(r)) for r in rows])


def collate_bytes(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sequences, pad_id, bos_id, eos_id).to(torch.uint8)


def collate_bytes_at_once(sequences, pad_id, bos_id, eos_id):
    return torch.tensor(collate_lists(sequences, pad_id, bos_id, eos_id).tolist(), dtype=torch.uint8)


def collate_cuts_at_64(sequences, pad_id, bos_id, eos_id):
    return collate_lists(sequences, pad_id, bos_id, eos_id)[:, :64]


def collate_drops_empty(sequences, pad_id, bos_id, eos_id):
    return collate_lists([s for s in sequences if s], pad_id, bos_id, eos_id)


def collate_two_ends(sequences, pad_id, bos_id, eos_id):
    return collate_lists([[*s, eos_id] for s in sequences], pad_id, bos_id, eos_id)


def collate_pads_after_bos(sequences, pad_id, bos_id, eos_id):
    longest = max(len(s) for s in sequences)
    return torch.tensor([[bos_id] + [pad_id] * (longest - len(s)) + s + [eos_id] for s in sequences])


# -- shift -----------------------------------------------------------------------------------------------------------


def shift_slices(tgt):
    return tgt[:, :-1], tgt[:, 1:]


def shift_copies(tgt):
    n = tgt.size(1)
    return [tgt.narrow(1, 0, n - 1).clone(), tgt.narrow(1, 1, n - 1).contiguous()]


def shift_loops(tgt):
    rows = tgt.tolist()
    return torch.tensor([r[:-1] for r in rows]), torch.tensor([r[1:] for r in rows])


class ShiftObject:
    def __call__(self, tgt, dim=-1):
        keep = torch.arange(tgt.shape[dim] - 1)
        return tgt.index_select(dim, keep), tgt.index_select(dim, keep + 1)


def shift_roll(tgt):
    return tgt[:, :-1], torch.roll(tgt, -1, dims=1)[:, :-1]


def shift_swapped(tgt):
    return tgt[:, 1:], tgt[:, :-1]


def shift_none(tgt):
    return tgt, tgt


def shift_same(tgt):
    return tgt[:, :-1], tgt[:, :-1]


def shift_double(tgt):
    return tgt[:, :-2], tgt[:, 2:]


def shift_batch(tgt):
    return tgt[:-1], tgt[1:]


def shift_full_input(tgt):
    return tgt, tgt[:, 1:]


def shift_rolled(tgt):
    return tgt, torch.roll(tgt, -1, dims=1)


def shift_extra_bos(tgt):
    bos = torch.full((tgt.size(0), 1), 1)
    return torch.cat([bos, tgt[:, :-1]], 1), tgt


def shift_padded(tgt):
    labels = torch.zeros_like(tgt)
    labels[:, :-1] = tgt[:, 1:]
    return tgt, labels


def shift_labels_only(tgt):
    return tgt[:, 1:]


def shift_drops_eos(tgt):
    inputs = tgt[:, :-1].clone()
    inputs[inputs == 2] = 0
    return inputs, tgt[:, 1:]


def shift_first_is_1(tgt):
    bos = torch.ones_like(tgt[:, :1])
    return torch.cat([bos, tgt[:, 1:-1]], 1), tgt[:, 1:]


def shift_cuts_padding(tgt):
    tgt = tgt[:, : int((tgt != 0).sum(1).max())]
    return tgt[:, :-1], tgt[:, 1:]


def shift_eos_not_learnt(tgt):
    labels = tgt[:, 1:].clone()
    labels[labels == 2] = 0
    return tgt[:, :-1], labels


def shift_in_place(tgt):
    labels = tgt[:, 1:].clone()
    tgt[tgt == 2] = 0
    return tgt[:, :-1], labels


# -- token batches ---------------------------------------------------------------------------------------------------


def batches_greedy(lengths, max_tokens, seed=None):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches, batch = [], []
    for i in order:
        if batch and (len(batch) + 1) * lengths[i] > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(i)
    if batch:
        batches.append(batch)
    if seed is not None:
        random.Random(seed).shuffle(batches)
    return batches


def batches_longest_first(lengths, max_tokens, seed=None):
    order = np.argsort(-np.asarray(lengths), kind="stable")
    batches, start = [], 0
    while start < len(order):
        size = max(1, max_tokens // lengths[order[start]])
        batches.append(order[start : start + size])
        start += size
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
    return batches


def batches_by_exact_length(lengths, max_tokens, seed=None):
    groups = {}
    for i, n in enumerate(lengths):
        groups.setdefault(n, []).append(i)
    batches = []
    for n in sorted(groups):
        size = max(1, max_tokens // n)
        batches += [tuple(groups[n][k : k + size]) for k in range(0, len(groups[n]), size)]
    if seed is not None:
        np.random.default_rng(seed).shuffle(batches := np.array(batches, dtype=object))
        batches = [list(b) for b in batches]
    return batches


class BatchesObject:
    def __call__(self, lengths, max_tokens, seed=None, tolerance=0.1):
        batches = []
        for n, i in sorted((n, i) for i, n in enumerate(lengths)):
            fits = batches and (len(batches[-1]) + 1) * n <= max_tokens
            if (
                fits
                and n * (len(batches[-1]) + 1) * (1 - tolerance) <= sum(lengths[k] for k in batches[-1]) + n
            ):
                batches[-1].append(i)
            else:
                batches.append([i])
        if seed is not None:
            random.seed(seed)
            random.shuffle(batches)
        return tuple(batches)


def _batches(
    order="length",
    over=None,
    last=True,
    long="alone",
    shuffle=True,
    of=lambda i, p, n: i,
    once=True,
    zero=True,
):
    """A right token_batches with one part exchanged."""
    over = over or (lambda batch, i, lengths, limit: (len(batch) + 1) * lengths[i] > limit)

    def token_batches(lengths, max_tokens, seed=None):
        seeded = seed is not None if zero else bool(seed)
        indices = list(range(len(lengths)))
        if order == "length":
            indices.sort(key=lambda i: lengths[i])
        elif order == "random":
            random.Random(7).shuffle(indices)
        if seeded and shuffle == "examples":
            random.Random(seed).shuffle(indices)
        batches, batch = [], []
        for place, i in enumerate(indices):
            if long == "dropped" and lengths[i] > max_tokens:
                continue
            if long == "error" and lengths[i] > max_tokens:
                raise ValueError("too long")
            if (batch or long == "empty before") and over(batch, i, lengths, max_tokens):
                batches.append(batch)
                batch = []
            batch.append(of(i, place, lengths[i]))
        if last:
            batches.append(batch)
        if seeded and shuffle is True:
            random.Random(seed).shuffle(batches)
        elif shuffle == "always":
            random.shuffle(batches)
        elif shuffle == "unseeded" and seeded:
            random.shuffle(batches)
        return batches

    return token_batches


def batches_fixed_size(lengths, max_tokens, seed=None):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches = [order[k : k + max_tokens] for k in range(0, len(order), max_tokens)]
    if seed is not None:
        random.Random(seed).shuffle(batches)
    return batches


def batches_alone(lengths, max_tokens, seed=None):
    batches = [[i] for i in range(len(lengths))]
    if seed is not None:
        random.Random(seed).shuffle(batches)
    return batches


def batches_sort_in_place(lengths, max_tokens, seed=None):
    lengths.sort()
    return batches_greedy(lengths, max_tokens, seed)


def batches_generator(lengths, max_tokens, seed=None):
    yield from batches_greedy(lengths, max_tokens, seed)


def batches_nothing(lengths, max_tokens, seed=None):
    batches_greedy(lengths, max_tokens, seed)


def batches_regrouped(lengths, max_tokens, seed=None):
    order = list(range(len(lengths)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    of_order = batches_greedy([lengths[i] for i in order], max_tokens, seed)
    return [[order[k] for k in batch] for batch in of_order]


def batches_of_pairs(lengths, max_tokens, seed=None):
    return [[(i, lengths[i]) for i in batch] for batch in batches_greedy(lengths, max_tokens, seed)]


def batches_shuffled_inside(lengths, max_tokens, seed=None):
    batches = batches_greedy(lengths, max_tokens)
    for batch in batches if seed is not None else ():
        random.Random(seed).shuffle(batch)
    return batches


def batches_turned_by_seed(lengths, max_tokens, seed=None):
    batches = batches_greedy(lengths, max_tokens)
    return batches if seed is None else batches[::-1]


def batches_one_seed(lengths, max_tokens, seed=None):
    return batches_greedy(lengths, max_tokens, None if seed is None else 1)


def batches_loop_forever(lengths, max_tokens, seed=None):
    order, batches = sorted(range(len(lengths)), key=lambda i: lengths[i]), []
    while order:
        batch = []
        while order and (len(batch) + 1) * lengths[order[0]] <= max_tokens:
            batch.append(order.pop(0))
        batches.append(batch)
    return batches


def _over(batch, i, lengths, limit):
    return (len(batch) + 1) * max(lengths[k] for k in [*batch, i]) > limit


_B = _batches

RIGHT = {
    "collate": [
        collate_lists,
        collate_filled,
        collate_library,
        collate_zip,
        CollateObject(),
        collate_sentinel,
        collate_cat,
    ],
    "shift_target": [shift_slices, shift_copies, shift_loops, ShiftObject(), shift_roll],
    "token_batches": [batches_greedy, batches_longest_first, batches_by_exact_length, BatchesObject()],
}
WRONG = {
    "collate": [
        (collate_no_eos, "no_eos"),
        (collate_no_bos, "no_bos"),
        (collate_neither, "no_bos+no_eos"),
        (collate_eos_last, "eos_after_padding"),
        (collate_left, "padded_left"),
        (collate_cuts_eos, "longest_without_eos"),
        (collate_pads_zero, "pad_id_ignored"),
        (collate_time_first, "length_first"),
        (collate_sorted, "sorted_by_length"),
        (collate_zip_shortest, "cut_to_shortest"),
        (collate_in_place, "changes_its_input"),
        (collate_float, "floats"),
        (collate_returns_lists, "returns_list"),
        (collate_swapped_marks, "starts_with_eos+ends_with_bos"),
        (collate_marks_once, "bos_left_out_where_there+eos_left_out_where_there"),
        (collate_eos_once, "eos_left_out_where_there"),
        (collate_bytes, "narrow_integers"),
        (collate_bytes_at_once, "large_ids_fail"),
        (collate_cuts_at_64, None),
        (collate_drops_empty, "drops_empty_sequences"),
        (collate_two_ends, "eos_twice"),
        (collate_pads_after_bos, "padded_after_bos"),
    ],
    "shift_target": [
        (shift_swapped, "exchanged"),
        (shift_none, "not_shifted"),
        (shift_same, "both_inputs"),
        (shift_double, "shifted_twice"),
        (shift_batch, "batch_shifted"),
        (shift_full_input, "input_not_cut"),
        (shift_rolled, "labels_rolled"),
        (shift_extra_bos, "bos_prepended"),
        (shift_padded, "labels_padded"),
        (shift_labels_only, "labels_only"),
        (shift_drops_eos, "eos_removed_from_input"),
        (shift_in_place, "changes_its_input"),
        (shift_first_is_1, "first_overwritten"),
        (shift_cuts_padding, "padding_cut"),
        (shift_eos_not_learnt, "eos_removed_from_labels"),
    ],
    "token_batches": [
        (_B(order="as given", over=_over), "lengths_not_grouped"),
        (_B(order="random", over=_over), "lengths_not_grouped"),
        (_B(order="as given"), "newest_counts"),
        (_B(over=lambda b, i, n, limit: sum(n[k] for k in b) + n[i] > limit), "padding_not_counted"),
        (_B(over=lambda b, i, n, limit: len(b) * n[i] > limit), "one_example_too_many"),
        (_B(over=lambda b, i, n, limit: bool(b) and (len(b) + 1) * n[b[0]] > limit), "first_counts"),
        (_B(last=False), "drops_last_batch"),
        (_B(long="dropped"), "drops_long_examples"),
        (_B(long="error"), "crashes_for_long_examples"),
        (_B(long="empty before"), "empty_batch"),
        (_B(shuffle=False), "seed_does_not_shuffle"),
        (_B(shuffle="always"), "random_without_seed"),
        (_B(shuffle="unseeded"), "not_reproducible"),
        (_B(shuffle="examples", over=_over), "seed_shuffles_examples"),
        (_B(zero=False), "seed_0_ignored"),
        (_B(of=lambda i, place, n: n), "returns_lengths"),
        (_B(of=lambda i, place, n: place), "indices_of_sorted_list"),
        (batches_fixed_size, "counts_examples"),
        (batches_alone, "one_example_each"),
        (batches_sort_in_place, "changes_its_input"),
        (batches_generator, "returns_generator"),
        (batches_nothing, "returns_nothing"),
        (batches_one_seed, "seed_fixed"),
        (batches_regrouped, "seed_regroups"),
        (batches_shuffled_inside, "seed_does_not_shuffle"),
        (batches_turned_by_seed, "seed_does_not_shuffle"),
        (batches_of_pairs, "no_numbers_in_batches"),
        (batches_loop_forever, "does_not_end"),
    ],
}
