"""A broker with TLS, SASL and an authorizer, and the certificates for it; made on the spot, for loopback only."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka_java import JavaBroker, cached_jars, java_command

__all__ = ["PASSWORD", "TOKENS", "Authority", "Cluster", "secure_broker", "unsigned_token"]

PASSWORD = "c0rrect-horse-battery"
"""Of every user; a text that is in no log unless somebody logs it."""

TOKENS = "tokens_of_the_tests"
"""Module in the cluster's folder with functions that give tokens."""

_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Authority:
    """A certificate authority of its own; `ca` is the file clients trust."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, folder: Path, name: str = "streamcal test authority") -> Authority:
        """Make one, and its file."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key.public_key(), key, name, ca=True)
        authority = cls(folder, key, certificate)
        authority.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def ca(self) -> Path:
        """The authority's own certificate."""
        return self.folder / "ca.pem"

    def issue(self, name: str, *hosts: str, password: str | None = None) -> tuple[Path, Path]:
        """Files with a certificate for `hosts` and its key (PKCS 8)."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        certificate = _certificate(name, key.public_key(), self.key, str(issuer), hosts=hosts)
        lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            lock = serialization.BestAvailableEncryption(password.encode())
        files = self.folder / f"{name}.crt.pem", self.folder / f"{name}.key.pem"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return files


def _certificate(
    name: str,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: str,
    *,
    ca: bool = False,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if ca:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    if hosts:
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def unsigned_token(user: str) -> str:
    """A token as the broker's own validator for tests takes it: JWS without a signature."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def secure_broker(folder: Path, authority: Authority, users: tuple[str, ...]) -> JavaBroker:
    """Start a broker: plain and almighty on `bootstrap`, ``SECURE`` with SASL_SSL, ``TLS`` with client certificates.

    Its certificate is for ``localhost`` only, so connecting to 127.0.0.1 finds a wrong name. `users` exist for PLAIN;
    those of SCRAM are made by an administrator. Whoever is not plain may do only what access control lists say.
    """
    folder.mkdir(parents=True)
    certificate, key = authority.issue("broker", "localhost")
    store = folder / "broker.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    plain = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    prefix = "listener.name.secure"
    settings: Mapping[str, str] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": _MECHANISMS,
        f"{prefix}.sasl.enabled.mechanisms": _MECHANISMS,
        f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {plain};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    further = {"SECURE": "SASL_SSL", "TLS": "SSL"}
    broker = JavaBroker(java_command(), cached_jars(), folder, settings, further=further, host="localhost")
    broker.start()
    return broker


class Cluster:
    """A broker with TLS, SASL and access control, and the files its clients need."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.new(folder / "authority")
        self.other = Authority.new(folder / "other", "an authority nobody trusts")
        self.broker: JavaBroker = secure_broker(folder / "broker", self.authority, ("alice",))
        self.password, self.wrong = folder / "password", folder / "wrong"
        self.password.write_text(PASSWORD + "\n", encoding="utf-8")
        self.wrong.write_text("a-wr0ng-password", encoding="utf-8")
        # Here, as most tests need no Kafka.
        from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", mechanism, PASSWORD)])
            admin.close()
        (folder / f"{TOKENS}.py").write_text(
            f"def token():\n    return {unsigned_token('alice')!r}\n\n\n"
            "def none():\n    raise ConnectionError('the token server is away')\n",
            encoding="utf-8",
        )

    @property
    def address(self) -> str:
        return self.broker.addresses["SECURE"]

    def security(self, mechanism: str = "PLAIN", **further: Any) -> dict[str, Any]:
        settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, "ssl_cafile": str(self.authority.ca)}
        if mechanism != "OAUTHBEARER":
            settings |= {"sasl_username": "alice", "sasl_password_file": str(self.password)}
        return {**settings, **further}
