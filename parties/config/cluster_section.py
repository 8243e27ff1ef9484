"""The `dask` section of a run file: the cluster that a party uses, and the partitions of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from parties.config.addresses import SchedulerAddress
from parties.config.section import Section


class DaskSection(Section):
    """The cluster processes to use, and how the table is divided.

    Attributes
    ----------
    scheduler : str or None
        Address such as ``tcp://scheduler.example:8786``, or ``tls://...`` with Dask's own settings of certificates.
        None starts `workers` processes here, which end with the block.
    workers : int
        Processes of a local cluster.
    folder : Path
        Takes partitions, on a file system that driver and cluster processes share; by default ``partitions`` beside the
        run folder.
    partition_rows : int
        Rows of a partition, where the data is one file, or a folder whose records are in another order.
    """

    scheduler: SchedulerAddress | None = Field(
        None, description="Address of a running scheduler; without it, a local cluster is started."
    )
    workers: int = Field(2, ge=1, le=1024, description="Cluster processes of a local cluster.")
    folder: Path = Field(
        Path("partitions"), description="Shared folder for partitions; by default `partitions` beside the run folder."
    )
    partition_rows: int = Field(1_000_000, ge=1, description="Rows of a partition that has to be made.")

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.scheduler is not None and "workers" in self.model_fields_set:
            raise ValueError("give either the address of a scheduler, which has workers, or a number of workers here")
        return self
