"""Killed at any moment, every file of the learner's is either old or new."""

import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.learner.conftest import cells
from txcourse.learner import workspace

# Goes round and round over everything that changes files, until it is killed. Every text that it writes says
# how long it is, so that a half-written one shows.
LOOP = """
import json, random, sys, types
from pathlib import Path
exercises = sys.modules["txcourse.exercises"] = types.ModuleType("exercises")  # the real ones import torch: slow
from txcourse.learner import answers, course
from txcourse.learner.workspace import Workspace, write
work, delivered = Workspace(Path(sys.argv[1])), Path(sys.argv[2])
course.notebook_files = lambda: sorted(delivered.glob("[0-9][0-9]_attention.ipynb"))
names = ["causal_mask", "padding_mask"]
exercises.names = lambda: names
exercises.get = lambda name: types.SimpleNamespace(notebook="03_attention")
versions = [(delivered / f"version{i}.json").read_text() for i in (0, 1)]
print("ready", flush=True)
round = 0
while True:
    round += 1
    write(delivered / "03_attention.ipynb", versions[round % 2])
    course.update(work)
    mine = work.root / "03_attention.ipynb"
    answer = f"def causal_mask(length):\\n    return {random.random()}  " + "#" * 20000
    changed = json.loads(mine.read_text())
    course._exercise_cells(changed)["causal_mask"]["source"] = answer
    write(mine, json.dumps(changed))
    answers.store(work, "03_attention", "causal_mask", answer, names)
    work.set_record("causal_mask", passed=True, tries=round)
    if round % 3 == 0:
        course.reset("causal_mask", work)
    for old in [*work.root.glob("03_attention.20*"), *work.answers.glob("earlier/*")][40:]:
        old.unlink()
"""


def intact(work: Path) -> None:
    """Every file that is in use, or kept, can be read and is whole."""
    for file in [*work.glob("*.ipynb"), *(work / workspace.MARKER / "originals").glob("*.ipynb")]:
        found = {
            c["metadata"]["txcourse"]["exercise"]: c["source"] for c in json.loads(file.read_text())["cells"]
        }
        assert found["causal_mask"].endswith(("#" * 20000, "raise NotImplementedError")), file
    for file in (work / "my_transformer").glob("**/[a-z]*.py"):
        text = file.read_text()
        compile(text, str(file), "exec")
        assert "causal_mask" not in text or text.rstrip().endswith("#" * 20000), file
    for file in (work / workspace.MARKER / "exercises").glob("[a-z]*.json"):
        json.loads(file.read_text())


def kill_often(tmp_path: Path, kills: int) -> None:
    work, delivered = tmp_path / "work", tmp_path / "course"
    workspace.create(work)
    delivered.mkdir()
    stub = "def causal_mask(length):\n    raise NotImplementedError"
    other = "def padding_mask(tokens):\n    raise NotImplementedError"
    for i in (0, 1):
        text = cells(("causal_mask", stub), ("padding_mask", other + f"  # version {i}" + " " * 50000 * i))
        (delivered / f"version{i}.json").write_text(text)
    chance = random.Random(0)
    seen = set()
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(work), str(delivered)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.02, 0.4))
        assert process.poll() is None, "the loop stopped by itself"
        process.kill()
        process.wait()
        process.stdout.close()
        intact(work)
        seen |= {hashlib.sha256(f.read_bytes()).hexdigest() for f in work.rglob("*") if f.is_file()}
    assert len(seen) > kills  # it did write between the kills


@pytest.mark.kills
def test_ten_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, 10)


@pytest.mark.kills
@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, 100)


@pytest.mark.kills
def test_this_test_sees_a_file_that_is_written_in_place(tmp_path: Path) -> None:
    """What `intact` would say if files were written in place and the process died half-way."""
    (tmp_path / "my_transformer").mkdir()
    (tmp_path / "my_transformer" / "attention.py").write_text("def causal_mask(length):\n    return 1  ###")
    with pytest.raises(AssertionError):
        intact(tmp_path)
