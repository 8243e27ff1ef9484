"""A passive party's account in a run: its ledger, the run's budget, and releases and answers that are charged to it."""

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
from parties.ledger.due_cells import RunBlocks, run_in_process
from parties.ledger.ledger_lines import Occasion
from parties.ledger.pricing import unpriced
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import throttled
from parties.tables.blocks import EncodedTable, by_row, record_names
from parties.tables.key_sets import KeySet, Names, is_member
from parties.tables.record_ids import Ids
from parties.vertical.prediction_server import Answerer, RecordSource, ReleaseRecords
from parties.vertical.rate_limits import Allowance
from parties.vertical.release_offer import ReleaseTable
from protocols.messages.vertical import Task


class TrainingRecords:
    """The records that any run on an account's ledger released for training to its active party."""

    def __init__(self, account: Account) -> None:
        self._ledger, self._peer = account.ledger, account.occasion.peer
        self._found: tuple[pd.Index | None, list[str], Mask] = (None, [], np.zeros(0, np.bool_))

    def among(self, ids: pd.Index) -> Mask:
        """Mask of a table's records that were released; computed anew when the table or these releases have changed.

        Other releases cause no new lookup, since its duration would reveal them: those for predictions, and those for
        training to another party.
        """
        self._ledger.refresh_trained()
        released = self._ledger.sums.trained(self._peer)
        if self._found[0] is not ids or self._found[1] != released:
            self._found = ids, released, _are_in(record_names(ids), self._ledger.trained(self._peer))
        return self._found[2]


@contextmanager
def account_of(run: PassiveRun, schema: TableSchema, task: Task) -> Iterator[Account]:
    """Open the run's ledger, verified, with its budget."""
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
    """Open the answerer of requests about a table, on the run's account and within its limits.

    Requests that draw are logged, throttled where there are many; the ledger has every draw. A party that `stays_up`
    logs only requests over budget, and answers them with a status, since an error would end the conversation. `steps`
    pads the time of desensitized answers, so that it does not reveal earlier draws.

    Raises
    ------
    LedgerError
        Also if the ledger is not the one that the run was trained on.
    """
    with account_of(run, schema, Task.PREDICT) as account, allowance_of(run, log) as allowance:
        check_training_release(account.ledger, account.occasion)
        yield Answerer(
            router,
            records,
            release=_release_records(account, None if stays_up else log),
            steps=steps,
            may_route=run.allow_routed,
            allowance=allowance,
            max_rows=run.serve.batch_rows,
            trained=None if run.routed.training_records else TrainingRecords(account).among,
            note_over_budget=throttled(partial(_note_over_budget, log)) if stays_up else None,
        )


def has_training_release(ledger: Ledger, occasion: Occasion) -> bool:
    """Whether a ledger has a line about a run's release for training to its peer."""
    of_run = {"run_id": occasion.run_id, "task": Task.TRAIN.value, "peer": occasion.peer}.items()
    return any(of_run <= ledger.line(number).items() for number in range(1, ledger.n_lines + 1))


def released_otherwise(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, is_secure: bool) -> list[str]:
    """Columns with earlier releases under other settings, whose losses add to those of a new release."""
    families = {mechanism.schema.name: unpriced(mechanism, is_secure=is_secure).family for mechanism in mechanisms}
    # Charges of an earlier version have no family.
    changed = {name for family, name in ledger.sums.families.items() if family not in ("", families.get(name))}
    return [name for name in families if name in changed]


def check_training_release(ledger: Ledger, occasion: Occasion) -> None:
    """Refuse to answer for a run whose release for training is not in the ledger.

    With such a ledger the run's training records would pass for new ones, and its cells would be drawn a second time.

    Raises
    ------
    LedgerError
    """
    if not has_training_release(ledger, occasion):
        raise LedgerError(
            f"{ledger.path} has nothing of what run {occasion.run_id!r} released to {occasion.peer}: it is another "
            "ledger than the run's, or an older copy of it. Bring the run's ledger back. Nothing was released"
        )


@contextmanager
def allowance_of(run: PassiveRun, log: RunLog) -> Iterator[Allowance | None]:
    """Open the rate limits of the run's active party; None without limits."""
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
    run_blocks: RunBlocks = run_in_process,
) -> ReleaseTable:
    """Make the function that releases a table on an account; a run that has released before releases the same again.

    Without `ids`, the table's blocks have names already. `order` is the order in which ranks are sent. The records are
    compared with an earlier attempt's before any stored draw is looked up: otherwise a second attempt with other
    records would reveal, by succeeding, that all of these were released to somebody before.
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
        cells = account.release(mechanisms, table.blocks, may_draw=not folder.has_released, run_blocks=run_blocks)
        n_drawn = sum(not column.is_drawn for column in cells)
        _note(log, account, "columns", n_drawn, len(cells) - n_drawn)
        folder.mark_release(records)
        held_out = account.ledger.trained(account.occasion.peer, held_out=True)
        n_before = sum(int(_are_in(block["names"], held_out).sum()) for block in table.blocks)
        if n_before:
            log.step(
                "held out before",
                f"{n_before} of the released records were held out in another run with {account.occasion.peer}, "
                "which may have had exact answers about them",
                records=n_before,
            )

    return release


def _records_digest(table: EncodedTable, order: NDArray[np.int64] | None) -> str:
    """Digest of a table's records in the order of its rows, and of the order in which their ranks are sent."""
    digest = hashlib.sha256(b"" if order is None else np.ascontiguousarray(order, "<i8"))
    for block in table.blocks:
        digest.update(by_row(block, block["names"]))
    return digest.hexdigest()


def _are_in(names: Names, sets: Sequence[KeySet]) -> Mask:
    """Mask of the names that belong to any of the sets."""
    order, is_found = np.argsort(names, kind="stable"), np.zeros(len(names), np.bool_)
    for members in sets:
        is_found[order] |= is_member(names[order], members)
    return is_found


def _release_records(account: Account, log: RunLog | None) -> ReleaseRecords:
    note = throttled(_note)

    def release(
        mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: pd.Index
    ) -> list[ReleasedColumn]:
        columns, cells = account.records(mechanisms, encoded, ids)
        if log is not None:
            note(log, account, "cells", sum(column.n_new for column in cells), sum(column.n_found for column in cells))
        return columns

    return release


def _note_over_budget(log: RunLog, error: OverBudget) -> None:
    """Log why a request was refused; its sender is not told the reason."""
    log.step("over budget", f"a request was refused: {error}")


def _note(log: RunLog, account: Account, of_what: str, n_drawn: int, n_reused: int) -> None:
    """Log how much of a release was drawn."""
    log.step(
        "released",
        f"{n_drawn} {of_what} drawn and charged to {account.ledger.path.name}, {n_reused} taken from the store",
        n_drawn=n_drawn,
        n_reused=n_reused,
    )
