"""Exercises of 10_transformer."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.guard import CandidateError
from txcourse.exercises import decoder as decoders
from txcourse.exercises import encoder as encoders
from txcourse.exercises import multi_head_attention as attention
from txcourse.exercises.encoder import ATTENTION, STACK, random_in_training
from txcourse.exercises.feed_forward_and_residuals import (
    EPS,
    FEED_FORWARD_INSIDE,
    FLAG,
    NORM_INSIDE,
    defaults,
    forms,
    layer_norm,
    normal,
    one_tensor,
    registered,
    same_every_time,
    same_parameter_gradients,
)
from txcourse.exercises.multi_head_attention import raises_value_error
from txcourse.solutions import transformer as solutions
from txcourse.solutions.attention import causal_mask, padding_mask

# -- initialise --------------------------------------------------------------------------------------------------------


class _Layer(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_q, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model, bias=False)
        self.linear_1, self.linear_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm = nn.LayerNorm(d_model)


class _Library(nn.Module):
    """A model of PyTorch's own layers: an embedding alone, and one that the output layer shares."""

    def __init__(self, pad_id: int) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.src_embedding = nn.Embedding(300, 36, padding_idx=pad_id)
        self.tgt_embedding = nn.Embedding(200, 36, padding_idx=pad_id)
        self.layers = nn.ModuleList([_Layer(36, 60)])
        self.output = nn.Linear(36, 200, bias=False)
        self.output.weight = self.tgt_embedding.weight


def _course(pad_id: int) -> nn.Module:
    """The course's own model: its embeddings and norms are not PyTorch's. It comes initialised: that is undone."""
    model = solutions.Transformer(300, 200, 36, 2, 1, 60, tie_embeddings=True, max_len=8, pad_id=pad_id)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:  # an answer may leave norms as they were constructed
                parameter.uniform_(2.0, 3.0)
    return model


_Findings = dict[str, tuple[str, str]]  # test → (sentence, mistake)


def _findings(c: Context, model: nn.Module, pad_id: int) -> _Findings:
    """What is wrong after the candidate has started `model`."""
    before = {n: p.detach().clone() for n, p in model.named_parameters(remove_duplicate=False)}
    objects = dict(model.named_parameters(remove_duplicate=False))
    c.subject.raw(model)
    after = dict(model.named_parameters(remove_duplicate=False))
    found: _Findings = {}
    if any(after.get(n) is not p for n, p in objects.items()) or any(
        not p.requires_grad for p in after.values()
    ):
        found["in_place"] = (
            "Parameters should be changed in place: yours are replaced, no longer shared or no longer trained.",
            "parameters_replaced",
        )
        return found
    shared, matrices = after["tgt_embedding.weight"], list[tuple[str, Tensor]]()
    for name, p in after.items():
        value = p.detach()
        if name.endswith("embedding.weight"):
            if name.startswith("src"):
                _embedding(value, before[name], pad_id, found)
        elif p is shared:
            _tied(value, before[name], pad_id, found)
        elif p.dim() >= 2:
            _matrix(name, value, before[name], found)
            twin = next((n for n, other in matrices if torch.equal(value, other)), None)
            if twin is not None:
                found.setdefault("matrices", (f"The matrices {twin} and {name} start with the same numbers; each should be drawn for itself.", "matrices_alike"))  # fmt: skip
            matrices.append((name, value))
        elif "norm" in name:
            want = float(name.endswith(("weight", "gain")))
            if not bool((value == want).all()):
                wrong = "norm_gain_zeroed" if want and not value.any() else "norm_not_one_and_zero"
                found.setdefault("norms", (f"{name} should be {want:g} everywhere; yours starts with {float(value[0]):.3g}.", wrong))  # fmt: skip
        elif bool(value.any()):
            wrong = "biases_not_touched" if torch.equal(value, before[name]) else "biases_not_zero"
            found.setdefault("biases", (f"The bias {name} should be zero; yours starts with {float(value[0]):.3g}.", wrong))  # fmt: skip
    return found


def _matrix(name: str, value: Tensor, before: Tensor, found: _Findings) -> None:
    fan_out, fan_in = value.shape
    bound, largest, std = math.sqrt(6 / (fan_in + fan_out)), float(value.abs().max()), float(value.std())
    if 0.95 * bound < largest <= bound * (1 + 1e-5) and abs(std / (bound / math.sqrt(3)) - 1) < 0.08:
        return
    names = {
        "matrices_not_touched": torch.equal(value, before),
        "matrices_zeroed": largest == 0,
        "orthogonal_matrices": fan_out == fan_in
        and torch.allclose(value @ value.T, torch.eye(fan_in), atol=1e-4),
        "xavier_normal": largest > bound and abs(std / (bound / math.sqrt(3)) - 1) < 0.1,
        "kaiming_uniform": largest <= math.sqrt(6 / fan_in) and largest > 0.95 * math.sqrt(6 / fan_in),
        "kaiming_normal": abs(std / math.sqrt(2 / fan_in) - 1) < 0.1,
        "matrices_like_embeddings": largest > 3 * std and abs(std * math.sqrt(value.shape[-1]) - 1) < 0.1,
        "small_normal_matrices": largest > 2.5 * std and std < 0.03,
        "standard_normal_matrices": abs(std - 1) < 0.1,
    }
    wrong = next((n for n, it_is in names.items() if it_is), "matrices_not_xavier_uniform")
    text = (
        f"The matrix {name} {tuple(value.shape)} should be uniform in ±√(6 / (in + out)) = ±{bound:.3g} (deviation {bound / math.sqrt(3):.3g}); "
        f"yours reaches {largest:.3g} with deviation {std:.3g}."
    )
    if "norm" not in name:
        found.setdefault("matrices", (text, wrong))


