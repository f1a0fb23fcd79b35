"""Encoder, decoder and the whole model: equal to torch.nn.Transformer, and what the course claims of them."""

import copy as copying
import math

import pytest
import torch
from torch import nn

from txcourse.solutions.attention import causal_mask
from txcourse.solutions.batching import shift_target
from txcourse.solutions.decoder import Decoder
from txcourse.solutions.encoder import Encoder
from txcourse.solutions.feed_forward_and_residuals import LayerNorm
from txcourse.solutions.positional_encoding import LearnedPositionalEmbedding
from txcourse.solutions.tokens_and_embeddings import TokenEmbedding
from txcourse.solutions.training import label_smoothed_cross_entropy
from txcourse.solutions.transformer import Transformer, count_parameters, initialise

from .copying import assert_same_gradients, copy, stack_pairs

SRC = torch.tensor([[5, 6, 7, 8, 9, 4, 6], [9, 8, 7, 0, 0, 0, 0], [4, 4, 5, 6, 0, 0, 0]])
TGT = torch.tensor([[1, 4, 5, 6, 7], [1, 9, 8, 0, 0], [1, 7, 0, 0, 0]])


def small(**options) -> Transformer:
    return Transformer(11, 13, d_model=12, n_heads=3, n_layers=2, d_ff=20, **options)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_equals_torch_transformer(norm_first: bool) -> None:
    model = small(dropout=0.0, norm_first=norm_first).double()
    theirs = nn.Transformer(12, 3, 2, 2, 20, dropout=0.0, batch_first=True, norm_first=norm_first).double()
    if not norm_first:  # PyTorch adds final norms in post-norm too; the paper has none
        theirs.encoder.norm = theirs.decoder.norm = None
    pairs = [*stack_pairs(model.encoder, theirs.encoder), *stack_pairs(model.decoder, theirs.decoder)]
    copy(pairs)
    assert sum(b.numel() for _, b in pairs) == sum(p.numel() for p in theirs.parameters())
    src, tgt = (
        x.detach().requires_grad_()
        for x in (model.positions(model.src_embedding(SRC)), model.positions(model.tgt_embedding(TGT)))
    )
    hidden = theirs(
        src,
        tgt,
        tgt_mask=~causal_mask(5),
        src_key_padding_mask=SRC == 0,
        tgt_key_padding_mask=TGT == 0,
        memory_key_padding_mask=SRC == 0,
    )
    expected = model.output(hidden)
    output = model(SRC, TGT)
    torch.testing.assert_close(output, expected)
    up = torch.randn_like(output)
    (output * up).sum().backward()
    (expected * up).sum().backward()
    assert_same_gradients(pairs)
    gradient = torch.zeros(13, 12).double().index_add(0, TGT.flatten(), tgt.grad.flatten(0, 1) * 12**0.5)
    gradient[0] = 0  # padding learns nothing through the lookup
    torch.testing.assert_close(model.tgt_embedding.weight.grad, gradient)


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_changes_no_real_position(norm_first: bool) -> None:
    model = small(norm_first=norm_first).eval().double()
    full = model(SRC, TGT)
    alone = model(SRC[1:2, :3], TGT[1:2, :3])
    torch.testing.assert_close(full[1:2, :3], alone)
    left = torch.tensor([[0, 0, 4, 5]])  # left padding in the target: a first row that sees nothing
    assert model(SRC[:1], left).isfinite().all()
    other = small(norm_first=norm_first, pad_id=3).eval().double()
    swap = torch.tensor([3, 1, 2, 0, *range(4, 11)])
    torch.testing.assert_close(other(swap[SRC], swap[TGT])[1:2, :3], other(SRC[1:2, :3], TGT[1:2, :3]))


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_never_sees_the_future_and_always_the_source(norm_first: bool) -> None:
    decoder = Decoder(2, 12, 3, 20, norm_first=norm_first).double()  # in training mode too
    x = torch.randn(1, 5, 12).double().requires_grad_()
    memory = torch.randn(1, 7, 12).double().requires_grad_()
    memory_mask = torch.tensor([True] * 6 + [False])[None, None, None]
    decoder.eval()
    output = decoder(x, memory, causal_mask(5), memory_mask)
    for t in range(5):
        up = torch.randn(12).double()
        to_x, to_memory = torch.autograd.grad(output[0, t] @ up, [x, memory], retain_graph=True)
        assert (to_x[0, t + 1 :] == 0).all()
        assert (to_x[0, : t + 1].abs().sum(-1) > 0).all()
        assert (to_memory[0, :6].abs().sum(-1) > 0).all()
        assert (to_memory[0, 6] == 0).all()


def test_stacks_share_nothing_and_have_the_right_norms() -> None:
    for norm_first in (False, True):
        encoder = Encoder(3, 12, 3, 20, norm_first=norm_first)
        decoder = Decoder(3, 12, 3, 20, norm_first=norm_first)
        assert (encoder.norm is not None) == (decoder.norm is not None) == norm_first
        norms = [m for m in (*encoder.modules(), *decoder.modules()) if isinstance(m, LayerNorm)]
        assert len(norms) == 3 * 2 + 3 * 3 + 2 * norm_first
        assert len(list(encoder.parameters())) == 3 * (8 + 4 + 4) + 2 * norm_first


