"""Whose is what, and when it came: every layout, every file that cannot be read."""

import io
import os
import zipfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from tests.grading.making import text
from txcourse.errors import UserError
from txcourse.grading import notebook as reading
from txcourse.grading import submissions
from txcourse.grading.notebook import cells_of
from txcourse.grading.submissions import File, Student, Unreadable, clean, find, read_roster

NOTEBOOK = text("a = 1")
Tree = Mapping[str, "str | bytes"]


def tree(folder: Path, files: Tree) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def zipped(files: Tree) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def ids(place: Path, **more: object) -> list[str]:
    return [s.student.id for s in find(place, **more)]  # type: ignore[arg-type]


LAYOUTS = {
    "files": ({"ada.ipynb": NOTEBOOK, "bob.ipynb": NOTEBOOK, "README.txt": "x"}, ["ada", "bob"]),
    "folders": ({"ada/03_attention.ipynb": NOTEBOOK, "bob/03_attention.ipynb": NOTEBOOK}, ["ada", "bob"]),
    "folders and other names": ({"ada/hw.ipynb": NOTEBOOK, "bob/hw.ipynb": NOTEBOOK, "bob/try.ipynb": NOTEBOOK}, ["ada", "bob"]),
    "one folder": ({"ada/attention.ipynb": NOTEBOOK}, ["ada"]),
    "sections": ({"1/ada.ipynb": NOTEBOOK, "2/bob.ipynb": NOTEBOOK}, ["ada", "bob"]),
    "deep": ({"1/ada/hw.ipynb": NOTEBOOK, "1/bob/hw.ipynb": NOTEBOOK}, ["1/ada", "1/bob"]),
    "deeper in it": ({"ada/hw.ipynb": NOTEBOOK, "bob/hw.ipynb": NOTEBOOK, "bob/old/x/hw.ipynb": NOTEBOOK}, ["ada", "bob"]),
    "nothing in one": ({"ada/hw.ipynb": NOTEBOOK, "bob/hw.ipynb": NOTEBOOK, "cy/hw.pdf": "x"}, ["ada", "bob", "cy"]),
    "only other files": ({"ada/hw.pdf": "x", "bob/hw.pdf": "x"}, ["ada", "bob"]),
    "a copy": ({"ada.ipynb": NOTEBOOK, "ada (1).ipynb": NOTEBOOK, "bob (1).ipynb": NOTEBOOK}, ["ada", "bob (1)"]),
    "a zip of all": ({"all.zip": zipped({"ada/x.ipynb": NOTEBOOK, "bob/x.ipynb": NOTEBOOK, "cy.zip": zipped({"q.ipynb": NOTEBOOK})})}, ["all/ada", "all/bob", "all/cy"]),
    "zips": ({"ada.zip": zipped({"hw/hw.ipynb": NOTEBOOK, "old/try.ipynb": NOTEBOOK}), "bob.zip": zipped({"x.ipynb": NOTEBOOK})}, ["ada", "bob"]),
    "moodle": ({"Ada King_123_assignsubmission_file_/hw.ipynb": NOTEBOOK, "Bob_9_assignsubmission_file_my.ipynb": NOTEBOOK}, ["9", "123"]),
    "moodle text": ({"Ada King_123_assignsubmission_onlinetext_/onlinetext.html": "x"}, ["123"]),
    "canvas": ({"kingada_LATE_55_901_03_attention.ipynb": NOTEBOOK, "bob_56_902_hw-1.ipynb": NOTEBOOK}, ["55", "56"]),
    "nbgrader": ({"submitted/ada/ps1/hw.ipynb": NOTEBOOK, "submitted/ada/ps1/timestamp.txt": "2027-03-01 15:58:23.9 UTC"}, ["ada"]),
    "hidden": ({"ada.ipynb": NOTEBOOK, ".ipynb_checkpoints/ada.ipynb": NOTEBOOK, "__MACOSX/._ada.ipynb": "x"}, ["ada"]),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whose_is_what(tmp_path: Path, layout: str, packed: bool) -> None:
    files, wanted = LAYOUTS[layout]
    if packed:
        place = tmp_path / "export.zip"
        place.write_bytes(zipped(files))
    else:
        place = tree(tmp_path / "in", files)
    assert ids(place) == wanted


def test_one_notebook(tmp_path: Path) -> None:
    tree(tmp_path, {"ada.ipynb": NOTEBOOK})
    (found,) = find(tmp_path / "ada.ipynb")
    assert found.student.id == "ada" and found.files[0].open() == NOTEBOOK.encode()


def test_gradescope(tmp_path: Path) -> None:
    metadata = """---
submission_11:
  :submitters:
  - :name: Ada "the first" King
    :sid: '0071'
    :email: ada@example.org
  :created_at: 2027-03-01 10:00:00.123456789 Z
  :score: 0.0
submission_12:
  :submitters:
  - :name: Bob
    :sid: null
    :email: bob@example.org
  :created_at: 2027-03-01 12:00:00.000000000 Z
"""
    files = {
        "submission_metadata.yml": metadata,
        "submission_11/hw.ipynb": NOTEBOOK,
        "submission_12/hw.ipynb": NOTEBOOK,
    }
    place = tree(tmp_path, {f"assignment_5_export/{name}": content for name, content in files.items()})
    ada, bob = find(place, due=datetime.fromisoformat("2027-03-01T11:00:00+00:00"))
    assert ada.student == Student("0071", 'Ada "the first" King', "ada@example.org")
    assert bob.student == Student("bob@example.org", "Bob", "bob@example.org")
    assert (ada.late, bob.late) == (False, True)


def test_what_tells_that_something_is_late(tmp_path: Path) -> None:
    due = datetime.fromisoformat("2027-03-01T11:00:00+00:00")
    tree(
        tmp_path,
        {
            "submitted/ada/ps1/hw.ipynb": NOTEBOOK,
            "submitted/ada/ps1/timestamp.txt": "2027-03-01 15:58:23.9 UTC",
        },
    )
    (ada,) = find(tmp_path, due=due)
    assert ada.late and ada.submitted == datetime.fromisoformat("2027-03-01T15:58:23+00:00")
    assert find(tmp_path)[0].late is None
    tree(tmp_path / "canvas", {"ada_LATE_55_901_x.ipynb": NOTEBOOK, "bob_56_902_x.ipynb": NOTEBOOK})
    os.utime(tmp_path / "canvas" / "bob_56_902_x.ipynb", (due.timestamp() - 1, due.timestamp() - 1))
    assert [s.late for s in find(tmp_path / "canvas", due=due)] == [True, False]


def test_the_newest_file_comes_last(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "ada/hw.ipynb": NOTEBOOK,
            "ada/hw (1).ipynb": NOTEBOOK,
            "ada/hw (10).ipynb": NOTEBOOK,
            "bob/hw.ipynb": NOTEBOOK,
        },
    )
    for file in (tmp_path / "ada").iterdir():
        os.utime(file, (10**9, 10**9))
    os.utime(tmp_path / "ada" / "hw.ipynb", (10**9 + 5, 10**9 + 5))
    ada = find(tmp_path)[0]
    assert [file.label for file in ada.files] == ["ada/hw (1).ipynb", "ada/hw (10).ipynb", "ada/hw.ipynb"]


