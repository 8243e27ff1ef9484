"""Random MessagePack for a header: a message or a refusal in our words, and never more memory than the limit allows."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import DecodeError, VersionMismatch
from protocols.messages.message import PROTOCOL_VERSION, Message
from protocols.messages.vertical import MESSAGES, RankChunk
from protocols.transport import codec
from protocols.transport.codec import Frame, decode, encode

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=40),
    st.sampled_from((0, 1, 2**31, 2**32, 2**53 + 1, "a" * 300, "0" * 64, "\x1b[2J", "\x00", "prealigned", "active")),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=9)),
    st.builds(msgpack.Timestamp, st.integers(0, 2**33), st.integers(0, 10**9 - 1)),
)
_KEYS = st.text(max_size=6) | st.binary(max_size=4) | st.sampled_from(("kind", "fields", "version", "arrays", "name"))
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12
)
_DTYPES = st.sampled_from(("|u1", "|b1", "<u2", "<u4", ">u2", "<i4", "<f4", "<f8", "|O", "|V1", "<U1", "M8[s]", "u1"))
_LAYOUTS = st.tuples(st.text(max_size=8), _DTYPES, st.lists(st.integers(-1, 70), max_size=3)).map(list) | _VALUES


def read(frames: list[bytes]) -> Message | None:
    """A message, or None if it was refused; anything else comes out here."""
    try:
        return decode(frames)
    except DecodeError as refusal:
        said = str(refusal)
    assert len(said) < 1000
    assert said.isprintable()
    return None


def assert_read_or_refused(frames: list[bytes]) -> None:
    """What is read can be written and read again."""
    if (message := read(frames)) is not None:
        assert read([bytes(frame) for frame in encode(message)]) is not None


@st.composite
def headers(draw: st.DrawFn) -> list[bytes]:
    """A header of a known kind: every field of its model, of random type and content, and random arrays."""
    model = MESSAGES[draw(st.sampled_from(sorted(MESSAGES)))]
    named = [name for name in model.model_fields if draw(st.integers(0, 4))]
    fields = {name: draw(_VALUES) for name in named}
    layouts = draw(st.lists(_LAYOUTS, max_size=3))
    for layout, name in zip(layouts, draw(st.permutations(sorted(model.model_fields))), strict=False):
        if isinstance(layout, list) and layout:
            layout[0] = name
            fields.pop(name, None)
    header = {"version": PROTOCOL_VERSION, "kind": model.kind, "fields": fields, "arrays": layouts}
    sizes = [_declared(layout) if draw(st.booleans()) else draw(st.integers(0, 70)) for layout in layouts]
    return [msgpack.packb(header), *(draw(st.binary(min_size=size, max_size=size)) for size in sizes)]


def _declared(layout: object) -> int:
    """The bytes that a layout promises, if they are few."""
    match layout:
        case [_, str(dtype), [*shape]] if all(type(n) is int and 0 <= n < 70 for n in shape):
            size = {"1": 1, "2": 2, "4": 4, "8": 8}.get(dtype[-1:], 1) * int(np.prod(shape, dtype=np.int64))
            return size if size < 300 else 0
    return 0


@settings(max_examples=500, deadline=None, derandomize=True)
@given(frames=headers())
def test_a_header_with_fields_of_random_types_is_read_or_refused(frames: list[bytes]) -> None:
    assert_read_or_refused(frames)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(value=_VALUES, rest=st.lists(st.binary(max_size=20), max_size=3))
def test_random_messagepack_is_no_message(value: object, rest: list[bytes]) -> None:
    assert read([msgpack.packb(value), *rest]) is None


@settings(max_examples=100, deadline=None, derandomize=True)
@given(frames=headers(), seed=st.integers(0, 2**32))
def test_cut_and_flipped_frames_are_read_or_refused(frames: list[bytes], seed: int) -> None:
    """Forty cases each: a frame loses its end, or some of its bits turn."""
    draw = random.Random(seed)
    for case in range(40):
        which = draw.randrange(len(frames))
        frame = bytearray(frames[which])
        if case % 2:
            del frame[draw.randint(0, len(frame)) :]
        for _ in range(draw.randint(1, 3) if frame else 0):
            frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)
        assert_read_or_refused([*frames[:which], bytes(frame), *frames[which + 1 :]])


def test_every_bit_of_a_header_may_flip() -> None:
    """A sound chunk with each bit of its header turned in turn: refused, or another chunk."""
    header, ranks = (bytes(frame) for frame in encode(RankChunk(column=2, start=7, ranks=np.arange(9, dtype=np.uint8))))
    n_read = 0
    for bit in range(8 * len(header)):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        n_read += read([bytes(flipped), ranks]) is not None
    assert 0 < n_read < 16


def test_a_key_that_comes_twice_counts_once() -> None:
    twice = b"\x82" + 2 * (msgpack.packb("version") + msgpack.packb(PROTOCOL_VERSION + 1))
    with pytest.raises(VersionMismatch):
        decode([twice])


_ITEMS = 1 << 10


def _array_of(n: int) -> bytes:
    return b"\xdd" + n.to_bytes(4, "big")


BOMBS: dict[str, bytes] = {
    "empty maps": _array_of(4 * _ITEMS) + b"\x80" * 4 * _ITEMS,
    "empty maps in short arrays": _array_of(40) + (_array_of(_ITEMS // 8) + b"\x80" * (_ITEMS // 8)) * 40,
    "a map of nils": b"\xdf"
    + (2 * _ITEMS).to_bytes(4, "big")
    + b"".join(msgpack.packb(str(i)) + b"\xc0" for i in range(2 * _ITEMS)),
    "an array longer than its bytes": _array_of(2**32 - 1) + b"\xc0",
    "arrays in arrays longer than their bytes": _array_of(2**31) * 200,
    "arrays in arrays": b"\x91" * 100_000 + b"\xc0",
    "maps in maps": b"\x81\xa1a" * 100_000 + b"\xc0",
    "a string longer than its bytes": b"\xdb\xff\xff\xff\xff" + b"a" * 9,
    "an extension longer than its bytes": b"\xc9\xff\xff\xff\xff\x05" + b"a" * 9,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_header_that_would_fill_the_memory_is_refused_early(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_ITEMS", _ITEMS)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode([bomb])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 * _ITEMS + 10 * len(bomb)


def test_the_limit_of_values_leaves_room_for_what_is_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_ITEMS", 20)
    frames: list[Frame] = encode(RankChunk(column=2, start=7, ranks=np.arange(9, dtype=np.uint8)))
    assert decode(frames).kind == "rank chunk"
    monkeypatch.setattr(codec, "MAX_ITEMS", 10)
    with pytest.raises(DecodeError, match="more than 10 values"):
        decode(frames)


def test_the_largest_header_of_the_worst_kind_is_refused_within_half_a_gigabyte() -> None:
    """In a process of its own with so much memory: 32 MiB of empty maps, in arrays that are short enough."""
    code = (
        "import resource; from protocols.transport.codec import MAX_HEADER_BYTES as most, decode; "
        "from protocols.errors import DecodeError\n"
        "n = 1 << 20; part = b'\\xdd' + n.to_bytes(4, 'big') + b'\\x80' * n\n"
        "header = b'\\xdd' + (31).to_bytes(4, 'big') + part * 31\n"
        "assert len(header) < most\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)\n"
        "try:\n    decode([header])\nexcept DecodeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "more than 4194304 values" in done.stdout
