"""The pronunciation model that comes with the course. README.md beside this file says how it was made."""

from pathlib import Path

from txcourse.fast import FastTransformer
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.training.checkpoints import load_model

FOLDER = Path(__file__).parent


def load() -> tuple[FastTransformer, Vocabulary, Vocabulary]:
    """(model, vocabulary of letters, vocabulary of phonemes), in evaluation mode, in float32 on the CPU.

    The model is a `solutions.transformer.Transformer` with faster methods beside the plain ones: `model(src, tgt)`,
    `encode` and `decode` are the plain computation, and keep the attention weights.
    """
    trained = load_model(FOLDER / "model.safetensors")
    return trained.model, trained.source, trained.target
