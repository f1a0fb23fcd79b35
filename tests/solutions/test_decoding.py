import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from txcourse.solutions.attention import padding_mask, scaled_dot_product_attention
from txcourse.solutions.decoding import KeyValueCache, beam_search, greedy_decode
from txcourse.solutions.multi_head_attention import merge_heads, split_heads
from txcourse.solutions.transformer import Transformer

BOS, EOS = 1, 2


class Table(nn.Module):
    """Logits that depend on the source and the whole prefix, the same on every machine."""

    def __init__(self, vocab: int, sharpness: float = 1.0) -> None:
        super().__init__()
        self.vocab, self.sharpness = vocab, sharpness
        self.dropout = nn.Dropout(0.5)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        assert not self.training and not torch.is_grad_enabled()
        logits = torch.zeros(*tgt.shape, self.vocab, dtype=torch.float64)
        for b, t in itertools.product(range(tgt.size(0)), range(tgt.size(1))):
            seed = hash((tuple(src[b].tolist()), tuple(tgt[b, : t + 1].tolist()))) % 2**31
            generator = torch.Generator().manual_seed(seed)
            logits[b, t] = self.sharpness * torch.randn(self.vocab, generator=generator, dtype=torch.float64)
        return logits


def log_probability(model: nn.Module, src: torch.Tensor, ids: list[int]) -> float:
    model.eval()
    with torch.no_grad():
        log_probs = model(src, torch.tensor([ids[:-1]])).log_softmax(-1)[0]
    return sum(float(log_probs[t, token]) for t, token in enumerate(ids[1:]))


def every_target(vocab: int, max_len: int):
    """Every sequence that ends in its first eos, or has max_len tokens without one."""
    others = [token for token in range(vocab) if token != EOS]
    for length in range(1, max_len):
        for body in itertools.product(others, repeat=length - 1):
            yield [BOS, *body, EOS]
    for body in itertools.product(others, repeat=max_len - 1):
        yield [BOS, *body]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all(penalty: float, seed: int) -> None:
    model, src, max_len = Table(4), torch.tensor([[seed]]), 5
    ids, score = beam_search(model, src, max_len, BOS, EOS, beam_size=4**4, length_penalty=penalty)
    scores = {
        tuple(target): log_probability(model, src, target) / (len(target) - 1) ** penalty
        for target in every_target(4, max_len)
    }
    assert tuple(ids) == max(scores, key=lambda target: scores[target])
    assert math.isclose(score, scores[tuple(ids)], rel_tol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 7), st.sampled_from([0.0, 0.6, 1.0]))
def test_beam_properties(seed: int, beam_size: int, max_len: int, penalty: float) -> None:
    model, src = Table(5, sharpness=2.0), torch.tensor([[seed]])
    ids, score = beam_search(model, src, max_len, BOS, EOS, beam_size, penalty)
    assert ids[0] == BOS and 2 <= len(ids) <= max_len
    assert EOS not in ids[1:-1] and (ids[-1] == EOS or len(ids) == max_len)
    assert math.isclose(score, log_probability(model, src, ids) / (len(ids) - 1) ** penalty, rel_tol=1e-9)
    greedy = greedy_decode(model, src, max_len, BOS, EOS)[0].tolist()
    assert beam_search(model, src, max_len, BOS, EOS, 1, penalty)[0] == greedy


class Fixed(nn.Module):
    """Next-token probabilities from a dictionary of prefixes."""

    def __init__(self, table: dict[tuple[int, ...], list[float]]) -> None:
        super().__init__()
        self.table = table

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[self.table[tuple(row)]] for row in tgt.tolist()]).log()


def test_beam_finished_ones_leave_and_free_no_slot() -> None:
    # ids: 2 eos, 3 and 4 words. After bos: eos 0.5, 3 0.3, 4 0.2. Beam 2 keeps eos and 3, not 4,
    # although everything after 4 would be certain.
    table = {
        (1,): [1e-9, 1e-9, 0.5, 0.3, 0.2],
        (1, 3): [1e-9, 1e-9, 0.4, 0.3, 0.3],
        (1, 4): [1e-9, 1e-9, 1e-9, 1e-9, 1.0],
        (1, 4, 4): [1e-9, 1e-9, 1e-9, 1e-9, 1.0],
        (1, 3, 3): [1e-9, 1e-9, 0.2, 0.4, 0.4],
    }
    src = torch.tensor([[5]])
    assert beam_search(Fixed(table), src, 4, BOS, EOS, 2, 0.0)[0] == [1, 2]
    ids, score = beam_search(Fixed(table), src, 4, BOS, EOS, 3, 3.0)  # three slots keep 4 too
    assert ids == [1, 4, 4, 4] and math.isclose(score, math.log(0.2) / 3**3, rel_tol=1e-5)
    ids, _ = beam_search(Fixed(table), src, 4, BOS, EOS, 2, 3.0)
    assert ids[:2] == [1, 3]


def test_beam_ties_and_a_bare_bos() -> None:
    class Equal(nn.Module):
        def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*tgt.shape, 5)

    model, src = Equal(), torch.tensor([[5]])
    assert beam_search(model, src, 4, BOS, EOS, 2, 1.0)[0] == [1, 0, 0, 0]
    assert beam_search(model, src, 4, BOS, EOS, 3, 1.0)[0] == [1, 2]  # equal scores: it entered first
    assert beam_search(model, src, 1, BOS, EOS, 3, 1.0) == ([1], 0.0)


