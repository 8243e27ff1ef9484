"""A passive party's account in a run: its ledger with the run's budget, and what is released on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.preprocess import EncodedColumn
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.vertical import PassiveRun
from parties.errors import Disagreement, LedgerError, OverBudget
from parties.ledger.answer_steps import Steps, whole_steps
from parties.ledger.charged_release import Account
from parties.ledger.due_cells import Run, here
from parties.ledger.ledger_lines import Occasion
from parties.ledger.pricing import unpriced
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import seldom
from parties.tables.blocks import EncodedTable, by_row, record_names
from parties.tables.key_sets import KeySet, Names, is_member
from parties.tables.record_ids import Ids
from parties.vertical.prediction_server import Answerer, RecordSource, ReleaseRecords
from parties.vertical.rate_limits import Allowance
from parties.vertical.release_offer import ReleaseTable
from protocols.messages.vertical import Task


class TrainingRecords:
    """Which records were released for training to the active party of an account, in any run on its ledger."""

    def __init__(self, account: Account) -> None:
        self._ledger, self._peer = account.ledger, account.occasion.peer
        self._found: tuple[pd.Index | None, list[str], Mask] = (None, [], np.zeros(0, np.bool_))

    def among(self, ids: pd.Index) -> Mask:
        """Which of a table's records these are; looked up again where the table or these releases have changed.

        Releases for predictions change nothing, and those for training to somebody else no result: how long a lookup
        takes would tell of them.
        """
        self._ledger.refresh_trained()
        released = self._ledger.sums.trained(self._peer)
        if self._found[0] is not ids or self._found[1] != released:
            self._found = ids, released, _are_in(record_names(ids), self._ledger.trained(self._peer))
        return self._found[2]


@contextmanager
def account_of(run: PassiveRun, schema: TableSchema, task: Task) -> Iterator[Account]:
    """The run's ledger, verified, and what its budget allows."""
    budget = run.ledger.budget.budget(schema)
    with Ledger(run.ledger.path, create=task is Task.TRAIN) as ledger:
        occasion = Occasion(run_id=run.run_id, task=task.value, peer=run.active.name)
        yield Account(ledger=ledger, budget=budget, occasion=occasion, rng=run.bits, keeps=run.keeps)


@contextmanager
def answerer_of(
    run: PassiveRun,
    schema: TableSchema,
    router: Router,
    records: RecordSource,
    log: RunLog,
    *,
    stays_up: bool,
    steps: Steps = whole_steps,
) -> Iterator[Answerer]:
    """What answers requests about a table on the run's account and within its limits.

    Requests that draw are steps of the log, of very many some; the ledger has all in any case. A party that `stays_up`
    logs requests over budget instead, and answers them with a status: an error would end the conversation for others.
    `steps` hides in the time of desensitized answers what was drawn before.

    Raises
    ------
    LedgerError
        Also if the ledger is not the one that the run was trained on.
    """
    with account_of(run, schema, Task.PREDICT) as account, allowance_of(run, log) as allowance:
        check_knows(account.ledger, account.occasion)
        yield Answerer(
            router,
            records,
            release=_release_records(account, None if stays_up else log),
            steps=steps,
            may_route=run.allow_routed,
            allowance=allowance,
            max_rows=run.serve.batch_rows,
            trained=None if run.routed.training_records else TrainingRecords(account).among,
            note_over_budget=seldom(partial(_note_over_budget, log)) if stays_up else None,
        )


def knows(ledger: Ledger, occasion: Occasion) -> bool:
    """Whether a ledger has anything that a run released to its peer for training."""
    of_run = {"run_id": occasion.run_id, "task": Task.TRAIN.value, "peer": occasion.peer}.items()
    return any(of_run <= ledger.line(number).items() for number in range(1, ledger.n_lines + 1))


def released_otherwise(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, is_secure: bool) -> list[str]:
    """Columns that were released under other settings before: the losses of a new release add to those."""
    own = {mechanism.schema.name: unpriced(mechanism, is_secure=is_secure).family for mechanism in mechanisms}
    # Charges of an earlier version have no family.
    others = {name for family, name in ledger.sums.families.items() if family not in ("", own.get(name))}
    return [name for name in own if name in others]


