"""Finding, reading and layering the deployment file."""

import os
from operator import attrgetter

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import find, load, read
from orchestrator.config.setting_types import settings
from orchestrator.errors import UsageError

VALID = """\
name: demo
project: from-file
tpu:
  type: v5litepod-8
  zones: [europe-west4-b]
  spot: false
job:
  command: python3 train.py
  env: {EPOCHS: "25"}
watch:
  poll: 20s
"""

SEEDED = """\
name: Demo
tpu:
  type: v9-8
  zones: [europe-west4-b, us-west4-a]
  spto: true
vm:
  disk_gb: big
job:
  comand: python3 train.py
  env: {EPOCHS: 25}
  checkpoint: {format: zip}
  failures: 0
watch:
  poll: 15
  poll: 30s
"""


def findings(text, overrides=None, environ=None):
    """Return the findings about a file."""
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), "tpuctl.yaml", overrides, environ or {})
    return caught.value.findings


def places(found):
    """Return line, column and key of each."""
    return [(c.line, c.col, c.setting) for c in found]


def test_eleven_seeded_mistakes_give_eleven_findings_with_their_places():
    """Wrong words, wrong types, unknown keys, broken rules and a repeated key are reported in one run."""
    assert places(findings(SEEDED)) == [
        (1, 7, "name"),
        (3, 9, "tpu.type"),
        (4, 27, "tpu.zones[1]"),
        (5, 3, "tpu.spto"),
        (7, 12, "vm.disk_gb"),
        (9, 3, "job.comand"),
        (10, 17, "job.env.EPOCHS"),
        (11, 24, "job.checkpoint.format"),
        (12, 13, "job.failures"),
        (14, 9, "watch.poll"),
        (15, 3, "watch.poll"),
    ]


def test_a_finding_reads_place_key_message_hint():
    """The line can be clicked in an editor and says how to fix it."""
    text = SEEDED.replace("us-west4-a", "europe-west4-a").replace("25}", '"25"}')
    lines = [str(c) for c in findings(text)]
    assert lines[1] == 'tpuctl.yaml:3:9: tpu.type: unknown type "v9-8"; did you mean v2-8, v3-8 or v4-8?'
    assert lines[2] == "tpuctl.yaml:5:3: tpu.spto: unknown key; did you mean spot?"


@pytest.mark.parametrize(
    ("removed", "place"),
    [
        ("name: demo\n", (1, 1, "name")),
        ("  type: v5litepod-8\n", (3, 1, "tpu.type")),
        ("  command: python3 train.py\n", (7, 1, "job.command")),
    ],
)
def test_a_missing_key_points_at_its_section(removed, place):
    """What is not there has the place of the section that lacks it; the file's start for the top."""
    assert places(findings(VALID.replace(removed, ""))) == [place]


def test_a_key_in_the_wrong_section_is_sent_home():
    """`spot` at the top is at home in two sections."""
    found = findings(VALID + "disk_gb: 50\n")
    assert str(found[0]).endswith("disk_gb: unknown key; it belongs at vm.disk_gb")


def test_the_error_is_a_usage_error_that_changed_nothing():
    """Exit code 2, all findings for programs too."""
    with pytest.raises(ConfigError) as caught:
        read(SEEDED.encode(), "tpuctl.yaml", environ={})
    body = caught.value.as_dict()
    assert (body["exit_code"], body["code"], body["changed"]) == (2, "TPU-110", "nothing was changed")
    assert len(body["findings"]) == len(caught.value.findings) == 11
    assert body["findings"][0] | {"file": "tpuctl.yaml", "setting": "name"} == body["findings"][0]


def test_a_section_with_everything_commented_out_has_its_defaults():
    """Commenting out the last key of a section is not a mistake."""
    text = VALID.replace("  poll: 20s\n", "") + "bucket:\n"
    assert read(text.encode(), "x", environ={}) == read(VALID.encode(), "x", {"watch.poll": "15s"}, {})


