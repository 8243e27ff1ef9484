"""A passive party's answers: without a trained run, or from a file with a bad cell, nothing is answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.routing import Router, SplitTests
from parties.config.reading import read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.errors import RunFolderError
from parties.jobs.answer_vertical import read_records, serve_passive
from parties.jobs.life_cycle import Terminal
from tests.support.parquet_folders import in_a_folder
from tests.support.sites import Sites

SILENT = Terminal()


def records(sites: Sites) -> Any:
    run = read_run(sites.shop.write(), PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    router = Router(run.mechanisms(schema)[:1], SplitTests((("spend", None),), np.array([30.5]), np.array([True])))
    return read_records(run.data, schema, ignore, router, run.align)


def test_every_record_of_the_file_can_be_asked_for(sites: Sites) -> None:
    assert sorted(records(sites).ids) == sorted(sites.shop.table["id"])


def test_a_cell_that_does_not_fit_is_found_before_a_peer_could_ask_about_it(sites: Sites) -> None:
    sites.shop.table.loc[sites.shop.table.index[3], "spend"] = float("inf")
    with pytest.raises(DataError):
        records(sites)


def test_without_a_trained_run_nothing_is_answered(sites: Sites) -> None:
    with pytest.raises(RunFolderError):
        serve_passive(sites.shop.write(), data=None, insecure=False, terminal=SILENT)


def test_a_service_reads_a_folder_as_one_table(sites: Sites) -> None:
    whole = records(sites)
    in_a_folder(sites.shop.table, sites.shop.path / "parts", 3)
    sites.shop.run |= {"engine": "dask", "dask": {}, "data": "parts"}
    found = records(sites)
    assert found.ids.tolist() == whole.ids.tolist()
    for (_, one), (_, other) in zip(found.columns, whole.columns, strict=True):
        assert (one.codes == other.codes).all()
