"""The rules of `tpuctl doctor` over made-up facts: each is fine, and each says what to do when it is not."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.advice.doctor.facts import Computer, Facts, File, Google, KnownDeployment, Local, Login
from orchestrator.advice.doctor.rules import RULES, manual, run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.all_zones import AllZones
from orchestrator.domain.level import Level, stops
from orchestrator.domain.machines.queued_resource import QueuedResource, QueuedState
from orchestrator.domain.machines.vm_machine_types import CpuQuota
from orchestrator.domain.observation import Absent, Bucket, Node, NodeState, Present, Unknown, Vm, VmState
from orchestrator.errors import Retry
from tests.planning.planning_kit import a_spec

MANUAL = Path(__file__).parents[2] / "docs" / "doctor.md"
SPEC = a_spec(tpu__type="v5litepod-8", tpu__runtime="v2-alpha-tpuv5-lite")
ZONE = "europe-west4-b"
OFF = Unknown("the API is off", Retry.PERMANENT, "gcloud services enable tpu.googleapis.com")
DENIED = Unknown("a permission is missing", Retry.PERMANENT, "ask the owner", denied=True)
SILENT = Unknown("no answer within 15 s")

COMPUTER = Computer(
    python="3.11.2", tpuctl="1", libraries={"google-cloud-tpu": "1.28.0"},
    programs={"ssh": "OpenSSH_9.2", "git": "git 2", "gcloud": "528"}, term="xterm", state="/s",
    state_mode=0o700, free_bytes=50 << 30, keys=1, deployments=(KnownDeployment("mine"),),
)  # fmt: skip
FILE = File("/w/tpuctl.yaml", SPEC, source=".", source_bytes=1 << 20, catalog=load_catalog())
GOOGLE = Google(
    login=Present(Login("user", "/adc.json", "me@example.org")), gcloud_account="me@example.org",
    gcloud_project="my-project", project="my-project", ahead=Present(0.4), tpu=Present(ZONE),
    compute=Present("a@b"), storage=Present(""), offers={ZONE: Present("v5litepod-8")},
    runtimes={ZONE: Present("v2-alpha-tpuv5-lite")}, machine_account=Present("a@b"),
    cpus=Present(CpuQuota(24, 4, 2)), tpu_limits=Present({ZONE: 8}), private_access=Present(True),
    ssh_allowed=Present(True), iap_allowed=Present(True), vm_image=Present("ubuntu-1"),
    vm_machine_type=Present("e2-small"), bucket=Present(Bucket("b", "europe-west4")), lacking=Present(()),
    elsewhere=Present(AllZones(())), vms_elsewhere=Present(AllZones(())),
)  # fmt: skip
FINE = Facts(COMPUTER, FILE, Local(), GOOGLE)
INSIDE = a_spec(tpu__external_ip=False)
LAB = a_spec(network="projects/host/global/networks/lab", subnetwork="west")
HIDDEN = a_spec(vm={"external_ip": False})
READS = a_spec(job__data={"c4": "gs://b/c4", "own": "./own"})
KEYED = a_spec(job__secrets={"K": "secret://wandb"})
LOST = Node("demo-tpu-g3", "us-east5-b", NodeState.READY, 3)
IN_QUEUE = replace(LOST, queued=QueuedResource("q1", "us-east5-b", QueuedState.ACTIVE, 3))
DELETE_LOST = "gcloud compute tpus tpu-vm delete demo-tpu-g3 --zone us-east5-b --project my-project"
STRAY, NO_VM = Vm("demo-vm", "us-east5-b", VmState.RUNNING), a_spec(vm="none")
OURS = replace(STRAY, zone=ZONE)
DELETE_STRAY = "gcloud compute instances delete demo-vm --zone us-east5-b --project my-project"
B, W, U = Level.STOP, Level.WARN, Level.UNKNOWN


def computer(**changes):
    """Return the fine facts with another computer."""
    return replace(FINE, computer=replace(COMPUTER, **changes))


def file(**changes):
    """Return the fine facts with another deployment file."""
    return replace(FINE, file=replace(FILE, **changes))


def local(**changes):
    """Return the fine facts with another local cloud."""
    return replace(FINE, local=Local(**changes))


def google(spec=SPEC, **changes):
    """Return the fine facts with another project."""
    return replace(FINE, file=replace(FILE, spec=spec), google=replace(GOOGLE, **changes))


CASES = [
    ("python", B, computer(python="3.9.18"), "newer Python"),
    ("libraries", B, computer(libraries={"google-cloud-tpu": None}), "pip install"),
    ("ssh", W, computer(programs={}), "OpenSSH"),
    ("git", Level.OK, computer(programs={}), ""),
    ("gcloud", W, computer(programs={}), "cloud.google.com/sdk"),
    ("locale", Level.OK, computer(encoding="ANSI_X3.4-1968"), ""),
    ("colour", W, computer(colours={"NO_COLOR": "1", "FORCE_COLOR": "1"}), "unset one"),
    ("variables", W, computer(diverting=("STORAGE_EMULATOR_HOST",)), "unset STORAGE_EMULATOR_HOST"),
    ("state-folder", B, computer(state_mode=0o777), "chmod go-w /s"),
    ("state-folder", B, computer(state_message="/s cannot be written"), "TPUCTL_STATE_DIR"),
    ("disk", B, computer(free_bytes=1000), "TPUCTL_STATE_DIR"),
    ("disk", W, computer(free_bytes=1 << 30), "free some space"),
    ("disk", U, computer(free_bytes=None), "df -h"),
    ("ssh-keys", B, computer(open_keys=("/s/id_ed25519",)), "chmod 600 /s/id_ed25519"),
    ("deployments", B, computer(deployments=(KnownDeployment("old", overdue=True),)), "tpuctl status"),
    ("deployments", W, computer(deployments=(KnownDeployment("torn", readable=False),)), "tpuctl down"),
    ("file", B, file(spec=None, message="tpuctl.yaml:2:1: tpu.zonse"), "tpuctl plan"),
    ("file", U, file(path="", spec=None), "tpuctl init"),
    ("source", B, file(source_message="the source folder x is not there"), "job.source"),
    ("source", U, file(spec=None, message="x"), "`file`"),
    ("regions", B, file(spec=a_spec(vm__zone="us-central1-a")), "one region"),
    ("ports", W, file(taken={"jupyter": 8888}), "tpuctl tunnel jupyter --port 18888"),
    ("local-packages", W, local(missing=("asyncssh",)), "tpuctl[local]"),
    ("local-packages", B, local(chosen=True, missing=("asyncssh",)), "tpuctl[local]"),
    ("local-process", B, local(chosen=True, programs=("flock",)), "apt-get"),
    ("local-namespace", Level.OK, local(namespace="namespaces need root"), ""),
    ("local-daemon", W, local(daemon="stale", folder="/l"), "tpuctl local start"),
    ("local-daemon", B, local(chosen=True, daemon="deaf", endpoint="http://x"), "tpuctl local stop"),
    ("local-ports", W, local(taken=(4000,)), "tpuctl local reset"),
    ("credentials", B, google(login=Absent()), "gcloud auth application-default login"),
    ("credentials", B, google(login=OFF), "gcloud"),
    ("credentials", U, google(login=SILENT), ""),
    ("gcloud-account", W, google(gcloud_account="you@example.org"), "application-default login"),
    ("gcloud-account", W, google(gcloud_project="other"), "gcloud config set project my-project"),
    ("project", B, google(project=""), "GOOGLE_CLOUD_PROJECT"),
    ("project", U, google(project="", login=Absent()), "GOOGLE_CLOUD_PROJECT"),
    ("project", B, google(compute=Absent()), "gcloud projects list"),
    ("clock", W, google(ahead=Present(-42.0)), "timedatectl"),
    ("clock", B, google(ahead=Present(301.0)), "timedatectl"),
    ("clock", U, google(ahead=SILENT), ""),
    ("tpu-api", B, google(tpu=OFF), "gcloud services enable tpu.googleapis.com"),
    ("tpu-api", U, google(tpu=SILENT), ""),
    ("compute-api", B, google(compute=OFF), "gcloud services enable"),
    ("storage-api", B, google(storage=OFF), "gcloud services enable"),
    ("zones", B, google(offers={ZONE: Absent()}), "tpu.zones"),
    ("zones", W, google(offers={ZONE: Absent(), "europe-west4-a": Present("t")}), "tpu.zones"),
    ("zones", U, google(offers={ZONE: SILENT}), ""),
    ("tpu-elsewhere", W, google(elsewhere=Present(AllZones((LOST,), ("us-west4-a",)))), DELETE_LOST),
    ("tpu-elsewhere", W, google(elsewhere=Present(AllZones((IN_QUEUE,)))), "queued-resources delete q1"),
    ("tpu-elsewhere", Level.OK, google(elsewhere=Present(AllZones((replace(LOST, zone=ZONE),)))), ""),
    ("tpu-elsewhere", U, google(elsewhere=Present(AllZones((), ("us-west4-a",)))), ""),
    ("tpu-elsewhere", U, google(elsewhere=SILENT), ""),
    ("tpu-elsewhere", U, google(elsewhere=OFF), "gcloud services enable"),
    ("vm-elsewhere", W, google(vms_elsewhere=Present(AllZones((STRAY,)))), DELETE_STRAY),
    ("vm-elsewhere", W, google(NO_VM, vms_elsewhere=Present(AllZones((OURS,)))), "instances delete"),
    ("vm-elsewhere", Level.OK, google(vms_elsewhere=Present(AllZones((OURS,)))), ""),
    ("vm-elsewhere", U, google(vms_elsewhere=Present(AllZones((), ("us-west4-a",)))), ""),
    ("vm-elsewhere", U, google(vms_elsewhere=OFF), "gcloud services enable"),
    ("runtime", B, google(runtimes={ZONE: Absent()}), "tpu.runtime"),
    ("runtime", B, google(spec=a_spec(tpu__runtime=None)), "set tpu.runtime"),
    ("machine-account", B, google(machine_account=Present("")), "set service_account"),
    ("machine-account", U, google(machine_account=SILENT), ""),
    ("service-agent", U, google(tpu=SILENT), "tpu-api"),
    ("vm-quota", B, google(cpus=Present(CpuQuota(24, 23, 2))), "quotas?project=my-project"),
    ("vm-quota", U, google(cpus=SILENT), ""),
    ("vm-quota", Level.OK, google(cpus=Absent()), ""),
    ("vm-image", B, google(vm_image=Absent()), "update tpuctl"),
    ("vm-image", U, google(vm_image=SILENT), ""),
    ("vm-image", Level.OK, google(a_spec(vm="none"), vm_image=Absent()), ""),
    ("tpu-quota", U, google(tpu_limits=SILENT), "quotas?project=my-project"),
    ("tpu-quota", U, google(tpu_limits=Present({})), "services enable cloudquotas.googleapis.com"),
    ("tpu-quota", B, google(tpu_limits=Present({ZONE: 4})), "v5litepod-4 would fit (tpu.type), or ask"),
    ("tpu-quota", B, google(tpu_limits=Present({ZONE: 0})), "ask for more: https://console"),
    ("tpu-quota", W, google(tpu_limits=Present({ZONE: 8, "europe-west4-a": 4})), "v5litepod-4 would fit"),
    ("tpu-quota", Level.OK, google(tpu_limits=Present({ZONE: -1})), ""),
    ("private-access", B, google(INSIDE, private_access=Present(False)), "--enable-private-ip-google-access"),
    ("private-access", B, google(private_access=Absent()), "gcloud compute networks create"),
    ("private-access", U, google(INSIDE, private_access=SILENT), ""),
    ("private-access", B, google(LAB, private_access=Absent()), "network and subnetwork in tpuctl.yaml"),
    ("private-access", U, google(INSIDE, private_access=DENIED), "docs/organisation.md"),
    ("vm-machine-type", B, google(vm_machine_type=Absent()), "vm.machine_type"),
    ("vm-machine-type", U, google(vm_machine_type=DENIED), "docs/organisation.md"),
    ("vm-quota", U, google(cpus=DENIED), "docs/organisation.md"),
    ("tpu-api", B, google(tpu=DENIED), "ask the owner"),
    ("machine-account", B, google(machine_account=DENIED), "service_account in tpuctl.yaml"),
    ("compute-api", U, google(compute=DENIED), "docs/organisation.md"),
    ("firewall", U, google(ssh_allowed=DENIED), "docs/organisation.md"),
    ("firewall", W, google(LAB, ssh_allowed=Present(False)), "create lab-allow-ssh --network lab"),
    ("firewall", W, google(ssh_allowed=Present(False)), "firewall-rules create"),
    ("private-access", B, google(HIDDEN, private_access=Present(False)), "--enable-private-ip-google-access"),
    ("iap", B, google(HIDDEN, iap_allowed=Present(False)), "--source-ranges 35.235.240.0/20 --allow tcp:22"),
    ("iap", U, google(HIDDEN, iap_allowed=SILENT), ""),
    ("iap", Level.OK, google(HIDDEN), ""),
    ("iap", B, replace(google(HIDDEN), computer=replace(COMPUTER, programs={})), "cloud.google.com/sdk"),
    ("bucket", B, google(bucket=Present(Bucket("b", "us-east1"))), "bucket.name"),
    ("bucket", Level.OK, google(bucket=Absent()), ""),
    ("permissions", B, google(lacking=Present(("storage.objects.delete",))), "roles/storage.admin"),
    ("permissions", U, google(lacking=SILENT), "TPU-202"),
    ("secrets", B, google(KEYED, secrets={"wandb": Absent()}), "tpuctl secret set wandb"),
    ("secrets", U, google(KEYED, secrets={"wandb": SILENT}), ""),
    ("secrets", W, google(KEYED, secrets={"wandb": Present(())}), "roles/secretmanager.secretAccessor"),
    ("secrets", Level.OK, google(KEYED, secrets={"wandb": Present(("serviceAccount:a@b",))}), ""),
    ("data", B, google(READS, data={"gs://b/c4": Absent()}), "job.data"),
    ("data", B, google(READS, data={"gs://b/c4": Present(False)}), "job.data"),
    ("data", U, google(READS, data={"gs://b/c4": SILENT}), ""),
    ("data", U, google(READS), ""),
    ("data", Level.OK, google(READS, data={"gs://b/c4": Present(True)}), ""),
]  # fmt: skip


def found(facts, name):
    """Return what one rule finds."""
    (finding,) = [f for f in run_rules(facts) if f.rule == name]
    return finding


@pytest.mark.parametrize(
    ("name", "level", "facts", "hint"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_a_rule_says_how_it_stands_and_what_to_do(name, level, facts, hint):
    """The fix is a command or a setting; only what nobody could tell may be without one."""
    finding = found(facts, name)
    assert (finding.level, hint in finding.hint) == (level, True)
    assert finding.hint or level in {Level.OK, Level.UNKNOWN}
    assert stops([finding.level]) == (level is Level.STOP)


def test_where_all_is_fine_no_action_is_recommended():
    """Only the quota of TPUs stays unknown: no client in use can read it."""
    assert {f.rule: f.level for f in run_rules(FINE) if f.level is not Level.OK} == {}
    assert [f.rule for f in run_rules(FINE) if f.hint] == []


def test_there_are_twenty_rules_and_each_has_a_case():
    """Each name stands once, and none is without a case above."""
    names = [each.id for each in RULES]
    assert len(set(names)) == len(names) >= 20
    assert set(names) == {case[0] for case in CASES}


def test_without_any_fact_nothing_is_wrong_with_the_project():
    """A computer without a network is told what is not known, not that it is broken."""
    offline = Google(login=GOOGLE.login, project="my-project", offers={ZONE: SILENT}, runtimes={ZONE: SILENT})
    reported = [f for f in run_rules(replace(FINE, google=offline)) if f.group.value == "Google Cloud"]
    assert {f.level for f in reported} == {Level.OK, U}


def test_without_a_file_what_needs_one_is_unknown():
    """Then the rest is still looked at."""
    reported = run_rules(replace(FINE, file=File()))
    assert not stops(finding.level for finding in reported)
    assert {f.rule for f in reported if f.level is U} >= {"file", "source", "regions", "zones", "bucket"}


def test_the_manual_is_the_one_in_the_docstrings():
    """docs/doctor.md is made from the rules. Set TPUCTL_UPDATE_GOLDEN=1 to write it again."""
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        MANUAL.write_text(manual())
    assert MANUAL.read_text() == manual()


def test_a_local_cloud_that_sleeps_is_one_answer_and_no_advice():
    """Nothing was asked, so no command of Google's is named that would change nothing here."""
    why = Unknown("not asked: the local cloud does not run")
    asleep = Google(
        Absent(), project="local-project", ahead=why, tpu=why, lacking=why, bucket=why, unasked=why
    )
    found = {f.rule: f for f in run_rules(replace(FINE, local=Local(chosen=True), google=asleep))}
    for name in ("clock", "service-agent", "tpu-quota", "permissions", "tpu-api"):
        assert (found[name].level, found[name].message, found[name].hint) == (U, why.message, ""), name
