"""The OpenAPI description, from the dialects' own tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from cenote import __version__
from cenote.server.dialect import Dialect
from cenote.server.endpoint import Offer
from cenote.server.paths import bare_paths, own_paths
from cenote.server.schemas import AnyError

_REF = "#/components/schemas/{model}"
_References = Mapping[Any, dict[str, Any]]
"""Where each schema is, by its model and whether it is read or written."""


def describe(dialects: Iterable[Dialect]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of every operation, on the bare paths and under its dialect's prefix."""
    dialects = tuple(dialects)
    references, components = models_json_schema(sorted(_models(dialects), key=str), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), offers in bare_paths(dialects).items():
        _add(paths, (method, path), _described(offers, references, AnyError))
    for dialect in dialects:
        for (method, path), offers in own_paths(dialect).items():
            described = _described(offers, references, offers[0].dialect.failure_body)
            _add(paths, (method, f"/{dialect.name}{path}"), described)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": __version__},
        "paths": paths,
        "components": {"schemas": components.get("$defs", {})},
    }


def _add(paths: dict[str, dict[str, Any]], place: tuple[str, str], described: dict[str, Any]) -> None:
    method, path = place[0].lower(), re.sub(r":\w+}", "}", place[1])
    names = re.findall(r"{(\w+)", path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    described["operationId"] = re.sub(r"\W+", "_", f"{method}{path}").strip("_")
    paths.setdefault(path, {})[method] = described


def _models(dialects: tuple[Dialect, ...]) -> set[tuple[type[BaseModel], JsonSchemaMode]]:
    found: set[tuple[type[BaseModel], JsonSchemaMode]] = {(AnyError, "serialization")}
    for dialect in dialects:
        found.add((dialect.failure_body, "serialization"))
        for operation in dialect.operations:
            found.add((dialect.for_operation(operation).failure_body, "serialization"))
            if operation.answer is not None:
                found.add((operation.answer, "serialization"))
            if operation.body is not None:
                found.add((operation.body, "validation"))
    return found


def _described(offers: list[Offer], references: _References, error: type[BaseModel]) -> dict[str, Any]:
    operations = [offer.operation for offer in offers]
    answers = [references[each.answer, "serialization"] for each in operations if each.answer is not None]
    success = _content(_any_of(answers)) if answers else {}
    if any(each.may_give_bytes for each in operations):
        success["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    described: dict[str, Any] = {
        "tags": [offer.dialect.name for offer in offers],
        "summary": operations[0].summary,
        "responses": {
            "200": {"description": "Success", **success},
            "default": {"description": "Error", **_content(references[error, "serialization"])},
        },
    }
    bodies = [references[each.body, "validation"] for each in operations if each.body is not None]
    if bodies:
        described["requestBody"] = {"required": True, **_content(_any_of(bodies))}
    return described


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    different = [schema for i, schema in enumerate(schemas) if schema not in schemas[:i]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _content(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
