"""Exercises of 13_decoding."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.toys import ListedProbabilities, RandomLogits, ToyModel
from txcourse.exercises.training import number
from txcourse.solutions import decoding as solutions

# -- greedy decoding -------------------------------------------------------------------------------------------------

_GREEDY = (
    Mistake("continues_after_eos", "end", "A row goes on after its eos; from there on it should hold pad."),
    Mistake("eos_never_noticed", "end", "eos is never noticed: every row runs on to max_len."),
    Mistake("stops_at_first_eos", "end", "Decoding stops for all rows when the first of them has ended; it goes on until every row has."),
    Mistake("first_row_decides", "end", "Decoding stops when the first row has ended; it goes on until every row has."),
    Mistake("stops_only_together", "end", "Rows count as ended only when all of them produce eos in the same step; remember which have ended."),
    Mistake("eos_replaced_by_pad", "end", "The eos itself is replaced by pad; it belongs to the result."),
    Mistake("repeats_eos", "end", "After its eos a row is filled with eos; it should hold pad."),
    Mistake("pads_one_late", "end", "One token too many follows an eos before the pads begin."),
    Mistake("padded_by_last_token", "end", "A row is padded only in the step after its eos; remember that it has ended."),
    Mistake("ended_forgotten", "end", "Only rows whose newest token is eos count as ended, so a row is padded once and then goes on; remember which have ended."),
    Mistake("pad_ends_row", "end", "A row that writes pad counts as ended; only eos ends a row."),
    Mistake("pad_id_ignored", "pad", "Ended rows are filled with 0 whatever `pad_id` is."),
    Mistake("default_pad_id", "pad", "Without `pad_id` ended rows should be filled with 0."),
    Mistake("pads_with_bos", "pad", "Ended rows are filled with bos; fill them with pad."),
    Mistake("bos_dropped", "start", "bos is missing at the start of the result."),
    Mistake("bos_id_ignored", "start", "Decoding starts with id 1 whatever `bos_id` is."),
    Mistake("starts_with_pad", "start", "Decoding starts from pad; it starts from bos."),
    Mistake("starts_with_zero", "start", "Decoding starts from id 0; it starts from bos."),
    Mistake("starts_with_eos", "start", "Decoding starts from eos; it starts from bos."),
    Mistake("starts_with_source", "start", "Decoding starts from the source's first token; it starts from bos."),
    Mistake("bos_twice", "start", "bos stands twice at the start."),
    Mistake("eos_id_ignored", "eos", "The end is id 2 whatever `eos_id` is."),
    Mistake("max_len_without_bos", "length", "max_len counts bos; your rows get max_len tokens after it, one too many (the other convention)."),
    Mistake("one_too_short", "length", "The longest rows have max_len − 1 tokens; max_len, bos counted, is allowed."),
    Mistake("eos_forced_at_end", "length", "Rows that have not ended get eos as their last token; they stay without."),
    Mistake("eos_appended_at_end", "length", "Rows that have not ended get an eos appended; they stay without."),
    Mistake("length_of_source", "length", "The result is as long as the source; it may have max_len tokens."),
    Mistake("first_position", "token", "The next token is always predicted from bos alone: the logits of the first position are read (or the model is given only bos). Read those of the last position."),
    Mistake("position_before_last", "token", "The next token is read from the logits of the position before the last; read it from the last."),
    Mistake("least_likely", "token", "The least likely token is taken; take the most likely."),
    Mistake("second_best", "token", "The second most likely token is taken; take the most likely."),
    Mistake("one_token_for_all_rows", "token", "All rows get the tokens of the first row; each has its own source and its own most likely token."),
    Mistake("argmax_over_batch", "token", "The maximum is taken over the batch; it is taken over the vocabulary."),
    Mistake("softmax_over_batch", "token", "The softmax goes over the batch, so that rows influence each other; no softmax is needed."),
    Mistake("bos_and_pad_forbidden", "token", "bos and pad are excluded from the choice; take the most likely token of all."),
    Mistake("bos_forbidden", "token", "bos is excluded from the choice; take the most likely token of all."),
    Mistake("pad_forbidden", "token", "pad is excluded from the choice; take the most likely token of all."),
    Mistake("last_token_only", "input", "The model is given only the last token; it needs the whole prefix."),
    Mistake("without_bos", "input", "The model is given the prefix without bos once there are other tokens."),
    Mistake("mode_not_restored", "mode", "Afterwards the model is left in evaluation mode; it should be in the mode it was in."),
    Mistake("training_mode_afterwards", "mode", "Afterwards the model is always in training mode; it should be in the mode it was in."),
    Mistake("no_evaluation_mode", "mode", "The model is not in evaluation mode while decoding, so dropout stays on; set it, and restore its mode afterwards."),
    Mistake("gradient_recorded", "gradient", "Gradients are recorded while decoding, which costs memory for nothing: use torch.no_grad()."),
    Mistake("returns_list", "returns", "A list is returned; return a tensor (B, length)."),
    Mistake("returns_first_row", "returns", "Only the first row is returned; return all, (B, length)."),
    Mistake("returns_pair", "returns", "Two things are returned; return the ids alone."),
    Mistake("returns_transposed", "returns", "The result is (length, B); it should be (B, length)."),
)  # fmt: skip


def _greedy_variant(on: frozenset[str]) -> Callable[..., Any]:
    def greedy_decode(
        model: nn.Module, src: Tensor, max_len: int, bos_id: int, eos_id: int, pad_id: int | None = None
    ) -> Any:
        pad_id = (3 if "default_pad_id" in on else 0) if pad_id is None or "pad_id_ignored" in on else pad_id
        starts = {
            "bos_id_ignored": 1,
            "starts_with_pad": pad_id,
            "starts_with_eos": eos_id,
            "starts_with_zero": 0,
        }
        first = next((v for name, v in starts.items() if name in on), bos_id)
        eos_id = 2 if "eos_id_ignored" in on else eos_id
        fill = eos_id if "repeats_eos" in on else bos_id if "pads_with_bos" in on else pad_id
        max_len += 1 if "max_len_without_bos" in on else -1 if "one_too_short" in on else 0
        max_len = src.shape[1] if "length_of_source" in on else max_len
        was_training = model.training
        if "no_evaluation_mode" not in on:
            model.eval()
        tgt = src[:, :1].clone() if "starts_with_source" in on else torch.full((len(src), 1), first)
        if "bos_twice" in on:
            tgt = torch.cat([tgt, tgt], 1)
        ended = torch.zeros(len(src), dtype=torch.bool)
        with torch.set_grad_enabled("gradient_recorded" in on):
            while tgt.shape[1] < max_len:
                token, ended, stop = _next(model, src, tgt, ended, fill, bos_id, eos_id, pad_id)
                tgt = torch.cat([tgt, token[:, None]], 1)
                if stop:
                    break
        if "no_evaluation_mode" not in on and "mode_not_restored" not in on:
            model.train(True if "training_mode_afterwards" in on else was_training)
        if "eos_forced_at_end" in on and tgt.shape[1] == max_len:
            tgt[~ended, -1] = eos_id
        elif "eos_appended_at_end" in on and not ended.all():
            tgt = torch.cat([tgt, torch.full((len(src), 1), fill).masked_fill(~ended[:, None], eos_id)], 1)
        tgt = tgt[:, 1:] if "bos_dropped" in on else tgt
        results: dict[str, Any] = {
            "returns_list": tgt.tolist(),
            "returns_first_row": tgt[0],
            "returns_pair": (tgt, ended),
            "returns_transposed": tgt.T,
        }
        return next((v for name, v in results.items() if name in on), tgt)

    def _next(
        model: nn.Module,
        src: Tensor,
        tgt: Tensor,
        ended: Tensor,
        fill: int,
        bos_id: int,
        eos_id: int,
        pad_id: int,
    ) -> tuple[Tensor, Tensor, bool]:
        given = tgt[:, -1:] if "last_token_only" in on else tgt
        if "without_bos" in on and tgt.shape[1] > 1:
            given = tgt[:, 1:]
        logits = model(src, given)
        place = (
            0 if "first_position" in on else -2 if "position_before_last" in on and given.shape[1] > 1 else -1
        )
        logits = logits[:, place]  # (B, V)
        if "softmax_over_batch" in on:
            logits = logits.softmax(0)
        bans = {
            "bos_and_pad_forbidden": [bos_id, pad_id],
            "bos_forbidden": [bos_id],
            "pad_forbidden": [pad_id],
        }
        forbidden = next((ids for name, ids in bans.items() if name in on), [])
        logits = logits.index_fill(1, torch.tensor(forbidden, dtype=torch.long), -math.inf)
        if "least_likely" in on:
            token = logits.argmin(-1)
        elif "second_best" in on:
            token = logits.topk(2).indices[:, 1]
        elif "one_token_for_all_rows" in on:
            token = logits.argmax(-1)[:1].expand(len(src))
        elif "argmax_over_batch" in on:
            token = logits.argmax(0)[: len(src)]
        else:
            token = logits.argmax(-1)
        is_eos = token == eos_id
        if "eos_never_noticed" in on:
            return token, ended, False
        if "continues_after_eos" in on:
            ended = ended | is_eos
            return token, ended, bool(ended.all())
        if "stops_only_together" in on:
            return token, is_eos, bool(is_eos.all())
        if "padded_by_last_token" in on:
            token = token.masked_fill(tgt[:, -1] == eos_id, fill)
            return token, token == eos_id, bool(((token == eos_id) | (token == fill)).all())
        if "ended_forgotten" in on:
            token = token.masked_fill(ended, fill)
            return token, token == eos_id, bool((token == eos_id).all())
        if "pads_one_late" in on:
            before = (tgt[:, :-1] == eos_id).any(1)
            token = token.masked_fill(before, fill)
            return token, before, bool(before.all())
        token = token.masked_fill(ended, fill)
        ended = ended | (token == eos_id)
        if "pad_ends_row" in on:
            ended = ended | (token == pad_id)
        if "eos_replaced_by_pad" in on:
            token = token.masked_fill(ended, fill)
        if "stops_at_first_eos" in on:
            return token, ended, bool(ended.any())
        return token, ended, bool(ended[0] if "first_row_decides" in on else ended.all())

    return greedy_decode


def run_greedy(
    greedy_decode: Callable[..., Any], rows: Tensor, training: bool, src: Tensor, *settings: int
) -> tuple[Any, list[bool], bool, bool, bool]:
    """What is returned; training mode afterwards, of the model and of its part; training mode in any call; gradient
    recorded in any call, and afterwards."""
    model = RandomLogits(rows).train(training)
    with torch.enable_grad():
        result = greedy_decode(model, src, *settings)
        afterwards = torch.is_grad_enabled()
    result = result.clone() if isinstance(result, Tensor) else result
    modes, gradients = [t for t, _, _ in model.calls], [g for _, g, _ in model.calls]
    return result, [m.training for m in model.modules()], any(modes), any(gradients), afterwards


def _greedy_through(greedy_decode: Any) -> Callable[..., Any]:
    return partial(run_greedy, greedy_decode)


def _greedy_recognised(greedy_decode: Any) -> Callable[..., Any]:
    """The ids alone: mode and gradient have tests of their own, which prove what is wrong with them."""

    def recognised(rows: Tensor, training: bool, src: Tensor, *settings: int) -> Any:
        ids = run_greedy(greedy_decode, rows, training, src, *settings)[0]
        return _trimmed(ids, settings[3] if len(settings) > 3 else 0)

    return recognised


def _trimmed(ids: Any, pad_id: int) -> Any:
    """`ids` without columns of nothing but pad at the end: whether they are there is a matter of taste."""
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return ids
    kept = (ids != pad_id).any(0).nonzero()
    return ids[:, : int(kept[-1]) + 1] if len(kept) else ids[:, :1]


@cache
def _greedy_case(
    seed: int, v: int, max_len: int, bos_id: int, eos_id: int, pad_id: int, all_end: bool
) -> tuple[Tensor, Tensor]:
    """Rows of logits and four sources; the first row to end is not the first one, one row ends first of all and one late.

    With `all_end` all end before max_len, else one does not.
    """
    for n in range(10_000):
        g = torch.Generator().manual_seed(10_000 * seed + n)
        rows = 2.0 * torch.randn(61, v, generator=g)
        rows[:, eos_id] += 1.2
        for token in {bos_id, pad_id, 0, 1, 2, 3} - {eos_id}:
            rows[:, token] -= 40.0
        src = torch.randint(4, 4 + v, (4, 3), generator=g)
        ids = solutions.greedy_decode(RandomLogits(rows), src, max_len + 1, bos_id, eos_id, pad_id)
        ends = [row.index(eos_id) if eos_id in row else max_len + 1 for row in ids.tolist()]
        late = sorted(ends)[-1]
        if ends[0] == min(ends) or len(set(ends)) < 4 or min(ends) + 3 > sorted(ends)[-2]:
            continue
        if late < max_len - 1 if all_end else late > max_len:
            return rows, src
    raise AssertionError("no case found")


def _greedy_settings(seed: int) -> list[tuple[Any, ...]]:
    """(rows, training, src, max_len, bos, eos, pad) of several kinds."""
    cases: list[tuple[int, int, tuple[int, ...], bool, bool]] = [
        (12, 8, (1, 2), False, True),
        (13, 7, (5, 9, 7), False, False),
        (12, 10, (6, 4, 0), True, True),
    ]
    found = []
    for i, (v, max_len, ids, all_end, training) in enumerate(cases):
        rows, src = _greedy_case(
            4 * seed + i, v, max_len, ids[0], ids[1], ids[2] if len(ids) > 2 else 0, all_end
        )
        found.append((rows, training, src, max_len, *ids))
    return found


def _greedy_probes(seed: int) -> list[Probe]:
    usual, other, ending = _greedy_settings(seed)
    frequent = usual[0].clone()
    frequent[:, [3, 1]] += 44.0  # bos or unk is more likely than most
    padding = usual[0].clone()
    padding[:, 0] += 44.0  # pad is more likely than most
    single = (ending[0], True, ending[2][2:3], *ending[3:])
    free = [(rows, True, *usual[2:]) for rows in (frequent, padding)]
    return [Probe(args) for args in (single, usual, other, ending, *free)]


def _greedy(c: Context, what: str, *args: Any) -> None:
    got, want = (
        c.subject.through(_greedy_through).call(*args)[0],
        run_greedy(solutions.greedy_decode, *args)[0],
    )
    pad_id = args[6] if len(args) > 6 else 0
    if isinstance(got, Tensor) and got.is_floating_point():
        raise Wrong(f"The ids should be integers; yours are of type {got.dtype}.", "returns_floats")
    if isinstance(got, Tensor) and got.ndim == 2 and got.shape[1] <= args[3]:
        got = _trimmed(got, pad_id)
    c.expect(got, _trimmed(want, pad_id), f"the ids{what}", axes="batch position")


def _greedy_one(c: Context) -> None:
    rows, training, src, max_len, bos_id, eos_id = _greedy_settings(c.seed)[0]
    for i in range(4):
        _greedy(
            c,
            f" of a single source (max_len {max_len})",
            rows,
            training,
            src[i : i + 1],
            max_len,
            bos_id,
            eos_id,
        )


def _greedy_batch(c: Context) -> None:
    for args in _greedy_settings(c.seed)[::2]:
        _greedy(c, f" of four sources (max_len {args[3]}, bos {args[4]}, eos {args[5]})", *args)


def _greedy_ids(c: Context) -> None:
    args = _greedy_settings(c.seed)[1]
    _greedy(c, f" for bos {args[4]}, eos {args[5]}, pad {args[6]}", *args)


def _greedy_short(c: Context) -> None:
    rows, training, src, _, bos_id, eos_id = _greedy_settings(c.seed)[0]
    for max_len in (1, 2, 3):
        _greedy(c, f" for max_len = {max_len}", rows, training, src, max_len, bos_id, eos_id)


def _greedy_any_token(c: Context) -> None:
    for probe in _greedy_probes(c.seed)[4:]:
        _greedy(c, "", *probe.args)


def _greedy_twice(c: Context) -> None:
    args = _greedy_settings(c.seed)[0]
    first, second = (c.subject.through(_greedy_through).call(*args)[0] for _ in range(2))
    if isinstance(first, Tensor) and isinstance(second, Tensor) and not torch.equal(first, second):
        raise Wrong(
            "The same call gives different ids: the next token is drawn at random. Take the most likely one.",
            "samples",
        )


def _greedy_mode(c: Context) -> None:
    args = _greedy_settings(c.seed)[0]
    for training in (True, False):
        _, after, during, *_ = c.subject.through(_greedy_through).call(args[0], training, *args[2:])
        if during:
            raise Wrong(
                "The model, or a part of it, is in training mode while decoding, so dropout stays on: use model.eval().",
                "no_evaluation_mode",
            )
        was, is_now = ("training", "evaluation") if training else ("evaluation", "training")
        if after[0] == training and training not in after[1:]:
            raise Wrong(
                f"The model is in {was} mode afterwards, its parts are still in {is_now} mode: model.train(…) sets all, "
                "model.training only one.",
                "parts_not_restored",
            )
        if after[0] != training:
            raise Wrong(
                f"The model was in {was} mode before and is in {is_now} mode afterwards; restore its mode.",
                "mode_not_restored" if training else "training_mode_afterwards",
            )


def _greedy_gradient(c: Context) -> None:
    *_, during, afterwards = c.subject.through(_greedy_through).call(*_greedy_settings(c.seed)[0])
    if during:
        raise Wrong(
            "Gradients are recorded while decoding, which costs memory for nothing: use torch.no_grad().",
            "gradient_recorded",
        )
    if not afterwards:
        raise Wrong(_GRADIENT_OFF, "gradient_left_off")


_GRADIENT_OFF = "Gradients stay switched off after your function, for all code that follows: use torch.no_grad(), which switches them on again."  # fmt: skip


# -- beam search -----------------------------------------------------------------------------------------------------

_BEAM = (
    Mistake("finished_free_slots", "finish", "The other convention: finished prefixes make room for worse ones, so that always beam_size prefixes live on. Here those that end in eos free no slot in that step."),
    Mistake("beam_shrinks", "finish", "The other convention: each finished prefix makes the beam smaller for all later steps. Here the best beam_size extensions are kept in every step."),
    Mistake("finished_stay", "finish", "Finished prefixes stay in the beam and keep taking up slots; they leave it for the pool."),
    Mistake("finished_stay_by_score", "finish", "Finished prefixes stay in the beam, compared by their score; they leave it for the pool."),
    Mistake("eos_never_noticed", "finish", "eos is not noticed: prefixes that end in it are extended further, up to max_len."),
    Mistake("extends_finished", "finish", "Prefixes that end in eos join the pool but are extended further too; they should leave the beam."),
    Mistake("stops_on_best_eos", "stop", "The search ends when the best extension ends in eos; with a length penalty a longer one can still win. It ends when no prefix lives or max_len is reached."),
    Mistake("stops_at_first_finished", "stop", "The first prefix to finish is returned; the search goes on until no prefix lives or max_len is reached, and the best score wins."),
    Mistake("first_finished_or_best", "stop", "The search ends as soon as one prefix has finished, and unfinished ones still compete; it ends when no prefix lives or max_len is reached."),
    Mistake("stops_with_full_pool", "stop", "The other convention: the search ends when beam_size prefixes have finished. Here it ends when no prefix lives or max_len is reached."),
    Mistake("stops_when_pool_leads", "stop", "The search ends when the best finished score is above that of the best living prefix; with a length penalty that one can still win."),
    Mistake("stops_when_sum_leads", "stop", "The search ends when the best finished sum is above that of the best living prefix; with a length penalty that one can still win."),
    Mistake("unfinished_dropped", "unfinished", "Prefixes that have not ended at max_len are dropped; they join the pool."),
    Mistake("unfinished_only_if_needed", "unfinished", "The other convention: prefixes that have not ended at max_len count only when none has finished. Here they join the pool."),
    Mistake("unfinished_preferred", "unfinished", "Prefixes that have not ended are preferred to finished ones; all compete in the pool."),
    Mistake("unfinished_without_penalty", "unfinished", "The sums of unfinished prefixes are not divided by length ** length_penalty; they are, as all others."),
    Mistake("eos_appended", "unfinished", "Prefixes that have not ended at max_len get eos as a last token; they stay without."),
    Mistake("length_counts_bos", "length", "The other convention: bos is counted in the length. Here the generated tokens are counted, eos too, bos not."),
    Mistake("length_without_eos", "length", "The other convention: eos is not counted in the length. Here the generated tokens are counted, eos too, bos not."),
    Mistake("length_of_unfinished_counts_bos", "length", "bos is counted in the length of unfinished prefixes only; it is never counted."),
    Mistake("length_common", "length", "All sums are divided by the same length, that of the last step, so that length_penalty changes nothing; each is divided by its own."),
    Mistake("length_max_len", "length", "The sums are divided by max_len; each is divided by its own length."),
    Mistake("penalty_ignored", "penalty", "`length_penalty` has no effect: the score is the sum itself."),
    Mistake("penalty_fixed", "penalty", "The score is the mean log-probability whatever `length_penalty` is; divide by length ** length_penalty."),
    Mistake("penalty_multiplied", "penalty", "The sum is multiplied by length ** length_penalty; it is divided by it."),
    Mistake("penalty_without_power", "penalty", "The sum is divided by length * length_penalty; divide by length ** length_penalty."),
    Mistake("penalty_of_gnmt", "penalty", "The other convention: ((5 + length) / 6) ** length_penalty. Here the sum is divided by length ** length_penalty."),
    Mistake("penalty_added", "penalty", "length_penalty is added for each token; here the sum is divided by length ** length_penalty."),
    Mistake("penalty_subtracted", "penalty", "length_penalty is subtracted for each token; here the sum is divided by length ** length_penalty."),
    Mistake("penalty_accumulates", "penalty", "The sum is divided in every step, and the next log-probability is added to the result; add log-probabilities up first, divide at the end."),
    Mistake("logits_summed", "probability", "The logits themselves are added up; take log_softmax first."),
    Mistake("probabilities_summed", "probability", "Probabilities are added up; add their logarithms."),
    Mistake("probabilities_multiplied", "probability", "The score is a product of probabilities; it is the sum of their logarithms."),
    Mistake("eos_score_missing", "probability", "The log-probability of eos is missing in the sum."),
    Mistake("first_score_missing", "probability", "The log-probability of the first token is missing in the sum."),
    Mistake("last_score_only", "probability", "Only the log-probability of the last token counts; add them up over the prefix."),
    Mistake("base_two", "probability", "Logarithms to base 2 are used; the natural one is meant."),
    Mistake("softmax_over_beam", "probability", "The softmax goes over the prefixes of the beam; it goes over the vocabulary."),
    Mistake("greedy", "width", "This is greedy decoding whatever beam_size is: one prefix lives, or all that live are the same (beam_size copies of bos at the start), or each is extended by its best token alone."),
    Mistake("best_of_each_prefix", "width", "The first step chooses beam_size tokens and afterwards each prefix keeps its own best extension; the best beam_size of all extensions are kept."),
    Mistake("one_too_few", "width", "beam_size − 1 prefixes are kept; keep beam_size."),
    Mistake("one_too_many", "width", "beam_size + 1 prefixes are kept; keep beam_size."),
    Mistake("no_pruning", "width", "All prefixes are kept; keep the best beam_size."),
    Mistake("keeps_worst", "width", "The worst extensions are kept; keep the best."),
    Mistake("bos_not_extended_by", "width", "Some tokens are never used for an extension; each prefix is extended by every token."),
    Mistake("chosen_by_sum", "choice", "The result is the one with the largest sum; it should be the one with the largest score."),
    Mistake("last_finished_wins", "choice", "The prefix that finished last is returned; the best score wins."),
    Mistake("worst_wins", "choice", "The smallest score wins; it should be the largest."),
    Mistake("longest_wins", "choice", "The longest prefix is returned; the best score wins."),
    Mistake("max_len_without_bos", "max_len", "max_len counts bos; yours allows max_len tokens after it, one too many (the other convention)."),
    Mistake("one_too_short", "max_len", "The search ends one token before max_len."),
    Mistake("parents_mixed", "prefix", "Extensions are attached to the wrong prefixes: token and prefix come from different places."),
    Mistake("last_token_only", "prefix", "The model is given only the last token; it needs the whole prefix."),
    Mistake("first_position", "prefix", "The next token is read from the logits of the first position; it is the last position that predicts it."),
    Mistake("bos_id_ignored", "prefix", "The search starts with id 1 whatever `bos_id` is."),
    Mistake("eos_id_ignored", "eos", "The end is id 2 whatever `eos_id` is."),
    Mistake("returns_sum", "returns", "The sum of log-probabilities is returned as the score; return the score, sum / length ** length_penalty."),
    Mistake("returns_negative", "returns", "The score has the wrong sign."),
    Mistake("returns_probability", "returns", "exp of the score is returned; return the score itself."),
    Mistake("returns_without_bos", "returns", "bos is missing at the start of the ids."),
    Mistake("returns_without_eos", "returns", "eos is missing at the end of the ids."),
    Mistake("returns_tensor", "returns", "The ids are a tensor; return a list."),
    Mistake("returns_nested", "returns", "The ids are a list in a list; return a plain list."),
    Mistake("returns_swapped", "returns", "The results are exchanged: first the ids, then the score."),
    Mistake("returns_ids_only", "returns", "Only the ids are returned; return (ids, score)."),
    Mistake("penalty_whole", "penalty", "length_penalty is rounded down to a whole number; use it as it is."),
    Mistake("returns_all", "returns", "All of the pool is returned; return the best (ids, score)."),
)  # fmt: skip

_Scored = tuple[list[int], float]


def _beam_variant(on: frozenset[str]) -> Callable[..., Any]:
    def penalised(total: float, ids: list[int], eos_id: int, steps: int, max_len: int, alpha: float) -> float:
        n = len(ids) - 1
        if "length_counts_bos" in on:
            n += 1
        elif "length_without_eos" in on:
            n -= ids[-1] == eos_id
        elif "length_of_unfinished_counts_bos" in on:
            n += ids[-1] != eos_id
        elif "length_common" in on:
            n = steps
        elif "length_max_len" in on:
            n = max_len
        n = max(n, 1)
        if {"penalty_ignored", "penalty_accumulates"} & on:
            return total
        rules: dict[str, Callable[[], float]] = {
            "penalty_fixed": lambda: total / n,
            "penalty_multiplied": lambda: total * n**alpha,
            "penalty_without_power": lambda: total / (n * alpha) if alpha else total,
            "penalty_of_gnmt": lambda: total / ((5 + n) / 6) ** alpha,
            "penalty_added": lambda: total + alpha * n,
            "penalty_subtracted": lambda: total - alpha * n,
            "penalty_whole": lambda: total / n ** int(alpha),
        }
        return next((f() for name, f in rules.items() if name in on), total / n**alpha)

    def step_scores(logits: Tensor) -> Tensor:
        if "logits_summed" in on:
            return logits
        if "probabilities_summed" in on:
            return logits.softmax(-1)
        log_p = logits.log_softmax(0 if "softmax_over_beam" in on else -1)
        return log_p / math.log(2) if "base_two" in on else log_p

    @torch.no_grad()
    def beam_search(
        model: nn.Module,
        src: Tensor,
        max_len: int,
        bos_id: int,
        eos_id: int,
        beam_size: int,
        length_penalty: float,
    ) -> Any:
        bos_id, eos_id = 1 if "bos_id_ignored" in on else bos_id, 2 if "eos_id_ignored" in on else eos_id
        max_len += 1 if "max_len_without_bos" in on else -1 if "one_too_short" in on else 0
        width = 1 if "greedy" in on else beam_size + ("one_too_many" in on) - ("one_too_few" in on)
        live: list[_Scored] = [([bos_id], 0.0)]
        pool: list[_Scored] = []
        steps, stopped = 0, False

        def score(entry: _Scored) -> float:
            return penalised(entry[1], entry[0], eos_id, steps, max_len, length_penalty)

        while live and len(live[0][0]) < max_len and not stopped:
            if "finished_stay" in on or "finished_stay_by_score" in on:
                live = [e for e in live if e[0][-1] != eos_id or len(e[0]) == 1]
                if not live:
                    break
            steps += 1
            prefixes = [ids[-1:] if "last_token_only" in on else ids for ids, _ in live]
            logits = model(src.expand(len(live), -1), torch.tensor(prefixes))
            scores = step_scores(logits[:, 0 if "first_position" in on else -1]).double().tolist()
            extensions: list[_Scored] = []
            for i, (ids, total) in enumerate(live):
                tokens: Iterable[int] = range(len(scores[i]))
                if "best_of_each_prefix" in on and steps > 1:
                    tokens = [int(np.argmax(scores[i]))]
                for token in tokens:
                    if "bos_not_extended_by" in on and token == bos_id:
                        continue
                    value = scores[i][token]
                    missing = ("eos_score_missing" in on and token == eos_id) or (
                        "first_score_missing" in on and steps == 1
                    )
                    if missing:
                        value = 0.0
                    new = value if "last_score_only" in on else total + value
                    if "penalty_accumulates" in on:
                        new = new / (len(ids)) ** length_penalty
                    extensions.append(([*ids, token], new))
            if {"finished_stay", "finished_stay_by_score"} & on:
                extensions += pool
                pool = []
            extensions.sort(
                key=score if "finished_stay_by_score" in on else lambda e: e[1],
                reverse="keeps_worst" not in on,
            )
            if "parents_mixed" in on:
                order = [e[0][-1] for e in extensions]
                parents = [ids for ids, _ in live]
                extensions = [
                    ([*parents[i % len(parents)], t], e[1])
                    for i, (t, e) in enumerate(zip(order, extensions, strict=True))
                ]
            kept = (
                len(extensions) if "no_pruning" in on else width - (len(pool) if "beam_shrinks" in on else 0)
            )
            live, finished = [], []
            if "finished_free_slots" in on:
                for entry in extensions:
                    (finished if entry[0][-1] == eos_id else live).append(entry)
                    if len(live) == width:
                        break
            else:
                for entry in extensions[: max(kept, 0)]:
                    is_end = entry[0][-1] == eos_id and "eos_never_noticed" not in on
                    if is_end:
                        finished.append(entry)
                    if not is_end or "extends_finished" in on:
                        live.append(entry)
            pool += finished
            if "stops_on_best_eos" in on and extensions and extensions[0][0][-1] == eos_id:
                pool, live, stopped = [extensions[0]], [], True
            elif "stops_at_first_finished" in on and pool:
                live, stopped = [], True
            elif "first_finished_or_best" in on and pool:
                stopped = True
            elif "stops_with_full_pool" in on and len(pool) >= width:
                live, stopped = [], True
            elif (
                "stops_when_pool_leads" in on
                and pool
                and live
                and max(map(score, pool)) >= max(map(score, live))
            ):
                live, stopped = [], True
            elif "stops_when_sum_leads" in on and pool and live and max(e[1] for e in pool) >= live[0][1]:
                live, stopped = [], True
            if {"finished_stay", "finished_stay_by_score"} & on and not live:
                break
            if "beam_shrinks" in on and len(pool) >= width:
                live = []
        if {"finished_stay", "finished_stay_by_score"} & on:
            live = [e for e in live if e[0][-1] != eos_id]
        if "unfinished_dropped" in on or ("unfinished_only_if_needed" in on and pool):
            live = []
        elif "unfinished_preferred" in on and live:
            pool = []
        if "eos_appended" in on:
            live = [([*ids, eos_id], total) for ids, total in live]
        scored = [(entry, score(entry)) for entry in pool]
        scored += [(e, e[1] if "unfinished_without_penalty" in on else score(e)) for e in live]
        if "probabilities_multiplied" in on:
            scored = [(e, math.exp(e[1]) / max(len(e[0]) - 1, 1) ** length_penalty) for e, _ in scored]
        keys: dict[str, Callable[[Any], Any]] = {
            "chosen_by_sum": lambda s: s[0][1],
            "last_finished_wins": lambda s: scored.index(s),
            "worst_wins": lambda s: -s[1],
            "longest_wins": lambda s: len(s[0][0]),
        }
        key = next((f for name, f in keys.items() if name in on), lambda s: s[1])
        if "returns_all" in on:
            return [(ids, value) for (ids, _), value in scored]
        (ids, total), value = max(scored, key=key)
        results: dict[str, Any] = {
            "returns_sum": (ids, total),
            "returns_negative": (ids, -value),
            "returns_probability": (ids, math.exp(value) if value < 50 else math.inf),
            "returns_without_bos": (ids[1:], value),
            "returns_without_eos": (ids[:-1] if ids[-1] == eos_id else ids, value),
            "returns_tensor": (torch.tensor(ids), value),
            "returns_nested": ([ids], value),
            "returns_swapped": (value, ids),
            "returns_ids_only": ids,
        }
        return next((r for name, r in results.items() if name in on), (ids, value))

    return beam_search


@cache
def _beam_case(
    seed: int,
    v: int,
    max_len: int,
    bos_id: int,
    eos_id: int,
    beam_size: int,
    penalty: float,
    flat: bool = False,
) -> tuple[Tensor, Tensor]:
    """Rows of logits and a source for which no choice of the search is a close one.

    With `flat` all tokens are about equally probable, and nothing ends.
    """
    for n in range(10_000):
        g = torch.Generator().manual_seed(10_000 * seed + n)
        rows = (0.3 if flat else 1.5) * torch.randn(61, v, generator=g)
        src = torch.randint(4, 12, (1, 3), generator=g)
        if flat:
            rows[:, eos_id] -= 20.0
        gap, ends = _smallest_gap(RandomLogits(rows), src, max_len, bos_id, eos_id, beam_size, penalty)
        if gap > 1e-3 and ends != flat:
            return rows, src
    raise AssertionError("no case found")


@torch.no_grad()
def _smallest_gap(
    model: nn.Module, src: Tensor, max_len: int, bos_id: int, eos_id: int, beam_size: int, penalty: float
) -> tuple[float, bool]:
    """The smallest difference by which a beam search decides: of the sums at the edge of the beam, and of the best scores;
    and whether any prefix finishes."""
    live, pool, gap = [([bos_id], 0.0)], [], math.inf
    while live and len(live[0][0]) < max_len:
        logits = model(src.expand(len(live), -1), torch.tensor([ids for ids, _ in live]))[:, -1]
        log_p = logits.double().log_softmax(-1).tolist()
        extensions = [
            ([*ids, t], total + p)
            for (ids, total), row in zip(live, log_p, strict=True)
            for t, p in enumerate(row)
        ]
        extensions.sort(key=lambda e: -e[1])
        if len(extensions) > beam_size:
            gap = min(gap, extensions[beam_size - 1][1] - extensions[beam_size][1])
        live = [e for e in extensions[:beam_size] if e[0][-1] != eos_id]
        pool += [e for e in extensions[:beam_size] if e[0][-1] == eos_id]
    scores = sorted((total / (len(ids) - 1) ** penalty for ids, total in pool + live), reverse=True)
    return (min(gap, scores[0] - scores[1]) if len(scores) > 1 else gap), bool(pool)


def run_beam(beam_search: Callable[..., Any], table: Any, src: Tensor, *settings: Any) -> Any:
    """What is returned; `table` is a tensor of logits for RandomLogits, or the two arguments of ListedProbabilities."""
    model: ToyModel = RandomLogits(table) if isinstance(table, Tensor) else ListedProbabilities(*table)
    result = beam_search(model.eval(), src, *settings)
    if isinstance(result, tuple | list) and len(result) == 2:
        return result[0], number(result[1])
    return result


def _beam_through(beam_search: Any) -> Callable[..., Any]:
    return partial(run_beam, beam_search)


def _beam_leaves(beam_search: Any) -> Callable[..., tuple[bool, bool]]:
    def leaves(rows: Tensor, src: Tensor, *settings: Any) -> tuple[bool, bool]:
        """Whether a model that came in evaluation mode has left it (or a part), and whether gradients are on afterwards."""
        model = RandomLogits(rows).eval()
        with torch.enable_grad():
            beam_search(model, src, *settings)
            return any(m.training for m in model.modules()), torch.is_grad_enabled()

    return leaves


# Next-token probabilities of three words a, b, c and eos after some prefixes, made so that one wrong step changes the
# result: (name, table, beam_size, length_penalty, max_len). Written without bos; the other prefixes go to c.
_TRAPS: dict[str, tuple[dict[str, str], int, float, int]] = {
    # "" means: right after bos; "a": after bos a. Values: probabilities of eos, a, b, c.
    "longer": ({"": "50 40 6 4", "a": "3 2 90 5", "ab": "90 3 2 5", "ac": "3 4 6 87"}, 2, 1.0, 6),
    "no_slot": ({"": "50 30 20 0.1", "a": "40 31 29 0.1", "b": "0.1 0.1 0.1 99", "aa": "20 44 36 0.1"}, 2, 3.0, 4),
    "full_pool": ({"": "44 36 11 9", "a": "45 12 35 8", "ab": "96 2 1 1", "b": "3 3 4 90"}, 2, 1.0, 6),
    "unfinished": ({"": "30 60 6 4", "a": "20 70 6 4", "aa": "10 80 6 4", "aaa": "5 85 6 4"}, 2, 1.0, 5),
    "early": ({"": "20 70 6 4", "a": "3 49 46 2", "aa": "20 40 30 10", "ab": "40 31 18 11"}, 2, 0.0, 5),
    "pruned": ({"": "1 45 38 16", "a": "10 41 38 11", "b": "9 38 31 22", "c": "97 1 1.2 0.8", "aa": "31 29 24 16", "ab": "84 7 5 4", "ba": "30 27 25 18"}, 2, 0.0, 4),
    "recovers": ({"": "40 45 9 6", "a": "9 34 29 28", "aa": "2 2.5 93 2.5", "ab": "5 40 31 24", "aab": "95 2 2 1"}, 2, 1.0, 5),
    "only_one": ({"": "1 50 30 19", "a": "30 29 22 19", "b": "26 31 24 19", "c": "97 1 1.2 0.8", "aa": "31 29 24 16", "ba": "30 27 25 18"}, 1, 0.0, 4),
    "never_ends": ({"": "1 50 30 19", "a": "1 43 31 25", "b": "2 18 29 51"}, 2, 1.0, 4),
    "not_greedy": ({"": "1 52 42 5", "a": "26 25 25 24", "b": "2 3 4 91", "bc": "96 2 1 1", "aa": "40 30 20 10"}, 2, 0.5, 5),
    "keeps_three": ({"": "40 30 20 10", "a": "30 28 24 18", "b": "60 20 15 5", "c": "94 3 2 1", "ba": "70 10 15 5"}, 3, 2.0, 5),
}  # fmt: skip


def _trap(name: str, seed: int) -> tuple[Any, ...]:
    """(table, src, max_len, bos, eos, beam_size, length_penalty) of a trap, with ids shuffled by `seed`."""
    rows, beam_size, penalty, max_len = _TRAPS[name]
    ids = torch.randperm(5, generator=torch.Generator().manual_seed(seed)).tolist()  # of eos, a, b, c, bos
    if seed % 3 == 0:
        ids = [2, 3, 4, 0, 1]
    eos_id, bos_id = ids[0], ids[4]

    def row(percent: str) -> list[float]:
        values = [0.0] * 5
        for i, p in zip(ids, [*map(float, percent.split()), 0.02], strict=True):
            values[i] = p / 100
        return values

    entries = [([bos_id, *(ids["abc".index(x) + 1] for x in prefix)], row(p)) for prefix, p in rows.items()]
    return (entries, row("1.5 3 2.5 93")), torch.tensor([[5, 6]]), max_len, bos_id, eos_id, beam_size, penalty


def _beam_random(
    seed: int, v: int, max_len: int, bos_id: int, eos_id: int, beam_size: int, penalty: float
) -> tuple[Any, ...]:
    rows, src = _beam_case(seed, v, max_len, bos_id, eos_id, beam_size, penalty)
    return rows, src, max_len, bos_id, eos_id, beam_size, penalty


_EXHAUSTIVE = ((4, 4, 3, 0, 64, 1.0), (4, 4, 1, 2, 64, 0.0), (3, 5, 1, 2, 81, 2.0))
_FIRST = (5, 4, 3, 0, 2, 1.0)  # the quickest of all
_LONG = (30, 41, 1, 2, 2, 1.0)
_USUAL = ((6, 6, 4, 3, 2, 1.0), (5, 6, 1, 2, 3, 0.6), (7, 5, 0, 5, 4, 0.0), (5, 7, 1, 2, 2, 2.0))


def _beam_probes(seed: int) -> list[Probe]:
    cases = [_beam_random(seed + i, *settings) for i, settings in enumerate((_FIRST, *_USUAL))]
    cases += [_trap(name, seed) for name in _TRAPS]
    cases.append(_beam_random(seed, *_EXHAUSTIVE[0]))
    return [Probe(case) for case in cases]


def _beam(c: Context, what: str, *args: Any) -> None:
    got, want = c.subject.through(_beam_through).call(*args), run_beam(solutions.beam_search, *args)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong("Return two things: (ids, score).")
    c.expect(got[0], want[0], f"the list of ids{what}")
    c.expect(got[1], want[1], f"the score{what}", rtol=1e-4, atol=1e-6)


def _beam_one(c: Context) -> None:
    for i, penalty in enumerate((0.0, 1.0)):
        _beam(c, " for beam_size 1", *_beam_random(c.seed + i, 6, 6, 4, 3, 1, penalty))


def _beam_exhaustive(c: Context) -> None:
    for settings in _EXHAUSTIVE:
        _beam(
            c,
            f" for a beam that holds everything (length_penalty {settings[-1]})",
            *_beam_random(c.seed, *settings),
        )


def _beam_usual(c: Context) -> None:
    for i, settings in enumerate(_USUAL):
        what = f" for beam_size {settings[4]}, length_penalty {settings[5]}"
        _beam(c, what, *_beam_random(c.seed + i, *settings))


def _beam_trap(name: str, what: str) -> Callable[[Context], None]:
    return lambda c: _beam(c, what, *_trap(name, c.seed))


def _beam_bounded(beam_search: Any) -> Callable[..., Any]:
    def bounded(rows: Tensor, src: Tensor, *settings: Any) -> Any:
        """The result, when the model is not asked for far more prefixes than the beam holds: that might take for ever."""
        model, asked = RandomLogits(rows).eval(), [0]

        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            asked[0] += len(args[1])
            if asked[0] > 800:
                raise RuntimeError("800 prefixes were looked at, for 40 tokens and a beam of 2")

        model.register_forward_pre_hook(note)
        ids, score = beam_search(model, src, *settings)
        return ids, number(score)

    return bounded


def _beam_long(c: Context) -> None:
    """40 tokens of which each is improbable: the product of their probabilities is 0 in float32."""
    args = (*_beam_case(c.seed, *_LONG, flat=True), *_LONG[1:])
    got, want = c.subject.through(_beam_bounded).call(*args), run_beam(solutions.beam_search, *args)
    if got[1] == -math.inf:
        raise Wrong(
            "For a target of 40 improbable tokens the score is −inf: a product of that many small probabilities is 0 in "
            "floating point. Add up their logarithms.",
            "product_becomes_0",
        )
    c.expect(got, want, "the pair (ids, score) for 40 improbable tokens", rtol=1e-4, atol=1e-6)


def _beam_mode(c: Context) -> None:
    training, gradient = c.subject.through(_beam_leaves).call(*_beam_random(c.seed, *_FIRST))
    if training:
        raise Wrong(
            "The model came in evaluation mode, and it, or a part of it, is in training mode afterwards; leave the mode "
            "as it was.",
            "training_mode_afterwards",
        )
    if not gradient:
        raise Wrong(_GRADIENT_OFF, "gradient_left_off")


def _beam_ids(c: Context) -> None:
    for bos_id, eos_id in ((4, 1), (0, 3)):
        _beam(c, f" for bos {bos_id}, eos {eos_id}", *_beam_random(c.seed, 5, 5, bos_id, eos_id, 3, 1.0))


# -- the cache -------------------------------------------------------------------------------------------------------

_CACHE = (
    Mistake("returns_new_only", "content", "Only the new key and value come back; return all of that layer so far."),
    Mistake("returns_before", "content", "The new key and value are missing in what comes back: they belong to it."),
    Mistake("first_missing", "content", "The first position is missing in what comes back."),
    Mistake("returns_buffer", "content", "The whole memory comes back, with its empty places; return the filled part alone."),
    Mistake("always_at_start", "content", "Every position is written to the same place, the first."),
    Mistake("newest_first", "content", "The newest position stands first; the order is that of appending."),
    Mistake("layers_share", "layers", "All layers share one memory; each has its own keys and values."),
    Mistake("layers_overwrite", "layers", "All layers write to the same places, so that the last one to write stays; each has its own keys and values."),
    Mistake("one_place_for_all_layers", "layers", "One counter serves all layers and grows with every append, so that layers leave gaps; each layer has its own length."),
    Mistake("moves_on_with_every_append", "layers", "The place for the next position moves on with every append, so that layers leave gaps; it moves on when all layers have written, or for each layer on its own."),
    Mistake("moves_on_after_first_layer", "layers", "The place for the next position moves on as soon as the first layer has written, so that the others leave a gap; it moves on when all have written, or for each layer on its own."),
    Mistake("all_layers_returned", "layers", "The keys and values of all layers come back; return those of one layer."),
    Mistake("values_are_keys", "pair", "The values that come back are the keys."),
    Mistake("exchanged", "pair", "Keys and values are exchanged in what comes back."),
    Mistake("returns_keys_only", "pair", "Only the keys come back; return (keys, values)."),
    Mistake("returns_nothing", "pair", "append returns nothing; return (keys, values)."),
    Mistake("batch_mixed", "axes", "Only the first of the batch is stored, for all."),
    Mistake("first_of_batch_only", "axes", "Only the first of the batch is stored; the places of the others stay 0."),
    Mistake("heads_mixed", "axes", "Only the first head is stored, for all."),
    Mistake("axes_exchanged", "axes", "Heads and positions are exchanged in what comes back: it should be (B, h, length, d_k)."),
    Mistake("one_at_a_time", "several", "Of several new positions only one is stored (or counted)."),
    Mistake("length_one_per_append", "length", "length grows by one with every append, whatever the number of new positions."),
    Mistake("length_counts_layers", "length", "length counts the appends of all layers together; it is the number of positions."),
    Mistake("length_sums_layers", "length", "length counts the positions of all layers together; it is the number of positions of one."),
    Mistake("length_zero", "length", "length does not grow."),
    Mistake("length_max_len", "length", "length is max_len; it is the number of positions so far."),
    Mistake("length_one_too_few", "length", "length is one too small."),
    Mistake("drops_when_full", "full", "When it is full the new position is dropped silently; raise a ValueError."),
    Mistake("overwrites_last", "full", "When it is full the last position is overwritten silently; raise a ValueError."),
    Mistake("wraps_around", "full", "When it is full the first position is overwritten; raise a ValueError."),
    Mistake("forgets_oldest", "full", "When it is full the oldest position is dropped; raise a ValueError."),
    Mistake("grows_when_full", "full", "It grows beyond max_len; raise a ValueError when it is full."),
    Mistake("other_error_when_full", "full", "When it is full another error than ValueError is raised."),
    Mistake("full_one_too_early", "full", "The last place cannot be used: a ValueError comes one position too early."),
)  # fmt: skip


def _cache_variant(on: frozenset[str]) -> Callable[..., Any]:
    after_first = "moves_on_after_first_layer" in on
    one_counter = after_first or bool({"one_place_for_all_layers", "moves_on_with_every_append"} & on)

    class Cache:
        def __init__(self, n_layers: int, batch: int, n_heads: int, max_len: int, d_k: int) -> None:
            self.max_len, self.batch, self.n_layers, self.appends = max_len, batch, n_layers, 0
            self.counted = 0  # positions, of all layers together
            self.store: list[list[Tensor]] = [
                [torch.zeros(2, batch, n_heads, 0, d_k)] for _ in range(n_layers)
            ]

        @property
        def length(self) -> int:
            held = min(sum(t.shape[3] for t in self._held(i)) for i in range(self.n_layers))
            per_append = self.appends // self.n_layers
            if "one_place_for_all_layers" in on:
                held = self.counted // self.n_layers
            elif one_counter:
                held = self.counted
            values = {"length_one_per_append": per_append, "length_counts_layers": self.appends, "length_sums_layers": self.counted, "length_zero": 0, "length_max_len": self.max_len, "length_one_too_few": held - 1}  # fmt: skip
            return next((v for name, v in values.items() if name in on), held)

        def _held(self, layer: int) -> list[Tensor]:
            return self.store[0 if "layers_share" in on else layer]

        def append(self, layer: int, key: Tensor, value: Tensor) -> Any:
            new = torch.stack([key, value])  # (2, B, h, T_new, d_k)
            if "one_at_a_time" in on:
                new = new[:, :, :, -1:]
            if "batch_mixed" in on:
                new = new[:, :1].expand_as(new)
            elif "first_of_batch_only" in on:
                new = torch.cat([new[:, :1], torch.zeros_like(new[:, 1:])], 1)
            elif "heads_mixed" in on:
                new = new[:, :, :1].expand_as(new)
            held = self._held(layer)
            start = self.counted if one_counter else sum(t.shape[3] for t in held)
            room = self.max_len - start - new.shape[3] - ("full_one_too_early" in on)
            if room < 0 and "layers_share" not in on:
                if "other_error_when_full" in on:
                    raise IndexError
                if "overwrites_last" in on:
                    held[-1] = new
                elif "forgets_oldest" in on:
                    held[:] = [torch.cat([*held, new], 3)[:, :, :, -self.max_len :]]
                elif "wraps_around" in on:
                    together = torch.cat(held, 3)
                    together[:, :, :, : new.shape[3]] = new
                    held[:] = [together]
                elif "grows_when_full" in on:
                    held.append(new)
                elif "drops_when_full" not in on:
                    raise ValueError("full")
            elif "always_at_start" in on:
                held[:] = [new]
            elif "newest_first" in on:
                held.insert(0, new)
            elif one_counter:
                before, end = torch.cat(held, 3), start + new.shape[3]
                gap = torch.zeros_like(new[:, :, :, :1]).expand(
                    -1, -1, -1, max(start - before.shape[3], 0), -1
                )
                held[:] = [torch.cat([before[:, :, :, :start], gap, new, before[:, :, :, end:]], 3)]
            else:
                held.append(new)
            if "layers_overwrite" in on:
                for other in self.store:
                    if len(other) >= len(held):
                        other[len(held) - 1] = held[-1]
            self.appends += 1
            self.counted += new.shape[3] if layer == 0 or not after_first else 0
            together = torch.cat(held, 3)[:, :, :, : start + new.shape[3] if after_first else None]
            if "returns_new_only" in on:
                together = new
            elif "returns_before" in on:
                together = together[:, :, :, : -new.shape[3]]
            elif "first_missing" in on:
                together = together[:, :, :, 1:]
            elif "returns_buffer" in on:
                empty = torch.zeros_like(together[:, :, :, :1]).expand(
                    -1, -1, -1, self.max_len - together.shape[3], -1
                )
                together = torch.cat([together, empty], 3)
            if "axes_exchanged" in on:
                together = together.transpose(2, 3)
            keys, values = together
            if "all_layers_returned" in on:
                keys, values = (
                    torch.stack([torch.cat(self._held(i), 3)[j] for i in range(layer + 1)]) for j in (0, 1)
                )
            pairs = {"values_are_keys": (keys, keys), "exchanged": (values, keys), "returns_keys_only": keys, "returns_nothing": None}  # fmt: skip
            return next((r for name, r in pairs.items() if name in on), (keys, values))

    return Cache


def run_cache(
    KeyValueCache: Callable[..., Any], sizes: Sequence[int], rounds: Sequence[Sequence[tuple[Tensor, Tensor]]]
) -> list[Any]:
    """What comes back from appending, round by round, one key and value to each layer in turn; `length` after each round.

    A ValueError is noted as such, and ends the script.
    """
    kv = KeyValueCache(*sizes)
    found: list[Any] = []
    for new in rounds:
        for layer, (key, value) in enumerate(new):
            try:
                result = kv.append(layer, key, value)
            except ValueError:
                return [*found, "ValueError"]
            except (IndexError, RuntimeError, AssertionError, KeyError):
                if not found:
                    raise
                return [*found, "another error"]
            if isinstance(result, tuple | list) and len(result) == 2:
                result = tuple(x.detach().clone() if isinstance(x, Tensor) else x for x in result)
            found.append(result)
        found.append(number(kv.length))
    return found


def _cache_through(KeyValueCache: Any) -> Callable[..., Any]:
    return partial(run_cache, KeyValueCache)


_CACHE_SIZES = (2, 3, 2, 5, 4)  # n_layers, batch, n_heads, max_len, d_k


def _cache_case(seed: int, news: Sequence[int], sizes: Sequence[int] = _CACHE_SIZES) -> tuple[Any, ...]:
    """Sizes, and for each round the keys and values of all layers with so many new positions."""
    n_layers, batch, n_heads, _, d_k = sizes
    g = torch.Generator().manual_seed(seed)

    def pair(new: int) -> tuple[Tensor, Tensor]:
        key, value = torch.randn(2, batch, n_heads, new, d_k, generator=g)
        return key, value

    return tuple(sizes), [[pair(new) for _ in range(n_layers)] for new in news]


def _cache_probes(seed: int) -> list[Probe]:
    cases = [(1, 1, 1), (1,) * 6, (2, 1, 2, 1), (3, 1)]
    return [
        *(Probe(_cache_case(seed + i, news)) for i, news in enumerate(cases)),
        Probe(_cache_case(seed, (1,) * 8, (3, 2, 4, 7, 3))),
    ]


def _cache_compare(
    c: Context, news: Sequence[int], sizes: Sequence[int] = _CACHE_SIZES, only: str = ""
) -> None:
    args = _cache_case(c.seed, news, sizes)
    got = c.subject.through(_cache_through).call(*args)
    want = run_cache(solutions.KeyValueCache, *args)
    if len(got) < len(want):
        done, layer = divmod(len(got) - 1, sizes[0] + 1)
        raise Wrong(
            f"append raises {got[-1]} too early: for layer {layer}, which holds {sum(news[:done])} of {sizes[3]} positions.",
            "full_too_early",
        )
    n = 0
    for i, wanted in enumerate(want):
        value = got[i]
        if isinstance(wanted, tuple):
            layer, position = n % sizes[0], sum(news[: n // sizes[0] + 1])
            n += 1
            if only == "length":
                continue
            if isinstance(value, str):
                raise Wrong(f"With {position} of {sizes[3]} positions append raises {value}.")
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise Wrong("append should return two things: (keys, values).")
            for name, v, w in zip(("keys", "values"), value, wanted, strict=True):
                c.expect(
                    v,
                    w,
                    f"the {name} of layer {layer} after {position} positions",
                    axes="batch head position d_k",
                )
        elif isinstance(wanted, str):
            if value != wanted:
                what = "another error comes" if isinstance(value, str) else "no error comes"
                mistake = "wrong_error_when_full" if isinstance(value, str) else "full_cache_accepted"
                held, new = sum(news[: n // sizes[0]]), news[n // sizes[0]]
                when = "Appending to a full cache"
                if held < sizes[3]:  # asked after a full one, where a ValueError came
                    when = f"Appending {new} positions to {held} of {sizes[3]}, more than there is room for,"
                    mistake = "room_not_asked_for"
                raise Wrong(f"{when} should raise a ValueError; {what}.", mistake)
        elif only == "length":
            c.expect(value, wanted, f"length after {sum(news[: n // sizes[0]])} positions in every layer")


def _cache_one_layer(c: Context) -> None:
    _cache_compare(c, (1, 1, 1), (1, 3, 2, 5, 4))


def _cache_layers(c: Context) -> None:
    _cache_compare(c, (1,) * 5)
    _cache_compare(c, (1, 1, 1), (3, 2, 4, 7, 3))


def _cache_several(c: Context) -> None:
    _cache_compare(c, (3, 1, 1))
    _cache_compare(c, (1, 2, 2))


def _fresh_length(KeyValueCache: Any) -> Callable[..., Any]:
    return lambda *sizes: KeyValueCache(*sizes).length


def _cache_length(c: Context) -> None:
    length = c.subject.through(_fresh_length).call(*_CACHE_SIZES)
    if callable(length):
        raise Wrong(
            "length should be a number, cache.length; yours is a method that has to be called.",
            "length_is_a_method",
        )
    if length is None:
        raise Wrong("cache.length should be the number of positions so far; yours is None.", "length_is_none")
    c.expect(number(length), 0, "length of a new cache")
    _cache_compare(c, (1, 1, 1), only="length")
    _cache_compare(c, (2, 1), only="length")


def _cache_full(c: Context) -> None:
    _cache_compare(c, (1,) * 6)
    _cache_compare(c, (1,) * 8, (3, 2, 4, 7, 3))
    _cache_compare(c, (2, 4))


def _memory(KeyValueCache: Any) -> Callable[..., int]:
    def after_one_position(sizes: Sequence[int], new: Sequence[tuple[Tensor, Tensor]]) -> int:
        kv = KeyValueCache(*sizes)
        for layer, (key, value) in enumerate(new):
            kv.append(layer, key, value)
        return _numbers_in(kv, set())

    return after_one_position


def _cache_memory(c: Context) -> None:
    sizes, (new, *_) = _cache_case(c.seed, (1,), (2, 3, 2, 50, 4))
    n_layers, batch, n_heads, max_len, d_k = sizes
    held, needed = c.subject.through(_memory).call(sizes, new), 2 * n_layers * batch * n_heads * max_len * d_k
    if held < needed:
        raise Wrong(
            f"The memory should be there from the start: {needed} numbers for max_len {max_len}; after one position yours "
            f"holds {held}. Reserve it with torch.zeros and write into it, rather than growing it with torch.cat.",
            "not_preallocated",
        )


def _numbers_in(thing: Any, seen: set[int]) -> int:
    """How many numbers the tensors and arrays hold that are reachable from an object."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        return thing.numel() if thing._base is None else max(thing.numel(), thing._base.numel())
    if isinstance(thing, np.ndarray):
        return thing.size
    if isinstance(thing, dict):
        return sum(_numbers_in(v, seen) for v in thing.values())
    if isinstance(thing, list | tuple):
        return sum(_numbers_in(v, seen) for v in thing)
    slots = [s for k in type(thing).__mro__ for s in getattr(k, "__slots__", ()) if isinstance(s, str)]
    members = [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, s, None) for s in slots)]
    plain = (str, bytes, int, float, type(None), type)
    return sum(_numbers_in(v, seen) for v in members if not isinstance(v, plain))


