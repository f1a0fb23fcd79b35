"""The loop: learns, repeats itself exactly, and does not care how a batch is cut."""

import copy
import subprocess
import sys
from itertools import pairwise

import pytest
import torch

from txcourse.data import make_toy_task
from txcourse.errors import UserError
from txcourse.solutions.transformer import Transformer
from txcourse.training import Config, checkpoints, learning_rate, list_checkpoints, loop, train
from txcourse.training.checkpoints import average_weights, build_model


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def without_time(history: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "tokens_per_second")} for row in history]


def test_it_learns(config):
    toy = make_toy_task("copy", n_train=1000, n_dev=50, n_test=50, max_length=5, symbols="abcdef")
    config = config.replace(task="copy", d_model=32, d_ff=64, dropout=0.0, steps=300, evaluate_every=150)
    model, history = train(config, toy, progress=False)
    assert [row["step"] for row in history] == [150, 300]
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["token_error_rate"] < 0.1
    assert not model.training


def test_the_same_twice_and_another_seed_differs(toy, config):
    first, history = train(config, toy, progress=False)
    second, again = train(config, toy, progress=False)
    assert_same(weights(first), weights(second))
    assert without_time(history) == without_time(again)
    other, _ = train(config.replace(seed=2), toy, progress=False)
    assert not torch.equal(first.output.weight, other.output.weight)


@pytest.mark.parametrize("stop_at", [10, 13, 20])
def test_a_run_that_crashed_resumes_to_the_same_bits(toy, config, tmp_path, monkeypatch, stop_at):
    whole, history = train(config, toy, tmp_path / "whole", progress=False)

    def learning_rate_then_crash(step, config):
        if step == stop_at:
            raise RuntimeError("crash")
        return learning_rate(step, config)

    monkeypatch.setattr(loop, "learning_rate", learning_rate_then_crash)
    with pytest.raises(RuntimeError, match="crash"):
        train(config, toy, tmp_path / "broken", progress=False)
    monkeypatch.undo()
    resumed, rest = train(config, toy, tmp_path / "broken", resume=True, progress=False)
    assert_same(weights(whole), weights(resumed))
    assert without_time(history) == without_time(rest)
    written = checkpoints.read_metrics(tmp_path / "broken", config.steps, rewrite=False)
    assert without_time(written) == without_time(history)


def test_ctrl_c_saves_between_measurements_and_the_rest_is_the_same(toy, config, tmp_path, monkeypatch):
    whole, history = train(config, toy, tmp_path / "whole", progress=False)

    def learning_rate_then_interrupt(step, config):
        if step == 17:
            loop.signal.raise_signal(loop.signal.SIGINT)
        return learning_rate(step, config)

    monkeypatch.setattr(loop, "learning_rate", learning_rate_then_interrupt)
    with pytest.raises(loop.Stopped, match=r"Stopped at step 18 of 30; saved in .* --resume"):
        train(config, toy, tmp_path / "broken", progress=False)
    monkeypatch.undo()
    assert list_checkpoints(tmp_path / "broken")[-1].name == "step-00000018.safetensors"
    resumed, rest = train(config, toy, tmp_path / "broken", resume=True, progress=False)
    assert_same(weights(whole), weights(resumed))
    assert without_time(history) == without_time(rest)


def double(config: Config, toy) -> torch.nn.Module:
    torch.manual_seed(config.seed)
    return build_model(config, toy.source, toy.target).double()


def test_accumulated_micro_batches_equal_the_whole_batch(toy, config):
    config = config.replace(dropout=0.0)
    whole, history = train(config, toy, model=double(config, toy), progress=False)
    pieces, again = train(config.replace(micro_batches=3), toy, model=double(config, toy), progress=False)
    for name, value in weights(whole).items():
        torch.testing.assert_close(value, weights(pieces)[name], rtol=1e-7, atol=1e-9)
    assert history[-1]["loss"] == pytest.approx(again[-1]["loss"], rel=1e-5)
    with pytest.raises(UserError, match="cannot be cut into 16 pieces"):
        train(config.replace(micro_batches=16), toy, progress=False)


def test_gradients_are_clipped_and_adam_is_fused(toy, config, monkeypatch):
    made = []
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: made.append(k) or adam(*a, **k))
    norms = []
    for max_norm in (1e-3, 1e9):
        model, _ = train(config.replace(steps=1, max_norm=max_norm), toy, progress=False)
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
    assert norms[0] == pytest.approx(1e-3, rel=1e-2)
    assert norms[1] > 0.1
    assert all(options["fused"] for options in made)


def test_the_loss_in_16_bits_is_close(toy, config):
    """What a GPU runs, autocast to bfloat16, here on the CPU: logits in 16 bits, the loss in 32."""
    model = Transformer(len(toy.source), len(toy.target), 16, 2, 1, 32, 0.0)
    loss = loop.SummedLoss(model, 0.1)
    src, tgt = torch.randint(4, 10, (8, 7)), torch.randint(4, 10, (8, 6))
    expected = loss(src, tgt)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(src, tgt)
    assert found.dtype == torch.float32
    assert found.item() != expected.item()
    assert found.item() == pytest.approx(expected.item(), rel=0.02)


