"""Two raw files as organisations have them: UCI's Adult split by columns, with ids and ordinary dirt by a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

SEED = 23

# Public knowledge that no file tells: bounds of the columns whose names do not say them.
BOUNDS = {
    "education_years": (1, 20),
    "hours_per_week": (0, 100),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "fnlwgt": (0, 1_500_000),
    "birth_date": ("1890-01-01", "1980-01-01"),
}


def write_raw_files(adult: pd.DataFrame, folder: Path, n_rows: int) -> tuple[Path, Path]:
    """Write ``bank.csv`` and ``retailer.csv`` from the first rows of Adult as UCI has it.

    The bank's: semicolons, decimal commas, Latin letters of one byte, labels of words of which some are missing,
    categories in several spellings. The retailer's: fewer people in another order, thousands with commas, dollars,
    ``?`` for empty cells, dates, yes and no, a free text.
    """
    draw = np.random.default_rng(SEED)
    rows = adult.head(n_rows).reset_index(drop=True)
    ids = pd.Series([f"C{number:06d}" for number in draw.permutation(n_rows)])
    label = rows["income"].map({0: "<=50K", 1: ">50K"})
    bank = pd.DataFrame(
        {
            "customer_id": ids,
            "Age": rows["age"],
            "education_years": rows["education_num"].map(lambda years: f"{years:.1f}".replace(".", ",")),
            "hours_per_week": rows["hours_per_week"].map(lambda hours: f"{hours},0"),
            "fnlwgt": rows["fnlwgt"].map(lambda weight: f"{weight:,}".replace(",", ".")),
            "workclass": _misspelled(rows["workclass"].fillna("?"), draw),
            "branch": draw.choice(["Zürich", "Genève", "Basel"], n_rows),
            "income": label.mask(draw.random(n_rows) < 0.01),
        }
    )
    retailer = pd.DataFrame(
        {
            "customer_id": ids,
            "capital_gain": rows["capital_gain"].map(lambda amount: f"${amount:,.2f}"),
            "capital_loss": rows["capital_loss"].map(lambda amount: f"${amount:,.2f}"),
            "marital_status": rows["marital_status"],
            "occupation": rows["occupation"].fillna("?"),
            "relationship": _misspelled(rows["relationship"], draw),
            "birth_date": (pd.Timestamp("1994-06-30") - pd.to_timedelta(rows["age"] * 365.25, unit="D")).dt.strftime(
                "%d.%m.%Y"
            ),
            "is_male": rows["sex"].map({"Male": "Yes", "Female": "No"}),
            "native_country": rows["native_country"].fillna("?"),
            "remark": [f"note {number}" for number in draw.integers(0, 10**6, n_rows)],
        }
    )
    others = retailer.sample(frac=0.9, random_state=SEED)
    paths = folder / "bank.csv", folder / "retailer.csv"
    bank.to_csv(paths[0], index=False, sep=";", encoding="cp1252")
    others.to_csv(paths[1], index=False)
    return paths


def _misspelled(texts: pd.Series, draw: np.random.Generator) -> pd.Series:
    """The texts, some in capitals and some with blanks."""
    chance = pd.Series(draw.random(len(texts)))
    return texts.mask(chance < 0.03, texts.str.upper()).mask(chance > 0.97, "  " + texts + " ")
