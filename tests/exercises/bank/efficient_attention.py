"""Answers to the exercises of 16_efficient_attention, right and wrong, as people write them."""

import math

import numpy as np
import torch
import torch.nn.functional as F

# -- local_attention_mask --------------------------------------------------------------------------------------------


def window_broadcast(length, window):
    i = torch.arange(length)
    return torch.abs(i.unsqueeze(0) - i.unsqueeze(1)) <= window


def window_triangles(length, window):
    ones = torch.ones(length, length, dtype=torch.bool)
    return ones.tril(window) & ones.triu(-window)


def window_loops(length, window):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(max(0, i - window), min(length, i + window + 1)):
            mask[i, j] = True
    return mask


def window_lists(length, window, device="cpu"):
    return torch.tensor([[abs(i - j) <= window for j in range(length)] for i in range(length)], device=device)


def window_numpy(length, window):
    rows, columns = np.indices((length, length))
    return torch.from_numpy(np.abs(rows - columns) <= window)


def window_circle(length, window):
    i = torch.arange(length)
    d = (i[:, None] - i).abs()
    return torch.minimum(d, length - d) <= window


def window_as_blocks(length, window):
    block = torch.arange(length) // max(window, 1)
    return block[:, None] == block


def window_additive(length, window):
    i = torch.arange(length)
    return torch.zeros(length, length).masked_fill((i[:, None] - i).abs() > window, float("-inf"))


def window_no_edges(length, window):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(window, length - window):
        mask[i, i - window : i + window + 1] = True
    return mask


def window_exclusive_slice(length, window):
    """The end of the slice is forgotten: i + window in the place of i + window + 1."""
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        mask[i, max(0, i - window) : i + window] = True
    return mask


def _window(rule):
    def local_attention_mask(length, window):
        i = torch.arange(length)
        return rule(i[:, None], i[None, :], window)

    return local_attention_mask


WINDOWS_WRONG = [
    (_window(lambda i, j, w: (i - j).abs() < w), "strictly_less"),
    (_window(lambda i, j, w: (i - j).abs() <= w // 2), "window_is_total"),
    (_window(lambda i, j, w: (i - j) <= w), "future_unlimited"),
    (_window(lambda i, j, w: (i >= j) & (i - j <= w)), "past_only"),
    (_window(lambda i, j, w: (i - j).abs() > w), "inverted"),
    (_window(lambda i, j, w: ((i - j).abs() <= w).float()), "numbers"),
    (_window(lambda i, j, w: ((i - j).abs() <= w)[None, None]), "extra_axes"),
    (_window(lambda i, j, w: ((i - j).abs() <= w) & (i != j)), "without_itself"),
    (_window(lambda i, j, w: (i - j).abs() <= w + 1), "one_too_wide"),
    (_window(lambda i, j, w: (i >= j) & ((i - j).abs() < w)), "strictly_less+past_only"),
    (window_circle, "wraps_around"),
    (window_as_blocks, "blocks"),
    (window_additive, "minus_infinity"),
    (window_no_edges, "edges_cut"),
    (window_exclusive_slice, None),
]

# -- linear_attention: right -----------------------------------------------------------------------------------------


def linear_quadratic(query, key, value, causal=False, key_mask=None):
    """All weights at once: the definition."""
    w = torch.einsum("bhid,bhjd->bhij", F.elu(query) + 1, F.elu(key) + 1)
    if causal:
        w = w.masked_fill(torch.ones(w.shape[-2:]).triu(1).bool(), 0.0)
    if key_mask is not None:
        w = w * key_mask[:, None, None].to(w.dtype)
    return w @ value / w.sum(-1, keepdim=True)


def linear_loop(query, key, value, causal=False, key_mask=None):
    """A recurrent network whose state is a matrix, changed in place."""
    b, h, t, d = query.shape
    q, k = F.elu(query) + 1.0, F.elu(key) + 1.0
    if key_mask is not None:
        k = k.masked_fill(~key_mask.view(b, 1, t, 1), 0)
    if not causal:
        s = torch.einsum("bhtd,bhte->bhde", k, value)
        return torch.einsum("bhtd,bhde->bhte", q, s) / torch.einsum("bhtd,bhd->bht", q, k.sum(2)).unsqueeze(
            -1
        )
    s, z = torch.zeros(b, h, d, d, dtype=q.dtype), torch.zeros(b, h, d, dtype=q.dtype)
    out = torch.empty_like(value)
    for i in range(t):
        s += k[:, :, i, :, None] * value[:, :, i, None, :]
        z += k[:, :, i]
        out[:, :, i] = (q[:, :, i, None, :] @ s)[:, :, 0] / ((q[:, :, i] * z).sum(-1, keepdim=True) + 1e-6)
    return out


def linear_epsilon(query, key, value, causal=False, key_mask=None, eps=1e-6):
    def phi(x):
        return torch.where(x > 0, x + 1, torch.exp(x))

    q, k, v = phi(query), phi(key), value
    if key_mask is not None:
        m = key_mask.unsqueeze(1).unsqueeze(-1)
        k, v = k * m, v * m
    if causal:
        kv = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
        z = 1 / (torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)) + eps)
        return torch.einsum("bhtd,bhtde,bht->bhte", q, kv, z)
    z = 1 / (torch.einsum("bhtd,bhd->bht", q, k.sum(2)) + eps)
    return torch.einsum("bhtd,bhde,bht->bhte", q, k.transpose(-1, -2) @ v, z)


