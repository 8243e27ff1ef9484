"""Message codec: one MessagePack header frame, then one frame per array, without a copy.

The header is ``{"version", "kind", "fields", "arrays"}``; an array field holds None there, and ``arrays`` lists its
name, dtype and shape in the order of the frames. Nothing executable is ever encoded or decoded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from protocols.errors import DecodeError, VersionMismatch
from protocols.messages.message import PROTOCOL_VERSION, Message
from protocols.messages.registry import MESSAGE_TYPES
from protocols.transport.sanitize import readable

MAX_HEADER_BYTES = 32 << 20
MAX_ARRAY_BYTES = 64 << 20
MAX_ARRAYS = 8

# Values in a header: a byte of MessagePack may stand for an empty map, which takes eighty bytes of memory.
MAX_ITEMS = 1 << 22

# Wrong fields that an error names.
MAX_NAMED = 5

_DTYPES = {"|u1", "|b1", "<u2", "<u4", "<u8", "<i4", "<f8"}

Frame = bytes | memoryview


def encode(message: Message) -> list[Frame]:
    """Encode a message to frames."""
    fields: dict[str, object] = {}
    arrays: list[tuple[str, NDArray[np.generic]]] = []
    for name in type(message).model_fields:
        value = getattr(message, name)
        if isinstance(value, np.ndarray):
            arrays.append((name, np.ascontiguousarray(value)))
        else:
            fields[name] = value
    header = {
        "version": PROTOCOL_VERSION,
        "kind": message.kind,
        "fields": fields,
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays],
    }
    return [
        msgpack.packb(header, default=_fields),
        *(memoryview(array.reshape(-1).view(np.uint8)) for _, array in arrays),
    ]


def decode(frames: Sequence[Frame]) -> Message:
    """Decode and validate frames to a message.

    Raises
    ------
    DecodeError
        If they are too large, malformed, of an unknown kind, or do not fit the message's fields.
    VersionMismatch
        If the header names another version of the protocol.
    """
    if not 1 <= len(frames) <= 1 + MAX_ARRAYS:
        raise DecodeError(f"a message has 1 to {1 + MAX_ARRAYS} frames; found {len(frames)}")
    header = _unpack(frames[0])
    version, kind = header.get("version"), header.get("kind")
    if type(version) is not int:
        raise DecodeError("the header names no protocol version")
    if version != PROTOCOL_VERSION:
        raise VersionMismatch(f"the peer speaks protocol version {version}, this party speaks {PROTOCOL_VERSION}")
    if not isinstance(kind, str) or kind not in MESSAGE_TYPES:
        raise DecodeError("the message is of an unknown kind")
    fields, layouts = header.get("fields"), header.get("arrays")
    if not isinstance(fields, dict) or not isinstance(layouts, list) or len(layouts) != len(frames) - 1:
        raise DecodeError(f"the header of a {kind!r} message does not match its {len(frames) - 1} array frames")
    for layout, frame in zip(layouts, frames[1:], strict=True):
        name, array = _array(kind, layout, frame)
        if name in fields:
            raise DecodeError(f"a field of a {kind!r} message is given twice")
        fields[name] = array
    try:
        return MESSAGE_TYPES[kind].model_validate(fields)
    except ValidationError as error:
        # An unknown field's name is the peer's word, too.
        places = sorted({".".join(map(str, e["loc"])) or "lengths" for e in error.errors(include_input=False)})
        wrong = ", ".join(readable(place, 80) for place in places[:MAX_NAMED])
        more = f" and {len(places) - MAX_NAMED} more" if len(places) > MAX_NAMED else ""
        raise DecodeError(f"a {kind!r} message has wrong or missing fields: {wrong}{more}") from None


def size_bytes(frames: Sequence[Frame]) -> int:
    """Bytes of all frames together."""
    return sum(len(frame) for frame in frames)


def _unpack(frame: Frame) -> dict[str, object]:
    if len(frame) > MAX_HEADER_BYTES:
        raise DecodeError(f"a header of {len(frame)} bytes is over the limit of {MAX_HEADER_BYTES}")
    n_items = 0

    def count(container: Any) -> Any:
        nonlocal n_items
        n_items += 1 + len(container)
        if n_items > MAX_ITEMS:
            raise DecodeError(f"a header holds more than {MAX_ITEMS} values")
        return container

    try:
        header = msgpack.unpackb(
            frame,
            strict_map_key=True,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
            object_hook=count,
            list_hook=count,
            ext_hook=_no_extension,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        raise DecodeError(f"the header is not MessagePack, or holds more than {MAX_ITEMS} values") from None
    if not isinstance(header, dict):
        raise DecodeError("the header is not a map")
    return header


def _no_extension(code: int, data: bytes) -> Any:
    """Messages have none; a header of nothing else would take seconds."""
    raise ValueError


def _array(kind: str, layout: Any, frame: Frame) -> tuple[str, NDArray[np.generic]]:
    match layout:
        case [str(name), str(dtype), [*shape]] if (
            dtype in _DTYPES and all(type(n) is int and 0 <= n <= MAX_ARRAY_BYTES for n in shape) and len(shape) <= 2
        ):
            expected = np.dtype(dtype).itemsize * math.prod(shape)
        case _:
            raise DecodeError(f"an array of a {kind!r} message has a malformed layout")
    if len(frame) > MAX_ARRAY_BYTES or len(frame) != expected:
        raise DecodeError(f"an array of a {kind!r} message has {len(frame)} bytes where its layout says {expected}")
    raw = np.frombuffer(frame, np.uint8)
    if dtype == "|b1" and raw.size and raw.max() > 1:
        raise DecodeError(f"a flag of a {kind!r} message is neither 0 nor 1")
    return name, raw.view(dtype).reshape(shape)


def _fields(value: object) -> dict[str, object]:
    """A message within another."""
    if not isinstance(value, Message):
        raise TypeError(f"a message holds no {type(value).__name__}")
    return {name: getattr(value, name) for name in type(value).model_fields}
