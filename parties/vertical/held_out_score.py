"""The active party scores the finished model, and one of its own columns alone, on held-out records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.columns import Column, OwnColumn, RankColumn
from opboost.fit_quality import fit_quality
from opboost.fitting.noise_correction import LEAST_KNOWN
from opboost.fitting.noised_table import NoiseChoice
from opboost.metrics import default_metric
from opboost.privacy.guarantee import Guarantee
from opboost.split_tests import bind, feature_matrix, n_answer_bits, unpacked
from opboost.trees.tree import Ensemble
from opboost.trees.validation import History, KnownRows
from opboost.uplift import ColumnUse, measure_uplift, use_of
from opboost.vertical import TrainedTrees
from parties.runs.joint_model import JointModel
from parties.runs.journal import ANSWERS
from parties.runs.kept_answers import KeptAnswers
from parties.session.heartbeats import heartbeats
from parties.tables.record_ids import digest_of_ids
from parties.vertical.prediction_client import AnswerBits, FinishedBatches, Session, Statuses, evaluated, most_rows
from parties.vertical.prediction_output import status_word
from parties.vertical.training_job import ActiveJob
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

BASIS = "held-out records"


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutCells:
    """The passive parties' answers about held-out records before training, with `answers: cells`.

    Attributes
    ----------
    ensemble : Ensemble
        An ensemble without trees, whose features are the cells that the answers are about.
    answers : dict of str to ndarray of uint8, shape (n_rows, n_bytes)
        By party, packed.
    status : ndarray of uint8, shape (n_rows,)
    chooses : ndarray of bool, shape (n_rows,)
        Records by which the noise model and the number of rounds are chosen. The others are left for the score.
    """

    ensemble: Ensemble
    answers: dict[str, NDArray[np.uint8]]
    status: Statuses
    chooses: Mask

    def known(self, job: ActiveJob, columns: Sequence[Column]) -> KnownRows | None:
        """The records of `chooses` in the form of these training columns; None without any."""
        assert job.held_out is not None
        rows = np.flatnonzero(self.chooses)
        owners = {column.owner for column in columns if isinstance(column, RankColumn)}
        cells_of = {owner: unpacked(self.ensemble, owner, self.answers[owner][rows]) for owner in owners}
        features, values = self.ensemble.features, []
        # Computed once, since there may be a column for each of many categories.
        places = {
            (owner, features[i].name): place
            for owner in owners
            for place, i in enumerate(self.ensemble.inputs[owner].tolist())
        }
        for column in columns:
            if isinstance(column, OwnColumn):
                values.append(job.held_out.own[column.name][rows])
                continue
            assert column.cuts is not None
            # The highest rank of every cell; in the last cell any rank would do.
            ranks = np.append(column.cuts, [column.n_ranks - 1, 0]).astype(np.float64)
            cells = cells_of[column.owner][:, places[column.owner, column.name]]
            is_missing = np.isnan(cells)
            values.append(np.where(is_missing, np.nan, ranks[np.where(is_missing, -1, cells).astype(np.int64)]))
        margins = np.array([job.held_out.own[margin.name][rows] for margin in job.margins]) if job.margins else 0.0
        return KnownRows(tuple(values), job.held_out.labels[rows], job.metrics, margins) if len(rows) else None


def ask_cells(
    job: ActiveJob, columns: Sequence[Column], channels: Sequence[Channel], trainings: Mapping[str, str]
) -> HeldOutCells:
    """Ask for the cells of all held-out records in these columns, before training.

    `trainings` are those of a `JointModel`.

    Notes
    -----
    Privacy: asks for the same records in the same order whatever the labels; each answer is exact, one cell per column.
    """
    untrained = TrainedTrees((), np.zeros(job.loss.n_outputs), job.loss, tuple(columns), (), History())
    ensemble = bind(untrained, {})
    answers, status = _ask(job, ensemble, channels, trainings)
    is_noised = any(isinstance(column, RankColumn) and column.release is not None for column in columns)
    may_compare = job.correct_noise and is_noised and len(status) >= 2 * LEAST_KNOWN
    may_choose = job.grow is None and job.noised_labels is None and (job.metrics or may_compare)
    every_other = np.arange(len(status)) % 2 == 0
    return HeldOutCells(ensemble, answers, status, (status == RecordStatus.ANSWERED) & every_other & bool(may_choose))


def score_held_out(
    job: ActiveJob,
    model: JointModel,
    channels: Sequence[Channel],
    grow: Callable[[ActiveJob], TrainedTrees],
    offered: Mapping[str, Sequence[str]],
    *,
    cells: HeldOutCells | None = None,
) -> JointModel:
    """Score the model on held-out records by exact answers, without those of `HeldOutCells.chooses`.

    In a scouting, the uplift of every column is measured as well.

    Parameters
    ----------
    job : ActiveJob
        With held-out records.
    model : JointModel
    channels : sequence of Channel
    grow : callable
        Grows the trees of a job on the active party's columns alone.
    offered : mapping of str to sequence of str
        Names of the columns of ranks of each passive party, in their order.
    cells : HeldOutCells, optional
        What was asked before; else split tests are asked for now.

    Notes
    -----
    Privacy: asks for the same records whatever the labels; answers are exact, one bit per test.
    """
    assert job.held_out is not None
    held, loss, ensemble = job.held_out, job.loss, model.ensemble
    matrices: list[Values] = []

    def evaluate(trees: Ensemble, matrix: Values) -> Values:
        if job.most_records is not None:
            matrices.append(matrix)
        return trees.predict(matrix)

    if cells is None:
        answers, status = _ask(job, ensemble, channels, model.trainings)
        is_scored = status == RecordStatus.ANSWERED
    else:
        answers, status = cells.answers, cells.status
        is_scored = (status == RecordStatus.ANSWERED) & ~cells.chooses
    joint = evaluated(ensemble, held.own, answers, len(status), evaluate)
    # Before the heartbeats below: `grow` sends heartbeats itself, which two threads must not do at once.
    alone = _predict_alone(job, model, grow)
    with heartbeats(channels):
        uses: tuple[ColumnUse, ...] = ()
        if matrices and is_scored.any():
            uses = tuple(_uses(job, model, np.concatenate(matrices)[is_scored], held.labels[is_scored], offered))
        uplift = measure_uplift(loss, held.labels, alone, joint, is_scored=is_scored, seed=job.seed or 0)
        fit = None
        if is_scored.any():
            metric = default_metric(loss)
            fit = fit_quality(loss, held.labels[is_scored], joint[is_scored], basis=BASIS, metric=metric)
    n_chose = 0 if cells is None else int(cells.chooses.sum())
    uplift = replace(uplift, n_chose=n_chose, reason=uplift.reason or _unanswered(status))
    return replace(model, uplift=uplift, uses=uses, fits=model.fits if fit is None else (*model.fits, fit))


def _uses(
    job: ActiveJob, model: JointModel, matrix: Values, labels: Values, offered: Mapping[str, Sequence[str]]
) -> Iterator[ColumnUse]:
    """The uplift of each passive party's columns one by one, then of each party's useless columns together."""
    ensemble, seed = model.ensemble, job.seed or 0

    def use(owner: str, named: Mapping[str, Sequence[str]]) -> ColumnUse:
        names = {name for group in named.values() for name in group}
        inputs = [i for i, feature in enumerate(ensemble.features) if feature.owner == owner and feature.name in names]
        return ColumnUse(owner, tuple(named), use_of(ensemble, matrix, labels, inputs, seed=seed))

    for owner, names in offered.items():
        groups = columns_of_ranks(model.guarantees.get(owner), names)
        uses = [use(owner, {column: group}) for column, group in groups.items()]
        yield from uses
        useless = {use.columns[0] for use in uses if not adds(use)}
        if len(useless) > 1:
            yield use(owner, {column: group for column, group in groups.items() if column in useless})


def columns_of_ranks(guarantee: Guarantee | None, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The columns that a guarantee names, each with its columns of ranks; an unordered one has one per category."""
    columns = () if guarantee is None else guarantee.columns
    counts = [column.parameters.get("n_categories", 1.0) for column in columns]
    if sum(counts) != len(names) or not all(count >= 1 and count % 1 == 0 for count in counts):
        return {name: (name,) for name in names}
    ends = np.cumsum(np.array(counts, np.int64))
    return {column.column: names[int(end - n) : int(end)] for column, n, end in zip(columns, counts, ends, strict=True)}