def check_knows(ledger: Ledger, occasion: Occasion) -> None:
    """Refuse to answer for a run of which the ledger has nothing.

    Its training records would be taken for new ones, and its draws be made a second time.

    Raises
    ------
    LedgerError
    """
    if not knows(ledger, occasion):
        raise LedgerError(
            f"{ledger.path} has nothing of what run {occasion.run_id!r} released to {occasion.peer}: it is another "
            "ledger than the run's, or an older copy of it. Bring the run's ledger back. Nothing was released"
        )


@contextmanager
def allowance_of(run: PassiveRun, log: RunLog) -> Iterator[Allowance | None]:
    """How much the run's active party may ask for; None without limits."""
    if not run.serve.has_limits:
        yield None
        return
    with Allowance(run.ledger.path, run.serve, run.active.name) as allowance:
        if allowance.is_lost:
            log.step("limits", f"{allowance.path.name} was removed: no routed bits are left for today (UTC)")
        if behind_s := allowance.seconds_behind():
            log.step("clock", f"the clock is {behind_s} s behind the last request: until then no limit is renewed")
        yield allowance


def release_once(
    account: Account,
    ids: Ids | None,
    folder: RunFolder,
    log: RunLog,
    *,
    order: NDArray[np.int64] | None = None,
    run: Run = here,
) -> ReleaseTable:
    """Release a table on an account; a run that has released before sends the same again or nothing.

    Without `ids`, the table's blocks have names already. `order` is that in which the ranks travel. Before the store is
    looked up, the records are compared with those of an earlier attempt: whether others are sent would tell whether
    all of them were ever released to anybody.
    """

    def release(mechanisms: Sequence[ColumnMechanism], table: EncodedTable) -> None:
        if ids is not None:
            table.named(ids)
        records = _records_digest(table, order)
        if folder.has_released and folder.released_records != records:
            raise Disagreement(
                "other records are common now than were when this run released them, or their ranks would travel in "
                "another order: the ids of a party or an order.share in a run folder have changed, or the run began "
                "with an earlier version. Bring them back or choose another run_id on all sides. No ranks were sent"
            )
        cells = account.release(mechanisms, table.blocks, may_draw=not folder.has_released, run=run)
        n_drawn = sum(not one.is_drawn for one in cells)
        _note(log, account, "columns", n_drawn, len(cells) - n_drawn)
        folder.mark_release(records)
        before = account.ledger.trained(account.occasion.peer, held_out=True)
        n_before = sum(int(_are_in(block["names"], before).sum()) for block in table.blocks)
        if n_before:
            log.step(
                "held out before",
                f"{n_before} of the released records were held out in another run with {account.occasion.peer}, "
                "which may have had exact answers about them",
                records=n_before,
            )

    return release


def _records_digest(table: EncodedTable, order: NDArray[np.int64] | None) -> str:
    """Digest of a table's records, in the order of its rows, and of that in which their ranks travel."""
    found = hashlib.sha256(b"" if order is None else np.ascontiguousarray(order, "<i8"))
    for block in table.blocks:
        found.update(by_row(block, block["names"]))
    return found.hexdigest()


def _are_in(names: Names, sets: Sequence[KeySet]) -> Mask:
    """Which of some records belong to any of the sets."""
    order, is_found = np.argsort(names, kind="stable"), np.zeros(len(names), np.bool_)
    for members in sets:
        is_found[order] |= is_member(names[order], members)
    return is_found


def _release_records(account: Account, log: RunLog | None) -> ReleaseRecords:
    note = seldom(_note)

    def release(
        mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: pd.Index
    ) -> list[ReleasedColumn]:
        columns, cells = account.records(mechanisms, encoded, ids)
        if log is not None:
            note(log, account, "cells", sum(one.n_new for one in cells), sum(one.n_found for one in cells))
        return columns

    return release


def _note_over_budget(log: RunLog, error: OverBudget) -> None:
    """Log why a request was refused, which its sender is not told."""
    log.step("over budget", f"a request was refused: {error}")


def _note(log: RunLog, account: Account, of_what: str, n_drawn: int, n_reused: int) -> None:
    """Log how much of a release was drawn."""
    log.step(
        "released",
        f"{n_drawn} {of_what} drawn and charged to {account.ledger.path.name}, {n_reused} taken from the store",
        n_drawn=n_drawn,
        n_reused=n_reused,
    )
