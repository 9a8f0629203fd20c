"""Run the loop: observe, decide (in planning), act. Reach the cloud only through `orchestrator.domain.ports`."""