def test_vm_must_say_whether_there_is_one():
    """An empty vm could mean both."""
    (found,) = findings(VALID + "vm:\n")
    assert found.hint == "write vm: none, or settings below it"


LAYERS = [
    # file, environment, flag, value of tpu.spot
    ("", None, None, True),
    ("spot: false", None, None, False),
    ("spot: false", "true", None, True),
    ("spot: true", "false", "true", True),
    ("", "false", None, False),
    ("", "true", "false", False),
    ("spot: true", None, "false", False),
]


@pytest.mark.parametrize(("file", "variable", "flag", "value"), LAYERS)
def test_flag_beats_variable_beats_file_beats_default(file, variable, flag, value):
    """The nearest source wins."""
    text = VALID.replace("spot: false", file) if file else VALID.replace("  spot: false\n", "")
    environ = {"TPUCTL_TPU__SPOT": variable} if variable else {}
    assert read(text.encode(), "x", {"tpu.spot": flag} if flag else {}, environ).tpu.spot is value


VALUES = {
    "name": ("other", "other"),
    "project": ("p-2", "p-2"),
    "service_account": ("a@b", "a@b"),
    "tpu.type": ("v5litepod-4", "v5litepod-4"),
    "tpu.zones": ("europe-west4-a,europe-west4-b", ("europe-west4-a", "europe-west4-b")),
    "tpu.runtime": ("v2-alpha-tpuv5", "v2-alpha-tpuv5"),
    "tpu.other_types": ("v5litepod-4", ("v5litepod-4",)),
    "tpu.scope": ("cloud-platform", "cloud-platform"),
    "tpu.strategy": ("race", "race"),
    "tpu.across_regions": ("true", True),
    "tpu.request": ("queued", "queued"),
    "tpu.reservation": ("mine", "mine"),
    "tpu.disks": ("text,scratch:read-write", ("text", "scratch:read-write")),
    "tpu.max_run_duration": ("8h", 28800.0),
    "tpu.wait": ("1h", 3600.0),
    "tpu.spot": ("true", True),
    "tpu.external_ip": ("false", False),
    "notify.webhooks": ("env://A,secret://b", ("env://A", "secret://b")),
    "notify.apprise": ("env://A", ("env://A",)),
    "notify.kinds": ("up,done", ("up", "done")),
    "vm.name": ("their-vm", "their-vm"),
    "vm.machine_type": ("e2-medium", "e2-medium"),
    "vm.disk_gb": ("20", 20),
    "vm.spot": ("true", True),
    "vm.zone": ("europe-west4-c", "europe-west4-c"),
    "vm.external_ip": ("false", False),
    "vm.service_account": ("a@b.c", "a@b.c"),
    "impersonate": ("a@b", "a@b"),
    "network": ("lab", "lab"),
    "subnetwork": ("west", "west"),
    "tags": ("a,b", ("a", "b")),
    "secure_boot": ("true", True),
    "os_login": ("true", True),
    "vm.image": ("projects/p/global/images/family/f", "projects/p/global/images/family/f"),
    "bucket.soft_delete": ("7d", 604800.0),
    "bucket.name": ("mine", "mine"),
    "bucket.adopt": ("true", True),
    "bucket.location": ("europe-west4", "europe-west4"),
    "bucket.prefix": ("runs/a", "runs/a"),
    "job.command": ("echo 1", "echo 1"),
    "job.source": ("src", "src"),
    "job.setup": ("true", "true"),
    "job.warm_start": ("false", False),
    "job.caches": ("~/.cache/a,/data/b", ("~/.cache/a", "/data/b")),
    "job.run_on": ("vm", "vm"),
    "job.target_steps": ("9", 9),
    "job.failures": ("2", 2),
    "job.grace": ("5s", 5.0),
    "job.stop_signal": ("USR1", "USR1"),
    "job.checkpoint.format": ("marker", "marker"),
    "job.checkpoint.dir": ("/x", "/x"),
    "job.checkpoint.keep": ("4", 4),
    "job.checkpoint.marker": ("DONE", "DONE"),
    "job.checkpoint.every": ("9m", 540.0),
    "job.checkpoint.save_pause": ("2.5", 2.5),
    "job.progress.step": (r"iter (\d+):", r"iter (\d+):"),
    "job.progress.loss": ("loss ([0-9.]+)", "loss ([0-9.]+)"),
    "job.progress.rate": ("([0-9.]+) it/s", "([0-9.]+) it/s"),
    "job.memory.params_millions": ("125", 125.0),
    "job.memory.optimizer": ("sgd", "sgd"),
    "job.memory.dtype": ("bf16", "bf16"),
    "job.memory.shards": ("8", 8),
    "job.memory.activations_gb": ("1.5", 1.5),
    "job.memory.text_gb": ("20", 20.0),
    "watch.poll": ("2s", 2.0),
    "watch.listen": ("2s", 2.0),
    "watch.stall": ("2m", 120.0),
    "watch.budget_usd": ("4.5", 4.5),
    "watch.deadline": ("36h", "36h"),
    "watch.last_resort": ("flex-start", "flex-start"),
    "watch.ttl": ("2d", 172800.0),
    "watch.self_delete": ("true", True),
    "job.image": ("europe-docker.pkg.dev/p/r/train:1", "europe-docker.pkg.dev/p/r/train:1"),
    "job.python": ("3.12", "3.12"),
    "watch.on_vm": ("true", True),
    "sidecars.tensorboard.on": ("tpu", "tpu"),
    "sidecars.tensorboard.logdir": ("gs://mine/runs", "gs://mine/runs"),
    "sidecars.tensorboard.port": ("7000", 7000),
    "sidecars.jupyter.on": ("tpu", "tpu"),
    "sidecars.jupyter.port": ("7001", 7001),
}

