"""Attacks on our own releases: how often six attackers name a record's exact code, by the loss over the whole range.

For each table, budget and passive column, the share of attacked records whose code of `--domain` is named exactly:

- nobody: without the release, by the column's distribution;
- column: the Bayes-optimal guess from the column's own release and distribution, as the plan computes it;
- order: the whole release and the exact values without their owners; values are given out in the order of the releases;
- matched: the same, by the joint counts of values and releases that have both margins and are nearest to the mechanism;
- joint: the release of all columns, their joint law, and the active party's columns and the label of the record;
- others: the same column's release and the exact values of all other passive columns, as the plan computes it.

The joint law is a mixture of latent classes, learned from the exact values of one half of the records; the other half
is attacked. Prints a JSON line per table and budget, with means over the columns.

    python scripts/reproduce/reconstruction.py [--tables power_plant,adult,sample] [--budgets 1,2,4,8,16,32,64,128]
        [--domain 100] [--rows 8000] [--figures scripts/figures]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from noise import Table, read
from numpy.typing import NDArray

from opboost import rng
from opboost.denoise.imputation import standardised
from opboost.denoise.informed_attack import JointLaw
from opboost.denoise.mixture import LatentClasses, Observed
from opboost.order_metrics import bayes_attack
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from parties.reports.figures import Axis, Series, lines, standalone

ATTACKERS = ("nobody", "column", "order", "matched", "joint", "others")
N_CLASSES, N_STEPS, PRIOR, MATCHING_STEPS = 40, 60, 30.0, 300

Codes = NDArray[np.int64]


def codes_of(table: Table, rows: Codes, domain: int) -> list[Codes]:
    """Codes 0 .. domain - 1 of the passive columns; an empty cell is taken for the column's median."""
    found = []
    for name, (lower, upper) in table.bounds.items():
        values = table.features[name].iloc[rows].astype(float)
        values = values.fillna(values.median()).clip(lower, upper).to_numpy()
        found.append(np.ceil((values - lower) / (upper - lower) * (domain - 1)).astype(np.int64))
    return found


def evidence_of(table: Table, rows: Codes) -> NDArray[np.float32]:
    """The active party's numbers and the label, standardised."""
    own = table.features.drop(columns=list(table.bounds)).select_dtypes("number").iloc[rows]
    return standardised(np.column_stack([table.labels[rows].astype(float), own.to_numpy(np.float64)]))


def in_order(codes: Codes, released: Codes, seed: int) -> float:
    """Share of records that get their own value back where values are given out in the order of the release."""
    places = np.lexsort((np.random.default_rng(seed).random(len(released)), released))
    guess = np.empty_like(codes)
    guess[places] = np.sort(codes)
    return float((guess == codes).mean())


def matched(codes: Codes, released: Codes, table: NDArray[np.float64]) -> float:
    """The same for the likeliest code under the joint counts that have both margins (Sinkhorn)."""
    n = len(table)
    rows, columns = np.bincount(codes, minlength=n), np.bincount(released, minlength=n)
    joint = table * rows[:, None]
    for _ in range(MATCHING_STEPS):
        joint *= np.divide(columns, joint.sum(axis=0), out=np.zeros(n), where=joint.sum(axis=0) > 0)
        joint *= np.divide(rows, joint.sum(axis=1), out=np.zeros(n), where=joint.sum(axis=1) > 0)[:, None]
    return float((joint.argmax(axis=0)[released] == codes).mean())


def jointly(model: LatentClasses, seen: Observed, column: int, codes: Codes) -> float:
    """Share of records whose likeliest code, given everything that is seen of the record, is its own."""
    law, channel = model.laws[column], model.channels[column]
    released = seen.released[:, column]
    weights = model.classes(seen) / np.maximum(law @ channel, 1e-30).T[released]
    return float((((weights @ law) * channel.T[released]).argmax(axis=1) == codes).mean())


def trial(table: Table, budgets: list[float], domain: int, n_rows: int) -> list[dict[str, float]]:
    """Success of each attacker at every budget, averaged over the passive columns."""
    rows = np.random.default_rng(0).permutation(len(table.labels))[:n_rows]
    codes, evidence = codes_of(table, rows, domain), evidence_of(table, rows)
    half, empty = len(rows) // 2, np.empty((len(rows), 0), np.uint8)
    exact = Observed(np.column_stack(codes).astype(np.uint8), empty, evidence).rows(slice(0, half))
    model = LatentClasses.fit(
        exact,
        [np.eye(domain)] * len(codes),
        [],
        n_classes=N_CLASSES,
        n_steps=N_STEPS,
        prior=PRIOR,
        rng=np.random.default_rng(1),
    )
    # Even rows are learned from there: the two halves, one row of each by turns.
    by_turns = [np.ravel(np.column_stack([one[:half], one[half : 2 * half]])) for one in codes]
    others = [JointLaw.fit(by_turns).beliefs(c, one, domain) for c, one in enumerate(by_turns)]
    found = []
    for budget in budgets:
        mechanism = GlobalMap(epsilon=budget / (domain - 1), domain=IntegerDomain(1, domain))
        log_table = mechanism.log_probabilities()
        channel = np.exp(log_table)
        noise = rng.seeded(round(1000 * budget))
        released = [mechanism.randomise(one[half:] + 1, rng=noise) - 1 for one in codes]
        knowing = replace(model, channels=tuple([channel] * len(codes)))
        seen = Observed(np.column_stack(released).astype(np.uint8), empty[half:], evidence[half:])
        shares = []
        for c, one in enumerate(codes):
            best = bayes_attack(log_table, np.bincount(one[half:], minlength=domain))
            shares.append(
                (
                    best.blind_success,
                    best.success,
                    in_order(one[half:], released[c], c),
                    matched(one[half:], released[c], channel),
                    jointly(knowing, seen, c, one[half:]),
                    others[c].success(channel),
                )
            )
        found.append(dict(zip(ATTACKERS, np.mean(shares, axis=0).round(4).tolist(), strict=True)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="power_plant,adult,sample")
    parser.add_argument("--budgets", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--domain", type=int, default=100)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--figures", type=Path)
    given = parser.parse_args()
    budgets = [float(budget) for budget in given.budgets.split(",")]
    for name in given.tables.split(","):
        found = trial(read(name), budgets, given.domain, given.rows)
        for budget, shares in zip(budgets, found, strict=True):
            print(json.dumps({"table": name, "whole_range": budget, **shares}), flush=True)
        if given.figures is not None:
            drawing = lines(
                [Series(who, tuple(budgets), tuple(one[who] for one in found)) for who in ATTACKERS],
                x=Axis(label="loss over the whole range", is_log=True),
                y=Axis(label="share of codes named exactly", limits=(0, 1)),
                alt=f"{name}: share of codes that six attackers name exactly, against the loss over the whole range",
            )
            (given.figures / f"reconstruction_{name}.svg").write_text(standalone(drawing))


if __name__ == "__main__":
    main()
