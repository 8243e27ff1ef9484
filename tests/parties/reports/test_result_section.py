"""The result: uplift first, scores by mode side by side, and a lift table that adds up."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.fit_quality import FitQuality, fit_quality
from opboost.trees.losses import Logistic
from opboost.uplift import Uplift
from parties.reports.page import Figure, FigureGrid, Page, to_markdown
from parties.reports.result_section import fit_sections, lift_grid, metrics_grid, result_sections

UPLIFT = Uplift(metric="auc", n_rows=90, n_held_out=100, alone=0.7, joint=0.8, uplift=0.1, low=0.05, high=0.15)


def fit(basis: str, seed: int = 1) -> FitQuality:
    draw = np.random.default_rng(seed)
    scores = draw.random(997)
    found = fit_quality(Logistic(), (draw.random(997) < scores).astype(float), scores, basis=basis, metric="auc")
    assert found is not None
    return found


FITS = (fit("training rows"), fit("records scored in mode routed", 2), fit("held-out records", 3))


def text_of(*fits: FitQuality, uplift: Uplift | None = None) -> str:
    return to_markdown(Page("", "", tuple(result_sections(fits, party="bank", uplift=uplift))))


def test_the_uplift_opens_and_the_held_out_records_say_the_rest() -> None:
    text = text_of(*FITS, uplift=UPLIFT)
    assert text.index("AUC is 0.1 better than without (95 % interval of the uplift: 0.05 to 0.15)") < 150
    assert "Lift by tenths of the scores, the highest first: held-out records" in text
    assert "flatters" not in text
    (section,) = result_sections(FITS, party="bank", uplift=UPLIFT)
    (chart,) = [one for one in section.blocks if isinstance(one, Figure) and "Scores: " in one.svg]
    for name in ("held out: bank alone 0.7", "held out: joint 0.8", "scored: routed 0."):
        assert name in chart.svg
    assert "training" not in chart.svg


def test_scores_of_rows_that_the_model_saw_say_so_and_make_no_chart() -> None:
    assert "which flatters the model" in text_of(FITS[0])
    assert "Figure: AUC of records" not in text_of(FITS[0])
    assert text_of() == to_markdown(Page("", "", ()))
    unmeasured = Uplift(metric="auc", n_rows=0, n_held_out=5, reason="nobody answered")
    assert "The uplift could not be measured: nobody answered." in text_of(uplift=unmeasured)


def test_held_out_records_alone_are_said_not_to_be_released() -> None:
    """Those that are scored in mode desensitized are, and any record may be scored."""
    asked = fit("records scored in mode desensitized", 4), FITS[1]
    for text, held_out in ((text_of(*asked), 0), (text_of(*asked, uplift=UPLIFT), 2)):
        assert text.count("Figure: AUC of records, by how they were scored.") == 1
        assert text.lower().count("were neither released nor trained on in this run") == held_out


def test_one_table_holds_the_metrics_of_all_modes() -> None:
    numbers = FitQuality(basis="validation rows", n_rows=3, metrics={"r2": 0.5}, metric="r2")
    grid = metrics_grid((*FITS, numbers))
    assert grid.headings == ("scored", "rows", "AUC", "error", "log loss", "Gini", "KS", "r2")
    assert [row[0] for row in grid.rows] == [one.basis for one in (*FITS, numbers)]
    assert grid.rows[-1][1:] == ("3", "-", "-", "-", "-", "-", "0.5")
    for row, one in zip(grid.rows, FITS, strict=False):
        assert float(row[5]) == pytest.approx(2 * one.metrics["auc"] - 1, abs=1e-4)


def test_lift_is_the_share_of_cases_against_that_of_all_and_all_cases_are_found_in_the_end() -> None:
    found = FITS[2]
    rows = lift_grid(found).rows
    n_cases = sum(share * n for _, share, n in found.calibration)
    assert [int(row[1]) for row in rows] == [n for _, _, n in reversed(found.calibration)]
    assert float(rows[0][4]) == pytest.approx(found.calibration[-1][1] * found.n_rows / n_cases, abs=0.005)
    assert rows[-1][5:] == ("100.0 %", "1.00")
    so_far = [float(row[5].removesuffix(" %")) for row in rows]
    assert so_far == sorted(so_far)


def test_what_the_result_does_not_show_is_folded_and_nothing_is_shown_twice() -> None:
    sections = list(fit_sections(FITS))
    assert [one.heading for one in sections] == ["Quality: training rows", "Quality: records scored in mode routed"]
    assert all(one.is_folded for one in sections)
    assert not any(isinstance(block, FigureGrid) for one in sections for block in one.blocks)
