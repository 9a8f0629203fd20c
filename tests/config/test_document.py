"""Files that are not one YAML mapping, and the line that the error names."""

import pytest
from ruamel.yaml import YAML

from orchestrator.config.config_error import ConfigError
from orchestrator.config.document import MAX_BYTES, parse

BROKEN = [
    (b"", (1, 1), "empty"),
    (b"# only a comment\n", (1, 1), "empty"),
    (b"- a\n", (1, 1), "not a mapping"),
    (b"just text\n", (1, 1), "not a mapping"),
    (b"tpu:\n\ttype: v2-8\n", (2, 1), "a tab"),
    (b"tpu:\n  type: v2-8\n\tzones: []\n", (3, 1), "a tab"),
    (b"name: a\n---\nname: b\n", (2, 1), "second YAML document"),
    (b"name: [a\n", (2, 1), "expected ',' or ']'"),
    (b'name: "a\n', (2, 1), "unexpected end of stream"),
    (b"name: a: b\n", (1, 8), "mapping values are not allowed"),
    (b"name: a\n  b: c\n", (2, 4), "mapping values are not allowed"),
    (b"a: b\nname: \xff\n", (2, 7), "not UTF-8"),
    (b"a: b\nname: x\x01\n", (2, 8), "control character"),
    (b"name: *other\n", (1, 7), "undefined alias"),
    (b"a: &a [*a]\n", (1, 4), "endless"),
    (b"a: " + b"{b: " * 1500, (1, 1), "nested too deeply"),
    (b"#" * (MAX_BYTES + 1), (1, 1), "bytes"),
]


@pytest.mark.parametrize(("raw", "place", "words"), BROKEN, ids=lambda value: repr(value)[:30])
def test_what_is_no_yaml_mapping_is_refused_at_its_place(raw, place, words):
    """One finding with line and column, never a traceback of the parser."""
    with pytest.raises(ConfigError) as caught:
        parse(raw, "tpuctl.yaml")
    (found,) = caught.value.findings
    assert words in found.message
    assert (found.line, found.col) == place
    assert found.hint


def test_aliases_that_grow_without_end_are_stopped():
    """A small file must not fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="endless"):
        parse("\n".join(lines).encode(), "x")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\na: 2\n", (2, 1), "given twice"),
        ("a:\n  b: 1\n  b: 2\n", (3, 3), "given twice"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", (3, 3), "merge keys"),
        ("{a: b}: c\n", (1, 1), "plain text"),
        ("a: !secret x\n", (1, 4), "!secret"),
        ("a: !!int x\n", (1, 4), "not a valid value"),
    ],
)
def test_what_yaml_allows_and_a_deployment_file_does_not_is_recorded(text, place, words):
    """These do not stop the reading, so the rest is checked as well."""
    (found,) = parse(text.encode(), "x").findings
    assert (found.line, found.col) == place
    assert words in found.message


def test_values_are_plain_and_have_places():
    """Lines and columns count from 1, as editors do."""
    document = parse(b"a: 1\nb:\n  - x\n  - {c: 2026-01-02}\n", "x")
    assert document.data == {"a": 1, "b": ["x", {"c": "2026-01-02"}]}
    assert document.marks["a",].value == (1, 4)
    assert document.marks["b", 1].value == (4, 5)
    assert document.marks["b", 1, "c"].key == (4, 6)


def test_a_byte_order_mark_is_no_mistake():
    """Some editors write one."""
    assert parse("\ufeffname: a\n".encode(), "x").data == {"name": "a"}


def test_an_alias_is_read_as_what_it_stands_for():
    """A list may be used twice."""
    assert parse(b"a: &z [x]\nb: *z\n", "x").data == {"a": ["x"], "b": ["x"]}


def test_a_text_that_is_read_again_is_not_parsed_again(monkeypatch):
    """A command reads its file several times; a changed one is another text."""
    parsed = []
    genuine = YAML.compose
    monkeypatch.setattr(YAML, "compose", lambda self, text: parsed.append(text) or genuine(self, text))
    first = parse(b"name: once-only", "f")
    first.data["name"] = "changed by its reader"
    assert parse(b"name: once-only", "f").data == {"name": "once-only"}
    assert parse(b"name: edited", "f").data == {"name": "edited"}
    assert parsed == ["name: once-only", "name: edited"]
