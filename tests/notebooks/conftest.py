"""The table at the end of the run: what each notebook is made of, and how long it took."""

from collections import defaultdict
from collections.abc import Iterator

import pytest

from txcourse import notebooks

seconds: dict[str, dict[str, float]] = defaultdict(dict)


@pytest.fixture
def took() -> Iterator[dict[str, dict[str, float]]]:
    yield seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not seconds:
        return
    rows = [{**notebooks.summary(p), **seconds.get(p.stem, {})} for p in notebooks.student_notebooks()]
    columns = list(dict.fromkeys(key for r in rows for key in r))
    terminalreporter.section("notebooks (solved, open: seconds to run)")
    for line in [columns, *([str(r.get(c, "")) for c in columns] for r in rows)]:
        terminalreporter.write_line(
            "".join(f"{text:<34}" if i == 0 else f"{text:>14}" for i, text in enumerate(line))
        )
    total = sum(times.get("solved", 0) for times in seconds.values())
    terminalreporter.write_line(f"solved notebooks together: {total:.0f} s")
