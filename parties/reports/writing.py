"""Reports: chosen by the run file, and written as HTML, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parties.config.party_run import HORIZONTAL_ROLES, PartyRun
from parties.config.reading import read_any_run, read_role
from parties.errors import ConfigError
from parties.progress import Progress, no_progress
from parties.reports.page import Page, to_csv, to_html, to_markdown
from parties.reports.plain import plain
from parties.reports.plan.choices import MechanismGrid
from parties.reports.plan.facts import plan_of
from parties.reports.plan.page import plan_page
from parties.reports.run_facts import ActiveFacts, run_facts
from parties.reports.run_page import active_page, passive_page
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder, write_json, write_text

FORMAT, VERSION = "opboost-report", 1

# Order that a plan finds the smallest budget for, unless others are asked for.
WANTED_ORDER = (0.9,)


@dataclass(frozen=True, slots=True)
class Report:
    """A report in all its forms; each is made when it is asked for.

    Attributes
    ----------
    document : dict
        The facts as plain values.
    page : Page
    home : Path
        Where the HTML file goes by default; the JSON file goes beside it.
    """

    document: dict[str, Any]
    page: Page
    home: Path

    @property
    def warnings(self) -> list[str]:
        """Warnings about a plan, column by column and then of the run file."""
        plans = [*self.document.get("columns", ()), self.document]
        return [sentence for plan in plans if isinstance(plan, dict) for sentence in plan.get("warnings", ())]

    def text(self, form: str) -> str:
        """The report as ``html``, ``json``, ``csv`` or ``md``."""
        forms: dict[str, Callable[[], str]] = {
            "html": lambda: to_html(self.page),
            "json": lambda: json.dumps(self.document, indent=2, allow_nan=False) + "\n",
            "csv": lambda: to_csv(self.page),
            "md": lambda: to_markdown(self.page),
        }
        return forms[form]()

    def write(self) -> None:
        """Write the HTML and the JSON file, in place of earlier ones."""
        make_folder(self.home.parent)
        write_text(self.home, self.text("html"))
        write_json(self.home.with_suffix(".json"), self.document)


def report_of(
    path: Path,
    *,
    before: bool = False,
    grid: MechanismGrid | None = None,
    wanted_order: tuple[float, ...] = (),
    progress: Progress = no_progress,
) -> Report:
    """The report of a finished run; before that, or where asked for, the plan of whoever releases anything.

    Raises
    ------
    ConfigError
        If there is nothing to report: an active party plans no release.
    """
    run = read_party_run(path)
    is_finished = RunFolder(run.run_folder).is_finished
    if is_finished and not before:
        if grid is not None or wanted_order:
            raise ConfigError(
                f"run {run.run_id!r} is finished: its report compares no mechanisms; ask for the plan with --before"
            )
        return finished_report(path)
    if run.role == "active":
        instead = "is finished: leave --before out for its report" if is_finished else "is not finished"
        raise ConfigError(
            f"an active party releases no columns, so it has no plan; run {run.run_id!r} of {run.party} {instead}"
        )
    home = run.run_folder.with_name(f"{run.run_folder.name}.plan.html")
    if run.role == "passive":
        plan = plan_of(path, grid or MechanismGrid(), wanted_order=wanted_order or WANTED_ORDER, progress=progress)
        return Report(_document("plan", plan), plan_page(plan), home)
    from parties.reports.horizontal_plan_facts import record_plan
    from parties.reports.horizontal_plan_page import record_plan_page

    if wanted_order or (grid is not None and replace(grid, epsilons=()) != MechanismGrid()):
        raise ConfigError(
            f"run {run.run_id!r} desensitizes no columns: of what a plan compares there is --epsilon alone, for other "
            "budgets"
        )
    records = record_plan(path, epsilons=grid.epsilons if grid else (), progress=progress)
    return Report(_document("record plan", records), record_plan_page(records), home)


def finished_report(path: Path) -> Report:
    """The report of a finished run.

    Raises
    ------
    RunFolderError
        If it is not finished.
    """
    home = read_party_run(path).run_folder / "report.html"
    if read_role(path) in HORIZONTAL_ROLES:
        from parties.reports.horizontal_facts import record_facts
        from parties.reports.horizontal_page import record_page

        records = record_facts(path)
        return Report(_document("records", records), record_page(records), home)
    facts = run_facts(path)
    page = active_page(facts) if isinstance(facts, ActiveFacts) else passive_page(facts)
    return Report(_document("run", facts), page, home)


def read_party_run(path: Path) -> PartyRun:
    """Read a run file of any role.

    Raises
    ------
    ConfigError
    """
    if read_role(path) not in HORIZONTAL_ROLES:
        return read_any_run(path)
    # Loaded here: the parties of vertical training write their reports without the recipes of horizontal training.
    from parties.config.record_runs import read_record_run

    return read_record_run(path)


def _document(kind: str, facts: object) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "kind": kind, **plain(facts)}
