"""What comes out: grades.csv, results.json, a page of feedback for each student, and a page about the class."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from txcourse.errors import UserError
from txcourse.grading.assignment import Assignment
from txcourse.grading.cut import reference_fingerprint
from txcourse.grading.grade import Graded
from txcourse.learner.workspace import write

IN_WORDS = {
    "passed": "passed",
    "failed": "not yet right",
    "error": "stops with an error",
    "timeout": "does not end",
    "died": "ended the process that ran it",
    "missing": "no answer",
    "not_allowed": "uses what is not allowed",
}


@dataclass(frozen=True)
class Results:
    """Everything about the class; what is written is made from it."""

    assignment: Assignment
    graded: list[Graded]

    @property
    def pending(self) -> int:
        """How many wait for another machine of the batch."""
        return sum(each.result is None for each in self.graded)

    def to_dict(self) -> dict[str, Any]:
        """For results.json: everything but the seed."""
        asked = [
            {"name": a.name, "points": a.points, "notebook": a.exercise.notebook}
            for a in self.assignment.asked
        ]
        return {
            "format": 1,
            "assignment": {
                "title": self.assignment.title,
                "due": self.assignment.due.isoformat() if self.assignment.due else None,
                "max_points": self.assignment.max_points,
                "exercises": asked,
            },
            "class": [_of_class(a.name, self.graded) for a in self.assignment.asked],
            "similar": similar(self.assignment, self.graded),
            "students": [_of_student(each) for each in self.graded],
        }


def _of_student(graded: Graded) -> dict[str, Any]:
    submission, result = graded.submission, graded.result or {}
    exercises = [{k: v for k, v in e.items() if k != "alike"} for e in result.get("exercises", [])]
    return {
        "id": submission.student.id,
        "name": submission.student.name,
        "email": submission.student.email,
        "state": _state(graded),
        "points": result.get("points"),
        "late": submission.late,
        "submitted": submission.submitted.isoformat() if submission.submitted else None,
        "in_roster": submission.listed,
        "files": [file.label for file in submission.files],
        "problems": _problems(graded),
        "isolation": result.get("isolation"),
        "feedback": f"feedback/{submission.student.slug}.html",
        "exercises": exercises,
    }


def _state(graded: Graded) -> str:
    """graded, missing (nothing was handed in), unreadable (nothing of it can be read) or pending."""
    if graded.result is None:
        return "pending"
    if not any(file.problem is None for file in graded.submission.files):
        return "unreadable" if graded.submission.files else "missing"
    readable = len(graded.submission.files) - len(graded.result["problems"])
    return "graded" if readable > 0 else "unreadable"


def _problems(graded: Graded) -> list[str]:
    return list(dict.fromkeys([*graded.submission.problems, *(graded.result or {}).get("problems", [])]))


def _of_class(name: str, graded: Iterable[Graded]) -> dict[str, Any]:
    """How an exercise went: how many of each status, and which mistakes how often, the most frequent first."""
    found = [
        e
        for g in graded
        if _state(g) == "graded" and g.result
        for e in g.result["exercises"]
        if e["name"] == name
    ]
    named = Counter(e["mistake"] for e in found if e["mistake"])
    said = {e["mistake"]: e["message"] for e in found if e["mistake"]}
    unnamed = Counter(t[1] for e in found if not e["mistake"] for t in e["tests"] if not t[2])
    return {
        "name": name,
        "statuses": {s: n for s in IN_WORDS if (n := sum(e["status"] == s for e in found))},
        "mean_points": round(mean(e["points"] for e in found), 2) if found else None,
        "max_points": found[0]["max_points"] if found else None,
        "mistakes": [
            {"mistake": mistake, "count": count, "message": said[mistake]}
            for mistake, count in named.most_common()
        ],
        "failed_tests": [{"title": title, "count": count} for title, count in unnamed.most_common(5)],
    }


def similar(assignment: Assignment, graded: Iterable[Graded]) -> list[dict[str, Any]]:
    """Answers that are the reference's or one another's but for names, comments and docstrings. For eyes, not marks."""
    from txcourse import exercises

    groups: dict[tuple[str, str], list[str]] = {}
    for each in graded:
        for e in (each.result or {}).get("exercises", []):
            if e["alike"]:
                groups.setdefault((e["name"], e["alike"]), []).append(each.submission.student.id)
    references = {a.name: reference_fingerprint(a.exercise, exercises.names()) for a in assignment.asked}
    return [
        {"exercise": name, "reference": alike == references.get(name), "students": students}
        for (name, alike), students in sorted(groups.items())
        if len(students) > 1 or alike == references.get(name)
    ]


# Tables


def plain(text: Any) -> str:
    """A cell of a table that a spreadsheet program takes for text, and not for a formula."""
    text = "" if text is None else str(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and not _number(text) else text


def _number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def table(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def points(value: float | None) -> str:
    """Without zeros at the end; empty for nothing."""
    return "" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def grades(results: Results) -> list[list[str]]:
    """The rows of grades.csv, the heading first."""
    names = [asked.name for asked in results.assignment.asked]
    rows = [["id", "name", "email", *names, "total", "out_of", "late", "state"]]
    for each in results.graded:
        student, marks = each.submission.student, (each.result or {}).get("exercises", [])
        late = {True: "late", False: "", None: ""}[each.submission.late]
        rows.append(
            [
                *map(plain, (student.id, student.name, student.email)),
                *(points(e["points"]) for e in marks or [{"points": None}] * len(names)),
                points((each.result or {}).get("points")),
                points(results.assignment.max_points),
                late,
                _state(each),
            ]
        )
    return rows


# Pages


def without_values(message: str) -> str:
    """A message of a check without the values that came and that were expected: inputs in grading are secret."""
    message = re.sub(
        r": expected .{1,400}?, yours .{1,400}?; (?:largest difference [^,;]{1,40}, )?(\d+ of \d+ values)",
        r"; \1",
        message,
        flags=re.DOTALL,
    )
    return re.sub(
        r"should be (?=[-\d\[({'\"]|True\b|False\b|nan\b|inf\b).{1,400}?; yours is .{0,400}?\.(?=\s|$)",
        "is not what it should be.",
        message,
        flags=re.DOTALL,
    )


def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise UserError('the pages need jinja2: pip install "txcourse[grading]"') from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("txcourse.grading"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"points": points, "without_values": without_values, "in_words": IN_WORDS.get}
    return environment


def write_all(results: Results, out: Path) -> None:
    """Write grades.csv, results.json, class.html and feedback/ into `out`; each file in one step.

    Raises:
        UserError: a file cannot be written, or jinja2 is not there.
    """
    found = results.to_dict()
    write(out / "grades.csv", "\ufeff" + table(grades(results)))
    write(out / "results.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    pages = _environment()
    hints = {asked.name: asked.exercise.hints for asked in results.assignment.asked}
    page = pages.get_template("feedback.html")
    for each, student in zip(results.graded, found["students"], strict=True):
        if each.result is not None:
            text = page.render(
                assignment=found["assignment"],
                student=student,
                max_points=results.assignment.max_points,
                hints=hints,
            )
            _write_if_new(out / student["feedback"], text)
    done = [each for each in results.graded if _state(each) == "graded" and each.result]
    totals = [each.result["points"] for each in done if each.result]
    write(
        out / "class.html",
        pages.get_template("class.html").render(
            **found,
            totals=totals,
            mean=mean(totals) if totals else None,
            median=median(totals) if totals else None,
            exercises=sorted(found["class"], key=_share_passed),
            pending=results.pending,
            levels=sorted({s["isolation"] for s in found["students"] if s["exercises"] and s["isolation"]}),
        ),
    )


def _write_if_new(file: Path, text: str) -> None:
    try:
        if file.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write(file, text)


def _share_passed(exercise: dict[str, Any]) -> float:
    return exercise["statuses"].get("passed", 0) / max(sum(exercise["statuses"].values()), 1)
