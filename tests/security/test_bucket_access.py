"""
What a machine may do with the bucket: the rights that `up` grants, as the policy's conditions say them.

The attacks are those of somebody who owns a TPU: he has its token and talks to the storage API himself.
"""

import json
from dataclasses import replace
from urllib.parse import quote

import pytest

from orchestrator.domain.bucket_grants import (
    CONTROLLED,
    REPORTED,
    grants,
    grants_mark,
    not_controlled,
    shares_account,
)
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, WRITER_ROLE
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.metadata_tree import token_of
from orchestrator.emulator.http.router import Request, Router
from orchestrator.emulator.http.storage_access import Callers
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.storage.bucket_policy import MAX_OPERATORS, holds
from orchestrator.emulator.state.storage.refusals import StorageError
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.records import changed

CONTROL = (
    ".tpuctl/record.json", ".tpuctl/lease", ".tpuctl/lease-wish", ".tpuctl/lease-back",
    ".tpuctl/journal/1.intent.json",
    ".tpuctl/events/1.jsonl", ".tpuctl/status.json", ".tpuctl/curve.json", ".tpuctl/capacity.json",
    ".tpuctl/outbox/1", ".tpuctl/outbox-sent/1", ".tpuctl/of-tomorrow", f"bundles/{'a' * 64}.tar.gz",
    "bundles/agent.pyz", "data/files/x",
)  # fmt: skip
"""Objects that the controller acts on, or that machines run."""
OWN = (
    ".tpuctl/heartbeat/1/0", ".tpuctl/gang/1/x", ".tpuctl/claim/1", ".tpuctl/wake/1", "logs/g1/w0/000001.log",
    "tensorboard/events", "checkpoints/00000100/g1/w0/model.pt", "unclaimed/g1/w0/x", "jax-cache/x", "runs/1",
    ".tpuctlx", "bundle", "data/mine",
)  # fmt: skip
"""What machines report, and what a job may call its own."""


@pytest.fixture
def lab(tmp_path):
    """Return a local cloud on which a deployment is up."""
    lab = EngineLab(tmp_path)
    lab.up()
    lab.wait(60)
    return lab


class TpuOwner:
    """Somebody who owns a TPU: what he sends carries its token."""

    def __init__(self, lab, kind="tpu"):
        self.lab = lab
        self.machine = next(one for one in lab.cloud.machines() if one.kind == kind)
        self.token = token_of(self.machine)
        self.router = Router()
        callers = Callers(lab.cloud, lambda _: None)
        storage_routes(
            self.router, lab.storage, lambda inner: dispatch(self.router, lab.cloud, inner), callers
        )
        xml_routes(self.router, lab.storage, callers)

    def ask(self, method, path, body=b"", **headers):
        """Return status and body of a request to the storage API."""
        head = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **headers}
        request = Request.parse(method, path, head, body)
        answer = dispatch(self.router, self.lab.cloud, request)
        return answer.status, answer.body

    def object(self, name, bucket=None):
        """Return the path of an object."""
        return f"/storage/v1/b/{bucket or self.lab.bucket}/o/{quote(name, safe='')}"

    def ways_to_write(self, name):
        """Yield each call of the API that would make, change or remove an object."""
        at, target = f"/b/{self.lab.bucket}/o", quote(name, safe="")
        mine = quote("checkpoints/mine", safe="")
        yield "media", ("POST", f"/upload/storage/v1{at}?uploadType=media&name={target}", b"evil")
        yield "resumable", ("POST", f"/upload/storage/v1{at}?uploadType=resumable&name={target}", b"{}")
        named = json.dumps({"name": name}).encode()
        yield "resumable, named in the body", (
            "POST", f"/resumable/upload/storage/v1{at}?uploadType=resumable", named,
        )  # fmt: skip
        parts = b"--x\r\ncontent-type: application/json\r\n\r\n" + named + b"\r\n--x\r\n\r\nevil\r\n--x--"
        yield "multipart", ("POST", f"/upload/storage/v1{at}?uploadType=multipart", parts)
        yield "compose", ("POST", f"/storage/v1{at}/{target}/compose",
            json.dumps({"sourceObjects": [{"name": "checkpoints/mine"}]}).encode())  # fmt: skip
        yield "copy", ("POST", f"/storage/v1{at}/{mine}/copyTo{at}/{target}", b"{}")
        yield "rewrite", ("POST", f"/storage/v1{at}/{mine}/rewriteTo{at}/{target}", b"{}")
        yield "move", ("POST", f"/storage/v1{at}/{mine}/moveTo/o/{target}", b"{}")
        yield "XML put", ("PUT", f"/{self.lab.bucket}/{quote(name)}", b"evil")
        yield "XML multipart", ("POST", f"/{self.lab.bucket}/{quote(name)}?uploads", b"")
        yield "XML delete", ("DELETE", f"/{self.lab.bucket}/{quote(name)}", b"")
        yield "patch", ("PATCH", f"/storage/v1{at}/{target}", b'{"metadata": {"x": "y"}}')
        yield "delete", ("DELETE", f"/storage/v1{at}/{target}", b"")
        one = f"DELETE /storage/v1{at}/{target} HTTP/1.1\r\n\r\n"
        inner = f"--b\r\nContent-Type: application/http\r\n\r\n{one}\r\n--b--"
        yield "batch", ("POST", "/batch/storage/v1", inner.encode())


