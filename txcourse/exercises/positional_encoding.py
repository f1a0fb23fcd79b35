"""Exercises of 06_positional_encoding."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from txcourse.checking import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.compare import difference
from txcourse.checking.guard import CandidateError
from txcourse.checking.subject import ModuleSubject
from txcourse.exercises.multi_head_attention import raises_value_error
from txcourse.solutions import positional_encoding as solutions

_NEAR: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}  # sines of angles that were computed in float32

# -- the table -------------------------------------------------------------------------------------------------------

_FREQUENCY = (
    Mistake("exponent_counts_columns", "frequency", "The exponent is 2 · column / d: i counts pairs, so the columns 2i and 2i + 1 share the exponent 2i / d."),
    Mistake("exponent_doubled", "frequency", "The exponent is twice too large: column 2i has the exponent 2i / d, and your index is 2i already."),
    Mistake("cosine_own_exponent", "frequency", "The cosine has an exponent of its own, (2i + 1) / d; it is the cosine of the same angle as the sine before it."),
    Mistake("cosine_next_exponent", "frequency", "The cosine has the exponent of the next pair, (2i + 2) / d; it is the cosine of the same angle as the sine before it."),
    Mistake("exponent_halved", "frequency", "The exponent is i / d, or the base is 100: column 2i has the exponent 2i / d of 10000."),
    Mistake("exponent_without_d", "frequency", "The exponent is not divided by d_model."),
    Mistake("exponent_from_one", "frequency", "The pairs are counted from 1: the exponents are 2/d, 4/d and so on; they start at 0, so that the first pair turns by 1 per position."),
    Mistake("exponent_over_512", "frequency", "The exponent is divided by 512, the paper's d_model; divide by the d_model that is given."),
    Mistake("exponent_to_one", "frequency", "The exponents run from 0 to exactly 1 (divided by d / 2 − 1): this is the other convention, of the first published code; the formula of the paper divides by d."),
    Mistake("exponent_over_half_width", "frequency", "The exponent is 2i divided by d / 2; divide by d."),
    Mistake("exponent_over_d_minus_one", "frequency", "The exponent is divided by d − 1; divide by d."),
    Mistake("exponent_over_d_plus_one", "frequency", "The exponent is divided by d + 1; divide by d, also when d is odd."),
    Mistake("floored_logarithm", "frequency", "-log(10000) / d // 2 is rounded down to a whole number; write the division by d alone."),
    Mistake("one_frequency", "frequency", "All columns have the same frequency; that of column 2i is 1 / 10000^(2i/d)."),
    Mistake("frequencies_reversed", "frequency", "The frequencies stand in reverse order: the first pair is the fastest."),
    Mistake("frequency_inverted", "frequency", "The position is multiplied by 10000^(2i/d), or the minus sign in exp(-2i · log(10000) / d) is lost; divide by it."),
    Mistake("two_pi", "frequency", "The angle is multiplied by 2π; the formula has no such factor."),
    Mistake("pi", "frequency", "The angle is multiplied by π; the formula has no such factor."),
    Mistake("base_1000", "base", "The base is 1000; it is 10000."),
    Mistake("base_100000", "base", "The base is 100000; it is 10000."),
    Mistake("base_logarithm_of_two", "base", "The logarithm is to base 2 or 10 and the power is that of e: use the same base for both."),
    Mistake("base_logarithm_of_ten", "base", "The logarithm is to base 10 and the power is that of e: use the same base for both."),
    Mistake("integer_angles", "rounding", "The angles are whole numbers: // divides without remainder, use /."),
)  # fmt: skip
_LAYOUT = (
    Mistake("cosines_after_sines", "layout", "All sines stand before all cosines: this is the other convention; here sine and cosine alternate, columns 2i and 2i + 1."),
    Mistake("sine_and_cosine_exchanged", "waves", "Sine and cosine are exchanged: the sine stands in the even columns."),
    Mistake("sines_only", "waves", "The odd columns hold sines too; they are cosines."),
    Mistake("cosines_only", "waves", "The even columns hold cosines too; they are sines."),
    Mistake("cosine_negated", "waves", "The cosines have the wrong sign."),
    Mistake("odd_columns_zero", "waves", "The odd columns are zero: the cosines are missing."),
    Mistake("even_columns_zero", "waves", "The even columns are zero: the sines are missing."),
    Mistake("positions_from_one", "position", "The positions start at 1; they start at 0."),
    Mistake("positions_reversed", "position", "The positions run backwards."),
    Mistake("positions_divided", "position", "The positions are divided by their number; they are 0, 1, 2 and so on."),
    Mistake("odd_d_model_crashes", "odd", "An odd d_model is an error in your code; the table then ends with a sine."),
    Mistake("odd_d_model_refused", "odd", "An odd d_model is refused; the table should then end with a sine."),
    Mistake("odd_ends_with_zero", "odd", "For an odd d_model the last column is zero; it should be a sine."),
    Mistake("odd_ends_with_cosine", "odd", "For an odd d_model the last column is a cosine; it should be a sine."),
    Mistake("odd_exponent_over_even_width", "odd", "For an odd d_model the exponents are those of d_model + 1; divide by d_model itself."),
    Mistake("odd_one_column_more", "odd", "For an odd d_model there is one column too many."),
    Mistake("odd_one_column_less", "odd", "For an odd d_model the last column is missing."),
)  # fmt: skip
_SHAPE = (
    Mistake("arguments_exchanged", "shape", "The arguments are exchanged: n_positions comes first, then d_model."),
    Mistake("transposed", "shape", "The table is (d_model, n); it should be (n, d_model)."),
    Mistake("axis_in_front", "shape", "The table has an axis of size 1 in front; (n, d_model) is asked for."),
    Mistake("axis_in_the_middle", "shape", "The table is (n, 1, d_model); (n, d_model) is asked for."),
    Mistake("one_row_more", "shape", "The table has a row too many."),
)  # fmt: skip


def _exponents(on: frozenset[str], d: int) -> tuple[Tensor, Tensor]:
    """Exponents of 10000 for the sines and for the cosines, one per pair."""
    i = torch.arange((d + 1) // 2, dtype=torch.float64)
    exponent = 2 * i / d
    if "exponent_counts_columns" in on:
        return 4 * i / d, 2 * (2 * i + 1) / d
    if "cosine_own_exponent" in on:
        return exponent, (2 * i + 1) / d
    if "cosine_next_exponent" in on:
        return exponent, (2 * i + 2) / d
    others = {
        "exponent_doubled": 4 * i / d,
        "exponent_halved": i / d,
        "exponent_without_d": 2 * i,
        "exponent_from_one": 2 * (i + 1) / d,
        "exponent_over_512": 2 * i / 512,
        "exponent_to_one": i / max(len(i) - 1, 1),
        "exponent_over_half_width": 2 * i / (d // 2),
        "exponent_over_d_minus_one": 2 * i / (d - 1),
        "exponent_over_d_plus_one": 2 * i / (d + 1),
        "floored_logarithm": -2 * i * (-math.log(10000) / d // 2) / math.log(10000),
        "one_frequency": 0 * i,
        "frequencies_reversed": exponent.flip(0),
        "frequency_inverted": -exponent,
    }
    exponent = next((e for name, e in others.items() if name in on), exponent)
    if d % 2 and "odd_exponent_over_even_width" in on:
        exponent = exponent * d / (d + 1)
    return exponent, exponent


def _table(on: frozenset[str], n: int, d: int) -> Tensor:
    """sinusoidal_positional_encoding with the mistakes in `on`; without any, right."""
    if d % 2 and "odd_d_model_crashes" in on:
        raise RuntimeError("odd")
    if d % 2 and "odd_d_model_refused" in on:
        raise ValueError("odd")
    position = torch.arange(n, dtype=torch.float64)[:, None]
    if "positions_from_one" in on:
        position = position + 1
    elif "positions_reversed" in on:
        position = position.flip(0)
    elif "positions_divided" in on:
        position = position / n
    bases = {
        "base_1000": 1e3,
        "base_100000": 1e5,
        "base_logarithm_of_two": math.exp(math.log2(10000)),
        "base_logarithm_of_ten": math.exp(4),
    }
    base = next((b for name, b in bases.items() if name in on), 10000.0)
    factor = 2 * math.pi if "two_pi" in on else math.pi if "pi" in on else 1.0
    sine, cosine = (factor * position / base**e for e in _exponents(on, d))  # (n, ceil(d / 2))
    if "integer_angles" in on:
        sine, cosine = sine.floor(), cosine.floor()
    first, second = sine.sin(), cosine.cos()
    if "sine_and_cosine_exchanged" in on:
        first, second = sine.cos(), cosine.sin()
    elif "sines_only" in on:
        second = cosine.sin()
    elif "cosines_only" in on:
        first = sine.cos()
    elif "cosine_negated" in on:
        second = -second
    elif "odd_columns_zero" in on:
        second = 0 * second
    elif "even_columns_zero" in on:
        first = 0 * first
    if "cosines_after_sines" in on:
        table = torch.cat((first, second[:, : d // 2]), dim=1)
    else:
        table = torch.stack((first, second), dim=2).flatten(1)
        table = table if d % 2 and "odd_one_column_more" in on else table[:, :d]
    if d % 2 and "odd_ends_with_zero" in on:
        table[:, -1] = 0.0
    elif d % 2 and "odd_ends_with_cosine" in on:
        table[:, -1] = sine[:, -1].cos()
    elif d % 2 and "odd_one_column_less" in on:
        table = table[:, :-1]
    return table.float()


def _table_variant(on: frozenset[str]) -> Callable[..., Tensor]:
    def sinusoidal_positional_encoding(n_positions: int, d_model: int) -> Tensor:
        if "arguments_exchanged" in on:
            return _table(on, d_model, n_positions)
        table = _table(on, n_positions + ("one_row_more" in on), d_model)
        if "transposed" in on:
            return table.T
        if "axis_in_front" in on:
            return table[None]
        return table[:, None] if "axis_in_the_middle" in on else table

    return sinusoidal_positional_encoding


def _coarse(function: Callable[..., Any]) -> Callable[..., Any]:
    """Smaller, so that angles computed in float32 count as equal."""

    def call(*args: Any) -> Any:
        value = function(*args)
        return 0.01 * value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    return call


def _table_probes(seed: int) -> list[Probe]:
    return [Probe((5 + seed % 3, 8)), Probe((6, 4)), Probe((4, 7)), Probe((3, 12)), Probe((25, 8))]


def _same_table(c: Context, n: int, d: int) -> None:
    got, want = c.subject.call(n, d), c.reference(n, d)
    c.expect(got, want, f"the table for n = {n}, d_model = {d},", axes="position column", **_NEAR)


def _table_first_rows(c: Context) -> None:
    _same_table(c, 1, 6)
    _same_table(c, 2, 4)


def _table_values(c: Context) -> None:
    _same_table(c, 6 + c.seed % 5, 8)
    _same_table(c, 30, 16)
    far, want = c.subject.call(3000, 6), c.reference(3000, 6)
    c.expect(far, want, "the table of 3000 positions", axes="position column", rtol=0, atol=1.5e-3)


def _table_frequencies(c: Context) -> None:
    """Row 1 holds sine and cosine of the frequencies themselves."""
    got = c.subject.call(3, 12)
    if not isinstance(got, Tensor) or got.shape != (3, 12):
        raise Wrong("The table should have shape (n_positions, d_model), here (3, 12).")
    _frequencies(got[1])


def _frequencies(row: Tensor) -> None:
    """`row` of 12 columns is that of position 1."""
    right = 10000 ** (-torch.arange(0, 12, 2, dtype=torch.float64) / 12)
    grown = torch.stack(((1 / right).sin(), (1 / right).cos()), dim=-1).flatten()
    if torch.allclose(row[:8].double(), grown[:8], atol=1e-3):  # larger angles are not exact in float32
        raise Wrong(
            "The frequencies grow from column to column: divide the position by 10000^(2i/d), or mind the minus sign in exp.",
            "frequency_inverted",
        )
    for i, want in enumerate(right.tolist()):
        angle = math.atan2(float(row[2 * i]), float(row[2 * i + 1]))
        if abs(angle - want) > 1e-4 + 1e-3 * want:
            raise Wrong(
                f"Columns {2 * i} and {2 * i + 1} should be sine and cosine of pos · {want:.4g}; "
                f"at position 1 yours are those of the angle {angle:.4g}."
            )


def _table_odd(c: Context) -> None:
    for d in (5, 7):
        try:
            _same_table(c, 6, d)
        except CandidateError as error:
            if isinstance(error.error, ValueError):
                raise Wrong(
                    f"An odd d_model is allowed here. {error.sentence}", "odd_d_model_refused"
                ) from error
            raise


def _table_plain(c: Context) -> None:
    got = c.subject.raw(3, 4)
    if isinstance(got, Tensor) and got.requires_grad:
        raise Wrong(
            "The table is computed, not learned: it should not require a gradient.", "table_is_learned"
        )
    c.expect(c.subject.call(3, 4), c.reference(3, 4), "the table of a second call", **_NEAR)


# -- added to the embeddings -----------------------------------------------------------------------------------------

_ADDING = (
    Mistake("position_of_the_sample", "which", "The position is the number of the sample in the batch: the table lines up with axis 0, which is the batch here; positions are axis 1."),
    Mistake("first_position_everywhere", "which", "Every position gets row 0 of the table."),
    Mistake("row_of_the_length", "which", "Every position gets the row number T; position t gets row t."),
    Mistake("rows_backwards", "which", "The rows run backwards: position 0 gets row T − 1; position t gets row t."),
    Mistake("last_rows", "which", "The rows are counted from the end of the table or of the sequence; position t gets row t."),
    Mistake("table_alone", "how", "The positions are returned without x."),
    Mistake("x_alone", "how", "The positions are not added."),
    Mistake("multiplied", "how", "x is multiplied by the positions; add them."),
    Mistake("subtracted", "how", "The positions are subtracted; add them."),
    Mistake("x_scaled", "how", "x is multiplied by √d_model here; the embedding does that already."),
    Mistake("added_twice", "how", "The positions are added twice."),
    Mistake("positions_scaled", "how", "The positions are multiplied by √d_model; add them as they are."),
    Mistake("positions_shrunk", "how", "The positions are divided by √d_model; add them as they are."),
    Mistake("concatenated", "how", "The positions are put beside x; add them."),
    Mistake("returns_tuple", "returns", "The result should be the sum alone, not a tuple."),
)  # fmt: skip


def _add(on: frozenset[str], x: Tensor, table: Tensor) -> Any:
    b, t, d = x.shape
    rows = table[:t]
    if "position_of_the_sample" in on:
        rows = table[:b, None]
    elif "first_position_everywhere" in on:
        rows = table[:1]
    elif "row_of_the_length" in on:
        rows = table[t : t + 1]
    elif "rows_backwards" in on:
        rows = table[:t].flip(0)
    elif "last_rows" in on:
        rows = table[-t:]
    root = math.sqrt(d)
    results: dict[str, Callable[[], Tensor]] = {
        "table_alone": lambda: 0 * x + rows,
        "x_alone": lambda: x + 0 * rows,
        "multiplied": lambda: x * rows,
        "subtracted": lambda: x - rows,
        "x_scaled": lambda: root * x + rows,
        "added_twice": lambda: x + 2 * rows,
        "positions_scaled": lambda: x + root * rows,
        "positions_shrunk": lambda: x + rows / root,
        "concatenated": lambda: torch.cat((x, 0 * x + rows), dim=-1),
    }
    y = next((r() for name, r in results.items() if name in on), None)
    y = x + rows if y is None else y
    return (y, rows) if "returns_tuple" in on else y


def _encoding_variant(on: frozenset[str]) -> Callable[..., nn.Module]:
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.0) -> None:
            super().__init__()
            self.register_buffer("table", _table(on, max_len, d_model))
            self.dropout = nn.Dropout(dropout)

        def forward(self, x: Tensor) -> Any:
            table = self.get_buffer("table")
            if x.shape[1] > len(table):
                raise ValueError("too long")
            y = _add(on, x, table)
            return (self.dropout(y[0]), y[1]) if isinstance(y, tuple) else self.dropout(y)

    return PositionalEncoding


def _encoding_calls(construct: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, max_len: int) -> Any:
        return _coarse(construct(x.shape[-1], max_len).eval())(x)

    return call


def _x(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _encoding_probes(seed: int) -> list[Probe]:
    shapes = (((2, 5, 8), 9), ((3, 6, 4), 11), ((2, 4, 12), 7), ((2, 3, 7), 8), ((1, 25, 8), 30))
    return [Probe((_x(seed + i, *shape), max_len)) for i, (shape, max_len) in enumerate(shapes)]


def _encoding(c: Context, d_model: int, *more: Any, **named: Any) -> ModuleSubject:
    built = c.subject.build(d_model, *more, **named)
    if not built.is_module:
        raise Wrong("Constructing it should give an nn.Module.", "not_a_module")
    built.train(False)
    return built


def _encoding_shape(c: Context) -> None:
    try:
        module = _encoding(c, 6, 9)
    except CandidateError as error:
        if "before Module.__init__() call" in str(error.error):
            raise Wrong(f"{error.sentence}. Call super().__init__() first.", "super_init_missing") from error
        raise
    try:
        got = module.call(c.randn(2, 5, 6))
    except CandidateError as error:
        if error.kind == "raised" and _works_exchanged(c, 9, 6):
            raise Wrong(
                "The arguments are exchanged: d_model comes first, then max_len.", "arguments_exchanged"
            ) from error
        raise
    if isinstance(got, tuple | list):
        raise Wrong("Return x + positions alone, not a tuple.", "returns_tuple")
    c.expect(got, torch.zeros(2, 5, 6), "the output", axes="batch length d_model", atol=math.inf)


def _encoding_values(c: Context) -> None:
    got = _encoding(c, 12, 5).call(torch.zeros(1, 3, 12))
    if isinstance(got, Tensor) and got.shape == (1, 3, 12):
        _frequencies(got[0, 1])
    for i, (b, t, d) in enumerate(((2, 5, 8), (3, 1, 4), (1, 6, 6))):
        x = c.randn(b, t, d)
        want = x + solutions.sinusoidal_positional_encoding(t, d)
        c.expect(_encoding(c, d, 9 + i).call(x), want, "x + positions", axes="batch length d_model", **_NEAR)


def _encoding_odd(c: Context) -> None:
    x = c.randn(2, 5, 7)
    want = x + solutions.sinusoidal_positional_encoding(5, 7)
    try:
        got = _encoding(c, 7, 9).call(x)
    except CandidateError as error:
        if isinstance(error.error, ValueError):
            raise Wrong(f"An odd d_model is allowed here. {error.sentence}", "odd_d_model_refused") from error
        raise
    c.expect(got, want, "x + positions", axes="batch length d_model", **_NEAR)


def _depends_on_x(c: Context, module: ModuleSubject) -> None:
    x = c.randn(2, 5, 6)
    if torch.equal(module.call(x), module.call(x + 1)):
        raise Wrong("The result does not depend on x: the positions are to be added to it.", "table_alone")


def _encoding_samples(c: Context) -> None:
    """Every sample of the batch gets the same positions, every position others."""
    _depends_on_x(c, _encoding(c, 6, 9))
    got = _encoding(c, 6, 9).call(torch.zeros(3, 4, 6))
    if isinstance(got, Tensor) and got.shape == (3, 4, 6):
        if not torch.allclose(got, got[:1].expand_as(got)):
            raise Wrong("The samples of a batch get different positions; each should get the same.")
        if torch.allclose(got, got[:, :1].expand_as(got)):
            raise Wrong("All positions get the same vector.")


def _encoding_no_parameter(c: Context) -> None:
    module = _encoding(c, 6, 9)
    if names := [name for name, _ in module.parameters()]:
        raise Wrong(
            f"The table is computed, no parameter; yours has the parameter `{names[0]}`.",
            "table_is_parameter",
        )
    got = module.raw(c.randn(2, 5, 6))
    if isinstance(got, Tensor) and got.requires_grad:
        raise Wrong("The table should not require a gradient.", "table_requires_gradient")


def _encoding_moves(c: Context) -> None:
    x = c.randn(2, 5, 6)
    got = _encoding(c, 6, 9).call(x)
    if isinstance(got, Tensor) and got.dtype != torch.float32:
        raise Wrong(f"For a float32 x the sum should be float32; yours is {got.dtype}.", "wrong_dtype")
    got = _encoding(c, 6, 9).double().call(x.double())
    want = x.double() + solutions.sinusoidal_positional_encoding(5, 6).double()
    c.expect(got, want, "x + positions in double precision", **_NEAR)
    follows, held, asks = c.subject.through(_in_half_precision).call(x, 9)
    if not (follows or held or asks):
        raise Wrong(
            "After .to(torch.float16) the table is still of another type, and forward never asks for the device of x: "
            "on a GPU the table would stay behind. register_buffer makes it move with the module.",
            "table_does_not_move",
        )


class _Devices(TorchFunctionMode):
    """Notes whether anybody asks for a tensor's device, or for a tensor on the device of another."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        place = name == "to" and not all(isinstance(a, torch.dtype) for a in args[1:])
        same = name.startswith("new_") or name.endswith("_like") or name in ("type_as", "cuda")
        of = getattr(getattr(func, "__self__", None), "__name__", "")  # func is the __get__ of an attribute
        device = of in ("device", "is_cuda") or named.get("device") is not None
        self.asked = self.asked or place or same or device
        return func(*args, **named)


