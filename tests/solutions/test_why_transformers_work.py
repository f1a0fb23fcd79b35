import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from txcourse.solutions.sequence_to_sequence import rnn_cell
from txcourse.solutions.why_transformers_work import attention_flops, path_length, recurrent_flops


def test_path_length_by_hand() -> None:
    lengths = (2, 3, 4, 8, 16)
    assert [path_length("recurrent", n) for n in lengths] == [1, 2, 3, 7, 15]
    assert [path_length("convolutional", n) for n in lengths] == [1, 1, 2, 4, 8]
    assert [path_length("dilated", n) for n in lengths] == [1, 1, 2, 3, 4]
    assert [path_length("attention", n) for n in lengths] == [1] * 5
    assert path_length("dilated", 127) == 6 and path_length("dilated", 128) == 7  # 2 (2⁶ − 1) = 126
    with pytest.raises(ValueError, match="banana"):
        path_length("banana", 4)


@pytest.mark.parametrize("kind", ["convolutional", "dilated"])
@pytest.mark.parametrize("length", [2, 3, 4, 7, 8, 9, 15, 16, 17])
def test_convolutions_reach_the_first_position_with_that_many_layers_and_not_with_fewer(
    kind: str, length: int
) -> None:
    def gradient(layers: int) -> Tensor:
        x = torch.ones(1, 1, length, requires_grad=True)
        y = x
        for i in range(layers):
            dilation = 2**i if kind == "dilated" else 1
            layer = nn.Conv1d(1, 1, 3, dilation=dilation, bias=False)
            nn.init.ones_(layer.weight)
            y = layer(nn.functional.pad(y, (2 * dilation, 0)))
        return torch.autograd.grad(y[0, 0, -1], x)[0][0, 0, 0]

    n = path_length(kind, length)
    assert gradient(n) > 0 and (n == 1 or gradient(n - 1) == 0)


def test_attention_flops_equal_what_pytorch_counts() -> None:
    t, d, h = 6, 8, 2
    x, weights = torch.randn(t, d), torch.randn(4, d, d)
    with FlopCounterMode(display=False) as counter:
        q, k, v = (x @ w for w in weights[:3])
        projected = counter.get_total_flops()
        heads = [m.reshape(t, h, d // h).transpose(0, 1) for m in (q, k, v)]
        output = (heads[0] @ heads[1].transpose(1, 2)).softmax(-1) @ heads[2]
        inner = counter.get_total_flops() - projected
        _ = output.transpose(0, 1).reshape(t, d) @ weights[3]
    assert inner == attention_flops(t, d, projections=False) == 4 * 36 * 8
    assert counter.get_total_flops() == attention_flops(t, d) == 8 * 6 * 64 + 4 * 36 * 8


def test_recurrent_flops_equal_what_pytorch_counts() -> None:
    t, d = 5, 7
    w_xh, w_hh, h = torch.randn(d, d), torch.randn(d, d), torch.zeros(1, d)
    with FlopCounterMode(display=False) as counter:
        for x in torch.randn(t, 1, d):
            h = rnn_cell(x, h, w_xh, w_hh, torch.zeros(d))
    assert counter.get_total_flops() == recurrent_flops(t, d) == 4 * 5 * 49
    assert recurrent_flops(t, d, gates=3) == 3 * recurrent_flops(t, d)


def test_attention_is_cheaper_for_which_lengths() -> None:
    """The scores and values alone: below T = d, against a plain recurrent layer. All of attention: never below it."""
    d = 64
    for t in (1, d // 2, d - 1, d, d + 1, 2 * d, 4 * d):
        assert (attention_flops(t, d, projections=False) < recurrent_flops(t, d)) == (t < d)
        assert attention_flops(t, d) > recurrent_flops(t, d)
        assert (attention_flops(t, d) < recurrent_flops(t, d, gates=3)) == (t < d)
