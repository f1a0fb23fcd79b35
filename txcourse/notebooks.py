"""From the student notebooks in notebooks/ to the solved and executed ones in notebooks/solved/.

An exercise is a code cell with the metadata {"txcourse": {"exercise": NAME}}; the next code cell is
`NAME = check(NAME)`.
"""

import ast
import copy
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from txcourse.errors import UserError

PACKAGE = Path(__file__).parent
FOLDER = PACKAGE.parent / "notebooks"
SOLVED = FOLDER / "solved"
NOT_STORED = {"18_translation"}  # the terms of its data forbid to store outputs: there is no solved copy
CELL_TIMEOUT = 120  # seconds
IMPORTED = re.compile(
    r"^\s*(?:from|import)\s+(txcourse(?:\.\w+)*)(?:\s+import\s+\(?([\w, ]+))?", re.MULTILINE
)
Definition = ast.FunctionDef | ast.ClassDef


# Reading and writing


def student_notebooks() -> list[Path]:
    """The student notebooks in course order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def stored_notebooks() -> list[Path]:
    """Those of them that have a solved copy."""
    return [path for path in student_notebooks() if path.stem not in NOT_STORED]


def read(path: Path) -> NotebookNode:
    """The notebook in the current format."""
    return nbformat.read(path, as_version=4)


def write(notebook: NotebookNode, path: Path) -> None:
    """Validate the notebook, then replace the file in one step."""
    nbformat.validate(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    os.replace(partial, path)


def exercise_of(cell: NotebookNode) -> str | None:
    """The exercise that a cell asks for, or None."""
    return cell.metadata.get("txcourse", {}).get("exercise") if cell.cell_type == "code" else None


def strip(notebook: NotebookNode) -> NotebookNode:
    """A copy without outputs, counts and what editors add; cells without an id get a stable one."""
    clean = copy.deepcopy(notebook)
    clean.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    clean.nbformat, clean.nbformat_minor = 4, 5
    for i, cell in enumerate(clean.cells):
        kept = {key: cell.metadata[key] for key in ("tags", "txcourse") if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
        cell.setdefault("id", f"cell-{i:03d}")
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return clean


# Filling


def module_name(path: Path) -> str:
    """03_attention.ipynb → attention, the name of its solutions and exercises modules."""
    return path.stem.split("_", 1)[1]


def solutions_file(name: str) -> Path:
    """The file of a solutions module."""
    return PACKAGE / "solutions" / f"{name}.py"


def _definitions(source: str) -> dict[str, ast.stmt]:
    """Every top-level function, class and constant of a module by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        if isinstance(node, Definition):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def _text(node: ast.stmt, source: str) -> str:
    """Source of a top-level statement, decorators and the comment right above it included."""
    all_lines = source.splitlines()
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
    while first > 0 and all_lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(all_lines[first : node.end_lineno])


