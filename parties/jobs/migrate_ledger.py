"""Migration of a passive party's ledger, with the table of a run file, which names the records of what was drawn."""

from __future__ import annotations

from pathlib import Path

from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.ledger.migration import Migrated, OldTable, migrate
from parties.tables.parquet import encode_column
from parties.vertical.preparation import prepare_passive


def migrate_ledger(ledger: Path, run_file: Path | None) -> Migrated:
    """Take over what an earlier version drew.

    Without a run file, only draws that have their records' names can be.

    Raises
    ------
    ConfigError, TableError, DataError, LedgerError
    """
    table = None
    if run_file is not None:
        prepared = prepare_passive(read_run(run_file, PassiveRun), run_file)
        features = prepared.table.features
        columns = {mechanism.schema.name: encode_column(features, mechanism) for mechanism in prepared.mechanisms}
        table = OldTable(prepared.table.ids, columns)
    return migrate(ledger, table)
