"""The sandbox: levels, what it hides, what it leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.grading import hostile
from txcourse.checking import subject
from txcourse.grading import assignment, remote, sandbox
from txcourse.grading.judge import Judge
from txcourse.grading.sandbox import LEVELS, Sandbox

ASKED = assignment.build({"exercises": ["causal_mask"], "seed": 1, "limits": {"seconds": 5, "memory": 2**30}})
POSSIBLE = [level for level in LEVELS if sandbox._works(level)]
CONFINED = [level for level in POSSIBLE if level in ("bubblewrap", "user namespace")]


def test_continuous_integration_tests_the_strongest_level() -> None:
    assert "bubblewrap" in (Path(__file__).parents[2] / ".ci" / "run").read_text(encoding="utf-8")
    if sandbox.shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with Judge(ASKED) as judge:
        assert judge.level == POSSIBLE[0]


@pytest.mark.parametrize("level", [level for level in POSSIBLE if level != POSSIBLE[0]])
def test_weaker_levels_judge_alike(level: str) -> None:
    """The strongest one has all of test_judge.py. Nothing here could hurt a machine whose level failed to hold."""
    kinds = {
        "os._exit when called", "sys.exit in a destructor", "leaves processes behind", "10 GB in torch", "finds no environment",
        "folders in folders", "imports the reference", "forges a reply", "closes every file",
    }  # fmt: skip
    confined = {
        "finds no network",
        "finds nobody else",
        "looks for the solution on the disk",
        "cannot write to the course",
    }
    with Judge(ASKED, level) as judge:
        assert judge.level == level
        assert judge.judge(ASKED.asked[0], hostile.RIGHT).status == "passed"
        for case in hostile.ALL:
            if case.kind in kinds or (case.kind in confined and level == "user namespace"):
                judgement = judge.judge(ASKED.asked[0], case.source)
                assert judgement.status in case.status, (case.kind, judgement)
                assert (judgement.points == judgement.max_points) == case.full
                assert judge.judge(ASKED.asked[0], hostile.RIGHT).status == "passed", case.kind


LOOK = """
import json, os, sys
found = {}
for root, folders, files in os.walk("/"):
    if root.startswith(("/proc", "/sys", "/dev")):
        folders.clear()
    elif os.path.basename(root) == "txcourse" and "__init__.py" in files:
        found[root] = sorted([*folders, *files])
    elif any(f.endswith(".ipynb") and f[:2].isdigit() for f in files):
        found[root] = sorted(files)
print(json.dumps({"found": found, "top": sorted(os.listdir("/")), "writable": [p for p in ["/", "/usr", "/course", "/dev", sys.prefix] if os.access(p, os.W_OK)]}))
def causal_mask(length):
    return None
"""  # fmt: skip


@pytest.mark.parametrize("level", CONFINED)
def test_python_may_lie_in_the_folder_of_temporary_files(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix" / "here").touch()
    (tmp_path / "box" / "course").mkdir(parents=True)
    monkeypatch.setattr(sandbox.sys, "prefix", str(tmp_path / "prefix"))
    prefix = sandbox._confined(level, tmp_path / "box")[0]
    there = str(tmp_path / "prefix" / "here")
    look = f"import os; open('mine', 'w').close(); print(os.path.exists({there!r}), os.listdir('.'))"
    python = Path(sys.executable).resolve()
    seen = subprocess.run(
        [*prefix, python, "-ISc", look], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert seen.stdout == "True ['mine']\n"  # a folder of its own, empty before


@pytest.mark.parametrize("level", CONFINED)
def test_no_solution_exercise_or_notebook_is_there(level: str, tmp_path: Path) -> None:
    with Judge(
        assignment.build({"exercises": ["causal_mask"], "seed": 1, "limits": {"seconds": 60}}), level
    ) as judge:
        judgement = judge.judge(ASKED.asked[0], LOOK)
    seen = json.loads(judgement.output)
    assert list(seen["found"]) == ["/course/txcourse"]
    assert seen["found"]["/course/txcourse"] == ["__init__.py", "checking", "errors.py", "grading"]
    assert seen["writable"] == [] and "home" not in seen["top"] and "etc" in seen["top"]


def test_an_installed_package_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install`: site-packages are readable inside, the package with its solutions is not."""
    site = Path(sys.prefix) / "lib" / "site-packages"
    monkeypatch.setattr(sandbox.sys, "path", [str(site)])
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    assert sandbox._layout(tmp_path)["masked"] == [str(site / "txcourse")]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    box = Sandbox(ASKED.limits)
    folder, run = box._folder, box.run()
    assert box._worker is not None
    pids = [box._worker.pid, *sandbox._below(box._worker.pid)]
    run.close()
    box.close()
    assert not folder.exists()
    assert _gone(pids)


