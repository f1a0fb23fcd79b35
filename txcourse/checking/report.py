"""The result of a check, for a program and for a reader."""

import html
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class TestResult:
    name: str
    title: str
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class Report:
    """`mistake` is a short identifier of the named mistake ("no_scale"; two are joined by "+"), None when none is named."""

    exercise: str
    passed: bool
    tests: tuple[TestResult, ...]
    mistake: str | None
    message: str
    seconds: float
    started: bool = True
    picture: tuple[Tensor, Tensor] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        fields = {
            k: getattr(self, k) for k in ("exercise", "passed", "started", "mistake", "message", "seconds")
        }
        return {**fields, "tests": [asdict(t) for t in self.tests]}

    def to_text(self) -> str:
        if not self.started:
            return f"{self.exercise}: {self.message}"
        lines = [f"{self.exercise}: {'passed' if self.passed else 'not yet'}", f"  {self.message}"]
        for t in self.tests:
            lines.append(f"  {'ok    ' if t.passed else 'WRONG '} {t.title}")
            if not t.passed:
                lines.append(f"         {t.message}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        e = html.escape
        if not self.started:
            return f"<p><b>{e(self.exercise)}</b>: {e(self.message)}</p>"
        rows = "".join(
            f"<tr><td style='text-align:left'>{'ok' if t.passed else '<b>wrong</b>'}</td>"
            f"<td style='text-align:left'>{e(t.title)}{'' if t.passed else '<br>' + e(t.message)}</td></tr>"
            for t in self.tests
        )
        head = (
            f"<p><b>{e(self.exercise)}: {'passed' if self.passed else 'not yet'}.</b> {e(self.message)}</p>"
        )
        drawn = ""
        if self.picture is not None:
            wanted, got = self.picture
            drawn = (
                "<table><tr><td style='text-align:left'>expected (first matrix)</td><td style='text-align:left'>yours</td></tr>"
                f"<tr><td>{_heat(wanted)}</td><td>{_heat(got)}</td></tr></table>"
            )
        return f"{head}<table>{rows}</table>{drawn}"


def _heat(matrix: Tensor) -> str:
    """A matrix as an SVG drawing in greys, with its values written in when there is room."""
    rows, columns = matrix.shape
    finite = matrix[matrix.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    cell = 44 if columns <= 8 and rows <= 12 else 14
    boxes = []
    for i in range(rows):
        for j in range(columns):
            value = float(matrix[i, j])
            known = value == value and abs(value) != float("inf")
            shade = 255 - int(190 * (value - low) / (high - low)) if known and high > low else 255
            boxes.append(
                f"<rect x='{j * cell}' y='{i * cell}' width='{cell}' height='{cell}' fill='rgb({shade},{shade},{shade})' stroke='#888'/>"
            )
            if cell > 20:
                ink = "#000" if shade > 130 else "#fff"
                boxes.append(
                    f"<text x='{j * cell + cell / 2}' y='{i * cell + cell / 2 + 4}' font-size='11' "
                    f"text-anchor='middle' fill='{ink}'>{value:.2f}</text>"
                )
    size = f"width='{columns * cell}' height='{rows * cell}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' role='img' {size}>{''.join(boxes)}</svg>"
