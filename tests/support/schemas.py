"""JSON schemas as the API's description uses them: validates values, and generates values that match.

An unknown keyword is an error: it would promise what no check enforces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Schema = dict[str, Any]

NAME = "a name"
"""The placeholder for the names of an object whose members are not known."""
_SAYS_NOTHING = {"title", "description", "default", "examples"}
_KNOWN = _SAYS_NOTHING | {
    *("$ref", "anyOf", "type", "enum", "properties", "required", "additionalProperties", "items", "prefixItems"),
    *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern"),
}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

ANYTHING: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


class Schemas:
    """The components of one description, to resolve the references in its schemas."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def resolve(self, schema: Schema) -> Schema:
        """Return the target of a reference, or the schema itself."""
        while "$ref" in schema:
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return schema

    def flaws(self, schema: Schema, value: Any, place: str = "$") -> Iterator[str]:
        """Yield the errors of a value."""
        schema = self.resolve(schema)
        assert schema.keys() <= _KNOWN, f"{place}: {schema.keys() - _KNOWN}"
        if "anyOf" in schema:
            if all(any(self.flaws(each, value, place)) for each in schema["anyOf"]):
                yield f"{place} fits none of {schema['anyOf']}"
            return
        if "enum" in schema and value not in schema["enum"]:
            yield f"{place} is none of {schema['enum']}"
        if "type" in schema and not _TYPES[schema["type"]](value):
            yield f"{place} is no {schema['type']}"
            return
        yield from _out_of_bounds(schema, value, place)
        if isinstance(value, list):
            shapes = schema.get("prefixItems", []) + [schema.get("items", {})] * len(value)
            for index, (shape, each) in enumerate(zip(shapes, value, strict=False)):
                yield from self.flaws(shape, each, f"{place}[{index}]")
        if isinstance(value, dict):
            yield from self._object_flaws(schema, value, place)

    def _object_flaws(self, schema: Schema, value: dict[str, Any], place: str) -> Iterator[str]:
        properties = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{place} has no {name}"
        others = schema.get("additionalProperties", {})
        for name, each in value.items():
            if name in properties or isinstance(others, dict):
                yield from self.flaws(properties.get(name, others), each, f"{place}.{name}")

    def values(self, schema: Schema, plausible: dict[str, SearchStrategy[Any]], name: str = "") -> SearchStrategy[Any]:
        """Return a strategy of matching values. `plausible` maps a member's name to values, where random ones test
        little."""
        schema = self.resolve(schema)
        if name in plausible:
            return plausible[name].filter(lambda value: not any(self.flaws(schema, value)))
        if "anyOf" in schema:
            return st.one_of(*[self.values(each, plausible) for each in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        match schema.get("type"):
            case "null":
                return st.none()
            case "boolean":
                return st.booleans()
            case "integer":
                least, most = schema.get("minimum", -(2**63)), schema.get("maximum", 2**64 - 1)
                return st.integers(least, min(most, least + 5)) | st.integers(least, most)
            case "number":
                return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)
            case "string":
                return st.text(max_size=10)
            case "array":
                inner = self.values(schema.get("items", {}), plausible, name)
                return st.lists(inner, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 3))
            case "object":
                return self._objects(schema, plausible)
            case _:
                return ANYTHING

    def _objects(self, schema: Schema, plausible: dict[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
        members = {name: self.values(each, plausible, name) for name, each in schema.get("properties", {}).items()}
        required = set(schema.get("required", []))
        if not members:
            return st.dictionaries(
                plausible.get(NAME, st.text(max_size=5)),
                self.values(schema.get("additionalProperties", {}), plausible),
                max_size=2,
            )
        return st.fixed_dictionaries(
            {name: each for name, each in members.items() if name in required},
            optional={name: each for name, each in members.items() if name not in required},
        )


def _out_of_bounds(schema: Schema, value: Any, place: str) -> Iterator[str]:
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{place} is out of bounds"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{place} has {len(value)} items"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{place} has {len(value)} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{place} does not match {schema['pattern']}"


def corrupted(value: Any) -> SearchStrategy[Any]:
    """Return a strategy that replaces one member of the value, or the whole value, by any JSON value."""
    if isinstance(value, dict) and value:
        return ANYTHING | st.sampled_from(sorted(value)).flatmap(
            lambda name: corrupted(value[name]).map(lambda other: {**value, name: other})
        )
    if isinstance(value, list) and value:
        return ANYTHING | corrupted(value[0]).map(lambda other: [other, *value[1:]])
    return ANYTHING
