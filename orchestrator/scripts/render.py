"""
Render templates/ to the scripts that machines run.

Every `{{ value }}` of a template is quoted for the shell. The filter `raw` turns that off and is refused for
all names but RAW_NAMES: scripts rendered here, which quoted heredocs embed, names of variables, which are
checked, and words of bash that scripts/exports makes.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.config.rules.progress_patterns import progress_text
from orchestrator.contract.bucket.object_names import JOBS
from orchestrator.contract.preemption_notice import SHUTDOWN_SCRIPT
from orchestrator.domain.machines.data_disks import DataDisk
from orchestrator.domain.names import prefix_of
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError
from orchestrator.planning.job_digest import job_digest
from orchestrator.planning.sidecars import REQUIREMENTS, log_folder, sidecars
from orchestrator.scripts.shipped import TEMPLATES, shipped

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

RAW_NAMES = frozenset((
    "boot", "job_env", "run_job", "start_job", "run_sidecars", "cron", "run_self_delete", "self_delete_cron",
    "minute", "mark", "name", "word", "mount", "folder",
))  # fmt: skip
MAX_SCRIPT = 256 * 1024  # bytes; the limit of one metadata value (docs/facts.md 2.4)
STOP_TIMEOUT = 60  # seconds that `start-job --restart` waits for the old agent, unless the grace is longer

FILE_KEYS = {
    "command": "job.command",
    "setup": "job.setup",
    "deployment": "name",
    "marker": "job.checkpoint.marker",
    "checkpoint_path": "job.checkpoint.dir",
}  # template variables under the names that users know


@dataclass(frozen=True)
class MachineTarget:
    """
    The machine that scripts are rendered for.

    *bundle* and *agent* are sha256 digests in hex, *heartbeat* is in seconds. *runs_job* says whether the job
    runs here. *tpu_address* is the TPU's internal IP for a job on the VM, "" while unknown. *round* is the
    race that a TPU belongs to, 0 for none. *disks* are mounted on a TPU's machines. *self_delete_at* is the time
    from which the machine may delete itself, in seconds since the epoch; None for never. *granted_at* is the
    time at which its service account got its roles on the bucket, 0 if unknown. *tpu_type* is the TPU's type
    in the zone statistics.
    """

    role: Literal["tpu", "vm"]
    project: str
    bucket: str
    incarnation: int
    bundle: str
    agent: str
    runs_job: bool
    node: str = ""
    zone: str = ""
    tpu_address: str = ""
    heartbeat_interval: float = 30
    self_delete_at: float | None = None
    round: int = 0
    disks: tuple[DataDisk, ...] = ()
    granted_at: float = 0.0
    tpu_type: str = ""


@dataclass(frozen=True)
class Scripts:
    """
    The rendered files; metadata needs *startup* and *shutdown* only, since startup embeds the others.

    *cron* contains `@ROOT@`, which startup replaces by the machine's root folder. *run_sidecars* is "" on a
    machine without sidecars, *run_self_delete* and *self_delete_cron* on one that does not delete itself. *minute*
    replaces cron on a machine that has none.
    """

    startup: str
    shutdown: str
    job_env: str
    run_job: str
    start_job: str
    cron: str
    run_sidecars: str
    run_self_delete: str
    self_delete_cron: str
    minute: str


def machine_scripts(spec: Spec, target: MachineTarget) -> Scripts:
    """
    Return the scripts of one machine.

    Raise UsageError for a NUL, text that is not Unicode, a bad variable name, a value above 120,000 bytes, or
    a startup script above 256 KiB.
    """
    values = _values(spec, target)
    check_environment(spec)
    files = {
        "job_env": render("job.env.j2", values),
        "run_job": render("run-job.sh.j2", values),
        "start_job": render("start-job.sh.j2", values),
        "cron": render("cron.j2", values),
        "run_sidecars": sidecar_script(spec, target.role, target.bucket, wanted_only=True),
        "run_self_delete": render("run-self-delete.sh.j2", values)
        if target.self_delete_at is not None
        else "",
        "self_delete_cron": render("self-delete-cron.j2", values)
        if target.self_delete_at is not None
        else "",
        "minute": render("minute.sh.j2", values),
    }
    embedded = {**files, "boot": shipped("boot.py").decode()}
    startup = render("startup.sh.j2", {**values, **embedded, "mark": _mark(embedded)})
    # Google would refuse it only when the machine is created; here nothing has been requested yet.
    size = len(startup.encode())
    if size > MAX_SCRIPT:
        raise UsageError(
            f"job: the startup script would have {size:,} bytes; Google allows {MAX_SCRIPT:,}",
            hint="move long text from job.command, job.setup or job.env into a file of the source folder",
            changed="nothing was changed",
        )
    return Scripts(
        startup=startup, shutdown=render("shutdown.sh.j2", {"seconds": f"{SHUTDOWN_SCRIPT:g}"}), **files
    )


def task_script(
    spec: Spec, target: MachineTarget, job: str, parameters: Sequence[Mapping[str, str]],
    collect: Sequence[str] = (),
) -> str:  # fmt: skip
    """
    Return the script that Slurm runs for the tasks of *job*; *parameters* has the variables of each task.

    *spec* is the deployment of one task. *collect* names the result files of each task for the table. Raise
    UsageError as `machine_scripts` does.
    """
    check_environment(spec)
    for variables in parameters:
        check_environment(replace(spec, job=replace(spec.job, env=variables)))
    values = {
        "job": job, "job_env": render("job.env.j2", _values(spec, target)), "folder": f"{JOBS}{job}/",
        "parameters": [dict(variables) for variables in parameters], "collect": ":".join(collect),
    }  # fmt: skip
    return render("fleet-task.sh.j2", values)


def sidecar_script(spec: Spec, role: str, bucket: str, *, wanted_only: bool = False) -> str:
    """
    Return the script that installs and runs the sidecars for machines of *role*.

    Without sidecars it stops those that run; with *wanted_only* it is "" instead.
    """
    wanted = {
        sidecar.name: {**asdict(sidecar), "requirements": REQUIREMENTS[sidecar.name]}
        for sidecar in sidecars(spec, bucket)
        if sidecar.on == role
    }
    if wanted_only and not wanted:
        return ""
    mark = _mark({name: repr(settings) for name, settings in wanted.items()})
    return render("run-sidecars.sh.j2", {"role": role, "sidecars": wanted, "mark": mark})


def loop_script(**values: str | int) -> str:
    """Return the script that keeps the loop running on the VM; *values* are the template's variables."""
    return render("run-watch.sh.j2", values)


