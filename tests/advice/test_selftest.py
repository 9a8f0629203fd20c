"""What a self-test's recording keeps, what it never keeps, and which differences are found."""

import copy
import json

import pytest

from orchestrator.advice.selftest.compare import Topic, differences
from orchestrator.advice.selftest.recording import (
    RecordedCall,
    Recording,
    RecordingRedactor,
    merge,
    parse,
    placeholders,
)
from orchestrator.app.selftest.selftest import NO_TPU, limits
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.machines.tpu_quota import beyond
from orchestrator.pricing.cost import hourly
from tests.planning.planning_kit import a_spec

SECRETS = [
    "acme-vision-prod", "424242424242", "selftest-ab12cd", "tpuctl-selftest-ab12cd-deadbeef01", "10.164.0.7",
    "34.91.2.3", "jane@acme.example", "ya29.A0ARrdaM", "AAAAC3NzaC1lZDI1", "#!/bin/bash", "team-red",
    "kostenstelle", "my-box-7", "f3a9c1d2e4b5", "gs://acme-private/data",
]  # fmt: skip
NODE = {
    "name": "projects/acme-vision-prod/locations/us-west1-c/nodes/selftest-ab12cd-tpu-g1",
    "state": "CREATING",
    "health": "HEALTHY",
    "createTime": "2026-11-23T04:00:00.123Z",
    "labels": {"kostenstelle": "team-red", "tpuctl-deployment": "selftest-ab12cd"},
    "metadata": {
        "startup-script": "#!/bin/bash\necho ya29.A0ARrdaM",
        "ssh-keys": "u:ssh-ed25519 AAAAC3NzaC1lZDI1",
    },
    "networkEndpoints": [
        {"ipAddress": "10.164.0.7", "port": 8470, "accessConfig": {"externalIp": "34.91.2.3"}}
    ],
    "serviceAccount": {"email": "jane@acme.example"},
    "id": "424242424242",
    "schedulingConfig": {"spot": True},
    "tags": [],
    "description": "f3a9c1d2e4b5 on my-box-7, gs://acme-private/data",
}
REFUSED = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": (
            "Quota limit 'TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI' has been exceeded. "
            "Limit: 4 in zone us-west1-c for projects/acme-vision-prod by jane@acme.example from 10.164.0.7 "
            "on my-box-7"
        ),
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED",
                     "metadata": {"consumer": "projects/424242424242", "service": "tpu.googleapis.com"}}],
    }
}  # fmt: skip


@pytest.fixture
def redactor():
    """Give one that knows the names of a run."""
    known = placeholders((("project", "acme-vision-prod"), ("deployment", "selftest-ab12cd")))
    return RecordingRedactor(known, frozenset(load_catalog().zones))


def test_a_recording_keeps_fields_types_and_words_of_enumerations(redactor):
    """That is what the comparison needs."""
    shape = redactor.shape(NODE)
    assert shape["state"] == ["CREATING"]
    assert shape["networkEndpoints[].port"] == ["number"]
    assert shape["createTime"] == ["time"]
    assert shape["schedulingConfig.spot"] == ["boolean"]
    assert shape["labels.*"] == ["string"]
    assert shape["tags[]"] == ["empty"]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_name_number_address_key_or_script_passes(redactor, secret):
    """Neither of a body, nor of an error, nor of a path."""
    path = redactor.path("/v2/projects/acme-vision-prod/locations/us-west1-c/nodes/selftest-ab12cd:stop")
    reported = [redactor.shape(NODE), redactor.shape(REFUSED), redactor.errors(REFUSED), path]
    reported += [redactor.text(f"The resource '{secret}' is not {secret}, nor /{secret}/x.")]
    # A plain word passes in a sentence: whoever has such a name reads the recording before it is kept.
    assert secret not in json.dumps(reported[:-1] if secret.isalpha() else reported)


def test_an_error_keeps_its_words_its_quota_and_its_reason(redactor):
    """Without them nobody learns anything of a refusal."""
    assert redactor.errors(REFUSED)[:3] == ["code 429", "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"]
    text = redactor.errors(REFUSED)[3]
    assert "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 4" in text
    assert "us-west1-c" in text


def test_a_path_becomes_its_template(redactor):
    """Words of the API and public zones stay."""
    found = redactor.path("/v2/projects/acme/locations/us-west1-c/nodes/n:getGuestAttributes")
    assert found == "/v2/projects/{}/locations/us-west1-c/nodes/{}:getGuestAttributes"


