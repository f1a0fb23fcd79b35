"""The run: every submission is judged once, by several processes, and may be interrupted at any moment.

The result of a student is one file, written in one step, with a key made of the submission and the assignment. What has
its key is not graded again, so a run that was killed goes on where it was, and several machines can share a folder.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tqdm import tqdm

from txcourse.errors import UserError
from txcourse.grading.assignment import Asked, Assignment, build
from txcourse.grading.cut import Cut, cut, fingerprint
from txcourse.grading.judge import Judge, Judgement
from txcourse.grading.notebook import cells_of
from txcourse.grading.submissions import Roster, Submission, Unreadable, find
from txcourse.learner.workspace import write
from txcourse.source import Cell

PATIENCE = 400.0  # seconds that a submission may take beside its exercises: a sandbox has to start
SLOWEST = 150.0  # times the limit of an exercise: the judge itself ends it long before, on a busy machine too
TRIES = 2  # for a submission on which the grader's own process ends


@dataclass(frozen=True)
class Graded:
    """A submission with its result; `result` is None while it is not graded (another machine's share)."""

    submission: Submission
    result: dict[str, Any] | None


def grade(
    place: Path,
    out: Path,
    assignment: Assignment,
    *,
    roster: Roster | None = None,
    jobs: int | None = None,
    shard: tuple[int, int] = (1, 1),
    progress: bool = True,
) -> list[Graded]:
    """Grade what is in `place`; the results of the students are in `out`/students, and everybody's come back.

    Args:
        shard: (i, n): only the i-th of n shares of the students, counted from 1.
    Raises:
        UserError: nothing to grade, a folder that cannot be written, a machine without any sandbox.
    """
    submissions = find(place, roster, assignment.due, without=out)
    assignment = _with_seed_of(out, assignment)
    keys = {s.student.id: _key(s, assignment) for s in submissions}
    number, shares = shard
    todo = [
        s
        for s in submissions
        if _share(s.student.id, shares) == number - 1 and _stored(out, s, keys[s.student.id]) is None
    ]
    nothing = [s for s in todo if not s.files]
    for submission in nothing:
        _store(out, submission, keys[submission.student.id], _nothing(submission, assignment))
    todo = [s for s in todo if s.files]
    if todo:
        count = min(jobs or os.cpu_count() or 1, len(todo))
        pause = 0.2 if sys.stderr.isatty() else 30.0
        with tqdm(total=len(todo), unit=" students", disable=not progress, mininterval=pause) as bar:
            for _ in _in_parallel(todo, assignment, out, keys, count):
                bar.update()
    return [Graded(s, _stored(out, s, keys[s.student.id])) for s in submissions]


def _share(student: str, shares: int) -> int:
    return int(hashlib.sha256(student.encode()).hexdigest(), 16) % shares


def _with_seed_of(out: Path, assignment: Assignment) -> Assignment:
    """The assignment; where its file names no seed, with the one that this folder was begun with, on whatever machine."""
    if not assignment.plain["drawn"]:
        return assignment
    file = out / "students" / ".seed"
    if not file.exists():
        write(file, str(assignment.seed))
    try:
        return build(assignment.plain | {"seed": int(file.read_text(encoding="utf-8"))})
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}; delete it to begin with a new seed") from error


def _key(submission: Submission, assignment: Assignment) -> str:
    digest = hashlib.sha256(assignment.key.encode())
    for file in submission.files:
        try:
            content = file.open()
        except Unreadable as error:
            content = str(error).encode()
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _file(out: Path, submission: Submission) -> Path:
    return out / "students" / f"{submission.student.slug}.json"


