"""English → German: Multi30k, 29,000 captions of pictures with their translations (Elliott et al. 2016).

The terms are research and education, non-commercial: the course does not carry the sentences, it downloads them when
asked. Both languages are cut into pieces by one byte-pair encoding, learnt on the training sentences.
"""

import gzip
from dataclasses import dataclass
from functools import cache
from typing import Any

from txcourse.data.dataset import Dataset
from txcourse.data.files import FileSet
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary

MULTI30K = FileSet(
    "multi30k",
    "Multi30k (1.4 MB; for research and education, not for commerce)",
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw",
    {
        "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
        "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
        "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
        "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
        "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    },
)
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
PIECES = 4000  # of the byte-pair encoding


@dataclass(frozen=True)
class TranslationDataset(Dataset):
    """Sentences as pieces, like every task; besides, the test sets as text, and what cuts new text into pieces."""

    texts: dict[str, tuple[list[str], list[str]]]  # name of a test set: English sentences, German sentences
    encoding: str  # the byte-pair encoding, for `cut`


@cache
def load_translation(download: bool = False) -> TranslationDataset:
    """29,000 sentence pairs to train on, 1,014 to develop with; `test` is the test set of 2016 (1,000).

    Raises UserError when the files or the package `tokenizers` are missing.
    """
    sentences = {
        name.removesuffix(".gz"): [
            line.strip() for line in gzip.decompress(content).decode().split("\n")[:-1]
        ]
        for name, content in MULTI30K.read(download).items()
    }
    encoding = learn_encoding(sentences["train.en"] + sentences["train.de"])
    pieces = {name: cut(encoding, lines) for name, lines in sentences.items()}
    joint = Vocabulary(pieces["train.en"] + pieces["train.de"])
    dev, test = (
        [(src, [tgt]) for src, tgt in zip(pieces[f"{name}.en"], pieces[f"{name}.de"], strict=True)]
        for name in ("val", TESTS[0])
    )
    return TranslationDataset(
        name="translation",
        source=joint,
        target=joint,
        train=list(zip(pieces["train.en"], pieces["train.de"], strict=True)),
        dev=dev,
        test=test,
        max_len=max(len(line) for lines in pieces.values() for line in lines),
        texts={name: (sentences[f"{name}.en"], sentences[f"{name}.de"]) for name in TESTS},
        encoding=encoding,
    )


def learn_encoding(sentences: list[str]) -> str:
    """A byte-pair encoding (Sennrich et al. 2016) of 4,000 pieces, as the JSON text of the package `tokenizers`.

    A piece belongs to one word, which begins with ▁, or is punctuation; case and all other signs stay as they are.
    """
    tokenizers = _tokenizers()
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre.Sequence([pre.Metaspace(), pre.Punctuation()])
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=PIECES, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    text: str = tokenizer.to_str()
    return text


def cut(encoding: str, sentences: list[str]) -> list[list[str]]:
    """The pieces of each sentence. Raises UserError when the package `tokenizers` is missing."""
    tokenizer = _tokenizers().Tokenizer.from_str(encoding)
    return [encoded.tokens for encoded in tokenizer.encode_batch(sentences)]


def join(pieces: list[str]) -> str:
    """The sentence of these pieces: ["▁Ein", "▁Hun", "d", "."] → "Ein Hund."."""
    return "".join(pieces).replace("▁", " ").strip()


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise UserError("Translation needs two packages more: pip install tokenizers sacremoses") from None
    return tokenizers