def _embedding(value: Tensor, before: Tensor, pad_id: int, found: _Findings) -> None:
    vocab, d_model = value.shape
    rows = value[pad_id + 1 :]
    std, want = float(rows.std()), d_model**-0.5
    normal_shape = float(rows.abs().max()) > 2.8 * std
    if abs(std / want - 1) > 0.06 or not normal_shape:
        names = {
            "embeddings_not_touched": torch.equal(value, before),
            "embeddings_zeroed": std == 0,
            "embeddings_xavier": abs(std / math.sqrt(2 / (vocab + d_model)) - 1) < 0.06 and not normal_shape,
            "embeddings_standard_normal": abs(std - 1) < 0.06,
            "embeddings_std_is_1_over_d_model": abs(std * d_model - 1) < 0.06,
            "embeddings_multiplied_by_root": abs(std / math.sqrt(d_model) - 1) < 0.06,
            "embeddings_uniform": float(rows.abs().max()) < 1.8 * std,
            "embeddings_std_0_02": abs(std / 0.02 - 1) < 0.06,
        }
        wrong = next((n for n, it_is in names.items() if it_is), "embeddings_wrong_deviation")
        found["embeddings"] = (
            f"The embeddings should be normal with deviation 1/√d_model = {want:.3g}; yours have {std:.3g}, and the largest is {float(rows.abs().max()):.3g}.",
            wrong,
        )
    if bool(value[pad_id].any()):
        found["pad_row"] = (f"The embedding of padding, row {pad_id}, should be zero.", "pad_row_not_zero")
        if pad_id and not value[0].any():
            found["pad_row"] = (
                f"With padding_idx (or pad_id) {pad_id} the embedding's row {pad_id} should be zero; yours zeroes row 0.",
                "pad_row_always_0",
            )


def _tied(value: Tensor, before: Tensor, pad_id: int, found: _Findings) -> None:
    alone: _Findings = {}
    _embedding(value, before, pad_id, alone)
    if alone:
        text = "The matrix that embedding and output layer share should start as an embedding, with a zero row for padding; "
        if "pad_row" in alone and "embeddings" not in alone:
            found["tied"] = (text + "its pad row is not zero: it was drawn again for the output layer.", "tied_matrix_drawn_twice")  # fmt: skip
        else:
            found["tied"] = (text + "yours was started again as a matrix of the output layer.", "tied_matrix_drawn_twice")  # fmt: skip


def _of_both_models(c: Context, pad_id: int = 0) -> list[_Findings]:
    """The findings for PyTorch's layers and for the course's: an answer may know one kind alone."""
    results: list[Any] = []
    for make in (_Library, _course):
        torch.manual_seed(c.seed)
        try:
            results.append(_findings(c, make(pad_id), pad_id))
        except Exception as error:
            results.append(error)
    good = [r for r in results if isinstance(r, dict)]
    if not good:
        raise results[0]
    return good


def _initialise_test(name: str) -> Callable[[Context], None]:
    """The finding `name` for the model that the candidate handles better."""

    def test(c: Context) -> None:
        best = min(_of_both_models(c), key=len)
        if "tied" in best and ("embeddings" in best or "pad_row" in best):
            best = {k: v for k, v in best.items() if k != "tied"}  # the same fault once
        if name in best:
            raise Wrong(*best[name])

    return test


def _pad_row(c: Context) -> None:
    _initialise_test("pad_row")(c)
    findings = _of_both_models(c, pad_id=3)
    if all("pad_row" in found for found in findings):
        raise Wrong(*findings[0]["pad_row"])


def _without_padding(c: Context) -> None:
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8))
    try:
        c.subject.raw(model)
    except CandidateError:  # it may count on a row for padding
        return
    if not any(bool(p.any()) for n, p in model.named_parameters() if n == "0.weight"):
        raise Wrong(
            "An embedding without padding (its padding_idx is None) comes out as zeros altogether, as weight[None] = 0 makes it. "
            "Ask first whether there is such a row.",
            "none_taken_for_a_row",
        )


# -- the model with switches -------------------------------------------------------------------------------------------

