"""Answers to the exercises of 03_attention, right and wrong, as people write them."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# -- attention_by_loops ----------------------------------------------------------------------------------------------


def loops_matrix(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[1])
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ value


def loops_lists(query, key, value):
    rows = []
    for q in query:
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / len(q) ** 0.5 for k in key]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        rows.append(
            [
                sum(w * v[c] for w, v in zip(weights, value, strict=True)) / sum(weights)
                for c in range(value.shape[1])
            ]
        )
    return np.array(rows)


def loops_einsum(query, key, value):
    s = np.einsum("qd,kd->qk", query / math.sqrt(query.shape[-1]), key)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.einsum("qk,kv->qv", p / p.sum(-1, keepdims=True), value)


class LoopsCallable:
    def __call__(self, query, key, value, verbose=False):
        out = np.zeros((len(query), value.shape[1]))
        for i in range(len(query)):
            s = np.array([np.dot(query[i], key[j]) for j in range(len(key))]) / query.shape[1] ** 0.5
            w = np.exp(s - np.max(s))
            out[i] = (w / w.sum()) @ value
        return out


def loops_no_scale(query, key, value):
    out = np.zeros((query.shape[0], value.shape[1]))
    for i in range(query.shape[0]):
        s = np.array([query[i] @ key[j] for j in range(key.shape[0])])
        w = np.exp(s - s.max())
        out[i] = w @ value / w.sum()
    return out


def loops_d_k(query, key, value):
    s = query @ key.T / query.shape[1]
    w = np.exp(s - s.max(1, keepdims=True))
    return w / w.sum(1, keepdims=True) @ value


def loops_columns(query, key, value):
    s = query @ key.T / np.sqrt(query.shape[1])
    w = np.exp(s - s.max())
    return w / w.sum(0) @ value


def loops_overflow(query, key, value):
    s = np.exp(query @ key.T / np.sqrt(query.shape[1]))
    return s / s.sum(1, keepdims=True) @ value


def loops_no_sum(query, key, value):
    return np.exp(query @ key.T / np.sqrt(query.shape[1])) @ value


def loops_number_of_keys(query, key, value):
    s = query @ key.T / np.sqrt(len(key))
    w = np.exp(s - s.max(1, keepdims=True))
    return w / w.sum(1, keepdims=True) @ value


def loops_linear(query, key, value):
    return query @ key.T / np.sqrt(query.shape[1]) @ value


def loops_in_place(query, key, value):
    query /= np.sqrt(query.shape[1])
    s = query @ key.T
    w = np.exp(s - s.max(1, keepdims=True))
    return w / w.sum(1, keepdims=True) @ value


def loops_first_row(query, key, value):
    out = np.zeros((query.shape[0], value.shape[1]))
    for i in range(query.shape[0]):
        s = np.array([query[i] @ key[j] for j in range(key.shape[0])]) / math.sqrt(query.shape[1])
        w = np.exp(s - s.max())
        out[i] = w @ value / w.sum()
        return out


def loops_online(query, key, value):
    out = np.zeros((len(query), value.shape[1]))
    for i, q in enumerate(query):
        top, total = -np.inf, 0.0
        for k, v in zip(key, value, strict=True):
            score = q @ k / np.sqrt(q.size)
            new = max(top, score)
            shrink = np.exp(top - new)
            total = total * shrink + np.exp(score - new)
            out[i] = out[i] * shrink + np.exp(score - new) * v
            top = new
        out[i] /= total
    return out


def loops_guarded_sum(query, key, value):
    s = query @ key.T / np.sqrt(query.shape[1])
    w = np.exp(s - s.max(1, keepdims=True))
    return w / (w.sum(1, keepdims=True) + 1e-9) @ value


def _loops(keys=None, add_scores=True, add_values=True):
    def attention_by_loops(query, key, value):
        out = np.zeros((len(query), value.shape[1]))
        for i in range(len(query)):
            n = len(key) if keys is None else keys(i, query, key)
            s = np.zeros(n)
            for j in range(n):
                for c in range(query.shape[1]):
                    s[j] = query[i, c] * key[j, c] + (s[j] if add_scores else 0)
                s[j] /= math.sqrt(query.shape[1])
            w = np.exp(s - s.max())
            w /= w.sum()
            for j in range(n):
                out[i] = w[j] * value[j] + (out[i] if add_values else 0)
        return out

    return attention_by_loops


# -- scaled_dot_product_attention ------------------------------------------------------------------------------------


def sdpa_inf(query, key, value, mask=None):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
    weights = torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
    if mask is not None:  # nan_to_num alone leaves NaN gradients in fully masked rows
        empty = ~mask.expand(scores.shape).any(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
    return weights @ value, weights


def sdpa_big_negative(query, key, value, mask=None):
    q = query * query.shape[-1] ** -0.5
    scores = torch.einsum("...qd,...kd->...qk", q, key)
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-1e10, dtype=scores.dtype))
    weights = F.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights * mask
    return torch.einsum("...qk,...kv->...qv", weights, value), weights


def sdpa_renormalised(query, key, value, mask=None):
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(key.size(-1))
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total > 0, total, torch.ones_like(total))
    return torch.matmul(weights, value), weights


def sdpa_by_hand(query, key, value, mask=None, eps=0.0):
    scores = (query.unsqueeze(-2) * key.unsqueeze(-3)).sum(-1) / math.sqrt(query.shape[-1])
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool)
    mask = mask.expand(scores.shape)
    scores = scores - scores.masked_fill(~mask, -1e30).amax(-1, keepdim=True).detach().clamp(min=-1e29)
    e = torch.exp(scores.masked_fill(~mask, -1e5)) * mask
    weights = e / (e.sum(-1, keepdim=True) + (~mask.any(-1, keepdim=True)).to(e.dtype))
    return (weights.unsqueeze(-1) * value.unsqueeze(-3)).sum(-2), weights


def _sdpa(scale=None, fill=-1e9, axis=-1, where="scores", invert=False, tidy=True, order="ow"):
    def scaled(query, key, value, mask=None):
        scores = query @ key.transpose(-2, -1)
        scores = scores / (math.sqrt(query.size(-1)) if scale is None else scale(query, key, value))
        if mask is not None and invert:
            mask = ~mask
        if mask is not None and where == "scores":
            scores = scores.masked_fill(mask == 0, fill)
        if mask is not None and where == "dropped":
            scores.masked_fill(mask == 0, fill)
        weights = torch.softmax(scores, dim=axis)
        if mask is not None and (where == "weights" or (tidy and where == "scores")):
            weights = weights * mask
        output = weights @ value
        return {"ow": (output, weights), "wo": (weights, output), "o": output}[order]

    return scaled


def sdpa_multiplies(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores * mask
    weights = scores.softmax(-1)
    return weights @ value, weights


def sdpa_reshape(query, key, value, mask=None):
    scores = query @ key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2]) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def sdpa_four_dimensions(query, key, value, mask=None):
    _, _, _, _ = query.shape
    return sdpa_big_negative(query, key, value, mask)


def sdpa_in_place(query, key, value, mask=None):
    query /= math.sqrt(query.size(-1))
    return sdpa_big_negative(query * math.sqrt(query.size(-1)), key, value, mask)


def sdpa_detached(query, key, value, mask=None):
    output, weights = sdpa_big_negative(query.detach(), key, value, mask)
    return output, weights


def sdpa_kernel(query, key, value, mask=None):
    attend = F.scaled_dot_product_attention
    output = attend(query, key, value, attn_mask=mask)
    return output, sdpa_big_negative(query, key, value, mask)[1]


def sdpa_nan(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights


def sdpa_nan_to_num(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0.0)
    return weights @ value, weights


def sdpa_renormalised_eps(query, key, value, mask=None):
    weights = (query @ key.mT / math.sqrt(query.size(-1))).softmax(-1)
    if mask is not None:
        weights = weights * mask / ((weights * mask).sum(-1, keepdim=True) + 1e-9)
    return weights @ value, weights


def sdpa_softmax_in_float32(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights


def sdpa_scaled_late(query, key, value, mask=None):
    """Weak fill before the scale, zeros behind the softmax."""
    scores = query @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e4)
    weights = (scores / math.sqrt(query.size(-1))).softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def sdpa_multiplies_twice(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = (scores if mask is None else scores * mask).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights


def sdpa_turned_mask(query, key, value, mask=None):
    return sdpa_big_negative(query, key, value, None if mask is None else mask.mT)


def sdpa_turned_square_mask(query, key, value, mask=None):
    if mask is not None and mask.shape[-1] == mask.shape[-2]:
        mask = mask.mT
    return sdpa_big_negative(query, key, value, mask)


def sdpa_dictionary(query, key, value, mask=None):
    output, weights = sdpa_big_negative(query, key, value, mask)
    return {"output": output, "weights": weights}


def sdpa_dropout(query, key, value, mask=None):
    output, weights = sdpa_big_negative(query, key, value, mask)
    weights = F.dropout(weights, 0.1)
    return weights @ value, weights


def sdpa_no_dim(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = F.softmax(scores)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights


def sdpa_full_output_only(query, key, value, mask=None):
    output, weights = _sdpa(tidy=False)(query, key, value, mask)
    if mask is not None:
        output = output * mask.any(-1, keepdim=True)
    return output, weights


# -- masks -----------------------------------------------------------------------------------------------------------


def pad_view(tokens, pad_id=0):
    return tokens.ne(pad_id).view(tokens.size(0), 1, 1, -1)


def pad_not(tokens, pad_id=0):
    return ~(tokens == pad_id).unsqueeze(1).unsqueeze(2)


def pad_loop(tokens, pad_id=0):
    rows = [[[[t != pad_id for t in row]]] for row in tokens.tolist()]
    return torch.tensor(rows)


def pad_numpy(tokens, pad_id=0, **_):
    return torch.from_numpy((tokens.numpy() != pad_id)[:, np.newaxis, np.newaxis])


def pad_stacked(tokens, pad_id=0):
    return torch.stack([(row != pad_id).reshape(1, 1, -1) for row in tokens.unbind(0)])


def pad_until_first(tokens, pad_id=0):
    return ((tokens == pad_id).cumsum(1) == 0)[:, None, None]


def pad_by_length(tokens, pad_id=0):
    lengths = (tokens != pad_id).sum(1, keepdim=True)
    return (torch.arange(tokens.shape[1]) < lengths)[:, None, None]


def pad_both_axes(tokens, pad_id=0):
    real = tokens != pad_id
    return real[:, None, :, None] & real[:, None, None, :]


def causal_triu(length):
    return ~torch.triu(torch.ones((length, length), dtype=torch.bool), diagonal=1)


def causal_arange(length):
    steps = torch.arange(length)
    return steps[None, :] <= steps[:, None]


def causal_loop(length):
    return torch.tensor([[j <= i for j in range(length)] for i in range(length)])


def causal_numpy(length):
    return torch.from_numpy(np.tri(length, dtype=bool))


RIGHT = {
    "attention_by_loops": [
        loops_matrix,
        loops_lists,
        loops_einsum,
        LoopsCallable(),
        loops_online,
        loops_guarded_sum,
        _loops(),
    ],
    "scaled_dot_product_attention": [
        sdpa_inf,
        sdpa_big_negative,
        sdpa_renormalised,
        sdpa_by_hand,
        _sdpa(),
        _sdpa(fill=-1e20),
        sdpa_nan_to_num,
        sdpa_renormalised_eps,
        sdpa_softmax_in_float32,
    ],
    "padding_mask": [pad_view, pad_not, pad_loop, pad_numpy, pad_stacked],
    "causal_mask": [causal_triu, causal_arange, causal_loop, causal_numpy],
}

WRONG = {
    "attention_by_loops": [
        (loops_no_scale, "no_scale"),
        (loops_d_k, "scale_by_d_k"),
        (loops_columns, "softmax_over_queries"),
        (loops_overflow, "softmax_overflows"),
        (loops_no_sum, "not_normalised"),
        (loops_number_of_keys, "scale_by_sqrt_keys"),
        (loops_linear, "no_softmax"),
        (loops_in_place, "changes_its_input"),
        (loops_first_row, "only_first_query"),
        (_loops(add_values=False), "only_last_value"),
        (_loops(add_scores=False), "only_last_feature"),
        (_loops(lambda i, query, key: len(query)), "as_many_keys_as_queries"),
        (_loops(lambda i, query, key: len(key) - 1), "last_key_missing"),
        (_loops(lambda i, query, key: i + 1), "earlier_keys_only"),
    ],
    "scaled_dot_product_attention": [
        (_sdpa(scale=lambda q, k, v: 1.0), "no_scale"),
        (_sdpa(scale=lambda q, k, v: q.size(-1)), "scale_by_d_k"),
        (_sdpa(scale=lambda q, k, v: math.sqrt(v.size(-1))), "scale_by_sqrt_d_v"),
        (_sdpa(scale=lambda q, k, v: math.sqrt(k.size(-2))), "scale_by_sqrt_keys"),
        (_sdpa(axis=-2), "softmax_over_queries"),
        (_sdpa(invert=True), "mask_inverted"),
        (_sdpa(where="weights"), "mask_after_softmax"),
        (_sdpa(where="dropped"), "mask_ignored"),
        (_sdpa(tidy=False), "full_row_uniform"),
        (_sdpa(fill=-1e-9, tidy=False), "mask_fill_near_zero"),
        (_sdpa(fill=-1e4, tidy=False), "mask_fill_too_weak"),
        (_sdpa(order="wo"), "returns_swapped"),
        (_sdpa(order="o"), "returns_output_only"),
        (sdpa_multiplies, "mask_fill_near_zero"),
        (sdpa_reshape, "key_reshaped"),
        (sdpa_four_dimensions, "fixed_number_of_dimensions"),
        (sdpa_in_place, "changes_its_input"),
        (sdpa_detached, "no_gradient_to_query"),
        (sdpa_kernel, "not_allowed"),
        (sdpa_nan, "full_row_nan"),
        (_sdpa(axis=1), "softmax_over_axis_1"),
        (_sdpa(axis=0), "softmax_over_axis_0"),
        (sdpa_no_dim, None),
        (_sdpa(fill=-1e4), "mask_fill_too_weak"),
        (_sdpa(fill=-1e-9), "mask_fill_near_zero"),
        (_sdpa(fill=1e9), "mask_fill_positive"),
        (sdpa_scaled_late, "mask_fill_too_weak"),
        (sdpa_multiplies_twice, "mask_fill_near_zero"),
        (sdpa_turned_mask, "mask_transposed"),
        (sdpa_turned_square_mask, "mask_transposed"),
        (sdpa_dictionary, "returns_not_two"),
        (sdpa_dropout, "random"),
        (sdpa_full_output_only, "full_row_weights_kept"),
    ],
    "padding_mask": [
        (lambda tokens, pad_id=0: (tokens == pad_id)[:, None, None, :], "inverted"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, None, :, None], "query_axis"),
        (lambda tokens, pad_id=0: (tokens != 0)[:, None, None, :], "pad_id_ignored"),
        (lambda tokens, pad_id=0: tokens != pad_id, "not_broadcastable"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, None], "three_axes"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, None, None, :].float(), "numbers"),
        (lambda tokens, pad_id=0: (tokens > pad_id)[:, None, None, :], "greater_than_pad"),
        (
            lambda tokens, pad_id=0: (tokens != pad_id)[:, None, None].expand(-1, 1, tokens.shape[1], -1),
            "full_matrix",
        ),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, None, None].long(), "integers"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, None, None].byte(), "integers"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[None, None], "axes_in_front"),
        (lambda tokens, pad_id=0: (tokens != pad_id)[:, :, None, None], "axes_at_the_end"),
        (pad_until_first, "false_from_first_padding_on"),
        (pad_by_length, "first_by_count"),
        (pad_both_axes, "queries_hidden_too"),
    ],
    "causal_mask": [
        (lambda length: torch.ones(length, length).triu().bool(), "upper"),
        (lambda length: torch.ones(length, length).tril(-1).bool(), "strict"),
        (lambda length: torch.ones(length, length).tril(1).bool(), "one_too_many"),
        (lambda length: torch.ones(length, length).triu(1).bool(), "inverted"),
        (lambda length: torch.ones(length, length).tril(), "numbers"),
        (nn.Transformer.generate_square_subsequent_mask, "minus_infinity"),
        (lambda length: torch.ones(1, 1, length, length).tril().bool(), "extra_axes"),
        (lambda length: torch.ones(length, length).bool(), "everything"),
        (lambda length: torch.ones(length, length, dtype=torch.long).tril(), "integers"),
        (lambda length: torch.ones(length, length, dtype=torch.uint8).tril(), "integers"),
    ],
}