def linear_per_head(query, key, value, causal=False, key_mask=None):
    out = torch.zeros_like(value)
    for b in range(query.size(0)):
        for h in range(query.size(1)):
            for i in range(query.size(2)):
                total, norm = 0, 0
                for j in range(i + 1 if causal else key.size(2)):
                    if key_mask is not None and not key_mask[b, j]:
                        continue
                    w = (F.elu(query[b, h, i]) + 1) @ (F.elu(key[b, h, j]) + 1)
                    total, norm = total + w * value[b, h, j], norm + w
                out[b, h, i] = total / norm
    return out


def linear_value_with_one(query, key, value, causal=False, key_mask=None):
    """The normaliser comes for free when each value gets a 1 at its end."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    v = torch.cat([value, torch.ones_like(value[..., :1])], -1)
    if key_mask is not None:
        k = torch.where(key_mask[:, None, :, None], k, torch.zeros_like(k))
    s = k.unsqueeze(-1) * v.unsqueeze(-2)
    s = s.cumsum(2) if causal else s.sum(2, keepdim=True)
    o = (q.unsqueeze(-2) @ s).squeeze(-2)
    return o[..., :-1] / o[..., -1:]


def linear_numpy(query, key, value, causal=False, key_mask=None):
    q, k = (
        np.where(m > 0, m + 1, np.exp(np.minimum(m, 0)))
        for m in (query.detach().numpy(), key.detach().numpy())
    )
    w = q @ k.swapaxes(-1, -2)
    if key_mask is not None:
        w = w * key_mask.numpy()[:, None, None]
    if causal:
        w = np.tril(w)
    return torch.from_numpy(w @ value.detach().numpy() / w.sum(-1, keepdims=True))


def linear_larger_epsilon(query, key, value, causal=False, key_mask=None):
    return linear_epsilon(query, key, value, causal, key_mask, eps=1e-5)


def linear_hidden_before_phi(query, key, value, causal=False, key_mask=None):
    """φ(−10⁹) is exactly 0."""
    if key_mask is not None:
        key = key.masked_fill(~key_mask[:, None, :, None], -1e9)
    return linear_quadratic(query, key, value, causal)


# -- linear_attention: wrong -----------------------------------------------------------------------------------------


def _linear(
    phi=lambda x: F.elu(x) + 1, phi_k=None, norm="right", mask="keys", causal_rule="right", scale=None
):
    def linear_attention(query, key, value, causal=False, key_mask=None):
        if scale is not None:
            query = query * scale(query)
        q, k = phi(query), (phi_k or phi)(key)
        v = value
        k_norm = k
        if key_mask is not None:
            keep = key_mask[:, None, :, None]
            if mask == "inverted":
                keep = ~keep
            if mask in ("keys", "inverted"):
                k = k_norm = k * keep
            elif mask == "values":
                v = v * keep
            elif mask == "before":
                k = k_norm = phi(key * keep)
            elif mask == "normaliser":
                k_norm = k * keep
        if causal_rule == "always":
            causal = True
        if causal and causal_rule != "ignored":
            s, z = (k[..., None] * v[..., None, :]).cumsum(2), k_norm.cumsum(2)
            if causal_rule == "strict":
                s, z = s - k[..., None] * v[..., None, :], z - k_norm
            if causal_rule == "numerator only":
                z = k_norm.sum(2, keepdim=True)
        else:
            s, z = (k.transpose(-1, -2) @ v)[:, :, None], k_norm.sum(2, keepdim=True)
        out = (q[..., None, :] @ s)[..., 0, :]
        n = (q * z).sum(-1, keepdim=True)
        if norm == "none":
            return out
        if norm == "multiplied":
            return out * n
        if norm == "keys":
            return out / z.sum(-1, keepdim=True)
        if norm == "count":
            return out / query.size(2)
        return out / n

    return linear_attention


def linear_softmax(query, key, value, causal=False, key_mask=None):
    s = query @ key.mT / math.sqrt(query.size(-1))
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), -1e9)
    if key_mask is not None:
        s = s.masked_fill(~key_mask[:, None, None], -1e9)
    return s.softmax(-1) @ value


def linear_library(query, key, value, causal=False, key_mask=None):
    return F.scaled_dot_product_attention(F.elu(query) + 1, F.elu(key) + 1, value, is_causal=causal)


def linear_value_key(query, key, value, causal=False, key_mask=None):
    """vᵀφ(k) in the place of φ(k)ᵀv."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if key_mask is not None:
        k = k * key_mask[:, None, :, None]
    outer = value[..., None] * k[..., None, :]
    s = outer.cumsum(2) if causal else outer.sum(2, keepdim=True)
    z = k.cumsum(2) if causal else k.sum(2, keepdim=True)
    return (q[..., None, :] @ s)[..., 0, :] / (q * z).sum(-1, keepdim=True)


