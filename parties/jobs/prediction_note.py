"""Note of a prediction that is not over: what is begun again replaces nothing but what it has written itself.

It names the request and the digests of the files that processes of it have written, each before the file takes its
place. A process may be killed after that, while metrics and reports are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pandas as pd

from parties.errors import RecordsRefused, RunFolderError
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import writing
from parties.tables.keyed_table import names_to_ask
from parties.tables.party_table import PartyTable

_FILE = "predicting.json"


@dataclass(frozen=True, slots=True)
class PredictionNote:
    """The note of one request.

    Attributes
    ----------
    folder : RunFolder
        Holds one note, the latest.
    request : mapping of str to JSON values
        What tells the request from others: its records, how they are scored, and where the predictions go.
    """

    folder: RunFolder
    request: Mapping[str, object]

    def written(self) -> tuple[str, ...]:
        """Digests of the files that this request has written or was about to write; none if another one is noted."""
        with suppress(RunFolderError):
            found = self.folder.read_json(_FILE)
            if found.get("request") == self.request and isinstance(found.get("written"), list):
                return tuple(found["written"])
        return ()

    def add(self, digest: str) -> None:
        """Note what is about to be written; until then, what was noted before is there."""
        self.folder.write_json(_FILE, {"request": self.request, "written": [*self.written(), digest]})

    def close(self, error: type[BaseException] | None, *_: object) -> None:
        """Remove the note at the end of a request that is done, with refused records or without."""
        if error in (None, RecordsRefused):
            with writing(note := self.folder.path / _FILE):
                note.unlink(missing_ok=True)


def digest_of_records(table: PartyTable) -> str:
    """A digest of records: their ids, what other parties are asked about, and all cells that a model may read."""
    digest = hashlib.sha256()
    for part in (table.index, names_to_ask(table), table.frame, pd.DataFrame(table.margins)):
        digest.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    return digest.hexdigest()
