"""BLEU in two ways and `txcourse translate`, on a toy corpus: no sentence of Multi30k is needed."""

import io
import json
import sys

import pytest
import torch

from txcourse import data
from txcourse.data import TranslationDataset
from txcourse.data.translation import cut, learn_encoding
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary
from txcourse.training import Config, TrainedModel, load_model, save_model, train
from txcourse.training.loop import measure
from txcourse.training.scoring import score_command
from txcourse.training.translation import (
    bleu_scores,
    lines_of,
    quick_bleu,
    translate,
    translate_command,
)

pytest.importorskip("tokenizers")
pytest.importorskip("sacremoses")

NOUNS = {"dog": "Hund", "man": "Mann", "boy": "Junge", "bird": "Vogel"}
VERBS = {"runs": "rennt", "sleeps": "schläft", "sings": "singt", "eats": "isst"}
ENGLISH = [f"A {a} {v}, and the {b} {w}." for a in NOUNS for b in NOUNS for v in VERBS for w in VERBS]
GERMAN = [
    f"Ein {a} {v}, und der {b} {w}."
    for a in NOUNS.values()
    for b in NOUNS.values()
    for v in VERBS.values()
    for w in VERBS.values()
]
CONFIG = Config(
    task="translation",
    d_model=32,
    n_heads=2,
    n_layers=1,
    d_ff=64,
    tie_embeddings="all",
    steps=100,
    batch_size=32,
    peak_lr=5e-3,
    evaluate_every=20,
    average=2,
)


@pytest.fixture(scope="module")
def toy_translation():
    encoding = learn_encoding(ENGLISH + GERMAN)
    english, german = cut(encoding, ENGLISH), cut(encoding, GERMAN)
    joint = Vocabulary(english + german)
    examples = [(src, [tgt]) for src, tgt in zip(english[::17], german[::17], strict=True)]
    return TranslationDataset(
        "translation",
        joint,
        joint,
        list(zip(english, german, strict=True)),
        examples,
        examples,
        max(map(len, english + german)),
        {
            "test_2016_flickr": (ENGLISH[::17], GERMAN[::17]),
            "test_2017_mscoco": (ENGLISH[::31], GERMAN[::31]),
        },
        encoding,
    )


@pytest.fixture(scope="module")
def trained(toy_translation, tmp_path_factory):
    torch.set_num_threads(1)
    return train(CONFIG, toy_translation, tmp_path_factory.mktemp("run") / "run", progress=False)


def test_training_measures_bleu_and_keeps_the_better_weights(trained, toy_translation):
    model, history = trained
    assert 0 <= history[0]["bleu"] < history[-1]["bleu"] <= 100
    assert history[-1]["bleu"] > 90
    assert measure(model, toy_translation) == {"bleu": history[-1]["bleu"]}
    assert model.src_embedding.weight is model.output.weight


def test_the_scores_of_the_tests(trained, toy_translation):
    scores = bleu_scores(trained[0], toy_translation, beam_size=2)
    assert scores["test_2016_flickr"]["examples"] == 16 and scores["decoding"] == "beam 2"
    assert scores["test_2017_mscoco"]["cased"] > 90 and scores["test_2017_mscoco"]["published"] > 90
    assert "tok:13a" in scores["signatures"]["cased"] and "tok:none" in scores["signatures"]["published"]
    text = "\n".join(lines_of(scores))
    assert "test_2016_flickr" in text and "nrefs:1" in text and "published way" in text


def test_the_published_way_does_not_see_case_and_quotes(toy_translation, monkeypatch):
    from txcourse.training import translation

    shouted = [text.upper() for text in GERMAN[::17]]
    monkeypatch.setattr(translation, "translate", lambda *arguments: shouted)
    one = {"test_2016_flickr": toy_translation.texts["test_2016_flickr"]}
    monkeypatch.setitem(toy_translation.__dict__, "texts", one)
    scores = translation.bleu_scores(None, toy_translation, 1)["test_2016_flickr"]
    assert scores["cased"] < 10 and scores["published"] == pytest.approx(100)


def test_quick_bleu_counts_words_not_pieces():
    answer = [["▁Ein", "▁Hun", "d", "▁läuft", "▁dort", "."]]
    assert quick_bleu(answer, [["▁Ein", "▁Hund", "▁läuft", "▁dort", "."]]) == 100
    assert quick_bleu(answer, [["▁Ein", "▁Hund", "▁rennt", "▁dort", "."]]) == 0


def test_one_sentence_and_none(trained, toy_translation):
    model, _ = trained
    of = (toy_translation.encoding, toy_translation.target)
    assert translate(model, *of, [ENGLISH[3]], 3) == [GERMAN[3]]
    assert translate(model, *of, [], 1) == []


@pytest.fixture
def run(trained, toy_translation, tmp_path):
    """The folder of a finished run."""
    both = toy_translation.source, toy_translation.target
    info = {"encoding": toy_translation.encoding}
    save_model(tmp_path / "model.safetensors", TrainedModel(trained[0], *both, CONFIG, info))
    return tmp_path


# txcourse score


def test_a_translation_is_scored_in_bleu(run, toy_translation, monkeypatch, capsys):
    monkeypatch.setattr(data, "load", lambda task: toy_translation)
    score_command([run], beam_size=2, as_json=True)
    greedy, beam = json.loads(capsys.readouterr().out)
    model = load_model(run).model
    for row, size in ((greedy, 1), (beam, 2)):
        expected = bleu_scores(model, toy_translation, size)
        assert expected["test_2016_flickr"]["cased"] > 90
        assert {name: row[name] for name in expected} == expected
    score_command([run, run], beam_size=1)  # an ensemble of a model with itself
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{run} + {run}" and lines == lines_of(bleu_scores(model, toy_translation, 1))
    with pytest.raises(UserError, match="the three tests only"):
        score_command([run], split="dev")


# txcourse translate


def test_translate_arguments_a_file_and_standard_input(run, capsys, monkeypatch):
    translate_command([ENGLISH[3], f"  {ENGLISH[9]} "], model=run)
    assert capsys.readouterr().out.splitlines() == [GERMAN[3], GERMAN[9]]
    lines = f"{ENGLISH[5]}\n\n{ENGLISH[7]}\n"
    (run / "lines.txt").write_text(lines, encoding="utf-8")
    translate_command([], model=run, file=run / "lines.txt", beam_size=1)
    assert capsys.readouterr().out.split("\n") == [GERMAN[5], "", GERMAN[7], ""]
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    translate_command([], model=run, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {"english": ENGLISH[5], "german": GERMAN[5]} and rows[1]["german"] == ""


def test_what_cannot_be_translated_is_one_line(run, monkeypatch):
    def one_line(*arguments, **options) -> str:
        with pytest.raises(UserError) as error:
            translate_command(*arguments, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "has 400 pieces; the longest sentence possible has 250" in one_line(["A " * 400], model=run)
    (run / "latin.txt").write_bytes("schläft".encode("latin-1"))
    assert "is not text in UTF-8" in one_line([], model=run, file=run / "latin.txt")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n \n"))
    assert "at least one sentence" in one_line([], model=run)
    monkeypatch.chdir(run)
    assert "no trained model at" in one_line([ENGLISH[0]])
