"""The Transformer of `txcourse.solutions`: the same parameters and the same results, computed faster.

    model = FastTransformer(...)                            # arguments and state_dict of Transformer
    model.summed_loss(src, tgt, smoothing=0.1)              # training
    Decoding([model]).greedy(src, max_len, bos_id, eos_id)  # decoding with a key-value cache; .beam too

It is a Transformer with one more method, so `model(src, tgt)` is still the plain computation. The tricks, in the
order in which they appear; a number is the time without it divided by the time with it (benchmarks/tricks.py: one
CPU thread, d_model 256, 64 sequences of 20 to 40 tokens):

1. Packing (1.3). Projections, feed-forward networks and norms act on each position alone, so they run on the real
   tokens only, as one matrix (n, d_model). Only attention sees the padded grid (B, T).
2. Cheap dropout (1.06). A 64-bit random number decides about four entries.
3. Attention by matrices where it has dropout (1.01), and the causal mask alone: with padding on the right, what
   stands left of a real target position is real.
4. Only real targets reach the output layer, one chunk at a time, and the loss computes its own gradient (1.08, and
   less memory): the logits (n, V) and their gradient never exist as a whole.
5. A cache (benchmarks/decoding.py: 8 for one sequence of 40 tokens, 29 for 64). Decoding keeps keys and values in
   buffers allocated once and computes one position per step.
6. Early leave. Finished sequences leave the batch, and so does a beam whose live prefixes cannot win any more.
7. Weights in the order of reading (1.6 for one sequence, 1.2 for 64). A step has few rows, so its time is that of
   reading the weights, and decoding copies them once: transposed, with query, key and value side by side, for one row
   (as a sum of rows, 1.1) and packed by oneDNN for more (1.14 for 64).
8. Attention by matrices for single queries, to keys of the memory that are stored as columns, and argmax by blocks
   (1.03 and 1.02 for 64).

Side by side they gain nothing in training (0.99): there the weights would be copied in every step.

Sequences must be padded on the right, as `collate` does, and hold at least one token.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
    """`solutions.Transformer` with a faster training loss; `Decoding` is for its use afterwards."""

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
        for layer in cast("Iterable[Any]", self.decoder.layers):
            key, value = memory_keys_values(layer.cross_attention, memory, source)
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


def heads(x: Float[Tensor, "n d"], packing: Packing, n_heads: int) -> Float[Tensor, "batch heads length d_k"]:
    """The projected tokens on the grid, cut into heads."""
    return packing.grid(x).unflatten(2, (n_heads, -1)).transpose(1, 2)


def self_attention(
    layer: MultiHeadAttention,
    x: Float[Tensor, "n d"],
    packing: Packing,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "n d"]:
    """Self-attention among the tokens of each sequence."""
    query, key, value = (heads(w(x), packing, layer.n_heads) for w in (layer.w_q, layer.w_k, layer.w_v))
    return layer.w_o(packing.pack(attend(layer, query, key, value, mask, causal)))


def cross_attention(
    layer: MultiHeadAttention,
    x: Float[Tensor, "n d"],
    key: Float[Tensor, "batch heads source d_k"],
    value: Float[Tensor, "batch heads source d_k"],
    packing: Packing,
    mask: Tensor | None,
) -> Float[Tensor, "n d"]:
    """Cross-attention to the keys and values of the memory."""
    query = heads(layer.w_q(x), packing, layer.n_heads)  # (B, h, T, d_k)
    return layer.w_o(packing.pack(attend(layer, query, key, value, mask)))


def memory_keys_values(layer: MultiHeadAttention, memory: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """Keys and values of a cross-attention, (B, h, S, d_k) each."""
    key, value = (heads(w(memory), packing, layer.n_heads) for w in (layer.w_k, layer.w_v))
    return key, value


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


class Decoding:
    """Greedy and beam search with one model, or with the mean of several: an ensemble.

    The models are copied when it is made; make a new one after further training. The next token's distribution of an
    ensemble is the arithmetic mean of its models' probabilities. The models share their vocabularies; sizes may
    differ. Nothing has dropout or a gradient.
    """

    def __init__(self, models: Sequence[FastTransformer]) -> None:
        with torch.no_grad():
            self.decoders = [StepDecoder(model) for model in models]
        self.pad_id = models[0].pad_id

    def greedy(
        self, src: Int[Tensor, "batch source"], max_len: int, bos_id: int, eos_id: int
    ) -> Int[Tensor, "batch length"]:
        """As solutions.decoding.greedy_decode: (B, ≤ max_len) starting with bos, padding after eos."""
        with torch.inference_mode():
            caches = [DecoderCache(decoder, src, max_len) for decoder in self.decoders]
            tokens = src.new_full((src.size(0), max_len), self.pad_id)
            tokens[:, 0] = bos_id
            rows = torch.arange(len(src), device=src.device)  # of `tokens`, for each row of the caches
            chosen, ended = tokens[:, 0], torch.zeros_like(rows, dtype=torch.bool)
            length = 1
            while length < max_len and len(rows) > 0:
                chosen = argmax(mean_logits([cache.step(chosen) for cache in caches]))  # (b,)
                tokens[rows, length] = chosen.masked_fill(ended, self.pad_id)
                ended = ended | (chosen == eos_id)
                length += 1
                if 2 * int(ended.sum()) >= len(rows):
                    going = (~ended).nonzero()[:, 0]
                    for cache in caches:
                        cache.keep(going, going)
                    rows, chosen, ended = rows[going], chosen[going], ended[going]
        return tokens[:, :length].clone()  # a tensor like any other

    @torch.inference_mode()
    def beam(
        self,
        src: Int[Tensor, "batch source"],
        max_len: int,
        bos_id: int,
        eos_id: int,
        beam_size: int,
        length_penalty: float,
    ) -> list[tuple[list[int], float]]:
        """As solutions.decoding.beam_search, for each row of src: (ids, score) with the same ids, scores and ties.

        It stops for a source as soon as no live prefix of it can win any more: sums only fall.
        """
        n, k = src.size(0), beam_size
        caches = [DecoderCache(decoder, src, max_len, k) for decoder in self.decoders]
        ids = src.new_full((n, k, max_len), self.pad_id)
        ids[:, :, 0] = bos_id
        sums = torch.full((n, k), -math.inf, dtype=torch.float64, device=src.device)  # -inf: no live prefix
        sums[:, 0] = 0.0
        best = ids[:, 0].clone()  # of the finished ones of each source
        best_score = torch.full((n,), -math.inf, dtype=torch.float64, device=src.device)
        source = torch.arange(n, device=src.device)  # the row of src of each beam that goes on

        def finish(finished: Float[Tensor, "n k"], length: int) -> None:
            """Let prefixes with these sums (-inf: none) win, where one is better than the best so far."""
            scores = finished / max(length - 1, 1) ** length_penalty
            place = scores.argmax(1, keepdim=True)  # the first of equal ones
            score = scores.gather(1, place)[:, 0]
            better = score > best_score[source]
            best_score[source[better]] = score[better]
            best[source[better]] = ids[better, place[better, 0]]

        length = 1
        while length < max_len and len(source) > 0:
            logits = mean_logits([cache.step(ids[:, :, length - 1].flatten()) for cache in caches])
            # The best k of a beam are among the best k extensions of each of its prefixes.
            values, tokens = top(logits.log_softmax(-1), min(k, logits.size(1)))  # (n·k, k')
            totals = (sums[:, :, None] + values.double().unflatten(0, (-1, k))).flatten(1)  # (n, k·k')
            ranked = totals.sort(descending=True, stable=True)
            sums, places = ranked.values[:, :k], ranked.indices[:, :k]  # (n, k)
            parents = places // values.size(1)
            ids = ids.gather(1, parents[:, :, None].expand_as(ids))
            ids[:, :, length] = tokens.reshape(len(sums), -1).gather(1, places)
            length += 1

            ended = ids[:, :, length - 1] == eos_id
            finish(sums.masked_fill(~ended, -math.inf), length)
            sums = sums.masked_fill(ended, -math.inf)
            # What is left of a beam scores at most its best sum over the largest divisor still possible.
            largest = max((length - 1) ** length_penalty, (max_len - 1) ** length_penalty)
            going = (sums.amax(1) / largest > best_score[source]).nonzero()[:, 0]
            rows = (torch.arange(len(sums), device=src.device)[:, None] * k + parents)[going].flatten()
            for cache in caches:
                cache.keep(rows, going)
            source, ids, sums = source[going], ids[going], sums[going]
        finish(sums, length)
        return [
            (row[: row.index(eos_id, 1) + 1] if eos_id in row[1:] else row, score)
            for row, score in zip(best.tolist(), best_score.tolist(), strict=True)
        ]


def mean_logits(logits: list[Float[Tensor, "n vocabulary"]]) -> Float[Tensor, "n vocabulary"]:
    """Logits of the arithmetic mean of the probabilities; those of a single model stay as they are."""
    if len(logits) == 1:
        return logits[0]
    return torch.stack([z.log_softmax(-1) for z in logits]).logsumexp(0) - math.log(len(logits))


def argmax(x: Float[Tensor, "n vocabulary"]) -> Int[Tensor, " n"]:
    """x.argmax(-1), the first of equal ones, by way of blocks: PyTorch finds a maximum much faster than its place."""
    blocks = x.unflatten(1, (-1, math.gcd(x.size(1), 64)))
    block = blocks.amax(2).argmax(1)
    return block * blocks.size(2) + blocks[torch.arange(len(x), device=x.device), block].argmax(1)


def top(x: Float[Tensor, "n vocabulary"], k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their places, equal ones from left to right (topk promises no order)."""
    values, places = x.topk(k)
    if int((x >= values[:, -1:]).sum()) > values.numel():  # more than k: topk chose among equal ones
        values, places = x.sort(descending=True, stable=True)
        return values[:, :k], places[:, :k]
    places = places.sort().values
    values, order = x.gather(1, places).sort(descending=True, stable=True)
    return values, places.gather(1, order)


