"""Releases of a small table on a ledger, in any subset, order and division of its records."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from opboost import rng
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn, encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import Block, exact_codes, named_records

N_ROWS = 200
IDS = pd.Index([f"k{i:03}" for i in range(N_ROWS)], dtype=object)
SPRING = Occasion(run_id="spring", task="train", peer="bank")
SCHEMAS = (
    ColumnSchema(name="spend", lower=0, upper=100),
    ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
    ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y", "z"), missing=Missing.CATEGORY),
)


def table(seed: int = 4) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    visits = pd.Series(draw.integers(0, 51, N_ROWS).astype(float)).where(draw.random(N_ROWS) > 0.2)
    town = pd.Series(draw.choice(["x", "y", "z"], N_ROWS), dtype="string").where(draw.random(N_ROWS) > 0.2)
    return pd.DataFrame({"spend": draw.uniform(0, 100, N_ROWS), "visits": visits, "town": town})


def mechanisms(*schemas: ColumnSchema, **settings: Any) -> tuple[ColumnMechanism, ...]:
    chosen = MechanismSettings(**{"epsilon": 0.1, "domain_size": 101, "category_epsilon": 2.0, **settings})
    return tuple(ColumnMechanism(schema, chosen) for schema in schemas or SCHEMAS)


def encoded(which: Sequence[ColumnMechanism], data: pd.DataFrame | None = None) -> list[EncodedColumn]:
    data = table() if data is None else data
    return [encode(data[m.schema.name], m.schema, domain=m.settings.domain) for m in which]


Job = Callable[[Account], Any]


def on_account(path: Path, job: Job, **changes: Any) -> Any:
    """Open the ledger as a process of its own would, with fresh secure bits, and close it."""
    with Ledger(path) as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=SPRING, rng=rng.secure())
        return job(replace(account, **changes))


def released(
    account: Account,
    which: Sequence[ColumnMechanism],
    columns: Sequence[EncodedColumn],
    ids: pd.Index,
    *,
    cuts: Sequence[int] = (),
    may_draw: bool = True,
) -> list[ReleasedColumn]:
    """Release a table in blocks that are cut at these rows."""
    bounds = [0, *cuts, len(ids)]
    blocks: list[Block] = [{} for _ in bounds[1:]]
    for block, (start, end) in zip(blocks, pairwise(bounds), strict=True):
        block.update(named_records(ids[start:end]))
        for c, column in enumerate(columns):
            block[f"{c}.exact"] = exact_codes(EncodedColumn(column.codes[start:end], column.is_missing[start:end], 0))
    account.release(which, blocks, may_draw=may_draw)
    codes = [np.concatenate([block[f"{c}.codes"] for block in blocks]) for c in range(len(which))]
    return [ReleasedColumn.of_marked(one.schema, marked) for one, marked in zip(which, codes, strict=True)]


def train(*, ids: pd.Index = IDS, data: pd.DataFrame | None = None, may_draw: bool = True, **settings: Any) -> Job:
    which = mechanisms(**settings)
    return lambda account: released(account, which, encoded(which, data), ids, may_draw=may_draw)


def predict(rows: Sequence[int], *, data: pd.DataFrame | None = None, **settings: Any) -> Job:
    which = mechanisms(**settings)
    asked = (table() if data is None else data).iloc[list(rows)]
    return lambda account: account.records(which, encoded(which, asked), IDS[list(rows)])[0]


def same(first: Sequence[ReleasedColumn], second: Sequence[ReleasedColumn]) -> list[bool]:
    return [
        np.array_equal(a.codes, b.codes) and np.array_equal(a.is_missing, b.is_missing)
        for a, b in zip(first, second, strict=True)
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    database = sqlite3.connect(path)
    rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [json.loads(fields) for (fields,) in rows]


def kinds(path: Path) -> Counter[str]:
    return Counter(line["kind"] for line in lines(path))


def n_keys(path: Path) -> int:
    database = sqlite3.connect(path)
    found: int = database.execute("SELECT COUNT(*) FROM draw_keys").fetchone()[0]
    database.close()
    return found


def by_record(columns: Sequence[ReleasedColumn], rows: Sequence[int]) -> list[dict[int, tuple[int, bool]]]:
    """Per column, what came out for each row of the table."""
    return [
        dict(zip(rows, zip(column.codes.tolist(), column.is_missing.tolist(), strict=True), strict=True))
        for column in columns
    ]


def order_of(rows: Sequence[int], cuts: Sequence[int] = ()) -> Job:
    """Release some rows in some order, in some blocks; returns what came out by row."""
    which, data = mechanisms(), table().iloc[list(rows)]

    def job(account: Account) -> Any:
        return by_record(released(account, which, encoded(which, data), IDS[list(rows)], cuts=cuts), rows)

    return job