def linear_efficient(query, key, value, causal=False, key_mask=None):
    """Softmax over the features of the query and over the positions of the key."""
    w = query.softmax(-1) @ key.softmax(-2).mT
    if causal:
        w = w.tril()
    if key_mask is not None:
        w = w * key_mask[:, None, None]
    return w @ value / w.sum(-1, keepdim=True)


def linear_default_causal(query, key, value, causal=True, key_mask=None):
    return linear_quadratic(query, key, value, causal, key_mask)


def linear_float(query, key, value, causal=False, key_mask=None):
    return linear_quadratic(query.float(), key.float(), value.float(), causal, key_mask)


def linear_float_inside(query, key, value, causal=False, key_mask=None):
    return linear_float(query, key, value, causal, key_mask).to(query.dtype)


def linear_large_epsilon(query, key, value, causal=False, key_mask=None):
    return linear_epsilon(query, key, value, causal, key_mask, eps=1e-4)


@torch.no_grad()
def linear_no_grad(query, key, value, causal=False, key_mask=None):
    return linear_quadratic(query, key, value, causal, key_mask)


def linear_sum_detached(query, key, value, causal=False, key_mask=None):
    if causal:
        return linear_quadratic(query, key, value, causal, key_mask)
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if key_mask is not None:
        k = k * key_mask[:, None, :, None]
    return q @ (k.mT @ value) / (q @ k.sum(2)[..., None]).detach()


def linear_in_place(query, key, value, causal=False, key_mask=None):
    if key_mask is not None:
        value *= key_mask[:, None, :, None]
    return linear_quadratic(query, key, value, causal, key_mask)


def linear_mask_rows(query, key, value, causal=False, key_mask=None):
    out = linear_quadratic(query, key, value, causal)
    return out if key_mask is None else out * key_mask[:, None, :, None]


def linear_mask_only_without_causal(query, key, value, causal=False, key_mask=None):
    return (
        linear_quadratic(query, key, value, True)
        if causal
        else linear_quadratic(query, key, value, False, key_mask)
    )


LINEAR_WRONG = [
    (_linear(phi=F.elu), "elu_without_one"),
    (_linear(phi=torch.relu), "relu_feature"),
    (_linear(phi=torch.exp), "exp_feature"),
    (_linear(phi=lambda x: F.elu(x + 1)), "one_inside_elu"),
    (_linear(phi=lambda x: F.relu(x) + 1), "relu_plus_one"),
    (_linear(phi_k=lambda x: x), "feature_of_query_only"),
    (_linear(scale=lambda q: q.size(-1) ** -0.5), "query_scaled"),
    (_linear(norm="none"), "no_normaliser"),
    (_linear(norm="multiplied"), "normaliser_multiplied"),
    (_linear(norm="count"), "divided_by_number_of_keys"),
    (_linear(norm="keys"), "divided_by_sum_of_keys"),
    (_linear(mask="inverted"), "mask_inverted"),
    (_linear(mask="values"), "padding_in_normaliser"),
    (_linear(mask="before"), "mask_before_feature"),
    (_linear(mask="none"), "mask_ignored"),
    (_linear(mask="normaliser"), "padding_in_numerator"),
    (_linear(causal_rule="ignored"), "causal_ignored"),
    (_linear(causal_rule="always"), "always_causal"),
    (_linear(causal_rule="strict"), "causal_strict"),
    (_linear(causal_rule="numerator only"), "normaliser_not_causal"),
    (_linear(phi=torch.exp, mask="values"), "exp_feature+padding_in_normaliser"),
    (linear_softmax, "softmax_attention"),
    (linear_library, "not_allowed"),
    (linear_value_key, "state_transposed"),
    (linear_efficient, "softmax_features"),
    (linear_default_causal, "causal_by_default"),
    (linear_float, "wrong_dtype"),
    (linear_float_inside, None),
    (linear_large_epsilon, None),
    (linear_no_grad, "gradient_cut_off"),
    (linear_sum_detached, "wrong_gradient"),
    (linear_in_place, "changes_its_input"),
    (linear_mask_rows, "mask_on_queries"),
    (linear_mask_only_without_causal, "mask_ignored_when_causal"),
]