NEEDS = {
    "bucket.prefix": {"bucket.adopt": "true", "bucket.name": "theirs"},
    "watch.deadline": {"job.target_steps": "9"},
    "watch.last_resort": {"job.target_steps": "9", "watch.deadline": "36h", "tpu.spot": "true"},
    "tpu.max_run_duration": {"tpu.request": "flex-start", "tpu.spot": "false"},
    "tpu.reservation": {"tpu.request": "queued", "tpu.spot": "false"},
}
"""Settings that are given together with others only."""


def test_the_table_of_values_covers_every_setting():
    """A new setting has to join the test of precedence."""
    # `fleet` makes another kind of file, which has no job.
    known = {s.dotted_name for s in settings().values() if not s.section and not s.mapped}
    assert set(VALUES) == {key for key in known if not key.startswith("fleet.")}


@pytest.mark.parametrize("key", VALUES)
def test_every_setting_can_be_given_by_flag_and_by_variable(key):
    """TPUCTL_ and two underscores for each dot name the same setting as --set."""
    text, value = VALUES[key]
    # An adopted bucket has to be named; the name is out of the way of all other rows.
    base = VALID if key == "bucket.name" else VALID + "bucket: {name: given}\n"
    variable = "TPUCTL_" + key.upper().replace(".", "__")
    needs = NEEDS.get(key, {})
    flagged = read(base.encode(), "x", {key: text, **needs}, {})
    for spec in (flagged, read(base.encode(), "x", needs, {variable: text})):
        assert attrgetter(key)(spec) == value


def test_environment_variables_of_the_job_can_be_given_one_by_one():
    """Their names keep their case."""
    spec = read(VALID.encode(), "x", {"job.env.lr": "0.1"}, {"TPUCTL_JOB__ENV__XLA__FLAG": "1"})
    assert spec.job.env == {"EPOCHS": "25", "lr": "0.1", "XLA__FLAG": "1"}


