"""However the demo ends, no process and no file of it stays."""

import os
import signal

import pytest

DELIVERING = "us: "


@pytest.mark.parametrize("moment", ["schemas", "publishing and delivering", DELIVERING])
async def test_ctrl_c_takes_everything_down(start_demo, moment):
    demo = start_demo()
    await demo.says(moment)
    known = demo.descendants()
    assert known
    demo.press_ctrl_c()
    assert await demo.ended() == 130
    assert "interrupted by SIGINT" in demo.err
    assert "Traceback" not in demo.err
    await demo.left_nothing(known)


async def test_ctrl_c_again_and_again_changes_nothing(start_demo):
    demo = start_demo()
    await demo.says(DELIVERING)
    known = demo.descendants()
    while demo.process.poll() is None:
        try:
            demo.press_ctrl_c()
        except ProcessLookupError:
            break
    assert await demo.ended() in (130, -signal.SIGINT)  # the last one may meet an interpreter that is on its way out
    await demo.left_nothing(known)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_polite_kill_takes_everything_down(start_demo, number):
    demo = start_demo()
    await demo.says(DELIVERING)
    known = demo.descendants()
    demo.process.send_signal(number)
    assert await demo.ended() == 128 + number
    await demo.left_nothing(known)


async def test_a_kill_that_nobody_can_answer_takes_everything_along(start_demo):
    demo = start_demo()
    await demo.says(DELIVERING)
    known = demo.descendants()
    demo.process.kill()
    assert await demo.ended() == -signal.SIGKILL
    await demo.left_nothing(known)


@pytest.mark.parametrize("victim", ["/postgres -D", "-m fanout.receiver"])
async def test_what_breaks_in_the_middle_is_said_and_taken_down(start_demo, victim):
    demo = start_demo("--versions", "300")
    await demo.says(DELIVERING)
    known = demo.descendants()
    os.kill(next(pid for pid, command in known.items() if victim in command), signal.SIGKILL)
    assert await demo.ended(100) == 1
    assert "Traceback" not in demo.err
    assert "the demo failed: " in demo.err
    await demo.left_nothing(known)
