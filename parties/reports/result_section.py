"""The result of a run, for the people who pay: what the joint model is worth, and how good its scores are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opboost.fit_quality import FitQuality
from opboost.uplift import Uplift
from parties.reports.figures import Axis, Series, bars, intervals, lines, ranking
from parties.reports.held_out_section import uplift_grid
from parties.reports.page import Figure, FigureGrid, PageBlock, PageSection, Prose
from parties.reports.words import metric_name, number, percent

# Bases whose rows the trees were grown or stopped on.
_SEEN, _HELD_OUT = ("training rows", "validation rows"), "held-out records"


def result_sections(fits: Sequence[FitQuality], *, party: str, uplift: Uplift | None = None) -> Iterator[PageSection]:
    """Section on the result: uplift, scores by mode, lift and calibration on the rows that say most."""
    if uplift is not None or fits:
        yield PageSection("Result", tuple(_result_blocks(fits, party, uplift)))


def _result_blocks(fits: Sequence[FitQuality], party: str, uplift: Uplift | None) -> Iterator[PageBlock]:
    if uplift is not None:
        yield from _uplift_blocks(uplift)
    if chart := _score_chart(fits, party, uplift):
        yield chart
    if uplift is not None:
        yield uplift_grid(uplift, party)
    if not fits:
        return
    best = _best(fits)
    if best.basis.endswith(_SEEN):
        yield Prose("These are scores of rows that the trees were grown or chosen on, which flatters the model.")
    yield metrics_grid(fits)
    if best.calibration:
        yield lift_grid(best)
    yield from _curves(best)


def _best(fits: Sequence[FitQuality]) -> FitQuality:
    """The fit that says most of new records."""
    return min(fits, key=lambda fit: (fit.basis.endswith(_SEEN), fit.basis != _HELD_OUT))


def metrics_grid(fits: Sequence[FitQuality]) -> FigureGrid:
    """All metrics of all sets of rows in one table."""
    names = tuple(dict.fromkeys(name for fit in fits for name in fit.metrics))
    shown = map(metric_name, names)
    rows = tuple((fit.basis, f"{fit.n_rows:,}", *(number(fit.metrics.get(name)) for name in names)) for fit in fits)
    return FigureGrid("Metrics, by how records were scored", ("scored", "rows", *shown), rows)


def _score_chart(fits: Sequence[FitQuality], party: str, uplift: Uplift | None) -> Figure | None:
    """Chart of the scores of records that no model saw, with the active party's own model."""
    scores = {}
    if uplift is not None and uplift.alone is not None and uplift.joint is not None:
        scores = {f"held out: {party} alone": uplift.alone, "held out: joint": uplift.joint}
    metric = uplift.metric if uplift is not None else next((name for fit in fits for name in fit.metrics), "")
    for fit in fits:
        if not fit.basis.endswith(_SEEN) and fit.basis != _HELD_OUT and metric in fit.metrics:
            scores[fit.basis.replace("records scored ", "scored: ").replace("in mode ", "")] = fit.metrics[metric]
    if len(scores) < 2:
        return None
    scores_in_words = ", ".join(f"{name} {number(score)}" for name, score in scores.items())
    # Records that were asked for later may be of any kind, and in mode desensitized they are released.
    held_out = (
        " Held-out ones were neither released nor trained on in this run."
        if f"held out: {party} alone" in scores
        else ""
    )
    return Figure(
        ranking(
            list(scores), list(scores.values()), x=Axis(label=metric_name(metric)), alt=f"Scores: {scores_in_words}"
        ),
        f"{metric_name(metric)} of records, by how they were scored.{held_out}",
    )


def lift_grid(fit: FitQuality) -> FigureGrid:
    """Records by tenths, the highest scores first: how many of the cases are among them."""
    n_rows = sum(n for _, _, n in fit.calibration)
    n_cases = sum(share * n for _, share, n in fit.calibration)
    rows, n_seen, n_found = [], 0, 0.0
    for tenth, (predicted, share, n) in enumerate(reversed(fit.calibration), start=1):
        n_seen, n_found = n_seen + n, n_found + share * n
        rows.append(
            (
                str(tenth),
                f"{n:,}",
                percent(predicted),
                percent(share),
                f"{share * n_rows / n_cases:.2f}",
                percent(n_found / n_cases),
                f"{n_found * n_rows / n_cases / n_seen:.2f}",
            )
        )
    headings = ("tenth", "rows", "predicted", "came true", "lift", "cases found so far", "lift so far")
    return FigureGrid(f"Lift by tenths of the scores, the highest first: {fit.basis}", headings, tuple(rows))