def test_results_among_the_submissions(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "ada/hw.ipynb": NOTEBOOK,
            "bob/hw.ipynb": NOTEBOOK,
            "results/grades.csv": "x",
            "s10.ipynb": NOTEBOOK,
            "s9.ipynb": NOTEBOOK,
        },
    )
    assert ids(tmp_path, without=tmp_path / "results") == ["ada", "bob", "s9", "s10"]


# roster


@pytest.mark.parametrize(
    "name",
    ["1001.ipynb", "ADA.King@example.org.ipynb", "ada.king/hw.ipynb", "King, Ada/hw.ipynb", "Ada King (2).ipynb",
     "hw_1001.ipynb", "kingada_77_901_hw.ipynb", "Ada King_5_assignsubmission_file_/x.ipynb", "submitted/1001/ps/x.ipynb", "1001.zip",
     "group7/x.ipynb", "section/adak/x.ipynb"],
)  # fmt: skip
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_roster_finds_the_student(tmp_path: Path, name: str, delimiter: str) -> None:
    roster = "Student ID,Name,Email,Login,Folder\n1001,Ada King,ada.king@example.org,adak,group7\n1002,Bob,bob@example.org,bob,\n"
    (tmp_path / "roster.csv").write_text("\ufeff" + roster.replace(",", delimiter))
    tree(tmp_path / "in", {name: zipped({"hw.ipynb": NOTEBOOK}) if name.endswith("zip") else NOTEBOOK})
    ada, bob = find(tmp_path / "in", read_roster(tmp_path / "roster.csv"))
    assert ada.student == Student("1001", "Ada King", "ada.king@example.org") and len(ada.files) == 1
    assert bob.problems == ("nothing was handed in",)


