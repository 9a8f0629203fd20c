"""
What each error code means: one code, one meaning, one class.
"""

from orchestrator.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    DamagedRecordError,
    DiskError,
    HostKeyError,
    JobFailedError,
    LeaseHeldError,
    LeftoverError,
    LocalCloudError,
    NoGcloudError,
    NotFoundError,
    PreconditionError,
    QuotaError,
    RemoteError,
    SpendStopError,
    TpuctlError,
    TransientError,
    UnknownCloudError,
    UsageError,
)

CODES: dict[str, tuple[type[TpuctlError], str]] = {
    "TPU-000": (TpuctlError, "anything without a code of its own, and bugs of tpuctl"),
    "TPU-100": (UsageError, "a wrong flag, value, file or folder"),
    "TPU-101": (UsageError, "an unknown command or option, or a missing argument"),
    "TPU-102": (UsageError, "a question would come and nobody is at a terminal: add --yes"),
    "TPU-110": (UsageError, "the deployment file, a TPUCTL_ variable or --set is wrong; places are named"),
    "TPU-111": (UsageError, "no tpuctl.yaml here or in a folder above"),
    "TPU-112": (UsageError, "the deployment file cannot be read"),
    "TPU-113": (UsageError, "no such recipe"),
    "TPU-114": (UsageError, "a file or folder is there already and would be overwritten"),
    "TPU-115": (UsageError, "the plan file cannot be read"),
    "TPU-120": (UsageError, "the cloud refuses a value of the request"),
    "TPU-121": (UsageError, "no such zone or type for this project"),
    "TPU-130": (UsageError, "the deployment is not up"),
    "TPU-131": (UsageError, "the deployment has no TPU at present"),
    "TPU-132": (UsageError, "no such worker"),
    "TPU-133": (UsageError, "the deployment file has another name than tpuctl.yaml"),
    "TPU-134": (UsageError, "the deployment file asks for no such sidecar"),
    "TPU-135": (UsageError, "a port of this computer is taken"),
    "TPU-136": (UsageError, "the VM cannot run the loop: there is none, or it was made without the scope"),
    "TPU-137": (UsageError, "this computer knows no such deployment, or several"),
    "TPU-138": (UsageError, "an optional part of tpuctl is not installed"),
    "TPU-139": (UsageError, "another project or login brought the deployment up"),
    "TPU-140": (UsageError, "the bucket lies in another region than the TPU"),
    "TPU-141": (UsageError, "job.source leads out of the project"),
    "TPU-142": (UsageError, "the source folder holds a key"),
    "TPU-143": (UsageError, "the deployment file is another user's, or others can replace it"),
    "TPU-144": (UsageError, "a file or folder of job.data is missing, changes, or cannot be sent"),
    "TPU-200": (AuthError, "credentials or permissions do not suffice"),
    "TPU-201": (AuthError, "nobody is logged in"),
    "TPU-202": (AuthError, "a permission is missing"),
    "TPU-203": (AuthError, "an API of the project is off"),
    "TPU-250": (AuthError, "a secret, or the wanted version of it, is missing or cannot be read"),
    "TPU-251": (AuthError, "the machines' account may not read a secret"),
    "TPU-252": (AuthError, "the machine was made without the scope that reading secrets needs"),
    "TPU-300": (CapacityError, "the zone has no such machine now"),
    "TPU-301": (CapacityError, "the reservation has no machine left"),
    "TPU-350": (QuotaError, "the project may not have more"),
    "TPU-400": (TransientError, "the cloud failed; the same call may succeed in a moment"),
    "TPU-401": (TransientError, "the network failed"),
    "TPU-402": (TransientError, "too many calls at once"),
    "TPU-403": (TransientError, "data arrived damaged and were refused"),
    "TPU-404": (NotFoundError, "the cloud says that it does not exist"),
    "TPU-405": (TransientError, "the machine was taken away while it was made"),
    "TPU-406": (TransientError, "it is not ready yet"),
    "TPU-408": (ConflictError, "it is busy with another operation"),
    "TPU-409": (ConflictError, "the name is taken"),
    "TPU-410": (ConflictError, "the plan file does not fit any more; what has moved is named"),
    "TPU-412": (PreconditionError, "somebody wrote first"),
    "TPU-450": (DiskError, "this computer's disk is full, or a file may not be read or written"),
    "TPU-499": (UnknownCloudError, "an answer of the cloud that tpuctl does not know"),
    "TPU-500": (RemoteError, "a machine cannot be reached over SSH, or a command failed there"),
    "TPU-501": (NoGcloudError, "gcloud, which leads to a machine without external address, is not installed"),
    "TPU-510": (HostKeyError, "a machine shows an unknown or a changed host key"),
    "TPU-600": (LeftoverError, "something is left; it is listed"),
    "TPU-601": (LeaseHeldError, "another tpuctl works on this deployment"),
    "TPU-610": (DamagedRecordError, "the deployment record is damaged; journal and labels replace it"),
    "TPU-700": (SpendStopError, "the budget or the time to live is used up"),
    "TPU-800": (JobFailedError, "the job failed too often without progress"),
    "TPU-900": (LocalCloudError, "the local cloud cannot start, or refuses a request"),
}


def error_table() -> str:
    """
    Return the table of docs/errors.md.
    """
    rows = [
        f"| {code} | {kind.exit_code} | {kind.retry.value} | {text} |" for code, (kind, text) in CODES.items()
    ]
    return "\n".join(["| code | exit code | next try | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
