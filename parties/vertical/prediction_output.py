"""Output of predictions: a table keyed by id, and metrics where labels are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.errors import DataError
from opboost.fit_quality import fit_quality
from opboost.metrics import default_metric, evaluate
from opboost.trees.losses import Loss, Quantiles, Several
from opboost.trees.tree import Ensemble
from parties.config.score_policy import RevealSection
from parties.errors import RecordsRefused
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.tables.party_table import PartyTable
from parties.tables.record_ids import with_parts
from parties.vertical.prediction_client import Evaluation, Statuses
from parties.vertical.reasons import predicted_and_explained, reason_table
from protocols.messages.prediction import RecordStatus

_WORDS = {RecordStatus.ANSWERED: "ok", RecordStatus.UNKNOWN: "missing_passive_columns"}


def status_word(status: RecordStatus) -> str:
    """A record's status as it stands in files."""
    return _WORDS.get(status, status.name.lower())


_STATUS_WORDS = np.array([status_word(status) for status in RecordStatus], dtype=object)


def count_statuses(statuses: Statuses) -> dict[str, int]:
    """Number of records of each status that occurs, by the words of files."""
    return {status_word(status): n for status in RecordStatus if (n := int((statuses == status).sum()))}


def note_unanswered(counts: Mapping[str, int], log: RunLog, name: str) -> None:
    """Log the number of records without a prediction, and the reasons.

    Parameters
    ----------
    counts : mapping of str to int
        See `count_statuses`.
    log : RunLog
    name : str
        Of the file or table with the predictions.

    Raises
    ------
    RecordsRefused
        If a passive party knows records, or may know them, and did not answer.
    """
    refused = dict(counts)
    n_answered, n_unknown = (
        refused.pop(status_word(status), 0) for status in (RecordStatus.ANSWERED, RecordStatus.UNKNOWN)
    )
    if n_unknown:
        log.step("incomplete", f"{n_unknown} records are unknown to a passive party and have no prediction")
    if refused:
        words = ", ".join(f"{n} ({word})" for word, n in refused.items())
        rest = f"{name} holds the others and says which" if n_answered else f"{name} says which, and holds no score"
        raise RecordsRefused(f"a passive party refused {words} of {sum(counts.values())} records; {rest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFormat:
    """Format of the table that predictions are written as: its columns and their types.

    Attributes
    ----------
    ensemble : Ensemble
    reveal : RevealSection
        The part of the scores that is written.
    n_reasons : int
        Reasons of each record, at most; 0 for none.
    id_columns : sequence of str
        Columns that make up the id.
    """

    ensemble: Ensemble
    reveal: RevealSection
    n_reasons: int
    id_columns: Sequence[str]

    @property
    def evaluate(self) -> Evaluation:
        """The function that computes predictions, and contributions if reasons are asked for."""
        return predicted_and_explained if self.n_reasons else Ensemble.predict

    def table(self, ids: pd.Index, evaluated: Values, statuses: Statuses) -> pd.DataFrame:
        """The table of records, by what `evaluate` has computed of them."""
        reasons = pd.DataFrame(index=range(len(ids)))
        if self.n_reasons:
            reasons = reason_table(self.ensemble, evaluated[:, 1:], self.n_reasons)
            evaluated = evaluated[:, 0]
        revealed = self.reveal.apply(prediction_table(ids, evaluated, statuses, loss=self.ensemble.loss))
        return with_parts(revealed.join(reasons), self.id_columns)

    def sample(self, ids: pd.Index) -> pd.DataFrame:
        """The table of the first record with made-up scores and reasons: columns and types, before anybody is asked."""
        shape = self.evaluate(self.ensemble, np.zeros((1, len(self.ensemble.features)))).shape
        return self.table(ids[:1], np.ones(shape), np.zeros(1, np.uint8))


def prediction_table(
    ids: pd.Index, predictions: Values, statuses: Statuses, *, loss: Loss | None = None
) -> pd.DataFrame:
    """Predictions keyed by id, with the columns of `prediction_columns`."""
    return pd.DataFrame({"id": ids, **prediction_columns(predictions, statuses, loss=loss)})


def prediction_columns(predictions: Values, statuses: Statuses, *, loss: Loss | None = None) -> dict[str, NDArray[Any]]:
    """Predictions and a status each; several classes give a column each beside the most probable one.

    Several quantiles give a column each.
    """
    status = _STATUS_WORDS[statuses]
    if predictions.ndim == 1:
        return {"prediction": predictions, "status": status}
    if isinstance(loss, Quantiles):
        quantiles = zip(loss.quantile_alpha, predictions.T, strict=True)
        return {**{f"quantile_{float(a)!r}": column for a, column in quantiles}, "status": status}
    if isinstance(loss, Several):
        return {**{f"prediction_{k}": column for k, column in enumerate(predictions.T)}, "status": status}
    is_scored = statuses == RecordStatus.ANSWERED
    chosen = np.where(is_scored, np.nan_to_num(predictions).argmax(axis=1), np.nan)
    classes = {f"probability_{k}": predictions[:, k] for k in range(predictions.shape[1])}
    return {"prediction": chosen, **classes, "status": status}


def score(
    folder: RunFolder, log: RunLog, model: JointModel, table: PartyTable, predictions: Values, known: Mask, mode: str
) -> dict[str, float]:
    """Metrics of predictions, where the table holds labels of both classes and no others; empty elsewhere."""
    if table.labels is None:
        return {}
    columns = table.labels.reshape(len(known), -1)
    known = known & np.isfinite(columns).all(axis=1)
    if (columns[known] == columns[known][:1]).all(axis=0).any():
        return {}
    loss = model.ensemble.loss
    try:
        loss.check_labels(table.labels[known])
    except DataError as error:
        log.step("not scored", f"metrics are left out: {error}")
        return {}
    metrics = evaluate(loss, table.labels[known], predictions[known])
    basis = f"records scored in mode {mode}"
    fit = fit_quality(loss, table.labels[known], predictions[known], basis=basis, metric=default_metric(loss))
    if fit is not None:
        folder.note_fit(fit)
    metrics_path = folder.path / "metrics.json"
    before = folder.read_json("metrics.json") if metrics_path.exists() else {}
    folder.write_json("metrics.json", {**before, mode: {**metrics, "n_rows": int(known.sum())}})
    log.step("scored", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()), **metrics)
    return metrics
