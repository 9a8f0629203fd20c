"""
What the user wants: the deployment file as frozen values.

The dataclasses are plain; `orchestrator.config` validates them with pydantic and reads the text
under each field as its description in the JSON Schema, so a setting is described once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.domain.notify_spec import NotifySpec
from orchestrator.domain.units import Duration, Until

STRICT = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass(frozen=True)
class TpuSpec:
    """Describe the TPU slice."""

    __pydantic_config__ = STRICT

    type: str
    """Accelerator type, for example v5litepod-4. The number counts cores up to v5p, chips for v5e and v6e."""
    zones: tuple[str, ...]
    """Zones in order of preference, of one region. The next one is tried when a zone has no capacity."""
    across_regions: bool = False
    """Allow zones of several regions. The bucket stays in one; traffic to TPUs elsewhere is billed."""
    runtime: str | None = None
    """TPU software version; the catalogue's version for the type when left out."""
    other_types: tuple[str, ...] = ()
    """Types to take instead, in this order, when no zone has the first; a list as type says the same."""
    strategy: Literal["failover", "race", "race-regions"] = "failover"
    """How zones are asked: one after the other (failover), three at once (race; race-regions for any)."""
    request: Literal["node", "queued", "flex-start"] = "node"
    """Ask again and again (node), or wait in the zone's queue (queued; flex-start: for a limited run)."""
    max_run_duration: Duration | None = None
    """How long Google lets a flex-start TPU run at most, up to 7d; 7d when left out."""
    wait: Duration | None = None
    """How long an order stays in one zone's queue before the next zone is tried; without end if left out."""
    reservation: str | None = None
    """Take the TPU out of this reservation: its name, or projects/P/locations/ZONE/reservations/NAME."""
    disks: tuple[str, ...] = ()
    """Existing disks of the zone to attach: NAME to read, NAME:read-write; see $TPUCTL_ROOT/disks/NAME."""
    spot: bool = True
    """Use spot capacity: cheap, may be taken away at any time."""
    external_ip: bool = True
    """Give workers an external address. Without it, SSH goes through the VM."""


@dataclass(frozen=True)
class VmSpec:
    """Describe the controller VM in the TPU's region."""

    __pydantic_config__ = STRICT

    machine: str = "e2-small"
    """Compute Engine machine type."""
    disk_gb: int = 50
    """Size of the boot disk in GB; it survives a stop of the VM."""
    spot: bool = False
    """Use spot capacity; a stopped VM is started again within one poll."""
    zone: str | None = None
    """Zone of the VM; the TPU's first zone when left out. It must lie in that zone's region."""
    external_ip: bool = True
    """Give the VM an external address. Without it, SSH goes through Identity-Aware Proxy, by gcloud."""
    service_account: str | None = None
    """E-mail of the account the VM runs as; that of the other machines when left out."""
    image: str | None = None
    """Image of the VM, as projects/P/global/images/family/F: Debian or Ubuntu; Ubuntu 24.04 when left out."""


@dataclass(frozen=True)
class BucketSpec:
    """Describe the bucket for checkpoints, bundles, journal and logs."""

    __pydantic_config__ = STRICT

    name: str | None = None
    """Bucket name; derived from project and deployment name when left out."""
    adopt: bool = False
    """Use a bucket that exists already. An adopted bucket is never changed and never deleted."""
    location: str | None = None
    """Region of the bucket: the TPU's first; with across_regions also the multi-regions us, eu and asia."""
    soft_delete: Duration | None = None
    """Keep deleted objects for 7d to 90d, billed as stored; off when left out. Old checkpoints count too."""


@dataclass(frozen=True)
class CheckpointSpec:
    """Describe how the job saves its progress."""

    __pydantic_config__ = STRICT

    format: Literal[
        "auto", "marker", "orbax", "hf", "fairseq", "tf", "keras", "torch",
        "accelerate", "dcp", "levanter", "files", "outputs",
    ] = "auto"  # fmt: skip
    """Whose layout the saves have. auto: decided by the first save. outputs: files, no steps."""
    dir: str = "local"
    """bucket: the job writes to the bucket itself. local, or a path: the agent proves and uploads it."""
    keep: int = 3
    """How many complete checkpoints to keep, at least 2."""
    marker: str = "COMPLETE"
    """Name of the file that the job writes last into a step folder (format marker)."""
    every: Duration | Literal["auto"] | None = None
    """Time between two saves, told to the job. With auto it is learnt from saves and lost machines."""
    save_seconds: float | None = None
    """Seconds for which one save stops the training, if known; a job may report it instead."""