def test_a_machine_knows_when_its_account_got_its_roles(tmp_path):
    """For minutes they may not count yet: a machine that is refused then knows that it may pass."""
    lab = EngineLab(tmp_path)
    lab.storage.buckets.policy_delay = 120.0
    began = lab.up().record.started_at
    for kind in ("tpu", "vm"):
        owner = TpuOwner(lab, kind)
        assert owner.ask("GET", owner.object("bundles/agent.pyz") + "?alt=media")[0] == 403
        assert f"TPUCTL_GRANTED_AT='{began:.0f}'" in owner.machine.attributes["startup-script"]
    lab.wait(120)
    assert owner.ask("GET", owner.object("bundles/none") + "?alt=media")[0] == 404


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("kind", ["tpu", "vm"])
def test_no_machine_writes_what_the_controller_keeps(lab, kind, name):
    """Not by any call of the API, whether the object is there or not; and it reads all the same."""
    owner = TpuOwner(lab, kind)
    lab.put("checkpoints/mine", b"evil")
    for there in (False, True):
        if there:
            lab.put(name, b"good")
        before = lab.get(name)
        for way, (method, path, body) in owner.ways_to_write(name):
            kinds = {"multipart": "multipart/related; boundary=x", "batch": "multipart/mixed; boundary=b"}
            more = {"content-type": kinds[way]} if way in kinds else {}
            status, said = owner.ask(method, path, body, **more)
            refused = b"403 Forbidden" in said if way == "batch" else status == 403
            assert refused, (way, status, said)
            assert lab.get(name) == before, way
    assert lab.get("checkpoints/mine") == b"evil"
    assert owner.ask("GET", owner.object(name) + "?alt=media") == (200, b"good")


@pytest.mark.parametrize("name", OWN)
def test_a_machine_writes_what_is_its_own(lab, name):
    """Its reports, logs, checkpoints, and folders that the job thinks of; over and over, and away again."""
    owner = TpuOwner(lab)
    path = f"/upload/storage/v1/b/{lab.bucket}/o?uploadType=media&name={quote(name, safe='')}"
    assert [owner.ask("POST", path, b"x")[0] for _ in range(2)] == [200, 200]
    assert owner.ask("DELETE", owner.object(name))[0] == 204


def test_a_machine_may_look_at_its_bucket(lab):
    """Orbax and TensorFlow do, with each folder of checkpoints in a bucket."""
    status, body = TpuOwner(lab).ask("GET", f"/storage/v1/b/{lab.bucket}")
    assert (status, json.loads(body)["name"]) == (200, lab.bucket)


def test_a_machine_does_not_change_the_bucket_or_its_policy(lab):
    """Else it would give itself what it lacks."""
    owner, at = TpuOwner(lab), f"/storage/v1/b/{lab.bucket}"
    before = lab.storage.buckets.policy(lab.bucket)
    free = {**before, "bindings": [{"role": "roles/storage.admin", "members": ["allUsers"]}]}
    asks = [
        ("PUT", f"{at}/iam", json.dumps(free).encode()),
        ("GET", f"{at}/iam", b""),
        ("PATCH", at, b'{"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": false}}}'),
        ("DELETE", at, b""),
    ]
    assert [owner.ask(*ask)[0] for ask in asks] == [403] * 4
    assert lab.storage.buckets.policy(lab.bucket) == before


