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
    found.note(0, ANSWERS, STATUS)
    return found


def test_batches_are_read_as_they_were_noted_in_whatever_order_parties_are(kept: KeptAnswers, tmp_path: Path) -> None:
    """Of any size, and up to the first that is missing."""
    kept.note(3, {peer: bits[:2] for peer, bits in ANSWERS.items()}, STATUS[:2])
    kept.note(6, ANSWERS, STATUS)
    for n_bytes in (N_BYTES, dict(reversed(N_BYTES.items()))):
        batches = KeptAnswers(tmp_path / "held_out", "spring", n_bytes).batches()
        assert [status.tolist() for _, status in batches] == [STATUS.tolist(), STATUS[:2].tolist()]
        for n_rows, (answers, _) in zip((3, 2), batches, strict=True):
            assert {peer: bits.tolist() for peer, bits in answers.items()} == {
                peer: bits[:n_rows].tolist() for peer, bits in ANSWERS.items()
            }


def test_a_party_without_a_question_has_answers_of_no_bytes(tmp_path: Path) -> None:
    kept = KeptAnswers(tmp_path, "spring", {"shop": 0})
    kept.note(0, {"shop": np.zeros((3, 0), np.uint8)}, STATUS)
    ((answers, _),) = kept.batches()
    assert answers["shop"].shape == (3, 0)


def test_no_records_are_no_batch(tmp_path: Path) -> None:
    kept = KeptAnswers(tmp_path, "spring", {"shop": 1})
    kept.note(0, {"shop": np.zeros((0, 1), np.uint8)}, STATUS[:0])
    assert kept.batches() == []


def test_other_records_questions_or_parties_have_no_answers(kept: KeptAnswers, tmp_path: Path) -> None:
    folder = tmp_path / "held_out"
    assert KeptAnswers(folder, "summer", N_BYTES).batches() == []
    assert KeptAnswers(folder, "spring", {"shop": 4}).batches() == []
    later = KeptAnswers(folder, "autumn", N_BYTES)
    later.note(5, ANSWERS, STATUS)
    assert later.batches() == []


def test_a_damaged_file_has_no_answers(kept: KeptAnswers, tmp_path: Path) -> None:
    (path,) = (tmp_path / "held_out").iterdir()
    written = path.read_bytes()
    flipped = [written[:i] + bytes([written[i] ^ 1]) + written[i + 1 :] for i in range(len(written))]
    for damaged in (b"", b"PK", written[:-3], written + b"x", *flipped):
        path.write_bytes(damaged)
        assert kept.batches() == []
    path.write_bytes(written)
    assert len(kept.batches()) == 1
