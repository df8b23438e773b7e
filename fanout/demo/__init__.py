"""`fanout demo`: a real day on this machine alone, and the proof that it adds up."""
