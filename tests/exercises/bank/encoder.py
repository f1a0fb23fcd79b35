"""Answers to the exercises of 08_encoder, right and wrong, as people write them."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

# -- parts, written plainly ----------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Multi-head attention; subclasses change one thing."""

    def __init__(self, d_model, h, dropout=0.0, bias=True):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.q, self.k = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)
        self.v, self.o = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)
        self.drop = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).contiguous().view(x.size(0), -1, self.h * self.d_k)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_k)

    def hide(self, scores, mask):
        return scores if mask is None else scores.masked_fill(mask == 0, -1e9)

    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        weights = self.hide(self.scores(q, k), mask).softmax(-1)
        return self.o(self.merge(self.drop(weights) @ v))


class NoScale(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


class ScaleDModel(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.h * self.d_k)


class NoMask(Attention):
    def hide(self, scores, mask):
        return scores


class MaskDropped(Attention):
    def hide(self, scores, mask):
        if mask is not None:
            scores.masked_fill(~mask, float("-inf"))
        return scores


class InvertedMask(Attention):
    def hide(self, scores, mask):
        return scores if mask is None else scores.masked_fill(mask, -1e9)


class WeakFill(Attention):
    def hide(self, scores, mask):
        return scores if mask is None else scores.masked_fill(~mask, -1e4)


class Renormalised(Attention):
    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        weights = self.scores(q, k).softmax(-1) * (1 if mask is None else mask)
        return self.o(self.merge(self.drop(weights / weights.sum(-1, keepdim=True)) @ v))


class TinyFill(Attention):
    def hide(self, scores, mask):
        return scores if mask is None else scores.masked_fill(~mask, -1e-9)


class MergeView(Attention):
    def merge(self, x):
        return x.reshape(x.size(0), -1, self.h * self.d_k)


class SplitView(Attention):
    def split(self, x):
        return x.view(x.size(0), self.h, -1, self.d_k)


class Fused(nn.Module):
    """One matrix for query, key and value; no biases; einsum."""

    def __init__(self, d_model, h, dropout=0.0):
        super().__init__()
        self.h = h
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.p = dropout

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q * (d // self.h) ** -0.5, k)
        if mask is not None:
            scores = scores + torch.zeros_like(scores).masked_fill(~mask, float("-inf"))
        weights = F.dropout(F.softmax(scores, dim=-1), self.p, self.training)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d))


def feed_forward(d_model, d_ff, dropout):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))


class AnnotatedNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size)), eps

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


class SequenceNorm(AnnotatedNorm):
    def forward(self, x):
        return F.layer_norm(x, x.shape[1:]) * self.a_2 + self.b_2


# -- the layer -----------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    attention, norm = Attention, nn.LayerNorm

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.attn = self.attention(d_model, n_heads, dropout)
        self.ff = feed_forward(d_model, d_ff, dropout)
        self.norm1, self.norm2 = self.norm(d_model), self.norm(d_model)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.norm_first = norm_first

    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, y, mask))
        return x + self.drop2(self.ff(self.norm2(x)))

    def post(self, x, mask):
        x = self.norm1(x + self.drop1(self.attn(x, x, x, mask)))
        return self.norm2(x + self.drop2(self.ff(x)))

    def forward(self, x, mask=None):
        return self.pre(x, mask) if self.norm_first else self.post(x, mask)


