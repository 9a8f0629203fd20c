"""
Define the deployment file as frozen values.

The dataclasses are plain; `orchestrator.config` validates them with pydantic, and `config/schema.py` uses the
text under each field as its description, so each setting is described once. Words and bounds of a value stand
in its type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from orchestrator.domain.bounds import Bounds
from orchestrator.domain.text.units import Duration, Until

STRICT = {"extra": "forbid"}
FLEET_COMMAND = "true"
"""Job of a fleet's own deployment, which has no TPU, so that it never runs."""
NotificationKind = Literal[
    "up", "preempted", "resumed", "stalled", "budget", "limit-reached", "done", "failed"
]
# Lower ports need root, and a notebook must not run as root.
SidecarPort = Annotated[
    int,
    Bounds(1024, 65535, "is not a port that a sidecar may use", "use a port from 1024 to 65535"),
]
NOTIFICATION_KINDS: tuple[NotificationKind, ...] = get_args(NotificationKind)


@dataclass(frozen=True)
class TpuSpec:
    """The TPU slice."""

    __pydantic_config__ = STRICT

    type: str
    """Accelerator type, for example v5litepod-4, a v5e of 4 chips. The number counts chips for v5e and v6e, cores
    for v2 to v5p."""
    zones: tuple[str, ...]
    """Zones of one region, in order of preference; the next one after a stockout."""
    across_regions: bool = False
    """Allow zones of several regions. The bucket stays in one; traffic to TPUs elsewhere is billed."""
    runtime: str | None = None
    """TPU software version. Default: the catalogue's version for the type."""
    other_types: tuple[str, ...] = ()
    """Types to use, in this order, when no zone has the first one. Equivalent to a list as type."""
    strategy: Literal["failover", "race", "race-regions"] = "failover"
    """How zones are tried: one after the other (failover), several at once (race; race-regions: any region)."""
    request: Literal["node", "queued", "flex-start"] = "node"
    """Repeat the request (node), or wait in the zone's queue (queued; flex-start: for a limited run)."""
    max_run_duration: Duration | None = None
    """Longest run of a flex-start TPU, up to 7d, after which Google deletes it. Default: 7d."""
    wait: Duration | None = None
    """How long a request stays in one zone's queue before the next zone is tried. Default: no limit."""
    reservation: str | None = None
    """Reservation to use for the TPU: its name, or projects/P/locations/ZONE/reservations/NAME."""
    disks: tuple[str, ...] = ()
    """Existing disks of the zone to attach: NAME (read-only) or NAME:read-write, at $TPUCTL_ROOT/disks/NAME."""
    spot: bool = True
    """Use spot capacity: cheap, may be taken away at any time."""
    external_ip: bool = True
    """Give workers an external address. Without it, SSH goes through the VM."""
    scope: Literal["storage", "cloud-platform"] = "storage"
    """What its machines may ask Google for: storage, or all that their account may, as a fleet's secrets need."""


@dataclass(frozen=True)
class VmSpec:
    """The VM, in the TPU's region."""

    __pydantic_config__ = STRICT

    name: str | None = None
    """Name of a VM that you have made yourself, for `tpuctl adopt --vm`. Default: tpuctl makes one."""
    machine_type: str = "e2-small"
    """Compute Engine machine type."""
    disk_gb: Annotated[int, Bounds(10, says="GB is too small for an image", hint="use at least 10")] = 50
    """Size of the boot disk in GB; it survives a stop of the VM."""
    spot: bool = False
    """Use spot capacity; a stopped VM is started again within one pass."""
    zone: str | None = None
    """Zone of the VM, in the region of the TPU's first zone. Default: that zone."""
    external_ip: bool = True
    """Give the VM an external address. Without it, SSH goes through Identity-Aware Proxy, by gcloud."""
    service_account: str | None = None
    """E-mail of the account that the VM runs as. Default: the account of the other machines."""
    image: str | None = None
    """Image of the VM, as projects/P/global/images/family/F: Debian or Ubuntu. Default: Ubuntu 24.04."""


