"""
The official clients: made when first needed, for Google or for a local cloud, each call with a limit.

Importing the three libraries takes 1.2 to 1.8 s, most of it for compute, and threads do not shorten it:
the time is spent in Python itself. So each is imported by the first adapter that needs it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.errors import AuthError, UsageError
from orchestrator.google.client_errors import translated
from orchestrator.google.compute_clients import client_class
from orchestrator.google.exchange_recorder import let_hear
from orchestrator.google.lean_imports import imported
from orchestrator.google.node_extras import read_beside
from orchestrator.google.unknown_types import step_over_unknown_types

T = TypeVar("T")

RATE_SECONDS = 30.0
"""Seconds for which a change of an object that came too soon is repeated."""
UPLOAD_SECONDS = 300.0
"""Seconds for which the upload of a file is tried again."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# These silently redirect the storage client, so they must not be set.
_DIVERTING = ("STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
# These make sense for Google only: client certificates, other universes, another payer.
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
    Say which cloud to talk to.

    *project* may be empty: then it comes from the credentials. *endpoint* None is Google with
    application default credentials; a URL such as http://127.0.0.1:8080 is a local cloud without
    credentials. *call_timeout* bounds each wait of one HTTP request, in seconds; *read_retry* is how
    long, in seconds, a reading call may be repeated in all (0: never). Mutating calls are never repeated
    here. *inside* says that this computer is a machine of the same network, *relay* is where a local cloud's
    Identity-Aware Proxy listens. *adapter* is a requests transport adapter that answers for *endpoint*
    in-process. *lists*, a ZoneLists, is given to all clouds that only look, so that they share what their
    zones show. *impersonate* is the e-mail of a service account to act as.
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
    """Hold the clients of one cloud; safe to share between threads."""

    def __init__(self, settings: CloudSettings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    @property
    def project(self) -> str:
        """Return the project; raise UsageError when neither the settings nor the credentials name one."""
        project = self.settings.project or ("" if self.settings.endpoint else self._login()[1])
        if not project:
            hint = "Set project in tpuctl.yaml or GOOGLE_CLOUD_PROJECT, then run: tpuctl plan"
            raise UsageError("No project is set.", hint=hint, changed="Nothing was changed.")
        return project

    @property
    def credentials(self) -> Any:
        """
        Return application default credentials, or anonymous ones for a local cloud.

        Those of a user are charged to our project, else they would be to gcloud's (docs/facts.md 2.7).

        Raise AuthError when there are none. Rehearsals stay anonymous: other credentials of google-auth
        call Google in the background (docs/facts.md 6.1).
        """
        if self.settings.endpoint:
            from google.auth.credentials import AnonymousCredentials

            return AnonymousCredentials()
        return self._once("credentials", lambda: self._acting(self._login()[0]))

    def _acting(self, login: Any) -> Any:
        import google.auth.impersonated_credentials as impersonated
        import google.oauth2.credentials as user

        if self.settings.impersonate:
            return impersonated.Credentials(login, self.settings.impersonate, target_scopes=[SCOPE])
        if isinstance(login, user.Credentials) and not login.quota_project_id:
            return login.with_quota_project(self.project)
        return login

    @property
    def mutating(self) -> Mapping[str, Any]:
        """Return the limits of a call that changes something: one try, the loop repeats."""
        return {"timeout": self.settings.call_timeout, "retry": None}

    @property
    def reading(self) -> Mapping[str, Any]:
        """Return the limits of a call that only reads: repeated for a short while on transient errors."""
        return {"timeout": self.settings.call_timeout, "retry": self._once("retry", self._retry)}

    @property
    def spaced(self) -> Mapping[str, Any]:
        """
        Return the limits of a call that changes an object: refused for its rate, it is asked again for 30 s.

        A 429 says that nothing was changed, so to repeat it is safe, with a precondition or without.
        """
        return {"timeout": self.settings.call_timeout, "retry": self._once("spaced", self._spaced)}

    @property
    def uploading(self) -> Mapping[str, Any]:
        """Return the limits of a call that sends a file under a precondition, which makes each repetition safe."""
        return {"timeout": self.settings.call_timeout, "retry": self._once("uploads", self._uploads)}

    @property
    def tpu(self) -> Any:
        """Return the `tpu_v2.TpuClient`, over REST; its default would be gRPC."""
        return self._once("tpu", self._tpu)

    @property
    def instances(self) -> Any:
        """
        Return the `compute_v1.InstancesClient`; use its `*_unary` calls only.

        The futures of the others poll Google's own endpoint whatever the settings (docs/facts.md 2.1).
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
        """Return the `storage.Client`."""
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
        read_beside(client.transport._session)  # noqa: SLF001
        step_over_unknown_types(client.transport._session)  # noqa: SLF001
        return self._kept_local(client, client.transport._session)  # noqa: SLF001

    def _compute(self, service: str, name: str) -> Any:
        make = client_class(service, name)
        client = make(credentials=self.credentials, client_options=self._options())
        return self._kept_local(client, client.transport._session)  # noqa: SLF001

    def _storage(self) -> Any:
        make = imported("google.cloud.storage").Client
        client = make(self.project, credentials=self.credentials, client_options=self._options())
        # With it the client asks for buckets in threads of its own, for telemetry (docs/facts.md 3.2).
        client._bucket_metadata_cache = None  # noqa: SLF001
        if self.settings.endpoint:
            # GOOGLE_API_USE_MTLS_ENDPOINT=always is read at each request and takes precedence over api_endpoint.
            client._connection.API_BASE_MTLS_URL = self.settings.endpoint  # noqa: SLF001
        return self._kept_local(client, client._http)  # noqa: SLF001

    def _kept_local(self, client: Any, session: Any) -> Any:
        """
        Keep a local cloud's requests away from proxies and ~/.netrc, and mount the in-process adapter.

        The sessions are private names of the clients: there is no public way to either setting.
        """
        let_hear(session)
        if self.settings.endpoint:
            session.trust_env = False
        if self.settings.endpoint and self.settings.adapter is not None:
            session.mount(self.settings.endpoint, self.settings.adapter)
        return client

    def _spaced(self) -> Any:
        if self.settings.read_retry <= 0:
            return None
        from google.api_core.retry import Retry

        return Retry(_too_soon, initial=0.5, maximum=4.0, multiplier=1.5, timeout=RATE_SECONDS)

    def _retry(self) -> Any:
        if self.settings.read_retry <= 0:
            return None
        from google.api_core.retry import Retry

        return Retry(_transient(), initial=0.2, maximum=2.0, multiplier=2.0, timeout=self.settings.read_retry)

    def _uploads(self) -> Any:
        if self.settings.read_retry <= 0:
            return None
        from google.api_core.retry import Retry

        transient = _transient()
        return Retry(
            lambda error: transient(error) or _too_soon(error),
            initial=0.2, maximum=2.0, multiplier=2.0, timeout=UPLOAD_SECONDS,
        )  # fmt: skip


def _opened(make: Callable[[], T]) -> T:
    """Make a client; credentials of another universe than the client's are refused with a ValueError."""
    what = "log in to Google Cloud"
    try:
        with translated(what):
            return make()
    except ValueError as error:
        hint = "Check GOOGLE_CLOUD_UNIVERSE_DOMAIN and the credentials in use."
        raise AuthError(f"{what}: {error}", hint=hint, changed="Nothing was changed.") from error


def _default_login() -> tuple[Any, str]:
    import google.auth

    credentials, project = google.auth.default(scopes=[SCOPE])
    return credentials, project or ""


@contextmanager
def _environment(local: bool) -> Iterator[None]:
    """
    Hide the variables that would send a client elsewhere, while it is being made.

    Clients read them in their constructors, with one exception that `Clients` handles itself.
    """
    with _environment_lock:
        hidden = _DIVERTING + (_GOOGLE_ONLY if local else ())
        kept = {name: os.environ.pop(name) for name in hidden if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)


def _too_soon(error: BaseException) -> bool:
    from google.api_core.exceptions import TooManyRequests
    from google.cloud.storage.exceptions import InvalidResponse

    # Uploads are refused with an exception of their own, which becomes the usual one later.
    uploading = isinstance(error, InvalidResponse) and error.response.status_code == 429
    return uploading or isinstance(error, TooManyRequests)


def _transient() -> Callable[[BaseException], bool]:
    import requests
    from google.api_core import exceptions as api
    from google.api_core.retry import if_exception_type
    from google.auth.exceptions import TransportError

    found: Callable[[BaseException], bool] = if_exception_type(
        api.InternalServerError,
        api.BadGateway,
        api.ServiceUnavailable,
        api.GatewayTimeout,
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        TransportError,
    )
    return found
