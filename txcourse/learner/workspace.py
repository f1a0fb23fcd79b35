"""The learner's folder: where it is, and how files in it change.

    work/                    the workspace
      00_start_here.ipynb    the learner's copy of each notebook
      my_transformer/        answers that passed, one module per notebook
      .txcourse/             originals/ (the notebooks as the course delivered them), exercises/ (one JSON file each)

Every file is written beside its place and then moved there, so that a process killed at any moment leaves each
file either old or new. What is the learner's is copied to a dated name before it is replaced.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from txcourse.errors import UserError

VARIABLE = "TXCOURSE_WORKSPACE"
MARKER = ".txcourse"


@dataclass(frozen=True)
class Workspace:
    """A learner's folder that exists."""

    root: Path

    @property
    def originals(self) -> Path:
        return self.root / MARKER / "originals"

    @property
    def answers(self) -> Path:
        return self.root / "my_transformer"

    def record(self, exercise: str) -> dict[str, Any]:
        """What is known of one exercise: `tries`, `passed`, `hints` (how many were shown)."""
        try:
            found = json.loads(self._record_file(exercise).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        return {"tries": 0, "passed": False, "hints": 0} | (found if isinstance(found, dict) else {})

    def set_record(self, exercise: str, **values: Any) -> None:
        changed = self.record(exercise) | values
        write(self._record_file(exercise), json.dumps(changed, indent=1) + "\n")

    def _record_file(self, exercise: str) -> Path:
        return self.root / MARKER / "exercises" / f"{exercise}.json"


def find(start: Path | None = None) -> Workspace | None:
    """The workspace named by $TXCOURSE_WORKSPACE (empty: none), else the one around `start` (the current folder)."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return create(Path(named)) if named else None
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / MARKER).is_dir():
            return Workspace(folder)
    return None


def find_or_fail() -> Workspace:
    """Like `find`.

    Raises:
        UserError: there is none.
    """
    here = find()
    if here is None:
        raise UserError(f"no course folder here; `txcourse lab` makes one, or set {VARIABLE} to yours")
    return here


def prefer_work_folder() -> None:
    """For the command line: where no workspace is found, ./work is taken when it is one."""
    work = Path.cwd() / "work"
    if find() is None and VARIABLE not in os.environ and (work / MARKER).is_dir():
        os.environ[VARIABLE] = str(work)


def create(root: Path) -> Workspace:
    """Make `root` a workspace if it is none yet.

    Raises:
        UserError: the folder cannot be written.
    """
    root = root.expanduser().resolve()
    try:
        (root / MARKER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write the course folder {root}: {error.strerror}") from error
    return Workspace(root)


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one step.

    Raises:
        UserError: disk full, no permission. The old file is still there.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        else:
            os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}; the old version is untouched") from error


def keep(path: Path, folder: Path | None = None) -> Path:
    """Copy a file to a dated name beside it (or in `folder`) and return that name."""
    folder = folder or path.parent
    stamp = datetime.now().strftime("%Y-%m-%d_%H%M%S")
    kept = folder / f"{path.stem}.{stamp}{path.suffix}"
    number = 2
    while kept.exists():
        kept = folder / f"{path.stem}.{stamp}-{number}{path.suffix}"
        number += 1
    write(kept, path.read_bytes())
    return kept
