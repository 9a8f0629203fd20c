"""Names that had a second word for a thing, with the word that they have now; tests/test_words_in_code.py."""

RETIRED = {
    "Failure": "GoogleRefusal; a failure is what comes of a fault",
    "Taken": "LimitedBuffer, Measurement",
    "Parcel": "Download",
    "parcel": "download",
    "parcel_of": "download_of",
    "Word": "RehearsalResult",
    "Stretch": "UseSpan; a period is a span",
    "NodeStretch": "NodeUseSpan",
    "stretches": "use_spans",
    "stretches_of": "use_spans_of",
    "runs_on": "mode (of a deadline), on (of a sidecar); job.run_on is the setting",
    "NextUp": "UpPlan",
    "PlannedUp": "PlanSummary",
    "Watcher": "Loop; the watcher is the process that runs it",
    "Watching": "WatcherStatus",
    "watching": "watcher; a WatchAll is one of many loops",
    "holder_of": "watcher_of, socket_owner_of",
    "DeviceHolder": "DeviceUser; a holder has the lease",
    "cost_usd": "usd",
    "cost_upper_usd": "upper_usd",
    "SPENT": "LIMIT_REACHED (an outcome), OVER_BUDGET",
    "END_SPENT": "END_LIMIT_REACHED",
}
"""Of classes, functions, arguments and fields."""
