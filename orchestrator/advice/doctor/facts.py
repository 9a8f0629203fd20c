"""
Hold what `tpuctl doctor` has found out about this computer, the deployment file and the cloud.

An observation is Present, Absent, or Unknown with the reason; the retry class PERMANENT means that waiting does not
help.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import wraps

from orchestrator.domain.all_zones import ObservedAllZones
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.machines.vm_machine_types import CpuQuota
from orchestrator.domain.observation import Bucket, Node, Observed, Unknown, Vm
from orchestrator.domain.spec import Spec

# Unknown and not Absent: a question that was not asked must not look like a lack.
NOT_ASKED = Unknown("it was not looked up")


@dataclass(frozen=True)
class KnownDeployment:
    """A deployment that this computer remembers; *overdue* says that it is billed beyond its ttl."""

    name: str
    readable: bool = True
    overdue: bool = False


@dataclass(frozen=True)
class Computer:
    """
    This computer.

    *libraries* and *programs* map names to versions, None if not installed. *diverting* names variables that
    redirect Google's clients, *colours* those that control colour. *state* is the folder of the deployments,
    *state_mode* its permissions (None: it does not exist yet), *open_keys* SSH keys that others may read.
    """

    python: str = ""
    tpuctl: str = ""
    libraries: Mapping[str, str | None] = field(default_factory=dict)
    programs: Mapping[str, str | None] = field(default_factory=dict)
    encoding: str = "utf-8"
    term: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    diverting: tuple[str, ...] = ()
    state: str = ""
    state_mode: int | None = None
    state_message: str = ""
    free_bytes: int | None = None
    keys: int = 0
    open_keys: tuple[str, ...] = ()
    deployments: tuple[KnownDeployment, ...] = ()


@dataclass(frozen=True)
class File:
    """
    The deployment file.

    Without a file *path* is empty; *message* says what is wrong with a refused one. *source_bytes* is the
    size of a push, *taken* maps sidecars to ports that another program uses. *catalog* describes the types in
    the file.
    """

    path: str = ""
    spec: Spec | None = None
    message: str = ""
    hint: str = ""
    source: str = ""
    source_bytes: int | None = None
    source_message: str = ""
    taken: Mapping[str, int] = field(default_factory=dict)
    catalog: Catalog | None = None


@dataclass(frozen=True)
class Local:
    """
    The local cloud of this computer.

    *chosen* says that the deployment uses it. *missing* names Python packages and *programs* programs that
    are not installed, *namespace* says why machines in namespaces cannot run, empty if they can. *daemon* is
    `absent`, `runs`, `deaf` (a process that does not answer) or `stale` (a file without a process).
    """

    chosen: bool = False
    missing: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    namespace: str | None = None
    daemon: str = "absent"
    endpoint: str = ""
    folder: str = ""
    taken: tuple[int, ...] = ()


@dataclass(frozen=True)
class Login:
    """Application default credentials: their *kind*, path, and owner, if known."""

    kind: str
    path: str
    account: str = ""


@dataclass(frozen=True)
class Google:
    """
    What Google showed, or the local cloud in its place.

    *offers* maps a zone to whether it lists the type, *runtimes* to whether it lists the runtime. *ahead* is
    by how many seconds this computer's clock is ahead of the service's. *lacking* names permissions on the
    bucket that the caller lacks. *private_access* is that of the first region, *private_elsewhere* of the
    others. *secrets* maps a secret of the job to those with the role to read it on the secret itself, *data*
    maps a bucket's folder of job.data to whether it holds any objects. *tpu_limits* is the project's limit,
    by zone, of the quota that the type counts against. *vm_image* is the image that the VM would boot,
    *vm_machine_type* its type as its zone lists it. *elsewhere* and *vms_elsewhere* have TPUs and VMs of the
    deployment's label in all zones. *unasked* says why no question was asked, None if they were.
    """

    login: Observed[Login] = NOT_ASKED
    gcloud_account: str = ""
    gcloud_project: str = ""
    project: str = ""
    ahead: Observed[float] = NOT_ASKED
    tpu: Observed[str] = NOT_ASKED
    compute: Observed[str] = NOT_ASKED
    storage: Observed[str] = NOT_ASKED
    offers: Mapping[str, Observed[str]] = field(default_factory=dict)
    runtimes: Mapping[str, Observed[str]] = field(default_factory=dict)
    machine_account: Observed[str] = NOT_ASKED
    cpus: Observed[CpuQuota] = NOT_ASKED
    tpu_limits: Observed[Mapping[str, int]] = NOT_ASKED
    vm_image: Observed[str] = NOT_ASKED
    vm_machine_type: Observed[str] = NOT_ASKED
    elsewhere: ObservedAllZones[Node] = NOT_ASKED
    vms_elsewhere: ObservedAllZones[Vm] = NOT_ASKED
    private_access: Observed[bool] = NOT_ASKED
    private_elsewhere: Mapping[str, Observed[bool]] = field(default_factory=dict)
    ssh_allowed: Observed[bool] = NOT_ASKED
    iap_allowed: Observed[bool] = NOT_ASKED
    bucket: Observed[Bucket] = NOT_ASKED
    lacking: Observed[tuple[str, ...]] = NOT_ASKED
    secrets: Mapping[str, Observed[tuple[str, ...]]] = field(default_factory=dict)
    data: Mapping[str, Observed[bool]] = field(default_factory=dict)
    unasked: Unknown | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that the rules look at."""

    computer: Computer = field(default_factory=Computer)
    file: File = field(default_factory=File)
    local: Local = field(default_factory=Local)
    google: Google = field(default_factory=Google)