@dataclass(frozen=True)
class BucketSpec:
    """The bucket for checkpoints, bundles, journal and logs."""

    __pydantic_config__ = STRICT

    name: str | None = None
    """Bucket name. Default: derived from project and deployment name."""
    adopt: bool = False
    """Use an existing bucket. An adopted bucket is never changed and never deleted."""
    prefix: str = ""
    """Folder of an adopted bucket for this deployment alone, such as runs/a, so that several share the bucket."""
    location: str | None = None
    """Region of the bucket: that of the TPU's first zone; with across_regions also us, eu or asia."""
    soft_delete: Duration | None = None
    """Keep deleted objects, also old checkpoints, for 7d to 90d, billed as stored. Default: off."""


@dataclass(frozen=True)
class CheckpointSpec:
    """How the job saves its progress."""

    __pydantic_config__ = STRICT

    format: Literal[
        "auto", "marker", "orbax", "hf", "fairseq", "tf", "keras", "torch",
        "accelerate", "dcp", "levanter", "files", "outputs",
    ] = "auto"  # fmt: skip
    """Layout of the checkpoints. auto: detected from the first save. outputs: files without steps."""
    dir: str = "local"
    """bucket: the job writes to the bucket itself. local, or a path: the agent verifies and uploads."""
    keep: Annotated[
        int, Bounds(2, says="is too few", hint="keep at least 2, so that a torn checkpoint loses nothing")
    ] = 3
    """How many complete checkpoints to keep, at least 2."""
    marker: str = "COMPLETE"
    """Name of the file that the job writes last into a step folder (format marker)."""
    every: Duration | Literal["auto"] | None = None
    """Time between two saves, for the job to use. auto: learnt from how long saves and machines last."""
    save_pause: float | None = None
    """Seconds for which one save pauses the training, if known; a job may report it instead."""


@dataclass(frozen=True)
class MemorySpec:
    """How much the job needs, for `tpuctl check` only. Values that are missing are not checked."""

    __pydantic_config__ = STRICT

    params_millions: float | None = None
    """Parameters of the model in millions: 125 for RoBERTa base."""
    optimizer: Literal["adam", "momentum", "adafactor", "sgd"] = "adam"
    """Optimizer: adam keeps two values for each parameter, momentum one, adafactor and sgd almost none."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Type of parameters, gradients and optimizer state: 4 or 2 bytes."""
    shards: Annotated[
        int, Bounds(1, says="is less than one core", hint="use 1 when each core holds the whole model")
    ] = 1
    """Number of cores over which parameters and optimizer state are split; 1 if each core holds all."""
    activations_gb: float | None = None
    """GB that one core needs for its batch, on top of model and optimizer."""
    text_gb: float | None = None
    """GB of training text before tokenizing, if it is not in the source folder."""


@dataclass(frozen=True)
class ProgressSpec:
    """How the job's output shows its progress: Python regular expressions, each with one group."""

    __pydantic_config__ = STRICT

    step: str = ""
    """Pattern whose group is the step, for example 'iter (\\d+):'. The newest match counts."""
    loss: str = ""
    """Pattern whose group is the loss, for example 'loss ([0-9.]+)'."""
    rate: str = ""
    """Pattern whose group is the number of steps a second. Default: measured."""


@dataclass(frozen=True)
class JobSpec:
    """The training job."""

    __pydantic_config__ = STRICT

    command: str
    """Training command, run by bash in the source folder on every worker."""
    source: str = "."
    """Folder that is pushed, relative to the deployment file. .tpuctlignore and .gitignore are respected."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Data for the job: path in the source folder, and the local path or gs:// folder to copy from."""
    setup: str = ""
    """Shell command run before the job, once for new code or a new setup."""
    warm_start: bool = True
    """Keep in the bucket what setup installs and what XLA compiles, and bring it back on the next machine."""
    caches: tuple[str, ...] = ()
    """Folders to keep from one machine to the next, such as ~/.cache/huggingface: absolute, ~/... or $NAME."""
    python: str = ""
    """Python version of setup and job, such as "3.12", installed if needed. Empty: the image's own."""
    image: str = ""
    """Container image for setup and job, such as europe-docker.pkg.dev/P/R/train:1. Empty: no container."""
    run_on: Literal["tpu", "vm"] = "tpu"
    """Where it runs. tpu: on every TPU worker. vm: on the VM, with the TPU's address as in 2020."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Extra variables; $TPUCTL_BUCKET and others are replaced. No secrets: they are stored as metadata."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables from Secret Manager, by reference: secret://NAME or secret://NAME/versions/N."""
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    """How the job saves its progress."""
    progress: (
        ProgressSpec
        | Literal["auto", "none", "lines", "trainer", "keras", "levanter", "bars", "epochs", "rounds"]
    ) = "auto"
    """How step and loss are read from the output: auto (the usual programs), a preset, or patterns."""
    memory: MemorySpec = field(default_factory=MemorySpec)
    """How much memory and disk the job needs, if known."""
    target_steps: int | None = None
    """The job is done once this or a later step is saved; it has a moment to end (job.grace). Your program needs
    the same number of steps. Default: done when the command ends with status 0 (format hf: at its max_steps)."""
    failures: Annotated[int, Bounds(1, says="allows no start at all", hint="use at least 1")] = 5
    """Failed attempts in a row without progress before the deployment ends. Preemptions are not failures."""
    stop_signal: Literal["TERM", "INT", "USR1"] = "TERM"
    """Signal that asks the job to save and stop."""
    grace: Duration | None = None
    """Time for a last save between the stop signal and the kill. Default: 20s, 25s for format hf."""


