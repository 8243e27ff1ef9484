"""A finished horizontal run as a page: what it costs each person in the data, and what left."""

from __future__ import annotations

from dataclasses import dataclass

from parties.reports.page import Grid, Page, Section
from parties.reports.record_account import AccountFacts, account_section
from parties.reports.run_facts import RunHistory
from parties.reports.run_page import history_sections


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What a coordinator, or an owner in a chain, can tell of a run.

    Attributes
    ----------
    history : RunHistory
    account : AccountFacts
    n_trees : int
    settings : dict of str to plain values
        What was agreed.
    """

    history: RunHistory
    account: AccountFacts
    n_trees: int
    settings: dict[str, object]


def record_page(facts: RecordFacts) -> Page:
    """The page."""
    history = facts.history
    rows = (("trees", str(facts.n_trees)), *((name, str(value)) for name, value in facts.settings.items()))
    return Page(
        title=f"Run {history.run_id}: a model of {', '.join((history.party, *history.peers))}",
        lead=(
            "It holds the promise, the settings and what left, by size and digest. It holds no record, label or tree "
            "and no statistic of the data."
        ),
        sections=(
            account_section(facts.account),
            Section("Settings", (Grid("What was agreed", ("setting", "value"), rows),)),
            *history_sections(history),
        ),
    )
