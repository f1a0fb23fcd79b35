"""Which parameter of ours is which of PyTorch's, and copying one way."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

Pair = tuple[list[Tensor], Tensor]  # ours, put one below the other, is theirs


def attention_pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[Pair]:
    three = [ours.w_q, ours.w_k, ours.w_v]
    yield [w.weight for w in three], theirs.in_proj_weight
    yield [w.bias for w in three], theirs.in_proj_bias
    yield [ours.w_o.weight], theirs.out_proj.weight
    yield [ours.w_o.bias], theirs.out_proj.bias


def norm_pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[Pair]:
    yield [ours.gain], theirs.weight
    yield [ours.shift], theirs.bias


def stack_pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[Pair]:
    """Of an Encoder or a Decoder and its PyTorch counterpart."""
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        yield from attention_pairs(mine.self_attention, other.self_attn)
        if hasattr(mine, "cross_attention"):
            yield from attention_pairs(mine.cross_attention, other.multihead_attn)
        for a, b in [("linear_1", "linear1"), ("linear_2", "linear2")]:
            yield [getattr(mine.feed_forward, a).weight], getattr(other, b).weight
            yield [getattr(mine.feed_forward, a).bias], getattr(other, b).bias
        for i, residual in enumerate(mine.residuals):
            yield from norm_pairs(residual.norm, getattr(other, f"norm{i + 1}"))
    if ours.norm is not None:
        yield from norm_pairs(ours.norm, theirs.norm)


@torch.no_grad()
def copy(pairs: list[Pair]) -> None:
    """Give ours new random values (no trivial gains or biases) and theirs the same."""
    for ours, theirs in pairs:
        for parameter in ours:
            parameter.add_(0.2 * torch.randn_like(parameter))
        theirs.copy_(torch.cat(ours))


def assert_same_gradients(pairs: list[Pair]) -> None:
    for ours, theirs in pairs:
        torch.testing.assert_close(torch.cat([p.grad for p in ours]), theirs.grad)
        assert theirs.grad.abs().sum() > 0 or theirs.dim() == 1  # a key bias has no gradient
