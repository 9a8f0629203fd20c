"""Each mechanism of the product, and how to switch it off."""

from dataclasses import replace

from orchestrator.agent import outcome
from orchestrator.agent.agreement import attempts
from orchestrator.agent.machine import self_delete
from orchestrator.app.deployment import expired
from orchestrator.contract.bucket import object_names
from orchestrator.contract.phase import Phase
from orchestrator.domain import names, record
from orchestrator.domain.observation import Claim, Present
from orchestrator.domain.plan import Plan
from orchestrator.engine import delete
from orchestrator.engine.lease import lease_object
from orchestrator.engine.loop import loop
from orchestrator.engine.reconcile import apply, observe, reconciler
from orchestrator.engine.records import journal, record_store
from orchestrator.errors import TransientError
from orchestrator.google import answer_hooks, bodies, client_errors, clients, nodes, unknown_on_error
from orchestrator.planning import decide, deployment_outcome, steady, vm
from orchestrator.planning.tpu import next_zone, node_decision, node_verdict
from orchestrator.ssh.connect import watchdog
from tests.kit.records import changed
from tests.simulation import machines
from tests.simulation.switch import Switch

ENGINE, PLANNING = "tests/engine/test_", "tests/planning/test_"
NEVER = float("inf")


def _errors_are_absence(look):
    try:
        return Present(tuple(look()))
    except Exception:
        return Present(())


def _any_end(found):
    heartbeats = found.heartbeats.value if isinstance(found.heartbeats, Present) else ()
    return any(b.phase in {Phase.DONE, Phase.STOPPED} for b in heartbeats)


def _any_done(found):
    heartbeats = found.heartbeats.value if isinstance(found.heartbeats, Present) else ()
    return bool(heartbeats) and all(b.phase is Phase.DONE for b in heartbeats)


def _says_saved(heartbeat):
    """Let a gang claim a checkpoint that it never made."""

    def wrong(self):
        self.committed = self.committed or 1
        heartbeat(self)

    return wrong


def _without_sync(path, line):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line)


def _no_label(spec, role, incarnation=None, race_round=0):
    return {names.ROLE_LABEL: role}


def _newest_removed(complete, keep):
    return tuple(sorted({one.step for one in complete}, reverse=True))


def _known_by_name(self, nodes):
    """Take a node for what it was when its name is the same."""
    for node in nodes:
        self._listed[node["name"].encode()] = node["name"]
    return [node for node in nodes if node["name"].encode() not in self._last]


def _forgetful(intend):
    def wrong(self, changes):
        zones = self._records.current.zones_used
        intend(self, changes)
        self._records.update(lambda record: changed(record, zones_used=zones, spans=()))

    return wrong


def _first_look(look):
    """Look at the nodes once; afterwards believe that one look, as a loop that only waits for events."""
    observed = {}

    def wrong(cloud, spec, known, bucket, now):
        fresh = look(cloud, spec, known, bucket, now)
        first = observed.setdefault(known.incarnation, fresh.nodes)
        ready = isinstance(first, Present) and first.value and first.value[0].state.name == "READY"
        if not ready:
            observed[known.incarnation] = fresh.nodes
        return replace(fresh, nodes=observed[known.incarnation])

    return wrong


def _unconditional(self, data):
    self._store.write(object_names.RECORD, data)


def _first_ready(store, known, observed):
    """Take the first READY TPU for the winner of its race, without asking anybody."""
    return Present(Claim(known.round, known.incarnation)) if known.round else observed.claim


def _no_limit(scheduling):
    def wrong(order):
        return {key: value for key, value in scheduling(order).items() if key != "max_run_duration"}

    return wrong


def _all_transient(failure, what):
    return TransientError(what)


