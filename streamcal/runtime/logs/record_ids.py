"""The id of a record, by the configured path, without the rest of the codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from streamcal.runtime.config import Config
from streamcal.runtime.value_formats import value_formats
from streamcal.stream.events import Record
from streamcal.stream.fields import FieldPath
from streamcal.stream.formats import ValueFormat, converted
from streamcal.stream.judge import LARGEST_READ
from streamcal.stream.schema import UNREADABLE, Schema, Slot, UnreadableError
from streamcal.stream.values import BROKEN, id_text

__all__ = ["IdReader", "id_readers"]

_SLOT: Final = "id"


class IdReader:
    """Reads ids of one topic's records as the codec does: text, or an integer in decimal; None where there is none.

    Parameters
    ----------
    path : str
        As in ``events.prediction.id``.
    form : ValueFormat or None
        What turns values into JSON; None: they are JSON.
    """

    def __init__(self, path: str, form: ValueFormat | None = None) -> None:
        self._form = form
        self._in_value = FieldPath.parse(path).source == "value"
        self._schema = Schema([Slot(_SLOT, FieldPath.parse(path), str | int, required=True)])

    def many(self, records: Sequence[Record]) -> list[str | None]:
        """An id, or None, for each record."""
        held: Sequence[Record] = records if self._form is None else converted(records, self._form, LARGEST_READ)
        return [self._fast(record) for record in held] if self._in_value else [self._slow(record) for record in held]

    def _fast(self, record: Record) -> str | None:
        strict: Any = self._schema.strict
        if record.value is None:
            return None
        try:
            columns, _ = self._schema.columns([strict.decode(record.value)], (record,))
        except UNREADABLE:
            return self._slow(record)
        return id_text(columns[_SLOT][0])

    def _slow(self, record: Record) -> str | None:
        if record.value is None or len(record.value) > LARGEST_READ:
            return None
        try:
            found = self._schema.read(record.value, record)[_SLOT]
        except UnreadableError:
            return None
        return None if found is BROKEN else id_text(found)


def id_readers(config: Config) -> dict[str, Callable[[Sequence[Record]], list[str | None]]]:
    """Readers of the ids of records, by role.

    Raises
    ------
    ConfigError
        The library for what values or keys are is not installed.
    RegistryError
        The schema registry does not answer.
    """
    prediction, outcome = value_formats(config)
    return {
        "predictions": IdReader(config.events.prediction.id, prediction).many,
        "outcomes": IdReader(config.events.outcome.id, outcome).many,
    }
