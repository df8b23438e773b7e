import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path that other users may enter (pytest's own are long and private)."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
