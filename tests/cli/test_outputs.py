"""
Every document that `--json` prints has its published shape.

tests/conftest.py holds each one printed by any test against it; here is what that cannot see.
"""

import ast
import json
import os
from pathlib import Path

import jsonschema
import pytest

import orchestrator
from orchestrator.cli.views.json_shapes import KINDS, OUTPUT_SCHEMA_FILE, output_schema
from tests.cli.cli_kit import ROOT, here

PUBLISHED = ROOT / "docs" / OUTPUT_SCHEMA_FILE


def printed_kinds():
    """Yield the kind of each call of print_json in the package."""
    for path in sorted(Path(orchestrator.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            calls = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print_json"
            # A command that repeats itself passes its kind on.
            if calls and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_every_kind_that_is_printed_is_described_and_no_other():
    """A new command joins the schema, or this says so."""
    assert set(printed_kinds()) == set(KINDS)


def test_the_published_schema_is_the_one_in_the_code(capsys):
    """docs/output.schema.json is what `tpuctl config schema output` prints."""
    code, text, _ = here(capsys, "config", "schema", "output")
    assert code == 0
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        PUBLISHED.write_text(text)
    assert PUBLISHED.read_text() == text


def test_the_schema_is_one():
    """Validators take it."""
    jsonschema.Draft202012Validator.check_schema(output_schema())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_document_without_a_key_or_with_a_strange_one_is_noticed(kind):
    """The check that runs in all tests can fail."""
    check = jsonschema.Draft202012Validator(output_schema(kind, strict=True))
    assert not check.is_valid({"schema_version": 1, "kind": kind, "strange": 1})
    assert not check.is_valid({"kind": kind})


def test_an_error_document_is_valid_for_the_published_schema(capsys):
    """One through the whole way: what a program reads when a command fails."""
    code, text, _ = here(capsys, "plan", "--file", "/nowhere/tpuctl.yaml", "--json")
    assert code == 2
    jsonschema.validate(json.loads(text), output_schema())
