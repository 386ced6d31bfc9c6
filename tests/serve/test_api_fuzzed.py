"""What the OpenAPI description allows, and what it does not, sent to the service: no answer may be a 5xx of ours.

The service is read-only in one run and takes requests in the other. 501 and 503 are described answers, not faults; in
neither run can they come.
"""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance
from served_snapshots import model_of, snapshot_of, sources_of

from streamcal.serve.app import create_app
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.requests import RequestQueue
from streamcal.serve.sources import Access

TOKEN = "0123456789abcdef"


def app_of(access: Access) -> object:
    holder = SnapshotHolder()
    holder.publish(snapshot_of(model_of(segments=3)))
    return create_app(sources_of(holder, requests=RequestQueue(), counts=lambda: {"default": {"n": [1]}}), access)


OPEN = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app_of(Access(admin_token=TOKEN)))
READ_ONLY = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app_of(Access()))
CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
QUICK = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@OPEN.parametrize()
@QUICK
def test_nothing_that_can_be_sent_with_the_token_is_a_fault(case):
    case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {TOKEN}"})


@READ_ONLY.parametrize()
@QUICK
def test_nothing_that_can_be_sent_without_it_is_a_fault(case):
    case.call_and_validate(checks=CHECKS)
