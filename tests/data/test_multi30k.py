"""English → German. What needs the sentences or the package `tokenizers` is skipped without them."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from txcourse import data
from txcourse.data.translation import MULTI30K, cut, join, learn_encoding
from txcourse.errors import UserError

ROOT = Path(__file__).parent.parent.parent
SENTENCES = ["A dog runs.", "Two dogs run, and a man looks.", "Ein Hund läuft.", "Zwei Hunde laufen."] * 3


@pytest.fixture(scope="module")
def translation():
    pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    try:
        MULTI30K.read()
    except UserError as missing:
        pytest.skip(str(missing))
    return data.load("translation")


def test_pieces_join_to_the_sentence_again():
    pytest.importorskip("tokenizers")
    encoding = learn_encoding(SENTENCES)
    assert encoding == learn_encoding(SENTENCES)
    pieces = cut(encoding, SENTENCES)
    assert [join(sentence) for sentence in pieces] == SENTENCES
    assert not any("." in piece and piece != "." for sentence in pieces for piece in sentence)
    assert "<unk>" in cut(encoding, ["☃"])[0]
    assert join(["▁Ein", "▁Hun", "d", "."]) == "Ein Hund."


def test_the_sizes_of_multi30k(translation):
    assert [len(split) for split in (translation.train, translation.dev, translation.test)] == [
        29000,
        1014,
        1000,
    ]
    assert {name: len(english) for name, (english, _) in translation.texts.items()} == {
        "test_2016_flickr": 1000,
        "test_2017_flickr": 1000,
        "test_2017_mscoco": 461,
    }
    assert all(len(english) == len(german) for english, german in translation.texts.values())
    assert translation.source is translation.target
    assert 3900 < len(translation.source) <= 4004
    assert translation.max_len == max(len(side) for pair in translation.train for side in pair)


def test_no_test_sentence_is_trained_on(translation):
    trained = {join(src) for src, _ in translation.train}
    assert not trained & set(translation.texts["test_2016_flickr"][0])


def test_the_text_comes_back(translation):
    src, german = [join(src) for src, _ in translation.test], [join(tgt) for _, (tgt,) in translation.test]
    assert (src, german) == translation.texts["test_2016_flickr"]


def test_without_the_data_the_way_to_get_them_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("TXCOURSE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"Multi30k .*not for commerce.*--download"):
        MULTI30K.read()


def test_no_sentence_of_the_data_is_committed():
    try:
        content = MULTI30K.read()
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (UserError, OSError, subprocess.CalledProcessError) as missing:
        pytest.skip(str(missing))
    sentences = {
        tuple(words(line))
        for packed in content.values()
        for line in gzip.decompress(packed).decode().split("\n")
    }
    starting: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for sentence in sentences:
        if len(sentence) >= 5:
            starting.setdefault(sentence[:4], []).append(sentence)
    found = []
    for file in (
        ROOT / name for name in done.stdout.split("\0") if name.endswith((".py", ".md", ".ipynb", ".json"))
    ):
        if file.is_file():
            text = words(re.sub(r'"image/png": "[^"]*"', "", file.read_text(encoding="utf-8")))
            found += [
                f"{file.relative_to(ROOT)}: {' '.join(sentence)}"
                for i in range(len(text))
                for sentence in starting.get(tuple(text[i : i + 4]), [])
                if tuple(text[i : i + len(sentence)]) == sentence
            ]
    assert not found


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
