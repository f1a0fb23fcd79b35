"""What students get: the notebooks of an assignment, plain or as nbgrader's source."""

import ast
import hashlib
import inspect
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from txcourse import exercises, notebooks
from txcourse.errors import UserError
from txcourse.grading.assignment import Asked, Assignment, to_toml
from txcourse.grading.results import points
from txcourse.learner.course import notebook_files
from txcourse.learner.workspace import write

HAND_IN = "Hand in the notebook file itself (`.ipynb`), saved. Do not rename the exercises."


def handout(assignment: Assignment, out: Path) -> list[str]:
    """Write `out`/for_students with the notebooks, and `out`/assignment.toml, which the instructor keeps.

    Raises:
        UserError: a notebook that this version of the course lacks, or a folder that cannot be written.
    """
    lines = []
    for name, notebook in _notebooks(assignment).items():
        file = out / "for_students" / f"{name}.ipynb"
        write(file, nbformat.writes(_announced(notebook, assignment)) + "\n")
        lines.append(f"{file}: give it to the students")
    own = [str(Path(file).resolve()) for file in assignment.plain["own"]]
    write(out / "assignment.toml", to_toml(assignment, own))
    return [
        *lines,
        f"{out / 'assignment.toml'}: keep it, and grade with --assignment {out / 'assignment.toml'}",
    ]


def _notebooks(assignment: Assignment) -> dict[str, NotebookNode]:
    """The notebooks as students get them: the course's that have an exercise which is asked for, and one of the
    instructor's own exercises."""
    files = {file.stem: file for file in notebook_files()}
    own = [asked for asked in assignment.asked if asked.exercise.notebook not in files]
    made = {}
    for name in dict.fromkeys(a.exercise.notebook for a in assignment.asked if a not in own):
        made[name] = notebooks.strip(notebooks.read(files[name]))
    course = set(assignment.plain["exercises"])
    if lacking := [asked.name for asked in own if asked.name in course]:
        raise UserError(f"this version of the course has no notebook for {', '.join(lacking)}")
    if own:
        made["own_exercises"] = _own_notebook(own)
    return made


def _own_notebook(own: list[Asked]) -> NotebookNode:
    made = new_notebook(cells=[new_markdown_cell("# Exercises"), new_code_cell(_imports(own))])
    for asked in own:
        file = Path(inspect.getsourcefile(asked.exercise.reference) or "")
        cell = new_code_cell(notebooks.stub(asked.name, file.read_text(encoding="utf-8")))
        cell.metadata["txcourse"] = {"exercise": asked.name}
        made.cells += [new_markdown_cell(f"### Exercise: `{asked.name}`"), cell]
    return notebooks.strip(made)


def _imports(own: list[Asked]) -> str:
    """The import lines of the instructor's files, but for those of txcourse's own parts."""
    lines: list[str] = []
    for asked in own:
        file = Path(inspect.getsourcefile(asked.exercise.reference) or "")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "txcourse" not in ast.unparse(node):
                lines.append(ast.unparse(node))
    return "\n".join(dict.fromkeys(lines))


def _announced(notebook: NotebookNode, assignment: Assignment) -> NotebookNode:
    """With a cell below the title that says what is asked, for how many points, until when."""
    present = {notebooks.exercise_of(cell) for cell in notebook.cells}
    rows = [f"| `{a.name}` | {points(a.points)} |" for a in assignment.asked if a.name in present]
    due = f" Due {_in_words(assignment.due)}." if assignment.due else ""
    table = "\n".join(["| exercise | points |", "|---|---|", *rows])
    cell = new_markdown_cell(
        f"**Assignment: {assignment.title}.**{due} {HAND_IN}\n\n{table}", id="assignment"
    )
    notebook.cells.insert(1, cell)
    return notebook


def _in_words(moment: datetime) -> str:
    zone = moment.strftime("%z")
    return moment.strftime("%A %d %B %Y, %H:%M") + (f" (UTC{zone[:3]}:{zone[3:]})" if zone else "")


# nbgrader

_TEST = """# {points:g} points, given by the tests that `check` runs, on other inputs
### BEGIN HIDDEN TESTS
from txcourse import run_check

report = run_check({name!r}, {name}, seed={seed})
print(report.to_text())
round({points} * (report.passed or sum(test.passed for test in report.tests) / {tests}), 2)
### END HIDDEN TESTS"""


def nbgrader(assignment: Assignment, out: Path) -> list[str]:
    """Write the source tree of an nbgrader course: `out`/source/<assignment>/*.ipynb, with the references as solutions.

    Raises:
        UserError: as `handout`; an exercise of the instructor's own, which nbgrader's tests cannot find.
    """
    if assignment.plain["own"]:
        raise UserError("nbgrader's cells can check the course's exercises only; leave out `own`")
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in assignment.title)
    lines = []
    for stem, notebook in _notebooks(assignment).items():
        file = out / "source" / name / f"{stem}.ipynb"
        write(file, nbformat.writes(_for_nbgrader(notebook, assignment)) + "\n")
        lines.append(f"{file}: source of nbgrader")
    return [*lines, f"nbgrader generate_assignment {name} --course-dir {out}"]


def _for_nbgrader(notebook: NotebookNode, assignment: Assignment) -> NotebookNode:
    """Each exercise that is asked for holds its solution between nbgrader's marks; a locked cell of points follows it,
    above the learner's own check, which would put the reference in place of a wrong answer."""
    asked = {each.name: each for each in assignment.asked}
    cells = []
    for cell in _announced(notebook, assignment).cells:
        cells.append(cell)
        name = notebooks.exercise_of(cell)
        if name not in asked:
            continue
        exercise = asked[name].exercise
        cell.source = _solution(name, notebooks.solutions_file(exercise.notebook.split("_", 1)[1]).read_text(encoding="utf-8"))  # fmt: skip
        cell.metadata["nbgrader"] = _metadata(name, solution=True)
        text = _TEST.format(
            name=name, seed=_seed(assignment, name), points=asked[name].points, tests=len(exercise.tests)
        )
        test = new_code_cell(text, id=f"points-{name}"[:64])
        test.metadata["nbgrader"] = {
            **_metadata(f"points-{name}", solution=False),
            "points": asked[name].points,
        }
        cells.append(test)
    notebook.cells = cells
    return notebook


def _seed(assignment: Assignment, name: str) -> int:
    """Not that of `txcourse grade`: nbgrader shows its hidden tests in the feedback."""
    return hashlib.sha256(f"nbgrader {assignment.seed} {name}".encode()).digest()[0]


def _metadata(grade_id: str, solution: bool) -> dict[str, object]:
    kind = {"grade": not solution, "solution": solution, "locked": not solution, "task": False}
    return {"schema_version": 3, "grade_id": grade_id, **kind}


def _solution(name: str, source: str) -> str:
    """The reference with the bodies of its functions between nbgrader's marks."""
    text = notebooks.answer(name, source, set(exercises.names()))
    main = ast.parse(text).body[-1]
    functions = notebooks.public_methods(main) if isinstance(main, ast.ClassDef) else [main]
    lines = text.splitlines()
    for function in reversed(functions):  # from the end, so that line numbers stay right
        assert isinstance(function, ast.FunctionDef)
        doc = function.body[0] if ast.get_docstring(function) is not None else None
        indent = " " * (function.col_offset + 4)
        lines.insert(function.end_lineno or 0, f"{indent}### END SOLUTION")
        lines.insert(
            (doc.end_lineno if doc else function.body[0].lineno - 1) or 0, f"{indent}### BEGIN SOLUTION"
        )
    return "\n".join(lines)
