"""Pages of a finished vertical run, and the sections that horizontal runs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from parties.reports.figures import Axis, ranking
from parties.reports.page import Figure, FigureGrid, Page, PageBlock, PageSection, Prose
from parties.reports.result_section import fit_sections, result_sections
from parties.reports.run_facts import ActiveFacts, Importance, PassiveFacts
from parties.reports.run_history import RunHistory
from parties.reports.sentences import SEEDED
from parties.reports.words import (
    guarantee_blocks,
    guarantee_section,
    leakage_section,
    ledger_section,
    loss,
    most_percent,
    percent,
    size,
)

# Outgoing messages and columns that a page lists one by one; the JSON report has them all.
MOST_MESSAGES = 200
MOST_COLUMNS = 20


def active_page(facts: ActiveFacts) -> Page:
    """Page of a finished run for the active party."""
    history = facts.history
    return Page(
        title=f"Run {history.run_id}: the model of {history.party}",
        lead=(
            "This page holds statistics of the labels (curves, metrics, calibration) and the columns' importance. It "
            "holds no record, label, id, tree, leaf or threshold, and of the passive parties what they released "
            "the ranks with, what their columns add to the scores, by exact answers where these were given, and how "
            "many records they have and share; by the digest of a request about few records a guess of their ids can "
            "be checked. It may be passed on to whom all this may be known."
        ),
        sections=(
            *result_sections(facts.fits, party=history.party, uplift=facts.uplift),
            PageSection("What the trees use", tuple(_importance_blocks(facts))),
            PageSection("Guarantee", tuple(_promises(facts)), is_folded=True),
            leakage_section(by_cells=facts.by_cells),
            *fit_sections(facts.fits),
            _settings_section(facts),
            *history_sections(history),
        ),
    )


def passive_page(facts: PassiveFacts) -> Page:
    """Page of a finished run for a passive party."""
    history = facts.history
    summary = (
        f"{history.party} released ranks of {len(facts.columns)} desensitized columns of {history.n_records:,} records "
        f"to {history.peers[0]}. Thresholds were "
        f"{'shared, with names, bounds and categories of the columns' if facts.shared_thresholds else 'kept'}; exact "
        f"routing bits for {facts.answered_records} are "
        f"{f'answered, {facts.n_bits} for each' if facts.allows_routed else 'refused'}"
        f"{', the numbers of their cells' if facts.by_cells else ''}. What is promised here is this run's; the section "
        "Ledger adds up what all runs released of a record."
        + f" {SEEDED[0].upper()}{SEEDED[1:]}."
        * (not facts.guarantee.is_secure)
    )
    rows = tuple((column.column, column.sentence, str(column.n_tests)) for column in facts.columns)
    of_column = "cells" if facts.by_cells else "thresholds in use"
    return Page(
        title=f"Run {history.run_id}: what {history.party} released",
        lead=(
            f"For {history.party}: it names columns and says how many of their thresholds are asked for. It holds no "
            "value of the data, but how many there are and how many lay outside the public bounds, and of the other "
            "side how many records it has."
        ),
        sections=(
            PageSection(
                "In plain words",
                (Prose(summary), FigureGrid("Each column's promise", ("column", "in words", of_column), rows)),
            ),
            guarantee_section(facts.guarantee),
            leakage_section(by_cells=facts.by_cells),
            ledger_section(facts.ledger, is_over=True),
            *history_sections(history),
        ),
    )


def _promises(facts: ActiveFacts) -> Iterator[PageBlock]:
    for peer, guarantee in facts.guarantees.items():
        yield Prose(f"What was promised to the people in the data of {peer}:")
        yield from guarantee_blocks(guarantee)
    if len(guarantees := tuple(facts.guarantees.values())) > 1:
        near, any_two = (
            loss(sum(guarantee.epsilon for guarantee in guarantees)),
            loss(sum(guarantee.domain_loss for guarantee in guarantees)),
        )
        yield Prose(
            f"All of this is about the same people, and {facts.history.party} has it all: losses add up, to {near} "
            f"between neighbouring records and to {any_two} between any two."
        )
    yield Prose(_label_words(facts))
    for peer, leak in facts.label_leaks.items():
        yield Prose(
            f"{peer} offered {leak.n_columns} columns and resolved {leak.n_tests} tests on them. Their choice tells it "
            f"at most {loss(leak.bits)} bits about the labels of {facts.history.n_records:,} records: of labels that "
            f"are 0 or 1 with equal chance, it could guess at most {most_percent(leak.share)} by this run alone."
        )
    if facts.label_leaks:
        yield Prose(
            "Bits about the same labels add up: those of other runs, of scouting and of a run that this one continues, "
            "and those of passive parties that tell each other what they read."
        )


def _label_words(facts: ActiveFacts) -> str:
    if facts.by_cells:
        return (
            "Nothing that a passive party reads depends on labels, but for which records have one: it answers by a "
            "grid made before training."
        )
    if (promise := facts.label_promise) is None:
        return (
            "The labels are not protected by differential privacy: which ranks the trees split on depends on them, and "
            "is told to the passive parties."
        )
    drawn = f"{promise.mechanism.replace('_', ' ')} {promise.law}".strip()
    return (
        f"The labels have {loss(promise.domain_loss)}-label differential privacy against the passive parties: all "
        f"that these see of labels is computed from noised ones ({drawn}), and a record keeps its noise in every run. "
        "Runs without label_epsilon, with another one, other classes or other bounds tell more, which adds up. Which "
        "records have a label shows, and that a label was changed between two runs, whatever the epsilon. Leaves are "
        "fitted to the true labels, which stay here with them."
    )


def _importance_blocks(facts: ActiveFacts) -> Iterator[PageBlock]:
    owner = "its owner alone"
    if facts.shares_thresholds:
        shared = ", ".join(facts.shares_thresholds)
        owner = f"its owner and, with the thresholds that were shared, of {shared} by {facts.history.party}"
    yield Prose(
        f"Passive parties' columns go by the names that these gave them; a number can be mapped back by {owner}."
    )
    if facts.noise:
        yield Prose(f"Noised columns: {facts.noise}.")
    yield from importance_blocks(facts.importance, has_gains=True)


def importance_blocks(importance: Sequence[Importance], *, has_gains: bool) -> Iterator[PageBlock]:
    """Importance of columns, those of passive parties behind the names of these."""
    shown = importance[:MOST_COLUMNS]
    names = [f"{column.owner}: {column.column}" if column.owner else column.column for column in shown]
    of_what = "the gain" if has_gains else "the splits"
    if not has_gains:
        yield Prose(
            "These trees know no gains. Where splits are drawn at random, their number says nothing of what a column "
            "is worth."
        )
    rows = tuple((name, percent(column.share), str(column.n_splits)) for name, column in zip(names, shown, strict=True))
    yield FigureGrid("Importance", ("column", f"share of {of_what}", "splits"), rows)
    if shown and any(column.share > 0 for column in shown):
        yield Figure(
            ranking(
                names,
                [100 * column.share for column in shown],
                x=Axis(label=f"share of {of_what}, %"),
                alt=f"Importance of {len(shown)} columns; the first is {names[0]}",
            ),
            "Share of the total gain of all splits, by column." if has_gains else "Share of all splits, by column.",
        )


def _settings_section(facts: ActiveFacts) -> PageSection:
    rows = (
        ("objective", facts.objective),
        ("trees", str(facts.n_trees)),
        ("may score alone, with thresholds of", ", ".join(facts.shares_thresholds) or "nobody"),
        *((key, str(value)) for key, value in facts.settings.items() if key != "objective"),
    )
    return PageSection("Model and settings", (FigureGrid("Settings", ("setting", "value"), rows),), is_folded=True)


def _prediction_blocks(history: RunHistory) -> Iterator[PageBlock]:
    """Prediction jobs since the run."""
    later = history.outgoing[history.n_trained :]
    at_least = "at least " if history.n_dropped or history.is_cut else ""
    summary = (
        f"Since the run was finished, {at_least}{len(later)} messages with "
        f"{size(sum(message.bytes for message in later))} left "
        f"{history.party}."
    )
    if history.held_out is not None:
        more = "; there may be more, since parts of the log are gone" if history.is_cut else ""
        yield Prose(f"In training {history.party} {history.held_out.message}: these answers are exact{more}.")
    answered = [use.n_answered for use in history.predictions if use.n_answered is not None]
    if answered or history.lacks_answers:
        bits = sum(use.n_routed_bits or 0 for use in history.predictions)
        at_least = "at least " if history.is_cut or history.lacks_answers else ""
        summary += f" It answered for {at_least}{sum(answered):,} records, with {at_least}{bits:,} exact routing bits."
    if history.lacks_answers:
        summary += (
            " More may have been answered: it answers now, or was killed when it did, and the last minute may not be "
            "counted."
        )
    yield Prose(summary)
    rows = tuple((use.time, use.message) for use in history.predictions)
    if len(rows) > MOST_MESSAGES:
        yield Prose(f"The last {MOST_MESSAGES} of {len(rows)}; all of them stand in report.json.")
    if rows:
        yield FigureGrid("Uses of the model", ("time", "what"), rows[-MOST_MESSAGES:])


def history_sections(history: RunHistory) -> Iterator[PageSection]:
    """Sections on prediction jobs, outgoing messages, steps, versions and seeds."""
    is_used = bool(history.predictions or history.lacks_answers or history.n_trained < len(history.outgoing))
    if is_used or history.held_out:
        yield PageSection("Answers and predictions", tuple(_prediction_blocks(history)), is_folded=True)
    counts: Counter[str] = Counter(message.kind for message in history.outgoing)
    sizes: Counter[str] = Counter()
    for message in history.outgoing:
        sizes[message.kind] += message.bytes
    by_kind = tuple((kind, str(count), size(sizes[kind])) for kind, count in counts.items())
    listed = tuple(
        (message.time, message.peer, message.kind, str(message.bytes), message.sha256) for message in history.outgoing
    )
    blocks: list[PageBlock] = [
        Prose(
            f"{'What' if history.n_dropped or history.is_cut else 'Everything that'} left {history.party} in this run "
            f"and in predictions since, by size and digest: {len(listed)} messages. The digests are those of the bytes "
            "before encryption; nothing of the content is kept. Of a short message, such as a request about one record "
            "or its answer, there are few contents to try: whoever has its digest can check a guess."
        ),
        FigureGrid("Outgoing messages by kind", ("kind", "messages", "bytes"), by_kind),
        FigureGrid("Outgoing messages", ("time", "to", "kind", "bytes", "SHA-256"), listed[:MOST_MESSAGES]),
    ]
    if history.is_cut:
        warning = (
            "Parts of the log are gone: messages, steps and uses of the model that stood there are in no list here."
        )
        blocks.append(Prose(warning, is_strong=True))
    if history.n_dropped:
        dropped = f"{history.n_dropped:,} more messages of services, sent and received, are not listed any more"
        blocks.append(
            Prose(f"{dropped}; log.jsonl has the number and the SHA-256 of each part of them.", is_strong=True)
        )
    if len(listed) > MOST_MESSAGES:
        blocks.append(Prose(f"{len(listed) - MOST_MESSAGES} more stand in report.json and log.jsonl."))
    yield PageSection("What left", tuple(blocks), is_folded=True)
    steps = tuple((step.time, f"{step.seconds:.1f}", step.event, step.message) for step in history.steps)
    grid = FigureGrid("Steps", ("time", "seconds", "step", "what"), steps[-MOST_MESSAGES:])
    yield PageSection("Time line", (grid,), is_folded=True)
    facts = (
        ("party", history.party),
        ("others", ", ".join(history.peers)),
        ("records", f"{history.n_records:,}"),
        ("started", history.started),
        ("finished", history.finished),
        ("taken up again", ", ".join(history.resumed) or "never"),
        ("sent in training", size(history.sent_bytes)),
        ("received in training", size(history.received_bytes)),
        ("randomness", history.randomness),
        *history.versions.items(),
    )
    yield PageSection("Versions and seeds", (FigureGrid("The run", ("what", "value"), facts),), is_folded=True)
