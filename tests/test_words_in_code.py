"""One word for one thing: names in the code use the words of docs/glossary.md, not those of before it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.domain.plan import LoopRule
from tests.kit.retired_names import RETIRED
from tests.kit.source import nodes

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
INSTEAD = {
    "beacon": "heartbeat",
    "beacons": "heartbeat_at_boot",
    "blow": "fault",
    "blows": "faults",
    "comeback": "recovery",
    "comebacks": "recoveries",
    "dear": "on_demand",
    "foresee": "plan",
    "foreseen": "planned",
    "foresees": "plans, shows",
    "glance": "snapshot, observation",
    "heard": "heartbeat",
    "histories": "records",
    "kept": "stored, retained, or what it is",
    "left": "remaining, rest, leftover",
    "marked": "labelled, or what it is",
    "mute": "never_reported, silent",
    "noted": "recorded",
    "notices": "notifications; Google's is a preemption notice",
    "ondemand": "on_demand",
    "pace": "save_interval, poll_interval, seconds_per_step",
    "paced": "automatic, slowed",
    "patience": "timeout, silence",
    "road": "route",
    "seal": "checksum",
    "sealed": "with_checksum",
    "seen": "observed, observation",
    "sight": "observed, an Observed",
    "sighting": "observation",
    "sightings": "observations",
    "sights": "observations",
    "lives": "runs, lifetimes, or what it is",
    "stories": "scenarios, logs, reports",
    "story": "scenario, log, report",
    "stranger": "foreign",
    "strangers": "foreign",
    "teeth": "mutants",
    "tell": "report, notify",
    "told": "reported, notified",
    "unchanged": "changed",
    "unheard": "nothing_reported",
}
"""A word that names no longer hold, and what it is called."""
IN_PACKAGE = INSTEAD | {
    "calm": "steady (nothing changes the plan), ok (needs no attention)",
    "complain": "add_finding, report",
    "complaint": "finding",
    "complaints": "findings",
    "judgement": "verdict",
    "preflight": "check",
    "strays": "outside_zones, foreign",
    "unclaimed": "uncommitted; a claim is a race's or a fleet task's",
    "anew": "again, started_over",
    "bring": "restore, download, pull, install",
    "brought": "restored, downloaded, uncommitted",
    "look": "poll, check, observation",
    "looked": "polled, checked, observed",
    "looking": "reading, polling",
    "looks": "polls, checks",
}
"""The same for the package; names of tests are sentences."""
FINE = {
    "bring_up",
    "first_seen",
    "FirstSeen",
    "UNCHANGED",
    "assert_nothing_left",
    "ttl_left",
}
"""
The word for a time in the record; the state of a push and keys in `--json`; a name for users' tests; `up`.
"""
OF_TRAINING = {
    f"orchestrator/{file}.py"
    for file in (
        "advice/rehearsal/run", "advice/rehearsal/verdict", "agent/telemetry/progress", "app/api",
        "contract/printed/choose", "contract/printed/readers", "domain/heartbeat", "domain/spec", "domain/status",
        "app/status/text", "engine/publish/publisher", "report/curve_points", "report/page",
        "report/summary",
    )
}  # fmt: skip
"""Files whose loss is that of the training."""
WHERE = {
    "Grant": {"orchestrator/domain/bucket_grants.py"},
    "loss": OF_TRAINING,
    "losses": OF_TRAINING,
    # Of a race.
    "claimed": {"orchestrator/domain/record.py", "orchestrator/engine/reconcile/observe.py"},
    "adopt": {"orchestrator/app/adopt.py", "orchestrator/domain/spec.py"},
    # Sequences: the order of a list, the number of an event.
    "order": {
        "orchestrator/emulator/http/paging.py",
        "orchestrator/emulator/http/secrets.py",
        "orchestrator/emulator/state/kernel.py",
    },
    "Status": {"orchestrator/emulator/state/values/instance.py"},
    "sweep": {"orchestrator/report/sweep_plots.py"},
    # A key of a cache's manifest, and the folders that it is written from.
    "places": {"orchestrator/agent/caches/places.py", "orchestrator/agent/caches/cache_manifest.py"},
}
"""Files in which the definition is right."""
TYPED = {"Deployment": "deployment", "CreateBudget": "create_budget", "Loop": "loop",
         "Notification": "notification", "Preview": "preview", "QueuedResource": "queued",
         "SlurmController": "slurm_controller"}  # fmt: skip
"""Arguments and fields of a type that have one name everywhere."""
STORED = {"sightings", "mute", "beacons", "bucket_seen", "remote_failed_since", "next_remote_at"}
"""Keys of the stored record from before its fields had their names: tests call the fields by name."""
PACKAGES = sorted(path.name for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists())


def names_in(path: Path) -> Iterator[str]:
    """Yield each name that a module defines: functions, classes, arguments, variables, fields."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef) and (node.name, ast.unparse(node.args)) == ("tell", "self"):
            continue  # a method of Python's files
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


BENCHMARKS = sorted(
    path for path in (ROOT / "benchmarks").iterdir() if path.is_dir() and path.name != "traces"
)


def old_words(name: str, words: dict[str, str] = INSTEAD) -> set[str]:
    """Return the words of a name, in snake or camel case, that are no longer used."""
    if name in FINE:
        return set()
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")) & words.keys()


