"""Drawing for the notebooks: arrays in, one style out.

Nothing is computed here. Colour never carries a meaning alone: heat maps print their values or have a scale
that gets darker, lines differ by marker and dash, bars by hatching. Fonts are large enough for half size.

Each function makes its own figure, or draws into `axes` (one of `row(n)`), and returns None.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from numpy.typing import ArrayLike

STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "lines.linewidth": 2,
    "lines.markersize": 7,
    "legend.edgecolor": "none",  # a white ground, so that its words can be read over a line
    "legend.framealpha": 0.85,
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
}
COLOURS = ("#0b3c5d", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "x")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
HATCHES = ("", "//", "..", "xx", "--", "++")


def row(n: int, width: float = 4.5, height: float = 3.6) -> list[Axes]:
    """n axes side by side for the `axes` of the functions below; shown when all n are drawn."""
    with plt.rc_context(STYLE):
        return list(plt.subplots(1, n, figsize=(width * n, height), squeeze=False)[1][0])


def heat_map(
    values: ArrayLike,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    digits: int = 2,
    limits: tuple[float, float] | None = None,
    axes: Axes | None = None,
) -> None:
    """Matrix (rows, columns) as squares, darker is larger; up to 150 values are printed in their squares.

    limits are the values of the lightest and the darkest square: give them to pictures that are compared.
    Cells that are False in a boolean matrix, and NaN in any other, stay white with a cross.
    """
    matrix = np.asarray(values)
    is_mask = matrix.dtype == bool
    matrix = np.where(matrix, 1.0, np.nan) if is_mask else matrix.astype(float)
    n_rows, n_columns = matrix.shape
    with plt.rc_context(STYLE):
        printed = matrix.size <= 150
        size = (1.6 + 0.62 * n_columns, 1.3 + 0.5 * n_rows) if printed else (6.5, 4.0)
        ax = axes or plt.subplots(figsize=size)[1]
        low, high = (0.0, 1.0) if is_mask else limits or (np.nanmin(matrix), np.nanmax(matrix))
        span = (high - low) or 1.0
        # The upper end of the map is left out, so that black print stays readable or turns white in time.
        image = ax.imshow(
            matrix, cmap="Blues", vmin=low, vmax=low + span * (2.0 if is_mask else 1.1), aspect="auto"
        )
        if printed:
            for (i, j), value in np.ndenumerate(matrix):
                text = "×" if np.isnan(value) else "✓" if is_mask else f"{value:.{digits}f}"
                dark = not is_mask and not np.isnan(value) and (value - low) / span > 0.6
                ax.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=11)
        else:
            ax.figure.colorbar(image, ax=ax, shrink=0.9)
        if rows is not None or printed:
            ax.set_yticks(range(n_rows), [str(r) for r in (rows if rows is not None else range(n_rows))])
        if columns is not None or printed:
            ax.set_xticks(
                range(n_columns), [str(c) for c in (columns if columns is not None else range(n_columns))]
            )
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set(title=title, xlabel=x_label, ylabel=y_label)
        _finish(ax)


def lines(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    axes: Axes | None = None,
) -> None:
    """A line with markers per series (n,); of (seeds, n), the mean with the range as a band."""
    x = np.asarray(x, dtype=float)
    with plt.rc_context(STYLE):
        ax = axes or plt.subplots(figsize=(6.5, 4.0))[1]
        for i, (name, values) in enumerate(series.items()):
            y = np.atleast_2d(np.asarray(values, dtype=float))  # (seeds, n)
            look: dict[str, Any] = {
                "color": COLOURS[i % 6],
                "linestyle": DASHES[i % 6],
                "marker": MARKERS[i % 6],
            }
            ax.plot(x, y.mean(0), label=name, markevery=max(1, len(x) // 12), **look)
            if len(y) > 1:
                ax.fill_between(x, y.min(0), y.max(0), color=COLOURS[i % 6], alpha=0.2)
        if log_x:
            ax.set_xscale("log", base=2)
            ax.set_xticks(x, [f"{value:g}" for value in x]) if len(x) <= 12 else None
        if log_y:
            ax.set_yscale("log")
        elif all(np.nanmin(np.asarray(y, dtype=float)) >= 0 for y in series.values()):
            ax.set_ylim(bottom=0)
        ax.set(title=title, xlabel=x_label, ylabel=y_label)
        ax.grid(axis="y", alpha=0.3)
        if len(series) > 1:
            ax.legend()
        _finish(ax)


def bars(
    names: Sequence[str],
    series: Mapping[str, ArrayLike],
    *,
    y_label: str,
    title: str = "",
    digits: int = 2,
    axes: Axes | None = None,
) -> None:
    """A group of bars for each name, one bar per series (len(names),), each with its value on top."""
    positions, width = np.arange(len(names)), 0.8 / len(series)
    with plt.rc_context(STYLE):
        ax = axes or plt.subplots(figsize=(max(4.0, 1.5 + 0.9 * len(names) * len(series)), 3.6))[1]
        for i, (label, values) in enumerate(series.items()):
            offset = (i - (len(series) - 1) / 2) * width
            heights = np.asarray(values, dtype=float)
            look: dict[str, Any] = {
                "color": COLOURS[i % 6] if i == 0 else "white",
                "edgecolor": COLOURS[i % 6],
                "hatch": HATCHES[i % 6],
            }
            drawn = ax.bar(positions + offset, heights, 0.9 * width, label=label, **look)
            ax.bar_label(drawn, fmt=f"%.{digits}f", fontsize=11)
        ax.set_xticks(positions, [str(n) for n in names])
        ax.set(title=title, ylabel=y_label)
        ax.margins(y=0.15)
        if len(series) > 1:
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the bars, none of which it may hide
        _finish(ax)


def points(
    groups: Sequence[tuple[ArrayLike, Sequence[str]]],
    *,
    line: tuple[float, float, float] | None = None,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    axes: Axes | None = None,
) -> None:
    """Named points of the plane: for each group its points (n, 2) and their n names, the first group's in frames.

    line = (a, b, c) draws a x + b y + c = 0.
    """
    with plt.rc_context(STYLE):
        ax = axes or plt.subplots(figsize=(7.5, 5.5))[1]
        every = np.concatenate([np.asarray(xy, dtype=float) for xy, _ in groups])  # (n, 2)
        low, span = every.min(0), np.ptp(every, axis=0)
        places = iter(_apart((every - low) / span) * span + low)
        for i, (xy, names) in enumerate(groups):
            frame = {"boxstyle": "round,pad=0.15", "facecolor": "#e6e6e6" if i == 0 else "white"}
            for (x, y), name in zip(np.asarray(xy, dtype=float), names, strict=True):
                place = next(places)
                ax.plot(
                    [x, place[0]], [y, place[1]], color="grey", linewidth=0.8
                )  # from the point to its name
                box = {**frame, "edgecolor": "black" if i == 0 else "none"}
                ax.text(
                    place[0],
                    place[1],
                    name,
                    ha="center",
                    va="center",
                    fontsize=11,
                    color=COLOURS[i],
                    bbox=box,
                )
        if line is not None:
            a, b, c = line
            (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
            t = np.linspace(-10, 10, 2) * max(x1 - x0, y1 - y0)
            foot = -c * np.array([a, b]) / (a * a + b * b)
            ax.plot(foot[0] - b * t, foot[1] + a * t, color="black", linestyle="--", linewidth=1.5)
            ax.set(xlim=(x0, x1), ylim=(y0, y1))
        ax.set(title=title, xlabel=x_label, ylabel=y_label)
        _finish(ax)


def _apart(xy: np.ndarray, width: float = 0.065, height: float = 0.052) -> np.ndarray:
    """Places (n, 2) for names in the unit square, moved up and down until no two of this size overlap."""
    places, order = xy.copy(), np.arange(len(xy))
    for _ in range(500):
        dx, dy = (places[:, None, i] - places[None, :, i] for i in (0, 1))  # (n, n)
        overlap = (abs(dx) < width) & (abs(dy) < height) & (order[:, None] != order)
        if not overlap.any():
            break
        away = np.where(dy != 0, np.sign(dy), np.sign(order[:, None] - order))
        places[:, 1] += 0.05 * height * (away * overlap).sum(1)
    return places


# The boxes of the model map: name of the part, text, column, row (1 encoder, 0 decoder).
_BOXES = (
    ("embedding", "embed-\nding", 1, 1),
    ("positions", "posi-\ntions", 2, 1),
    ("self-attention", "self-\nattention", 3, 1),
    ("norm", "add &\nnorm", 4, 1),
    ("feed-forward", "feed-\nforward", 5, 1),
    ("norm", "add &\nnorm", 6, 1),
    ("embedding", "embed-\nding", 1, 0),
    ("positions", "posi-\ntions", 2, 0),
    ("masked self-attention", "masked\nself-att.", 3, 0),
    ("norm", "add &\nnorm", 4, 0),
    ("cross-attention", "cross-\nattention", 5, 0),
    ("norm", "add &\nnorm", 6, 0),
    ("feed-forward", "feed-\nforward", 7, 0),
    ("norm", "add &\nnorm", 8, 0),
    ("output", "linear", 9, 0),
    ("softmax", "softmax", 10, 0),
)
_GROUPS = {
    "attention": {"self-attention", "masked self-attention", "cross-attention"},
    "encoder": {"self-attention", "norm", "feed-forward"},
    "decoder": {"masked self-attention", "cross-attention", "norm", "feed-forward"},
    "everything": {name for name, *_ in _BOXES},
}


def model_map(*parts: str) -> None:
    """The whole Transformer (paper, figure 1) on one strip, the named parts filled dark with a thick frame.

    Parts: input, embedding, positions, self-attention, masked self-attention, cross-attention, norm,
    feed-forward, output, softmax, target; and the groups attention, encoder, decoder, everything.
    """
    names = {name for name, *_ in _BOXES} | set(_GROUPS) | {"input", "target"}
    if unknown := set(parts) - names:
        raise ValueError(f"no such part of the map: {sorted(unknown)}; parts are {sorted(names)}")

    def marked(name: str, level: int) -> bool:
        if name in parts or "everything" in parts or ("attention" in parts and name in _GROUPS["attention"]):
            return True
        stack = "encoder" if level else "decoder"
        return stack in parts and name in _GROUPS[stack]

    with plt.rc_context(STYLE):
        ax = plt.subplots(figsize=(11, 3.1))[1]
        for last, level in ((6, 1), (8, 0)):
            frame = FancyBboxPatch((2.52, level - 0.33), last - 2.04, 0.66, "round,pad=0,rounding_size=0.08")
            frame.set(facecolor="#f0f0f0", edgecolor="black", linewidth=1)
            ax.add_patch(frame)
            ax.text(last + 0.5, level + 0.36, "× N", ha="right", va="bottom")
        for name, text, column, level in _BOXES:
            _box(ax, column, level, text, marked(name, level))
        _box(ax, 0, 1, "c a t s", "input" in parts, frame=False)
        _box(ax, 0, 0, "<bos>\nK AE T S", "target" in parts, frame=False)
        _box(ax, 11, 0, "K AE T S\n<eos>", "target" in parts, frame=False)
        for level, last in ((1, 6), (0, 11)):
            for column in range(last):
                ax.annotate("", (column + 0.6, level), (column + 0.4, level), arrowprops={"arrowstyle": "->"})
        ax.plot([6.4, 7.0, 7.0, 5.0], [1, 1, 0.5, 0.5], color="black", linewidth=1)
        ax.annotate("", (5.0, 0.23), (5.0, 0.505), arrowprops={"arrowstyle": "->"})
        ax.text(7.1, 0.8, "memory", va="center")
        ax.text(2.6, 1.36, "encoder", va="bottom", style="italic")
        ax.text(2.6, -0.36, "decoder", va="top", style="italic")
        ax.set(xlim=(-0.6, 11.7), ylim=(-0.6, 1.65))
        ax.axis("off")
        plt.show()


def _box(ax: Axes, column: float, level: float, text: str, mark: bool, frame: bool = True) -> None:
    patch = FancyBboxPatch((column - 0.4, level - 0.22), 0.8, 0.44, "round,pad=0,rounding_size=0.06")
    patch.set(facecolor="#0b3c5d" if mark else "white", edgecolor="black", linewidth=3 if mark else 1)
    if frame or mark:
        ax.add_patch(patch)
    ax.text(column, level, text, ha="center", va="center", fontsize=10.5, color="white" if mark else "black")


def _finish(ax: Axes) -> None:
    """Show the figure once all its axes are drawn, so that no cell has to end with `plt.show()`."""
    if all(other.has_data() for other in ax.figure.axes):
        plt.show()
