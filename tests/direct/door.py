"""Calls of the model: the same gate as for the wire, and refusals as our errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from orchestrator.emulator.http.error_bodies import error_body
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.gate import admitted, admitted_storage
from orchestrator.emulator.state.kernel import Place
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.world import LocalCloud
from orchestrator.google.error_mapping import judge
from orchestrator.google.refusal import of_answer

T = TypeVar("T")


class Door:
    """Hold one local cloud and make calls of its services; *what* opens the message of an error."""

    def __init__(self, local: LocalCloud, storage: Storage) -> None:
        self.local = local
        self.store = storage
        self.project = local.settings.project

    def tpu(self, what: str, method: str, place: Place, act: Callable[[], T]) -> T:
        """Make a call of the TPU API; errors: ours."""
        with _translated(what, f"/v2/projects/{self.project}/locations/{place.zone}"):
            return admitted(self.local, method, place, act)

    def compute(self, what: str, method: str, place: Place, act: Callable[[], T]) -> T:
        """Make a call of the Compute API; errors: ours."""
        with _translated(what, f"/compute/v1/projects/{self.project}/zones/{place.zone}"):
            return admitted(self.local, method, place, act)

    def storage(self, what: str, method: str, act: Callable[[], T]) -> T:
        """Make a call of the storage API; errors: ours."""

        def alone() -> T:
            with self.store.lock:
                return act()

        with _translated(what, "/storage/v1/b"):
            return admitted_storage(self.local, method, alone)


@contextmanager
def _translated(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except (ApiError, StorageError) as error:
        raise judge(of_answer(error.status, error_body(path, error), path), what) from error
    except ValueError as error:
        reason = "INVALID_ARGUMENT" if path.startswith("/v2/") else "invalid"
        refusal = ApiError(400, reason, f"Invalid value: {error}")
        raise judge(of_answer(400, error_body(path, refusal), path), what) from error
