"""What runs in a region: pure decisions, the sender (`egress`), the scheduler, the consumer."""
