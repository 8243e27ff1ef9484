"""Two parties, each with workers of its own, over the same messages as ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from opboost import rng
from opboost.columns import RankColumn
from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, Missing
from opboost.split_tests import feature_matrix
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.cluster.dask_cluster import cluster
from parties.cluster.file_blocks import on_cluster
from parties.cluster.prediction import score_part
from parties.cluster.training import train_on_partitions
from parties.cluster.training_partitions import OwnPartitions
from parties.cluster.transfer import cut_into_partitions
from parties.config.cluster_section import DaskSection
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.release_ledger import Ledger
from parties.runs.joint_model import JointModel
from parties.runs.journal import Journal
from parties.tables.blocks import EncodedTable
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import PassiveShare, train
from parties.vertical.release_job import PassiveJob
from parties.vertical.release_offer import OfferedRanks, ReleasedTable, rank_columns
from parties.vertical.training_job import ActiveJob
from tests.support.released_partitions import OCCASION, answered, encoded, ranks_of

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client

N_ROWS = 1_200
OWN = (ColumnSchema(name="age", lower=0, upper=1),)
MECHANISMS = tuple(
    ColumnMechanism(schema, MechanismSettings(epsilon=0.5))
    for schema in (
        ColumnSchema(name="spend", lower=0, upper=1),
        ColumnSchema(name="visits", lower=0, upper=1, missing=Missing.CATEGORY),
    )
)
PARAMETERS = BoostingParameters(n_estimators=5, max_depth=3)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bank's rows in two partitions, the shop's in three."""
    path, draw = tmp_path_factory.mktemp("parties"), np.random.default_rng(8)
    age, spend, visits = draw.random((3, N_ROWS))
    bank = pd.DataFrame({"age": age, "default": (age + spend > 1).astype(float)})
    shop = pd.DataFrame({"id": np.arange(N_ROWS), "spend": spend, "visits": np.where(visits < 0.1, np.nan, visits)})
    for p in range(2):
        bank[p * 600 : (p + 1) * 600].to_parquet(path / f"bank{p}.parquet")
    for p in range(3):
        shop[p * 400 : (p + 1) * 400].to_parquet(path / f"shop{p}.parquet")
    return path


@pytest.fixture(scope="module")
def table(folder: Path, client: Client) -> EncodedTable:
    return encoded([folder / f"shop{p}.parquet" for p in range(3)], MECHANISMS, folder / "blocks", client)


def test_a_run_between_two_clusters_ends_with_a_model_and_a_share(
    tmp_path: Path, folder: Path, table: EncodedTable, client: Client, carriers: dict[str, Any]
) -> None:
    bank = OwnPartitions(tuple(folder / f"bank{p}.parquet" for p in range(2)), OWN, "default")
    rows = [pq.read_metadata(path).num_rows for path in bank.paths]
    journal = Journal(tmp_path)

    class Grower:
        n_rows = N_ROWS

        def __call__(self, columns: Sequence[RankColumn], /, **settings: Any) -> Any:
            ranks = cut_into_partitions(columns, rows, tmp_path / "ranks", client=client)
            return train_on_partitions(bank, [ranks], loss=Logistic(), client=client, wait_s=60, **settings)

    common = {"run_id": "scale", "id_digest": "0" * 64}
    labels = np.concatenate([pd.read_parquet(path)["default"] for path in bank.paths])
    active = ActiveJob(
        party="bank",
        own=(),
        labels=np.empty(0),
        weights=np.empty(0),
        loss=Logistic(),
        parameters=PARAMETERS,
        grow=Grower(),
        journal=journal,
        **common,
    )
    bits, offered = rng.secure(), list[OfferedRanks]()

    def release(mechanisms: Any, drawn: EncodedTable) -> None:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            account = Account(ledger=ledger, budget=Budget(), occasion=OCCASION, rng=bits)
            account.release(mechanisms, drawn.blocks, run_blocks=on_cluster(client))
        offered.extend(rank_columns(ReleasedTable(MECHANISMS, drawn.blocks)))

    passive = PassiveJob(party="shop", features=table, mechanisms=MECHANISMS, rng=bits, release=release, **common)
    found = carriers["memory"](
        lambda channels: train_jointly(active, channels), {"shop": lambda channel: train(passive, channel)}
    )
    model, share = found["bank"], found["shop"]
    assert isinstance(model, JointModel), model
    assert isinstance(share, PassiveShare), share
    cut = pd.concat([pq.read_table(tmp_path / "ranks" / f"00000{p}.parquet").to_pandas() for p in range(2)])
    np.testing.assert_array_equal(cut, ranks_of(offered))
    assert model.guarantees["shop"].is_secure

    shop = [folder / f"shop{p}.parquet" for p in range(3)]
    raw = pd.concat([pd.read_parquet(path) for path in shop])
    own = {"age": np.concatenate([pd.read_parquet(path)["age"] for path in bank.paths])}
    whole = model.ensemble.predict(
        feature_matrix(model.ensemble, own, {"shop": share.router.answer(raw, rng=None)}, N_ROWS)
    )
    assert ((whole > 0.5) == labels).mean() > 0.8
    raw[:600].to_parquet(tmp_path / "new.parquet")
    (bits,) = answered(share.router, [tmp_path / "new.parquet"], tmp_path / "bits")
    np.testing.assert_array_equal(score_part(model.ensemble, OWN, bank.paths[0], {"shop": bits}), whole[:600])


def test_columns_of_another_length_are_not_cut(tmp_path: Path, client: Client) -> None:
    column = RankColumn("shop", 0, "c0", np.zeros(4, np.uint8), 1)
    with pytest.raises(DataError, match="in files of 4 rows"):
        cut_into_partitions([column], [4], tmp_path, client=client)
    assert list(tmp_path.iterdir()) == []
