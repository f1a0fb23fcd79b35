"""Answers to the exercises of 09_decoder, right and wrong, as people write them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# -- parts, written plainly ----------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, d_model, h, dropout=0.0, bias=True):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.q, self.k = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)
        self.v, self.o = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)
        self.drop = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_k)

    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        out = self.drop(scores.softmax(-1)) @ v
        return self.o(out.transpose(1, 2).reshape(out.size(0), -1, self.h * self.d_k))


class NoScale(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


class WeakFill(Attention):
    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e4)
        out = self.drop(scores.softmax(-1)) @ v
        return self.o(out.transpose(1, 2).reshape(out.size(0), -1, self.h * self.d_k))


class Renormalised(Attention):
    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        weights = self.scores(q, k).softmax(-1) * (1 if mask is None else mask)
        out = self.drop(weights / weights.sum(-1, keepdim=True)) @ v
        return self.o(out.transpose(1, 2).reshape(out.size(0), -1, self.h * self.d_k))


class KeyValueFused(nn.Module):
    """Keys and values from one matrix (d, 2d); einsum; no biases."""

    def __init__(self, d_model, h, dropout=0.0):
        super().__init__()
        self.h, self.p = h, dropout
        self.wkv = nn.Parameter(torch.randn(d_model, 2 * d_model) / math.sqrt(d_model))
        self.wq = nn.Parameter(torch.randn(d_model, d_model) / math.sqrt(d_model))
        self.wo = nn.Parameter(torch.randn(d_model, d_model) / math.sqrt(d_model))

    def forward(self, x, source, mask=None):
        b, t, d = x.shape
        q = (x @ self.wq).view(b, t, self.h, -1)
        k, v = (source @ self.wkv).view(b, source.size(1), 2, self.h, d // self.h).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (d // self.h) ** -0.5
        if mask is not None:
            scores = torch.where(mask, scores, torch.full_like(scores, float("-inf")))
        weights = F.dropout(scores.softmax(-1), self.p, self.training)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d) @ self.wo


def feed_forward(d_model, d_ff, dropout):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))


class AnnotatedNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size)), eps

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


# -- the layer -----------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    attention, norm = Attention, nn.LayerNorm

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn = self.attention(d_model, n_heads, dropout)
        self.cross_attn = self.attention(d_model, n_heads, dropout)
        self.ff = feed_forward(d_model, d_ff, dropout)
        self.norms = nn.ModuleList([self.norm(d_model) for _ in range(3)])
        self.drop = nn.Dropout(dropout)
        self.norm_first = norm_first

    def around(self, i, x, sublayer):
        if self.norm_first:
            return x + self.drop(sublayer(self.norms[i](x)))
        return self.norms[i](x + self.drop(sublayer(x)))

    def own(self, y, mask):
        return self.self_attn(y, y, y, mask)

    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, memory, mask)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.around(0, x, lambda y: self.own(y, tgt_mask))
        x = self.around(1, x, lambda y: self.cross(y, memory, memory_mask))
        return self.around(2, x, self.ff)


class LayerNoCrossBiases(Layer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for projection in self.cross_attn.modules():
            if isinstance(projection, nn.Linear):
                projection.bias = None


class LayerFlat(nn.Module):
    """Norms first, other epsilon, everything in one method."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(d_model, eps=1e-6) for _ in range(3))
        self.fc1, self.fc2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.src_attn, self.self_attn = (
            Attention(d_model, n_heads, dropout),
            Attention(d_model, n_heads, dropout),
        )
        self.p, self.pre = dropout, norm_first

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        def drop(y):
            return F.dropout(y, self.p, self.training)

        residual = x
        x = self.ln1(x) if self.pre else x
        x = residual + drop(self.self_attn(x, x, x, tgt_mask))
        x = x if self.pre else self.ln1(x)
        residual = x
        x = self.ln2(x) if self.pre else x
        x = residual + drop(self.src_attn(x, memory, memory, memory_mask))
        x = x if self.pre else self.ln2(x)
        residual = x
        x = self.ln3(x) if self.pre else x
        x = residual + drop(self.fc2(drop(F.relu(self.fc1(x)))))
        return x if self.pre else self.ln3(x)


