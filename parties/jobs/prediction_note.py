"""Note of a prediction that is not over: a request that is begun again knows what it has written itself.

It names the request and the digests of the files that processes of it have written, each before the file takes its
place. A process may be killed after that, or end with an error, while metrics and reports are written. The scores are
complete then: to ask again would count for the limits of passive parties, who may refuse what they have answered
before; and a table would have its rows twice. So the note stays until the request is done, or predicts anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from parties.errors import RecordsRefused, RunFolderError
from parties.runs.run_folder import RunFolder
from parties.storage.paths import writing
from parties.tables.keyed_table import names_to_ask
from parties.tables.party_table import PartyTable

NOTE_FILE = "predicting.json"

# By digest, the number of records of each status.
_WRITTEN = TypeAdapter(dict[str, dict[str, int]])


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

    def written(self) -> dict[str, dict[str, int]]:
        """What this request has written or was about to write; empty if another one is noted.

        Returns
        -------
        dict
            By the digest of a file, or an empty text for a table, the number of its records of each status.
        """
        with suppress(RunFolderError, ValidationError):
            found = self.folder.read_json(NOTE_FILE)
            if found.get("request") == self.request:
                return _WRITTEN.validate_python(found.get("written"))
        return {}

    def add(self, digest: str, counts: Mapping[str, int]) -> None:
        """Note what is about to be written; until then, what was noted before is there."""
        self.folder.write_json(NOTE_FILE, {"request": self.request, "written": {**self.written(), digest: counts}})

    def close(self, error: type[BaseException] | None, *_: object) -> None:
        """Remove the note at the end of a request that is done, with refused records or without."""
        if error in (None, RecordsRefused):
            self._remove()

    def forget(self) -> None:
        """Remove the note of a request that predicts anew: what it wrote before is like any file that is there."""
        if self.written():
            self._remove()

    def _remove(self) -> None:
        with writing(note := self.folder.path / NOTE_FILE):
            note.unlink(missing_ok=True)


def digest_of_records(table: PartyTable) -> str:
    """A digest of records: their ids, what other parties are asked about, and all cells that a model may read."""
    digest = hashlib.sha256()
    for part in (table.index, names_to_ask(table), table.frame, pd.DataFrame(table.margins)):
        digest.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    return digest.hexdigest()