MANY = 512  # rows for which even a single product by oneDNN pays


class Projection(nn.Module):
    """Linear layers of the same input, side by side, with copies of their weights in the order of reading.

    One row times a matrix is a sum of the matrix's rows with the row's entries as weights. So written, the product
    reads the weights faster than `mm` does, unless a row is too long to be summed near the processor. With at least
    `packed_from` rows oneDNN is faster, from weights packed in its own order. It compiles for each number of rows,
    which pays for a number that comes again or is large. PyTorch has that for its compiler only: where it is missing,
    `mm` does the work.
    """

    LONG = 2048  # outputs: more are too many for the sum of rows

    def __init__(self, *layers: nn.Linear, packed_from: int = 2) -> None:
        super().__init__()
        weight = torch.cat([layer.weight for layer in layers])  # (output, input)
        self.weight = weight.t().contiguous()  # (input, output)
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
        self.packed_from = packed_from
        self.inputs = self.packed = None
        if weight.device.type == "cpu" and len(weight) <= self.LONG:
            self.inputs = torch.arange(weight.size(1), dtype=torch.int32)
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            with suppress(AttributeError, RuntimeError):
                self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, 64)

    def forward(self, x: Float[Tensor, "rows input"]) -> Float[Tensor, "rows output"]:
        if len(x) >= self.packed_from and self.packed is not None:
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
            return y
        if len(x) == 1 and self.inputs is not None:
            start = self.inputs[:1]  # of the only sum
            y = F.embedding_bag(self.inputs, self.weight, start, mode="sum", per_sample_weights=x[0])
        else:
            y = torch.mm(x, self.weight)
        return y if self.bias is None else y.add_(self.bias)


