"""Releases of Parquet partitions on a cluster, and their ranks as the active party's partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from opboost.desensitize import ColumnMechanism, exact
from opboost.rng import secure
from opboost.routing import PackedAnswers, Router
from parties.cluster.file_blocks import encode_partitions, on_cluster
from parties.cluster.prediction import write_bits
from parties.cluster.training_partitions import RankPartitions
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import EncodedTable
from parties.tables.data_files import stamp_of
from parties.vertical.release_offer import OfferedRanks, ReleasedTable, rank_columns

OCCASION = Occasion(run_id="scale", task="train", peer="bank")


def encoded(parts: Sequence[Path], mechanisms: Sequence[ColumnMechanism], folder: Path, client: Any) -> EncodedTable:
    stamps = [stamp_of(part) for part in parts]
    return encode_partitions(parts, mechanisms, folder, id_columns=["id"], stamps=stamps, client=client)[0]


def release(
    parts: Sequence[Path],
    mechanisms: Sequence[ColumnMechanism],
    folder: Path,
    client: Any,
    *,
    ledger: Path | None = None,
    **changed: Any,
) -> ReleasedTable:
    """Release partitions on a ledger, by default the one beside the folder of blocks."""
    table = encoded(parts, mechanisms, folder, client)
    with Ledger(ledger or folder.parent / "ledger.sqlite") as opened:
        terms = {"budget": Budget(), "occasion": OCCASION, "rng": secure(), **changed}
        Account(ledger=opened, **terms).release(mechanisms, table.blocks, run_blocks=on_cluster(client))
    return ReleasedTable(tuple(mechanisms), table.blocks)


def answered(router: Router, parts: Sequence[Path], folder: Path) -> list[Path]:
    """The exact answers about partitions, in files as the active party has them."""
    folder.mkdir()
    for part in parts:
        raw = pd.read_parquet(part)
        coded = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in router.encode(raw)}
        write_bits(folder / part.name, PackedAnswers(router).of(coded, len(raw)))
    return [folder / part.name for part in parts]


def ranks_of(columns: Sequence[OfferedRanks]) -> pd.DataFrame:
    """All ranks, as they travel."""
    return pd.DataFrame({f"c{i}": np.concatenate(list(column.ranks())) for i, column in enumerate(columns)})


def rank_partitions(released: ReleasedTable, rows: Sequence[int], folder: Path, owner: str) -> RankPartitions:
    """The ranks as the active party has them, in partitions of so many rows."""
    folder.mkdir()
    columns = list(rank_columns(released))
    whole, paths = ranks_of(columns), []
    for number, end in enumerate(np.cumsum(rows).tolist()):
        paths.append(folder / f"{number:06d}.parquet")
        whole[end - rows[number] : end].to_parquet(paths[-1], index=False)
    n_ranks, missing = (c.ranking.table.n_ranks for c in columns), (c.ranking.has_missing for c in columns)
    return RankPartitions(
        owner, tuple(paths), tuple(n_ranks), tuple(missing), (None,) * len(columns), (None,) * len(columns)
    )
