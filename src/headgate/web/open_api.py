"""The OpenAPI document of the REST interface, made from the table of its paths and from the types of its answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headgate.web.answers import Fault, Overview
from headgate.web.rest import Parameter
from headgate.web.routes import JSON_ROUTES, OTHER_ROUTES, JsonRoute, OtherRoute

_TYPES = {int: "integer", float: "number", str: "string"}


def open_api(version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the REST interface, as a dict. `version` is the version of Headgate."""
    types = [Fault, Overview, *(route.type for route in JSON_ROUTES)]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths = {route.path: {"get": _json(route)} for route in JSON_ROUTES}
    paths |= {route.path: {"get": _other(route)} for route in OTHER_ROUTES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "The jobs of a program", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _json(route: JsonRoute) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{route.type.__name__}"}
    return _operation(route.path, route.meaning, "application/json", schema, route.parameters)


def _other(route: OtherRoute) -> dict[str, Any]:
    return _operation(route.path, route.meaning, route.media_type, {"type": "string"}, ())


def _operation(
    path: str, meaning: str, media_type: str, schema: dict[str, Any], parameters: tuple[Parameter, ...]
) -> dict[str, Any]:
    fault = {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}}
    return {
        "operationId": "_".join(re.findall(r"\w+", path)),
        "summary": meaning,
        "parameters": [*_path_parameters(path), *(_parameter(each) for each in parameters)],
        "responses": {
            "200": {"description": "The answer.", "content": {media_type: {"schema": schema}}},
            "4XX": {"description": "Why the request was refused.", "content": fault},
            "5XX": {"description": "Why the driver cannot answer now, or failed to.", "content": fault},
        },
    }


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[parameter.kind]}
    if parameter.default is not None:
        schema |= {"default": parameter.default, "minimum": 0}
    if parameter.most is not None and parameter.kind is not str:
        schema["maximum"] = parameter.most
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "description": parameter.meaning,
        "schema": {"type": "array", "items": schema} if parameter.kind is str and not parameter.is_required else schema,
    }
