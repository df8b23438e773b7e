"""Regional fan-out delivery: the home side and what both sides share."""
