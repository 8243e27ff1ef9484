"""Page of a credit validation, and its scorecard as JSON."""

from __future__ import annotations

import math
from typing import Any

from opboost.credit.drift import words_of
from opboost.credit.fairness import Fairness
from parties.credit.validation import ModelScores, Validation
from parties.reports.figures import Axis, Series, lines
from parties.reports.page import Figure, FigureGrid, Page, PageBlock, PageSection, Prose

WHY_FREE = (
    "Evidence of the passive parties' columns is computed of ranks that were released before, so it costs no budget "
    "(post-processing). A corrected one is an estimate for the exact values, whose noise is known; bins are in the "
    "codes of the release, which their owner alone can read in its own unit"
)

# Records of either label below which corrected values are coarse (`docs/how-to/credit.md`).
FEWEST_EVENTS = 500


def scorecard_document(validation: Validation) -> dict[str, Any]:
    """Points of every bin, for whoever scores with them."""
    parts = zip(validation.card.characteristics, validation.card.points, strict=True)
    scale = validation.card.scale
    return {
        "run_id": validation.run_id,
        "points_to_double": scale.points_to_double,
        "points": scale.points,
        "odds": scale.odds,
        "characteristics": [
            {
                "name": one.name,
                "owner": one.owner,
                "information_value": one.information_value,
                "is_corrected": one.is_corrected,
                "bins": [
                    {"bin": words, "points": round(p, 2), "weight": w, "event_rate": r, "share": s}
                    for words, p, w, r, s in zip(
                        one.bins,
                        points.tolist(),
                        one.weights.tolist(),
                        one.event_rates.tolist(),
                        one.shares.tolist(),
                        strict=True,
                    )
                ],
            }
            for one, points in parts
        ],
        "left_out": {
            column.name if column.owner is None else f"{column.owner}: {column.name}": column.information_value
            for column in validation.left_out
        },
    }


def validation_page(validation: Validation) -> Page:
    """The page of a validation."""
    lead = f"The scorecard has a Gini coefficient of {validation.card_gini:.3f} on the records that it was made of."
    if (model := validation.model) is not None:
        lead += f" The model has {model.gini:.3f} on {model.n_records} scored records."
    sections = [_evidence(validation), _points(validation)]
    if model is not None:
        sections += [_discrimination(model), _calibration(model)]
        sections += [_fairness(fairness) for fairness in model.fairness]
        sections += [_challenger(model)] if model.swapped is not None else []
    if validation.drifts:
        rows = tuple((name, f"{index:.3f}", words_of(index)) for name, index in validation.drifts.items())
        grid = FigureGrid("Stability index between the two months", ("of", "index", "meaning"), rows)
        sections.append(PageSection("Drift", (grid,)))
    return Page(f"Credit validation of run {validation.run_id}", lead, tuple(sections))


def _evidence(validation: Validation) -> PageSection:
    kept = sorted(validation.card.characteristics, key=lambda characteristic: -characteristic.information_value)
    rows = tuple(
        (
            column.name,
            column.owner or "own",
            f"{column.information_value:.3f}",
            "yes" if column.is_corrected else "no" if column.owner else "not needed",
            use,
        )
        for columns, use in ((kept, "yes"), (validation.left_out, "left out"))
        for column in columns
    )
    grid = FigureGrid("Information values", ("column", "owner", "value", "corrected for noise", "in the card"), rows)
    blocks: list[PageBlock] = [grid, Prose(f"{WHY_FREE}.")]
    corrected = [characteristic for characteristic in (*kept, *validation.left_out) if characteristic.is_corrected]
    n_fewest = min(
        (round(min(characteristic.events.sum(), characteristic.others.sum())) for characteristic in corrected),
        default=FEWEST_EVENTS,
    )
    if n_fewest < FEWEST_EVENTS:
        caution = (
            f"Of the rarer label there are {n_fewest} records. Below {FEWEST_EVENTS}, corrected values are coarse, and "
            "may be no closer to those of the exact columns than uncorrected ones: a column that tells much may be "
            "left out."
        )
        blocks.append(Prose(caution))
    return PageSection("Evidence", tuple(blocks))