def _stored(out: Path, submission: Submission, key: str) -> dict[str, Any] | None:
    """The result of a submission, when it is that of this submission and assignment."""
    try:
        found = json.loads(_file(out, submission).read_text(encoding="utf-8"))
        return found if found["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(out: Path, submission: Submission, key: str, result: dict[str, Any]) -> None:
    who = {"student": {"id": submission.student.id, "name": submission.student.name}}
    write(_file(out, submission), json.dumps({"key": key, **who, **result}, indent=1) + "\n")


# One submission


def grade_one(judge: Judge, assignment: Assignment, submission: Submission) -> dict[str, Any]:
    """The result of one submission, in plain values. Where a student handed in several notebooks, the newest with an
    answer to an exercise counts for it."""
    from txcourse import exercises

    notebooks: list[list[Cell]] = []
    problems = []
    for file in reversed(submission.files):
        try:
            notebooks.append(cells_of(file.open()))
        except Unreadable as error:
            problems.append(f"{file.label} {error}")
    names, course = [asked.name for asked in assignment.asked], exercises.names()
    graded = []
    for asked in assignment.asked:
        found = next((c for cells in notebooks if (c := _cut(cells, asked.name, names, course))), None)
        judgement, source = _best(judge, asked, found)
        alike = fingerprint(found.own) if found else None
        graded.append({**judgement.to_dict(), "source": source, "alike": alike})
    return _result(graded, problems, judge.level)


def _cut(cells: list[Cell], name: str, asked: list[str], course: list[str]) -> Cut | None:
    try:
        return cut(cells, name, asked, course)
    except (RecursionError, MemoryError, ValueError, SyntaxError):  # hand on what cannot be cut
        text = "\n\n".join(
            cell.text for cell in cells if cell.exercise == name or re.search(rf"\b{name}\b", cell.text)
        )
        return Cut((text,), "")


def _best(judge: Judge, asked: Asked, found: Cut | None) -> tuple[Judgement, str]:
    """The better of the answer's sources, the first of equals."""
    best: tuple[Judgement, str] | None = None
    for source in found.sources if found else (None,):
        judgement = judge.judge(asked, source)
        if best is None or judgement.points > best[0].points:
            best = judgement, source or ""
        if judgement.status in ("passed", "timeout", "died"):
            break
    assert best is not None
    return best


def _result(graded: list[dict[str, Any]], problems: list[str], level: str) -> dict[str, Any]:
    return {
        "points": round(sum(each["points"] for each in graded), 2),
        "max_points": sum(each["max_points"] for each in graded),
        "isolation": level,
        "problems": problems,
        "exercises": graded,
    }


def _all(assignment: Assignment, status: str, message: str) -> list[dict[str, Any]]:
    """The same for every exercise."""
    empty = {"tests": (), "mistake": None, "seconds": 0.0, "output": "", "source": "", "alike": None}
    return [
        {"name": a.name, "status": status, "points": 0.0, "max_points": a.points, "message": message, **empty}
        for a in assignment.asked
    ]


def _nothing(submission: Submission, assignment: Assignment) -> dict[str, Any]:
    return _result(_all(assignment, "missing", "There is no answer."), [], "nothing was run")


# Several at once


class _Worker:
    """A process that grades one submission after another."""

    def __init__(self, assignment: Assignment, out: Path):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, assignment.plain, out), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Submission | None = None
        self.ready = False
        self.since = 0.0

    def give(self, submission: Submission, key: str) -> None:
        self.job, self.since = submission, time.monotonic()
        with contextlib.suppress(OSError):  # it has ended: seen when its message is awaited
            self.connection.send((submission, key))

    def stop(self, at_once: bool) -> None:
        if not at_once:
            with contextlib.suppress(OSError):
                self.connection.send(None)
            self.process.join(20.0)
        self.connection.close()
        self.process.kill()
        self.process.join()


def _in_parallel(
    todo: list[Submission], assignment: Assignment, out: Path, keys: dict[str, str], count: int
) -> Iterator[Submission]:
    """Grade with `count` processes; each submission comes back when its result is stored."""
    waiting = list(reversed(todo))
    tries = dict.fromkeys((s.student.id for s in todo), 0)
    longest = PATIENCE + len(assignment.asked) * SLOWEST * assignment.limits.seconds
    failed_starts, orderly = 0, False
    workers = [_Worker(assignment, out) for _ in range(count)]
    try:
        while True:
            for worker in workers:
                if worker.job is None and waiting:
                    submission = waiting.pop()
                    worker.give(submission, keys[submission.student.id])
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                break
            heard = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                job = worker.job
                assert job is not None
                if worker.connection in heard:
                    try:
                        kind, text = worker.connection.recv()
                    except (EOFError, OSError):
                        kind, text = "ended", ""
                    if kind == "failed":
                        raise UserError(text)
                    if kind == "ready":
                        worker.ready = True
                    elif kind == "done":
                        worker.job = None
                        yield job
                    else:
                        worker.stop(at_once=True)
                        workers[workers.index(worker)] = _Worker(assignment, out)
                        if not worker.ready:
                            failed_starts += 1
                            if failed_starts > 2 * count:
                                raise UserError(
                                    "the processes that grade do not start; see `txcourse doctor`"
                                )
                            waiting.append(job)
                            continue
                        tries[job.student.id] += 1
                        if tries[job.student.id] < TRIES:
                            waiting.append(job)
                        else:
                            _store(out, job, keys[job.student.id], _given_up(assignment))
                            yield job
                elif time.monotonic() - worker.since > longest:
                    worker.process.kill()  # and is heard of next time
        orderly = True
    finally:
        for worker in workers:
            worker.stop(at_once=not orderly)


def _given_up(assignment: Assignment) -> dict[str, Any]:
    told = f"the process that grades ended {TRIES} times on this submission: look at it by hand"
    return _result(
        _all(assignment, "died", "Your notebook could not be graded; ask your instructor."), [told], "?"
    )


def _work(connection: Connection, plain: dict[str, Any], out: Path) -> None:
    """The process: takes submissions until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    import torch

    torch.set_num_threads(1)
    try:
        assignment = build(plain)
        with Judge(assignment) as judge:
            connection.send(("ready", ""))
            while (job := connection.recv()) is not None:
                submission, key = job
                _store(out, submission, key, grade_one(judge, assignment, submission))
                connection.send(("done", ""))
    except UserError as error:
        with contextlib.suppress(OSError):
            connection.send(("failed", str(error)))
    except (EOFError, OSError):  # the parent is gone, or wants no more
        pass