class StepLayer:
    """A decoder layer for one position at a time."""

    def __init__(self, layer: Any) -> None:
        own, cross = layer.self_attention, layer.cross_attention
        self.n_heads: int = own.n_heads
        self.norm_first: bool = layer.residuals[0].norm_first
        self.norms: list[LayerNorm] = [residual.norm for residual in layer.residuals]
        self.query_key_value = Projection(own.w_q, own.w_k, own.w_v)
        self.past_output = Projection(own.w_o)
        self.query = Projection(cross.w_q)
        self.memory_key_value = Projection(cross.w_k, cross.w_v, packed_from=MANY)
        self.memory_output = Projection(cross.w_o)
        self.linear_1 = Projection(layer.feed_forward.linear_1)
        self.linear_2 = Projection(layer.feed_forward.linear_2)

    def memory_keys_values(self, memory: Float[Tensor, "n d"], packing: Packing) -> tuple[Tensor, Tensor]:
        """Keys as columns (B·h, d_k, S) and values (B·h, S, d_k) of the source's tokens."""
        grid = packing.grid(self.memory_key_value(memory))  # (B, S, 2·d)
        key, value = grid.unflatten(2, (2, self.n_heads, -1)).unbind(2)  # (B, S, h, d_k)
        return key.permute(0, 2, 3, 1).flatten(0, 1), value.transpose(1, 2).flatten(0, 1)

    def __call__(
        self,
        x: Float[Tensor, "rows d"],
        past: Float[Tensor, "2 n length d_k"],
        hidden: Tensor | None,
        memory: tuple[Tensor, Tensor],
        hidden_memory: Tensor | None,
    ) -> Float[Tensor, "rows d"]:
        """The next position; its key and value are written to the last place of `past`."""
        rows, heads = len(x), self.n_heads
        y = norm(self.norms[0], x) if self.norm_first else x
        query, key, value = self.query_key_value(y).view(rows, 3, heads, -1).unbind(1)  # (R, h, d_k)
        past[0].select(1, -1).copy_(key.flatten(0, 1))
        past[1].select(1, -1).copy_(value.flatten(0, 1))
        y = look_up(query.reshape(rows * heads, 1, -1), past[0].mT, past[1], hidden)  # (R·h, 1, d_k)
        y = self.past_output(y.view(rows, -1))
        x = x + y if self.norm_first else norm(self.norms[0], x + y)

        y = norm(self.norms[1], x) if self.norm_first else x
        sources = len(memory[0]) // heads
        query = self.query(y).view(sources, -1, heads, key.size(2)).transpose(1, 2)  # (B, h, width, d_k)
        y = look_up(query.flatten(0, 1), *memory, hidden_memory).view(query.shape)
        y = self.memory_output(y.transpose(1, 2).reshape(rows, -1))
        x = x + y if self.norm_first else norm(self.norms[1], x + y)

        y = norm(self.norms[2], x) if self.norm_first else x
        y = self.linear_2(self.linear_1(y).relu_())
        return x + y if self.norm_first else norm(self.norms[2], x + y)