MODEL = (
    Mistake("embedding_not_scaled", "embedding_scale", "The embeddings are not multiplied by √d_model."),
    Mistake("source_embedding_not_scaled", "embedding_scale", "The source embeddings are not multiplied by √d_model."),
    Mistake("target_embedding_not_scaled", "embedding_scale", "The target embeddings are not multiplied by √d_model."),
    Mistake("embedding_scaled_by_d_model", "embedding_scale", "The embeddings are multiplied by d_model; it should be by its square root."),
    Mistake("embedding_divided", "embedding_scale", "The embeddings are divided by √d_model; they should be multiplied by it."),
    Mistake("scaled_after_positions", "embedding_scale", "The sum of embedding and position is multiplied by √d_model; only the embedding should be."),
    Mistake("no_positions", "positions", "No positions are added to the embeddings."),
    Mistake("no_source_positions", "positions", "No positions are added to the source embeddings."),
    Mistake("no_target_positions", "positions", "No positions are added to the target embeddings."),
    Mistake("positions_from_one", "positions", "The positions count from 1; the first one is 0."),
    Mistake("positions_along_batch", "positions", "The positions run along the batch: every token of a sample gets the same one."),
    Mistake("positions_frequency_per_column", "positions", "Each column of the positions has a frequency of its own; sine and cosine of a pair share one: 10000^(2i/d) for columns 2i and 2i + 1."),
    Mistake("positions_exponent_doubled", "positions", "The exponent in the positions is twice too large: it is (number of the even column) / d_model."),
    Mistake("positions_only_sine", "positions", "The positions are sines in all columns; odd columns hold cosines."),
    Mistake("positions_are_numbers", "positions", "The number of the position itself is added; it should be sines and cosines of it."),
    Mistake("norm_after_embedding", "after_embedding", "There is a LayerNorm on the embedded input (as in BERT); the Transformer has none there."),
    Mistake("no_causal_mask", "model_mask", "The decoder sees the future: there is no causal mask."),
    Mistake("causal_mask_strict", "model_mask", "A target position cannot see itself: the diagonal of the causal mask should be True."),
    Mistake("causal_mask_sees_next", "model_mask", "A target position sees the next one: the diagonal of the causal mask is off by one."),
    Mistake("causal_mask_transposed", "model_mask", "The causal mask is upside down: positions see the future and not the past."),
    Mistake("no_source_padding_mask", "model_mask", "The encoder attends to padding: it gets no padding mask, or one that hides queries where keys should be hidden."),
    Mistake("no_memory_padding_mask", "model_mask", "The decoder attends to the padding of the source: its cross-attention gets no padding mask."),
    Mistake("no_padding_masks", "model_mask", "Padding of the source is attended to, in the encoder and in the decoder."),
    Mistake("encoder_is_causal", "model_mask", "The encoder is causal; it sees the whole source."),
    Mistake("cross_attention_is_causal", "model_mask", "The cross-attention is causal; every target position sees the whole source."),
    Mistake("encoder_not_used", "model_wiring", "The decoder gets the embedded source; it should get what the encoder makes of it."),
    Mistake("decoder_gets_first_state_only", "model_wiring", "The decoder gets the memory of the first source position only."),
    Mistake("one_embedding_for_both", "model_wiring", "Source and target share one embedding though tie_embeddings does not say so."),
    Mistake("source_through_target_embedding", "model_wiring", "The source is looked up in the target embedding."),
    Mistake("softmax_on_output", "logits", "The output goes through a softmax; logits are asked for."),
    Mistake("log_softmax_on_output", "logits", "The output goes through a log-softmax; logits are asked for."),
    Mistake("relu_on_logits", "logits", "The logits go through a ReLU."),
    Mistake("logits_scaled", "logits", "The logits are divided by √d_model."),
    Mistake("logits_multiplied", "logits", "The logits are multiplied by √d_model."),
    Mistake("tie_ignored", "tying", "tie_embeddings does not make the output layer share the embedding's matrix: it should be one and the same parameter (a copy of its numbers is not)."),
    Mistake("always_tied", "tying", "The output layer always shares the target embedding's matrix, whatever tie_embeddings says."),
    Mistake("tied_output_has_bias", "tying", "The tied output layer has a bias; it should have none."),
    Mistake("all_ties_output_only", "tying", 'tie_embeddings="all" leaves the source embedding alone; it should share the matrix too.'),
    Mistake("all_ties_embeddings_only", "tying", 'tie_embeddings="all" leaves the output layer alone; it should share the matrix too.'),
    Mistake("true_ties_embeddings_only", "tying", "tie_embeddings=True leaves the output layer alone; it should share the target embedding's matrix."),
)  # fmt: skip


