"""The published JSON Schema: editors must accept what the lab accepts."""

import re
import tomllib
from pathlib import Path

import pytest

from wirespeed.recipe import read

ROOT = Path(__file__).resolve().parents[3]
RECIPES = [*sorted((ROOT / "recipes").glob("*.toml")), ROOT / "lab" / "bench" / "planted.toml"]
SCHEMA = read.json_schema()
KINDS = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list,
         "object": dict, "null": type(None)}  # fmt: skip


def problems(value, schema, at="recipe"):
    """The parts of JSON Schema that this one uses (draft 2020-12): where a value breaks it."""
    if "$ref" in schema:
        return problems(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    found = []
    if "anyOf" in schema:
        ways = [problems(value, one, at) for one in schema["anyOf"]]
        found += [] if any(not way for way in ways) else min(ways, key=len)
    kind = KINDS.get(schema.get("type"), object)
    if not isinstance(value, kind) or (isinstance(value, bool) and schema.get("type") != "boolean"
                                       and "type" in schema):  # fmt: skip
        return [f"{at}: {value!r} is no {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{at}: {value!r} does not fit {schema['pattern']}")
    if isinstance(value, list):
        for one in value if "items" in schema else ():
            found += problems(one, schema["items"], at)
    if isinstance(value, dict):
        found += [f"{at}: {name} is missing" for name in schema.get("required", ())
                  if name not in value]  # fmt: skip
        for name, one in value.items():
            found += of_key(name, one, schema, f"{at}.{name}")
    return found


def of_key(name, value, schema, at):
    if name in schema.get("properties", {}):
        return problems(value, schema["properties"][name], at)
    for pattern, one in schema.get("patternProperties", {}).items():
        if re.search(pattern, name):
            return problems(value, one, at)
    if schema.get("additionalProperties") is False:
        return [f"{at}: unknown key"]
    more = schema.get("additionalProperties")
    return problems(value, more, at) if isinstance(more, dict) else []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_one_for_the_editors(path):
    """Each duration was underlined, `rows = "pair"` and `extends` too."""
    assert problems(tomllib.loads(path.read_text()), SCHEMA) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('wirespeed = 2\nname = "x"', "process is missing"),
        ('wirespeed = 2\nextends = "aa"\n[plan]\nrepaet = 2', "repaet: unknown key"),
        ('wirespeed = 2\nextends = "aa"\n[plan]\nduration = true', "True is no"),
        ('wirespeed = 2\nextends = "aa"\n[plan]\norder = "random"', "is none of"),
    ],
)
def test_editors_see_mistakes(text, says):
    assert says in " ".join(problems(tomllib.loads(text), SCHEMA))
