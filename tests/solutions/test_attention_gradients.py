import numpy as np
import torch
import torch.nn.functional as F

from txcourse.solutions.attention_gradients import (
    attention_backward,
    layer_norm_backward,
    numerical_gradient,
    softmax_backward,
)


def close(ours, theirs, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=tolerance, atol=tolerance)


def test_numerical_gradient() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3))
    before = x.copy()
    gradient = numerical_gradient(lambda a: (a**3).sum(), x)
    assert gradient.shape == x.shape and (x == before).all()
    close(gradient, 3 * x**2, 1e-7)
    assert abs(numerical_gradient(lambda a: a**2, np.array(3.0)) - 6) < 1e-6
    close(numerical_gradient(lambda a: a.sum(), np.array([1, 2])), [1, 1], 1e-6)  # integers too


def test_softmax_backward() -> None:
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    up = torch.randn_like(x)
    weights = torch.softmax(x, -1)
    (expected,) = torch.autograd.grad(weights, x, up)
    close(softmax_backward(weights.detach().numpy(), up.numpy()), expected)


def test_attention_backward_against_autograd_and_differences() -> None:
    q, k, v = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in [(5, 4), (7, 4), (7, 6)])
    up = torch.randn(5, 6, dtype=torch.float64)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v), [q, k, v], up)
    arrays = [x.detach().numpy() for x in (q, k, v)]
    ours = attention_backward(*arrays, up.numpy())
    for a, b in zip(ours, expected, strict=True):
        close(a, b)

    def loss(key: np.ndarray) -> float:
        output = F.scaled_dot_product_attention(q.detach(), torch.from_numpy(key), v.detach())
        return float((output * up).sum())

    close(ours[1], numerical_gradient(loss, arrays[1]), 1e-7)


def test_layer_norm_backward() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    gamma, beta = (torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    up = torch.randn_like(x)
    for eps in (1e-5, 0.1):
        expected = torch.autograd.grad(F.layer_norm(x, (8,), gamma, beta, eps), [x, gamma, beta], up)
        ours = layer_norm_backward(x.detach().numpy(), up.numpy(), gamma.detach().numpy(), eps)
        for a, b in zip(ours, expected, strict=True):
            close(a, b)
    arrays = [a.detach().numpy() for a in (x, up, gamma)]
    close(layer_norm_backward(*arrays)[0], layer_norm_backward(*arrays, eps=1e-5)[0])
