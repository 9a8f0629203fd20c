"""Google's clients without what only their asynchronous halves use."""

import sys
from importlib import import_module
from typing import Any

UNUSED = "aiohttp"


def imported(name: str) -> Any:
    """
    Import a module of Google's without aiohttp, which it takes for asynchronous calls where it is installed.

    That is a third of the time of `import google.cloud.tpu_v2` (google-auth 2.62). Whoever imports aiohttp
    before or after has it. A release that cannot do without it gets it.
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
