"""A worker's account over all its runs: what each promises, to whom, and that their sum stays within its budget.

One line per run, charged before the first answer leaves, and once however often the worker is started for it. Losses of
several models on the same records add up: the sums of epsilon and of delta are what all of them promise together. A run
that goes on from another one promises for both, so that the larger of their charges counts; a second one that goes on
from the same costs as much as any run, since no record's account knows of what the first one spent. Turns of an owner
in a chain have lines, too, so that none is drawn twice, and cost nothing more. The lines seal one another
(`parties.ledger.hash_chain`). Lines of earlier versions, which did not, are taken over as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from parties.errors import OverBudget, RunFolderError
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.hash_chain import HashChain
from parties.ledger.ledger_lines import run_fields, turn_fields
from parties.ledger.run_charge import RunBudget, RunCharge
from parties.runs.run_folder import RunFolder
from parties.storage.sqlite import reporting


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPosition:
    """Position of a run in an account.

    Attributes
    ----------
    path : Path
    n_runs : int
        That were charged so far.
    spent : tuple of (float, float)
        Sums of epsilon and delta over them.
    cost : tuple of (float, float)
        Of the run in question.
    is_charged : bool
        Whether it is one of them.
    remaining : tuple of (float or None, float or None)
        Of the budget, after the run; below 0 if it would be refused, None for no limit.
    """

    path: Path
    n_runs: int
    spent: tuple[float, float]
    cost: tuple[float, float]
    is_charged: bool
    remaining: tuple[float | None, float | None]


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
        self._runs: dict[tuple[str, str], RunCharge] = {}
        # What a run and all those that it goes on from have cost together.
        self._costs: dict[tuple[str, str], tuple[float, float]] = {}
        # Runs for which another one stands, that goes on from them.
        self._continued: set[tuple[str, str]] = set()
        self._holders: dict[tuple[str, str], str] = {}
        # Digests of the trees before each turn of a chain that was drawn.
        self._turns: dict[tuple[str, str, int], str] = {}
        self._lines = HashChain(path, count=self._count)
        try:
            self._lines.refresh()
            with reporting(path):
                self._take_over_unsealed()
        except BaseException:
            self.close()
            raise

    def check(self, charge: RunCharge) -> None:
        """Refuse a run that would go over the budget; one that was charged before is not refused.

        Raises
        ------
        OverBudget
        """
        self._lines.refresh()
        self._check(charge)

    def charge(self, charge: RunCharge, holder: str = "") -> None:
        """Enter a run, once; or refuse it.

        Parameters
        ----------
        charge : RunCharge
        holder : str
            Tells the noise that is paid for from all other. Of runs of earlier versions it is not known.

        Raises
        ------
        OverBudget
            Also if the run was charged for other noise: by another process, from another run folder.
        """
        with self._lines.adding() as add:
            if not self._check(charge):
                add(run_fields(**asdict(self._entered(charge)), holder=holder))
            elif self._holders[charge.run, charge.coordinator] != holder:
                raise OverBudget(
                    f"{self._path}: run {charge.run!r} was charged for answers from another run folder, and the same "
                    "charge does not pay for other ones; choose another run_id. Nothing was sent"
                )

    def note_turn(self, charge: RunCharge, turn: int, trees: str) -> None:
        """Enter a turn of a chain before its tree is drawn, with a digest of the trees before it, once; or refuse it.

        Raises
        ------
        RunFolderError
            If it was entered after other trees: the same noise on other residuals is a second release.
        """
        with self._lines.adding() as add:
            before = self._turns.get((charge.run, charge.coordinator, turn))
            if before is None:
                add(turn_fields(run=charge.run, coordinator=charge.coordinator, turn=turn, trees=trees))
            elif before != trees:
                raise RunFolderError(
                    f"{self._path}: the tree of turn {turn + 1} of run {charge.run!r} was drawn before, after other "
                    "trees than the run folder holds now; a second one is not drawn. Bring the folder back as it was "
                    "or choose another run_id everywhere"
                )

    def knows(self, charge: RunCharge, holder: str | None = None) -> bool:
        """Whether the run was charged before, and by this holder if one is given."""
        self._lines.refresh()
        key = charge.run, charge.coordinator
        return key in self._runs and holder in (None, self._holders[key])

    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta over all runs."""
        self._lines.refresh()
        return self._spent()

    def charges(self) -> tuple[RunCharge, ...]:
        """The runs that were charged, in their order."""
        self._lines.refresh()
        return tuple(self._runs.values())

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _count(self, line: dict[str, Any]) -> None:
        if line["kind"] == "turn":
            self._turns[line["run"], line["coordinator"], int(line["turn"])] = str(line["trees"])
            return
        if line["kind"] != "run":
            raise ValueError("a kind of line that this version does not know")
        found = RunCharge(
            run=line["run"],
            coordinator=line["coordinator"],
            epsilon=float(line["epsilon"]),
            delta=float(line["delta"]),
            continues=str(line.get("continues", "")),
            continued_holder=str(line.get("continued_holder", "")),
        )
        key, before = (found.run, found.coordinator), (found.continues, found.coordinator)
        self._runs[key] = found
        epsilon, delta = self._costs.get(before, (0.0, 0.0))
        self._costs[key] = max(epsilon, found.epsilon), max(delta, found.delta)
        self._holders[key] = str(line.get("holder", ""))
        if found.continues:
            self._continued.add(before)

    def added(self, charge: RunCharge) -> tuple[float, float]:
        """What a charge that is not entered yet would add to the sums of epsilon and delta."""
        epsilon, delta = self._costs.get((self._entered(charge).continues, charge.coordinator), (0.0, 0.0))
        # Of two infinite ones the difference is no number, and counts as 0.
        return max(0.0, charge.epsilon - epsilon), max(0.0, charge.delta - delta)

    def _spent(self) -> tuple[float, float]:
        counted = [cost for key, cost in self._costs.items() if key not in self._continued]
        return sum(epsilon for epsilon, _ in counted), sum(delta for _, delta in counted)

    def _entered(self, charge: RunCharge) -> RunCharge:
        """The charge as it is entered: it goes on from a run that is here, and from which no other one does."""
        before = charge.continues, charge.coordinator
        # No run goes on from one whose charge was entered without a holder, by an early version.
        is_known = before in self._runs and self._holders[before] == charge.continued_holder != ""
        is_first = is_known and before not in self._continued
        return charge if is_first else replace(charge, continues="")

    def _take_over_unsealed(self) -> None:
        """Seal the lines of a file that an earlier version wrote, and let go of its table, both or neither."""
        database = self._lines.database
        if database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'runs'").fetchone() is None:
            return
        with self._lines.adding() as add:
            for run, coordinator, epsilon, delta, at in database.execute("SELECT * FROM runs ORDER BY time").fetchall():
                if (run, coordinator) not in self._runs:
                    add(run_fields(run=run, coordinator=coordinator, epsilon=epsilon, delta=delta, at=at))
            database.execute("DROP TABLE IF EXISTS runs")

    def _check(self, charge: RunCharge) -> bool:
        """Whether the run was charged before; refuses it if not, and the budget is too small."""
        found = self._runs.get((charge.run, charge.coordinator))
        if found is not None:
            if (found.epsilon, found.delta) != (charge.epsilon, charge.delta):
                raise OverBudget(
                    f"{self._path} has run {charge.run!r} with another promise; choose another run_id. Nothing was sent"
                )
            return True
        self._budget.check(self._path, self._spent(), self.added(charge))
        return False