def _names_used(tree: ast.AST) -> set[str]:
    """Names that a piece of code reads."""
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def names_bound(source: str) -> set[str]:
    """Top-level names that a cell binds, magics and broken cells apart."""
    bound: set[str] = set()
    for node in ast.parse(re.sub(r"^\s*[%!].*$", "pass", source, flags=re.MULTILINE)).body:
        if isinstance(node, Definition):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            bound |= {
                n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return bound


def answer(exercise: str, source: str, known: set[str]) -> str:
    """The text of a solved cell: the reference, after the helpers of its module that are not `known` yet."""
    definitions, todo = _definitions(source), [exercise]
    helpers: dict[str, ast.stmt] = {}
    if exercise not in definitions:
        raise UserError(
            f"no solution named {exercise!r}: define it at the top level of the notebook's solutions module"
        )
    while todo:
        name = todo.pop()
        for used in _names_used(definitions[name]) & definitions.keys() - known - {exercise} - helpers.keys():
            helpers[used] = definitions[used]
            todo.append(used)
    nodes = sorted({id(n): n for n in helpers.values()}.values(), key=lambda node: node.lineno)
    return "\n\n\n".join(_text(node, source) for node in [*nodes, definitions[exercise]])


def fill(notebook: NotebookNode, source: str) -> NotebookNode:
    """A copy with the reference in each exercise cell; source: text of the notebook's solutions module."""
    solved = strip(notebook)
    known: set[str] = set()
    for cell in solved.cells:
        if name := exercise_of(cell):
            cell.source = answer(name, source, known)
        if cell.cell_type == "code":
            known |= names_bound(cell.source)
    return solved


def stub(exercise: str, source: str) -> str:
    """The exercise cell as handed out: the reference with each body replaced by NotImplementedError."""
    node = _definitions(source).get(exercise)
    if not isinstance(node, Definition):
        raise UserError(f"no function or class named {exercise!r} in the notebook's solutions module")
    lines_, blank = source.splitlines(), "raise NotImplementedError"

    def head(function: ast.FunctionDef) -> list[str]:
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)]) - 1
        doc = function.body[0] if ast.get_docstring(function) else None
        last = doc.end_lineno if doc else function.body[0].lineno - 1
        return [*lines_[first:last], " " * (function.col_offset + 4) + blank]

    if isinstance(node, ast.FunctionDef):
        return "\n".join(head(node))
    doc = node.body[0] if ast.get_docstring(node) else None
    parts = ["\n".join(lines_[node.lineno - 1 : doc.end_lineno if doc else node.body[0].lineno - 1])]
    return "\n\n".join([*parts, *("\n".join(head(method)) for method in public_methods(node))])


