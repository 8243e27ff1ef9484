"""Ledger statement: spent and remaining budget, per column and per record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from opboost.privacy.guarantee import html_table, rounded_up
from parties.config.reading import read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, naming
from parties.ledger.budget import Budget
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.costs import Unit
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.reports.plain import plain
from parties.storage.sqlite import is_begun
from parties.vertical.release_accounts import has_training_release
from protocols.messages.vertical import Task

DEFAULT_PATH = Path("runs/ledger.sqlite")

# Digits of what is left of a budget.
_ROUNDED_DOWN = Context(prec=4, rounding=ROUND_FLOOR)


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
    knows_limits : bool
        Whether limits are those of a run file; without one none is known.
    """

    path: Path
    n_lines: int
    peers: tuple[str, ...]
    n_records: int
    record: Spending
    record_cell_bits: Spending
    columns: tuple[ColumnStatement, ...]
    knows_limits: bool = True

    @property
    def n_spared(self) -> int:
        """Cells of its records that were never charged: of columns that were scouted alone, or left out since."""
        return sum(self.n_records - column.n_records for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Statement as plain values for JSON; infinity is the string ``"inf"``, no limit is None."""
        columns = [as_document(column) for column in self.columns]
        return {**as_document(self), "path": str(self.path), "columns": columns}

    def _repr_html_(self) -> str:
        spent = rounded_up(self.record.spent)
        sentence = f"The worst of {self.n_records} records has spent {spent} over all columns."
        rows = [
            (column.column, rounded_up(column.epsilon.spent), column.n_records, column.n_releases)
            for column in self.columns
        ]
        return html_table(sentence, ("column", "spent per unit", "records", "draws"), rows)


def left_over(remaining: float) -> str:
    """Remaining budget in four digits, rounded down; a billionth less than a number counts as that number."""
    if math.isinf(remaining):
        return "infinite"
    return f"{float(_ROUNDED_DOWN.create_decimal_from_float(remaining + abs(remaining) * 1e-9)):.4g}"


def as_document(found: Any) -> dict[str, Any]:
    """A statement as plain values for JSON; what remains stands beside what was spent."""
    document: dict[str, Any] = plain(found)
    for name, value in document.items():
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
    budget = Budget() if run_file is None else _budget(run_file, read_run(run_file, PassiveRun))
    with Ledger(ledger_path(run_file, path), create=False) as ledger:
        ledger.verify()
        return replace(statement(ledger, budget), knows_limits=run_file is not None)


def known_statement(run_file: Path, run: PassiveRun, *, is_over: bool = False) -> Statement | None:
    """Sum up a passive party's ledger; None if there is none or, of a run that is over, if that has nothing of it."""
    # What is over is reported though its ledger was lost since.
    if not (is_begun if is_over else is_chain_begun)(run.ledger.path):
        return None
    occasion = Occasion(run_id=run.run_id, task=Task.TRAIN.value, peer=run.active.name)
    with Ledger(run.ledger.path, create=False) as ledger:
        if is_over and not has_training_release(ledger, occasion):
            return None
        ledger.verify()
        return statement(ledger, _budget(run_file, run))


def _budget(run_file: Path, run: PassiveRun) -> Budget:
    """A run file's limits, in the steps of its schema."""
    schema, _ = read_schema(run.table_schema)
    with naming(run_file):
        return run.ledger.budget.budget(schema)


def ledger_path(run_file: Path | None, path: Path | None) -> Path:
    """The ledger that is meant: one that is named, a run file's, or the usual one."""
    if path is None and run_file is not None:
        return read_run(run_file, PassiveRun).ledger.path
    if path is not None and not path.name:
        raise ConfigError(f"--path {path} is a folder, where a ledger is needed. Nothing was changed")
    return path or DEFAULT_PATH


def statement(ledger: Ledger, budget: Budget) -> Statement:
    """Sum up a ledger that was verified when it was opened.

    Where a column's step, as the schema says it today, spans several of the units that it is charged by, what it has
    spent is per step, as its limit is.
    """
    n_units = {name: ledger.sums.balances.units_in_step(name, step) for name, step in budget.steps.items()}
    epsilon, cell_bits = ledger.sums.balances.worst_record(n_units)
    return Statement(
        path=ledger.path,
        n_lines=ledger.n_lines,
        peers=tuple(sorted(ledger.sums.peers)),
        n_records=ledger.sums.balances.n_records,
        record=Spending(epsilon, budget.per_record),
        record_cell_bits=Spending(cell_bits, budget.cell_bits_per_record),
        columns=tuple(_columns(ledger, budget, n_units)),
    )


def _columns(ledger: Ledger, budget: Budget, n_units: Mapping[str, int]) -> Iterator[ColumnStatement]:
    for name in sorted(ledger.sums.balances.columns | set(budget.columns)):
        unit, n, limit = ledger.sums.balances.units.get(name), n_units.get(name, 1), budget.limit(name)
        step = budget.steps.get(name, 0.0)
        spent = ledger.sums.balances.worst(name).times(n)
        yield ColumnStatement(
            column=name,
            unit=unit if n == 1 else Unit(step, f"a step of {step:g}, {n} units of its account"),
            epsilon=Spending(spent.epsilon, limit.epsilon),
            category_epsilon=Spending(spent.category_epsilon, limit.category_epsilon),
            cell_bits=Spending(spent.cell_bits, limit.cell_bits),
            n_records=ledger.sums.balances.n_charged(name),
            n_releases=ledger.sums.n_releases[name],
            n_reuses=ledger.sums.n_reuses[name],
            n_tests=ledger.sums.n_tests(name),
            # Cuts of other points or bounds may have the same numbers.
            n_cuts=len({(*key[1:3], cut) for key, cuts in ledger.sums.grids.items() if key[0] == name for cut in cuts}),
            n_answered=ledger.sums.n_answered[name],
        )
