"""`txcourse train` and `txcourse pronounce`, called as functions."""

import io
import json
import subprocess
import sys

import pytest

from txcourse.errors import UserError
from txcourse.training import commands, list_checkpoints, load_model
from txcourse.training.commands import pronounce_command, train_command
from txcourse.training.config import Config

CONFIG = """
task = "copy"
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 32
steps = 12
batch_size = 8
evaluate_every = 6
"""


@pytest.fixture
def toml(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(CONFIG)
    return str(file)


def one_line(function, *arguments, **options) -> str:
    with pytest.raises(UserError) as error:
        function(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_train_prints_the_test_scores_and_their_conditions(toml, tmp_path, capsys):
    train_command(toml, out=tmp_path / "run", device="cpu", seed=3)
    printed = capsys.readouterr().out
    assert "copy on cpu" in printed
    assert "Test split, 500 sequences, greedy decoding" in printed
    assert "sequence error rate" in printed
    assert "with beam 5: " in printed
    assert "after 12 steps of 8 (0.0 epochs), seed 3" in printed
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_json_is_one_document_on_standard_output(toml, tmp_path, capsys):
    train_command(toml, out=tmp_path / "run", device="cpu", steps=5, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["config"]["steps"] == 5
    assert 0 < result["test"]["sequence_error_rate"] <= 1
    assert [row["step"] for row in result["measurements"]] == [5]


def test_resume_keeps_the_budget_and_a_finished_run_shows_its_scores(toml, tmp_path, capsys, monkeypatch):
    def stop(*arguments, **options):
        real(*arguments, **options)
        raise commands.Stopped("Stopped at step 4")

    real = commands.train
    monkeypatch.setattr(commands, "train", stop)
    with pytest.raises(SystemExit) as exit:
        train_command(toml, out=tmp_path / "run", device="cpu", steps=8)
    assert exit.value.code == 130
    assert "Stopped at step 4" in capsys.readouterr().err
    monkeypatch.undo()

    train_command(toml, out=tmp_path / "run", device="cpu", resume=True)
    first = capsys.readouterr().out
    assert "after 8 steps" in first
    train_command(toml, out=tmp_path / "run", device="cpu", resume=True)
    again = capsys.readouterr().out
    assert "has finished" in again
    assert first.splitlines()[-4:] == again.splitlines()[-4:]
    assert "already holds a run" in one_line(train_command, toml, out=tmp_path / "run", device="cpu")


def test_two_processes_started_by_torchrun_make_one_run(toml, tmp_path):
    arguments = ["train", toml, "--out", tmp_path / "run", "--device", "cpu", "--json"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*launcher, "-m", "txcourse.cli", *arguments], capture_output=True, text=True, timeout=300, check=True
    )
    result = json.loads(run.stdout)  # one document, from the first process
    assert result["processes"] == 2
    assert load_model(tmp_path / "run").info["test"] == result["test"]


def test_resume_refuses_other_settings(toml, tmp_path):
    train_command(toml, out=tmp_path / "run", device="cpu")
    (tmp_path / "run" / "model.safetensors").unlink()
    resume = {"out": tmp_path / "run", "device": "cpu", "resume": True}
    assert "steps = 12, not 13" in one_line(train_command, toml, steps=13, **resume)
    assert "--minutes cannot be changed" in one_line(train_command, toml, minutes=1, **resume)
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.replace("d_ff = 32", "d_ff = 64"))
    assert "d_ff = 32, not 64" in one_line(train_command, str(other), **resume)
    assert len(list_checkpoints(tmp_path / "run")) == 2


def test_what_cannot_be_done_is_one_line(toml, tmp_path):
    assert "not both" in one_line(train_command, toml, steps=1, minutes=1)
    assert "Unknown device" in one_line(train_command, toml, device="tpu")
    assert "No configuration 'nothing'" in one_line(train_command, "nothing", device="cpu")
    assert "no usable checkpoint" in one_line(
        train_command, toml, out=tmp_path / "no", device="cpu", resume=True
    )
    assert "steps must be at least 1" in one_line(train_command, toml, device="cpu", steps=0)
    file = tmp_path / "file"
    file.write_text("")
    assert "Cannot" in one_line(train_command, toml, out=file / "run", device="cpu")


def test_minutes_become_steps_by_the_time_of_the_first_ones(monkeypatch):
    clock = iter([0, 15, 100, 145])  # 5 steps and a measurement in 15 s, 35 steps and a measurement in 45 s
    monkeypatch.setattr(commands.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(commands, "train", lambda *arguments, **options: None)
    # A step takes 1 s, a measurement 10 s, the test 50 s: 3,550 s for steps of 1.1 s with their measurements.
    config = Config(evaluate_every=100)
    assert commands.steps_within(60, config, None, "cpu") == 3227
    clock = iter([0, 15, 100, 145])
    assert "too short here" in one_line(commands.steps_within, 1, config, None, "cpu")
    assert "above 0" in one_line(commands.steps_within, 0, config, None, "cpu")


def test_pronounce_words(capsys):
    pronounce_command(["transformer", "Cat"])
    assert capsys.readouterr().out == "transformer  T R AE N S F AO R M ER\ncat          K AE T\n"
    pronounce_command(["cat"], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"word": "cat", "phonemes": ["K", "AE", "T"]}]
    pronounce_command(["cat"], beam_size=5)
    assert capsys.readouterr().out == "cat  K AE T\n"
    assert "--beam must be at least 1" in one_line(pronounce_command, ["cat"], beam_size=0)


def test_pronounce_reads_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("cat\ndog\n"))
    pronounce_command([])
    assert capsys.readouterr().out.split("\n")[:2] == ["cat  K AE T", "dog  D AO G"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "Give at least one word" in one_line(pronounce_command, [])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "empty word"),
        ("  ", "empty word"),
        ("naïve", "'naïve' contains 'ï'; the model knows"),
        ("two words", "contains ' '"),
        ("a" * 61, "has 61 letters"),
    ],
)
def test_words_that_cannot_be_read(word, message):
    assert message in one_line(pronounce_command, [word])


def test_pronounce_with_a_model_that_is_not_there_or_of_another_task(toml, tmp_path):
    assert "no trained model" in one_line(pronounce_command, ["cat"], model=tmp_path / "none")
    train_command(toml, out=tmp_path / "run", device="cpu")
    assert "trained on 'copy'" in one_line(pronounce_command, ["cat"], model=tmp_path / "run")


def test_the_attention_picture(tmp_path, capsys):
    pronounce_command(["cat"], attention=tmp_path / "cat.png")
    assert (tmp_path / "cat.png").read_bytes().startswith(b"\x89PNG")
    assert "draws one word, not 2" in one_line(pronounce_command, ["a", "b"], attention=tmp_path / "x.png")
    for bad in (tmp_path / "no" / "cat.png", tmp_path / "cat.xyz"):
        assert "Cannot write the picture" in one_line(pronounce_command, ["cat"], attention=bad)
