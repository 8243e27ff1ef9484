"""Records in partitions: those that are asked for are answered as from one table, others are not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opboost.routing import Router, SplitTests
from opboost.schema import TableSchema
from parties.cluster.partitions import validate_partitions
from parties.cluster.prediction import answer_partitions
from parties.cluster.prediction_batches import PartitionedRecords
from parties.errors import TableError
from parties.vertical.prediction_server import AnswerableRecords
from tests.support.inline_client import InlineClient
from tests.support.released_cells import IDS, mechanisms, table

CLIENT: Any = InlineClient()
ROUTER = Router(
    mechanisms()[:1], SplitTests((("spend", None), ("spend", None)), np.array([30.5, 60.5]), np.array([True, False]))
)
SCHEMA = TableSchema(columns=(), id="id", label=None)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> PartitionedRecords:
    folder: Path = tmp_path_factory.mktemp("parts")
    data, paths = table().assign(id=IDS), []
    for start, end in ((0, 70), (70, 71), (71, 200)):
        paths.append(folder / f"{start:03}.parquet")
        data.iloc[start:end].to_parquet(paths[-1], index=False)
    found = validate_partitions(paths, SCHEMA, (), folder, client=CLIENT)
    bits = answer_partitions(ROUTER, paths, folder / "bits", client=CLIENT)
    return PartitionedRecords(ROUTER, found, ("id",), tuple(bits))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.sampled_from([*IDS[::9], IDS[69], IDS[70], "a", "k0705", "z"]), unique=True))
def test_answers_are_those_of_one_table(records: PartitionedRecords, asked: list[str]) -> None:
    known = [one for one in asked if one in IDS]
    rows = IDS.get_indexer(known)
    whole = AnswerableRecords.of(ROUTER, IDS[np.sort(rows)], table().iloc[np.sort(rows)])
    found = records.about(asked, desensitized=True)
    assert sorted(found.ids) == sorted(known)
    for (mechanism, column), (_, expected) in zip(found.columns, whole.columns, strict=False):
        assert mechanism.schema.name == "spend"
        np.testing.assert_array_equal(column.codes, expected.codes)
    routed = records.about(asked, desensitized=False)
    assert sorted(routed.ids) == sorted(known)
    assert routed.bits is not None
    assert len(routed.bits) == len(known)


@pytest.mark.parametrize("desensitized", [False, True])
def test_a_partition_that_changed_since_it_was_looked_through_is_not_answered_from(
    tmp_path: Path, desensitized: bool
) -> None:
    """Other ids in its rows would be given the answers of those that were there."""
    path, data = tmp_path / "0.parquet", table().assign(id=IDS)
    data.iloc[:20].to_parquet(path, index=False)
    found = validate_partitions([path], SCHEMA, (), tmp_path, client=CLIENT)
    bits = answer_partitions(ROUTER, [path], tmp_path / "bits", client=CLIENT)
    held = PartitionedRecords(ROUTER, found, ("id",), tuple(bits))
    assert len(held.about(IDS[:2], desensitized=desensitized).ids) == 2
    data.iloc[1:21].to_parquet(path, index=False)
    with pytest.raises(TableError, match=r"0\.parquet was changed while it was in use\. Nothing more was sent"):
        held.about(IDS[:2], desensitized=desensitized)
