"""A notebook runs on with any right answer in its exercise cells, however it is written and named.

Whoever passed a check goes on with their own version; a cell below it that reads `w_q`, or expects a tuple where a
list was right, would stop them. The answers are those of tests/exercises/bank.
"""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

from tests.exercises.test_bank import bank
from txcourse import notebooks
from txcourse.exercises import MODULES


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_cells_take_any_right_answer(module: str) -> None:
    matplotlib.use("Agg")
    right = bank(module).RIGHT
    (path,) = (p for p in notebooks.student_notebooks() if notebooks.module_name(p) == module)
    cells = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    for i in range(max(map(len, right.values()))):
        chosen = {name: answers[i % len(answers)] for name, answers in right.items()}
        space: dict[str, Any] = {"__name__": "right_answers"}
        for cell in cells:
            if name := notebooks.exercise_of(cell):
                space[name] = chosen[name]
            elif "= check(" not in cell.source and "needs-training" not in cell.metadata.get("tags", []):
                text = cell.metadata.get("txcourse", {}).get("quick", cell.source)
                try:
                    with redirect_stdout(StringIO()):
                        exec(compile(text, f"{path.stem}:{cell.id}", "exec"), space)
                except Exception as error:
                    raise AssertionError(f"{cell.id} stops with {chosen}") from error
        plt.close("all")