class LayerFused(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.parts = nn.ModuleDict(
            {
                "ff": feed_forward(d_model, d_ff, dropout),
                "cross": KeyValueFused(d_model, n_heads, dropout),
                "self": KeyValueFused(d_model, n_heads, dropout),
            }
        )
        self.norm = nn.ModuleDict({name: nn.LayerNorm(d_model) for name in ("self", "cross", "ff")})
        self.dropout, self.norm_first = nn.Dropout(dropout), norm_first

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        calls = {
            "self": lambda y: self.parts["self"](y, y, tgt_mask),
            "cross": lambda y: self.parts["cross"](y, memory, memory_mask),
            "ff": self.parts["ff"],
        }
        for name, call in calls.items():
            norm = self.norm[name]
            x = x + self.dropout(call(norm(x))) if self.norm_first else norm(x + self.dropout(call(x)))
        return x


class LayerLibrary(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.h = n_heads
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)
        self.multihead_attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)
        self.linear1, self.dropout, self.linear2 = (
            nn.Linear(d_model, d_ff),
            nn.Dropout(dropout),
            nn.Linear(d_ff, d_model),
        )
        self.norm1, self.norm2, self.norm3 = (
            nn.LayerNorm(d_model),
            nn.LayerNorm(d_model),
            nn.LayerNorm(d_model),
        )
        self.norm_first = norm_first

    def attend(self, module, x, source, mask):
        if mask is not None:
            shape = (x.size(0), self.h, x.size(1), source.size(1))
            mask = torch.zeros(shape, dtype=x.dtype).masked_fill(~mask, float("-inf")).flatten(0, 1)
        return self.dropout(module(x, source, source, attn_mask=mask)[0])

    def feed(self, x):
        return self.dropout(self.linear2(self.dropout(self.linear1(x).relu())))

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        if self.norm_first:
            y = self.norm1(x)
            x = x + self.attend(self.self_attn, y, y, tgt_mask)
            x = x + self.attend(self.multihead_attn, self.norm2(x), memory, memory_mask)
            return x + self.feed(self.norm3(x))
        x = self.norm1(x + self.attend(self.self_attn, x, x, tgt_mask))
        x = self.norm2(x + self.attend(self.multihead_attn, x, memory, memory_mask))
        return self.norm3(x + self.feed(x))


class LayerNoScale(Layer):
    attention = NoScale


class LayerWeakFill(Layer):
    attention = WeakFill


class LayerRenormalised(Layer):
    attention = Renormalised


class LayerAnnotatedNorm(Layer):
    norm = AnnotatedNorm


