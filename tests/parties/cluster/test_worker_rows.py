"""Rows of a worker as one file, as partitions and on Dask: what does not fit is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from opboost.rng import seeded
from parties.cluster.worker_rows import count_rows, worker_rows
from parties.config.horizontal import WorkerRun
from parties.config.reading import read_run, read_schema
from parties.errors import ConfigError
from parties.jobs.predict_horizontal import predict_alone
from parties.jobs.train_vertical import Terminal
from tests.support.clinics import Clinics


def in_partitions(folder: Path) -> None:
    frame = pd.read_csv(folder / "data.csv")
    (folder / "parts").mkdir()
    for number, part in enumerate((frame[:70], frame[70:])):
        part.to_parquet(folder / "parts" / f"{number}.parquet")


def test_one_file_is_not_for_dask_and_a_cluster_needs_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w0"] |= {"engine": "dask", "dask": {"workers": 1}}
    run = read_run(clinics.write("w0"), WorkerRun)
    with pytest.raises(ConfigError, match="is one file"):
        begin(run, clinics)
    in_partitions(tmp_path / "w0")
    clinics.runs["w0"]["data"] = "parts"
    run = read_run(clinics.write("w0"), WorkerRun)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match="not installed"):
        begin(run, clinics)


def begin(run: WorkerRun, clinics: Clinics) -> None:
    schema, ignore = read_schema(run.table_schema)
    with worker_rows(run, clinics.recipe(), schema=schema, ignore=ignore, rng=seeded(0)):
        pass


def test_partitions_are_counted_for_a_plan_and_are_not_scored_as_they_are(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    in_partitions(tmp_path / "w0")
    schema, ignore = read_schema(read_run(clinics.write("w0"), WorkerRun).table_schema)
    n_rows = count_rows(read_run(clinics.write("w0"), WorkerRun), schema, ignore)
    clinics.runs["w0"]["data"] = "parts"
    path = clinics.write("w0")
    assert count_rows(read_run(path, WorkerRun), schema, ignore) == n_rows > 70
    with pytest.raises(ConfigError, match="names partitions, which are not scored as they are"):
        predict_alone(path, data=None, ids=None, out=None, terminal=Terminal())
