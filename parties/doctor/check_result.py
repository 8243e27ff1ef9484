"""Check results: what `opboost doctor` reports, one sentence per check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from parties.errors import EXPECTED_ERRORS, notes_on


class Status(StrEnum):
    """Outcome of a check; only a problem prevents the start of the run."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: what was checked, how it ended, and a sentence without any value from the data.

    Notes on cells are for the terminal of the file's owner alone.
    """

    check: str
    status: Status
    sentence: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """The results so far, in the order of the checks."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, check: str, status: Status, sentence: str, notes: Sequence[str] = ()) -> None:
        """Add a result."""
        self.findings.append(Finding(check, status, sentence, tuple(notes)))

    @contextmanager
    def checking(self, check: str) -> Iterator[None]:
        """Run a check: an expected error inside the block ends it, and is a problem under the check's name."""
        try:
            yield
        except EXPECTED_ERRORS as error:
            self.add(check, Status.PROBLEM, str(error), notes_on(error))
        except OSError as error:
            self.add(check, Status.PROBLEM, f"{error.filename} cannot be used: {error.strerror}")

    @property
    def is_sound(self) -> bool:
        """Whether nothing so far stands against starting the run."""
        return is_sound(self.findings)


def report(findings: Sequence[Finding]) -> dict[str, Any]:
    """The results as plain values for JSON."""
    return {
        "ok": is_sound(findings),
        "findings": [{"check": f.check, "status": f.status.value, "message": f.sentence} for f in findings],
    }


def is_sound(findings: Sequence[Finding]) -> bool:
    """Whether nothing stands against starting the run."""
    return all(finding.status is not Status.PROBLEM for finding in findings)
