"""Ids sorted on disk: the same as texts compared one by one, however many pieces are merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.tables import record_ids, sorted_ids
from parties.tables.listed_ids import rows_of
from parties.tables.record_ids import each_id, ids_to_keep, rows_to_keep
from parties.tables.sorted_ids import EncodedIds, StoredIds

FILE = Path("data.csv")


@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize(("window", "step"), [(2, 1), (4, 2), (1 << 16, 1 << 10)])
@given(
    texts=st.lists(
        st.sampled_from(["", "a", "b", "ab", "\u00e9", "\uffee", "\U0001f600", "10", "9"]), min_size=1, max_size=30
    )
)
def test_ids_that_are_sorted_on_disk_are_those_of_texts_one_by_one(window: int, step: int, texts: list[str]) -> None:
    ids = pd.Index(texts, dtype=object)
    of_each = {text: [row for row, other in enumerate(texts) if other == text] for text in sorted(set(texts))}
    wanted = {
        "first": [rows[0] for rows in of_each.values()],
        "last": [rows[-1] for rows in of_each.values()],
        "drop": [rows[0] for rows in of_each.values() if len(rows) == 1],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_ids, "PIECE_IDS", 3)
        patch.setattr(sorted_ids, "WINDOW_ROWS", window)
        patch.setattr(sorted_ids, "STEP", step)
        for duplicates, rows in wanted.items():
            if not rows:
                continue
            pieces = (ids[start : start + 3] for start in range(0, len(ids), 3))
            found = ids_to_keep(pieces, duplicates, ["k"], FILE)  # type: ignore[arg-type]
            assert rows_to_keep(ids, duplicates, ["k"], FILE).tolist() == found.rows[:].tolist() == rows  # type: ignore[arg-type]
            kept = [texts[row] for row in rows]
            assert list(found.ids) == list(each_id(found.ids)) == list(found.ids[:]) == kept
            assert list(found.ids[1:3]) == kept[1:3]
            assert found.ids[np.array([len(rows) - 1, 0])].tolist() == [kept[-1], kept[0]]
            for listed in (texts[::2], [texts[0], "c"]):
                some = sorted_ids.sort_ids([pd.Index(listed, dtype=object)], "first").ids
                expected = [row for row, text in enumerate(kept) if text in listed]
                assert found.ids.rows_of(some).tolist() == rows_of(found.ids[:], some).tolist() == expected
            assert found.ids.get_indexer(pd.Index([kept[-1], "other"], dtype=object)).tolist() == [len(rows) - 1, -1]


@settings(deadline=None, max_examples=40)
@given(st.sets(st.integers(0, 9)), st.integers(-12, 12), st.integers(-12, 12), st.sampled_from([2, 99]))
def test_chosen_ids_are_on_disk_again_and_their_bytes_are_read_by_slices(
    chosen: set[int], start: int, end: int, window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_ids, "WINDOW_ROWS", window)
        patch.setattr(sorted_ids, "STEP", 1)
        texts = sorted(f"\u00e9{number}" for number in range(10))
        ids = sorted_ids.sort_ids([pd.Index(texts, dtype=object)], "refuse").ids
        rows, encoded = np.array(sorted(chosen), np.int64), EncodedIds(ids)
        taken = ids.taken(rows)
        assert isinstance(taken, StoredIds)
        assert list(taken) == [texts[row] for row in rows]
        assert list(ids.taken(np.array([3, 1]))) == [texts[3], texts[1]]
        assert encoded[start:end] == [text.encode() for text in texts][start:end]
        assert [encoded[at] for at in (0, 9, -1)] == [texts[at].encode() for at in (0, 9, -1)]
        with pytest.raises(IndexError):
            encoded[10]


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_many_sorted_pieces_are_merged(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_ids, "WINDOW_ROWS", 64)
    monkeypatch.setattr(sorted_ids, "STEP", 8)
    numbers = np.arange(3000)
    numbers = {"ascending": numbers, "descending": numbers[::-1]}.get(order, np.random.default_rng(3).permutation(3000))
    texts = [f"customer {number:05}" for number in numbers]
    found = sorted_ids.sort_ids((pd.Index(texts[i : i + 50], dtype=object) for i in range(0, 3000, 50)), "refuse")
    assert list(found.ids) == sorted(texts)
    np.testing.assert_array_equal(found.rows[:], np.argsort(numbers))


def test_rows_of_ids_are_found_with_few_of_them_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory all at once they take 100 bytes each, which is 10 GB of 100,000,000."""
    monkeypatch.setattr(sorted_ids, "WINDOW_ROWS", 4)
    monkeypatch.setattr(sorted_ids, "STEP", 1)
    texts, read, most = [f"{number:02d}" for number in range(60)], StoredIds.texts, [0]

    def noted(self: StoredIds, start: int, end: int) -> object:
        most.append(end - start)
        return read(self, start, end)

    ids, some = (sorted_ids.sort_ids([pd.Index(own, dtype=object)], "refuse").ids for own in (texts, texts[1::7]))
    monkeypatch.setattr(StoredIds, "texts", noted)
    assert rows_of(ids, some).tolist() == list(range(60))[1::7]
    assert rows_of(ids, ids).tolist() == list(range(60))
    assert max(most) <= 4
