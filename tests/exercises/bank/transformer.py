"""Answers to the exercises of 10_transformer, right and wrong, as people write them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# -- initialise ------------------------------------------------------------------------------------------------------


def _is_embedding(module):
    return isinstance(module, nn.Embedding) or "Embedding" in type(module).__name__


def _is_norm(module):
    return "Norm" in type(module).__name__


def _embedding(module, std):
    weight = next(iter(module._parameters.values()))
    weight.data.normal_(0.0, std)
    pad = getattr(module, "padding_idx", getattr(module, "pad_id", None))
    if pad is not None:
        weight.data[pad] = 0.0
    return weight


def initialise_two_passes(model):
    done = [
        id(_embedding(m, next(m.parameters()).shape[1] ** -0.5)) for m in model.modules() if _is_embedding(m)
    ]
    for m in model.modules():
        for p in m.parameters(recurse=False):
            if id(p) in done:
                continue
            done.append(id(p))
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
            elif not _is_norm(m):
                nn.init.zeros_(p)


def initialise_matrices_then_embeddings(model):
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    for m in model.modules():
        if _is_embedding(m):
            _embedding(m, 1 / math.sqrt(next(m.parameters()).size(-1)))
        elif not _is_norm(m):
            for p in m._parameters.values():
                if p is not None and p.dim() == 1:
                    p.data.fill_(0)


@torch.no_grad()
def initialise_by_hand(model, verbose=False):
    tables = {id(p) for m in model.modules() if _is_embedding(m) for p in m.parameters()}
    for m in model.modules():
        for name, p in m.named_parameters(recurse=False):
            if id(p) in tables:
                p.copy_(torch.randn_like(p) / p.shape[-1] ** 0.5) if _is_embedding(m) else None
                pad = getattr(m, "padding_idx", getattr(m, "pad_id", None))
                if _is_embedding(m) and pad is not None:
                    p[pad] = 0
            elif p.ndim == 2:
                a = math.sqrt(6 / sum(p.shape))
                p.copy_((2 * torch.rand_like(p) - 1) * a)
            else:
                p.fill_(float(_is_norm(m) and name in ("weight", "gain", "gamma", "scale")))


def initialise_with_apply(model):
    def one(m):
        if not _is_embedding(m):
            for p in m.parameters(recurse=False):
                if p.dim() > 1:
                    nn.init.xavier_uniform_(p)
                elif not _is_norm(m):
                    nn.init.constant_(p, 0.0)

    model.apply(one)
    model.apply(lambda m: _embedding(m, next(m.parameters()).shape[1] ** -0.5) if _is_embedding(m) else None)


@torch.no_grad()
def initialise_in_order(model):
    """Right where the embeddings come before what shares their matrix, as in the course's models."""
    done = set()
    for m in model.modules():
        for name, p in m.named_parameters(recurse=False):
            if p in done:
                continue
            done.add(p)
            if _is_embedding(m):
                _embedding(m, p.shape[-1] ** -0.5)
            elif p.dim() > 1:
                nn.init.xavier_uniform_(p)
            else:
                p.fill_(float(_is_norm(m) and name in ("gain", "weight")))


def initialise_nothing(model):
    pass


def initialise_xavier_for_all(model):
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
        else:
            nn.init.zeros_(p) if not bool((p == 1).all()) else None


def initialise_normal(model):
    initialise_two_passes(model)
    for m in model.modules():
        if isinstance(m, nn.Linear) and not any(
            m.weight is e.weight for e in model.modules() if _is_embedding(e)
        ):
            nn.init.xavier_normal_(m.weight)


def initialise_kaiming(model):
    initialise_two_passes(model)
    for m in model.modules():
        if isinstance(m, nn.Linear) and not any(
            m.weight is e.weight for e in model.modules() if _is_embedding(e)
        ):
            nn.init.kaiming_uniform_(m.weight, nonlinearity="relu")


def initialise_embeddings_standard(model):
    initialise_two_passes(model)
    for m in model.modules():
        if _is_embedding(m):
            _embedding(m, 1.0)


def initialise_biases_kept(model):
    biases = [(p, p.detach().clone()) for p in model.parameters() if p.dim() == 1]
    initialise_two_passes(model)
    for p, value in biases:
        p.data.copy_(value)


