"""Records in partitions: answered as from one table, and what is read for a request says nothing of unknown ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opboost.errors import DataError
from opboost.routing import Router, SplitTests
from opboost.schema import TableSchema
from parties.cluster import keyed_records as module
from parties.cluster.keyed_records import KeyedRecords, keyed_records
from parties.cluster.partitions import validate_partitions
from parties.errors import RunFolderError, TableError
from parties.tables.key_sets import NAME, NAME_BYTES
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from protocols.messages.prediction import Ask
from tests.support.bounded_files import bounded_files
from tests.support.inline_client import InlineClient
from tests.support.released_cells import IDS, mechanisms, table

CLIENT: Any = InlineClient()
ROUTER = Router(
    mechanisms(),
    SplitTests(
        (("spend", None), ("visits", None), ("spend", None)),
        np.array([30.5, 10.5, 60.5]),
        np.array([True, False, False]),
    ),
)
SCHEMA = TableSchema(columns=(), id="id", label=None)

# Below all, inside each partition, between two, above all; known and unknown ones.
ASKED = ("!", IDS[0], IDS[69], IDS[69] + "!", IDS[70], IDS[70] + "!", IDS[71], IDS[150] + "!", IDS[199], "~")


def kept(folder: Path, *, router: Router = ROUTER, data: pd.DataFrame | None = None) -> KeyedRecords:
    """The records of three partitions, one of which has a single one."""
    folder.mkdir(exist_ok=True)
    data, paths = table().assign(id=IDS) if data is None else data, []
    for start, end in ((0, 70), (70, 71), (71, 200)):
        paths.append(folder / f"{start:03}.parquet")
        data.iloc[start:end].to_parquet(paths[-1], index=False)
    found = validate_partitions(paths, SCHEMA, (), folder, client=CLIENT)
    return keyed_records(router, found, ("id",), folder, client=CLIENT)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> KeyedRecords:
    folder: Path = tmp_path_factory.mktemp("parts")
    return kept(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.sampled_from([*IDS[::9], *ASKED]), unique=True))
def test_answers_are_those_of_one_table(records: KeyedRecords, asked: list[str]) -> None:
    whole = AnswerableRecords.of(ROUTER, IDS, table())
    found, rows = records.about(asked), IDS.get_indexer([one for one in asked if one in IDS])
    assert list(found.ids) == list(IDS[rows])
    for (mine, column), (theirs, expected) in zip(found.columns, whole.columns, strict=True):
        assert mine == theirs
        np.testing.assert_array_equal(column.codes[~column.is_missing], expected.codes[rows][~column.is_missing])
        np.testing.assert_array_equal(column.is_missing, expected.is_missing[rows])
    ask = Ask(ids=tuple(asked), desensitized=False)
    answers, expected = (Answerer(ROUTER, source, may_route=True).answer(ask) for source in (records, whole))
    np.testing.assert_array_equal(answers.status, expected.status)
    np.testing.assert_array_equal(answers.bits, expected.bits)


@pytest.mark.parametrize("n_at_once", [1, 7, 64, 200])
def test_records_that_are_merged_some_at_a_time_are_those_that_are_merged_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: KeyedRecords, n_at_once: int
) -> None:
    monkeypatch.setattr(module, "MERGED_ROWS", n_at_once)
    monkeypatch.setattr(module, "token_bytes", lambda n: records.key)
    found = kept(tmp_path)
    np.testing.assert_array_equal(found.names, records.names)
    np.testing.assert_array_equal(found.codes, records.codes)
    assert {path.name for path in tmp_path.iterdir()} == {"000.parquet", "070.parquet", "071.parquet", "names", "codes"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "names", tmp_path / "codes")} == {0o600}


def test_without_tests_records_are_known_and_have_no_columns(tmp_path: Path) -> None:
    none = Router(mechanisms(), SplitTests((), np.empty(0), np.empty(0, np.bool_)))
    found = kept(tmp_path, router=none).about(ASKED)
    assert list(found.ids) == [one for one in ASKED if one in IDS]
    assert found.columns == ()


class Reads:
    """Codes of which the places that are read are counted."""

    def __init__(self, codes: Any) -> None:
        self.codes, self.places = codes, list[int]()

    def __getitem__(self, places: Any) -> Any:
        self.places.extend(places)
        return self.codes[places]


def test_no_request_reads_a_partition_and_what_it_reads_depends_on_how_many_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = kept(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    monkeypatch.setattr(module, "read_stored", None)
    monkeypatch.setattr(module, "ids_of", None)
    for asked in ([one] for one in ASKED):
        reads: Any = Reads(records.codes)
        found = KeyedRecords(records.key, records.mechanisms, records.names, reads).about(asked)
        assert len(reads.places) == len(found.ids) == sum(one in IDS for one in asked)


def test_the_place_of_an_id_says_nothing_of_where_it_stands_among_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over 200 keys a third of 200 places is left out by chance less often than once in 10^33."""
    places, told = _places(tmp_path, monkeypatch), [int(np.searchsorted(IDS.to_numpy(str), one)) for one in ASKED]
    assert _is_spread(places)
    # The twin: names that keep the order of the ids.
    monkeypatch.setattr(
        module, "keyed_names", lambda key, ids: np.array([one.encode()[:NAME_BYTES] for one in ids], NAME)
    )
    ordered = _places(tmp_path, monkeypatch)
    assert (ordered == told).all()
    assert not _is_spread(ordered)


