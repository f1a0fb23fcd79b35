"""Find what was handed in: notebooks in folders and zips of any depth, whose they are, and when they came.

Nothing is unpacked to disk, no link is followed, and every size is bounded; what cannot be read is a problem of that
submission and never of the run. Known layouts: Moodle, Canvas and Gradescope exports, nbgrader's `submitted/`.
"""

import csv
import hashlib
import io
import lzma
import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from txcourse.errors import UserError

LARGEST = 256 * 2**20  # bytes of a notebook, unpacked
LARGEST_ZIP = 32 * 2**20  # bytes of a zip inside a zip or folder
MOST_FILES = 1000  # in one student's zip
DEEPEST = 3  # zips inside zips

_BAD_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)  # fmt: skip


class Unreadable(Exception):
    """Why a file cannot be graded, in one sentence."""


# Students


@dataclass(frozen=True)
class Student:
    """`id` names the student in every file of the results; `name` and `email` are empty where nothing gives them."""

    id: str
    name: str = ""
    email: str = ""

    @property
    def slug(self) -> str:
        """A file name of this student's own, on every system."""
        plain = re.sub(r"[^a-z0-9]+", "-", unicodedata.normalize("NFKD", self.id).lower()).strip("-")[:40]
        if plain == self.id and not re.fullmatch(r"con|prn|aux|nul|(com|lpt)\d", plain):
            return plain
        return f"{plain or 'student'}-{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


def clean(text: str) -> str:
    """A name that can be printed and written: no control signs, no line breaks, valid Unicode. Where something had to
    go, a mark of the original stands behind it, so that two names stay two."""
    whole = unicodedata.normalize("NFC", text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if _encodes(text) else "?")  # fmt: skip
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in whole)
    kept = "".join(c for c in kept if unicodedata.category(c) not in ("Cs", "Co", "Cn") and c not in _BIDI)
    kept = " ".join(kept.split())[:200]
    if kept == whole:
        return kept
    return f"{kept}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


