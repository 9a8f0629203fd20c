"""Secret Manager of the local cloud, and who reads it: tpuctl, the agent on a machine, the stock gcloud."""

import base64
import io
import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace

import pytest
from requests.adapters import HTTPAdapter

from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.machine.job_secrets import JobSecrets, SecretError
from orchestrator.app import secret
from orchestrator.cli.main import run
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.contract.machine_errors import TransientError
from orchestrator.contract.secrets.redaction import Redactor
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, MACHINE_SCOPES, node_scopes, vm_scopes
from orchestrator.domain.source.secret_refs import SecretRef, job_secrets, reference
from orchestrator.emulator.client import BASE, CloudAdapter
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.metadata_tree import token_of
from orchestrator.emulator.http.secrets import secret_routes
from orchestrator.emulator.state import secrets as model
from orchestrator.errors import AuthError
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.secret_manager import SecretManager
from orchestrator.scripts.render import machine_scripts
from tests.emulator.emulator_lab import PROJECT, a_lab
from tests.emulator.http_fixture import serve
from tests.google.error_table import RPC_INFO, response
from tests.scripts.render_kit import a_job_spec, a_target

PATH = f"/v1/projects/{PROJECT}/secrets"
DENIED = "secretmanager.versions.access"


def lab_with(path=None, **settings):
    """Return a local cloud with Secret Manager, and the model behind it."""
    lab = a_lab(**settings)
    held = model.Secrets(lab.clock, 123456789012, path)
    secret_routes(lab.router, lab.cloud, held)
    return lab, held


@pytest.fixture
def lab():
    """Give a local cloud with Secret Manager."""
    return lab_with()[0]


def manager(lab):
    """Return tpuctl's client of it."""
    adapter = CloudAdapter(lab.router, lab.cloud)
    return SecretManager(Clients(CloudSettings(PROJECT, BASE, read_retry=0, adapter=adapter)))


def test_tpuctl_stores_lists_and_reads(lab):
    """A second value is a second version; the first can still be named."""
    client = manager(lab)
    assert [client.set("wandb", b"one"), client.set("wandb", b"two"), client.set("hf", b"x")] == [1, 2, 1]
    assert [one.name for one in client.list()] == ["hf", "wandb"]
    assert client.read(SecretRef("wandb")) == "two"
    assert client.read(SecretRef("wandb", "1")) == "one"
    assert client.readers("wandb") == ()
    with pytest.raises(AuthError, match="secret://no") as caught:
        client.read(SecretRef("no"))
    assert (caught.value.code, caught.value.hint) == ("TPU-250", "run: tpuctl secret set no")


def test_values_lie_in_a_file_of_their_own_for_their_owner_only(tmp_path):
    """They outlive the daemon, and are in no other file of the local cloud."""
    lab, held = lab_with(tmp_path / "secrets.json")
    manager(lab).set("wandb", b"the-value")
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    assert base64.b64encode(b"the-value") not in lab.cloud.snapshot()
    again, _ = lab_with(tmp_path / "secrets.json")
    assert manager(again).read(SecretRef("wandb")) == "the-value"
    assert held.all()[0].name == "wandb"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("secret://wandb", SecretRef("wandb")),
        ("secret://a_B-1/versions/12", SecretRef("a_B-1", "12")),
        ("secret://a/versions/latest", SecretRef("a")),
        *((text, None) for text in (
            "wandb", "secret://", "secret://a/b", "secret://a/versions/", "secret://a/versions/0", "secret://../x",
            "secret://a/versions/1?x=y", "secret://a\n", "SECRET://a", "secret://a/versions/1:destroy",
        )),
    ],
)  # fmt: skip
def test_a_reference_is_read_or_it_is_none(text, found):
    """Nothing else gets into the path of a request."""
    assert reference(text) == found


