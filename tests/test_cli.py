"""The command line: every error of a user is one plain line and exit code 2."""

import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from txcourse import cli, doctor
from txcourse.learner import course, workspace
from txcourse.learner.lab import free

COMMANDS = "lab doctor progress check hint reveal reset update train score pronounce translate grade export build".split()


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def empty_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # a command may name its workspace there
    os.environ["HOME"] = os.environ["USERPROFILE"] = str(tmp_path_factory.mktemp("home"))
    os.environ.pop(workspace.VARIABLE, None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["txcourse", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0 and f"Example: txcourse {command}" in " ".join(ran.out.split())


def test_the_list_of_commands(run) -> None:
    ran = run()
    assert ran.code == 0 and all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert run("--version").out.strip() == cli.__version__


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["lab", "--port", "many"],
        ["lab", "--port", "70000"],
        ["hint"],
        ["hint", "casual_mask"],
        ["reveal", "casual_mask"],
        ["reset", "casual_mask"],
        ["update"],
        ["check", "03_attention"],
        ["check", "no/such/file.ipynb"],
        ["build", "no_such_notebook"],
        ["train", "no_such_preset"],
        ["train", "pronunciation", "--steps", "many"],
        ["pronounce", ""],
        ["pronounce", "caf\u00e9!"],
        ["pronounce", "word", "--model", "nowhere"],
        ["translate", " "],
        ["translate", "A dog runs.", "--model", "nowhere"],
        ["translate", "A dog runs.", "--file", "also.txt"],
        ["translate", "--file", "nowhere.txt"],
        ["translate", "A dog runs.", "--beam", "0"],
        ["doctor", "--nothing"],
        ["grade", "nowhere", "--notebook", "03"],
        ["grade", "nowhere"],
        ["grade", "nowhere", "--notebook", "99"],
        ["grade", "nowhere", "--assignment", "nothing.toml"],
        ["grade", "nowhere", "--notebook", "03", "--assignment", "nothing.toml"],
        ["grade", "nowhere", "--notebook", "03", "--roster", "nothing.csv"],
        ["grade", "nowhere", "--notebook", "03", "--due", "tomorrow"],
        ["grade", "nowhere", "--notebook", "03", "--shard", "3/2"],
        ["grade", "nowhere", "--notebook", "03", "--jobs", "0"],
        ["export", "nothing", "--out", "x"],
        ["export", "handout", "--out", "x"],
        ["export", "canvas", "--out", "x"],
        ["export", "moodle", "--out", "x", "--table", "nothing.csv"],
        ["export", "gradescope", "--notebook", "03", "--out", "x"],
    ],
)
def test_what_the_user_gets_wrong_is_one_line(run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("txcourse: ") and len(ran.err.splitlines()) == 1, ran.err
    assert os.listdir() == []


def test_a_key_that_stops_is_no_traceback(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("txcourse.learner.course.update", interrupted)
    ran = run("update")
    assert ran.code == 130 and "Traceback" not in ran.err


# lab


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """What would have been started as JupyterLab."""
    calls: list[tuple[list[str], dict[str, str]]] = []

    def instead(command: list[str], env: dict[str, str]) -> SimpleNamespace:
        calls.append((command, env))
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr("txcourse.learner.lab.subprocess.Popen", instead)
    monkeypatch.setattr("txcourse.learner.lab.signal.signal", lambda *_: None)
    return calls


def test_lab_makes_a_folder_with_the_notebooks(run, started, tmp_path: Path) -> None:
    assert run("lab", "--no-browser").code == 0
    command, environment = started[0]
    work = (tmp_path / "work").resolve()
    assert f"--ServerApp.root_dir={work}" in command and "--no-browser" in command
    assert environment[workspace.VARIABLE] == str(work)
    brought = sorted(file.name for file in work.glob("*.ipynb"))
    assert brought == [file.name for file in course.notebook_files()] and "03_attention.ipynb" in brought
    assert run("progress").out.splitlines()[0].endswith("(in work/)")  # found beside the current folder


def test_lab_takes_the_folder_that_is_named(run, started, tmp_path: Path) -> None:
    os.environ[workspace.VARIABLE] = str(tmp_path / "elsewhere")
    run("lab")
    assert (tmp_path / "elsewhere" / "03_attention.ipynb").exists() and not (tmp_path / "work").exists()


def test_a_port_that_is_taken(run, started) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not free(port)
        ran = run("lab", "--port", str(port))
    assert ran.code == 2 and ran.err == (
        f"txcourse: port {port} is taken; choose another, for example: txcourse lab --port {port + 1}\n"
    )
    assert not started and os.listdir() == []


def test_a_folder_that_cannot_be_written(run, started, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file is in the way")
    ran = run("lab")
    assert ran.code == 2 and "cannot write the course folder" in ran.err and not started


# the other commands in a folder


def test_reset_update_hint_and_reveal(run, started) -> None:
    run("lab")
    assert "03_attention: up to date" in run("update").out
    assert "Reset causal_mask in 03_attention." in run("reset", "causal_mask").out
    assert run("hint", "causal_mask").out.startswith("Hint 1 of 3")
    assert run("hint", "causal_mask").out.startswith("Hint 2 of 3")
    assert "still open" in run("reveal", "causal_mask").out
    assert "def causal_mask" in run("reveal", "causal_mask", "--sure").out
    listed = json.loads(run("progress", "--json").out)["exercises"]
    assert {e["state"] for e in listed} == {"open"}


# doctor


def test_doctor_finds_this_machine_ok(run) -> None:
    ran = run("doctor")
    assert ran.code == 0, ran.out
    subjects = [line.split()[1] for line in ran.out.splitlines()]
    assert subjects == ["python", "torch", "device", "disk", "memory", "data", "notebooks", "jupyterlab"]
    assert "kernels: python3" in ran.out


def test_doctor_says_what_to_do(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_free_memory", lambda: 10**9)
    monkeypatch.setattr(doctor, "notebook_files", list)
    monkeypatch.setattr("txcourse.data.pronunciation.CMUDICT_SHA256", "0")
    monkeypatch.setattr(sys, "executable", "/bin/false" if os.path.exists("/bin/false") else sys.executable)
    monkeypatch.setattr(doctor, "torch", lambda: 1 / 0)
    found = {line.split()[1]: line for line in run("doctor").out.splitlines()}
    assert found["memory"] == "FIX  memory       0.9 GiB free. Close other programs: training needs 2 GiB"
    assert found["data"].startswith("FIX  data") and "pip install" in found["data"]
    assert (
        found["notebooks"].startswith("FIX  notebooks") and "install the course again" in found["notebooks"]
    )
    assert "does not start" in found["jupyterlab"] or os.name == "nt"


def test_doctor_as_json(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "examine", lambda: iter([doctor.Finding("disk", False, "0 GiB", "Make room")])
    )
    ran = run("doctor", "--json")
    assert ran.code == 1 and json.loads(ran.out) == [
        {"subject": "disk", "ok": False, "found": "0 GiB", "advice": "Make room"}
    ]