def test_the_token_of_a_machine_that_is_gone_opens_nothing(lab):
    """A preemption ends what a stolen token was good for; an invented one never was."""
    owner = TpuOwner(lab)
    assert owner.ask("GET", owner.object(".tpuctl/record.json"))[0] == 200
    node = next(iter(lab.nodes()))
    lab.cloud.preempt(node, notice=False)
    lab.wait(600)
    lab.controller().up()
    assert owner.machine.id not in {one.id for one in lab.cloud.machines()}
    for token in (owner.token, "local-cloud-" + "0" * 32):
        owner.token = token
        assert owner.ask("GET", owner.object(".tpuctl/record.json"))[0] == 401


def test_a_caller_without_a_token_is_known_by_his_machine(lab):
    """Leaving the token out makes nobody the user; nor does hanging up before he is looked for."""
    by_peer = {("127.0.0.1", 1): None, ("127.0.0.1", 2): lab.cloud.machines()[0].id, ("127.0.0.1", 3): ""}
    callers = Callers(lab.cloud, by_peer.__getitem__)
    accounts = (lab.cloud.machines()[0].service_account,)

    def found(port, *, writes=True, on_machine=False):
        asked = Callers(lab.cloud, by_peer.__getitem__, on_machine=on_machine) if on_machine else callers
        return asked(Request("POST", "/", {}, {}, peer=("127.0.0.1", port) if port else None), writes)

    assert [found(1), found(2), found(3)] == [(), accounts, accounts]
    assert [found(2, writes=False), found(0)] == [(), ()]
    assert found(0, on_machine=True) == accounts
    by_peer["127.0.0.1", 2] = "gone"
    with pytest.raises(StorageError, match="Invalid Credentials"):
        found(2)


@pytest.mark.parametrize(
    ("method", "path", "refused"),
    [
        ("DELETE", "/v2/projects/p/locations/z/nodes/n", True), ("GET", "/v2/projects/p/locations", False),
        ("POST", "/v2/projects/p/locations/z/nodes", True), ("GET", "/v1/projects/p/secrets", True),
        ("POST", "/compute/v1/projects/p/zones/z/instances", True),
        ("GET", "/v1/projects/p/secrets/s/versions/1:access", True),
    ],
)  # fmt: skip
def test_a_machine_without_the_scope_changes_nothing_elsewhere_and_reads_no_secret(
    lab, method, path, refused
):
    """It needs no token for that, as its connection identifies it; with the scope for every API it may."""
    tpu = next(one for one in lab.cloud.machines() if one.kind == "tpu")
    wide = next(one for one in lab.cloud.machines() if one.kind == "vm")
    wide = replace(wide, scopes=(CLOUD_PLATFORM,))
    lab.cloud.kernel.state.machines[wide.id] = wide
    by_peer = {1: None, 2: tpu.id, 3: wide.id, 4: ""}
    callers = Callers(lab.cloud, lambda peer: by_peer[peer[1]])
    for port in by_peer:
        request = Request(method, path, {}, {}, peer=("127.0.0.1", port))
        if refused and port in (2, 4):
            with pytest.raises(ApiError, match="insufficient authentication scopes"):
                callers.check_scope(request)
        else:
            callers.check_scope(request)


def test_the_loop_on_a_vm_with_its_own_account_writes_what_the_job_cannot(tmp_path):
    """The job's account keeps to its own; with one account for both a condition would not help."""
    lab = EngineLab(tmp_path)
    spec = one_zone_spec(watch__on_vm=True, vm__service_account="loop@example.com")
    assert not shares_account(spec)
    lab.up(spec)
    record = ".tpuctl/record.json"
    path = f"/upload/storage/v1/b/{lab.bucket}/o?uploadType=media&name={quote(record, safe='')}"
    assert TpuOwner(lab, "tpu").ask("POST", path, b"evil")[0] == 403
    loop = TpuOwner(lab, "vm")
    assert loop.machine.service_account == "loop@example.com"
    assert loop.ask("POST", path, lab.get(record))[0] == 200