def test_greedy() -> None:
    model, src = Table(5, sharpness=3.0), torch.arange(12)[:, None]
    output = greedy_decode(model, src, 8, BOS, EOS, pad_id=0)
    assert output.dtype == torch.long and output.size(1) <= 8 and (output[:, 0] == BOS).all()
    for row, source in zip(output.tolist(), src, strict=True):
        alone = greedy_decode(model, source[None], 8, BOS, EOS, pad_id=0)[0].tolist()
        assert row[: len(alone)] == alone and set(row[len(alone) :]) <= {0}
        if EOS in row:
            assert set(row[row.index(EOS) + 1 :]) <= {0}
        for t in range(1, len(alone)):
            with torch.no_grad():
                assert model.eval()(source[None], torch.tensor([alone[:t]]))[0, -1].argmax() == alone[t]
    assert greedy_decode(model, src, 1, BOS, EOS).tolist() == [[1]] * 12


def test_greedy_stops_when_all_have_ended() -> None:
    model = Fixed({(1,): [0.1, 0.1, 0.6, 0.1, 0.1]})  # a second call would be a KeyError
    src = torch.tensor([[5, 5, 5], [6, 6, 6]])
    assert greedy_decode(model, src, 9, BOS, EOS).tolist() == [[1, 2], [1, 2]]


def test_padding_after_the_end_is_0_unless_told() -> None:
    class EndOrNot(nn.Module):
        def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(src[:, :1], 9).float()  # always the first source token

    src = torch.tensor([[2, 7, 7], [5, 7, 7]])
    assert greedy_decode(EndOrNot(), src, 4, BOS, EOS).tolist() == [[1, 2, 0, 0], [1, 5, 5, 5]]
    assert greedy_decode(EndOrNot(), src, 4, BOS, EOS, pad_id=8).tolist() == [[1, 2, 8, 8], [1, 5, 5, 5]]


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_mode_is_restored(search: str) -> None:
    class Broken(nn.Module):
        def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken")

    def decode(model: nn.Module) -> None:
        if search == "greedy":
            greedy_decode(model, torch.tensor([[5]]), 4, BOS, EOS)
        else:
            beam_search(model, torch.tensor([[5]]), 4, BOS, EOS, 2, 1.0)

    for training in (True, False):
        model = Table(5).train(training)
        model.dropout.eval()  # frozen by its owner: stays so
        decode(model)
        assert model.training == training and not model.dropout.training
    broken = Broken().train()
    with pytest.raises(RuntimeError, match="broken"):
        decode(broken)
    assert broken.training


@torch.no_grad()
def cached_step(model: Transformer, token, memory, src, cache: KeyValueCache) -> torch.Tensor:
    """Logits after one more target token, with the keys and values of earlier ones from the cache."""
    heads = model.decoder.layers[0].self_attention.n_heads
    position = cache.length
    x = model.tgt_embedding(token) + model.positions.table[position]

    for i, layer in enumerate(model.decoder.layers):

        def attend(y, i=i, own=layer.self_attention):
            k, v = cache.append(i, split_heads(own.w_k(y), heads), split_heads(own.w_v(y), heads))
            output, _ = scaled_dot_product_attention(split_heads(own.w_q(y), heads), k, v)
            return own.w_o(merge_heads(output))

        def cross(y, layer=layer):
            return layer.cross_attention(y, memory, memory, padding_mask(src))

        x = layer.residuals[0](x, attend)
        x = layer.residuals[1](x, cross)
        x = layer.residuals[2](x, layer.feed_forward)
    if model.decoder.norm is not None:
        x = model.decoder.norm(x)
    return model.output(x)


@pytest.mark.parametrize("norm_first", [False, True])
def test_cached_equals_uncached(norm_first: bool) -> None:
    model = Transformer(11, 13, 12, 3, 2, 20, norm_first=norm_first).eval().double()
    src, tgt = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 5, 6, 7, 8], [1, 9, 4, 4, 5]])
    memory = model.encode(src)
    cache = KeyValueCache(2, 2, 3, 5, 4)
    steps = [cached_step(model, tgt[:, t : t + 1], memory, src, cache) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), model(src, tgt))
    assert cache.length == 5
    with pytest.raises(ValueError, match="holds 5 positions"):
        cached_step(model, tgt[:, :1], memory, src, cache)


def test_cache_keeps_layers_apart_and_its_memory() -> None:
    cache = KeyValueCache(2, 1, 3, 6, 4)
    keys = [torch.randn(1, 3, n, 4) for n in (2, 1, 3)]
    memory = cache.keys.data_ptr()
    for n, key in enumerate(keys, start=1):
        k, v = cache.append(0, key, -key)
        torch.testing.assert_close(k, torch.cat(keys[:n], 2))
        torch.testing.assert_close(v, -k)
    assert cache.keys.data_ptr() == memory
    assert cache.length == 0  # layer 1 has none yet
    cache.append(1, keys[0], keys[0])
    assert cache.length == 2
    torch.testing.assert_close(k, torch.cat(keys, 2))
    with pytest.raises(ValueError, match="holds 6 positions, 7"):
        cache.append(0, keys[1], keys[1])
    assert cache.lengths == [6, 2]
    learned = torch.ones(1, 3, 1, 4, requires_grad=True)
    assert not any(x.requires_grad for x in cache.append(1, learned, learned))
