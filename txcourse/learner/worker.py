"""The process in which `txcourse check` runs a learner's cells: one JSON job a line on stdin, one JSON result a
line back. Whatever the cells print goes nowhere; when they hang or kill the process, the parent starts another.
"""

import io
import json
import linecache
import os
import sys
from typing import Any

from txcourse.learner import answers, workspace
from txcourse.source import part_for, statements

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MEMORY = 6 * 2**30  # bytes of memory of its own that the worker may have


def main() -> None:
    back = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    jobs = sys.stdin
    sys.stdin = open(os.devnull, encoding="utf-8")
    from txcourse import exercises

    exercises.names()
    print(json.dumps("ready"), file=back, flush=True)
    for line in jobs:
        result = run(**json.loads(line))
        print(json.dumps(result), file=back, flush=True)


def run(name: str, notebook: str, cell: str, others: list[str]) -> dict[str, Any]:
    """Check the answer in `cell`; store it when it passed and there is a workspace.

    Args:
        others: the notebook's other code cells, from which the names that the answer uses are taken. Other
            exercises are the references, so that one mistake counts once.
    """
    from txcourse import exercises

    try:
        candidate = _define(name, cell, others, exercises)
    except BaseException as error:
        text = f"the cell stops with {type(error).__name__}: {error}".splitlines()[0]
        return {"passed": False, "started": True, "text": f"{name}: not yet\n  {text}", "report": None}
    report = exercises.run_check(name, candidate)
    result: dict[str, Any] = {
        "passed": report.passed,
        "started": report.started,
        "text": report.to_text(),
        "report": report.to_dict(),
    }
    here = workspace.find()
    if report.passed and here is not None:
        try:
            block = answers.block_of(name, cell, others, {}, exercises.names())
            answers.store(here, notebook, name, block, exercises.names())
        except answers.NotStored as reason:
            result["text"] += f"\n  Passed, but not stored for later notebooks: {reason}, and check again."
    return result


def _define(name: str, cell: str, others: list[str], exercises: Any) -> Any:
    body = []
    for text in [*others, cell]:
        try:
            found = statements(text)
        except SyntaxError:
            if text is cell:
                raise
            continue
        taken = set(exercises.names()) - ({name} if text is cell else set())
        body += [statement for statement in found if not statement.binds & taken]
    part, missing = part_for(name, body)
    source = "\n\n".join(statement.text for statement in part)
    file = f"<the cell of {name}>"
    linecache.cache[file] = (len(source), None, io.StringIO(source).readlines(), file)
    namespace: dict[str, Any] = {"__name__": "notebook"}
    namespace |= {each: exercises.get(each).reference for each in missing & set(exercises.names())}
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    return namespace[name]


if __name__ == "__main__":
    main()
