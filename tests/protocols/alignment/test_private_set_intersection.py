"""Finding common ids: exactly those, over every carrier; whoever does not keep to the protocol is refused."""

from __future__ import annotations

import hmac
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import private_files
from protocols.alignment import id_chunks, private_set_intersection, sorted_rows, transfer_prf
from protocols.alignment.blinding import POINT_BYTES, Cipher
from protocols.alignment.private_set_intersection import (
    AlignmentTerms,
    Common,
    SetMethod,
    keyed_order,
    psi_initiate,
    psi_respond,
)
from protocols.errors import DecodeError, NothingInCommon, PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import BlindedIds, CommonIds, MoreIds, OrderShare, ReblindedIds
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel
from protocols.transport.codec import encode
from protocols.transport.memory import memory_pair

SECRET = bytes(range(32))
METHODS = get_args(SetMethod)

# A carrier gives, per passive party, the two ends of a channel: the near ones first.
Ends = Callable[[Sequence[str]], tuple[list[Channel], list[Channel]]]


@pytest.fixture(params=["memory", "curve"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Channels of either kind between a and its passive parties; each end may be used by a thread of its own."""
    if request.param == "memory":
        yield in_memory
        return
    network = request.getfixturevalue("network")

    def over_sockets(names: Sequence[str]) -> tuple[list[Channel], list[Channel]]:
        listener = network.listen(*names)
        far = [network.connect(listener.address, name, own=name) for name in names]
        return [listener.channel(name) for name in names], far

    yield over_sockets


def in_memory(names: Sequence[str]) -> tuple[list[Channel], list[Channel]]:
    pairs = [memory_pair("a", name) for name in names]
    return [near for near, _ in pairs], [far for _, far in pairs]


def run_all(calls: dict[str, Callable[[], Any]], near: Sequence[Any], wait_s: float = 60) -> dict[str, Any]:
    """What every party returned or raised; when a ends, its memory channels close, as a process's sockets do."""
    found: dict[str, Any] = {}

    def run(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = call()
        except BaseException as error:
            found[name] = error
        if name == "a":
            for channel in near:
                channel.close()

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wait_s)
    assert wait_s < 60 or sorted(found) == sorted(calls)
    return dict(found)


def align(
    sets: dict[str, Sequence[bytes]], *, method: SetMethod = "psi", ends: Ends = in_memory, **terms: Any
) -> dict[str, Any]:
    """What every party gets when a and the others bring these ids."""
    names = [name for name in sets if name != "a"]
    near, far = ends(names)
    own = AlignmentTerms(run_id="r", method=method, secret=SECRET, **terms)
    calls: dict[str, Callable[[], Any]] = {
        "a": lambda: psi_initiate(near, sets["a"], sizes=[len(sets[name]) for name in names], terms=own)
    }
    for name, channel in zip(names, far, strict=True):
        theirs = AlignmentTerms(run_id="r", method=method, secret=SECRET)
        calls[name] = lambda name=name, channel=channel, theirs=theirs: psi_respond(
            channel, sets[name], size=len(sets["a"]), terms=theirs
        )
    return run_all(calls, near)


def check(sets: dict[str, Sequence[bytes]], found: dict[str, Any]) -> None:
    """By brute force: everybody's common ids are those in every list, in the order of the own list."""
    for name, ids in sets.items():
        assert isinstance(found[name], Common), found[name]
        expected = [i for i, record_id in enumerate(ids) if all(record_id in other for other in sets.values())]
        assert found[name].positions.tolist() == expected
    for name in set(sets) - {"a"}:
        both = [found["a"].orders[name], found[name].orders["a"]]
        ids = [[sets[p][i] for i in found[p].positions] for p in ("a", name)]
        sent = [[ids[side][i] for i in order] for side, order in enumerate(both)]
        assert sent[0] == sent[1]
        assert sorted(both[0].tolist()) == list(range(len(ids[0])))


def named(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


CASES = {
    "some on both sides": (named("1", "2", "3", "7"), named("9", "3", "8", "1")),
    "b within a": (named("1", "2", "3"), named("2")),
    "a within b": (named("2"), named("3", "2", "1")),
    "the same": (named("x", "y", "z"), named("z", "x", "y")),
    "zeros, blanks and an empty id": ([b"", b"\0", b"\0\0", b" "], [b"\0\0", b"", b"0"]),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_exactly_the_common_ids_are_found_on_both_sides(ends: Ends, case: str, method: SetMethod) -> None:
    sets = dict(zip(("a", "b"), CASES[case], strict=True))
    check(sets, align(sets, method=method, ends=ends))


class Noted(Sequence[bytes]):
    """Ids that are read by slices or one at a time, and how many were asked for at once."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.ids, self.most = ids, 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: Any) -> Any:
        found = self.ids[at]
        self.most = max(self.most, len(found) if isinstance(at, slice) else 1)
        return found

    def __iter__(self) -> Iterator[bytes]:
        self.most = len(self.ids)
        return iter(self.ids)


@pytest.mark.parametrize("method", METHODS)
def test_ids_are_asked_for_in_pieces_and_never_all_at_once(monkeypatch: pytest.MonkeyPatch, method: SetMethod) -> None:
    """Ids on disk stay there."""
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", 8)
    monkeypatch.setattr(transfer_prf, "BUCKET_BITS", 4)
    sets = {"a": named(*map(str, range(60))), "b": named(*map(str, range(30, 110)))}
    noted = {party: Noted(ids) for party, ids in sets.items()}
    check(sets, align(noted, method=method))
    assert all(0 < one.most <= 16 for one in noted.values())
    # Who copies them first would be found out.
    list(noted["a"])
    assert noted["a"].most == 60


@pytest.mark.parametrize("method", METHODS)
def test_of_three_parties_only_what_all_know_is_common_and_nobody_else_is_told_more(
    ends: Ends, method: SetMethod
) -> None:
    sets = {"a": named("1", "2", "3", "4"), "b": named("4", "2", "1", "8"), "c": named("9", "4", "3", "1", "5")}
    check(sets, align(sets, method=method, ends=ends))


_ids = st.lists(st.text(max_size=30) | st.text("éeñ\u0301", max_size=4) | st.just("x" * 5000), max_size=8, unique=True)


@settings(max_examples=12, deadline=None)
@given(mine=_ids, theirs=_ids, shared=_ids, method=st.sampled_from(METHODS))
def test_any_text_is_an_id(mine: list[str], theirs: list[str], shared: list[str], method: SetMethod) -> None:
    a, b = (sorted({*some, *shared, "common"}, reverse=True) for some in (mine, theirs))
    sets = {"a": named(*a), "b": named(*b)}
    check(sets, align(sets, method=method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_b", [1, 64, 65])
def test_lists_longer_than_a_chunk_are_sent_in_several(
    monkeypatch: pytest.MonkeyPatch, method: SetMethod, n_b: int
) -> None:
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", 16)
    sets = {"a": named(*map(str, range(150))), "b": named(*map(str, range(149, 149 + n_b)))}
    seen: list[tuple[str, int, int]] = []
    check(sets, align(sets, method=method, progress=lambda *step: seen.append(step)))
    assert ("comparing ids with b", n_b, n_b) in seen


def test_no_more_than_a_few_chunks_wait_at_a_slow_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", 2)
    near, far = memory_pair("a", "b")
    ids = named(*map(str, range(40)))
    found = run_all(
        {"b": lambda: psi_respond(far, ids, size=1, terms=AlignmentTerms(run_id="r", method="hashed", secret=SECRET))},
        [],
        wait_s=0.5,
    )
    assert found == {}
    near.send(OrderShare(random=bytes(32)))
    for _ in range(3):
        time.sleep(0.1)
        near.send(MoreIds())
    time.sleep(0.3)
    near._outgoing.close()
    waiting = len(near._incoming.queue)
    assert waiting == 1 + id_chunks.WINDOW + 3


@pytest.mark.parametrize("method", METHODS)
def test_sets_that_do_not_meet_are_refused_and_nobody_is_told_anything(method: SetMethod) -> None:
    found = align({"a": named("1", "2"), "b": named("3"), "c": named("1")}, method=method)
    assert isinstance(found["a"], NothingInCommon)
    assert str(found["a"]) == "not one id is common to all 3 parties. Nothing was released"
    assert [type(found[name]) for name in "bc"] == [PeerLost, PeerLost]


def test_other_secrets_find_nothing() -> None:
    near, far = memory_pair("a", "b")
    there, here = near, far
    terms = [AlignmentTerms(run_id="r", method="hashed", secret=secret) for secret in (SECRET, SECRET[::-1])]
    found = run_all(
        {
            "a": lambda: psi_initiate([there], named("1"), sizes=[1], terms=terms[0]),
            "b": lambda: psi_respond(here, named("1"), size=1, terms=terms[1]),
        },
        [near],
    )
    assert isinstance(found["a"], NothingInCommon)


def test_both_keys_in_either_order_give_the_same_point_and_the_package_agrees() -> None:
    from private_set_intersection.python import DataStructure, client, server

    ids = named(*map(str, range(20)))
    with Cipher() as first, Cipher() as second:
        assert (second.reblind(first.blind(ids)) == first.reblind(second.blind(ids))).all()
        assert (first.blind(ids) == first.blind(ids)).all()
        assert not (first.blind(ids) == second.blind(ids)).all(axis=1).any()
    theirs, mine = server.CreateWithNewKey(True), client.CreateWithNewKey(True)
    others = ids[15:] + named("x", "y")
    setup = theirs.CreateSetupMessage(1e-9, len(ids), others, DataStructure.RAW)
    indices = mine.GetIntersection(setup, theirs.ProcessRequest(mine.CreateRequest(ids)))
    for method in METHODS:
        ours = align({"a": ids, "b": others}, method=method)["a"]
        assert sorted(indices) == ours.positions.tolist() == [15, 16, 17, 18, 19]


def sent_by(party: str, sets: dict[str, Sequence[bytes]], method: SetMethod) -> dict[type[Message], list[Any]]:
    """Every message that a party sent while aligning, by type."""
    sent: dict[type[Message], list[Any]] = {}

    def ends(names: Sequence[str]) -> tuple[list[Channel], list[Channel]]:
        near, far = in_memory(names)
        for channel in near if party == "a" else far:
            send = channel.send

            def note(message: Message, send: Callable[[Message], None] = send) -> None:
                sent.setdefault(type(message), []).append(message)
                send(message)

            channel.send = note  # type: ignore[method-assign]
        return near, far

    check(sets, align(sets, method=method, ends=ends))
    return sent


def rows_of(messages: Sequence[Any]) -> list[bytes]:
    return [row.tobytes() for message in messages for row in message.rows]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_sent_for_an_id_differs_between_runs(method: SetMethod) -> None:
    sets = {"a": named("1", "2"), "b": named("2", "3", "4")}
    runs = [rows_of(sent_by("b", sets, method)[BlindedIds]) for _ in range(2)]
    assert len({row for rows in runs for row in rows}) == 2 * 3


def test_a_keyed_order_is_one_of_the_set_and_not_of_the_file() -> None:
    ids = named(*map(str, range(40)))
    key = b"k" * 32
    expected = sorted(ids, key=lambda record_id: hmac.digest(key, record_id, "sha256"))
    for file_order in (ids, ids[::-1], ids[20:] + ids[:20]):
        assert [file_order[i] for i in keyed_order(file_order, np.arange(40), key)] == expected
    assert [ids[i] for i in keyed_order(ids, np.arange(40), b"l" * 32)] != expected


@pytest.mark.parametrize("method", METHODS)
def test_what_b_sends_ascends_whatever_the_order_of_its_file(method: SetMethod) -> None:
    ids = named(*map(str, range(40)))
    for file_order in (ids, ids[::-1]):
        sent = rows_of(sent_by("b", {"a": ids, "b": file_order}, method)[BlindedIds])
        assert sent == sorted(sent)


def test_a_sends_bits_about_bs_own_list_and_nothing_else_that_depends_on_who_is_common() -> None:
    sent = sent_by("a", {"a": named("1", "2"), "b": named("2", "3", "4")}, "psi-dh")
    assert {kind: len(messages) for kind, messages in sent.items()} == {OrderShare: 1, BlindedIds: 1, CommonIds: 1}
    assert np.unpackbits(sent[CommonIds][0].bits).sum() == 1


def test_no_id_is_on_the_wire() -> None:
    marked = named(*(f"identity-{i}" for i in range(5)))
    for method in METHODS:
        for party in "ab":
            sent = sent_by(party, {"a": marked, "b": marked[2:]}, method)
            frames = [bytes(f) for messages in sent.values() for message in messages for f in encode(message)]
            assert not [frame for frame in frames if b"identity" in frame]


def test_the_order_of_the_ranks_needs_the_shares_of_both_and_is_fresh() -> None:
    ids = named(*map(str, range(30)))
    same = bytes(32)
    runs = [align({"a": ids, "b": ids}, share=share)["b"].orders["a"].tolist() for share in (same, same)]
    assert runs[0] != runs[1]


def scripted(
    replies: Sequence[Message], ids: Sequence[bytes], role: str, size: int, method: SetMethod = "psi-dh"
) -> Exception:
    """What one side raises when the other one sends these messages, whatever it is sent."""
    near, far = memory_pair("a", "b")
    for message in replies:
        (far if role == "a" else near).send(message)
    terms = AlignmentTerms(run_id="r", method=method)
    calls = {
        "a": lambda: psi_initiate([near], ids, sizes=[size], terms=terms),
        "b": lambda: psi_respond(far, ids, size=size, terms=terms),
    }

    def hang_up() -> None:
        (far if role == "a" else near)._outgoing.close()

    hang_up()
    with pytest.raises(ProtocolError) as refusal:
        calls[role]()
    return refusal.value


def points(n: int) -> np.ndarray:
    with Cipher() as cipher:
        return cipher.blind(named(*map(str, range(n))))


SHARE = OrderShare(random=bytes(32))
GOOD = points(3)
VALUES = np.arange(48, dtype=np.uint8).reshape(3, 16)
WIDE = np.zeros((1, POINT_BYTES + 1), np.uint8)
NO_POINT = np.full((3, POINT_BYTES), 255, np.uint8)

TO_A: dict[str, tuple[list[Message], type[Exception], str]] = {
    "no share": ([Done()], UnexpectedMessage, "'done' where 'order share' was due"),
    "no answer": ([SHARE, Done()], UnexpectedMessage, "'done' where 'reblinded ids' was due"),
    "an answer of another length": ([SHARE, ReblindedIds(start=0, rows=GOOD)], UnexpectedMessage, "3 ids from 0 on"),
    "an answer elsewhere": ([SHARE, ReblindedIds(start=1, rows=GOOD[:2])], UnexpectedMessage, "2 ids from 1 on"),
    "answers of another width": (
        [SHARE, ReblindedIds(start=0, rows=WIDE.repeat(2, 0))],
        UnexpectedMessage,
        "34 bytes each",
    ),
    "too many ids": (
        [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=0, rows=VALUES[[0, 1, 2, 2]])],
        UnexpectedMessage,
        "b sent 4 ids from 0 on, 16 bytes each, where 3 from 0 on",
    ),
    "an empty chunk": (
        [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=0, rows=VALUES[:0])],
        UnexpectedMessage,
        "b sent 0 ids",
    ),
    "a gap": (
        [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=1, rows=VALUES[:1])],
        UnexpectedMessage,
        "b sent 1 ids from 1 on",
    ),
    "no point": (
        [SHARE, ReblindedIds(start=0, rows=NO_POINT[:2])],
        DecodeError,
        "b sent ids that cannot be compared: a blinded id is not a point of the curve",
    ),
    "an id twice": (
        [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=0, rows=VALUES[[0, 1, 1]])],
        UnexpectedMessage,
        "b sent an id more than once, or ids out of order",
    ),
    "values of another width": (
        [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=0, rows=GOOD)],
        UnexpectedMessage,
        "33 bytes each, where 3 from 0 on with 16",
    ),
}
TO_B: dict[str, tuple[list[Message], type[Exception], str]] = {
    "no share": ([Done()], UnexpectedMessage, "'done' where 'order share' was due"),
    "no ids": ([SHARE, Done()], UnexpectedMessage, "'done' where 'blinded ids' was due"),
    "no point": ([SHARE, BlindedIds(start=0, rows=NO_POINT)], DecodeError, "a sent ids that cannot be compared"),
    "ids of another width": ([SHARE, BlindedIds(start=0, rows=WIDE)], UnexpectedMessage, "34 bytes each"),
    "no bits": ([SHARE, BlindedIds(start=0, rows=GOOD), Done()], UnexpectedMessage, "where 'common ids' was due"),
    "too many bits": (
        [SHARE, BlindedIds(start=0, rows=GOOD), CommonIds(bits=np.ones(2, np.uint8))],
        UnexpectedMessage,
        "a sent 16 bits about 2 ids",
    ),
    "bits beyond the last": (
        [SHARE, BlindedIds(start=0, rows=GOOD), CommonIds(bits=np.full(1, 0b10100000, np.uint8))],
        UnexpectedMessage,
        "or bits beyond the last",
    ),
    "nobody": (
        [SHARE, BlindedIds(start=0, rows=GOOD), CommonIds(bits=np.zeros(1, np.uint8))],
        UnexpectedMessage,
        "a says that no id is common and goes on all the same",
    ),
    "silence": ([SHARE, BlindedIds(start=0, rows=GOOD)], PeerLost, "a closed the channel"),
}


@pytest.mark.parametrize(
    ("role", "replies", "error", "words"),
    [("a", *case) for case in TO_A.values()] + [("b", *case) for case in TO_B.values()],
    ids=[f"to a: {name}" for name in TO_A] + [f"to b: {name}" for name in TO_B],
)
def test_a_peer_that_breaks_the_protocol_is_refused_in_words(
    role: str, replies: list[Message], error: type[Exception], words: str
) -> None:
    found = scripted(replies, named("secret-1", "secret-2"), role, 3)
    assert type(found) is error
    assert words in str(found)
    assert "secret" not in str(found)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), role=st.sampled_from("ab"), n_good=st.integers(0, 3))
def test_random_bytes_and_shapes_end_in_a_protocol_error(data: st.DataObject, role: str, n_good: int) -> None:
    good = {
        "a": [SHARE, ReblindedIds(start=0, rows=GOOD[:2]), BlindedIds(start=0, rows=VALUES)],
        "b": [SHARE, BlindedIds(start=0, rows=GOOD), CommonIds(bits=np.zeros(1, np.uint8))],
    }[role][: min(n_good, 2)]
    width, n = data.draw(st.sampled_from([0, 1, 15, 16, 17, 33, 34])), data.draw(st.integers(0, 3))
    rows = np.frombuffer(data.draw(st.binary(min_size=n * width, max_size=n * width)), np.uint8).reshape(n, width)
    bad: Message = data.draw(
        st.sampled_from(
            [BlindedIds(start=0, rows=rows), ReblindedIds(start=0, rows=rows), OrderShare(random=bytes(32))]
        )
    )
    scripted([*good, bad], named("1", "2"), role, 3)


@pytest.mark.parametrize("size", [0, private_set_intersection.MAX_IDS + 1])
@pytest.mark.parametrize("role", ["a", "b"])
def test_a_set_that_is_empty_or_beyond_all_bounds_is_refused_before_anything_is_sent(role: str, size: int) -> None:
    assert f"announced {size} ids; 1 to {private_set_intersection.MAX_IDS}" in str(scripted([], named("1"), role, size))


def test_the_package_is_loaded_only_when_ids_are_blinded() -> None:
    code = "import protocols.alignment.private_set_intersection, sys; print('private_set_intersection' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


class Counted(Sequence[bytes]):
    """Ids that are made when they are asked for."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: Any) -> Any:
        return [b"%08d" % number for number in range(*at.indices(self.size))]


@pytest.mark.parametrize(("run_bits", "in_memory_bytes", "is_kept"), [(10, 1, False), (20, 1 << 30, True)])
def test_of_each_id_two_positions_are_in_memory_and_the_rest_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, run_bits: int, in_memory_bytes: int, is_kept: bool
) -> None:
    """Of both sides in one process. The twin keeps the runs in memory."""
    monkeypatch.setattr(sorted_rows, "RUN_BITS", run_bits)
    monkeypatch.setattr(private_files, "MEMORY_BYTES", in_memory_bytes)
    peaks = []
    for size in (5_000, 20_000):
        tracemalloc.start()
        try:
            found = align({"a": Counted(size), "b": Counted(size)}, method="hashed")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(found["a"].positions) == len(found["b"].positions) == size
    per_id = (peaks[1] - peaks[0]) / 15_000
    assert (per_id > 70) is is_kept, per_id


@pytest.mark.parametrize("method", ["psi-dh", "hashed"])
def test_ids_of_many_runs_and_flags_of_many_messages_give_the_same(
    monkeypatch: pytest.MonkeyPatch, method: SetMethod
) -> None:
    monkeypatch.setattr(sorted_rows, "RUN_BITS", 3)
    monkeypatch.setattr(private_set_intersection, "FLAGS_IDS", 16)
    sets = {"a": named(*map(str, range(90))), "b": named(*map(str, range(120, 29, -1))), "c": named("31", "5", "88")}
    check(sets, align(sets, method=method))
    assert [len(message.bits) for message in sent_by("a", sets, method)[CommonIds]] == [2, 2, 2, 2, 2, 2, 1]


def test_secrets_and_keys_do_not_show() -> None:
    assert SECRET.hex() not in repr(AlignmentTerms(run_id="r", secret=SECRET))
    assert "secret" not in repr(AlignmentTerms(run_id="r", secret=SECRET))
