"""Answers about held-out records that a journal keeps: read as they were noted, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.runs.kept_answers import KeptAnswers

ANSWERS = {"shop": np.arange(6, dtype=np.uint8).reshape(3, 2), "post": np.array([[7], [8], [9]], np.uint8)}
STATUS = np.array([1, 0, 2], np.uint8)
N_BYTES = {"shop": 2, "post": 1}


@pytest.fixture
def kept(tmp_path: Path) -> KeptAnswers:
    found = KeptAnswers(tmp_path / "held_out", "spring", N_BYTES)
    found.note(5, ANSWERS, STATUS)
    return found


def test_batches_are_read_as_they_were_noted_in_whatever_order_parties_are(kept: KeptAnswers, tmp_path: Path) -> None:
    for n_bytes in (N_BYTES, dict(reversed(N_BYTES.items()))):
        batch = KeptAnswers(tmp_path / "held_out", "spring", n_bytes).batch(5, 3)
        assert batch is not None
        assert batch[1].tolist() == STATUS.tolist()
        assert {peer: bits.tolist() for peer, bits in batch[0].items()} == {
            peer: bits.tolist() for peer, bits in ANSWERS.items()
        }


def test_a_party_without_a_question_has_answers_of_no_bytes(tmp_path: Path) -> None:
    kept = KeptAnswers(tmp_path, "spring", {"shop": 0})
    kept.note(0, {"shop": np.zeros((3, 0), np.uint8)}, STATUS)
    batch = kept.batch(0, 3)
    assert batch is not None
    assert batch[0]["shop"].shape == (3, 0)


def test_other_records_questions_or_parties_have_no_answers(kept: KeptAnswers, tmp_path: Path) -> None:
    folder = tmp_path / "held_out"
    assert kept.batch(0, 3) is None
    assert kept.batch(5, 2) is None
    assert KeptAnswers(folder, "summer", N_BYTES).batch(5, 3) is None
    assert KeptAnswers(folder, "spring", {"shop": 2}).batch(5, 3) is None


def test_a_damaged_file_has_no_answers(kept: KeptAnswers, tmp_path: Path) -> None:
    (path,) = (tmp_path / "held_out").iterdir()
    written = path.read_bytes()
    flipped = [written[:i] + bytes([written[i] ^ 1]) + written[i + 1 :] for i in range(len(written))]
    for damaged in (b"", b"PK", written[:-3], written + b"x", *flipped):
        path.write_bytes(damaged)
        assert kept.batch(5, 3) is None
    path.write_bytes(written)
    assert kept.batch(5, 3) is not None
