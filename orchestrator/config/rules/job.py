"""Define the rules for the job, its checkpoints and its watch."""

import re
from collections.abc import Iterator
from math import isfinite

from orchestrator.config.rules.progress_patterns import pattern_error
from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.contract.image_names import IMAGE
from orchestrator.contract.preemption_notice import NOTICE
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.source.exposed_services import SAFE, exposures, job_texts
from orchestrator.domain.spec import ProgressSpec, Spec
from orchestrator.domain.text.suggest import join
from orchestrator.pricing.cost import hourly

HF_WAIT = 3
VARIABLE_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"

_IN_BUCKET = ("auto", "orbax", "tf", "keras", "marker", "dcp", "levanter", "files", "outputs")
TOO_MUCH = ("", "~", "/root", "/home", "/opt", "/opt/tpuctl", "/usr", "/usr/local", "/etc", "/var", "/tmp")  # noqa: S108
DOCKERS = ("DOCKER_", "BUILDKIT_")
RESERVED = ("TPU_NAME", "ZONE", "WORKER_ID", "PJRT_DEVICE", "TPU_IP_ADDRESS", "XRT_TPU_CONFIG")


def _command(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if not spec.job.command.strip():
        yield SettingFinding(
            "job.command", "is empty", "write the training command, for example python3 train.py"
        )


def _run_on(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.vm == "none" and spec.job.run_on == "vm":
        hint = "write run_on: tpu, or describe the vm"
        yield SettingFinding("job.run_on", "the job runs on the VM, but vm is none", hint)


def _env(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for name, value in spec.job.env.items():
        path = at("job.env", name)
        # The name goes unquoted into a shell script, so only these characters are allowed.
        if not re.fullmatch(VARIABLE_PATTERN, name):
            yield SettingFinding(
                path, "is not a name for an environment variable", "use letters, digits and '_'"
            )
        elif name.startswith("TPUCTL_") or name in RESERVED:
            yield SettingFinding(path, "is set by tpuctl itself", "choose another name")
        elif "\0" in value:
            yield SettingFinding(
                path, "contains a zero byte, which environment variables cannot hold", "remove it"
            )


def _python(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.job.python and not re.fullmatch(r"3\.\d{1,2}(\.\d{1,2})?", spec.job.python):
        yield SettingFinding(
            "job.python", f'"{spec.job.python[:20]}" is not a version of Python', 'write "3.12", in quotes'
        )


def _image(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    image = spec.job.image
    found = IMAGE.fullmatch(image)
    if not image:
        return
    if found is None:
        hint = "for example europe-docker.pkg.dev/PROJECT/REPOSITORY/train:1"
        yield SettingFinding("job.image", f'"{image[:80]}" is not the name of a container image', hint)
    elif not found["tag"] and not found["digest"]:
        text = "names neither a tag nor a digest: what is `latest` at the first pull of each push runs"
        yield SettingFinding(
            "job.image", text, f"write {image[:80]}:TAG, or @sha256:DIGEST", level=Level.WARN
        )
    if spec.job.run_on == "vm":
        yield SettingFinding(
            "job.image", "is for TPUs, and the image of the VM has no docker", "write run_on: tpu"
        )
    if spec.job.python:
        yield SettingFinding(
            "job.python", "is set, and the image has its own Python", "leave job.python or job.image out"
        )
    for name in (*spec.job.env, *spec.job.secrets):
        if name.startswith(DOCKERS):
            yield SettingFinding(at("job.env", name), "would be read by docker itself", "choose another name")


def _caches(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for text in spec.job.caches:
        if not re.fullmatch(r"(/|~/|\$[A-Za-z_]|\$\{)[^\0\n]*", text) or ".." in text.split("/"):
            hint = "write an absolute path, ~/.cache/huggingface, or $HF_HOME with HF_HOME in job.env"
            yield SettingFinding("job.caches", f'"{text[:60]}" is not a folder of the machine', hint)
        elif text.rstrip("/") in TOO_MUCH:
            yield SettingFinding("job.caches", f'"{text}" holds more than a cache', "name a folder in it")
    if spec.job.caches and spec.job.run_on == "vm":
        hint = "leave job.caches out: the disk of the VM stays"
        yield SettingFinding("job.caches", "is for TPUs, and the job runs on the VM", hint)


def _data(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    """Refuse paths that leave the source folder or contain each other, and sources that are not valid."""
    names = list(spec.job.data)
    for name, source in spec.job.data.items():
        path = at("job.data", name)
        parts = name.split("/")
        if not name.isprintable() or name.startswith("~") or {"", ".", ".."} & set(parts):
            yield SettingFinding(
                path, "is not a path below the source folder", "for example data, or data/wiki"
            )
        inside = [one for one in names if one != name and name.startswith(f"{one}/")]
        if inside:
            yield SettingFinding(
                path, f"is inside {inside[0]}, which is also data", "choose separate folders"
            )
        if not source or not source.isprintable():
            yield SettingFinding(
                path, "names no source", "write a folder or file of this computer, or gs://BUCKET/FOLDER"
            )
        elif "://" in source and not re.fullmatch(r"gs://[a-z0-9][a-z0-9._-]{1,221}(/[^*?#\[\]]*)?", source):
            hint = "write gs://BUCKET/FOLDER, without * and ?"
            yield SettingFinding(path, f'"{source[:60]}" is not a folder of a bucket', hint)


def _open(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for path, text, about in job_texts(spec):
        yield from (SettingFinding(path, message, SAFE) for message in exposures(text, about=about))


_LOCAL_DIR = "write dir: local, or an absolute path"


def _format(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    saving = spec.job.checkpoint
    if saving.format in _IN_BUCKET and saving.dir == "bucket":
        return
    if saving.format in _IN_BUCKET and "://" in saving.dir:
        message = (
            f'"{saving.dir[:60]}": a deployment has one bucket, '
            "with the checkpoints in its folder checkpoints/"
        )
        name = saving.dir.partition("://")[2].partition("/")[0]
        own = f"; to use your own bucket also bucket: {{name: {name[:63]}, adopt: true}}"
        hint = 'write dir: bucket, and save to "$TPUCTL_CHECKPOINT_DIR", which is gs://BUCKET/checkpoints'
        yield SettingFinding(
            "job.checkpoint.dir", message, hint + ("" if name.startswith("$") or not name else own)
        )
    elif saving.dir == "bucket" or "://" in saving.dir:
        message = (
            f"the agent verifies and uploads {saving.format} checkpoints, "
            "so the job must write them to a local folder"
        )
        yield SettingFinding("job.checkpoint.dir", message, _LOCAL_DIR)


def _folder(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    # Separate from the format, so that a relative path is reported beside a wrong format.
    folder = spec.job.checkpoint.dir
    if folder not in {"local", "bucket"} and "://" not in folder and not folder.startswith("/"):
        yield SettingFinding("job.checkpoint.dir", f'"{folder[:60]}" is a relative path', _LOCAL_DIR)


def _marker(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    marker = spec.job.checkpoint.marker
    if not marker or "/" in marker or "\0" in marker or marker in (".", ".."):
        hint = "for example COMPLETE"
        yield SettingFinding("job.checkpoint.marker", f'"{marker[:60]}" is not a plain file name', hint)


def _progress(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    asked = spec.job.progress
    if not isinstance(asked, ProgressSpec):
        return
    given = {key: text for key in ("step", "loss", "rate") if (text := getattr(asked, key))}
    if not given:
        yield SettingFinding("job.progress", "holds no pattern", "write step: or loss:, or leave it out")
    for key, text in given.items():
        message, hint = pattern_error(key, text)
        if message:
            yield SettingFinding(at("job.progress", key), message, hint)


def _target(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.job.target_steps is not None and spec.job.target_steps < 1:
        yield SettingFinding(
            "job.target_steps",
            f"must be at least 1, got {spec.job.target_steps}",
            "write 1 or more, or leave it out",
        )


def _no_target(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if (spec.job.target_steps or 0) > 0 and spec.job.checkpoint.format == "outputs":
        yield SettingFinding("job.target_steps", "a job of format outputs has no steps", "leave it out")


def _grace(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    grace = spec.job.grace
    # A warning, not a refusal: a stop without a preemption has all the time it needs.
    if grace is not None and grace > NOTICE:
        text = f"{grace} is longer than the {NOTICE:g}s of a preemption notice"
        yield SettingFinding(
            "job.grace", text, "the last save must fit into the preemption notice", level=Level.WARN
        )
    elif grace is not None and spec.job.checkpoint.format == "hf" and grace <= HF_WAIT:
        text = f"{grace} ends before the Trainer's last save: it waits {HF_WAIT}s after the signal"
        yield SettingFinding("job.grace", text, f"use {HF_WAIT}s and the time of a save", level=Level.WARN)


def _poll(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.watch.poll < 1:
        yield SettingFinding("watch.poll", f"{spec.watch.poll} polls the cloud too often", "use at least 1s")


def _listen(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.watch.listen < 1:
        yield SettingFinding(
            "watch.listen", f"{spec.watch.listen} polls the bucket too often", "use at least 1s"
        )


def _ttl(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.watch.ttl <= spec.watch.poll:
        yield SettingFinding(
            "watch.ttl", f"{spec.watch.ttl} ends before the second pass", "use more than watch.poll"
        )


def _sum(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    budget = spec.watch.budget_usd
    if budget is not None and not (isfinite(budget) and budget > 0):
        yield SettingFinding(
            "watch.budget_usd", f"{budget:g} USD is not a budget", "use a sum above 0, or leave it out"
        )


def _budget(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    """Refuse a budget that cannot be kept; an unknown price of cents a day is only a warning."""
    for zone in spec.tpu.zones if spec.watch.budget_usd is not None else ():
        if spec.tpu.type not in catalog.types_in(zone):
            continue
        lines = [line for line in hourly(spec, catalog, zone).lines if line.billed_usd is None]
        # An unknown price never counts as zero: such a budget could not be kept.
        unknown = [line.what for line in lines if not line.minor]
        hint = "choose types with a known price, or remove the budget and rely on watch.ttl"
        if unknown:
            text = f"cannot be kept in {zone}: no known price for {join(unknown, 'and')}"
            yield SettingFinding("watch.budget_usd", text, hint)
        elif lines:
            text = f"does not count {join((line.what for line in lines), 'and')} in {zone}: no known price"
            yield SettingFinding("watch.budget_usd", text, "these are cents a day", level=Level.WARN)


RULES = (
    SettingRule(("job.command",), _command),
    SettingRule(("vm", "job.run_on"), _run_on),
    SettingRule(("job.env",), _env),
    SettingRule(("job.python",), _python),
    SettingRule(("job.image", "job.run_on", "job.python", "job.env", "job.secrets"), _image),
    SettingRule(("job.caches", "job.run_on"), _caches),
    SettingRule(("job.data",), _data),
    SettingRule(("job.command", "job.setup", "job.env"), _open),
    SettingRule(("job.checkpoint.format", "job.checkpoint.dir"), _format),
    SettingRule(("job.checkpoint.dir",), _folder),
    SettingRule(("job.checkpoint.marker",), _marker),
    SettingRule(("job.progress",), _progress),
    SettingRule(("job.target_steps",), _target),
    SettingRule(("job.target_steps", "job.checkpoint.format"), _no_target),
    SettingRule(("job.grace", "job.checkpoint.format"), _grace),
    SettingRule(("watch.poll",), _poll),
    SettingRule(("watch.listen",), _listen),
    SettingRule(("watch.ttl", "watch.poll"), _ttl),
    SettingRule(("watch.budget_usd",), _sum),
    SettingRule(
        ("watch.budget_usd", "tpu.type", "tpu.zones", "tpu.spot", "vm.machine_type", "vm.spot", "vm.zone"),
        _budget,
    ),
)