def _table(on: frozenset[str], length: int, d_model: int) -> Tensor:
    position = torch.arange(length, dtype=torch.float64)[:, None]
    column = torch.arange(d_model, dtype=torch.float64)
    even = column - column % 2
    if "positions_from_one" in on:
        position = position + 1
    if "positions_are_numbers" in on:
        return position.expand(length, d_model)
    if "positions_frequency_per_column" in on:
        even = column
    angle = position / 10000 ** ((2 if "positions_exponent_doubled" in on else 1) * even / d_model)
    return torch.where((column % 2 == 0) | ("positions_only_sine" in on), angle.sin(), angle.cos())


def transformer(on: frozenset[str]) -> type[nn.Module]:
    """Transformer with the mistakes in `on`; without any, right."""
    encoder, decoder = encoders.encoder(on), decoders.decoder(on)

    class Embedding(nn.Module):
        def __init__(self, vocab_size: int, d_model: int, pad_id: int) -> None:
            super().__init__()
            self.weight, self.pad_id = nn.Parameter(torch.randn(vocab_size, d_model)), pad_id

    class Transformer(nn.Module):
        def __init__(
            self,
            src_vocab: int,
            tgt_vocab: int,
            d_model: int = 512,
            n_heads: int = 8,
            n_layers: int = 6,
            d_ff: int = 2048,
            dropout: float = 0.1,
            norm_first: bool = False,
            tie_embeddings: bool | str = False,
            max_len: int = 5000,
            pad_id: int = 0,
        ) -> None:
            super().__init__()
            if tie_embeddings == "all" and src_vocab != tgt_vocab:
                raise ValueError("vocabularies of different size")
            self.pad_id, self.root = pad_id, math.sqrt(d_model)
            self.src_embedding = Embedding(src_vocab, d_model, pad_id)
            self.tgt_embedding = Embedding(tgt_vocab, d_model, pad_id)
            if "norm_after_embedding" in on:
                self.norm = layer_norm(on)(d_model)
            if "one_embedding_for_both" in on:
                self.src_embedding = self.tgt_embedding
            self.encoder = encoder(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
            self.decoder = decoder(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
            tie = "always_tied" in on or (tie_embeddings and "tie_ignored" not in on)
            self.output = nn.Linear(d_model, tgt_vocab, bias=not tie or "tied_output_has_bias" in on)
            embeddings_only = (tie_embeddings == "all" and "all_ties_embeddings_only" in on) or (
                tie_embeddings is True and "true_ties_embeddings_only" in on
            )
            if tie and not embeddings_only:
                self.output.weight = self.tgt_embedding.weight
            if tie and tie_embeddings == "all" and "all_ties_output_only" not in on:
                self.src_embedding.weight = self.tgt_embedding.weight
            self.dropout = nn.Dropout(dropout)

        def embed(self, tokens: Tensor, side: str) -> Tensor:
            ours = side == "source" and "source_through_target_embedding" not in on
            table = self.src_embedding if ours else self.tgt_embedding
            x = F.embedding(tokens, table.weight, padding_idx=self.pad_id)
            scale = self.root
            if {"embedding_not_scaled", f"{side}_embedding_not_scaled", "scaled_after_positions"} & on:
                scale = 1.0
            elif "embedding_divided" in on:
                scale = 1 / self.root
            elif "embedding_scaled_by_d_model" in on:
                scale = self.root**2
            x = x * scale
            positions = _table(on, max(x.shape[:2]), x.shape[2]).to(x.dtype)
            if "positions_along_batch" in on:
                x = x + positions[: x.shape[0], None]
            elif not {"no_positions", f"no_{side}_positions"} & on:
                x = x + positions[: x.shape[1]]
            if "scaled_after_positions" in on:
                x = x * self.root
            x = self.dropout(x)
            return self.norm(x) if "norm_after_embedding" in on else x

        def encode(self, src: Tensor) -> Tensor:
            mask = padding_mask(src, self.pad_id)
            if {"no_source_padding_mask", "no_padding_masks"} & on:
                mask = torch.ones_like(mask)
            if "encoder_is_causal" in on:
                mask = mask & causal_mask(src.shape[1])
            x = self.embed(src, "source")
            return x if "encoder_not_used" in on else self.encoder(x, mask)

        def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
            t = tgt.shape[1]
            causal, real = causal_mask(t), padding_mask(tgt, self.pad_id)
            if "causal_mask_strict" in on:
                causal = causal.tril(-1)
            elif "causal_mask_sees_next" in on:
                causal = torch.ones(t, t, dtype=torch.bool).tril(1)
            elif "causal_mask_transposed" in on:
                causal = causal.T
            tgt_mask = real if "no_causal_mask" in on else real & causal
            memory_mask = padding_mask(src, self.pad_id)
            if {"no_memory_padding_mask", "no_padding_masks"} & on:
                memory_mask = torch.ones_like(memory_mask)
            if "cross_attention_is_causal" in on:
                memory_mask = memory_mask & torch.ones(t, src.shape[1], dtype=torch.bool).tril()
            if "decoder_gets_first_state_only" in on:
                memory, memory_mask = memory[:, :1], memory_mask[..., :1]
            x = self.decoder(self.embed(tgt, "target"), memory, tgt_mask, memory_mask)
            if "logits_scaled" in on:
                x = x / self.root
            logits = self.output(x * self.root if "logits_multiplied" in on else x)
            if "softmax_on_output" in on:
                return logits.softmax(-1)
            if "log_softmax_on_output" in on:
                return logits.log_softmax(-1)
            return logits.relu() if "relu_on_logits" in on else logits

        def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
            return self.decode(tgt, self.encode(src), src)

    return Transformer


# -- tests of the model ------------------------------------------------------------------------------------------------

_D, _S, _T, _B, _PAD = 8, 6, 5, 3, 8  # d_model, source, target, batch; another id for padding
_ALMOST = 1 - 1e-9  # a rate of dropout that drops everything, and is safe where somebody divides by 1 - rate
_SIZES = {
    "src_vocab": 9, "tgt_vocab": 10, "d_model": _D, "n_heads": 2, "n_layers": 1, "d_ff": 6, "max_len": 16,
}  # fmt: skip


def _ids(seed: int, lengths: tuple[int, ...], longest: int, known: list[int], pad: int = 0) -> Tensor:
    """Ids padded on the right in which every one of `known` occurs: an id that does not cannot be told from others."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.tensor(known)
    drawn = torch.cat([ids, ids[torch.randint(len(ids), (sum(lengths) - len(ids),), generator=g)]])
    drawn = drawn[torch.randperm(len(drawn), generator=g)]
    rows = torch.full((len(lengths), longest), pad)
    for row, part in zip(rows, drawn.split(list(lengths)), strict=True):
        row[: len(part)] = part
    return rows


def _tokens(seed: int, pad: int = 0) -> tuple[Tensor, Tensor]:
    src = _ids(seed, (6, 4, 5), _S, [1, 2, 3, 4, 5, 6, 7], pad)
    return src, _ids(seed + 1, (3, 5, 4), _T, [1, 2, 3, 4, 5, 6, 7, 9], pad)


def _probes(seed: int) -> list[Probe]:
    src, tgt = _tokens(seed)
    real = (tgt != 0)[..., None]
    memory = normal(seed, _B, _S, _D)
    return [Probe((src, tgt), where=real), Probe((tgt, memory, src), method="decode", where=real)]


def _shape(c: Context) -> None:
    src, tgt = _tokens(c.seed)
    for s, t in ((src, tgt), (src[:, :1], tgt[:, :1])):
        got = one_tensor(c.build().call(s, t))
        c.expect(
            got, torch.zeros(_B, t.shape[1], 10), "the result", axes="batch target vocabulary", atol=math.inf
        )


def _model_registered(c: Context) -> None:
    registered(c, "Two embeddings, an encoder layer, a decoder layer and an output layer")
    two = c.build(n_layers=2)
    if two.size() == c.build().size():
        raise Wrong(
            "With n_layers=2 the model has as many parameters as with 1.", "n_layers_ignored_or_layers_shared"
        )
    registered(
        c, "Two embeddings, two layers in the encoder, two in the decoder and an output layer", n_layers=2
    )


def _post(c: Context) -> None:
    c.twin()


def _pre(c: Context) -> None:
    c.twin(norm_first=True)


def _parts(c: Context) -> None:
    for norm_first in (False, True):
        module, (src, tgt) = c.build(norm_first=norm_first).double(), _tokens(c.seed)
        real = tgt != 0
        memory = module.call(src, method="encode")
        if isinstance(memory, Tensor) and memory.shape != (_B, _S, _D):
            raise Wrong(
                f"encode(src) should give (B, S, d_model) = {(_B, _S, _D)}; yours gives {tuple(memory.shape)}."
            )
        got = module.call(tgt, memory, src, method="decode")
        whole = module.call(src, tgt)
        c.expect(
            got[real],
            whole[real],
            "decode(tgt, encode(src), src)",
            mistake="forward_is_not_encode_then_decode",
        )
        module.call(src.flip(0), method="encode")
        if not torch.allclose(module.call(tgt, memory, src, method="decode")[real], got[real]):
            raise Wrong(
                "decode(tgt, memory, src) gives other logits after encode was called for another source. Something is kept from "
                "encode; the mask of the memory belongs to decode's own argument src.",
                "decode_uses_what_encode_kept",
            )
        other = module.call(tgt, memory + normal(c.seed, _B, _S, _D), src, method="decode")
        if torch.allclose(other[real], got[real]):
            raise Wrong("decode does not depend on its argument memory.", "decode_ignores_memory")


def _future(c: Context) -> None:
    module, (src, tgt) = c.build().double(), _tokens(c.seed)
    other = tgt.clone()
    other[:, 2:] = other[:, 2:] % 7 + 1
    before, after = module.call(src, tgt)[:, :2], module.call(src, other)[:, :2]
    if not torch.allclose(before, after, atol=1e-9):
        raise Wrong(
            "The logits of positions 0 and 1 change when later target tokens do: the decoder sees the future."
        )


def _padding(c: Context) -> None:
    """More padding changes nothing, and each sample is treated alone."""
    module, (src, tgt) = c.build().double(), _tokens(c.seed)
    whole, real = module.call(src, tgt), tgt != 0
    more = module.call(F.pad(src, (0, 3)), F.pad(tgt, (0, 2)))
    if not torch.allclose(more[:, :_T][real], whole[real], atol=1e-9):
        raise Wrong("More padding changes the logits of real tokens.")
    for i, (s, t) in enumerate(((6, 3), (4, 5), (5, 4))):
        alone = module.call(src[i : i + 1, :s], tgt[i : i + 1, :t])
        if not torch.allclose(alone[0], whole[i, :t], atol=1e-9):
            raise Wrong(f"Sample {i} alone, without padding, has other logits than inside the batch.")


def _pad_id(c: Context) -> None:
    c.twin()
    ignored = Wrong("With pad_id=8 the logits of real tokens are wrong: some mask or embedding takes padding to be another id.", "pad_id_ignored")  # fmt: skip
    try:
        ours, theirs = c.twin(pad_id=_PAD)
    except Wrong:  # with pad_id=0 the weights could be paired
        raise ignored from None
    src, tgt = _tokens(c.seed, _PAD)
    real = tgt != _PAD
    got, want = ours.call(src, tgt), theirs(src, tgt)
    if not torch.allclose(got[real], want[real], rtol=1e-4, atol=1e-5):
        raise ignored
    same_parameter_gradients(c, ours, theirs, _probes(c.seed), "With pad_id=8 the model")


def _one_tied(c: Context) -> None:
    registered(
        c,
        "Two embeddings, of which the output layer shares one, and no bias in the output layer",
        tie_embeddings=True,
    )
    c.twin(tie_embeddings=True)


def _all_tied(c: Context) -> None:
    everything = {"tie_embeddings": "all", "src_vocab": 10}
    registered(c, "One matrix for both embeddings and the output layer, which has no bias", **everything)
    c.twin(**everything)


def _tie_error(c: Context) -> None:
    if not raises_value_error(lambda: c.subject.build(**{**_SIZES, "tie_embeddings": "all"})):
        raise Wrong(
            'tie_embeddings="all" with vocabularies of 9 and 10 should be a ValueError.', "all_without_error"
        )


def _gradients(c: Context) -> None:
    for setting in ({}, {"norm_first": True}):
        ours, theirs = c.twin(**setting)
        same_parameter_gradients(c, ours, theirs, _probes(c.seed)[:1], "The model")


def _dropout(c: Context) -> None:
    src, tgt = _tokens(c.seed)
    for norm_first in (False, True):
        same_every_time(c, src, tgt, norm_first=norm_first)
    random_in_training(c, src, tgt)


def _dropped(c: Context) -> None:
    """With a rate of almost 1 embeddings and sublayers are gone: in pre-norm the last norm's shift alone is left."""
    src, tgt = _tokens(c.seed)
    module = c.build(dropout=_ALMOST, norm_first=True).double()
    module.write(c.randn(module.size(), dtype=torch.float64, scale=0.5))
    module.train(True)
    cases = (
        ("encoder", "memory", src != 0, Probe((src,), method="encode", where=(src != 0)[..., None]), _D),
        ("decoder", "logits", tgt != 0, Probe((src, tgt), where=(tgt != 0)[..., None]), _D + _D * 10 + 10),
    )
    for stack, what, real, probe, few in cases:
        (value,), gradient = module.respond([probe], c.seed)
        rows = value[real]
        if not torch.allclose(rows, rows[:1].expand_as(rows)):
            raise Wrong(
                f"In training, with a dropout rate of almost 1, the tokens still show in the {what}: the sum of embedding "
                f"and position is not dropped before the {stack}.",
                "no_dropout_on_positions",
            )
        if int((gradient != 0).sum()) > few and bool(gradient.isfinite().all()):
            raise Wrong(
                f"In training, with a dropout rate of almost 1, something of the {stack}'s sublayers is left in the {what}: "
                f"the rate does not reach all of the {stack}.",
                f"no_dropout_in_{stack}",
            )


def _default(c: Context) -> None:
    defaults(
        c, d_model=512, n_heads=8, n_layers=6, d_ff=2048, dropout=0.1, norm_first=False, tie_embeddings=False,
        max_len=5000, pad_id=0,
    )  # fmt: skip


def _long(c: Context) -> None:
    src = c.randint(1, 8, 1, 601)
    got = c.build(max_len=601).call(src, src[:, :3])
    if not bool(got.isfinite().all()):
        raise Wrong("With max_len=601 and a source of 601 tokens the logits are not finite.")


def _kept(c: Context) -> None:
    args = _tokens(c.seed)
    for i, (a, b) in enumerate(zip(args, c.build().observe(*args)[1], strict=True)):
        if not torch.equal(a, b):
            raise Wrong(f"Your code changes its argument {i} in place; work on a copy.", "changes_its_input")


# -- counting ----------------------------------------------------------------------------------------------------------


def _models(seed: int) -> Iterator[nn.Module]:
    torch.manual_seed(seed)
    plain = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2, bias=False), nn.Embedding(7, 3))
    yield plain
    tied = nn.ModuleDict({"embedding": nn.Embedding(7, 3), "output": nn.Linear(3, 7, bias=False)})
    tied["output"].weight = tied["embedding"].weight
    yield tied
    layer = nn.Linear(4, 4)
    yield nn.ModuleList([layer, nn.ReLU(), layer, nn.Linear(4, 4)])
    with_buffer = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.LayerNorm(6), nn.LayerNorm(6))
    yield with_buffer
    raw = nn.Module()
    raw.scale, raw.table = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(2, 3, 5))
    yield nn.Sequential(raw, nn.Sequential(nn.Sequential(nn.Linear(3, 2))))


