"""Page of a tuning: the trials, the best parameters, and what they are worth on records that no trial has seen."""

from __future__ import annotations

import numpy as np

from parties.reports.figures import Axis, Series, lines
from parties.reports.page import Figure, FigureGrid, Page, PageSection, Prose
from parties.reports.words import metric_name
from parties.tuning.result import Tuned


def tuning_page(tuned: Tuned, run_id: str) -> Page:
    """The page of a tuning of a run."""
    metric = metric_name(tuned.metric)
    best = max if tuned.is_higher_better else min
    done = [(float(i + 1), score) for i, score in enumerate(tuned.scores) if score is not None]
    numbers, scores = tuple(i for i, _ in done), tuple(score for _, score in done)
    so_far = tuple(best(scores[: i + 1]) for i in range(len(scores)))
    figure = lines(
        [Series("trial", numbers, scores), Series("best so far", numbers, so_far)],
        x=Axis(label="trial"),
        y=Axis(label=metric),
        alt=f"{metric} of every finished trial, and the best so far",
    )
    n_pruned = len(tuned.scores) - len(scores)
    rows = tuple((name, f"{value:.6g}") for name, value in tuned.parameters.items())
    tested = (("the run's own parameters", f"{tuned.own:.4f}"), ("the best trial's", f"{tuned.best:.4f}"))
    return Page(
        f"Tuning of run {run_id}",
        f"{len(tuned.scores)} trials, {n_pruned} of them ended early. On records that no trial has seen, {metric} is "
        f"{abs(float(np.round(tuned.gain, 4))):g} {'better' if tuned.gain > 0 else 'worse'} with the best trial's "
        f"parameters: {tuned.advice}.",
        (
            PageSection(
                "Result",
                (
                    FigureGrid("Scores on test records", ("parameters", metric), tested),
                    FigureGrid("The best trial's parameters", ("parameter", "value"), rows),
                ),
            ),
            PageSection("Trials", (Figure(figure, "Every finished trial's score on the validation records."),)),
            PageSection("Privacy", (Prose(f"{tuned.words}. Ledger lines: {tuned.ledger_lines}.", is_strong=True),)),
        ),
    )
