"""Translating with a trained model, and BLEU in the two ways in which it is published."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from txcourse.data import TranslationDataset
from txcourse.data.translation import cut, join
from txcourse.errors import UserError
from txcourse.fast import FastTransformer
from txcourse.solutions.measuring_quality import corpus_bleu
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.training.checkpoints import load_model
from txcourse.training.evaluation import decode_all

LONGEST = 250  # pieces of a sentence; the model has positions for 256


def quick_bleu(answers: list[list[str]], references: list[list[str]]) -> float:
    """BLEU on words and punctuation, without any package: to compare the measurements of one run, not to publish."""
    words = [[re.findall(r"\w+|[^\w\s]", join(pieces)) for pieces in side] for side in (answers, references)]
    return corpus_bleu(*words)


def translate(
    model: nn.Module | Sequence[FastTransformer],
    encoding: str,
    vocabulary: Vocabulary,
    sentences: list[str],
    beam_size: int,
    length_penalty: float = 1.0,
) -> list[str]:
    """German for English sentences of at most LONGEST pieces; `model` as in decode_all."""
    pieces = cut(encoding, sentences)
    limit = min(LONGEST, 10 + 3 * max(map(len, pieces), default=0) // 2)
    answers = decode_all(model, pieces, vocabulary, vocabulary, limit, beam_size, length_penalty)
    return [join(answer) for answer in answers]


def bleu_scores(
    model: nn.Module | Sequence[FastTransformer],
    dataset: TranslationDataset,
    beam_size: int,
    length_penalty: float = 1.0,
) -> dict[str, Any]:
    """`score_texts` of the model's translations of all test sets, with "decoding" besides."""
    answers = {
        name: translate(model, dataset.encoding, dataset.target, english, beam_size, length_penalty)
        for name, (english, _) in dataset.texts.items()
    }
    references = {name: german for name, (_, german) in dataset.texts.items()}
    decoding = "greedy" if beam_size == 1 else f"beam {beam_size}"
    return {**score_texts(answers, references), "decoding": decoding}


def score_texts(answers: dict[str, list[str]], references: dict[str, list[str]]) -> dict[str, Any]:
    """For each test set {"examples", "cased", "published"}; besides "signatures" of both metrics.

    "cased": the text as it is, cut into words by sacreBLEU itself. "published": the way of the papers on Multi30k,
    lower-cased, punctuation normalised and cut into words by Moses on both sides, which is usually the larger number.
    """
    sacrebleu, clean = _tools()
    cased, published = sacrebleu.BLEU(), sacrebleu.BLEU(tokenize="none", force=True)
    scores: dict[str, Any] = {}
    for name, german in references.items():
        scores[name] = {
            "examples": len(german),
            "cased": cased.corpus_score(answers[name], [german]).score,
            "published": published.corpus_score(clean(answers[name]), [clean(german)]).score,
        }
    scores["signatures"] = {
        "cased": str(cased.get_signature()),
        "published": f"lower-cased, normalised, Moses|{published.get_signature()}",
    }
    return scores


def _tools() -> Any:
    """(sacreBLEU's metrics, sentences → sentences as the published metric wants them)."""
    import sacrebleu.metrics

    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise UserError("The published metric needs one package more: pip install sacremoses") from None
    normalizer, tokenizer = MosesPunctNormalizer("de"), MosesTokenizer("de")

    def clean(sentences: list[str]) -> list[str]:
        return [tokenizer.tokenize(normalizer.normalize(text).lower(), return_str=True) for text in sentences]

    return sacrebleu.metrics, clean


def lines_of(scores: dict[str, Any]) -> list[str]:
    """The test scores as lines to print."""
    names = [name for name in scores if name.startswith("test_")]
    return [
        f"BLEU, {scores['decoding']}:       cased, detokenised   published way",
        *(
            f"  {name:<17} {scores[name]['examples']:>5,}  {scores[name]['cased']:>10.2f} {scores[name]['published']:>16.2f}"
            for name in names
        ),
        *(f"  {way}: {signature}" for way, signature in scores["signatures"].items()),
    ]


def translate_command(
    sentences: list[str],
    *,
    model: Path | None = None,
    file: Path | None = None,
    beam_size: int = 5,
    as_json: bool = False,
) -> None:
    """Print the German of English sentences: the arguments, the lines of a file, or those of standard input.

    `model` is the folder of a run, runs/translation without. An empty line stays an empty line.
    """
    if beam_size < 1:
        raise UserError(f"--beam must be at least 1, not {beam_size}.")
    if sentences and file is not None:
        raise UserError("Give sentences or --file, not both.")
    if not sentences:
        sentences = read_lines(file)
    if not any(sentence.strip() for sentence in sentences):
        raise UserError('Give at least one sentence, for example: txcourse translate "A dog runs."')
    folder = model if model is not None else Path("runs") / "translation"
    trained = load_model(folder)
    if trained.config.task != "translation":
        raise UserError(f"The model in {folder} was trained on {trained.config.task!r}, not on translation.")

    encoding = trained.info["encoding"]
    full = [" ".join(sentence.split()) for sentence in sentences]
    for sentence, pieces in zip(full, cut(encoding, full), strict=True):
        if len(pieces) > LONGEST:
            raise UserError(
                f"{sentence[:30]!r}... has {len(pieces)} pieces; the longest sentence possible has {LONGEST}."
            )
    asked = [sentence for sentence in full if sentence]
    answers = dict(
        zip(asked, translate(trained.model, encoding, trained.target, asked, beam_size), strict=True)
    )
    if as_json:
        rows = [{"english": sentence, "german": answers.get(sentence, "")} for sentence in full]
        print(json.dumps(rows, ensure_ascii=False))
    else:
        print("\n".join(answers.get(sentence, "") for sentence in full))


def read_lines(file: Path | None) -> list[str]:
    """The lines of a file, or of standard input when something is piped into it. Raises UserError."""
    try:
        if file is not None:
            return file.read_text(encoding="utf-8").splitlines()
        return [] if sys.stdin.isatty() else sys.stdin.read().splitlines()
    except OSError as error:
        raise UserError(f"Cannot read {file}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{file or 'Standard input'} is not text in UTF-8.") from None
