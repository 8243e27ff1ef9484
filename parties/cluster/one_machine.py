"""A's trees where all cluster processes are on one machine: one of them grows them, in as many threads.

XGBoost's processes know one another by no key, and each listens at all addresses of its machine: whoever connects while
they meet is taken for one of them, and whoever says so later ends them. Only a closed network helps between machines
(`docs/how-to/cluster.md`); on one machine there is no need for several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from parties.cluster.kept_trees import KeptTrees
from parties.cluster.training_partitions import LABEL, WEIGHT
from protocols.transport.keys import is_loopback

if TYPE_CHECKING:
    from distributed import Client


def is_on_one_machine(client: Client) -> bool:
    """Whether nobody but this machine reaches the cluster's processes: there are some, with addresses of loopback."""
    from distributed.comm.addressing import get_address_host

    addresses = client.nthreads()
    return bool(addresses) and all(is_loopback(get_address_host(address)) for address in addresses)


def grow_in_one_process(
    client: Client,
    load: Callable[[int], pd.DataFrame],
    n_parts: int,
    settings: Mapping[str, Any],
    rounds: Callable[[int], int],
    kept: KeptTrees,
) -> Any:
    """XGBoost's model of partitions, grown by one cluster process in the threads of all.

    Parameters
    ----------
    client : distributed.Client
    load : callable
        Reads the rows of a partition.
    n_parts : int
    settings : mapping
        XGBoost's parameters.
    rounds : callable
        How many rounds are grown next after so many; 0 if that is all.
    kept : KeptTrees
        Goes on after the trees in its file.

    Raises
    ------
    DataError
        If partitions do not fit each other.
    """
    from xgboost import Booster

    shared = {**settings, "nthread": sum(client.nthreads().values())}
    grown = client.submit(_grow, load, n_parts, shared, rounds, kept, pure=False).result()
    return Booster(model_file=bytearray(grown))


def _grow(
    load: Callable[[int], pd.DataFrame],
    n_parts: int,
    settings: Mapping[str, Any],
    rounds: Callable[[int], int],
    kept: KeptTrees,
) -> bytes:
    """On a cluster process; Dask begins this again elsewhere if it dies."""
    import xgboost

    class Parts(xgboost.DataIter):
        """The partitions, one after the other, as often as XGBoost goes through them."""

        at = 0

        def reset(self) -> None:
            self.at = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            if self.at == n_parts:
                return False
            rows = load(self.at)
            self.at += 1
            input_data(data=rows.drop(columns=[LABEL, WEIGHT]), label=rows[LABEL], weight=rows[WEIGHT])
            return True

    matrix = xgboost.QuantileDMatrix(Parts(), max_bin=settings["max_bin"], nthread=settings["nthread"])

    def train(of_part: dict[str, Any], n_more: int, booster: Any) -> Any:
        return xgboost.train(of_part, matrix, num_boost_round=n_more, xgb_model=booster)

    return bytes(kept.grown(rounds, settings, train).save_raw("ubj"))
