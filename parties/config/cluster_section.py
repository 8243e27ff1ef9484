"""Run file section `dask`: which cluster processes a party uses, and for what pieces of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from parties.config.addresses import SchedulerAddress
from parties.config.section import Section


class DaskSection(Section):
    """Which workers to use, and for what pieces of the table.

    Attributes
    ----------
    scheduler : str or None
        Address such as ``tcp://scheduler.example:8786``, or ``tls://...`` with Dask's own settings of certificates.
        None starts `workers` processes here, which end with the block.
    workers : int
        Processes of a local cluster.
    folder : Path or None
        Takes partitions, on a file system that driver and workers share; None stands for ``partitions`` beside the
        run's folder.
    partition_rows : int
        Rows of a partition, where the data is one file that is still to be divided.
    """

    scheduler: SchedulerAddress | None = Field(
        None, description="Address of a running scheduler; without it, a local cluster is started."
    )
    workers: int = Field(2, ge=1, le=1024, description="Cluster processes of a local cluster.")
    folder: Path | None = Field(
        None, description="Shared folder for partitions; by default `partitions` beside the run folder."
    )
    partition_rows: int = Field(1_000_000, ge=1, description="Rows of a partition, where one file is to be divided.")

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.scheduler is not None and "workers" in self.model_fields_set:
            raise ValueError("give either the address of a scheduler, which has workers, or a number of workers here")
        return self
