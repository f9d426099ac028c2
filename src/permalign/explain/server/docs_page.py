"""The documentation of the API as one page, which loads nothing from other hosts."""

import json
from typing import Any

from permalign.explain.render.markup import safe


def docs_page(openapi: dict[str, Any]) -> str:
    """Return an HTML page that lists the operations and types of an OpenAPI description."""
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(_schema(name, schema) for name, schema in openapi["components"]["schemas"].items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>permalign API</title>'
        '<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/page.css">'
        '<link rel="stylesheet" href="/static/explorer.css"></head><body><main class="docs"><header class="top">'
        '<h1>The explorer’s API</h1><nav><a href="/">Explorer</a> <a href="/api/openapi.json">openapi.json</a></nav>'
        "</header><p>Requests and answers are JSON. Every failure is <code>{&quot;error&quot;: reason}</code>.</p>"
        f"{operations}<h2>Types</h2>{schemas}</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows = []
    if body is not None:
        rows.append(("request", _type(body)))
    for status, response in operation["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        content = _type(schema) if schema else safe(", ".join(response.get("content", {})))
        rows.append((status, content if status == "200" else f"{content} {safe(response['description'])}"))
    table = "".join(f"<tr><th scope=row>{safe(name)}</th><td>{value}</td></tr>" for name, value in rows)
    return (
        f"<section><h2><code>{safe(method.upper())} {safe(path)}</code></h2>"
        f"<p>{safe(operation.get('summary', ''))}</p><table>{table}</table></section>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><th scope=row><code>{safe(key)}</code></th><td>{_type(value)}{'' if key in required else ' (optional)'}"
        f"</td><td>{safe(value.get('description', ''))}</td></tr>"
        for key, value in schema.get("properties", {}).items()
    )
    about = safe(schema.get("description", "").split("\n\n")[0])
    return f'<section id="{safe(name)}"><h3>{safe(name)}</h3><p>{about}</p><table>{rows}</table></section>'


def _type(schema: dict[str, Any]) -> str:
    """Describe a type; named types are links."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f'<a href="#{safe(name)}">{safe(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{safe(json.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return safe(schema.get("type", "anything"))
