"""A party's own workers: a Dask scheduler at an address, or a few processes on this machine.

All of a cluster belongs to one party. Its workers read that party's data and keys from a file system that they share
with the driver; between them and the scheduler go paths, numbers of partitions, counts and digests, pickled by Dask.
Nothing that comes from another party is ever given to a cluster as a pickle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from parties.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client

# How long to look for a scheduler, and for its first worker.
WAIT_S = 30


class DaskSection(BaseModel):
    """Which workers to use.

    Attributes
    ----------
    scheduler : str or None
        Address such as ``tcp://scheduler.example:8786``, or ``tls://...`` with Dask's own settings of certificates.
        None starts `workers` processes here, which end with the block.
    workers : int
        Processes of a local cluster.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2


@contextmanager
def cluster(section: DaskSection) -> Iterator[Client]:
    """Connect to a scheduler, or start a local one for the time of the block.

    Raises
    ------
    ConfigError
        If Dask is not installed or the scheduler does not answer.
    """
    try:
        import distributed
    except ImportError:
        raise ConfigError(
            "engine: dask needs Dask, which is not installed; `pip install 'opboost[dask]'` installs it"
        ) from None
    if section.scheduler is None:
        import dask

        # Workers of one thread: the compiled loops of a second one would contend for the same cores. What can run only
        # on a worker that is gone is given up after a while.
        with (
            dask.config.set({"distributed.scheduler.no-workers-timeout": f"{WAIT_S}s"}),
            distributed.LocalCluster(
                n_workers=section.workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
            ) as local,
            distributed.Client(local) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(section.scheduler, timeout=WAIT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"no scheduler answers at {section.scheduler}: {type(error).__name__}") from None
    with client:
        yield client
