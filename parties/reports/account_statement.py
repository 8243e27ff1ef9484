"""Statement of a worker's account, or of that of an owner in a chain: spent and remaining budget over its runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opboost.privacy.guarantee import html_table, rounded_up
from parties.config.reading import check_role, read_run
from parties.errors import LedgerError
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.model_ledger import worker_ledger
from parties.ledger.run_charge import RunCharge
from parties.reports.ledger_statement import Spending, as_document, left_over


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatement:
    """Statement of a worker's account, or of that of an owner in a chain, verified.

    Attributes
    ----------
    path : Path
    runs : tuple of RunCharge
    epsilon, delta : Spending
        Sums over the runs.
    """

    path: Path
    runs: tuple[RunCharge, ...]
    epsilon: Spending
    delta: Spending

    def to_dict(self) -> dict[str, Any]:
        """Statement as plain values for JSON, as that of a ledger."""
        return {**as_document(self), "path": str(self.path)}

    def _repr_html_(self) -> str:
        rows = [
            (run.run, run.coordinator, rounded_up(run.epsilon), rounded_up(run.delta), run.continues)
            for run in self.runs
        ]
        return html_table(self.sentence, ("run", "coordinator", "epsilon", "delta", "counts also for"), rows)

    @property
    def sentence(self) -> str:
        """The sums in words."""
        n, left = len(self.runs), budget_left(self.epsilon.remaining, self.delta.remaining)
        return (
            f"{n} run{'s have' if n != 1 else ' has'} spent epsilon {rounded_up(self.epsilon.spent)} and delta "
            f"{rounded_up(self.delta.spent)} of every record; "
            + (f"of the budget, {left} is left." if left else "there is no limit.")
        )


def budget_left(epsilon: float | None, delta: float | None) -> str:
    """Remaining budget of an account, in words; empty where there are no limits."""
    left = {"epsilon": epsilon, "delta": delta}
    return " and ".join(f"{name} {left_over(remaining)}" for name, remaining in left.items() if remaining is not None)


def read_account(run_file: Path) -> AccountStatement:
    """Verify the account that a worker's run file names, or an owner's in a chain, and sum it up.

    Raises
    ------
    LedgerError
        If the account is not there or cannot be trusted.
    """
    # Loaded here: a passive party reads its ledger without the recipes of horizontal training.
    from parties.config.chain import OwnerRun
    from parties.config.horizontal import WorkerRun

    is_worker = check_role(run_file, "worker", "owner") == "worker"
    run = read_run(run_file, WorkerRun) if is_worker else read_run(run_file, OwnerRun)
    budget, path = run.ledger.budget, run.ledger.path
    if not is_chain_begun(path):
        raise LedgerError(f"{path} is not there: no run was charged")
    with worker_ledger(path, budget) as ledger:
        charges, (epsilon, delta) = ledger.charges(), ledger.spent()
    return AccountStatement(
        path=path, runs=charges, epsilon=Spending(epsilon, budget.epsilon), delta=Spending(delta, budget.delta)
    )