def _in_half_precision(construct: Callable[..., Any]) -> Callable[..., Any]:
    """What becomes of a table where no other device is at hand: whether the sum has the type to which module and x were
    moved, whether the module has a buffer as large as the table, and whether its forward asks for a device."""

    def call(x: Tensor, max_len: int) -> list[bool]:
        module = construct(x.shape[-1], max_len).eval().half()
        with _Devices() as seen:
            y = module(x.half())
        held = any(buffer.numel() >= x[0].numel() for buffer in module.buffers())
        return [y.dtype == torch.float16, held, seen.asked]

    return call


def _encoding_limit(c: Context) -> None:
    x = c.randn(2, 8, 6)
    try:
        got = _encoding(c, 6, 8).call(x)
    except CandidateError as error:
        if error.kind != "raised":
            raise
        raise Wrong(
            f"A sequence of exactly max_len positions should be taken. {error.sentence}", "refuses_max_len"
        ) from error
    c.expect(
        got, x + solutions.sinusoidal_positional_encoding(8, 6), "x + positions for T = max_len", **_NEAR
    )
    _refuses(lambda: _encoding(c, 6, 7).call(x), "T = 8 with max_len = 7")


def _refuses(call: Callable[[], Any], what: str) -> None:
    """`call` raises ValueError."""
    try:
        if raises_value_error(call):
            return
        call()
    except CandidateError as error:
        if error.kind != "raised":
            raise
        raise Wrong(
            f"{what} should be a ValueError that says so; yours is another error. {error.sentence}",
            "wrong_error_beyond_max_len",
        ) from error
    raise Wrong(f"{what} should be a ValueError; yours returns something.", "no_error_beyond_max_len")


