"""The fast model is the plain model: same parameters, outputs and gradients in float64."""

import pytest
import torch

from txcourse import data, pretrained
from txcourse.fast import Decoding, FastTransformer, LinearCrossEntropy, Projection, argmax, dropout, top
from txcourse.solutions.batching import collate
from txcourse.solutions.decoding import beam_search, greedy_decode
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


class Ensemble(torch.nn.Module):
    """The arithmetic mean of several models' probabilities, computed plainly; its logits are their logarithms."""

    def __init__(self, models: list[Transformer]) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(models)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        return torch.stack([model(src, tgt).softmax(-1) for model in self.models]).mean(0).log()


def likely_end(plain: Transformer, fast: FastTransformer, seed: int) -> None:
    """Scale the row of eos, so that sequences end early, late or never."""
    with torch.no_grad():
        plain.output.weight[EOS] *= 1.0 + 0.3 * seed
    fast.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("norm_first", [False, True])
def test_cached_greedy_decoding_equals_the_plain_one(norm_first):
    with_padding = 0
    for seed in range(10):
        plain, fast = pair_of_models(norm_first, tie=seed % 2 == 0, seed=seed)
        src = padded([3, 9, 5, 9, 4, 6, 2], 13, seed)
        if plain.output.bias is not None:
            plain.output.bias.data[0] += 4
        likely_end(plain, fast, seed)
        for length in (1, 2, 20):
            expected = greedy_decode(plain, src, length, BOS, EOS)
            assert Decoding([fast]).greedy(src, length, BOS, EOS).tolist() == expected.tolist()
        with_padding += any(0 in row[: row.index(EOS) if EOS in row else 20] for row in expected.tolist())
    assert with_padding > 0  # some model wrote padding in the middle: later positions must not see it


def assert_same_search(plain, decoding, src, max_len, beam_size, length_penalty) -> None:
    found = decoding.beam(src, max_len, BOS, EOS, beam_size, length_penalty)
    for row, (ids, score) in zip(src, found, strict=True):
        alone = row[row != 0][None]
        expected, expected_score = beam_search(plain, alone, max_len, BOS, EOS, beam_size, length_penalty)
        assert ids == expected
        assert score == pytest.approx(expected_score, abs=1e-11)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0, -0.5])
def test_beam_search_equals_the_plain_one(length_penalty):
    for seed in range(6):
        plain, fast = pair_of_models(norm_first=seed % 2 == 0, tie=seed % 3 == 0, seed=seed)
        src = padded([3, 9, 5, 9, 2], 13, seed)
        likely_end(plain, fast, seed)
        for beam_size in (1, 4, 20):  # 20 is more than the vocabulary
            assert_same_search(plain, Decoding([fast]), src, 7, beam_size, length_penalty)
    for max_len in (1, 2):
        assert_same_search(plain, Decoding([fast]), src, max_len, 3, length_penalty)


