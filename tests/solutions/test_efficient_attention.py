import math

import pytest
import torch
import torch.nn.functional as F

from txcourse.solutions.efficient_attention import (
    linear_attention,
    local_attention_mask,
    online_softmax_attention,
    state_space_scan,
)


def test_local_mask() -> None:
    mask = local_attention_mask(4, 1)
    assert mask.dtype == torch.bool
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert torch.equal(local_attention_mask(5, 0), torch.eye(5, dtype=torch.bool))
    assert local_attention_mask(5, 9).all()


def qkv(t_q: int = 7, t_k: int = 7, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [torch.randn(2, 3, t, 4, dtype=dtype) for t in (t_q, t_k, t_k)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_linear_attention_equals_its_definition(causal: bool, masked: bool) -> None:
    q, k, v = qkv()
    key_mask = torch.ones(2, 7, dtype=torch.bool)
    key_mask[1, 2:5] = False
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-2, -1)  # (B, h, T, T)
    if causal:
        weights = weights.tril()
    if masked:
        weights = weights * key_mask[:, None, None, :]
    expected = weights / weights.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(linear_attention(q, k, v, causal, key_mask if masked else None), expected)


def test_padding_is_in_neither_sum_of_linear_attention() -> None:
    q, k, v = qkv()
    longer = [F.pad(m, (0, 0, 3, 0), value=2.0) for m in (q, k, v)]  # three positions in front
    real = F.pad(torch.ones(2, 7, dtype=torch.bool), (3, 0))
    got = linear_attention(*longer, key_mask=real)[:, :, 3:]
    torch.testing.assert_close(got, linear_attention(q, k, v))


@pytest.mark.parametrize("block", [1, 3, 4, 11, 50])
def test_online_softmax_is_exact(block: int) -> None:
    q, k, v = (m.requires_grad_() for m in qkv(5, 11))
    got, want = online_softmax_attention(q, k, v, block), F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(got, want)
    up = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad(got, (q, k, v), up), torch.autograd.grad(want, (q, k, v), up), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_online_softmax_with_scores_that_overflow() -> None:
    q, k, v = qkv(5, 11, torch.float32)
    for block in (1, 4):
        got = online_softmax_attention(300 * q, k, v, block)
        torch.testing.assert_close(got, F.scaled_dot_product_attention(300 * q, k, v), rtol=1e-4, atol=1e-4)


def test_state_space_by_hand() -> None:
    a, b, c = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    # h: (1, 2), (0.5, -2), (2.25, 6)
    y = state_space_scan(a, b, c, torch.tensor([[1.0, 0.0, 2.0]]))
    torch.testing.assert_close(y, torch.tensor([[5.0, -0.5, 12.75]]))


def test_state_space_is_a_convolution() -> None:
    a = torch.tensor([0.9, -0.5, 0.0, 1.0], dtype=torch.float64)
    b, c = torch.randn(2, 4, dtype=torch.float64)
    x = torch.randn(2, 50, dtype=torch.float64)
    kernel = (c * b * a ** torch.arange(50)[:, None]).sum(-1)  # (T): c · aᵗ b
    expected = F.conv1d(F.pad(x, (49, 0))[:, None], kernel.flip(0)[None, None])[:, 0]
    torch.testing.assert_close(state_space_scan(a, b, c, x), expected)
    assert math.isclose(state_space_scan(a, b, c, torch.eye(50, dtype=torch.float64))[0, 7], kernel[7])
