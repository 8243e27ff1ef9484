"""The active party scores the finished model, and one of its own columns alone, on held-out records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.fit_quality import fit_quality
from opboost.metrics import default_metric
from opboost.noise_correction import calmed
from opboost.split_tests import bind, feature_matrix, n_answer_bits
from opboost.uplift import measure_uplift
from opboost.vertical import TrainedTrees
from parties.runs.joint_model import JointModel
from parties.session.heartbeats import heartbeats
from parties.vertical.prediction_client import Session, Statuses, most_rows
from parties.vertical.prediction_output import status_word
from parties.vertical.training_job import ActiveJob
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

BASIS = "held-out records"


def score_held_out(
    job: ActiveJob, model: JointModel, channels: Sequence[Channel], grow: Callable[[ActiveJob], TrainedTrees]
) -> JointModel:
    """Have held-out records answered exactly; returns the model with its scores.

    Parameters
    ----------
    job : ActiveJob
        With held-out records.
    model : JointModel
    channels : sequence of Channel
    grow : callable
        Grows the trees of a job on the active party's columns alone.

    Notes
    -----
    Privacy: asks for the same records whatever the labels; answers are exact, one bit per test or one cell per column.
    """
    assert job.held_out is not None
    labels, loss, ensemble = job.held_out.labels, job.loss, model.ensemble
    n_bits = max((n_answer_bits(ensemble, channel.peer) for channel in channels), default=0)
    asking = Session(model, channels, batch_rows=most_rows(n_bits))
    joint, status = asking.predict(job.held_out.ids, job.held_out.own, desensitized=False)
    is_scored = status == RecordStatus.ANSWERED
    with heartbeats(channels):
        alone = _alone(job, model, grow)
        found = measure_uplift(loss, labels, alone, joint, is_scored=is_scored, seed=job.seed or 0)
        fit = None
        if is_scored.any():
            metric = default_metric(loss)
            fit = fit_quality(loss, labels[is_scored], joint[is_scored], basis=BASIS, metric=metric)
    found = replace(found, reason=found.reason or _unanswered(status))
    return replace(model, uplift=found, fits=model.fits if fit is None else (*model.fits, fit))


def _alone(job: ActiveJob, model: JointModel, grow: Callable[[ActiveJob], TrainedTrees]) -> Values:
    """Predictions by the active party's columns, under the joint model's parameters; without any, by a constant."""
    assert job.held_out is not None
    names, n_rows = {column.name for column in job.own}, len(job.held_out.ids)
    if not names:
        margins = [job.held_out.own[one.name] for one in job.margins] or [np.zeros(n_rows)]
        return job.loss.predictions(model.ensemble.base_scores + np.column_stack(margins))
    # Nobody else sees anything of this model.
    alone = replace(
        job,
        noised_labels=None,
        earlier=None,
        parameters=job.parameters if model.choice is None else calmed(job.parameters, job.left_open),
        constraints=job.constraints.among(names),
        column_order=tuple(name for name in job.column_order if name in names),
        on_round=lambda _: None,
    )
    ensemble = bind(grow(alone), {})
    return ensemble.predict(feature_matrix(ensemble, job.held_out.own, {}, n_rows))


def _unanswered(status: Statuses) -> str:
    """Which records have no joint score, and why."""
    counts = ((one, int((status == one).sum())) for one in RecordStatus if one is not RecordStatus.ANSWERED)
    told = ", ".join(f"{n} ({status_word(one)})" for one, n in counts if n)
    return f"a passive party did not answer for {told} of {len(status)} held-out records" if told else ""