# -- online_softmax_attention: right ---------------------------------------------------------------------------------


def online_range(query, key, value, block):
    b, h, tq, d = query.shape
    m = torch.full((b, h, tq), float("-inf"), dtype=query.dtype)
    s = torch.zeros(b, h, tq, dtype=query.dtype)
    acc = torch.zeros(b, h, tq, value.shape[-1], dtype=query.dtype)
    for start in range(0, key.shape[2], block):
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key[:, :, start : start + block]) * d**-0.5
        m_new = torch.maximum(m, scores.max(-1).values)
        p = torch.exp(scores - m_new[..., None])
        correction = torch.exp(m - m_new)
        s = s * correction + p.sum(-1)
        acc = acc * correction[..., None] + torch.einsum(
            "bhqk,bhkd->bhqd", p, value[:, :, start : start + block]
        )
        m = m_new
    return acc / s[..., None]


def online_logsumexp(query, key, value, block):
    """Output kept normalised; blocks are merged by their log of the sum of exponentials."""
    out, lse = None, None
    for k, v in zip(torch.split(key, block, 2), torch.split(value, block, 2), strict=True):
        scores = query @ k.mT / query.shape[-1] ** 0.5
        new, o = torch.logsumexp(scores, -1, keepdim=True), scores.softmax(-1) @ v
        if out is None:
            out, lse = o, new
        else:
            both = torch.logaddexp(lse, new)
            out, lse = out * (lse - both).exp() + o * (new - both).exp(), both
    return out


def online_two_passes(query, key, value, block):
    starts = range(0, key.size(-2), block)
    q = query / math.sqrt(query.size(-1))
    top = torch.stack([(q @ key[..., i : i + block, :].mT).amax(-1) for i in starts]).amax(0)[..., None]
    total, output = 0, 0
    for i in starts:
        p = (q @ key[..., i : i + block, :].mT - top).exp()
        total, output = total + p.sum(-1, keepdim=True), output + p @ value[..., i : i + block, :]
    return output / total


def online_in_place(query, key, value, block, scale=None):
    scale = scale or 1 / math.sqrt(query.size(-1))
    m = query.new_full((*query.shape[:-1], 1), torch.finfo(query.dtype).min)
    total, out = torch.zeros_like(m), torch.zeros_like(query)
    i = 0
    while i < key.size(2):
        s = (query @ key[:, :, i : i + block].transpose(2, 3)).mul_(scale)
        old = m
        m = torch.max(old, s.max(dim=-1, keepdim=True)[0])
        s.sub_(m).exp_()
        c = (old - m).exp_()
        total.mul_(c).add_(s.sum(-1, keepdim=True))
        out.mul_(c).add_(s @ value[:, :, i : i + block])
        i += block
    return out.div_(total)


def online_list_of_scores(query, key, value, block):
    """All scores at last, but never in one tensor."""
    scores = [query @ k.mT / math.sqrt(query.size(-1)) for k in key.split(block, -2)]
    m = torch.stack([s.amax(-1) for s in scores]).amax(0)[..., None]
    weights = [(s - m).exp() for s in scores]
    weighted = sum(w @ v for w, v in zip(weights, value.split(block, -2), strict=True))
    return weighted / sum(w.sum(-1, keepdim=True) for w in weights)


def online_one_key_at_a_time(query, key, value, block):
    return online_range(query, key, value, 1)


def online_maximum_detached(query, key, value, block):
    """What is subtracted cancels, and so does its gradient."""
    m, total, out = -1e9, 0.0, 0.0
    for k, v in zip(key.split(block, 2), value.split(block, 2), strict=True):
        s = query @ k.mT / math.sqrt(query.size(-1))
        new = s.detach().amax(-1, keepdim=True).clamp(min=m)
        c, p = torch.exp(m - new), torch.exp(s - new)
        m, total, out = new, c * total + p.sum(-1, keepdim=True), c * out + p @ v
    return out / total


