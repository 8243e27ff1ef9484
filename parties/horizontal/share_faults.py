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

    def judge(self, of: SumRound) -> None:
        """Expel a worker that must be at fault; name both workers where the other one may be.

        Two honest workers have no wrong share and no wrong confirmation between them: the share is the one that its
        dealer sent a digest of, and the confirmation is of what its reader was told. So an honest worker has wrong ones
        with dishonest workers alone, whatever these send and whichever side it is on. While fewer workers than the
        threshold of the epoch are dishonest, who has some with as many others is therefore dishonest itself, and nobody
        else is expelled. As many as the threshold could have honest ones expelled; they could also read their vectors.
        """
        shares = self._disputed(
            of,
            of.wrong_shares,
            self._known,
            sent="its shares of {} are wrong",
            told="it sent digests that the shares of {} contradict, of which some must be right",
        )
        for holder, dealer in shares:
            self._note_pair("wrong share", f"{holder}'s share of {dealer}'s secret is wrong or lacking")
        confirmations = self._disputed(
            of,
            of.wrong_confirmations,
            self._denied,
            sent="its confirmations to {} are wrong",
            told="it calls the confirmations of {} wrong, of which some must be right",
        )
        for author, reader in confirmations:
            self._note_pair("wrong confirmation", _denial(author, reader))

    def no_sum(self) -> TooFewWorkers:
        """The error of a sum that cannot be opened over the workers that are there; it names who may be at fault."""
        found = ", ".join(_denial(author, reader) for author, reader in sorted(self._denied))
        return TooFewWorkers(
            "the sum cannot be opened over the workers that are there, though they are enough: "
            f"{found or 'some of them may have given shares of it over others'}. Nothing more was released"
        )

    def _disputed(
        self, of: SumRound, wrong: frozenset[tuple[int, int]], known: set[tuple[str, str]], *, sent: str, told: str
    ) -> list[tuple[str, str]]:
        """New pairs of sender and other worker of which either may be at fault; a worker that must be is expelled.

        `sent` and `told` are the reasons for a sender and for the other worker, with a placeholder for the other side.
        """
        names = of.epoch.names
        pairs = [(names[sender], names[other]) for sender, other in sorted(wrong)]
        for side, why in ((1, told), (0, sent)):
            found = dict[str, list[str]]()
            for pair in pairs:
                found.setdefault(pair[side], []).append(pair[1 - side])
            for name, others in found.items():
                if len(others) >= of.epoch.threshold or (side == 0 and name in others):
                    self._connections.expel(self._connections.all[name], why.format(", ".join(others)))
                    pairs = [pair for pair in pairs if name not in pair]
        new = [pair for pair in pairs if pair not in known]
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
