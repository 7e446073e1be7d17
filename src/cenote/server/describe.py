"""The OpenAPI description, from the dialects' own tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from cenote import __version__
from cenote.server.dialect import Dialect, Operation

_REF = "#/components/schemas/{model}"


def describe(dialects: Iterable[Dialect]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of every operation."""
    dialects = tuple(dialects)
    references, components = models_json_schema(sorted(_models(dialects), key=str), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for dialect in dialects:
        for operation in dialect.operations:
            path = re.sub(r":\w+}", "}", operation.path)
            paths.setdefault(path, {})[operation.method.lower()] = _described(dialect, operation, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": __version__},
        "paths": paths,
        "components": {"schemas": components.get("$defs", {})},
    }


def _models(dialects: tuple[Dialect, ...]) -> set[tuple[type[BaseModel], JsonSchemaMode]]:
    found: set[tuple[type[BaseModel], JsonSchemaMode]] = set()
    for dialect in dialects:
        found.add((dialect.failure_body, "serialization"))
        for operation in dialect.operations:
            found.add((operation.answer, "serialization"))
            if operation.body is not None:
                found.add((operation.body, "validation"))
    return found


def _described(dialect: Dialect, operation: Operation, references: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [dialect.name],
        "summary": operation.summary,
        "operationId": operation.handler.__name__,
        "responses": {
            "200": {"description": "Success", **_content(references[operation.answer, "serialization"])},
            "default": {"description": "Error", **_content(references[dialect.failure_body, "serialization"])},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_content(references[operation.body, "validation"])}
    names = re.findall(r"{(\w+)", operation.path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return described


def _content(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
