import pytest
import torch
import torch.nn.functional as F

from txcourse.solutions.feed_forward_and_residuals import (
    LayerNorm,
    PositionwiseFeedForward,
    ResidualConnection,
)


def test_feed_forward() -> None:
    ffn = PositionwiseFeedForward(4, 9)
    x = torch.randn(2, 5, 4)
    expected = torch.einsum(
        "btf,df->btd", (x @ ffn.linear_1.weight.T + ffn.linear_1.bias).clamp(min=0), ffn.linear_2.weight
    )
    torch.testing.assert_close(ffn(x), expected + ffn.linear_2.bias)
    order = torch.randperm(5)
    torch.testing.assert_close(ffn(x[:, order]), ffn(x)[:, order])
    ffn.dropout.p = 1.0  # after the ReLU: the second bias is left
    torch.testing.assert_close(ffn(x), ffn.linear_2.bias.expand(2, 5, 4))


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_equals_torch(eps: float) -> None:
    norm = LayerNorm(6, eps).double()
    torch.nn.init.normal_(norm.gain)
    torch.nn.init.normal_(norm.shift)
    x = torch.randn(2, 5, 6).double().requires_grad_()
    ours, theirs = norm(x), F.layer_norm(x, (6,), norm.gain, norm.shift, eps)
    torch.testing.assert_close(ours, theirs)
    up = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, [x, norm.gain, norm.shift], up),
        torch.autograd.grad(theirs, [x, norm.gain, norm.shift], up),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    by_hand = LayerNorm(4)(torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(by_hand, torch.tensor([1.7320, -0.5773, -0.5773, -0.5773]), atol=1e-4, rtol=0)


def test_residual_connection() -> None:
    x = torch.randn(2, 5, 6)
    post, pre = ResidualConnection(6), ResidualConnection(6, norm_first=True)
    for residual in (post, pre):
        torch.nn.init.normal_(residual.norm.gain)
    torch.testing.assert_close(post(x, torch.sin), post.norm(x + torch.sin(x)))
    torch.testing.assert_close(pre(x, torch.sin), x + torch.sin(pre.norm(x)))
    pre.dropout.p = post.dropout.p = 1.0  # on the sublayer's output only
    torch.testing.assert_close(post(x, torch.sin), post.norm(x))
    assert torch.equal(pre(x, torch.sin), x)
