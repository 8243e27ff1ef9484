"""A passive party's run file on partitions: encoded as in one piece, nothing drawn, and no label."""

from __future__ import annotations

import numpy as np
import pytest

from parties.cluster import passive_preparation
from parties.cluster.passive_preparation import partitioned_passive
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError
from parties.tables.blocks import encoded_column
from parties.vertical.preparation import prepare_passive
from tests.support.inline_client import inline_cluster
from tests.support.sites import Sites


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passive_preparation, "cluster", inline_cluster)


def test_the_exact_codes_are_those_of_the_table_in_one_piece(sites: Sites) -> None:
    path = sites.shop.write()
    whole = prepare_passive(read_run(path, PassiveRun), path).table
    sites.shop.run |= {"engine": "dask", "dask": {"partition_rows": 150}}
    path = sites.shop.write()
    with partitioned_passive(read_run(path, PassiveRun), path) as found:
        assert found.table.rows == (150, 150, 100)
        assert found.partition_words == "400 records in 3 partitions, seen by 1 workers"
        assert found.job().id_digest == found.partitions.id_digest == whole.id_digest
        for c, mechanism in enumerate(found.mechanisms):
            codes = [encoded_column(np.array(block[f"{c}.exact"])).is_missing for block in found.table.blocks]
            np.testing.assert_array_equal(np.concatenate(codes), whole.features[mechanism.schema.name].isna())
        assert found.named() is found.table
    assert not (sites.shop.path / "partitions").exists()


def test_a_label_is_refused(sites: Sites) -> None:
    sites.shop.schema["label"] = "visits"
    del sites.shop.schema["columns"]["visits"]
    sites.shop.run |= {"engine": "dask", "dask": {}}
    path = sites.shop.write()
    with (
        pytest.raises(ConfigError, match="only the active party has"),
        partitioned_passive(read_run(path, PassiveRun), path),
    ):
        pass