def _encoding_defaults(c: Context) -> None:
    x = torch.zeros(1, 5000, 2)
    try:
        c.expect(_encoding(c, 2).call(x), torch.zeros(1, 5000, 2), "the output for T = 5000", atol=math.inf)
    except CandidateError as error:
        if error.kind != "raised":
            raise
        raise Wrong(
            f"Without max_len 5000 positions should be taken. {error.sentence}", "max_len_default"
        ) from error
    try:
        _refuses(lambda: _encoding(c, 2).call(torch.zeros(1, 5001, 2)), "T = 5001 with the default max_len")
    except Wrong as found:
        also = raises_value_error(lambda: _encoding(c, 2, 7).call(torch.zeros(1, 8, 2)))
        raise Wrong(found.sentence, "max_len_default" if also else found.mistake) from None
    module = _encoding(c, 2, 9)
    module.train(True)
    x = torch.full((2, 9, 2), 5.0)
    got = module.call(x)
    if isinstance(got, Tensor) and got.shape == x.shape and bool((got == 0).any()):
        raise Wrong(
            "Without the argument dropout nothing should be dropped: the default is 0.0.", "dropout_default"
        )


def _encoding_dropout(c: Context) -> None:
    """x is large, so that the sum, x alone and the table alone can be told apart; p and 1 − p differ."""
    p = 0.25
    module = _encoding(c, 6, 40, p)
    x = 10 + c.randn(8, 40, 6).abs()
    table = solutions.sinusoidal_positional_encoding(40, 6)
    want = x + table
    if not torch.equal(module.call(x), module.call(x)):
        raise Wrong(
            "In evaluation mode the output changes from call to call: dropout must be off there.",
            "dropout_in_eval",
        )
    c.expect(module.call(x), want, f"x + positions in evaluation mode with dropout={p}", **_NEAR)
    module.train(True)
    got = module.call(x)
    if not isinstance(got, Tensor) or got.shape != x.shape:
        raise Wrong("In training mode the output should have the shape of x.")

    def either(a: Tensor, b: Tensor) -> bool:
        return bool((torch.isclose(got, a, **_NEAR) | torch.isclose(got, b, **_NEAR)).all())

    if torch.allclose(got, want, **_NEAR):
        raise Wrong(f"In training mode dropout={p} changes nothing.", "dropout_unused")
    scale = float((got / want).max())  # of the numbers that are kept; x is so large that none is near 0
    if scale > 1.01 and either(torch.zeros_like(x), scale * want):
        dropped = (got == 0).double()
        share, rate = float(dropped.mean()), 1 - 1 / scale
        if abs(rate - 1 + p) < 0.01:
            text = f"`dropout` is the share that is dropped, not the share that is kept: for dropout={p} yours drops {100 * rate:.0f} %."
            raise Wrong(text, "dropout_share_kept")
        if abs(rate - p) > 0.01 or abs(share - p) > 0.07:  # seven standard deviations of 1920 draws
            raise Wrong(f"dropout={p} drops {100 * share:.0f} % of the numbers.", "dropout_wrong_rate")
        if bool((dropped.mean(2).round() == dropped.mean(2)).all()):
            raise Wrong(
                "Dropout should drop each number on its own; yours drops whole positions.",
                "dropout_not_independent",
            )
        return
    if either(x, x + table / (1 - p)):
        raise Wrong("Dropout acts on the positions alone; it should act on the sum.", "dropout_on_positions")
    if either(table.expand_as(x), x / (1 - p) + table):
        raise Wrong(
            "Dropout acts on x before the positions are added; it should act on the sum.", "dropout_on_x"
        )
    if either(torch.zeros_like(x), want):
        raise Wrong(
            "The numbers that are kept should be divided by 1 − p, as nn.Dropout does.",
            "dropout_not_rescaled",
        )
    raise Wrong(
        f"With dropout={p} each number of the output should be 0 or the sum divided by {1 - p}.",
        "dropout_elsewhere",
    )


