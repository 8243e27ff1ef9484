"""Generate the sample data: one customer table of a bank, one of a retailer.

A population of 22,000 fictitious people is drawn from a fixed seed. The bank knows the first 20,000 of them
and the retailer the last 20,000, so that 18,000 are customers of both. Each party's file lists its customers
in its own random order. Nothing is taken from, or fitted to, any real data set.

Two hidden traits per person, prosperity and discipline, make the columns correlate within and across the
parties. The label `default` is one where a hidden propensity is positive; the propensity is a score of both
parties' columns, with thresholds and interactions, plus logistic noise. Cells are blanked after that.

Run ``python data/make_sample.py [--out DIR]`` to write ``bank.csv.gz`` and ``retailer.csv.gz``.
"""

import argparse
import csv
import gzip
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Frame = dict[str, Floats]
Table = dict[str, list[str]]

SEED = 20240517
POPULATION = 22_000
PER_PARTY = 20_000
ID_RANGE = 10_000_000
MISSING_RATE = 0.03
INTERCEPT = -4.2
NOISE_SCALE = 1.1

CATEGORIES: dict[str, tuple[str, ...]] = {
    "employment": ("employed", "self_employed", "student", "retired", "unemployed"),
    "loyalty": ("basic", "bronze", "silver", "gold", "platinum"),
    "region": ("north", "south", "east", "west", "centre", "abroad"),
}
BANK_BLANKED = ("income", "employment")
RETAILER_BLANKED = ("visits", "spend", "discount_share", "instalment_share", "loyalty", "region")


