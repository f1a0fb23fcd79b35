"""Marks for an LMS: the table that the instructor exported from it, filled and otherwise as it was."""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from txcourse.errors import UserError
from txcourse.grading.results import IN_WORDS, points, table, without_values
from txcourse.grading.submissions import read_table, same_name
from txcourse.learner.workspace import write

Student = dict[str, Any]


def read_results(folder: Path) -> dict[str, Any]:
    """results.json of a folder of `txcourse grade`.

    Raises:
        UserError: there is none.
    """
    try:
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        assert found["format"] == 1
        return found
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise UserError(f"{folder} holds no results; run `txcourse grade` first, or name its folder with --results") from None  # fmt: skip


class _Table:
    """A CSV file of an LMS; `matched` notes which students it had a row for."""

    def __init__(self, file: Path, students: list[Student]):
        self.delimiter, self.rows = read_table(file)
        self.file, self.students = file, students
        self.head = [title.strip() for title in self.rows[0]] if self.rows else []
        self.matched: set[str] = set()
        self.filled = 0

    def column(self, *titles: str) -> int | None:
        """The first column with one of these titles."""
        low = [title.casefold() for title in self.head]
        return next((low.index(title.casefold()) for title in titles if title.casefold() in low), None)

    def need(self, *titles: str) -> int:
        found = self.column(*titles)
        if found is None:
            raise UserError(f"{self.file} has no column {titles[0]!r}; export the table in English, and do not change its first line")  # fmt: skip
        return found

    def students_of(self, rows: list[list[str]], ways: Iterable[tuple[int | None, Callable[[Student], Iterable[str]]]]) -> Iterator[tuple[list[str], Student]]:  # fmt: skip
        """Each of the rows with its student. Of `ways` (a column, and what of a student it may hold) the first counts
        that finds one for any row; what two rows or two students share finds nobody, so no student gets another's."""
        found: dict[int, Student] = {}
        for column, names in ways:
            holders: dict[str, list[Student]] = {}
            for student in self.students:
                for name in {same_name(name) for name in names(student)} - {""}:
                    holders.setdefault(name, []).append(student)
            values = [
                same_name(row[column]) if column is not None and column < len(row) else "" for row in rows
            ]
            for number, value in enumerate(values):
                those = holders.get(value, [])
                if number not in found and len(those) == values.count(value) == 1 and those[0]["id"] not in self.matched:  # fmt: skip
                    found[number] = those[0]
                    self.matched.add(those[0]["id"])
        yield from ((rows[number], student) for number, student in found.items())

    def set(self, row: list[str], column: int, value: str) -> None:
        row += [""] * (column + 1 - len(row))
        row[column] = value

    def save(self, out: Path, where: str) -> list[str]:
        """Write the table and say what was done."""
        write(out, "\ufeff" + table(self.rows, self.delimiter))
        lines = [f"{out}: {self.filled} marks in {where}"]
        without = [s["id"] for s in self.students if s["id"] not in self.matched]
        if without:
            lines.append(f"no row for, or more than one: {', '.join(without)}")
        blank = [s["id"] for s in self.students if s["id"] in self.matched and not _has_mark(s)]
        if blank:
            lines.append(f"left as they were, since nothing was graded: {', '.join(blank)}")
        return lines


def _has_mark(student: Student) -> bool:
    return student["state"] == "graded"


def _by_name(student: Student) -> list[str]:
    words = student["name"].replace(",", " ").split()
    return [
        student["name"],
        student["id"],
        " ".join([*words[-1:], *words[:-1]]),
        " ".join([*words[1:], *words[:1]]),
    ]


