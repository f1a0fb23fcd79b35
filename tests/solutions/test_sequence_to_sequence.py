import pytest
import torch
from torch import nn

from txcourse.solutions.sequence_to_sequence import (
    additive_attention,
    dot_product_attention,
    gru_cell,
    rnn_cell,
)

B, T, D_IN, D, A = 3, 5, 4, 6, 7


def test_rnn_cell_equals_torch() -> None:
    cell = nn.RNNCell(D_IN, D)
    x, h = torch.randn(B, D_IN), torch.randn(B, D)
    ours = rnn_cell(x, h, cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih + cell.bias_hh)
    torch.testing.assert_close(ours, cell(x, h))


def test_gru_cell_equals_torch_with_gradients() -> None:
    cell = nn.GRUCell(D_IN, D).double()
    x, h = torch.randn(B, D_IN).double().requires_grad_(), torch.randn(B, D).double().requires_grad_()
    weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    ours, theirs = gru_cell(x, h, *weights), cell(x, h)
    torch.testing.assert_close(ours, theirs)
    up = torch.randn(B, D).double()
    for a, b in zip(
        torch.autograd.grad(ours, [x, h, *weights], up),
        torch.autograd.grad(theirs, [x, h, *weights], up),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_additive_attention_by_loops() -> None:
    state, states = torch.randn(B, D), torch.randn(B, T, D_IN)
    w_s, w_e, v = torch.randn(D, A), torch.randn(D_IN, A), torch.randn(A)
    context, weights = additive_attention(state, states, w_s, w_e, v)
    for b in range(B):
        scores = torch.stack([v @ torch.tanh(state[b] @ w_s + states[b, t] @ w_e) for t in range(T)])
        expected = torch.softmax(scores, 0)
        torch.testing.assert_close(weights[b], expected)
        torch.testing.assert_close(context[b], expected @ states[b])


def test_dot_product_attention_is_unscaled() -> None:
    state, states = torch.randn(B, D), torch.randn(B, T, D)
    context, weights = dot_product_attention(state, states)
    expected = torch.softmax(torch.einsum("bd,btd->bt", state, states), -1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, torch.einsum("bt,btd->bd", expected, states))


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_mask(kind: str) -> None:
    state, states = torch.randn(B, D, requires_grad=True), torch.randn(B, T, D)

    def attend(states, mask=None):
        if kind == "dot":
            return dot_product_attention(state, states, mask)
        torch.manual_seed(0)
        return additive_attention(state, states, torch.randn(D, A), torch.randn(D, A), torch.randn(A), mask)

    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 3:] = False
    mask[1] = False
    context, weights = attend(states, mask)
    torch.testing.assert_close(context[0], attend(states[:, :3])[0][0])
    assert (weights[0, 3:] == 0).all()
    assert (weights[1] == 0).all() and (context[1] == 0).all()
    context.sum().backward()
    assert state.grad is not None and state.grad.isfinite().all()
