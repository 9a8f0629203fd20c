"""Check what the program needs on the machine: packages, data, variables, a first start without a checkpoint."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from orchestrator.advice.check.code import Call, Code, Import
from orchestrator.advice.check.findings import RawFinding, SourceFacts, installs, rule
from orchestrator.advice.check.installs import requirement
from orchestrator.advice.check.program import is_local, not_there, program, shell_texts
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.contract.job_variables import unknown
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.source.excluded_paths import ExcludedPath
from orchestrator.domain.source.exposed_services import joined
from orchestrator.domain.spec import Spec

_INSTALLS: Final = re.compile(
    r"\bpip3?\s+install\b|\btpuctl-venv\b|\buv\s+(?:sync|run|pip|add)\b|\bpip\s+sync\b"
)
_OPAQUE: Final = re.compile(
    r"\b(?:conda|mamba|micromamba|poetry|pixi|pipenv|docker|podman|apt|apt-get|nix|make|curl|wget|pdm|hatch|rye)\b"
    r"|git\+|\.whl\b|--find-links|https?://"
)
_MAKES_FILES: Final = re.compile(
    r"\b(?:cd|pushd|git|gsutil|gcloud|cp|mv|ln|tar|unzip|rsync|tee|cat|python3? -c)\b|>"
)
"""Words after which a file may be there that was not pushed, or the folder may be another one."""
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_LIST_FLAGS: Final = frozenset({"-r", "-c", "--requirement", "--constraint"})
_IMAGES: Final = {"-tf-": ("tensorflow", "numpy"), "-pt-": ("torch", "torch-xla", "torchvision", "numpy")}
"""Packages in runtimes with a framework in their name."""
_VALUE: Final = r"(TPUCTL_RESUME(?:_STEP)?)"
_HOLLOW: Final = re.compile(
    rf"(--?[A-Za-z][\w-]*)(=|\s+)(?:\"\$\{{?{_VALUE}\}}?\"|\$\{{?{_VALUE}\}}?)(?=[\s;&|]|$)"
)
_STOCK: Final = frozenset({"--resume_from_checkpoint", "--ckpt_path", "--resume-from-checkpoint"})
_READERS: Final = {
    "open": 0, "io.open": 0, "numpy.load": 0, "numpy.memmap": 0, "numpy.fromfile": 0, "numpy.loadtxt": 0,
    "numpy.genfromtxt": 0, "pandas.read_csv": 0, "pandas.read_parquet": 0, "pandas.read_json": 0,
    "pandas.read_pickle": 0, "h5py.File": 0, "datasets.load_from_disk": 0,
    "torchvision.datasets.ImageFolder": 0,
}  # fmt: skip


@rule("program-missing", Level.WARN)
def program_missing(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for a Python file that the command starts and that is not in the source folder.

    Silent with `job.image` and `job.data`, which may bring it, and when setup or command may make files.
    """
    shell = "\n".join(text for _, text in shell_texts(spec, facts))
    if spec.job.image or spec.job.data or _MAKES_FILES.search(shell) or _OPAQUE.search(shell):
        return
    for name in not_there(spec, facts):
        message = f"it starts {name}, and the source folder pushes no such file"
        yield RawFinding(
            "job.command", message, "name your program in job.command, or its folder in job.source"
        )