@contextmanager
def worker_ledger(path: Path, budget: RunBudget) -> Iterator[WorkerLedger]:
    """The account, closed afterwards."""
    ledger = WorkerLedger(path, budget)
    try:
        yield ledger
    finally:
        ledger.close()


def ledger_position(path: Path, budget: RunBudget, charge: RunCharge) -> LedgerPosition:
    """Where a run stands in an account, which is not begun by asking.

    Raises
    ------
    LedgerError
        If the file cannot be used.
    """
    n_runs, spent, is_charged, cost = 0, (0.0, 0.0), False, (charge.epsilon, charge.delta)
    if is_chain_begun(path):
        with worker_ledger(path, budget) as ledger:
            n_runs, spent, is_charged = len(ledger.charges()), ledger.spent(), ledger.knows(charge)
            cost = cost if is_charged else ledger.added(charge)
    more = (0.0, 0.0) if is_charged else cost
    limits = budget.epsilon, budget.delta
    left = [None if limit is None else limit - a - b for limit, a, b in zip(limits, spent, more, strict=True)]
    return LedgerPosition(
        path=path, n_runs=n_runs, spent=spent, cost=cost, is_charged=is_charged, remaining=(left[0], left[1])
    )


def check_charge(ledger: WorkerLedger, charge: RunCharge, folder: RunFolder) -> None:
    """Refuse a run over the budget, and one that was paid for in a folder that is gone.

    Raises
    ------
    OverBudget, RunFolderError
    """
    ledger.check(charge)
    if ledger.knows(charge) and not folder.has_released:
        raise RunFolderError(
            f"run {charge.run!r} was charged for, but {folder.path} holds nothing of it, and the same charge does not "
            "pay for other answers. Bring the folder back or choose another run_id. Nothing was sent"
        )
