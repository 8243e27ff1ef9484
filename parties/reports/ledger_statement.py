"""Ledger statement: spent and remaining budget, per column and per record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parties.config.reading import read_role, read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, naming
from parties.ledger.budget import Budget
from parties.ledger.costs import Unit
from parties.ledger.release_ledger import Ledger
from parties.reports.plain import plain

DEFAULT_PATH = Path("runs/ledger.sqlite")


@dataclass(frozen=True, slots=True)
class Spending:
    """Spent budget of one kind, and its limit; None for no limit."""

    spent: float
    limit: float | None

    @property
    def remaining(self) -> float | None:
        """Remaining budget, never negative: a limit may have been lowered below what was spent."""
        if self.limit is None or math.isinf(self.limit):
            return self.limit
        return max(0.0, self.limit - self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatement:
    """Statement of one column: what its worst record has spent.

    Attributes
    ----------
    column : str
    unit : Unit or None
        The difference that `epsilon` is for; None where there is no distance.
    epsilon : Spending
        dLDP, per unit.
    category_epsilon : Spending
        Randomised response.
    cell_bits : Spending
        Bits of the cells that a Local-Map publishes exactly, which no epsilon covers.
    n_records : int
        Records that were charged for it.
    n_releases, n_reuses : int
        Draws that were charged, and times that one was used again for nothing.
    n_tests, n_cuts, n_answered : int
        Split tests that peers had resolved; cuts between the cells that they are answered with; and values that
        desensitized predictions were answered from, in all runs.
    """

    column: str
    unit: Unit | None
    epsilon: Spending
    category_epsilon: Spending
    cell_bits: Spending
    n_records: int
    n_releases: int
    n_reuses: int
    n_tests: int
    n_cuts: int
    n_answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Statement of a whole ledger, verified.

    Attributes
    ----------
    path : Path
    n_lines : int
    peers : tuple of str
        Who received anything.
    n_records : int
        Records of which anything was released.
    record : Spending
        Both kinds of epsilon over all columns of the worst record.
    record_cell_bits : Spending
        Bits of published cells over all columns of the record with most of them.
    columns : tuple of ColumnStatement
    """

    path: Path
    n_lines: int
    peers: tuple[str, ...]
    n_records: int
    record: Spending
    record_cell_bits: Spending
    columns: tuple[ColumnStatement, ...]

    @property
    def n_spared(self) -> int:
        """Cells of its records that were never charged: of columns that were scouted alone, or left out since."""
        return sum(self.n_records - one.n_records for one in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Statement as plain values for JSON; infinity is the string ``"inf"``, no limit is None."""
        document: dict[str, Any] = {**plain(self), "path": str(self.path)}
        for found, part in ((self, document), *zip(self.columns, document["columns"], strict=True)):
            for name, value in part.items():
                if isinstance(spending := getattr(found, name), Spending):
                    value["remaining"] = plain(spending.remaining)
        return document


def read_statement(run_file: Path | None, path: Path | None) -> Statement:
    """Verify a ledger and sum it up. Limits are those of a run file, where one is given.

    Raises
    ------
    LedgerError
        If the ledger, its head or the store beside it cannot be trusted.
    ConfigError
        If the run file is not a passive party's.
    """
    budget = Budget()
    if run_file is not None:
        run = _passive(run_file)
        schema, _ = read_schema(run.table_schema)
        with naming(run_file):
            budget = run.ledger.budget.budget(schema)
    with Ledger(ledger_path(run_file, path), create=False) as ledger:
        ledger.verify()
        return statement(ledger, budget)


def ledger_path(run_file: Path | None, path: Path | None) -> Path:
    """The ledger that is meant: one that is named, a run file's, or the usual one."""
    if path is None and run_file is not None:
        return _passive(run_file).ledger.path
    return path or DEFAULT_PATH


def _passive(run_file: Path) -> PassiveRun:
    if (role := read_role(run_file)) == "active":
        raise ConfigError(f"{run_file} is an active party's run file; only a passive party keeps a ledger")
    if role != "passive":
        raise ConfigError(
            f"{run_file} is for the role {role}, and this command reads a passive party's ledger; the account of a "
            "worker, or of an owner in a chain, stands in `opboost report`"
        )
    return read_run(run_file, PassiveRun)


def statement(ledger: Ledger, budget: Budget) -> Statement:
    """Sum up a ledger that was verified when it was opened."""
    epsilon, cell_bits = ledger.balances.worst_record()
    return Statement(
        path=ledger.path,
        n_lines=ledger.n_lines,
        peers=tuple(sorted(ledger.peers)),
        n_records=ledger.balances.n_records,
        record=Spending(epsilon, budget.per_record),
        record_cell_bits=Spending(cell_bits, budget.cell_bits_per_record),
        columns=tuple(_columns(ledger, budget)),
    )


def _columns(ledger: Ledger, budget: Budget) -> Iterator[ColumnStatement]:
    for name in sorted(ledger.balances.columns | set(budget.columns)):
        spent, limit = ledger.balances.worst(name), budget.limit(name)
        yield ColumnStatement(
            column=name,
            unit=ledger.balances.units.get(name),
            epsilon=Spending(spent.epsilon, limit.epsilon),
            category_epsilon=Spending(spent.category_epsilon, limit.category_epsilon),
            cell_bits=Spending(spent.cell_bits, limit.cell_bits),
            n_records=ledger.balances.n_charged(name),
            n_releases=ledger.n_releases[name],
            n_reuses=ledger.n_reuses[name],
            n_tests=ledger.n_tests(name),
            n_cuts=len({(key[2], cut) for key, cuts in ledger.grids.items() if key[0] == name for cut in cuts}),
            n_answered=ledger.n_answered[name],
        )