_BIDI = frozenset(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # they turn the text behind them round


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
        return True
    except UnicodeEncodeError:
        return False


@dataclass
class Roster:
    """The students of a course, found by what names them: id, login, e-mail, name, or the file's own column."""

    students: list[Student]
    _names: dict[str, Student | None] = field(default_factory=dict)  # None: two students have it

    def find(self, parts: Iterable[str]) -> Student | None:
        """The student that a part of a path names: as a whole, else as a piece of it such as an id."""
        parts = list(parts)
        for part in parts:
            if student := self._names.get(same_name(part)):
                return student
        pieces = {piece for part in parts for piece in re.split(r"[^\w@.+-]+|_", part) if len(piece) >= 4}
        found = {student for piece in pieces if (student := self._names.get(same_name(piece)))}
        return found.pop() if len(found) == 1 else None


def same_name(name: str) -> str:
    """What two ways of writing a name have in common."""
    return re.sub(r"[\s,]+", "", unicodedata.normalize("NFKC", name).casefold())


_COLUMNS = {
    "id": ("id", "studentid", "sid", "idnumber", "sisuserid", "matriculationnumber", "studentnumber", "userid"),
    "name": ("name", "student", "fullname", "studentname"),
    "email": ("email", "e-mail", "emailaddress", "mail"),
    "first": ("firstname", "givenname"),
    "last": ("lastname", "surname", "familyname"),
    "other": ("login", "username", "user", "sisloginid", "loginid", "file", "folder", "submission", "identifier"),
}  # fmt: skip


def read_roster(file: Path) -> Roster:
    """The roster of a CSV file whose first line names its columns: id, name, email; also login, file, first and last
    name. One of id, email and name has to be there; the first that is, is the student's id in the results.

    Raises:
        UserError: it cannot be read, has no such column, or an id twice.
    """
    rows = read_table(file)[1]
    row: list[str]
    head = [same_name(title).replace("_", "") for title in rows[0]] if rows else []
    column = {key: [i for i, title in enumerate(head) if title in titles] for key, titles in _COLUMNS.items()}
    if not (column["id"] or column["email"] or column["name"] or column["last"]):
        raise UserError(f"{file}: the first line has to name the columns: id, name, email")
    roster = Roster([])
    lines: dict[str, int] = {}
    for number, row in enumerate(rows[1:], 2):
        value = {key: " ".join(row[places[0]].split()) if places and places[0] < len(row) else "" for key, places in column.items()}  # fmt: skip
        name = value["name"] or f"{value['first']} {value['last']}".strip()
        own = clean(value["id"] or value["email"] or name)
        if not own:
            continue
        if own in lines:
            raise UserError(f"{file}: {own} stands in line {lines[own]} and in line {number}")
        lines[own] = number
        student = Student(own, clean(name), clean(value["email"]))
        roster.students.append(student)
        names = [own, value["email"], value["email"].split("@")[0], name, _turned(name), *(row[i] for i in column["other"] if i < len(row))]  # fmt: skip
        for each in {same_name(n) for n in names if n.strip()}:
            known = roster._names.get(each, student)
            roster._names[each] = student if known == student else None
    return roster


def _turned(name: str) -> str:
    """'Ada King Lovelace' → 'Lovelace Ada King', and 'Lovelace, Ada King' → 'Ada King Lovelace'."""
    if "," in name:
        last, first = name.split(",", 1)
        return f"{first} {last}"
    words = name.split()
    return " ".join([*words[-1:], *words[:-1]])


def read_table(file: Path) -> tuple[str, list[list[str]]]:
    """The delimiter and the rows of a CSV file as spreadsheets write them: UTF-8, UTF-16 or cp1252; comma, semicolon or tab.

    Raises:
        UserError: it cannot be read.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    text = decoded(raw)
    if text is None:
        text = raw.decode("cp1252", "replace")  # what spreadsheets write that know no UTF-8
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    try:
        return delimiter, list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise UserError(f"{file} is no CSV file: {error}") from error


def decoded(raw: bytes) -> str | None:
    """Text in UTF-8 or UTF-16, with or without a mark in front; None when it is neither."""
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        return None


# Files


@dataclass(frozen=True)
class File:
    """A file of a submission: a path, and the way through zips inside it; `problem` says why it cannot be read."""

    path: Path
    members: tuple[int, ...] = ()  # the number of the entry, zip by zip
    label: str = ""  # as the instructor knows it, cleaned
    time: datetime | None = None
    problem: str | None = None

    def open(self) -> bytes:
        """Its content.

        Raises:
            Unreadable: too large, no ordinary file, a broken zip, no permission.
        """
        if self.problem:
            raise Unreadable(self.problem)
        try:
            if not self.members:
                return _read_plain(self.path, LARGEST)
            data: Any = self.path
            for depth, number in enumerate(self.members):
                limit = LARGEST if depth == len(self.members) - 1 else LARGEST_ZIP
                with zipfile.ZipFile(data) as archive, archive.open(archive.infolist()[number]) as member:
                    content = member.read(limit + 1)
                if len(content) > limit:
                    raise Unreadable(f"is larger than {limit // 2**20} MiB when unpacked")
                data = io.BytesIO(content)
            return content
        except _BAD_ZIP as error:
            raise Unreadable(_why(error)) from error


def _read_plain(path: Path, limit: int) -> bytes:
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    with open(os.open(path, flags), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise Unreadable("is no ordinary file")
        if info.st_size > limit:
            raise Unreadable(f"is larger than {limit // 2**20} MiB")
        return file.read(limit)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if "password" in str(error) or "encrypted" in str(error):
        return "is in a zip that asks for a password"
    return f"is in a zip that cannot be unpacked ({type(error).__name__})"


@dataclass(frozen=True)
class _Found:
    """A file with the names on the way to it, from the folder or zip that was given."""

    file: File
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""


def _walk(folder: Path, without: Path | None = None, parts: tuple[str, ...] = ()) -> Iterator[_Found]:
    """Every file below a folder; folders without anything are files with a problem."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield _Found(File(folder, problem=f"cannot be read: {error.strerror}"), parts)
        return
    entries = [e for e in entries if not _skipped(e.name) and folder / e.name != without]
    if not entries and parts:
        problem = (
            "is an empty folder, not a notebook" if parts[-1].endswith(".ipynb") else "is an empty folder"
        )
        yield _Found(File(folder, problem=problem), parts)
    for entry in entries:
        here, path = (*parts, entry.name), folder / entry.name
        if entry.is_symlink():
            yield _Found(File(path, problem="is a link, not a file"), here)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(path, without, here)
        elif not entry.is_file(follow_symlinks=False):
            yield _Found(File(path, problem="is no ordinary file"), here)
        else:
            file = File(
                path, time=datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_mtime).astimezone()
            )
            yield from _inside(file, here) if entry.name.lower().endswith(".zip") else [_Found(file, here)]


