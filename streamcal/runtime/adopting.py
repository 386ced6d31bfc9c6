"""Which of the documents found in the maps topic a monitor can go on from."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from streamcal.errors import MapDocumentError
from streamcal.maps.document import NewerSchemaError, decode

__all__ = ["readable"]

log = structlog.get_logger(__name__)


def readable(key: str, documents: Sequence[bytes]) -> list[bytes]:
    """Those of `documents` that verify; a newer schema is refused, since its version would be taken again.

    Raises
    ------
    NewerSchemaError
        A later release has written to this topic.
    """
    sound = []
    for data in documents:
        try:
            decode(data)
        except NewerSchemaError:
            raise
        except MapDocumentError as error:
            log.warning("map document passed over", key=key, error=error.what)
        else:
            sound.append(data)
    return sound
