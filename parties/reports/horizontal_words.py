"""Observers of horizontal training: what each sees and what holds against it; sections that several reports share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opboost.privacy.guarantee import rounded_up
from opboost.privacy.record_guarantee import RecordGuarantee
from parties.config.chain import ChainSection
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.training_section import TrainingSection, flat
from parties.ledger.model_ledger import LedgerPosition
from parties.reports.ledger_statement import left_over
from parties.reports.page import FigureGrid, PageBlock, PageSection, Prose
from parties.reports.words import loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """An observer, from whom the rows of an owner are to be protected.

    Attributes
    ----------
    who : str
    gradients, histograms, trees : str
        What they see of each: sums of gradients, histograms, the model.
    promise : str
        What holds against them.
    """

    who: str
    promise: str
    gradients: str = "none"
    histograms: str = "none"
    trees: str = "every tree"


def observers_of(
    training: TrainingSection | ChainSection, promise: RecordGuarantee, *, are_new_alone: bool = False
) -> tuple[Observer, ...]:
    """Observers from whom a worker's rows, or an owner's, are to be protected.

    Parameters
    ----------
    training : TrainingSection or ChainSection
    promise : RecordGuarantee
    are_new_alone : bool
        Whether the run goes on from another one with the records alone that have arrived since.
    """
    said = _promise(promise)
    if isinstance(training, ChainSection):
        owners = Observer(
            who="the other owners",
            trees="every tree, its splits chosen and its leaves noised by its owner",
            promise=said,
        )
        return owners, Observer(who="whoever reads the model", promise=said), _network("trees")
    who_adds = f"over at least {training.threshold} workers"
    asks_histograms = training.recipe == "recommended" or (
        training.recipe == "federated"
        and (training.federated.split_method != "tr" or training.federated.split_candidates.startswith("ih"))
    )
    if training.noise == "aggregator":
        histograms = f"exact sums {who_adds}" if asks_histograms else "none are asked for"
        gradients = f"exact sums {who_adds}; of a leaf in which one worker alone has records, its own sum"
        if are_new_alone:
            gradients += (
                ". Only records that have arrived train: where one worker alone has any, all sums are its own, and of "
                "a single record they tell the label and about where every value lies"
            )
        against = "no differential privacy: it is trusted with exact sums, and adds the noise to them"
    else:
        gradients = f"sums {who_adds}, with the workers' noise in them"
        histograms = f"counts {who_adds}, with the workers' noise in them" if asks_histograms else "none are asked for"
        against = said
        if training.honest is not None:
            against += (
                f", as long as {training.honest} of the workers in every sum add their share of the noise and do not "
                "tell it"
            )
    if not training.known_workers:
        against += ". Workers do not know each other's public keys, and rely on it not to make up workers"
        if len(promise.weaker) > 1:
            against += f": if it does, epsilon is {loss(promise.weaker[-1].epsilon)}"
    peers = Observer(
        who="other workers",
        gradients="none: what passes through them is sealed or masked",
        trees="every tree, and the random bits that shape it",
        promise=said + _besides_itself(training, promise),
    )
    return (
        Observer(
            who="the coordinator", gradients=gradients, histograms=histograms, trees="every tree", promise=against
        ),
        peers,
        Observer(who="whoever reads the model", promise=said),
        _network("sums, trees or keys"),
    )


def _besides_itself(training: TrainingSection, promise: RecordGuarantee) -> str:
    """Caveat of the guarantee against a worker, which can subtract its own share of the noise."""
    if training.honest is None:
        return ""
    is_whole = training.honest == 1
    others = "1 worker" if is_whole else f"{training.honest} workers"
    said = (
        f", as long as {others} besides it in every sum {'adds its' if is_whole else 'add their'} share of the noise: "
        "it knows its own, and can take it out of what it sees"
    )
    if promise.weaker:
        said += f". Where it is {'the only one that does' if is_whole else f'one of the {training.honest}'}, "
        said += f"epsilon is {loss(promise.weaker[0].epsilon)}"
    left = training.threshold - 1
    if left < training.honest:
        said += f". Where only {training.threshold} workers are left in a sum, that leaves {left} against each of them"
    return said


def _promise(promise: RecordGuarantee) -> str:
    if promise.notion == "none":
        return "nothing: there is no noise"
    at_delta = f", delta {rounded_up(promise.delta, 3)}" if promise.delta else ""
    certified = "" if promise.certified else ", not certified"
    return f"epsilon {loss(promise.epsilon)}{at_delta} per record{certified}"


def _network(what: str) -> Observer:
    return Observer(
        who="the network",
        trees="none",
        promise=(
            f"addresses, times and sizes show, {what} do not: everything is encrypted, but for runs in plain text on "
            "one machine (--insecure)"
        ),
    )


def observers_section(observers: tuple[Observer, ...], promise: RecordGuarantee) -> PageSection:
    """Section on observers: guarantees, what each sees, and what is not protected."""
    return PageSection(
        "Who sees what",
        (
            FigureGrid(
                "What holds for the rows of each owner, and against whom",
                ("against", "promise"),
                tuple((observer.who, observer.promise) for observer in observers),
            ),
            FigureGrid(
                "What is seen",
                ("by", "gradient leakage", "histogram leakage", "model-statistics leakage"),
                tuple(
                    (observer.who, observer.gradients, observer.histograms, observer.trees) for observer in observers
                ),
            ),
            Prose(f"Not protected: {'; '.join((*promise.not_protected, 'who takes part, when, and who drops out'))}."),
        ),
        is_folded=True,
    )


def position_section(position: LedgerPosition, *, is_over: bool) -> PageSection:
    """Section on the ledger of a worker or an owner over all its runs."""
    charged = "is charged" if position.is_charged else "was not charged" if is_over else "would be charged"
    told = (
        f"{position.path.name} has {position.n_runs} runs; this one {charged}. Losses of several models on the same "
        "records add up. The account knows the runs that went through it and nothing else."
    )
    headings = ("what", "spent over all runs", "cost of this run", "remaining with it")
    rows = tuple(
        (name, loss(spent), loss(cost), _left(left))
        for name, spent, cost, left in zip(
            ("epsilon", "delta"), position.spent, position.cost, position.remaining, strict=True
        )
    )
    blocks: list[PageBlock] = [Prose(told), FigureGrid("Spent, and remaining", headings, rows)]
    if not is_over and any(left is not None and left < 0 for left in position.remaining):
        blocks.append(Prose("The run would be refused: it is over the budget.", is_strong=True))
    return PageSection("Ledger", tuple(blocks), is_folded=True)


def _left(remaining: float | None) -> str:
    return "no limit" if remaining is None else left_over(remaining)


def settings_section(settings: dict[str, Any], n_trees: int) -> PageSection:
    """Section on the agreed settings, parameters of the recipe one by one."""
    rows = (("trees", str(n_trees)), *((name, str(value)) for name, value in flat(settings).items()))
    return PageSection("Settings", (FigureGrid("What was agreed", ("setting", "value"), rows),), is_folded=True)


def unknown_workers(run: CoordinatorRun | WorkerRun, promise: RecordGuarantee) -> str:
    """Warning of what a coordinator that makes up workers would learn; empty where workers know each other's keys."""
    if run.training.known_workers:
        return ""
    sees = "sees the sums of one worker alone"
    if run.training.honest is not None:
        sees += ", with one share of the noise"
        # The first one is for a worker; one share may be all of the noise.
        for weaker in promise.weaker[1:]:
            sees += f": epsilon against it is {loss(weaker.epsilon)}, and not {loss(promise.epsilon)}"
    return (
        "workers do not know each other's public keys (`known_workers: false`): a coordinator that makes up workers "
        f"{sees}"
    )