def _inside(file: File, parts: tuple[str, ...], top: bool = False) -> Iterator[_Found]:
    """The files of a zip; the zip itself with a problem when it cannot be read."""
    try:
        if not top and len(file.members) >= DEEPEST:
            raise Unreadable("holds zips inside zips inside zips")
        data: Any = (
            file.path
            if top
            else io.BytesIO(file.open() if file.members else _read_plain(file.path, LARGEST_ZIP))
        )
        with zipfile.ZipFile(data) as archive:
            entries = archive.infolist()
    except Unreadable as error:
        yield _Found(replace(file, problem=str(error)), parts)
        return
    except _BAD_ZIP as error:
        yield _Found(replace(file, problem=_why(error)), parts)
        return
    if not top and len(entries) > MOST_FILES:
        yield _Found(replace(file, problem=f"is a zip of more than {MOST_FILES} files"), parts)
        return
    if not entries and not top:
        yield _Found(replace(file, problem="is an empty zip"), parts)
    for number, entry in enumerate(entries):
        names = tuple(p for p in re.split(r"[/\\]+", entry.filename) if p not in ("", ".", ".."))
        if entry.is_dir() or not names or any(map(_skipped, names)):
            continue
        inner = File(file.path, (*file.members, number), time=_zip_time(entry))
        here = (*parts, *names)
        if stat.S_ISLNK(entry.external_attr >> 16):
            yield _Found(replace(inner, problem="is a link, not a file"), here)
        elif names[-1].lower().endswith(".zip"):
            yield from _inside(inner, here)
        else:
            yield _Found(inner, here)


def _zip_time(entry: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*entry.date_time).astimezone() if entry.date_time[0] > 1980 else None
    except (ValueError, OSError, OverflowError):
        return None


def _skipped(name: str) -> bool:
    return name in (".ipynb_checkpoints", "__MACOSX", "__pycache__", "Thumbs.db") or name.startswith(
        (".", "~$")
    )


# Submissions


@dataclass(frozen=True)
class Submission:
    """What one student handed in; `files` oldest first. `submitted` is the latest of their times."""

    student: Student
    files: tuple[File, ...] = ()
    submitted: datetime | None = None
    late: bool | None = None  # None: nothing to tell it by
    problems: tuple[str, ...] = ()
    listed: bool = True  # in the roster, or there is none


def find(
    place: Path, roster: Roster | None = None, due: datetime | None = None, without: Path | None = None
) -> list[Submission]:
    """Every submission in a notebook, folder or zip, and an empty one for each student of the roster without, by id.
    The folder `without` is left out: results that lie among the submissions.

    Raises:
        UserError: nothing there, or nothing that could be a submission.
    """
    if not place.exists():
        raise UserError(f"there is no {place}")
    if place.is_dir():
        found = list(_walk(place.resolve(), without.resolve() if without else None))
    elif zipfile.is_zipfile(place):
        found = list(_inside(File(place.resolve()), (), top=True))
    else:
        file = File(place.resolve(), time=datetime.fromtimestamp(place.stat().st_mtime).astimezone())
        found = [_Found(file, (place.name,))]
    groups = _grouped(found, roster)
    students = roster.students if roster else []
    if not groups and not students:
        raise UserError(f"{place} holds no notebook, and no folder of a student's")
    stamps = _stamps(found)
    ids = {student.id for student, _ in groups}
    empty = [Submission(s, problems=("nothing was handed in",)) for s in students if s.id not in ids]
    made = [_submission(student, group, stamps, due, roster) for student, group in groups]
    return sorted([*made, *empty], key=lambda s: (_natural(s.student.id), s.student.id))


def of_one_student(place: Path) -> Submission:
    """All notebooks in a folder as one submission."""
    return _submission(Student("submission"), list(_walk(place.resolve())), {}, None, None)


_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_\w+?_(?:.*)", re.DOTALL)
_CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_.+", re.DOTALL)
_COPY = re.compile(r"^(.+?)(?: ?\(\d+\)| copy(?: \d+)?| - Copy(?: \(\d+\))?)$", re.DOTALL)