@dataclass(frozen=True)
class MemorySpec:
    """Describe how much the job needs. Only `tpuctl check` reads it; what is left out is not checked."""

    __pydantic_config__ = STRICT

    params_millions: float | None = None
    """Parameters of the model in millions: 125 for RoBERTa base."""
    optimizer: Literal["adam", "momentum", "adafactor", "sgd"] = "adam"
    """What keeps values for each parameter: adam two, momentum one, adafactor and sgd almost none."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Type of parameters, gradients and optimizer state: 4 or 2 bytes."""
    shards: int = 1
    """Over how many cores parameters and optimizer state are split; 1 when each core holds all of them."""
    activations_gb: float | None = None
    """GB that one core needs for its batch, on top of model and optimizer."""
    text_gb: float | None = None
    """GB of training text before tokenizing, where it does not lie in the source folder."""


@dataclass(frozen=True)
class ProgressSpec:
    """Describe how the job's output tells its progress: patterns of Python's `re`, each with one group."""

    __pydantic_config__ = STRICT

    step: str = ""
    """Pattern whose group is the step, for example 'iter (\\d+):'. Of several matches the newest counts."""
    loss: str = ""
    """Pattern whose group is the loss, for example 'loss ([0-9.]+)'."""
    rate: str = ""
    """Pattern whose group is the number of steps a second; measured when left out."""


@dataclass(frozen=True)
class JobSpec:
    """Describe the training job."""

    __pydantic_config__ = STRICT

    command: str
    """Shell command that trains, run by bash in the pushed folder on every worker."""
    source: str = "."
    """Folder that is pushed, relative to the deployment file. .tpuctlignore and .gitignore are respected."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Data beside the code: place in the code folder, and the local path or gs:// folder it comes from."""
    setup: str = ""
    """Shell command run once for each new bundle on each machine, before the job."""
    python: str = ""
    """Python of setup and job, such as "3.12", installed where the image lacks it; empty: the image's own."""
    run_on: Literal["tpu", "vm"] = "tpu"
    """tpu: on every TPU worker. vm: on the VM, with the TPU's address in the environment as in 2020."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Extra variables; $TPUCTL_BUCKET and the like are filled in. No secrets: they are stored as metadata."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables from Secret Manager, by reference: secret://NAME or secret://NAME/versions/N."""
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    """How the job saves its progress."""
    progress: (
        ProgressSpec
        | Literal["auto", "none", "lines", "trainer", "keras", "levanter", "bars", "epochs", "rounds"]
    ) = "auto"
    """How the job's output tells step and loss: auto knows the usual programs; a preset; or patterns."""
    memory: MemorySpec = field(default_factory=MemorySpec)
    """How much memory and disk the job needs, if known."""
    target_steps: int | None = None
    """The job is done when this step is reached; without it, at status 0 (format hf: at its max_steps)."""
    failures: int = 5
    """Failed starts in a row without progress before giving up. Preemptions are not failures."""
    stop_signal: Literal["TERM", "INT", "USR1"] = "TERM"
    """Signal that asks the job to save and stop."""
    grace: Duration | None = None
    """Time between the stop signal and the kill, for a last save; 20s when left out, 25s for format hf."""


