"""
Create the official clients when first needed, for Google or for a local cloud, with limits for each call.

Importing the three libraries takes 1.2 to 1.8 s, most of it for compute. Threads do not shorten it, because
the time is spent in Python itself. So the first adapter that needs one imports it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.errors import AuthError, UsageError
from orchestrator.google.answer_hooks import (
    collect_maintenance,
    leave_out_known,
    notify_of_answers,
    step_over_unknown_types,
)
from orchestrator.google.client_errors import translated
from orchestrator.google.lean_imports import client_class, imported

T = TypeVar("T")

RATE_TIMEOUT = 30.0
"""Seconds to repeat a change of an object that was refused for its rate."""
UPLOAD_TIMEOUT = 300.0
"""Seconds to repeat the upload of a file."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# These silently redirect the storage client, so they must not be set.
_DIVERTING = ("STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
# For Google only: client certificates, other universes, another payer.
_GOOGLE_ONLY = (
    "GOOGLE_API_USE_CLIENT_CERTIFICATE",
    "GOOGLE_API_USE_MTLS_ENDPOINT",
    "GOOGLE_API_CERTIFICATE_CONFIG",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
)
_environment_lock = threading.RLock()


@dataclass(frozen=True)
class CloudSettings:
    """
    Say which cloud to use.

    *project* may be empty: then it comes from the credentials. *endpoint* None means Google with application
    default credentials; a URL such as http://127.0.0.1:8080 is a local cloud without credentials.
    *call_timeout* limits each wait of one HTTP request, in seconds; *read_retry* is how long a reading call
    may be repeated in total, in seconds (0: never). Mutating calls are never repeated here. *inside* says
    that this computer is in the machines' network, *relay* is the address of a local cloud's Identity-Aware
    Proxy. *adapter* is a requests transport adapter that answers for *endpoint* in-process. *lists*, a
    ZoneLists, is shared by all clouds of one process. *impersonate* is the e-mail of a service account to act
    as.
    """

    project: str = ""
    endpoint: str | None = None
    ssh_port: int = 22
    call_timeout: float = 30.0
    read_retry: float = 5.0
    adapter: Any = None
    lists: Any = None
    inside: bool = False
    relay: str = ""
    impersonate: str = ""


class Clients:
    """The clients of one cloud; safe to share between threads."""

    def __init__(self, settings: CloudSettings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    @property
    def project(self) -> str:
        """Return the project; raise UsageError if neither the settings nor the credentials name one."""
        project = self.settings.project or ("" if self.settings.endpoint else self._login()[1])
        if not project:
            hint = "set project in tpuctl.yaml or GOOGLE_CLOUD_PROJECT, then run: tpuctl plan"
            raise UsageError("no project is set", hint=hint, changed="nothing was changed")
        return project

    @property
    def credentials(self) -> Any:
        """
        Return application default credentials, or anonymous ones for a local cloud.

        A user's credentials are charged to our project; otherwise calls are charged to gcloud's
        (docs/facts.md 2.7). Raise AuthError if there are none. Rehearsals stay anonymous, because other
        credentials of google-auth call Google in the background (docs/facts.md 6.1).
        """
        if self.settings.endpoint:
            return imported("google.auth.credentials").AnonymousCredentials()
        return self._once("credentials", lambda: self._acting(self._login()[0]))

    def _acting(self, login: Any) -> Any:
        user = imported("google.oauth2.credentials")
        if self.settings.impersonate:
            impersonated = imported("google.auth.impersonated_credentials")
            return impersonated.Credentials(login, self.settings.impersonate, target_scopes=[SCOPE])
        if isinstance(login, user.Credentials) and not login.quota_project_id:
            return login.with_quota_project(self.project)
        return login

    @property
    def mutating(self) -> Mapping[str, Any]:
        """Return the limits of a call that changes something: one try, which the loop repeats."""
        return {"timeout": self.settings.call_timeout, "retry": None}

    @property
    def reading(self) -> Mapping[str, Any]:
        """Return the limits of a call that only reads: repeated on transient errors for *read_retry* seconds."""
        return self._repeated("reading", _is_transient, self.settings.read_retry)

    @property
    def spaced(self) -> Mapping[str, Any]:
        """
        Return the limits of a call that changes an object: repeated for RATE_TIMEOUT if refused for its rate.

        A 429 means that nothing was changed, so the repetition is safe, with or without a precondition.
        """
        return self._repeated("spaced", _too_soon, RATE_TIMEOUT, initial=0.5, maximum=4.0, multiplier=1.5)

    @property
    def uploading(self) -> Mapping[str, Any]:
        """Return the limits of a call that uploads a file with a precondition, which makes repetitions safe."""
        return self._repeated("uploading", _transient_or_too_soon, UPLOAD_TIMEOUT)

    def _repeated(
        self, name: str, repeatable: Callable[[BaseException], bool], timeout: float, *,
        initial: float = 0.2, maximum: float = 2.0, multiplier: float = 2.0,
    ) -> Mapping[str, Any]:  # fmt: skip
        def policy() -> Any:
            if self.settings.read_retry <= 0:
                return None
            return imported("google.api_core.retry").Retry(
                repeatable, initial=initial, maximum=maximum, multiplier=multiplier, timeout=timeout
            )

        return {"timeout": self.settings.call_timeout, "retry": self._once(name, policy)}

    @property
    def tpu(self) -> Any:
        """Return the `tpu_v2.TpuClient`, over REST; its default would be gRPC."""
        return self._once("tpu", self._tpu)

    @property
    def instances(self) -> Any:
        """
        Return the `compute_v1.InstancesClient`; use its `*_unary` calls only.

        The futures of the other calls poll Google's own endpoint whatever the settings (docs/facts.md 2.1).
        """
        return self._once("instances", lambda: self._compute("instances", "InstancesClient"))

    @property
    def zone_operations(self) -> Any:
        """Return the `compute_v1.ZoneOperationsClient` for the same endpoint as the instances."""
        return self._once("zone_operations", lambda: self._compute("zone_operations", "ZoneOperationsClient"))

    @property
    def projects(self) -> Any:
        """Return the `compute_v1.ProjectsClient`."""
        return self._once("projects", lambda: self._compute("projects", "ProjectsClient"))

    def compute(self, service: str, name: str) -> Any:
        """Return another client of Compute Engine, such as `compute("regions", "RegionsClient")`."""
        return self._once(service, lambda: self._compute(service, name))

    @property
    def storage(self) -> Any:
        """Return the `storage.Client`, without its background telemetry."""
        return self._once("storage", self._storage)

    def _once(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._made:
                with _environment(self.settings.endpoint is not None):
                    self._made[name] = _opened(make)
            made: T = self._made[name]
            return made

    def _login(self) -> tuple[Any, str]:
        return self._once("login", _default_login)

    def _options(self) -> dict[str, str]:
        return {"api_endpoint": self.settings.endpoint} if self.settings.endpoint else {}

    def _tpu(self) -> Any:
        make = imported("google.cloud.tpu_v2").TpuClient
        client = make(credentials=self.credentials, transport="rest", client_options=self._options())
        # First: nodes that are removed here need no work in the other hooks.
        leave_out_known(client.transport._session)  # noqa: SLF001
        collect_maintenance(client.transport._session)  # noqa: SLF001
        step_over_unknown_types(client.transport._session)  # noqa: SLF001
        return self._local_only(client, client.transport._session)  # noqa: SLF001

    def _compute(self, service: str, name: str) -> Any:
        make = client_class(service, name)
        client = make(credentials=self.credentials, client_options=self._options())
        return self._local_only(client, client.transport._session)  # noqa: SLF001

    def _storage(self) -> Any:
        make = imported("google.cloud.storage").Client
        client = make(self.project, credentials=self.credentials, client_options=self._options())
        # With it the client would request buckets in threads of its own, for telemetry (docs/facts.md 3.2).
        client._bucket_metadata_cache = None  # noqa: SLF001
        if self.settings.endpoint:
            # GOOGLE_API_USE_MTLS_ENDPOINT=always is read at each request and takes precedence over api_endpoint.
            client._connection.API_BASE_MTLS_URL = self.settings.endpoint  # noqa: SLF001
        return self._local_only(client, client._http)  # noqa: SLF001

    def _local_only(self, client: Any, session: Any) -> Any:
        """
        Keep a local cloud's requests away from proxies and ~/.netrc, and mount the in-process adapter.

        The sessions are private attributes of the clients; no public way exists to either setting.
        """
        notify_of_answers(session)
        if self.settings.endpoint:
            session.trust_env = False
        if self.settings.endpoint and self.settings.adapter is not None:
            session.mount(self.settings.endpoint, self.settings.adapter)
        return client


def _opened(make: Callable[[], T]) -> T:
    """Create a client; raise AuthError for credentials of another universe (the client raises ValueError)."""
    what = "log in to Google Cloud"
    try:
        with translated(what):
            return make()
    except ValueError as error:
        hint = "check GOOGLE_CLOUD_UNIVERSE_DOMAIN and the credentials in use"
        raise AuthError(f"{what}: {error}", hint=hint, changed="nothing was changed") from error


def _default_login() -> tuple[Any, str]:
    credentials, project = imported("google.auth").default(scopes=[SCOPE])
    return credentials, project or ""


def machine_account() -> str | None:
    """Return the service account from the metadata server, as google-auth does; None if not on a Google machine."""
    try:
        credentials, _ = imported("google.auth").default()
    except imported("google.auth.exceptions").GoogleAuthError:
        return None
    return str(getattr(credentials, "service_account_email", ""))


@contextmanager
def _environment(local: bool) -> Iterator[None]:
    """
    Hide the variables that would redirect a client, while it is created.

    Clients read them in their constructors, with one exception that `Clients` handles itself.
    """
    with _environment_lock:
        hidden = _DIVERTING + (_GOOGLE_ONLY if local else ())
        removed = {name: os.environ.pop(name) for name in hidden if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(removed)


def _too_soon(error: BaseException) -> bool:
    # Within its retries, the storage client raises an exception of its own for a refused upload.
    refused = imported("google.cloud.storage.exceptions").InvalidResponse
    uploading = isinstance(error, refused) and error.response.status_code == 429
    return uploading or isinstance(error, imported("google.api_core.exceptions").TooManyRequests)


def _is_transient(error: BaseException) -> bool:
    api, requests = imported("google.api_core.exceptions"), imported("requests")
    kinds = (
        api.InternalServerError,
        api.BadGateway,
        api.ServiceUnavailable,
        api.GatewayTimeout,
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        imported("google.auth.exceptions").TransportError,
    )
    return isinstance(error, kinds)


def _transient_or_too_soon(error: BaseException) -> bool:
    return _is_transient(error) or _too_soon(error)
