"""Load the catalogue that is part of the package, once, when first needed."""

from functools import cache
from importlib.resources import files

from orchestrator.domain.catalog import TABLES, Catalog, build

# One for the process: a plan and its budget must use the same prices.
_IN_USE: list[Catalog] = []


def load_catalog() -> Catalog:
    """Return the catalogue in use: the shipped one, or the one with refreshed prices."""
    return _IN_USE[0] if _IN_USE else shipped_catalog()


def use_catalog(catalog: Catalog) -> None:
    """Use *catalog* in this whole process."""
    _IN_USE[:] = [catalog]


@cache
def shipped_catalog() -> Catalog:
    """Return the catalogue built from `orchestrator/data/*.csv`."""
    folder = files("orchestrator") / "data"
    return build({name: (folder / f"{name}.csv").read_text(encoding="utf-8") for name in TABLES})
