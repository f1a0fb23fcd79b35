"""Answers to the exercises of 13, right and wrong."""

import heapq
import math
from dataclasses import dataclass, field

import torch
from torch import nn

# -- greedy: right ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def greedy_cat(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    ys = torch.full((src.size(0), 1), bos_id, dtype=torch.long, device=device)
    done = torch.zeros(src.size(0), dtype=torch.bool)
    for _ in range(max_len - 1):
        nxt = model(src, ys)[:, -1, :].argmax(-1)
        nxt = torch.where(done, torch.full_like(nxt, pad_id), nxt)
        ys = torch.cat([ys, nxt.unsqueeze(1)], dim=1)
        done |= nxt == eos_id
        if done.all():
            break
    model.train(was_training)
    return ys


def greedy_full_width(model, src, max_len, bos_id, eos_id, pad_id=0):
    training = model.training
    model.eval()
    out = torch.full((len(src), max_len), pad_id)
    out[:, 0] = bos_id
    ended = [False] * len(src)
    with torch.inference_mode():
        for t in range(1, max_len):
            probabilities = model(src, out[:, :t])[:, t - 1].softmax(-1)
            for b in range(len(src)):
                if not ended[b]:
                    out[b, t] = int(probabilities[b].argmax())
                    ended[b] = out[b, t] == eos_id
            if all(ended):
                break
    if training:
        model.train()
    return out


def greedy_rows(model, src, max_len, bos_id, eos_id, pad_id=0):
    mode = model.training
    try:
        model.eval()
        rows = []
        with torch.no_grad():
            for source in src:
                ids = [bos_id]
                while len(ids) < max_len and (ids[-1] != eos_id or len(ids) == 1):
                    ids.append(model(source[None], torch.tensor([ids]))[0, -1].argmax().item())
                rows.append(ids)
    finally:
        model.train(mode)
    longest = max(map(len, rows))
    return torch.tensor([ids + [pad_id] * (longest - len(ids)) for ids in rows])


class GreedyObject:
    def __call__(self, model, src, max_len, bos_id, eos_id, pad_id=0, verbose=False):
        before = {m: m.training for m in model.modules()}
        model.train(False)
        with torch.no_grad():
            tgt = src.new_full((src.shape[0], 1), bos_id)
            for _ in range(max_len - 1):
                top = model(src, tgt)[:, -1].topk(1).indices
                finished = (tgt[:, 1:] == eos_id).any(dim=1, keepdim=True)
                tgt = torch.hstack((tgt, top.masked_fill(finished, pad_id)))
        for m, mode in before.items():
            m.training = mode
        ended = (tgt == eos_id).any(1).all()
        if ended:
            last = int((tgt != pad_id).nonzero()[:, 1].max())
            tgt = tgt[:, : last + 1]
        return tgt


def greedy_until_eos_together(model, src, max_len, bos_id, eos_id, pad_id=0):
    """Goes on longer than it must, up to max_len in most cases: with pads alone."""
    was_training = model.training
    model.eval()
    tgt = torch.full((src.size(0), 1), bos_id)
    ended = torch.zeros(src.size(0), dtype=torch.bool)
    with torch.no_grad():
        while tgt.size(1) < max_len:
            token = model(src, tgt)[:, -1].argmax(-1).masked_fill(ended, pad_id)
            tgt = torch.cat([tgt, token[:, None]], 1)
            ended |= token == eos_id
            if (token == eos_id).all():
                break
    model.train(was_training)
    return tgt


# -- greedy: wrong ---------------------------------------------------------------------------------------------------


def _greedy(
    pad_after=True,
    until="all",
    first="bos",
    steps=-1,
    position=-1,
    last_only=False,
    restore=True,
    evaluate=True,
    grad=False,
    without=(),
    ends=lambda token, pad_id: False,
    result=lambda tgt: tgt,
):
    def greedy_decode(model, src, max_len, bos_id, eos_id, pad_id=0):
        was_training = model.training
        if evaluate:
            model.eval()
        start = {"bos": bos_id, "pad": pad_id, "one": 1}[first]
        tgt = torch.full((src.size(0), 1), start)
        ended = torch.zeros(src.size(0), dtype=torch.bool)
        with torch.set_grad_enabled(grad):
            for _ in range(max_len + steps):
                logits = model(src, tgt[:, -1:] if last_only else tgt)[:, position]
                for banned in without:
                    logits[:, {"bos": bos_id, "pad": pad_id}[banned]] = -math.inf
                token = logits.argmax(-1)
                if pad_after:
                    token = token.masked_fill(ended, pad_id)
                tgt = torch.cat([tgt, token[:, None]], 1)
                ended |= (token == eos_id) | ends(token, pad_id)
                if until == "all" and ended.all() or until == "any" and ended.any():
                    break
        if restore == "always train":
            model.train()
        elif restore and evaluate:
            model.train(was_training)
        return result(tgt)

    return greedy_decode


