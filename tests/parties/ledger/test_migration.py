"""A ledger of an earlier version is refused by a sentence that names its migration, which keeps every draw it can.

The archive holds 30 records of a training, 5 of a prediction, a training on values that were changed later, and 5
records whose first draws were kept; with the table, and what was drawn.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.errors import LedgerError
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.migration import OldTable, migrate
from parties.ledger.release_ledger import Ledger
from tests.support.released_cells import SPRING, kinds, lines

SCHEMAS = (
    ColumnSchema(name="spend", lower=0, upper=100),
    ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
    ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y")),
)
MECHANISMS = [ColumnMechanism(schema, MechanismSettings(epsilon=0.5, theta=50)) for schema in SCHEMAS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ZipFile(Path(__file__).with_name("earlier_version.zip")) as archive:
        archive.extractall(tmp_path)
    for file in tmp_path.glob("ledger.*"):
        file.chmod(0o600)
    return tmp_path / "ledger.sqlite"


def table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path.with_name("data.csv"))


def old_table(data: pd.DataFrame) -> OldTable:
    columns = {m.schema.name: encode(data[m.schema.name], m.schema, domain=m.settings.domain) for m in MECHANISMS}
    return OldTable(pd.Index(data["id"], dtype=object), columns)


def asked(path: Path, rows: slice, *, keeps: bool = False) -> list[list[int]]:
    """The draws of some records, which the budget does not allow to be drawn again."""
    data = table(path)[rows]
    columns = [encode(data[m.schema.name], m.schema, domain=m.settings.domain) for m in MECHANISMS]
    with Ledger(path) as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=SPRING, rng=rng.secure(), keeps=keeps)
        found, _ = account.records(MECHANISMS, columns, pd.Index(data["id"], dtype=object))
    return [column.marked.tolist() for column in found]


def drawn(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_name("drawn.json").read_text())
    return found


def test_a_ledger_of_an_earlier_version_is_refused_by_name(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"of an earlier version.*`opboost ledger RUN.yaml --migrate` takes it over"):
        Ledger(path)
    path.with_suffix(".releases.sqlite").unlink()
    with pytest.raises(LedgerError, match=r"which belongs to it, is not there: restore it first"):
        Ledger(path)
    with pytest.raises(LedgerError, match="Nothing was changed"):
        migrate(path, None)


def test_every_draw_whose_records_are_known_stays_and_is_not_charged_again(path: Path) -> None:
    charged = kinds(path)["charge"]
    done = migrate(path, old_table(table(path)))
    # The column of changed values is not the table's; the others of that training were drawn before.
    assert (done.n_taken, [line["column"] for line in lines(path) if line["number"] in done.lost]) == (9, ["spend"])
    assert asked(path, slice(0, 30)) == drawn(path)["whole"]
    assert asked(path, slice(30, 35)) == drawn(path)["single"]
    assert asked(path, slice(35, 40), keeps=True) == drawn(path)["kept"]
    assert kinds(path)["charge"] == charged
    assert kinds(path)["migrated"] == 1
    with Ledger(path) as ledger:
        ledger.verify()
    assert path.with_name("ledger.releases.sqlite.migrated").exists()
    with pytest.raises(LedgerError, match="Nothing was changed"):
        migrate(path, None)


def test_without_the_table_draws_that_have_names_stay(path: Path) -> None:
    done = migrate(path, None)
    assert (done.n_taken, len(done.lost)) == (3, 7)
    assert asked(path, slice(35, 40), keeps=True) == drawn(path)["kept"]
    first = asked(path, slice(0, 30))
    assert first != drawn(path)["whole"]
    assert asked(path, slice(0, 30)) == first


def test_a_table_that_changed_since_serves_for_the_columns_that_did_not(path: Path) -> None:
    data = table(path)
    done = migrate(path, old_table(data.assign(visits=np.arange(len(data)) % 50)))
    assert done.n_taken == 7
    assert asked(path, slice(0, 30))[0] == drawn(path)["whole"][0]


@pytest.mark.parametrize("what", ["damaged", "foreign"])
def test_a_store_that_cannot_be_trusted_is_not_taken_over(path: Path, what: str) -> None:
    store = path.with_suffix(".releases.sqlite")
    copies = {file: file.read_bytes() for file in path.parent.iterdir()}
    database = sqlite3.connect(store)
    if what == "damaged":
        database.execute("UPDATE drawn SET content = zeroblob(300) WHERE charge = 2")
    else:
        database.execute("UPDATE owner SET ledger = 'another'")
    database.commit()
    database.close()
    with pytest.raises(LedgerError, match="Restore the"):
        migrate(path, old_table(table(path)))
    assert kinds(path)["migrated"] == 0
    shutil.copyfile(store, store.with_name("kept"))
    store.write_bytes(copies[store])
    assert migrate(path, old_table(table(path))).n_taken == 9
