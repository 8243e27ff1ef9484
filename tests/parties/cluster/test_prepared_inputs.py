"""What a party brings, in memory or in partitions, is known by the same protocols."""

from __future__ import annotations

from typing import Any

import pytest

from parties.cluster import active_preparation, passive_preparation
from parties.cluster.prepared_inputs import prepared_active, prepared_passive
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.ledger.due_cells import run_in_process
from tests.support.inline_client import inline_cluster
from tests.support.sites import Sites

PARTITIONED: dict[str, Any] = {"engine": "dask", "dask": {"partition_rows": 150}}


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (active_preparation, passive_preparation):
        monkeypatch.setattr(module, "cluster", inline_cluster)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_both_forms_of_a_table_are_the_same_records(sites: Sites, is_partitioned: bool) -> None:
    for site in (sites.bank, sites.shop):
        site.run |= PARTITIONED if is_partitioned else {}
    path = sites.shop.write()
    with prepared_passive(read_run(path, PassiveRun), path) as shop:
        job = shop.job()
        assert job.id_digest is not None
        assert (job.run_blocks is run_in_process) is not is_partitioned
        assert sum(shop.named().rows) == 400
        words = shop.partition_words
    path = sites.bank.write()
    with prepared_active(read_run(path, ActiveRun), path) as bank:
        assert bank.job().id_digest == job.id_digest
        assert bank.n_trained == 400
        assert bank.partition_words == words
    assert words == ("400 records in 3 partitions, seen by 1 workers" if is_partitioned else None)
