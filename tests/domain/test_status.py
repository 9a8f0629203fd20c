"""The status of a deployment as a value: what JSON has of it, and what releases before and after publish."""

import json
from dataclasses import replace

import pytest

from orchestrator.domain.status import (
    DeadlineStatus,
    DeploymentState,
    DeploymentStatus,
    SavesStatus,
    WorkerStatus,
)

WORKER = {
    "worker": 0, "phase": "run", "step": 120, "loss": 2.31, "loss_step": 110, "steps_per_second": 4.25,
    "reported_target_steps": 400,
    "progress_from": "output", "checkpoint_step": 110, "checkpoint_counted": False,
    "saved_in_attempt": True, "format": "torch",
    "checkpoint_age_s": 12.0, "heartbeat_age_s": 3.0, "attempts": 1, "image": "", "xla_programs_restored": None,
    "xla_programs_compiled": 2, "message": "",
}  # fmt: skip
BODY = {
    "name": "demo", "project": "p", "state": "running", "outcome": None, "limit_reached": "",
    "message": "", "uncommitted_message": "",
    "ignored_message": "", "failing_message": "", "aside_message": "", "refusal_hint": "", "rescued_message": "",
    "incarnation": 3, "unused_incarnations": [2], "preemptions": 2, "up": True, "deleted_at": None, "usd": 0.0438,
    "upper_usd": 0.0661, "unpriced": ["disk"],
    "resources": [{"kind": "vm", "name": "demo-vm", "zone": "z", "state": "RUNNING"}], "workers": [WORKER],
    "checkpoint_step": 110, "resumes_from": None,
    "watcher": {"on": "vm", "who": "root@vm", "command": "watch", "since": 1.0, "renewed_age_s": 2.0,
             "alive": True}, "watch_on_vm": False,
    "safety_nets": [{"name": "tpu", "active": False, "message": "nothing deletes it by itself"}],
    "next_changes": [],
    "waits_for": [{"what": "TPU: CREATING", "in_s": None, "message": ""}], "next_pass_in_s": 9.0,
    "watch_poll_s": 15.0, "target_steps": 400,
    "eta_s": 65.0,
    "budget_usd": 5.0, "deadline": {"due": "tomorrow", "forecast": "on time", "mode": "spot"},
    "saves": {"save_interval_s": 60.0, "save_pause_s": 5.0, "save_pause_from": "measured",
              "time_between_interruptions_s": None, "observed_save_interval_s": None, "message": "every 60 s"},
    "ttl_remaining_s": 80000.0, "sidecars": [{"name": "tensorboard", "on": "vm", "port": 6006}],
    "source": {"by": "cloud", "age_s": 0.0},
}  # fmt: skip
"""Each key, in the order in which `status --json` prints them."""
LATER_KEYS = (
    "limit_reached",
    "message", "uncommitted_message", "ignored_message", "failing_message", "aside_message",
    "refusal_hint", "rescued_message", "up", "deleted_at", "upper_usd", "unpriced", "checkpoint_step",
    "eta_s", "deadline", "saves", "state", "resumes_from", "waits_for",
    "unused_incarnations", "safety_nets", "watch_on_vm",
)  # fmt: skip
"""Keys that an earlier release did not publish."""
EARLIER = {
    "reason": "it ended", "outcome": "unclaimed", "state": "unclaimed", "uncommitted": "a.pt is nowhere",
    "auto_delete": "off (watch.self_delete)",
    "unclaimed": "1 file",
    "resources": [BODY["resources"][0] | {"kind": "VM"}],
    "safety_nets": [BODY["safety_nets"][0] | {"name": "TPU"}],
}  # fmt: skip
"""Keys and values that it had instead."""
EARLIER_OF_WORKER = {
    "checkpoint": "checkpoint_step", "rate": "steps_per_second", "total_steps": "reported_target_steps"
}  # fmt: skip
"""Its keys of a worker, with those of today."""


def test_the_json_of_a_status_has_each_key_in_its_order():
    """Programs read the keys, and people compare two outputs by eye."""
    assert json.dumps(DeploymentStatus.from_dict(BODY).as_dict()) == json.dumps(BODY)


def test_a_status_without_deadline_watcher_and_saves_has_their_keys():
    """They are null."""
    body = BODY | {"deadline": None, "watcher": None, "saves": None, "workers": [], "checkpoint_step": None}
    assert json.dumps(DeploymentStatus.from_dict(body).as_dict()) == json.dumps(body)


def test_a_state_of_a_later_release_is_not_known():
    """A word that this release does not have decides nothing."""
    for body in (BODY | {"state": "levitating"}, {key: BODY[key] for key in BODY if key != "state"}):
        assert DeploymentStatus.from_dict(body).state is DeploymentState.UNKNOWN


