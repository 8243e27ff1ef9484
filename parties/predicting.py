"""The active party with a trained model: ask the passive parties for the answers of their tests, and score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from opboost.arrays import Mask, Values
from opboost.trees.tree import Ensemble
from opboost.vertical import feature_matrix
from parties.agreement import conversation, greet_all
from parties.errors import Disagreement
from parties.party_a import JointModel
from parties.progress import Progress, no_progress
from protocols.channel import Channel, expect
from protocols.errors import UnexpectedMessage
from protocols.messages import Answers, Ask, Done, Hello, Role, Task

# Records per request.
BATCH_ROWS = 1 << 14


def predict_jointly(
    model: JointModel,
    ids: pd.Index,
    own: Mapping[str, Values],
    channels: Sequence[Channel],
    *,
    party: str,
    run_id: str,
    desensitized: bool,
    progress: Progress = no_progress,
) -> tuple[Values, Mask]:
    """Predict records with the answers of the passive parties, one round trip per batch.

    Returns
    -------
    predictions : ndarray of float64, shape (n_rows,) or (n_rows, n_classes)
        NaN where a passive party does not know the record.
    is_complete : ndarray of bool, shape (n_rows,)
    """
    with conversation(channels) as phase:
        phase.enter("greeting")
        hello = Hello(role=Role.ACTIVE, party=party, run_id=run_id, task=Task.PREDICT, n_rows=0, id_digest="")
        greet_all(channels, {channel.peer: hello for channel in channels})
        phase.enter("asking for answers")
        predictions, complete = [], []
        for start in range(0, len(ids), BATCH_ROWS):
            batch = slice(start, start + BATCH_ROWS)
            ask = Ask(ids=tuple(ids[batch]), desensitized=desensitized)
            for channel in channels:
                channel.send(ask)
            answers, is_known = {}, np.ones(len(ask.ids), dtype=np.bool_)
            for channel in channels:
                answers[channel.peer], known = _read_answers(channel, model.ensemble, len(ask.ids))
                is_known &= known
            own_batch = {name: values[batch] for name, values in own.items()}
            matrix = feature_matrix(model.ensemble, own_batch, answers, len(ask.ids))
            scored = model.ensemble.predict(matrix)
            scored[~is_known] = np.nan
            predictions.append(scored)
            complete.append(is_known)
            progress("predicting", min(start + BATCH_ROWS, len(ids)), len(ids))
        for channel in channels:
            channel.send(Done())
        return np.concatenate(predictions), np.concatenate(complete)


def predict_locally(model: JointModel, own: Mapping[str, Values], columns: pd.DataFrame) -> Values:
    """Predict records of which A holds every column in clear, with the thresholds that the passive parties shared.

    Raises
    ------
    Disagreement
        If a passive party keeps its thresholds.
    """
    answers = {}
    for owner in model.ensemble.owners:
        if owner not in model.routers:
            raise Disagreement(
                f"{owner} keeps its thresholds, so A cannot score alone; predict in mode `routed` or `desensitized`"
            )
        answers[owner] = model.routers[owner].answer(columns, rng=None)
    return model.ensemble.predict(feature_matrix(model.ensemble, own, answers, len(columns)))


def _read_answers(channel: Channel, ensemble: Ensemble, n_rows: int) -> tuple[Mask, Mask]:
    """One peer's answers to a batch: a bit per record and test, and which records it knows."""
    n_tests = sum(feature.owner == channel.peer for feature in ensemble.features)
    answers = expect(channel, Answers)
    if len(answers.is_known) != n_rows or answers.bits.shape != (n_rows, -(-n_tests // 8)):
        raise UnexpectedMessage(
            f"{channel.peer} answered {len(answers.is_known)} records in {answers.bits.shape[1]} bytes each; "
            f"{n_rows} records with {n_tests} tests were asked for"
        )
    return np.unpackbits(answers.bits, axis=1, count=n_tests).astype(np.bool_), answers.is_known