def initialise_pad_filled(model):
    initialise_two_passes(model)
    for m in model.modules():
        if _is_embedding(m):
            nn.init.normal_(next(m.parameters()), std=next(m.parameters()).shape[1] ** -0.5)


def initialise_tied_twice(model):
    initialise_two_passes(model)
    for m in model.modules():
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)


def initialise_norms_zeroed(model):
    initialise_two_passes(model)
    for p in model.parameters():
        if p.dim() == 1:
            nn.init.zeros_(p)


def initialise_row_0(model):
    initialise_pad_filled(model)
    for m in model.modules():
        if _is_embedding(m):
            next(m.parameters()).data[0] = 0


def initialise_none_as_row(model):
    initialise_pad_filled(model)
    for m in model.modules():
        if _is_embedding(m):
            next(m.parameters()).data[getattr(m, "padding_idx", getattr(m, "pad_id", None))] = 0


def initialise_orthogonal(model):
    initialise_two_passes(model)
    for m in model.modules():
        if isinstance(m, nn.Linear) and m.weight.shape[0] == m.weight.shape[1]:
            nn.init.orthogonal_(m.weight)


def initialise_same_seed(model):
    initialise_two_passes(model)
    for m in model.modules():
        if isinstance(m, nn.Linear) and not any(
            m.weight is e.weight for e in model.modules() if _is_embedding(e)
        ):
            torch.manual_seed(0)
            nn.init.xavier_uniform_(m.weight)


def initialise_truncated(model):
    initialise_two_passes(model)
    for m in model.modules():
        if _is_embedding(m):
            weight = _embedding(m, 1.0)
            std = weight.shape[1] ** -0.5
            nn.init.trunc_normal_(weight.data[1:], std=std, a=-2 * std, b=2 * std)


# -- count_parameters ------------------------------------------------------------------------------------------------


def count_modules(model):
    seen = {}
    for m in model.modules():
        seen.update({id(p): p.numel() for p in m._parameters.values() if p is not None})
    return sum(seen.values())


def count_loop(model, verbose=False):
    total = 0
    for p in model.parameters():
        n = 1
        for size in p.shape:
            n *= size
        total += n
    return total


def count_set(model):
    return sum(p.nelement() for p in set(model.parameters()))


def count_frozen(model):
    return sum(p.requires_grad_(False).numel() for p in model.parameters())


def count_in_memory(model):
    return sum({p.data_ptr(): p.numel() for p in model.parameters()}.values())


def count_names(model):
    return sum(len(p.flatten()) for _, p in model.named_parameters())


# -- Transformer -----------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, d, h, p, bias=True):
        super().__init__()
        self.h, self.p = h, p
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)

    def forward(self, q, kv, mask):
        w = self.qkv.weight.chunk(3)
        b = self.qkv.bias.chunk(3) if self.qkv.bias is not None else (None,) * 3
        q, k, v = (
            F.linear(x, w[i], b[i]).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for i, x in enumerate((q, kv, kv))
        )
        heads = F.scaled_dot_product_attention(q, k, v, mask, self.p if self.training else 0.0)
        return self.o(heads.transpose(1, 2).flatten(2))


class Library(nn.Module):
    """PyTorch's attention, with masks of its kind."""

    def __init__(self, d, h, p, bias=True):
        super().__init__()
        self.inner = nn.MultiheadAttention(d, h, p, bias=bias, batch_first=True)

    def forward(self, q, kv, mask):
        hidden = (~mask).expand(q.shape[0], self.inner.num_heads, q.shape[1], kv.shape[1]).flatten(0, 1)
        return self.inner(q, kv, kv, attn_mask=hidden, need_weights=False)[0]


