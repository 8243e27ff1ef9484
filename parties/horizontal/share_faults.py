"""Fault attribution in secure aggregation: which worker sent wrong shares or confirmations, and its expulsion."""

from __future__ import annotations

from collections.abc import Callable, Collection

from parties.horizontal.worker_connections import Connections
from protocols.errors import TooFewWorkers
from protocols.secure_aggregation.epochs import ByteRows, Epoch, Flags
from protocols.secure_aggregation.sum import SumRound


class ShareFaults:
    """Wrong shares and confirmations of a run so far, each with its sender and the other worker concerned.

    Parameters
    ----------
    connections : Connections
    note : callable
        Takes a short name and a sentence for the log.
    """

    def __init__(self, connections: Connections, *, note: Callable[[str, str], None]) -> None:
        self._connections = connections
        self._note = note
        self._known: set[tuple[str, str]] = set()
        self._denied: set[tuple[str, str]] = set()

    def doubted(self, epoch: Epoch) -> frozenset[int]:
        """Positions of workers whose shares were wrong before."""
        holders = {holder for holder, _ in self._known}
        return frozenset(place for place, name in enumerate(epoch.names) if name in holders)

    def judge(self, of: SumRound) -> None:
        """Expel a worker that must have sent wrong ones; name both workers where the other one may be at fault.

        Fewer workers than the threshold may be dishonest, so that as many as it cannot all have dealt a wrong share,
        sent a wrong confirmation, or call a right one wrong.
        """
        for holder, dealer in self._blamed(of, of.wrong_shares, self._known, "shares of"):
            self._note_pair("wrong share", f"{holder}'s share of {dealer}'s secret is wrong or lacking")
        liars = self._liars(of)
        denied = frozenset(pair for pair in of.wrong_confirmations if pair[1] not in liars)
        for author, reader in self._blamed(of, denied, self._denied, "confirmations to"):
            self._note_pair("wrong confirmation", _denial(author, reader))

    def no_sum(self) -> TooFewWorkers:
        """The error of a sum that cannot be opened over the workers that are there; it names who may be at fault."""
        found = ", ".join(_denial(author, reader) for author, reader in sorted(self._denied))
        return TooFewWorkers(
            "the sum cannot be opened over the workers that are there, though they are enough: "
            f"{found or 'some of them may have given shares of it over others'}. Nothing more was released"
        )

    def _liars(self, of: SumRound) -> list[int]:
        """Workers that call as many confirmations wrong as cannot all be; they are expelled."""
        names, readers = of.epoch.names, [reader for _, reader in of.wrong_confirmations]
        liars = [reader for reader in sorted(set(readers)) if readers.count(reader) >= of.epoch.threshold]
        for reader in liars:
            others = ", ".join(names[author] for author, other in sorted(of.wrong_confirmations) if other == reader)
            why = f"it calls the confirmations of {others} wrong, of which some must be right"
            self._connections.expel(self._connections.all[names[reader]], why)
        return liars

    def _blamed(
        self, of: SumRound, wrong: frozenset[tuple[int, int]], known: set[tuple[str, str]], what: str
    ) -> list[tuple[str, str]]:
        """New pairs of workers of which either may be at fault; a worker that must be is expelled."""
        names, found = of.epoch.names, dict[str, list[str]]()
        for sender, other in sorted(wrong):
            found.setdefault(names[sender], []).append(names[other])
        new: list[tuple[str, str]] = []
        for name, others in found.items():
            if name in others or len(others) >= of.epoch.threshold:
                self._connections.expel(self._connections.all[name], f"its {what} {', '.join(others)} are wrong")
                continue
            new += [(name, other) for other in others if (name, other) not in known]
        known.update(new)
        return new

    def _note_pair(self, event: str, sentence: str) -> None:
        self._note(event, f"{sentence}: one of the two does not keep to the protocol")


def _denial(author: str, reader: str) -> str:
    return f"{author}'s confirmation to {reader} is wrong, as {reader} says"


class ConfirmationFaults:
    """Wrong confirmations to a worker in a run so far, whose senders its own log names, each once.

    Parameters
    ----------
    note : callable
        Takes a short name and a sentence for the log.
    """

    def __init__(self, *, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._known: set[str] = set()

    def judge(self, epoch: Epoch, survivors: Collection[str], confirmations: ByteRows, confirmed: Flags) -> None:
        """Name who sent a wrong confirmation; a row of zeros is of a worker that sent none."""
        for name, row, is_right in zip(epoch.names, confirmations, confirmed, strict=True):
            if name in survivors and row.any() and not is_right and name not in self._known:
                self._known.add(name)
                self._note(
                    "wrong confirmation",
                    f"{name}'s confirmation to this worker is wrong: one of the two, or the coordinator, does not keep "
                    "to the protocol; sums with both may be wrong",
                )
