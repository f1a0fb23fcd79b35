"""The Transformer of `txcourse.solutions`: the same parameters and the same results, computed faster.

    model = FastTransformer(...)                        # arguments and state_dict of Transformer
    model.summed_loss(src, tgt, smoothing=0.1)          # training
    model.greedy_decode(src, max_len, bos_id, eos_id)   # decoding with a key-value cache

It is a Transformer with two more methods, so `model(src, tgt)` is still the plain computation. The tricks, in the
order in which they appear:

1. Packing. Projections, feed-forward networks and norms act on each position alone, so they run on the real
   tokens only, as one matrix (n, d_model). Only attention sees the padded grid (B, T).
2. Fused projections. Query, key and value of a self-attention are one matrix product; so are the keys and values
   of all decoder layers together, since every cross-attention reads the same memory.
3. Cheap dropout. A 64-bit random number decides about four entries.
4. The causal mask alone. With padding on the right, what stands left of a real target position is real.
5. Only real targets reach the output layer, one chunk at a time, and the loss computes its own gradient: the
   logits (n, V) and their gradient never exist as a whole.
6. A cache. Decoding keeps keys and values in buffers allocated once and computes one position per step;
   finished sequences leave the batch.

Sequences must be padded on the right, as `collate` does, and hold at least one token.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from txcourse.solutions.feed_forward_and_residuals import (
    LayerNorm,
    PositionwiseFeedForward,
    ResidualConnection,
)
from txcourse.solutions.multi_head_attention import MultiHeadAttention
from txcourse.solutions.transformer import Transformer


class FastTransformer(Transformer):
    """`solutions.Transformer` with a faster training loss and cached greedy decoding."""

    def summed_loss(
        self, src: Int[Tensor, "batch source"], tgt: Int[Tensor, "batch target"], smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Label-smoothed cross-entropy, summed over the real targets: every token of tgt but the first of each row.

        Divide by their number for the mean. Equals label_smoothed_cross_entropy on the logits of
        `model(tgt_in, labels)` times that number.
        Raises ValueError when padding is not on the right, or a row has no token (tgt: fewer than two).
        """
        inputs, labels = tgt[:, :-1], tgt[:, 1:]
        source, target = Packing(src != self.pad_id), Packing(labels != self.pad_id)
        memory = self._encode_packed(src, source)  # (n_s, d)
        hidden = self._decode_packed(inputs, target, memory, source)  # (n_t, d)
        loss: Tensor = LinearCrossEntropy.apply(
            hidden, self.output.weight, self.output.bias, target.pack(labels), smoothing
        )
        return loss

    def _encode_packed(self, src: Tensor, source: "Packing") -> Float[Tensor, "n_source d_model"]:
        x = self._embed(self.src_embedding, src, source)
        for layer in cast("Iterable[Any]", self.encoder.layers):
            attention = partial(self_attention, layer.self_attention, packing=source, mask=source.mask)
            x = residual(layer.residuals[0], x, attention)
            x = residual(layer.residuals[1], x, partial(feed_forward, layer.feed_forward))
        return x if self.encoder.norm is None else norm(self.encoder.norm, x)

    def _decode_packed(
        self, inputs: Tensor, target: "Packing", memory: Tensor, source: "Packing"
    ) -> Float[Tensor, "n_target d_model"]:
        x = self._embed(self.tgt_embedding, inputs, target)
        keys_values = memory_keys_values(self.decoder.layers, memory, source)
        for layer, (key, value) in zip(cast("Iterable[Any]", self.decoder.layers), keys_values, strict=True):
            attention = partial(self_attention, layer.self_attention, packing=target, causal=True)
            look_up = partial(
                cross_attention, layer.cross_attention, key=key, value=value, packing=target, mask=source.mask
            )
            x = residual(layer.residuals[0], x, attention)
            x = residual(layer.residuals[1], x, look_up)
            x = residual(layer.residuals[2], x, partial(feed_forward, layer.feed_forward))
        return x if self.decoder.norm is None else norm(self.decoder.norm, x)

    def _embed(self, embedding: nn.Module, tokens: Tensor, packing: "Packing") -> Float[Tensor, "n d_model"]:
        length, max_len = tokens.size(1), self.positions.table.size(0)
        if length > max_len:
            raise ValueError(f"a sequence of {length} positions, but max_len = {max_len}")
        x = embedding(packing.pack(tokens)[None])[0]  # (n, d)
        x = x + self.positions.table[packing.index % length]
        return dropout(x, self.positions.dropout)

    @torch.no_grad()
    def greedy_decode(
        self, src: Int[Tensor, "batch source"], max_len: int, bos_id: int, eos_id: int
    ) -> Int[Tensor, "batch length"]:
        """As solutions.decoding.greedy_decode: (B, ≤ max_len) starting with bos, padding after eos."""
        was_training = self.training
        self.eval()
        try:
            cache = DecoderCache(self, src, max_len)
            tokens = src.new_full((src.size(0), max_len), self.pad_id)
            tokens[:, 0] = bos_id
            rows = torch.arange(src.size(0), device=src.device)  # of `tokens`, for each sequence in the cache
            alive = torch.ones_like(rows, dtype=torch.bool)
            length = 1
            while length < max_len and alive.any():
                if 2 * int(alive.sum()) <= len(rows):
                    cache.keep(alive)
                    rows, alive = rows[alive], alive[alive]
                chosen = cache.step(tokens[rows, length - 1]).argmax(-1)  # (b,)
                tokens[rows, length] = torch.where(alive, chosen, self.pad_id)
                alive &= chosen != eos_id
                length += 1
            return tokens[:, :length]
        finally:
            self.train(was_training)


