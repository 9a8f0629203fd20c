"""A recording hears what the official clients exchange, and no name or value gets into it."""

import json

import pytest

from orchestrator.advice.selftest.recording import Recording, RecordingRedactor, parse
from orchestrator.app.selftest.exchange_recorder import Recorder
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.errors import TpuctlError
from orchestrator.google.answer_hooks import listening
from tests.google.adapter_lab import a_lab, a_node

PRIVATE = "echo a-very-private-script"


@pytest.fixture
def recorded():
    """Give the recording of a create, a list, an object and a refusal."""
    lab = a_lab()
    recorder = Recorder(
        Recording({"tpu": True}), RecordingRedactor({}, frozenset(load_catalog().zones)), lambda: 0.0
    )
    with listening(recorder):
        recorder.begin("tpu")
        new = a_node(metadata={"startup-script": PRIVATE})
        lab.nodes.create(new)
        lab.nodes.observe(new.name, new.zone)
        with pytest.raises(TpuctlError):
            lab.nodes.create(a_node(type="v5litepod-3", name="my-secret-node"))
    lab.nodes.observe(new.name, new.zone)
    return recorder.recording, new


def test_calls_of_the_clients_are_recorded_by_step_template_and_status(recorded):
    """Nothing is heard after the block."""
    recording, new = recorded
    create = f"POST /v2/projects/{{}}/locations/{new.zone}/nodes"
    assert set(recording.entries) == {
        ("tpu", create, 200), ("tpu", create, 400),
        ("tpu", f"GET /v2/projects/{{}}/locations/{new.zone}/nodes/{{}}", 200),
    }  # fmt: skip
    assert {entry.count for entry in recording.entries.values()} == {1}
    made = recording.entries["tpu", create, 200]
    assert made.query == {"nodeId"}
    assert made.answered["metadata.@type"] == {"type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"}
    assert "INVALID_ARGUMENT" in next(iter(recording.entries["tpu", create, 400].errors))


def test_no_name_and_no_value_is_in_the_file(recorded):
    """Neither ours nor those of the refused one; and the file can be read again."""
    recording, new = recorded
    text = "\n".join(json.dumps(line) for line in recording.lines())
    for private in (new.name, PRIVATE, "my-secret-node", "local-project", new.service_account):
        assert private not in text
    assert parse(json.loads(line) for line in text.splitlines()) == recording
