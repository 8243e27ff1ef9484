"""Row table: rows and labels as recipes take them, and a digest that changes with any of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.horizontal.rows.stream import Arrival
from parties.config.horizontal import WorkerRun
from parties.config.reading import read_run, read_schema
from parties.errors import ConfigError, TableError
from parties.horizontal.row_table import OwnerRows
from parties.runs.row_stream import RowStream
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder
from tests.support.clinics import COLUMNS, Clinics


@pytest.fixture
def clinics(tmp_path: Path) -> Clinics:
    return Clinics(tmp_path)


def read(clinics: Clinics) -> OwnerRows:
    return read_of(read_run(clinics.write("w0"), WorkerRun))


def read_of(run: WorkerRun) -> OwnerRows:
    return OwnerRows.read(run, *read_schema(run.table_schema))


def test_rows_come_in_the_order_of_ids_and_columns_of_the_schema(clinics: Clinics) -> None:
    rows, frame = read(clinics), pd.read_csv(clinics.root / "w0" / "data.csv").sort_values("id")
    np.testing.assert_array_equal(rows.values, frame[list(rows.schema.names)])
    np.testing.assert_array_equal(rows.labels, frame["y"])
    assert set(rows.schema.names) == set(COLUMNS)


def test_the_digest_changes_with_any_value_label_or_row(clinics: Clinics) -> None:
    rows = read(clinics)
    values, labels = rows.values.copy(), rows.labels.copy()
    values[3, 1] += 1e-9
    labels[2] = 1 - labels[2]
    others = [
        replace(rows, values=values),
        replace(rows, labels=labels),
        replace(rows, values=rows.values[1:], labels=rows.labels[1:]),
    ]
    assert len({one.digest for one in [rows, *others]}) == 4
    assert replace(rows, values=np.asfortranarray(rows.values)).digest == rows.digest


@pytest.mark.parametrize(("labels", "is_taken"), [((0, 1), True), ((1, 1), True), ((0, 2), False), ((0, 0.5), False)])
def test_two_classes_are_zero_and_one(clinics: Clinics, labels: tuple[float, ...], is_taken: bool) -> None:
    rows = replace(read(clinics), labels=np.array(labels, float))
    rows.check_labels(0, Path("data.csv"))
    # Metrics of the finished run warned that these overflow.
    with pytest.raises(ConfigError, match=r"data\.csv: labels must be of magnitude 1e\+100 at most\. Nothing was sent"):
        replace(rows, labels=np.array([1e308, 0])).check_labels(0, Path("data.csv"))
    if is_taken:
        rows.check_labels(2, Path("data.csv"))
        return
    with pytest.raises(ConfigError, match=r"data\.csv: the labels of two classes must be 0 and 1\. Nothing was sent"):
        rows.check_labels(2, Path("data.csv"))


def test_several_classes_are_numbered(clinics: Clinics) -> None:
    rows = replace(read(clinics), labels=np.array([0.0, 4.0]))
    rows.check_labels(5, Path("data.csv"))
    with pytest.raises(ConfigError, match=r"the labels of 4 classes must be 0 to 3\. Nothing was sent"):
        rows.check_labels(4, Path("data.csv"))


def test_a_folder_is_no_table(clinics: Clinics) -> None:
    run = read_run(clinics.write("w0"), WorkerRun)
    with pytest.raises(ConfigError, match="in one table come from one file"):
        read_of(run.model_copy(update={"data": clinics.root}))


@pytest.mark.parametrize("key", ["weight", "group", "base_margin"])
def test_columns_that_no_recipe_reads_are_refused(clinics: Clinics, key: str) -> None:
    run = read_run(clinics.write("w0"), WorkerRun)
    run.table_schema.write_text(run.table_schema.read_text() + f"\n{key}: extra\n")
    with pytest.raises(ConfigError, match="no `weight`, `group` and `base_margin`"):
        read_of(run)


def go_on(clinics: Clinics, rows: OwnerRows, *arrivals: int) -> None:
    """Have the worker's next run go on from a finished one on these rows, which came in so many parts."""
    came = tuple(Arrival(n_rows, place) for place, n_rows in enumerate(arrivals))
    stream = RowStream(run="spring", terms="", noise=(1.0, 1.0), rows=rows.digest, arrivals=came)
    folder = RunFolder(clinics.root / "w0" / "runs" / "spring")
    make_folder(folder.path)
    folder.write_json("meta.json", {"role": "worker", "finished": "now", "stream": stream.facts})
    clinics.runs["w0"] |= {"run_id": "autumn", "continue_from": "runs/spring"}