def adds(use: ColumnUse) -> bool:
    """Whether the lower bound of the columns' uplift is above 0."""
    return use.uplift.low is not None and use.uplift.low > 0


def _ask(
    job: ActiveJob, ensemble: Ensemble, channels: Sequence[Channel], trainings: Mapping[str, str]
) -> tuple[AnswerBits, Statuses]:
    """Ask about all held-out records but those whose answers the journal has; returns packed answers and statuses."""
    assert job.held_out is not None
    ids = job.held_out.ids
    n_bits = {channel.peer: n_answer_bits(ensemble, channel.peer) for channel in channels}
    n_rows = most_rows(max(n_bits.values(), default=0))
    asking = Session(JointModel(ensemble=ensemble), channels, batch_rows=n_rows)
    finished: FinishedBatches[AnswerBits] = FinishedBatches()
    if job.journal is not None:
        occasion = hashlib.sha256(repr([digest_of_ids(ids), *sorted(trainings.items())]).encode()).hexdigest()
        kept = KeptAnswers(job.journal.path / ANSWERS, occasion, {peer: -(-n // 8) for peer, n in n_bits.items()})
        finished = FinishedBatches(kept.batches(), keep=kept.note)
    return asking.ask(ids, desensitized=False, finished=finished)


def _predict_alone(job: ActiveJob, model: JointModel, grow: Callable[[ActiveJob], TrainedTrees]) -> Values:
    """Predictions of a model of the active party's columns, with the joint model's parameters.

    Without own columns the model is a constant.
    """
    assert job.held_out is not None
    held, names = job.held_out, {column.name for column in job.own}
    if not names:
        margins = [held.own[margin.name] for margin in job.margins] or [np.zeros(len(held.ids))]
        return job.loss.predictions(model.ensemble.base_scores + np.column_stack(margins))
    if job.earlier is not None:
        # As many rounds as the joint model and the model that it continues have together; the default learning rate
        # follows the number of rounds.
        n_rounds = job.parameters.n_estimators + job.earlier.model.n_rounds
        left_open = job.left_open - {"n_estimators"}
        job = replace(job, parameters=replace(job.parameters, n_estimators=n_rounds), left_open=left_open)
    # No peer sees anything of this model, so the true labels may be used.
    alone = replace(
        job,
        noised_labels=None,
        earlier=None,
        parameters=job.grown_with(None if model.choice is None else NoiseChoice.ALONE),
        constraints=job.constraints.among(names),
        column_order=tuple(name for name in job.column_order if name in names),
        on_round=lambda _: None,
    )
    ensemble = bind(grow(alone), {})
    return ensemble.predict(feature_matrix(ensemble, held.own, {}, len(held.ids)))


def _unanswered(status: Statuses) -> str:
    """A sentence with the number of records that have no joint score, and the reasons."""
    counts = ((kind, int((status == kind).sum())) for kind in RecordStatus if kind is not RecordStatus.ANSWERED)
    refusals = ", ".join(f"{n} ({status_word(kind)})" for kind, n in counts if n)
    return f"a passive party did not answer for {refusals} of {len(status)} held-out records" if refusals else ""
