"""What crosses between the grader and the process that runs a student's code: plain values, tensors and arrays.

A message is a JSON header and the raw bytes of its tensors. Nothing in it is code, and nothing that arrives is trusted:
types, sizes and depths are checked before anything is built. Objects of other kinds cross as their type's name.
"""

import json
import math
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_FRAME = struct.Struct("<QQ")  # bytes of the header, bytes of the body
_DEEP = 60
_DTYPES = {
    str(d)[6:]: d
    for d in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_ARRAYS = {np.dtype(code).str for code in ("?", *"bhilq", *"BHILQ", *"efd", *"FD")}


class WireError(Exception):
    """A message that is malformed or too large."""


class Opaque:
    """Stands for an object that cannot cross: its type's name and the beginning of its text."""

    def __init__(self, text: str):
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def opaque(name: str, text: str, is_callable: bool) -> Opaque:
    """An object of a class of this name, since messages name what they got by its type."""
    members = {"__call__": lambda self, *args: self} if is_callable else {}
    return type(name, (Opaque,), members)(text)


Special = Callable[[Any], tuple[str, Any] | None]  # a tag and a plain value
Restore = Callable[[str, Any], Any]


class _Encoder:
    def __init__(self, special: Special):
        self._special = special
        self.buffers: list[bytes] = []

    def encode(self, value: Any, depth: int = 0) -> Any:
        """`value` as JSON; everything but None, truth values, numbers, texts and lists is an object with a tag "t"."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if depth > _DEEP:
            return _other(value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value)
        if isinstance(value, list):
            return [self.encode(v, depth + 1) for v in value]
        if isinstance(value, tuple):
            return {"t": "tuple", "v": [self.encode(v, depth + 1) for v in value]}
        if isinstance(value, dict):
            pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()]
            return {"t": "dict", "v": pairs}
        if kind in (set, frozenset):
            return {"t": "set", "v": [self.encode(v, depth + 1) for v in value]}
        if kind is bytes:
            return {"t": "bytes", "b": self._buffer(value)}
        if isinstance(value, torch.dtype):
            return {"t": "dtype", "v": str(value)[6:]}
        if (special := self._special(value)) is not None:
            return {"t": special[0], "v": self.encode(special[1], depth + 1)}
        return _other(value)

    def _buffer(self, data: bytes) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1

    def _tensor(self, value: Tensor) -> Any:
        name = str(value.dtype)[6:]
        if value.layout != torch.strided or value.device.type != "cpu" or name not in _DTYPES:
            return _other(value)
        plain = value.detach().resolve_conj().resolve_neg()
        order = sorted(
            range(plain.ndim), key=lambda i: plain.stride()[i], reverse=True
        )  # memory's order, which is kept
        flat = plain.permute(order).contiguous().reshape(-1)
        return {
            "t": "tensor",
            "d": name,
            "s": list(plain.shape),
            "o": order,
            "g": bool(value.requires_grad),
            "b": self._buffer(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""),
        }

    def _array(self, value: np.ndarray | np.generic) -> Any:
        array = np.asarray(value)
        if array.dtype.str not in _ARRAYS:
            return self.encode(array.tolist()) if array.dtype.kind == "U" else _other(value)
        tag = "array" if isinstance(value, np.ndarray) else "number"
        return {
            "t": tag,
            "d": array.dtype.str,
            "s": list(array.shape),
            "b": self._buffer(array.tobytes()),
        }


def _other(value: Any) -> dict[str, Any]:
    try:
        text = str(value)[:80]
    except Exception:
        text = "(its text cannot be shown)"
    return {"t": "other", "name": type(value).__name__, "text": text, "call": callable(value)}


class _Decoder:
    def __init__(self, buffers: list[bytes], restore: Restore):
        self._buffers, self._restore = buffers, restore

    def decode(self, node: Any, depth: int = 0) -> Any:
        if depth > 2 * _DEEP:
            raise WireError("nested too deeply")
        if isinstance(node, list):
            return [self.decode(v, depth + 1) for v in node]
        if not isinstance(node, dict):
            return node
        tag = node["t"]
        if tag == "tuple":
            return tuple(self.decode(v, depth + 1) for v in node["v"])
        if tag == "dict":
            return {self.decode(k, depth + 1): self.decode(v, depth + 1) for k, v in node["v"]}
        if tag == "set":
            return {self.decode(v, depth + 1) for v in node["v"]}
        if tag == "bytes":
            return self._buffers[node["b"]]
        if tag == "dtype":
            return _DTYPES[node["v"]]
        if tag == "tensor":
            return self._tensor(node)
        if tag in ("array", "number"):
            return self._array(node)
        if tag == "other":
            return opaque(str(node["name"])[:80], str(node["text"])[:80], node["call"] is True)
        return self._restore(tag, self.decode(node["v"], depth + 1))

    def _data(self, node: dict[str, Any], itemsize: int) -> tuple[list[int], bytes]:
        shape, data = node["s"], self._buffers[node["b"]]
        if len(shape) > 16 or any(type(n) is not int or not 0 <= n < 2**40 for n in shape):
            raise WireError("a shape that no tensor has")
        if math.prod(shape) * itemsize != len(data):
            raise WireError("a shape that does not fit the data")
        return shape, data

    def _tensor(self, node: dict[str, Any]) -> Tensor:
        dtype = _DTYPES[node["d"]]
        shape, data = self._data(node, dtype.itemsize)
        order = node["o"]
        if sorted(order) != list(range(len(shape))):
            raise WireError("an order of axes that is none")
        in_memory = [shape[i] for i in order]
        if not data:
            value = torch.empty(in_memory, dtype=dtype)
        elif dtype == torch.bool:
            value = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(in_memory) != 0
        else:
            value = torch.frombuffer(bytearray(data), dtype=dtype).reshape(in_memory)
        value = value.permute([order.index(i) for i in range(len(shape))])
        differentiable = dtype.is_floating_point or dtype.is_complex
        return value.requires_grad_() if node["g"] is True and differentiable else value

    def _array(self, node: dict[str, Any]) -> Any:
        if node["d"] not in _ARRAYS:
            raise WireError("an array of a type that does not cross")
        dtype = np.dtype(node["d"])
        shape, data = self._data(node, dtype.itemsize)
        array = np.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
        if dtype.kind == "b":
            array = array.view(np.uint8) != 0
        return array if node["t"] == "array" else array[()]


def _no_special(value: Any) -> None:
    return None


def _no_restore(tag: str, value: Any) -> Any:
    raise WireError(f"an unknown kind of value {str(tag)[:20]!r}")


def pack(message: Any, special: Special = _no_special) -> bytes:
    """The bytes of a message. `special` describes objects of kinds that only one side knows, or gives None."""
    encoder = _Encoder(special)
    tree = encoder.encode(message)
    header = json.dumps([tree, [len(b) for b in encoder.buffers]]).encode()
    body = b"".join(encoder.buffers)
    return _FRAME.pack(len(header), len(body)) + header + body


def unpack(header: bytes, body: bytes, restore: Restore = _no_restore) -> Any:
    """The message; `restore` builds what `special` described.

    Raises:
        WireError: the bytes are no message.
    """
    try:
        tree, sizes = json.loads(header)
        buffers, start = [], 0
        for size in sizes:
            if type(size) is not int or size < 0:
                raise WireError("sizes that are none")
            buffers.append(body[start : start + size])
            start += size
        if start != len(body):
            raise WireError("sizes that do not fit the data")
        return _Decoder(buffers, restore).decode(tree)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, RuntimeError) as error:
        raise WireError(f"not a message ({type(error).__name__})") from error


def lengths(frame: bytes, most: int) -> tuple[int, int]:
    """The lengths of header and body that a frame announces; raises WireError when they are more than `most` together."""
    header, body = _FRAME.unpack(frame)
    if header + body > most:
        raise WireError("too much data in one message")
    return header, body


FRAME = _FRAME.size


def receive(connection: socket.socket, restore: Restore = _no_restore) -> Any:
    """The next message of a peer that is trusted; raises EOFError at the end."""
    header, body = lengths(_exactly(connection, FRAME), 2**62)
    return unpack(_exactly(connection, header), _exactly(connection, body), restore)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