def test_dropout_reaches_every_place() -> None:
    model = small(dropout=0.25)
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.25] * (1 + 2 * (1 + 1 + 2) + 2 * (2 + 1 + 3))


def test_counts_of_the_paper() -> None:
    def count(**options) -> int:
        with torch.device("meta"):
            return count_parameters(Transformer(37000, 37000, **options))

    d, d_ff, v = 512, 2048, 37000
    attention, ffn, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    layers = 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm)
    assert count(tie_embeddings="all") == layers + v * d == 63_082_496
    assert count() == layers + 3 * v * d + v == 101_007_496
    assert count(tie_embeddings=True) == layers + 2 * v * d


def test_tying() -> None:
    assert small().output.bias is not None
    model = small(tie_embeddings=True)
    assert model.output.bias is None
    assert model.output.weight is model.tgt_embedding.weight
    assert model.src_embedding.weight is not model.tgt_embedding.weight
    everything = Transformer(13, 13, 12, 3, 1, 20, tie_embeddings="all")
    assert everything.output.weight is everything.tgt_embedding.weight is everything.src_embedding.weight
    twin = copying.deepcopy(everything)
    assert twin.output.weight is twin.src_embedding.weight
    with pytest.raises(ValueError, match="equal vocabularies"):
        small(tie_embeddings="all")
    with pytest.raises(ValueError, match="tie_embeddings"):
        small(tie_embeddings="both")


@pytest.mark.parametrize("tie", [False, True, "all"])
def test_initialise_whole_model(tie: bool | str) -> None:
    torch.manual_seed(0)
    model = Transformer(2000, 2000, 64, 4, 1, 256, tie_embeddings=tie)
    for embedding in (model.src_embedding, model.tgt_embedding):
        assert abs(embedding.weight[1:].std().item() - 1 / 8) < 0.002
        assert (embedding.weight[0] == 0).all()
    bound = math.sqrt(6 / (64 + 256))
    largest = model.encoder.layers[0].feed_forward.linear_1.weight.abs().max().item()
    assert 0.98 * bound < largest <= bound
    for name, p in model.named_parameters():
        if name.endswith("bias") or name.endswith("shift"):
            assert (p == 0).all(), name
        if name.endswith("gain"):
            assert (p == 1).all(), name
    model.encoder.layers[0].residuals[0].norm.gain.data.fill_(7)
    initialise(model)
    assert (model.encoder.layers[0].residuals[0].norm.gain == 1).all()


def test_initialise_other_modules() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = nn.Linear(64, 500, bias=False)  # before the embedding it is tied to
            self.table = nn.Embedding(500, 64, padding_idx=3)
            self.output.weight = self.table.weight
            self.own = TokenEmbedding(500, 64, pad_id=4)
            self.learned = LearnedPositionalEmbedding(300, 64)
            self.norm = nn.LayerNorm(64)
            self.matrix = nn.Parameter(torch.full((64, 32), 9.0))

    torch.manual_seed(0)
    model = Mixed()
    nn.init.constant_(model.norm.weight, 5)
    nn.init.constant_(model.norm.bias, 5)
    initialise(model)
    for weight, pad in [(model.table.weight, 3), (model.own.weight, 4), (model.learned.weight, None)]:
        assert abs(weight.std().item() - 1 / 8) < 0.005
        assert pad is None or (weight[pad] == 0).all()
    assert model.output.weight is model.table.weight
    assert (model.norm.weight == 1).all() and (model.norm.bias == 0).all()
    assert 0 < model.matrix.abs().max() <= math.sqrt(6 / 96)
    assert model.matrix.requires_grad


def test_each_shared_parameter_is_drawn_once() -> None:
    tied, untied = Transformer(50, 50, 16, 2, 1, 32, tie_embeddings="all"), Transformer(50, 50, 16, 2, 1, 32)
    draws = {}
    for name, model in (("tied", tied), ("untied", untied)):
        calls: list[int] = []
        original = nn.init.normal_
        nn.init.normal_ = lambda t, *a, _c=calls, _o=original, **k: (_c.append(id(t)), _o(t, *a, **k))[1]
        try:
            initialise(model)
        finally:
            nn.init.normal_ = original
        draws[name] = len(calls)
    assert draws == {"tied": 1, "untied": 2}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_first_loss_is_near_ln_v(norm_first: bool, seed: int) -> None:
    torch.manual_seed(seed)
    vocab = 1000
    model = Transformer(vocab, vocab, 64, 4, 2, 128, norm_first=norm_first)
    src, tgt = torch.randint(4, vocab, (8, 12)), torch.randint(4, vocab, (8, 33))
    inputs, labels = shift_target(tgt)
    loss = label_smoothed_cross_entropy(model(src, inputs), labels, 0.0).item()
    assert abs(loss - math.log(vocab)) < 0.2


def test_encode_then_decode_is_forward() -> None:
    model = small().eval()
    torch.testing.assert_close(model.decode(TGT, model.encode(SRC), SRC), model(SRC, TGT))
    assert model(SRC, TGT).shape == (3, 5, 13)
    weights = model.decoder.layers[0].cross_attention.weights
    assert weights.shape == (3, 3, 5, 7)
    assert (weights[1, ..., 3:] == 0).all()
    with pytest.raises(ValueError, match="max_len = 4"):
        small(max_len=4)(SRC, TGT)
