"""The page at `/docs`: the OpenAPI description for people. It is all there is: no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
code { font: 0.9em ui-monospace, monospace; }
summary { cursor: pointer; padding: 0.25rem 0; }
summary b { display: inline-block; min-width: 3.2rem; color: #06658c; }
details > div { margin: 0 0 1.5rem 3.2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; border-top: 1px solid #ddd; }
@media (prefers-color-scheme: dark) {
  body { background: #16191c; color: #ddd; } a { color: #7cc4e8; } summary b { color: #7cc4e8; }
  td, th { border-color: #444; }
}
"""


def docs_page(description: Mapping[str, Any]) -> bytes:
    """Return `description` as HTML: every operation with its body, then every schema that those lead to."""
    title = f"{description['info']['title']} {description['info']['version']}"
    schemas: Mapping[str, Schema] = description["components"]["schemas"]
    groups: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            tags = operation["tags"]
            prefix = f"/{tags[0]}/" if len(tags) == 1 and path.startswith(f"/{tags[0]}/") else "Without a prefix"
            groups.setdefault(prefix, []).append(_operation(method, path, operation, schemas))
    parts = [f"<h2>{escape(name)}</h2>{''.join(operations)}" for name, operations in groups.items()]
    shown = "".join(_schema(name, schema) for name, schema in schemas.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>The same for programs: <a href='openapi.json'>openapi.json</a>. Under a prefix "
        f"bodies, statuses and errors are those of its service.</p>{''.join(parts)}<h2>Schemas</h2>{shown}"
        "</body></html>"
    ).encode()


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Schema]) -> str:
    rows = [("Answer", operation["responses"]["200"]), ("Error", operation["responses"]["default"])]
    told = "".join(f"<p>{name}: {_type(_content(part))}</p>" for name, part in rows if "content" in part)
    for each in operation.get("parameters", ()):
        told = f"<p>In the path: <code>{escape(each['name'])}</code></p>{told}"
    if "requestBody" in operation:
        body = _content(operation["requestBody"])
        bodies = body.get("anyOf", [body])
        told = "".join(f"<p>Body: {_type(each)}</p>{_fields(_resolved(each, schemas))}" for each in bodies) + told
    summary = escape(operation["summary"])
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {summary}</summary>"
        f'<div id="{escape(operation["operationId"])}">{told}</div></details>'
    )


def _schema(name: str, schema: Schema) -> str:
    return (
        f'<details><summary><code>{escape(name)}</code></summary><div id="schema-{escape(name)}">'
        f"<p>{escape(schema.get('description', ''))}</p>{_fields(schema)}</div></details>"
    )


def _fields(schema: Schema) -> str:
    if "properties" not in schema:
        return f"<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_type(field)}{'' if name in required else ', optional'}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in schema["properties"].items()
    )
    return f"<table>{rows}</table>"


def _type(schema: Schema) -> str:
    """Return a schema's type in words, with links to the schemas that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return _either(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return _either(f"<code>{escape(repr(value))}</code>" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "anything")))


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words)) or "null"


def _content(part: Mapping[str, Any]) -> Schema:
    content: Schema = part["content"]["application/json"]["schema"]
    return content


def _resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    return schemas[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