class LayerOneAttention(Layer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cross_attn = self.self_attn


class LayerCallsSelfTwice(Layer):
    def cross(self, y, memory, mask):
        return self.self_attn(y, memory, memory, mask)


class LayerMemoryIgnored(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, y, y, None)


class LayerMemoryIsQuery(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(memory, y, y, mask)


class LayerValueFromDecoder(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, y, mask)


class LayerJoined(Layer):
    def cross(self, y, memory, mask):
        both = torch.cat([memory, y], 1)
        if mask is not None:
            mask = F.pad(mask.expand(y.size(0), 1, -1, -1), (0, y.size(1)), value=True)
        return self.cross_attn(y, both, both, mask)


class LayerNoCross(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.around(0, x, lambda y: self.own(y, tgt_mask))
        return self.around(2, x, self.ff)


class LayerCrossFirst(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.around(1, x, lambda y: self.cross(y, memory, memory_mask))
        x = self.around(0, x, lambda y: self.own(y, tgt_mask))
        return self.around(2, x, self.ff)


class LayerFeedBeforeCross(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        x = self.around(0, x, lambda y: self.own(y, tgt_mask))
        x = self.around(2, x, self.ff)
        return self.around(1, x, lambda y: self.cross(y, memory, memory_mask))


class LayerNoTargetMask(Layer):
    def own(self, y, mask):
        return self.self_attn(y, y, y)


class LayerNoMemoryMask(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, memory)


class LayerMasksSwapped(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, memory_mask, tgt_mask)


class LayerCausalCross(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, tgt_mask, tgt_mask)


class LayerAlwaysCausal(Layer):
    def own(self, y, mask):
        causal = torch.ones(y.size(1), y.size(1)).tril().bool()
        return self.self_attn(y, y, y, causal if mask is None else causal & mask)


class LayerSharedNorm(Layer):
    def around(self, i, x, sublayer):
        return super().around(0, x, sublayer)


class LayerTwoNorms(Layer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norms[2] = self.norms[1]


class LayerMemoryNormed(Layer):
    def cross(self, y, memory, mask):
        memory = self.norms[1](memory)
        return self.cross_attn(y, memory, memory, mask)


class LayerAlwaysPost(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout)


class LayerAlwaysPre(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=True):
        super().__init__(d_model, n_heads, d_ff, dropout, True)


class LayerPreNormed(Layer):
    def around(self, i, x, sublayer):
        if not self.norm_first:
            return super().around(i, x, sublayer)
        x = self.norms[i](x)
        return x + self.drop(sublayer(x))


class LayerNoResidual(Layer):
    def around(self, i, x, sublayer):
        return (
            self.drop(sublayer(self.norms[i](x)))
            if self.norm_first
            else self.norms[i](self.drop(sublayer(x)))
        )


class LayerNoCrossResidual(Layer):
    def around(self, i, x, sublayer):
        if i != 1:
            return super().around(i, x, sublayer)
        return (
            self.drop(sublayer(self.norms[i](x)))
            if self.norm_first
            else self.norms[i](self.drop(sublayer(x)))
        )


class LayerMemoryDetached(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory.detach(), memory.detach(), mask)


class LayerNoDropout(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, 0.0, norm_first)


class LayerGelu(Layer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ff[1] = nn.GELU()


class LayerTwoEps(Layer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norms[1].eps = 1e-7


class LayerSelfNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.self_attn = Attention(d_model, n_heads)


class LayerCrossNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.cross_attn = Attention(d_model, n_heads)


class LayerHiddenNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff = feed_forward(d_model, d_ff, 0.0)


class LayerCrossOutputNotDropped(Layer):
    def around(self, i, x, sublayer):
        if i != 1:
            return super().around(i, x, sublayer)
        return x + sublayer(self.norms[i](x)) if self.norm_first else self.norms[i](x + sublayer(x))


class LayerTargetMaskOfFirst(Layer):
    def own(self, y, mask):
        return self.self_attn(y, y, y, mask[:1] if mask is not None and mask.dim() == 4 else mask)


class LayerTargetMaskTransposed(Layer):
    def own(self, y, mask):
        return self.self_attn(y, y, y, None if mask is None else mask.transpose(-2, -1))


class LayerMemoryMaskForPadding(Layer):
    """Takes (B, 1, 1, S) alone."""

    def cross(self, y, memory, mask):
        mask = None if mask is None else mask.view(memory.size(0), 1, 1, memory.size(1))
        return self.cross_attn(y, memory, memory, mask)


class LayerMemoryNormedInPre(Layer):
    def cross(self, y, memory, mask):
        memory = self.norms[1](memory) if self.norm_first else memory
        return self.cross_attn(y, memory, memory, mask)


class LayerMemoryAdded(Layer):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x + memory.mean(1, keepdim=True), memory, tgt_mask, memory_mask)


class LayerMemoryComesFirst(Layer):
    def forward(self, memory, x, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, tgt_mask, memory_mask)


class LayerEqualLengths(Layer):
    def cross(self, y, memory, mask):
        return self.cross_attn(y, memory, memory, mask) + 0 * (y + memory)


# -- the stack -----------------------------------------------------------------------------------------------------------


class Stack(nn.Module):
    layer = Layer

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.layers = nn.ModuleList(
            [self.layer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]
        )
        self.norm = nn.LayerNorm(d_model) if norm_first else None

    def finish(self, x):
        return x if self.norm is None else self.norm(x)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask)
        return self.finish(x)


class StackFlat(Stack):
    layer = LayerFlat

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.norm = nn.LayerNorm(d_model, eps=1e-6) if norm_first else None


class StackLibrary(Stack):
    layer = LayerLibrary


class StackFused(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.out = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.stack = nn.Sequential(
            *[LayerFused(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]
        )

    def forward(self, x, memory, tgt_mask=None, memory_mask=None, **unused):
        for block in self.stack:
            x = block(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask)
        return self.out(x)


class StackTwoEps(Stack):
    def __init__(self, n_layers, d_model, *args, **kwargs):
        super().__init__(n_layers, d_model, *args, **kwargs)
        self.norm = nn.LayerNorm(d_model, eps=1e-6) if self.norm is not None else None


class StackCrossNotDropped(Stack):
    layer = LayerCrossNotDropped


class StackHiddenNotDropped(Stack):
    layer = LayerHiddenNotDropped


class StackTargetMaskOfFirst(Stack):
    layer = LayerTargetMaskOfFirst


class StackTargetMaskLast(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for i, layer in enumerate(self.layers, 1):
            x = layer(x, memory, tgt_mask if i == len(self.layers) else None, memory_mask)
        return self.finish(x)


class StackMemoryMaskLast(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for i, layer in enumerate(self.layers, 1):
            x = layer(x, memory, tgt_mask, memory_mask if i == len(self.layers) else None)
        return self.finish(x)


class StackExchangesArguments(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(memory, x, tgt_mask, memory_mask)
        return self.finish(x)


class StackShared(Stack):
    def __init__(self, n_layers, *args, **kwargs):
        super().__init__(n_layers, *args, **kwargs)
        self.layers = nn.ModuleList([self.layers[0] for _ in range(n_layers)])


class StackFinalAlways(Stack):
    def __init__(self, n_layers, d_model, *args, **kwargs):
        super().__init__(n_layers, d_model, *args, **kwargs)
        self.norm = nn.LayerNorm(d_model)


class StackFinalNever(Stack):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norm = None


class StackMasksLost(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory)


class StackMemoryMaskLost(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, tgt_mask)


class StackMasksSwapped(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, memory_mask, tgt_mask)


class StackLastOnly(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            out = layer(x, memory, tgt_mask, memory_mask)
        return self.finish(out)


class StackMemoryReplaced(Stack):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for i, layer in enumerate(self.layers):
            x = layer(x, memory if i == 0 else x, tgt_mask, memory_mask if i == 0 else tgt_mask)
        return self.finish(x)


class StackFlagLost(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout)
        self.norm = nn.LayerNorm(d_model) if norm_first else None


class StackAList(Stack):
    def __init__(self, n_layers, *args, **kwargs):
        super().__init__(n_layers, *args, **kwargs)
        layers = list(self.layers)
        del self.layers
        self.layers = layers


class StackOneMore(Stack):
    def __init__(self, n_layers, *args, **kwargs):
        super().__init__(n_layers + 1, *args, **kwargs)


class StackCrossOnce(Stack):
    layer = LayerMemoryIgnored


RIGHT = {
    "DecoderLayer": [
        Layer,
        LayerNoCrossBiases,
        LayerFlat,
        LayerFused,
        LayerLibrary,
        LayerTwoEps,
        LayerRenormalised,
    ],
    "Decoder": [Stack, StackFlat, StackLibrary, StackFused, StackTwoEps],
}
WRONG = {
    "DecoderLayer": [
        (LayerNoScale, "no_scale"),
        (LayerWeakFill, "mask_fill_too_weak"),
        (LayerAnnotatedNorm, "unbiased_variance+eps_outside_root"),
        (LayerOneAttention, "cross_attention_is_self_attention"),
        (LayerCallsSelfTwice, "cross_attention_is_self_attention"),
        (LayerMemoryIgnored, "memory_ignored"),
        (LayerMemoryIsQuery, "memory_as_query"),
        (LayerValueFromDecoder, "values_from_decoder"),
        (LayerJoined, "memory_joined_to_decoder"),
        (LayerNoCross, "no_cross_attention"),
        (LayerCrossFirst, "cross_attention_first"),
        (LayerFeedBeforeCross, "feed_forward_before_cross_attention"),
        (LayerNoTargetMask, "tgt_mask_ignored"),
        (LayerNoMemoryMask, "memory_mask_ignored"),
        (LayerMasksSwapped, "masks_exchanged"),
        (LayerCausalCross, "tgt_mask_on_cross_attention"),
        (LayerAlwaysCausal, "causal_without_mask"),
        (LayerSharedNorm, "norm_shared"),
        (LayerTwoNorms, "norm_shared_by_last_two"),
        (LayerMemoryNormed, "memory_normed"),
        (LayerAlwaysPost, "norm_first_ignored"),
        (LayerAlwaysPre, "always_pre_norm"),
        (LayerPreNormed, "pre_residual_is_normed"),
        (LayerNoResidual, "no_residual"),
        (LayerNoCrossResidual, "cross_attention_no_residual"),
        (LayerMemoryDetached, "no_gradient_to_memory"),
        (LayerNoDropout, "dropout_unused"),
        (LayerGelu, "gelu"),
        (LayerEqualLengths, "needs_equal_lengths"),
        (LayerSelfNotDropped, "no_dropout_on_self_attention_weights"),
        (LayerCrossNotDropped, "no_dropout_on_cross_attention_weights"),
        (LayerHiddenNotDropped, "no_dropout_on_hidden_features"),
        (LayerCrossOutputNotDropped, "no_dropout_on_sublayer_output"),
        (LayerTargetMaskOfFirst, "tgt_mask_of_first_sample"),
        (LayerTargetMaskTransposed, "tgt_mask_transposed"),
        (LayerMemoryMaskForPadding, "mask_not_broadcast"),
        (LayerMemoryNormedInPre, "memory_normed_in_pre_norm"),
        (LayerMemoryAdded, None),
        (LayerMemoryComesFirst, None),
    ],
    "Decoder": [
        (StackShared, "layers_shared"),
        (StackFinalAlways, "final_norm_in_post_norm"),
        (StackFinalNever, "no_final_norm"),
        (StackMasksLost, "mask_ignored"),
        (StackMemoryMaskLost, "memory_mask_ignored"),
        (StackMasksSwapped, "masks_exchanged"),
        (StackLastOnly, "only_one_layer_counts"),
        (StackMemoryReplaced, "memory_for_first_layer_only"),
        (StackFlagLost, "norm_first_not_passed_on"),
        (StackAList, "parameters_not_registered"),
        (StackOneMore, "one_layer_too_many"),
        (StackCrossOnce, "memory_ignored"),
        (StackCrossNotDropped, "no_dropout_on_cross_attention_weights"),
        (StackHiddenNotDropped, "no_dropout_on_hidden_features"),
        (StackTargetMaskOfFirst, "tgt_mask_of_first_sample"),
        (StackTargetMaskLast, "tgt_mask_for_last_layer_only"),
        (StackMemoryMaskLast, "memory_mask_for_last_layer_only"),
        (StackExchangesArguments, None),
    ],
}