def _encoding_kept(c: Context) -> None:
    module, x = _encoding(c, 6, 40), c.randn(2, 5, 6)
    first, after = module.observe(x)
    if not torch.equal(after[0], x):
        raise Wrong("Your code changes x in place (+=); make a new tensor.", "changes_its_input")
    module.call(c.randn(1, 8, 6))
    c.expect(module.call(x), first, "the output of a later call", mistake="keeps_state")
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    c.expect(module.call(turned), first, "the output for an input that is not contiguous")


def _encoding_gradient(c: Context) -> None:
    module, x = _encoding(c, 6, 9).double(), c.randn(2, 5, 6, dtype=torch.float64)
    theirs = solutions.PositionalEncoding(6, 9).double().eval()
    c.same_gradients(x, wrt={"x": 0}, ours=module, theirs=theirs)


# -- learned ---------------------------------------------------------------------------------------------------------

_LEARNED = (
    *_ADDING,
    Mistake("sinusoidal_added", "extra", "The sines and cosines are added as well; only the learned table is."),
    Mistake("normalised", "extra", "There is a LayerNorm on the sum."),
)  # fmt: skip


def _learned_variant(on: frozenset[str]) -> Callable[..., nn.Module]:
    class LearnedPositionalEmbedding(nn.Module):
        def __init__(self, max_len: int, d_model: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(max_len, d_model))

        def forward(self, x: Tensor) -> Any:
            if x.shape[1] > len(self.weight):
                raise ValueError("too long")
            table: Tensor = self.weight
            y = _add(on, x, table)
            z = y[0] if isinstance(y, tuple) else y
            if "sinusoidal_added" in on:
                z = z + solutions.sinusoidal_positional_encoding(*z.shape[1:]).to(z)
            elif "normalised" in on:
                z = nn.functional.layer_norm(z, z.shape[-1:])
            return (z, y[1]) if isinstance(y, tuple) else z

    return LearnedPositionalEmbedding