def public_methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods that a stub shows: all but those with one leading underscore."""
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    return [m for m in methods if not m.name.startswith("_") or m.name.startswith("__")]


def interface(source: str, name: str) -> list[tuple[str, str, str | None]]:
    """(name, signature, docstring) of a function, or of a class and its methods: what a stub must keep."""
    node = _definitions(source).get(name)
    if isinstance(node, ast.FunctionDef):
        return [_signature(node)]
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return [(name, bases, ast.get_docstring(node)), *(_signature(m) for m in public_methods(node))]
    return []


def _signature(node: ast.FunctionDef) -> tuple[str, str, str | None]:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return node.name, f"({ast.unparse(node.args)}){returns}", ast.get_docstring(node)


# Building


def made_from(path: Path) -> str:
    """Hash of what a solved copy is made from.

    That is the student notebook, its solutions and exercises modules, the txcourse modules that its cells
    import, and the solutions modules which any of these import.
    """
    digest = hashlib.sha256()
    for cell in strip(read(path)).cells:
        digest.update(json.dumps([cell.cell_type, cell.source, cell.metadata], sort_keys=True).encode())
    name = module_name(path)
    for file in sorted({*_sources(path), solutions_file(name), PACKAGE / "exercises" / f"{name}.py"}):
        if file.exists():
            digest.update(
                file.relative_to(PACKAGE).as_posix().encode() + file.read_bytes().replace(b"\r\n", b"\n")
            )
    return digest.hexdigest()


def _sources(path: Path) -> set[Path]:
    """Files of txcourse that the notebook imports, solutions followed through their own imports."""
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    todo, seen = list(_imported_files(text)), set()
    if solutions_file(module_name(path)).exists():
        todo.append(solutions_file(module_name(path)))
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            if file.parent.name == "solutions":
                todo.extend(_imported_files(file.read_text(encoding="utf-8")))
    return seen


def _imported_files(text: str) -> Iterator[Path]:
    for module, imported in IMPORTED.findall(text):
        candidates = [module, *(f"{module}.{n.strip()}" for n in imported.split(","))]
        for name in candidates:
            if name != "txcourse" and not name.startswith(("txcourse.mine", "txcourse.learner")):
                base = PACKAGE.parent.joinpath(*name.split("."))
                yield from (f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file())


def kernel_environment() -> dict[str, str]:
    """One thread, no workspace, inline figures: the same in the build and under nbval."""
    env = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND", "PYTEST_CURRENT_TEST")}
    env["TXCOURSE_WORKSPACE"] = ""  # none
    env.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return env


def execute(notebook: NotebookNode, quick: bool = False) -> tuple[NotebookNode, set[str]]:
    """Run a copy in an empty folder with one thread: the copy with fresh outputs, and which answers passed.

    An answer passed when `check` handed back what the notebook defines. UserError shows the cell that failed.

    quick shortens training: a cell with the metadata {"txcourse": {"quick": CODE}} runs CODE instead of its
    source, and cells tagged `needs-training`, which assert what only full training reaches, are left out.
    """
    run = copy.deepcopy(notebook)
    for cell in run.cells:
        cell.source = cell.metadata.get("txcourse", {}).get("quick", cell.source) if quick else cell.source
        if quick and cell.cell_type == "code" and "needs-training" in cell.metadata.get("tags", []):
            cell.source = ""
    exercises = [name for cell in run.cells if (name := exercise_of(cell))]
    passed = "".join(f"print({name!r}) if {name}.__module__ == '__main__' else None\n" for name in exercises)
    run.cells.append(nbformat.v4.new_code_cell(passed))
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(run, timeout=CELL_TIMEOUT, kernel_name="python3", resources=place)
        try:
            client.execute(env=kernel_environment(), stderr=subprocess.DEVNULL)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without the colours
            raise UserError(f"a cell failed: {plain[-3000:]}") from None
    return run, set("".join(output.text for output in run.cells.pop().outputs).split())


def build(names: list[str]) -> dict[str, float]:
    """Make notebooks/solved/NAME.ipynb for the named notebooks ("03", "attention" or "03_attention"), or all.

    Those in NOT_STORED are left out. Returns the seconds that each took. UserError for a name that does not exist,
    a cell that fails, and a reference that fails its check.
    """
    if not FOLDER.is_dir():
        raise UserError("build needs the project's own folder with notebooks/; an installed course has none")
    seconds = {}
    for path in [_find(name) for name in names] or stored_notebooks():
        if path.stem in NOT_STORED:
            raise UserError(f"{path.name} has no solved copy: the terms of its data forbid to store outputs")
        started, origin = time.perf_counter(), made_from(path)
        source = solutions_file(module_name(path))
        filled = fill(read(path), source.read_text(encoding="utf-8") if source.exists() else "")
        try:
            solved, passed = execute(filled)
        except UserError as error:
            raise UserError(f"{path.name}: {error}") from None
        if failed := {name for cell in filled.cells if (name := exercise_of(cell))} - passed:
            raise UserError(f"{path.name}: the reference fails its own check: {', '.join(sorted(failed))}")
        for cell in solved.cells:
            cell.metadata.pop("execution", None)  # the times of this run
        solved.metadata["txcourse"] = {"made_from": origin}
        write(solved, SOLVED / path.name)
        seconds[path.stem] = round(time.perf_counter() - started, 1)
    return seconds


def out_of_date(path: Path) -> bool:
    """Whether the solved copy of a student notebook is missing or made from something else."""
    solved = SOLVED / path.name
    return not solved.exists() or read(solved).metadata.get("txcourse", {}).get("made_from") != made_from(
        path
    )


def _find(name: str) -> Path:
    wanted = name.removesuffix(".ipynb")
    for path in student_notebooks():
        if wanted in (path.stem, path.stem[:2], module_name(path)):
            return path
    known = ", ".join(path.stem for path in student_notebooks())
    raise UserError(f"no notebook named {name!r}; there are: {known}")


# What a student notebook must obey


def problems(path: Path) -> list[str]:
    """Sentences about what is wrong with the form of a student notebook; none when it is right."""
    notebook, found = read(path), []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    source_file = solutions_file(module_name(path))
    source = source_file.read_text(encoding="utf-8") if source_file.exists() else ""

    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        found.append("cells without an id, or two with the same")
    exercises = {name for cell in code if (name := exercise_of(cell))}
    known: set[str] = set()
    for i, cell in enumerate(code):
        where, text = f"cell {cell.get('id')}", cell.source
        if cell.outputs or cell.execution_count:
            found.append(f"{where} has outputs")
        if re.search(r";\s*$", text, re.MULTILINE):
            found.append(f"{where} has a line that ends with ';': nbval does not honour it")
        if len(text.splitlines()) > 40:
            found.append(f"{where} is longer than 40 lines")
        for line in text.splitlines():
            if len(line) > 110:
                found.append(f"{where} has a line of more than 110 characters: {line[:40]}…")
        bound = names_bound(text)
        name = exercise_of(cell)
        if name:
            following = code[i + 1].source.strip() if i + 1 < len(code) else ""
            if following != f"{name} = check({name})":
                found.append(f"{where}: the next code cell must be `{name} = check({name})`")
            if not interface(source, name):
                found.append(f"{where}: {name} is not in {source_file.name}")
            elif interface(text, name) != interface(source, name):
                found.append(f"{where}: signature or docstring of {name} is not that of the reference")
            elif missing := _unbound(answer(name, source, known), source, known):
                found.append(
                    f"{where}: the reference of {name} needs {sorted(missing)}, which no cell above binds"
                )
            if "raise NotImplementedError" not in text:
                found.append(f"{where}: the stub of {name} does not raise NotImplementedError")
        elif text.strip() not in {f"{e} = check({e})" for e in exercises} and (taken := bound & exercises):
            found.append(f"{where} rebinds {sorted(taken)}, the name of an exercise")
        known |= bound
    lengths = [len(cell.source.splitlines()) for cell in code if not exercise_of(cell)]
    if lengths and median(lengths) > 6:
        found.append(f"the median code cell has {median(lengths)} lines, more than 6")
    found.extend(_problems_of_prose(prose))
    return found


def _unbound(answer_text: str, source: str, known: set[str]) -> set[str]:
    """Names that the solved cell takes from its module's imports and no earlier cell has bound."""
    imports = [n for n in ast.parse(source).body if isinstance(n, ast.Import | ast.ImportFrom)]
    imported = {(a.asname or a.name).split(".")[0] for node in imports for a in node.names}
    elsewhere = imported | _definitions(source).keys()
    return _names_used(ast.parse(answer_text)) & elsewhere - known - names_bound(answer_text)


