"""`txcourse score`: what it prints is what evaluation gives; runs alone, averaged, together."""

import json

import pytest

from txcourse import data
from txcourse.errors import UserError
from txcourse.training import Config, evaluate, list_checkpoints, load_model, save_model, train
from txcourse.training.checkpoints import TrainedModel, average_weights, build_model, copy_parameters
from txcourse.training.scoring import score_command

CONFIG = Config(
    task="copy",
    d_model=16,
    n_heads=2,
    n_layers=1,
    d_ff=32,
    steps=30,
    batch_size=32,
    evaluate_every=10,
    average=2,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs on one task, with other seeds and sizes."""
    folder, dataset = tmp_path_factory.mktemp("runs"), data.load("copy")
    for name, changes in {"one": {}, "two": {"seed": 2, "d_ff": 48}}.items():
        config = CONFIG.replace(**changes)
        model, _ = train(config, dataset, folder / name, progress=False)
        trained = TrainedModel(model, dataset.source, dataset.target, config, {})
        save_model(folder / name / "model.safetensors", trained)
    return folder


def rows(capsys, *runs, **options) -> list[dict]:
    score_command(list(runs), device="cpu", as_json=True, **options)
    return json.loads(capsys.readouterr().out)


def test_one_run_greedy_and_beam(runs, capsys):
    greedy, beam = rows(capsys, runs / "one", beam_size=3, length_penalty=0.5, split="dev")
    dataset, model = data.load("copy"), load_model(runs / "one").model
    arguments = (dataset.dev, dataset.source, dataset.target, dataset.max_len + 3)
    for row, options in ((greedy, ()), (beam, (3, 0.5))):
        expected = evaluate(model, *arguments, *options)
        assert row["token_error_rate"] == expected.token_error_rate > 0
        assert row["sequence_error_rate"] == expected.sequence_error_rate
        assert (row["split"], row["examples"]) == ("dev", 500)
    assert (greedy["decoding"], beam["decoding"]) == ("greedy", "beam 3, length penalty 0.5")
    assert len(rows(capsys, runs / "one", beam_size=1)) == 1


def test_an_average_of_checkpoints_and_an_ensemble(runs, capsys):
    dataset = data.load("copy")
    arguments = (dataset.test, dataset.source, dataset.target, dataset.max_len + 3)
    mean = build_model(CONFIG, dataset.source, dataset.target)
    copy_parameters(mean, average_weights(list_checkpoints(runs / "one")[-2:]))
    found = rows(capsys, runs / "one", beam_size=1, average=2)[0]
    assert found["token_error_rate"] == evaluate(mean, *arguments).token_error_rate

    pair = [load_model(runs / name).model for name in ("one", "two")]
    found = rows(capsys, runs / "one", runs / "two", beam_size=2)
    assert found[0]["token_error_rate"] == evaluate(pair, *arguments).token_error_rate
    assert found[1]["token_error_rate"] == evaluate(pair, *arguments, 2).token_error_rate
    score_command([runs / "one", runs / "two"], beam_size=2, device="cpu")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("test split, 500 sequences")
    assert "one + " in printed[0]
    assert printed[3].startswith("beam 2, length penalty 1 ")


def test_what_cannot_be_scored_is_one_line(runs, tmp_path, toy):
    other = build_model(CONFIG.replace(task="reverse"), toy.source, toy.target)
    trained = TrainedModel(other, toy.source, toy.target, CONFIG.replace(task="reverse"), {})
    save_model(tmp_path / "model.safetensors", trained)
    for arguments, options, message in [
        ([tmp_path / "no"], {}, "no trained model"),
        ([runs / "one", tmp_path], {}, "another task or vocabulary"),
        ([runs / "one"], {"average": 3}, "holds 2 checkpoints, not 3"),
        ([runs / "one"], {"average": 0}, "--average must be at least 1"),
        ([runs / "one"], {"beam_size": 0}, "--beam must be at least 1"),
        ([runs / "one"], {"split": "train"}, "Unknown split 'train'"),
        ([], {"average": 2}, "has no checkpoints"),
    ]:
        with pytest.raises(UserError, match=message) as error:
            score_command(arguments, device="cpu", **options)
        assert "\n" not in str(error.value)
