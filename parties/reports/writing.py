"""Which report a run file asks for, in which form, and where it goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parties.config import ActiveRun, read_any_run
from parties.errors import ConfigError, RunFolderError
from parties.files import replacing, write_json
from parties.progress import Progress, no_progress
from parties.reports.choices import Grid
from parties.reports.page import Page, to_csv, to_html, to_markdown
from parties.reports.plain import plain
from parties.reports.plan_facts import plan_of
from parties.reports.plan_page import plan_page
from parties.reports.record_page import RecordFacts, record_page
from parties.reports.run_facts import ActiveFacts, is_finished, run_facts
from parties.reports.run_page import active_page, passive_page

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
        try:
            self.home.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.home.parent} cannot be made: {error.strerror}") from None
        with replacing(self.home) as partial:
            partial.write_text(self.text("html"))
        write_json(self.home.with_suffix(".json"), self.document)


def report_of(
    path: Path,
    *,
    before: bool = False,
    grid: Grid | None = None,
    wanted_order: tuple[float, ...] = (),
    progress: Progress = no_progress,
) -> Report:
    """The report of a finished run; before that, or where asked for, a passive party's plan.

    Raises
    ------
    ConfigError
        If there is nothing to report: an active party plans no release.
    """
    run = read_any_run(path)
    if is_finished(run.run_folder) and not before:
        if grid is not None or wanted_order:
            raise ConfigError(
                f"run {run.run_id!r} is finished: its report compares no mechanisms; ask for the plan with --before"
            )
        return run_report(path)
    if isinstance(run, ActiveRun):
        raise ConfigError(
            f"run {run.run_id!r} of {run.party} is not finished, and an active party releases no columns to plan; "
            "there is nothing to report yet"
        )
    plan = plan_of(path, grid or Grid(), wanted_order=wanted_order or WANTED_ORDER, progress=progress)
    home = run.run_folder.with_name(f"{run.run_folder.name}.plan.html")
    return Report(_document("plan", plan), plan_page(plan), home)


def run_report(path: Path) -> Report:
    """The report of a finished run.

    Raises
    ------
    RunFolderError
        If it is not finished.
    """
    facts = run_facts(path)
    page = active_page(facts) if isinstance(facts, ActiveFacts) else passive_page(facts)
    return Report(_document("run", facts), page, read_any_run(path).run_folder / "report.html")


def record_report(facts: RecordFacts, run_folder: Path) -> Report:
    """The report of a finished horizontal run, at the one who puts the model together."""
    return Report(_document("records", facts), record_page(facts), run_folder / "report.html")


def _document(kind: str, facts: object) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "kind": kind, **plain(facts)}