def test_a_deployment_of_before_gets_the_conditions_at_its_next_up(lab):
    """And one whose file names another account gets that one's."""
    account = lab.cloud.settings.default_service_account
    wide = {"role": WRITER_ROLE, "members": [f"serviceAccount:{account}"]}
    held = lab.storage.buckets.policy(lab.bucket)
    lab.storage.buckets.set_policy(lab.bucket, {**held, "bindings": [wide]})
    controller = lab.controller()
    controller.records.update(lambda record: changed(record, grants=""))
    controller.up()
    assert not any(b == wide for b in lab.storage.buckets.policy(lab.bucket)["bindings"])
    assert controller.record.bucket.grants == grants_mark(one_zone_spec())
    calls = lab.cloud.calls["storage.buckets.setIamPolicy"]
    lab.up()
    assert lab.cloud.calls["storage.buckets.setIamPolicy"] == calls


@pytest.mark.parametrize("name", [*CONTROL, *OWN, ""])
def test_the_condition_is_one_that_google_takes(name):
    """At most twelve logical operators; and it says of each name what the lists above say."""
    text = not_controlled("my-bucket")
    assert sum(text.count(sign) for sign in ("&&", "||", "!")) <= MAX_OPERATORS
    assert len(CONTROLLED) == 3
    assert len(REPORTED) == 4
    resource = "projects/_/buckets/my-bucket" + (f"/objects/{name}" if name else "")
    assert holds(text, {"resource.name": resource}) is (name not in CONTROL)


VALUES = {"resource.name": "projects/_/buckets/b/objects/a/b", "resource.type": "T", "resource.service": "s"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('resource.name.startsWith("projects/_/buckets/b/objects/a/")', True),
        ("resource.name.endsWith('/b')", True),
        ('resource.type == "T" && resource.service != "s"', False),
        ('!(resource.type == "T") || !false', True),
        ("false || true && false", False),
        ('!(true && !(false || resource.name.startsWith("x")))', False),
        ('resource.type == "\\"T"', False),
    ],
)  # fmt: skip
def test_conditions_are_evaluated(text, value):
    """As the language says it: && binds closer than ||."""
    assert holds(text, VALUES) is value


@pytest.mark.parametrize(
    "text",
    [
        "", "true true", "(true", "true)", "request.time < x", "resource.name", 'resource.name.matches("x")',
        "resource.name.startsWith(resource.type)", "resource.name = 'x'", "1 == 1", "&& true", "true ||",
        'resource.name.startsWith("x"', "a" * 20_000, "!" * 13 + "true", "(" * 200 + "true" + ")" * 200,
        'resource.name == "unended',
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text):
    """Not taken for true, not for false: a rehearsal would judge by halves."""
    with pytest.raises(StorageError):
        holds(text, VALUES)


@pytest.mark.parametrize("change", [{"version": 1}, {"uniform": False}, {"expression": "request.time"}])
def test_a_policy_whose_conditions_would_not_count_is_refused(lab, change):
    """Google wants version 3 and uniform access; what it was before stays."""
    name = "mine-alone"
    uniform = {"uniformBucketLevelAccess": {"enabled": change.get("uniform", True)}}
    lab.storage.buckets.create("p", {"name": name, "location": "EU", "iamConfiguration": uniform})
    text = change.get("expression", 'resource.name.startsWith("x")')
    binding = {"role": WRITER_ROLE, "members": ["user:a@b.c"], "condition": {"expression": text}}
    with pytest.raises(StorageError):
        lab.storage.buckets.set_policy(
            name, {"version": change.get("version", 3), "bindings": [binding]}
        )  # fmt: skip
    assert lab.storage.buckets.policy(name)["bindings"] == []


@pytest.mark.parametrize(
    ("vm", "loop", "wide"),
    [
        ("", False, set()), ("", True, {"tpu"}), ("vm", False, set()), ("vm", True, {"vm"}),
        ("tpu", True, {"tpu"}),
    ],
)  # fmt: skip
def test_only_the_loop_gets_a_grant_without_a_condition(vm, loop, wide):
    """Whatever the accounts are; and each account of a machine gets something."""
    found = grants("b", "tpu", vm, loop=loop)
    assert {g.account for g in found if g.role == WRITER_ROLE and not g.expression} == wide
    assert {g.account for g in found} == {"tpu", vm or "tpu"}
