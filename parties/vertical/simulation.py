"""Simulation of all parties in one process: passive parties in threads, connected by memory channels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pandas as pd

from opboost.desensitize import ColumnMechanism, desensitize
from opboost.rng import BitSource
from opboost.routing import Router
from parties.progress import Progress, no_progress
from parties.session.session_log import Tally
from parties.tables.blocks import EncodedTable, encoded_column
from parties.vertical.prediction_server import (
    AnswerableRecords,
    Answerer,
    ReleaseRecords,
    answer_session,
    prediction_hello,
)
from parties.vertical.release_offer import ReleaseTable
from protocols.errors import ProtocolError
from protocols.transport.channel import Channel
from protocols.transport.memory import memory_pair

T = TypeVar("T")


def simulate(
    active: Callable[[Sequence[Channel]], T], passive: Mapping[str, Callable[[Channel], object]], *, name: str
) -> T:
    """Run the active party in this thread and every passive party in its own; returns the active party's result.

    Parameters
    ----------
    active : callable
        Takes the channels to all passive parties, in order.
    passive : mapping of str to callable
        By party: takes its channel to the active party.
    name : str
        The active party's name.

    Raises
    ------
    Exception
        What a passive party raised, if one failed; else what the active party raised.
    """
    failures: list[BaseException] = []
    threads, channels = [], []

    def guarded(party: Callable[[Channel], object], channel: Channel) -> None:
        try:
            party(channel)
        except BaseException as error:
            failures.append(error)
        finally:
            channel.close()

    for peer, party in passive.items():
        own_end, peer_end = memory_pair(name, peer)
        channels.append(own_end)
        threads.append(threading.Thread(target=guarded, args=(party, peer_end), daemon=True))
    for thread in threads:
        thread.start()
    try:
        return active(channels)
    except ProtocolError as error:
        _join(channels, threads)
        causes = [failure for failure in failures if not isinstance(failure, ProtocolError)]
        raise causes[0] if causes else error from None
    finally:
        _join(channels, threads)


def _join(channels: Sequence[Channel], threads: Sequence[threading.Thread]) -> None:
    for channel in channels:
        channel.close()
    for thread in threads:
        thread.join()


def serve(
    router: Router,
    ids: pd.Index,
    features: pd.DataFrame,
    channel: Channel,
    *,
    party: str,
    run_id: str,
    rng: BitSource,
    may_route: bool,
    progress: Progress = no_progress,
) -> int:
    """Answer the active party's requests until it is done, without limits; returns the number of records answered for.

    Desensitized records are drawn anew from `rng` at every request; `may_route` says whether exact bits may leave.
    """
    records = AnswerableRecords.of(router, ids, features)
    answerer = Answerer(router, records, release=_records_from(rng), may_route=may_route)
    tally = Tally()
    hello = prediction_hello(party, run_id, max_rows=answerer.max_rows)
    answer_session(answerer, channel, hello, tally=tally, progress=progress)
    return tally.n_answered


def _records_from(rng: BitSource) -> ReleaseRecords:
    return lambda mechanisms, encoded, ids: [
        desensitize(mechanism, column, rng=rng) for mechanism, column in zip(mechanisms, encoded, strict=True)
    ]


def drawn_from(rng: BitSource) -> ReleaseTable:
    """Draws every column anew, without an account: for simulations."""

    def release(mechanisms: Sequence[ColumnMechanism], table: EncodedTable) -> None:
        for c, mechanism in enumerate(mechanisms):
            bits = rng.fork(mechanism.schema.name)
            for block in table.blocks:
                block[f"{c}.codes"] = desensitize(mechanism, encoded_column(block[f"{c}.exact"]), rng=bits).marked

    return release
