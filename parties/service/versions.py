"""Versions: the model whose scores are answered, and beside it a shadow whose scores are only compared.

Both score every request, each with a conversation of its own with its passive parties. `Versions.swap` changes them
while requests are scored: every request is answered by one model, the one that answered when it came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from opboost.arrays import Mask
from opboost.errors import OpBoostError
from parties.config.vertical import ActiveRun
from parties.errors import PartyError, Unavailable
from parties.runs.joint_model import JointModel
from parties.service.metrics import ServiceMetrics
from parties.service.requests import OwnRecords, RecordBody, ScoresBody
from parties.service.scorer import Scorer
from parties.service.waiting_queries import Scored, ScoreQuery
from parties.vertical.prediction_output import prediction_columns
from parties.vertical.reasons import check_reasons, reason_table
from protocols.messages.prediction import RecordStatus

# The status of a record that the active party itself does not know.
UNKNOWN_HERE = "missing_active_columns"


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A model that scores requests.

    Attributes
    ----------
    run : ActiveRun
    model : JointModel
    digest : str
        Of the model's file.
    records : OwnRecords
    scorer : Scorer
    """

    run: ActiveRun
    model: JointModel
    digest: str
    records: OwnRecords
    scorer: Scorer

    @property
    def name(self) -> str:
        return self.run.run_id

    def query(self, records: Sequence[RecordBody], *, explains: bool, caller: str) -> tuple[Mask, ScoreQuery]:
        """Which records can be scored, and the query about these.

        Raises
        ------
        PartyError, OpBoostError
            If ids or columns do not fit the schema, or reasons the score policy.
        """
        if explains:
            check_reasons(self.model.ensemble, self.run.reveal)
        ids, own, is_there = self.records.of(records)
        # What waits is scored together, also where a schema that was read again lacks a column of the one before.
        needed = {feature.name for feature in self.model.ensemble.features if feature.owner is None}
        own = {name: values for name, values in own.items() if name in needed}
        if not is_there.all():
            ids = list(compress(ids, is_there.tolist()))
            own = {name: values[is_there] for name, values in own.items()}
        return is_there, ScoreQuery(tuple(ids), own, explains, caller)

    def rows(self, query: ScoreQuery, scored: Scored, n_reasons: int) -> list[dict[str, Any]]:
        """Scores as they are answered, by the score policy."""
        values, statuses = scored
        contributions = None
        if query.explains:
            values, contributions = values[:, 0], values[:, 1:]
        columns = self.run.reveal.coarse(prediction_columns(values, statuses, loss=self.model.ensemble.loss))
        scores = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows = [{name: _plain(cell) for name, cell in zip(columns, row, strict=True)} for row in scores]
        if contributions is not None:
            reasons = reason_table(self.model.ensemble, contributions, n_reasons).to_numpy(dtype=object)
            for row, cells, status in zip(rows, reasons, statuses.tolist(), strict=True):
                row["reasons"] = [
                    reason for reason in cells if isinstance(reason, str) and status == RecordStatus.ANSWERED
                ]
        return rows


def _plain(cell: Any) -> Any:
    """A cell as JSON has it: null for none."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


class Versions:
    """The model that answers, and its shadow.

    Parameters
    ----------
    answering : Version
    shadow : Version or None
    metrics : ServiceMetrics
    timeout_s : float
    """

    def __init__(
        self, answering: Version, shadow: Version | None, *, metrics: ServiceMetrics, timeout_s: float
    ) -> None:
        self.answering = answering
        self.shadow = shadow
        self.metrics = metrics
        self._timeout_s = timeout_s
        self._comparing: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[Version]:
        """Both, or the one that there is."""
        return [self.answering, *([] if self.shadow is None else [self.shadow])]

    def swap(self, answering: Version, shadow: Version | None) -> None:
        """Answer with another model from now on; requests at hand are answered by the one that they came to."""
        self.answering, self.shadow = answering, shadow

    async def score(self, body: ScoresBody, *, caller: str) -> dict[str, Any]:
        """Answer a request of a caller.

        Raises
        ------
        Unavailable
            If a passive party is away.
        TimeoutError
        PartyError, OpBoostError
            If the request does not fit the model.
        """
        version, shadow = self.answering, self.shadow
        is_there, query = version.query(body.records, explains=body.reasons > 0, caller=caller)
        scored = await self._submit(version, query)
        if shadow is not None:
            scores = scored[0][:, 0] if query.explains else scored[0]
            is_coarse = version.run.reveal.words() or shadow.run.reveal.words()
            task = asyncio.create_task(self._compare(shadow, body.records, caller, None if is_coarse else scores))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        found = iter(version.rows(query, scored, body.reasons) if query.ids else ())
        rows = [
            {**(next(found) if there else {"status": UNKNOWN_HERE, "prediction": None}), "id": record.id}
            for record, there in zip(body.records, is_there.tolist(), strict=True)
        ]
        self.metrics.count_records(version.name, (row["status"] for row in rows))
        return {"model": version.name, "scores": rows}

    async def _submit(self, version: Version, query: ScoreQuery) -> Scored:
        if not query.ids:
            return np.empty((0, 1)), np.empty(0, np.uint8)
        # Requests that were read together are asked for together.
        await asyncio.sleep(0)
        version.scorer.submit(query)
        return await asyncio.wait_for(asyncio.wrap_future(query.scored), self._timeout_s)

    async def _compare(
        self, shadow: Version, records: Sequence[RecordBody], caller: str, answered: np.ndarray | None
    ) -> None:
        """Score with the shadow, too, and count by how much it differs; no failure of it reaches the caller.

        What differs tells of the scores, so under a score policy (None) it is not counted.
        """
        try:
            _, query = shadow.query(records, explains=False, caller=caller)
            scores, _ = await self._submit(shadow, query)
        except (Unavailable, TimeoutError, PartyError, OpBoostError):
            self.metrics.shadow_failed(shadow.name)
            return
        if answered is None:
            return
        if len(scores) and scores.shape == answered.shape:
            differences = np.abs(scores - answered).ravel()
            self.metrics.compare(shadow.name, differences[np.isfinite(differences)].tolist())
        else:
            self.metrics.shadow_failed(shadow.name)