def _curves(fit: FitQuality) -> Iterator[Figure]:
    if fit.roc:
        false, true = zip(*fit.roc, strict=True)
        area = f"{fit.metrics['auc']:.4f}"
        caption = f"ROC curve, {fit.basis}; the area under it is {area}. Dotted: guessing."
        axes = Axis(label="false positive rate"), Axis(label="true positive rate")
        yield _against_diagonal(false, true, *axes, alt=f"ROC curve, {fit.basis}, area {area}", caption=caption)
    if fit.calibration:
        predicted, observed, _ = zip(*fit.calibration, strict=True)
        alt = f"Calibration, {fit.basis}"
        caption = f"{alt}: a point per tenth of the rows. Dotted: predictions that come true."
        axes = Axis(label="mean prediction"), Axis(label="share of label 1")
        yield _against_diagonal(predicted, observed, *axes, alt=alt, caption=caption)


def _against_diagonal(
    xs: tuple[float, ...], ys: tuple[float, ...], x: Axis, y: Axis, *, alt: str, caption: str
) -> Figure:
    return Figure(lines([Series("model", xs, ys)], x=x, y=y, alt=alt, diagonal=True), caption)


def _uplift_blocks(uplift: Uplift) -> Iterator[PageBlock]:
    if uplift.uplift is None or uplift.low is None or uplift.high is None:
        yield Prose(f"The uplift could not be measured: {uplift.reason}.", is_strong=True)
        return
    metric, change = metric_name(uplift.metric), "better" if uplift.uplift >= 0 else "worse"
    certainty = "" if uplift.low > 0 or uplift.high < 0 else ", which chance alone explains too"
    yield Prose(
        f"With the passive parties' columns, {metric} is {number(abs(uplift.uplift))} {change} than without "
        f"(95 % interval of the uplift: {number(uplift.low)} to {number(uplift.high)}){certainty}.",
        is_strong=True,
    )
    if uplift.reason:
        yield Prose(f"Some records were left out: {uplift.reason}.")
    alt = f"Uplift on held-out records: {uplift.uplift:.4g}, from {uplift.low:.4g} to {uplift.high:.4g}"
    axis = Axis(label=f"by how much {metric} is better")
    yield Figure(
        intervals(["uplift"], [uplift.uplift], [(uplift.low, uplift.high)], x=axis, alt=alt),
        f"Uplift in {metric} with its 95 % bootstrap interval. At zero, the passive parties add nothing.",
    )


def fit_sections(fits: Sequence[FitQuality]) -> Iterator[PageSection]:
    """Sections on what else is known of a model's quality, one per set of rows."""
    for fit in fits:
        blocks = (*(() if fit is _best(fits) else _curves(fit)), *_fit_blocks(fit))
        if blocks:
            yield PageSection(f"Quality: {fit.basis}", blocks, is_folded=True)


def _fit_blocks(fit: FitQuality) -> Iterator[PageBlock]:
    if len(fit.curve) > 1:
        rounds, scores = zip(*fit.curve, strict=True)
        metric = metric_name(fit.metric)
        alt = f"Training curve, {fit.basis}: {metric} from {scores[0]:.4g} to {scores[-1]:.4g}"
        yield Figure(
            lines([Series(metric, rounds, scores)], x=Axis(label="rounds"), y=Axis(label=metric), alt=alt),
            f"{metric} after each round, {fit.basis}.",
        )
    if fit.residuals:
        edges = [f"{low:.3g}" for low, _, _ in fit.residuals]
        heights = {"rows": [float(n) for _, _, n in fit.residuals]}
        yield Figure(
            bars(
                edges,
                heights,
                x=Axis(label="label minus prediction"),
                y=Axis(label="rows"),
                alt=f"Residuals, {fit.basis}: {fit.n_rows} rows",
            ),
            f"Residuals, {fit.basis}.",
        )