def _in_turn(KeyValueCache: Any) -> Callable[..., list[Any]]:
    def in_turn(sizes: Sequence[int], *news: Sequence[tuple[Tensor, Tensor]]) -> list[Any]:
        """What each of several caches returns for its own keys and values, by turns."""
        caches = [KeyValueCache(*sizes) for _ in news]
        found = []
        for pairs in zip(*news, strict=True):
            for kv, (key, value) in zip(caches, pairs, strict=True):
                found.append(tuple(x.clone() for x in kv.append(0, key, value)))
        return found

    return in_turn


_marks = count(1)


def _cache_own(c: Context) -> None:
    """Each of two caches is filled with one number, never used before: memory that was not cleared cannot hold it."""
    sizes = (1, 3, 2, 5, 4)
    shape, marks = (3, 2, 1, 4), [float(next(_marks)) for _ in range(2)]
    news = [[(torch.full(shape, mark), torch.full(shape, mark))] * 2 for mark in marks]
    call = c.subject.through(_in_turn).call
    alone, together = call(sizes, news[0]), call(sizes, *news)
    for i, pair in enumerate(together):
        foreign = marks[1 - i % 2]
        for name, got, first in zip(("keys", "values"), pair, alone[i // 2], strict=False):
            if got.shape != first.shape or (got == foreign).any():
                raise Wrong(
                    f"Two caches that are used by turns should share nothing: the {name} of one change with what the other holds.",
                    "shared_between_caches",
                )


_exercise = partial(Exercise, notebook="13_decoding")

EXERCISES = (
    _exercise(
        name="greedy_decode",
        points=3,
        difficulty=2,
        minutes=20,
        hints=(
            "Which position's logits say what comes next? What should happen to a row that has ended while others go on?",
            "Start with a column of bos. Each step: the argmax of model(src, tgt)[:, -1], pad where a row has ended, and cat. Remember who has ended.",
            "token = model(src, tgt)[:, -1].argmax(-1).masked_fill(ended, pad_id); tgt = torch.cat([tgt, token[:, None]], 1); ended |= token == eos_id",
        ),
        reference=solutions.greedy_decode,
        tests=(
            Test("one", "decodes a single source", _greedy_one),
            Test("batch", "decodes a batch whose rows end at different times", _greedy_batch, crash="one_source_only"),
            Test("ids", "uses bos_id, eos_id and pad_id as given", _greedy_ids),
            Test("short", "counts bos in max_len", _greedy_short, crash="crashes_for_small_max_len"),
            Test("any_token", "takes the most likely token, whichever it is", _greedy_any_token),
            Test("twice", "gives the same for the same call", _greedy_twice),
            Test("mode", "decodes in evaluation mode and restores the mode", _greedy_mode),
            Test("gradient", "records no gradient", _greedy_gradient),
        ),
        mistakes=_GREEDY,
        variant=_greedy_variant,
        probes=_greedy_probes,
        as_function=_greedy_recognised,
    ),
    _exercise(
        name="beam_search",
        points=5,
        difficulty=3,
        minutes=45,
        hints=(
            "After one step, which of all extensions of all prefixes are kept, and by which number are they compared?",
            "Keep live prefixes with their summed log-probabilities, and a pool of finished ones. The penalty matters only when the best of the pool is chosen.",
            "sums = live_sums[:, None] + log_probs, then the best beam_size of sums.flatten(); prefix, token = divmod(place, V); eos → pool, else → live. At the end live ones join the pool: max of sum / (len(ids) − 1) ** length_penalty.",
        ),
        reference=solutions.beam_search,
        tests=(
            Test("one", "is greedy for beam_size 1", _beam_one),
            Test("exhaustive", "finds the best of all when the beam holds everything", _beam_exhaustive, crash="crashes_when_beam_exceeds_extensions"),
            Test("usual", "follows the algorithm for beams of 2 to 4", _beam_usual, crash="crashes_for_some_beam_sizes"),
            Test("not_greedy", "finds what greedy decoding misses", _beam_trap("not_greedy", " where the first step's best token leads nowhere")),
            Test("longer", "goes on after the best extension has ended", _beam_trap("longer", " where eos is the best first token and a longer target scores higher")),
            Test("no_slot", "finished ones free no slot in their step", _beam_trap("no_slot", " where a worse prefix would win if it were kept")),
            Test("pruned", "drops what is not among the best beam_size", _beam_trap("pruned", " where a dropped prefix would have won")),
            Test("recovers", "goes on when a finished one leads", _beam_trap("recovers", " where the finished target leads for a while")),
            Test("only_one", "keeps one prefix for beam_size 1", _beam_trap("only_one", " for beam_size 1")),
            Test("full_pool", "goes on when beam_size prefixes have finished", _beam_trap("full_pool", " where the third one to finish scores highest")),
            Test("unfinished", "lets unfinished ones join at max_len", _beam_trap("unfinished", " where the best target has not ended at max_len")),
            Test("early", "keeps finished ones to the end", _beam_trap("early", " where the target that ends at once is best, and better sums push it down for a while")),
            Test("never_ends", "returns an unfinished one when none has finished", _beam_trap("never_ends", " where nothing ends"), crash="unfinished_dropped"),
            Test("keeps_three", "keeps the best three", _beam_trap("keeps_three", " for a beam of three")),
            Test("ids", "uses bos_id and eos_id as given", _beam_ids),
            Test("long", "adds up logarithms, also of many small probabilities", _beam_long),
            Test("mode", "leaves the model's mode and the gradient's as they were", _beam_mode),
        ),
        mistakes=_BEAM,
        variant=_beam_variant,
        probes=_beam_probes,
        as_function=_beam_through,
    ),
    _exercise(
        name="KeyValueCache",
        points=3,
        difficulty=2,
        minutes=20,
        hints=(
            "Where in the memory does the next key of a layer belong, and what says so?",
            "Reserve two tensors (n_layers, batch, n_heads, max_len, d_k). append writes at the positions from the layer's length on and returns the filled part.",
            "end = start + key.size(2); self.keys[layer, :, :, start:end] = key; return self.keys[layer, :, :, :end], and the same for values.",
        ),
        reference=solutions.KeyValueCache,
        tests=(
            Test("one_layer", "returns all keys and values so far", _cache_one_layer),
            Test("layers", "keeps layers apart", _cache_layers, crash="crashes_with_several_layers"),
            Test("length", "length is the number of positions", _cache_length, crash="no_length"),
            Test("several", "takes several positions at once", _cache_several, crash="crashes_for_several_positions"),
            Test("full", "raises a ValueError when there is no room", _cache_full),
            Test("memory", "reserves its memory at the start", _cache_memory),
            Test("own", "shares nothing with another cache", _cache_own),
        ),
        mistakes=_CACHE,
        variant=_cache_variant,
        probes=_cache_probes,
        as_function=_cache_through,
        stretch=True,
    ),
)  # fmt: skip