def canvas(results: Path, file: Path, column: str | None, out: Path) -> list[str]:
    """Fill one column of the gradebook that Canvas exported. `column`: its title, with or without Canvas's number;
    without, that of the assignment. Excused students and all other columns stay as they are.

    Raises:
        UserError: no results, no gradebook, no such column.
    """
    found = read_results(results)
    book = _Table(file, found["students"])
    if not book.head or "student" not in book.head[0].casefold():
        raise UserError(f"{file} is no gradebook of Canvas: its first column should be Student")
    place = _canvas_column(book, column or found["assignment"]["title"])
    ways = [
        (book.column("ID"), lambda s: [s["id"]]),
        (book.column("SIS User ID"), lambda s: [s["id"]]),
        (book.column("SIS Login ID"), lambda s: [s["id"], s["email"], s["email"].split("@")[0]]),
        (0, _by_name),
    ]
    rows = [row for row in book.rows[1:] if row and row[0].strip().casefold() != "points possible"]
    for row, student in book.students_of(rows, ways):
        excused = place < len(row) and row[place].strip().upper() == "EX"
        if _has_mark(student) and not excused:
            book.set(row, place, points(student["points"]))
            book.filled += 1
    return book.save(out, f"the column {book.head[place]!r}")


def _canvas_column(book: _Table, title: str) -> int:
    wanted = title.strip().casefold()
    titles = [re.sub(r"\s*\(\d+\)$", "", head).casefold() for head in book.head]
    found = [i for i, head in enumerate(book.head) if wanted in (head.casefold(), titles[i])]
    if len(found) == 1:
        return found[0]
    marks = [head for head in book.head if re.search(r"\(\d+\)$", head)]
    raise UserError(f"name the column to fill with --column; {book.file} has: {', '.join(marks) or 'none with a number of Canvas'}")  # fmt: skip


def moodle(results: Path, file: Path, out: Path) -> list[str]:
    """Fill Grade and Feedback comments of Moodle's offline grading worksheet. Where Moodle's maximum is another than
    the assignment's, points are scaled to it.

    Raises:
        UserError: no results, or no worksheet.
    """
    found = read_results(results)
    sheet = _Table(file, found["students"])
    grade, comments = sheet.need("Grade"), sheet.column("Feedback comments")
    most, locked = sheet.column("Maximum grade"), sheet.column("Grade can be changed")
    number = sheet.need("Identifier")
    ways = [
        (number, lambda s: [s["id"], f"Participant {s['id']}"]),
        (sheet.column("ID number"), lambda s: [s["id"]]),
        (sheet.column("Email address"), lambda s: [s["email"], s["id"]]),
        (sheet.column("Full name"), _by_name),
    ]
    ours, scaled, fixed = found["assignment"]["max_points"], "", []
    for row, student in sheet.students_of(sheet.rows[1:], ways):
        if not _has_mark(student):
            continue
        if locked is not None and locked < len(row) and row[locked].strip().casefold() == "no":
            fixed.append(student["id"])
            continue
        value, text = student["points"], row[most] if most is not None and most < len(row) else ""
        theirs = _decimal(text)
        if theirs and ours and theirs != ours:
            value, scaled = value * theirs / ours, f", scaled from {points(ours)} to {points(theirs)} points"
        sheet.set(row, grade, points(value).replace(".", "," if "," in text else "."))
        if comments is not None:
            sheet.set(row, comments, comment(student, ours))
        sheet.filled += 1
    lines = sheet.save(out, f"the columns Grade and Feedback comments{scaled}")
    return [*lines, f"Moodle does not let these be changed: {', '.join(fixed)}"] if fixed else lines


def _decimal(text: str) -> float | None:
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None


def comment(student: Student, most: float) -> str:
    """The feedback of one student in one paragraph of HTML, as Moodle shows it."""
    said = [f"{points(student['points'])} of {points(most)} points."]
    for e in student["exercises"]:
        told = "" if e["status"] == "passed" else f": {without_values(e['message'])}"
        said.append(
            f"{e['name']} ({points(e['points'])} of {points(e['max_points'])}): {IN_WORDS[e['status']]}{told}"
        )
    said += [f"{problem}." for problem in student["problems"]]
    return "<br>".join(html.escape(" ".join(each.split())) for each in said)