def sigmoid(x: Floats) -> Floats:
    """Return the logistic function of each element of `x`."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float64)


def mix(rng: np.random.Generator, prosperity: Floats, discipline: Floats, p: float, d: float) -> Floats:
    """Draw a standard normal vector correlated with the two hidden traits.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    prosperity, discipline : ndarray
        The hidden traits, independent standard normal.
    p, d : float
        Correlation of the result with each trait; ``p**2 + d**2`` is below one.

    Returns
    -------
    ndarray
        One standard normal value per person.
    """
    own = rng.standard_normal(prosperity.size)
    return np.asarray(p * prosperity + d * discipline + np.sqrt(1.0 - p * p - d * d) * own, dtype=np.float64)


def draw_bank(rng: np.random.Generator, prosperity: Floats, discipline: Floats) -> Frame:
    """Draw the bank's columns for the whole population.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    prosperity, discipline : ndarray
        The hidden traits.

    Returns
    -------
    dict of str to ndarray
        Columns rounded as they are written; `employment` holds positions in its list of categories.
    """
    n = prosperity.size
    age = np.round(np.clip(18.0 + rng.gamma(3.2, 9.0, n), 18.0, 95.0))
    income = np.round(32_000.0 * np.exp(0.5 * mix(rng, prosperity, discipline, 0.75, 0.1)), -2)
    tenure = np.round(np.minimum(rng.gamma(1.5, 50.0, n), 12.0 * (age - 16.0)))
    working = rng.choice(5, size=n, p=[0.72, 0.13, 0.04, 0.02, 0.09]).astype(np.float64)
    young, old = age < 26, age > 64
    employment = np.where(young & (rng.random(n) < 0.5), 2.0, working)
    employment = np.where(old & (rng.random(n) < 0.85), 3.0, employment)
    return {"age": age, "income": income, "tenure": tenure, "employment": employment}


def draw_retailer(rng: np.random.Generator, prosperity: Floats, discipline: Floats) -> Frame:
    """Draw the retailer's columns for the whole population.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    prosperity, discipline : ndarray
        The hidden traits.

    Returns
    -------
    dict of str to ndarray
        Columns rounded as they are written; `loyalty` and `region` hold positions in their lists of
        categories.
    """

    def normal(p: float, d: float) -> Floats:
        return mix(rng, prosperity, discipline, p, d)

    n = prosperity.size
    frequency = normal(0.15, 0.1)
    visits = rng.poisson(np.exp(2.7 + 0.55 * frequency)).astype(np.float64)
    spend = np.round(500.0 * np.exp(0.6 * frequency + 0.75 * normal(0.5, 0.0)))
    standing = 0.6 * frequency + 0.8 * normal(0.2, 0.1)
    return {
        "visits": visits,
        "spend": spend,
        "returns": rng.poisson(visits * 0.12 * rng.gamma(0.8, 1.25, n)).astype(np.float64),
        "recency": np.round(rng.exponential(70.0 * np.exp(-0.4 * frequency))),
        "payment_delay": np.round(50.0 * sigmoid(-0.4 - 0.9 * normal(0.1, 0.25)) + rng.exponential(4.0, n)),
        "discount_share": np.round(100.0 * sigmoid(-0.5 + normal(-0.2, 0.0))),
        "instalment_share": np.round(100.0 * sigmoid(-0.3 + 1.1 * normal(-0.15, -0.2))),
        "essentials_share": np.round(100.0 * sigmoid(0.1 + 0.9 * normal(-0.15, 0.0))),
        "loyalty": np.digitize(standing, [-0.5, 0.2, 0.9, 1.6]).astype(np.float64),
        "region": rng.choice(6, size=n, p=[0.24, 0.21, 0.17, 0.18, 0.15, 0.05]).astype(np.float64),
    }


def bank_score(bank: Frame) -> Floats:
    """Return the part of the score that rests on the bank's columns alone.

    Risk falls with income and tenure, is lowest in middle age, and depends on employment.
    """
    employment = np.array([0.0, 0.4, 0.3, -0.3, 1.2])[bank["employment"].astype(np.intp)]
    return np.asarray(
        -1.1 * np.log(bank["income"] / 32_000.0)
        - 0.55 * np.tanh((bank["tenure"] - 60.0) / 50.0)
        + 0.4 * ((bank["age"] - 52.0) / 20.0) ** 2
        + employment,
        dtype=np.float64,
    )


def retailer_score(retailer: Frame) -> Floats:
    """Return the part of the score that rests on the retailer's columns alone.

    Risk rises most steeply where bills are paid after about 24 days and where the last purchase is about 90
    days ago. It rises with returns, falls with visits, spending and loyalty, and is higher for those who buy
    either very few or very many essentials.
    """
    loyalty = np.array([0.25, 0.1, 0.0, -0.2, -0.4])[retailer["loyalty"].astype(np.intp)]
    region = np.array([0.0, 0.1, -0.1, 0.1, 0.0, 0.3])[retailer["region"].astype(np.intp)]
    return np.asarray(
        1.0 * np.tanh((retailer["payment_delay"] - 24.0) / 8.0)
        + 0.7 * np.minimum(((retailer["essentials_share"] - 50.0) / 20.0) ** 2, 3.0)
        - 0.8 * np.tanh((retailer["visits"] - 15.0) / 9.0)
        - 0.25 * np.log(np.maximum(retailer["spend"], 1.0) / 500.0)
        + 0.3 * np.minimum(retailer["returns"], 5.0)
        + 0.7 * np.tanh((retailer["recency"] - 90.0) / 40.0)
        + loyalty
        + region,
        dtype=np.float64,
    )


def joint_score(bank: Frame, retailer: Frame) -> Floats:
    """Return the part of the score in which columns act together, across and within the parties.

    Paying by instalment is risky, more so on a low income. Buying at a discount is a sign of thrift among
    those who seldom pay by instalment and of distress among those who often do. A long payment delay is
    worse in a new customer of the bank.
    """
    poor = sigmoid((30_000.0 - bank["income"]) / 5_000.0)
    new = bank["tenure"] < 36.0
    instalment = (retailer["instalment_share"] - 45.0) / 25.0
    discount = (retailer["discount_share"] - 40.0) / 20.0
    return np.asarray(
        (0.5 + 0.9 * poor) * instalment
        + 0.3 * discount
        + 0.6 * discount * np.tanh(instalment)
        + 0.8 * new * (retailer["payment_delay"] > 26.0),
        dtype=np.float64,
    )


def blanks(rng: np.random.Generator, names: tuple[str, ...], n: int) -> dict[str, Bools]:
    """Choose the cells to leave empty, completely at random, in each of the columns `names`."""
    return {name: rng.random(n) < MISSING_RATE for name in names}


def to_table(ids: list[str], frame: Frame, empty: dict[str, Bools], order: NDArray[np.int64]) -> Table:
    """Turn columns of numbers into columns of text.

    Parameters
    ----------
    ids : list of str
        Identifier of each person.
    frame : dict of str to ndarray
        The columns, one value per person.
    empty : dict of str to ndarray
        Per column, which cells to leave empty; a column not named has none.
    order : ndarray
        The people to list, in the order of the file.

    Returns
    -------
    dict of str to list of str
        The table, with `id` first.
    """
    table = {"id": [ids[i] for i in order]}
    for name, values in frame.items():
        labels = CATEGORIES.get(name)
        texts = [labels[int(v)] if labels else str(int(v)) for v in values]
        hidden = empty.get(name, np.zeros(values.size, dtype=np.bool_))
        table[name] = ["" if hidden[i] else texts[i] for i in order]
    return table


def generate() -> dict[str, Table]:
    """Draw the population and return each party's table.

    Returns
    -------
    dict of str to dict
        The tables under the names ``bank`` and ``retailer``.
    """
    rng = np.random.default_rng(SEED)
    n = POPULATION
    ids = [f"C{number:07d}" for number in rng.choice(ID_RANGE, size=n, replace=False)]
    prosperity, discipline = rng.standard_normal(n), rng.standard_normal(n)
    bank = draw_bank(rng, prosperity, discipline)
    retailer = draw_retailer(rng, prosperity, discipline)
    propensity = INTERCEPT + bank_score(bank) + retailer_score(retailer) + joint_score(bank, retailer)
    default = (propensity + rng.logistic(scale=NOISE_SCALE, size=n) > 0.0).astype(np.float64)

    bank_empty = blanks(rng, BANK_BLANKED, n)
    retailer_empty = blanks(rng, RETAILER_BLANKED, n)
    long_absent = retailer["recency"] > 90.0
    retailer_empty["payment_delay"] = rng.random(n) < np.where(long_absent, 0.06, 0.018)

    bank_order = rng.permutation(PER_PARTY)
    retailer_order = rng.permutation(PER_PARTY) + (n - PER_PARTY)
    return {
        "bank": to_table(ids, {"default": default, **bank}, bank_empty, bank_order),
        "retailer": to_table(ids, retailer, retailer_empty, retailer_order),
    }


def write_table(table: Table, path: Path) -> None:
    """Write `table` as gzipped CSV whose bytes depend on nothing but its content."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as packed:
        packed.write(text.getvalue().encode("ascii"))


def main() -> None:
    """Read the command line and write both files."""
    parser = argparse.ArgumentParser(description="Write the sample data of the bank and of the retailer.")
    here = Path(__file__).resolve().parent
    parser.add_argument("--out", type=Path, default=here, help="folder to write to (default: this file's)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, table in generate().items():
        write_table(table, out / f"{name}.csv.gz")


if __name__ == "__main__":
    main()
