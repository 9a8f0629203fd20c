"""The right project, a limit to what is spent, and a page on security that names tests which are there."""

import ast
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.this_computer import same_project
from orchestrator.app.this_computer.same_project import ACCOUNT, check_project_and_login, store_account
from orchestrator.app.this_computer.state_folders import SPEC_FILE, state_folder
from orchestrator.config.starter import RECIPES, init_text
from orchestrator.domain.observation import Absent
from orchestrator.domain.plan import Outcome
from orchestrator.engine.records.record_format import encode
from orchestrator.errors import UsageError
from orchestrator.planning.deployment_outcome import judge_end
from tests.kit.records import record_of
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import world

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Give a computer on which the deployment `demo` was brought up in project-a by a@x."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path))
    session = opened("project-a")
    monkeypatch.setattr(same_project, "login_of", lambda cloud: "a@x")
    store_account(session.folder, "gcp")
    up(session)
    return monkeypatch


def opened(project, cloud="gcp"):
    """Return what the guard needs of a session."""
    folder = state_folder(cloud) / project / "demo"
    choice = Choice(None, (), cloud)
    return SimpleNamespace(spec=a_spec(name="demo"), project=project, folder=folder, choice=choice)


def guard(session):
    """Ask as each command that acts does."""
    check_project_and_login(session.choice, session.spec.name, session.project, session.folder)


def up(session, **record):
    """Keep what `up` keeps."""
    session.folder.mkdir(parents=True, exist_ok=True)
    (session.folder / SPEC_FILE).write_text("{}")
    held = record_of(**{"accepted": True, "incarnation": 1, **record})
    (session.folder / "record.json").write_bytes(encode(held, "demo"))


@pytest.mark.parametrize(
    ("project", "login", "reported"),
    [
        ("project-a", "a@x", ""),
        ("project-a", "b@x", "was brought up by a@x; you are logged in as b@x"),
        ("project-a", "", ""),
        ("project-b", "a@x", "is up in project project-a; this command would act in project project-b"),
        ("project-b", "b@x", "is up in project project-a"),
        ("project-b", "", "is up in project project-a"),
    ],
)
def test_another_project_or_login_is_refused(here, project, login, reported):
    """Six combinations; a login that is not known proves nothing. The named flag lets all of them through."""
    here.setattr(same_project, "login_of", lambda cloud: login)
    session = opened(project)
    if reported:
        with pytest.raises(UsageError, match=re.escape(reported)) as caught:
            guard(session)
        assert caught.value.code == "TPU-139"
        assert "--account-override" in caught.value.hint
    else:
        guard(session)
    session.choice = Choice(None, (), "gcp", account_override=True)
    guard(session)


def test_what_has_gone_elsewhere_is_no_obstacle(here):
    """After `down` there, the name is free for another project."""
    up(opened("project-a"), accepted=False)
    guard(opened("project-b"))


def test_the_guard_stands_before_every_command_that_acts(here, tmp_path):
    """`alone` calls it, which all of them go through."""
    from orchestrator.app.context.choice import Choice
    from orchestrator.app.deployment.session import Session

    (tmp_path / "tpuctl.yaml").write_text(
        "name: demo\nproject: project-b\ntpu: {type: v5litepod-8, zones: [europe-west4-b]}\n"
        "job: {command: c}\n"
    )
    session = Session(Choice(tmp_path / "tpuctl.yaml", (), "gcp"), Reporter())
    with pytest.raises(UsageError, match="project-a"), session.holding_lease("up"):
        pytest.fail("the lease was asked for")


def test_the_login_is_in_a_file_for_its_owner(here):
    """Beside the record."""
    assert (opened("project-a").folder / ACCOUNT).read_text() == "a@x"


def test_no_deployment_spends_more_than_its_budget_and_one_poll():
    """Two hundred prices, budgets and rates: the end is said at the first look that finds it used up."""
    for seed in range(200):
        dice = random.Random(seed)
        rate, poll = dice.uniform(0.01, 300) / 3600, dice.choice([1, 15, 60, 300])
        budget = rate * dice.uniform(poll, 100 * poll)
        spec = a_spec(watch__budget_usd=budget, watch__poll=f"{poll}s", watch__ttl="365d")
        now = 0.0
        while True:
            usd_so_far = rate * now
            observed = world(observed_at=1e9 + now, bucket=Absent())
            if judge_end(spec, observed, record_of(started_at=1e9), usd_so_far)[0] is Outcome.LIMIT_REACHED:
                break
            now += poll
            assert now < 1000 * poll, seed
        assert budget <= usd_so_far <= budget + rate * poll * 1.000001, seed


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_new_file_shows_budget_and_time_to_live(recipe):
    """Whoever writes a first file sees both."""
    text = init_text("d", recipe)
    assert re.search(r"^# *budget_usd: ", text, re.MULTILINE)
    assert re.search(r"^# *ttl: 7d", text, re.MULTILINE)


def test_every_test_that_the_page_on_security_names_is_there():
    """A goal without its test is no goal."""
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) >= 25
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (
            f"{path}: {name}"
        )
    goals = re.findall(r"^\| (SEC\d+):", page, re.MULTILINE)
    assert goals == sorted(goals, key=lambda goal: int(goal[3:]))
