"""Measurements of this software beside others that could do its job. ``make bench``; what is measured and how: README.md."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"

sys.path.insert(0, str(ROOT / "tests"))  # the private broker and what else stands in tests/services
