"""Public randomness: who changes a byte, a name or the run gets other bits."""

from __future__ import annotations

import numpy as np
import pytest

from parties.errors import Disagreement
from parties.horizontal.public_randomness import commitment, drawing_digest, public_bits

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