def online_numpy(query, key, value, block):
    q, k, v = (m.detach().numpy() for m in (query, key, value))
    m, total, out = np.full((*q.shape[:-1], 1), -np.inf, q.dtype), 0.0, 0.0
    for i in range(0, k.shape[-2], block):
        s = q @ k[..., i : i + block, :].swapaxes(-1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
        new = np.maximum(m, s.max(-1, keepdims=True))
        c, p = np.exp(m - new), np.exp(s - new)
        m, total, out = new, c * total + p.sum(-1, keepdims=True), c * out + p @ v[..., i : i + block, :]
    return torch.from_numpy(out / total)


class OnlinePerHead:
    def __call__(self, query, key, value, block):
        return torch.stack([
            torch.stack([self.one(*qkv, block) for qkv in zip(*each, strict=True)])
            for each in zip(query, key, value, strict=True)
        ])  # fmt: skip

    @staticmethod
    def one(q, k, v, block):
        m, total, out = torch.full((len(q), 1), -torch.inf, dtype=q.dtype), 0.0, 0.0
        for start in range(0, len(k), block):
            s = q @ k[start : start + block].T / q.shape[1] ** 0.5
            new = torch.maximum(m, s.max(1, keepdim=True).values)
            e = torch.exp(s - new)
            total = total * torch.exp(m - new) + e.sum(1, keepdim=True)
            out = out * torch.exp(m - new) + e @ v[start : start + block]
            m = new
        return out / total


# -- online_softmax_attention: wrong ---------------------------------------------------------------------------------


def _online(scale=lambda q, k, n: math.sqrt(q.size(-1)), start=-math.inf, rescale="both", maximum="running", end="divide", keys="all"):  # fmt: skip
    def online_softmax_attention(query, key, value, block):
        n = key.size(2)
        m = torch.full_like(query[..., :1], start)
        total, out = torch.zeros_like(m), torch.zeros_like(query)
        count = n // block if keys == "whole blocks" else math.ceil(n / block)
        for number in range(count):
            i = number * block
            k, v = key[:, :, i : i + block], value[:, :, i : i + block]
            s = query @ k.transpose(-1, -2) / scale(query, k, n)
            top = s.amax(-1, keepdim=True)
            if maximum == "all queries":
                top = s.amax().expand_as(m)
            new = {
                "running": torch.maximum(m, top),
                "all queries": torch.maximum(m, top),
                "block": top,
                "none": m,
            }[maximum]
            p = torch.exp(s - new)
            c = (
                torch.exp(m - new)
                if rescale != "inverted"
                else torch.exp(torch.where(m == -math.inf, m, new - m))
            )
            total = (total * c if rescale in ("both", "sum", "inverted") else total) + p.sum(-1, keepdim=True)
            out = (out * c if rescale in ("both", "output", "inverted") else out) + p @ v
            if end == "each":
                out = out / total
            m = new
            if keys == "first":
                break
        return out if end in ("none", "each") else out / total

    return online_softmax_attention


def online_whole(query, key, value, block):
    return (query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))).softmax(-1) @ value


def online_collects_scores(query, key, value, block):
    scores = [query @ k.transpose(-2, -1) / math.sqrt(query.size(-1)) for k in key.split(block, 2)]
    return torch.cat(scores, -1).softmax(-1) @ value


def online_library(query, key, value, block):
    return F.scaled_dot_product_attention(query, key, value)


def online_average(query, key, value, block):
    outs = [
        (query @ k.mT / math.sqrt(query.size(-1))).softmax(-1) @ v
        for k, v in zip(key.split(block, 2), value.split(block, 2), strict=True)
    ]
    return sum(outs) / len(outs)


def online_sum(query, key, value, block):
    out = 0
    for i in range(0, key.size(2), block):
        out = (
            out
            + (query @ key[:, :, i : i + block].mT / query.size(-1) ** 0.5).softmax(-1)
            @ value[:, :, i : i + block]
        )
    return out


def online_overwrites(query, key, value, block):
    for i in range(0, key.size(2), block):
        out = (query @ key[:, :, i : i + block].mT / query.size(-1) ** 0.5).softmax(-1) @ value[
            :, :, i : i + block
        ]
    return out


def online_query_length(query, key, value, block):
    q = query.size(2)
    return online_range(
        query, key[:, :, : math.ceil(q / block) * block], value[:, :, : math.ceil(q / block) * block], block
    )


