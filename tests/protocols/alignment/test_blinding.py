"""Blinding: keys commute, order is kept, what is no point is refused, and matches are one to one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.alignment.blinding import POINT_BYTES, VALUE_BYTES, Cipher, MatchedIds, hashed, match_ascending
from protocols.alignment.sorted_rows import ExternalSort
from protocols.errors import DecodeError, UnexpectedMessage
from tests.support.sorted import by_id

IDS = [f"r{i}".encode() for i in range(7)]


@pytest.mark.parametrize("n_workers", [1, 3])
def test_ids_under_both_keys_are_the_same_whichever_came_first(n_workers: int) -> None:
    with Cipher(n_workers=n_workers) as a, Cipher(n_workers=1) as b:
        mine, theirs = a.blind(IDS), b.blind(IDS)
        assert mine.shape == (len(IDS), POINT_BYTES)
        np.testing.assert_array_equal(b.reblind(mine), a.reblind(theirs))
        assert not (mine == theirs).all(axis=1).any()


def test_a_key_takes_its_own_blinding_off() -> None:
    with Cipher(n_workers=2) as a, Cipher(n_workers=1) as b:
        np.testing.assert_array_equal(a.unblind(b.reblind(a.blind(IDS))), b.blind(IDS))


def test_what_is_no_point_is_refused_without_the_words_of_the_library() -> None:
    with Cipher(n_workers=1) as cipher:
        with pytest.raises(DecodeError, match=r"^a blinded id is not a point of the curve$"):
            cipher.reblind(np.zeros((2, POINT_BYTES), np.uint8))
        with pytest.raises(DecodeError, match=r"has 33 bytes; found 32"):
            cipher.reblind(np.zeros((2, 32), np.uint8))


def test_hashes_are_alike_only_for_one_id_secret_and_seed() -> None:
    found = [by_id(hashed(IDS, secret, seed)) for secret, seed in ((b"s", b"1"), (b"t", b"1"), (b"s", b"2"))]
    assert found[0].shape == (len(IDS), VALUE_BYTES)
    np.testing.assert_array_equal(found[0], by_id(hashed(IDS, b"s", b"1")))
    assert len({row.tobytes() for rows in found for row in rows}) == 3 * len(IDS)


@given(
    mine=st.lists(st.integers(0, 20), unique=True, min_size=1),
    theirs=st.lists(st.integers(0, 20), unique=True, min_size=1),
    n_each=st.integers(1, 5),
)
def test_every_own_id_is_found_where_it_stands_in_the_peers_list(
    mine: list[int], theirs: list[int], n_each: int
) -> None:
    def rows(numbers: list[int]) -> np.ndarray:
        return np.array([[n, 7, 0] for n in numbers], np.uint8)

    theirs = sorted(theirs)
    own = ExternalSort(len(mine), 3)
    own.put(np.arange(len(mine)), rows(mine))
    chunks = [(start, rows(theirs[start : start + n_each])) for start in range(0, len(theirs), n_each)]
    matched = MatchedIds(match_ascending(own, chunks, "shop"))
    found = {one: other for pair in matched for one, other in zip(*map(np.ndarray.tolist, pair), strict=True)}
    assert found == {at: theirs.index(one) for at, one in enumerate(mine) if one in theirs}
    is_common = np.array([one % 2 == 0 for one in mine])
    flags = list(matched.flags(is_common, len(theirs), n_each))
    assert [len(one) for one in flags] == [len(rows) for _, rows in chunks]
    assert np.concatenate(flags).tolist() == [one % 2 == 0 and one in mine for one in theirs]


@pytest.mark.parametrize("theirs", [[[3, 3]], [[4, 3]], [[3], [3]], [[3, 5], [4, 6]]])
def test_a_peer_whose_values_do_not_ascend_is_refused(theirs: list[list[int]]) -> None:
    chunks = [(0, np.array([chunk], np.uint8).T) for chunk in theirs]
    own = ExternalSort(2, 2)
    own.put(np.arange(2), np.array([[1, 0], [2, 0]], np.uint8))
    with pytest.raises(UnexpectedMessage, match="shop sent an id more than once, or ids out of order"):
        list(match_ascending(own, chunks, "shop"))