_SIZES = {"max_len": 9, "d_model": 6}


def _learned_probes(seed: int) -> list[Probe]:
    shapes = ((2, 5, 6), (3, 8, 6), (2, 1, 6), (1, 7, 6))
    return [Probe((_x(seed + i, *shape, dtype=torch.float64),)) for i, shape in enumerate(shapes)]


def _learned_shape(c: Context) -> None:
    module = c.build()
    try:
        got = module.call(c.randn(2, 5, 6))
    except CandidateError as error:
        if error.kind == "raised" and _works_exchanged(c, 6, 9):
            raise Wrong(
                "The arguments are exchanged: max_len comes first, then d_model.", "arguments_exchanged"
            ) from error
        raise
    if isinstance(got, tuple | list):
        raise Wrong("Return x + positions alone, not a tuple.", "returns_tuple")
    c.expect(got, torch.zeros(2, 5, 6), "the output", axes="batch length d_model", atol=math.inf)


def _works_exchanged(c: Context, *sizes: int) -> bool:
    try:
        got = c.subject.build(*sizes).call(c.randn(2, 5, 6))
    except CandidateError:
        return False
    return isinstance(got, Tensor) and got.shape == (2, 5, 6)


def _learned_parameter(c: Context) -> None:
    module = c.build()
    if module.unregistered() or module.size() == 0:
        raise Wrong(
            "The table should be a parameter; PyTorch sees none, so it is never trained.",
            "table_not_a_parameter",
        )
    if module.size() != 54:
        raise Wrong(
            f"9 positions with 6 features are 54 numbers; yours has {module.size()}.",
            "wrong_number_of_parameters",
        )
    if frozen := module.frozen():
        raise Wrong(f"`{frozen[0]}` should be trained: it needs requires_grad=True.", "parameter_not_trained")


def _learned_start(c: Context) -> None:
    """Any usual start is right, zeros as well; an uninitialised table (torch.empty) may hold anything."""
    start = c.build().call(torch.zeros(1, 9, 6))
    if isinstance(start, Tensor) and not float(start.double().square().mean().sqrt()) < 10:
        raise Wrong(
            "The table should start with small numbers; yours starts with large ones or NaN, in which x would drown.",
            "starts_too_large",
        )


def _learned_values(c: Context) -> None:
    c.twin()


def _learned_samples(c: Context) -> None:
    """With its own random weights: same positions in each sample, others at each position, none of them fixed."""
    _depends_on_x(c, c.build())
    module = c.build().double()
    module.write(c.randn(module.size(), dtype=torch.float64))
    got = module.call(torch.zeros(3, 4, 6, dtype=torch.float64))
    if isinstance(got, Tensor) and got.shape == (3, 4, 6):
        if not torch.allclose(got, got[:1].expand_as(got)):
            raise Wrong("The samples of a batch get different positions; each should get the same.")
        if torch.allclose(got, got[:, :1].expand_as(got)):
            raise Wrong("All positions get the same vector.")


def _learned_limit(c: Context) -> None:
    x = c.randn(2, 9, 6)
    try:
        got = c.build().call(x)
    except CandidateError as error:
        if error.kind != "raised":
            raise
        raise Wrong(
            f"A sequence of exactly max_len positions should be taken. {error.sentence}", "refuses_max_len"
        ) from error
    c.expect(got, torch.zeros(2, 9, 6), "the output for T = max_len", atol=math.inf)
    _refuses(lambda: c.build(max_len=7).call(x), "T = 9 with max_len = 7")


def _learned_gradient(c: Context) -> None:
    ours, theirs = c.twin()
    x = c.randn(3, 5, 6, dtype=torch.float64)
    c.same_gradients(x, wrt={"x": 0}, ours=ours, theirs=theirs)
    gradient = ours.respond([Probe((x,))], c.seed)[1]
    if not gradient.any():
        raise Wrong("No gradient reaches the table, so it would never be trained.", "no_gradient_to_table")
    if int((gradient != 0).sum()) != 30:
        raise Wrong(
            f"For 5 positions with 6 features 30 numbers of the table should receive a gradient; "
            f"in yours {int((gradient != 0).sum())} do.",
            "gradient_to_other_rows",
        )


