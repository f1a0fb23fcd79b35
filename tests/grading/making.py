"""Submissions as students make them, for the tests."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from txcourse import exercises
from txcourse.source import code_cells

ROOT = Path(__file__).parent.parent.parent
Source = str | tuple[str, str]


def notebook(*sources: Source, **changes: Any) -> dict[str, Any]:
    """A notebook of code cells; a pair is the name of an exercise in the metadata, and the text."""
    cells = []
    for number, source in enumerate(sources):
        name, text = source if isinstance(source, tuple) else (None, source)
        metadata = {"txcourse": {"exercise": name}} if name else {}
        cells.append(
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": metadata,
                "source": text,
                "outputs": [],
                "execution_count": None,
            }
        )
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells} | changes


def text(*sources: Source, **changes: Any) -> str:
    return json.dumps(notebook(*sources, **changes))


IMPORTS = "import math\nimport numpy as np\nimport torch\nfrom torch import Tensor, nn\nfrom jaxtyping import Bool, Float, Int\nfrom txcourse import check"


@cache
def solved(name: str) -> str:
    """The reference of an exercise, as the text of its cell."""
    file = ROOT / "notebooks" / "solved" / f"{exercises.get(name).notebook}.ipynb"
    cells = code_cells(json.loads(file.read_text(encoding="utf-8")))
    return next(cell.text for cell in cells if cell.exercise == name)


def answers(**given: str | None) -> str:
    """A notebook with these answers, each with its check; None stands for the reference."""
    sources: list[Source] = [IMPORTS]
    for name, answer in given.items():
        sources += [(name, solved(name) if answer is None else answer), f"{name} = check({name})"]
    return text(*sources)
