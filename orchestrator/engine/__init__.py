"""The loop: observe, decide (in core), act. Knows the world only through orchestrator.domain.ports."""