class LayerNormsFirst(nn.Module):
    """Other order of the parameters, other epsilon, F.dropout, float mask made inside."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False, eps=1e-6):
        super().__init__()
        self.ln = nn.ModuleList([nn.LayerNorm(d_model, eps=eps) for _ in range(2)])
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.attn = Attention(d_model, n_heads, dropout, bias=False)
        self.p, self.norm_first = dropout, norm_first

    def forward(self, x, mask=None):
        def attend(y):
            return self.attn(y, y, y, None if mask is None else mask.float())

        def feed(y):
            return self.w2(F.dropout(torch.relu(self.w1(y)), self.p, self.training))

        for norm, sublayer in zip(self.ln, (attend, feed)):
            y = F.dropout(sublayer(norm(x) if self.norm_first else x), self.p, self.training)
            x = x + y if self.norm_first else norm(x + y)
        return x


class LayerFused(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.mha = Fused(d_model, n_heads, dropout)
        self.conv1, self.conv2 = nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1)
        self.n1, self.n2, self.d = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(dropout)
        self.first = norm_first

    def ffn(self, x):
        return self.conv2(self.d(self.conv1(x.transpose(1, 2)).relu())).transpose(1, 2)

    def forward(self, x, mask=None):
        if self.first:
            x = x + self.d(self.mha(self.n1(x), mask))
            return x + self.d(self.ffn(self.n2(x)))
        x = self.n1(x + self.d(self.mha(x, mask)))
        return self.n2(x + self.d(self.ffn(x)))


class LayerLibrary(nn.Module):
    """nn.MultiheadAttention, whose mask means the opposite and has three dimensions."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)
        self.ffn = feed_forward(d_model, d_ff, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.dropout, self.h, self.norm_first = nn.Dropout(dropout), n_heads, norm_first

    def attend(self, x, mask):
        if mask is not None:
            b, t = x.shape[:2]
            mask = ~mask.expand(b, self.h, t, t).reshape(b * self.h, t, t)
        return self.dropout(self.self_attn(x, x, x, attn_mask=mask, need_weights=False)[0])

    def forward(self, x, mask=None):
        if self.norm_first:
            x = x + self.attend(self.norms[0](x), mask)
            return x + self.dropout(self.ffn(self.norms[1](x)))
        x = self.norms[0](x + self.attend(x, mask))
        return self.norms[1](x + self.dropout(self.ffn(x)))


class LayerHeads(nn.Module):
    """A matrix for each head, loops over heads."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        d_k = d_model // n_heads
        self.heads = nn.ModuleList(
            nn.ModuleDict({n: nn.Linear(d_model, d_k) for n in ("query", "key", "value")})
            for _ in range(n_heads)
        )
        self.proj = nn.Linear(d_model, d_model)
        self.ff, self.drop = feed_forward(d_model, d_ff, dropout), nn.Dropout(dropout)
        self.ln1, self.ln2, self.norm_first, self.d_k = (
            nn.LayerNorm(d_model),
            nn.LayerNorm(d_model),
            norm_first,
            d_k,
        )

    def attend(self, x, mask):
        out = []
        for head in self.heads:
            scores = torch.bmm(head["query"](x), head["key"](x).transpose(1, 2)) / self.d_k**0.5
            if mask is not None:
                scores = scores.masked_fill(torch.logical_not(mask.squeeze(1)), float("-inf"))
            out.append(torch.bmm(self.drop(torch.softmax(scores, -1)), head["value"](x)))
        return self.drop(self.proj(torch.cat(out, -1)))

    def forward(self, x, mask=None):
        a = self.ln1(x) if self.norm_first else x
        x = x + self.attend(a, mask)
        x = x if self.norm_first else self.ln1(x)
        b = self.ln2(x) if self.norm_first else x
        x = x + self.drop(self.ff(b))
        return x if self.norm_first else self.ln2(x)


class LayerNoScale(Layer):
    attention = NoScale


class LayerScaleDModel(Layer):
    attention = ScaleDModel


class LayerNoMask(Layer):
    attention = NoMask


class LayerMaskDropped(Layer):
    attention = MaskDropped


class LayerInvertedMask(Layer):
    attention = InvertedMask


class LayerWeakFill(Layer):
    attention = WeakFill


class LayerRenormalised(Layer):
    attention = Renormalised


class LayerTinyFill(Layer):
    attention = TinyFill


class LayerMergeView(Layer):
    attention = MergeView


class LayerSplitView(Layer):
    attention = SplitView


class LayerAnnotatedNorm(Layer):
    norm = AnnotatedNorm


class LayerSequenceNorm(Layer):
    norm = SequenceNorm


class LayerMaskForgotten(Layer):
    def forward(self, x, mask=None):
        return super().forward(x, None)


class LayerSharedNorm(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.norm2 = self.norm1


class LayerOneNormUsed(Layer):
    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, y, mask))
        return x + self.drop2(self.ff(self.norm1(x)))

    def post(self, x, mask):
        x = self.norm1(x + self.drop1(self.attn(x, x, x, mask)))
        return self.norm1(x + self.drop2(self.ff(x)))


class LayerAlwaysPost(Layer):
    def forward(self, x, mask=None):
        return self.post(x, mask)


class LayerAlwaysPre(Layer):
    def forward(self, x, mask=None):
        return self.pre(x, mask)


class LayerPreNormed(Layer):
    def pre(self, x, mask):
        x = self.norm1(x)
        x = x + self.drop1(self.attn(x, x, x, mask))
        x = self.norm2(x)
        return x + self.drop2(self.ff(x))


class LayerKeysNotNormed(Layer):
    def pre(self, x, mask):
        x = x + self.drop1(self.attn(self.norm1(x), x, x, mask))
        return x + self.drop2(self.ff(self.norm2(x)))


class LayerNoResidual(Layer):
    def post(self, x, mask):
        x = self.norm1(self.drop1(self.attn(x, x, x, mask)))
        return self.norm2(self.drop2(self.ff(x)))

    def pre(self, x, mask):
        y = self.norm1(x)
        x = self.drop1(self.attn(y, y, y, mask))
        return self.drop2(self.ff(self.norm2(x)))


class LayerNoSecondResidual(Layer):
    def post(self, x, mask):
        x = self.norm1(x + self.drop1(self.attn(x, x, x, mask)))
        return self.norm2(self.drop2(self.ff(x)))

    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, y, mask))
        return self.drop2(self.ff(self.norm2(x)))


class LayerItself(Layer):
    def pre(self, x, mask):
        y = self.norm1(x)
        x = self.drop1(self.attn(y, y, y, mask))
        x = x + x
        y = self.drop2(self.ff(self.norm2(x)))
        return y + y


class LayerNormOfOutput(Layer):
    def post(self, x, mask):
        x = x + self.norm1(self.drop1(self.attn(x, x, x, mask)))
        return x + self.norm2(self.drop2(self.ff(x)))


class LayerFromStart(Layer):
    def post(self, x, mask):
        y = self.norm1(x + self.drop1(self.attn(x, x, x, mask)))
        return self.norm2(x + self.drop2(self.ff(y)))

    def pre(self, x, mask):
        n = self.norm1(x)
        y = x + self.drop1(self.attn(n, n, n, mask))
        return x + self.drop2(self.ff(self.norm2(y)))


class LayerFeedDiscarded(Layer):
    def post(self, x, mask):
        x = self.norm1(x + self.drop1(self.attn(x, x, x, mask)))
        self.ff(x)
        return self.norm2(x)

    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, y, mask))
        self.drop2(self.ff(self.norm2(x)))
        return x


class LayerFeedFirst(Layer):
    def post(self, x, mask):
        x = self.norm2(x + self.drop2(self.ff(x)))
        return self.norm1(x + self.drop1(self.attn(x, x, x, mask)))

    def pre(self, x, mask):
        x = x + self.drop2(self.ff(self.norm2(x)))
        y = self.norm1(x)
        return x + self.drop1(self.attn(y, y, y, mask))


class LayerNoRelu(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff[1] = nn.Identity()


class LayerGelu(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff[1] = nn.GELU()


class LayerTuple(Layer):
    def forward(self, x, mask=None):
        return super().forward(x, mask), None


class LayerNoDropout(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, 0.0, norm_first)


class LayerFixedDropout(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff[2] = nn.Dropout(0.1)


class LayerInnerDropoutOnly(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.drop1 = self.drop2 = nn.Identity()


class LayerDropoutInEval(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.rate = dropout

    def post(self, x, mask):
        return F.dropout(super().post(x, mask), self.rate)


class LayerOtherDefault(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)


class LayerDetached(Layer):
    def post(self, x, mask):
        x = self.norm1(x.detach() + self.drop1(self.attn(x, x, x, mask)))
        return self.norm2(x + self.drop2(self.ff(x)))


class LayerInPlace(Layer):
    def pre(self, x, mask):
        y = self.norm1(x)
        x += self.drop1(self.attn(y, y, y, mask))
        return x + self.drop2(self.ff(self.norm2(x)))


class LayerTwoEps(Layer):
    """Norms of two makers, one with another eps."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.norm1 = nn.LayerNorm(d_model, eps=1e-8)


class LayerAttentionNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.attn = Attention(d_model, n_heads)


class LayerHiddenNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff = feed_forward(d_model, d_ff, 0.0)


class LayerOnlyOutputsDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.attn, self.ff = Attention(d_model, n_heads), feed_forward(d_model, d_ff, 0.0)


class LayerSecondOutputNotDropped(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff[3] = nn.Linear(d_ff, d_model, bias=True)
        self.drop2 = nn.Identity()


class LayerKeepShare(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, 1 - dropout if dropout else 0.0, norm_first)


class LayerHalfRate(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.attn = Attention(d_model, n_heads, dropout / 2)


class LayerDropsThrice(Layer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.ff.append(nn.Dropout(dropout))


class LayerDropsInput(Layer):
    def forward(self, x, mask=None):
        return super().forward(self.drop1(x), mask)


class LayerKeyPaddingOnly(LayerLibrary):
    def attend(self, x, mask):
        hidden = None if mask is None else ~mask[:, 0, 0]
        return self.dropout(self.self_attn(x, x, x, key_padding_mask=hidden, need_weights=False)[0])


class LayerMaskViewed(Layer):
    def forward(self, x, mask=None):
        return super().forward(x, None if mask is None else mask.view(x.size(0), 1, 1, x.size(1)))


class LayerOneNormFirst(Layer):
    """norm_first reaches the attention alone."""

    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, y, mask))
        return self.norm2(x + self.drop2(self.ff(x)))


class LayerCausal(Layer):
    def forward(self, x, mask=None):
        causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        return super().forward(x, causal if mask is None else causal & mask)


class LayerRowsZeroed(Layer):
    def forward(self, x, mask=None):
        out = super().forward(x, mask)
        return out if mask is None else out * mask[:, 0, 0, :, None]


class LayerValuesRaw(Layer):
    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(y, y, x, mask))
        return x + self.drop2(self.ff(self.norm2(x)))


class LayerQueriesRaw(Layer):
    def pre(self, x, mask):
        y = self.norm1(x)
        x = x + self.drop1(self.attn(x, y, y, mask))
        return x + self.drop2(self.ff(self.norm2(x)))


class LayerBatchLast(LayerLibrary):
    """nn.MultiheadAttention without batch_first."""

    def attend(self, x, mask):
        return self.dropout(
            self.self_attn(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))[0].transpose(0, 1)
        )


