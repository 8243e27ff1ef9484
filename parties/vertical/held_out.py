"""Held-out records: a random share of the common records that no training releases, to score models on.

A record is held out if its keyed pseudorandom number lies below the share. Where only so many others are released, they
have the lowest numbers. All parties draw the key together (`parties.session.drawn_key`), and all their runs have the
same one: what was held out stays so, what was released is not held out, and new records join at the same share.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import Disagreement
from parties.session.drawn_key import KEY, draw_active, draw_passive, keep, kept_before
from parties.session.handshake import conversation, greet, greet_all
from parties.session.session_log import Tally
from parties.tables.blocks import keyed_names
from parties.tables.party_table import PartyTable, model_inputs
from parties.tables.record_ids import Ids
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from parties.vertical.release_job import PassiveJob
from parties.vertical.training_job import ActiveJob, HeldOutRecords
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Ask
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, receive_any

# Suffix of the names of a scouting's run and run folder.
SCOUT = "-scout"

# Most held-out records. With so many an AUC is known to about 0.004; other sources of error are larger.
MOST_HELD_OUT = 20_000

_CHOOSING = "choosing the records to hold out"

Rows = NDArray[np.int64]
Places = NDArray[np.float64]
"""A pseudorandom number from 0 to 1 per record."""


@dataclass(frozen=True, slots=True)
class Division:
    """Rows of the common records to score the model on, and rows to release and train on; both ascending."""

    held_out: Rows
    trained: Rows


RecordsOf = Callable[[Router], AnswerableRecords]
"""Takes the router of the finished trees; returns the held-out records with the columns that it needs."""


def n_held_out(share: float, n_rows: int) -> int:
    """About how many records of a first run are held out; at least one is left to train on."""
    return min(round(share * n_rows), MOST_HELD_OUT, n_rows - 1)


def n_trained(share: float, n_rows: int, most: int | None) -> int:
    """About how many of the common records are released and trained on."""
    n_left = n_rows - n_held_out(share, n_rows)
    return n_left if most is None else min(most, n_left)


def places_of(key: bytes, ids: Ids) -> Places:
    """The pseudorandom number of each record: its name under AES with the key, independent of all other records."""
    return keyed_names(key, ids).view("<u8")[::2] / 2.0**64


@dataclass(frozen=True, slots=True)
class KeyedChoice:
    """The choice of held-out records, the same in all runs of the same parties.

    Attributes
    ----------
    path : Path
        The file that keeps all parties' random bytes.
    share : float
    places : callable
        Takes the key; returns the pseudorandom numbers of all common records.
    most : int, optional
        Most records that are released, among those that are not held out.
    """

    path: Path
    share: float
    places: Callable[[bytes], Places]
    most: int | None = None

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun, ids: Ids | Callable[[bytes], Places]) -> Self:
        """Make the choice of a run file, on records given by their ids or by a function that numbers them.

        Its own file lies beside a passive party's ledger or the active party's run folders.
        """
        places = ids if callable(ids) else partial(places_of, ids=ids)
        home = os.path.realpath(run.ledger.path) if isinstance(run, PassiveRun) else run.run_folder
        peers = sorted(peer.name for peer in run.wiring.peers)
        named = hashlib.sha256("\n".join(peers).encode()).hexdigest()[:16]
        return cls(Path(home).parent / f"held_out.{named}.json", run.held_out, places, run.most_records)

    def divided(self, key: bytes) -> Division | None:
        """Divide the records, and keep the bound for later runs; None if all are to be released.

        Raises
        ------
        Disagreement
            If all of them are held out.
        """
        places = self.places(key)
        return self._division(places, keep(self.path, {self._bound: self._first_bound(places)})[self._bound])

    def n_trained(self, n_rows: int) -> int:
        """How many of the records are released and trained on; `n_rows` if the key was not drawn yet."""
        kept = kept_before(self.path) if self.share else {}
        if KEY not in kept:
            return n_rows
        places = self.places(bytes.fromhex(kept[KEY]))
        division = self._division(places, kept.get(self._bound, self._first_bound(places)))
        return n_rows if division is None else len(division.trained)

    @property
    def _bound(self) -> str:
        """The name under which the bound of the share is kept."""
        return f"bound {self.share!r}"

    def _first_bound(self, places: Places) -> str:
        return min(self.share, MOST_HELD_OUT / len(places)).hex()

    def _division(self, places: Places, bound: str) -> Division | None:
        is_held_out = places < float.fromhex(bound)
        candidates = np.flatnonzero(~is_held_out)
        if not len(candidates):
            raise Disagreement(
                f"all of the {len(places)} common records are held-out ones: none is left to train on. "
                "Nothing was released"
            )
        released = np.sort(candidates[np.argsort(places[candidates], kind="stable")[: self.most]])
        return Division(np.flatnonzero(is_held_out), released) if len(released) < len(places) else None


def choose_active(job: ActiveJob, channels: Sequence[Channel], choice: KeyedChoice) -> Division | None:
    """Agree with all peers on the held-out records, before any is released; None where there are none.

    Parameters
    ----------
    job : ActiveJob
        On all common records. Their ids are proved here; those of the records to train on are proved later.
    channels : sequence of Channel
    choice : KeyedChoice
    """
    if not choice.share:
        return None
    with conversation(channels) as phase:
        phase.enter("greeting")
        hellos = {channel.peer: job.hello(channel.peer) for channel in channels}
        greet_all(channels, hellos, passwords=job.passwords(hellos))
        phase.enter(_CHOOSING)
        return choice.divided(draw_active(channels, choice.path))


def choose_passive(job: PassiveJob, channel: Channel, choice: KeyedChoice) -> Division | None:
    """A passive party's side of `choose_active`."""
    if not choice.share:
        return None
    with conversation([channel]) as phase:
        phase.enter("greeting")
        greet(channel, job.hello(), password=job.password)
        phase.enter(_CHOOSING)
        return choice.divided(draw_passive(channel, choice.path))


