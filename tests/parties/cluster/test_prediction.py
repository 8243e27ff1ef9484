"""Prediction on partitions: bits and scores are those of the table in one piece, and none is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.routing import Router, SplitTests
from parties.cluster.prediction import read_bits, write_bits
from tests.support.inline_client import InlineClient
from tests.support.released_cells import mechanisms

CLIENT: Any = InlineClient()
ROUTER = Router(
    mechanisms()[:1], SplitTests((("spend", None), ("spend", None)), np.array([30.5, 60.5]), np.array([True, False]))
)


@pytest.mark.parametrize("n_tests", [0, 1, 8, 9, 64])
def test_bits_are_read_as_they_were_written(tmp_path: Path, n_tests: int) -> None:
    bits = np.random.default_rng(1).integers(0, 256, (5, -(-n_tests // 8))).astype(np.uint8)
    write_bits(tmp_path / "bits.parquet", bits)
    np.testing.assert_array_equal(read_bits(tmp_path / "bits.parquet", 5, n_tests), bits)


@pytest.mark.parametrize(("n_rows", "n_tests"), [(4, 9), (6, 9), (5, 8), (5, 17)])
def test_answers_to_something_else_are_refused(tmp_path: Path, n_rows: int, n_tests: int) -> None:
    write_bits(tmp_path / "bits.parquet", np.zeros((5, 2), np.uint8))
    with pytest.raises(
        DataError, match=rf"does not answer {n_rows} records with {n_tests} bits each\. No score was computed"
    ):
        read_bits(tmp_path / "bits.parquet", n_rows, n_tests)