MECHANISMS = {
    "M1 the journal: an intent before each call": Switch(
        ((journal.Journal, "intend", lambda self, change, **_: ""),),
        (f"{ENGINE}record.py::test_no_intent_means_no_call",
         f"{ENGINE}record.py::test_every_mutating_call_has_its_intent_before_and_its_result_after")),
    "M1 the record: a create is written down before it is asked for": Switch(
        ((apply.Actor, "_intend", lambda self, changes: None),),
        (f"{ENGINE}refusals.py::test_a_quota_held_by_the_old_node_is_waited_for",)),
    "M1 what is written down is on the disk before the call": Switch(
        ((journal, "append_synced", _without_sync),),
        (f"{ENGINE}fsync.py::test_notes_are_on_the_disk_before_each_call",)),
    "M1 the record of zones before a create": Switch(
        ((apply.Actor, "_intend", _forgetful(apply.Actor._intend)),),
        (f"{ENGINE}down.py::test_down_reads_a_zone_whose_create_had_no_answer_before_the_kill",)),
    "M2 labels": Switch(
        ((names, "labels", _no_label),),
        (f"{ENGINE}recovery.py::test_what_was_asked_for_carries_labels_key_and_account",)),
    "M2 a name is asked for again after a lost answer, and adopted": Switch(
        ((apply.Actor, "_has_our_label", lambda self, name, zone: False),),
        (f"{ENGINE}refusals.py::test_a_node_whose_answer_was_lost_is_ours_however_old_the_lists_are",)),
    "M2 a new name for each incarnation": Switch(
        ((names, "node_name", lambda spec, incarnation: f"{spec.name}-tpu"),),
        (f"{ENGINE}recovery.py::test_a_preempted_node_is_deleted_and_the_next_one_asked_for_in_the_same_pass",)),
    "M3 the deletion of older incarnations": Switch(
        ((node_decision, "deleting", lambda *_: True),),
        (f"{PLANNING}decide.py::test_nodes_of_older_incarnations_are_deleted",)),
    "M3 zones of earlier files are looked at": Switch(
        ((observe, "zones_to_observe", lambda spec, record: spec.tpu.zones),
         (delete, "zones_to_observe", lambda spec, record: spec.tpu.zones)),
        (f"{ENGINE}down.py::test_down_looks_into_every_zone_ever_used",)),
    "M4 each pass looks again, whatever it was told": Switch(
        ((reconciler, "observe", _first_look(reconciler.observe)),),
        (f"{ENGINE}recovery.py::test_a_node_deleted_by_hand_is_replaced",)),
    "M4 while a deployment is steady, the list shows its preemptions": Switch(
        ((loop.Loop, "differs", lambda self: False),),
        ("tests/cli/test_watch_all.py::test_each_lost_tpu_is_replaced_at_the_next_poll",)),
    "M4 a node of the last list is kept only as it was": Switch(
        ((answer_hooks.KnownNodes, "news_in", _known_by_name),),
        ("tests/google/test_listing.py::test_only_what_has_changed_is_parsed_again",)),
    "M4 a steady time ends before a plan changes by itself": Switch(
        ((steady, "SILENCE", NEVER), (steady, "MAX_STEADY", NEVER)),
        (f"{PLANNING}steady.py::test_no_plan_changes_by_itself_before_that_time",)),
    "M5 the lease: one computer acts": Switch(
        ((lease_object, "EXPIRES_AFTER", 0.0),),
        (f"{ENGINE}lease.py::test_a_second_computer_names_who_holds_the_lease",)),
    "M5 the lease: who cannot renew it stops acting": Switch(
        ((lease_object, "SAFE", NEVER),),
        (f"{ENGINE}lease.py::test_a_holder_that_cannot_renew_stops_acting_before_anybody_may_take_over",)),
    "M5 the record refuses an earlier holder": Switch(
        ((record_store.RecordStore, "_save_in_bucket", _unconditional),),
        (f"{ENGINE}record.py::test_what_was_refused_does_not_count_as_newer_here",)),
    "M5 fencing of older incarnations": Switch(
        ((attempts.AttemptStore, "newer_incarnation", lambda self, timeout=0.0: None),),
        ("tests/reliability/test_zombie.py",)),
    "M5 a race has one winner": Switch(
        ((reconciler, "winner", _first_ready),),
        (f"{ENGINE}race.py::test_the_controller_yields_to_a_machine_that_was_faster",)),
    "M6 the end deletes the machines": Switch(
        ((decide, "wind_down", lambda world, record, outcome, reason, **_: Plan((), (), outcome, reason)),),
        (f"{ENGINE}outcomes.py::test_a_done_job_leaves_nothing_billed_and_nothing_to_do",)),
    "M6 the record says first that the deployment goes": Switch(
        ((delete.Deletion, "begin", lambda self: None),),
        (f"{ENGINE}down.py::test_down_says_first_that_the_deployment_goes",)),
    "M6 down waits for what is on its way": Switch(
        ((delete.Deletion, "_on_their_way", lambda self: ()),),
        (f"{ENGINE}down.py::test_down_waits_for_a_create_whose_answer_was_lost",)),
    "I6 TPUs that never report are not paid for without end": Switch(
        ((deployment_outcome, "all_silent", lambda *_: None),),
        ("tests/planning/test_never_reported.py::test_the_deployment_ends_after_three_of_them_and_an_hour",)),
    "M7 errors are no absence": Switch(
        ((unknown_on_error, "listed", _errors_are_absence),), invariant="I7", seed=1,
    ),
    "M7 a list that is cut short is no absence": Switch(
        ((nodes, "whole_pages", lambda pager, what: pager.pages),),
        ("tests/google/test_node_lists.py::test_an_unreachable_place_on_an_early_page_makes_the_list_unknown",)),
    "M7 an absence is seen twice": Switch(
        ((record, "CONFIRMED_AFTER", 0.0), (vm, "CONFIRMED_AFTER", 0.0)),
        (f"{ENGINE}recovery.py::test_a_vanished_node_is_replaced_only_after_two_looks_half_a_minute_apart",)),
    "M8 each call has a limit": Switch(
        ((clients.Clients, "reading", property(lambda self: {"timeout": None, "retry": None})),),
        ("tests/google/test_clients.py::test_a_server_that_never_answers_does_not_hold_us",), timeout=20.0),
    "M8 each remote step has a limit": Switch(
        ((watchdog.Watchdog, "_verdict", lambda self: ""),),
        ("tests/ssh/test_run.py::test_a_command_that_takes_too_long_is_cut_at_its_deadline",),
        timeout=20.0),
    "M8 a create has a limit": Switch(
        ((node_verdict, "CREATE_TIMEOUT", NEVER), (node_decision, "CREATE_TIMEOUT", NEVER)),
        (f"{ENGINE}refusals.py::test_an_operation_without_end_is_given_up_after_the_deadline",)),
    "M9 the TPU's self-deletion": Switch(
        ((self_delete, "stays", lambda observed: "never"),),
        (f"{ENGINE}safety_nets.py::test_with_all_safety_nets_armed_the_bill_stops_ten_minutes_after_the_time_to_live",)),
    "M9 self-deletion respects who is at work": Switch(
        ((self_delete, "HELD", 0.0),),
        (f"{ENGINE}safety_nets.py::test_a_loop_at_work_ends_the_deployment_itself_and_self_deletion_waits",)),
    "M9 Google's limit of the VM": Switch(
        ((bodies, "_scheduling", _no_limit(bodies._scheduling)),),
        (f"{ENGINE}safety_nets.py::test_with_all_safety_nets_armed_the_bill_stops_ten_minutes_after_the_time_to_live",)),
    "M9 the end of expired deployments": Switch(
        ((expired, "_expired", lambda folder, now: iter(())),),
        ("tests/cli/test_expired.py::test_the_next_command_ends_an_expired_deployment",)),
    "M10 the last look at a plan": Switch(
        ((reconciler, "broken", lambda *_: None),),
        (f"{ENGINE}decision_faults.py::test_a_second_tpu_is_never_made_whatever_decides_it",)),
    "M11 classes of errors": Switch(
        ((client_errors, "to_error", _all_transient),),
        (f"{ENGINE}refusals.py::test_a_missing_permission_stops_within_two_attempts",)),
    "M11 back-off": Switch(
        ((next_zone, "create_gate", lambda *_: 0.0),),
        (f"{PLANNING}decide.py::test_a_zone_that_refused_is_not_asked_again_before_its_delay",)),
    "M11 jitter": Switch(
        ((next_zone, "_fraction", lambda *_: 0.5),),
        (f"{PLANNING}next_zone.py::test_deployments_refused_together_ask_again_apart",)),
    "I3 retention keeps the newest": Switch(
        ((machines, "disposable", _newest_removed),), invariant="I3", seed=1),
    "I6 the budget": Switch(
        ((decide, "judge_end", lambda *observed, judge=decide.judge_end: judge(*observed[:3], 0.0)),),
        (f"{PLANNING}decide.py::test_the_budget_stops_spending_and_keeps_the_bucket",)),
    "I8 signals are no success": Switch(
        ((record, "finished", _any_end), (deployment_outcome, "finished", _any_end)),
        (f"{ENGINE}outcomes.py::test_signals_and_silence_are_not_an_end",)),
    "I8 done needs a checkpoint": Switch(
        ((record, "finished", _any_done), (deployment_outcome, "finished", _any_done)),
        (f"{PLANNING}uncommitted.py::test_done_without_a_checkpoint_is_not_done_and_keeps_its_machine",)),
    "I8 status 0 alone is no end": Switch(
        ((outcome, "settle", lambda found, **_: found),),
        ("tests/agent/test_rules.py::test_status_zero_with_nothing_committed_is_followed_by_no_start",)),
    "I8 uncommitted is not done": Switch(
        ((machines.SimulatedGang, "_bring", lambda gang, _: gang._end("done")),
         (machines.SimulatedGang, "heartbeat", _says_saved(machines.SimulatedGang.heartbeat))),
        invariant="I8", seed=84),
}  # fmt: skip
