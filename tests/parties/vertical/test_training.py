"""Training and prediction between parties, over memory and over ZeroMQ with CURVE."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.columns import OwnColumn
from opboost.split_tests import bind, feature_matrix
from opboost.trees.boosting import BoostingParameters
from opboost.trees.model_file import save_model
from opboost.vertical import train
from parties.errors import Disagreement
from parties.runs.joint_model import JointModel
from parties.session.termination import NO_REASON
from parties.storage.serialization import router_to_dict
from parties.vertical import party_b, prediction_client, rank_sender
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import PassiveShare
from parties.vertical.prediction_client import predict_jointly, predict_locally, session
from parties.vertical.simulation import serve
from protocols.errors import PeerAborted
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

Together = Callable[..., dict[str, Any]]


def train_all(together: Together, trial: Any, *parties: str, **settings: Any) -> dict[str, Any]:
    """What every party has after a training run."""
    return together(
        lambda channels: train_jointly(trial.active(), channels),
        {
            party: lambda channel, party=party: party_b.train(trial.passive(party, **settings), channel)
            for party in parties
        },
    )


def predict_all(
    together: Together, trial: Any, trained: dict[str, Any], *, desensitized: bool = False, ids: pd.Index | None = None
) -> dict[str, Any]:
    """What every party has after a prediction of the training records, or of those with other ids."""

    def answer(party: str, channel: Channel) -> int:
        return serve(
            trained[party].router,
            trial.ids,
            trial.tables[party],
            channel,
            party=party,
            run_id="spring",
            rng=rng.seeded(3),
            may_route=not desensitized,
        )

    asked = trial.ids if ids is None else ids
    return together(
        lambda channels: predict_jointly(
            trained["bank"],
            asked,
            {"age": trial.age[: len(asked)]},
            channels,
            party="bank",
            run_id="spring",
            desensitized=desensitized,
        ),
        {party: lambda channel, party=party: answer(party, channel) for party in trained if party != "bank"},
    )


def as_text(model: JointModel, folder: Path) -> str:
    save_model(model.ensemble, folder / "model.json")
    rest = {
        "guarantees": {peer: guarantee.to_dict() for peer, guarantee in model.guarantees.items()},
        "routers": {peer: router_to_dict(router) for peer, router in model.routers.items()},
    }
    return (folder / "model.json").read_text() + json.dumps(rest)


PARTIES = pytest.mark.parametrize("parties", [("shop",), ("shop", "post")], ids="+".join)


@PARTIES
def test_the_model_is_the_same_over_memory_and_over_the_network_to_the_bit(
    carriers: dict[str, Together], trial: Any, tmp_path: Path, parties: tuple[str, ...]
) -> None:
    texts = {
        as_text(train_all(carrier, trial, *parties, share_thresholds=True)["bank"], tmp_path)
        for carrier in carriers.values()
    }
    assert len(texts) == 1


def test_another_seed_gives_another_model(carriers: dict[str, Together], trial: Any, tmp_path: Path) -> None:
    texts = {
        as_text(train_all(carriers["memory"], trial, "shop", rng=rng.seeded(seed))["bank"], tmp_path)
        for seed in (11, 12)
    }
    assert len(texts) == 2


@PARTIES
def test_without_noise_the_joint_model_is_the_one_of_a_party_with_all_columns(
    together: Together, trial: Any, parties: tuple[str, ...]
) -> None:
    trained = train_all(together, trial, *parties, epsilon=math.inf)
    predictions, status = predict_all(together, trial, trained)["bank"]
    job = trial.active()
    whole = [*job.own]
    for party in parties:
        for schema in trial.schemas(party):
            column = trial.tables[party][schema.name]
            kinds = schema.categories or (None,)
            whole += [
                OwnColumn(f"{schema.name}{kind}", (column if kind is None else column == kind).to_numpy(np.float64))
                for kind in kinds
            ]
    alone = bind(train(whole, job.labels, job.weights, loss=job.loss, parameters=job.parameters), {})
    matrix = feature_matrix(alone, {column.name: column.values for column in whole}, {}, len(job.labels))
    np.testing.assert_array_equal(predictions, alone.predict(matrix))
    assert set(status) == {RecordStatus.ANSWERED}


@PARTIES
def test_exact_answers_score_like_shared_thresholds_to_the_bit(
    together: Together, trial: Any, parties: tuple[str, ...]
) -> None:
    trained = train_all(together, trial, *parties, share_thresholds=True)
    found = predict_all(together, trial, trained)
    in_clear = pd.concat([trial.tables[party] for party in parties], axis=1)
    np.testing.assert_array_equal(found["bank"][0], predict_locally(trained["bank"], {"age": trial.age}, in_clear))
    assert [found[party] for party in parties] == [len(trial.ids)] * len(parties)


def test_many_batches_over_one_connection_are_scored_like_one(together: Together, trial: Any) -> None:
    trained = train_all(together, trial, "shop", "post")

    def ask(channels: Sequence[Channel]) -> list[float]:
        with session(trained["bank"], channels, party="bank", run_id="spring") as asking:
            batches = [slice(0, 1), slice(1, 200), slice(200, 200), slice(200, len(trial.ids))]
            found = [asking.predict(trial.ids[b], {"age": trial.age[b]}, desensitized=False) for b in batches]
        assert all((status == RecordStatus.ANSWERED).all() for _, status in found)
        return [score for predictions, _ in found for score in predictions.tolist()]

    def answer(party: str, channel: Channel) -> int:
        return serve(
            trained[party].router,
            trial.ids,
            trial.tables[party],
            channel,
            party=party,
            run_id="spring",
            rng=rng.seeded(3),
            may_route=True,
        )

    answering = {party: lambda channel, party=party: answer(party, channel) for party in ("shop", "post")}
    found = together(ask, answering)
    assert found["bank"] == predict_all(together, trial, trained)["bank"][0].tolist()
    assert (found["shop"], found["post"]) == (len(trial.ids), len(trial.ids))


def test_desensitized_answers_are_those_of_columns_drawn_with_the_training_mechanism(
    together: Together, trial: Any
) -> None:
    trained = train_all(together, trial, "shop")
    predictions, _ = predict_all(together, trial, trained, desensitized=True)["bank"]
    share: PassiveShare = trained["shop"]
    answers = {"shop": share.router.answer(trial.tables["shop"], rng=rng.seeded(3))}
    ensemble = trained["bank"].ensemble
    matrix = feature_matrix(ensemble, {"age": trial.age}, answers, len(trial.ids))
    np.testing.assert_array_equal(predictions, ensemble.predict(matrix))
    assert (predictions != predict_all(together, trial, trained)["bank"][0]).any()


def test_a_record_that_a_passive_party_does_not_know_gets_no_score(together: Together, trial: Any) -> None:
    trained = train_all(together, trial, "shop", "post")
    ids = pd.Index(["r007", "nobody", "r001"], dtype=object)
    found = predict_all(together, trial, trained, ids=ids)
    predictions, status = found["bank"]
    assert status.tolist() == [RecordStatus.ANSWERED, RecordStatus.UNKNOWN, RecordStatus.ANSWERED]
    assert np.isnan(predictions).tolist() == [False, True, False]
    assert (found["shop"], found["post"]) == (2, 2)


def test_the_division_into_batches_and_chunks_does_not_show(
    together: Together, trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[str, list[float]]:
        trained = train_all(together, trial, "shop")
        return as_text(trained["bank"], tmp_path), predict_all(together, trial, trained)["bank"][0].tolist()

    whole = run()
    monkeypatch.setattr(prediction_client, "BATCH_ROWS", 7)
    monkeypatch.setattr(rank_sender, "CHUNK_ROWS", 13)
    assert run() == whole


@pytest.mark.parametrize("n_rounds", [1, 30])
def test_two_round_trips_train_a_model_whatever_the_number_of_trees(
    together: Together, trial: Any, n_rounds: int
) -> None:
    sent: dict[str, list[str]] = {"bank": [], "shop": []}

    def audited(party: str, channel: Channel) -> Channel:
        channel.traffic.on_send = lambda kind, frames: sent[party].append(kind)
        return channel

    job = trial.active(parameters=BoostingParameters(n_estimators=n_rounds, max_depth=3))
    together(
        lambda channels: train_jointly(job, [audited("bank", channel) for channel in channels]),
        {"shop": lambda channel: party_b.train(trial.passive("shop"), audited("shop", channel))},
    )
    assert sent == {
        "bank": ["hello", "id confirmation", "split ranks", "done"],
        "shop": ["hello", "id confirmation", "offer", *["rank chunk"] * 5, "thresholds", "done"],
    }


def test_columns_travel_under_numbers_unless_their_owner_names_them(together: Together, trial: Any) -> None:
    def names(**settings: Any) -> set[str]:
        model: JointModel = train_all(together, trial, "shop", **settings)["bank"]
        promised = {column.column for column in model.guarantees["shop"].columns}
        return promised | {feature.name for feature in model.ensemble.features if feature.owner}

    assert all(name.removeprefix("column ").removeprefix("c").isdigit() for name in names())
    assert {"spend", "visits", "town"} <= names(opaque_names=False)


def test_both_sides_hold_the_same_guarantee_flagged_as_drawn_from_seeded_bits(together: Together, trial: Any) -> None:
    trained = train_all(together, trial, "shop", opaque_names=False)
    guarantee, own = trained["bank"].guarantees["shop"], trained["shop"].guarantee
    # A number's unit tells the width of its bounds, whether its name is told or not; any two categories have the same.
    units = ("one step of the column", "one step of the column", "any change of category")
    columns = tuple(replace(column, unit=unit) for column, unit in zip(own.columns, units, strict=True))
    assert [column.column for column in columns] == ["spend", "visits", "town"]
    assert guarantee == replace(own, columns=columns)
    assert (guarantee.is_secure, guarantee.certified) == (False, False)


def test_the_bank_cannot_score_alone_where_the_thresholds_were_kept(together: Together, trial: Any) -> None:
    model: JointModel = train_all(together, trial, "shop")["bank"]
    assert model.routers == {}
    with pytest.raises(Disagreement, match="shop keeps its thresholds, so A cannot score alone"):
        predict_locally(model, {"age": trial.age}, trial.tables["shop"])


def test_routed_requests_are_refused_where_the_owner_does_not_allow_them(together: Together, trial: Any) -> None:
    trained = train_all(together, trial, "shop")

    def serve_desensitized_only(channel: Channel) -> int:
        return serve(
            trained["shop"].router,
            trial.ids,
            trial.tables["shop"],
            channel,
            party="shop",
            run_id="spring",
            rng=rng.seeded(3),
            may_route=False,
        )

    def ask(channels: Sequence[Channel]) -> Any:
        return predict_jointly(
            trained["bank"], trial.ids, {"age": trial.age}, channels, party="bank", run_id="spring", desensitized=False
        )

    found = together(ask, {"shop": serve_desensitized_only})
    predictions, status = found["bank"]
    assert set(status) == {RecordStatus.REFUSED_ROUTED}
    assert np.isnan(predictions).all()
    assert found["shop"] == 0


def test_the_peers_hear_that_the_job_is_done_only_after_the_model_was_saved(together: Together, trial: Any) -> None:
    def full_disk(model: JointModel) -> None:
        raise OSError("no space left in /secret/place")

    found = together(
        lambda channels: train_jointly(trial.active(), channels, save=full_disk),
        {"shop": lambda channel: party_b.train(trial.passive("shop"), channel)},
    )
    assert isinstance(found["bank"], OSError)
    assert isinstance(found["shop"], PeerAborted)
    assert str(found["shop"]) == f"bank ended the run while saving the model: {NO_REASON}"
