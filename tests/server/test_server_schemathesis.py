"""Schemathesis over the OpenAPI description: no request breaks the server, and every answer is as it is described."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from running import TIMEOUT_SECONDS, RunningServer
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cenote.server.describe import describe
from cenote.server.dialects import DIALECTS

MODELS = ["dense", "reranker", "nli", "m3"]
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
EXAMPLES = {GenerationMode.POSITIVE: 8, GenerationMode.NEGATIVE: 4}
"""Of each operation: what the description allows, and what it does not."""


def description() -> dict[str, Any]:
    """The server's own, but `model` is always a served one, so that requests get further than to its name."""
    whole = copy.deepcopy(describe(DIALECTS))
    bodies = [each.body for dialect in DIALECTS for each in dialect.operations if each.body is not None]
    for name in {body.__name__ for body in bodies}:
        schema = whole["components"]["schemas"][name]
        if "model" in schema["properties"]:
            schema["properties"]["model"] = {"enum": MODELS}
            schema["required"] = [*schema.get("required", ()), "model"]
    return whole


SCHEMA = schemathesis.openapi.from_dict(description())
OPERATIONS = {operation.label: operation for operation in (each.ok() for each in SCHEMA.get_all_operations())}
RUNS = [
    pytest.param(label, mode, id=f"{label} {mode.value}")
    for label, operation in OPERATIONS.items()
    for mode in ([*EXAMPLES] if operation.body else [GenerationMode.POSITIVE])
]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


@pytest.mark.parametrize(("label", "mode"), RUNS)
def test_every_request_is_answered_as_described(
    kinds: RunningServer, session: requests.Session, label: str, mode: GenerationMode
) -> None:
    @settings(
        max_examples=EXAMPLES[mode],
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        response = case.call(base_url=kinds.url, session=session, timeout=TIMEOUT_SECONDS)
        # vLLM's 501 is no fault: the model does not offer what the route is for.
        assert response.status_code < 500 or response.status_code == 501, (case.body, response.text)
        case.validate_response(response, checks=CHECKS)

    check()
