"""Page of a horizontal run's plan."""

from __future__ import annotations

from collections.abc import Iterator

from parties.horizontal.traffic_estimate import EstimatedTraffic
from parties.reports.figures import Axis, Series, bars, lines
from parties.reports.horizontal_account import account_section, promise_blocks
from parties.reports.horizontal_plan_facts import RecordPlan
from parties.reports.horizontal_words import observers_section, position_section, settings_section
from parties.reports.page import Figure, FigureGrid, Page, PageBlock, PageSection, Prose
from parties.reports.words import loss, number, size


def record_plan_page(plan: RecordPlan) -> Page:
    """Page of a horizontal run's plan."""
    if plan.role == "coordinator":
        holds = (
            "It follows from the run file and the schema alone, so that it may be shown to everybody who takes part."
        )
    else:
        holds = f"It tells how many rows {plan.party} has and what its ledger holds: it is for {plan.party} alone."
    return Page(
        title=f"Before run {plan.run_id}: what {plan.party} takes part in",
        lead=f"Computed at {plan.party} from its run file; nothing was charged or sent for it. {holds}",
        sections=(
            PageSection("In plain words", tuple(_plain_blocks(plan))),
            observers_section(plan.observers, plan.account.guarantee),
            account_section(plan.account),
            *([PageSection("Noise", tuple(_noise_blocks(plan)), is_folded=True)] if plan.noises else []),
            *([position_section(plan.ledger, is_over=False)] if plan.ledger else []),
            *(
                [PageSection("Rounds and bytes", tuple(_traffic_blocks(plan.traffic)), is_folded=True)]
                if plan.traffic
                else []
            ),
            settings_section(plan.settings, plan.n_trees),
        ),
    )


def _plain_blocks(plan: RecordPlan) -> Iterator[PageBlock]:
    promise = plan.account.guarantee
    rows = "" if plan.n_records is None else f", with {plan.n_records:,} rows of its own that stay where they are"
    kind = "adds up answers" if plan.role == "coordinator" else "answers" if plan.role == "worker" else "trains in turn"
    others = f"{', '.join(plan.peers)}"
    yield Prose(f"{plan.party} {kind} in run {plan.run_id} with {others}{rows}. {_size(plan)}")
    yield from promise_blocks(promise)
    yield from (Prose(f"{warning[0].upper()}{warning[1:]}.", is_strong=True) for warning in plan.warnings)


def _size(plan: RecordPlan) -> str:
    return f"The model has {plan.n_trees} trees on {plan.n_columns} columns, whose bounds are public."


def _noise_blocks(plan: RecordPlan) -> Iterator[PageBlock]:
    agreed = plan.settings["epsilon"]
    rows = tuple(
        (number(noise.epsilon) + (" (agreed)" if noise.epsilon == agreed else ""), number(noise.multiplier))
        for noise in plan.noises
    )
    budget = "epsilon" if plan.settings["mode"] == "certified" else "epsilon that the publication claims"
    yield FigureGrid(
        "Noise that a budget needs, at least, on every answer about a tree", (budget, "sigma, in sensitivities"), rows
    )
    if len(plan.noises) > 1:
        xs, ys = zip(*((noise.epsilon, noise.multiplier) for noise in plan.noises), strict=True)
        yield Figure(
            lines(
                [Series("noise", xs, ys)],
                x=Axis(label="epsilon"),
                y=Axis(label="sigma, in sensitivities"),
                alt=f"Noise against budget: sigma {ys[0]:.3g} at epsilon {xs[0]:.3g}, {ys[-1]:.3g} at {xs[-1]:.3g}",
            ),
            "Noise on every answer about a tree, in sensitivities of one record, for budgets around the agreed one.",
        )
    if plan.shares:
        yield from _share_blocks(plan)


def _share_blocks(plan: RecordPlan) -> Iterator[PageBlock]:
    honest, fewest = plan.settings["honest"], plan.settings["threshold"]
    marks = {honest: " (counted on)", fewest: " (fewest that are summed)"}
    if honest == fewest:
        marks = {honest: " (counted on, and fewest that are summed)"}
    rows = tuple(
        (f"{share.n_workers}{marks.get(share.n_workers, '')}", number(share.multiplier), loss(share.epsilon))
        for share in plan.shares
    )
    yield Prose(
        "Every worker adds its share of the noise, and a drop-out takes its share with it. More shares than are "
        "counted on promise more than was agreed; fewer, because workers do not add theirs or tell it to others, "
        "promise less. "
        f"A sum is over at least {fewest} workers, or the run ends."
    )
    headings = ("workers whose share is in the sum", "sigma, in sensitivities", "epsilon")
    yield FigureGrid("What shares of the noise promise", headings, rows)
    epsilons = [share.epsilon for share in plan.shares]
    yield Figure(
        bars(
            [str(share.n_workers) for share in plan.shares],
            {"epsilon": epsilons},
            x=Axis(label="workers whose share is in the sum"),
            y=Axis(label="epsilon"),
            alt=f"Epsilon by shares of noise: {epsilons[0]:.3g} with one, {epsilons[-1]:.3g} with {len(epsilons)}",
        ),
        "What drop-outs and dishonest workers cost: epsilon by how many shares of the noise are in every sum.",
    )


def _traffic_blocks(traffic: EstimatedTraffic) -> Iterator[PageBlock]:
    yield Prose(
        "For a run in which nobody drops out, without handshakes; counted by running the recipe on answers of nothing. "
        "Random trees take just so much; trees that are chosen by noisy answers are "
        "larger where there is something to find."
    )
    rows = [
        ("rounds of secure aggregation", str(traffic.n_rounds)),
        ("questions for sums of nodes", str(traffic.n_totals)),
        ("questions for histograms", str(traffic.n_histograms)),
        ("numbers in a worker's answers", f"{traffic.n_numbers:,}"),
        ("a worker sends", size(traffic.sent_bytes)),
        ("a worker receives", size(traffic.received_bytes)),
    ]
    if traffic.n_queries is not None:
        rows += [
            ("queries that the account is for", str(traffic.n_queries)),
            ("rounds, as the publication counts (appendix B)", str(traffic.paper_rounds)),
            ("bytes of an owner's answers, likewise", size(traffic.paper_bytes or 0)),
        ]
    yield FigureGrid("What the run will take", ("what", "per worker"), tuple(rows))