def test_what_an_earlier_release_published_is_read():
    """Its sum is that at the highest prices, and its workers show which checkpoint all of them have."""
    workers = [WORKER | {"checkpoint_step": 60}, WORKER | {"worker": 1, "checkpoint_step": 50}]
    body = {key: value for key, value in BODY.items() if key not in LATER_KEYS}
    found = DeploymentStatus.from_dict(body | {"workers": workers, **EARLIER})
    assert (found.message, found.outcome, found.state) == (
        "it ended",
        "uncommitted",
        DeploymentState.UNCOMMITTED,
    )
    assert ([row.kind for row in found.resources], [net.name for net in found.safety_nets]) == (
        ["vm"],
        ["tpu"],
    )
    assert (found.uncommitted_message, found.rescued_message) == ("a.pt is nowhere", "1 file")
    assert (found.upper_usd, found.checkpoint_step, found.up, found.unpriced) == (0.0438, 50, True, ())
    assert (
        DeploymentStatus.from_dict(
            body | {"workers": [*workers, WORKER | {"checkpoint_step": None}]}
        ).checkpoint_step
        is None
    )


def test_keys_of_a_later_release_are_dropped():
    """This release does not know what they mean."""
    more = {"news": 1, "workers": [WORKER | {"news": 2}], "source": BODY["source"] | {"news": 3}}
    assert DeploymentStatus.from_dict(BODY | more) == DeploymentStatus.from_dict(BODY)


@pytest.mark.parametrize(
    "body", [{}, BODY | {"workers": [{}]}, BODY | {"watcher": ["x"]}, BODY | {"source": None}]
)
def test_what_is_no_status_is_refused(body):
    """The reader of a published status then asks the cloud."""
    with pytest.raises((KeyError, TypeError, AttributeError)):
        DeploymentStatus.from_dict(body)


def test_a_status_with_the_older_key_of_the_mode_is_read():
    """A watcher of before may have published it."""
    before = BODY | {"deadline": {"due": "tomorrow", "forecast": "on time", "runs_on": "spot"}}
    assert DeploymentStatus.from_dict(before) == DeploymentStatus.from_dict(BODY)


def test_a_status_with_the_older_keys_of_steps_incarnations_and_watcher_is_read():
    """A watcher of before may have published it."""
    worker = {key: value for key, value in WORKER.items() if key not in EARLIER_OF_WORKER.values()}
    before = {
        key: value for key, value in BODY.items() if key not in ("checkpoint_step", "unused_incarnations")
    }
    watcher = {key: value for key, value in BODY["watcher"].items() if key != "on"} | {"where": "vm"}
    before |= {
        "workers": [worker | {old: WORKER[new] for old, new in EARLIER_OF_WORKER.items()}],
        "checkpoint": BODY["checkpoint_step"], "unused_numbers": [2], "watcher": watcher,
    }  # fmt: skip
    assert DeploymentStatus.from_dict(before) == DeploymentStatus.from_dict(BODY)


def test_a_status_with_the_older_key_of_an_active_safety_net_is_read():
    """A net that was armed then is active now."""
    (net,) = BODY["safety_nets"]
    before = {key: value for key, value in net.items() if key != "active"}
    found = DeploymentStatus.from_dict(BODY | {"safety_nets": [before | {"armed": True}]})
    assert [one.active for one in found.safety_nets] == [True]


def test_a_status_with_the_older_keys_of_the_cost_is_read():
    """Its sums had the word before them that they are all of."""
    before = {key: value for key, value in BODY.items() if key not in {"usd", "upper_usd"}}
    before |= {"cost_usd": BODY["usd"], "cost_upper_usd": BODY["upper_usd"]}
    assert DeploymentStatus.from_dict(before) == DeploymentStatus.from_dict(BODY)


def test_a_status_with_the_older_word_of_a_used_up_budget_is_read():
    """Both in its state and in its outcome."""
    found = DeploymentStatus.from_dict(BODY | {"state": "spent", "outcome": "spent"})
    assert (found.state.value, found.outcome) == ("limit-reached", "limit-reached")


def test_the_parts_of_a_status_are_values():
    """Two of the same content are equal, and views name their fields."""
    found = DeploymentStatus.from_dict(BODY)
    assert found.deadline == DeadlineStatus(due="tomorrow", forecast="on time", mode="spot")
    assert isinstance(found.saves, SavesStatus)
    assert isinstance(found.workers[0], WorkerStatus)
    assert replace(found, preemptions=3) != found


def test_a_status_with_the_older_keys_of_its_sentences_is_read():
    """They were text and note."""
    before = BODY | {
        "safety_nets": [renamed(row, "text") for row in BODY["safety_nets"]],
        "waits_for": [renamed(row, "note") for row in BODY["waits_for"]],
        "saves": renamed(BODY["saves"], "text"),
    }
    assert DeploymentStatus.from_dict(before) == DeploymentStatus.from_dict(BODY)


def renamed(row, earlier):
    """Return *row* with its message under the *earlier* key."""
    return {earlier if key == "message" else key: value for key, value in row.items()}
