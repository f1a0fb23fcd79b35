"""`txcourse check NOTEBOOK`: all exercises of a notebook, in a process that may hang or die without harm."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txcourse.errors import UserError
from txcourse.learner import course, workspace
from txcourse.source import code_cells

START = 120.0  # seconds for a worker to import torch, on a slow disk


@dataclass(frozen=True)
class Result:
    """What came out for one exercise; `report` is the check's own where there is one."""

    name: str
    passed: bool
    text: str
    report: dict[str, Any] | None = None

    def to_text(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        return {"exercise": self.name, "passed": self.passed, "message": self.text, "report": self.report}


def check_notebook(name: str, timeout: float) -> Iterator[Result]:
    """Check every exercise of a notebook, one result each, in the notebook's order.

    Args:
        name: a file, or the name of a notebook in the course folder.
        timeout: seconds for one exercise.
    Raises:
        UserError: no such notebook, or none of the course.
    """
    from txcourse import exercises

    path = _locate(name)
    notebook = course.find_notebook(path.name).stem
    content = course.read(path)
    asked = [each for each in exercises.names() if exercises.get(each).notebook == notebook]
    if not asked:
        raise UserError(f"{notebook} has no exercises to check")
    here = workspace.find(path.parent)
    worker = _Worker(here)
    try:
        for each in asked:
            yield _check_one(worker, here, each, notebook, content, timeout)
    finally:
        worker.stop()


def _check_one(
    worker: "_Worker",
    here: workspace.Workspace | None,
    name: str,
    notebook: str,
    content: dict[str, Any],
    timeout: float,
) -> Result:
    cell = course.candidate(content, name)
    if cell is None:
        return Result(name, False, f"{name}: no cell of the notebook defines it")
    others = [each.text for each in code_cells(content) if each.text != cell]
    answer = worker.ask({"name": name, "notebook": notebook, "cell": cell, "others": others}, timeout)
    if isinstance(answer, str):
        answer = {"passed": False, "started": True, "text": f"{name}: not yet\n  {answer}", "report": None}
    if here is not None and answer["started"]:
        known = here.record(name)
        here.set_record(name, tries=known["tries"] + 1, passed=known["passed"] or answer["passed"])
    return Result(name, answer["passed"], answer["text"], answer["report"])


def _locate(name: str) -> Path:
    if Path(name).is_file():
        return Path(name).resolve()
    if name.endswith(".ipynb") and len(Path(name).parts) > 1:
        raise UserError(f"there is no file {name}")
    path = workspace.find_or_fail().root / course.find_notebook(name).name
    if not path.is_file():
        raise UserError(f"{path} is not there; `txcourse update` brings the notebooks that are missing")
    return path


class _Worker:
    """The other process, started when it is needed and again after it died."""

    def __init__(self, here: workspace.Workspace | None):
        self.environment = os.environ | {workspace.VARIABLE: str(here.root) if here else ""}
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()

    def ask(self, job: dict[str, Any], timeout: float) -> Any:
        """The worker's result, or a sentence about why there is none."""
        if self.process is None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            return f"it did not end within {timeout:g} seconds"
        except OSError:
            line = None
        if line is None:
            code = self.process.wait()
            self.stop()
            return f"it ended the process that ran it (exit code {code})"
        try:
            return json.loads(line)
        except ValueError:
            self.stop()
            return "it wrote into the checker's own channel"

    def _start(self) -> None:
        self.lines = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txcourse.learner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=self.environment,
            start_new_session=True,
        )
        threading.Thread(target=_read_lines, args=(self.process, self.lines), daemon=True).start()
        try:
            ready = self.lines.get(timeout=START)
        except queue.Empty:
            ready = None
        if ready is None:
            self.stop()
            raise UserError("the process that runs the checks does not start; `txcourse doctor` looks why")

    def stop(self) -> None:
        if self.process is None:
            return
        if hasattr(os, "killpg"):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self.process.kill()
        self.process.wait()
        self.process = None


def _read_lines(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)
