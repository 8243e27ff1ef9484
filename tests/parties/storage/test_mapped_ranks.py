"""Memory-mapped ranks: any slice is that of the array, and only its rows are mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parties.storage.mapped_ranks import MappedRanks

BOUNDS = st.one_of(st.none(), st.integers(-12, 12))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(kind=st.sampled_from(["<u1", "<u2", "<u4"]), start=BOUNDS, stop=BOUNDS)
def test_slices_are_those_of_the_array(tmp_path: Path, kind: str, start: int | None, stop: int | None) -> None:
    ranks = np.arange(200, 210).astype(kind)
    (tmp_path / kind[1:]).write_bytes(ranks.tobytes())
    mapped = MappedRanks(tmp_path / kind[1:], ranks.dtype, len(ranks))
    assert len(mapped) == 10
    found = mapped[start:stop]
    assert found.dtype == ranks.dtype
    np.testing.assert_array_equal(found, ranks[start:stop])


def test_the_file_is_not_written_through_a_slice_and_nothing_is_read_for_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "ranks"
    assert len(MappedRanks(path, np.dtype("<u2"), 10)[4:4]) == 0
    path.write_bytes(bytes(20))
    with pytest.raises(ValueError, match="read-only"):
        MappedRanks(path, np.dtype("<u2"), 10)[:3][0] = 1


def test_a_file_that_is_too_short_is_an_error_rather_than_zeros(tmp_path: Path) -> None:
    (tmp_path / "ranks").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="greater than file size"):
        MappedRanks(tmp_path / "ranks", np.dtype("<u2"), 10)[5:]