def stop_seconds(spec: Spec) -> float:
    """Return the seconds that `start-job --restart` waits for the old agent."""
    # 20 s beyond the grace, in which the agent verifies and uploads the last save.
    return max(STOP_TIMEOUT, (spec.job.grace or 0) + 20)


def bash_word(value: object) -> str:
    """
    Return *value* as one word for bash, always in single quotes.

    Raise UsageError for a NUL or a lone surrogate, which no shell word can contain.
    """
    text = str(value)
    check_text("value", text)
    # Inside single quotes only the quote itself is special, so no value can end its word.
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _values(spec: Spec, target: MachineTarget) -> dict[str, Any]:
    """Return the template variables, checked."""
    checkpoint = spec.job.checkpoint
    place, path = _checkpoint_place(checkpoint.dir, f"{target.bucket}/{prefix_of(spec)}")
    grace = spec.job.grace
    values: dict[str, Any] = {
        **asdict(target),
        "runs_job": "1" if target.runs_job else "0",
        "heartbeat_interval": _number(target.heartbeat_interval),
        "self_delete_at": "" if target.self_delete_at is None else _number(target.self_delete_at),
        "granted_at": str(int(target.granted_at)) if target.granted_at else "",
        "deployment": spec.name,
        "prefix": prefix_of(spec),
        "setup": spec.job.setup,
        "python": spec.job.python,
        "image": spec.job.image if target.role == "tpu" else "",
        "job_env_names": " ".join(spec.job.env),
        "warm_start": spec.job.warm_start and target.role == "tpu",
        "caches": json.dumps(list(spec.job.caches)) if spec.job.caches and target.role == "tpu" else "",
        "command": spec.job.command,
        # References only: the machine reads the values, which never appear in a script or in metadata.
        "secrets": json.dumps(dict(spec.job.secrets)) if spec.job.secrets else "",
        "heartbeat_first": target.role == "tpu" and target.runs_job,
        "on_vm": target.role == "vm" and spec.job.run_on == "vm" and bool(target.tpu_address),
        "xrt": f"tpu_worker;0;{target.tpu_address}:8470",
        "job_digest": job_digest(spec),
        "format": checkpoint.format,
        "keep": checkpoint.keep,
        "marker": checkpoint.marker,
        "every": _every(checkpoint.every),
        "save_pause": "" if checkpoint.save_pause is None else _number(checkpoint.save_pause),
        "progress": progress_text(spec),
        "expand": " ".join(name for name, value in spec.job.env.items() if "$" in value),
        "checkpoint_place": place,
        "checkpoint_path": path,
        "target_steps": "" if spec.job.target_steps is None else spec.job.target_steps,
        "failures": spec.job.failures,
        "stop_signal": spec.job.stop_signal,
        "grace": "" if grace is None else _number(grace),
        "stall": _number(spec.watch.stall),
        "tensorboard_dir": log_folder(spec, target.bucket),
        "stop_seconds": _number(stop_seconds(spec)),
    }
    for name, value in values.items():
        check_text(FILE_KEYS.get(name, name), str(value))
    return {**values, "user_env": dict(spec.job.env)}


