"""
Hostile text in every variable of every template, paths and archives that lead elsewhere, code that runs text.

TPUCTL_HOSTILE is how many strings go through bash (SEC7).
"""

import ast
import dataclasses
import io
import os
import random
import shutil
import subprocess
import tarfile
from itertools import product
from pathlib import Path

import pytest

import orchestrator
from orchestrator.agent.attempt.install_bundle import unpack
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.bucket.manifest import parse
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.domain.level import Level
from orchestrator.domain.spec import BucketSpec, CheckpointSpec
from orchestrator.planning.job_digest import job_digest
from orchestrator.scripts.render import (
    RAW_NAMES,
    _checkpoint_place,
    _environment,
    _values,
    bash_word,
    loop_script,
    machine_scripts,
    render,
)
from tests.scripts.render_kit import a_job_spec, a_target
from tests.scripts.test_render import NASTY, hostile_strings

COUNT = int(os.environ.get("TPUCTL_HOSTILE", "1000"))
PACKAGE = Path(orchestrator.__file__).parent
TEMPLATES = PACKAGE.parent / "templates"
KEYS = (
    "TPUCTL_COMMAND", "TPUCTL_SETUP", "TPUCTL_DEPLOYMENT", "TPUCTL_PROJECT", "TPUCTL_BUCKET", "TPU_NAME",
    "ZONE", "TPUCTL_CHECKPOINT_MARKER", "TPUCTL_BUNDLE", "TPUCTL_AGENT", "TPUCTL_CHECKPOINT_FORMAT",
    "TPUCTL_SECRETS", "TPUCTL_TENSORBOARD_DIR", "TPU_IP_ADDRESS", "USER_VALUE",
)  # fmt: skip


def hostile(text: str) -> dict[str, object]:
    """Return the variables of job.env with *text* in each that can hold any."""
    spec = a_job_spec(command="c", run_on="vm")
    values = _values(spec, a_target(role="vm", tpu_address="10.0.0.2"))
    names = (
        "command", "setup", "deployment", "project", "bucket", "node", "zone", "marker", "bundle", "agent",
        "format", "secrets", "tensorboard_dir", "tpu_address",
    )  # fmt: skip
    place, path = _checkpoint_place("/" + text, "b")
    return {
        **values,
        **dict.fromkeys(names, text),
        "checkpoint_place": place,
        "checkpoint_path": path,
        "user_env": {"USER_VALUE": text},
    }


