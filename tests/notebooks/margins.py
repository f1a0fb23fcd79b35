"""Run a notebook's cells here, with other seeds than the learner sees, to look at the margins of its claims."""

from pathlib import Path
from typing import Any

import matplotlib

from txcourse import notebooks


def run(stem: str, **replaced: str) -> dict[str, Any]:
    """The names bound by the solved notebook's cells, run up to their end in this process, without the checks.

    replaced: for a name bound by a cell, the line that binds it here, such as seeds="seeds = range(5, 10)".
    """
    matplotlib.use("Agg")
    path = notebooks.FOLDER / f"{stem}.ipynb"
    solutions = notebooks.solutions_file(notebooks.module_name(path))
    source = solutions.read_text(encoding="utf-8") if solutions.exists() else ""  # 17 asks for none
    space: dict[str, Any] = {"__name__": "margins"}
    used = set()
    for cell in notebooks.fill(notebooks.read(path), source).cells:
        text = cell.source
        if cell.cell_type != "code" or "= check(" in text:
            continue
        if "quick" in cell.metadata.get("txcourse", {}):
            for name in notebooks.names_bound(text) & replaced.keys():
                text += "\n" + replaced[name]
                used.add(name)
        exec(compile(text, f"{Path(stem)}:{cell.id}", "exec"), space)
    assert used == replaced.keys(), "no budget cell binds these names"
    return space
