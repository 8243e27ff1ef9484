"""Migration of a ledger: the run file's table reaches it encoded under the run's own mechanisms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.errors import ConfigError
from parties.jobs import migrate_ledger as module
from parties.jobs.migrate_ledger import migrate_ledger
from parties.ledger.migration import Migrated, OldTable
from tests.support.partitioned_sites import divide
from tests.support.sites import Sites


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, OldTable | None]]:
    """What the migration is called with."""
    found: list[tuple[Path, OldTable | None]] = []

    def migrate(path: Path, table: OldTable | None) -> Migrated:
        found.append((path, table))
        return Migrated(1, ())

    monkeypatch.setattr(module, "migrate", migrate)
    return found


def test_the_table_of_a_run_file_names_the_records(sites: Sites, taken: list[Any], tmp_path: Path) -> None:
    assert migrate_ledger(tmp_path / "ledger", sites.shop.write()).n_taken == 1
    ((path, table),) = taken
    assert path == tmp_path / "ledger"
    assert sorted(table.ids) == sorted(sites.shop.table["id"])
    assert list(table.columns) == ["spend", "visits"]
    assert table.columns["visits"].is_missing.sum() == sites.shop.table["visits"].isna().sum()


def test_partitions_are_a_table_too(sites: Sites, taken: list[Any], tmp_path: Path) -> None:
    divide(sites.shop, 3)
    sites.shop.run["data"] = "parts"
    migrate_ledger(tmp_path, sites.shop.write())
    assert sorted(taken[0][1].ids) == sorted(sites.shop.table["id"])


def test_without_a_run_file_there_is_no_table(taken: list[Any], tmp_path: Path) -> None:
    migrate_ledger(tmp_path, None)
    assert taken == [(tmp_path, None)]


def test_the_active_party_has_no_such_ledger(sites: Sites, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        migrate_ledger(tmp_path, sites.bank.write())
