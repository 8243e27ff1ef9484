"""Files with records in any order become the partitions that one machine would make of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import DataError
from parties.cluster import arrangement
from parties.cluster.partitions import all_ids, partitions_of
from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun
from parties.errors import TableError
from parties.tables.data_files import stamp_of
from tests.support.inline_client import InlineClient
from tests.support.parquet_folders import in_a_folder
from tests.support.sites import Sites

CLIENT: Any = InlineClient()


def partitions(site: Any, **changes: Any) -> tuple[Any, pd.DataFrame]:
    """What a run finds in its data, and all rows of it."""
    site.run |= {"engine": "dask", "dask": {"partition_rows": 70}, **changes}
    run = read_run(site.write(), ActiveRun)
    with partitions_of(run, *read_schema(run.table_schema), needs_label=True, client=CLIENT) as found:
        assert all_ids(found, ("id",), client=CLIENT).index.tolist() == sorted(
            all_ids(found, ("id",), client=CLIENT).ids
        )
        return found, pd.concat([pd.read_parquet(path) for path in found.paths], ignore_index=True)


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 7), st.sampled_from(["refuse", "first", "last", "drop"]), st.booleans()
)
def test_any_order_division_repetition_and_list_give_the_rows_of_one_file(
    tmp_path_factory: Any, seed: int, n_parts: int, duplicates: str, is_listed: bool
) -> None:
    site = Sites(tmp_path_factory.mktemp("sites")).bank
    draw = np.random.default_rng(seed)
    if duplicates != "refuse":
        again = site.table.iloc[draw.integers(0, 400, 30)].assign(age=50.0)
        site.table = pd.concat([site.table, again])
    site.table = site.table.sample(frac=1, random_state=draw.integers(2**31))
    in_a_folder(site.table, site.path / "parts", n_parts)
    changes: dict[str, Any] = {"align": {"method": "prealigned", "duplicates": duplicates}}
    if is_listed:
        once = site.table["id"].drop_duplicates(keep=False)
        (site.path / "ids.txt").write_text("\n".join(once.sample(90, random_state=1)))
        changes["ids"] = "ids.txt"
    found, rows = partitions(site, data="parts", **changes)
    whole, expected = partitions(site, data="data.csv", **changes)
    pd.testing.assert_frame_equal(rows, expected, check_dtype=False)
    assert (found.rows, found.id_digest) == (whole.rows, whole.id_digest)
    assert not (site.path / "runs" / "partitions").exists()


def test_cells_of_any_format_are_read_as_of_one_file(sites: Sites) -> None:
    site = sites.bank
    site.table = site.table.assign(
        y=site.table["y"].map({0: "no", 1: "yes"}).where(site.table.index % 10 > 0),
        since="31.12.2" + (site.table.index % 20 + 100).astype(str).str[1:].str.zfill(3),
        town=np.where(site.table.index % 2, " North", "south"),
    )
    site.schema |= {
        "positive": True,
        "missing_label": "drop",
        "reader": {"strip": True, "ignore_case": True},
        "columns": {
            "age": {"lower": 18, "upper": 90},
            "since": {"kind": "date", "format": "%d.%m.%Y", "lower": "2000-01-01", "upper": "2030-01-01"},
            "town": {"kind": "ordered", "categories": ["south", "north"]},
        },
    }
    in_a_folder(site.table, site.path / "parts", 3)
    _, rows = partitions(site, data="parts")
    _, expected = partitions(site, data="data.csv")
    assert len(rows) == 360
    pd.testing.assert_frame_equal(rows[list(expected)], expected, check_dtype=False)
    parts = site.path / "parts"
    pd.read_parquet(parts / "0.parquet").assign(since="soon").to_parquet(parts / "0.parquet")
    with pytest.raises(DataError, match=r"is a date by the schema but \d+ cells are not dates written as '%d\.%m\.%Y'"):
        partitions(site, data="parts")


def test_a_column_may_be_empty_in_a_file_or_hold_truth_values_of_which_one_is_missing(sites: Sites) -> None:
    site = sites.bank
    number = np.arange(len(site.table))
    is_new = pd.Series(number < 100, dtype=object).mask(number < 50, None)
    site.table = site.table.assign(town=np.where(number < 100, "?", "north"), is_new=is_new)
    site.schema |= {
        "reader": {"na_values": ["?"]},
        "columns": {
            "age": {"lower": 18, "upper": 90},
            "town": {"kind": "unordered", "categories": ["south", "north"], "missing": "category"},
            "is_new": {"lower": 0, "upper": 1, "missing": "category"},
        },
    }
    in_a_folder(site.table, site.path / "parts", 4)
    site.table.to_parquet(site.path / "whole.parquet")
    _, rows = partitions(site, data="parts")
    _, expected = partitions(site, data="whole.parquet")
    assert rows[["town", "is_new"]].isna().sum().tolist() == [100, 50]
    pd.testing.assert_frame_equal(rows[list(expected)], expected, check_dtype=False)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_file_may_have_no_record_that_is_chosen(sites: Sites, is_listed: bool) -> None:
    site, changes = sites.bank, {"data": "parts"}
    number = np.arange(len(site.table))
    if is_listed:
        (site.path / "ids.txt").write_text("\n".join(site.table["id"][number >= 100]))
        changes["ids"] = "ids.txt"
    else:
        site.table = site.table.assign(y=site.table["y"].mask(number < 100))
        site.schema |= {"missing_label": "drop"}
    in_a_folder(site.table.iloc[::-1], site.path / "parts", 4)
    found, _ = partitions(site, **changes)
    assert found.n_rows == 300
    in_a_folder(site.table.assign(y=np.nan), site.path / "unlabelled", 2)
    site.schema |= {"missing_label": "drop"}
    with pytest.raises(TableError, match="label column 'y' is empty"):
        partitions(site, data="unlabelled")


def test_labels_of_three_words_are_refused_however_files_divide_them(sites: Sites) -> None:
    site = sites.bank
    words = np.repeat(["yes", "no", "unknown", "yes"], 100)
    site.table = site.table.assign(y=words)
    site.schema |= {"positive": True}
    in_a_folder(site.table, site.path / "parts", 4)
    with pytest.raises(TableError, match="holds 2 different values beside the `positive` ones"):
        partitions(site, data="parts")
    site.schema |= {"negative": "No"}
    with pytest.raises(TableError, match="label column 'y' is missing, infinite or not a number in 100 rows"):
        partitions(site, data="parts")
    site.schema |= {"negative": ["No", "unknown"]}
    _, rows = partitions(site, data="parts")
    assert rows["y"].sum() == 200


def test_repeated_ids_and_columns_of_two_types_are_refused(sites: Sites, tmp_path: Path) -> None:
    site = sites.bank
    folder = in_a_folder(pd.concat([site.table, site.table.iloc[:3]]), site.path / "parts", 2)
    with pytest.raises(TableError, match="repeats an id in 3 of 403 rows"):
        partitions(site, data="parts")
    in_a_folder(site.table.iloc[::-1], site.path / "others", 2)
    other = site.path / "others" / "1.parquet"
    pd.read_parquet(other).assign(age=lambda table: table["age"].astype(str)).to_parquet(other)
    with pytest.raises(TableError, match="columns of texts and of numbers"):
        partitions(site, data="others")
    assert yaml.safe_load((site.path / "run.yaml").read_text())["data"] == "others"
    assert folder.exists()


def write_plain(table: pd.DataFrame, path: Path) -> None:
    """Write a file that has as many bytes whatever the order of its rows."""
    table.to_parquet(path, index=False, compression=None, use_dictionary=False)


@pytest.mark.parametrize("keeps_stamp", [False, True])
@pytest.mark.parametrize("choice", ["ids", "duplicates", "missing_label", "order"])
def test_a_file_whose_records_come_in_another_order_since_they_were_chosen_is_refused(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, choice: str, keeps_stamp: bool
) -> None:
    """The places of the chosen records would be those of other people."""
    site, changes = sites.bank, {"data": "parts"}
    if choice == "ids":
        (site.path / "ids.txt").write_text("\n".join(site.table["id"][:90]))
        changes["ids"] = "ids.txt"
    elif choice == "duplicates":
        site.run["align"] = {"method": "prealigned", "duplicates": "last"}
    elif choice == "missing_label":
        site.schema |= {"missing_label": "drop"}
    folder = in_a_folder(site.table.iloc[:300], site.path / "parts", 3)
    write_plain(site.table.iloc[300:], folder / "3.parquet")
    before, choose = stamp_of(folder / "3.parquet"), arrangement.ids_to_keep

    def choose_and_rewrite(*given: Any) -> Any:
        chosen = choose(*given)
        write_plain(site.table.iloc[:299:-1], folder / "3.parquet")
        if keeps_stamp:
            os.utime(folder / "3.parquet", ns=(before[0][2],) * 2)
        assert (stamp_of(folder / "3.parquet") == before) is keeps_stamp
        return chosen

    monkeypatch.setattr(arrangement, "ids_to_keep", choose_and_rewrite)
    with pytest.raises(TableError, match=r"^3\.parquet was changed while it was in use\. Nothing was sent$"):
        partitions(site, **changes)
    assert not (site.path / "runs" / "partitions").exists()


def test_a_file_whose_cells_are_others_since_its_records_were_chosen_is_refused(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which records have a label was read before, and a column may be gone."""
    site, choose = sites.bank, arrangement.ids_to_keep
    folder = in_a_folder(site.table, site.path / "parts", 3)

    def choose_and_rewrite(*given: Any) -> Any:
        chosen = choose(*given)
        pd.read_parquet(folder / "1.parquet").drop(columns="age").to_parquet(folder / "1.parquet")
        return chosen

    monkeypatch.setattr(arrangement, "ids_to_keep", choose_and_rewrite)
    with pytest.raises(TableError, match=r"1\.parquet was changed while it was in use\. Nothing was sent"):
        partitions(site, data="parts")
