#!/usr/bin/env python3
"""Writes the types of both client libraries from the OpenAPI document.

    agent-magic-tool serve openapi > openapi.json
    python3 clients/generate.py openapi.json           # writes them
    python3 clients/generate.py openapi.json --check   # fails if they differ

Knows the parts of JSON Schema that the document uses, and fails at any other.
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
PYTHON = HERE / "python/agent_magic_tool_client/api_types.py"
TYPESCRIPT = HERE / "typescript/api-types.d.ts"
NOTE = "Made by clients/generate.py from the OpenAPI document; change that, not this."


def name_of(schema):
    return schema["$ref"].rsplit("/", 1)[1]


def is_null(schema):
    return schema == {"type": "null"}


def variants(schema):
    return schema.get("oneOf") or schema.get("anyOf")


def plain(schema):
    """The schema without what may be null, and whether it may."""
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [one for one in kind if one != "null"]
        if len(rest) != 1:
            sys.exit(f"a value of several types: {schema}")
        return {**schema, "type": rest[0]}, True
    if variants(schema) and any(is_null(one) for one in variants(schema)):
        rest = [one for one in variants(schema) if not is_null(one)]
        return (rest[0] if len(rest) == 1 else {"anyOf": rest}), True
    return schema, False


class Language:
    """How one language writes a type. The subclasses have `words`, `nullable`, `list_of`, `any_map`, `literal`."""

    def type_of(self, schema):
        schema, may_be_null = plain(schema)
        text = self.bare(schema)
        return self.nullable(text) if may_be_null else text

    def bare(self, schema):
        if "$ref" in schema:
            return name_of(schema)
        if "const" in schema:
            return self.literal([schema["const"]])
        if "enum" in schema:
            return self.literal(schema["enum"])
        if variants(schema):
            return " | ".join(self.type_of(one) for one in variants(schema))
        kind = schema.get("type")
        if kind == "array":
            return self.list_of(self.type_of(schema["items"]))
        if kind == "object" and "properties" not in schema:
            return self.any_map
        if kind in self.words:
            return self.words[kind]
        sys.exit(f"cannot write this schema: {schema}")


class Python(Language):
    words = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
    any_map = "dict[str, Any]"

    def nullable(self, text):
        return f"{text} | None"

    def list_of(self, text):
        return f"list[{text}]"

    def literal(self, values):
        return f"Literal[{', '.join(json.dumps(one) for one in values)}]"

    def fields(self, schema):
        required = schema.get("required", [])
        for name, field in schema["properties"].items():
            text = self.type_of(field)
            yield f"    {name}: {text if name in required else f'NotRequired[{text}]'}"

    def record(self, name, schema):
        base = name_of(schema) if "$ref" in schema else "TypedDict"
        words = schema.get("description", "").strip()
        lines = [f"class {name}({base}):"] + ([f'    r"""{words}"""', ""] if words else [])
        return "\n".join(lines + list(self.fields(schema)))

    def named(self, name, schema):
        if schema.get("type") == "object" and "properties" in schema:
            return self.record(name, schema)
        members, records = [], []
        for one in variants(schema) or []:
            tag = next((f["const"] for f in one.get("properties", {}).values() if "const" in f), None)
            if tag is None:
                break
            members.append(name + tag.title().replace("_", ""))
            records.append(self.record(members[-1], one))
        if members:
            return "\n\n\n".join(records + [f"{name} = Union[{', '.join(members)}]"])
        if variants(schema):
            return f"{name} = Union[{', '.join(self.type_of(one) for one in variants(schema))}]"
        return f"{name} = {self.type_of(schema)}"

    def file(self, schemas):
        head = f'"""The types of the HTTP API. {NOTE}"""\n\n'
        head += "from __future__ import annotations\n\nfrom typing import Any, Literal, NotRequired, TypedDict, Union\n"
        return "\n\n".join([head] + [self.named(*one) + "\n" for one in ordered(schemas)])


class TypeScript(Language):
    words = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
    any_map = "Record<string, unknown>"

    def nullable(self, text):
        return f"{text} | null"

    def list_of(self, text):
        return f"Array<{text}>"

    def literal(self, values):
        return " | ".join(json.dumps(one) for one in values)

    def type_of(self, schema):
        if "properties" in schema:
            return self.record(schema)
        return super().type_of(schema)

    def record(self, schema):
        required = schema.get("required", [])
        fields = []
        for name, field in schema["properties"].items():
            words = comment(field.get("description"), "  ")
            fields.append(f"{words}  {name}{'' if name in required else '?'}: {self.type_of(field)};\n")
        body = "{\n" + "".join(fields) + "}"
        return f"{name_of(schema)} & {body}" if "$ref" in schema else body

    def named(self, name, schema):
        return f"{comment(schema.get('description'), '')}export type {name} = {self.type_of(schema)};\n"

    def file(self, schemas):
        return "\n".join([f"/** The types of the HTTP API. {NOTE} */\n"] + [self.named(*one) for one in ordered(schemas)])


def comment(words, indent):
    if not words:
        return ""
    text = re.sub(r"\s+", " ", words).strip().replace("*/", "* /")
    return f"{indent}/** {text} */\n"


def ordered(schemas):
    """The schemas, each after those to which it refers."""
    done = {}

    def visit(name):
        if name not in done:
            done[name] = None
            for other in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas[name])):
                visit(other)
            done[name] = schemas[name]
            finished.append((name, schemas[name]))

    finished = []
    for name in schemas:
        visit(name)
    return finished


def main():
    document = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    schemas = document["components"]["schemas"]
    for path, language in [(PYTHON, Python()), (TYPESCRIPT, TypeScript())]:
        text = language.file(schemas)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not what the OpenAPI document says: python3 clients/generate.py openapi.json")


main()