COUNT = (
    Mistake("shared_counted_twice", "shared", "A tensor that several modules share is counted as often as it occurs; it counts once."),
    Mistake("equal_values_counted_once", "shared", "Tensors with equal values (two fresh norms) are taken for one shared tensor."),
    Mistake("equal_shapes_counted_once", "shared", "Tensors of equal shape are taken for one shared tensor."),
    Mistake("buffers_counted", "what", "Buffers (running means, tables) are counted too; they are not learnt."),
    Mistake("tensors_counted", "what", "The number of tensors is counted; it should be the number of numbers in them."),
    Mistake("first_axis_counted", "what", "Only the first axis of each tensor is counted (len); it should be all of its numbers (numel)."),
    Mistake("matrices_only", "what", "Biases, gains and shifts are left out."),
    Mistake("biases_left_out", "what", "Parameters named bias are left out."),
    Mistake("top_level_only", "depth", "Parameters of nested modules are left out."),
    Mistake("bytes_counted", "what", "The bytes are counted; it should be the numbers."),
)  # fmt: skip


def _count(on: frozenset[str]) -> Callable[[nn.Module], int]:
    def count_parameters(model: nn.Module) -> int:
        once = "shared_counted_twice" not in on
        named = [
            (n, p)
            for n, p in model.named_parameters(remove_duplicate=once)
            if "top_level_only" not in on or n.count(".") < 2
        ]
        if "buffers_counted" in on:
            named += [(n, nn.Parameter(b.double())) for n, b in model.named_buffers(remove_duplicate=once)]
        seen: list[Any] = []
        total = 0
        for name, p in named:
            key = p.tolist() if "equal_values_counted_once" in on else tuple(p.shape)
            if {"equal_values_counted_once", "equal_shapes_counted_once"} & on:
                if key in seen:
                    continue
                seen.append(key)
            if ("matrices_only" in on and p.dim() < 2) or ("biases_left_out" in on and name.endswith("bias")):
                continue
            if "tensors_counted" in on:
                total += 1
            elif "first_axis_counted" in on:
                total += len(p) if p.dim() else 1
            else:
                total += p.numel() * (p.element_size() if "bytes_counted" in on else 1)
        return total

    return count_parameters


