"""BLEU of a translation, in the two ways in which it is published."""

import re
from typing import Any

from torch import nn

from txcourse.data import TranslationDataset
from txcourse.data.translation import cut, join
from txcourse.errors import UserError
from txcourse.solutions.measuring_quality import corpus_bleu
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.training.evaluation import decode_all

LONGEST = 250  # pieces of a sentence; the model has positions for 256


def quick_bleu(answers: list[list[str]], references: list[list[str]]) -> float:
    """BLEU on words and punctuation, without any package: to compare the measurements of one run, not to publish."""
    words = [[re.findall(r"\w+|[^\w\s]", join(pieces)) for pieces in side] for side in (answers, references)]
    return corpus_bleu(*words)


def translate(
    model: nn.Module, encoding: str, vocabulary: Vocabulary, sentences: list[str], beam_size: int
) -> list[str]:
    """German for English sentences of at most LONGEST pieces."""
    pieces = cut(encoding, sentences)
    limit = min(LONGEST, 10 + 3 * max(map(len, pieces), default=0) // 2)
    return [join(answer) for answer in decode_all(model, pieces, vocabulary, vocabulary, limit, beam_size)]


def bleu_scores(model: nn.Module, dataset: TranslationDataset, beam_size: int) -> dict[str, Any]:
    """For each test set {"examples", "cased", "published"}; besides "signatures" of both metrics and "decoding".

    "cased": the text as it is, cut into words by sacreBLEU itself. "published": the way of the papers on Multi30k,
    lower-cased, punctuation normalised and cut into words by Moses on both sides, which is usually the larger number.
    """
    sacrebleu, clean = _tools()
    cased, published = sacrebleu.BLEU(), sacrebleu.BLEU(tokenize="none", force=True)
    scores: dict[str, Any] = {}
    for name, (english, german) in dataset.texts.items():
        answers = translate(model, dataset.encoding, dataset.target, english, beam_size)
        scores[name] = {
            "examples": len(german),
            "cased": cased.corpus_score(answers, [german]).score,
            "published": published.corpus_score(clean(answers), [clean(german)]).score,
        }
    scores["signatures"] = {
        "cased": str(cased.get_signature()),
        "published": f"lower-cased, normalised, Moses|{published.get_signature()}",
    }
    scores["decoding"] = f"beam {beam_size}"
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
