"""The run: the same marks every time, nothing lost and nothing graded twice, however it is stopped."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.grading.making import answers, text
from txcourse.errors import UserError
from txcourse.grading import grade as module
from txcourse.grading import judge
from txcourse.grading.assignment import Asked, Assignment, build
from txcourse.grading.cut import Cut
from txcourse.grading.grade import _best, grade
from txcourse.grading.judge import Judgement
from txcourse.grading.results import Results, grades

CAUSAL = (
    None,
    "def causal_mask(length):\n    return torch.ones(length, length).triu().bool()",
    "def causal_mask(length):\n    return torch.ones(length, length).tril()",
    "def causal_mask(length):\n    raise ValueError",
    "def causal_mask(length):\n    raise NotImplementedError",
    "def causal_mask(length:\n    return 1",
    "def causal_mask(length):\n    return torch.tril(torch.full((length, length), True), diagonal=1)",
)
PADDING = (
    None,
    "def padding_mask(tokens, pad_id=0):\n    return (tokens == pad_id)[:, None, None]",
    "def padding_mask(tokens, pad_id=0):\n    return tokens != pad_id",
)


def make(folder: Path, count: int) -> Path:
    """Submissions of every mixture of answers, the same ones each time."""
    chance = random.Random(0)
    folder.mkdir()
    for number in range(count):
        (folder / f"s{number:03}.ipynb").write_text(
            answers(padding_mask=chance.choice(PADDING), causal_mask=chance.choice(CAUSAL))
        )
    return folder


def command(place: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "txcourse.cli", "grade", str(place), "--out", str(out), "--assignment", str(place.parent / "a.toml"), *more]  # fmt: skip


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    (tmp_path / "a.toml").write_text('exercises = ["padding_mask", "causal_mask"]\nseed = 3\n')
    return make(tmp_path / "in", 10)


def run(*arguments: Any) -> None:
    subprocess.run(command(*arguments), check=True, capture_output=True, timeout=600)


def state(out: Path) -> dict[str, int]:
    """The results of students: file → when it was written."""
    return {file.name: file.stat().st_mtime_ns for file in (out / "students").glob("[a-z]*.json")}


def interrupted(place: Path, out: Path, after: int, *more: str) -> dict[str, int]:
    """Kill a run when `after` students are done; what was written until everything of it was still."""
    process = subprocess.Popen(command(place, out, *more), stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 500
    while len(state(out)) < after and time.monotonic() < deadline:
        assert process.poll() is None, "it was done before it could be killed"
        time.sleep(0.02)
    process.kill()
    process.wait()
    before, since = state(out), time.monotonic()
    while time.monotonic() - since < 5:  # its processes end with the submission that they have
        time.sleep(0.2)
        if state(out) != before:
            before, since = state(out), time.monotonic()
    return before


def kill_and_compare(class_: Path, count: int, after: int, jobs: Sequence[str]) -> None:
    outs = [class_.parent / f"out{number}" for number in range(len(jobs) + 1)]
    for out, number in zip(outs[1:], jobs, strict=True):
        run(class_, out, "--jobs", number)
    done = interrupted(class_, outs[0], after, "--jobs", jobs[0])
    assert after <= len(done) < count
    for file in (outs[0] / "students").glob("[a-z]*.json"):
        json.loads(file.read_text())
    run(class_, outs[0], "--jobs", jobs[0])
    now = state(outs[0])
    assert len(now) == count and {name: now[name] for name in done} == done  # none twice, none lost
    tables = {(out / "grades.csv").read_bytes() for out in outs}
    assert len(tables) == 1
    said = [
        [s["exercises"] for s in json.loads((out / "results.json").read_text())["students"]] for out in outs
    ]
    for each in said:
        for exercises in each:
            for e in exercises:
                e.pop("seconds")
    assert all(each == said[0] for each in said)


@pytest.mark.skipif(os.name == "nt", reason="kills as Unix does")
def test_a_run_that_is_killed_goes_on(class_: Path) -> None:
    kill_and_compare(class_, 10, 3, ["2"])


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills as Unix does")
def test_two_hundred_submissions(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('exercises = ["padding_mask", "causal_mask"]\nseed = 3\n')
    kill_and_compare(make(tmp_path / "in", 200), 200, 100, ["2", "1", "3"])


@pytest.mark.slow
def test_a_notebook_of_two_hundred_megabytes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    output = [{"output_type": "stream", "name": "stdout", "text": "x" * 200 * 2**20}]
    found = json.loads(answers(causal_mask=None))
    found["cells"][0]["outputs"] = output
    (tmp_path / "in" / "large.ipynb").write_text(json.dumps(found))
    asked = build({"exercises": ["causal_mask"], "seed": 1})
    (one,) = grade(tmp_path / "in", tmp_path / "out", asked, jobs=1, progress=False)
    assert one.result is not None and one.result["points"] == asked.max_points


# Without a sandbox: what is done when


class FakeJudge:
    """Passes what says "right", in no time; what says "end" ends the process."""

    level = "none"

    def __init__(self, assignment: Assignment):
        self.log = Path(assignment.title)

    def __enter__(self) -> "FakeJudge":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def judge(self, asked: Asked, source: str | None) -> Judgement:
        with self.log.open("a") as log:
            log.write("judged\n")
        if source and "end" in source:
            os._exit(1)
        if source and "hang" in source:
            time.sleep(60)
        passed = bool(source) and "right" in (source or "")
        return Judgement(asked.name, "passed" if passed else "failed", asked.points if passed else 0.0, asked.points, (), None, "said", 0.0, "")  # fmt: skip


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with one line for each judgement. The processes are forked, so that they have the stand-in too."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(module.multiprocessing, "get_context", lambda _: fork)
    (tmp_path / "in").mkdir()
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setattr(module, "Judge", FakeJudge)
    return log


def asked(log: Path, **more: Any) -> Assignment:
    return build({"title": str(log), "exercises": ["causal_mask"], "seed": 1, **more})


def submit(folder: Path, **sources: str) -> None:
    for name, source in sources.items():
        (folder / f"{name}.ipynb").write_text(text(("causal_mask", f"def causal_mask(n):\n    {source}")))


def marks(found: Sequence[module.Graded]) -> dict[str, float | None]:
    return {g.submission.student.id: g.result["points"] if g.result else None for g in found}


def test_only_what_changed_is_graded_again(
    judged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit(tmp_path / "in", ada="right", bob="wrong")

    def again(**more: Any) -> tuple[dict[str, float | None], int]:
        judged.write_text("")
        found = grade(tmp_path / "in", tmp_path / "out", asked(judged, **more), jobs=2, progress=False)
        return marks(found), judged.read_text().count("judged")

    assert again() == ({"ada": 1.0, "bob": 0.0}, 2)
    assert again() == ({"ada": 1.0, "bob": 0.0}, 0)
    submit(tmp_path / "in", bob="right", cy="right")
    assert again() == ({"ada": 1.0, "bob": 1.0, "cy": 1.0}, 2)
    assert again(points={"causal_mask": 3}) == ({"ada": 3.0, "bob": 3.0, "cy": 3.0}, 3)
    assert again(points={"causal_mask": 3}, due="2020-01-01") == ({"ada": 3.0, "bob": 3.0, "cy": 3.0}, 0)
    (tmp_path / "out" / "students" / "ada.json").write_text('{"key": "')
    assert again(points={"causal_mask": 3})[1] == 1
    (tmp_path / "in" / "bob.ipynb").unlink()
    assert again(points={"causal_mask": 3}) == ({"ada": 3.0, "cy": 3.0}, 0)


def test_shards_share_the_work(judged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    submit(tmp_path / "in", **{f"s{number}": "right" for number in range(20)})
    for shard in (1, 2, 3):
        monkeypatch.setattr("txcourse.grading.assignment._secret", lambda: shard)  # noqa: B023
        its = asked(judged, seed=None)  # each machine has another; the folder has the first one's
        found = grade(tmp_path / "in", tmp_path / "out", its, jobs=1, shard=(shard, 3), progress=False)
        results = Results(asked(judged), found)
        assert (results.pending > 0) == (shard < 3)
        assert [row[-1] for row in grades(results)[1:]].count("pending") == results.pending
    assert set(marks(found).values()) == {1.0} and judged.read_text().count("judged") == 20


def test_a_submission_that_ends_the_grader_costs_nobody_else(
    judged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 5.0)
    submit(tmp_path / "in", ada="right", bob="end", cy="right", dan="hang", eve="right")
    quick = asked(judged, limits={"seconds": 0.001})
    found = grade(tmp_path / "in", tmp_path / "out", quick, jobs=2, progress=False)
    assert marks(found) == {"ada": 1.0, "bob": 0.0, "cy": 1.0, "dan": 0.0, "eve": 1.0}
    told = {g.submission.student.id: g.result["problems"] for g in found if g.result}
    assert "ended 2 times" in told["bob"][0] and "ended 2 times" in told["dan"][0] and not told["ada"]


def test_a_machine_without_a_sandbox_is_one_line(
    judged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no sandbox here")

    monkeypatch.setattr(module, "Judge", refuse)
    submit(tmp_path / "in", ada="right")
    with pytest.raises(UserError, match="no sandbox"):
        grade(tmp_path / "in", tmp_path / "out", asked(judged), jobs=1, progress=False)


def test_the_better_of_the_sources_counts(tmp_path: Path) -> None:
    fake = FakeJudge(asked(tmp_path / "log"))
    (one,) = asked(tmp_path / "log").asked
    assert _best(fake, one, Cut(("wrong", "right"), ""))[0].points == 1  # type: ignore[arg-type]
    assert _best(fake, one, Cut(("wrong", "false"), ""))[1] == "wrong"  # type: ignore[arg-type]
    (tmp_path / "log").write_text("")
    _best(fake, one, Cut(("right", "right"), ""))  # type: ignore[arg-type]
    assert (tmp_path / "log").read_text() == "judged\n"


def test_an_early_mistake_costs_once(tmp_path: Path) -> None:
    """MultiHeadAttention with a wrong split_heads, and one that needs the student's own."""
    from tests.grading.making import solved

    (tmp_path / "in").mkdir()
    wrong = "def split_heads(x, n_heads):\n    return x"
    own = "def split_heads(x, n_heads, scale=1.0):\n    if x.shape[-1] % n_heads:\n        raise ValueError\n    return scale * x.unflatten(-1, (n_heads, -1)).transpose(1, 2)"
    user = solved("MultiHeadAttention").replace(", self.n_heads)", ", self.n_heads, scale=1.0)")
    (tmp_path / "in" / "wrong.ipynb").write_text(answers(split_heads=wrong, MultiHeadAttention=None))
    (tmp_path / "in" / "own.ipynb").write_text(answers(split_heads=own, MultiHeadAttention=user))
    exercises = build({"exercises": ["split_heads", "MultiHeadAttention"], "seed": 1})
    found = grade(tmp_path / "in", tmp_path / "out", exercises, jobs=1, progress=False)
    statuses = {
        g.submission.student.id: [e["status"] for e in g.result["exercises"]] for g in found if g.result
    }
    assert statuses == {"wrong": ["failed", "passed"], "own": ["passed", "passed"]}


def test_a_notebook_that_imports_the_answers_of_another(tmp_path: Path) -> None:
    """The newer one of two begins as the course's do: with an import of what earlier notebooks built."""
    (tmp_path / "in" / "ada").mkdir(parents=True)
    for number, (name, content) in enumerate(
        {
            "03_attention": answers(causal_mask=None),
            "05_multi_head_attention": text("from txcourse.mine import causal_mask, padding_mask", "x = 1"),
        }.items()
    ):
        file = tmp_path / "in" / "ada" / f"{name}.ipynb"
        file.write_text(content)
        os.utime(file, (1e9 + number, 1e9 + number))
    asked = build({"exercises": ["padding_mask", "causal_mask"], "seed": 1})
    (found,) = grade(tmp_path / "in", tmp_path / "out", asked, jobs=1, progress=False)
    assert found.result is not None
    assert [e["status"] for e in found.result["exercises"]] == ["missing", "passed"]


def test_statuses_are_known_to_the_pages() -> None:
    from txcourse.grading.results import IN_WORDS

    assert set(IN_WORDS) == set(judge.STATUSES)