def _problems_of_prose(cells: list[NotebookNode]) -> Iterator[str]:
    text = "\n\n".join(cell.source for cell in cells)
    if not cells or not re.match(r"# \d\d · .+", cells[0].source):
        yield "the first cell is not a title such as `# 03 · Attention`"
    elif not re.search(r"\d+ minutes", cells[0].source):
        yield "the first cell does not say how many minutes the notebook takes"
    if text.count("<details>") < 3:
        yield "fewer than three questions with folded answers (<details>)"
    for paragraph in re.split(r"\n\s*\n", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)):
        is_list = paragraph.lstrip().startswith(("-", "|", "1.", "<", "#"))
        if not is_list and len(paragraph) > 420:
            yield f"a paragraph of {len(paragraph)} characters (at most 420): {paragraph[:60]}…"
    for paragraph in re.findall(r"^### Exercise.*?(?=^#|\Z)", text, flags=re.MULTILINE | re.DOTALL):
        name = paragraph.splitlines()[0]
        if not re.search(r"[●○]{3} · \d+ minutes", paragraph):
            yield f"{name}: no difficulty and minutes such as `●○○ · 10 minutes`"
        if "Think first" not in paragraph:
            yield f"{name}: no **Think first**"


def summary(path: Path) -> dict[str, object]:
    """Counts for the table of the course: cells, lines of code cells, words, exercises, claims."""
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    lengths = [len(cell.source.splitlines()) for cell in code if not exercise_of(cell)]
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    tags = {tag for cell in code for tag in cell.metadata.get("tags", []) if tag.startswith("claim-")}
    solved = read(SOLVED / path.name).cells if (SOLVED / path.name).exists() else []
    figures = sum("image/png" in out.get("data", {}) for cell in solved for out in cell.get("outputs", []))
    return {
        "notebook": path.stem,
        "code cells": len(code),
        "median lines": median(lengths),
        "longest": max(lengths),
        "words": words,
        "figures": figures,
        "exercises": sum(exercise_of(cell) is not None for cell in code),
        "claims": len(tags),
    }
