"""The section `kafka.security`: how to authenticate, under Kafka's own names."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, SecretStr

from streamcal.runtime.config_fields import Section, ServiceFile, Text
from streamcal.transform.kafka_security import client_security

__all__ = ["SECRET_KEYS", "KafkaSecurity", "security_problems"]

SECRET_KEYS: Final = (("kafka", "security", "sasl_password"), ("kafka", "security", "ssl_password"))
"""Keys that are read from the environment only, as they are: `load_config` refuses them in a file."""


def _secret(value: Any) -> SecretStr | None:
    if value is None or isinstance(value, SecretStr):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("holds no text")  # without the value, which is secret whatever it is
    return SecretStr(value)


FromEnvironment = Annotated[
    SecretStr | None, PlainValidator(_secret), PlainSerializer(lambda held: None if held is None else "***")
]


def _function(value: Any) -> Any:
    module, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not (colon and module and name):
        raise ValueError("must be module:function")
    return value


class KafkaSecurity(Section):
    """How to authenticate; secrets are files or variables of the environment."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_username: Text | None = None
    sasl_password_file: ServiceFile | None = None
    sasl_password: FromEnvironment = None
    sasl_oauth_token_provider: Annotated[Text, BeforeValidator(_function)] | None = None
    ssl_cafile: ServiceFile | None = None
    ssl_certfile: ServiceFile | None = None
    ssl_keyfile: ServiceFile | None = None
    ssl_password_file: ServiceFile | None = None
    ssl_password: FromEnvironment = None
    ssl_crlfile: ServiceFile | None = None
    ssl_ciphers: Text | None = None
    ssl_check_hostname: bool = True

    def client_options(self) -> dict[str, Any]:
        """Options for a kafka-python client, with the secrets read from their files.

        Raises
        ------
        ConfigError
            A secret file cannot be read, or the function that gives tokens cannot be loaded.
        """
        held = {name: getattr(self, name) for name in type(self).model_fields}
        plain = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in held.items()
        }
        return client_security(plain, prefix="kafka.security")


def security_problems(security: KafkaSecurity) -> list[tuple[str, str]]:
    """Keys that are missing, clash or have no effect, relative to the section."""
    protocol = security.security_protocol
    given = {name for name in type(security).model_fields if name[:4] in {"sasl", "ssl_"} and _is_given(security, name)}
    problems = []
    if protocol.startswith("SASL_"):
        problems += _sasl_problems(security, given)
    else:
        used = sorted(name for name in given if name.startswith("sasl"))
        problems += [(name, f"has no effect with security_protocol {protocol}; use SASL_SSL") for name in used]
    if not protocol.endswith("SSL"):
        used = sorted(name for name in given if name.startswith("ssl"))
        problems += [(name, f"has no effect with security_protocol {protocol}; use SSL or SASL_SSL") for name in used]
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        problems.append(("ssl_certfile", "is required with ssl_keyfile"))
    problems += [
        (f"{name}_file", f"is given twice: {name} is set too") for name in _PASSWORDS if {name, f"{name}_file"} <= given
    ]
    return problems


_PASSWORDS: Final = ("sasl_password", "ssl_password")


def _sasl_problems(security: KafkaSecurity, given: set[str]) -> list[tuple[str, str]]:
    if security.sasl_mechanism is None:
        return [("sasl_mechanism", f"is required with security_protocol {security.security_protocol}")]
    mechanism = f"sasl_mechanism {security.sasl_mechanism}"
    if security.sasl_mechanism == "OAUTHBEARER":
        needed, useless = ["sasl_oauth_token_provider"], ["sasl_username", "sasl_password_file", "sasl_password"]
    else:
        needed, useless = ["sasl_username", "sasl_password_file"], ["sasl_oauth_token_provider"]
    if "sasl_password" in given:
        needed = [name for name in needed if name != "sasl_password_file"]
    problems = [(name, f"is required with {mechanism}") for name in needed if name not in given]
    return problems + [(name, f"has no effect with {mechanism}") for name in useless if name in given]


def _is_given(security: KafkaSecurity, name: str) -> bool:
    return bool(getattr(security, name) != type(security).model_fields[name].default)