def online_changes_query(query, key, value, block):
    query /= math.sqrt(query.size(-1))
    return online_range(query * math.sqrt(query.size(-1)), key, value, block)


def online_query_blocks(query, key, value, block):
    return torch.cat([online_whole(q, key, value, block) for q in query.split(max(block, 16), 2)], 2)


def online_blocks_of_queries(query, key, value, block):
    return torch.cat([online_whole(q, key, value, block) for q in query.split(block, 2)], 2)


def online_one_query_at_a_time(query, key, value, block):
    return torch.cat([online_whole(q, key, value, block) for q in query.split(1, 2)], 2)


def online_larger_blocks(query, key, value, block):
    return online_range(query, key, value, 8 * block)


@torch.no_grad()
def online_no_grad(query, key, value, block):
    return online_range(query, key, value, block)


def online_output_detached(query, key, value, block):
    m, total, out = torch.full_like(query[..., :1], -math.inf), 0.0, torch.zeros_like(query)
    for k, v in zip(key.split(block, 2), value.split(block, 2), strict=True):
        s = query @ k.mT / math.sqrt(query.size(-1))
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        c, p = (m - new).exp(), (s - new).exp()
        m, total, out = new, c * total + p.sum(-1, keepdim=True), c * out.detach() + p @ v
    return out / total


ONLINE_WRONG = [
    (_online(scale=lambda q, k, n: 1.0), "no_scale"),
    (_online(scale=lambda q, k, n: q.size(-1)), "scale_by_d"),
    (_online(scale=lambda q, k, n: math.sqrt(n)), "scale_by_sqrt_keys"),
    (_online(start=0.0), "maximum_starts_at_zero"),
    (_online(start=-1e4), "maximum_starts_too_high"),
    (_online(start=-1e6), "maximum_starts_too_high"),
    (_online(rescale="none"), "nothing_rescaled"),
    (_online(rescale="sum"), "output_not_rescaled"),
    (_online(rescale="output"), "sum_not_rescaled"),
    (_online(rescale="inverted"), "rescale_inverted"),
    (_online(maximum="none", start=0.0), "no_maximum"),
    (_online(maximum="block"), "maximum_not_running"),
    (_online(maximum="all queries"), "maximum_over_queries"),
    (_online(end="none"), "no_division"),
    (_online(end="each"), "divided_in_each_block"),
    (_online(keys="whole blocks"), "short_block_dropped"),
    (_online(keys="first"), "first_block_only"),
    (_online(rescale="sum", scale=lambda q, k, n: 1.0), "no_scale+output_not_rescaled"),
    (online_whole, "all_scores_at_once"),
    (online_collects_scores, "all_scores_at_once"),
    (online_query_blocks, "all_scores_at_once"),
    (online_blocks_of_queries, "more_scores_than_a_block"),
    (online_one_query_at_a_time, "blocks_of_queries"),
    (online_larger_blocks, "more_scores_than_a_block"),
    (online_no_grad, "gradient_cut_off"),
    (online_output_detached, "wrong_gradient"),
    (online_library, "not_allowed"),
    (online_average, "average_of_blocks"),
    (online_sum, "sum_of_blocks"),
    (online_overwrites, "last_block_only"),
    (online_query_length, None),
    (online_changes_query, "changes_its_input"),
]

# -- state_space_scan: right -----------------------------------------------------------------------------------------


def scan_loop(a, b, c, x):
    h = torch.zeros(x.shape[0], a.shape[0], dtype=x.dtype)
    y = torch.zeros_like(x)
    for t in range(x.shape[1]):
        h = h * a + x[:, t : t + 1] * b
        y[:, t] = (h * c).sum(-1)
    return y


def scan_convolution(a, b, c, x):
    t = x.size(1)
    kernel = (a[None, :] ** torch.arange(t)[:, None]) @ (b * c)
    return F.conv1d(F.pad(x[:, None], (t - 1, 0)), kernel.flip(0)[None, None])[:, 0]


def scan_fft(a, b, c, x):
    t = x.size(1)
    kernel = torch.einsum("n,tn->t", b * c, a.pow(torch.arange(t, dtype=x.dtype)[:, None]))
    return torch.fft.irfft(torch.fft.rfft(x, n=2 * t) * torch.fft.rfft(kernel, n=2 * t), n=2 * t)[:, :t]


