"""
What is not kind in Google's cloud, our answer to each, and what fails with the answer switched off.

The numbers are those of docs/real-cloud.md.
"""

import functools
from dataclasses import replace

from orchestrator.advice import preview
from orchestrator.advice.doctor import google
from orchestrator.advice.doctor.facts import stop
from orchestrator.agent.caches import unpacking, warm_start
from orchestrator.agent.cloud import storage
from orchestrator.agent.machine import accelerator, apt, venv
from orchestrator.config import starter
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.first_seen import Condition, of_name
from orchestrator.domain.observation import Present
from orchestrator.engine import delete, routes
from orchestrator.engine.delete import Deletion
from orchestrator.engine.queued_tpus import QueuedTpus
from orchestrator.engine.reconcile import apply, observe
from orchestrator.errors import Retry
from orchestrator.google import (
    answer_hooks,
    bodies,
    clients,
    error_mapping,
    factory,
    hints,
    operations,
    project_reader,
)
from orchestrator.google.refusal import GoogleRefusal
from orchestrator.planning import deployment_outcome, events
from orchestrator.planning.tpu import never_reported, next_zone, node_decision, node_verdict
from orchestrator.scripts import render
from tests.simulation.switch import Switch

BIRTHS = "tests/engine/test_new_tpu_faults.py::"
AGENT, CLOUD, REACH = "tests/agent/test_", "tests/google/test_", "tests/engine/test_routes.py::"
FLEX, RESERVED = "tests/engine/test_flex_start.py::", "tests/engine/test_reservation.py::"
REFUSALS = "tests/engine/test_refusals.py::"


def _without(name, text, instead=""):
    """Return a loader of templates that changes *text* in the one named *name*."""
    load = render._template

    @functools.cache
    def changed(asked):
        template = load(asked)
        if asked != name:
            return template
        source = template.environment.loader.get_source(template.environment, asked)[0]
        if text not in source:
            raise ValueError(f"{name} does not hold {text!r} any more")
        return template.environment.from_string(source.replace(text, instead))

    return changed


def _only_attributes(cloud, node, worker):
    return cloud.nodes.host_keys(node.name, node.zone, worker)


def _whole(self, name, path, size):
    self.write(name, path.read_bytes(), timeout=60.0)
    return ""


def _usual_price(price):
    def wrong(self, *words, upper=False, **more):
        del upper
        return price(self, *words, **more)

    return wrong


def _asked_is_gone(node, world, record):
    del world
    return of_name(node.name, Condition.DELETION_REQUESTED) in record.first_seen


def _asked_once(self, item, ask=Deletion._delete):
    if item.name not in self._asked:
        ask(self, item)


def _forgotten_is_failed(operation, look, read_once=operations.read_once):
    result = read_once(operation, look)
    return replace(result, retry=Retry.UNKNOWN, forgotten=False) if result.forgotten else result