def _points(validation: Validation) -> PageSection:
    grids = [
        FigureGrid(
            f"{characteristic.name}",
            ("bin", "share", "event rate", "weight of evidence", "points"),
            tuple(
                (words, f"{s:.3f}", f"{r:.3f}", f"{w:.3f}", f"{p:.1f}")
                for words, s, r, w, p in zip(
                    characteristic.bins,
                    characteristic.shares.tolist(),
                    characteristic.event_rates.tolist(),
                    characteristic.weights.tolist(),
                    points.tolist(),
                    strict=True,
                )
            ),
        )
        for characteristic, points in zip(validation.card.characteristics, validation.card.points, strict=True)
    ]
    scale = validation.card.scale
    words = f"{scale.points:g} points are odds of {scale.odds:g} to 1; {scale.points_to_double:g} points double them."
    return PageSection("Scorecard", (Prose(words), *grids))


def _discrimination(model: ModelScores) -> PageSection:
    bands = tuple(
        (str(i + 1), str(b.n_records), f"{b.event_rate:.3f}", f"{b.captured:.3f}", f"{b.lift:.2f}", f"{b.ks:.3f}")
        for i, b in enumerate(model.bands)
    )
    rejected = tuple(
        (
            f"{r.share:.2f}",
            f"{r.cutoff:.4f}",
            f"{r.events_avoided:.3f}",
            f"{r.others_lost:.3f}",
            f"{r.accepted_event_rate:.4f}",
        )
        for r in model.rejections
    )
    reached = tuple((i + 1) / len(model.bands) for i in range(len(model.bands)))
    figure = lines(
        [Series("captured", (0.0, *reached), (0.0, *(b.captured for b in model.bands)))],
        x=Axis(label="share of records, riskiest first"),
        y=Axis(label="share of events"),
        alt="gains curve of the model",
        diagonal=True,
    )
    figures = (("AUC", f"{model.auc:.4f}"), ("Gini", f"{model.gini:.4f}"), ("KS", f"{model.ks:.4f}"))
    return PageSection(
        "Discrimination",
        (
            FigureGrid("Measures", ("measure", "value"), figures),
            FigureGrid("Gains", ("band", "records", "event rate", "captured", "lift", "KS"), bands),
            Figure(figure, "Events captured by rejecting the riskiest records first; by chance, the diagonal."),
            FigureGrid(
                "Rejections",
                ("share", "cut-off", "events avoided", "others lost", "event rate of the accepted"),
                rejected,
            ),
        ),
    )


def _calibration(model: ModelScores) -> PageSection:
    rows = tuple((calibrated.method, f"{calibrated.brier:.5f}") for calibrated in model.calibrated)
    words = f"Platt's sigmoid has slope {model.slope:.3f} and intercept {model.intercept:.3f}; 1 and 0 change nothing."
    return PageSection("Calibration", (FigureGrid("Brier score, out of fold", ("method", "score"), rows), Prose(words)))


def _fairness(fairness: Fairness) -> PageSection:
    rows = tuple(
        (g.group, str(g.n_records), f"{g.rejected:.3f}", f"{g.rejected_events:.3f}", f"{g.rejected_others:.3f}")
        for g in fairness.groups
    )
    words = (
        f"Largest difference between groups: {fairness.demographic_parity:.3f} of the rejected share, "
        f"{fairness.equalized_odds:.3f} of it among events or among others."
    )
    headings = ("group", "records", "rejected", "rejected events", "rejected others")
    return PageSection(f"Fairness by {fairness.column}", (FigureGrid("Decisions", headings, rows), Prose(words)))


def _challenger(model: ModelScores) -> PageSection:
    assert model.swapped is not None
    assert model.uplift is not None
    s, u = model.swapped, model.uplift
    rows = [("champion", f"{u.alone:.4f}"), ("challenger", f"{u.joint:.4f}")]
    if u.uplift is not None:
        rows.append(("difference, 95 % interval", f"{u.uplift:.4f} ({u.low:.4f} to {u.high:.4f})"))

    def rate(value: float) -> str:
        return "none" if math.isnan(value) else f"{value:.3f}"

    swaps = (
        ("accepted by the challenger alone", str(s.swapped_in), rate(s.in_event_rate)),
        ("accepted by the champion alone", str(s.swapped_out), rate(s.out_event_rate)),
    )
    return PageSection(
        "Challenger",
        (
            FigureGrid(f"{u.metric} on the same records", ("model", u.metric), tuple(rows)),
            FigureGrid(f"Swap set, rejecting {s.share:.2f}", ("records", "number", "event rate"), swaps),
        ),
    )
