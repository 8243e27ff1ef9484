"""Training on a cluster learns through the noise: the sample's fit, drawn partitions, and what trees then know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from opboost.denoise.channel import ColumnRelease
from opboost.fitting.noised_table import NoiseChoice
from opboost.fitting.recipe import no_versions, raw_scores
from opboost.metrics import r2
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from opboost.rng import seeded
from opboost.schema import ColumnSchema
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import SquaredError
from opboost.trees.validation import bins_between
from opboost.vertical import TrainedTrees
from parties.cluster.dask_cluster import cluster
from parties.cluster.training import train_on_partitions
from parties.cluster.training_partitions import OwnPartitions, RankPartitions
from parties.config.cluster_section import DaskSection

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client

N_PARTS, N_ROWS = 2, 1_500
MAP = GlobalMap(epsilon=0.04, domain=IntegerDomain(1, 100))
PARAMETERS = BoostingParameters(n_estimators=30, max_depth=3, learning_rate=0.2)


@dataclass(frozen=True, slots=True)
class Case:
    """Partitions, the codes that ranks stand for, and the truth behind them."""

    own: OwnPartitions
    ranks: RankPartitions
    age: np.ndarray
    exact: np.ndarray
    labels: np.ndarray

    def score(self, trained: TrainedTrees) -> float:
        """R^2 on the exact codes."""
        columns = [self.age]
        for told, exact in zip(self.ranks.releases, self.exact, strict=True):
            assert told is not None
            columns.append(np.searchsorted((told.positions[:-1] + told.positions[1:]) / 2, exact).astype(float))
        binned = [
            BinnedColumn(bins_between(values, cuts).astype(np.uint8), cuts)
            for values, cuts in zip(columns, trained.cuts, strict=True)
        ]
        nothing = no_versions(len(self.labels))
        (scores,) = raw_scores(BinnedTable.of(binned), trained.trees, trained.base_scores, nothing)
        return r2(self.labels, scores[0])


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder, draw, n = tmp_path_factory.mktemp("drawn"), np.random.default_rng(2), N_PARTS * N_ROWS
    age, exact = draw.normal(size=n), draw.integers(0, 100, size=(2, n))
    score = age + (exact[0] - 50) / 15 + 2.0 * (exact[1] > 60)
    labels = score + draw.normal(size=n)
    released, releases = {}, []
    for c in range(2):
        codes, ranks = np.unique(MAP.randomise(exact[c] + 1, rng=seeded(c)), return_inverse=True)
        released[f"c{c}"] = ranks.astype(np.uint8)
        releases.append(ColumnRelease(MAP, None, (codes - 1).astype(np.int64)))
    mine, theirs = [], []
    for part in range(N_PARTS):
        rows = slice(part * N_ROWS, (part + 1) * N_ROWS)
        mine.append(folder / f"own{part}.parquet")
        theirs.append(folder / f"{part:06d}.parquet")
        pd.DataFrame({"age": age[rows], "default": labels[rows]}).to_parquet(mine[-1])
        pd.DataFrame({name: ranks[rows] for name, ranks in released.items()}).to_parquet(theirs[-1], index=False)
    n_ranks = tuple(len(told.positions) for told in releases)
    ranks = RankPartitions("shop", tuple(theirs), n_ranks, (False, False), (None, None), tuple(releases))
    own = OwnPartitions(tuple(mine), (ColumnSchema(name="age", lower=-5, upper=5),), "default")
    return Case(own, ranks, age, exact, labels)


def grown(case: Case, client: Client, *, correct_noise: bool, left_open: frozenset[str] = frozenset()) -> TrainedTrees:
    chosen = {"loss": SquaredError(), "parameters": PARAMETERS, "client": client, "seed": 0, "wait_s": 6.0}
    return train_on_partitions(case.own, [case.ranks], correct_noise=correct_noise, left_open=left_open, **chosen)


def test_trees_on_drawn_partitions_know_more_of_exact_codes(case: Case, client: Client) -> None:
    plain = grown(case, client, correct_noise=False)
    corrected = grown(case, client, correct_noise=True, left_open=frozenset({"subsample"}))
    assert plain.choice is None
    assert corrected.choice in (NoiseChoice.CORRECTED, NoiseChoice.CORRECTED_AND_PLAIN)
    assert case.score(corrected) > case.score(plain) + 0.05
    drawn = case.ranks.paths[0].parent / "drawn"
    assert sorted(path.name for path in drawn.iterdir()) == [path.name for path in case.ranks.paths]
    assert {pq.read_metadata(path).num_rows for path in drawn.iterdir()} == {4 * N_ROWS}
    # Each version of a row has its share of the weight, so leaves are as high as those of the rows once.
    assert sum(not tree.is_leaf.all() for tree in corrected.trees) >= PARAMETERS.n_estimators
