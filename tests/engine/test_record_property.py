"""What is written of a deployment can be read again, whatever has got into it."""

from typing import get_type_hints

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.contract.bucket.limits import LATEST_TIME
from orchestrator.domain.first_seen import of_node
from orchestrator.domain.job_progress import ProgressEstimate
from orchestrator.domain.observation import NodeState, Operation
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Candidate, Record, Refusal, Shape, Span
from orchestrator.engine.records.record_checks import MAX_NUMBER
from orchestrator.engine.records.record_format import STORED, decode, encode, state_text, stored_values
from orchestrator.errors import Retry
from tests.kit.records import changed

KEY = b"k" * 32


def type_of(path):
    """Return the type of a value of a record."""
    kind = Record
    for name in path.split("."):
        kind = get_type_hints(kind)[name]
    return kind


states = st.builds(of_node, st.integers(0, 99), st.sampled_from(NodeState)).map(state_text)
ANY = {key: st.from_type(type_of(path)) for key, path in STORED.items() if key != "substitute"}
"""Values of each field's type: floats that are none, numbers without end, text of any kind."""
ANY |= {
    "sightings": st.dictionaries(states, st.floats()),
    "sidecars": st.dictionaries(st.text(), st.text()),
}
times, numbers = st.floats(0, LATEST_TIME), st.integers(0, MAX_NUMBER)
zones = st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
kinds, retries = st.sampled_from(Kind), st.sampled_from(Retry)


def several(values):
    """Return tuples of them."""
    return st.lists(values, max_size=3).map(tuple)


shapes = st.builds(Shape, zones, zones, st.booleans(), st.booleans())
SANE = {
    "serial": numbers, "incarnation": numbers, "highest": numbers, "round": numbers, "zone": zones,
    "type": zones, "zones_used": several(zones), "bundle": digests, "agent": digests,
    "started_at": times, "expires_at": times, "granted_at": times, "remote_failed_since": st.none() | times,
    "accepted": st.booleans(), "claimed": st.booleans(), "reason": st.text(), "shape": shapes,
    "sightings": st.dictionaries(states, times), "sidecars": st.dictionaries(st.text(), st.text()),
    "on_demand": several(numbers), "beacons": several(numbers), "mute": several(st.tuples(numbers, times)),
    "rivals": several(st.builds(Candidate, numbers, zones, times, st.booleans())),
    "refusals": several(st.builds(Refusal, times, zones, retries, st.text(), kinds, st.text())),
    "spans": several(
        st.builds(Span, st.sampled_from([Kind.NODE, Kind.VM]), names, zones, times, st.none() | times, type=zones)
    ),
    "operations": several(
        st.builds(Operation, names, st.just(Kind.NODE), st.sampled_from(Verb), names, zones, st.none() | numbers)
    ),
    "progress": st.builds(ProgressEstimate, st.integers(0, 1 << 53), times, times, times, times, times),
}  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.fixed_dictionaries({}, optional=SANE))
def test_what_is_encoded_is_decoded(values):
    """Every field, alone and with others, and nothing is changed on the way."""
    record = changed(Record(), **values)
    assert decode(encode(record, "demo", "me", KEY), "demo") == record


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example({"refusals": (Refusal(0.0, "", Retry.QUOTA, code="0"),)}, {})
@given(st.fixed_dictionaries({}, optional=ANY), st.fixed_dictionaries({}, optional=SANE))
def test_what_cannot_be_read_is_skipped_and_nothing_else(any_values, sane_values):
    """A record that cannot be read forgets what earlier TPUs have cost, and keeps `ttl` from its end."""
    record = changed(Record(), **any_values, **{k: v for k, v in sane_values.items() if k not in any_values})
    again = stored_values(decode(encode(record, "demo", "me", KEY), "demo"))
    given, nothing = stored_values(record), stored_values(Record())
    for key, found in again.items():
        assert found in (given[key], nothing[key]), key
        if STORED[key] not in {STORED[name] for name in any_values}:
            assert found == given[key], key