@pytest.mark.parametrize("reason", ["ACCESS_TOKEN_SCOPE_INSUFFICIENT", "IAM_PERMISSION_DENIED"])
def test_the_reason_of_a_refusal_says_whether_a_role_or_a_new_machine_helps(reason):
    """Not its text, which Google may change."""

    class Refusing(HTTPAdapter):
        """Google's answer, in other words."""

        def send(self, request, **_):
            return response(403, json.dumps({"error": refusal}).encode(), request.url)

    info = {"@type": RPC_INFO, "reason": reason, "metadata": {"service": "secretmanager.googleapis.com"}}
    refusal = {"code": 403, "status": "PERMISSION_DENIED", "message": "Other words.", "details": [info]}
    client = SecretManager(Clients(CloudSettings(PROJECT, BASE, read_retry=0, adapter=Refusing())))
    with pytest.raises(AuthError) as caught:
        client.read(SecretRef("hf"))
    if reason == "IAM_PERMISSION_DENIED":
        assert (caught.value.code, "secretAccessor" in caught.value.hint) == ("TPU-251", True)
    else:
        assert (caught.value.code, "tpuctl down" in caught.value.hint) == ("TPU-252", True)


class SecretReader:
    """The agent's reader on a machine of the local cloud."""

    def __init__(self, lab, url, scopes=(CLOUD_PLATFORM,)):
        lab.node(serviceAccount={"email": "a@b", "scope": list(scopes)})
        lab.after(10)
        self.machine = lab.cloud.machines()[0]
        self.redactor = Redactor()
        self.environ = {
            "TPUCTL_LOCAL_CLOUD": url, "TPUCTL_PROJECT": PROJECT,
            "TPUCTL_SECRETS": '{"WANDB_API_KEY": "secret://wandb", "OLD": "secret://wandb/versions/1"}',
        }  # fmt: skip

    def read(self):
        """Read the job's secrets as the machine's account."""
        reader = JobSecrets(self.environ, Metadata("127.0.0.1:9"), self.redactor)
        reader._tokens.headers = lambda: {"Authorization": f"Bearer {token_of(self.machine)}"}
        reader._account = lambda: "a@b"
        return reader.read()


@pytest.fixture
def served(lab):
    """Give a maker of machines, and the cloud over HTTP."""
    with serve(lab.router, lambda request: dispatch(lab.router, lab.cloud, request)) as url:
        yield lambda **more: SecretReader(lab, url, **more)