def test_equal_scores_are_ordered_as_in_the_plain_search():
    plain, fast = pair_of_models(norm_first=False, tie=False)
    with torch.no_grad():
        plain.output.weight.zero_()
        plain.output.bias.copy_(torch.arange(17) // 6)  # three groups of tokens, equal within a group
    fast.load_state_dict(plain.state_dict())
    for beam_size in (1, 3, 4, 8, 20):
        assert_same_search(plain, Decoding([fast]), padded([3, 5], 13, 0), 4, beam_size, 1.0)

    x = torch.tensor([[0.0, 2.0, 1.0, 2.0, 2.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    values, places = top(x, 2)
    assert (values.tolist(), places.tolist()) == ([[2.0, 2.0], [5.0, 4.0]], [[1, 3], [0, 1]])


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_searches_with_the_shipped_model_equal_the_plain_ones(length_penalty):
    fast, letters, _ = pretrained.load()
    fast = fast.double()
    plain = Transformer(
        *(fast.src_embedding.weight.size(0), fast.tgt_embedding.weight.size(0)),
        **{
            "d_model": 96,
            "n_heads": 4,
            "n_layers": 2,
            "d_ff": 384,
            "norm_first": True,
            "tie_embeddings": True,
        },
    ).double()
    plain.load_state_dict(fast.state_dict())
    plain.eval()
    words = [spelling for spelling, _ in data.load("pronunciation").dev[:8]]
    src = collate([letters.encode(word) for word in words], 0, BOS, EOS)
    assert (
        Decoding([fast]).greedy(src, 24, BOS, EOS).tolist()
        == greedy_decode(plain, src, 24, BOS, EOS).tolist()
    )
    assert_same_search(plain, Decoding([fast]), src, 24, 5, length_penalty)


def test_an_ensemble_is_the_mean_of_the_probabilities():
    pairs = [pair_of_models(norm_first=seed % 2 == 0, tie=False, seed=seed) for seed in range(3)]
    for seed, (plain, fast) in enumerate(pairs):
        likely_end(plain, fast, seed)
    together, decoding = Ensemble([plain for plain, _ in pairs]), Decoding([fast for _, fast in pairs])
    src = padded([3, 9, 5, 9, 2], 13, 0)
    assert decoding.greedy(src, 12, BOS, EOS).tolist() == greedy_decode(together, src, 12, BOS, EOS).tolist()
    for length_penalty in (0.0, 1.0):
        assert_same_search(together, decoding, src, 9, 4, length_penalty)


def test_decoding_leaves_the_mode_alone_and_has_no_dropout():
    torch.manual_seed(0)
    fast = FastTransformer(13, 17, d_model=24, n_heads=3, n_layers=2, d_ff=40, dropout=0.5, max_len=10)
    fast.encoder.eval()
    src = padded([5, 7], 13, seed=1)
    once = Decoding([fast]).beam(src, 9, BOS, EOS, 3, 1.0)
    assert Decoding([fast]).beam(src, 9, BOS, EOS, 3, 1.0) == once
    assert (fast.training, fast.encoder.training, fast.decoder.training) == (True, False, True)
    with pytest.raises(ValueError, match="max_len = 10"):
        Decoding([fast]).greedy(src, 20, BOS, -1)


def test_dropout_is_on_in_training_only():
    torch.manual_seed(0)
    fast = FastTransformer(13, 17, d_model=24, n_heads=3, n_layers=2, d_ff=40, dropout=0.5)
    src, tgt = padded([5, 7], 13, seed=1), padded([6, 3], 17, seed=2)
    assert fast.summed_loss(src, tgt) != fast.summed_loss(src, tgt)
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


@pytest.mark.parametrize("rows", [1, 2, 3, 64])
@pytest.mark.parametrize("outputs", [5, Projection.LONG + 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_projection_is_its_linear_layers_side_by_side(rows, outputs, bias, packed):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(40, n, bias=bias) for n in (outputs, 7)]
    projection, x = Projection(*layers), torch.randn(rows, 40)
    if not packed:  # as where PyTorch has no oneDNN
        projection.packed = None
    before, expected = x.clone(), torch.cat([layer(x) for layer in layers], dim=1)
    for _ in range(2):  # the bias is not added to the weights
        torch.testing.assert_close(projection(x), expected)
    assert torch.equal(x, before)
    with torch.no_grad():
        layers[0].weight.zero_()
    torch.testing.assert_close(projection(x), expected)  # a copy


@pytest.mark.parametrize("vocabulary", [1, 7, 64, 4000])
def test_argmax_takes_the_first_of_equal_ones(vocabulary):
    x = torch.randint(0, 5, (50, vocabulary), generator=torch.Generator().manual_seed(0)).float()
    assert torch.equal(argmax(x), x.argmax(-1))
    assert argmax(x[:, :1].expand(50, vocabulary)).tolist() == [0] * 50


def test_what_it_does_not_accept_is_said():
    _, fast = pair_of_models(True, True)
    with pytest.raises(ValueError, match="right"):
        fast.summed_loss(torch.tensor([[0, 4, 5]]), torch.tensor([[1, 4, 2]]))
    with pytest.raises(ValueError, match="at least one"):
        fast.summed_loss(torch.tensor([[4, 5], [0, 0]]), torch.tensor([[1, 4, 2], [1, 4, 2]]))
    with pytest.raises(ValueError, match="max_len = 32"):
        fast.summed_loss(torch.full((1, 33), 4), torch.tensor([[1, 4, 2]]))
