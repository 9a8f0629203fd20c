"""
Load Google's libraries, at first use, without the parts that we do not need.

`import google.cloud.compute_v1` runs an `__init__` that imports every service. That took 2.1 s of CPU time in
each command, on a busy core; with the three services that are used it is 1.1 s (google-cloud-compute 1.57).
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

UNUSED = "aiohttp"


def imported(name: str) -> Any:
    """
    Import a module of Google's without aiohttp, which it imports for asynchronous calls if installed.

    aiohttp takes a third of the time of `import google.cloud.tpu_v2` (google-auth 2.62). Other code can still
    import it before or after. A release that fails without it gets it.
    """
    if UNUSED in sys.modules:
        return import_module(name)
    sys.modules[UNUSED] = None  # type: ignore[assignment] # for import, this says that there is none
    try:
        return import_module(name)
    except ImportError:
        pass
    finally:
        if sys.modules.get(UNUSED) is None:
            sys.modules.pop(UNUSED, None)
    return import_module(name)


PACKAGE = "google.cloud.compute_v1"


def client_class(service: str, name: str) -> Any:
    """
    Return a client's class, for example `client_class("instances", "InstancesClient")`.

    It is the class of `google.cloud.compute_v1`, also if other code imports that before or after.
    """
    if PACKAGE not in sys.modules:
        _put_off()
    return getattr(imported(f"{PACKAGE}.services.{service}"), name)


def _put_off() -> None:
    """Register the package without running its `__init__`, which runs when one of its names is first used."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    package, loader = module_from_spec(spec), spec.loader

    def whole(name: str) -> Any:
        if find_spec(f"{PACKAGE}.{name}"):
            # A submodule such as `types` is found by the import itself.
            raise AttributeError(name)
        vars(package).pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, name)

    vars(package)["__getattr__"] = whole
    parent, _, name = PACKAGE.rpartition(".")
    setattr(import_module(parent), name, sys.modules.setdefault(PACKAGE, package))
