"""Privacy accounting of a horizontally trained model: its releases, their noise, and epsilon by several accounts.

Facts come from an estimator's `guarantee_` and, where they are at hand, the releases that it adds up; a page of any
horizontal run can hold this section.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from opboost.errors import AccountError
from opboost.privacy.accounting import (
    Accountant,
    by_gaussian,
    by_loss_distribution,
    by_pure,
    by_renyi,
    loss_distribution_profile,
    renyi_account,
    renyi_curve,
)
from opboost.privacy.guarantee import rounded_up
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    Release,
    SampledGaussianRelease,
    SelectionRelease,
    SharedByCoins,
    SkellamRounds,
)
from opboost.privacy.renyi import renyi_epsilon
from parties.reports.figures import Axis, Series, lines
from parties.reports.page import Figure, FigureGrid, PageBlock, PageSection, Prose
from parties.reports.sentences import odds
from parties.reports.words import chance, loss, number

# Orders and deltas at which the curves are shown.
SHOWN_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
SHOWN_DELTAS = (1e-4, 1e-6, 1e-8, 1e-10)

_ACCOUNTS: dict[str, Accountant] = {
    "pure composition": by_pure,
    "exact Gaussian": by_gaussian,
    "Renyi": by_renyi,
    "loss distribution (PLD)": by_loss_distribution,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Releases of one kind, for a table.

    Attributes
    ----------
    kind : str
    count : int
    noise : str
        In words: sigma, scale, rate or epsilon.
    """

    kind: str
    count: int
    noise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFacts:
    """Privacy accounting of a model, per record.

    Attributes
    ----------
    guarantee : RecordGuarantee
    queries : tuple of Query
    renyi : tuple of (int, float)
        Order, and the sum of the divergences at it.
    converted : tuple of (int, float)
        Order, and the epsilon that it alone gives at the promise's delta; the smallest counts. None for a pure promise.
    profiles : dict of str to tuple of (float, float)
        By account that knows all of these releases: delta, and the epsilon at it.
    """

    guarantee: RecordGuarantee
    queries: tuple[Query, ...] = ()
    renyi: tuple[tuple[int, float], ...] = ()
    converted: tuple[tuple[int, float], ...] = ()
    profiles: dict[str, tuple[tuple[float, float], ...]]


def account_facts(guarantee: RecordGuarantee, releases: Sequence[Release] = ()) -> AccountFacts:
    """Facts of the privacy accounting; without the releases, those of the guarantee alone."""
    if not releases:
        return AccountFacts(guarantee=guarantee, profiles={})
    delta = guarantee.delta
    # The order that counts for the promise is shown too; after a filter it is the only one.
    orders = tuple(sorted({*SHOWN_ORDERS, renyi_account(releases, delta or SHOWN_DELTAS[0])[1]}))
    curve = renyi_curve(releases, orders)
    finite = [(order, rho) for order, rho in zip(orders, curve.tolist(), strict=True) if math.isfinite(rho)]
    deltas = tuple(sorted({*SHOWN_DELTAS, *([delta] if delta else [])}, reverse=True))
    profiles = {name: _profile(account, releases, deltas) for name, account in _ACCOUNTS.items()}
    return AccountFacts(
        guarantee=guarantee,
        queries=tuple(_query(release) for release in releases),
        renyi=tuple(finite),
        converted=tuple((order, renyi_epsilon((order,), np.array([rho]), delta)[0]) for order, rho in finite)
        if delta
        else (),
        profiles={name: profile for name, profile in profiles.items() if profile},
    )


