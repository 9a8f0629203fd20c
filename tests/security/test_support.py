"""The archive for a bug report: what is in it, and what is not."""

import json
import os
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from unittest.mock import patch

import pytest

from orchestrator.app import support
from orchestrator.app.this_computer.state_folders import bug_prefix
from orchestrator.domain.events import Event
from orchestrator.domain.ports import StoredObject
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User
from tests.security.secret_kit import canaries, spellings

ALL = {
    "about.json", "doctor.json", "settings.json", "record.json", "journal.json", "status.json",
    "explain.json", "events.json", "job.log", "bug-1.txt", "not-read.json",
}  # fmt: skip
SHAPED = "hf_" + "abcDEF0123456789" * 2


class CarelessUser(User):
    """A computer whose user has secrets in variables of the environment."""

    variables = MappingProxyType({})

    def _environment(self):
        return {**super()._environment(), **self.variables}


@pytest.fixture
def cloud(tmp_path):
    """Give a cloud on a virtual clock, and computers at which commands are typed."""
    with VirtualCloud(tmp_path).open() as made:
        yield made


ADDRESS = "https://hooks.example/T0/canary-of-the-address"
VARIABLE = "https://hooks.example/T0/canary-of-the-variable"
CANARIES = [
    value.replace("'", "") for value in canaries().values() if "\n" not in value and "\t" not in value
]
KNOWN = [*CANARIES[:14], ADDRESS, VARIABLE]


@pytest.fixture
def user(cloud):
    """Give a computer with a deployment whose file and variables hold secrets."""
    env = {f"PLAIN_{number}": value for number, value in enumerate(CANARIES[:12])}
    user = CarelessUser(
        cloud, job__env=env, job__target_steps=400,
        job__command=f"WANDB_API_KEY='{CANARIES[12]}' python3 train.py",
    )  # fmt: skip
    user.variables = {"HOOK": VARIABLE, "MY_TOKEN": CANARIES[13]}
    user.up()
    user.edit(
        job__env=env,
        job__command=user.file["job"]["command"],
        notify={"webhooks": [ADDRESS, "env://HOOK"]},
    )
    return user


def spill(cloud, user, text):
    """Put *text* where a careless program may have written it."""
    bucket = cloud.buckets()[0]
    now = cloud.clock.now()
    event = Event(now, "failure", f"failed with {text}", {"why": text})
    for name, data in {
        "logs/g1/w0/000001.log": f"step 1\n{text}\n".encode(),
        f".tpuctl/events/{now * 1000:.0f}-99-failure.json": event.to_json(),
    }.items():
        cloud.storage.objects.insert(bucket, name, data, {}, Preconditions())
    (journal,) = user.state.glob("*/*/demo/journal.jsonl")
    with journal.open("a") as file:
        file.write(json.dumps({"id": "1", "part": "result", "outcome": text}) + "\n" + text + "\n")
    with patch.dict(os.environ, {"TPUCTL_STATE_DIR": str(user.state)}):
        report = cloud.folder / f"{bug_prefix()}x.txt"
    report.write_text(f"ValueError: {text}\n")


def contents(path):
    """Return the files of an archive by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def leaves(value):
    """Yield every text in JSON's values."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, str):
        yield value


def test_no_secret_is_in_the_archive(cloud, user, tmp_path):
    """Variables, addresses and tokens, in every spelling, wherever they were spilt; the rest is there."""
    forms = sorted({form.decode() for value in KNOWN for form in spellings(value)})
    spill(cloud, user, "\n".join([*forms, f"token {SHAPED}"]))
    before = cloud.mutations()
    said = user.run("support", "--yes", "--json", "-o", str(tmp_path / "s.zip"))
    assert (said.code, cloud.mutations()) == (0, before), said.err
    files = {name: data.decode() for name, data in contents(tmp_path / "s.zip").items()}
    assert set(files) == ALL
    inside = [
        text for name, data in files.items() if name.endswith(".json") for text in leaves(json.loads(data))
    ]
    shown = "\n".join([said.out, said.err, *files.values(), *inside])
    assert [form for form in (*forms, SHAPED) if form in shown] == []
    assert "[masked: job.env.PLAIN_7]" in files["job.log"]
    for name in ("events.json", "journal.json", "bug-1.txt"):
        assert "[masked: " in files[name], name
    assert json.loads(files["not-read.json"]) == {}


