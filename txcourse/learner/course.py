"""The course's notebooks in the learner's folder: bringing them, updating them, starting one again, and the map."""

import html
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from txcourse.errors import UserError
from txcourse.learner import answers
from txcourse.learner.workspace import Workspace, find, find_or_fail, keep, write
from txcourse.source import candidate as candidate_cell
from txcourse.source import code_cells, exercise_of, source_of

_PACKAGE = Path(__file__).parent.parent
_SIGNS = {"done": "[x]", "tried": "[~]", "open": "[ ]"}


def notebook_files() -> list[Path]:
    """The notebooks of the installed course, in order: inside the package, or beside it in a checkout."""
    inside = _PACKAGE / "_notebooks"
    folder = inside if inside.is_dir() else _PACKAGE.parent / "notebooks"
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def bring_missing(workspace: Workspace) -> None:
    """Copy the notebooks that the folder lacks."""
    for source in notebook_files():
        mine = workspace.root / source.name
        if not mine.exists():
            text = source.read_text(encoding="utf-8")
            write(workspace.originals / source.name, text)
            write(mine, text)


def newer(workspace: Workspace) -> list[str]:
    """The notebooks of which the course has another version than the one brought here."""
    return [
        source.stem
        for source in notebook_files()
        if _base(workspace, source) != source.read_text(encoding="utf-8")
    ]


def _base(workspace: Workspace, source: Path) -> str | None:
    """The course's notebook as it was when it was brought here."""
    try:
        return (workspace.originals / source.name).read_text(encoding="utf-8")
    except OSError:
        return None


def update(workspace: Workspace | None = None) -> list[str]:
    """Bring the course's current notebooks; exercise cells keep the learner's text, the old file is kept.

    Returns:
        one line per notebook.
    Raises:
        UserError: no course folder, or a file that cannot be written.
    """
    workspace = workspace or find_or_fail()
    told = []
    for source in notebook_files():
        mine, original = workspace.root / source.name, workspace.originals / source.name
        text = source.read_text(encoding="utf-8")
        base = _base(workspace, source)
        if not mine.exists():
            write(mine, text)
            told.append(f"{source.stem}: new")
        elif base == text:
            told.append(f"{source.stem}: up to date")
            continue
        elif mine.read_text(encoding="utf-8", errors="replace") in (base, text):
            write(mine, text)
            told.append(f"{source.stem}: new version")
        else:
            merged, moved, lost = _carry(mine, json.loads(text), base)
            kept = keep(mine)
            write(mine, json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
            told.append(f"{source.stem}: new version with your {moved}; your file is kept as {kept.name}")
            told += [
                f"  {name} is no longer an exercise there; your answer is in {kept.name}" for name in lost
            ]
        write(original, text)
    return told


def _carry(mine: Path, new: dict[str, Any], base: str | None) -> tuple[dict[str, Any], str, list[str]]:
    """The new notebook with the learner's exercise cells, how many in words, and answers that have no place."""
    try:
        old = json.loads(mine.read_text(encoding="utf-8"))
        theirs = {name: candidate(old, name) for name in _all_names(old, new)}
        stubs = {
            name: source_of(cell) for name, cell in _exercise_cells(json.loads(base) if base else {}).items()
        }
    except (ValueError, AttributeError, TypeError):  # no notebook any more: only the copy beside it can help
        theirs, stubs = {}, {}
    places = _exercise_cells(new)
    moved = 0
    lost = []
    for name, text in theirs.items():
        if text is None or text == stubs.get(name):
            continue
        if name in places:
            places[name]["source"] = text
            moved += 1
        else:
            lost.append(name)
    return new, f"{moved} answer{'' if moved == 1 else 's'}", lost


def reset(name: str, workspace: Workspace | None = None) -> list[str]:
    """Put the stub back, of one exercise or of all in a notebook. Notebook and stored answer are kept, dated.

    Returns:
        what was done, in lines.
    Raises:
        UserError: no such exercise or notebook, no course folder, or a file that cannot be written.
    """
    from txcourse import exercises

    workspace = workspace or find_or_fail()
    if name in exercises.names():
        notebook, names = exercises.get(name).notebook, [name]
    else:
        notebook = find_notebook(name).stem
        names = [each for each in exercises.names() if exercises.get(each).notebook == notebook]
    sources = {file.stem: file for file in notebook_files()}
    if notebook not in sources:
        raise UserError(f"the notebook {notebook} is not part of this version of the course")
    fresh = json.loads(sources[notebook].read_text(encoding="utf-8"))
    mine = workspace.root / f"{notebook}.ipynb"
    told = []
    if mine.exists():
        told.append(f"your notebook is kept as {keep(mine).name}")
    if name not in names or not mine.exists():
        changed = fresh
    else:
        changed = _with_stub(read(mine), name, fresh)
    write(mine, json.dumps(changed, indent=1, ensure_ascii=False) + "\n")
    earlier = answers.remove(workspace, notebook, names, exercises.names())
    if earlier:
        told.append(f"your stored answer is kept as {earlier.relative_to(workspace.root)}")
    for each in names:
        workspace.set_record(each, tries=0, passed=False, hints=0)
    what = f"{name} in {notebook}" if name in names else f"all of {notebook}"
    return [f"Reset {what}. If it is open in JupyterLab: File, Reload Notebook from Disk.", *told]


def _with_stub(notebook: dict[str, Any], name: str, fresh: dict[str, Any]) -> dict[str, Any]:
    stub = _exercise_cells(fresh).get(name)
    place = _exercise_cells(notebook).get(name)
    if stub is None or place is None:
        raise UserError(f"the exercise cell of {name} is gone from your notebook; reset the whole notebook")
    place["source"], place["outputs"], place["execution_count"] = stub["source"], [], None
    return notebook


def find_notebook(name: str) -> Path:
    """The course's notebook of that name: "03_attention", "03", "attention" or with .ipynb.

    Raises:
        UserError: there is none.
    """
    wanted = Path(name).name.removesuffix(".ipynb")
    for file in notebook_files():
        if wanted in (file.stem, *file.stem.split("_", 1)):
            return file
    known = ", ".join(file.stem for file in notebook_files())
    raise UserError(f"there is no exercise or notebook `{name}`; notebooks: {known}")


# Cells


def read(path: Path) -> dict[str, Any]:
    """The notebook as JSON.

    Raises:
        UserError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found["cells"], list):
            return found
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{path} is not a notebook any more; `txcourse reset {path.stem}` brings a new one, yours is kept"
    )


def _exercise_cells(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The raw cells, to be changed, by exercise."""
    code = [cell for cell in notebook.get("cells", []) if cell.get("cell_type") == "code"]
    return {name: cell for cell in code if (name := exercise_of(cell))}


def _all_names(*notebooks: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for notebook in notebooks for name in _exercise_cells(notebook)))