def _gone(pids: list[int]) -> bool:
    """Whether these processes are gone within seconds."""
    return any(not any(map(_alive, pids)) or sandbox.time.sleep(0.1) for _ in range(300))


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_the_worker_ends_with_the_grader() -> None:
    """Also when that is killed."""
    code = (
        "import os; from txcourse.grading.sandbox import Sandbox, _below; from txcourse.grading.assignment import Limits\n"
        "box = Sandbox(Limits()); box.run(); print(box._worker.pid, *_below(box._worker.pid), flush=True); os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    pids = [int(pid) for pid in result.stdout.split()]
    assert len(pids) >= (2 if CONFINED else 1)
    assert _gone(pids)


@pytest.mark.skipif(not CONFINED, reason="with the file system of the machine the worker finds the package")
def test_a_worker_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_environment", lambda *_: {"PYTHONPATH": "/nowhere"})
    with pytest.raises(sandbox.UserError, match="does not start"):
        Judge(ASKED).judge(ASKED.asked[0], hostile.RIGHT)


def test_limits_follow_the_assignment() -> None:
    source = (
        hostile.RIGHT
        + "\nimport resource\nprint([resource.getrlimit(k)[0] for k in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)])\n"
    )
    limits = {"seconds": 5, "files": 30, "written": 1000, "processes": 11, "output": 5}
    asked = assignment.build({"exercises": ["causal_mask"], "seed": 1, "limits": limits})
    with Judge(asked) as judge:
        judgement = judge.judge(asked.asked[0], source)
        assert (judgement.status, judgement.output) == ("passed", "[30, ")
        wide = judge.judge(asked.asked[0], hostile.RIGHT)
    assert wide.output == ""


def test_time_is_the_processors_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a processor costs nothing; working and sleeping do."""
    usage = sandbox._Usage()
    box = SimpleNamespace(usage=lambda: usage, limits=assignment.Limits(seconds=1.0), output=0)
    ours, theirs = sandbox.socket.socketpair()
    with ours, theirs:
        run = sandbox.Run(box, ours)  # type: ignore[arg-type]
        usage.running = True
        for _ in range(50):
            run._look(1.0, quiet=True)
        usage.running = False
        for _ in range(50):
            run._look(0.1, quiet=False)
        usage.seconds = 1.1
        with pytest.raises(sandbox.Stopped):
            run._look(0.1, quiet=False)
        run.start_anew()
        with pytest.raises(sandbox.Stopped):
            for _ in range(12):
                run._look(0.1, quiet=True)


@pytest.mark.parametrize(
    "ours, theirs", [(remote.RemoteSubject, subject.Subject), (remote.RemoteModule, subject.ModuleSubject)]
)
def test_remote_subjects_answer_all_that_a_test_may_ask(ours: type, theirs: type) -> None:
    asked = {name for name in vars(theirs) if not name.startswith("_")} - {"call"}  # which asks observe
    assert asked <= set(vars(ours)), asked - set(vars(ours))


def test_adapters_hold_no_solution() -> None:
    from txcourse import exercises

    for name in exercises.names():
        adapter = exercises.get(name).as_function
        if adapter is not None:
            text = remote.source_of(adapter)
            assert (
                "solutions" not in text
                and "Mistake" not in text
                and "Context" not in text
                and len(text) < 6000
            )


def test_references_are_those_that_may_be_used() -> None:
    import ast

    from txcourse.grading import references

    def given(source: str, judged: str, asked: set[str]) -> list[str]:
        return references.available(ast.parse(source), judged, asked)

    assert given("MultiHeadAttention(split_heads)", "EncoderLayer", set()) == [
        "split_heads",
        "MultiHeadAttention",
    ]
    assert given("from txcourse.mine import causal_mask", "EncoderLayer", {"causal_mask"}) == ["causal_mask"]
    assert given("scaled_dot_product_attention; causal_mask", "causal_mask", set()) == [
        "scaled_dot_product_attention"
    ]
    assert given("scaled_dot_product_attention", "attention_by_loops", {"scaled_dot_product_attention"}) == []
    assert (
        given("MultiHeadAttention; Transformer", "scaled_dot_product_attention", set()) == []
    )  # built on it
    pieces = references.sources(["EncoderLayer"])
    assert list(pieces)[-1] == "encoder" and "attention" in pieces
    assert (
        "def scaled_dot_product_attention" in pieces["attention"]
        and "padding_mask" not in pieces["attention"]
    )
    assert "Decoder" not in "".join(pieces.values()).replace("EncoderDecoder", "")


def test_grading_says_so_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(sandbox.UserError, match="WSL"):
        Sandbox(ASKED.limits)