def recording():
    """Return a recording of one create, one refusal and one machine."""
    found = Recording({"tpu": True})
    one, no = RecordedCall(count=1), RecordedCall(count=1, errors={"code 400 | bad type"})
    merge(one.answered, {"name": ["string"], "state": ["CREATING", "READY"], "port": ["number"]})
    found.entries["tpu", "GET /v2/nodes/{}", 200] = one
    found.entries["refusals", "POST /v2/nodes", 400] = no
    found.stages["tpu"] = {"result": "ok", "duration_s": 20.0, "proves": "x"}
    found.machines["vm"] = {"cron": "no"}
    return found


def test_a_recording_comes_back_from_its_file():
    """What is sent is all that was there."""
    lines = json.loads(json.dumps(recording().lines()))
    assert parse(lines) == recording()
    assert lines[1] == {"step": "tpu", "outcome": "ok", "seconds": 20.0, "proves": "x"}, (
        "earlier files have it"
    )
    with pytest.raises(ValueError, match="first line"):
        parse([{"x": 1}])


def test_a_cloud_that_answers_the_same_has_no_differences():
    """Also where ours shows more states than were recorded, or is a little slower."""
    ours = recording()
    ours.entries["tpu", "GET /v2/nodes/{}", 200].answered["state"].add("DELETING")
    ours.stages["tpu"]["duration_s"] = 24.0
    assert differences(recording(), ours) == []


def changed(what):
    """Return a recording with one deliberate difference."""
    theirs = copy.deepcopy(recording())
    answered = theirs.entries["tpu", "GET /v2/nodes/{}", 200].answered
    if what == "new field":
        answered["upcomingMaintenance.type"] = {"SCHEDULED"}
    elif what == "missing field":
        del answered["port"]
    elif what == "other type":
        answered["port"] = {"string"}
    elif what == "new state":
        answered["state"].add("REPAIRING")
    elif what == "other status":
        theirs.entries["refusals", "POST /v2/nodes", 429] = theirs.entries.pop(
            ("refusals", "POST /v2/nodes", 400)
        )
    elif what == "other text":
        theirs.entries["refusals", "POST /v2/nodes", 400].errors = {"code 400 | other words"}
    elif what == "other image":
        theirs.machines["vm"]["cron"] = "yes"
    elif what == "failed stage":
        theirs.stages["tpu"]["result"] = "failed"
    else:
        theirs.stages["tpu"]["duration_s"] = 400.0
    return theirs


@pytest.mark.parametrize(
    ("what", "topic"),
    [
        ("new field", Topic.FIELDS), ("missing field", Topic.FIELDS), ("other type", Topic.FIELDS),
        ("new state", Topic.FIELDS), ("other status", Topic.STATUS), ("other text", Topic.TEXT),
        ("other image", Topic.MACHINE), ("failed stage", Topic.STATUS), ("slower", Topic.TIME),
    ],
)  # fmt: skip
def test_a_deliberate_difference_is_caught(what, topic):
    """Each kind of it, and nothing else."""
    found = differences(changed(what), recording())
    assert {one.topic for one in found} == {topic}


def test_the_time_to_live_keeps_all_machines_within_the_budget():
    """Even when nobody is left to stop them: the price per hour times the time is no more than the budget."""
    price = hourly(a_spec(tpu__type="v5litepod-4"), load_catalog(), "us-west1-c")
    found = limits(price, 1.0, 4 * 3600, tpu=True)
    assert found.upper_usd <= 1.0
    assert found.ttl < 4 * 3600
    assert limits(price, 0.01, 4 * 3600, tpu=True) is None
    small = limits(price, 3.0, 4 * 3600, tpu=False)
    assert (small.ttl, small.upper_usd < 0.03) == (NO_TPU, True)


def test_the_smallest_type_beyond_a_limit_is_of_the_same_quota():
    """v5litepod-8 is beyond 4 chips for serving; without a limit, or with one that nothing exceeds, none is."""
    catalog, zone = load_catalog(), "us-west4-a"
    assert beyond(catalog, "v5litepod-4", zone, 4) == "v5litepod-8"
    assert beyond(catalog, "v5litepod-4", zone, 0) == "v5litepod-1"
    assert beyond(catalog, "v5litepod-4", zone, 8) == ""
    assert beyond(catalog, "v5litepod-4", zone, -1) == ""
    assert beyond(catalog, "v5litepod-16", zone, 16) == "v5litepod-32"


@pytest.mark.parametrize(("one", "other"), [("skipped", "ok"), ("ok", "skipped")])
def test_a_step_that_was_skipped_is_no_difference(one, other):
    """A project without a limit cannot show its refusal; a stage that failed is reported all the same."""

    def ended(result):
        return Recording({}, stages={"quota": {"result": result}})

    assert differences(ended(one), ended(other)) == []
    assert [found.topic for found in differences(ended("failed"), ended("ok"))] == [Topic.STATUS]