@dataclass(frozen=True)
class WatchSpec:
    """How the deployment is watched and when it stops."""

    __pydantic_config__ = STRICT

    poll: Duration = field(default_factory=lambda: Duration(15))
    """Time between two passes, each of which polls the cloud."""
    listen: Duration = field(default_factory=lambda: Duration(3))
    """Time between two checks for a machine's preemption notice, between passes. The same as poll: none."""
    stall: Duration = field(default_factory=lambda: Duration(3600))
    """A job without a new step, checkpoint or log line for this long is restarted."""
    budget_usd: float | None = None
    """Stop before this sum is spent (an estimate from the price table). All data is kept."""
    ttl: Duration = field(default_factory=lambda: Duration(7 * 86400))
    """Longest lifetime of the deployment. For the VM, Google enforces this limit too."""
    deadline: Until | None = None
    """When the job must be done: a time from the first up (36h) or a date. Uses on demand if needed."""
    last_resort: Literal["on-demand", "flex-start"] = "on-demand"
    """What a deadline uses when spot is not enough. flex-start: wait half an hour for it before on demand."""
    self_delete: bool = False
    """Let each TPU delete itself when ttl is over and no watcher runs. Its account gets wider access."""
    on_vm: bool = False
    """Let the VM watch (`tpuctl watch --on-vm`). Set it before the first up: its account gets wider access."""


@dataclass(frozen=True)
class TensorboardSpec:
    """The TensorBoard that shows the deployment's logs; open it with `tpuctl tunnel tensorboard`."""

    __pydantic_config__ = STRICT

    on: Literal["vm", "tpu"] = "vm"
    """The machine it runs on: the VM, or worker 0 of the TPU."""
    logdir: str = "tensorboard"
    """Event files: a folder in the bucket, or gs://BUCKET/FOLDER. The job gets it as TPUCTL_TENSORBOARD_DIR."""
    port: SidecarPort = 6006
    """Port on the machine's loopback address."""


@dataclass(frozen=True)
class JupyterSpec:
    """The JupyterLab of the deployment; open it with `tpuctl tunnel jupyter`."""

    __pydantic_config__ = STRICT

    on: Literal["vm", "tpu"] = "vm"
    """The machine it runs on: the VM, or worker 0 of the TPU, where notebooks are lost in a preemption."""
    port: SidecarPort = 8888
    """Port on the machine's loopback address."""


@dataclass(frozen=True)
class NotifySpec:
    """Who gets notifications. `tpuctl notify test` tests it."""

    __pydantic_config__ = STRICT

    webhooks: tuple[str, ...] = ()
    """Where they are posted as JSON: secret://NAME, env://VARIABLE, or an https URL that is not a secret."""
    apprise: tuple[str, ...] = ()
    """Other services, with the extra `notify`: secret://NAME or env://VARIABLE with an Apprise URL."""
    hooks: Mapping[NotificationKind, str] = field(default_factory=dict)
    """Programs of this computer by kind of notification, run without a shell, with its JSON on standard input."""
    kinds: tuple[NotificationKind, ...] = NOTIFICATION_KINDS
    """Kinds of notifications that webhooks and apprise get."""


