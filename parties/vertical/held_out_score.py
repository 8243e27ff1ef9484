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
from parties.vertical.prediction_client import AnswerBits, Session, Statuses, evaluated, most_rows
from parties.vertical.prediction_output import status_word
from parties.vertical.training_job import ActiveJob
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

BASIS = "held-out records"


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutCells:
    """What passive parties answered about held-out records before training, with `answers: cells`.

    Attributes
    ----------
    ensemble : Ensemble
        Of no trees: says which cells the answers are about.
    answers : dict of str to ndarray of uint8, shape (n_rows, n_bytes)
        By party, packed.
    status : ndarray of uint8, shape (n_rows,)
    chooses : ndarray of bool, shape (n_rows,)
        Records that choose what trees are grown on and when to stop. The others are left for an honest score.
    """

    ensemble: Ensemble
    answers: dict[str, NDArray[np.uint8]]
    status: Statuses
    chooses: Mask

    def known(self, job: ActiveJob, columns: Sequence[Column]) -> KnownRows | None:
        """The records that choose, as these training columns; None without any."""
        assert job.held_out is not None
        rows = np.flatnonzero(self.chooses)
        owners = {column.owner for column in columns if isinstance(column, RankColumn)}
        cells_of = {owner: unpacked(self.ensemble, owner, self.answers[owner][rows]) for owner in owners}
        features, found = self.ensemble.features, []
        # Once for all columns, of which there may be one for each of many categories.
        places = {
            (owner, features[i].name): place
            for owner in owners
            for place, i in enumerate(self.ensemble.inputs[owner].tolist())
        }
        for column in columns:
            if isinstance(column, OwnColumn):
                found.append(job.held_out.own[column.name][rows])
                continue
            assert column.cuts is not None
            # The highest rank of every cell; the last one's may be any.
            ranks = np.append(column.cuts, [column.n_ranks - 1, 0]).astype(np.float64)
            cells = cells_of[column.owner][:, places[column.owner, column.name]]
            is_missing = np.isnan(cells)
            found.append(np.where(is_missing, np.nan, ranks[np.where(is_missing, -1, cells).astype(np.int64)]))
        margins = np.array([job.held_out.own[one.name][rows] for one in job.margins]) if job.margins else 0.0
        return KnownRows(tuple(found), job.held_out.labels[rows], job.metrics, margins) if len(rows) else None


def ask_cells(
    job: ActiveJob, columns: Sequence[Column], channels: Sequence[Channel], trainings: Mapping[str, str]
) -> HeldOutCells:
    """Have all held-out records answered before training, by the cells of these columns.

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
    """Score held-out records by exact answers, those that chose nothing; a scouting's model gets its uses, too.

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
    # Whoever grows trees looks after the peers, which two threads must not do at once.
    alone = _alone(job, model, grow)
    with heartbeats(channels):
        uses: tuple[ColumnUse, ...] = ()
        if matrices and is_scored.any():
            uses = tuple(_uses(job, model, np.concatenate(matrices)[is_scored], held.labels[is_scored], offered))
        found = measure_uplift(loss, held.labels, alone, joint, is_scored=is_scored, seed=job.seed or 0)
        fit = None
        if is_scored.any():
            metric = default_metric(loss)
            fit = fit_quality(loss, held.labels[is_scored], joint[is_scored], basis=BASIS, metric=metric)
    n_chose = 0 if cells is None else int(cells.chooses.sum())
    found = replace(found, n_chose=n_chose, reason=found.reason or _unanswered(status))
    return replace(model, uplift=found, uses=uses, fits=model.fits if fit is None else (*model.fits, fit))