def _profile(
    account: Accountant, releases: Sequence[Release], deltas: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Epsilon at each delta; nothing if the account does not know these releases."""
    try:
        if account is by_loss_distribution:
            return tuple(zip(deltas, loss_distribution_profile(releases, deltas), strict=True))
        return tuple((delta, float(account(releases, delta))) for delta in deltas)
    except AccountError:
        return ()


def _query(release: Release) -> Query:
    n_rounds = release.n_rounds if isinstance(release, SkellamRounds) else 1
    return Query(kind=_kind(release), count=release.count * n_rounds, noise=_noise(release))


def _kind(release: Release) -> str:
    match release:
        case PureRelease():
            return "pure release"
        case SelectionRelease():
            return "exponential mechanism"
        case LaplaceRelease():
            return "discrete Laplace"
        case GaussianRelease():
            return "Gaussian"
        case SampledGaussianRelease():
            return "Gaussian on sampled records"
        case SkellamRounds():
            return "Skellam"
        case FilteredRelease():
            return "everything behind an individual filter"
        case SharedByCoins():
            return "parts of the records, dealt by coins"


def _noise(release: Release) -> str:
    match release:
        case PureRelease(epsilon=epsilon) | SelectionRelease(epsilon=epsilon):
            return f"epsilon {loss(epsilon)}"
        case LaplaceRelease(l1=l1, scale=scale):
            return f"scale {number(scale / l1)} sensitivities"
        case GaussianRelease(mu=mu):
            return f"sigma {number(1 / mu)} sensitivities"
        case SampledGaussianRelease(rate=rate, mu=mu):
            return f"sigma {number(1 / mu)} sensitivities, each record with probability {number(rate)}"
        case SkellamRounds(mu=mu):
            return f"in all as one Gaussian release of sigma {number(1 / mu)} sensitivities"
        case FilteredRelease(order=order, rho=rho):
            return f"divergence {loss(rho)} at order {order}"
        case SharedByCoins(parts=parts):
            return f"{len(parts)} parts; the costliest counts"


def uncertified(promise: RecordGuarantee) -> str:
    """Reason why a guarantee is not certified; empty if it is."""
    if promise.certified:
        return ""
    if promise.notion == "none":
        return "no noise"
    if not promise.hides:
        return "noise that hides no record"
    if promise.mode == "paper":
        return "paper mode"
    return "seeded bits: not for release" if not promise.is_secure else "bounds from the data"


def promise_blocks(promise: RecordGuarantee) -> Iterator[Prose]:
    """The promise in plain words: odds, and how often a guess is right that would be right half of the time."""
    if promise.notion == "none":
        yield Prose("There is no noise, and so no promise to anybody whose record is used.", is_strong=True)
    else:
        odds_words = f"with odds at most {odds(promise.epsilon)}"
        if promise.delta:
            # Kairouz, Oh and Viswanath (ICML 2015). Odds beyond these come up with a larger chance than delta.
            odds_words = (
                f"no better than somebody who is told it outright with a chance of {chance(promise.delta)}, and with "
                f"odds at most {odds(promise.epsilon)} otherwise"
            )
        right = (1 - promise.delta) / (1 + math.exp(-promise.epsilon)) + promise.delta
        yield Prose(
            f"Whoever reads the model tells whether any one record was used {odds_words}, whatever else is known. "
            "Guessing that, one is right in 50 of 100 cases without the model, and in at most "
            f"{math.ceil(100 * right - 1e-9)} with it.",
            is_strong=True,
        )
        for weaker in promise.weaker:
            odds_words = (
                "nothing is promised" if math.isinf(weaker.epsilon) else f"the odds are at most {odds(weaker.epsilon)}"
            )
            yield Prose(f"Against {weaker.against}, {odds_words}.", is_strong=True)
    if why := uncertified(promise):
        yield Prose(f"Not certified: {why}.", is_strong=True)


def account_section(facts: AccountFacts) -> PageSection:
    """Privacy accounting as a section of a page."""
    blocks: list[PageBlock] = [Prose(str(facts.guarantee), is_strong=True), _promise_grid(facts.guarantee)]
    if facts.queries:
        queries = tuple((query.kind, str(query.count), query.noise) for query in facts.queries)
        blocks.append(FigureGrid("What was asked of the records", ("kind", "how often", "noise"), queries))
    if facts.renyi:
        orders, rhos = zip(*facts.renyi, strict=True)
        x, y = Axis(label="order", is_log=True), Axis(label="divergence", is_log=True)
        svg = lines([Series("Renyi", orders, rhos)], x=x, y=y, alt="Renyi divergence against its order")
        blocks += [_order_grid(facts), Figure(svg, "RDP: the sum of all releases' divergences at each order.")]
    if facts.profiles:
        curves = [Series(name, *zip(*profile, strict=True)) for name, profile in facts.profiles.items()]
        x, y = Axis(label="delta", is_log=True), Axis(label="epsilon")
        svg = lines(curves, x=x, y=y, alt=f"Epsilon against delta by {len(curves)} accounts")
        caption = "What the same releases promise at each delta, by account; all hold, the lowest is the tightest."
        blocks += [_profile_grid(facts), Figure(svg, caption)]
        if absent := [name for name in _ACCOUNTS if name not in facts.profiles]:
            blocks.append(Prose(f"Accounts that have no figure for releases of these kinds: {', '.join(absent)}."))
    return PageSection("Account", tuple(blocks), is_folded=True)


def _promise_grid(promise: RecordGuarantee) -> FigureGrid:
    rows = [
        ("definition", promise.notion),
        ("epsilon", loss(promise.epsilon)),
        ("delta", rounded_up(promise.delta, 3)),
        ("account", promise.account),
        ("neighbours", promise.neighbours),
        ("certified or paper", "certified" if promise.certified else f"not certified ({uncertified(promise)})"),
    ]
    rows += [(f"epsilon against {weaker.against}", loss(weaker.epsilon)) for weaker in promise.weaker]
    if promise.claimed_epsilon is not None:
        rows.append(("epsilon that the publication claims", number(promise.claimed_epsilon)))
    return FigureGrid("The promise", ("what", "value"), tuple(rows))


def _order_grid(facts: AccountFacts) -> FigureGrid:
    """Table of the Renyi divergences, and of the epsilon that each order alone gives."""
    if not facts.converted:
        rows = tuple((str(order), loss(rho)) for order, rho in facts.renyi)
        return FigureGrid("RDP, by order", ("order", "divergence"), rows)
    converted = tuple(
        (str(order), loss(rho), loss(epsilon))
        for (order, rho), (_, epsilon) in zip(facts.renyi, facts.converted, strict=True)
    )
    return FigureGrid(
        "RDP, by order", ("order", "divergence", f"epsilon at delta {rounded_up(facts.guarantee.delta, 3)}"), converted
    )


def _profile_grid(facts: AccountFacts) -> FigureGrid:
    deltas = [delta for delta, _ in next(iter(facts.profiles.values()))]
    rows = tuple(
        (rounded_up(delta, 3), *(loss(profile[k][1]) for profile in facts.profiles.values()))
        for k, delta in enumerate(deltas)
    )
    return FigureGrid("Epsilon at delta, by account", ("delta", *facts.profiles), rows)
