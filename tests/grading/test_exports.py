"""What goes out: tables of an LMS filled and otherwise as they were, the autograder's zip, the hand-out."""

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from tests.grading.making import ROOT, answers
from txcourse import exercises
from txcourse.checking import run
from txcourse.errors import UserError
from txcourse.grading import assignment as assignments
from txcourse.grading import exports, gradescope, handout
from txcourse.grading.assignment import build, of_notebooks
from txcourse.notebooks import exercise_of


def student(
    id_: str, points: float | None, name: str = "", email: str = "", state: str = "graded"
) -> dict[str, Any]:
    said = "=1+1 <b>The mask first differs: expected 0.123, yours 1; largest difference 0.9, 3 of 9 values differ."
    mark = {"name": "causal_mask", "status": "failed", "points": points, "max_points": 8, "message": said}
    return {
        "id": id_,
        "name": name,
        "email": email,
        "state": state,
        "points": points,
        "exercises": [mark],
        "problems": [],
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results, of four students."""
    found = {
        "format": 1,
        "assignment": {"title": "Masks", "max_points": 8},
        "students": [
            student("55", 7.25, "kingada"),
            student("0071", 8.0, "Bob Brown", "bob@example.org"),
            student("cy@example.org", 1.5, "Cy Ωmega", "cy@example.org"),
            student("99", 0.0, "Dan", state="missing"),
            student("stranger", 3.0),
        ],
    }
    (tmp_path / "results.json").write_text(json.dumps(found))
    return tmp_path


def rows(file: Path, delimiter: str = ",") -> list[list[str]]:
    return list(
        csv.reader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline=""), delimiter=delimiter)
    )


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Masks (4711),Masks bonus (4712),Current Score
    Points Possible,,,,,8,2,(read only)
"King, Ada",55,,ada,"A, B",,1,=1+1
"Brown, Bob",56,0071,bob,A,,,
"Ωmega, Cy",57,,cy,A,0,,
"Excused, Eve",58,e1,eve,A,EX,,
"Dan, Dan",99,,dan,A,,,
"Student, Test",60,,,A,,,
"""


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("column", [None, "Masks (4711)", "masks"])
def test_canvas(results: Path, column: str | None, delimiter: str) -> None:
    file, out = results / "gradebook.csv", results / "new.csv"
    found = json.loads((results / "results.json").read_text())
    found["students"].append(student("e1", 5.0))
    (results / "results.json").write_text(json.dumps(found))
    table = list(csv.reader(io.StringIO(CANVAS)))
    with file.open("w", newline="", encoding="utf-8-sig") as new:
        csv.writer(new, delimiter=delimiter).writerows(table)
    lines = exports.canvas(results, file, column, out)
    filled = rows(out, delimiter)
    assert [row[5] for row in filled] == ["Masks (4711)", "8", "7.25", "8", "1.5", "EX", "", ""]
    for row in (*table, *filled):
        row[5] = ""
    assert filled == table
    assert "3 marks in the column 'Masks (4711)'" in lines[0]
    assert lines[1:] == [
        "no row for, or more than one: stranger",
        "left as they were, since nothing was graded: 99",
    ]


def test_canvas_that_cannot_be_filled(results: Path) -> None:
    (results / "g.csv").write_text(CANVAS)
    with pytest.raises(UserError, match=r"--column; .* has: Masks \(4711\), Masks bonus \(4712\)"):
        exports.canvas(results, results / "g.csv", "Attention", results / "new.csv")
    (results / "g.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no gradebook"):
        exports.canvas(results, results / "g.csv", None, results / "new.csv")
    with pytest.raises(UserError, match="cannot read"):
        exports.canvas(results, results / "none.csv", None, results / "new.csv")
    with pytest.raises(UserError, match="no results"):
        exports.canvas(results / "nowhere", results / "g.csv", None, results / "new.csv")
    assert not (results / "new.csv").exists()


MOODLE = """Identifier,"Full name","Email address",Status,Grade,"Maximum grade","Grade can be changed","Last modified (submission)","Last modified (grade)","Feedback comments"
"Participant 55","Ada King",ada@example.org,"Submitted for grading",,8.00,Yes,"Monday, 1 March 2027, 3:00 PM",-,
"Participant 56","Bob Brown",bob@example.org,"Submitted for grading",1.00,8.00,Yes,-,-,old
"Participant 57","Cy Ωmega",cy@example.org,"Submitted for grading",,8.00,No,-,-,
"Participant 58","Eve",eve@example.org,"No submission",,8.00,Yes,-,-,
"""


def test_moodle(results: Path) -> None:
    (results / "sheet.csv").write_text(MOODLE, encoding="utf-8")
    lines = exports.moodle(results, results / "sheet.csv", results / "new.csv")
    before, filled = rows(results / "sheet.csv"), rows(results / "new.csv")
    assert [row[4] for row in filled] == ["Grade", "7.25", "8", "", ""]
    assert "2 marks in the columns Grade and Feedback comments" in lines[0] and lines[-1].endswith(
        "cy@example.org"
    )
    said = filled[1][9]
    assert said.startswith(
        "7.25 of 8 points.<br>causal_mask (7.25 of 8): not yet right: =1+1 &lt;b&gt;The mask first differs; 3 of 9"
    )
    assert "0.123" not in said and "\n" not in said and filled[4] == before[4]


def test_moodle_with_another_maximum_and_a_comma(results: Path) -> None:
    (results / "sheet.csv").write_text(MOODLE.replace("8.00", '"100,00"'), encoding="utf-8")
    lines = exports.moodle(results, results / "sheet.csv", results / "new.csv")
    assert [row[4] for row in rows(results / "new.csv")][1:3] == ["90,62", "100"]
    assert "scaled from 8 to 100 points" in lines[0]
    (results / "sheet.csv").write_text("Kennung,Bewertung\n")
    with pytest.raises(UserError, match="in English"):
        exports.moodle(results, results / "sheet.csv", results / "new.csv")


@pytest.mark.parametrize("id_", ["55", "m55"])
def test_nobody_gets_the_mark_of_a_namesake(tmp_path: Path, id_: str) -> None:
    """Two of one name, of whom one handed in; `m55` is an id that the tables do not know, so the name is all there is."""
    found = {
        "format": 1,
        "assignment": {"title": "Masks", "max_points": 8},
        "students": [student(id_, 7.0, "Kim Lee")],
    }
    (tmp_path / "results.json").write_text(json.dumps(found))
    known = ["7", ""] if id_ == "55" else ["", ""]
    for order in (1, -1):
        pair = ["Participant 55,Kim Lee,a@x.org,,8,Yes,", "Participant 56,Kim Lee,b@x.org,,8,Yes,"][::order]
        head = "Identifier,Full name,Email address,Grade,Maximum grade,Grade can be changed,Feedback comments"
        (tmp_path / "sheet.csv").write_text("\n".join([head, *pair]))
        lines = exports.moodle(tmp_path, tmp_path / "sheet.csv", tmp_path / "new.csv")
        filled = rows(tmp_path / "new.csv")[1:]
        assert [row[3] for row in filled] == known[::order] == [row[6] and "7" for row in filled]
        pair = ['"Lee, Kim",55,,A,', '"Lee, Kim",56,,A,'][::order]
        (tmp_path / "book.csv").write_text("\n".join(["Student,ID,SIS User ID,Section,Masks (1)", *pair]))
        exports.canvas(tmp_path, tmp_path / "book.csv", None, tmp_path / "new.csv")
        assert [row[4] for row in rows(tmp_path / "new.csv")[1:]] == known[::order]
        assert ("no row for, or more than one: m55" in lines) == (id_ == "m55")


# Gradescope

OWN = '''
from txcourse.checking import Exercise, Test, Wrong


def double(x):
    """Twice x."""
    return 2 * x


def _values(c):
    c.same(3, what="double(3)")
    c.same(c.randn(2, 3), what="double of a tensor")


EXERCISES = (
    Exercise(
        name="double", notebook="own", points=3, difficulty=1, minutes=1, hints=("a", "b", "c"), reference=double,
        tests=(Test("values", "is twice x", _values),),
    ),
)
'''


def test_an_exercise_of_the_instructors_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "a.toml").write_text(
        'title = "Own 🦊"\nexercises = ["causal_mask"]\nown = ["own.py"]\nseed = 1\n[points]\ncausal_mask = 0.5\n'
    )
    found = assignments.read(tmp_path / "a.toml")
    assert [(a.name, a.points) for a in found.asked] == [("causal_mask", 0.5), ("double", 3.0)]
    assert handout.handout(found, tmp_path / "out")
    again = assignments.read(tmp_path / "out" / "assignment.toml")
    assert again.plain == found.plain and again.key == found.key
    own = nbformat.read(tmp_path / "out" / "for_students" / "own_exercises.ipynb", as_version=4)
    (cell,) = (cell for cell in own.cells if exercise_of(cell) == "double")
    assert cell.source == 'def double(x):\n    """Twice x."""\n    raise NotImplementedError'
    everything = "".join(f.read_text(encoding="utf-8") for f in (tmp_path / "out" / "for_students").iterdir())
    assert "2 * x" not in everything and "seed" not in own.cells[1].source
    with pytest.raises(UserError, match="nbgrader"):
        handout.nbgrader(found, tmp_path / "nb")


