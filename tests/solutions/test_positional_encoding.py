import math

import pytest
import torch

from txcourse.solutions.positional_encoding import (
    LearnedPositionalEmbedding,
    PositionalEncoding,
    rotary_embedding,
    sinusoidal_positional_encoding,
)


def test_table_by_hand() -> None:
    table = sinusoidal_positional_encoding(3, 4)
    expected = torch.tensor([0.8415, 0.5403, 0.0100, 0.99995])
    torch.testing.assert_close(table[1], expected, atol=1e-4, rtol=0)
    assert table[0].tolist() == [0, 1, 0, 1]
    assert table.dtype == torch.float32


@pytest.mark.parametrize("d_model", [1, 2, 5, 6])
def test_table_by_formula(d_model: int) -> None:
    table = sinusoidal_positional_encoding(9, d_model)
    assert table.shape == (9, d_model)
    for position in range(9):
        for column in range(d_model):
            angle = position / 10000 ** (2 * (column // 2) / d_model)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(table[position, column].item() - expected) < 1e-6


def test_dot_products_depend_on_the_distance_only() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        table = sinusoidal_positional_encoding(20, 8)
    finally:
        torch.set_default_dtype(torch.float32)
    products = table @ table.T
    for distance in range(20):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_positional_encoding_module() -> None:
    module = PositionalEncoding(5, max_len=7, dropout=0.5)
    assert not list(module.parameters())
    module.eval()
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(module(x), x + sinusoidal_positional_encoding(6, 5))
    assert module.double()(x.double()).dtype == torch.float64
    assert module.to("meta").table.device.type == "meta"
    with pytest.raises(ValueError, match="max_len = 7"):
        PositionalEncoding(5, max_len=7)(torch.zeros(1, 8, 5))
    everything = PositionalEncoding(5, dropout=1.0)(x)  # on the sum, not on one of the two
    assert (everything == 0).all()


def test_learned_positions() -> None:
    module = LearnedPositionalEmbedding(7, 4)
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(module(x), x + module.weight[:5])
    module(x).sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad[:, 0].tolist() == [2, 2, 2, 2, 2, 0, 0]
    with pytest.raises(ValueError, match="max_len = 7"):
        module(torch.zeros(1, 8, 4))


def test_rotary() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    y = rotary_embedding(x, torch.tensor([1]))
    torch.testing.assert_close(y.flatten(), torch.tensor([0.5403, 0.8415, 0, 0]), atol=1e-4, rtol=0)
    q, k = torch.randn(2, 3, 6, 8).double(), torch.randn(2, 3, 6, 8).double()
    positions = torch.arange(6)
    scores = [
        rotary_embedding(q, positions + shift) @ rotary_embedding(k, positions + shift).mT
        for shift in (0, 1000)
    ]
    torch.testing.assert_close(*scores)
    torch.testing.assert_close(rotary_embedding(q, positions).norm(dim=-1), q.norm(dim=-1))
    fast = rotary_embedding(q, positions, base=3.0)[..., 2:4]  # the second pair turns by pos / 3^(2/8)
    angle = positions.double() / 3.0 ** (2 / 8)
    torch.testing.assert_close(fast[..., 0], q[..., 2] * angle.cos() - q[..., 3] * angle.sin())
    with pytest.raises(ValueError, match="even"):
        rotary_embedding(torch.zeros(1, 1, 2, 5), torch.arange(2))