class Group(Enum):
    """The subject of a rule; the value is its heading."""

    COMPUTER = "This computer"
    FILE = "Deployment file"
    LOCAL = "Local cloud"
    GOOGLE = "Google Cloud"


@dataclass(frozen=True)
class RawDoctorFinding:
    """What a rule's function has found, and what to do if it is not fine."""

    level: Level
    message: str
    hint: str = ""


def ok(message: str) -> RawDoctorFinding:
    """Return the finding "fine" with what was found."""
    return RawDoctorFinding(Level.OK, message)


def warn(message: str, hint: str) -> RawDoctorFinding:
    """Return the finding "likely to hurt", with what to do."""
    return RawDoctorFinding(Level.WARN, message, hint)


def stop(message: str, hint: str) -> RawDoctorFinding:
    """Return the finding "not to be started like this", with what to do."""
    return RawDoctorFinding(Level.STOP, message, hint)


def unknown(message: str, hint: str) -> RawDoctorFinding:
    """Return the finding that something is unknown; *hint* may be empty if another finding has the cause."""
    return RawDoctorFinding(Level.UNKNOWN, message, hint)


@dataclass(frozen=True)
class DoctorFinding:
    """Say what one *rule*, given by its id, has found: how bad it is, what it is and what to do."""

    rule: str
    group: Group
    level: Level
    message: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as `--json` prints it."""
        body = asdict(self)
        return {**body, "group": self.group.value, "level": self.level.value}


Find = Callable[[Facts], RawDoctorFinding]


@dataclass(frozen=True)
class DoctorRule:
    """Tie a stable *id* to the function that finds; its docstring is the text in docs/doctor.md."""

    id: str
    group: Group
    find: Find

    def __call__(self, facts: Facts) -> DoctorFinding:
        """Return what the rule finds, with its id and group."""
        found = self.find(facts)
        return DoctorFinding(self.id, self.group, found.level, found.message, found.hint)


def rule(name: str, group: Group) -> Callable[[Find], DoctorRule]:
    """Return a decorator that turns a function into the rule *name* of *group*."""
    return lambda find: DoctorRule(name, group, find)


def rule_of_file(
    name: str, group: Group
) -> Callable[[Callable[[Facts, Spec], RawDoctorFinding]], DoctorRule]:
    """Return a decorator like `rule`, for a function that needs a valid deployment file; else it is skipped."""

    def decorate(find: Callable[[Facts, Spec], RawDoctorFinding]) -> DoctorRule:
        @wraps(find)
        def with_spec(facts: Facts) -> RawDoctorFinding:
            if facts.file.spec is not None:
                return find(facts, facts.file.spec)
            # A refused file is reported once, by its own rule; all others would only repeat it.
            if facts.file.path:
                return unknown("the deployment file is refused", "see `file` above")
            return unknown("there is no deployment file to look at", "tpuctl init")

        return DoctorRule(name, group, with_spec)

    return decorate
