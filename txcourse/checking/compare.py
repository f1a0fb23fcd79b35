"""Say in one sentence how a result differs from what was expected."""

from typing import Any

import numpy as np
from torch import Tensor


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().resolve_conj().cpu()
        value = value.double() if value.is_floating_point() else value
        return value.numpy()
    return np.asarray(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _named(shape: tuple[int, ...], axes: str | None) -> str:
    names = axes.split() if axes else []
    if len(names) != len(shape):
        return str(tuple(shape))
    return "(" + ", ".join(f"{name} {size}" for name, size in zip(names, shape, strict=True)) + ")"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {str(value)[:60]!r}"


def difference(
    got: Any,
    want: Any,
    *,
    what: str = "the result",
    axes: str | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> str | None:
    """None when `got` equals `want`, else a sentence. `axes` names the axes of a tensor, e.g. "batch query key".

    Tensors and arrays are compared by shape and value (NaN equals NaN), tuples and lists item by item, the rest by ==.
    """
    if isinstance(want, Tensor | np.ndarray):
        same_sort = (
            isinstance(got, Tensor)
            if isinstance(want, Tensor)
            else isinstance(got, Tensor | np.ndarray | np.number)
        )
        if not same_sort:
            return f"{what} should be {_kind(want)}; yours is {_kind(got)}."
        a, b = _array(got), _array(want)
        if a.shape != b.shape:
            return f"{what} should have shape {_named(b.shape, axes)}; yours has {_named(a.shape, axes)}."
        if b.dtype.kind in "biu":
            if a.dtype.kind not in "biu" or (b.dtype == bool) != (a.dtype == bool):
                own = str(got.dtype).removeprefix("torch.")  # a was made float64
                return f"{what} should be of type {b.dtype}; yours is {own}."
            wrong = a != b
        else:
            if a.dtype.kind not in "fiu":
                return f"{what} should hold floating-point numbers; yours is {a.dtype}."
            with np.errstate(all="ignore"):
                wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if not wrong.any():
            return None
        return _where(a, b, wrong, what, axes)
    if isinstance(want, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(want):
            return f"{what} should be {_kind(want)}; yours is {_kind(got)}."
        if all(isinstance(x, str | int) for x in want):
            plain = [
                int(x) if isinstance(x, np.integer) or (isinstance(x, Tensor) and x.ndim == 0) else x
                for x in got
            ]
            equal = all(isinstance(x, str | int) for x in plain) and plain == list(want)
            return None if equal else f"{what} should be {_short(want)}; yours is {_short(got)}."
        for i, (x, y) in enumerate(zip(got, want, strict=True)):
            if (
                text := difference(x, y, what=f"item {i} of {what}", axes=axes, rtol=rtol, atol=atol)
            ) is not None:
                return text
        return None
    if _is_number(want):
        if isinstance(got, Tensor | np.ndarray) and got.ndim == 0:
            got = got.item()
        if not _is_number(got):
            return f"{what} should be a number; yours is {_kind(got)}."
        close = np.isclose(float(got), float(want), rtol=rtol, atol=atol, equal_nan=True)
        return None if close else f"{what} should be {float(want):.6g}; yours is {float(got):.6g}."
    try:
        equal = type(got) is type(want) and bool(got == want)
    except Exception:  # a comparison that cannot be decided, such as of containers with tensors
        equal = False
    return None if equal else f"{what} should be {_short(want)}; yours is {_short(got)}."


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _where(a: np.ndarray, b: np.ndarray, wrong: np.ndarray, what: str, axes: str | None) -> str:
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if a.ndim else ()
    names = axes.split() if axes else []
    place = ""
    if first:
        place = f" at {list(first)}"
        if len(names) == len(first):
            place += " (" + ", ".join(f"{n} {i}" for n, i in zip(names, first, strict=True)) + ")"
    x, y = a[first], b[first]
    digits = next((n for n in (5, 8, 12) if _number(x, n) != _number(y, n)), 17)
    text = f"{what} first differs{place}: expected {_number(y, digits)}, yours {_number(x, digits)}"
    if a.dtype.kind == "f" and np.isnan(a).any() and not np.isnan(b).any():
        return f"{text}; {int(np.isnan(a).sum())} of {a.size} values are NaN."
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(a.astype(float) - b.astype(float))[wrong])
    return f"{text}; largest difference {largest:.3g}, {int(wrong.sum())} of {a.size} values differ."


def _number(value: Any, digits: int) -> str:
    return f"{float(value):.{digits}g}" if np.asarray(value).dtype.kind == "f" else str(value)
