"""Chunks of rows: they come in order, as many as are due, and no more of them are on the way than were asked for."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from protocols.alignment import id_chunks
from protocols.alignment.id_chunks import chunks, receive_on_demand, send_on_demand, sorted_digests
from protocols.errors import PeerLost, UnexpectedMessage
from protocols.messages.id_alignment import BlindedIds, MoreIds
from protocols.transport.memory import memory_pair
from tests.support.sorted import by_id

ROWS = np.arange(40, dtype=np.uint8).reshape(20, 2)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", 3)


def quiet(step: str, done: int, total: int) -> None:
    """Report nothing."""


def test_rows_come_in_the_given_order_and_wait_to_be_asked_for() -> None:
    near, far = memory_pair("a", "b")
    for _ in range(3):
        near.send(MoreIds())
    pieces = np.split(ROWS, [1, 1, 9, 11])
    send_on_demand(far, pieces, 20, quiet)
    found = list(receive_on_demand(near, 20, 2, quiet))
    assert [start for start, _ in found] == list(range(0, 20, 3))
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in found]), ROWS)
    near, far = memory_pair("a", "b")
    near.close()
    with pytest.raises(PeerLost):
        send_on_demand(far, pieces, 20, quiet)


@pytest.mark.parametrize(("start", "n_rows", "n_bytes"), [(1, 3, 2), (0, 2, 2), (0, 4, 2), (0, 3, 1), (3, 3, 2)])
def test_other_rows_than_are_due_are_refused(start: int, n_rows: int, n_bytes: int) -> None:
    near, far = memory_pair("a", "b")
    far.send(BlindedIds(start=start, rows=np.zeros((n_rows, n_bytes), np.uint8)))
    with pytest.raises(UnexpectedMessage, match=f"b sent {n_rows} ids from {start} on, {n_bytes} bytes each, where 3"):
        next(receive_on_demand(near, 20, 2, quiet))


def test_digests_are_those_of_every_id() -> None:
    ids = [b"%d" % number for number in range(10)]
    expected = [hashlib.sha256(record_id).digest()[:5] for record_id in ids]
    found = sorted_digests(ids, lambda record_id: hashlib.sha256(record_id).digest(), 5)
    assert [row.tobytes() for row in by_id(found)] == expected
    assert [start for start, _ in chunks(ids)] == [0, 3, 6, 9]
