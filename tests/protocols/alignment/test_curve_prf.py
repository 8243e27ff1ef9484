"""The function by Diffie-Hellman: A ends with what B computes alone, and cheating peers are refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from protocols.alignment.blinding import POINT_BYTES, VALUE_BYTES, Cipher
from protocols.alignment.curve_prf import PreparedIds, _own_values, evaluate, query
from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.id_alignment import BlindedIds, ReblindedIds
from protocols.transport.memory import memory_pair
from tests.support.sorted import by_id

IDS = [b"r%d" % number for number in range(9)]


def quiet(step: str, done: int, total: int) -> None:
    """Report nothing."""


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_ends_with_what_b_computes_alone(is_prepared: bool) -> None:
    near, far = memory_pair("a", "b")
    found: list[np.ndarray] = []
    prepared = PreparedIds.of(IDS[4:], quiet) if is_prepared else None

    def answer() -> None:
        found.append(by_id(evaluate(far, IDS[4:], size=6, prepared=prepared, progress=quiet)))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    mine = by_id(query([near], IDS[:6], quiet)[0])
    thread.join(60)
    assert mine.shape == (6, VALUE_BYTES)
    np.testing.assert_array_equal(mine[4:], found[0][:2])
    assert len({row.tobytes() for row in [*mine, *found[0]]}) == len(IDS)


def common_in_the_later_half(n_ids: int) -> set[int]:
    """Positions of A's ids in common with a B that knows all and answers the first half of points wrongly."""
    ids = [b"r%04d" % number for number in range(n_ids)]
    near, far = memory_pair("a", "b")
    found: list[np.ndarray] = []

    def answer() -> None:
        with Cipher(n_workers=1) as cipher:
            asked = far.receive()
            assert isinstance(asked, BlindedIds)
            points = cipher.reblind(asked.rows)
            points[: n_ids // 2] = points[n_ids // 2]
            far.send(ReblindedIds(start=0, rows=points))
            found.append(by_id(_own_values(cipher, ids, quiet)))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    mine = by_id(query([near], ids, quiet)[0])
    thread.join(60)
    return set(np.flatnonzero((mine == found[0]).all(axis=1)).tolist())


def test_the_order_of_a_s_ids_does_not_show_in_what_a_wrong_answer_makes_uncommon() -> None:
    """Else B counts A's other ids between those that both know. By chance it is that half once in 10^11 times."""
    found = common_in_the_later_half(40)
    assert len(found) == 20
    assert found != set(range(20, 40))
    assert found != common_in_the_later_half(40)


def test_the_function_is_that_of_its_key() -> None:
    with Cipher(n_workers=1) as one, Cipher(n_workers=1) as other:
        first, again, third = (by_id(_own_values(cipher, IDS, quiet)) for cipher in (one, one, other))
    np.testing.assert_array_equal(first, again)
    assert (first != third).any(axis=1).all()


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (np.full((2, POINT_BYTES), 255, np.uint8), DecodeError, "ids that cannot be compared: .* not a point"),
        (np.zeros((3, POINT_BYTES), np.uint8), UnexpectedMessage, "3 ids from 0 on"),
        (np.zeros((2, POINT_BYTES - 1), np.uint8), UnexpectedMessage, "32 bytes each, where 2 from 0 on with 33"),
    ],
)
def test_what_is_no_point_or_not_due_is_refused_by_both(rows: np.ndarray, kind: type[Exception], words: str) -> None:
    near, far = memory_pair("a", "b")
    near.send(BlindedIds(start=0, rows=rows))
    with pytest.raises(kind, match=f"a sent .*{words}"):
        evaluate(far, IDS, size=2, prepared=None, progress=quiet)
    near, far = memory_pair("a", "b")
    far.send(ReblindedIds(start=0, rows=rows))
    with pytest.raises(kind, match=f"b sent .*{words}"):
        query([near], IDS[:2], quiet)


def test_prepared_ids_ascend_in_their_order_and_do_not_show_the_key() -> None:
    prepared = PreparedIds.of(IDS, quiet)
    rows = [row.tobytes() for row in prepared.values[prepared.order]]
    assert rows == sorted(rows)
    assert prepared.key.hex() not in repr(prepared)
    assert "key" not in repr(prepared)
    assert PreparedIds.of(IDS, quiet).key != prepared.key
