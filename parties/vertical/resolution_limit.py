"""How many split tests a passive party resolves for one model: no more than the model can make, however often asked.

Every test that is resolved tells something about the scale of a column: with all of a column's ranks resolved, its
desensitized values themselves are known, rather than their order. So the active party says at the greeting how many
tests its model makes at most, and a run file may say how many were agreed on. What was asked for in earlier attempts of
the run counts; the same test counts once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from opboost.routing import ReleasedRanks
from parties.errors import RunFolderError
from parties.storage.atomic_files import write_json
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Hello, SplitRanks

FILE = "resolved.json"

Tests = set[tuple[int, int, bool]]
"""Column, rank and the way of a missing cell, of each test that a run asked for so far."""

_Number = Annotated[int, Field(ge=0, lt=1 << 32)]
_TESTS = TypeAdapter(list[tuple[_Number, _Number, bool]])


class ResolvedTests:
    """The tests of one run that were resolved so far.

    Parameters
    ----------
    folder : Path, optional
        The run's, where they are kept for its next attempt.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / FILE

    def admit(self, wanted: SplitRanks, *, most: int, peer: str) -> Tests:
        """Count what is asked for, before it is looked at one by one.

        Raises
        ------
        UnexpectedMessage
            If that is more than `most` in all attempts together, or a test is asked for twice. Nothing was resolved.
        RunFolderError
            If what was kept cannot be read.
        """
        n_asked = len(wanted.ranks)
        if n_asked <= most:
            columns = (wanted.columns, wanted.ranks, wanted.missing_left)
            asked = set(zip(*(column.tolist() for column in columns), strict=True))
            if len(asked) < n_asked:
                raise UnexpectedMessage(f"{peer} asked for a split test more than once. No threshold was sent")
            tests = self._read() | asked
            n_asked = len(tests)
        if n_asked > most:
            raise UnexpectedMessage(
                f"{peer} asked for {n_asked} split tests in this run; the model that was agreed on makes at most "
                f"{most}. No threshold was sent"
            )
        return tests

    def keep(self, tests: Tests) -> None:
        """Note the tests for the run's next attempts, before the answer to them leaves.

        Raises
        ------
        RunFolderError
            If they cannot be written.
        """
        if self._path is not None:
            write_json(self._path, sorted(tests))

    def _read(self) -> Tests:
        if self._path is None or not self._path.exists():
            return set()
        try:
            return set(_TESTS.validate_python(json.loads(self._path.read_bytes())))
        except (OSError, ValueError, RecursionError):
            raise RunFolderError(f"{self._path} cannot be read; choose another run_id. No threshold was sent") from None


def most_tests(mine: Hello, theirs: Hello, columns: Sequence[ReleasedRanks]) -> int:
    """How many tests two greetings and the released ranks allow; an active party that does not say is allowed none.

    A column has no more distinct tests than two for each of its ranks, one for either way of a missing cell.
    """
    said = (theirs.plan.tests or 0, mine.agreed.tests, sum(2 * column.table.n_ranks for column in columns))
    return min(number for number in said if number is not None)
