"""Damaged deployment files: findings, never a traceback."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read
from orchestrator.config.setting_types import settings as all_settings
from orchestrator.config.starter import init_text
from orchestrator.domain.spec import Spec

LINES = [line for line in init_text("demo", "jax-lm").splitlines() if not line.lstrip().startswith("#")]
PIECES = [
    "",
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    "\t",
    "&a ",
    "*a",
    "!!x ",
    "%",
    "null",
    "none",
    "-1",
    "1e999",
    "~",
    "---",
    "\0",
    "é",
]


def outcome(raw):
    """Read and return the Spec or the findings; any other exception fails the test."""
    try:
        return read(raw, "tpuctl.yaml", environ={})
    except ConfigError as error:
        for finding in error.findings:
            assert finding.message
            assert finding.line >= 1
            assert finding.col >= 1
        return error.findings


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, 4000), st.integers(0, 6), st.sampled_from(PIECES)), min_size=1, max_size=4
    )
)
@example([(0, 0, "%YAML 9\n---\n")])
@example([(0, 0, "? ")])
def test_a_cut_or_patched_file_gives_a_spec_or_findings(edits):
    """Pieces are cut out and pushed in anywhere."""
    text = "\n".join(LINES)
    for place, cut, piece in edits:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + cut :]
    assert outcome(text.encode())


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_findings(raw):
    """No file of any kind makes a traceback."""
    assert outcome(raw)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(all_settings())), VALUES)
def test_any_value_in_any_setting_gives_a_spec_or_findings(key, value):
    """Each setting meets values of every shape; the other settings are right."""
    import json

    data = {"name": "demo", "tpu": {"type": "v2-8", "zones": ["us-central1-b"]}, "job": {"command": "x"}}
    place = data
    *parents, name = key.split(".")
    for parent in parents:
        place = place.setdefault(parent, {})
    place[name] = value
    found = outcome(json.dumps(data, allow_nan=False, default=str).encode() if _finite(value) else b"a: .nan")
    assert isinstance(found, Spec) or all(c.setting for c in found)


def _finite(value):
    return "nan" not in repr(value) and "inf" not in repr(value)
