"""The passive party: desensitize, rank, send, resolve; later, answer split tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.preprocess import Columns
from opboost.privacy.guarantee import Guarantee, compose, exposed, with_tests
from opboost.rng import BitSource
from opboost.routing import Router
from parties.ledger.due_cells import Run, here
from parties.progress import Progress, no_progress
from parties.session.handshake import conversation, greet
from parties.session.heartbeats import heartbeats, with_heartbeats
from parties.storage.serialization import router_to_dict
from parties.storage.spool import ArraySpool
from parties.tables.blocks import EncodedTable, encode_table
from parties.vertical.agreed_grid import agree_grid
from parties.vertical.prediction_server import Answerer, answer_until_done
from parties.vertical.rank_sender import RankWindow, send_ranks
from parties.vertical.rate_limits import Tally
from parties.vertical.release_offer import (
    OfferedRanks,
    ReleasedTable,
    ReleaseTable,
    check_held,
    first_row,
    greets_only,
    make_offer,
    offered_names,
    rank_columns,
)
from parties.vertical.resolution_limit import ResolvedTests, most_tests
from protocols.alignment.id_proof import password_of
from protocols.errors import PeerLost
from protocols.messages.vertical import Done, Held, Hello, Role, SplitRanks, Task, Terms, Thresholds
from protocols.transport.channel import Channel, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveJob:
    """What a passive party brings to a training run.

    Attributes
    ----------
    party, run_id : str
    id_digest : str or None
        None before the records are aligned: such a job only greets.
    features : Columns or EncodedTable
        Raw columns, such as a DataFrame's, rows in the agreed order; or their exact codes.
    mechanisms : tuple of ColumnMechanism
    rng : BitSource
        Where the noise comes from.
    opaque_names : bool
        Whether the columns travel under numbers instead of their names.
    share_thresholds : bool
        Whether the active party may have the thresholds and the public encoding, and so score alone.
    share_codes : bool
        Whether the active party may know which codes of the mapped domain the ranks stand for.
    bounds_are_public : bool
        False if the schema's bounds were taken from the data; the guarantee then says so.
    alignment : str
        How the records were aligned, in words that must be the same on both sides.
    order : ndarray of int64, optional
        In which order the ranks travel, where that is not the order of the rows.
    release : callable
        Makes the release once both sides have agreed; by default a job only greets.
    has_label : bool
        Whether this party's schema names a label column, as only the active party's should.
    agreed : Terms
        What was agreed that the active party does.
    resolved : ResolvedTests
        Which split tests were resolved before.
    n_cells : int, optional
        Cells of a column that records are answered with, at most; None to resolve and answer split tests instead.
    allow_routed : bool
        Whether split tests about new records may be answered from exact values.
    held_out_share : float
        Share of the common records that is held out of the release.
    most_records : int, optional
        How many of the others are released, at most.
    held_out : callable, optional
        Takes the router of the finished trees; what answers for the held-out records, once they are chosen.
    run_blocks : Run
        Calls a function on blocks of records, where these are.
    redraws : bool
        Whether `release` draws anew what was changed since it was drawn, which tells the change.
    """

    party: str
    run_id: str
    id_digest: str | None
    features: Columns | EncodedTable
    mechanisms: tuple[ColumnMechanism, ...]
    rng: BitSource
    opaque_names: bool = True
    share_thresholds: bool = False
    share_codes: bool = True
    bounds_are_public: bool = True
    alignment: str = "prealigned"
    order: NDArray[np.int64] | None = None
    release: ReleaseTable = greets_only
    has_label: bool = False
    agreed: Terms = field(default_factory=Terms)
    resolved: ResolvedTests = field(default_factory=ResolvedTests)
    n_cells: int | None = None
    allow_routed: bool = True
    held_out_share: float = 0.0
    most_records: int | None = None
    held_out: Callable[[Router], Answerer] | None = None
    run_blocks: Run = here
    redraws: bool = False

    @property
    def n_rows(self) -> int:
        """Records."""
        return len(self.features)

    @property
    def password(self) -> bytes | None:
        """What proves which records this is about; None before they are aligned."""
        return None if self.id_digest is None else password_of(self.id_digest, self.order)

    def guarantee(self) -> Guarantee:
        """What the release of all columns promises."""
        return compose(
            tuple(mechanism.guarantee() for mechanism in self.mechanisms),
            is_secure=self.rng.is_secure,
            bounds_are_public=self.bounds_are_public,
            not_protected=exposed(allow_routed=self.allow_routed, redraws=self.redraws, n_cells=self.n_cells),
        )

    def hello(self, task: Task = Task.TRAIN) -> Hello:
        """The greeting for the active party."""
        settings = [mechanism.settings for mechanism in self.mechanisms]
        names = offered_names(self.mechanisms, opaque_names=self.opaque_names)
        plan = Terms(
            columns=len(names),
            mechanism=", ".join(sorted({one.mechanism for one in settings})) or None,
            law=", ".join(sorted({one.law.value for one in settings})) or None,
            # A column without points has no budget per point.
            epsilon=max((float(one.settings.epsilon) if one.point else 0.0 for one in self.mechanisms), default=None),
            total_epsilon=float(self.guarantee().epsilon),
            share_thresholds=self.share_thresholds,
            held_out=self.held_out_share,
            most_records=self.most_records,
            by_cells=self.n_cells is not None,
        )
        return Hello(
            role=Role.PASSIVE,
            party=self.party,
            run_id=self.run_id,
            task=task,
            n_rows=self.n_rows,
            alignment=self.alignment,
            has_label=self.has_label,
            plan=plan,
            agreed=self.agreed,
            names=names,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveShare:
    """What the passive party keeps of a model: enough to answer its split tests, and nothing of the trees.

    Attributes
    ----------
    router : Router
    guarantee : Guarantee
        Of the training release, with the number of split tests that new records are asked.
    n_clipped : dict of str to int
        Per column, values outside the public bounds that were moved to them.
    held_out : Tally
        Answers about held-out records.
    """

    router: Router
    guarantee: Guarantee
    n_clipped: dict[str, int] = field(default_factory=dict)
    held_out: Tally = field(default_factory=Tally)


def train(
    job: PassiveJob,
    channel: Channel,
    *,
    save: Callable[[PassiveShare], None] = lambda share: None,
    progress: Progress = no_progress,
) -> PassiveShare:
    """Take part in one training run; `save` is called when the active party has saved the model.

    Notes
    -----
    Privacy: releases the ranks of every column, desensitized, once: the guarantee is the returned share's, for this
    release; what a column has spent over all runs stands in the ledger, if `job.release` keeps one. The split tests
    that come back say which thresholds the trees use, which depends on labels; with cells, nothing comes back.
    """
    progress = with_heartbeats([channel], progress)
    with conversation([channel]) as phase, closing(ArraySpool()) as spool:
        phase.enter("encoding its columns")
        table = job.features
        if not isinstance(table, EncodedTable):
            table = encode_table(table, job.mechanisms, spool, progress)
        phase.enter("greeting")
        mine = job.hello()
        if job.password is None:
            raise ParameterError("records are released after they were aligned. Nothing was released")
        theirs = greet(channel, mine, password=job.password)
        phase.enter("desensitizing")
        columns = _release(job, table, channel, progress)
        phase.enter("sending ranks")
        router = _send(job, columns, channel, theirs.held, progress)
        phase.enter("waiting for the trees")
        progress("waiting for the trees", 0, 1)
        if router is None:
            wanted = expect(channel, SplitRanks)
            phase.enter("resolving split ranks")
            router = _resolve(job, columns, channel, wanted, most=most_tests(mine, theirs, columns))
        phase.enter("waiting for the model to be saved")
        held_out = answer_until_done(None if job.held_out is None else job.held_out(router), channel)
        progress("waiting for the trees", 1, 1)
        guarantee = with_tests(job.guarantee(), router.tests.n_tests)
        share = PassiveShare(router=router, guarantee=guarantee, n_clipped=table.n_clipped, held_out=held_out)
        phase.enter("saving its share")
        save(share)
        # The run is over here; an active party that left before it could hear so asks again when it is started again.
        with suppress(PeerLost):
            channel.send(Done())
        return share


def _release(job: PassiveJob, table: EncodedTable, channel: Channel, progress: Progress) -> list[OfferedRanks]:
    """Draw the columns, or read what was drawn before, and rank them."""
    with heartbeats([channel]):
        job.release(job.mechanisms, table)
    columns = []
    for column in rank_columns(ReleasedTable(job.mechanisms, table.blocks, job.order)):
        columns.append(column)
        progress("desensitizing", column.number + 1, len(job.mechanisms))
    return columns


def _send(
    job: PassiveJob, columns: Sequence[OfferedRanks], channel: Channel, held: Held | None, progress: Progress
) -> Router | None:
    """Send the offer and the ranks that the active party does not hold; with cells, the router that they leave."""
    cuts, router = None, None
    if job.n_cells is not None:
        cuts, tests = agree_grid(
            columns,
            job.mechanisms,
            job.resolved,
            n_cells=job.n_cells,
            share_codes=job.share_codes,
            is_secure=job.rng.is_secure,
        )
        router = Router(job.mechanisms, tests)
    offer = make_offer(
        job.mechanisms,
        columns,
        job.guarantee(),
        opaque_names=job.opaque_names,
        share_codes=job.share_codes,
        cuts=cuts,
        router=router if job.share_thresholds else None,
    )
    check_held(held, offer, channel.peer, n_rows=job.n_rows)
    channel.send(offer)
    window = RankWindow(channel)
    for c, column in enumerate(columns):
        send_ranks(window, c, column, rows=range(first_row(held, c, job.n_rows), job.n_rows))
        progress("sending ranks", c + 1, len(columns))
    window.close()
    return router


def _resolve(
    job: PassiveJob, columns: Sequence[OfferedRanks], channel: Channel, wanted: SplitRanks, *, most: int
) -> Router:
    """Answer split ranks by thresholds, which stay here unless they may be shared."""
    tests = job.resolved.resolve(
        wanted,
        columns,
        job.mechanisms,
        is_secure=job.rng.is_secure,
        most=most,
        agreed=job.agreed.tests,
        peer=channel.peer,
    )
    router = Router(job.mechanisms, tests)
    channel.send(Thresholds(router=router_to_dict(router) if job.share_thresholds else None))
    return router
