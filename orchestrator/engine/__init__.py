"""The loop: observe, decide (in planning), act. Knows the world only through orchestrator.domain.ports."""