class Block(nn.Module):
    def __init__(self, attention, d, h, ff, p, first, bias, cross):
        super().__init__()
        self.first = first
        self.self_attention = attention(d, h, p, bias)
        self.cross = attention(d, h, p, bias) if cross else None
        self.ff = nn.Sequential(nn.Linear(d, ff), nn.ReLU(), nn.Dropout(p), nn.Linear(ff, d))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 + cross))
        self.drop = nn.Dropout(p)

    def around(self, x, norm, f):
        return x + self.drop(f(norm(x))) if self.first else norm(x + self.drop(f(x)))

    def forward(self, x, mask, memory=None, memory_mask=None):
        norms = iter(self.norms)
        x = self.around(x, next(norms), lambda y: self.self_attention(y, y, mask))
        if self.cross is not None:
            x = self.around(x, next(norms), lambda y: self.cross(y, memory, memory_mask))
        return self.around(x, next(norms), self.ff)


def table(n, d):
    position, pe = torch.arange(n).unsqueeze(1).float(), torch.zeros(n, d)
    rate = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
    pe[:, 0::2], pe[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)[:, : d // 2]
    return pe


def drop_biases(module):
    for attention in module.modules():
        if isinstance(attention, Attention):
            for projection in attention.modules():
                if isinstance(projection, nn.Linear):
                    projection.bias = None


class Plain(nn.Module):
    """The whole model in one class; the wrong versions below change one method."""

    attention, bias, buffered = Attention, True, True

    def __init__(
        self,
        src_vocab,
        tgt_vocab,
        d_model=512,
        n_heads=8,
        n_layers=6,
        d_ff=2048,
        dropout=0.1,
        norm_first=False,
        tie_embeddings=False,
        max_len=5000,
        pad_id=0,
    ):
        super().__init__()
        if tie_embeddings == "all" and src_vocab != tgt_vocab:
            raise ValueError("one embedding needs one vocabulary")
        self.d, self.pad, self.max_len, self.first = d_model, pad_id, max_len, norm_first
        self.enc, self.dec = (
            nn.ModuleList(
                Block(self.attention, d_model, n_heads, d_ff, dropout, norm_first, self.bias, cross)
                for _ in range(n_layers)
            )
            for cross in (False, True)
        )
        self.final = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2)) if norm_first else None
        self.tgt = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.src = (
            self.tgt if tie_embeddings == "all" else nn.Embedding(src_vocab, d_model, padding_idx=pad_id)
        )
        self.out = nn.Linear(d_model, tgt_vocab, bias=not tie_embeddings)
        if tie_embeddings:
            self.out.weight = self.tgt.weight
        if self.buffered:
            self.register_buffer("pe", table(max_len, d_model), persistent=False)
        self.drop = nn.Dropout(dropout)
        initialise_matrices_then_embeddings(self)

    def scaled(self, x):
        return x * math.sqrt(self.d)

    def embed(self, embedding, tokens):
        if tokens.shape[1] > self.max_len:
            raise ValueError("longer than max_len")
        pe = self.pe[: tokens.shape[1]] if self.buffered else table(tokens.shape[1], self.d)
        return self.drop(self.scaled(embedding(tokens)) + pe)

    def src_mask(self, src):
        return (src != self.pad)[:, None, None, :]

    def tgt_mask(self, tgt):
        t = tgt.shape[1]
        return torch.ones(t, t, dtype=torch.bool, device=tgt.device).tril() & self.src_mask(tgt)

    def encode(self, src):
        x = self.embed(self.src, src)
        for block in self.enc:
            x = block(x, self.src_mask(src))
        return x if self.final is None else self.final[0](x)

    def decode(self, tgt, memory, src):
        x = self.embed(self.tgt, tgt)
        for block in self.dec:
            x = block(x, self.tgt_mask(tgt), memory, self.src_mask(src))
        return self.out(x if self.final is None else self.final[1](x))

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


class WithLibrary(Plain):
    attention = Library


class WithoutBiases(Plain):
    bias = False