def _places(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where the ids stand or would stand, under many keys."""
    names: Callable[[bytes, Any], Any] = module.keyed_names
    found = []
    for i in range(200):
        key = i.to_bytes(16, "big")
        own = np.sort(names(key, IDS))
        found.append(KeyedRecords(key, (), own, np.zeros((200, 1), np.int8)).places_of(ASKED)[0])
    return np.array(found)


def _is_spread(places: Any) -> bool:
    """Whether every id stands in each third of all places under some key."""
    return all(set(np.minimum(of_one * 3 // 200, 2)) == {0, 1, 2} for of_one in places.T)


def test_a_partition_that_changed_since_it_was_looked_through_is_not_answered_from(tmp_path: Path) -> None:
    """Other ids in its rows would be given the answers of those that were there; once it is read it may change."""
    path, data = tmp_path / "0.parquet", table().assign(id=IDS)
    data.iloc[:20].to_parquet(path, index=False)
    found = validate_partitions([path], SCHEMA, (), tmp_path, client=CLIENT)
    records = keyed_records(ROUTER, found, ("id",), tmp_path, client=CLIENT)
    before = _codes(records, IDS[:20])
    data.iloc[1:21].to_parquet(path, index=False)
    np.testing.assert_array_equal(_codes(records, IDS[:21]), before)
    with pytest.raises(TableError, match=r"0\.parquet was changed while it was in use\. Nothing more was sent"):
        keyed_records(ROUTER, found, ("id",), tmp_path / "again", client=CLIENT)


def _codes(records: KeyedRecords, ids: Sequence[str]) -> list[list[int]]:
    return [column.codes.tolist() for _, column in records.about(ids).columns]


def test_a_cell_that_does_not_fit_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    data = table().assign(id=IDS)
    data.loc[150, "spend"] = np.inf
    with pytest.raises(DataError):
        kept(tmp_path, data=data)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "codes").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written: File exists"):
        kept(tmp_path)


def test_records_whose_last_bytes_find_no_room_are_not_answered_from(tmp_path: Path) -> None:
    """The names of the last ones were missing, whose ids then were unknown."""
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, rows in zip(paths, (slice(100), slice(100, None)), strict=True):
        table().assign(id=IDS).iloc[rows].to_parquet(path, index=False)
    found = validate_partitions(paths, SCHEMA, (), tmp_path, client=CLIENT)
    with bounded_files((len(IDS) - 1) * NAME_BYTES), pytest.raises(RunFolderError, match="written: File too large"):
        keyed_records(ROUTER, found, ("id",), tmp_path, client=CLIENT)


def test_records_of_which_a_file_system_loses_bytes_are_not_answered_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "flush", lambda path: os.truncate(path, path.stat().st_size - NAME_BYTES))
    with pytest.raises(RunFolderError, match=r"names has 3184 bytes, where 3200 were written\. Nothing was sent"):
        kept(tmp_path)
