"""Show which receivers got the test notification."""

from collections.abc import Mapping

from orchestrator.cli.console import print_json, put
from orchestrator.errors import TpuctlError


def show(errors: Mapping[str, TpuctlError | None], *, as_json: bool) -> None:
    """Print a line for each receiver."""
    if as_json:
        results = [
            {"receiver": name, "delivered": e is None, "message": e.message if e else ""}
            for name, e in errors.items()
        ]
        print_json("notify", {"results": results})
        return
    for name, error in errors.items():
        # Receivers by number, since an address may be a secret; errors do not repeat it either.
        put(f"{name}: {'delivered' if error is None else f'not delivered: {error.message}'}")
        if error is not None and error.next_step:
            put(f"  next:  {error.next_step}")