def test_progress_is_a_preset_or_patterns():
    """A flag can set either, and for a mistyped preset the error names the nearest one."""
    assert read(VALID.encode(), "x", {"job.progress": "keras"}, {}).job.progress == "keras"
    assert read(VALID.encode(), "x", {}, {}).job.progress == "auto"
    found = findings(VALID.replace("watch:", "  progress: trainr\nwatch:"))
    assert found[0].hint == "did you mean trainer?"


def test_a_flag_can_take_the_vm_away_and_back():
    """`vm: none` and a setting of the vm replace each other."""
    assert read(VALID.encode(), "x", {"vm": "none"}, {}).vm == "none"
    assert read((VALID + "vm: none\n").encode(), "x", {"vm.disk_gb": "20"}, {}).vm.disk_gb == 20


def test_an_empty_flag_takes_an_optional_value_away():
    """`--set tpu.runtime=` means the default."""
    text = VALID + "service_account: a@b\n"
    assert read(text.encode(), "x", {"service_account": ""}, {}).service_account is None


def test_a_wrong_flag_or_variable_is_blamed_by_its_name():
    """Nobody should look into the file for it."""
    found = findings(VALID, {"tpu.spot": "maybe", "tpu.zone": "x", "watch": "1"}, {"TPUCTL_TPU__TIPE": "x"})
    assert [str(c).split(":")[0] for c in found] == [
        "TPUCTL_TPU__TIPE",
        "--set tpu.zone",
        "--set watch",
        "--set tpu.spot",
    ]
    assert "did you mean tpu.zones?" in str(found[1])


def test_variables_of_other_parts_are_not_read_as_settings():
    """On a machine TPUCTL_ROOT, TPUCTL_BUCKET and TPUCTL_JOB are set; they are no settings."""
    environ = {"TPUCTL_ROOT": "/x", "TPUCTL_BUCKET": "b", "TPUCTL_JOB": "a/1/1", "TPUCTL_CLOUD": "local"}
    assert read(VALID.encode(), "x", {}, environ) == read(VALID.encode(), "x", {}, {})


def test_the_project_falls_back_to_the_environment():
    """GOOGLE_CLOUD_PROJECT is the last resort, after the file."""
    environ = {"GOOGLE_CLOUD_PROJECT": "from-environment"}
    assert read(VALID.encode(), "x", {}, environ).project == "from-file"
    assert (
        read(VALID.replace("project: from-file\n", "").encode(), "x", {}, environ).project
        == "from-environment"
    )


