"""Public randomness: who changes a byte, a name or the run gets other bits; differences of terms are bounded."""

from __future__ import annotations

import numpy as np
import pytest

from parties.errors import Disagreement
from parties.horizontal.public_randomness import commitment, drawing_digest, needed, public_bits, term_differences
from protocols.transport.codec import MAX_NAMED

NAMES = ("w0", "w1", "w2")
RANDOM = np.arange(96, dtype=np.uint8).reshape(3, 32)


def commitments(run_id: str = "spring", names: tuple[str, ...] = NAMES, random: np.ndarray = RANDOM) -> np.ndarray:
    parts = [commitment(run_id, name, row.tobytes()) for name, row in zip(names, random, strict=True)]
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32)


def words(run_id: str = "spring", names: tuple[str, ...] = NAMES, random: np.ndarray = RANDOM) -> list[int]:
    return public_bits(run_id, names, commitments(run_id, names, random), random).words(2).tolist()


def test_the_bits_depend_on_every_byte_name_and_run() -> None:
    other = RANDOM.copy()
    other[1, 5] ^= 1
    found = [words(), words("autumn"), words(names=("w0", "w1", "w3")), words(random=other)]
    assert words() == found[0]
    assert len({tuple(one) for one in found}) == 4


def test_bytes_that_nobody_was_committed_to_are_refused_by_name() -> None:
    other = RANDOM.copy()
    other[1, 5] ^= 1
    with pytest.raises(Disagreement, match=r"the random bytes of w1 are not those .* Nothing was released"):
        public_bits("spring", NAMES, commitments(), other)
    with pytest.raises(Disagreement, match="of w0"):
        public_bits("autumn", NAMES, commitments(), RANDOM)


@pytest.mark.parametrize("random", [RANDOM[:2], RANDOM[:, :31], RANDOM.reshape(-1)])
def test_another_shape_is_refused(random: np.ndarray) -> None:
    with pytest.raises(Disagreement, match="do not fit their commitments"):
        public_bits("spring", NAMES, commitments(), random)


def test_a_drawing_is_known_by_its_run_names_and_commitments() -> None:
    listed = commitments()
    found = [
        drawing_digest("spring", NAMES, listed),
        drawing_digest("autumn", NAMES, listed),
        drawing_digest("spring", ("w0", "w1", "w3"), listed),
        drawing_digest("spring", NAMES, listed[::-1]),
    ]
    assert len(set(found)) == 4
    assert drawing_digest("spring", NAMES, np.asfortranarray(listed)) == found[0]


@pytest.mark.parametrize("n_workers", range(2, 12))
def test_two_sums_of_enough_workers_share_one(n_workers: int) -> None:
    for threshold in range(2, n_workers + 1):
        assert needed(threshold, n_workers) >= threshold
        assert 2 * needed(threshold, n_workers) > n_workers


def test_terms_that_differ_are_named_with_both_values() -> None:
    assert term_differences({"a": 1, "b": 2}, {"a": 1, "b": 3}, "hub") == ["b: hub has 3, this party 2"]
    assert term_differences({"a": None}, {}, "hub") == ["a: hub has nothing, this party None"]
    assert term_differences({}, {"a": 1}, "hub") == ["a: hub has 1, this party nothing"]
    assert term_differences({"a": 1}, {"a": 1}, "hub") == []
    # A number of trees, and a share of all of them.
    assert term_differences({"batch_size": 1}, {"batch_size": 1.0}, "hub") == ["batch_size: hub has 1.0, this party 1"]


def test_a_peer_that_makes_up_many_long_terms_is_told_in_short() -> None:
    theirs = {f"k{i}\n" + "x" * 1000: "y" * 1000 for i in range(MAX_NAMED + 7)}
    found = term_differences({}, theirs, "hub")
    assert len(found) == MAX_NAMED + 1
    assert found[-1] == "7 more terms differ"
    assert max(map(len, found)) < 400
    assert not [sentence for sentence in found if "\n" in sentence]