def greedy_samples(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    tgt = torch.full((src.size(0), 1), bos_id)
    ended = torch.zeros(src.size(0), dtype=torch.bool)
    with torch.no_grad():
        while tgt.size(1) < max_len and not ended.all():
            token = torch.multinomial(model(src, tgt)[:, -1].softmax(-1), 1)[:, 0].masked_fill(ended, pad_id)
            tgt = torch.cat([tgt, token[:, None]], 1)
            ended |= token == eos_id
    model.train(was_training)
    return tgt


def greedy_item(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    tgt = torch.tensor([[bos_id]])
    with torch.no_grad():
        while tgt.size(1) < max_len:
            token = model(src, tgt)[:, -1].argmax(-1).item()
            tgt = torch.cat([tgt, torch.tensor([[token]])], 1)
            if token == eos_id:
                break
    model.train(was_training)
    return tgt


def greedy_eos_together(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    tgt = torch.full((src.size(0), 1), bos_id)
    with torch.no_grad():
        for _ in range(max_len - 1):
            token = model(src, tgt)[:, -1].argmax(-1)
            tgt = torch.cat([tgt, token[:, None]], 1)
            if (token == eos_id).all():
                break
    model.train(was_training)
    return tgt


def greedy_pad_includes_eos(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    tgt = torch.full((src.size(0), 1), bos_id)
    ended = torch.zeros(src.size(0), dtype=torch.bool)
    with torch.no_grad():
        while tgt.size(1) < max_len and not ended.all():
            token = model(src, tgt)[:, -1].argmax(-1)
            ended |= token == eos_id
            token[ended] = pad_id
            tgt = torch.cat([tgt, token[:, None]], 1)
    model.train(was_training)
    return tgt


def greedy_forgets(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    model.eval()
    tgt = torch.full((src.size(0), 1), bos_id)
    ended = torch.zeros(src.size(0), dtype=torch.bool)
    with torch.no_grad():
        while tgt.size(1) < max_len and not ended.all():
            token = model(src, tgt)[:, -1].argmax(-1).masked_fill(ended, pad_id)
            tgt = torch.cat([tgt, token[:, None]], 1)
            ended = token == eos_id
    model.train(was_training)
    return tgt


def greedy_flag(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training = model.training
    ids = _greedy(restore=False)(model, src, max_len, bos_id, eos_id, pad_id)
    model.training = was_training
    return ids


def greedy_flag_only(model, src, max_len, bos_id, eos_id, pad_id=0):
    was_training, model.training = model.training, False
    ids = _greedy(evaluate=False)(model, src, max_len, bos_id, eos_id, pad_id)
    model.training = was_training
    return ids


def greedy_switches_off(model, src, max_len, bos_id, eos_id, pad_id=0):
    torch.set_grad_enabled(False)
    return greedy_rows(model, src, max_len, bos_id, eos_id, pad_id)


def greedy_pads_zero(model, src, max_len, bos_id, eos_id, pad_id=0):
    return _greedy()(model, src, max_len, bos_id, eos_id, 0)


def greedy_fills_eos(model, src, max_len, bos_id, eos_id, pad_id=0):
    return _greedy()(model, src, max_len, bos_id, eos_id, eos_id)


# -- beam: right -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def beam_lists(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    beams, finished = [([bos_id], 0.0)], []
    for _ in range(max_len - 1):
        candidates = []
        for ids, score in beams:
            log_probs = torch.log_softmax(model(src, torch.tensor([ids]))[0, -1], dim=-1)
            candidates += [(ids + [token], score + p) for token, p in enumerate(log_probs.tolist())]
        candidates.sort(key=lambda c: c[1], reverse=True)
        beams = []
        for ids, score in candidates[:beam_size]:
            (finished if ids[-1] == eos_id else beams).append((ids, score))
        if not beams:
            break
    finished += beams
    best = max(finished, key=lambda c: c[1] / (len(c[0]) - 1) ** length_penalty)
    return best[0], best[1] / (len(best[0]) - 1) ** length_penalty


def beam_tensors(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        live, sums = torch.tensor([[bos_id]]), torch.zeros(1)
        best_ids, best = None, -math.inf
        for step in range(1, max_len):
            log_p = model(src.repeat(len(live), 1), live)[:, -1].log_softmax(-1)
            total = (sums[:, None] + log_p).flatten()
            top, place = total.topk(min(beam_size, total.numel()))
            rows, tokens = place // log_p.size(1), place % log_p.size(1)
            grown = torch.cat([live[rows], tokens[:, None]], dim=1)
            ends = tokens == eos_id
            if step == max_len - 1:
                ends = torch.ones_like(ends)
            for ids, value in zip(grown[ends], top[ends], strict=True):
                score = value.item() / step**length_penalty
                if score > best:
                    best_ids, best = ids.tolist(), score
            live, sums = grown[~ends], top[~ends]
            if len(live) == 0:
                break
    model.train(was_training)
    return best_ids, best


@dataclass(order=True)
class Hypothesis:
    key: float
    ids: list = field(compare=False)

    @property
    def total(self):
        return -self.key

    def score(self, alpha):
        return self.total / max(1, len(self.ids) - 1) ** alpha


def beam_heap(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    live, pool = [Hypothesis(0.0, [bos_id])], []
    while live and len(live[0].ids) < max_len:
        extensions = []
        with torch.no_grad():
            for h in live:
                logits = model(src, torch.tensor([h.ids]))[0, -1].double()
                log_p = (logits - logits.logsumexp(0)).numpy()
                extensions += [Hypothesis(h.key - float(p), [*h.ids, t]) for t, p in enumerate(log_p)]
        kept = heapq.nsmallest(beam_size, extensions)
        pool.extend(h for h in kept if h.ids[-1] == eos_id)
        live = [h for h in kept if h.ids[-1] != eos_id]
    pool.extend(live)
    winner = max(pool, key=lambda h: h.score(length_penalty))
    return winner.ids, torch.tensor(winner.score(length_penalty))


class BeamObject:
    """Only the best beam_size tokens of each prefix can be among the best of all."""

    @torch.inference_mode()
    def __call__(self, model, src, max_len, bos_id, eos_id, beam_size, length_penalty, **unused):
        live, pool = {(bos_id,): 0.0}, {}
        for _ in range(max_len - 1):
            if not live:
                break
            prefixes = list(live)
            log_p = model(src.expand(len(prefixes), -1), torch.tensor(prefixes)).log_softmax(-1)[:, -1]
            k = min(beam_size, log_p.shape[-1])
            values, tokens = log_p.topk(k)
            grown = {
                (*prefix, tokens[i, j].item()): live[prefix] + values[i, j].item()
                for i, prefix in enumerate(prefixes)
                for j in range(k)
            }
            best = sorted(grown, key=grown.get)[::-1][:beam_size]
            pool |= {ids: grown[ids] for ids in best if ids[-1] == eos_id}
            live = {ids: grown[ids] for ids in best if ids[-1] != eos_id}
        pool |= live
        scores = {ids: total / (len(ids) - 1) ** length_penalty for ids, total in pool.items()}
        ids = max(scores, key=scores.get)
        return list(ids), scores[ids]


def _beam_ties(key, newest_first=False):
    """Ties may go either way; the source may be given once for all prefixes where the model takes that."""

    @torch.no_grad()
    def beam_search(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
        model.eval()
        live, pool = [(0.0, [bos_id])], []
        while live and len(live[0][1]) < max_len:
            log_p = model(src, torch.tensor([ids for _, ids in live]))[:, -1].log_softmax(-1).tolist()
            new = [
                (total + p, [*ids, v])
                for (total, ids), row in zip(live, log_p, strict=True)
                for v, p in enumerate(row)
            ]
            best = sorted(new, key=key, reverse=True)[:beam_size]
            pool += [e for e in best if e[1][-1] == eos_id]
            live = [e for e in best if e[1][-1] != eos_id]
        scored = [(total / (len(ids) - 1) ** length_penalty, ids) for total, ids in pool + live]
        score, ids = max(scored[::-1] if newest_first else scored, key=lambda s: s[0])
        return ids, score

    return beam_search


# -- beam: wrong -----------------------------------------------------------------------------------------------------


def _beam(
    kept=None, score=None, stop=None, join=True, step=None, width=None, longest=0, result=None, end=True
):
    """A right beam search with one part exchanged."""
    score = score or (lambda total, ids, alpha, eos_id: total / (len(ids) - 1) ** alpha)
    step = step or (lambda logits: logits.log_softmax(-1))

    @torch.no_grad()
    def beam_search(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
        live, pool = [([bos_id], 0.0)], []
        size = width(beam_size) if width else beam_size
        for _ in range(max_len - 1 + longest):
            extensions = []
            for ids, total in live:
                values = step(model(src, torch.tensor([ids]))[0, -1]).tolist()
                extensions += [([*ids, t], total + v) for t, v in enumerate(values)]
            extensions.sort(key=lambda e: -e[1])
            if kept:
                live, done = kept(extensions, size, eos_id, pool)
            else:
                live = [e for e in extensions[:size] if e[0][-1] != eos_id or not end]
                done = [e for e in extensions[:size] if e[0][-1] == eos_id and end]
            pool += done
            if not live or (stop and stop(extensions, pool, size, eos_id, live)):
                break
        if join == "if needed":
            pool = pool or live
        elif join:
            pool += live
        ranked = sorted(pool, key=lambda e: -score(e[1], e[0], length_penalty, eos_id))
        ids, total = ranked[0]
        value = score(total, ids, length_penalty, eos_id)
        return result(ids, total, value, eos_id) if result else (ids, value)

    return beam_search


def _refill(extensions, size, eos_id, pool):
    live, done = [], []
    for e in extensions:
        (done if e[0][-1] == eos_id else live).append(e)
        if len(live) == size:
            break
    return live, done


def _refill_two_times(extensions, size, eos_id, pool):
    best = extensions[: 2 * size]
    done = [e for e in best[:size] if e[0][-1] == eos_id]
    return [e for e in extensions if e[0][-1] != eos_id][:size], done


def _shrinking(extensions, size, eos_id, pool):
    best = extensions[: size - len(pool)]
    return [e for e in best if e[0][-1] != eos_id], [e for e in best if e[0][-1] == eos_id]


@torch.no_grad()
def beam_finished_stay(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    beams = [([bos_id], 0.0)]
    for _ in range(max_len - 1):
        grown = []
        for ids, total in beams:
            if ids[-1] == eos_id and len(ids) > 1:
                grown.append((ids, total))
                continue
            for t, p in enumerate(model(src, torch.tensor([ids]))[0, -1].log_softmax(-1).tolist()):
                grown.append(([*ids, t], total + p))
        beams = sorted(grown, key=lambda b: b[1], reverse=True)[:beam_size]
        if all(b[0][-1] == eos_id for b in beams):
            break
    ids, total = max(beams, key=lambda b: b[1] / (len(b[0]) - 1) ** length_penalty)
    return ids, total / (len(ids) - 1) ** length_penalty


@torch.no_grad()
def beam_copies(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    tgt, sums = torch.full((beam_size, 1), bos_id), torch.zeros(beam_size)
    done = []
    for step in range(1, max_len):
        log_p = model(src.expand(len(tgt), -1), tgt)[:, -1].log_softmax(-1)
        total = sums[:, None] + log_p
        value, token = total.max(-1)
        tgt, sums = torch.cat([tgt, token[:, None]], 1), value
        for ids, s in zip(tgt.tolist(), sums.tolist(), strict=True):
            if ids[-1] == eos_id:
                done.append((ids, s / step**length_penalty))
        keep = tgt[:, -1] != eos_id
        tgt, sums = tgt[keep], sums[keep]
        if not len(tgt):
            break
    done += [
        (ids, s / (len(ids) - 1) ** length_penalty)
        for ids, s in zip(tgt.tolist(), sums.tolist(), strict=True)
    ]
    return max(done, key=lambda d: d[1])


def beam_topk_crashes(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    with torch.no_grad():
        live, sums, pool = torch.tensor([[bos_id]]), torch.zeros(1), []
        for step in range(1, max_len):
            log_p = model(src.expand(len(live), -1), live)[:, -1].log_softmax(-1)
            top, place = (sums[:, None] + log_p).flatten().topk(beam_size)
            grown = torch.cat([live[place // log_p.size(1)], (place % log_p.size(1))[:, None]], 1)
            ends = grown[:, -1] == eos_id
            pool += [
                (i.tolist(), s.item() / step**length_penalty)
                for i, s in zip(grown[ends], top[ends], strict=True)
            ]
            live, sums = grown[~ends], top[~ends]
            if not len(live):
                break
        pool += [
            (i.tolist(), s.item() / (len(i) - 1) ** length_penalty) for i, s in zip(live, sums, strict=True)
        ]
    return max(pool, key=lambda p: p[1])


def beam_trains(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    model.eval()
    result = _beam()(model, src, max_len, bos_id, eos_id, beam_size, length_penalty)
    model.train()
    return result


def beam_switches_off(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    torch.set_grad_enabled(False)
    return beam_lists(model, src, max_len, bos_id, eos_id, beam_size, length_penalty)


@torch.no_grad()
def beam_products(model, src, max_len, bos_id, eos_id, beam_size, length_penalty):
    live, products, pool = torch.tensor([[bos_id]]), torch.ones(1), []
    for step in range(1, max_len):
        p = model(src.expand(len(live), -1), live)[:, -1].softmax(-1)
        product = (products[:, None] * p).flatten()
        top, place = product.topk(min(beam_size, len(product)))
        grown = torch.cat([live[place // p.size(1)], (place % p.size(1))[:, None]], 1)
        ends = (grown[:, -1] == eos_id) | torch.tensor(step == max_len - 1)
        pool += [
            (i.tolist(), t.log().item() / step**length_penalty)
            for i, t in zip(grown[ends], top[ends], strict=True)
        ]
        live, products = grown[~ends], top[~ends]
        if not len(live):
            break
    return max(pool, key=lambda s: s[1])


# -- cache: right ----------------------------------------------------------------------------------------------------


class CacheBuffers(nn.Module):
    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        super().__init__()
        self.max_len = max_len
        self.register_buffer("k", torch.empty(n_layers, batch, n_heads, max_len, d_k))
        self.register_buffer("v", torch.empty(n_layers, batch, n_heads, max_len, d_k))
        self.filled = [0] * n_layers

    @property
    def length(self):
        return max(self.filled)

    def append(self, layer, key, value):
        start = self.filled[layer]
        stop = start + key.shape[-2]
        if stop > self.max_len:
            raise ValueError("full")
        self.k[layer, ..., start:stop, :] = key
        self.v[layer, ..., start:stop, :] = value
        self.filled[layer] = stop
        return self.k[layer, ..., :stop, :].clone(), self.v[layer, ..., :stop, :].clone()


class CacheOneCounter:
    """The length grows when the last layer has been served."""

    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.n_layers, self.max_len = n_layers, max_len
        self.data = torch.zeros(2, n_layers, batch, n_heads, max_len, d_k)
        self.length = 0

    def append(self, layer, key, value):
        n = key.size(2)
        if self.length + n > self.max_len:
            raise ValueError(f"no room for {n} more")
        for i, new in enumerate((key, value)):
            self.data[i, layer, :, :, self.length : self.length + n].copy_(new)
        end = self.length + n
        if layer == self.n_layers - 1:
            self.length = end
        return tuple(self.data[:, layer, :, :, :end])


class CacheLists:
    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        def room():
            return torch.zeros(batch, n_heads, max_len, d_k)

        self.layers = [{"key": room(), "value": room(), "n": 0} for _ in range(n_layers)]
        self.max_len = max_len

    def __len__(self):
        return self.layers[-1]["n"]

    length = property(__len__)

    def append(self, layer, key, value):
        own = self.layers[layer]
        for t in range(key.size(2)):
            if own["n"] >= self.max_len:
                raise ValueError("the cache is full")
            own["key"][:, :, own["n"]], own["value"][:, :, own["n"]] = key[:, :, t], value[:, :, t]
            own["n"] += 1
        return [own["key"][:, :, : own["n"]], own["value"][:, :, : own["n"]]]


class CacheLazy:
    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.shape, self.max_len = (n_layers, batch, n_heads, max_len, d_k), max_len
        self.keys = self.values = None
        self.ends = torch.zeros(n_layers, dtype=torch.long)

    @property
    def length(self):
        return self.ends.min()

    def append(self, layer, key, value):
        if self.keys is None:
            self.keys, self.values = key.new_zeros(self.shape), value.new_zeros(self.shape)
        places = self.ends[layer] + torch.arange(key.size(2))
        if places[-1] >= self.max_len:
            raise ValueError("full")
        self.keys[layer].index_copy_(2, places, key)
        self.values[layer].index_copy_(2, places, value)
        self.ends[layer] += key.size(2)
        n = int(self.ends[layer])
        return self.keys[layer].narrow(2, 0, n), self.values[layer].narrow(2, 0, n)


class CacheFirstLayerMoves:
    """The place moves on when the first layer appends; it keeps in mind where that was."""

    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.length, self.max_len = 0, max_len
        self.keys, self.values = torch.zeros(2, n_layers, batch, n_heads, max_len, d_k)

    def append(self, layer, key, value):
        if layer == 0:
            self.start, self.length = self.length, self.length + key.size(2)
        if self.length > self.max_len:
            raise ValueError("full")
        self.keys[layer, :, :, self.start : self.length] = key
        self.values[layer, :, :, self.start : self.length] = value
        return self.keys[layer, :, :, : self.length], self.values[layer, :, :, : self.length]


# -- cache: wrong ----------------------------------------------------------------------------------------------------


class CacheCat:
    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.keys, self.values = [None] * n_layers, [None] * n_layers
        self.max_len = max_len

    @property
    def length(self):
        return 0 if self.keys[-1] is None else self.keys[-1].size(2)

    def append(self, layer, key, value):
        if self.keys[layer] is not None:
            key = torch.cat([self.keys[layer], key], 2)
            value = torch.cat([self.values[layer], value], 2)
        if key.size(2) > self.max_len:
            raise ValueError
        self.keys[layer], self.values[layer] = key, value
        return key, value


class _Cache:
    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.n_layers, self.max_len = n_layers, max_len
        self.k = torch.zeros(n_layers, batch, n_heads, max_len, d_k)
        self.v = torch.zeros(n_layers, batch, n_heads, max_len, d_k)
        self.n = [0] * n_layers

    @property
    def length(self):
        return self.n[-1]

    def store(self, layer, key, value):
        start, end = self.n[layer], self.n[layer] + key.size(2)
        if end > self.max_len:
            raise ValueError("full")
        self.k[layer, :, :, start:end], self.v[layer, :, :, start:end] = key, value
        self.n[layer] = end
        return start, end

    def append(self, layer, key, value):
        _, end = self.store(layer, key, value)
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheNewOnly(_Cache):
    def append(self, layer, key, value):
        self.store(layer, key, value)
        return key, value


class CacheBefore(_Cache):
    def append(self, layer, key, value):
        start, _ = self.store(layer, key, value)
        return self.k[layer, :, :, :start], self.v[layer, :, :, :start]


class CacheWhole(_Cache):
    def append(self, layer, key, value):
        self.store(layer, key, value)
        return self.k[layer], self.v[layer]


class CacheGlobalCounter(_Cache):
    count = 0

    @property
    def length(self):
        return self.count // self.n_layers

    def append(self, layer, key, value):
        start, end = self.count, self.count + key.size(2)
        if end > self.max_len:
            raise ValueError("full")
        self.k[layer, :, :, start:end], self.v[layer, :, :, start:end] = key, value
        self.count = end
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheNoError(_Cache):
    def store(self, layer, key, value):
        start, end = self.n[layer], min(self.n[layer] + key.size(2), self.max_len)
        self.k[layer, :, :, start:end] = key[:, :, : end - start]
        self.v[layer, :, :, start:end] = value[:, :, : end - start]
        self.n[layer] = end
        return start, end


class CacheOtherError(_Cache):
    def store(self, layer, key, value):
        if self.n[layer] + key.size(2) > self.max_len:
            raise IndexError("full")
        return super().store(layer, key, value)


class CacheRing(_Cache):
    def append(self, layer, key, value):
        for t in range(key.size(2)):
            place = self.n[layer] % self.max_len
            self.k[layer, :, :, place], self.v[layer, :, :, place] = key[:, :, t], value[:, :, t]
            self.n[layer] += 1
        end = min(self.n[layer], self.max_len)
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheExchanged(_Cache):
    def append(self, layer, key, value):
        keys, values = super().append(layer, key, value)
        return values, keys


class CacheNoReturn(_Cache):
    def append(self, layer, key, value):
        self.store(layer, key, value)


class CacheMethod(_Cache):
    def length(self):
        return self.n[-1]


class CacheNoLength(_Cache):
    length = None


class CacheSingle(_Cache):
    def append(self, layer, key, value):
        if self.n[layer] >= self.max_len:
            raise ValueError("full")
        self.k[layer, :, :, self.n[layer]], self.v[layer, :, :, self.n[layer]] = (
            key[:, :, -1],
            value[:, :, -1],
        )
        self.n[layer] += 1
        return self.k[layer, :, :, : self.n[layer]], self.v[layer, :, :, : self.n[layer]]


class CacheFullTooEarly(_Cache):
    def store(self, layer, key, value):
        if self.n[layer] + key.size(2) >= self.max_len:
            raise ValueError("full")
        return super().store(layer, key, value)


class CacheFirstOfBatch(_Cache):
    def append(self, layer, key, value):
        start, end = self.n[layer], self.n[layer] + key.size(2)
        if end > self.max_len:
            raise ValueError("full")
        self.k[layer, 0, :, start:end], self.v[layer, 0, :, start:end] = key[0], value[0]
        self.n[layer] = end
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheFirstOfBatchEmpty(CacheFirstOfBatch):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.k, self.v = torch.empty_like(self.k), torch.empty_like(self.v)


class CacheSharedMemory(_Cache):
    memory = {}  # noqa: RUF012

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.k, self.v = self.memory.setdefault(sizes, (self.k, self.v))


class CacheSharedCounter(_Cache):
    def __init__(self, n_layers, batch, n_heads, max_len, d_k, n={}):  # noqa: B006
        super().__init__(n_layers, batch, n_heads, max_len, d_k)
        self.n = n.setdefault(max_len, [0] * n_layers)
        self.n[:] = [0] * n_layers


class CacheOnlyIfFull(_Cache):
    def store(self, layer, key, value):
        if self.n[layer] >= self.max_len:
            raise ValueError("full")
        start, end = self.n[layer], self.n[layer] + key.size(2)
        self.k[layer, :, :, start:end], self.v[layer, :, :, start:end] = key, value
        self.n[layer] = end
        return start, end


class CacheMovesAlways(_Cache):
    length = 0

    def append(self, layer, key, value):
        start = self.length
        self.length += key.size(2)
        if self.length > self.max_len:
            raise ValueError("full")
        self.k[layer, :, :, start : self.length], self.v[layer, :, :, start : self.length] = key, value
        return self.k[layer, :, :, : self.length], self.v[layer, :, :, : self.length]


class CacheMovesFirst(_Cache):
    length = 0

    def append(self, layer, key, value):
        start, end = self.length, self.length + key.size(2)
        if end > self.max_len:
            raise ValueError("full")
        self.k[layer, :, :, start:end], self.v[layer, :, :, start:end] = key, value
        if layer == 0:
            self.length = end
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheOneMemory(_Cache):
    def append(self, layer, key, value):
        _, end = self.store(layer, key, value)
        self.k[:], self.v[:] = self.k[layer].clone(), self.v[layer].clone()
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]


class CacheCountsAll(_Cache):
    length = 0

    def append(self, layer, key, value):
        self.length += key.size(2)
        return super().append(layer, key, value)


class CacheClassMemory:
    store = {}  # noqa: RUF012

    def __init__(self, n_layers, batch, n_heads, max_len, d_k):
        self.max_len = max_len
        self.room = torch.zeros(2, n_layers, batch, n_heads, max_len, d_k)

    @property
    def length(self):
        return 0 if self.max_len not in self.store else self.store[self.max_len][0].size(2)

    def append(self, layer, key, value):
        if layer in self.store:
            key = torch.cat([self.store[layer][0], key], 2)
            value = torch.cat([self.store[layer][1], value], 2)
        if key.size(2) > self.max_len:
            raise ValueError
        self.store[layer] = (key, value)
        return key, value


_G = _greedy

RIGHT = {
    "greedy_decode": [
        greedy_cat,
        greedy_full_width,
        greedy_rows,
        GreedyObject(),
        greedy_until_eos_together,
        _G(until="never"),
    ],
    "beam_search": [
        beam_lists,
        beam_tensors,
        beam_heap,
        BeamObject(),
        _beam_ties(lambda e: e),
        _beam_ties(lambda e: e[0], newest_first=True),
    ],
    "KeyValueCache": [CacheBuffers, CacheOneCounter, CacheLists, CacheLazy, CacheFirstLayerMoves],
}
WRONG = {
    "greedy_decode": [
        (_G(pad_after=False), "continues_after_eos"),
        (_G(until="any"), "stops_at_first_eos"),
        (_G(pad_after=False, until="never"), "eos_never_noticed"),
        (_G(first="pad"), "starts_with_pad"),
        (_G(first="one"), "bos_id_ignored"),
        (_G(steps=0), "max_len_without_bos"),
        (_G(steps=-2), "one_too_short"),
        (_G(position=0), "first_position"),
        (_G(last_only=True), "last_token_only"),
        (_G(restore=False), "mode_not_restored"),
        (_G(restore="always train"), "training_mode_afterwards"),
        (_G(evaluate=False), "no_evaluation_mode"),
        (_G(grad=True), "gradient_recorded"),
        (_G(result=lambda tgt: tgt[:, 1:]), "bos_dropped"),
        (_G(result=lambda tgt: tgt.tolist()), "returns_list"),
        (_G(result=lambda tgt: tgt[0]), "returns_first_row"),
        (_G(pad_after=False, evaluate=False), "continues_after_eos"),
        (greedy_samples, "samples"),
        (greedy_item, "one_source_only"),
        (greedy_eos_together, "stops_only_together"),
        (greedy_pad_includes_eos, "eos_replaced_by_pad"),
        (greedy_pads_zero, "pad_id_ignored"),
        (greedy_fills_eos, "repeats_eos"),
        (_G(without=["pad"]), "pad_forbidden"),
        (_G(without=["bos"]), "bos_forbidden"),
        (_G(without=["bos", "pad"]), "bos_and_pad_forbidden"),
        (_G(ends=lambda token, pad_id: token == pad_id), "pad_ends_row"),
        (_G(result=lambda tgt: tgt.float()), "returns_floats"),
        (greedy_forgets, "ended_forgotten"),
        (greedy_flag, "parts_not_restored"),
        (greedy_flag_only, "no_evaluation_mode"),
        (greedy_switches_off, "gradient_left_off"),
    ],
    "beam_search": [
        (_beam(kept=_refill), "finished_free_slots"),
        (_beam(kept=_refill_two_times), "finished_free_slots"),
        (_beam(kept=_shrinking), "beam_shrinks"),
        (beam_finished_stay, "finished_stay"),
        (beam_copies, "greedy"),
        (beam_topk_crashes, "crashes_when_beam_exceeds_extensions"),
        (_beam(stop=lambda ext, pool, size, eos, live: ext[0][0][-1] == eos), "stops_on_best_eos"),
        (
            _beam(stop=lambda ext, pool, size, eos, live: bool(pool), join="if needed"),
            "stops_at_first_finished",
        ),
        (
            _beam(stop=lambda ext, pool, size, eos, live: len(pool) >= size, join="if needed"),
            "stops_with_full_pool+unfinished_only_if_needed",
        ),
        (_beam(join="if needed"), "unfinished_only_if_needed"),
        (_beam(join=False), "unfinished_dropped"),
        (_beam(end=False), "eos_never_noticed"),
        (_beam(score=lambda total, ids, alpha, eos: total / len(ids) ** alpha), "length_counts_bos"),
        (
            _beam(
                score=lambda total, ids, alpha, eos: total / max(len(ids) - 1 - (ids[-1] == eos), 1) ** alpha
            ),
            "length_without_eos",
        ),
        (_beam(score=lambda total, ids, alpha, eos: total), "penalty_ignored"),
        (_beam(score=lambda total, ids, alpha, eos: total / (len(ids) - 1)), "penalty_fixed"),
        (_beam(score=lambda total, ids, alpha, eos: total * (len(ids) - 1) ** alpha), "penalty_multiplied"),
        (
            _beam(score=lambda total, ids, alpha, eos: total / ((4 + len(ids)) / 6) ** alpha),
            "penalty_of_gnmt",
        ),
        (_beam(step=lambda logits: logits), "logits_summed"),
        (_beam(step=lambda logits: logits.softmax(-1)), "probabilities_summed"),
        (_beam(width=lambda size: 1), "greedy"),
        (_beam(width=lambda size: size + 1), "one_too_many"),
        (_beam(longest=1), "max_len_without_bos"),
        (_beam(longest=-1), "one_too_short"),
        (_beam(result=lambda ids, total, value, eos: (ids, total)), "returns_sum"),
        (_beam(result=lambda ids, total, value, eos: (ids, -value)), "returns_negative"),
        (_beam(result=lambda ids, total, value, eos: (ids[1:], value)), "returns_without_bos"),
        (
            _beam(result=lambda ids, total, value, eos: ([i for i in ids if i != eos], value)),
            "returns_without_eos",
        ),
        (_beam(result=lambda ids, total, value, eos: (torch.tensor(ids), value)), "returns_tensor"),
        (_beam(result=lambda ids, total, value, eos: ids), "returns_ids_only"),
        (_beam(result=lambda ids, total, value, eos: (value, ids)), "returns_swapped"),
        (_beam(score=lambda total, ids, alpha, eos: total / (len(ids) - 1) ** int(alpha)), "penalty_whole"),
        (beam_trains, "training_mode_afterwards"),
        (beam_switches_off, "gradient_left_off"),
        (beam_products, "product_becomes_0"),
    ],
    "KeyValueCache": [
        (CacheCat, "not_preallocated"),
        (CacheNewOnly, "returns_new_only"),
        (CacheBefore, "returns_before"),
        (CacheWhole, "returns_buffer"),
        (CacheGlobalCounter, "one_place_for_all_layers"),
        (CacheNoError, "drops_when_full"),
        (CacheOtherError, "other_error_when_full"),
        (CacheRing, "full_cache_accepted"),
        (CacheExchanged, "exchanged"),
        (CacheNoReturn, "returns_nothing"),
        (CacheMethod, "length_is_a_method"),
        (CacheNoLength, "length_is_none"),
        (CacheSingle, "one_at_a_time"),
        (CacheFullTooEarly, "full_one_too_early"),
        (CacheClassMemory, "full_too_early"),
        (CacheFirstOfBatch, "first_of_batch_only"),
        (CacheFirstOfBatchEmpty, None),
        (CacheSharedMemory, "shared_between_caches"),
        (CacheSharedCounter, "shared_between_caches"),
        (CacheOnlyIfFull, "room_not_asked_for"),
        (CacheMovesAlways, "moves_on_with_every_append"),
        (CacheMovesFirst, "moves_on_after_first_layer"),
        (CacheOneMemory, "layers_overwrite"),
        (CacheCountsAll, "length_sums_layers"),
    ],
}
