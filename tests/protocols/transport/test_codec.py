"""Frames in, frames out: what one side encodes the other decodes, and whatever else arrives is refused by name."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence

import msgpack
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from protocols.errors import DecodeError, VersionMismatch
from protocols.messages.fields import MAX_COUNT
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.message import PROTOCOL_VERSION, Message
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import (
    Abort,
    Done,
    Held,
    Hello,
    Offer,
    OfferedColumn,
    RankChunk,
    Role,
    SplitRanks,
    Task,
    Terms,
    Thresholds,
)
from protocols.transport import codec
from protocols.transport.codec import Frame, decode, encode, size_bytes

_texts = st.text(max_size=20)
_names = st.text(min_size=1, max_size=20)
_counts = st.integers(0, MAX_COUNT - 1)
_digests = st.text("0123456789abcdef", min_size=64, max_size=64)
_floats = st.floats(allow_nan=False)
_losses = st.floats(min_value=0)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _floats | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_documents = st.dictionaries(_texts, _json, max_size=4)
_columns = st.builds(
    OfferedColumn,
    name=_names,
    n_ranks=_counts,
    has_missing=st.booleans(),
    digest=_digests,
    mechanism=_texts,
    law=_texts,
    epsilon=_losses,
)


def _arrays(*dtypes: str) -> st.SearchStrategy[np.ndarray]:
    return st.sampled_from(dtypes).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(0, 30)))


_terms = st.builds(
    Terms,
    objective=st.none() | _names,
    columns=st.none() | _counts,
    mechanism=st.none() | _names,
    law=st.none() | _names,
    epsilon=st.none() | _losses,
    total_epsilon=st.none() | _losses,
    share_thresholds=st.none() | st.booleans(),
    reveal=st.none() | _texts,
)

MESSAGES = st.one_of(
    st.builds(
        Hello,
        role=st.sampled_from(Role),
        party=_names,
        run_id=_names,
        task=st.sampled_from(Task),
        n_rows=_counts,
        id_point=st.none() | st.binary(min_size=33, max_size=33),
        has_label=st.none() | st.booleans(),
        plan=_terms,
        agreed=_terms,
        held=st.none() | st.builds(Held, offer=_digests, column=_counts, row=_counts),
        max_rows=st.none() | st.integers(1, MAX_COUNT - 1),
        comes_again=st.booleans(),
    ),
    st.builds(IdConfirmation, tag=st.binary(min_size=32, max_size=32)),
    st.builds(Offer, columns=st.lists(_columns, max_size=3).map(tuple), guarantee=_documents),
    st.builds(RankChunk, column=_counts, start=_counts, ranks=_arrays("|u1", "<u2", "<u4")),
    st.integers(0, 30).flatmap(
        lambda n: st.builds(
            SplitRanks, columns=hnp.arrays("<u4", n), ranks=hnp.arrays("<u4", n), missing_left=hnp.arrays("|b1", n)
        )
    ),
    st.builds(Thresholds, router=st.none() | _documents),
    st.builds(Ask, ids=st.lists(_texts, max_size=5).map(tuple), desensitized=st.booleans()),
    st.builds(
        Answers,
        status=hnp.arrays("|u1", st.integers(0, 30), elements=st.integers(0, max(RecordStatus))),
        bits=hnp.arrays("|u1", hnp.array_shapes(min_dims=2, max_dims=2, min_side=0)),
    ),
    st.just(Done()),
    st.builds(Abort, phase=_texts.filter(bool), reason=_texts),
)


def assert_same(found: Message, expected: Message) -> None:
    assert type(found) is type(expected)
    for name in type(expected).model_fields:
        mine, theirs = getattr(found, name), getattr(expected, name)
        if isinstance(theirs, np.ndarray):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert mine == theirs


def only_refuses(frames: Sequence[Frame], reader: Callable[[Sequence[Frame]], Message] = decode) -> None:
    """Reading ends with a message of the protocol or with a `DecodeError`; anything else comes out here."""
    try:
        assert isinstance(reader(frames), Message)
    except DecodeError:
        return


@settings(max_examples=200, deadline=None)
@given(message=MESSAGES)
def test_decoding_returns_what_was_encoded(message: Message) -> None:
    frames = [bytes(frame) for frame in encode(message)]
    assert_same(decode(frames), message)
    assert [bytes(frame) for frame in encode(decode(frames))] == frames


def test_the_frames_are_a_plain_header_and_little_endian_arrays() -> None:
    header, ranks = encode(RankChunk(column=2, start=7, ranks=np.array([1, 258], "<u2")))
    assert msgpack.unpackb(header) == {
        "version": PROTOCOL_VERSION,
        "kind": "rank chunk",
        "fields": {"column": 2, "start": 7},
        "arrays": [["ranks", "<u2", [2]]],
    }
    assert bytes(ranks) == b"\x01\x00\x02\x01"


def test_arrays_are_not_copied_in_either_direction() -> None:
    ranks = np.arange(1000, dtype=np.uint16)
    frames = encode(RankChunk(column=0, start=0, ranks=ranks))
    received = decode(frames)
    assert isinstance(received, RankChunk)
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), ranks)
    assert np.shares_memory(received.ranks, ranks)


def test_an_array_with_gaps_is_sent_as_its_values() -> None:
    received = decode(encode(RankChunk(column=0, start=0, ranks=np.arange(10, dtype=np.uint8)[::3])))
    assert isinstance(received, RankChunk)
    assert received.ranks.tolist() == [0, 3, 6, 9]


def test_the_size_is_that_of_all_frames() -> None:
    frames = encode(RankChunk(column=0, start=0, ranks=np.zeros(5, np.uint32)))
    assert size_bytes(frames) == len(frames[0]) + 20


@settings(max_examples=300, deadline=None)
@given(frames=st.lists(st.binary(max_size=200), max_size=11))
def test_arbitrary_bytes_are_only_ever_refused(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode(frames)


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """Frames of a message with some bytes changed, cut or added, or with frames dropped, repeated or swapped."""
    frames = [bytearray(frame) for frame in encode(draw(MESSAGES))]
    for _ in range(draw(st.integers(1, 4))):
        frame = frames[draw(st.integers(0, len(frames) - 1))]
        place = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(("change", "cut", "add", "drop", "repeat", "swap"))):
            case "change" if place < len(frame):
                frame[place] = draw(st.integers(0, 255))
            case "cut":
                del frame[place:]
            case "add":
                frame[place:place] = draw(st.binary(max_size=9))
            case "drop" if len(frames) > 1:
                frames.pop()
            case "repeat":
                frames.append(bytearray(frame))
            case "swap":
                frames.reverse()
    return [bytes(frame) for frame in frames]


_layouts = st.lists(
    st.tuples(
        st.sampled_from(("ranks", "columns", "missing_left", "status", "bits", "ids", "guarantee", "x")),
        st.sampled_from(("|u1", "|b1", "<u2", "<u4", ">u4", "<i8", "<f8", "|O", "|S4", "", "u1,u1")),
        st.lists(st.integers(-2, 9) | st.sampled_from((2**31, 2**62, 1.0, None, "3")), max_size=3),
    ).map(list)
    | _json,
    max_size=4,
)
_plain_fields = st.fixed_dictionaries(
    {},
    optional={
        "column": _counts,
        "start": _counts,
        "router": _json,
        "desensitized": st.booleans(),
        "ids": _json,
        "columns": _json,
        "guarantee": _json,
        "phase": _json,
        "reason": _json,
        "role": _json,
        "n_rows": _json,
    },
)


@st.composite
def misdescribed(draw: st.DrawFn) -> list[bytes]:
    """A well-formed header of a known kind whose fields, dtypes, shapes and lengths are anything."""
    layouts = draw(_layouts)
    header = {
        "version": PROTOCOL_VERSION,
        "kind": draw(st.sampled_from(("rank chunk", "split ranks", "answers", "ask", "offer", "thresholds", "hello"))),
        "fields": draw(_plain_fields | _json),
        "arrays": layouts,
    }
    sizes = [draw(st.sampled_from((0, 1, 2, 4, 8, 12))) for _ in layouts]
    return [msgpack.packb(header), *(draw(st.binary(min_size=size, max_size=size)) for size in sizes)]


@settings(max_examples=300, deadline=None)
@given(frames=mutated())
def test_a_damaged_message_is_read_or_refused_and_nothing_else(frames: list[bytes]) -> None:
    only_refuses(frames)


@settings(max_examples=300, deadline=None)
@given(frames=misdescribed())
def test_a_header_that_lies_about_its_arrays_is_read_or_refused_and_nothing_else(frames: list[bytes]) -> None:
    only_refuses(frames)


@pytest.mark.parametrize("strategy", [mutated(), misdescribed()], ids=["mutated", "misdescribed"])
def test_a_reader_that_trusts_the_header_is_caught_by_the_same_frames(strategy: st.SearchStrategy[list[bytes]]) -> None:
    def trusting(frames: Sequence[Frame]) -> Message:
        header = msgpack.unpackb(frames[0])
        arrays = zip(header["arrays"], frames[1:], strict=False)
        arrays_by_name = {name: np.frombuffer(frame, dtype).reshape(shape) for (name, dtype, shape), frame in arrays}
        kinds = {message.kind: message for message in (RankChunk, SplitRanks, Answers)}
        return kinds[header["kind"]](**header["fields"], **arrays_by_name)

    def escapes(frames: list[bytes]) -> bool:
        try:
            only_refuses(frames, trusting)
        except Exception:
            return True
        return False

    bounded = settings(max_examples=500, deadline=None, derandomize=True, phases=(Phase.generate,))
    assert find(strategy, escapes, settings=bounded)


def _header(**changes: object) -> bytes:
    chunk = {"version": PROTOCOL_VERSION, "kind": "rank chunk", "fields": {"column": 0, "start": 0}}
    return msgpack.packb({**chunk, "arrays": [["ranks", "|u1", [3]]], **changes})


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "1 to 9 frames; found 0"),
        ([_header(), *[b"abc"] * 9], "1 to 9 frames; found 10"),
        ([msgpack.packb([1])], "not a map"),
        ([_header() + b"\x00", b"abc"], "not MessagePack"),
        ([pickle.dumps(Done), b"abc"], "not MessagePack"),
        ([msgpack.packb([msgpack.ExtType(5, b"")]), b"abc"], "not MessagePack"),
        ([msgpack.packb([msgpack.ExtType(5, b"x")]), b"abc"], "not MessagePack"),
        ([msgpack.packb([msgpack.Timestamp(1)]), b"abc"], "not MessagePack"),
        ([_header(version=None), b"abc"], "names no protocol version"),
        ([_header(version=True), b"abc"], "names no protocol version"),
        ([_header(version=float(PROTOCOL_VERSION)), b"abc"], "names no protocol version"),
        ([b"\x81\xa7version" + b"\x91" * 1000 + b"\x90"], "names no protocol version"),
        ([_header(kind="surprise"), b"abc"], "unknown kind"),
        ([_header(kind="offered column"), b"abc"], "unknown kind"),
        ([_header(kind=["rank chunk"]), b"abc"], "unknown kind"),
        ([_header()], "does not match its 0 array frames"),
        ([_header(arrays=[]), b"abc"], "does not match its 1 array frames"),
        ([_header(fields=[]), b"abc"], "does not match"),
        ([_header(), b"ab"], "has 2 bytes where its layout says 3"),
        ([_header(arrays=[["ranks", "<u4", [3]]]), b"abc"], "has 3 bytes where its layout says 12"),
        ([_header(arrays=[["ranks", "|O", [3]]]), b"abc"], "malformed layout"),
        ([_header(arrays=[["ranks", "<f4", [1]]]), bytes(4)], "malformed layout"),
        ([_header(arrays=[["ranks", "<f8", [1]]]), bytes(8)], "wrong or missing fields: ranks"),
        ([_header(arrays=[["ranks", "|u1", [-3]]]), b"abc"], "malformed layout"),
        ([_header(arrays=[["ranks", "|u1", [True]]]), b"a"], "malformed layout"),
        ([_header(arrays=[["ranks", "|u1", [1, 1, 3]]]), b"abc"], "malformed layout"),
        ([_header(arrays=[["ranks", "|u1", [3, 1]]]), b"abc"], "wrong or missing fields: ranks"),
        ([_header(arrays=[["ranks", "|b1", [3]]]), b"\x00\x01\x02"], "neither 0 nor 1"),
        ([_header(arrays=[["column", "|u1", [3]]]), b"abc"], "given twice"),
        ([_header(arrays=[["start", "|u1", [3]]], fields={"column": 0}), b"abc"], "wrong or missing fields"),
        ([_header(fields={"column": -1, "start": 0}), b"abc"], "wrong or missing fields: column"),
        ([_header(fields={"column": 0, "start": 0, "more": 1}), b"abc"], "wrong or missing fields: more"),
    ],
)
def test_a_malformed_message_is_refused_with_its_fault_in_words(frames: list[bytes], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode(frames)


def test_another_version_is_told_apart_from_damage() -> None:
    with pytest.raises(
        VersionMismatch, match=f"speaks protocol version {PROTOCOL_VERSION + 1}, this party speaks {PROTOCOL_VERSION}"
    ):
        decode([_header(version=PROTOCOL_VERSION + 1), b"abc"])


def test_a_refusal_names_the_field_and_not_its_value() -> None:
    frames = [_header(kind="ask", fields={"ids": [81726354], "desensitized": "81726354"}, arrays=[])]
    with pytest.raises(DecodeError, match=r"desensitized, ids\.0$") as refusal:
        decode(frames)
    assert "81726354" not in str(refusal.value)


def test_a_header_or_an_array_over_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = encode(RankChunk(column=0, start=0, ranks=np.zeros(101, np.uint8)))
    monkeypatch.setattr(codec, "MAX_ARRAY_BYTES", 100)
    with pytest.raises(DecodeError, match=r"malformed layout|has 101 bytes"):
        decode(frames)
    monkeypatch.setattr(codec, "MAX_HEADER_BYTES", 10)
    with pytest.raises(DecodeError, match=f"a header of {len(frames[0])} bytes is over the limit of 10"):
        decode(frames)


def test_an_infinite_loss_survives_the_wire() -> None:
    column = OfferedColumn(
        name="c0", n_ranks=1, has_missing=False, digest="0" * 64, mechanism="global", law="clamped", epsilon=math.inf
    )
    received = decode(encode(Offer(columns=(column,), guarantee={})))
    assert_same(received, Offer(columns=(column,), guarantee={}))