def test_a_thousand_hostile_strings_come_through_bash_in_every_variable(tmp_path):
    """Each is sourced as run-job does it, and read back; nothing else has run: no file has come to be."""
    texts = list(dict.fromkeys(hostile_strings(COUNT + COUNT // 20)))[:COUNT]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.env").write_bytes(render("job.env.j2", hostile(text)).encode())
    keys = " ".join(KEYS)
    script = (
        f"for ((n = 0; n < {len(texts)}; n++)); do "
        f"(set -a; . ./$n.env; set +a; for key in {keys} TPUCTL_CHECKPOINT_DIR; do "
        "printf '%s\\0' \"${!key}\"; done); done"
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    read = done.stdout.decode().split("\0")[:-1]
    wanted = []
    for text in texts:
        # An empty reference to secrets is left out: there is nothing to read then.
        wanted += [text] * len(KEYS) + ["/" + text]
    assert read == wanted
    assert len(list(tmp_path.iterdir())) == len(texts) >= COUNT


def test_every_variable_of_every_template_is_one_quoted_word():
    """
    Wherever a value stands, the script differs from one with a plain value in that word alone.

    So what the test above shows for job.env holds in each of the templates. Values in a heredoc that is
    sourced later, as the sidecars' settings, are quoted once, too.
    """
    plain, count = "PLAINVALUE", 0
    for text in NASTY:
        spec = dataclasses.replace(a_job_spec(command=text, setup=text), name=text)
        calm = dataclasses.replace(a_job_spec(command=plain, setup=plain), name=plain)
        words = {"project": text, "bucket": text, "node": text, "zone": text}
        target = a_target(**words)
        for one, other in (
            (
                machine_scripts(spec, target),
                machine_scripts(calm, a_target(**dict.fromkeys(words, plain))),
            ),
        ):
            for field in ("job_env", "shutdown", "run_job", "start_job", "cron"):
                expected = (
                    getattr(other, field)
                    .replace(bash_word(plain), bash_word(text))
                    .replace(job_digest(calm), job_digest(spec))
                    .replace(bash_word(f"gs://{plain}/tensorboard"), bash_word(f"gs://{text}/tensorboard"))
                )
                assert getattr(one, field) == expected
                count += 1
        done = loop_script(
            fleet=0, wheel=text, lock=text, cloud=text, project=text, deployment=text, ssh_port=22
        )
        calm_loop = loop_script(
            fleet=0, wheel=plain, lock=plain, cloud=plain, project=plain, deployment=plain, ssh_port=22
        )
        assert done == calm_loop.replace(bash_word(plain), bash_word(text))
    assert count >= 300


def test_no_template_prints_a_variable_around_the_quoting():
    """`raw` stands on the names of the allow-list only, and no template switches quoting off otherwise."""
    from jinja2 import nodes

    observed = 0
    for path in TEMPLATES.glob("*.j2"):
        tree = _environment().parse(path.read_text())
        for use in tree.find_all(nodes.Filter):
            assert use.name == "raw", f"{path.name}:{use.lineno}: filter {use.name}"
            assert isinstance(use.node, nodes.Name)
            assert use.node.name in RAW_NAMES
        assert not list(tree.find_all((nodes.MarkSafe, nodes.Include, nodes.Import)))
        observed += len(list(tree.find_all(nodes.Output)))
    assert observed >= 30


@pytest.mark.parametrize("text", NASTY[::4])
def test_a_startup_script_with_hostile_text_is_still_one_script(text, tmp_path):
    """`bash -n` reads it to its end."""
    spec = a_job_spec(command=text, setup=text, env={"A": text}, checkpoint=CheckpointSpec(dir="/" + text))
    path = tmp_path / "startup"
    path.write_text(machine_scripts(spec, a_target(bucket=text, zone=text)).startup)
    subprocess.run(["bash", "-n", path], check=True)


# Archives.

PLACES = (
    "../x", "/tmp/leaves", "a/../../x", "..", "a/b/../../../x", "./../x", "a//../..//x", "a/./../../x",
    "../../../../x", "a/..", "/", "//x", "../", "a/../..", "x/../../target-evil/x",
)  # fmt: skip
KINDS = (
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
)
TARGETS = ("../x", "/etc/passwd", "a/../../x", "..", "../../..", "./../../x")


def archive(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """Write a tar.gz of members: name, kind, target of a link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, link in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, link, 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"evil"))
    return path


def cases():
    """Return archives of which each has a member that leads out of its folder, or is no file."""
    for place, kind in product(PLACES, KINDS):
        if not place.strip("/") and kind == tarfile.DIRTYPE:
            continue  # tar reads that name as the folder itself
        yield (place, kind, "inside")
        yield (f"deep/er/{place.lstrip('/')}/../../../../../x", kind, "inside")
    for link, kind, name in product(
        TARGETS, (tarfile.SYMTYPE, tarfile.LNKTYPE), ("l", "a/l", "a/b/l", "./l")
    ):
        deep = name.count("/") - name.startswith("./") if kind == tarfile.SYMTYPE else 0
        yield (name, kind, "../" * deep + link if not link.startswith("/") else link)
    for name, kind in product(
        ("pipe", "a/pipe", "a/b/c"), (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)
    ):
        yield (name, kind, "")
    for size, kind in product(range(1, 40), (tarfile.REGTYPE, tarfile.DIRTYPE)):
        yield ("a/" * size + "../" * (size + 1) + "x", kind, "")


def test_no_archive_writes_outside_of_its_folder(tmp_path):
    """Three hundred of them are refused, and nothing comes to be: neither outside nor inside."""
    every = list(dict.fromkeys(cases()))
    assert len(every) >= 300
    for case in every:
        place = tmp_path / "place"
        shutil.rmtree(place, ignore_errors=True)
        (place / "target").mkdir(parents=True)
        bad = archive(place / "b.tar.gz", ("fine", tarfile.REGTYPE, ""), case)
        with pytest.raises(DamagedError):
            unpack(bad, place / "target")
        assert sorted(p.name for p in place.rglob("*")) == ["b.tar.gz", "target"], case
    assert [p.name for p in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("name", [*PLACES, "a/../b", "a\0b", "", ".", "./a"])
def test_no_manifest_names_a_file_outside_of_its_checkpoint(name):
    """What a manifest names is downloaded to that place, so it is checked before."""
    import json

    body = {
        "schema": 1, "step": 4, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "folder": "step-4",
        "files": [{"name": name, "size": 1, "sha256": "0" * 64}], "at": 1.0,
    }  # fmt: skip
    if name == "./a":
        return
    with pytest.raises(DamagedError):
        parse(json.dumps(body).encode(), "checkpoints/00000004/g1/w0.manifest.json")


INJECTIONS = (
    "../x", "a/b", "a?x=1", "a#b", "a b", "a\nb", "..", ".", "/a", "a/", "%2e%2e", "a%2fb", "é", "A", "-a",
    "a-", "a_b", "a:delete", "a\0", "{a}", "a'b", "$(a)", "a;b", "a&b", "*", "x" * 100, "a\\b", "a@b", "a=b",
    "a,b",
)  # fmt: skip


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_name_can_steer_a_request_elsewhere(text):
    """Names go into URLs and labels: deployment, project, zones, bucket."""
    spec = a_job_spec()
    tpu = dataclasses.replace(spec.tpu, zones=(text,))
    wrong = {
        "name": dataclasses.replace(spec, name=text),
        "project": dataclasses.replace(spec, project=text),
        "tpu.zones[0]": dataclasses.replace(spec, tpu=tpu),
        "bucket.name": dataclasses.replace(spec, bucket=BucketSpec(name=text)),
    }
    # Old projects are named DOMAIN:ID; a long name is refused by the service itself.
    allowed = {"bucket.name": {"a_b"}, "project": {"a:delete", "x" * 100}}
    for key, broken in wrong.items():
        keys = {
            problem.setting for problem in run_rules(broken, load_catalog()) if problem.level is Level.STOP
        }
        assert (key in keys) == (text not in allowed.get(key, set())), f"{key}: {text!r}"


# Code.

FORBIDDEN_CALLS = {
    "eval", "exec", "os.system", "os.popen", "yaml.load", "pickle.load", "pickle.loads", "pickle.Unpickler",
    "subprocess.getoutput", "subprocess.getstatusoutput", "tempfile.mktemp", "marshal.loads",
    "shelve.open", "__import__",
}  # fmt: skip
MAY_UNPICKLE = {
    name: {"pickle.Unpickler"}
    for name in (
        "emulator/state/local_cloud.py",
        "contract/formats/reading/pickled.py",
    )
}


def spoken(node: ast.AST) -> str:
    """Return the dotted name that is called, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = spoken(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def test_nothing_in_the_package_runs_text():
    """By the syntax tree, so that no spelling hides it. The one unpickler reads files that only it writes."""
    files, words = 0, {name.rpartition(".")[2] for name in FORBIDDEN_CALLS} | {"shell"}
    for path in PACKAGE.rglob("*.py"):
        name, text = str(path.relative_to(PACKAGE)), path.read_text()
        files += 1
        if not any(word in text for word in words):
            continue
        for node in ast.walk(ast.parse(text)):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                bad = {spoken(base)} & FORBIDDEN_CALLS - MAY_UNPICKLE.get(name, set())
                assert not bad, f"{name}:{node.lineno}: {bad}"
            if not isinstance(node, ast.Call):
                continue
            bad = {spoken(node.func)} & FORBIDDEN_CALLS - MAY_UNPICKLE.get(name, set())
            assert not bad, f"{name}:{node.lineno}: {bad}"
            shell = [k for k in node.keywords if k.arg == "shell"]
            assert not [
                k for k in shell if not (isinstance(k.value, ast.Constant) and k.value.value is False)
            ], name
    assert files > 400


def test_the_strings_are_as_many_and_as_hostile_as_promised():
    """Quotes, substitutions, newlines, a leading dash, other alphabets; 64 KiB has a test of its own."""
    texts = hostile_strings(COUNT)
    for piece in ("'", '"', "$(", "`", "\n", "\r", "\\", "{{", "é", "🙂", "\x01"):
        assert sum(piece in text for text in texts) >= 20, piece
    assert random.Random(1).choice(texts) is not None