GOOGLE_FAILURES = {
    "U1 apt waits for the lock of the first minutes": Switch(
        ((render, "_template", _without("startup.sh.j2", 'DPkg::Lock::Timeout "600";')),),
        ("tests/scripts/test_render_boot.py::test_apt_is_configured_to_wait_for_its_lock",)),
    "U1 apt waits for the lock on its lists": Switch(
        ((apt, "install_commands", lambda folder, agent, environ: None),),
        (f"{AGENT}apt.py::test_the_apt_wrapper_waits_for_the_lists_and_then_becomes_the_real_program",)),
    "U1 packages of another image are left": Switch(
        ((warm_start.Caches, "_check", lambda self, cache, manifest: warm_start.NewPaths()),),
        (f"{AGENT}caches.py::test_a_cache_that_does_not_fit_or_is_altered_is_not_restored",)),
    "U1 an archive of a cache is judged": Switch(
        ((unpacking, "check_member", lambda name: None),),
        (f"{AGENT}unpacking.py::test_an_archive_writes_nothing_outside_of_its_folder",)),
    "U1 an environment without ensurepip": Switch(
        ((venv, "install_command", lambda layout, agent: None),),
        (f"{AGENT}venv.py::test_one_of_many_starts_makes_the_environment_and_a_killed_install_is_made_again",)),
    "U2 a report counts for more than the health": Switch(
        ((node_verdict, "is_reporting", lambda *_: False),),
        (f"{BIRTHS}test_a_tpu_that_is_born_unhealthy_and_reports_is_not_replaced",)),
    "U2 born sick and silent": Switch(
        ((node_verdict, "nothing_reported", lambda world: False),),
        (f"{BIRTHS}test_a_tpu_that_is_born_unhealthy_and_says_nothing_is_replaced_at_once",)),
    "U2 three times in a zone": Switch(
        ((node_verdict, "often_silent", lambda *_: False),),
        (f"{BIRTHS}test_a_tpu_that_is_born_unhealthy_and_says_nothing_is_replaced_at_once",)),
    "U2 a maintenance is told": Switch(
        ((events, "maintenance_text", lambda *_: ""),),
        (f"{BIRTHS}test_a_maintenance_is_reported_once_and_nothing_is_done",)),
    "U3 a write that comes too soon is repeated": Switch(
        ((clients.Clients, "spaced", clients.Clients.mutating),),
        (f"{CLOUD}store.py::test_a_write_that_comes_too_soon_is_asked_for_again_with_its_precondition",)),
    "U4 operations of unknown types": Switch(
        ((answer_hooks, "readable", lambda value: value),),
        (f"{CLOUD}unknown_types.py::test_a_create_keeps_its_operation_whatever_type_its_metadata_has",)),
    "U5 machines without cron": Switch(
        ((render, "_template", _without("startup.sh.j2", '"$root/minute" start', ":")),),
        ("tests/scripts/test_render_boot.py::test_where_there_is_no_cron_a_process_of_ours_starts_the_job_again",)),
    "U6 a zone whose quota holds one TPU is known after the first refusal": Switch(
        ((next_zone, "holds_one", lambda *_: False),),
        (f"{REFUSALS}test_quota_with_room_for_one_is_learned_once",)),
    "U6 the type that would fit": Switch(
        ((hints, "_comparison", lambda *_: ""),),
        (f"{CLOUD}nodes.py::test_a_refusal_for_quota_compares_and_names_the_type_that_would_fit",)),
    "U6 plan knows a new project's quota": Switch(
        ((preview, "beyond_a_new_project", lambda spec, catalog: ()),),
        ("tests/advice/test_preview.py::test_what_a_new_project_may_not_have_is_said",)),
    "U6 doctor reads the quota of the type": Switch(
        ((google, "_too_small", lambda limits, need: {}),),
        ("tests/advice/test_doctor.py::test_a_rule_says_how_it_stands_and_what_to_do",)),
    "U6 init begins with what fits": Switch(
        ((starter, "FIRST_TYPE", "v5litepod-8"),),
        ("tests/config/test_starter.py::test_what_init_and_the_examples_ask_for_fits_a_new_project",)),
    "U8 the network of the file": Switch(
        ((bodies, "_tpu_network", lambda order: {}), (bodies, "_vm_network", lambda interface, zone: {})),
        (f"{CLOUD}organisations.py::test_machines_come_up_on_the_network_of_the_file",)),
    "U9 a policy is named": Switch(
        ((error_mapping, "_POLICY_NAMES", ()),),
        (f"{CLOUD}organisations.py::test_a_policy_is_named_with_the_setting_that_avoids_it_and_the_setting_does",)),
    "U9 host keys where guest attributes are closed": Switch(
        ((routes, "worker_keys", _only_attributes),),
        (f"{REACH}test_where_guest_attributes_are_closed_the_keys_come_from_the_workers_own_heartbeat",)),
    "U10 who pays for the calls of a user": Switch(
        ((clients.Clients, "_acting", lambda self, login: login),),
        (f"{CLOUD}clients.py::test_calls_of_a_user_are_charged_to_our_project_unless_the_login_says_otherwise",)),
    "U10 no advice for a project of Google's": Switch(
        ((GoogleRefusal, "charged_elsewhere", False),),
        (f"{CLOUD}organisations.py::test_a_call_charged_to_googles_own_project_names_ours",)),
    "U11 the first VM goes before the first TPU": Switch(
        ((apply.Actor, "_first_vm", lambda self, changes: []),),
        (f"{REFUSALS}test_a_zone_without_the_vms_machine_type_is_met_before_any_tpu_is_billed",)),
    "U12 a report counts for more than the state": Switch(
        ((node_verdict, "is_reporting", lambda *_: False),),
        (f"{BIRTHS}test_a_tpu_that_works_while_the_api_says_creating_is_not_replaced",)),
    "U13 the loop asks again for a deletion that had no effect": Switch(
        ((node_decision, "deleting", _asked_is_gone), (deployment_outcome, "deleting", _asked_is_gone)),
        ("tests/engine/test_down.py::test_a_tpu_that_is_not_wanted_any_more_goes_although_it_is_just_being_made",)),
    "U13 down asks again for a deletion that had no effect": Switch(
        ((Deletion, "_delete", _asked_once),),
        ("tests/engine/test_down.py::test_down_in_the_middle_of_a_creation_leaves_nothing",)),
    "U14 a family of images that is gone": Switch(
        ((project_reader.ProjectReader, "vm_image", lambda self, machine, image="": Present(machine)),),
        (f"{CLOUD}project_reader.py::test_the_family_of_the_vms_image_is_found_until_google_withdraws_it",)),
    "U15 budgets use the upper end of a price": Switch(
        ((Catalog, "tpu_price", _usual_price(Catalog.tpu_price)),),
        ("tests/pricing/test_cost.py::test_where_sources_differ_a_price_is_a_range",)),
    "U17 a zone without flex-start is left for the next": Switch(
        ((error_mapping, "_BY_TEXT", tuple(row for row in error_mapping._BY_TEXT if "flex_start" not in row[1])),),
        (f"{FLEX}test_a_zone_that_does_not_offer_flex_start_gives_way_to_the_next",)),
    "U17 a reservation that is not there": Switch(
        ((QueuedTpus, "_lacks_reservation", lambda self, code: False),),
        (f"{RESERVED}test_a_reservation_that_is_not_there_ends_the_asking_and_names_the_setting",)),
    "U17 a disk that is not in the zone": Switch(
        ((apply, "check_disks", lambda vms, order: None),),
        ("tests/engine/test_data_disks.py::test_a_disk_that_is_not_in_the_zone_is_refused_before_the_create",)),
    "U18 the lock that a dead process left": Switch(
        ((accelerator, "_remove", lambda lock: False),),
        (f"{AGENT}accelerator.py::test_a_lock_file_goes_when_its_process_has_gone",)),
    "U18 a stranger on the chip": Switch(
        ((accelerator, "device_users", lambda devices, processes: []),),
        (f"{AGENT}accelerator.py::test_a_foreign_process_is_named_and_its_lock_not_touched",)),
    "U19 TPU_NAME": Switch(
        ((render, "_template", _without("job.env.j2", "TPU_NAME='local'", "TPU_NAME={{ node }}")),),
        ("tests/scripts/test_render.py::test_on_a_tpu_the_tpu_is_local",)),
    "U20 large files go up in parts": Switch(
        ((storage.JobBucket, "_upload_in_parts", _whole),),
        (f"{AGENT}resumable.py::test_a_large_file_goes_up_in_parts",)),
    "U22 a zone without an answer is unknown": Switch(
        ((observe, "within", lambda found, zones: Present(())),),
        ("tests/engine/test_all_zone_lists.py::test_nothing_is_made_while_a_zone_gives_no_answer",)),
    "U22 TPUs in zones that nobody names": Switch(
        ((delete, "outside", lambda found, zones: ()),),
        ("tests/engine/test_down.py::test_down_names_machines_of_our_label_in_zones_outside_file_and_record",)),
    "U23 what the login may not look at is unknown": Switch(
        ((google, "not_observed", lambda observed, **_: stop(observed.message, "")),),
        ("tests/advice/test_doctor.py::test_a_rule_says_how_it_stands_and_what_to_do",)),
    "U24 a named account is not asked for": Switch(
        ((factory, "read_account", lambda clients, _, read=factory.read_account: read(clients)),),
        (f"{CLOUD}factory.py::test_a_named_account_is_taken_without_a_call",)),
    "U27 a reservation that nobody asked for": Switch(
        ((error_mapping, "_BY_TEXT", tuple(row for row in error_mapping._BY_TEXT if "reservation" not in row[1])),),
        (f"{CLOUD}errors.py::test_a_reservation_that_was_not_requested_is_no_reservation",)),
    "U28 silence counts after six minutes": Switch(
        ((never_reported, "_silence_tells", lambda *_: False),),
        ("tests/planning/test_never_reported.py::test_a_startup_script_that_does_not_even_begin_is_given_up_after_six_minutes",)),
    "U31 a role that was just given": Switch(
        ((storage, "GRANT_SETTLES", float("-inf")),),
        (f"{AGENT}storage.py::test_a_refusal_may_pass_while_the_account_s_role_is_new",)),
    "U32 a forgotten operation has not failed": Switch(
        ((operations, "read_once", _forgotten_is_failed),),
        ("tests/engine/test_unknown.py::test_a_create_whose_operation_is_forgotten_is_not_a_failed_one",)),
}  # fmt: skip
