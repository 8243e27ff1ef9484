"""Check results: an expected error is a problem under its check's name, and a defect is not hidden."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from parties.doctor.check_result import Checklist, Finding, Status, is_sound, report
from parties.errors import TableError


@pytest.mark.parametrize("statuses", list(itertools.product(Status, repeat=2)))
def test_only_a_problem_keeps_a_run_from_being_started(statuses: tuple[Status, Status]) -> None:
    findings = [Finding("check", status, "sentence") for status in statuses]
    assert is_sound(findings) is (Status.PROBLEM not in statuses)
    assert report(findings)["ok"] is is_sound(findings)
    assert [one["status"] for one in report(findings)["findings"]] == [status.value for status in statuses]


def test_an_expected_error_ends_its_check_alone(tmp_path: Path) -> None:
    checks = Checklist()
    with checks.checking("data"):
        raise TableError("a fault")
    with checks.checking("file"):
        (tmp_path / "none").read_text()
    checks.add("later", Status.OK, "fine")
    assert [(one.check, one.status) for one in checks.findings] == [
        ("data", Status.PROBLEM),
        ("file", Status.PROBLEM),
        ("later", Status.OK),
    ]
    assert checks.findings[0].sentence == "a fault"
    assert checks.findings[1].sentence.endswith("none cannot be used: No such file or directory")
    assert not checks.is_sound


def test_a_defect_is_no_finding() -> None:
    checks = Checklist()
    with pytest.raises(ZeroDivisionError), checks.checking("data"):
        raise ZeroDivisionError
    assert checks.is_sound
