"""The HTTP API: versions in, and what became of them out."""
