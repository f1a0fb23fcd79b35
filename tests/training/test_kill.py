"""A run that is killed again and again ends with the same weights as one that was left alone."""

import contextlib
import multiprocessing
import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from txcourse.data import make_toy_task
from txcourse.training import Config, list_checkpoints, train
from txcourse.training.checkpoints import read_tensors

# A server that has imported torch once and forks a process for each start saves most of this test's time.
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
CONTEXT = multiprocessing.get_context(METHOD)
if METHOD == "forkserver":
    CONTEXT.set_forkserver_preload(["txcourse.training"])


def run(out: Path, steps: int) -> None:
    torch.set_num_threads(1)
    toy = make_toy_task("copy", n_train=200, n_dev=4, n_test=4, max_length=5)
    config = Config(
        task="copy",
        d_model=16,
        n_heads=2,
        n_layers=1,
        d_ff=32,
        dropout=0.1,
        steps=steps,
        batch_size=8,
        evaluate_every=5,
        average=3,
    )
    train(config, toy, out, resume=bool(list_checkpoints(out)), progress=False)


def start(out: Path, steps: int) -> BaseProcess:
    process = CONTEXT.Process(target=run, args=(out, steps))
    process.start()
    return process


def newest(out: Path) -> float:
    """When the newest checkpoint was written."""
    times = []
    for path in list_checkpoints(out):
        with contextlib.suppress(FileNotFoundError):  # the run removes old ones meanwhile
            times.append(path.stat().st_mtime)
    return max(times, default=0.0)


@pytest.mark.kills
@pytest.mark.parametrize(
    ("kills", "steps"), [(10, 1000), pytest.param(100, 10_000, marks=pytest.mark.slow)], ids=["10", "100"]
)
def test_killed_at_any_moment(tmp_path, kills, steps):
    alone = start(tmp_path / "alone", steps)
    out = tmp_path / "killed"
    delays = random.Random(0)
    done = 0
    while True:
        before = newest(out)
        process = start(out, steps)
        while process.is_alive() and newest(out) <= before:  # until it trains and has saved something
            time.sleep(0.01)
        if done == kills or not process.is_alive():
            break
        time.sleep(delays.uniform(0.0, 0.3))
        process.kill()
        process.join()
        done += process.exitcode != 0
    for last in (process, alone):
        last.join(600)
        assert last.exitcode == 0
    assert done == kills, f"the run ended after {done} kills: give it more steps"

    expected, killed = list_checkpoints(tmp_path / "alone"), list_checkpoints(out)
    assert [path.name for path in killed] == [path.name for path in expected]
    for path, other in zip(expected, killed, strict=True):
        tensors, others = read_tensors(path)[0], read_tensors(other)[0]
        assert tensors.keys() == others.keys()
        for name in tensors:
            assert torch.equal(tensors[name], others[name]), (path.name, name)
    assert not list(out.glob("checkpoints/.*"))  # no half-written file is left
