"""
tpuctl init: a first deployment file, or a copy of an example.
"""

import shutil
from pathlib import Path

import click


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--recipe", help="Copy an example: numpy-lm or jax-lm. Default: a commented tpuctl.yaml only.")
@click.option("--name", help="Name of the deployment. Default: the folder's name.")
def command(folder: Path, recipe: str | None, name: str | None) -> None:
    """
    Write a commented tpuctl.yaml into FOLDER, or copy an example that runs as it is.
    """
    from orchestrator.cli.output import say
    from orchestrator.config.load import FILE_NAME, load
    from orchestrator.config.starter import init_text
    from orchestrator.errors import UsageError

    target = folder / FILE_NAME
    if target.exists():
        raise UsageError(
            f"{target} exists already", hint="choose another folder, or remove it first",
            unchanged="nothing was written", code="TPU-114",
        )  # fmt: skip
    if recipe is None:
        chosen = name or _name_of(folder)
        folder.mkdir(parents=True, exist_ok=True)
        target.write_text(init_text(chosen), encoding="utf-8")
    else:
        shutil.copytree(
            _example(recipe), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
        load(target)
    say(f"{target} is written. Next: tpuctl plan")


def examples_folder() -> Path:
    """
    Return where the examples lie: in the wheel's package, or beside it in a checkout.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent / "examples"


def _example(recipe: str) -> Path:
    from orchestrator.core.suggest import did_you_mean
    from orchestrator.errors import UsageError

    known = sorted(path.parent.name for path in examples_folder().glob("*/tpuctl.yaml"))
    if recipe not in known:
        raise UsageError(
            f"there is no recipe {recipe!r}", hint=did_you_mean(recipe, known) or f"choose one of {', '.join(known)}",
            unchanged="nothing was written", code="TPU-113",
        )  # fmt: skip
    return examples_folder() / recipe


def _name_of(folder: Path) -> str:
    """
    Return a deployment name made from the folder's name.
    """
    import re

    base = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")[:40].rstrip("-")
    return base if re.match(r"[a-z]", base) else "my-model"