def test_records_that_have_arrived_stand_behind_the_earlier_ones_whatever_their_ids(clinics: Clinics) -> None:
    """As texts, 1000 comes before 999, and new records were looked for among the earlier ones."""
    data, before = clinics.root / "w0" / "data.csv", read(clinics)
    frame = pd.read_csv(data)
    for n_before, prefix in ((80, "v"), (85, "u")):
        go_on(clinics, before, *range(80, n_before + 1, 5))
        more = frame.iloc[10:15].assign(id=[f"{prefix}-{i}" for i in (3, 1, 0, 4, 2)])
        pd.concat([pd.read_csv(data), more]).to_csv(data, index=False)
        after = read(clinics)
        np.testing.assert_array_equal(after.values[:n_before], before.values)
        np.testing.assert_array_equal(after.labels[:n_before], before.labels)
        # Among themselves, those that came together follow the order of their ids.
        np.testing.assert_array_equal(after.values[n_before:], frame.iloc[[12, 11, 14, 10, 13]][list(COLUMNS)])
        before = after
    first, *others = data.read_text().splitlines(keepends=True)
    data.write_text(first + "".join(others[1:] + others[:1]))
    go_on(clinics, before, 80, 85, 90)
    with pytest.raises(TableError, match="its first 90 rows are not those"):
        read(clinics)
    # By no arrivals, all of them would train again.
    go_on(clinics, before)
    with pytest.raises(TableError, match="its first 0 rows are not those"):
        read(clinics)


def test_records_without_a_label_are_no_rows_among_which_others_arrive(clinics: Clinics) -> None:
    data = clinics.root / "w0" / "data.csv"
    clinics.schema |= {"missing_label": "drop"}
    frame = pd.read_csv(data)
    frame["y"] = frame["y"].astype(float)
    frame.loc[[3, 40], "y"] = np.nan
    frame.to_csv(data, index=False)
    before = read(clinics)
    go_on(clinics, before, 78)
    pd.concat([frame, frame.iloc[:2].assign(id=["a", "b"])]).to_csv(data, index=False)
    after = read(clinics)
    assert len(after.labels) == 80
    np.testing.assert_array_equal(after.values[:78], before.values)


@pytest.mark.parametrize("n_after", [75, 85])
def test_rows_that_come_or_go_between_two_readings_end_in_a_sentence(clinics: Clinics, n_after: int) -> None:
    """The order of a longer file names rows that were not read."""
    data, rows = clinics.root / "w0" / "data.csv", read(clinics)
    stream = RowStream(run="spring", terms="", noise=(1.0, 1.0), rows="another", arrivals=(Arrival(70, 0),))
    frame = pd.read_csv(data)
    more = frame.iloc[:5].assign(id=[f"more-{i}" for i in range(5)])
    pd.concat([frame, more])[:n_after].to_csv(data, index=False)
    with pytest.raises(TableError, match="was changed while it was in use"):
        rows.behind(stream, data, ())


def test_cells_that_are_read_as_other_are_counted_for_the_owners_log(clinics: Clinics) -> None:
    clinics.with_categories()
    assert read(clinics).others == ()
    clinics.schema["columns"]["size"] = {"kind": "unordered", "categories": ["0", "1"], "other": True}
    n_other = int((pd.read_csv(clinics.root / "w0" / "data.csv")["size"] == 2).sum())
    rows = read(clinics)
    assert rows.n_other == {"size": n_other}
    (sentence,) = rows.others
    assert sentence.startswith(f"column size: {n_other} of 80 cells are read as `other`")
