"""When `up` asks for an approval of the price: only a person at a terminal, and only for what is billed."""

from pathlib import Path

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.up import needs_approval


@pytest.mark.parametrize(
    ("cloud", "as_json", "plan", "yes", "at_terminal", "asks"),
    [
        pytest.param("gcp", False, None, False, True, True, id="person"),
        pytest.param("gcp", False, None, False, False, False, id="script"),
        pytest.param("gcp", False, None, True, True, False, id="yes"),
        pytest.param("gcp", True, None, False, True, False, id="json"),
        pytest.param("gcp", False, Path("plan.json"), False, True, False, id="stored-plan"),
        pytest.param("local", False, None, False, True, False, id="nothing-billed"),
    ],
)
def test_only_a_person_is_asked_and_only_for_what_is_billed(cloud, as_json, plan, yes, at_terminal, asks):
    """Each reason alone is enough to ask nothing."""
    choice = Choice(None, (), cloud, as_json)
    assert needs_approval(choice, plan, yes=yes, at_terminal=at_terminal) is asks
