"""A worker's account over all its runs: what each promises, to whom, and that their sum stays within its budget.

One line per run, charged before the first answer leaves, and once however often the worker is started for it. Losses of
several models on the same records add up: the sums of epsilon and of delta are what all of them promise together. The
lines are not sealed like those of `parties.ledger`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from parties.errors import OverBudget
from parties.private_database import connect, reporting, transaction

_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (run TEXT NOT NULL, coordinator TEXT NOT NULL, epsilon REAL NOT NULL, "
    "delta REAL NOT NULL, time TEXT NOT NULL, PRIMARY KEY (run, coordinator))",
    *(
        f"CREATE TRIGGER IF NOT EXISTS no_{verb}_runs BEFORE {verb} ON runs "
        "BEGIN SELECT RAISE(ABORT, 'lines are only ever added'); END"
        for verb in ("UPDATE", "DELETE")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCharge:
    """What a run promises, and who asks."""

    run: str
    coordinator: str
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """The most that all runs may cost together; None for no limit."""

    epsilon: float | None = None
    delta: float | None = None


class WorkerLedger:
    """The account.

    Parameters
    ----------
    path : Path
    budget : RunBudget

    Raises
    ------
    LedgerError
        If the file cannot be used.
    """

    def __init__(self, path: Path, budget: RunBudget) -> None:
        self._path = path
        self._budget = budget
        self._database = connect(path, _TABLES)

    def check(self, charge: RunCharge) -> None:
        """Refuse a run that would go over the budget; one that was charged before is not refused.

        Raises
        ------
        OverBudget
        """
        with reporting(self._path), transaction(self._database):
            self._check(charge)

    def charge(self, charge: RunCharge) -> None:
        """Enter a run, once; or refuse it.

        Raises
        ------
        OverBudget
        """
        with reporting(self._path), transaction(self._database):
            if not self._check(charge):
                now = datetime.now(UTC).isoformat(timespec="seconds")
                values = (charge.run, charge.coordinator, charge.epsilon, charge.delta, now)
                self._database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", values)

    def knows(self, charge: RunCharge) -> bool:
        """Whether the run was charged before."""
        with reporting(self._path):
            return self._row(charge) is not None

    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta over all runs."""
        with reporting(self._path):
            row = self._database.execute("SELECT TOTAL(epsilon), TOTAL(delta) FROM runs").fetchone()
        return float(row[0]), float(row[1])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _check(self, charge: RunCharge) -> bool:
        """Whether the run was charged before; refuses it if not, and the budget is too small."""
        found = self._row(charge)
        if found is not None:
            if found != (charge.epsilon, charge.delta):
                raise OverBudget(
                    f"{self._path} has run {charge.run!r} with another promise; choose another run_id. Nothing was sent"
                )
            return True
        spent = self.spent()
        for name, limit, before, more in (
            ("epsilon", self._budget.epsilon, spent[0], charge.epsilon),
            ("delta", self._budget.delta, spent[1], charge.delta),
        ):
            if limit is not None and not before + more <= limit * (1 + 1e-12):
                raise OverBudget(
                    f"{self._path}: {name} {before:.6g} was spent and this run costs {more:.6g}, which is over the "
                    f"budget of {limit:.6g}. Nothing was sent"
                )
        return False

    def _row(self, charge: RunCharge) -> tuple[float, float] | None:
        query = "SELECT epsilon, delta FROM runs WHERE run = ? AND coordinator = ?"
        row: tuple[float, float] | None = self._database.execute(query, (charge.run, charge.coordinator)).fetchone()
        return row


@contextmanager
def worker_ledger(path: Path, budget: RunBudget) -> Iterator[WorkerLedger]:
    """The account, closed afterwards."""
    ledger = WorkerLedger(path, budget)
    try:
        yield ledger
    finally:
        ledger.close()
