"""Opening of a sum at the coordinator: the workers that it may have been opened over, and those bound by shares."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parties.horizontal.round_journal import RoundJournal


class SumOpening:
    """Journal entries of one round about the opening of its sum.

    Parameters
    ----------
    journal : RoundJournal
    number : int
        The number of the sum.

    Notes
    -----
    Privacy: no sum is opened over two sets of workers. What protects a worker is its own record: once it has given
    shares of a sum it gives none over another set (`Answered.survivors`). The coordinator keeps to the same rule. Whom
    it asks is bound to the survivors of that round before the request leaves, and is asked over no others. Only a
    worker that answered without a share is free again, unless an earlier round bound it. Its word does, even if it
    lies: it answers once in a round, so that no share of it is there. A set is given up when fewer than `threshold`
    workers are bound to it. It was never opened then, since whoever gave a share for that is still bound.
    """

    def __init__(self, journal: RoundJournal, number: int) -> None:
        self._journal = journal
        self._number = number
        # A journal with survivors alone is of an earlier version or a killed process, which may have asked all of them.
        self._bound = journal.bound(number) or dict.fromkeys(self.before, self.before)

    @property
    def before(self) -> frozenset[str]:
        """The workers that the sum may have been opened over before; empty if it was not."""
        return self._journal.survivors(self._number)

    def free(self, names: Sequence[str], survivors: Collection[str]) -> list[str]:
        """The workers among these that may give shares of a sum over the survivors."""
        over = frozenset(survivors)
        return [name for name in names if self._bound.get(name, over) == over]

    def note_asked(self, asked: Sequence[str], survivors: Sequence[str]) -> None:
        """Note the set that the sum is opened over, and the workers to ask for shares; called before they are asked."""
        self._journal.note_survivors(self._number, list(survivors))
        self._journal.note_bound(self._number, {**self._bound, **dict.fromkeys(asked, frozenset(survivors))})

    def note_kept_back(self, names: Collection[str], *, threshold: int) -> None:
        """Free workers that gave no share; and give up the set, if fewer than the threshold are bound to it."""
        asked = self._journal.bound(self._number)
        bound = {name: over for name, over in asked.items() if name in self._bound or name not in names}
        self._journal.note_bound(self._number, bound)
        if list(bound.values()).count(self.before) < threshold:
            self._journal.note_survivors(self._number, [])