class BiasesInEncoderOnly(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        drop_biases(self.dec)


class OnTheFly(Plain):
    buffered = False


class NoScale(Plain):
    def scaled(self, x):
        return x


class NoPositions(Plain):
    def embed(self, embedding, tokens):
        return self.drop(self.scaled(embedding(tokens)))


class NoCausalMask(Plain):
    def tgt_mask(self, tgt):
        return self.src_mask(tgt)


class NoSourceMask(Plain):
    def decode(self, tgt, memory, src):
        return super().decode(tgt, memory, torch.full_like(src, self.pad + 1))


class Probabilities(Plain):
    def decode(self, tgt, memory, src):
        return super().decode(tgt, memory, src).softmax(-1)


class SeesTheNext(Plain):
    def tgt_mask(self, tgt):
        t = tgt.shape[1]
        return torch.ones(t, t, dtype=torch.bool).tril(1) & self.src_mask(tgt)


class NoFinalNorm(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.final = None


class NoDropoutOnTheSum(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.drop = nn.Dropout(0.0)


def _never_drops(stack):
    for module in stack.modules():
        if isinstance(module, nn.Dropout | Attention):
            module.p = 0.0


class NoDropoutInTheStacks(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _never_drops(self.enc)
        _never_drops(self.dec)


class NoDropoutInTheDecoder(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _never_drops(self.dec)


class KeepsTheSource(Plain):
    """The mask of the memory is that of the last source encoded, whatever decode is given."""

    def encode(self, src):
        self.last = src
        return super().encode(src)

    def decode(self, tgt, memory, src):
        return super().decode(tgt, memory, self.last)


class CopiesForTying(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.out.weight = nn.Parameter(self.out.weight.detach().clone())


class AcceptsUnequal(Plain):
    def __init__(self, src_vocab, tgt_vocab, *args, **kwargs):
        super().__init__(max(src_vocab, tgt_vocab), max(src_vocab, tgt_vocab), *args, **kwargs)


RIGHT = {
    "initialise": [
        initialise_two_passes,
        initialise_matrices_then_embeddings,
        initialise_by_hand,
        initialise_with_apply,
        initialise_in_order,
    ],
    "Transformer": [Plain, WithLibrary, WithoutBiases, BiasesInEncoderOnly, OnTheFly],
    "count_parameters": [count_modules, count_loop, count_set, count_names, count_in_memory],
}

WRONG = {
    "initialise": [
        (initialise_nothing, "matrices_not_touched"),
        (initialise_xavier_for_all, "embeddings_xavier"),
        (initialise_normal, "xavier_normal"),
        (initialise_kaiming, "kaiming_uniform"),
        (initialise_embeddings_standard, "embeddings_standard_normal"),
        (initialise_biases_kept, "biases_not_touched"),
        (initialise_pad_filled, "pad_row_not_zero"),
        (initialise_tied_twice, "tied_matrix_drawn_twice"),
        (initialise_norms_zeroed, "norm_gain_zeroed"),
        (initialise_row_0, "pad_row_always_0"),
        (initialise_none_as_row, "none_taken_for_a_row"),
        (initialise_orthogonal, "orthogonal_matrices"),
        (initialise_same_seed, "matrices_alike"),
        (initialise_truncated, "embeddings_wrong_deviation"),
    ],
    "Transformer": [
        (NoScale, None),
        (NoPositions, "no_positions"),
        (NoCausalMask, None),
        (NoSourceMask, None),
        (Probabilities, "softmax_on_output"),
        (SeesTheNext, None),
        (NoFinalNorm, None),
        (CopiesForTying, None),
        (AcceptsUnequal, "all_without_error"),
        (NoDropoutOnTheSum, "no_dropout_on_positions"),
        (NoDropoutInTheStacks, "no_dropout_in_encoder"),
        (NoDropoutInTheDecoder, "no_dropout_in_decoder"),
        (KeepsTheSource, "decode_uses_what_encode_kept"),
    ],
    "count_parameters": [
        (
            lambda model: sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False)),
            "shared_counted_twice",
        ),
        (lambda model: sum(p.numel() for p in model.state_dict().values()), None),
        (lambda model: len(list(model.parameters())), "tensors_counted"),
        (lambda model: sum(p.numel() for p in model.parameters() if p.dim() > 1), "matrices_only"),
        (lambda model: sum(4 * p.numel() for p in model.parameters()), None),
        (lambda model: sum(p.numel() for m in model.modules() for p in m.parameters()), None),
        (lambda model: sum(p.shape[0] for p in model.parameters()), None),
        (lambda model: sum(p.numel() for p in model.parameters(recurse=False)), None),
        (count_frozen, "freezes_the_model"),
    ],
}