def test_the_agent_reads_values_and_knows_what_to_mask(lab, served):
    """Each start of the job reads again, so a rotated secret counts from then on."""
    client, machine = manager(lab), served()
    client.set("wandb", b"value-one\n")
    assert machine.read() == {"WANDB_API_KEY": "value-one", "OLD": "value-one"}
    client.set("wandb", b"value-two")
    assert machine.read() == {"WANDB_API_KEY": "value-two", "OLD": "value-one"}
    assert machine.redactor.text("value-one value-two") == "[masked: wandb] [masked: wandb]"


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        (
            "missing",
            "TPU-250",
            "secret wandb: there is no version latest in project local-project; run: tpuctl secret",
        ),
        ("disabled", "TPU-250", "DISABLED state"),
        ("binary", "TPU-250", "its value is not text"),
        ("denied", "TPU-251", "--member=serviceAccount:a@b --role=roles/secretmanager.secretAccessor"),
        ("narrow", "TPU-252", "lacks the scope cloud-platform; recreate the machine"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(case, code, words):
    """Code, secret, role and command; never a value."""
    lab, held = lab_with(denied_permissions=frozenset({DENIED} if case == "denied" else ()))
    with serve(lab.router, lambda request: dispatch(lab.router, lab.cloud, request)) as url:
        machine = SecretReader(lab, url, MACHINE_SCOPES if case == "narrow" else (CLOUD_PLATFORM,))
        if case != "missing":
            manager(lab).set("wandb", b"the-\xff-value" if case == "binary" else b"the-value")
        if case == "disabled":
            held.turn("wandb", "1", model.DISABLED)
        with pytest.raises(SecretError) as caught:
            machine.read()
    assert str(caught.value).startswith(f"{code}: secret wandb: ")
    assert words in str(caught.value)
    assert "the-" not in str(caught.value)


def test_an_outage_of_secret_manager_is_waited_out(lab, served, monkeypatch):
    """It is transient for the agent, which tries again within seconds."""
    manager(lab).set("wandb", b"value-one")
    lab.cloud.fail_next(DENIED, ["transient"])
    machine = served()
    assert machine.read()["OLD"] == "value-one"
    monkeypatch.setattr("orchestrator.agent.machine.job_secrets.TIMEOUT", 0.3)
    lab.cloud.fail_next(DENIED, ["transient"] * 9)
    with pytest.raises(TransientError, match="wandb"):
        machine.read()


def typed(monkeypatch, value, *words):
    """Run a command with *value* on its standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(value)))
    return run(["secret", *words, "--cloud", "local"])


def test_the_command_takes_a_value_from_standard_input_and_never_shows_it(lab, monkeypatch, capsys):
    """One line end is left out; a name that could lead elsewhere is refused before anything is read."""
    monkeypatch.setattr(secret, "open_manager", lambda project, cloud: (manager(lab), PROJECT))
    assert typed(monkeypatch, b"the value\n", "set", "wandb") == 0
    assert typed(monkeypatch, b"", "set", "empty") == 2
    assert typed(monkeypatch, b"the value", "set", "../x") == 2
    assert typed(monkeypatch, b"", "list") == 0
    shown = capsys.readouterr()
    assert "the value" not in shown.out + shown.err
    assert shown.out.split()[0] == "wandb"
    assert manager(lab).read(SecretRef("wandb")) == "the value"


def test_a_rehearsal_gets_made_up_values_for_every_version_that_is_named(lab, monkeypatch, capsys):
    """Its local cloud is new; the job must start all the same."""
    monkeypatch.setattr(secret, "open_manager", lambda project, cloud: (manager(lab), PROJECT))
    secret.lend_secrets(
        a_job_spec(secrets={"A": "secret://a", "B": "secret://a/versions/3", "C": "secret://c"}),
        EventPrinter(),
    )
    assert (
        manager(lab).read(SecretRef("a", "3")) == manager(lab).read(SecretRef("c")) == secret.MADE_UP.decode()
    )
    assert "made-up values in this rehearsal: A, B, C" in capsys.readouterr().err


def test_only_the_machine_that_runs_the_job_gets_the_wide_scope():
    """Secret Manager knows no narrower one."""
    spec = a_job_spec(secrets={"K": "secret://k"})
    assert (node_scopes(spec), vm_scopes(spec)) == ((CLOUD_PLATFORM,), MACHINE_SCOPES)
    on_vm = replace(spec, job=replace(spec.job, run_on="vm"))
    assert (node_scopes(on_vm), vm_scopes(on_vm)) == (MACHINE_SCOPES, (CLOUD_PLATFORM,))


def test_metadata_holds_the_reference_only():
    """A machine learns the name of the secret, and nothing where there is none."""
    spec = a_job_spec(secrets={"K": "secret://k/versions/2"})
    assert job_secrets(spec) == {"K": SecretRef("k", "2")}
    assert 'TPUCTL_SECRETS=\'{"K": "secret://k/versions/2"}\'' in machine_scripts(spec, a_target()).job_env
    assert "SECRETS" not in machine_scripts(a_job_spec(), a_target()).job_env


@pytest.mark.gcloud
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_the_stock_gcloud_stores_and_reads(lab, tmp_path):
    """create, versions add, versions access; the checksums that it insists on fit."""
    with serve(lab.router, lambda request: dispatch(lab.router, lab.cloud, request)) as url:

        def gcloud(*words, value=b""):
            settings = {
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": url + "/", "CLOUDSDK_CORE_PROJECT": PROJECT,
                "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
                "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            }  # fmt: skip
            done = subprocess.run(
                ["gcloud", "secrets", *words], input=value, env={**os.environ, **settings},
                capture_output=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        gcloud("create", "wandb", "--data-file=-", value=b"one")
        gcloud("versions", "add", "wandb", "--data-file=-", value=b"two")
        assert gcloud("versions", "access", "latest", "--secret=wandb") == b"two"
    assert manager(lab).read(SecretRef("wandb", "1")) == "one"