def test_two_files_for_one_student_of_the_roster(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("id,name\n1001,Ada King\n")
    tree(tmp_path / "in", {"1001.ipynb": NOTEBOOK, "Ada King.ipynb": NOTEBOOK, "eve.ipynb": NOTEBOOK})
    ada, eve = find(tmp_path / "in", read_roster(tmp_path / "roster.csv"))
    assert len(ada.files) == 2 and ada.listed and not eve.listed


def test_a_name_that_two_have_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("id,first name,last name\n1,Ada,King\n2,Ada,King\n")
    tree(tmp_path / "in", {"Ada King.ipynb": NOTEBOOK})
    assert ids(tmp_path / "in", roster=read_roster(tmp_path / "roster.csv")) == ["1", "2", "Ada King"]


@pytest.mark.parametrize("roster", ["", "colour\nred\n", "id\n1\n1\n", '"'])
def test_a_roster_that_is_none(tmp_path: Path, roster: str) -> None:
    (tmp_path / "roster.csv").write_text(roster)
    with pytest.raises(UserError):
        read_roster(tmp_path / "roster.csv")
    with pytest.raises(UserError):
        read_roster(tmp_path / "nothing.csv")


# names


@pytest.mark.parametrize(
    "name",
    ["ada", "Ødegård", "김민준", "שרה", "أحمد", "🦊", "👩‍🔬 Ada", "O'Neil", 'the "A"', "a&b<i>", "=1+1"],
)
def test_names_stay_as_they_are(name: str) -> None:
    assert clean(name) == name
    assert Student(name).slug.isascii()


def test_names_that_cannot_stay() -> None:
    bad = [
        "a\nb",
        "a\rb",
        "a b\u202e",
        "a\0b",
        "a  b",
        "\udcff\udcfe",
        "\udcff",
        "\ud800",
        "x" * 300,
        "x" * 301,
    ]
    made = [clean(name) for name in bad]
    assert len({*made, "a b"}) == len(bad) + 1
    assert all(name.isprintable() and len(name.encode()) < 300 for name in made)
    assert len({Student(name).slug for name in made}) == len(bad)
    assert (
        Student("CON").slug != "con"
        and Student("con").slug != "con"
        and Student("Ada").slug != Student("ada").slug
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows does not have such names")
def test_files_with_such_names(tmp_path: Path) -> None:
    names = ["a\nb", 'say "hi"', "it's", "🦊", "עברית", "a;b,c", "=cmd|' '!A1", "\udcff", " lead", "..x"]
    tree(tmp_path, {f"{name}.ipynb": NOTEBOOK for name in names})
    found = find(tmp_path)
    assert len(found) == len(names) - 1 and all(
        s.files[0].open() for s in found
    )  # what starts with a dot is hidden


# what cannot be read


def problem(file: File) -> str:
    try:
        cells_of(file.open())
    except Unreadable as error:
        return str(error)
    return ""


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "cut off": (NOTEBOOK.encode()[:-20], "JSON is broken"),
    "merge conflict": (b"<<<<<<< HEAD\n" + NOTEBOOK.encode(), "JSON is broken"),
    "pdf": (b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "binary"),
    "zeros": (b"\0" * 100, "binary"),
    "html": (b"<html></html>", "JSON is broken"),
    "number": (b"3", "no list of cells"),
    "list": (b"[]", "no list of cells"),
    "no cells": (b'{"nbformat": 4}', "no list of cells"),
    "cells of another type": (b'{"cells": {"0": 1}}', "no list of cells"),
    "nested": (b"[" * 200_000, "JSON is broken"),
    "long number": (b'{"cells": [], "x": ' + b"9" * 10_000 + b"}", "JSON is broken"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_notebook(tmp_path: Path, kind: str) -> None:
    content, said = BROKEN[kind]
    tree(tmp_path, {"ada.ipynb": content})
    (found,) = find(tmp_path)
    assert said in problem(found.files[0])


GOOD: dict[str, bytes] = {
    "byte order mark": b"\xef\xbb\xbf" + NOTEBOOK.encode(),
    "utf-16": NOTEBOOK.encode("utf-16"),
    "format 5": text("a = 1", nbformat=5).encode(),
    "no format": text("a = 1", nbformat="four", nbformat_minor=None).encode(),
    "format 3": b'{"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1"]}]}]}',
    "odd cells": b'{"cells": [3, null, [], {"cell_type": "code", "source": "a = 1", "metadata": 7}]}',
    "lone surrogate": NOTEBOOK.replace('"id"', '"x": "\\ud800", "id"').encode(),
    "9 MB of outputs": text("a = 1", metadata={"x": "y" * 9 * 2**20}).encode(),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_notebook_of_another_kind(kind: str) -> None:
    assert [cell.text for cell in cells_of(GOOD[kind])] == ["a = 1"]


def test_a_large_file_that_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreadable, match="JSON is broken"):
        cells_of(b"{" + b" " * 9 * 2**20)
    if os.name == "nt":
        return  # memory is not limited there
    with pytest.raises(Unreadable, match="too large"):
        monkeypatch.setattr(reading, "MEMORY", 200 * 2**20)
        cells_of(b'{"cells":[' + b"[{}]," * 2_000_000 + b"0]}")


def test_a_cell_that_is_too_long_is_no_answer() -> None:
    assert cells_of(text("a = 1", ("f", "#" * 2**21)).encode())[1].text == ""


def test_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "LARGEST", 2**20)
    tree(tmp_path, {"ada.ipynb": b" " * (2**20 + 1), "bob.zip": zipped({"bob.ipynb": b" " * (2**20 + 1)})})
    assert all("is larger than 1 MiB" in problem(s.files[0]) for s in find(tmp_path))


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
def test_links_pipes_and_folders(tmp_path: Path) -> None:
    secret = tree(tmp_path / "secret", {"reference.ipynb": NOTEBOOK})
    place = tree(tmp_path / "in", {"ada.ipynb": NOTEBOOK})
    (place / "bob.ipynb").symlink_to(secret / "reference.ipynb")
    (place / "cy.ipynb").symlink_to("ada.ipynb")
    (place / "dan.ipynb").symlink_to(secret)
    (place / "eve.ipynb").symlink_to("eve.ipynb")
    (place / "fay.ipynb").mkdir()
    (place / "gil.ipynb").mkdir()
    (place / "gil.ipynb" / "x.txt").touch()
    os.mkfifo(place / "hal.ipynb")
    (place / "outside").symlink_to(secret)
    found = {s.student.id: s for s in find(place)}
    assert sorted(found) == ["ada", "bob", "cy", "dan", "eve", "fay", "gil", "hal"]
    told = {name: " ".join(s.problems) for name, s in found.items()}
    assert told["ada"] == "" and "empty folder" in told["fay"] and "only x.txt" in told["gil"]
    assert (
        all("is a link" in told[name] for name in ("bob", "cy", "dan", "eve"))
        and "no ordinary" in told["hal"]
    )
    assert all(problem(f) for s in found.values() if s.student.id != "ada" for f in s.files)


def test_a_link_put_in_place_after_the_search(tmp_path: Path) -> None:
    tree(tmp_path, {"in/ada.ipynb": NOTEBOOK, "secret": NOTEBOOK})
    (found,) = find(tmp_path / "in")
    (tmp_path / "in" / "ada.ipynb").unlink()
    try:
        (tmp_path / "in" / "ada.ipynb").symlink_to(tmp_path / "secret")
    except OSError:
        pytest.skip("needs links")
    assert "cannot be read" in problem(found.files[0])


def test_zips_that_harm(tmp_path: Path) -> None:
    inner = zipped({"x.ipynb": b"0" * 50_000_000})
    deep = zipped({"x.ipynb": NOTEBOOK})
    for _ in range(5):
        deep = zipped({"x.zip": deep})
    link = io.BytesIO()
    with zipfile.ZipFile(link, "w") as archive:
        entry = zipfile.ZipInfo("eve.ipynb")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.ipynb", b" " * (submissions.LARGEST + 1))
    place = tree(
        tmp_path / "in",
        {
            "up.zip": zipped({"../../../up.ipynb": NOTEBOOK, "/etc/absolute.ipynb": NOTEBOOK, "..\\..\\win.ipynb": NOTEBOOK}),
            "bomb.zip": bomb.getvalue(),
            "large.zip": zipped({"x.zip": zipped({"x.ipynb": inner})}),
            "deep.zip": deep,
            "link.zip": link.getvalue(),
            "broken.zip": zipped({"x.ipynb": NOTEBOOK})[:-30],
            "text.zip": "no zip",
            "many.zip": zipped({f"{i}.ipynb": b"" for i in range(submissions.MOST_FILES + 1)}),
            "empty.zip": zipped({}),
        },
    )  # fmt: skip
    before = sorted(p for p in tmp_path.rglob("*"))
    found = {s.student.id: s for s in find(place)}
    told = {name: " ".join([*s.problems, *map(problem, s.files)]).strip() for name, s in found.items()}
    assert not told["up"] and len(found["up"].files) == 3
    assert "larger than 256 MiB" in told["bomb"] and "larger than 32 MiB" in told["large"]
    assert (
        "zips inside zips" in told["deep"]
        and "is a link" in told["link"]
        and "more than 1000" in told["many"]
    )
    assert "cannot be unpacked" in told["broken"] and "cannot be unpacked" in told["text"]
    assert told["empty"] == "empty.zip is an empty zip is an empty zip"
    assert sorted(p for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("files", [{"README.txt": "x"}, {"a/b/c.py": "x", "README.txt": "x"}])
def test_other_files_alone(tmp_path: Path, files: Tree) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="no notebook"):
        find(tmp_path / "in")
    with pytest.raises(UserError, match="there is no"):
        find(tmp_path / "nothing")
    tree(tmp_path / "in", files)
    if len(files) == 1:
        with pytest.raises(UserError, match="no notebook"):
            find(tmp_path / "in")
    else:
        assert "only c.py" in find(tmp_path / "in")[0].problems[0]