@dataclass(frozen=True)
class WatchSpec:
    """Describe how the deployment is watched and when it stops."""

    __pydantic_config__ = STRICT

    poll: Duration = field(default_factory=lambda: Duration(15))
    """Time between two looks at the cloud."""
    listen: Duration = field(default_factory=lambda: Duration(3))
    """Time between two looks within a poll for a machine that calls, as with its notice. As poll: none."""
    stall: Duration = field(default_factory=lambda: Duration(3600))
    """A job without a new step, checkpoint or log line for this long is restarted."""
    budget_usd: float | None = None
    """Stop, keeping all data, before this sum is spent (an estimate from the price table)."""
    ttl: Duration = field(default_factory=lambda: Duration(7 * 86400))
    """Longest life of the deployment; the VM also carries it as a limit that Google enforces."""
    deadline: Until | None = None
    """When the job must be done: a time from the first up (36h) or a date. Then on demand helps spot out."""
    last_resort: Literal["on-demand", "flex-start"] = "on-demand"
    """What a deadline asks for where spot does not do; flex-start: half an hour of that before on demand."""
    self_delete: bool = False
    """Let each TPU delete itself when ttl is over and nobody watches; its account may then do more."""
    on_vm: bool = False
    """Make the VM so that `tpuctl watch --on-vm` can run the loop there; its account may then do more."""


@dataclass(frozen=True)
class TensorboardSpec:
    """Describe the TensorBoard that shows the deployment's logs; see it through `tpuctl tunnel tensorboard`."""

    __pydantic_config__ = STRICT

    on: Literal["vm", "tpu"] = "vm"
    """The machine it runs on: the VM, or worker 0 of the TPU."""
    logdir: str = "tensorboard"
    """Event files: a folder below the bucket, or gs://BUCKET/FOLDER. For the job: TPUCTL_TENSORBOARD_DIR."""
    port: int = 6006
    """Port on the machine's loopback address."""


@dataclass(frozen=True)
class JupyterSpec:
    """Describe the JupyterLab of the deployment; open it through `tpuctl tunnel jupyter`."""

    __pydantic_config__ = STRICT

    on: Literal["vm", "tpu"] = "vm"
    """The machine it runs on: the VM, or worker 0 of the TPU, where a preemption takes the notebooks away."""
    port: int = 8888
    """Port on the machine's loopback address."""


@dataclass(frozen=True)
class SidecarsSpec:
    """Describe the helpers that run beside the job. A failed one never touches the job."""

    __pydantic_config__ = STRICT

    tensorboard: TensorboardSpec | Literal["none"] = "none"
    """TensorBoard, or none. {} means: on the VM, folder tensorboard of the bucket, port 6006."""
    jupyter: JupyterSpec | Literal["none"] = "none"
    """JupyterLab, or none. {} means: on the VM, port 8888."""


@dataclass(frozen=True)
class Spec:
    """Hold one deployment file, validated and with defaults filled in."""

    __pydantic_config__ = STRICT

    name: str
    """Name of the deployment and of its resources: lower-case letters, digits and '-', at most 40."""
    tpu: TpuSpec
    """The TPU slice."""
    job: JobSpec
    """The training job."""
    project: str | None = None
    """Google Cloud project; GOOGLE_CLOUD_PROJECT or the credentials' project when left out."""
    vm: VmSpec | Literal["none"] = field(default_factory=VmSpec)
    """The controller VM, or none."""
    bucket: BucketSpec = field(default_factory=BucketSpec)
    """The bucket."""
    service_account: str | None = None
    """E-mail of the account the machines run as; the project's default compute account when left out."""
    impersonate: str | None = None
    """E-mail of a service account as which tpuctl works here; your login needs to make its tokens."""
    network: str = "default"
    """VPC network of TPU and VM; of a shared one the path projects/HOST/global/networks/NAME."""
    subnetwork: str | None = None
    """Subnetwork in each region, or its path; left out, the one that is named like the network."""
    tags: tuple[str, ...] = ()
    """Network tags of TPU and VM, which firewall rules name."""
    secure_boot: bool = False
    """Boot TPU and VM with Secure Boot, as the constraint compute.requireShieldedVm wants it."""
    os_login: bool = False
    """Leave logins to OS Login, as compute.requireOsLogin wants it: then only gcloud reaches the machines."""
    watch: WatchSpec = field(default_factory=WatchSpec)
    """How the deployment is watched."""
    notify: NotifySpec = field(default_factory=NotifySpec)
    """Who is told when something happens."""
    sidecars: SidecarsSpec = field(default_factory=SidecarsSpec)
    """What runs beside the job: TensorBoard, JupyterLab."""
