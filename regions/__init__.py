"""What runs in a region: scheduler, consumer, gate, retry policy, sender."""