@dataclass(frozen=True)
class SidecarsSpec:
    """The sidecars. A failed sidecar never affects the job."""

    __pydantic_config__ = STRICT

    tensorboard: TensorboardSpec | Literal["none"] = "none"
    """TensorBoard, or none. {} means: on the VM, folder tensorboard of the bucket, port 6006."""
    jupyter: JupyterSpec | Literal["none"] = "none"
    """JupyterLab, or none. {} means: on the VM, port 8888."""


@dataclass(frozen=True)
class UserSpec:
    """What one user of a fleet may have."""

    __pydantic_config__ = STRICT

    share: int = 1
    """The user's part of the fleet while all want it: with 2 twice that of a user with 1."""
    nodes: int | None = None
    """Nodes that work for the user at once, at most. Default: all."""
    budget_usd: float | None = None
    """USD for the time of nodes that the user's tasks may cost; then no more of them begin. Default: no limit."""


@dataclass(frozen=True)
class PrioritySpec:
    """One priority of a fleet's jobs."""

    __pydantic_config__ = STRICT

    over: str | None = None
    """Priority whose waiting tasks these go before, and before all that those go before."""
    preempts: bool = False
    """Also take nodes from tasks of those priorities that run; they save first, and go on later."""


@dataclass(frozen=True)
class FleetSpec:
    """A fleet: TPUs of one kind that work on a queue of jobs. The file then has no job of its own."""

    __pydantic_config__ = STRICT

    nodes: int
    """How many TPUs there are at most, up to 100; each works on one task at a time."""
    min_idle: int | None = None
    """How many TPUs without a task are kept; others come and go with the queue. Default: all are kept."""
    idle: Duration = field(default_factory=lambda: Duration(600))
    """After which time without a task a TPU that min_idle does not keep is deleted."""
    users: dict[str, UserSpec] = field(default_factory=dict)
    """Who may submit, by login: {share: 2, nodes: 4, budget_usd: 200}, all as you like. Default: one user."""
    priorities: dict[str, PrioritySpec] = field(default_factory=dict)
    """Priorities of jobs by name: {over: normal, preempts: true}. A job that names none has `normal`."""


@dataclass(frozen=True)
class Spec:
    """One deployment file, validated and with defaults filled in."""

    __pydantic_config__ = STRICT

    name: str
    """Name of the deployment and of its resources: lower-case letters, digits and '-', at most 40."""
    tpu: TpuSpec
    """The TPU slice."""
    job: JobSpec
    """The training job. A file with `fleet` has none: its jobs come by `tpuctl fleet submit`."""
    project: str | None = None
    """Google Cloud project. Default: GOOGLE_CLOUD_PROJECT or the credentials' project."""
    vm: VmSpec | Literal["none"] = field(default_factory=VmSpec)
    """The VM, or none."""
    bucket: BucketSpec = field(default_factory=BucketSpec)
    """The bucket."""
    service_account: str | None = None
    """E-mail of the account that the machines run as. Default: the project's default compute account."""
    impersonate: str | None = None
    """E-mail of a service account that tpuctl acts as; your login must be allowed to create its tokens."""
    network: str = "default"
    """VPC network of TPU and VM; for a shared one projects/HOST/global/networks/NAME."""
    subnetwork: str | None = None
    """Subnetwork in each region, or its path. Default: the one with the network's name."""
    tags: tuple[str, ...] = ()
    """Network tags of TPU and VM, for firewall rules."""
    secure_boot: bool = False
    """Boot TPU and VM with Secure Boot, as the constraint compute.requireShieldedVm requires."""
    os_login: bool = False
    """Use OS Login, as compute.requireOsLogin requires: then only gcloud reaches the machines by SSH."""
    watch: WatchSpec = field(default_factory=WatchSpec)
    """How the deployment is watched."""
    notify: NotifySpec = field(default_factory=NotifySpec)
    """Who gets notifications."""
    fleet: FleetSpec | None = None
    """Many TPUs that work on a queue of jobs, for `tpuctl fleet`."""
    sidecars: SidecarsSpec = field(default_factory=SidecarsSpec)
    """Programs beside the job: TensorBoard, JupyterLab."""