def test_the_autograder(tmp_path: Path) -> None:
    """The zip, unpacked in an empty folder, grades with what is in it."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "a.toml").write_text('exercises = ["causal_mask"]\nown = ["own.py"]\nseed = 1\n')
    gradescope.autograder(assignments.read(tmp_path / "a.toml"), tmp_path / "autograder.zip")
    base = tmp_path / "autograder"
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
        archive.extractall(base / "source")
    assert modes["run_autograder"] == modes["setup.sh"] == 0o755
    assert not any("solved" in name or name.endswith(".pyc") for name in modes)
    assert {line.split("==")[0] for line in (base / "source" / "requirements.txt").read_text().split()} == {
        "torch",
        "numpy",
        "jaxtyping",
        "tqdm",
    }
    if os.name == "nt" or shutil.which("bash") is None:
        pytest.skip("needs bash")
    (base / "submission").mkdir()
    notebook = json.loads(answers(causal_mask=None))
    wrong = {"cell_type": "code", "metadata": {}, "source": "def double(x):\n    return x"}
    (base / "submission" / "my answers.ipynb").write_text(
        json.dumps(notebook | {"cells": [*notebook["cells"], wrong]})
    )
    only = tmp_path / "only_what_is_required"  # nothing else can be imported
    only.mkdir()
    (only / "sitecustomize.py").write_text(
        "import sys\nfor name in ('typer', 'jinja2', 'nbformat', 'nbclient', 'safetensors', 'matplotlib'):\n    sys.modules[name] = None\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{only}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "AUTOGRADER": str(base), "PYTHON": str(python)}
    ran = subprocess.run(
        ["bash", str(base / "source" / "run_autograder")],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
    )
    found = json.loads((base / "results" / "results.json").read_text())
    assert found["score"] == 1.0, ran.stdout + ran.stderr
    assert [
        (t["name"], t["score"], t["max_score"], t["status"], t["visibility"]) for t in found["tests"]
    ] == [
        ("causal_mask", 1.0, 1, "passed", "visible"),
        ("double", 0.0, 3, "failed", "visible"),
    ]
    assert "not what it should be" in found["tests"][1]["output"]


def test_the_autograder_says_when_it_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradescope.main(tmp_path, tmp_path / "none.toml", tmp_path / "results" / "results.json")
    found = json.loads((tmp_path / "results" / "results.json").read_text())
    assert (
        found["score"] == 0
        and "not your fault" in found["output"]
        and "cannot read" in capsys.readouterr().out
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_scripts_are_right_bash(tmp_path: Path) -> None:
    for text in (gradescope.SETUP, gradescope.RUN):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


# Hand-out and nbgrader


def test_the_handout(tmp_path: Path) -> None:
    asked = of_notebooks(["03", "05"], "2027-03-01")
    lines = handout.handout(asked, tmp_path)
    assert sorted(f.name for f in (tmp_path / "for_students").iterdir()) == [
        "03_attention.ipynb",
        "05_multi_head_attention.ipynb",
    ]
    made = nbformat.read(tmp_path / "for_students" / "03_attention.ipynb", as_version=4)
    nbformat.validate(made)
    assert (
        "Due Monday 01 March 2027, 23:59" in made.cells[1].source
        and "| `causal_mask` | 1 |" in made.cells[1].source
    )
    assert "split_heads" not in made.cells[1].source
    assert sorted(filter(None, map(exercise_of, made.cells))) == sorted(
        n for n in exercises.names() if exercises.get(n).notebook == "03_attention"
    )
    assert str(asked.seed) not in "".join(f.read_text() for f in (tmp_path / "for_students").iterdir())
    assert assignments.read(tmp_path / "assignment.toml").key == asked.key and "assignment.toml" in lines[-1]


def there() -> list[str]:
    made = {file.stem for file in (ROOT / "notebooks").glob("*.ipynb")}
    return [name for name in exercises.names() if exercises.get(name).notebook in made]


def test_nbgraders_source(tmp_path: Path) -> None:
    """Every exercise: a solution that nbgrader can take out, and a locked cell of points before the learner's check."""
    asked = build({"title": "All of it", "exercises": there(), "seed": 4711})
    handout.nbgrader(asked, tmp_path)
    seen = []
    for file in (tmp_path / "source" / "All_of_it").iterdir():
        made = nbformat.read(file, as_version=4)
        nbformat.validate(made)
        cells = made.cells
        for number, cell in enumerate(cells):
            if (name := exercise_of(cell)) is None:
                continue
            seen.append(name)
            compile(cell.source, name, "exec")
            left, inside = [], False
            for line in cell.source.splitlines():
                if "### BEGIN SOLUTION" in line:
                    assert not inside
                    inside = True
                    left.append(line[: line.index("#")] + "raise NotImplementedError()")
                elif "### END SOLUTION" in line:
                    assert inside
                    inside = False
                elif not inside:
                    left.append(line)
            names: dict[str, Any] = {}
            exec(
                "from __future__ import annotations\nfrom torch import nn, Tensor\nimport torch\n"
                + "\n".join(left),
                names,
            )
            points = cells[number + 1]
            assert points.metadata["nbgrader"]["grade"] and points.metadata["nbgrader"]["locked"]
            assert points.metadata["nbgrader"]["points"] == exercises.get(name).points
            hidden = points.source.index("### BEGIN HIDDEN TESTS")
            assert "seed=" in points.source[hidden:] and "seed" not in points.source[:hidden]
            assert f"{name} = check({name})" in cells[number + 2].source
    assert sorted(seen) == sorted(there())


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nbgrader") is None,
    reason="nbgrader is not installed (pip install nbgrader, in an environment of its own)",
)
def test_nbgrader_there_and_back(tmp_path: Path) -> None:
    """generate_assignment, then autograde of the source's own solutions and of the release as it is."""
    asked = of_notebooks(["03"])
    handout.nbgrader(asked, tmp_path)
    name = "03_attention"

    def nbgrader(*arguments: str) -> None:
        subprocess.run(["nbgrader", *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=600)

    nbgrader("generate_assignment", name)
    released = (tmp_path / "release" / name / f"{name}.ipynb").read_text()
    assert "BEGIN SOLUTION" not in released and "run_check('causal_mask'" not in released
    for student_, tree in (("good", "source"), ("empty", "release")):
        shutil.copytree(tmp_path / tree / name, tmp_path / "submitted" / student_ / name)
    nbgrader("autograde", name)
    nbgrader("export")
    scores = {
        row["student_id"]: float(row["score"]) for row in csv.DictReader((tmp_path / "grades.csv").open())
    }
    assert scores == {"good": asked.max_points, "empty": 0.0}


def test_the_examples_for_instructors(tmp_path: Path) -> None:
    """The assignment file and the exercise in docs/instructors.md work as they stand."""
    text = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
    toml, python = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "python"))
    assert toml and python
    (tmp_path / "entropy.py").write_text(python[1])
    (tmp_path / "a.toml").write_text(toml[1])
    asked = assignments.read(tmp_path / "a.toml")
    assert [a.name for a in asked.asked] == [
        "softmax",
        "scaled_dot_product_attention",
        "padding_mask",
        "causal_mask",
        "entropy",
    ]
    assert asked.asked[3].points == 3 and asked.seed == 81623 and asked.limits.memory == 4 * 2**30
    exercise = asked.asked[4].exercise

    def right(weights):
        return torch.special.entr(weights).sum(-1)

    def bits(weights):
        return torch.special.entr(weights).sum(-1) / math.log(2)

    assert run(exercise, right, 1).passed
    assert run(exercise, bits, 1).mistake == "bits"
    assert not run(exercise, lambda weights: -(weights * weights.log()).sum(-1), 1).passed
    own = nbformat.v4.new_code_cell(handout._imports([asked.asked[4]]))
    assert "import torch" in own.source and "txcourse" not in own.source