def scan_doubling(a, b, c, x):
    """An associative scan: pairs (factor, state) are combined over distances 1, 2, 4, …"""
    factor, state = a.expand(*x.shape, -1).clone(), x[..., None] * b
    step = 1
    while step < x.size(1):
        earlier = F.pad(state, (0, 0, step, 0))[:, : x.size(1)]
        before = F.pad(factor, (0, 0, step, 0), value=1.0)[:, : x.size(1)]
        state, factor = state + factor * earlier, factor * before
        step *= 2
    return state @ c


def scan_numpy(a, b, c, x, h0=None):
    a_, b_, c_, x_ = (m.detach().numpy() for m in (a, b, c, x))
    rows = []
    for row in x_:
        h, ys = np.zeros_like(a_), []
        for value in row:
            h = a_ * h + b_ * value
            ys.append(float(np.dot(c_, h)))
        rows.append(ys)
    return torch.tensor(np.array(rows), dtype=x.dtype)


def scan_floats(a, b, c, x):
    """Plain Python numbers."""
    a_, b_, c_ = (m.tolist() for m in (a, b, c))
    y = torch.zeros(x.shape, dtype=x.dtype)
    for i in range(x.size(0)):
        h = [0.0] * len(a_)
        for t in range(x.size(1)):
            h = [u * old + v * x[i, t].item() for u, v, old in zip(a_, b_, h, strict=True)]
            y[i, t] = sum(w * new for w, new in zip(c_, h, strict=True))
    return y


def scan_tensor_of_list(a, b, c, x):
    rows = []
    for sequence in x:
        h, row = torch.zeros_like(a), []
        for x_t in sequence:
            h = a * h + b * x_t
            row.append(torch.dot(c, h))
        rows.append(row)
    return torch.tensor(rows, dtype=x.dtype)


def scan_in_place(a, b, c, x):
    h = x.new_zeros(x.size(0), a.size(0))
    y = torch.empty_like(x)
    for t in range(x.size(1)):
        h.mul_(a).add_(x[:, t, None] * b)
        y[:, t] = h @ c
    return y


def scan_matrix(a, b, c, x):
    t = x.size(1)
    lag = (torch.arange(t)[:, None] - torch.arange(t)).clamp(min=0)
    weights = torch.einsum("n,tsn->ts", b * c, a ** lag[..., None]).tril()
    return x @ weights.T


# -- state_space_scan: wrong -----------------------------------------------------------------------------------------


def _scan(
    step=lambda h, a, b, x: a * h + b * x, read=lambda h, old, b, c, x: (h * c).sum(-1), start=0.0, flip=False
):
    def state_space_scan(a, b, c, x):
        h = torch.full((x.size(0), a.size(0)), start, dtype=x.dtype)
        out = []
        for t in reversed(range(x.size(1))) if flip else range(x.size(1)):
            old, h = h, step(h, a, b, x[:, t, None])
            out.append(read(h, old, b, c, x[:, t]))
        return torch.stack(out[::-1] if flip else out, 1)

    return state_space_scan


def scan_powers(a, b, c, x):
    """Divides by powers of a: overflows, and fails for a = 0."""
    powers = a ** torch.arange(x.size(1), dtype=x.dtype)[:, None]
    return ((x[..., None] * b / powers).cumsum(1) * powers) @ c


def scan_log(a, b, c, x):
    lags = torch.arange(x.size(1), dtype=x.dtype)[:, None]
    kernel = torch.exp(lags * torch.log(a)) @ (b * c)
    t = x.size(1)
    return F.conv1d(F.pad(x[:, None], (t - 1, 0)), kernel.flip(0)[None, None])[:, 0]


def scan_not_flipped(a, b, c, x):
    t = x.size(1)
    kernel = (a ** torch.arange(t)[:, None]) @ (b * c)
    return F.conv1d(F.pad(x[:, None], (t - 1, 0)), kernel[None, None])[:, 0]


def scan_circular(a, b, c, x):
    t = x.size(1)
    kernel = (a ** torch.arange(t)[:, None]) @ (b * c)
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(kernel), n=t)


def scan_float(a, b, c, x):
    h = torch.zeros(x.shape[0], a.shape[0])
    y = torch.zeros(x.shape)
    for t in range(x.shape[1]):
        h = h * a + x[:, t : t + 1] * b
        y[:, t] = (h * c).sum(-1)
    return y


class KeepsState:
    def __init__(self):
        self.h = 0.0

    def __call__(self, a, b, c, x):
        y = []
        for t in range(x.size(1)):
            self.h = a * self.h + b * x[:, t, None]
            y.append((self.h * c).sum(-1))
        return torch.stack(y, 1)


