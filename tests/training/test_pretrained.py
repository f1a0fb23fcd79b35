"""The shipped model is what its description says."""

import json

import torch

from txcourse import data, pretrained
from txcourse.solutions.transformer import Transformer, count_parameters
from txcourse.training import evaluate
from txcourse.training.checkpoints import load_model
from txcourse.training.commands import cross_attention

DESCRIBED = json.loads((pretrained.FOLDER / "model.json").read_text())


def test_its_scores_are_reproduced_from_half_precision():
    model, source, target = pretrained.load()
    dataset = data.load("pronunciation")
    scores = evaluate(model, dataset.test, source, target, dataset.max_len + 3)
    assert abs(scores.sequence_error_rate - DESCRIBED["test"]["sequence_error_rate"]) < 2e-3
    assert abs(scores.token_error_rate - DESCRIBED["test"]["token_error_rate"]) < 5e-4
    assert scores.sequence_error_rate < 0.28
    assert scores.token_error_rate < 0.07


def test_its_size_and_vocabularies():
    model, source, target = pretrained.load()
    dataset = data.load("pronunciation")
    assert (source.tokens, target.tokens) == (dataset.source.tokens, dataset.target.tokens)
    assert count_parameters(model) == DESCRIBED["parameters"] < 600_000
    assert (pretrained.FOLDER / "model.safetensors").stat().st_size < 1_200_000
    assert isinstance(model, Transformer)
    assert not model.training
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_its_attention_follows_the_letters():
    trained = load_model(pretrained.FOLDER)
    phonemes = ["T", "R", "AE", "N", "S", "F", "AO", "R", "M", "ER"]
    weights = cross_attention(
        trained, list("transformer"), phonemes
    )  # (phonemes and the end, bos + letters + eos)
    assert weights.shape == (11, 13)
    assert abs(weights.sum(1) - 1).max() < 1e-5
    looked_at = weights.argmax(1)
    assert [looked_at[phonemes.index(p)] for p in "TNFM"] == [1, 4, 6, 9]  # t, n, f and m, bos being 0
