"""Base transfers: the chooser has one key of each pair, and whatever is no point is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.alignment.random_transfers import ELEMENT_BYTES, KEY_BYTES, Chooser, answer_points
from protocols.errors import DecodeError

N = 40
NO_POINTS = {"not of the group": b"\xff" * ELEMENT_BYTES, "of no field": b"\x01" + bytes(31)}


def test_the_chooser_learns_the_key_of_its_choice_and_no_other() -> None:
    chooser = Chooser(N, b"run")
    answer, keys = answer_points(chooser.points, b"run")
    found = chooser.keys(answer)
    assert [len(key) for key in keys] == [KEY_BYTES] * 2 * N
    assert found == [keys[2 * at + choice] for at, choice in enumerate(chooser.choices)]
    assert len(set(keys)) == 2 * N
    assert set(chooser.choices) == {0, 1}


def test_keys_are_of_one_conversation() -> None:
    chooser = Chooser(N, b"run")
    answer, keys = answer_points(chooser.points, b"another run")
    assert not set(chooser.keys(answer)) & set(keys)


def test_a_pair_that_is_sent_twice_has_other_keys_each_time() -> None:
    points = Chooser(1, b"run").points
    _, keys = answer_points(points * 2, b"run")
    assert len(set(keys)) == 4


@pytest.mark.parametrize("bad", NO_POINTS.values(), ids=NO_POINTS)
def test_what_is_no_point_is_refused_without_the_words_of_the_library(bad: bytes) -> None:
    chooser = Chooser(2, b"run")
    for at in range(4):
        with pytest.raises(DecodeError, match=r"^a transfer's point is not one of the group$"):
            answer_points([*chooser.points[:at], bad, *chooser.points[at + 1 :]], b"run")
    for answer in (bad, bytes(ELEMENT_BYTES)):
        with pytest.raises(DecodeError, match=r"^a transfer's point is not one of the group$"):
            chooser.keys(answer)


def test_points_that_add_up_to_zero_are_refused() -> None:
    import rbcl

    from protocols.alignment import random_transfers

    other = rbcl.crypto_core_ristretto255_random()
    zero = rbcl.crypto_core_ristretto255_sub(other, other)
    negative = rbcl.crypto_core_ristretto255_sub(zero, random_transfers._hashed(b"run", 0, 0, other))
    with pytest.raises(DecodeError, match="not one of the group"):
        answer_points([negative, other], b"run")


def test_no_copy_of_the_library_is_left_among_temporary_files(tmp_path: Path) -> None:
    lines = "from protocols.alignment.random_transfers import Chooser; Chooser(1, b'run')"
    subprocess.run([sys.executable, "-c", lines], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True, timeout=60)
    assert not list(tmp_path.iterdir())
