"""What the tests of examples/jax-lm share: a small model, one thread, one folder of compiled programs, a bucket."""

import functools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_json import route
from tests.emulator.http_fixture import serve
from tests.emulator.storage_kit import a_storage, routed

COMMAND = "exec sh venv.sh python train.py"


def settings(steps: int, devices: int, cache: Path) -> dict[str, str]:
    """Return the variables of a short run with *devices* in each process."""
    flags = (f"--xla_force_host_platform_device_count={devices}", "--xla_cpu_multi_thread_eigen=false")
    return {
        "JAX_LM_STEPS": str(steps), "JAX_LM_SAVE_EVERY": "8", "JAX_LM_LOG_EVERY": "1", "JAX_LM_BATCH": "16",
        "JAX_LM_LAYERS": "1", "JAX_LM_WIDTH": "32", "OMP_NUM_THREADS": "1", "XLA_FLAGS": " ".join(flags),
        # Compiling takes most of a short run.
        "JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }  # fmt: skip


class DataBucket:
    """The bucket gs://data; it can have several addresses, and remembers who stored what."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, str]] = []
        self._router = routed(a_storage())

    @contextmanager
    def served(self, *names: str) -> Iterator[list[dict[str, str]]]:
        """Give each of *names* an address of its own; return the variables that lead there."""
        with ExitStack() as stack:
            answers = [functools.partial(self._answer, name) for name in names]
            urls = [stack.enter_context(serve(self._router, answer)) for answer in answers]
            yield [_places(url) for url in urls]

    def committed(self) -> list[tuple[str, str]]:
        """Return who declared which step complete, in order."""
        found = (
            (who, re.fullmatch(r"checkpoints/(\d+)/commit_success.txt", name)) for who, name in self.stored
        )
        return [(who, match[1]) for who, match in found if match]

    def _answer(self, name: str, request: Request) -> Response:
        response = route(self._router, request)
        if request.method in {"POST", "PUT"} and b'"storage#object"' in response.body:
            self.stored.append((name, json.loads(response.body)["name"]))
        return response


def _places(url: str) -> dict[str, str]:
    return {
        "STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url, "NO_GCE_CHECK": "true",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false", "GOOGLE_CLOUD_PROJECT": "p",
    }  # fmt: skip