def _grouped(found: list[_Found], roster: Roster | None) -> list[tuple[Student, list[_Found]]]:
    """Whose is what. A layout of an LMS says it; else a file's name does, or its folder's where names are shared."""
    gradescope = _gradescope(found)
    folders = _personal_folders(found)
    stems = {(*f.parts[:-1], _stem(f.name)) for f in found if _is_notebook(f)}
    groups: dict[str, tuple[Student, list[_Found]]] = {}
    for f in found:
        if f.name in ("timestamp.txt", "submission_metadata.yml") and not f.file.problem:
            continue
        told = _told(f, gradescope)
        folder = next((f.parts[:n] for n in range(len(f.parts), 0, -1) if f.parts[:n] in folders), None)
        if told is not None:
            student, keys = told, [told.id, told.name, told.email]
        elif folder is not None:
            student, keys = Student(clean("/".join(map(_stem, folder)))), []
        elif _is_notebook(f) or f.name.lower().endswith(".zip"):
            stem = _stem(f.name)
            copied = _COPY.fullmatch(stem)
            stem = copied[1] if copied and (*f.parts[:-1], copied[1]) in stems else stem
            student, keys = Student(clean(stem)), []
        else:
            continue  # a file beside the submissions
        if roster is not None:
            names = [_COPY.sub(r"\1", _stem(part)) for part in reversed(f.parts)]
            student = roster.find([key for key in keys if key] + names) or student
        groups.setdefault(student.id, (student, []))[1].append(f)
    return list(groups.values())


def _told(f: _Found, gradescope: dict[str, Student]) -> Student | None:
    """The student that the layout of an LMS's export names."""
    for i, part in enumerate(f.parts):
        if part in gradescope:
            return gradescope[part]
        if match := _MOODLE.fullmatch(part if i == len(f.parts) - 1 else part + "_"):
            return Student(match["id"], clean(match["name"]))
        if part == "submitted" and len(f.parts) > i + 2:
            return Student(clean(f.parts[i + 1]))
    if match := _CANVAS.fullmatch(f.name):
        return Student(match["id"], clean(match["name"]))
    return None


def _gradescope(found: list[_Found]) -> dict[str, Student]:
    """Folder → student, from the file that Gradescope puts beside the folders."""
    students: dict[str, Student] = {}
    for f in found:
        if f.name == "submission_metadata.yml":
            try:
                text = f.file.open().decode("utf-8", "replace")
            except Unreadable:
                continue
            for folder, block in _blocks(text):
                value = {key: _yaml(block, key) for key in ("sid", "name", "email")}
                own = clean(value["sid"] or value["email"] or value["name"])
                if own:
                    students[folder] = Student(own, clean(value["name"]), clean(value["email"]))
    return students


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The parts of Gradescope's file by folder."""
    for block in re.split(r"^(?=submission_\d+:)", text, flags=re.MULTILINE):
        if block.startswith("submission_"):
            yield block.split(":", 1)[0], block


def _yaml(block: str, key: str) -> str:
    """The first value of a key. Gradescope's keys are Ruby's, `:name: Ada`."""
    match = re.search(rf"^\s*-?\s*:{key}:[ \t]*(.*)$", block, re.MULTILINE)
    value = match[1].strip() if match else ""
    return "" if value in ("null", "~") else value.strip("\"'")


def _is_notebook(f: _Found) -> bool:
    return f.name.lower().endswith(".ipynb")


def _stem(name: str) -> str:
    return re.sub(r"\.(ipynb|zip)$", "", name, flags=re.IGNORECASE)


