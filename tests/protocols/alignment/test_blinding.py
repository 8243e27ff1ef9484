"""Blinding: keys commute, order is kept, what is no point is refused, and matches are one to one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.alignment.blinding import HASH_BYTES, POINT_BYTES, Cipher, hashed, match
from protocols.errors import DecodeError, UnexpectedMessage

IDS = [f"r{i}".encode() for i in range(7)]


@pytest.mark.parametrize("n_workers", [1, 3])
def test_ids_under_both_keys_are_the_same_whichever_came_first(n_workers: int) -> None:
    with Cipher(n_workers=n_workers) as a, Cipher(n_workers=1) as b:
        mine, theirs = a.blind(IDS), b.blind(IDS)
        assert mine.shape == (len(IDS), POINT_BYTES)
        np.testing.assert_array_equal(b.reblind(mine), a.reblind(theirs))
        assert not (mine == theirs).all(axis=1).any()


def test_what_is_no_point_is_refused_without_the_words_of_the_library() -> None:
    with Cipher(n_workers=1) as cipher:
        with pytest.raises(DecodeError, match=r"^a blinded id is not a point of the curve$"):
            cipher.reblind(np.zeros((2, POINT_BYTES), np.uint8))
        with pytest.raises(DecodeError, match=r"has 33 bytes; found 32"):
            cipher.reblind(np.zeros((2, 32), np.uint8))


def test_hashes_are_alike_only_for_one_id_secret_and_seed() -> None:
    found = [hashed(IDS, secret, seed) for secret, seed in ((b"s", b"1"), (b"t", b"1"), (b"s", b"2"))]
    assert found[0].shape == (len(IDS), HASH_BYTES)
    np.testing.assert_array_equal(found[0], hashed(IDS, b"s", b"1"))
    assert len({row.tobytes() for rows in found for row in rows}) == 3 * len(IDS)


@given(
    mine=st.lists(st.integers(0, 20), unique=True, min_size=1),
    theirs=st.lists(st.integers(0, 20), unique=True, min_size=1),
)
def test_every_own_id_is_found_where_it_stands_in_the_peers_list(mine: list[int], theirs: list[int]) -> None:
    def rows(numbers: list[int]) -> np.ndarray:
        return np.array([[n, 7, 0] for n in numbers], np.uint8)

    expected = [theirs.index(one) if one in theirs else -1 for one in mine]
    assert match(rows(mine), rows(theirs), "shop").tolist() == expected


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [([1, 2], [3, 3], "sent an id more than once"), ([3, 3], [3, 1], "made two ids of this")],
)
def test_a_peer_that_sends_an_id_twice_or_makes_two_ids_one_is_refused(
    mine: list[int], theirs: list[int], words: str
) -> None:
    with pytest.raises(UnexpectedMessage, match=f"shop {words}"):
        match(np.array([mine], np.uint8).T, np.array([theirs], np.uint8).T, "shop")
