"""Answers to the exercises of 05_multi_head_attention, right and wrong, as people write them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# -- splitting and merging -------------------------------------------------------------------------------------------


def split_loop(x, n_heads):
    if x.shape[-1] % n_heads != 0:
        raise ValueError("d_model must be divisible by n_heads")
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(n_heads)], dim=1)


def split_chunk(x, n_heads):
    if x.size(2) / n_heads != x.size(2) // n_heads:
        raise ValueError
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def split_permute(x, n_heads, check=True):
    b, t, d = x.shape
    d_k, rest = divmod(d, n_heads)
    if rest:
        raise ValueError(f"{d} / {n_heads}")
    return x.reshape(b, t, n_heads, d_k).permute(0, 2, 1, 3).contiguous()


def split_unflatten(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return x.unflatten(-1, (n_heads, -1)).movedim(2, 1)


def split_view(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


def split_assert(x, n_heads):
    assert x.shape[-1] % n_heads == 0
    return split_unflatten(x, n_heads)


def split_interleaved(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return torch.stack([x[..., i::n_heads] for i in range(n_heads)], dim=1)


def split_no_transpose(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return x.unflatten(-1, (n_heads, -1))


def split_batch(x, n_heads):
    return split_unflatten(x, n_heads).flatten(0, 1)


def split_first(x, n_heads):
    return split_unflatten(x, n_heads).transpose(0, 1)


def split_width(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return x.unflatten(-1, (-1, n_heads)).transpose(1, 2)


def split_truncates(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x[..., : n_heads * d_k].unflatten(-1, (n_heads, d_k)).transpose(1, 2)


def split_contiguous_only(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return x.view(-1).view(x.shape[0], x.shape[1], n_heads, -1).transpose(1, 2)


def split_positions(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("no")
    return torch.stack(x.chunk(n_heads, dim=1), dim=1)


def split_detached(x, n_heads):
    return split_unflatten(x.detach(), n_heads)


def merge_cat(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


def merge_permute(x):
    b, h, t, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, t, h * d)


def merge_einsum(x):
    return torch.einsum("bhtk->bthk", x).reshape(x.shape[0], x.shape[2], -1)


def merge_loop(x):
    b, h, t, d = x.shape
    out = x.new_zeros(b, t, h * d)
    for i in range(h):
        out[:, :, i * d : (i + 1) * d] = x[:, i]
    return out


def merge_squeeze(x):
    return merge_permute(x).squeeze()


def merge_numpy(x):
    return torch.from_numpy(merge_permute(x.detach()).numpy())


# -- the module ------------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """Four linear maps with the usual names; the wrong versions below change one thing."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).contiguous().view(x.size(0), -1, self.h * self.d_k)

    def scale(self):
        return math.sqrt(self.d_k)

    def mask(self, scores, mask):
        return scores.masked_fill(mask == 0, -1e9)

    def softmax(self, scores):
        return scores.softmax(dim=-1)

    def project(self, query, key, value):
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    def after(self, weights, mask):
        return weights

    def refuse(self, mask):
        if mask is not None and mask.dim() == 3:
            raise ValueError("three dimensions")

    def attend(self, q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / self.scale()
        if mask is not None:
            scores = self.mask(scores, mask)
        weights = self.softmax(scores)
        if mask is not None:
            weights = self.after(weights, mask)
        self.weights = weights.detach()
        return self.drop(weights) @ v

    def forward(self, query, key, value, mask=None):
        self.refuse(mask)
        q, k, v = (self.split(x) for x in self.project(query, key, value))
        return self.out(self.merge(self.attend(q, k, v, mask)))


class FusedEinsum(nn.Module):
    """One parameter for all three inputs, heads first, no biases."""

    def __init__(self, d_model, n_heads, dropout=0.0, device=None):
        super().__init__()
        self.qkv = nn.Parameter(torch.randn(d_model, n_heads, 3, d_model // n_heads) / d_model**0.5)
        self.o = nn.Parameter(torch.randn(n_heads, d_model // n_heads, d_model) / d_model**0.5)
        self.p = dropout

    def forward(self, query, key, value, mask=None):
        if mask is not None and mask.ndim == 3:
            raise ValueError("ambiguous mask")
        q = torch.einsum("btd,dhk->bhtk", query, self.qkv[:, :, 0])
        k = torch.einsum("btd,dhk->bhtk", key, self.qkv[:, :, 1])
        v = torch.einsum("btd,dhk->bhtk", value, self.qkv[:, :, 2])
        scores = torch.einsum("bhqk,bhtk->bhqt", q * q.shape[-1] ** -0.5, k)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        self.weights = torch.softmax(scores, -1)
        weights = F.dropout(self.weights, self.p, self.training)
        self.weights = self.weights.detach()
        return torch.einsum("bhqt,bhtk,hkd->bqd", weights, v, self.o)


class PerHead(nn.Module):
    """Three small linear maps for each head, in a ModuleList; attention by bmm."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        d_k = d_model // n_heads
        self.q = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(n_heads))
        self.k = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(n_heads))
        self.v = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(n_heads))
        self.project = nn.Linear(d_model, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None and len(mask.shape) == 3:
            raise ValueError("mask")
        flat = mask[:, 0] if mask is not None and mask.dim() == 4 else mask
        outputs, kept = [], []
        for q, k, v in zip(self.q, self.k, self.v, strict=True):
            scores = torch.bmm(q(query), k(key).transpose(1, 2)) / q.out_features**0.5
            if flat is not None:
                scores = scores + torch.zeros_like(scores).masked_fill(~flat, -1e20)
            weights = torch.softmax(scores, dim=2)
            kept.append(weights.detach())
            outputs.append(torch.bmm(self.dropout(weights), v(value)))
        self.weights = torch.stack(kept, dim=1)
        return self.project(torch.cat(outputs, dim=-1))


class Convolutions(nn.Module):
    """Projections as convolutions of width 1; PyTorch's kernel for the output."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads, self.p = n_heads, dropout
        self.convs = nn.ModuleList(nn.Conv1d(d_model, d_model, 1) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        if mask is not None and mask.dim() == 3:
            raise ValueError("mask")
        q, k, v = (
            c(x.transpose(1, 2)).unflatten(1, (self.n_heads, -1)).transpose(2, 3)
            for c, x in zip(self.convs[:3], (query, key, value), strict=True)
        )
        with torch.no_grad():
            scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
            self.weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        heads = F.scaled_dot_product_attention(q, k, v, mask, self.p if self.training else 0.0)
        return self.convs[3](heads.transpose(2, 3).flatten(1, 2)).transpose(1, 2)


class Renormalised(Plain):
    """Masks after the softmax and divides by what is left: equal to masking before."""

    def mask(self, scores, mask):
        return scores

    def after(self, weights, mask):
        weights = weights * mask
        total = weights.sum(-1, keepdim=True)
        return weights / torch.where(total > 0, total, torch.ones_like(total))


class RenormalisedByAlmostTheSum(Renormalised):
    def after(self, weights, mask):
        weights = weights * mask
        return weights / (weights.sum(-1, keepdim=True) + 1e-9)


class SoftmaxInFloat32(Plain):
    def softmax(self, scores):
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


class ZeroRows(Plain):
    """With the attention of 03: zeros for a query that may attend to nothing."""

    def after(self, weights, mask):
        return weights.masked_fill(~mask, 0.0)


class WeightsAsProperty(Plain):
    @property
    def weights(self):
        return self.kept

    @weights.setter
    def weights(self, value):
        self.kept = value


class NoScale(Plain):
    def scale(self):
        return 1.0


class ScaleDModel(Plain):
    def scale(self):
        return math.sqrt(self.d_k * self.h)


class ScaleDk(Plain):
    def scale(self):
        return self.d_k


class SplitView(Plain):
    def split(self, x):
        return x.reshape(x.size(0), self.h, -1, self.d_k)


class MergeView(Plain):
    def merge(self, x):
        return x.reshape(x.size(0), -1, self.h * self.d_k)


class MergeMixesBatch(Plain):
    def merge(self, x):
        b, h, t, d = x.shape
        return x.reshape(h, b, t, d).permute(1, 2, 0, 3).reshape(b, t, h * d)


class SoftmaxQueries(Plain):
    def softmax(self, scores):
        return scores.softmax(dim=2)


class SoftmaxHeads(Plain):
    def softmax(self, scores):
        return scores.softmax(dim=1)


class MaskDropped(Plain):
    def mask(self, scores, mask):
        scores.masked_fill(mask == 0, -1e9)
        return scores


class MaskInverted(Plain):
    def mask(self, scores, mask):
        return scores.masked_fill(mask, -1e9)


class MaskAfter(Plain):
    def mask(self, scores, mask):
        return scores

    def after(self, weights, mask):
        return weights * mask


class MaskTiny(Plain):
    def mask(self, scores, mask):
        return scores.masked_fill(mask == 0, 1e-9)


class MaskWeak(Plain):
    def mask(self, scores, mask):
        return scores.masked_fill(~mask, -1e4)


class AcceptsThree(Plain):
    def refuse(self, mask):
        pass


class Shared(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.k_proj = self.v_proj = self.q_proj


class NoOutput(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.out = nn.Identity()


class OutputUnused(Plain):
    def forward(self, query, key, value, mask=None):
        self.refuse(mask)
        q, k, v = self.split(self.q_proj(query)), self.split(self.k_proj(key)), self.split(self.v_proj(value))
        merged = self.merge(self.attend(q, k, v, mask))
        self.out(merged)
        return merged


class PlainList(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        nn.Module.__init__(self)
        self.h, self.d_k = n_heads, d_model // n_heads
        self.maps = [nn.Linear(d_model, d_model) for _ in range(4)]
        self.drop = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        self.refuse(mask)
        q, k, v = (self.split(m(x)) for m, x in zip(self.maps, (query, key, value), strict=False))
        return self.maps[3](self.merge(self.attend(q, k, v, mask)))


class SmallShared(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(self.d_k, self.d_k) for _ in range(3))

    def forward(self, query, key, value, mask=None):
        self.refuse(mask)
        q, k, v = self.q_proj(self.split(query)), self.k_proj(self.split(key)), self.v_proj(self.split(value))
        return self.out(self.merge(self.attend(q, k, v, mask)))


class SelfOnly(Plain):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, query, mask)


class DropsOutput(Plain):
    def attend(self, q, k, v, mask):
        p, self.drop.p = self.drop.p, 0.0
        heads = super().attend(q, k, v, mask)
        self.drop.p = p
        return self.drop(heads)


class DropsInEval(Plain):
    def after(self, weights, mask):
        return F.dropout(weights, self.drop.p)

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, torch.ones(1, 1, dtype=torch.bool) if mask is None else mask)


class NeverDrops(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads)


class KeepsDropped(Plain):
    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        self.weights = self.drop(self.weights)
        return heads


class KeepsNothing(Plain):
    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        del self.weights
        return heads


class KeepsElsewhere(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.weights = None

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        self.attention_weights, self.weights = self.weights, None
        return heads


class DropsShareKept(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, 1 - dropout if dropout else 0.0)


class DropsTenth(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, 0.1 if dropout else 0.0)


class DropsScores(Plain):
    def attend(self, q, k, v, mask):
        p, self.drop.p = self.drop.p, 0.0
        self.p = p
        heads = super().attend(q, k, v, mask)
        self.drop.p = p
        return heads

    def softmax(self, scores):
        return F.dropout(scores, self.p, self.training).softmax(dim=-1)


class DropsQueries(Plain):
    def attend(self, q, k, v, mask):
        p, self.drop.p = self.drop.p, 0.0
        heads = super().attend(F.dropout(q, p, self.training), k, v, mask)
        self.drop.p = p
        return heads


class OwnDrop(Plain):
    """Dropout by hand, inverted as nn.Dropout does it."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.p = dropout

    def drop(self, weights):
        return weights * (torch.rand_like(weights) >= self.p) / (1 - self.p) if self.training else weights


class DropsWithoutScale(OwnDrop):
    def drop(self, weights):
        return weights * (torch.rand_like(weights) >= self.p) if self.training else weights


class DropsAndRenormalises(OwnDrop):
    def drop(self, weights):
        weights = F.dropout(weights, self.p, self.training)
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-9)


class DropsHeads(OwnDrop):
    def drop(self, weights):
        return F.dropout2d(weights, self.p, self.training)


class DropsAlikeInHeads(OwnDrop):
    def drop(self, weights):
        return weights * F.dropout(torch.ones_like(weights[:, :1]), self.p, self.training)


class DropsOutputToo(Plain):
    def forward(self, query, key, value, mask=None):
        return self.drop(super().forward(query, key, value, mask))


class ScaleHeads(Plain):
    def scale(self):
        return math.sqrt(self.h)


class SequenceFirst(Plain):
    def forward(self, query, key, value, mask=None):
        turned = (x.transpose(0, 1) for x in (query, key, value))
        return super().forward(*turned, mask).transpose(0, 1)


class QueriesFromKey(Plain):
    def project(self, query, key, value):
        return super().project(key, query, value)


class ValuesFromQuery(Plain):
    def project(self, query, key, value):
        return super().project(query, key, query)


class KeyWeightsDetached(Plain):
    def project(self, query, key, value):
        with torch.no_grad():
            matrix, bias = self.k_proj.weight.clone(), self.k_proj.bias.clone()
        return self.q_proj(query), F.linear(key, matrix, bias), self.v_proj(value)


class ReluProjections(Plain):
    def project(self, query, key, value):
        return [x.relu() for x in super().project(query, key, value)]


class ValueTwice(Plain):
    def project(self, query, key, value):
        q, k, _ = super().project(query, key, value)
        return q, k, self.v_proj(self.k_proj(value))


class OutTwice(Plain):
    def merge(self, x):
        return self.out(super().merge(x))


class CausalAlways(Plain):
    def attend(self, q, k, v, mask):
        past = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return super().attend(q, k, v, past if mask is None else past & mask)


class MaskRepeated(Plain):
    """Batch and heads are one axis, as in older code; the mask is repeated in the wrong order."""

    def attend(self, q, k, v, mask):
        if mask is not None and mask.dim() == 4:
            mask = mask.squeeze(1).repeat(self.h, 1, 1).unflatten(0, (len(q), self.h))
        return super().attend(q, k, v, mask)


class Residual(Plain):
    def forward(self, query, key, value, mask=None):
        return query + super().forward(query, key, value, mask)


class Tuple(Plain):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask), self.weights


class Squeezes(Plain):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask).squeeze()


class Library(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.inner = nn.MultiheadAttention(d_model, n_heads, dropout, batch_first=True)

    def forward(self, query, key, value, mask=None):
        return self.inner(query, key, value)[0]


RIGHT = {
    "split_heads": [split_loop, split_chunk, split_permute, split_unflatten],
    "merge_heads": [merge_cat, merge_permute, merge_einsum, merge_loop],
    "MultiHeadAttention": [
        Plain,
        FusedEinsum,
        PerHead,
        Convolutions,
        Renormalised,
        RenormalisedByAlmostTheSum,
        SoftmaxInFloat32,
        ZeroRows,
        WeightsAsProperty,
        OwnDrop,
    ],
}

WRONG = {
    "split_heads": [
        (split_view, "view_without_transpose"),
        (split_assert, "no_error"),
        (split_interleaved, "head_last"),
        (split_no_transpose, "not_transposed"),
        (split_batch, "heads_into_batch"),
        (split_first, "heads_first"),
        (split_width, "heads_and_width_exchanged"),
        (split_truncates, "no_error"),
        (split_contiguous_only, "needs_contiguous_input"),
        (split_positions, "cut_along_positions"),
        (lambda x, n_heads: split_unflatten(x, n_heads).transpose(2, 3), "width_before_positions"),
        (split_detached, "gradient_cut_off"),
    ],
    "merge_heads": [
        (lambda x: x.reshape(x.shape[0], x.shape[2], -1), "view_without_transpose"),
        (lambda x: x.permute(0, 2, 3, 1).flatten(2), "head_last"),
        (lambda x: x.transpose(1, 2), "not_merged"),
        (lambda x: x.sum(1), "heads_summed"),
        (lambda x: x.mean(1), "heads_averaged"),
        (lambda x: torch.cat(list(x.unbind(1))[::-1], -1), "heads_reversed"),
        (lambda x: x.transpose(1, 3).flatten(2), "width_and_positions_exchanged"),
        (lambda x: torch.cat(list(x.unbind(1)), dim=1), "joined_along_positions"),
        (lambda x: x.amax(1), "heads_maximum"),
        (lambda x: x[:, 0], "one_head_only"),
        (lambda x: x.permute(2, 0, 1, 3).flatten(2), "positions_first"),
        (lambda x: x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1), "head_transposed"),
        (lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1), "view_after_transpose"),
        (merge_squeeze, "drops_axes_of_size_1"),
        (merge_numpy, "gradient_cut_off"),
    ],
    "MultiHeadAttention": [
        (NoScale, "no_scale"),
        (ScaleDModel, "scale_by_sqrt_d_model"),
        (ScaleDk, "scale_by_d_k"),
        (SplitView, "split_without_transpose"),
        (MergeView, "merge_without_transpose"),
        (MergeMixesBatch, "merge_mixes_batch"),
        (SoftmaxQueries, "softmax_over_queries"),
        (SoftmaxHeads, "softmax_over_heads"),
        (MaskDropped, "mask_ignored"),
        (MaskInverted, "mask_inverted"),
        (MaskAfter, "mask_after_softmax"),
        (MaskTiny, "mask_fill_near_zero"),
        (MaskWeak, "mask_fill_too_weak"),
        (AcceptsThree, "accepts_mask_of_three_dimensions"),
        (Shared, "shared_projection"),
        (NoOutput, "no_output_projection"),
        (OutputUnused, "output_projection_unused"),
        (PlainList, "parameters_not_registered"),
        (SmallShared, "projection_per_head_shared"),
        (SelfOnly, "keys_from_query"),
        (DropsOutput, "dropout_not_on_weights"),
        (DropsInEval, "dropout_in_eval"),
        (NeverDrops, "dropout_unused"),
        (KeepsDropped, "kept_weights_wrong"),
        (KeepsNothing, "weights_not_kept"),
        (KeepsElsewhere, "weights_not_kept"),
        (DropsShareKept, "dropout_share_kept"),
        (DropsTenth, "dropout_wrong_rate"),
        (DropsScores, "dropout_before_softmax"),
        (DropsQueries, "dropout_before_softmax"),
        (DropsWithoutScale, "dropout_not_rescaled"),
        (DropsAndRenormalises, "dropout_renormalised"),
        (DropsHeads, "dropout_not_independent"),
        (DropsAlikeInHeads, "dropout_not_independent"),
        (DropsOutputToo, "dropout_not_on_weights"),
        (ScaleHeads, "scale_by_sqrt_heads"),
        (SequenceFirst, "sequence_first"),
        (QueriesFromKey, "queries_from_key"),
        (ValuesFromQuery, "values_from_query"),
        (ReluProjections, "relu_on_projections"),
        (ValueTwice, "value_projected_twice"),
        (OutTwice, "output_projected_twice"),
        (CausalAlways, "causal_always"),
        (MaskRepeated, "mask_of_other_samples"),
        (Residual, "residual_inside"),
        (Tuple, "returns_tuple"),
        (Squeezes, "drops_axes_of_size_1"),
        (KeyWeightsDetached, "no_gradient_to_weights"),
        (Library, "not_allowed"),
    ],
}
