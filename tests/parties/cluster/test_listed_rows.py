"""Which records are listed does not decide whether a table is refused: the other side may have chosen them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.errors import DataError
from parties.cluster import active_preparation, passive_preparation
from parties.cluster.active_preparation import partitioned_active
from parties.cluster.passive_preparation import partitioned_passive
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import TableError
from tests.support.inline_client import inline_cluster
from tests.support.parquet_folders import in_a_folder
from tests.support.sites import Sites

FORMS = ["data.csv", "parts"]

# By party: what the cells of a record may not be.
UNFIT: list[tuple[str, str, Any, str]] = [
    ("bank", "y", 7, "labels 0 and 1; found others"),
    ("bank", "age", 1e39, "cells of column 'age' of magnitude"),
    ("bank", "age", np.nan, "column 'age' has 1 missing cell"),
    ("shop", "spend", 101.0, "column 'spend' has 1 value outside its public bounds"),
    ("shop", "spend", np.nan, "column 'spend' has 1 missing cell"),
]


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (active_preparation, passive_preparation):
        monkeypatch.setattr(module, "cluster", inline_cluster)


def prepared(site: Any, listed: pd.Series, form: str, **cells: Any) -> int:
    """How many records a run is about that lists these, of which all others have such cells in one record."""
    for name, value in cells.items():
        site.table[name] = site.table[name].astype(float)
        site.table.loc[(~listed).idxmax(), name] = value
    site.schema["columns"] |= (
        {"spend": {"lower": 0, "upper": 100, "outside": "refuse"}} if "spend" in site.table else {}
    )
    site.run |= {"engine": "dask", "dask": {"partition_rows": 150}, "data": form, "ids": "ids.txt"}
    (site.path / "ids.txt").write_text("\n".join(site.table["id"][listed]))
    if form == "parts":
        in_a_folder(site.table.sample(frac=1, random_state=1), site.path / form, 3)
    path, is_bank = site.write(), site.party == "bank"
    opened = partitioned_active(read_run(path, ActiveRun), path) if is_bank else None
    with opened or partitioned_passive(read_run(path, PassiveRun), path) as found:
        return found.partitions.n_rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_column_may_hold_one_value_among_listed_records_and_not_among_all(
    sites: Sites, party: str, form: str
) -> None:
    site = getattr(sites, party)
    listed = site.table["id"] < "k0040"
    for name in site.table.columns.drop("id"):
        site.table[name] = site.table[name].where(~listed, 20)
    if party == "bank":
        site.table["y"] = site.table["y"].clip(upper=1)
    assert prepared(site, listed, form) == 40
    site.table = site.table.assign(**{str(site.table.columns[1]): 20.0})
    site.run["run_id"] = "autumn"
    with pytest.raises(TableError, match=f"constant columns {site.table.columns[1]}"):
        prepared(site, listed, "data.csv")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("party", "column", "value", "words"), UNFIT)
def test_a_cell_that_does_not_fit_is_refused_whether_its_record_is_listed_or_not(
    sites: Sites, party: str, column: str, value: float, words: str, form: str
) -> None:
    site = getattr(sites, party)
    with pytest.raises((DataError, TableError), match=words):
        prepared(site, site.table["id"] < "k0040", form, **{column: value})
