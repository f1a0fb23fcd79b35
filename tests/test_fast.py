"""The fast model is the plain model: same parameters, outputs and gradients in float64."""

import pytest
import torch

from txcourse.fast import FastTransformer, LinearCrossEntropy, dropout
from txcourse.solutions.decoding import greedy_decode
from txcourse.solutions.training import label_smoothed_cross_entropy
from txcourse.solutions.transformer import Transformer

BOS, EOS = 1, 2


def padded(lengths: list[int], vocabulary: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, vocabulary, (len(lengths), max(lengths)), generator=generator)
    tokens[:, 0] = BOS
    for row, length in enumerate(lengths):
        tokens[row, length - 1] = EOS
        tokens[row, length:] = 0
    return tokens


def pair_of_models(norm_first: bool, tie: bool, seed: int = 0) -> tuple[Transformer, FastTransformer]:
    torch.manual_seed(seed)
    arguments = {"d_model": 24, "n_heads": 3, "n_layers": 2, "d_ff": 40, "dropout": 0.0, "max_len": 32}
    plain = Transformer(13, 17, norm_first=norm_first, tie_embeddings=tie, **arguments).double()
    fast = FastTransformer(13, 17, norm_first=norm_first, tie_embeddings=tie, **arguments).double()
    with torch.no_grad():
        for parameter in plain.parameters():  # biases, gains and shifts that a swap would show
            parameter.add_(0.3 * torch.randn_like(parameter))
        plain.src_embedding.weight[0] = plain.tgt_embedding.weight[0] = 0
    fast.load_state_dict(plain.state_dict())
    return plain, fast


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("chunk", [2**21, 40])
@pytest.mark.parametrize("lengths", [([5, 7, 2, 7], [6, 3, 8, 2]), ([4, 4], [5, 5])])
def test_loss_and_gradients_equal_the_plain_models(monkeypatch, norm_first, tie, chunk, lengths):
    monkeypatch.setattr(LinearCrossEntropy, "CHUNK", chunk)
    plain, fast = pair_of_models(norm_first, tie)
    src, tgt = padded(lengths[0], 13, seed=1), padded(lengths[1], 17, seed=2)
    labels = tgt[:, 1:]
    n_targets = int((labels != 0).sum())

    expected = label_smoothed_cross_entropy(plain(src, tgt[:, :-1]), labels, smoothing=0.1)
    loss = fast.summed_loss(src, tgt, smoothing=0.1) / n_targets
    assert abs(loss - expected) < 1e-12

    expected.backward()
    loss.backward()
    for (name, parameter), (_, other) in zip(plain.named_parameters(), fast.named_parameters(), strict=True):
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("norm_first", [False, True])
def test_cached_decoding_equals_the_plain_one(norm_first):
    for seed in range(10):
        plain, fast = pair_of_models(norm_first, tie=True, seed=seed)
        src = padded([3, 9, 5, 9, 4, 6, 2], 13, seed)
        with torch.no_grad():  # make eos likely enough that sequences end at different times
            plain.tgt_embedding.weight[EOS] *= 1.0 + 0.3 * seed
        fast.load_state_dict(plain.state_dict())
        expected = greedy_decode(plain, src, 20, BOS, EOS)
        assert fast.greedy_decode(src, 20, BOS, EOS).tolist() == expected.tolist()


def test_dropout_is_on_in_training_only():
    torch.manual_seed(0)
    fast = FastTransformer(13, 17, d_model=24, n_heads=3, n_layers=2, d_ff=40, dropout=0.5)
    src, tgt = padded([5, 7], 13, seed=1), padded([6, 3], 17, seed=2)
    assert fast.summed_loss(src, tgt) != fast.summed_loss(src, tgt)
    fast.greedy_decode(src, 5, BOS, EOS)
    assert fast.training
    fast.eval()
    assert fast.summed_loss(src, tgt) == fast.summed_loss(src, tgt)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.997])
def test_dropout_drops_its_share_and_keeps_the_mean(p):
    torch.manual_seed(0)
    layer = torch.nn.Dropout(p)
    x = torch.ones(999, 1001, dtype=torch.float64, requires_grad=True)
    y = dropout(x, layer)
    assert abs((y == 0).double().mean() - p) < 2e-3
    assert abs(y.mean() - 1) < 0.02
    assert y.unique().numel() == 2
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # dropped entries get no gradient, the others the same scale
    rows = (y == 0).double()
    assert (
        abs(
            torch.corrcoef(
                torch.stack([rows[:, 0::4].flatten()[:240_000], rows[:, 1::4].flatten()[:240_000]])
            )[0, 1]
        )
        < 0.01
    )
    assert dropout(x, layer.eval()) is x
    assert torch.all(dropout(torch.ones(5), torch.nn.Dropout(1.0)) == 0)


def test_attention_by_matrices_is_the_kernels():
    """With a dropout rate too small to drop anything, training mode takes the other path to the same numbers."""
    _, fast = pair_of_models(norm_first=True, tie=True)
    src, tgt = padded([5, 7, 2, 7], 13, seed=1), padded([6, 3, 8, 2], 17, seed=2)
    expected = fast.summed_loss(src, tgt)
    for module in fast.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 1e-9
    assert abs(fast.summed_loss(src, tgt) - expected) < 1e-12


def test_what_it_does_not_accept_is_said():
    _, fast = pair_of_models(True, True)
    with pytest.raises(ValueError, match="right"):
        fast.summed_loss(torch.tensor([[0, 4, 5]]), torch.tensor([[1, 4, 2]]))
    with pytest.raises(ValueError, match="at least one"):
        fast.summed_loss(torch.tensor([[4, 5], [0, 0]]), torch.tensor([[1, 4, 2], [1, 4, 2]]))
    with pytest.raises(ValueError, match="max_len = 32"):
        fast.summed_loss(torch.full((1, 33), 4), torch.tensor([[1, 4, 2]]))