def candidate(notebook: dict[str, Any], name: str) -> str | None:
    """The cell with the learner's answer (which one counts: txcourse.source.candidate)."""
    cells = code_cells(notebook)
    found = candidate_cell(cells, name)
    return None if found is None else cells[found].text


# The map


@dataclass(frozen=True)
class ExerciseState:
    name: str
    notebook: str
    state: str  # done, tried or open
    difficulty: int
    minutes: int
    stretch: bool  # nothing later needs it


@dataclass(frozen=True)
class CourseMap:
    """Every exercise of the course in order, with the learner's state. Shows itself as text or HTML."""

    exercises: tuple[ExerciseState, ...]
    place: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self._count('done')} of {len(self.exercises)} exercises done ({self.place})"]
        for notebook, states in self._by_notebook().items():
            done = sum(s.state == "done" for s in states)
            lines.append(f"\n{notebook}  {done} of {len(states)}")
            for s in states:
                lines.append(
                    f"  {_SIGNS[s.state]} {s.name:<34} {_circles(s.difficulty)} {s.minutes:>3} min  {s.state}{_star(s)}"
                )
        lines += ["", "★ a stretch: nothing later needs it"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for notebook, states in self._by_notebook().items():
            items = "".join(
                f"<tr><td></td><td style='text-align:left'>{_SIGNS[s.state]} {s.state}</td>"
                f"<td style='text-align:left'>{s.name}</td><td>{_circles(s.difficulty)}</td><td>{s.minutes} min{_star(s)}</td></tr>"
                for s in states
            )
            done = sum(s.state == "done" for s in states)
            rows.append(
                f"<tr><th colspan=5 style='text-align:left'>{notebook}: {done} of {len(states)}</th></tr>{items}"
            )
        head = html.escape(str(self).splitlines()[0])
        return f"<p>{head}</p><table>{''.join(rows)}</table><p>★ a stretch: nothing later needs it</p>"

    def _count(self, state: str) -> int:
        return sum(s.state == state for s in self.exercises)

    def _by_notebook(self) -> dict[str, list[ExerciseState]]:
        found: dict[str, list[ExerciseState]] = {}
        for state in self.exercises:
            found.setdefault(state.notebook, []).append(state)
        return found


def _circles(difficulty: int) -> str:
    return "●" * difficulty + "○" * (3 - difficulty)


def _star(exercise: ExerciseState) -> str:
    return "  ★" if exercise.stretch else ""


def status(name: str, workspace: Workspace | None = None) -> str:
    """done (it passed, and the answer is still there or of this session), tried, or open."""
    from txcourse.learner import kept_here

    workspace = workspace or find()
    record = workspace.record(name) if workspace else {"passed": False, "tries": 0}
    if name in kept_here or record["passed"]:
        return "done"
    return "tried" if record["tries"] else "open"


def course_map() -> CourseMap:
    """The state of every exercise, in this folder's workspace where there is one."""
    from txcourse import exercises

    workspace = find()
    states = []
    for name in exercises.names():
        exercise = exercises.get(name)
        states.append(
            ExerciseState(
                name,
                exercise.notebook,
                status(name, workspace),
                exercise.difficulty,
                exercise.minutes,
                exercise.stretch,
            )
        )
    place = f"in {workspace.root.name}/" if workspace else "no course folder yet: txcourse lab makes one"
    return CourseMap(tuple(states), place)
