"""What is on the disk stays good: full disks, truncated files, other configurations."""

import errno
import json
import os

import pytest
import torch

from txcourse.errors import UserError
from txcourse.training import Config, checkpoints, list_checkpoints, load_model, train
from txcourse.training.checkpoints import (
    TrainedModel,
    build_model,
    save_model,
    vocabulary_of,
    write_atomically,
)


def no_space(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def run(toy, config, tmp_path):
    """A run of 30 steps with the checkpoints of steps 20 and 30."""
    train(config, toy, tmp_path / "run", progress=False)
    return tmp_path / "run"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(checkpoints.os, call, no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_while_saving_keeps_the_older_checkpoint(toy, config, tmp_path, monkeypatch):
    whole, _ = train(config, toy, tmp_path / "whole", progress=False)
    write = checkpoints.write_tensors

    def write_until_full(path, tensors, header):
        if "00000020" in path.name:
            monkeypatch.setattr(checkpoints.os, "fsync", no_space)
        write(path, tensors, header)

    monkeypatch.setattr(checkpoints, "write_tensors", write_until_full)
    with pytest.raises(
        UserError, match=r"Cannot save step 20 in .*: No space .*step-00000010.* is intact"
    ) as error:
        train(config, toy, tmp_path / "full", progress=False)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    assert [path.name for path in list_checkpoints(tmp_path / "full")][-1] == "step-00000010.safetensors"
    resumed, _ = train(config, toy, tmp_path / "full", resume=True, progress=False)
    assert torch.equal(whole.output.weight, resumed.output.weight)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 1000, -1])
def test_a_truncated_checkpoint_is_reported_and_the_older_one_used(run, toy, config, capsys, size):
    newest = list_checkpoints(run)[-1]
    good = newest.read_bytes()
    newest.write_bytes(good[:size])
    train(config, toy, run, resume=True, progress=False)
    message = capsys.readouterr().err
    assert "step-00000030.safetensors is damaged" in message
    assert "Using the one before it" in message
    assert message.count("\n") == 1
    assert newest.read_bytes()[-1000:] == good[-1000:]  # made again, to the last bit of the weights


def test_all_checkpoints_damaged_is_one_line(run, toy, config):
    for path in list_checkpoints(run):
        path.write_bytes(b"x")
    with pytest.raises(UserError, match="no usable checkpoint in"):
        train(config, toy, run, resume=True, progress=False)


def test_another_configuration_is_refused_by_name(run, toy, config):
    with pytest.raises(UserError, match="has d_ff = 32, not 48"):
        train(config.replace(d_ff=48), toy, run, resume=True, progress=False)
    assert len(list_checkpoints(run)) == 2


def test_settings_may_be_missing_from_an_older_run_but_not_unknown(run, toy, config):
    path = list_checkpoints(run)[-1]
    tensors, header = checkpoints.read_tensors(path)
    del header["format"], header["config"]["positions"]
    checkpoints.write_tensors(path, tensors, header)
    train(config, toy, run, resume=True, progress=False)
    header["config"]["flavour"] = "mint"
    checkpoints.write_tensors(path, tensors, header)
    with pytest.raises(UserError, match="settings that this txcourse does not know"):
        train(config, toy, run, resume=True, progress=False)


def test_a_run_is_not_overwritten(run, toy, config):
    with pytest.raises(UserError, match="already holds a run: continue it with --resume"):
        train(config, toy, run, progress=False)


def test_half_a_line_of_metrics_is_dropped(run, toy, config):
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    list_checkpoints(run)[-1].unlink()  # as if killed between the last measurement and its checkpoint
    metrics.write_text("".join(lines) + '{"step": 4')
    train(config, toy, run, resume=True, progress=False)
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == [10, 20, 30]


def test_a_model_survives_saving(toy, config, tmp_path):
    model = build_model(config, toy.source, toy.target).eval()
    save_model(tmp_path / "model.safetensors", TrainedModel(model, toy.source, toy.target, config, {"n": 1}))
    trained = load_model(tmp_path)
    assert trained.config == config
    assert trained.info == {"n": 1}
    assert (trained.source.tokens, trained.target.tokens) == (toy.source.tokens, toy.target.tokens)
    src, tgt = torch.tensor([[1, 4, 5, 2]]), torch.tensor([[1, 4, 5]])
    assert torch.equal(trained.model(src, tgt), model(src, tgt))
    assert not trained.model.training


def test_a_missing_unfinished_or_damaged_model_is_one_line(run, toy, tmp_path):
    with pytest.raises(UserError, match=r"no trained model at .*nothing: make one with txcourse train"):
        load_model(tmp_path / "nothing")
    with pytest.raises(UserError, match="has not finished: continue it with --resume"):
        load_model(run)
    model = build_model(Config(task="reverse"), toy.source, toy.target)
    path = tmp_path / "model.safetensors"
    save_model(path, TrainedModel(model, toy.source, toy.target, Config(task="reverse"), {}))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match="is damaged") as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    path.write_bytes(checkpoints.save({"x": torch.zeros(1)}))
    with pytest.raises(UserError, match="was not written by txcourse"):
        load_model(path)


def test_weights_of_another_model_are_refused(toy, config):
    model = build_model(config, toy.source, toy.target)
    with pytest.raises(UserError, match="another model"):
        checkpoints.copy_parameters(model, {"x": torch.zeros(1)})


def test_a_vocabulary_from_its_tokens(toy):
    tokens = [*toy.source.tokens[:4], "z", "a", "m"]
    vocabulary = vocabulary_of(tokens)
    assert vocabulary.tokens == tokens
    assert vocabulary.encode(["m", "z"]) == [6, 4]
