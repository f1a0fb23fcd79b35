"""What crosses between grader and worker: values come back equal, everything else is refused or only named."""

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from txcourse.grading import wire

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


def crossed(value: Any, **how: Any) -> Any:
    data = wire.pack(value, **how)
    header, body = wire.lengths(data[: wire.FRAME], len(data))
    return wire.unpack(data[wire.FRAME : wire.FRAME + header], data[wire.FRAME + header :][:body])


@given(plain)
def test_plain_values_come_back_equal_and_of_their_types(value: Any) -> None:
    assert repr(crossed(value)) == repr(value)


@given(
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda d: d.kind in "biuf" and d.itemsize <= 8 and d.byteorder != ">"),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
    )
)
def test_arrays(array: np.ndarray) -> None:
    got = crossed(array)
    assert got.dtype == array.dtype and got.shape == array.shape
    assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_tensors_keep_type_shape_values_and_strides(name: str, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 3).to(getattr(torch, name))
    for view in (tensor, tensor.transpose(0, -1) if tensor.ndim > 1 else tensor):
        got = crossed(view)
        assert type(got) is torch.Tensor and got.dtype == view.dtype and got.shape == view.shape
        assert torch.equal(got, view) and (not view.numel() or got.stride() == view.stride())
    assert not crossed(tensor).requires_grad


def test_special_numbers_and_flags() -> None:
    got = crossed(
        [math.nan, -math.inf, -0.0, 2**80, np.float32(0.1), np.int64(3), torch.float16, {1, 2}, True]
    )
    assert (
        math.isnan(got[0])
        and got[1:][:1] == [-math.inf]
        and math.copysign(1, got[2]) == -1
        and got[3] == 2**80
    )
    assert (
        type(got[4]) is np.float32
        and type(got[5]) is np.int64
        and got[6] is torch.float16
        and got[7] == {1, 2}
    )
    assert got[8] is True
    assert crossed(torch.nn.Parameter(torch.ones(2))).requires_grad
    assert crossed(torch.ones(4).as_strided((3, 4), (0, 1))).tolist() == [[1.0] * 4] * 3


def test_other_objects_cross_as_a_name() -> None:
    class Yes:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

        def __str__(self) -> str:
            return "y" * 1000

    got = crossed([Yes(), print, torch.nn.Linear(1, 1)])
    assert [type(g).__name__ for g in got] == ["Yes", "builtin_function_or_method", "Linear"]
    assert got[0] != 1 and len(str(got[0])) == 80 and not callable(got[0]) and callable(got[1])
    endless: list[Any] = []
    endless.append(endless)
    crossed(endless)


def test_subclasses_arrive_as_what_they_are_made_of() -> None:
    class Sub(torch.Tensor):
        pass

    class Pair(tuple):
        pass

    assert type(crossed(torch.ones(2).as_subclass(Sub))) is torch.Tensor
    assert type(crossed(Pair((1, 2)))) is tuple
    assert type(crossed(torch.ones(2).to_sparse())) is not torch.Tensor
    assert type(crossed(torch.ones(2, device="meta"))) is not torch.Tensor
    assert type(crossed(np.array([object()]))).__name__ == "ndarray" and not isinstance(
        crossed(np.array([object()])), np.ndarray
    )


TENSOR = {"t": "tensor", "d": "float32", "s": [2], "o": [0], "g": False, "b": 0}
BAD: list[Any] = [
    {"t": "code", "v": "print()"},
    {"t": ["tuple"]},
    {"v": 1},
    {**TENSOR, "d": "object"},
    {**TENSOR, "s": [3]},
    {**TENSOR, "s": [-2]},
    {**TENSOR, "s": [2.0]},
    {**TENSOR, "s": [True, 2]},
    {**TENSOR, "s": [10**30, 0]},
    {**TENSOR, "s": [1] * 40 + [2], "o": list(range(41))},
    {**TENSOR, "o": [1]},
    {**TENSOR, "o": None},
    {**TENSOR, "b": 7},
    {**TENSOR, "b": "x"},
    {"t": "array", "d": "|O", "s": [1], "b": 0},
    {"t": "dict", "v": [[[], 1]]},
    {"t": "dict", "v": 3},
    {"t": "dtype", "v": "nothing"},
    {"t": "other", "name": "a\0b", "text": "", "call": False},
    {"t": "other"},
]


@pytest.mark.parametrize("tree", BAD, ids=lambda t: str(t)[:40])
def test_malformed_messages_are_refused(tree: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(json.dumps([tree, [8]]).encode(), bytes(8))


@pytest.mark.parametrize(
    "header",
    [b"", b"\xff\xfe", b"[", b"null", b"[1]", b"[1, 2]", b'[1, [-8]]', b"[1, [9]]", b"[" * 100_000, b"[1" + b"0" * 5000 + b", []]",
     b"[" + b"[" * 900 + b"]" * 900 + b", [8]]"],
)  # fmt: skip
def test_noise_is_refused(header: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(header, bytes(8))


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_random_bytes_never_do_anything_else(header: bytes, body: bytes) -> None:
    try:
        wire.unpack(header, body)
    except wire.WireError:
        pass


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    for header, body in ((2**63, 0), (0, 2**63), (600, 500)):
        with pytest.raises(wire.WireError):
            wire.lengths(struct.pack("<QQ", header, body), 1000)


def test_truth_values_are_truth_values() -> None:
    """Bytes other than 0 and 1 in a bool tensor make torch inconsistent."""
    tree = {**TENSOR, "d": "bool", "s": [3]}
    got = wire.unpack(json.dumps([tree, [3]]).encode(), bytes([0, 1, 255]))
    assert got.tolist() == [False, True, True] and int(got.sum()) == 2
