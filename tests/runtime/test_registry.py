from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_secure import Authority
from kafka_settings import free_ports
from registry_stub import RegistryStub, running_registry

from streamcal.runtime.registry import RegistryError, SchemaRegistry


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with running_registry() as found:
        yield found


def test_a_schema_is_asked_for_once(stub: RegistryStub) -> None:
    stub.register(7, '"string"')
    registry = SchemaRegistry(stub.url + "/")
    first, again = registry.schema(7), registry.schema(7)
    assert first is again
    assert first is not None
    assert (first.kind, first.text, dict(first.references)) == ("AVRO", '"string"', {})
    assert stub.asked == ["/schemas/ids/7"]


def test_an_unknown_id_is_none_and_not_asked_for_again_at_once(stub: RegistryStub) -> None:
    registry = SchemaRegistry(stub.url)
    assert registry.schema(9) is None
    assert registry.schema(9) is None
    assert stub.asked == ["/schemas/ids/9"]


def test_references_come_after_what_they_build_on(stub: RegistryStub) -> None:
    stub.register(1, '"outer"', references=[{"name": "b", "subject": "x/b", "version": 2}])
    stub.subjects["x%2Fb", 2] = {"schema": "B", "references": [{"name": "a", "subject": "a", "version": 1}]}
    stub.subjects["a", 1] = {"schema": "A", "references": [{"name": "b", "subject": "x/b", "version": 2}]}
    found = SchemaRegistry(stub.url).schema(1)
    assert found is not None
    assert list(found.references.items()) == [("a", "A"), ("b", "B")]


def test_a_reference_that_is_gone_is_an_error(stub: RegistryStub) -> None:
    stub.register(1, '"outer"', references=[{"name": "b", "subject": "b", "version": 2}])
    with pytest.raises(RegistryError, match="version 2 of subject 'b'"):
        SchemaRegistry(stub.url).schema(1)


def test_passing_failures_are_tried_again(stub: RegistryStub) -> None:
    stub.register(7, '"string"')
    stub.failures = [503, 429, 0]
    assert SchemaRegistry(stub.url).schema(7) is not None
    assert stub.asked == ["/schemas/ids/7"] * 4


def test_patience_ends_with_an_error_that_may_pass(stub: RegistryStub) -> None:
    stub.failures = [503] * 100
    with pytest.raises(RegistryError, match="HTTP 503") as caught:
        SchemaRegistry(stub.url, patience_s=0.5).schema(7)
    assert caught.value.retryable
    assert len(stub.asked) > 1


def test_the_check_does_not_wait(stub: RegistryStub) -> None:
    SchemaRegistry(stub.url).check()
    stub.failures = [500]
    with pytest.raises(RegistryError, match="HTTP 500"):
        SchemaRegistry(stub.url).check()
    with pytest.raises(RegistryError, match=r"does not answer.*refused"):
        SchemaRegistry(f"http://127.0.0.1:{free_ports(1)[0]}").check()


def test_an_old_registry_that_knows_no_types_passes_the_check(stub: RegistryStub) -> None:
    stub.failures = [404]
    SchemaRegistry(stub.url).check()


def test_credentials_are_sent_and_a_refusal_is_no_reason_to_wait(stub: RegistryStub) -> None:
    stub.user = "me:secret:with:colons"
    stub.register(7, '"string"')
    assert SchemaRegistry(stub.url, credentials="me:secret:with:colons").schema(7) is not None
    with pytest.raises(RegistryError, match="refuses these credentials") as caught:
        SchemaRegistry(stub.url, credentials="me:wrong").schema(7)
    assert not caught.value.retryable
    assert "wrong" not in str(caught.value)
    assert len(stub.asked) == 2


def test_a_page_of_something_else_is_an_error_at_once(stub: RegistryStub) -> None:
    stub.page = b"<html>welcome</html>"
    with pytest.raises(RegistryError, match="not that of a registry") as caught:
        SchemaRegistry(stub.url).schema(7)
    assert not caught.value.retryable


def test_a_redirect_is_not_followed_with_the_credentials(stub: RegistryStub) -> None:
    with running_registry() as other:
        stub.redirect = other.url
        with pytest.raises(RegistryError, match="HTTP 302"):
            SchemaRegistry(stub.url, credentials="me:secret").schema(7)
        assert other.asked == []


def test_a_file_of_authorities_that_is_none_is_named() -> None:
    with pytest.raises(RegistryError, match=r"/nowhere\.pem"):
        SchemaRegistry("https://127.0.0.1:1", ca_file="/nowhere.pem")


def test_tls_is_verified_with_the_authorities_that_are_named(tmp_path: Path) -> None:
    authority, other = Authority.new(tmp_path / "a"), Authority.new(tmp_path / "b", "another")
    with running_registry(authority.issue("registry", "localhost")) as stub:
        stub.register(7, '"string"')
        assert SchemaRegistry(stub.url, ca_file=str(authority.ca)).schema(7) is not None
        for ca_file in (str(other.ca), None):
            with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                SchemaRegistry(stub.url, ca_file=ca_file).check()
