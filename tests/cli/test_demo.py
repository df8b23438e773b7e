"""`fanout demo` as it is typed; what it shows and leaves behind is proven with the demo itself."""

import json

from .conftest import process


async def test_the_first_versions_of_the_day_end_balanced_in_one_document(bare):
    with process("demo", "--versions", "20", "--json") as demo:
        out, err = demo.communicate(timeout=100)
    assert demo.returncode == 0, err.decode()
    assert json.loads(out)["balanced"] is True


async def test_a_day_of_no_versions_is_exit_status_2(bare):
    said = await bare("demo", "--versions", "0")
    assert (said.status, said.out) == (2, "")
