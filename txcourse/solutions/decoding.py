"""13 Decoding: greedy, beam search, and a cache of keys and values."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@torch.no_grad()
def greedy_decode(
    model: nn.Module,
    src: Int[Tensor, "batch source"],
    max_len: int,
    bos_id: int,
    eos_id: int,
    pad_id: int = 0,
) -> Int[Tensor, "batch length"]:
    """Append the most likely token again and again, for a whole batch.

    model(src, tgt) gives logits (B, T, V). Returns ids (B, ≤ max_len) that start with bos; after its eos a
    row holds pad. max_len counts bos; it may stop early when every row has ended. Runs in eval mode without
    gradient, and afterwards the model is in the mode it was in.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        tgt = torch.full((src.size(0), 1), bos_id, device=src.device)  # (B, 1)
        ended = torch.zeros(src.size(0), dtype=torch.bool, device=src.device)  # (B)
        while tgt.size(1) < max_len and not ended.all():
            token = model(src, tgt)[:, -1].argmax(dim=-1)  # (B)
            token = token.masked_fill(ended, pad_id)
            tgt = torch.cat([tgt, token[:, None]], dim=1)  # (B, T + 1)
            ended = ended | (token == eos_id)
        return tgt
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def beam_search(
    model: nn.Module,
    src: Int[Tensor, "1 source"],
    max_len: int,
    bos_id: int,
    eos_id: int,
    beam_size: int,
    length_penalty: float,
) -> tuple[list[int], float]:
    """The best target that a search with `beam_size` prefixes finds for one source (1, S): (ids, score).

    ids is a list: bos first, eos last if it ended, at most max_len tokens, bos counted. The score is the
    sum of log-probabilities / n ** length_penalty, n the generated tokens (eos counted, bos not).
    Keep up to `beam_size` live prefixes. Each step extends each by every token and keeps the best
    `beam_size` extensions by summed log-probability; those that end in eos leave the beam for a pool of
    finished ones (they free no slot for worse ones in that step), the others live on. Stop when none lives
    or max_len is reached; unfinished ones join the pool at max_len; the best score in the pool wins.
    Ties may go either way. Runs without gradient; afterwards the model is in the mode it was in.

    Source: Vaswani et al. (2017), section 6.1; length penalty in its simplest form.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        live = [([bos_id], 0.0)]  # prefixes and their summed log-probabilities, best first
        pool: list[tuple[list[int], float]] = []
        while live and len(live[0][0]) < max_len:
            tgt = torch.tensor([ids for ids, _ in live], device=src.device)  # (n, T), n live prefixes
            logits = model(src.expand(len(live), -1), tgt)[:, -1]  # (n, V)
            sums = torch.tensor([[total] for _, total in live], dtype=torch.float64)  # (n, 1)
            sums = sums + logits.log_softmax(dim=-1).cpu().double()  # (n, V)
            best = sums.flatten().sort(
                descending=True, stable=True
            )  # ties: the better prefix, the smaller id
            kept, live = live, []
            for total, place in zip(best.values[:beam_size], best.indices[:beam_size], strict=True):
                prefix, token = divmod(int(place), sums.size(1))
                ids = [*kept[prefix][0], token]
                (pool if token == eos_id else live).append((ids, float(total)))
        scored = [(ids, total / max(len(ids) - 1, 1) ** length_penalty) for ids, total in pool + live]
        return max(scored, key=lambda pair: pair[1])  # the first of the best
    finally:
        for module, training in modes:
            module.training = training


class KeyValueCache:
    """Keys and values of the positions decoded so far, for every layer, in memory reserved at the start.

    `length` is the number of positions that every layer holds. Only for decoding: no gradient passes.
    """

    def __init__(self, n_layers: int, batch: int, n_heads: int, max_len: int, d_k: int) -> None:
        self.keys = torch.zeros(n_layers, batch, n_heads, max_len, d_k)
        self.values = torch.zeros(n_layers, batch, n_heads, max_len, d_k)
        self.lengths = [0] * n_layers

    @property
    def length(self) -> int:
        return min(self.lengths)

    def append(
        self,
        layer: int,
        key: Float[Tensor, "batch heads new d_k"],
        value: Float[Tensor, "batch heads new d_k"],
    ) -> tuple[Float[Tensor, "batch heads length d_k"], Float[Tensor, "batch heads length d_k"]]:
        """Store the next key and value (B, h, T_new, d_k) of a layer; returns all of that layer so far.

        Raises ValueError when they do not fit into max_len.
        """
        start, end = self.lengths[layer], self.lengths[layer] + key.size(2)
        if end > self.keys.size(3):
            raise ValueError(f"the cache holds {self.keys.size(3)} positions, {end} were asked for")
        self.keys, self.values = self.keys.to(key), self.values.to(value)  # their device and dtype
        self.keys[layer, :, :, start:end] = key.detach()
        self.values[layer, :, :, start:end] = value.detach()
        self.lengths[layer] = end
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, h, length, d_k)