def _counts(numbers: tuple[int, ...], what: str) -> Callable[[Context], None]:
    def test(c: Context) -> None:
        for i, model in enumerate(_models(c.seed)):
            if i in numbers:
                got, want = c.subject.raw(model), solutions.count_parameters(model)
                c.expect(got, want, f"the count for {what}")
                if not all(p.requires_grad for p in model.parameters()):
                    raise Wrong("After your count parameters no longer require a gradient; the model should stay as it is.", "freezes_the_model")  # fmt: skip

    return test


def _count_model(c: Context) -> None:
    model = solutions.Transformer(9, 9, 8, 2, 2, 6, tie_embeddings="all", max_len=5)
    c.expect(
        c.subject.raw(model),
        solutions.count_parameters(model),
        "the count for a Transformer with everything tied",
    )


_exercise = partial(Exercise, notebook="10_transformer")
_NOT_OF_A_MODEL = frozenset(  # with source and target of different lengths it cannot run, with one layer it does not show
    "memory_ignored_under_memory_mask memory_as_query values_from_decoder keys_from_decoder residual_from_memory "
    "memory_mask_ignored masks_exchanged tgt_mask_on_cross_attention memory_mask_on_self_attention "
    "both_masks_on_cross_attention causal_without_mask final_norm_after_each_layer".split()
)
_BIASES = (
    (),
    *attention.usual_optional("encoder.*self_attention", "decoder.*self_attention", "*cross_attention"),
)