@rule("requirements-file-missing", Level.WARN)
def requirements_file_missing(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for a list of packages that `pip install -r` or `-c` in job.setup names, and that is not in the source.

    Silent for paths that are absolute or hold a variable, with `job.image` and `job.data`, which may bring the
    file, and when setup may make files.
    """
    text = joined(spec.job.setup)
    # What stands in quotes, as "numpy>2", makes no file.
    if spec.job.image or spec.job.data or _MAKES_FILES.search(_QUOTED.sub("", text)):
        return
    named = (name for words in installs(text) for name in _lists(words))
    for name in dict.fromkeys(named):
        if str(PurePosixPath(name)) not in facts.files:
            message = f"it names {name}, which is not in the source folder"
            hint = "write it, or name another list: setup fails without it, on a TPU that is billed"
            yield RawFinding("job.setup", message, hint)


def _lists(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the relative paths of the lists among the words of a `pip install`."""
    for at, word in enumerate(words):
        flag, _, value = word.partition("=")
        if word in _LIST_FLAGS:
            value = words[at + 1] if at + 1 < len(words) else ""
        elif flag not in _LIST_FLAGS:
            value = word[2:] if word[:2] in {"-r", "-c"} else ""
        if value and not value.startswith(("/", "~", "..", "-")) and "$" not in value and "://" not in value:
            yield value


@rule("missing-requirement", Level.WARN, Level.NOTE)
def missing_requirement(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for packages that the program imports and nothing installs; the image of a TPU machine has none.

    Named in no list of requirements, pyproject.toml, setup.py or `pip install`, and brought by no package
    that is. Imports in functions and below `if` or `try` do not count. A note when a package is installed of
    which it is not known what it brings. Silent for setups that it cannot read (conda, docker, make, URLs),
    and with `job.image`.
    """
    found = missing_packages(spec, facts)
    if found is None:
        return
    if found.where and not found.installs:
        names = ", ".join(sorted(found.where)[:4]) + (", ..." if len(found.where) > 4 else "")
        message = f"the program imports {names}, and nothing installs packages on the machine"
        yield RawFinding("job.setup", message, f"for example setup: {found.command}")
        return
    for package, where in found.where.items():
        message = f"imports {package}, which no list of requirements and no setup names"
        hint = f"install {to_install(package, spec)} in job.setup"
        yield RawFinding(where, message, hint, Level.NOTE if found.unsure else None)


@dataclass(frozen=True)
class Missing:
    """
    *where* each package is imported that nothing installs, and the *command* that would install them.

    *strange* are the modules, with their place, of which no table has the package. *installs* says that the
    job's shell lines install anything, *unsure* that one of these packages is unknown here and may bring the
    missing ones.
    """

    where: Mapping[str, str]
    command: str
    installs: bool
    unsure: bool
    strange: Mapping[str, str]


def missing_packages(spec: Spec, facts: SourceFacts) -> Missing | None:
    """Return what the program imports and nothing installs; None where that cannot be known."""
    job = program(spec, facts)
    shell = shell_texts(spec, facts)
    # These may install anything, so with one of them no package can be called missing.
    if spec.job.image or any(_OPAQUE.search(text) for _, text in shell) or not job.code:
        return None
    asked = {found.name for found in facts.requirements} | facts.projects
    for where, text in shell:
        for words in installs(text):
            named = [word for word in words if not word.endswith((".txt", ".in"))]
            asked |= {found.name for word in named if (found := requirement(where, word))}
    runs = any(_INSTALLS.search(text) for _, text in shell)
    there = _provided(asked if runs else set(), spec)
    missing: dict[str, str] = {}
    strange: dict[str, str] = {}
    for code, one in job.imports():
        if one.sure and is_unknown(one, code, facts):
            strange.setdefault(one.name.partition(".")[0], code.where(one.line))
        package = PACKAGES.get(one.name.partition(".")[0])
        if package and package not in there and one.sure and not is_local(one, code, facts):
            missing.setdefault(HEADLESS.get(package, package), code.where(one.line))
    lists = sorted({found.file for found in facts.requirements})
    named = sorted({to_install(package, spec) for package in missing})
    command = f"pip install -r {lists[0]}" if lists else f"pip install {' '.join(named)}"
    # An unknown package may bring the missing one: a note, not a warning.
    unsure = bool(asked - set(PACKAGES.values()) - set(TWINS) - OTHERS - facts.projects)
    return Missing(missing, command, runs, unsure, strange)


def to_install(package: str, spec: Spec) -> str:
    """Return what to install for a missing *package*: on a TPU machine the build for the TPU."""
    return FOR_TPU.get(package, package) if spec.job.run_on == "tpu" else package


@rule("hollow-resume", Level.WARN)
def hollow_resume(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for flags that get `$TPUCTL_RESUME`, which is empty at the first start.

    Without quotes the next word becomes the flag's value. With quotes, stock scripts of Hugging Face and
    Lightning look for a checkpoint without a name (`--resume_from_checkpoint`, `--ckpt_path`).
    """
    for where, text in shell_texts(spec, facts):
        for found in _HOLLOW.finditer(text):
            flag, equals, quoted, bare = found.groups()
            name = quoted or bare
            if quoted is not None and flag not in _STOCK:
                continue
            if bare is not None and "=" in equals and flag not in _STOCK:
                continue  # `--resume=` is an empty value, which hand-written programs may accept.
            message = f"{flag} gets ${name}, which is empty at the first start"
            yield RawFinding(where, message, f'write ${{{name}:+{flag} "${name}"}}')


@rule("data-excluded", Level.WARN)
def data_excluded(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for files that the program opens, or its command names, and that patterns exclude.

    Literal paths, also with a part that only a run would show (`os.path.join(data_dir, "train.bin")`).
    Files that are opened for writing, and what `job.data` brings, do not count.
    """
    excluded = [one for one in facts.excluded if not one.is_key and not _is_provided(one.path, spec)]
    if not excluded:
        return
    reported: set[str] = set()
    for word in re.findall(r"[^\s=\"';&|<>()]+", spec.job.command):
        one = _excluded_of(word, word, excluded) if "/" in word or "." in word else None
        if one is not None and one.path not in reported:
            reported.add(one.path)
            yield _finding("job.command", one)
    for code in program(spec, facts).code:
        for call in code.calls:
            head, tail = _read_path(call, code)
            one = _excluded_of(head, tail, excluded) if head else None
            if one is not None and one.path not in reported:
                reported.add(one.path)
                yield _finding(code.where(call.line), one)


def is_unknown(one: Import, code: Code, facts: SourceFacts) -> bool:
    """Return whether an import is of a package that none of these tables has."""
    top = one.name.partition(".")[0]
    return top not in sys.stdlib_module_names and top not in PACKAGES and not is_local(one, code, facts)


def _provided(asked: set[str], spec: Spec) -> set[str]:
    """Return the requested packages, their known dependencies, and those of the image."""
    runtime = spec.tpu.runtime or ""
    pending = [TWINS.get(name, name) for name in asked]
    pending += [name for mark, names in _IMAGES.items() if mark in runtime for name in names]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += BRINGS.get(name, ())
    return found


def _finding(where: str, one: ExcludedPath) -> RawFinding:
    message = f"{one.path} is excluded ({one.pattern}), so the job does not find it"
    top = one.path.rstrip("/").partition("/")[0]
    hint = f"bring it with job.data ({top}: ./{top}), or send it with the code: !{one.path} in .tpuctlignore"
    return RawFinding(where, message, hint)


def _is_provided(path: str, spec: Spec) -> bool:
    plain = path.rstrip("/")
    return any(plain == name or plain.startswith(f"{name}/") for name in spec.job.data)


def _read_path(call: Call, code: Code) -> tuple[str, str]:
    """Return the literal beginning and end of the path that a call reads; empty for other calls."""
    if call.name not in _READERS or code.file.startswith("test"):
        return "", ""
    if call.method == "open":
        mode = call.value("mode", 1)
        if mode is not None and (not isinstance(mode, str) or set(mode) & set("wax")):
            return "", ""
    head = call.value("file", _READERS[call.name])
    return (head, call.tail) if isinstance(head, str) else ("", "")


def _excluded_of(head: str, tail: str, excluded: list[ExcludedPath]) -> ExcludedPath | None:
    """Return the excluded file or folder for a path that begins with *head* and ends with *tail*."""
    start = str(PurePosixPath(head)) if head and not head.startswith(("/", "~", "$", "-")) else ""
    end = PurePosixPath(tail).name if tail else ""
    # Without a literal beginning, any excluded file would match the end.
    if start in ("", ".") or "://" in head:
        return None
    for one in excluded:
        plain = one.path.rstrip("/")
        if plain == start or (one.is_folder and start.startswith(one.path)):
            return one
        if end and not one.is_folder and plain.startswith(f"{start}/") and plain.rpartition("/")[2] == end:
            return one
    return None


@rule("env-name-unknown", Level.WARN)
def env_name_unknown(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for `$NAME` in a value of `job.env` that stays as it is: `tpuctl` gives the job no such variable.

    The names are those of docs/job-environment.md. `$$NAME` says that the text is meant as it is.
    """
    for name, value in spec.job.env.items():
        for word in unknown(value):
            message = f"${word[:40]} stays as it is: tpuctl gives the job no variable of this name"
            yield RawFinding(
                f"job.env.{name}", message, "see docs/job-environment.md; for a dollar sign write $$"
            )


PACKAGES: Final = {
    "torch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "torch_xla": "torch-xla",
    "numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "jax": "jax", "jaxlib": "jaxlib", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint",
    "chex": "chex", "haiku": "dm-haiku", "equinox": "equinox", "grain": "grain", "clu": "clu",
    "ml_collections": "ml-collections", "absl": "absl-py", "einops": "einops", "tensorstore": "tensorstore",
    "tensorflow": "tensorflow", "tensorflow_datasets": "tensorflow-datasets", "keras": "keras",
    "tf_keras": "tf-keras", "transformers": "transformers", "datasets": "datasets",
    "tokenizers": "tokenizers",
    "accelerate": "accelerate", "peft": "peft", "trl": "trl", "evaluate": "evaluate",
    "diffusers": "diffusers",
    "safetensors": "safetensors", "huggingface_hub": "huggingface-hub", "sentencepiece": "sentencepiece",
    "tiktoken": "tiktoken", "lightning": "lightning", "pytorch_lightning": "pytorch-lightning",
    "torchmetrics": "torchmetrics", "timm": "timm", "wandb": "wandb", "tensorboard": "tensorboard",
    "tensorboardX": "tensorboardx", "tqdm": "tqdm", "yaml": "pyyaml", "PIL": "pillow",
    "cv2": "opencv-python",
    "requests": "requests", "hydra": "hydra-core", "omegaconf": "omegaconf", "fire": "fire", "rich": "rich",
    "joblib": "joblib", "h5py": "h5py", "gcsfs": "gcsfs", "fsspec": "fsspec", "fairseq": "fairseq",
    "nltk": "nltk", "spacy": "spacy", "xgboost": "xgboost", "lightgbm": "lightgbm",
    "gymnasium": "gymnasium",
    "pyarrow": "pyarrow", "tyro": "tyro", "simple_parsing": "simple-parsing", "webdataset": "webdataset",
    "click": "click", "typer": "typer", "loguru": "loguru", "optuna": "optuna", "lmdb": "lmdb", "zarr": "zarr",
    "dotenv": "python-dotenv", "pydantic": "pydantic", "msgpack": "msgpack", "mlflow": "mlflow", "dask": "dask",
}  # fmt: skip
"""Package of each module; a module that is missing here is not judged."""

HEADLESS: Final = {"opencv-python": "opencv-python-headless"}
"""What to install instead on a machine without a screen, which lacks the libraries of a window."""

FOR_TPU: Final = {
    "torch": "torch", "torch-xla": "torch_xla[tpu]", "torchvision": "torchvision", "jax": "jax[tpu]",
    "jaxlib": "jax[tpu]", "tensorflow": "tensorflow-tpu",
}  # fmt: skip
"""Packages of which a TPU needs another build than the one that the plain name brings, and that build's name."""

_HUB: Final = frozenset({"huggingface-hub", "requests", "tqdm", "pyyaml", "fsspec"})
_HF: Final = frozenset({"numpy", "tokenizers", "safetensors", *_HUB})
_JAX: Final = frozenset({"jaxlib", "numpy", "scipy"})
_FLAX: Final = frozenset({
    "jax", "optax", "orbax-checkpoint", "tensorstore", "absl-py", "chex", "rich", "pyyaml", *_JAX,
})  # fmt: skip
_KERAS: Final = frozenset({"numpy", "absl-py", "rich", "h5py"})
_TORCH: Final = frozenset({"fsspec"})
BRINGS: Final = {
    "torch-xla": frozenset({"torch", "absl-py", "numpy", "pyyaml", "requests"}), "torch": _TORCH,
    "torchvision": frozenset({"torch", "numpy", "pillow", *_TORCH}), "torchaudio": frozenset({"torch"}),
    "scipy": frozenset({"numpy"}), "pandas": frozenset({"numpy"}), "h5py": frozenset({"numpy"}),
    "scikit-learn": frozenset({"numpy", "scipy", "joblib"}), "matplotlib": frozenset({"numpy", "pillow"}),
    "jax": _JAX, "jaxlib": frozenset({"numpy", "scipy"}), "flax": _FLAX,
    "optax": frozenset({"jax", "chex", "absl-py", *_JAX}), "chex": frozenset({"jax", "absl-py", *_JAX}),
    "orbax-checkpoint": frozenset({"jax", "absl-py", "tensorstore", "pyyaml", *_JAX}),
    "dm-haiku": frozenset({"absl-py", "numpy"}), "equinox": frozenset({"jax", *_JAX}),
    "clu": _FLAX | {"flax", "ml-collections"}, "ml-collections": frozenset({"absl-py", "pyyaml"}),
    "grain": frozenset({"numpy", "absl-py"}),
    "tensorflow": frozenset({"numpy", "keras", "absl-py", "h5py", "requests", "tensorboard", *_KERAS}),
    "tensorflow-datasets": frozenset({"numpy", "absl-py", "requests", "tqdm", "pyarrow", "etils"}),
    "keras": _KERAS, "tf-keras": frozenset({"tensorflow", "numpy", *_KERAS}), "transformers": _HF,
    "tokenizers": _HUB, "datasets": frozenset({"numpy", "pandas", "pyarrow", *_HUB}),
    "accelerate": frozenset({"torch", *_HF}), "peft": frozenset({"torch", "transformers",
    "accelerate", *_HF}),
    "trl": frozenset({"torch", "transformers", "accelerate", "datasets", "pandas", "pyarrow", *_HF}),
    "evaluate": frozenset({"datasets", "numpy", "pandas", "pyarrow", *_HUB}),
    "diffusers": frozenset({"numpy", "pillow", "safetensors", *_HUB}), "huggingface-hub": _HUB,
    "lightning": frozenset({"torch", "pytorch-lightning", "torchmetrics", "tqdm", "pyyaml",
    "fsspec", "numpy"}),
    "pytorch-lightning": frozenset({"torch", "torchmetrics", "tqdm", "pyyaml", "fsspec", "numpy"}),
    "torchmetrics": frozenset({"torch", "numpy"}), "wandb": frozenset({"pyyaml", "requests"}),
    "timm": frozenset({"torch", "torchvision", "pillow", "numpy", "safetensors", *_HUB}),
    "tensorboard": frozenset({"numpy", "absl-py"}), "hydra-core": frozenset({"omegaconf", "pyyaml"}),
    "typer": frozenset({"click", "rich"}), "zarr": frozenset({"numpy"}), "dask": frozenset({"click", "pyyaml"}),
    "tensorboardx": frozenset({"numpy"}), "gymnasium": frozenset({"numpy"}),
    "omegaconf": frozenset({"pyyaml"}), "gcsfs": frozenset({"fsspec", "requests"}),
    "tiktoken": frozenset({"requests"}),
    "opencv-python": frozenset({"numpy"}), "xgboost": frozenset({"numpy", "scipy"}),
    "lightgbm": frozenset({"numpy", "scipy"}), "nltk": frozenset({"tqdm", "joblib"}),
    "fairseq": frozenset({"torch", "torchaudio", "numpy", "hydra-core", "omegaconf", "tqdm", "pyyaml"}),
    "spacy": frozenset({"numpy", "requests", "tqdm"}), "webdataset": frozenset({"numpy", "pyyaml"}),
}  # fmt: skip
"""Dependencies of a package among those above."""

TWINS: Final = {
    "tensorflow-cpu": "tensorflow", "tensorflow-tpu": "tensorflow", "tf-nightly": "tensorflow",
    "opencv-python-headless": "opencv-python", "scikit-learn-intelex": "scikit-learn",
    "orbax": "orbax-checkpoint",
    "tensorflow-cpu-aws": "tensorflow", "tfds-nightly": "tensorflow-datasets", "libtpu": "libtpu",
    "sklearn": "scikit-learn",
}  # fmt: skip
"""Packages that provide the module of another one."""
OTHERS: Final = frozenset({
    "pip", "setuptools", "wheel", "uv", "libtpu", "ninja", "packaging", "pytest", "ruff", "black", "protobuf",
})  # fmt: skip
"""Packages that provide none of the above."""


@rule("doubtful-setting", Level.WARN)
def doubtful_setting(spec: Spec, catalog: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for settings that are allowed and hardly meant.

    A grace beyond the notice, a runtime that is not in the table, a budget of cents, a zone without a price.
    """
    for one in run_rules(spec, catalog):
        if one.level is not Level.STOP:
            yield RawFinding(one.setting, one.message, one.hint)
