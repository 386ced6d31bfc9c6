"""Options of a Kafka client from security settings under Kafka's own names, with secrets kept out of logs.

For the daemon and for transformers alike. Loads the client only when there is something to set.
"""

from __future__ import annotations

import importlib
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from streamcal.errors import ConfigError

__all__ = ["Secret", "client_security"]

_OTHER_NAMES: Final = {
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
}
"""Keys whose name in kafka-python is not Kafka's own."""

_FILES: Final = {"sasl_password_file": "sasl_password", "ssl_password_file": "ssl_password"}
_SECRETS: Final = frozenset(_FILES.values())
_PROVIDER: Final = "sasl_oauth_token_provider"
_KNOWN: Final = frozenset(
    {"security_protocol", "sasl_mechanism", "sasl_username", _PROVIDER, *_FILES, *_SECRETS}
    | {f"ssl_{name}" for name in ("cafile", "certfile", "keyfile", "crlfile", "ciphers", "check_hostname")}
)


class Secret(str):
    """Text that is shown as asterisks: the client writes its options to its debug log.

    >>> Secret("hunter2")
    '***'
    >>> f"{Secret('hunter2')}", Secret("hunter2").encode()
    ('***', b'hunter2')
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)


def client_security(settings: Mapping[str, object], *, prefix: str = "security") -> dict[str, Any]:
    """Options for a kafka-python client.

    Parameters
    ----------
    settings : mapping
        Keys of the section ``kafka.security``; None counts as not given. Keys ending in ``_file`` (of passwords) name
        files whose text, without a line end after it, is the secret. ``sasl_oauth_token_provider`` is
        ``module:function``; the function takes nothing and returns a token, at each connection and renewal.
    prefix : str
        Where the settings stand, for messages.

    Raises
    ------
    ConfigError
        An unknown key, a file that cannot be read, a function that cannot be loaded; all at once.
    """
    options: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in settings.items():
        if name not in _KNOWN:
            problems.append((f"{prefix}.{name}", "is not a known key"))
        elif value is not None:
            try:
                key, option = _option(name, value)
                options[_OTHER_NAMES.get(key, key)] = option
            except ValueError as error:
                problems.append((f"{prefix}.{name}", str(error)))
    protocol = str(options.get("security_protocol", ""))
    in_files = {name: options.pop(name) for name in list(options) if name.startswith("ssl_")}
    if protocol.endswith("SSL") and not problems:
        try:
            options["ssl_context"] = _context(in_files)
        except _FileError as error:
            problems.append((f"{prefix}.{error.key}", str(error)))
    if problems:
        raise ConfigError(problems)
    if protocol.startswith("SASL"):
        _keep_credentials_out_of_logs()
    return options


def _option(name: str, value: Any) -> tuple[str, Any]:
    if name in _FILES:
        return _FILES[name], Secret(_text_of(Path(value)))
    if name in _SECRETS:
        return name, Secret(value)
    if name == _PROVIDER:
        return name, _token_provider(value)
    return name, str(value) if isinstance(value, Path) else value


class _FileError(ValueError):
    def __init__(self, key: str, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else str(error)
        super().__init__(f"cannot be used: {reason}")
        self.key = key


def _context(given: Mapping[str, Any]) -> ssl.SSLContext:
    """What the client would build, and what it leaves out (ciphers); a wrong file is known before any connection.

    Raises
    ------
    _FileError
        Naming the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(given.get("ssl_check_hostname", True))
    key = ""
    try:
        if path := given.get(key := "ssl_cafile"):
            context.load_verify_locations(path)
        else:
            context.load_default_certs()
        if path := given.get(key := "ssl_certfile"):
            # Without a password it is empty, so that OpenSSL does not ask for one at the terminal.
            context.load_cert_chain(path, given.get("ssl_keyfile"), password=str.__str__(given.get("ssl_password", "")))
        if path := given.get(key := "ssl_crlfile"):
            context.load_verify_locations(path)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if ciphers := given.get(key := "ssl_ciphers"):
            context.set_ciphers(ciphers)
    except (OSError, ValueError) as error:
        raise _FileError(key, error) from error
    return context


def _text_of(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError("the file cannot be read: not UTF-8 text") from error
    except OSError as error:
        # Without the path: a secret pasted in place of its file must not end up in a log.
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    if not text:
        raise ValueError("the file is empty")
    return text


def _token_provider(name: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - transformers of files have no client

    function = _function(name)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the client ships no types
        def token(self) -> str:
            try:
                token = function()
            except Exception as error:
                raise RuntimeError(f"{name} gave no token: {error}") from error
            if not isinstance(token, str) or not token:
                raise TypeError(f"{name} gave no token: it must return text, not {type(token).__name__}")
            return token

    return Provider()


def _function(name: str) -> Callable[[], object]:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ValueError("must be module:function")
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ValueError(f"{name!r} cannot be loaded: {error}; is its folder in PYTHONPATH?") from error
    if not callable(found):
        raise ValueError(f"{name!r} is not a function")  # noqa: TRY004 - collected with the other problems
    return found


class _WithoutCredentials(logging.Filter):
    """Takes bytes out of the client's debug lines: those of an authentication hold passwords and tokens."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        return True


def _shown(arg: object) -> object:
    if isinstance(arg, (bytes, bytearray, memoryview)):
        return f"<{len(arg)} bytes>"
    kind = type(arg).__name__
    return f"{kind}(***)" if kind.startswith("Sasl") else arg


_FILTER: Final = _WithoutCredentials()


def _keep_credentials_out_of_logs() -> None:
    # At the loggers that write them: a filter of a handler would have to be in every handler there is.
    for name in ("kafka.net.connection", "kafka.protocol.parser"):
        logging.getLogger(name).addFilter(_FILTER)
