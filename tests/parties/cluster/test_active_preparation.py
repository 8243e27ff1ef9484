"""An active party's run file on partitions: it finds what is in the file in one piece, and labels must be there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.columns import RankColumn
from opboost.trees.constraints import ColumnConstraints
from parties.cluster import active_preparation
from parties.cluster.active_preparation import partitioned_active
from parties.cluster.training_partitions import OwnPartitions, RankPartitions, columns_of, limits_of
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, Disagreement, TableError
from parties.progress import no_progress
from parties.runs.journal import Journal
from parties.storage.mapped_ranks import MappedRanks
from parties.tables.record_ids import digest_of_ids
from parties.vertical.alignment import Aligned
from parties.vertical.party_a import grow_trees
from tests.support.inline_client import inline_cluster
from tests.support.sites import Sites


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_preparation, "cluster", inline_cluster)


def prepared(sites: Sites, rows: int = 150) -> tuple[int, tuple[int, ...], str, str]:
    sites.bank.run |= {"engine": "dask", "dask": {"partition_rows": rows}}
    path = sites.bank.write()
    with partitioned_active(read_run(path, ActiveRun), path) as found:
        assert found.n_rows == found.partitions.n_rows
        job = found.job()
        assert (job.engine, [column.name for column in job.own]) == ("xgboost", ["age"])
        assert job.id_digest == found.partitions.id_digest
        return found.n_rows, found.partitions.rows, found.partitions.id_digest, found.digest


def test_one_file_is_divided_and_known_by_the_same_ids_however_it_is_cut(sites: Sites) -> None:
    n_rows, rows, id_digest, digest = prepared(sites)
    assert (n_rows, rows) == (400, (150, 150, 100))
    assert id_digest == digest_of_ids(pd.Index(sorted(sites.bank.table["id"]), dtype=object))
    assert prepared(sites, 400)[2] == id_digest
    sites.bank.table["y"] = 1 - sites.bank.table["y"]
    assert prepared(sites)[2:] != (id_digest, digest)
    assert not (sites.bank.path / "partitions").exists()


def test_without_labels_nothing_is_trained(sites: Sites) -> None:
    del sites.bank.schema["label"]
    sites.bank.schema["ignore"] = ["y"]
    with pytest.raises(ConfigError, match="names no `label`, which the active party needs"):
        prepared(sites)


def test_a_constant_column_is_refused(sites: Sites) -> None:
    sites.bank.table["age"] = 30
    with pytest.raises(TableError, match="constant columns age"):
        prepared(sites)


def test_a_saved_run_is_taken_up_with_the_records_that_were_common(sites: Sites) -> None:
    sites.bank.run |= {"engine": "dask", "dask": {}, "align": {"method": "psi"}}
    path = sites.bank.write()
    sites.bank.run_folder.mkdir(parents=True)
    with partitioned_active(read_run(path, ActiveRun), path) as found:
        assert found.job().id_digest is None
        journal = Journal(sites.bank.run_folder, seed=1)
        found.begin(journal)
        assert found.ids is not None
        common = found.ids.take(np.arange(0, 400, 4))
        found._note(journal, Aligned(common))
        again = found.take_up(Journal(sites.bank.run_folder, seed=1))
        assert (again.n_rows, again.n_trained) == (100, 100)
        assert again.ids is not None
        assert again.ids.frame["row"].tolist() == list(range(0, 400, 4))
        with pytest.raises(Disagreement):
            found._note(journal, Aligned(found.ids))


def test_trees_are_grown_as_the_job_says_on_columns_by_their_names(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A's model alone has the joint model's parameters, and constraints name columns as their owner does."""
    sites.bank.run |= {"engine": "dask", "dask": {}}
    path, ranks = sites.bank.write(), np.arange(400, dtype="<u2")
    ranks.tofile(tmp_path / "0.ranks")
    spend = RankColumn("shop", 0, "spend", MappedRanks(tmp_path / "0.ranks", ranks.dtype, 400), 400)
    asked = []

    def record(own: OwnPartitions, released: list[RankPartitions], **settings: Any) -> None:
        limits_of(own, released, settings["loss"], settings["parameters"], settings["constraints"])
        asked.append(([column.name for column in columns_of(own, released)], settings["parameters"]))

    monkeypatch.setattr(active_preparation, "train_on_partitions", record)
    with partitioned_active(read_run(path, ActiveRun), path) as found:
        job = replace(found.job(), constraints=ColumnConstraints({"spend": 1, "age": 1}))
        calm = replace(job.parameters, n_estimators=7)
        grow_trees(job, [], [spend], no_progress)
        alone = replace(job, parameters=calm, constraints=job.constraints.among(["age"]))
        grow_trees(alone, [], [], no_progress)
    assert asked == [(["age", "spend"], job.parameters), (["age"], calm)]