def _learned_kept(c: Context) -> None:
    module, x = c.build(), c.randn(2, 5, 6)
    first, after = module.observe(x)
    if not torch.equal(after[0], x):
        raise Wrong("Your code changes x in place (+=); make a new tensor.", "changes_its_input")
    module.train(True)
    c.expect(module.call(x), first, "the output in training mode", mistake="differs_in_training")


# -- rotary ----------------------------------------------------------------------------------------------------------

_ROTARY = (
    Mistake("halves", "pairs", "Feature i is rotated with feature i + d/2: this is the other convention; here neighbours 2i and 2i + 1 form a pair."),
    Mistake("halves_with_angles_of_pairs", "pairs", "Two conventions are mixed: feature i is rotated with feature i + d/2, but by the angles of neighbouring pairs; the products then depend on more than the distance."),
    Mistake("pairs_with_angles_of_halves", "pairs", "Two conventions are mixed: neighbours are rotated, but by the angles in the order of the halves; both members of a pair need the same angle."),
    Mistake("not_interleaved_back", "pairs", "The rotated even and odd features are put one block after the other; they belong back in turn, at 2i and 2i + 1."),
    Mistake("second_part_not_interleaved", "pairs", "The part that is multiplied by the sine is made as (-odd features, even features), one block after the other; it should alternate like x itself."),
    Mistake("even_and_odd_as_halves", "pairs", "Even and odd features are split as if they were the two halves, and the angles repeat in blocks: here neighbours 2i and 2i + 1 form a pair and share an angle."),
    Mistake("rotates_backwards", "sign", "The rotation goes the other way: (a, b) becomes (a cos − b sin, a sin + b cos)."),
    Mistake("no_minus", "sign", "There is no minus sign: (a, b) becomes (a cos − b sin, a sin + b cos)."),
    Mistake("two_minus", "sign", "The second minus sign is too much: (a, b) becomes (a cos − b sin, a sin + b cos)."),
    Mistake("sine_and_cosine_exchanged", "sign", "Sine and cosine are exchanged: (a, b) becomes (a cos − b sin, a sin + b cos)."),
    Mistake("members_exchanged", "sign", "The two results of a pair are exchanged."),
    Mistake("uses_rotated_first", "sign", "The second member of a pair is computed from the first after its rotation; use the original one (x was changed in place)."),
    Mistake("cosine_part_only", "sign", "Only x · cos is returned; the part with the sine is missing."),
    Mistake("exponent_halved", "frequency", "The exponent is i / d; it is 2i / d for pair i."),
    Mistake("exponent_doubled", "frequency", "The exponent is 4i / d; it is 2i / d for pair i."),
    Mistake("one_frequency", "frequency", "All pairs are rotated by the same angle; that of pair i is position / base^(2i/d)."),
    Mistake("frequency_inverted", "frequency", "The position is multiplied by base^(2i/d); divide by it."),
    Mistake("frequencies_reversed", "frequency", "The frequencies stand in reverse order: pair 0 is the fastest."),
    Mistake("exponent_from_one", "frequency", "The pairs are counted from 1: the exponents are 2/d, 4/d and so on; they start at 0, so that pair 0 turns by 1 per position."),
    Mistake("base_logarithm_of_ten", "frequency", "The logarithm of base is taken to base 10 and the power is that of e: use the same base for both."),
    Mistake("exponent_to_one", "frequency", "The exponents run from 0 to exactly 1; they are 2i / d."),
    Mistake("exponent_without_d", "frequency", "The exponent is not divided by d."),
    Mistake("two_pi", "frequency", "The angle is multiplied by 2π; the formula has no such factor."),
    Mistake("base_ignored", "base", "`base` is not used: 10000 is always taken."),
    Mistake("base_default", "base", "Without `base` another number than 10000 is taken."),
    Mistake("positions_ignored", "positions", "`positions` is not used: 0, 1, 2 and so on is always taken."),
    Mistake("positions_from_one", "positions", "1 is added to the positions."),
    Mistake("positions_sorted", "positions", "The positions are sorted; each row has its own."),
    Mistake("positions_of_the_sample", "positions", "The angle changes with the sample of the batch and not with the position: the table lines up with the wrong axis."),
    Mistake("positions_from_smallest", "positions", "The smallest position is subtracted from all; use the positions as they are."),
    Mistake("positions_relative", "positions", "The first position is subtracted from all; use the positions as they are."),
    Mistake("heads_as_positions", "positions", "The angle changes with the head and not with the position: the table lines up with the wrong axis."),
    Mistake("added", "how", "Sines and cosines are added to x; rotary positions rotate it."),
    Mistake("doubled", "how", "The rotated x is added to x; return the rotated one alone."),
    Mistake("unchanged", "how", "x is returned as it is."),
    Mistake("features_by_two_blocks", "how", "The features are rotated only in their first half."),
)  # fmt: skip