def scan_one_long_sequence(a, b, c, x):
    h, y = torch.zeros_like(a), []
    for value in x.flatten():
        h = a * h + b * value
        y.append(h @ c)
    return torch.stack(y).view_as(x)


def scan_c_for_a(a, b, c, x):
    h, y = 0, []
    for x_t in x.unbind(1):
        h = c * h + b * x_t[:, None]
        y.append(h @ c)
    return torch.stack(y, 1)


def scan_last(a, b, c, x):
    h = x.new_zeros(x.size(0), a.size(0))
    for t in range(x.size(1)):
        h = a * h + b * x[:, t, None]
    return h @ c


def scan_not_over_time(a, b, c, x):
    h, y = x.new_zeros(x.size(0), a.size(0)), []
    for x_t in x.unbind(1):
        h = a * h.detach() + b * x_t[:, None]
        y.append(h @ c)
    return torch.stack(y, 1)


@torch.no_grad()
def scan_no_grad(a, b, c, x):
    return scan_loop(a, b, c, x) + torch.tensor(0.0)


def scan_squeezed(a, b, c, x):
    return scan_loop(a, b, c, x).squeeze(0)


SCAN_WRONG = [
    (_scan(step=lambda h, a, b, x: b * h + a * x), "a_and_b_exchanged"),
    (_scan(step=lambda h, a, b, x: h + a * h + b * x), "a_plus_one"),
    (_scan(step=lambda h, a, b, x: a * b * h + b * x), "a_times_b"),
    (_scan(step=lambda h, a, b, x: b * h + b * x), "b_for_a"),
    (scan_c_for_a, "c_for_a"),
    (scan_not_over_time, "wrong_gradient"),
    (scan_no_grad, "gradient_cut_off"),
    (scan_squeezed, None),
    (_scan(step=lambda h, a, b, x: h + b * x), "a_ignored"),
    (_scan(step=lambda h, a, b, x: a * (h + b * x)), "a_on_input_too"),
    (_scan(step=lambda h, a, b, x: a.exp() * h + b * x), "a_exponentiated"),
    (_scan(step=lambda h, a, b, x: a * h + (1 - a) * b * x), "moving_average"),
    (_scan(step=lambda h, a, b, x: a * h + x), "b_ignored"),
    (_scan(step=lambda h, a, b, x: b * x), "state_not_kept"),
    (_scan(step=lambda h, a, b, x: torch.tanh(a * h + b * x)), "tanh_in_state"),
    (_scan(read=lambda h, old, b, c, x: h.sum(-1)), "c_ignored"),
    (_scan(read=lambda h, old, b, c, x: (h * c).mean(-1)), "mean_over_state"),
    (_scan(read=lambda h, old, b, c, x: old @ c), "output_before_update"),
    (_scan(read=lambda h, old, b, c, x: h @ c + x), "skip_added"),
    (_scan(read=lambda h, old, b, c, x: h), "returns_states"),
    (_scan(read=lambda h, old, b, c, x: (h * c).sum(-1, keepdim=True)), "extra_axis"),
    (_scan(start=1.0), "starts_at_one"),
    (_scan(flip=True), "backwards"),
    (scan_powers, None),
    (scan_log, "only_positive_a"),
    (scan_not_flipped, "kernel_not_flipped"),
    (scan_circular, "circular"),
    (scan_float, "wrong_dtype"),
    (KeepsState(), "state_kept_between_calls"),
    (scan_one_long_sequence, "state_goes_on_to_next_sequence"),
    (scan_last, "returns_last"),
]

RIGHT = {
    "local_attention_mask": [window_broadcast, window_triangles, window_loops, window_lists, window_numpy],
    "linear_attention": [
        linear_quadratic,
        linear_loop,
        linear_epsilon,
        linear_per_head,
        linear_value_with_one,
        linear_numpy,
        linear_larger_epsilon,
        linear_hidden_before_phi,
    ],
    "online_softmax_attention": [
        online_range,
        online_logsumexp,
        online_two_passes,
        online_in_place,
        online_list_of_scores,
        online_one_key_at_a_time,
        online_maximum_detached,
        online_numpy,
        OnlinePerHead(),
    ],
    "state_space_scan": [
        scan_loop,
        scan_convolution,
        scan_fft,
        scan_doubling,
        scan_numpy,
        scan_floats,
        scan_tensor_of_list,
        scan_in_place,
        scan_matrix,
    ],
}
WRONG = {
    "local_attention_mask": WINDOWS_WRONG,
    "linear_attention": LINEAR_WRONG,
    "online_softmax_attention": ONLINE_WRONG,
    "state_space_scan": SCAN_WRONG,
}