def _personal_folders(found: list[_Found]) -> set[tuple[str, ...]]:
    """The folders (and zips) that each hold one student's files: where a notebook has the name of one of the course, or
    a name that other folders have too; zips whose notebooks lie together; and beside such folders those without any."""
    from txcourse import exercises

    course = {exercises.get(name).notebook for name in exercises.names()}
    course |= {name.split("_", 1)[1] for name in course}
    notebooks = [f for f in found if _is_notebook(f) and len(f.parts) > 1]
    shared: dict[str, set[tuple[str, ...]]] = {}
    for f in notebooks:
        stem = _stem(f.name)
        copied = _COPY.fullmatch(stem)
        shared.setdefault(copied[1] if copied else stem, set()).add(f.parts[:-1])
    folders = {
        where for stem, places in shared.items() if len(places) > 1 or stem in course for where in places
    }
    folders |= _personal_zips(notebooks, alone=len(notebooks) == sum(map(_is_notebook, found)))
    folders |= {
        f.parts[:n]
        for f in found
        for n in range(1, len(f.parts))
        if f.parts[n - 1].lower().endswith(".ipynb")
    }
    # A folder inside a student's folder is the student's too.
    folders = {f for f in folders if not any(f[:n] in folders for n in range(1, len(f)))}
    depths = {len(folder) for folder in folders} or ({1} if not any(map(_is_notebook, found)) else set())
    holding = {f.parts[:n] for f in notebooks for n in range(1, len(f.parts))}
    for f in found:
        place = f.parts if f.file.problem and "folder" in f.file.problem else f.parts[:-1]
        for depth in depths:
            if len(place) >= depth and place[:depth] not in holding:
                folders.add(place[:depth])
    return folders


def _stamps(found: list[_Found]) -> dict[tuple[str, ...], datetime]:
    """Folder → when it came, as nbgrader and Gradescope write it down."""
    stamps = {}
    for f in found:
        if f.name not in ("timestamp.txt", "submission_metadata.yml"):
            continue
        try:
            text = f.file.open()[: 2**24].decode("utf-8", "replace")
        except Unreadable:
            continue
        if f.name == "timestamp.txt":
            stamps[f.parts[:-1]] = _moment(text)
        else:
            for folder, block in _blocks(text):
                stamps[(*f.parts[:-1], folder)] = _moment(_yaml(block, "created_at"))
    return {place: time for place, time in stamps.items() if time}


def _moment(text: str) -> datetime | None:
    """2027-03-01 15:58:23.948203 UTC, or with Z or +01:00; without any, UTC."""
    match = re.match(r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)\S*?\s*(Z|UTC|[+-]\d\d:?\d\d)?\s*$", text)
    try:
        zone = match[3] if match and match[3] not in (None, "Z", "UTC") else "+00:00"
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").astimezone() if match else None
    except (ValueError, OverflowError):
        return None


def _personal_zips(notebooks: list[_Found], alone: bool) -> set[tuple[str, ...]]:
    """The zips that are each one student's: all, but for a single one that holds the notebooks of all (an export)."""

    def around(f: _Found) -> list[tuple[str, ...]]:
        return [f.parts[:n] for n in range(1, len(f.parts)) if f.parts[n - 1].lower().endswith(".zip")]

    zips = [around(f) for f in notebooks]
    outer = {places[0] for places in zips if places}
    if len(outer) == 1 and len(notebooks) > 1 and alone and all(zips):
        return {places[1] for places in zips if len(places) > 1}
    return outer


def _submission(
    student: Student,
    group: list[_Found],
    stamps: dict[tuple[str, ...], datetime],
    due: datetime | None,
    roster: Roster | None,
) -> Submission:
    notebooks = [f for f in group if _is_notebook(f) or f.file.problem]
    files = []
    for f in notebooks:
        told = next((stamps[f.parts[:n]] for n in range(len(f.parts), -1, -1) if f.parts[:n] in stamps), None)
        files.append(replace(f.file, label=clean("/".join(f.parts)), time=told or f.file.time))
    files.sort(key=lambda file: (file.time.timestamp() if file.time else 0.0, _natural(file.label)))
    problems = [f"{file.label} {file.problem}" for file in files if file.problem]
    if not notebooks:
        others = ", ".join(sorted(clean(f.name) for f in group)[:5])
        problems.append(f"no notebook was handed in, only {others}")
    times = [file.time for file in files if file.time]
    submitted = max(times) if times else None
    late = submitted > due if submitted and due else None
    if any((match := _CANVAS.fullmatch(f.name)) and match["late"] for f in group):
        late = True
    listed = roster is None or student in roster.students
    return Submission(student, tuple(files), submitted, late, tuple(problems), listed)


def _natural(label: str) -> list[tuple[int, str]]:
    """So that 10 comes after 9."""
    return [
        (int(piece), "") if piece.isdecimal() and len(piece) < 20 else (-1, piece)
        for piece in re.split(r"(\d+)", label)
    ]
