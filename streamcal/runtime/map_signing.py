"""Signs maps as they go to the maps topic, and says which of those found there may be taken over.

Outside of the engine, so that what is in force stays a function of the logs: a document is decided, then signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcal.errors import ConfigError, StreamcalError
from streamcal.maps.signing import Verified, Verifier, sign_record, verified
from streamcal.maps.signing_keys import SigningKey
from streamcal.runtime.config_sections import Maps
from streamcal.transform.keys import read_signing_key, read_verifier

__all__ = ["MapSigning", "map_signing"]


@dataclass(frozen=True, slots=True)
class MapSigning:
    """What holds for every map that leaves or enters.

    Attributes
    ----------
    key : SigningKey or None
        None: documents go out as they are.
    verifier : Verifier or None
        None: documents are taken as they are.
    """

    key: SigningKey | None = None
    verifier: Verifier | None = None

    def outgoing(self, key: str, document: bytes) -> bytes:
        """The value to publish under `key` (``<model>`` or ``<model>#shadow``)."""
        return document if self.key is None else sign_record(key, document, self.key)

    def incoming(self, key: str, documents: Sequence[bytes]) -> Verified:
        """Which of the values found under `key` may be adopted; each refused one counts as ``bad_signature``."""
        return verified(key, documents, self.verifier)


def map_signing(settings: Maps) -> MapSigning:
    """Read the configured keys.

    The signing key is accepted too: a monitor takes over its own maps after a restart.

    Raises
    ------
    ConfigError
        If a file cannot be read or holds no key; every one is listed.
    """
    problems: list[tuple[str, str]] = []
    key: SigningKey | None = None
    accepted: list[Verifier] = []
    if settings.signing_key_file is not None:
        try:
            key = read_signing_key(settings.signing_key_file)
        except StreamcalError as error:
            problems.append(("maps.signing_key_file", error.what))
    for i, path in enumerate(settings.verify_key_files):
        try:
            accepted.append(read_verifier(path))
        except StreamcalError as error:
            problems.append((f"maps.verify_key_files.{i}", error.what))
    if problems:
        raise ConfigError(problems)
    keys = [held for verifier in accepted for held in verifier.keys] + ([] if key is None else [key])
    return MapSigning(key, Verifier(keys) if keys else None)
