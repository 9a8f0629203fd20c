"""Collect facts about login and project: all questions in parallel, each with a time limit."""

import os
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from orchestrator.advice.doctor.facts import Google, Login
from orchestrator.advice.doctor.google import IAP_RANGE
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.clouds import local_settings
from orchestrator.app.this_computer.login_here import credentials_file, gcloud_settings, read_credentials
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.machines import tpu_quota
from orchestrator.domain.observation import Absent, Observed, Present, Unknown
from orchestrator.domain.ports import NetworkInterface
from orchestrator.domain.source.data_spec import bucket_sources
from orchestrator.domain.source.secret_refs import secret_names
from orchestrator.domain.spec import Spec
from orchestrator.emulator.address import address_on_machine, local_folder, read_address
from orchestrator.errors import Retry, TpuctlError
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings, machine_account
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.project_reader import ProjectReader
from orchestrator.google.vms import ComputeVms

TIMEOUT = 15.0
"""Seconds to answer one question, including the import of a client library."""
CALL_TIMEOUT = 6.0
"""Seconds for one call: `doctor` asks all side by side, and a person waits."""
STORAGE = "https://storage.googleapis.com"
SOME_ZONE = "us-central1-a"
"""The zone for questions to the TPU API if no deployment file names one."""

Question = Callable[[], Observed[Any]]
Key = str | tuple[str, str]
"""What a question is about; with a second word, which zone, secret or source of its kind."""
K = TypeVar("K", bound=Key)


def observe_google(choice: Choice, spec: Spec | None) -> Google:
    """Return the facts about the login and the chosen cloud."""
    account, configured = gcloud_settings()
    if choice.cloud == "local":
        return _local(spec, account, configured)
    login = find_login()
    project = (spec.project if spec else "") or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    if not isinstance(login, Present):
        ahead = side_by_side({"ahead": lambda: clock_ahead(STORAGE)})["ahead"]
        return Google(
            login, account, configured, project, ahead, **_nobody(spec, "not asked: there is no login")
        )
    # As the account that `up` acts as, whose permissions differ from the user's.
    acting = (spec.impersonate if spec else "") or ""
    clients = Clients(CloudSettings(project=project, call_timeout=CALL_TIMEOUT, impersonate=acting))
    try:
        project = clients.project
    except TpuctlError as error:
        message = error.message
        return Google(login, account, configured, "", clock_ahead(STORAGE), **_nobody(spec, message))
    return Google(login, account, configured, project, **_asked(clients, spec, project, STORAGE))


def _local(spec: Spec | None, account: str, configured: str) -> Google:
    address = address_on_machine() or read_address(local_folder())
    if address is None:
        message = "not asked: the local cloud does not run"
        unasked = Unknown(message)
        return Google(
            Absent(), account, configured, "local-project", unasked, **_nobody(spec, message), unasked=unasked
        )
    clients = Clients(local_settings(address, call_timeout=CALL_TIMEOUT))
    asked = _asked(clients, spec, address.project, address.endpoint)
    return Google(Absent(), account, configured, address.project, **asked)


def _nobody(spec: Spec | None, message: str) -> dict[str, Any]:
    """Return the answers if no question about the project can be asked: Unknown, with the reason."""
    unknown = Unknown(message)
    zones = spec.tpu.zones if spec else ()
    lists = {"offers": dict.fromkeys(zones, unknown), "runtimes": dict.fromkeys(zones, unknown)}
    firewall = ("private_access", "ssh_allowed", "iap_allowed")
    single = (
        "tpu",
        "compute",
        "storage",
        "machine_account",
        "cpus",
        "tpu_limits",
        "vm_image",
        "vm_machine_type",
        "elsewhere",
        "vms_elsewhere",
        *firewall,
        "bucket",
    )
    held = dict.fromkeys(secret_names(spec) if spec else (), unknown)
    sources = dict.fromkeys(bucket_sources(spec) if spec else (), unknown)
    answers = dict.fromkeys((*single, "lacking"), unknown)
    return {**lists, **answers, "secrets": held, "data": sources}


def _asked(clients: Any, spec: Spec | None, project: str, endpoint: str) -> dict[str, Any]:
    reader = ProjectReader(clients, network_of(spec))
    zone = spec.tpu.zones[0] if spec else SOME_ZONE
    region = names.region_of(zone)
    questions: dict[Key, Question] = {
        "ahead": lambda: clock_ahead(endpoint),
        "tpu": lambda: reader.tpu_api(zone),
        "machine_account": reader.machine_account,
        "storage": reader.storage_api,
        "private_access": lambda: reader.private_access(region),
        "ssh_allowed": reader.ssh_allowed,
        "iap_allowed": lambda: reader.ssh_allowed(IAP_RANGE),
    }
    if spec is not None:
        nodes, label = TpuNodes(clients), names.DEPLOYMENT_LABEL
        questions["elsewhere"] = lambda: nodes.list_all_zones(label, spec.name)
        questions["vms_elsewhere"] = lambda: ComputeVms(clients).list_all_zones(label, spec.name)
        questions |= _of_deployment(reader, spec, GcsBuckets(clients, adopted=spec.bucket.adopt), project)
        questions |= {
            ("access", elsewhere): partial(reader.private_access, elsewhere)
            for elsewhere in names.regions(spec)[1:]
        }
        questions |= {("secret", name): partial(reader.secret_readers, name) for name in secret_names(spec)}
        questions |= {
            ("data", source): partial(reader.holds_objects, source) for source in bucket_sources(spec)
        }
    found = side_by_side(questions)
    offers, runtimes, elsewhere, secrets, data = (
        {key[1]: observed for key, observed in found.items() if isinstance(key, tuple) and key[0] == kind}
        for kind in ("offer", "runtime", "access", "secret", "data")
    )
    lists = {"offers": offers, "runtimes": runtimes, "private_elsewhere": elsewhere, "secrets": secrets}
    lists["data"] = data
    single = {key: observed for key, observed in found.items() if isinstance(key, str)}
    return {**single, "compute": found["machine_account"], **lists}