def _checkpoint_place(folder: str, own: str) -> tuple[str, str]:
    """
    Return where checkpoints go: ("absolute", path) or ("root", path below the machine's root folder).

    *own* is the deployment's part of the bucket. A relative path is never below the bundle, where the next
    push would hide it.
    """
    if folder == "bucket":
        return "absolute", f"gs://{own}checkpoints"
    if folder == "local":
        return "root", "checkpoints"
    return ("absolute" if folder.startswith("/") else "root"), folder


def _every(value: float | str | None) -> str:
    """Return the save interval as the agent's setting: "auto", seconds, or ""."""
    return "" if value is None else value if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Format a number without exponent, and as an integer if it is one."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _mark(files: dict[str, str]) -> str:
    """Return a heredoc delimiter derived from all embedded files, so that none of them contains it."""
    return "END_" + hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:24]


def render(name: str, values: dict[str, Any]) -> str:
    """Render a template; every value is quoted for the shell."""
    return _template(name).render(values)


@functools.cache
def _template(name: str) -> "Template":
    """Load a template. Raise an error if it applies `raw` to a name outside RAW_NAMES."""
    environment = _environment()
    template = environment.get_template(name)
    _check_raw(environment, name, Path(str(template.filename)).read_text(encoding="utf-8"))
    return template


def _check_raw(environment: "SandboxedEnvironment", name: str, source: str) -> None:
    from jinja2 import nodes

    # Checked in the source: rendering would reveal a misuse only for certain values.
    for use in environment.parse(source, name).find_all(nodes.Filter):
        if use.name == "raw" and not (isinstance(use.node, nodes.Name) and use.node.name in RAW_NAMES):
            raise ValueError(f"{name}:{use.lineno}: raw is allowed on {sorted(RAW_NAMES)} only")


@functools.cache
def _environment() -> "SandboxedEnvironment":
    """Build the sandbox that renders templates."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        loader=FileSystemLoader(TEMPLATES),
        # A misspelt name fails here; otherwise it becomes an empty word in a script that runs as root.
        undefined=StrictUndefined,
        # Quoting is the default, so that a template cannot forget it.
        finalize=lambda value: value if isinstance(value, _Raw) else bash_word(value),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["raw"] = _Raw
    return environment


class _Raw(str):
    """Text that is inserted into a script without quoting."""

    __slots__ = ()


MAX_VALUE = 120_000  # bytes; Linux refuses an argument or variable above 128 KiB

# Bash refuses to assign the first six and computes the others, so these cannot be passed to the job.
BASH_OWNED = frozenset((
    "BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_", "BASHPID", "BASH_ARGC",
    "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_ALIASES", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE",
    "BASH_SUBSHELL", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS",
    "HISTCMD", "LINENO", "OPTIND", "PIPESTATUS", "POSIXLY_CORRECT", "RANDOM", "SECONDS", "SHLVL", "SRANDOM",
    "PWD", "OLDPWD",
))  # fmt: skip


def check_environment(spec: Spec) -> None:
    """Raise UsageError for variables that bash cannot pass on unchanged."""
    for name, value in spec.job.env.items():
        where = f"job.env.{name!a}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(
                f"{where}: not a name of a variable",
                hint="use letters, digits and '_' only",
                changed="no script was made",
            )
        if name in BASH_OWNED or name.startswith("TPUCTL_"):
            owner = "tpuctl" if name.startswith("TPUCTL_") else "bash"
            raise UsageError(
                f"{where}: {owner} sets this variable itself",
                hint="choose another name",
                changed="no script was made",
            )
        check_text(f"job.env.{name}", value)


def check_text(where: str, text: str) -> None:
    """Raise UsageError for text that an environment variable cannot hold."""
    if "\0" in text:
        raise UsageError(f"{where}: holds a NUL character", hint="remove it", changed="nothing was changed")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        message = f"{where}: character {error.start} is a lone surrogate and not Unicode text"
        raise UsageError(message, hint="remove it", changed="nothing was changed") from error
    if size > MAX_VALUE:
        raise UsageError(
            f"{where}: {size:,} bytes are too long; at most {MAX_VALUE:,} fit",
            hint="move the text into a file of the source folder",
            changed="nothing was changed",
        )
