"""``python -m fanout``."""

import sys

from fanout.cli import main

if __name__ == "__main__":
    sys.exit(main())
