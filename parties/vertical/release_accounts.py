"""A passive party's account in a run: its ledger and store with the run's budget, and what is released on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.preprocess import EncodedColumn
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.vertical import PassiveRun
from parties.ledger.charged_release import Account, open_ledger_and_store
from parties.ledger.ledger_lines import Occasion
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.tables.record_ids import Ids
from parties.vertical.prediction_server import Answerer, RecordSource
from parties.vertical.preparation import bits
from parties.vertical.rank_sender import ReleaseColumns
from parties.vertical.rate_limits import Allowance, allowance_path
from protocols.messages.vertical import Task


@contextmanager
def account_of(run: PassiveRun, schema: TableSchema, task: Task) -> Iterator[Account]:
    """The run's ledger and store, verified, and what its budget allows."""
    budget = run.ledger.budget.budget(schema)
    with open_ledger_and_store(run.ledger.path) as (ledger, store):
        occasion = Occasion(run_id=run.run_id, task=task.value, peer=run.active.name)
        keeps = run.changed_values == "keep"
        yield Account(ledger=ledger, store=store, budget=budget, occasion=occasion, rng=bits(run), keeps=keeps)


@contextmanager
def answerer_of(
    run: PassiveRun, schema: TableSchema, router: Router, records: RecordSource, log: RunLog, *, logs_releases: bool
) -> Iterator[Answerer]:
    """What answers requests about a table on the run's account and within its limits.

    With `logs_releases`, every request that draws is a step of the log; the ledger has it in any case.
    """
    limits = run.serve.limits()
    with ExitStack() as stack:
        account = stack.enter_context(account_of(run, schema, Task.PREDICT))
        allowance = None
        if limits.is_needed:
            allowance = stack.enter_context(Allowance(allowance_path(run.ledger.path), limits, run.active.name))
            if behind_s := allowance.seconds_behind():
                log.step("clock", f"the clock is {behind_s} s behind the last request: until then no limit is renewed")
        yield Answerer(
            router,
            records,
            release=(replace(account, note=noting(log, account, "cells")) if logs_releases else account).records,
            may_route=run.allow_routed,
            allowance=allowance,
            max_rows=run.serve.batch_rows,
        )


def release_once(account: Account, ids: Ids, folder: RunFolder, log: RunLog) -> ReleaseColumns:
    """Release columns on an account; a run that has released before sends the same again or nothing."""

    def release(mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn]) -> Iterator[ReleasedColumn]:
        logging = replace(account, note=noting(log, account, "columns"))
        yield from logging.columns(mechanisms, encoded, ids, may_draw=not folder.has_released)
        folder.mark_release()

    return release


def noting(log: RunLog, account: Account, of_what: str) -> Callable[[int, int], None]:
    """How much of a release was drawn, as a step of the log."""

    def note(n_drawn: int, n_reused: int) -> None:
        log.step(
            "released",
            f"{n_drawn} {of_what} drawn and charged to {account.ledger.path.name}, {n_reused} taken from the store",
            n_drawn=n_drawn,
            n_reused=n_reused,
        )

    return note
