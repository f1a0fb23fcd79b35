"""The code cells of a notebook that anybody may have made.

A large one is read in a process of its own with limited memory, since a few MB of JSON can need a GB.
"""

import json
import subprocess
import sys

from txcourse.grading.submissions import Unreadable, decoded
from txcourse.source import Cell, code_cells

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

LARGE = 8 * 2**20  # bytes from which on a process of its own reads it
MEMORY = 3 * 2**30  # bytes of that process
SECONDS = 120
LONGEST = 2**20  # characters of a cell; longer ones are no answers


def cells_of(data: bytes) -> list[Cell]:
    """The code cells of a notebook file, of whatever version of the format.

    Raises:
        Unreadable: it is no notebook.
    """
    if len(data) < LARGE:
        return _cells(data)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "txcourse.grading.notebook", str(MEMORY)],
            input=data,
            capture_output=True,
            timeout=SECONDS,
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        raise Unreadable("is too large to be read") from None
    if isinstance(found, str):
        raise Unreadable(found)
    return [Cell(text, exercise) for text, exercise in found]


def _cells(data: bytes) -> list[Cell]:
    if not data.strip():
        raise Unreadable("is empty")
    text = decoded(data)
    if text is None or "\0" in text:
        raise Unreadable("is no notebook but a binary file")
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("is no notebook: its JSON is broken") from None
    if not isinstance(notebook, dict) or not isinstance(
        notebook.get("cells", notebook.get("worksheets")), list
    ):
        raise Unreadable("is JSON, but no notebook: it has no list of cells")
    return [cell if len(cell.text) <= LONGEST else Cell("", cell.exercise) for cell in code_cells(notebook)]


def _main() -> None:
    if resource is not None:
        resource.setrlimit(
            resource.RLIMIT_DATA, (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_DATA)[1])
        )
    answer: object
    try:
        answer = [(cell.text, cell.exercise) for cell in _cells(sys.stdin.buffer.read())]
    except Unreadable as error:
        answer = str(error)
    except MemoryError:
        answer = "is too large to be read"
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