EXERCISES = (
    _exercise(
        name="initialise",
        points=2,
        difficulty=2,
        minutes=15,
        hints=(
            "How do you tell an embedding from the matrix of a linear layer, and the gain of a norm from a bias?",
            "Go through model.modules() and ask for the kind of module; an embedding's matrix that the output layer shares must not be drawn again for the output layer.",
            "nn.init.normal_(weight, std=d_model ** -0.5) and a zero row for padding; nn.init.xavier_uniform_ for other matrices; nn.init.zeros_ for biases; remember in a set what is done.",
        ),
        reference=solutions.initialise,
        tests=(
            Test("in_place", "changes the parameters in place", _initialise_test("in_place")),
            Test("matrices", "draws matrices Xavier-uniform", _initialise_test("matrices")),
            Test("biases", "sets biases to zero", _initialise_test("biases")),
            Test("norms", "leaves norms at one and zero", _initialise_test("norms")),
            Test("embeddings", "draws embeddings from N(0, 1/d_model)", _initialise_test("embeddings")),
            Test("pad_row", "sets the embedding of padding to zero, whichever row it is", _pad_row),
            Test("without_padding", "keeps every row of an embedding without padding", _without_padding),
            Test("tied", "starts a shared matrix once, as an embedding", _initialise_test("tied")),
        ),
    ),
    _exercise(
        name="Transformer",
        points=6,
        difficulty=3,
        minutes=25,
        hints=(
            "Which masks do encoder, decoder and cross-attention need, and from which ids is each made?",
            "encode: embed the source, add positions, run the encoder with padding_mask(src). decode: the same for the target with padding and causal mask joined by &, then the output layer; the memory's mask comes from src.",
            "tgt_mask = padding_mask(tgt, self.pad_id) & causal_mask(tgt.size(1)); tying: self.output.weight = self.tgt_embedding.weight",
        ),
        reference=solutions.Transformer,
        tests=(
            Test("shape", "gives logits (B, T, tgt_vocab)", _shape),
            Test("default", "has the paper's sizes unless told otherwise", _default),
            Test("registered", "has embeddings, layers and output that PyTorch sees", _model_registered),
            Test("parts", "forward is encode, then decode", _parts, crash="encode_then_decode_fails"),
            Test("future", "the decoder never sees the future", _future),
            Test("padding", "padding changes no real position", _padding),
            Test("post_norm", "post-norm: equals the model of the paper", _post),
            Test("pre_norm", "pre-norm: equals it with the norms first and at the end", _pre),
            Test("pad_id", "takes the padding id it is given", _pad_id, crash="pad_id_fixed"),
            Test("tied", "shares target embedding and output layer when told to", _one_tied, crash="tying_fails"),
            Test("all_tied", 'shares both embeddings and the output layer for "all"', _all_tied, crash="tying_all_fails"),
            Test("tie_error", "refuses to tie vocabularies of different size", _tie_error),
            Test("gradients", "all parameters get the right gradients", _gradients),
            Test("dropout", "drops in training, nothing in evaluation", _dropout),
            Test("dropped", "drops the embedded input and the sublayers of both stacks", _dropped),
            Test("long", "takes sequences as long as max_len", _long, crash="max_len_ignored"),
            Test("inputs_kept", "leaves its inputs as they were", _kept),
        ),
        mistakes=(
            *MODEL, *(m for m in (*decoders.LAYER, *decoders.MASKS) if m.id not in _NOT_OF_A_MODEL),
            *(m for m in STACK if m.axis in ("final", "flag") or m.id == "one_layer_too_many" if m.id not in _NOT_OF_A_MODEL),
            *forms(), *FLAG, *ATTENTION, *FEED_FORWARD_INSIDE, *NORM_INSIDE,
        ),
        variant=transformer,
        probes=_probes,
        sizes=_SIZES,
        settings=({}, {"norm_first": True}, {"tie_embeddings": True}, {"tie_embeddings": "all", "src_vocab": 10}),
        eps=1e-5,
        also_right=(*(frozenset([eps]) for eps in EPS), frozenset(["embedding_not_scaled", "logits_scaled"])),
        optional=tuple((*some, *more) for some in _BIASES for more in ((), ("output.bias",)) if some or more),
        precision=1e-6,
        not_allowed=("nn.Transformer",),
    ),
    _exercise(
        name="count_parameters",
        points=1,
        difficulty=1,
        minutes=5,
        hints=(
            "What does model.parameters() do with a tensor that two modules share?",
            "It lists each parameter once; numel() is the number of numbers in one.",
            "return sum(p.numel() for p in model.parameters())",
        ),
        reference=solutions.count_parameters,
        tests=(
            Test("plain", "counts every number of every parameter", _counts((0, 4), "a model that shares nothing")),
            Test("tied", "counts a shared matrix once", _counts((1,), "an embedding tied to an output layer")),
            Test("shared_module", "counts a module that occurs twice once", _counts((2,), "a list that holds one layer twice")),
            Test("buffers", "counts no buffers", _counts((3,), "a model with buffers and two norms")),
            Test("model", "counts a whole Transformer", _count_model),
        ),
        mistakes=COUNT,
        variant=_count,
        probes=lambda seed: [Probe((model,)) for model in _models(seed)],
    ),
)  # fmt: skip
