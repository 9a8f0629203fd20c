"""
The tests of the tests: each mechanism can be switched off, and somebody is named who must notice.

All of them are tried by `.ci/reliability`; here one is, and one switch that switches nothing off.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.simulation.mutants import SWITCHES

ROOT = Path(__file__).parents[2]
TRY = """
from tests.simulation.switch import Switch
from tests.simulation.mutants import SWITCHES, try_mutants
name = "M3 the deletion of older incarnations"
SWITCHES["nothing"] = Switch((), SWITCHES[name].tests)
for name, what, violation, _ in try_mutants([name, "nothing"], jobs=2):
    print(name, what, violation, sep="|")
"""


def test_every_mechanism_has_a_switch():
    """M1 to M11, each at least once."""
    assert {name.split()[0] for name in SWITCHES} >= {f"M{number}" for number in range(1, 12)}


def test_every_switch_names_a_run_or_a_test_that_must_notice():
    """A simulated run that breaks an invariant, or tests that exist."""
    for name, switch in SWITCHES.items():
        assert switch.patches, name
        assert all(hasattr(where, what) for where, what, _ in switch.patches), name
        assert switch.tests or re.fullmatch(r"I[1-8]", switch.invariant), name
        for test in switch.tests:
            path, _, function = test.partition("::")
            assert not function or f"def {function}(" in (ROOT / path).read_text(), test


def test_a_missing_mechanism_is_noticed_and_only_that():
    """Without the deletion its test fails; with nothing switched off nothing is noticed."""
    done = subprocess.run([sys.executable, "-c", TRY], cwd=ROOT, capture_output=True, text=True, check=True)
    said = dict(line.split("|", 1) for line in done.stdout.splitlines())
    assert said == {
        "M3 the deletion of older incarnations": "test_nodes_of_older_incarnations_are_deleted fails|",
        "nothing": "|",
    }
