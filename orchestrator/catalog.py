"""
The catalogue that ships with the package, read once when first needed.
"""

from functools import cache
from importlib.resources import files

from orchestrator.core.catalog import TABLES, Catalog, build


@cache
def load_catalog() -> Catalog:
    """
    Return the catalogue built from `orchestrator/data/*.csv`.
    """
    folder = files("orchestrator") / "data"
    return build({name: (folder / f"{name}.csv").read_text(encoding="utf-8") for name in TABLES})
