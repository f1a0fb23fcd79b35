import pytest
import torch
from torch import nn

from txcourse.solutions.attention import causal_mask
from txcourse.solutions.multi_head_attention import MultiHeadAttention, merge_heads, split_heads

from .copying import assert_same_gradients, attention_pairs, copy


def test_split_and_merge() -> None:
    x = torch.randn(2, 5, 12)
    heads = split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 4)
    torch.testing.assert_close(heads[:, 1], x[..., 4:8])
    assert torch.equal(merge_heads(heads), x)
    wide = torch.randn(2, 12, 5).transpose(1, 2)
    assert torch.equal(split_heads(wide, 3)[:, 2], wide[..., 8:])  # not contiguous
    with pytest.raises(ValueError, match="not divisible"):
        split_heads(x, 5)


@pytest.mark.parametrize("mask", [None, "causal", "padding", "both"])
def test_equals_torch(mask: str | None) -> None:
    ours = MultiHeadAttention(12, 3).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    pairs = list(attention_pairs(ours, theirs))
    copy(pairs)
    t_q, t_k = (7, 7) if mask in ("causal", "both") else (5, 7)
    query, key, value = (torch.randn(2, t, 12).double() for t in (t_q, t_k, t_k))
    keep = torch.ones(2, t_k, dtype=torch.bool)
    keep[1, 4:] = False
    causal = causal_mask(t_k)
    own = {None: None, "causal": causal, "padding": keep[:, None, None], "both": causal & keep[:, None, None]}
    output = ours(query, key, value, own[mask])
    expected, weights = theirs(
        query,
        key,
        value,
        key_padding_mask=~keep if mask in ("padding", "both") else None,
        attn_mask=~causal if mask in ("causal", "both") else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(ours.weights, weights.detach())
    up = torch.randn_like(output)
    (output * up).sum().backward()
    (expected * up).sum().backward()
    assert_same_gradients(pairs)


def test_three_dimensional_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="mask of shape"):
        MultiHeadAttention(12, 3)(*[torch.randn(3, 5, 12)] * 3, torch.ones(3, 5, 5, dtype=torch.bool))


def test_dropout_acts_on_the_weights_and_not_on_those_kept() -> None:
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(12, 3, dropout=0.5), torch.randn(2, 5, 12)
    assert not torch.equal(attention(x, x, x), attention(x, x, x))
    kept = attention.weights
    assert kept is not None and not kept.requires_grad
    torch.testing.assert_close(kept.sum(-1), torch.ones(2, 3, 5))
    attention.eval()
    assert torch.equal(attention(x, x, x), attention(x, x, x))
    torch.testing.assert_close(attention.weights, kept)
    attention.train()
    attention.dropout.p = 1.0  # every weight dropped: only the output bias is left
    torch.testing.assert_close(attention(x, x, x), attention.w_o.bias.expand(2, 5, 12))