class Packing:
    """Where the real tokens of a right-padded batch are: between the grid (B, T, …) and a matrix (n, …)."""

    def __init__(self, real: Bool[Tensor, "batch length"]) -> None:
        lengths = real.sum(1)
        self.batch, self.length = real.shape
        if not bool((real == (torch.arange(self.length, device=real.device) < lengths[:, None])).all()):
            raise ValueError("padding must stand on the right of each sequence")
        if not bool(lengths.all()):
            raise ValueError("every sequence needs at least one real token")
        self.index = real.flatten().nonzero().squeeze(1)  # (n,), the place of each token in the grid
        self.full = len(self.index) == real.numel()
        self.mask = None if self.full else real[:, None, None, :]  # (B, 1, 1, T), True = may attend
        # The token of each place. Padding repeats token 0: as a key it is masked, as a query it is dropped, so no
        # gradient flows through the repetition.
        self.token = (real.flatten().cumsum(0) - 1).where(real.flatten(), 0)  # (B·T,)

    def pack(self, grid: Tensor) -> Tensor:
        """(B, T, …) → (n, …)."""
        flat = grid.flatten(0, 1)
        return flat if self.full else flat.index_select(0, self.index)

    def grid(self, packed: Tensor) -> Tensor:
        """(n, …) → (B, T, …)."""
        flat = packed if self.full else packed.index_select(0, self.token)
        return flat.unflatten(0, (self.batch, self.length))


