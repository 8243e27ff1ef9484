"""Steps of a round of secure aggregation at the coordinator: vectors, confirmations, shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from parties.horizontal.sum_opening import SumOpening
from parties.horizontal.worker_connections import Connection, Connections
from protocols.errors import SumRefused, TooFewWorkers
from protocols.messages.horizontal import Confirmed, Masked, Shares, Survivors, Unmask
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import Epoch, check_enough
from protocols.secure_aggregation.sum import SumRound

Answer = TypeVar("Answer", Masked, Confirmed, Shares)


class SumSteps:
    """The steps of one round, in order.

    Parameters
    ----------
    of : SumRound
    connections : Connections
    patience_s : float
        How long a worker may take for an answer before the round goes on without it.
    keep_parcel : callable
        Takes a worker, its message, the epoch and the round that the message's parcel is for.
    unexpected : callable
        Takes a worker and a message of it that is no answer to the step.
    """

    def __init__(
        self,
        of: SumRound,
        connections: Connections,
        *,
        patience_s: float,
        keep_parcel: Callable[[Connection, Masked, Epoch, int], None],
        unexpected: Callable[[Connection, Message], None],
    ) -> None:
        self._of = of
        self._connections = connections
        self._patience_s = patience_s
        self._keep_parcel = keep_parcel
        self._unexpected = unexpected

    def collect_vectors(self, asked: Sequence[str]) -> None:
        """Collect masked vectors, each with a parcel for the next round; a worker that is late is left out."""
        came: set[str] = set()

        def take(place: int, message: Masked) -> None:
            self._of.add(place, message.vector)
            name = self._of.epoch.names[place]
            came.add(name)
            self._keep_parcel(self._connections.all[name], message, self._of.epoch, message.round + 1)

        self._take(Masked, self._connections.answers(asked, self._patience_s, came), take)

    def opened(self, opening: SumOpening) -> NDArray[np.int64] | None:
        """Unmask the sum of the vectors that came; None if the same questions are to be asked in another round.

        Another round is needed if too few workers remained, if they are not those of an earlier opening, or if too few
        right shares of a drop-out's secret came.

        Parameters
        ----------
        opening : SumOpening
            Journal of the workers that the sum was or is opened over, and of those that are asked for shares.

        Raises
        ------
        SumRefused
            If too few shares of a survivor's secret are right. Nothing was learnt then.
        """
        epoch = self._of.epoch
        survivors = [epoch.names[place] for place in np.flatnonzero(self._of.survivors)]
        if opening.before and set(survivors) != opening.before:
            return None
        with suppress(TooFewWorkers):
            asked = opening.free(self.collect_confirmations(), survivors)
            check_enough(epoch, len(asked), "confirmed who took part, and may give shares")
            opening.note_asked(asked, survivors)
            try:
                return self.unmasked(asked)
            except TooFewWorkers:
                opening.note_kept_back([epoch.names[u] for u in self._of.kept_back], threshold=epoch.threshold)
        return None

    def collect_confirmations(self) -> list[str]:
        """Collect all survivors' confirmations, since some may be wrong; returns the workers that confirmed."""
        survives, epoch = self._of.close(), self._of.epoch
        survivors = [epoch.names[place] for place in np.flatnonzero(survives)]
        for name in survivors:
            message = Survivors(epoch=epoch.number, round=self._of.number, survivors=survives)
            self._connections.send(self._connections.all[name], message)
        came: set[str] = set()

        def take(place: int, message: Confirmed) -> None:
            self._of.add_confirmations(place, message.rows)
            came.add(epoch.names[place])

        self._take(Confirmed, self._connections.answers(survivors, self._patience_s, came), take)
        return [name for name in survivors if name in came]

    def unmasked(self, asked: Sequence[str]) -> NDArray[np.int64]:
        """Unmask the sum with a threshold of shares, or with everybody's if some of these are wrong."""
        epoch, number = self._of.epoch, self._of.number
        for name in asked:
            sealed, confirmations = self._of.request(epoch.names.index(name))
            unmask = Unmask(epoch=epoch.number, round=number, sealed=sealed, confirmations=confirmations)
            self._connections.send(self._connections.all[name], unmask)
        self._collect_shares(asked, n=epoch.threshold)
        try:
            return self._of.result()
        except SumRefused:
            if not self._of.has_enough_shares:
                self._lose_silent(asked)
                raise
        self._collect_shares(asked, n=len(asked))
        return self._of.result()

    def _lose_silent(self, asked: Sequence[str]) -> None:
        """Drop the workers that sent no shares, until they are heard again."""
        for name in sorted(self._connections.still_in(asked) - self._answered()):
            self._connections.lose_late(name, self._patience_s)

    def _collect_shares(self, asked: Sequence[str], *, n: int) -> None:
        def is_enough() -> bool:
            answered = self._answered()
            return len(answered) - len(self._of.kept_back) >= n or answered >= self._connections.still_in(asked)

        def take(place: int, message: Shares) -> None:
            self._of.add_shares(place, message.rows, message.confirmed)

        self._take(Shares, self._connections.listen(asked, self._patience_s, until=is_enough), take)

    def _answered(self) -> set[str]:
        """The workers that sent shares, or a refusal to."""
        return {self._of.epoch.names[place] for place in self._of.answered}

    def _take(
        self, kind: type[Answer], received: Iterable[tuple[Connection, Message]], take: Callable[[int, Answer], None]
    ) -> None:
        """Process one kind of answers to a round; a worker that sends a malformed one is expelled."""
        for worker, message in received:
            if not isinstance(message, kind):
                self._unexpected(worker, message)
            elif (message.epoch, message.round) == (self._of.epoch.number, self._of.number):
                try:
                    take(self._of.epoch.names.index(worker.name), message)
                except SumRefused as error:
                    self._connections.expel(worker, str(error))