def look_up(
    query: Float[Tensor, "n queries d_k"],
    key: Float[Tensor, "n d_k length"],
    value: Float[Tensor, "n length d_k"],
    hidden: Bool[Tensor, "batch 1 1 length"] | None,
) -> Float[Tensor, "n queries d_k"]:
    """Scaled dot-product attention by matrices, n = batch · heads; the keys are columns."""
    scores = torch.bmm(query / math.sqrt(query.size(2)), key)  # (n, queries, length)
    if hidden is not None:
        scores.unflatten(0, (len(hidden), -1)).masked_fill_(hidden, -math.inf)
    return torch.bmm(scores.softmax(-1), value)


class StepDecoder:
    """A copy of a model in evaluation mode, its decoder for one position at a time."""

    def __init__(self, model: FastTransformer) -> None:
        self.model = model = copy.deepcopy(model).eval()
        self.layers = [StepLayer(layer) for layer in cast("Iterable[Any]", model.decoder.layers)]
        self.output = Projection(model.output)
        for module in list(model.encoder.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, Projection(child, packed_from=MANY))


class DecoderCache:
    """What a decoder remembers while it writes: keys and values of the memory and of all positions so far.

    It has `width` rows for each source, one after the other. Keys and values of the positions lie in a buffer
    allocated once; those of the memory are not repeated, the queries of a source's rows stand side by side.
    """

    def __init__(self, decoder: StepDecoder, src: Tensor, max_len: int, width: int = 1) -> None:
        model = decoder.model
        self.decoder = decoder
        source = Packing(src != model.pad_id)
        memory = model._encode_packed(src, source)
        self.hidden_memory = None if source.mask is None else ~source.mask  # (B, 1, 1, S)
        self.memory = [layer.memory_keys_values(memory, source) for layer in decoder.layers]
        n_heads, d_k = decoder.layers[0].n_heads, self.memory[0][0].size(1)
        self.past = memory.new_empty(len(decoder.layers), 2, len(src) * width, n_heads, max_len, d_k)
        self.hidden: Tensor | None = None  # (R, max_len), once some row holds padding
        self.length = 0  # positions so far

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        """The logits that follow when `tokens` are the next position of each row."""
        decoder, model = self.decoder, self.decoder.model
        table = model.positions.table
        if self.length == len(table):
            raise ValueError(f"a sequence of {self.length + 1} positions, but max_len = {len(table)}")
        x = model.tgt_embedding(tokens) + table[self.length]  # (R, d)
        self.length += 1
        past = self.past[..., : self.length, :].flatten(2, 3)  # (layers, 2, R·h, length, d_k)
        hidden = self._hidden(tokens)
        for i, layer in enumerate(decoder.layers):
            x = layer(x, past[i], hidden, self.memory[i], self.hidden_memory)
        if model.decoder.norm is not None:
            x = norm(model.decoder.norm, x)
        return decoder.output(x)

    def keep(self, rows: Int[Tensor, " rows"], sources: Int[Tensor, " sources"]) -> None:
        """Go on with these rows, in this order, some perhaps several times; `sources` are those that they belong to."""
        kept = self.past[..., : self.length, :][:, :, rows]
        self.past = self.past[:, :, : len(rows)]
        self.past[..., : self.length, :] = kept
        self.hidden = None if self.hidden is None else self.hidden[rows]
        n_heads = self.past.size(3)
        if len(sources) * n_heads < len(self.memory[0][0]):
            self.memory = [
                tuple(x.unflatten(0, (-1, n_heads))[sources].flatten(0, 1) for x in layer)
                for layer in self.memory
            ]
            self.hidden_memory = None if self.hidden_memory is None else self.hidden_memory[sources]

    def _hidden(self, tokens: Tensor) -> Tensor | None:
        """Which positions may not be attended to, as a mask: padding, should a model write that."""
        padding = tokens == self.decoder.model.pad_id
        if self.hidden is None and bool(padding.any()):
            self.hidden = tokens.new_zeros(len(tokens), self.past.size(4), dtype=torch.bool)
        if self.hidden is None:
            return None
        self.hidden[:, self.length - 1] = padding
        return self.hidden[:, None, None, : self.length]
