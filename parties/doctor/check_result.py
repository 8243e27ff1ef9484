"""What `opboost doctor` reports: one sentence per check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended; only a problem keeps the run from being started."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: what was checked, how it ended, and a sentence without any value from the data."""

    check: str
    status: Status
    sentence: str


def report(findings: Sequence[Finding]) -> dict[str, Any]:
    """Plain values for JSON."""
    return {
        "ok": is_sound(findings),
        "findings": [{"check": f.check, "status": f.status.value, "message": f.sentence} for f in findings],
    }


def is_sound(findings: Sequence[Finding]) -> bool:
    """Whether nothing stands against starting the run."""
    return all(finding.status is not Status.PROBLEM for finding in findings)
