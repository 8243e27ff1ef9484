"""Page of a finished horizontal run: privacy accounting, participants and outgoing messages."""

from __future__ import annotations

from collections.abc import Iterator

from parties.reports.horizontal_account import account_section, promise_blocks
from parties.reports.horizontal_facts import RecordFacts
from parties.reports.horizontal_words import observers_section, position_section, settings_section
from parties.reports.page import FigureGrid, Page, PageBlock, PageSection, Prose
from parties.reports.result_section import fit_sections, result_sections
from parties.reports.run_page import history_sections, importance_blocks
from parties.reports.words import loss, size


def record_page(facts: RecordFacts) -> Page:
    """Page of a finished horizontal run."""
    history = facts.history
    if facts.role == "coordinator":
        title = f"Run {history.run_id}: a model of the workers of {history.party}"
        lead = (
            "It holds the promise, the settings, what the trees use and what left, by size and digest. That is "
            "within the promise or was public before, but for who took part when and who dropped out; it holds no "
            "record, label or sum of the workers' records."
        )
        if facts.fits:
            lead += (
                " Besides, it holds statistics of the labels of records that were scored here (curves, metrics), which "
                "no promise covers."
            )
    else:
        title = f"Run {history.run_id}: what {history.party} took part in"
        lead = (
            f"For {history.party}: it holds statistics of its own labels (curves, metrics), how many rows it has, and "
            "its account. It holds no record, id or label, and of the others nothing but the model's trees."
        )
    return Page(
        title=title,
        lead=lead,
        sections=(
            PageSection("In plain words", (Prose(_told(facts)), *promise_blocks(facts.account.guarantee))),
            *result_sections(facts.fits, party=history.party),
            *([_no_rows()] if facts.role == "coordinator" and not facts.fits else []),
            PageSection("What the trees use", tuple(importance_blocks(facts.importance, has_gains=facts.has_gains))),
            account_section(facts.account),
            observers_section(facts.observers, facts.account.guarantee),
            *([position_section(facts.ledger, is_over=True)] if facts.ledger else []),
            PageSection("Who took part", tuple(_part_blocks(facts)), is_folded=True),
            *fit_sections(facts.fits),
            settings_section(facts.settings, facts.n_trees),
            *history_sections(history),
        ),
    )


def _told(facts: RecordFacts) -> str:
    history = facts.history
    others = ", ".join(history.peers)
    if facts.role == "coordinator":
        absent = _absent(facts)
        present = ", ".join(name for name in history.peers if name not in absent)
        told = f"{history.party} added up answers of {present or 'nobody'} to a model of {facts.n_trees} trees"
        missed = f" No sum has answers of {', '.join(absent)}." if absent else ""
        return f"{told}; it saw sums alone.{missed}"
    if not facts.has_answered:
        return (
            f"{history.party} answered nothing in this run, so that none of its {history.n_records:,} rows trained. It "
            f"has the model of {facts.n_trees} trees all the same, as {history.peers[0]} told it."
        )
    told = f"{history.party} took part with {history.n_records:,} rows, which stayed where they are, in a model of"
    # A worker sees neither who else answered nor who was away.
    whose = f"; the run's others are {others}" if facts.role == "worker" else f" with {others}"
    return f"{told} {facts.n_trees} trees{whose}."


def _absent(facts: RecordFacts) -> list[str]:
    """Workers that are in no sum, as far as that was noted."""
    return [worker.name for worker in facts.participants if worker.n_rounds == 0]


def _no_rows() -> PageSection:
    told = (
        "Unknown here: the coordinator holds no rows, and a score on the workers' rows would be one more release. Each "
        "worker's own report has scores on its own rows; `opboost predict` scores other rows with labels."
    )
    return PageSection("Quality", (Prose(told),))


def _part_blocks(facts: RecordFacts) -> Iterator[PageBlock]:
    history = facts.history
    if facts.role != "coordinator" and facts.has_answered:
        yield Prose(f"{history.party} took part with {history.n_records:,} rows, which it told nobody.")
    if facts.n_rounds is not None:
        asked = " and ".join(f"{count} times {kind.removeprefix('want ')}" for kind, count in facts.questions.items())
        whose = "in all" if facts.role == "coordinator" else "that this worker answered"
        at_least = "At least " if history.is_cut and facts.role != "coordinator" else ""
        yield Prose(
            f"{at_least}{facts.n_rounds} rounds of secure aggregation {whose}; asked for: {asked or 'nothing'}."
        )
    if facts.role == "coordinator":
        rows = tuple(
            (
                worker.name,
                "not noted" if worker.n_rounds is None else str(worker.n_rounds),
                "not noted" if worker.n_rounds is None else str((facts.n_rounds or 0) - worker.n_rounds),
                "not told",
                size(worker.received_bytes),
                size(worker.sent_bytes),
            )
            for worker in facts.participants
        )
        headings = ("worker", "rounds in the sum", "rounds without it", "rows", "bytes from it", "bytes to it")
        yield FigureGrid("Workers", headings, rows)
    else:
        lines = tuple(
            (worker.name, size(worker.sent_bytes), size(worker.received_bytes)) for worker in facts.participants
        )
        yield FigureGrid("Talked to", ("party", "bytes to it", "bytes from it"), lines)
    if facts.absences:
        yield FigureGrid("Drop-outs, returns and wrong shares", ("time", "what happened"), facts.absences)
    elif facts.role == "coordinator":
        yield Prose("Nobody who took part dropped out." if _absent(facts) else "Nobody dropped out.")
    for noise in _share_notes(facts):
        yield Prose(noise)


def _share_notes(facts: RecordFacts) -> Iterator[str]:
    """Effect of drop-outs on noise in shares."""
    honest = facts.settings.get("honest")
    if facts.role == "coordinator" and honest is not None:
        fewest = facts.settings["threshold"]
        yield (
            f"Every sum was over at least {fewest} workers, of whom any {honest} make up the noise of epsilon "
            f"{loss(facts.account.guarantee.epsilon)}: a drop-out takes its share with it and costs no privacy."
        )