def test_two_processes_equal_one(toy, config, tmp_path):
    """DistributedDataParallel over gloo, two micro-batches each, to what the order of additions allows."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, torch\n"
        "from txcourse.data import make_toy_task\n"
        "from txcourse.training import Config, train\n"
        "from txcourse.training.checkpoints import build_model\n"
        "toy = make_toy_task('reverse', n_train=203, n_dev=20, n_test=20, max_length=6)\n"
        f"config = Config(**{config.replace(dropout=0.0, micro_batches=2).to_dict()!r})\n"
        "torch.manual_seed(config.seed)\n"
        "model = build_model(config, toy.source, toy.target).double()\n"
        "model, history = train(config, toy, model=model, progress=False)\n"
        "if history:\n"
        "    torch.save((model.state_dict(), history), sys.argv[1])\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launcher, script, tmp_path / "result.pt"], check=True, timeout=120, capture_output=True)
    state, distributed = torch.load(tmp_path / "result.pt")

    config = config.replace(dropout=0.0)
    one, history = train(config, toy, model=double(config, toy), progress=False)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-7, atol=1e-9)
    assert [row["step"] for row in distributed] == [row["step"] for row in history]
    assert distributed[-1]["loss"] == pytest.approx(history[-1]["loss"], rel=1e-5)
    assert distributed[-1]["token_error_rate"] == history[-1]["token_error_rate"]


def test_a_model_of_ones_own_is_trained_like_the_fast_one(toy, config):
    config = config.replace(dropout=0.0)
    fast = double(config, toy)
    plain = Transformer(
        len(toy.source), len(toy.target), 16, 2, 1, 32, dropout=0.0, norm_first=True, tie_embeddings=True
    ).double()
    plain.load_state_dict(fast.state_dict())
    fast, history = train(config, toy, model=fast, progress=False)
    plain, again = train(config, toy, model=plain, progress=False)
    for name, value in weights(fast).items():
        torch.testing.assert_close(value, weights(plain)[name], rtol=1e-6, atol=1e-8)
    assert history[-1]["token_error_rate"] == again[-1]["token_error_rate"]


def test_the_mean_of_the_last_checkpoints_is_used_when_it_is_better(toy, config, tmp_path):
    config = config.replace(average=2, steps=30, evaluate_every=10)
    model, _ = train(config, toy, tmp_path, progress=False)
    paths = list_checkpoints(tmp_path)
    assert [path.name for path in paths] == ["step-00000020.safetensors", "step-00000030.safetensors"]
    mean = average_weights(paths)
    last = average_weights(paths[-1:])
    ours = weights(model)
    assert all(torch.equal(ours[n], mean[n]) for n in ours) or all(
        torch.equal(ours[n], last[n]) for n in ours
    )
    parts = [average_weights([path]) for path in paths]
    for name in mean:
        torch.testing.assert_close(mean[name], (parts[0][name] + parts[1][name]) / 2)


def test_the_number_of_threads_is_the_runs_and_is_given_back(toy, config, monkeypatch):
    threads = torch.get_num_threads()
    seen = []
    rate = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda *a: seen.append(torch.get_num_threads()) or rate(*a))
    train(config.replace(threads=threads + 1, steps=1), toy, progress=False)
    assert seen == [threads + 1]
    assert torch.get_num_threads() == threads


def test_the_rate_rises_and_falls_to_almost_nothing():
    config = Config(steps=1000, peak_lr=2.0, warmup=0.1, final_lr=0.01)
    rates = [learning_rate(step, config) for step in range(1000)]
    assert max(rates) == pytest.approx(2.0, rel=0.02)
    assert rates.index(max(rates)) == 100
    assert all(a < b for a, b in pairwise(rates[:101]))
    assert all(a > b for a, b in pairwise(rates[100:]))
    assert rates[0] > 0
    assert rates[-1] == pytest.approx(0.02)
    for few in (1, 2, 3):
        assert all(learning_rate(step, config.replace(steps=few)) > 0 for step in range(few))


def test_the_loss_compiles_without_breaks(toy, config):
    """What a GPU runs: the plain forward, traced once for all batch shapes. Here with a backend that only traces."""
    torch._dynamo.reset()
    model = double(config.replace(dropout=0.0), toy)
    reference = copy.deepcopy(model)
    plain = loop.SummedLoss(torch.nn.Module.__new__(Transformer), 0.1)
    plain.model = Transformer(len(toy.source), len(toy.target), 16, 2, 1, 32, 0.0, True, True).double()
    plain.model.load_state_dict(model.state_dict())
    traced = []

    def backend(graph, inputs):
        traced.append(graph)
        return graph.forward

    plain.compile(dynamic=True, backend=backend, fullgraph=True)
    for length in (4, 5, 7):
        src = torch.randint(4, 10, (length - 1, length + 2))
        tgt = torch.randint(4, 10, (length - 1, length))
        assert plain(src, tgt).item() == pytest.approx(reference.summed_loss(src, tgt, 0.1).item())
    assert len(traced) <= 2