def test_the_logs_of_made_up_workers_are_held_up_to_a_bound(monkeypatch):
    """Fewer lines of each then, and none is cut: half a secret would not be known for one."""
    monkeypatch.setattr(support, "ALL_LINES", 100_000)
    logs = {
        f"logs/g1/w{worker}/000001.log": b"".join(b"%d %s\n" % (n, b"x" * 90) for n in range(100))
        for worker in range(60)
    }
    long = b"y" * (support.MAX_LINE + 1)
    logs["logs/g2/w0/000001.log"] = b"%s\n%s\rlast\r\n" % (long, long)
    store = SimpleNamespace(
        list=lambda _prefix: [StoredObject(name, len(data), 1, 1.0) for name, data in logs.items()],
        read=lambda name, start, _most: StoredObject(name, 0, 1, 1.0, logs[name][start:]),
    )
    lines = support._logs(SimpleNamespace(store=store)).splitlines()
    assert sum(map(len, lines)) <= 100_000
    assert {line.split()[0] for line in lines} == {f"w{worker}" for worker in range(60)}
    assert {line.split()[2] for line in lines if line.startswith("w59 ")} >= {"98", "99"}
    assert [line for line in lines if "g2" in line] == [
        f"w0 g2 [a line of {len(long):,} characters is left out]", "w0 g2 last"
    ]  # fmt: skip


def test_what_a_maintainer_needs_is_there(cloud, user, tmp_path):
    """And it was listed, file by file, before it was written; nobody else can read it."""
    spill(cloud, user, "plain words")
    said = user.run("support", "--yes", "-o", str(tmp_path / "s.zip"))
    assert (said.code, said.out) == (0, "")
    files = contents(tmp_path / "s.zip")
    bodies = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    assert bodies["about.json"]["packages"]["click"][0].isdigit()
    assert "MY_TOKEN" not in files["about.json"].decode()
    assert bodies["settings.json"]["job"]["env"]["PLAIN_1"].startswith("left out, ")
    assert bodies["settings.json"]["tpu"]["type"] == "v5litepod-8"
    assert len(bodies["doctor.json"]) >= 20
    assert bodies["record.json"]["history"]["incarnation"] == 1
    assert [r["name"] for r in bodies["status.json"]["resources"]][-1] == "demo-tpu-g1"
    assert bodies["explain.json"]["items"]
    assert bodies["journal.json"][-1] == "plain words"
    assert bodies["events.json"][-1]["text"] == "failed with plain words"
    assert files["job.log"] == b"w0 g1 step 1\nw0 g1 plain words\n"
    for name in ALL - {"not-read.json"}:
        assert name in said.err
    assert said.err.index("job.log") < said.err.index("nothing was sent")
    assert (tmp_path / "s.zip").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_before_the_user_has_agreed(cloud, user, tmp_path):
    """Without a terminal the flag is asked for; a no leaves no file."""
    said = user.run("support", "-o", str(tmp_path / "s.zip"))
    assert (said.code, "TPU-102" in said.err) == (2, True)
    with patch("sys.stdin.isatty", return_value=True), patch("click.confirm", return_value=False):
        said = user.run("support", "-o", str(tmp_path / "s.zip"))
    assert (said.code, "job.log" in said.err) == (1, True)
    assert not list(tmp_path.glob("s.zip*"))


@pytest.mark.parametrize("trouble", ["offline", "file", "record", "bug"])
def test_what_cannot_be_read_is_named_and_the_rest_is_there(trouble, cloud, user, tmp_path):
    """A network that is down, a file with an error, a torn record, a bug of ours in the middle."""
    spill(cloud, user, "plain words")
    if trouble == "offline":
        user.offline = True
    elif trouble == "file":
        Path(user.folder / "tpuctl.yaml").write_text("name: [")
    elif trouble == "record":
        (user.state / "gcp/local-project/demo/record.json").write_text("{")
    broken = patch("orchestrator.app.support.explained", side_effect=ZeroDivisionError("a bug"))
    with broken if trouble == "bug" else nullcontext():
        said = user.run("support", "--yes", "-o", str(tmp_path / "s.zip"))
    assert said.code == 0, said.err
    files = contents(tmp_path / "s.zip")
    unread = json.loads(files["not-read.json"])
    wanted = {
        "offline": "events.json",
        "file": "the deployment",
        "record": "record.json",
        "bug": "explain.json",
    }
    assert wanted[trouble] in unread
    assert f"not read: {wanted[trouble]}: " in said.err
    assert {"about.json", "doctor.json", "bug-1.txt"} <= set(files)
    assert not (set(unread) & set(files))