class LayerMaskOfFirst(Layer):
    def forward(self, x, mask=None):
        return super().forward(x, None if mask is None else mask[:1])


class LayerQueryAxis(Layer):
    def forward(self, x, mask=None):
        return super().forward(x, None if mask is None else mask.transpose(-1, -2))


# -- the stack -----------------------------------------------------------------------------------------------------------


class Stack(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.layers = nn.ModuleList(
            [Layer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]
        )
        self.final = nn.LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.final(x)


class StackSequence(nn.Module):
    """Copies of one layer; the norm stands before the layers."""

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        if norm_first:
            self.norm = nn.LayerNorm(d_model)
        layer = LayerLibrary(d_model, n_heads, d_ff, dropout, norm_first)
        self.blocks = nn.ModuleList([copy.deepcopy(layer) for _ in range(n_layers)])

    def forward(self, x, mask=None):
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x) if hasattr(self, "norm") else x


class StackFused(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.n = n_layers
        for i in range(n_layers):
            self.add_module(f"layer{i}", LayerFused(d_model, n_heads, d_ff, dropout, norm_first))
        self.ln_f = nn.LayerNorm(d_model) if norm_first else None

    def forward(self, x, mask=None):
        for i in range(self.n):
            x = getattr(self, f"layer{i}")(x, mask)
        if self.ln_f is not None:
            x = self.ln_f(x)
        return x


class StackHeads(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False, layer=LayerHeads):
        super().__init__()
        self.layers = nn.ModuleDict(
            {str(i): layer(d_model, n_heads, d_ff, dropout, norm_first) for i in range(n_layers)}
        )
        self.weight, self.bias = None, None
        if norm_first:
            self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x, mask=None):
        for i in sorted(self.layers):
            x = self.layers[i](x, mask)
        return x if self.weight is None else F.layer_norm(x, x.shape[-1:], self.weight, self.bias)


