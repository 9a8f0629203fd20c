"""
python -m benchmarks.install: what `pip install tpuctl` brings, beside the six packages that it must have.

Both are installed anew by uv from the package index that the computer uses, without compiled files. The part
`install` of docs/performance.md is written unless --print is given.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import Distribution, distributions
from pathlib import Path

from benchmarks import document
from benchmarks.table import goal, table, words

REPO = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
FLOOR = (
    "google-cloud-tpu", "google-cloud-compute", "google-cloud-storage", "click", "jinja2", "fabric",
)  # fmt: skip
GOAL = 1.15
SHOWN = 8
"""Packages beyond the floor that the table names, the largest first."""


def main() -> None:
    """Install, weigh, print, and write the table."""
    with tempfile.TemporaryDirectory(prefix="bench-install-") as name:
        folder = Path(name)
        subprocess.run(
            [UV, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(REPO)], check=True
        )
        (wheel,) = (folder / "dist").glob("*.whl")
        floor = installed(folder / "floor", *FLOOR)
        base = installed(folder / "base", str(wheel))
        everything = installed(folder / "all", f"tpuctl[local,dashboard,metrics,notify] @ file://{wheel}")
    text = page(floor, base, everything)
    print(text)
    if "--print" not in sys.argv:
        document.put("install", text)


def installed(folder: Path, *wanted: str) -> Counter[str]:
    """Install into a virtual environment; return the bytes of each package's files."""
    python = str(folder / "bin" / "python")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *wanted], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    return Counter({one.metadata["Name"]: _bytes(one) for one in distributions(path=[str(site)])})


def _bytes(one: Distribution) -> int:
    files = (Path(str(one.locate_file(file))) for file in one.files or ())
    return sum(file.stat().st_size for file in files if file.is_file())


def page(floor: Counter[str], base: Counter[str], everything: Counter[str]) -> str:
    """Return the table and what it says about the goal."""
    about = words(
        "Bytes of the files that are installed, without compiled ones. The *floor* is what the packages that the",
        f"product must have bring by themselves: {', '.join(f'`{name}`' for name in FLOOR)}.",
    )
    rows = [
        (what, len(found), f"{found.total() / 1e6:.1f}", f"{found.total() / floor.total():.2f}")
        for what, found in (("floor", floor), ("tpuctl", base), ("tpuctl with all extras", everything))
    ]
    more = Counter({name: size for name, size in base.items() if name not in floor})
    named = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in more.most_common(SHOWN))
    beyond = (
        f"Beyond the floor, MB: {named}. pydantic judges the deployment file; rich, with pygments, draws "
    )
    beyond += "tables."
    heads = ("installed", "packages", "MB", "ratio")
    ratio = base.total() / floor.total()
    return "\n\n".join(
        (
            "## Size of an installation",
            about,
            table(heads, rows),
            goal("tpuctl", ratio, GOAL, "of the floor", beyond),
        )
    )


if __name__ == "__main__":
    main()