def own_records(table: PartyTable, schema: TableSchema) -> HeldOutRecords:
    """Make the active party's held-out records from a table of them."""
    assert table.labels is not None
    return HeldOutRecords(table.names[:], model_inputs(table, schema), table.labels)


def answerable(table: PartyTable, router: Router) -> AnswerableRecords:
    """Make a passive party's held-out records from a table of them, with the columns that the router needs."""
    columns = {mechanism.schema.name: table.features[mechanism.schema.name] for mechanism in router.mechanisms}
    return AnswerableRecords.of(router, table.index, pd.DataFrame(columns), table.keys)


def answer_held_out(answerer: Answerer | None, channel: Channel, note: Callable[[Tally], None]) -> Tally:
    """Answer the active party's requests within a training run until `Done`; without an answerer, refuse them.

    `note` takes the counts of every request before its answers leave, since these are exact even if the run fails.

    Raises
    ------
    UnexpectedMessage
        If a record is asked for twice, or more records than there are: endless requests would fill the log.
    """
    tally, n_records, asked = Tally(), 0 if answerer is None else answerer.n_records, set[str]()
    while not isinstance(message := receive_any([channel])[1], Done):
        if answerer is None or not isinstance(message, Ask):
            raise UnexpectedMessage(f"{channel.peer} sent {message.kind!r} where 'done' was due")
        n_asked = tally.n_asked + len(message.ids)
        asked.update(message.ids)
        if len(asked) < n_asked or n_asked > n_records or (tally.n_requests and not message.ids):
            raise UnexpectedMessage(
                f"{channel.peer} asked for {n_asked} records in {tally.n_requests + 1} requests; each of {n_records} "
                "may be asked for once. Nothing more was answered"
            )
        request = Tally()
        request.count_request(message)
        answers = answerer.answer(message)
        request.count_answers(message, answers, answerer.n_bits)
        note(request)
        channel.send(answers)
        tally.add(request)
    return tally
