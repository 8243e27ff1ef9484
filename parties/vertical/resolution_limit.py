"""How many split tests a passive party resolves: no more than the model can make, however often asked, in any run.

Every test that is resolved tells something about the scale of a column: with all of a column's ranks resolved, its
desensitized values themselves are known, rather than their order. So the active party says at the greeting how many
tests its model makes at most, and a run file may say how many were agreed on. The ledger has every test that was
resolved. A run's attempts count together against its model's tests; all runs that release the same columns under the
same mechanisms count together against the number that was agreed on or, without one, what the model of the run at hand
makes. The same test counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from opboost.desensitize import ColumnMechanism
from opboost.ranking import Ranking
from opboost.routing import SplitTests, resolve
from parties.ledger.ledger_lines import Occasion, ResolvedTest
from parties.ledger.pricing import unpriced
from parties.ledger.release_ledger import Ledger
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Hello, SplitRanks


@dataclass(frozen=True, slots=True)
class ResolvedTests:
    """The tests that were resolved so far.

    Attributes
    ----------
    ledger : Ledger, optional
        Where they are entered; without one, those of this process are counted.
    occasion : Occasion
    """

    ledger: Ledger | None = None
    occasion: Occasion = field(default_factory=lambda: Occasion(run_id="", task="", peer=""))
    _of_process: set[ResolvedTest] = field(default_factory=set)

    def resolve(
        self,
        wanted: SplitRanks,
        columns: Sequence[Ranking],
        mechanisms: Sequence[ColumnMechanism],
        *,
        is_secure: bool,
        most: int,
        agreed: int | None = None,
        peer: str,
    ) -> SplitTests:
        """Resolve tests, after they were counted and entered.

        Parameters
        ----------
        wanted : SplitRanks
        columns, mechanisms : sequences
            What was released.
        is_secure : bool
        most : int
            Tests of this run.
        agreed : int, optional
            Tests on these columns in all runs; without it, no more than of this run.
        peer : str

        Raises
        ------
        UnexpectedMessage
            If that is more than may be asked, or a test is asked for twice. Nothing was resolved.
        LedgerError
            If the tests cannot be entered.
        """
        of_run = "in this run; the model that was agreed on makes"
        _check_count(len(wanted.ranks), most, peer, of_run)
        pairs = (column.tolist() for column in (wanted.columns, wanted.ranks, wanted.missing_left))
        if len(set(zip(*pairs, strict=True))) < len(wanted.ranks):
            raise UnexpectedMessage(f"{peer} asked for a split test more than once. No threshold was sent")
        tests = resolve(columns, wanted.columns, wanted.ranks, wanted.missing_left)
        families = {m.schema.name: unpriced(m, is_secure=is_secure).family for m in mechanisms}
        asked: set[ResolvedTest] = {
            (families[source], category, threshold if math.isfinite(threshold) else None, left)
            for (source, category), threshold, left in zip(
                tests.sources, tests.thresholds.tolist(), tests.missing_left.tolist(), strict=True
            )
        }
        if self.ledger is None:
            _check_count(len(self._of_process | asked), most, peer, of_run)
            self._of_process.update(asked)
            return tests
        with self.ledger.changing():
            before = self.ledger.sums.tests(self.occasion.peer, self.occasion.run_id)
            _check_count(len(before | asked), most, peer, of_run)
            ever = {test for test in self.ledger.sums.tests(self.occasion.peer) if test[0] in families.values()}
            of_release = "of these columns in all runs; `agreed.tests` or, where it is not set, this run's model allows"
            _check_count(len(ever | asked), most if agreed is None else agreed, peer, of_release)
            if new := sorted(asked - before, key=str):
                self.ledger.note_tests(new, self.occasion)
        return tests


def most_tests(mine: Hello, theirs: Hello, columns: Sequence[Ranking]) -> int:
    """How many tests two greetings and the released ranks allow; an active party that does not say is allowed none.

    A column has no more distinct tests than two for each of its ranks, one for either way of a missing cell.
    """
    said = (theirs.plan.tests or 0, mine.agreed.tests, sum(2 * column.table.n_ranks for column in columns))
    return min(number for number in said if number is not None)


def _check_count(n_tests: int, most: int, peer: str, of_what: str) -> None:
    if n_tests > most:
        raise UnexpectedMessage(
            f"{peer} asked for {n_tests} split tests {of_what} at most {most}. No threshold was sent"
        )