def test_the_file_is_found_in_a_folder_above(tmp_path):
    """Commands work from inside the source tree."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "tpuctl.yaml").write_text(VALID)
    assert find(below) == tmp_path / "tpuctl.yaml"


def test_no_file_anywhere_names_the_command_that_writes_one(tmp_path):
    """The next step is `tpuctl init`."""
    with pytest.raises(UsageError, match=r"no tpuctl\.yaml") as caught:
        find(tmp_path)
    assert "tpuctl init" in caught.value.hint


def test_a_file_in_the_working_folder_is_named_shortly(tmp_path, monkeypatch):
    """Places start with the name that the user typed."""
    (tmp_path / "tpuctl.yaml").write_text("nam: x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "tpuctl.yaml", environ={})
    assert caught.value.findings[0].file == "tpuctl.yaml"


def test_an_unreadable_file_is_one_clear_error(tmp_path):
    """A folder or a file that is not there gives no traceback."""
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(UsageError, match="cannot read"):
            load(path)


def test_a_record_gives_back_the_same_spec():
    """`dump` and `restore` lose nothing."""
    from orchestrator.config.adapter import dump, restore

    spec = read(VALID.encode(), "x", environ={})
    assert restore(dump(spec)) == spec


def test_nothing_heavy_is_imported_before_a_file_is_read():
    """`tpuctl --help` must stay quick."""
    import subprocess
    import sys

    code = (
        "import sys, orchestrator.config.load, orchestrator.config.starter, orchestrator.cli.main;"
        "print({'pydantic', 'ruamel.yaml', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("10m", 600.0)])
def test_a_time_or_auto_is_a_value_of_the_save_interval(text, value):
    """Both from the file and from a flag."""
    saving = {"job.checkpoint.every": text}
    assert read(VALID.encode(), "x", saving, {}).job.checkpoint.every == value


@pytest.mark.parametrize("wrong", ["never", "10", "[]"])
def test_any_other_save_interval_is_refused_at_its_own_place(wrong):
    """One finding, for the setting as a whole."""
    text = VALID.replace("job:", f"job:\n  checkpoint: {{every: {wrong}}}", 1)
    assert [c.setting for c in findings(text)] == ["job.checkpoint.every"]


def refused(start):
    """Return the error for a deployment file that is not to be trusted."""
    with pytest.raises(UsageError) as caught:
        find(start)
    assert caught.value.code == "TPU-143"
    assert "--file" in caught.value.hint
    return caught.value.message


def test_a_file_that_others_may_replace_is_refused(tmp_path):
    """Its hooks would run as whoever stands in the folder below; naming it is consent."""
    shared = tmp_path / "shared"
    below = shared / "mine"
    below.mkdir(parents=True)
    file = shared / "tpuctl.yaml"
    file.write_text(VALID)
    assert find(below) == file
    shared.chmod(0o777)
    assert "every user of this computer may write" in refused(below)
    assert load(file, {}, {}).name == "demo"
    shared.chmod(0o1777)
    assert find(below) == file
    file.chmod(0o666)
    assert "every user of this computer may write" in refused(below)
    file.chmod(0o644)
    shared.chmod(0o775)
    assert find(below) == file


@pytest.fixture
def theirs_and_mine(tmp_path):
    """Give a folder with a file, and another one with a link to it."""
    for folder in (theirs := tmp_path / "theirs", mine := tmp_path / "mine"):
        folder.mkdir()
    (theirs / "tpuctl.yaml").write_text(VALID)
    (mine / "tpuctl.yaml").symlink_to(theirs / "tpuctl.yaml")
    return theirs, mine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_of_another_user_is_refused(theirs_and_mine, monkeypatch):
    """Also by a link, and for root; who became root by sudo has his own files."""
    theirs, mine = theirs_and_mine
    os.chown(theirs / "tpuctl.yaml", 4321, 4321)
    for place in (theirs, mine):
        assert "belongs to another user (uid 4321)" in refused(place)
    monkeypatch.setenv("SUDO_UID", "4321")
    assert find(mine) == mine / "tpuctl.yaml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_file_of_ones_own_in_a_folder_of_another_user_is_refused(theirs_and_mine, monkeypatch):
    """Its owner may replace it between the look and the use; with or without the sticky bit."""
    theirs, mine = theirs_and_mine
    assert find(mine) == mine / "tpuctl.yaml"
    os.chown(theirs, 4321, 4321)
    for place in (theirs, mine):
        assert "theirs belongs to another user (uid 4321), who may replace it" in refused(place)
    theirs.chmod(0o1777)
    assert "may replace it" in refused(theirs)
    monkeypatch.setenv("SUDO_UID", "4321")
    assert find(mine) == mine / "tpuctl.yaml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_folder_of_ones_own_below_one_that_is_not_is_looked_at_too(tmp_path):
    """Who made the folder above in a folder for all may put another in its place."""
    for_all, mine = tmp_path / "for-all", tmp_path / "for-all" / "planted" / "mine"
    mine.mkdir(parents=True)
    (mine / "tpuctl.yaml").write_text(VALID)
    for_all.chmod(0o1777)
    assert find(mine)
    os.chown(mine.parent, 4321, 4321)
    assert "planted belongs to another user" in refused(mine)
