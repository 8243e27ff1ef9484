"""The passive party's side of a training run: desensitize, rank, send, resolve split ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from opboost.errors import ParameterError
from opboost.privacy.guarantee import Guarantee, with_tests
from opboost.ranking import Ranking
from opboost.routing import Router
from parties.progress import Progress, no_progress
from parties.session.handshake import conversation, greet
from parties.session.heartbeats import heartbeats, with_heartbeats
from parties.session.session_log import Tally
from parties.storage.serialization import router_to_dict
from parties.storage.spool import ArraySpool
from parties.tables.blocks import EncodedTable, encode_table
from parties.vertical.agreed_grid import agree_grid
from parties.vertical.held_out import answer_held_out
from parties.vertical.rank_sender import RankWindow, send_ranks
from parties.vertical.release_job import PassiveJob
from parties.vertical.release_offer import (
    OfferedRanks,
    ReleasedTable,
    check_held,
    first_row,
    make_offer,
    rank_columns,
    training_digest,
)
from parties.vertical.resolution_limit import most_tests
from protocols.errors import PeerLost
from protocols.messages.vertical import Done, Held, Offer, SplitRanks, Thresholds
from protocols.transport.channel import Channel, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveShare:
    """The passive party's share of a model: it answers split tests, and has nothing of the trees.

    Attributes
    ----------
    router : Router
    guarantee : Guarantee
        Of the training release, with the number of split tests that new records are asked.
    n_clipped : dict of str to int
        Per column, values outside the public bounds that were moved to them.
    training : str
        Digest of the training, which the active party's share has too.
    held_out : Tally
        Counts of the answers about held-out records.
    """

    router: Router
    guarantee: Guarantee
    training: str
    n_clipped: dict[str, int] = field(default_factory=dict)
    held_out: Tally = field(default_factory=Tally)


def train(
    job: PassiveJob,
    channel: Channel,
    *,
    save: Callable[[PassiveShare], None] = lambda share: None,
    note_held_out: Callable[[Tally], None] = lambda request: None,
    progress: Progress = no_progress,
) -> PassiveShare:
    """Run the passive party's side of a training run; `save` is called when the active party has saved the model.

    `note_held_out` takes the counts of every request about held-out records before its answers leave.

    Notes
    -----
    Privacy: releases the ranks of every desensitized column once. The guarantee of this release is the returned
    share's; the ledger, if `job.release` keeps one, has the spending of every column over all runs. The split tests
    that the active party sends show which thresholds its trees use, which depends on labels; with cells it sends none.
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
        offer, router = _send(job, columns, channel, theirs.held, progress)
        phase.enter("waiting for the trees")
        progress("waiting for the trees", 0, 1)
        split_ranks = None
        if router is None:
            split_ranks, rankings = expect(channel, SplitRanks), [column.ranking for column in columns]
            phase.enter("resolving split ranks")
            router = _resolve(job, rankings, channel, split_ranks, most=most_tests(mine, theirs, rankings))
        phase.enter("waiting for the model to be saved")
        held_out = answer_held_out(None if job.held_out is None else job.held_out(router), channel, note_held_out)
        progress("waiting for the trees", 1, 1)
        guarantee = with_tests(job.guarantee(), router.tests.n_tests)
        share = PassiveShare(
            router=router,
            guarantee=guarantee,
            training=training_digest(offer, split_ranks),
            n_clipped=table.n_clipped,
            held_out=held_out,
        )
        phase.enter("saving its share")
        save(share)
        # The run is over on this side. An active party that left without this `Done` asks again when it is restarted.
        with suppress(PeerLost):
            channel.send(Done())
        return share


def _release(job: PassiveJob, table: EncodedTable, channel: Channel, progress: Progress) -> list[OfferedRanks]:
    """Draw the columns or read their stored draws, and rank them."""
    with heartbeats([channel]):
        job.release(job.mechanisms, table)
    columns = []
    for column in rank_columns(ReleasedTable(job.mechanisms, table.blocks, job.order)):
        columns.append(column)
        progress("desensitizing", column.number + 1, len(job.mechanisms))
    return columns


def _send(
    job: PassiveJob, columns: Sequence[OfferedRanks], channel: Channel, held: Held | None, progress: Progress
) -> tuple[Offer, Router | None]:
    """Send the offer and the ranks that the active party lacks; returns the offer, and with cells the router."""
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
        router = job.router(tests)
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
    return offer, router


def _resolve(
    job: PassiveJob, columns: Sequence[Ranking], channel: Channel, split_ranks: SplitRanks, *, most: int
) -> Router:
    """Resolve split ranks to thresholds, which are sent only if they may be shared."""
    tests = job.resolved.resolve(
        split_ranks,
        columns,
        job.mechanisms,
        is_secure=job.rng.is_secure,
        most=most,
        agreed=job.agreed.tests,
        peer=channel.peer,
    )
    router = job.router(tests)
    channel.send(Thresholds(router=router_to_dict(router) if job.share_thresholds else None))
    return router
