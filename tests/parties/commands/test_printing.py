"""Tables for people: a verdict that counts, and no name that a peer chose is markup or a control sequence."""

from __future__ import annotations

import pytest

from parties.commands.printing import print_findings, print_horizontal_summary, print_page, print_summary
from parties.doctor.check_result import Finding, Status
from parties.reports.page import FigureGrid, Page, PageSection


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([Status.OK, Status.SKIPPED], "0 problems, 0 warnings: the run may be started"),
        ([Status.WARNING], "0 problems, 1 warnings: the run may be started"),
        ([Status.PROBLEM, Status.PROBLEM, Status.OK], "2 problems, 0 warnings: the run would not succeed"),
    ],
)
def test_the_doctors_verdict_counts_problems_and_warnings(
    capsys: pytest.CaptureFixture[str], statuses: list[Status], verdict: str
) -> None:
    print_findings([Finding(f"check {i}", status, "said [so]") for i, status in enumerate(statuses)])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == verdict
    assert out.count("said [so]") == len(statuses)


def test_names_are_neither_markup_nor_control_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    grid = FigureGrid("[bold]caption[/bold]", ("a",), (("[red]x[/red]\x1b[2J",),))
    print_page(Page(title="t", lead="l", sections=(PageSection("s", (grid, grid, grid)),)))
    out = capsys.readouterr().out
    assert out.count("[bold]caption[/bold]") == 2
    assert "[red]x[/red]" in out
    assert "\x1b[2J" not in out


def test_summaries_of_both_demos_have_every_score(capsys: pytest.CaptureFixture[str]) -> None:
    common = {"dataset": "sample", "metric": "auc", "rows_test": 9, "bytes_sent": 1, "seconds": 2, "folders": "x"}
    vertical = ("score_active_only", "score_joint", "score_joint_desensitized", "score_central")
    print_summary({**common, "released": 2, "cost": 3, **{name: 0.5 + i / 100 for i, name in enumerate(vertical)}})
    print_horizontal_summary(
        {
            **common,
            "scheme": "recommended",
            "promise": "p",
            "score_joint": 0.61,
            "score_central": 0.62,
            "score_alone": {"w0": 0.63},
        }
    )
    out = capsys.readouterr().out
    assert all(f"{score:.4f}" in out for score in (0.5, 0.51, 0.52, 0.53, 0.61, 0.62, 0.63))
    assert out.count("auc on 9 unseen records") == 2
