"""Limit on the split tests that a passive party resolves, over all attempts and all runs.

Every resolved test reveals something about the scale of a column: with all of a column's ranks resolved, its
desensitized values are known, and not only their order. So the active party says in its greeting how many tests its
model can make, and a run file may state an agreed number. The ledger has every resolved test. All attempts of a run
count together against its model's number. All runs that release the same columns under the same mechanisms count
together against the agreed number or, without one, against the current model's. The same test counts once.
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
        Where they are entered; without a ledger only this process's tests are counted.
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
        """Resolve split ranks, after they were counted and entered into the ledger.

        Parameters
        ----------
        wanted : SplitRanks
        columns, mechanisms : sequences
            Of the release.
        is_secure : bool
        most : int
            Most tests in this run.
        agreed : int, optional
            Most tests on these columns in all runs; by default `most`.
        peer : str

        Raises
        ------
        UnexpectedMessage
            If a limit would be exceeded, or a test is asked for twice. Nothing was resolved.
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
    """The most tests that two greetings and the released ranks allow; none if the active party states no number.

    A column has at most two distinct tests per rank, one for each direction of missing cells.
    """
    limits = (theirs.plan.tests or 0, mine.agreed.tests, sum(2 * column.table.n_ranks for column in columns))
    return min(number for number in limits if number is not None)


def _check_count(n_tests: int, most: int, peer: str, of_what: str) -> None:
    if n_tests > most:
        raise UnexpectedMessage(
            f"{peer} asked for {n_tests} split tests {of_what} at most {most}. No threshold was sent"
        )