def network_of(spec: Spec | None) -> NetworkInterface:
    """Return the network that the deployment's machines get."""
    return NetworkInterface(spec.network, spec.subnetwork or "", spec.tags) if spec else NetworkInterface()


def _of_deployment(reader: Any, spec: Spec, buckets: Any, project: str) -> dict[Key, Question]:
    """Return the questions that need a deployment file."""
    name = names.bucket_name(spec, project)
    questions: dict[Key, Question] = {
        "bucket": lambda: buckets.observe(name),
        "lacking": lambda: reader.lacking(name),
    }
    taken = tpu_quota.taken(spec, load_catalog())
    if taken is not None:
        questions["tpu_limits"] = lambda: reader.tpu_limits(taken[1].id, spec.tpu.zones)
    runtime = spec.tpu.runtime
    for zone in spec.tpu.zones:
        questions["offer", zone] = partial(reader.offers, zone, spec.tpu.type)
        if runtime:
            questions["runtime", zone] = partial(reader.has_runtime, zone, runtime)
    vm = spec.vm
    if vm != "none":
        place = names.vm_zone(spec)
        questions["cpus"] = lambda: reader.cpus(names.region_of(place), place, vm.machine_type)
        questions["vm_image"] = lambda: reader.vm_image(vm.machine_type, vm.image or "")
        questions["vm_machine_type"] = lambda: reader.has_machine_type(place, vm.machine_type)
    return questions


def side_by_side(questions: Mapping[K, Question], timeout: float = TIMEOUT) -> dict[K, Observed[Any]]:
    """Ask all questions in parallel; those without an answer after *timeout* seconds are Unknown and abandoned."""
    answers: dict[K, Observed[Any]] = {}

    def ask(name: K, question: Question) -> None:
        try:
            answers[name] = question()
        except Exception as error:  # An error in one question must not hide the other answers.
            answers[name] = Unknown(f"{type(error).__name__}: {error}")

    # Daemon threads, so that a call hanging in a proxy does not delay the end of the command.
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in questions.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = Unknown(f"no answer within {timeout:g} s", hint="check the network and the proxy settings")
    # Iterate over the questions: a late thread may still change the answers.
    return {name: answers.get(name, late) for name in questions}


def clock_ahead(endpoint: str) -> Observed[float]:
    """Return how many seconds this computer's clock is ahead of the server at *endpoint*."""
    # The local cloud is asked directly, since a proxy would answer with its own clock.
    handlers = [urllib.request.ProxyHandler({})] if endpoint.startswith("http://127.") else []
    request = urllib.request.Request(f"{endpoint}/storage/v1/b", method="HEAD")  # noqa: S310 - ours or Google's
    before = time.time()
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=CALL_TIMEOUT) as answer:
            date = answer.headers.get("Date")
    # An error answer has a date too, and without a login it is the usual one.
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
    except OSError as error:
        return Unknown(str(getattr(error, "reason", error)), hint="check the network and the proxy settings")
    if not date:
        return Absent()
    # HTTP dates are in whole seconds, on average half a second too early.
    return Present((before + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5)


def find_login() -> Observed[Login]:
    """Return application default credentials from their file, else from the metadata server."""
    path = credentials_file()
    # google-auth's order: a file takes precedence over the machine's account.
    if path.exists():
        found = read_credentials(path)
        if found is None:
            return Unknown(f"{path} holds no credentials", Retry.PERMANENT)
        kind, account = found
        words = {"authorized_user": "user", "service_account": "service account"}
        return Present(Login(words.get(kind, kind), str(path), account))
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        hint = "unset GOOGLE_APPLICATION_CREDENTIALS, or set it to a file that exists"
        message = f"GOOGLE_APPLICATION_CREDENTIALS names {path}, which does not exist"
        return Unknown(message, Retry.PERMANENT, hint)
    return side_by_side({"login": _of_machine}, CALL_TIMEOUT)["login"]


def _of_machine() -> Observed[Login]:
    """Ask the metadata server of a Google machine for its account, as google-auth does."""
    account = machine_account()
    return Absent() if account is None else Present(Login("machine", "metadata server", account))
