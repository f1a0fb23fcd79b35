"""Gradescope: the autograder's zip, and what it runs there for each submission.

python -m txcourse.grading.gradescope SUBMISSION_FOLDER ASSIGNMENT.toml RESULTS.json
"""

import importlib.metadata
import json
import shutil
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any

from txcourse.errors import UserError
from txcourse.grading.assignment import Assignment, read, to_toml
from txcourse.grading.results import IN_WORDS, points, without_values
from txcourse.learner.workspace import write

_PACKAGE = Path(__file__).parent.parent
_NEEDED = ("torch", "numpy", "jaxtyping", "tqdm")  # what grading imports

SETUP = """#!/usr/bin/env bash
# Runs once, when Gradescope builds the machine.
set -e
base="${AUTOGRADER:-/autograder}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y bubblewrap || echo "no bubblewrap: the code runs as another user instead"
python=""
for name in python3.13 python3.12 python3.11 python3; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$name"; break; fi
done
if [ -z "$python" ]; then
    apt-get install -qq -y python3.11 python3.11-venv
    python=python3.11
fi
"$python" -m venv "$base/venv"
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu "$base/venv/bin/pip" install --quiet -r "$base/source/requirements.txt"
chmod 700 "$base/source"
"""

RUN = """#!/usr/bin/env bash
# Runs for every submission.
base="${AUTOGRADER:-/autograder}"
mkdir -p "$base/results"
cd "$base/source" || exit 1
export PYTHONPATH="$base/source" OMP_NUM_THREADS=1
exec "${PYTHON:-$base/venv/bin/python}" -m txcourse.grading.gradescope "$base/submission" "$base/source/assignment.toml" "$base/results/results.json"
"""


def autograder(assignment: Assignment, out: Path) -> list[str]:
    """Write the zip that Gradescope takes as an autograder; the installed package goes with it.

    Raises:
        UserError: it cannot be written.
    """
    if out.suffix != ".zip":
        raise UserError(f"--out should name a zip, such as {out.with_suffix('.zip')}")
    own = {Path(file).name: Path(file) for file in assignment.plain["own"]}
    if len(own) < len(assignment.plain["own"]):
        raise UserError("two files of `own` have the same name; rename one")
    files = {
        "setup.sh": SETUP,
        "run_autograder": RUN,
        "requirements.txt": "".join(
            f"{name}=={importlib.metadata.version(name).split('+')[0]}\n" for name in _NEEDED
        ),
        "assignment.toml": to_toml(assignment, list(own)),
        **{name: file.read_text(encoding="utf-8") for name, file in own.items()},
    }
    partial = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                entry = zipfile.ZipInfo(name, (2027, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100755 if name in ("setup.sh", "run_autograder") else 0o100644) << 16
                archive.writestr(entry, text)
            for path in sorted(_PACKAGE.rglob("*")):
                inside = path.relative_to(_PACKAGE)
                if path.suffix in (".py", ".html") and not any(p.startswith(("__pycache__", "_notebooks")) for p in inside.parts):  # fmt: skip
                    archive.write(path, (Path("txcourse") / inside).as_posix())
        shutil.move(partial, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    return [f"{out}: upload it as the autograder; it holds your seed, so show it to nobody"]


def results_json(result: dict[str, Any], max_points: float) -> dict[str, Any]:
    """The result of one student in Gradescope's format."""
    tests = []
    for number, e in enumerate(result["exercises"], 1):
        lines = [IN_WORDS[e["status"]] + ": " + without_values(e["message"])]
        if e["status"] != "passed":
            lines += [f"{'ok   ' if ok else 'wrong'} {title}" + ("" if ok else f": {without_values(said)}") for _, title, ok, said in e["tests"]]  # fmt: skip
        tests.append(
            {
                "number": str(number),
                "name": e["name"],
                "score": e["points"],
                "max_score": e["max_points"],
                "status": "passed" if e["status"] == "passed" else "failed",
                "output": "\n".join(lines)[:20_000],
                "output_format": "text",
                "visibility": "visible",
            }
        )
    head = [f"{points(result['points'])} of {points(max_points)} points.", *result["problems"]]
    return {
        "score": result["points"],
        "output": "\n".join(head),
        "output_format": "text",
        "tests": tests,
        "execution_time": round(sum(e["seconds"] for e in result["exercises"])),
        "extra_data": {"isolation": result["isolation"]},
    }


def main(submission: Path, assignment: Path, out: Path) -> None:
    """Grade one submission. There are results whatever happens; what the instructor has to know is printed."""
    from txcourse.grading.grade import grade_one
    from txcourse.grading.judge import Judge
    from txcourse.grading.submissions import of_one_student

    try:
        asked = read(assignment)
        with Judge(asked) as judge:
            result = grade_one(judge, asked, of_one_student(submission))
        found = results_json(result, asked.max_points)
    except Exception as error:
        if isinstance(error, UserError):
            print(f"txcourse: {error}")
        else:
            traceback.print_exc(file=sys.stdout)
        found = {
            "score": 0,
            "output": "The autograder could not run. This is not your fault: tell your instructor.",
        }
    write(out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
