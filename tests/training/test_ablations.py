"""`txcourse train --ablation`: every variant is another run, killed ones go on, the file says what was done."""

import json

import pytest
import torch

from txcourse.fast import Decoding
from txcourse.solutions.transformer import Transformer
from txcourse.training import Config, ablations, list_checkpoints, loop
from txcourse.training.ablations import VARIANTS, ablation_command
from txcourse.training.checkpoints import build_model

CONFIG = 'task = "copy"\nd_model = 16\nn_heads = 4\nn_layers = 1\nd_ff = 32\nsteps = 6\nbatch_size = 8\n'


@pytest.fixture
def toml(tmp_path, monkeypatch):
    few = ("default", "no positions", "learned positions")
    monkeypatch.setattr(ablations, "VARIANTS", {name: VARIANTS[name] for name in few})
    (tmp_path / "tiny.toml").write_text(CONFIG)
    return str(tmp_path / "tiny.toml")


def test_every_variant_is_a_configuration_and_differs_from_the_default():
    configs = [Config().replace(**changes) for changes in VARIANTS.values()]
    assert len(set(configs)) == len(VARIANTS)
    assert configs[0] == Config()


def test_a_killed_series_goes_on_and_ends_the_same(toml, tmp_path, capsys, monkeypatch):
    ablation_command(toml, out=tmp_path / "whole", device="cpu", seed=3)
    printed = capsys.readouterr().out
    assert "no positions" in printed
    assert "6 steps each" in printed

    rate, calls = loop.learning_rate, []

    def rate_then_kill(step, config):
        calls.append(step)
        if len(calls) == 10:  # in the second variant
            raise KeyboardInterrupt
        return rate(step, config)

    monkeypatch.setattr(loop, "learning_rate", rate_then_kill)
    with pytest.raises(KeyboardInterrupt):
        ablation_command(toml, out=tmp_path / "broken", device="cpu", seed=3)
    monkeypatch.setattr(loop, "learning_rate", rate)
    assert len(json.loads((tmp_path / "broken" / "ablations.json").read_text())["variants"]) == 1
    ablation_command(toml, out=tmp_path / "broken", device="cpu", seed=3, as_json=True)

    whole, broken = (json.loads((tmp_path / n / "ablations.json").read_text()) for n in ("whole", "broken"))
    for row in (*whole["variants"], *broken["variants"]):
        assert row.pop("seconds") >= 0
    assert whole == broken
    assert [row["variant"] for row in whole["variants"]] == ["default", "no positions", "learned positions"]
    assert whole["made"].endswith("--ablation --steps 6 --seed 3")
    assert len({row["loss"] for row in whole["variants"]}) == 3
    assert list_checkpoints(tmp_path / "whole" / "learned-positions")


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_other_positions_train_decode_and_are_the_plain_computation(toy, positions):
    config = Config(task="reverse", d_model=16, n_heads=2, n_layers=1, d_ff=32, positions=positions)
    torch.manual_seed(0)
    model = build_model(config, toy.source, toy.target).eval()
    names = {name for name, _ in model.named_parameters()}
    assert ("positions.table" in names) == (positions == "learned")
    src, tgt = torch.tensor([[1, 4, 5, 6, 2]]), torch.tensor([[1, 6, 5, 4, 2]])
    logits = Transformer.forward(model, src, tgt[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits[0], tgt[0, 1:], reduction="sum")
    loss = model.summed_loss(src, tgt)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    if positions == "learned":
        assert model.positions.table.grad[:4].abs().sum() > 0
        assert model.positions.table.grad[5:].abs().sum() == 0
    else:  # without positions the encoder gives equal letters equal vectors
        memory = model.encode(torch.tensor([[1, 4, 5, 4, 2]]))
        torch.testing.assert_close(memory[0, 1], memory[0, 3])
    assert Decoding([model]).greedy(src, 6, 1, 2).size(0) == 1
