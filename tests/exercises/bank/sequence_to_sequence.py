"""Answers to the exercises of 02, right and wrong."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# -- rnn_cell --------------------------------------------------------------------------------------------------------


def rnn_formula(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh + b)


def rnn_joined(x, h, w_xh, w_hh, b):
    return torch.tanh(torch.cat((x, h), dim=1) @ torch.cat((w_xh, w_hh), dim=0) + b)


def rnn_loops(x, h, w_xh, w_hh, b):
    rows = []
    for i in range(x.shape[0]):
        row = []
        for j in range(b.shape[0]):
            s = b[j]
            for a in range(x.shape[1]):
                s = s + x[i, a] * w_xh[a, j]
            for a in range(h.shape[1]):
                s = s + h[i, a] * w_hh[a, j]
            row.append(s.tanh())
        rows.append(torch.stack(row))
    return torch.stack(rows)


class RnnObject:
    def __call__(self, x, h, w_xh, w_hh, b, activation=torch.tanh):
        z = torch.einsum("bi,ij->bj", x, w_xh) + torch.einsum("bi,ij->bj", h, w_hh) + b.unsqueeze(0)
        return activation(z)


def rnn_linear(x, h, w_xh, w_hh, b):
    e = torch.exp(2 * (F.linear(x, w_xh.T, b) + F.linear(h, w_hh.T)))
    return (e - 1) / (e + 1)


def rnn_no_tanh(x, h, w_xh, w_hh, b):
    return x @ w_xh + h @ w_hh + b


def rnn_sigmoid(x, h, w_xh, w_hh, b):
    return torch.sigmoid(x @ w_xh + h @ w_hh + b)


def rnn_no_bias(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh)


def rnn_outside_bias(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh) + b


def rnn_two_tanh(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh) + torch.tanh(h @ w_hh) + b


def rnn_transposed(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh.T + b)


def rnn_no_state(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + b)


def rnn_pair(x, h, w_xh, w_hh, b):
    h = torch.tanh(x @ w_xh + h @ w_hh + b)
    return h, h


def rnn_residual(x, h, w_xh, w_hh, b):
    return h + torch.tanh(x @ w_xh + h @ w_hh + b)


def rnn_detached(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h.detach() @ w_hh + b)


def rnn_in_place(x, h, w_xh, w_hh, b):
    with torch.no_grad():
        h.copy_(torch.tanh(x @ w_xh + h @ w_hh + b))
    return h


def rnn_squeezed(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh + b).squeeze()


def rnn_relu_behind(x, h, w_xh, w_hh, b):
    return torch.tanh(x @ w_xh + h @ w_hh + b).relu()


def rnn_library(x, h, w_xh, w_hh, b):
    return torch.rnn_tanh_cell(x, h, w_xh.T, w_hh.T, b, torch.zeros_like(b))


def rnn_module(x, h, w_xh, w_hh, b):
    cell = nn.RNNCell(x.shape[1], h.shape[1]).to(x.dtype)
    with torch.no_grad():
        cell.weight_ih.copy_(w_xh.T)
        cell.weight_hh.copy_(w_hh.T)
        cell.bias_ih.copy_(b)
        cell.bias_hh.zero_()
    return cell(x, h)


# -- gru_cell --------------------------------------------------------------------------------------------------------


def gru_chunks(x, h, w_ih, w_hh, b_ih, b_hh):
    xr, xz, xn = F.linear(x, w_ih, b_ih).chunk(3, 1)
    hr, hz, hn = F.linear(h, w_hh, b_hh).chunk(3, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return n + z * (h - n)


def gru_slices(x, h, w_ih, w_hh, b_ih, b_hh):
    d = h.size(1)

    def gate(i, s):
        rows = slice(i * d, (i + 1) * d)
        return s @ (w_ih if s is x else w_hh)[rows].T + (b_ih if s is x else b_hh)[rows]

    r = 1 / (1 + torch.exp(-(gate(0, x) + gate(0, h))))
    z = 1 / (1 + torch.exp(-(gate(1, x) + gate(1, h))))
    n = torch.tanh(gate(2, x) + r * gate(2, h))
    return (1 - z) * n + z * h


def gru_joined(x, h, w_ih, w_hh, b_ih, b_hh):
    d = h.shape[-1]
    both = (
        torch.cat((x, h), -1) @ torch.cat((w_ih[: 2 * d], w_hh[: 2 * d]), -1).T
        + b_ih[: 2 * d]
        + b_hh[: 2 * d]
    )
    r, z = both.sigmoid().split(d, -1)
    n = torch.tanh(x @ w_ih[2 * d :].T + b_ih[2 * d :] + r * (h @ w_hh[2 * d :].T + b_hh[2 * d :]))
    return torch.lerp(n, h, z)


def gru_einsum(x, h, w_ih, w_hh, b_ih, b_hh):
    a = torch.einsum("bi,gdi->gbd", x, w_ih.view(3, -1, x.shape[1])) + b_ih.view(3, 1, -1)
    c = torch.einsum("bi,gdi->gbd", h, w_hh.view(3, -1, h.shape[1])) + b_hh.view(3, 1, -1)
    r, z = (a[:2] + c[:2]).sigmoid()
    return (1 - z) * (a[2] + r * c[2]).tanh() + z * h


class GruObject:
    def __call__(self, x, h, w_ih, w_hh, b_ih, b_hh):
        rows = [gru_chunks(x[i : i + 1], h[i : i + 1], w_ih, w_hh, b_ih, b_hh) for i in range(len(x))]
        return torch.cat(rows)


def _gru(order=(0, 1, 2), new=None, result=None, gates=torch.sigmoid):
    def gru_cell(x, h, w_ih, w_hh, b_ih, b_hh):
        a, c = (x @ w_ih.T + b_ih).chunk(3, -1), (h @ w_hh.T + b_hh).chunk(3, -1)
        i, j, k = order
        r, z = gates(a[i] + c[i]), gates(a[j] + c[j])
        d = h.shape[-1]
        w, b = w_hh[k * d : (k + 1) * d], b_hh[k * d : (k + 1) * d]
        n = torch.tanh(a[k] + r * c[k]) if new is None else new(a[k], c[k], r, h, w, b)
        return (1 - z) * n + z * h if result is None else result(n, z, h, r)

    return gru_cell


gru_update_first = _gru(order=(1, 0, 2))
gru_new_first = _gru(order=(1, 2, 0))
gru_reset_before = _gru(new=lambda a, c, r, h, w, b: torch.tanh(a + (r * h) @ w.T + b))
gru_reset_bias = _gru(new=lambda a, c, r, h, w, b: torch.tanh(a + r * (h @ w.T) + b))
gru_no_reset = _gru(new=lambda a, c, r, h, w, b: torch.tanh(a + c))
gru_sigmoid_new = _gru(new=lambda a, c, r, h, w, b: torch.sigmoid(a + r * c))
gru_reset_all = _gru(new=lambda a, c, r, h, w, b: torch.tanh(r * (a + c)))
gru_inverted = _gru(result=lambda n, z, h, r: z * n + (1 - z) * h)
gru_no_update = _gru(result=lambda n, z, h, r: n)
gru_both = _gru(result=lambda n, z, h, r: z * n + z * h)
gru_tanh_gates = _gru(gates=torch.tanh)
gru_reset_behind = _gru(new=lambda a, c, r, h, w, b: torch.tanh(a + c) * r)
gru_hard_gates = _gru(gates=F.hardsigmoid)
gru_squeezed = _gru(result=lambda n, z, h, r: ((1 - z) * n + z * h).squeeze())
gru_raw_gates = _gru(gates=lambda t: t)


def gru_no_hidden_bias(x, h, w_ih, w_hh, b_ih, b_hh):
    return gru_chunks(x, h, w_ih, w_hh, b_ih, torch.zeros_like(b_hh))


def gru_biases_once(x, h, w_ih, w_hh, b_ih, b_hh):
    return gru_chunks(x, h, w_ih, w_hh, b_hh, b_ih)


def gru_interleaved(x, h, w_ih, w_hh, b_ih, b_hh):
    b, d = h.shape
    xr, xz, xn = F.linear(x, w_ih, b_ih).view(b, d, 3).unbind(-1)
    hr, hz, hn = F.linear(h, w_hh, b_hh).view(b, d, 3).unbind(-1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return (1 - z) * torch.tanh(xn + r * hn) + z * h


def gru_x_gates(x, h, w_ih, w_hh, b_ih, b_hh):
    a, c = (x @ w_ih.T + b_ih).chunk(3, -1), (h @ w_hh.T + b_hh).chunk(3, -1)
    r, z = a[0].sigmoid(), a[1].sigmoid()
    return (1 - z) * torch.tanh(a[2] + r * c[2]) + z * h


def gru_pair(x, h, w_ih, w_hh, b_ih, b_hh):
    h = gru_chunks(x, h, w_ih, w_hh, b_ih, b_hh)
    return h, h


def gru_no_grad(x, h, w_ih, w_hh, b_ih, b_hh):
    with torch.no_grad():
        return gru_chunks(x, h, w_ih, w_hh, b_ih, b_hh)


def gru_library(x, h, w_ih, w_hh, b_ih, b_hh):
    return torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)


def gru_internal(x, h, w_ih, w_hh, b_ih, b_hh):
    return torch._VF.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)


# -- attention: parts ------------------------------------------------------------------------------------------------


def additive_plain(state, encoder_states, w_s, w_e, v, mask=None):
    energy = torch.tanh((state @ w_s).unsqueeze(1) + encoder_states @ w_e) @ v
    if mask is not None:
        energy = energy.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(energy, dim=1)
    return torch.bmm(weights.unsqueeze(1), encoder_states).squeeze(1), weights


def additive_einsum(state, encoder_states, w_s, w_e, v, mask=None, temperature=1.0):
    hidden = torch.tanh(
        torch.einsum("bd,da->ba", state, w_s)[:, None] + torch.einsum("btd,da->bta", encoder_states, w_e)
    )
    scores = torch.einsum("bta,a->bt", hidden, v)
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, -1e9).to(scores.dtype)
    weights = F.softmax(scores, -1)
    return torch.einsum("bt,btd->bd", weights, encoder_states), weights


def additive_loops(state, encoder_states, w_s, w_e, v, mask=None):
    contexts, all_weights = [], []
    for i in range(len(state)):
        scores = [torch.dot(v, torch.tanh(state[i] @ w_s + e @ w_e)) for e in encoder_states[i]]
        top = max(scores)
        exps = [(s - top).exp() for s in scores]
        if mask is not None:
            exps = [e if m else 0 * e for e, m in zip(exps, mask[i], strict=True)]
        weights = torch.stack(exps) / sum(exps)
        contexts.append(sum(w * e for w, e in zip(weights, encoder_states[i], strict=True)))
        all_weights.append(weights)
    return torch.stack(contexts), torch.stack(all_weights)


class AdditiveObject:
    def __call__(self, state, encoder_states, w_s, w_e, v, mask=None):
        b, t, d = encoder_states.shape
        both = torch.cat((state[:, None].expand(b, t, d), encoder_states), dim=-1)
        scores = (torch.tanh(both @ torch.cat((w_s, w_e))) * v).sum(-1)
        weights = scores.softmax(-1)
        if mask is not None:  # renormalised afterwards: the same
            weights = weights * mask
            weights = weights / weights.sum(-1, keepdim=True)
        return [(weights.unsqueeze(-1) * encoder_states).sum(1), weights]


def _renormalised(scores, states, mask):
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
    return torch.einsum("bt,btd->bd", weights, states), weights


def additive_renormalised(state, encoder_states, w_s, w_e, v, mask=None):
    return _renormalised(_scores(state, encoder_states, w_s, w_e, v), encoder_states, mask)


def dot_renormalised(state, encoder_states, mask=None):
    return _renormalised(_scores(state, encoder_states), encoder_states, mask)


def dot_plain(state, encoder_states, mask=None):
    scores = torch.bmm(encoder_states, state.unsqueeze(2)).squeeze(2)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(weights.unsqueeze(1), encoder_states).squeeze(1), weights


def dot_einsum(state, encoder_states, mask=None):
    scores = torch.einsum("bd,btd->bt", state, encoder_states)
    if mask is not None:
        scores = torch.where(mask, scores, torch.full_like(scores, -math.inf))
    weights = scores.softmax(1)
    return torch.einsum("bt,btd->bd", weights, encoder_states), weights


def dot_library(state, encoder_states, mask=None):
    scores = (state[:, None] * encoder_states).sum(-1)
    bias = (
        torch.zeros_like(scores) if mask is None else torch.zeros_like(scores).masked_fill(~mask, -math.inf)
    )
    weights = (scores + bias).softmax(-1)
    m = None if mask is None else mask[:, None]
    out = F.scaled_dot_product_attention(state[:, None], encoder_states, encoder_states, m, scale=1.0)
    return out[:, 0], weights


def dot_loops(state, encoder_states, mask=None):
    contexts, rows = [], []
    for i in range(state.size(0)):
        allowed = range(encoder_states.size(1)) if mask is None else mask[i].nonzero().flatten().tolist()
        scores = torch.stack([state[i] @ encoder_states[i, j] for j in allowed])
        w = (scores - scores.max()).exp()
        w = w / w.sum()
        row = state.new_zeros(encoder_states.size(1)).index_put((torch.tensor(list(allowed)),), w)
        rows.append(row)
        contexts.append(row @ encoder_states[i])
    return torch.stack(contexts), torch.stack(rows)


class DotObject(nn.Module):
    def forward(self, state, encoder_states, mask=None):
        scores = encoder_states.matmul(state.unsqueeze(-1)).squeeze(-1)
        weights = nn.Softmax(dim=1)(scores if mask is None else scores.masked_fill(mask.logical_not(), -1e30))
        return weights.unsqueeze(1).matmul(encoder_states).squeeze(1), weights


# -- attention: wrong ------------------------------------------------------------------------------------------------


def _scores(state, states, w_s=None, w_e=None, v=None):
    if w_s is None:
        return torch.einsum("bd,btd->bt", state, states)
    return torch.tanh((state @ w_s)[:, None] + states @ w_e) @ v


def _wrong(finish, scores=_scores):
    """The same mistake in both attentions."""

    def additive_attention(state, encoder_states, w_s, w_e, v, mask=None):
        return finish(scores(state, encoder_states, w_s, w_e, v), state, encoder_states, mask)

    def dot_product_attention(state, encoder_states, mask=None):
        return finish(scores(state, encoder_states), state, encoder_states, mask)

    return additive_attention, dot_product_attention


def _sum(weights, states):
    return (weights.unsqueeze(-1) * states).sum(1)


def _finish(scores, states, mask, fill=-math.inf, dim=-1):
    if mask is not None:
        scores = scores.masked_fill(~mask, fill)
    weights = scores.softmax(dim)
    return _sum(weights, states), weights


def _after(scores, state, states, mask):
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
    return _sum(weights, states), weights


def _weak_then_zeroed(scores, state, states, mask):
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e4)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0)
    return _sum(weights, states), weights


def _multiplied_twice(scores, state, states, mask):
    weights = (scores if mask is None else scores * mask).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return _sum(weights, states), weights


def _hardmax(scores, state, states, mask):
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores)
    return _sum(weights, states), weights


def _turned(scores, state, states, mask):
    context, weights = _finish(scores, states, mask)
    return context, weights.T


def _clamped(scores, state, states, mask):
    e = scores.clamp(-50, 50).exp()
    if mask is not None:
        e = e * mask
    weights = e / e.sum(-1, keepdim=True)
    return _sum(weights, states), weights


def _multiplied(scores, state, states, mask):
    weights = (scores if mask is None else scores * mask).softmax(-1)
    return _sum(weights, states), weights


def _added(scores, state, states, mask):
    weights = (scores if mask is None else scores + mask.to(scores.dtype)).softmax(-1)
    return _sum(weights, states), weights


def _inverted(scores, state, states, mask):
    return _finish(scores, states, None if mask is None else ~mask)


def _dropped(scores, state, states, mask):
    if mask is not None:
        scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    return _sum(weights, states), weights


def _naive(scores, state, states, mask):
    e = scores.exp()
    if mask is not None:
        e = e * mask
    weights = e / e.sum(-1, keepdim=True)
    return _sum(weights, states), weights


def _swapped(scores, state, states, mask):
    context, weights = _finish(scores, states, mask)
    return weights, context


def _with_axes(scores, state, states, mask):
    weights = _finish(scores, states, mask)[1][:, None]
    return weights @ states, weights


def _squeezes(scores, state, states, mask):
    weights = _finish(scores, states, mask)[1][:, None]
    return (weights @ states).squeeze(), weights.squeeze()


def _context_first_of_mean(scores, state, states, mask):
    return states.mean(1), _finish(scores, states, mask)[1]


def _in_place(scores, state, states, mask):
    if mask is not None:
        with torch.no_grad():
            states.mul_(mask[..., None])
    return _finish(scores, states, mask)


def _detached(scores, state, states, mask):
    return _finish(scores.detach(), states, mask)


additive_scaled, dot_scaled = _wrong(lambda s, q, e, m: _finish(s / math.sqrt(q.shape[-1]), e, m))
additive_batch, dot_batch = _wrong(lambda s, q, e, m: _finish(s, e, m, dim=0))
additive_after, dot_after = _wrong(_after)
additive_weak_zeroed, dot_weak_zeroed = _wrong(_weak_then_zeroed)
additive_twice, dot_twice = _wrong(_multiplied_twice)
additive_hardmax, dot_hardmax = _wrong(_hardmax)
additive_turned, dot_turned = _wrong(_turned)
additive_clamped, dot_clamped = _wrong(_clamped)
additive_multiplied, dot_multiplied = _wrong(_multiplied)
additive_added, dot_added = _wrong(_added)
additive_inverted, dot_inverted = _wrong(_inverted)
additive_dropped, dot_dropped = _wrong(_dropped)
additive_weak, dot_weak = _wrong(lambda s, q, e, m: _finish(s, e, m, fill=-1e4))
additive_tiny, dot_tiny = _wrong(lambda s, q, e, m: _finish(s, e, m, fill=-1e-9))
additive_naive, dot_naive = _wrong(_naive)
additive_swapped, dot_swapped = _wrong(_swapped)
additive_axes, dot_axes = _wrong(_with_axes)
additive_squeezes, dot_squeezes = _wrong(_squeezes)
additive_mean, dot_mean = _wrong(_context_first_of_mean)
additive_in_place, dot_in_place = _wrong(_in_place)
additive_detached, dot_detached = _wrong(_detached)
additive_context_only, dot_context_only = _wrong(lambda s, q, e, m: _finish(s, e, m)[0])


def additive_linear(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(((state @ w_s)[:, None] + encoder_states @ w_e) @ v, encoder_states, mask)


def additive_two_tanh(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(
        (torch.tanh(state @ w_s)[:, None] + torch.tanh(encoder_states @ w_e)) @ v, encoder_states, mask
    )


def additive_no_v(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(torch.tanh((state @ w_s)[:, None] + encoder_states @ w_e).sum(-1), encoder_states, mask)


def additive_exchanged(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(_scores(state, encoder_states, w_e, w_s, v), encoder_states, mask)


def additive_projected(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(_scores(state, encoder_states, w_s, w_e, v), encoder_states @ w_e, mask)


def additive_only_w_e(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(((state[:, None] + encoder_states) @ w_e).tanh() @ v, encoder_states, mask)


def additive_only_w_s(state, encoder_states, w_s, w_e, v, mask=None):
    return _finish(((state[:, None] + encoder_states) @ w_s).tanh() @ v, encoder_states, mask)


def additive_v_inside(state, encoder_states, w_s, w_e, v, mask=None):
    hidden = (state @ w_s)[:, None] + encoder_states @ w_e
    return _finish(torch.tanh(hidden * v).sum(-1), encoder_states, mask)


def dot_reshaped(state, encoder_states, mask=None):
    b, t, d = encoder_states.shape
    return _finish((state.unsqueeze(1) @ encoder_states.view(b, d, t)).squeeze(1), encoder_states, mask)


def dot_cosine(state, encoder_states, mask=None):
    return _finish(F.cosine_similarity(state[:, None], encoder_states, dim=-1), encoder_states, mask)


RIGHT = {
    "rnn_cell": [rnn_formula, rnn_joined, rnn_loops, RnnObject(), rnn_linear],
    "gru_cell": [gru_chunks, gru_slices, gru_joined, gru_einsum, GruObject()],
    "additive_attention": [
        additive_plain,
        additive_einsum,
        additive_loops,
        AdditiveObject(),
        additive_renormalised,
    ],
    "dot_product_attention": [dot_plain, dot_einsum, dot_library, dot_loops, DotObject(), dot_renormalised],
}

WRONG = {
    "rnn_cell": [
        (rnn_no_tanh, "no_tanh"),
        (rnn_sigmoid, "sigmoid"),
        (rnn_no_bias, "bias_ignored"),
        (rnn_outside_bias, "tanh_before_bias"),
        (rnn_two_tanh, "tanh_of_each_part"),
        (rnn_transposed, "w_hh_transposed"),
        (rnn_no_state, "state_ignored"),
        (rnn_pair, "returns_two"),
        (rnn_residual, "old_state_added"),
        (rnn_detached, "no_gradient_to_h"),
        (rnn_in_place, "changes_its_input"),
        (rnn_squeezed, "squeezes"),
        (rnn_relu_behind, "relu_after_tanh"),
        (rnn_library, "not_allowed"),
        (rnn_module, "not_allowed"),
    ],
    "gru_cell": [
        (gru_update_first, "order_update_reset_new"),
        (gru_new_first, "order_new_reset_update"),
        (gru_reset_before, "reset_before_product"),
        (gru_reset_bias, "reset_without_bias"),
        (gru_no_reset, "reset_missing"),
        (gru_sigmoid_new, "new_with_sigmoid"),
        (gru_reset_all, "reset_on_everything"),
        (gru_inverted, "update_inverted"),
        (gru_no_update, "update_missing"),
        (gru_both, "both_times_update"),
        (gru_tanh_gates, "gates_with_tanh"),
        (gru_raw_gates, "gates_without_sigmoid"),
        (gru_no_hidden_bias, "b_hh_ignored"),
        (gru_biases_once, "biases_exchanged"),
        (gru_interleaved, "rows_interleaved"),
        (gru_x_gates, "gates_from_x_only"),
        (gru_reset_behind, "reset_on_result"),
        (gru_hard_gates, "gates_with_hardsigmoid"),
        (gru_squeezed, "squeezes"),
        (gru_pair, "returns_two"),
        (gru_no_grad, "gradient_cut_off"),
        (gru_library, "not_allowed"),
        (gru_internal, "not_allowed"),
    ],
    "additive_attention": [
        (additive_scaled, "scaled"),
        (additive_batch, "softmax_over_batch"),
        (additive_after, "mask_after_softmax"),
        (additive_multiplied, "mask_fill_near_zero"),
        (additive_added, "mask_added"),
        (additive_inverted, "mask_inverted"),
        (additive_dropped, "mask_ignored"),
        (additive_weak, "mask_fill_too_weak"),
        (additive_tiny, "mask_fill_near_zero"),
        (additive_naive, "softmax_overflows"),
        (additive_swapped, "returns_swapped"),
        (additive_axes, "both_with_axis"),
        (additive_squeezes, "squeezes_axes_of_size_1"),
        (additive_mean, "context_is_mean"),
        (additive_in_place, "changes_its_input"),
        (additive_detached, "no_gradient_to_state"),
        (additive_context_only, "returns_context_only"),
        (additive_weak_zeroed, "mask_fill_too_weak"),
        (additive_twice, "mask_fill_near_zero"),
        (additive_hardmax, "hardmax"),
        (additive_turned, "weights_transposed"),
        (additive_clamped, "scores_clamped"),
        (additive_only_w_e, "one_matrix_w_e"),
        (additive_only_w_s, "one_matrix"),
        (additive_v_inside, "v_inside_tanh"),
        (additive_linear, "no_tanh"),
        (additive_two_tanh, "state_ignored"),
        (additive_no_v, "v_ignored"),
        (additive_exchanged, "matrices_exchanged"),
        (additive_projected, "context_of_projected"),
    ],
    "dot_product_attention": [
        (dot_scaled, "scaled"),
        (dot_batch, "softmax_over_batch"),
        (dot_after, "mask_after_softmax"),
        (dot_multiplied, "mask_fill_near_zero"),
        (dot_added, "mask_added"),
        (dot_inverted, "mask_inverted"),
        (dot_dropped, "mask_ignored"),
        (dot_weak, "mask_fill_too_weak"),
        (dot_tiny, "mask_fill_near_zero"),
        (dot_naive, "softmax_overflows"),
        (dot_swapped, "returns_swapped"),
        (dot_axes, "both_with_axis"),
        (dot_squeezes, "squeezes_axes_of_size_1"),
        (dot_mean, "context_is_mean"),
        (dot_in_place, "changes_its_input"),
        (dot_detached, "no_gradient_to_state"),
        (dot_context_only, "returns_context_only"),
        (dot_weak_zeroed, "mask_fill_too_weak"),
        (dot_twice, "mask_fill_near_zero"),
        (dot_hardmax, "hardmax"),
        (dot_turned, "weights_transposed"),
        (dot_clamped, "scores_clamped"),
        (dot_reshaped, "states_reshaped"),
        (dot_cosine, "cosine"),
    ],
}