def found_in(folder: Path, words: dict[str, str] = IN_PACKAGE) -> dict[str, set[str]]:
    """Return the names with old words, by file."""
    files = {str(path.relative_to(ROOT)): path for path in folder.rglob("*.py")}
    found = {
        file: {name for name in names_in(path) if old_words(name, words)} for file, path in files.items()
    }
    return {file: names for file, names in found.items() if names}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_one_word_for_one_thing(package: str) -> None:
    """The second word for a thing makes readers look for a second thing."""
    words = IN_PACKAGE | {"beat": "heartbeat", "beats": "heartbeats"}
    assert found_in(ROOT / "orchestrator" / package, words) == {}


@pytest.mark.parametrize("folder", BENCHMARKS, ids=lambda path: path.name)
def test_a_benchmark_has_the_words_of_the_package(folder: Path) -> None:
    """Its figures are read beside the product's: in a second language they would be checked against nothing."""
    assert found_in(folder) == {}
    twins = {
        f"{path.relative_to(ROOT)}: {name}: {RETIRED[name]}"
        for path in folder.rglob("*.py")
        for name, _ in defined_in(path)
        if name in RETIRED
    }
    assert twins == set()


def defined_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each class, function, argument and field, and the type that it is annotated with."""
    for node in nodes(path):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from [(node.targets[0].id, "")] if node.targets[0].id[0].isupper() else []
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.arg):
            yield node.arg, ast.unparse(node.annotation) if node.annotation else ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_definition_has_the_name_that_the_others_have(package: str) -> None:
    """One predicate under three names is looked for three times; one name for four things hides three."""
    found = [
        f"{file}: {name}: {RETIRED.get(name) or TYPED.get(annotation)}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for file in (str(path.relative_to(ROOT)),)
        for name, annotation in defined_in(path)
        if (name in RETIRED and file not in WHERE.get(name, set()))
        or (annotation in TYPED and name != TYPED[annotation])
    ]
    assert found == []


def test_a_reason_is_a_code_and_the_sentence_beside_it_is_a_message() -> None:
    """As in conditions of Kubernetes: programs compare a `reason`, people read a `message`."""
    foreign = ("orchestrator/emulator/", "orchestrator/google/")  # the reasons of Google's errors and of HTTP
    found = [
        f"{file}: {name}"
        for path in (ROOT / "orchestrator").rglob("*.py")
        for file in (str(path.relative_to(ROOT)),)
        for name, annotation in defined_in(path)
        if name == "reason" and annotation in {"", "str"} and not file.startswith(foreign)
    ]
    assert found == []


@pytest.mark.parametrize("package", ["domain", "engine", "planning", "pricing"])
def test_a_kind_is_a_kind_of_resource_and_never_a_tpu_type(package: str) -> None:
    """An argument `kind` that is a text is a TPU type or a prefix, and has the name of that."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.arg) and node.arg == "kind" and node.annotation
        if ast.unparse(node.annotation) == "str"
    ]
    assert found == []


def test_a_class_of_a_fleets_node_says_that_it_is_a_fleets() -> None:
    """A bare node is the TPU API's object, which a fleet's node may have."""
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in (ROOT / "orchestrator").glob("*/fleet/*.py")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and "Node" in re.sub(r"(Fleet|Slurm)Node", "", node.name)
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_timeout_is_given_to_is_named_timeout(package: str) -> None:
    """`seconds=FETCH_TIMEOUT` and `seconds: float = TIMEOUT` said the same with a second word."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b(seconds|bound|limit|longest|within)(: [\w\[\]| ]+)? ?= ?[A-Z_]*TIMEOUT\b", line)
    ]
    assert found == []


@pytest.mark.parametrize("package", sorted({*PACKAGES} - {"cli"}))
def test_a_limit_is_of_bytes_or_a_count_and_never_of_seconds(package: str) -> None:
    """How long something may take at most is its timeout."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "orchestrator" / package).rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.arg) and node.arg in {"limit", "_limit"} and node.annotation
        if "float" in ast.unparse(node.annotation)
    ]
    assert found == []


def test_tests_call_the_fields_of_the_record_by_their_names() -> None:
    """A reader of a test finds the field that it sets; only tests of the stored form use its old keys."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {word.arg}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg in STORED
    ]
    assert found == []


def test_the_rules_that_explain_prints_have_no_old_word():
    """`tpu.kept` said nothing to who knows the glossary: it is `tpu.ready`."""
    assert [rule.value for rule in LoopRule if old_words(re.sub(r"[.-]", "_", rule.value))] == []


OTHERS = {
    "tests/cli/test_new_version.py",  # the key of a stored file
    "tests/conformance/ports_kit.py",
    "tests/formats/table.py",  # the column of docs/formats.md
}


def test_names_in_tests_have_the_words_of_the_glossary():
    """A reader of a test learns no second language."""
    found = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in (ROOT / "tests").rglob("*.py")
        if str(path.relative_to(ROOT)) not in OTHERS
        if (bad := {name for name in {*plain_names(path), *names_in(path)} if old_words(name)})
    }
    assert found == {}


def plain_names(path: Path) -> Iterator[str]:
    """Yield the names of variables, arguments, keywords and functions of a module."""
    for node in nodes(path):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_a_world_is_what_a_pass_has_observed():
    """What tests simulate is not observed: it is a simulation, a lab or a state."""
    found = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for folder in ("orchestrator", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith("World")
    }
    assert found == {"orchestrator/domain/observation.py: World"}


def test_the_upper_bound_of_something_is_its_max():
    """MAX_FILES, MAX_BYTES: nobody looks for MOST_FILES, LARGEST or LONGEST_NAME."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "orchestrator").rglob("*.py")
        for name in names_in(path)
        if re.match(r"(MOST|LARGEST|LONGEST)(_|$)", name)
    ]
    assert found == []
