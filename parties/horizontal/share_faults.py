"""Wrong shares in secure aggregation: which worker is to blame, and what the coordinator does about it."""

from __future__ import annotations

from collections.abc import Callable

from parties.horizontal.worker_connections import Lines
from protocols.secure_aggregation.epochs import Epoch
from protocols.secure_aggregation.sum import SumRound


class ShareFaults:
    """Wrong shares of a run so far, each with its holder and with the dealer of the secret.

    Parameters
    ----------
    lines : Lines
    note : callable
        Takes a short name and a sentence for the log.
    """

    def __init__(self, lines: Lines, *, note: Callable[[str, str], None]) -> None:
        self._lines = lines
        self._note = note
        self._known: set[tuple[str, str]] = set()

    def doubted(self, epoch: Epoch) -> frozenset[int]:
        """Places of workers whose shares were wrong before."""
        holders = {holder for holder, _ in self._known}
        return frozenset(place for place, name in enumerate(epoch.names) if name in holders)

    def judge(self, of: SumRound) -> None:
        """Expel a worker that must have sent wrong shares; name both workers where a share may have been dealt wrong.

        Fewer workers than the threshold may be dishonest, so that as many as it cannot all have dealt a wrong share.
        """
        names = of.epoch.names
        found: dict[str, list[str]] = {}
        for place, dealt_by in sorted(of.wrong_shares):
            found.setdefault(names[place], []).append(names[dealt_by])
        for holder, dealers in found.items():
            if holder in dealers or len(dealers) >= of.epoch.threshold:
                self._lines.expel(self._lines.all[holder], f"its shares of {', '.join(dealers)} are wrong")
                continue
            for dealer in dealers:
                if (holder, dealer) not in self._known:
                    self._known.add((holder, dealer))
                    sentence = f"{holder}'s share of {dealer}'s secret is wrong or lacking"
                    self._note("wrong share", f"{sentence}: one of the two does not keep to the protocol")
