"""What `txcourse grade` and `txcourse export` do."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from txcourse.errors import UserError
from txcourse.grading import assignment as assignments
from txcourse.grading.assignment import Assignment, parse_due


def grade_command(
    submissions: Path,
    out: Path,
    assignment: Path | None,
    notebooks: list[str] | None,
    roster: Path | None,
    due: str | None,
    jobs: int | None,
    shard: str,
    as_json: bool,
) -> None:
    """Grade, write the results, and say in a few lines what came out."""
    from txcourse.grading.grade import grade
    from txcourse.grading.results import Results, points, write_all
    from txcourse.grading.submissions import read_roster

    asked = asked_for(assignment, notebooks, due)
    students = read_roster(roster) if roster else None
    share = _shard(shard)
    try:
        graded = grade(submissions, out, asked, roster=students, jobs=jobs, shard=share, progress=not as_json)
    except KeyboardInterrupt:
        print("What is graded is kept; the same command goes on.", file=sys.stderr)
        raise
    results = Results(asked, graded)
    write_all(results, out)
    found = results.to_dict()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    states = [student["state"] for student in found["students"]]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    totals = [student["points"] for student in found["students"] if student["state"] == "graded"]
    if totals:
        counted += f"; mean {points(sum(totals) / len(totals))} of {points(asked.max_points)} points"
    print(f"{len(states)} students: {counted}")
    levels = {student["isolation"] for student in found["students"] if student["state"] == "graded"}
    if levels:
        print(f"isolation: {', '.join(sorted(levels))}")
    print(f"{out / 'grades.csv'}, {out / 'class.html'}, {out / 'feedback'}/, {out / 'results.json'}")


def export_command(
    what: str,
    out: Path,
    assignment: Path | None,
    notebooks: list[str] | None,
    due: str | None,
    results: Path,
    table: Path | None,
    column: str | None,
) -> None:
    """Write one of the exports and say where."""
    from txcourse.grading import exports, gradescope, handout

    if what in ("canvas", "moodle"):
        if table is None:
            raise UserError(f"--table names the file that you exported from {what.capitalize()}")
        lines = exports.canvas(results, table, column, out) if what == "canvas" else exports.moodle(results, table, out)  # fmt: skip
    elif what in ("handout", "gradescope", "nbgrader"):
        asked = asked_for(assignment, notebooks, due)
        write = {
            "handout": handout.handout,
            "gradescope": gradescope.autograder,
            "nbgrader": handout.nbgrader,
        }[what]
        lines = write(asked, out)
    else:
        raise UserError(
            f"there is no export {what!r}; there are: handout, gradescope, canvas, moodle, nbgrader"
        )
    print("\n".join(lines))


def asked_for(assignment: Path | None, notebooks: list[str] | None, due: str | None) -> Assignment:
    """The assignment of a file or of notebooks; `due` counts before that of the file."""
    if assignment is not None and notebooks:
        raise UserError("--assignment and --notebook exclude each other; name the notebooks in the file")
    when = parse_due(due) if due else None
    if assignment is not None:
        asked = assignments.read(assignment)
    elif notebooks:
        asked = assignments.of_notebooks(notebooks)
    else:
        raise UserError("say what is asked: --notebook 03, or --assignment FILE")
    return replace(asked, due=when, plain=asked.plain | {"due": when.isoformat()}) if when else asked


def _shard(text: str) -> tuple[int, int]:
    try:
        number, shares = map(int, text.split("/"))
    except ValueError:
        number, shares = 0, 0
    if not 1 <= number <= shares:
        raise UserError(f"--shard takes i/n with 1 ≤ i ≤ n, such as 2/4, not {text!r}")
    return number, shares
