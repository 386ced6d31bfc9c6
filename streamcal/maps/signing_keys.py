"""Keys that sign map documents and check signatures; see `streamcal.maps.signing`."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, Protocol

from streamcal.errors import StreamcalError

if TYPE_CHECKING:  # an extra, loaded when a PEM file is read
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["HmacKey", "SigningKey", "VerifyKey", "parse_signing_key", "parse_verify_key"]

SHORTEST_SECRET: Final = 32
"""Bytes. A secret shorter than the digest is the weakest part of an HMAC (RFC 2104); ``openssl rand -hex 32``
writes 64."""

_PEM: Final = b"-----BEGIN "
_ID_DIGITS: Final = 16
_ID_OF: Final = b"streamcal key id"


class VerifyKey(Protocol):
    """What a reader holds."""

    @property
    def algorithm(self) -> str:
        """Name of it in documents."""
        ...

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits that follow from the key."""
        ...

    def verify(self, message: bytes, value: bytes) -> bool:
        """Whether `value` is this key's signature of `message`."""
        ...


class SigningKey(VerifyKey, Protocol):
    """What the writer holds; it can verify too."""

    def sign(self, message: bytes) -> bytes:
        """The signature of `message`."""
        ...


class HmacKey:
    """A secret that writer and readers share.

    Raises
    ------
    ValueError
        If it has fewer than 32 bytes.
    """

    algorithm: Final = "hmac-sha256"

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise ValueError(f"a secret of {len(secret)} bytes; an HMAC takes {SHORTEST_SECRET} or more")
        self._secret = secret
        self.key_id = hmac.digest(secret, _ID_OF, "sha256").hex()[:_ID_DIGITS]

    def sign(self, message: bytes) -> bytes:
        """See `SigningKey.sign`."""
        return hmac.digest(self._secret, message, "sha256")

    def verify(self, message: bytes, value: bytes) -> bool:
        """See `VerifyKey.verify`; takes as long for a value that is nearly right."""
        return hmac.compare_digest(self.sign(message), value)


class _PublicKey:
    algorithm: Final = "ed25519"

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._public = key
        self.key_id = hashlib.sha256(_ID_OF + key.public_bytes_raw()).hexdigest()[:_ID_DIGITS]

    def verify(self, message: bytes, value: bytes) -> bool:
        """See `VerifyKey.verify`."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 -- an extra

        try:
            self._public.verify(value, message)
        except InvalidSignature:
            return False
        return True


class _PrivateKey(_PublicKey):
    def __init__(self, key: Ed25519PrivateKey) -> None:
        super().__init__(key.public_key())
        self._private = key

    def sign(self, message: bytes) -> bytes:
        """See `SigningKey.sign`."""
        return self._private.sign(message)


def parse_signing_key(data: bytes) -> SigningKey:
    r"""The key in the content of a file: an Ed25519 private key, or the secret of an HMAC.

    Raises
    ------
    ValueError
        If it holds neither; the message repeats nothing of it.
    StreamcalError
        If it is PEM and the extra ``signing`` is not installed.

    Examples
    --------
    >>> key = parse_signing_key(b"correct horse battery staple, or so\n")
    >>> key.algorithm, len(key.key_id)
    ('hmac-sha256', 16)
    """
    if not data.lstrip().startswith(_PEM):
        return HmacKey(data.strip())
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(data.strip(), password=None)
    except (ValueError, TypeError) as cause:
        raise ValueError("is PEM, but no private key that can be read without a password") from cause
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("holds a private key of another kind than Ed25519")  # noqa: TRY004 -- content, not a type
    return _PrivateKey(key)


def parse_verify_key(data: bytes) -> VerifyKey:
    """The key in the content of a file: an Ed25519 public key, or the secret of an HMAC.

    Raises
    ------
    ValueError
        If it holds neither; a private key is refused, since a reader does not need it.
    StreamcalError
        If it is PEM and the extra ``signing`` is not installed.
    """
    if not data.lstrip().startswith(_PEM):
        return HmacKey(data.strip())
    if b"PRIVATE KEY-----" in data:
        raise ValueError("holds a private key: give readers the public one (openssl pkey -pubout)")
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(data.strip())
    except ValueError as cause:
        raise ValueError("is PEM, but no public key") from cause
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("holds a public key of another kind than Ed25519")  # noqa: TRY004 -- content, not a type
    return _PublicKey(key)


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415
    except ImportError as cause:
        hint = "pip install 'streamcal-monitor[signing]'"
        raise StreamcalError("Ed25519 keys need the package cryptography", hint=hint) from cause
