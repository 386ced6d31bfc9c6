"""Map documents from the maps topic or a file, for the commands that look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamcal.cli.options import configuration
from streamcal.errors import InputFileError, MapDocumentError, StreamcalError

if TYPE_CHECKING:
    from streamcal.maps.document import MapDocument

__all__ = ["chosen", "in_file", "in_topic", "readable"]


def in_topic(config: Path | None) -> tuple[str, Mapping[str, Sequence[bytes]]]:
    """Every document of the maps topic by key, and what to call the place; raises ConfigError, BrokerError."""
    settings = configuration(config, kafka=True)

    from streamcal.cli.quiet import log_warnings_only
    from streamcal.runtime.logs.kafka_clients import KafkaClients
    from streamcal.runtime.logs.kafka_topics import read_maps

    log_warnings_only()
    clients = KafkaClients(settings.kafka)
    return f"topic {settings.topics.maps}", read_maps(clients, settings.topics.maps)


def in_file(path: Path) -> tuple[str, Mapping[str, Sequence[bytes]]]:
    """The document of a file by its model; raises InputFileError, MapDocumentError."""
    from streamcal.maps.document import decode

    try:
        data = path.read_bytes()
    except OSError as error:
        what = error.strerror or str(error)
        raise InputFileError(what, where=str(path), hint="check the path and its permissions") from error
    try:
        return str(path), {decode(data).model: [data]}
    except MapDocumentError as error:
        raise MapDocumentError(error.what, where=str(path), hint=error.hint) from error


def readable(key: str, published: Sequence[bytes]) -> list[MapDocument]:
    """Documents by version, ascending; those that cannot be read are said to be so and left out."""
    from streamcal.maps.document import decode

    documents = {}
    for data in published:
        try:
            document = decode(data)
        except MapDocumentError as error:
            typer.echo(f"key {key}: a document cannot be read: {error.what}", err=True)
        else:
            documents[document.version] = document
    return [documents[version] for version in sorted(documents)]


def chosen(documents: Sequence[MapDocument], version: int | None, where: str) -> MapDocument:
    """The document of a version, None the highest; raises MapDocumentError, StreamcalError."""
    if not documents:
        raise MapDocumentError("holds no document that can be read", where=where)
    if version is None:
        return documents[-1]  # the highest version wins, whatever the order of arrival
    for document in documents:
        if document.version == version:
            return document
    known = ", ".join(str(document.version) for document in documents)
    raise StreamcalError(f"there is no version {version}", where=where, hint=f"versions kept there: {known}")
