"""Comparison by several keys: a record is common by the first that all know it by, and nothing else is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.alignment import several_keys
from protocols.alignment.private_set_intersection import AlignmentTerms, psi_initiate
from protocols.alignment.several_keys import CommonByKeys, initiate_by_keys, respond_by_keys
from protocols.errors import NothingInCommon, ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import BlindedIds, CommonIds, IdConfirmation
from protocols.transport.channel import Channel
from protocols.transport.memory import memory_pair

Keys = Sequence[Sequence[bytes]]

# Without a curve, hundreds of comparisons take a second.
HASHED = AlignmentTerms(run_id="r", method="hashed", secret=bytes(32))


def compare(active: Keys, *passive: Keys, terms: AlignmentTerms = HASHED) -> tuple[list[Any], list[list[int]]]:
    """What every party finds, and how many values each passive party sent in every comparison."""
    names = [f"b{i}" for i in range(len(passive))]
    pairs = [memory_pair("a", name) for name in names]
    found: dict[str, Any] = {}
    sent: list[list[int]] = [[] for _ in passive]

    def run(name: str, call: Callable[[], CommonByKeys]) -> None:
        try:
            found[name] = call()
        except Exception as error:
            found[name] = error
            for near, _ in pairs:
                near.close()

    sizes = [len(keys[0]) for keys in passive]
    calls = {"a": lambda: initiate_by_keys([near for near, _ in pairs], active, sizes=sizes, terms=terms)}
    for i, (name, keys) in enumerate(zip(names, passive, strict=True)):
        far, send = pairs[i][1], pairs[i][1].send

        def counted(message: Any, *, i: int = i, send: Any = send) -> None:
            if isinstance(message, BlindedIds):
                sent[i].append(len(message.rows))
            send(message)

        far.send = counted  # type: ignore[method-assign]
        calls[name] = lambda far=far, keys=keys: respond_by_keys(far, keys, size=len(active[0]), terms=terms)
    threads = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [found[name] for name in calls], sent


def in_turns(parties: Sequence[Keys]) -> list[set[bytes]]:
    """Which values are common by each key, slowly."""
    left = [set(range(len(keys[0]))) for keys in parties]
    common = []
    for number in range(len(parties[0])):
        values = [
            {keys[number][row]: row for row in rows if keys[number][row]}
            for keys, rows in zip(parties, left, strict=True)
        ]
        common.append(set.intersection(*map(set, values)))
        left = [rows - {places[value] for value in common[-1]} for rows, places in zip(left, values, strict=True)]
    return common


@st.composite
def party(draw: st.DrawFn) -> Keys:
    n = draw(st.integers(1, 6))
    keys = []
    for number in (1, 2, 3):
        letters = draw(st.permutations("abcdefgh"))[:n]
        keys.append([f"{number} {letter}".encode() if draw(st.booleans()) else b"" for letter in letters])
    return keys


@settings(max_examples=60, deadline=None)
@given(st.lists(party(), min_size=2, max_size=3))
def test_everybody_finds_what_the_keys_have_in_common_in_turn(parties: list[Keys]) -> None:
    wanted = in_turns(parties)
    found, sent = compare(*parties)
    if not any(wanted):
        assert isinstance(found[0], NothingInCommon)
        return
    names = sorted(b for values in wanted for b in values)
    for keys, one in zip(parties, found, strict=True):
        assert list(one.names) == names
        assert one.counts == tuple(map(len, wanted))
        for name, row in zip(one.names, one.found.positions.tolist(), strict=True):
            assert name == keys[int(name[:1]) - 1][row]
        for order in one.found.orders.values():
            assert sorted(order.tolist()) == list(range(len(names)))
    # Ranks travel in the same order at both ends of each channel.
    for i, one in enumerate(found[1:]):
        travelled = [one.names[row] for row in one.found.orders["a"].tolist()]
        assert travelled == [found[0].names[row] for row in found[0].found.orders[f"b{i}"].tolist()]
    # How many have a key does not show: as many values are sent as records are left.
    for keys, numbers in zip(parties[1:], sent, strict=True):
        done = [0, *(sum(map(len, wanted[:i])) for i in (1, 2))]
        assert numbers == [max(1, len(keys[0]) - n) for n in done]


@pytest.mark.parametrize("method", ["psi", "psi-dh"])
def test_both_intersections_take_keys(method: Any) -> None:
    active = [[b"1 a", b"1 b", b""], [b"2 x", b"2 y", b"2 z"]]
    passive = [[b"1 b", b"", b"1 c"], [b"2 q", b"2 z", b"2 x"]]
    found, _ = compare(active, passive, terms=AlignmentTerms(run_id="r", method=method))
    assert [one.names for one in found] == [(b"1 b", b"2 x", b"2 z")] * 2
    assert [one.found.positions.tolist() for one in found] == [[1, 0, 2], [0, 2, 1]]
    assert [one.counts for one in found] == [(1, 2)] * 2


def test_without_filling_up_the_number_of_records_with_a_key_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [[b"1 a", b"1 b"], [b"2 x", b""]]
    other = [[b"1 a", b"1 c"], [b"2 x", b"2 y"]]
    with monkeypatch.context() as broken:
        broken.setattr("protocols.alignment.several_keys._nobody", lambda: b"2 nobody")
        # A fixed value in the place of random bytes would be common to two parties.
        found, _ = compare([[b"1 a", b"1 b"], [b"", b""]], [[b"1 a", b"1 c"], [b"", b""]])
        assert found[0].counts == (1, 1)
    found, sent = compare(other, keys)
    assert found[0].counts == (1, 0)
    assert sent == [[2, 1]]


def against(hostile: Callable[[Channel], Any], keys: Keys, *, size: int) -> CommonByKeys:
    """What a passive party makes of an active one that announced so many records and does not keep to the protocol."""
    near, far = memory_pair("a", "b")

    def deviate() -> None:
        with suppress(ProtocolError):
            hostile(near)

    thread = threading.Thread(target=deviate, daemon=True)
    thread.start()
    try:
        return respond_by_keys(far, keys, size=size, terms=HASHED)
    finally:
        far.close()
        thread.join(20)


@pytest.mark.parametrize("second", [b"1 c", b""], ids=["known", "without the key"])
def test_nobody_is_singled_out_for_a_further_key_by_calling_the_others_common(second: bytes) -> None:
    def flag_all_but_one(near: Channel) -> None:
        send = near.send
        near.send = lambda one: send(  # type: ignore[method-assign]
            CommonIds(bits=np.array([0b1000_0000], np.uint8)) if isinstance(one, CommonIds) else one
        )
        initiate_by_keys([near], [[b"1 a", b"1 b"], [b"2 a", b"2 b"]], sizes=[2], terms=HASHED)

    # Which of the two is flagged follows from random numbers; neither flag can be proved for both.
    with pytest.raises(UnexpectedMessage, match="whose keys it did not prove to hold"):
        against(flag_all_but_one, [[b"1 d", second], [b"2 x", b"2 y"]], size=2)


def test_all_keys_together_make_no_more_records_common_than_were_announced() -> None:
    def guess_again(near: Channel) -> None:
        for number, guess in ((1, b"1 a"), (2, b"2 b")):
            terms = replace(HASHED, run_id=f"r key {number}")
            common = psi_initiate([near], [guess], sizes=[3 - number], terms=terms, may_be_none=True)
            near.send(IdConfirmation(tag=several_keys._proof([guess], common, terms)))

    with pytest.raises(UnexpectedMessage, match="2 records are common by their keys, and 1 was announced"):
        against(guess_again, [[b"1 a", b"1 c"], [b"2 z", b"2 b"]], size=1)