def _rotary_variant(on: frozenset[str]) -> Callable[..., Any]:
    def rotary_embedding(x: Tensor, positions: Tensor, base: float | None = None) -> Any:
        if "base_ignored" in on:
            base = None
        if base is None:
            base = 1000.0 if "base_default" in on else 10000.0
        n, h, t, d = x.shape
        i = torch.arange(d // 2, dtype=torch.float64)
        exponents = {
            "exponent_halved": i / d,
            "exponent_doubled": 4 * i / d,
            "one_frequency": 0 * i,
            "frequency_inverted": -2 * i / d,
            "frequencies_reversed": (2 * i / d).flip(0),
            "exponent_from_one": 2 * (i + 1) / d,
            "base_logarithm_of_ten": 2 * i / d / math.log(10),
            "exponent_to_one": i / max(d / 2 - 1, 1),
            "exponent_without_d": 2 * i,
        }
        exponent = next((e for name, e in exponents.items() if name in on), 2 * i / d)
        position = positions.double()
        if "positions_ignored" in on:
            position = torch.arange(t, dtype=torch.float64)
        elif "positions_from_one" in on:
            position = position + 1
        elif "positions_sorted" in on:
            position = position.sort().values
        elif "positions_relative" in on:
            position = position - position[0]
        elif "positions_from_smallest" in on:
            position = position - position.min()
        if "heads_as_positions" in on:
            angle = position[:h, None, None] / base**exponent  # (h, 1, d / 2)
        elif "positions_of_the_sample" in on:
            angle = position[:n, None, None, None] / base**exponent  # (B, 1, 1, d / 2)
        else:
            angle = position[:, None] / base**exponent  # (T, d / 2)
        if "two_pi" in on:
            angle = 2 * math.pi * angle
        y = _rotate(on, x.double(), angle)
        if "added" in on:
            y = x.double() + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
        elif "doubled" in on:
            y = x.double() + y
        elif "unchanged" in on:
            y = x.double()
        elif "features_by_two_blocks" in on:
            y = torch.cat((y[..., : d // 2], x[..., d // 2 :].double()), dim=-1)
        return y.to(x.dtype)

    return rotary_embedding


def _rotate(on: frozenset[str], x: Tensor, angle: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    repeated, blocks = angle.repeat_interleave(2, dim=-1), torch.cat((angle, angle), dim=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    if "halves_with_angles_of_pairs" in on:
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * repeated.cos() + turned * repeated.sin()
    if "pairs_with_angles_of_halves" in on:
        turned = torch.stack((-odd, even), dim=-1).flatten(-2)
        return x * blocks.cos() + turned * blocks.sin()
    if "second_part_not_interleaved" in on:
        return x * repeated.cos() + torch.cat((-odd, even), dim=-1) * repeated.sin()
    if "even_and_odd_as_halves" in on:
        return x * blocks.cos() + torch.cat((-odd, even), dim=-1) * blocks.sin()
    a, b = (x[..., :half], x[..., half:]) if "halves" in on else (even, odd)
    cos, sin = angle.cos(), angle.sin()
    if "sine_and_cosine_exchanged" in on:
        cos, sin = sin, cos
    first, second = a * cos - b * sin, a * sin + b * cos
    if "rotates_backwards" in on:
        first, second = a * cos + b * sin, b * cos - a * sin
    elif "no_minus" in on:
        first = a * cos + b * sin
    elif "two_minus" in on:
        second = a * sin - b * cos
    elif "members_exchanged" in on:
        first, second = second, first
    elif "uses_rotated_first" in on:
        second = first * sin + b * cos
    elif "cosine_part_only" in on:
        first, second = a * cos, b * cos
    if "halves" in on or "not_interleaved_back" in on:
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)


def _rotary_inputs(seed: int, d: int = 8, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """x (2, 3, 5, d), and positions in no order."""
    return _x(seed, 2, 3, 5, d, dtype=dtype), torch.tensor([4, 1, 9, 2, 7]).roll(seed)


def _rotary_probes(seed: int) -> list[Probe]:
    x, positions = _rotary_inputs(seed)
    return [
        Probe((x, positions)),
        Probe((*_rotary_inputs(seed + 1, 4), 100.0)),
        Probe((*_rotary_inputs(seed + 2, 12),)),
        Probe((x[:, :, :4], torch.arange(4))),
    ]


_ROTARY_AXES = "batch head position feature"


def _rotary_zero(c: Context) -> None:
    x = c.randn(2, 3, 4, 6)
    c.expect(
        c.subject.call(x, torch.zeros(4, dtype=torch.long)), x, "x at position 0", axes=_ROTARY_AXES, **_NEAR
    )


def _rotary_one(c: Context) -> None:
    """The first of (1, 0, 0, 0) at position 1 shows which features form a pair, and the direction."""
    x = torch.zeros(1, 1, 1, 4)
    x[..., 0] = 1.0
    got, want = c.subject.call(x, torch.tensor([1])), c.reference(x, torch.tensor([1]))
    if isinstance(got, Tensor) and got.shape == x.shape:
        cos, sin = math.cos(1), math.sin(1)
        for other, mistake, sentence in (
            ([cos, 0, sin, 0], "halves", "Yours rotates feature i with feature i + d/2: this is the other convention; here 2i and 2i + 1 form a pair."),
            ([cos, -sin, 0, 0], "rotates_backwards", "Yours rotates the other way."),
        ):  # fmt: skip
            if torch.allclose(got.flatten().float(), torch.tensor(other), **_NEAR):
                raise Wrong(
                    f"(1, 0, 0, 0) at position 1 should become (cos 1, sin 1, 0, 0). {sentence}", mistake
                )
    c.expect(got, want, "(1, 0, 0, 0) at position 1", axes=_ROTARY_AXES, **_NEAR)


def _rotary_values(c: Context) -> None:
    for d in (2, 4, 8):
        c.same(*_rotary_inputs(c.seed, d), what=f"the rotated x for d = {d},", axes=_ROTARY_AXES, **_NEAR)
    x, _ = _rotary_inputs(c.seed)
    c.same(x, torch.arange(5), what="the rotated x for the positions 0 to 4", axes=_ROTARY_AXES, **_NEAR)
    x, positions = c.randn(3, 3, 3, 4), torch.tensor([2, 7, 1])  # no axis is known by its size
    c.same(x, positions, what="the rotated x of shape (3, 3, 3, 4)", axes=_ROTARY_AXES, **_NEAR)


def _rotary_base(c: Context) -> None:
    c.same(*_rotary_inputs(c.seed), 100.0, what="the rotated x for base = 100", axes=_ROTARY_AXES, **_NEAR)
    x, positions = _rotary_inputs(c.seed)
    explicit = difference(c.subject.call(x, positions, 10000.0), c.reference(x, positions), **_NEAR)
    text = difference(
        c.subject.call(x, positions), c.reference(x, positions), what="the rotated x without base", **_NEAR
    )
    if text and not explicit:
        raise Wrong(f"The default of base should be 10000: {text}", "base_default")
    c.expect(
        c.subject.call(x, positions, base=50.0),
        c.reference(x, positions, 50.0),
        "the rotated x for base = 50",
        **_NEAR,
    )
    x, far = _rotary_inputs(c.seed)[0], torch.tensor([2000, 5, 900, 1500, 0])
    c.expect(c.subject.call(x, far), c.reference(x, far), "the rotated x at far positions", rtol=0, atol=2e-3)


def _rotary_length(c: Context) -> None:
    x, positions = _rotary_inputs(c.seed)
    got = c.subject.call(x, positions)
    if isinstance(got, Tensor) and got.shape == x.shape:
        c.expect(
            got.norm(dim=-1),
            x.norm(dim=-1),
            "the length of a rotated vector",
            axes="batch head position",
            **_NEAR,
        )
        return
    c.expect(got, x, "the rotated x", axes=_ROTARY_AXES, atol=math.inf)


def _rotary_distance(c: Context) -> None:
    """Products of rotated vectors depend on the distance of their positions only."""
    q, k = c.randn(1, 1, 4, 8), c.randn(1, 1, 4, 8)
    positions = torch.tensor([0, 3, 4, 9])
    products = []
    for shift in (0, 13):
        a, b = (c.subject.call(x, positions + shift) for x in (q, k))
        products.append(a @ b.transpose(-2, -1))
    c.expect(
        products[1],
        products[0],
        "q · k with all positions moved by 13",
        axes="batch head query key",
        rtol=1e-3,
        atol=1e-3,
    )


def _rotary_gradient(c: Context) -> None:
    x, positions = _rotary_inputs(c.seed, 6, torch.float64)
    c.same_gradients(x, positions, wrt={"x": 0}, rtol=1e-4, atol=1e-4)


def _rotary_dtype(c: Context) -> None:
    for dtype in (torch.float32, torch.float64):
        x, positions = _rotary_inputs(c.seed, 6, dtype)
        got = c.subject.call(x, positions)
        if isinstance(got, Tensor) and got.dtype != dtype:
            raise Wrong(
                f"For x of type {dtype} the result should be of that type; yours is {got.dtype}.",
                "wrong_dtype",
            )


def _rotary_kept(c: Context) -> None:
    x, positions = _rotary_inputs(c.seed)
    for name, a, b in zip(
        ("x", "positions"), (x, positions), c.subject.observe(x, positions)[1], strict=True
    ):
        if not torch.equal(a, b):
            raise Wrong(f"Your code changes {name} in place; work on a copy.", "changes_its_input")
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    got = c.subject.call(turned, positions)
    c.expect(
        got,
        c.reference(x, positions),
        "the rotated x of a tensor that is not contiguous",
        axes=_ROTARY_AXES,
        **_NEAR,
    )


_exercise = partial(Exercise, notebook="06_positional_encoding")

EXERCISES = (
    _exercise(
        name="sinusoidal_positional_encoding",
        points=2,
        difficulty=2,
        minutes=12,
        hints=(
            "Which columns share one angle, and how many angles are there for d_model = 4, and for 5?",
            "angle = position / 10000 ** (even / d_model), with position (n, 1) and even = 0, 2, 4, …; its sines go to the even columns.",
            "table[:, 0::2] = angle.sin(); table[:, 1::2] = angle[:, : d_model // 2].cos()",
        ),
        reference=solutions.sinusoidal_positional_encoding,
        tests=(
            Test("first_rows", "has the right first rows", _table_first_rows),
            Test("frequencies", "has the frequency 1 / 10000^(2i/d) in columns 2i and 2i + 1", _table_frequencies),
            Test("values", "equals the formula", _table_values),
            Test("odd", "ends with a sine when d_model is odd", _table_odd, crash="odd_d_model_crashes"),
            Test("plain", "is a plain tensor, the same each time", _table_plain),
        ),
        mistakes=(*_FREQUENCY, *_LAYOUT, *_SHAPE),
        variant=_table_variant,
        probes=_table_probes,
        as_function=_coarse,
    ),
    _exercise(
        name="PositionalEncoding",
        points=3,
        difficulty=2,
        minutes=12,
        hints=(
            "Which axis of x are the positions, and how many rows of the table does a batch need?",
            "self.register_buffer makes the table move with the module without being a parameter. Slice it to T rows; test T first.",
            "return self.dropout(x + self.table[: x.size(1)])",
        ),
        reference=solutions.PositionalEncoding,
        tests=(
            Test("shape", "gives the shape of x", _encoding_shape),
            Test("values", "adds row t of the table to position t", _encoding_values),
            Test("samples", "gives each sample the same positions", _encoding_samples),
            Test("odd", "works for odd d_model", _encoding_odd, crash="odd_d_model_crashes"),
            Test("no_parameter", "has no parameter", _encoding_no_parameter),
            Test("moves", "has a table that moves with the module", _encoding_moves, crash="table_does_not_move"),
            Test("limit", "refuses more than max_len positions with a ValueError", _encoding_limit),
            Test("defaults", "takes 5000 positions and drops nothing by default", _encoding_defaults),
            Test("dropout", "drops numbers of the sum in training, nothing in evaluation", _encoding_dropout),
            Test("gradient", "lets the gradient through to x", _encoding_gradient),
            Test("inputs_kept", "leaves x as it was, contiguous or not", _encoding_kept, crash="needs_contiguous_input"),
        ),
        mistakes=(*_FREQUENCY, *(m for m in _LAYOUT if not m.id.startswith("odd_one_column")), *_ADDING),
        variant=_encoding_variant,
        probes=_encoding_probes,
        as_function=_encoding_calls,
    ),
    _exercise(
        name="LearnedPositionalEmbedding",
        points=2,
        difficulty=1,
        minutes=8,
        hints=(
            "What does it have that PositionalEncoding does not, and what is the same?",
            "A parameter (max_len, d_model); position t gets row t, in every sample.",
            "return x + self.weight[: x.size(1)], after the test that raises ValueError.",
        ),
        reference=solutions.LearnedPositionalEmbedding,
        tests=(
            Test("shape", "gives the shape of x", _learned_shape),
            Test("parameter", "has a table of max_len · d_model numbers to train", _learned_parameter),
            Test("start", "starts with numbers of ordinary size", _learned_start),
            Test("values", "adds row t of the table to position t", _learned_values),
            Test("samples", "gives each sample the same positions", _learned_samples),
            Test("limit", "refuses more than max_len positions with a ValueError", _learned_limit),
            Test("inputs_kept", "leaves x as it was, in training too", _learned_kept),
            Test("gradient", "lets the gradient through to x and to the rows that were used", _learned_gradient),
        ),
        mistakes=_LEARNED,
        variant=_learned_variant,
        probes=_learned_probes,
        sizes=_SIZES,
    ),
    _exercise(
        name="rotary_embedding",
        points=3,
        difficulty=3,
        minutes=20,
        hints=(
            "How does the point (a, b) of the plane look after a rotation by an angle?",
            "One angle for each position and pair, (T, d / 2); even features are the a, odd ones the b. Put the results back in turn.",
            "torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)",
        ),
        reference=solutions.rotary_embedding,
        tests=(
            Test("zero", "changes nothing at position 0", _rotary_zero),
            Test("one", "rotates (1, 0, 0, 0) at position 1 to (cos 1, sin 1, 0, 0)", _rotary_one),
            Test("values", "rotates each pair by its angle", _rotary_values),
            Test("base", "uses the base it is given", _rotary_base, crash="base_argument_missing"),
            Test("length", "keeps the length of each vector", _rotary_length),
            Test("distance", "makes products depend on the distance alone", _rotary_distance),
            Test("gradient", "has the right gradient", _rotary_gradient),
            Test("dtype", "keeps the type of x", _rotary_dtype, crash="fixed_dtype"),
            Test("inputs_kept", "leaves its inputs as they were, contiguous or not", _rotary_kept, crash="needs_contiguous_input"),
        ),
        mistakes=_ROTARY,
        variant=_rotary_variant,
        probes=_rotary_probes,
        as_function=_coarse,
        stretch=True,
    ),
)  # fmt: skip