def norm(layer: LayerNorm, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """LayerNorm in one kernel."""
    return F.layer_norm(x, x.shape[-1:], layer.gain, layer.shift, layer.eps)


def residual(layer: ResidualConnection, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """The residual connection, post-norm or pre-norm."""
    if layer.norm_first:
        return x + dropout(sublayer(norm(layer.norm, x)), layer.dropout)
    return norm(layer.norm, x + dropout(sublayer(x), layer.dropout))


def dropout(x: Tensor, layer: nn.Dropout) -> Tensor:
    """Dropout at a quarter of the random numbers: each gives four entries their 16 bits.

    The rate is so exact to 1 / 65536.
    """
    if not layer.training or layer.p == 0:
        return x
    if x.device.type != "cpu" or layer.p == 1:
        return F.dropout(x, layer.p)
    dropped = min(round(layer.p * 2**16), 2**16 - 1)  # of the 2¹⁶ values of 16 bits
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= dropped - 2**15
    return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


def feed_forward(layer: PositionwiseFeedForward, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The feed-forward network; the ReLU overwrites its input."""
    return layer.linear_2(dropout(layer.linear_1(x).relu_(), layer.dropout))


def fused(projections: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of several projections of the same input, one below the other."""
    weight = torch.cat([projection.weight for projection in projections])
    bias = None if projections[0].bias is None else torch.cat([projection.bias for projection in projections])
    return weight, bias


def self_attention(
    layer: MultiHeadAttention,
    x: Float[Tensor, "n d"],
    packing: Packing,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "n d"]:
    """Self-attention with one projection for query, key and value."""
    qkv = packing.grid(F.linear(x, *fused([layer.w_q, layer.w_k, layer.w_v])))  # (B, T, 3·d)
    query, key, value = qkv.unflatten(2, (3, layer.n_heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, h, T, d_k)
    return layer.w_o(packing.pack(attend(layer, query, key, value, mask, causal)))


def cross_attention(
    layer: MultiHeadAttention,
    x: Float[Tensor, "n d"],
    key: Float[Tensor, "batch heads source d_k"],
    value: Float[Tensor, "batch heads source d_k"],
    packing: Packing,
    mask: Tensor | None,
) -> Float[Tensor, "n d"]:
    """Cross-attention to keys and values that were projected before."""
    query = packing.grid(layer.w_q(x)).unflatten(2, (layer.n_heads, -1)).transpose(1, 2)  # (B, h, T, d_k)
    return layer.w_o(packing.pack(attend(layer, query, key, value, mask)))


def memory_keys_values(
    layers: nn.ModuleList, memory: Tensor, packing: Packing
) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every decoder layer's cross-attention, (B, h, S, d_k) each, in one product."""
    attentions = [layer.cross_attention for layer in cast("Iterable[Any]", layers)]
    weight, bias = fused([projection for a in attentions for projection in (a.w_k, a.w_v)])
    keys_values = packing.grid(F.linear(memory, weight, bias))  # (B, S, N·2·d)
    parts = keys_values.unflatten(2, (2 * len(attentions), attentions[0].n_heads, -1)).permute(2, 0, 3, 1, 4)
    return [(parts[2 * i], parts[2 * i + 1]) for i in range(len(attentions))]


def attend(
    layer: MultiHeadAttention,
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_k"],
    mask: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "batch query d_model"]:
    """Scaled dot-product attention, heads merged: by PyTorch's kernel, or, with dropout, by matrices."""
    if layer.training and layer.dropout.p > 0:  # the kernel has no fast form of it on a CPU
        scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, h, T_q, T_k)
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill_(~mask, -math.inf)  # no row is masked as a whole
        heads = dropout(scores.softmax(-1), layer.dropout) @ value
    else:
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    return heads.transpose(1, 2).flatten(2)  # (B, T_q, d_model)


class LinearCrossEntropy(torch.autograd.Function):
    """Output layer and label-smoothed cross-entropy in one, summed over the rows of `hidden`.

    For a row with logits z and softmax p, the loss is logsumexp(z) − (1 − ε) z_label − ε mean(z) and its gradient
    with respect to z is p − (1 − ε) one-hot − ε / V. Both are known at once, so the gradient is computed on the way
    forward, chunk by chunk, in the memory of the logits.
    """

    CHUNK = 2**21  # logits at a time: 8 MB in float32, which a processor's cache holds about

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> Tensor:
        vocabulary = weight.size(0)
        needs_gradient = any(ctx.needs_input_grad)
        grad_hidden = torch.empty_like(hidden) if needs_gradient else None
        grad_weight = torch.zeros_like(weight) if needs_gradient else None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        loss = hidden.new_zeros(())
        size = max(1, LinearCrossEntropy.CHUNK // vocabulary)
        for start in range(0, len(hidden), size):
            part, label = hidden[start : start + size], labels[start : start + size, None]
            logits = F.linear(part, weight, bias)  # (n, V)
            log_sum = logits.logsumexp(1, keepdim=True)  # (n, 1)
            loss += (log_sum - (1 - smoothing) * logits.gather(1, label)).sum() - smoothing * logits.mean(
                1
            ).sum()
            if grad_hidden is None or grad_weight is None:
                continue
            grad = logits.sub_(log_sum).exp_().sub_(smoothing / vocabulary)
            grad.scatter_add_(1, label, grad.new_full((1, 1), smoothing - 1).expand_as(label))
            torch.mm(grad, weight, out=grad_hidden[start : start + size])
            grad_weight.addmm_(grad.t(), part)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if g is None else g * grad_outputs[0] for g in ctx.saved_tensors), None, None)


class DecoderCache:
    """The decoder's state while it writes: keys and values of memory and of all positions so far, in buffers
    allocated once."""

    def __init__(self, model: FastTransformer, src: Int[Tensor, "batch source"], max_len: int) -> None:
        self.model = model
        source = Packing(src != model.pad_id)
        self.mask = source.mask
        memory = model._encode_packed(src, source)
        layers: list[Any] = list(model.decoder.layers)
        self.memory = memory_keys_values(model.decoder.layers, memory, source)
        self.projections = [fused([a.w_q, a.w_k, a.w_v]) for a in (layer.self_attention for layer in layers)]
        batch, n_heads, _, d_k = self.memory[0][0].shape
        self.keys = memory.new_empty(len(layers), batch, n_heads, max_len, d_k)
        self.values = torch.empty_like(self.keys)
        self.length = 0  # positions so far

    def step(self, tokens: Int[Tensor, " batch"]) -> Float[Tensor, "batch vocabulary"]:
        """The logits that follow when `tokens` are the next position of each sequence."""
        model, now = self.model, self.length
        x = model.tgt_embedding(tokens[:, None])[:, 0] + model.positions.table[now]  # (B, d)
        self.length += 1
        for i, layer in enumerate(cast("Iterable[Any]", model.decoder.layers)):
            x = residual(layer.residuals[0], x, partial(self._attend_to_past, i, layer.self_attention))
            x = residual(layer.residuals[1], x, partial(self._attend_to_memory, i, layer.cross_attention))
            x = residual(layer.residuals[2], x, partial(feed_forward, layer.feed_forward))
        return model.output(x if model.decoder.norm is None else norm(model.decoder.norm, x))

    def keep(self, rows: Tensor) -> None:
        """Go on with these sequences only: a boolean mask, or row numbers (repeated ones too, for a beam)."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.mask = None if self.mask is None else self.mask[rows]

    def _attend_to_past(self, i: int, layer: MultiHeadAttention, x: Tensor) -> Tensor:
        query, key, value = (
            F.linear(x, *self.projections[i]).unflatten(1, (3, layer.n_heads, 1, -1)).unbind(1)
        )
        self.keys[i, :, :, self.length - 1 : self.length] = key  # (B, h, 1, d_k)
        self.values[i, :, :, self.length - 1 : self.length] = value
        past = slice(0, self.length)
        return layer.w_o(attend(layer, query, self.keys[i, :, :, past], self.values[i, :, :, past])[:, 0])

    def _attend_to_memory(self, i: int, layer: MultiHeadAttention, x: Tensor) -> Tensor:
        query = layer.w_q(x).unflatten(1, (layer.n_heads, 1, -1))  # (B, h, 1, d_k)
        return layer.w_o(attend(layer, query, *self.memory[i], self.mask)[:, 0])
