"""Migration of a ledger: the run file's table reaches it encoded under the run's own mechanisms, partitions do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.errors import ConfigError
from parties.jobs import migrate_ledger as module
from parties.jobs.migrate_ledger import migrate_ledger
from parties.ledger.migration import Migrated, OldTable
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


def test_without_a_run_file_or_with_partitions_there_is_no_table(
    sites: Sites, taken: list[Any], tmp_path: Path
) -> None:
    migrate_ledger(tmp_path, None)
    (sites.shop.path / "parts").mkdir()
    sites.shop.run |= {"engine": "dask", "dask": {}, "data": "parts"}
    migrate_ledger(tmp_path, sites.shop.write())
    assert taken == [(tmp_path, None)] * 2


def test_the_active_party_has_no_such_ledger(sites: Sites, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        migrate_ledger(tmp_path, sites.bank.write())