def _uses(
    job: ActiveJob, model: JointModel, matrix: Values, labels: Values, offered: Mapping[str, Sequence[str]]
) -> Iterator[ColumnUse]:
    """What each passive party's columns add, one by one; then, of each party, those together that add nothing."""
    ensemble, seed = model.ensemble, job.seed or 0

    def use(owner: str, named: Mapping[str, Sequence[str]]) -> ColumnUse:
        names = {name for group in named.values() for name in group}
        inputs = [i for i, one in enumerate(ensemble.features) if one.owner == owner and one.name in names]
        return ColumnUse(owner, tuple(named), use_of(ensemble, matrix, labels, inputs, seed=seed))

    for owner, names in offered.items():
        groups = columns_of_ranks(model.guarantees.get(owner), names)
        found = [use(owner, {column: group}) for column, group in groups.items()]
        yield from found
        useless = {one.columns[0] for one in found if not adds(one)}
        if len(useless) > 1:
            yield use(owner, {column: group for column, group in groups.items() if column in useless})


def columns_of_ranks(guarantee: Guarantee | None, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The columns that a guarantee names, each with its columns of ranks: of unordered categories one for each."""
    columns = () if guarantee is None else guarantee.columns
    counts = [one.parameters.get("n_categories", 1.0) for one in columns]
    if sum(counts) != len(names) or not all(count >= 1 and count % 1 == 0 for count in counts):
        return {name: (name,) for name in names}
    ends = np.cumsum(np.array(counts, np.int64))
    return {one.column: names[int(end - n) : int(end)] for one, n, end in zip(columns, counts, ends, strict=True)}


def adds(use: ColumnUse) -> bool:
    """Whether columns add to the score, beyond what chance explains."""
    return use.uplift.low is not None and use.uplift.low > 0


def _ask(
    job: ActiveJob, ensemble: Ensemble, channels: Sequence[Channel], trainings: Mapping[str, str]
) -> tuple[AnswerBits, Statuses]:
    """Packed answers about all held-out records, and their statuses; what the journal has is not asked for again."""
    assert job.held_out is not None
    ids = job.held_out.ids
    n_bits = {channel.peer: n_answer_bits(ensemble, channel.peer) for channel in channels}
    n_rows = most_rows(max(n_bits.values(), default=0))
    asking = Session(JointModel(ensemble=ensemble), channels, batch_rows=n_rows)
    kept = None
    if job.journal is not None:
        occasion = hashlib.sha256("".join([digest_of_ids(ids), *sorted(trainings.values())]).encode()).hexdigest()
        kept = KeptAnswers(job.journal.path / ANSWERS, occasion, {peer: -(-n // 8) for peer, n in n_bits.items()})
    found = []
    for first in range(0, max(1, len(ids)), n_rows):
        some = ids[first : first + n_rows]
        batch = None if kept is None else kept.batch(first, len(some))
        if batch is None:
            batch = asking.ask(some, desensitized=False)
            if kept is not None:
                kept.note(first, *batch)
        found.append(batch)
    answers, statuses = zip(*found, strict=True)
    return {peer: np.concatenate([one[peer] for one in answers]) for peer in n_bits}, np.concatenate(statuses)


def _alone(job: ActiveJob, model: JointModel, grow: Callable[[ActiveJob], TrainedTrees]) -> Values:
    """Predictions by the active party's columns, under the joint model's parameters; without any, by a constant."""
    assert job.held_out is not None
    held, names = job.held_out, {column.name for column in job.own}
    if not names:
        margins = [held.own[one.name] for one in job.margins] or [np.zeros(len(held.ids))]
        return job.loss.predictions(model.ensemble.base_scores + np.column_stack(margins))
    if job.earlier is not None:
        # As many rounds as the joint model has, those of the model that it continues included; a rate of learning that
        # nobody chose suits so many.
        n_rounds = job.parameters.n_estimators + job.earlier.model.n_rounds
        left_open = job.left_open - {"n_estimators"}
        job = replace(job, parameters=replace(job.parameters, n_estimators=n_rounds), left_open=left_open)
    # Nobody else sees anything of this model.
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
    """Which records have no joint score, and why."""
    counts = ((one, int((status == one).sum())) for one in RecordStatus if one is not RecordStatus.ANSWERED)
    told = ", ".join(f"{n} ({status_word(one)})" for one, n in counts if n)
    return f"a passive party did not answer for {told} of {len(status)} held-out records" if told else ""
