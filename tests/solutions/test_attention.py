import numpy as np
import pytest
import torch
import torch.nn.functional as F

from txcourse.solutions.attention import (
    attention_by_loops,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)


def qkv(*leading: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    shapes = [(5, 4), (7, 4), (7, 6)]
    return [torch.randn(*leading, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


def test_by_hand() -> None:
    q, eye = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    output, weights = scaled_dot_product_attention(q, eye, eye)
    torch.testing.assert_close(weights, torch.tensor([[0.6698, 0.3302]]), atol=1e-4, rtol=0)
    torch.testing.assert_close(output, weights)
    output, _ = scaled_dot_product_attention(q, eye, eye, torch.tensor([[True, False]]))
    assert output.tolist() == [[1.0, 0.0]]


def test_loops_equal_matrices() -> None:
    q, k, v = (x.detach() for x in qkv())
    output = attention_by_loops(q.numpy(), k.numpy(), v.numpy())
    np.testing.assert_allclose(output, scaled_dot_product_attention(q, k, v)[0].numpy(), rtol=1e-12)
    large = attention_by_loops(1e4 * np.eye(2), np.eye(2), np.eye(2))
    np.testing.assert_allclose(large, np.eye(2))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch_with_gradients(leading: tuple[int, ...], masked: bool) -> None:
    inputs = qkv(*leading)
    mask = (torch.rand(*leading, 5, 7) < 0.6) if masked else None
    if mask is not None:
        mask[..., 2] = True  # rows not fully masked
    ours, weights = scaled_dot_product_attention(*inputs, mask)
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(weights.sum(-1), torch.ones(*leading, 5, dtype=torch.float64))
    up = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, up), torch.autograd.grad(theirs, inputs, up), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fully_masked_row(dtype: torch.dtype) -> None:
    inputs = qkv(2, 3, dtype=dtype)
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[1, :, 2] = False
    output, weights = scaled_dot_product_attention(*inputs, mask)
    assert output.dtype == dtype
    assert (output[1, :, 2] == 0).all() and (weights[1, :, 2] == 0).all()
    output.float().square().sum().backward()
    for x in inputs:
        assert x.grad is not None and x.grad.isfinite().all()
    assert (inputs[0].grad[1, :, 2] == 0).all()


def test_masks() -> None:
    tokens = torch.tensor([[5, 7, 0, 0], [0, 3, 0, 9]])
    assert padding_mask(tokens).shape == (2, 1, 1, 4)
    assert padding_mask(tokens)[:, 0, 0].tolist() == [[True, True, False, False], [False, True, False, True]]
    assert padding_mask(tokens, pad_id=7)[0, 0, 0].tolist() == [True, False, True, True]
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(3).dtype == torch.bool