class StackTwoEps(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.final = nn.LayerNorm(d_model, eps=1e-6) if norm_first else nn.Identity()


class StackOf(Stack):
    layer = Layer

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList(
            [self.layer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]
        )


class StackAttentionNotDropped(StackOf):
    layer = LayerAttentionNotDropped


class StackOutputNotDropped(StackOf):
    layer = LayerSecondOutputNotDropped


class StackDropsInput(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, 0.0, norm_first)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        return super().forward(self.drop(x), mask)


class StackKeyPaddingOnly(StackOf):
    layer = LayerKeyPaddingOnly


class StackFinalTwice(Stack):
    def forward(self, x, mask=None):
        return self.final(super().forward(x, mask))


class StackShared(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList([Layer(d_model, n_heads, d_ff, dropout, norm_first)] * n_layers)


class StackFinalAlways(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.final = nn.LayerNorm(d_model)


class StackFinalNever(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.final = nn.Identity()


class StackFinalInverted(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.final = nn.Identity() if norm_first else nn.LayerNorm(d_model)


class StackFlagLost(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList([Layer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])


class StackMaskLost(Stack):
    def forward(self, x, mask=None):
        return super().forward(x)


class StackMaskFirst(Stack):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x, mask = layer(x, mask), None
        return self.final(x)


class StackLastOnly(Stack):
    def forward(self, x, mask=None):
        for layer in self.layers:
            out = layer(x, mask)
        return self.final(out)


class StackEarlyReturn(Stack):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
            return self.final(x)


class StackOneLess(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList(
            [Layer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(1, n_layers)]
        )


class StackResidual(Stack):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x = x + layer(x, mask)
        return self.final(x)


class StackAList(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(0, d_model, n_heads, d_ff, dropout, norm_first)
        del self.layers
        self.layers = [Layer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]


class StackNormEachLayer(Stack):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x = self.final(layer(x, mask))
        return x


class StackDropoutLost(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, norm_first=norm_first)


class StackTen(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(6, d_model, n_heads, d_ff, dropout, norm_first)


class StackNoScale(Stack):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList(
            [LayerNoScale(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers)]
        )


RIGHT = {
    "EncoderLayer": [
        Layer,
        LayerNormsFirst,
        LayerFused,
        LayerLibrary,
        LayerHeads,
        LayerTwoEps,
        LayerRenormalised,
    ],
    "Encoder": [Stack, StackSequence, StackFused, StackHeads, StackTwoEps],
}
WRONG = {
    "EncoderLayer": [
        (LayerNoScale, "no_scale"),
        (LayerScaleDModel, "scale_by_sqrt_d_model"),
        (LayerNoMask, "mask_ignored"),
        (LayerMaskDropped, "mask_ignored"),
        (LayerInvertedMask, "mask_inverted"),
        (LayerWeakFill, "mask_fill_too_weak"),
        (LayerTinyFill, "mask_fill_near_zero"),
        (LayerMergeView, "merge_without_transpose"),
        (LayerSplitView, "split_without_transpose"),
        (LayerAnnotatedNorm, "unbiased_variance+eps_outside_root"),
        (LayerSequenceNorm, "norm_over_sequence_and_features"),
        (LayerMaskForgotten, "mask_ignored"),
        (LayerSharedNorm, "norm_shared"),
        (LayerOneNormUsed, "norm_shared"),
        (LayerAlwaysPost, "norm_first_ignored"),
        (LayerAlwaysPre, "always_pre_norm"),
        (LayerPreNormed, "pre_residual_is_normed"),
        (LayerKeysNotNormed, "keys_not_normed"),
        (LayerNoResidual, "no_residual"),
        (LayerNoSecondResidual, "feed_forward_no_residual"),
        (LayerItself, "pre_output_added_to_itself"),
        (LayerNormOfOutput, "post_norm_on_sublayer_output"),
        (LayerFromStart, "residual_from_layer_input"),
        (LayerFeedDiscarded, "feed_forward_sublayer_discarded"),
        (LayerFeedFirst, "feed_forward_first"),
        (LayerNoRelu, "no_relu"),
        (LayerGelu, "gelu"),
        (LayerTuple, "returns_tuple"),
        (LayerNoDropout, "dropout_unused"),
        (LayerFixedDropout, "dropout_argument_ignored"),
        (LayerInnerDropoutOnly, "no_dropout_on_sublayer_output"),
        (LayerDropoutInEval, "dropout_in_eval"),
        (LayerOtherDefault, "default_of_dropout"),
        (LayerDetached, "wrong_gradient"),
        (LayerInPlace, "changes_its_input"),
        (LayerMaskOfFirst, "mask_of_first_sample"),
        (LayerQueryAxis, "mask_on_query_axis"),
        (LayerAttentionNotDropped, "no_dropout_on_self_attention_weights"),
        (LayerHiddenNotDropped, "no_dropout_on_hidden_features"),
        (LayerOnlyOutputsDropped, "no_dropout_on_self_attention_weights"),
        (LayerSecondOutputNotDropped, "no_dropout_on_sublayer_output"),
        (LayerKeepShare, "dropout_is_share_kept"),
        (LayerHalfRate, "dropout_rate_wrong"),
        (LayerDropsThrice, "dropout_rate_wrong"),
        (LayerDropsInput, "dropout_on_the_sum"),
        (LayerKeyPaddingOnly, "mask_of_first_query"),
        (LayerMaskViewed, "mask_not_broadcast"),
        (LayerOneNormFirst, None),
        (LayerCausal, "causal"),
        (LayerRowsZeroed, "hidden_rows_zeroed"),
        (LayerValuesRaw, "values_not_normed"),
        (LayerQueriesRaw, "queries_not_normed"),
        (LayerBatchLast, "attends_over_batch"),
    ],
    "Encoder": [
        (StackShared, "layers_shared"),
        (StackFinalAlways, "final_norm_in_post_norm"),
        (StackFinalNever, "no_final_norm"),
        (StackFinalInverted, "final_norm_inverted"),
        (StackFlagLost, "norm_first_not_passed_on"),
        (StackMaskLost, "mask_ignored"),
        (StackMaskFirst, "mask_for_first_layer_only"),
        (StackLastOnly, "only_one_layer_counts"),
        (StackEarlyReturn, "only_one_layer_counts"),
        (StackOneLess, "one_layer_too_few"),
        (StackResidual, "residual_around_layers"),
        (StackAList, "parameters_not_registered"),
        (StackNormEachLayer, "final_norm_after_each_layer"),
        (StackDropoutLost, "dropout_argument_ignored"),
        (StackTen, "n_layers_ignored"),
        (StackNoScale, "no_scale"),
        (StackAttentionNotDropped, "no_dropout_on_self_attention_weights"),
        (StackOutputNotDropped, "no_dropout_on_sublayer_output"),
        (StackDropsInput, "dropout_on_the_path_of_x"),
        (StackKeyPaddingOnly, "mask_of_first_query"),
        (StackFinalTwice, "final_norm_twice"),
    ],
}
