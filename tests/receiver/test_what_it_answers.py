"""The receiver follows its script: what it answers, when, to whom, and the same for the same seed."""

import asyncio
import json
import time
from email.utils import parsedate_to_datetime

import pytest

from fanout.model.problems import Invalid
from fanout.receiver import parse_script
from fanout.receiver.script import Playback
from services import eventually


async def statuses(wire, subscriber: str, count: int) -> list[int]:
    return [(await wire.ask(subscriber))[0] for _ in range(count)]


async def test_without_a_rule_everything_is_200(wire):
    status, headers, body = await wire.ask("a")
    assert (status, body) == (200, b"ok\n")
    assert "date" in headers


async def test_a_rule_holds_for_the_subscribers_that_it_names(receiver, wire):
    receiver.use([{"subscriber": "carrier-*", "answer": 500}, {"subscriber": "bank-1", "answer": 410}])
    assert [(await wire.ask(name))[0] for name in ("carrier-1", "bank-1", "bank-10", "a-carrier-1")] == [
        500,
        410,
        200,
        200,
    ]


async def test_the_first_rule_that_fits_decides(receiver, wire):
    receiver.use([{"when": {"first": 1}, "answer": 500}, {"when": {"first": 2}, "answer": 502}, {"answer": 410}])
    assert await statuses(wire, "a", 3) == [500, 502, 410]


async def test_every_nth_request_is_counted_per_subscriber(receiver, wire):
    receiver.use([{"when": {"every": 3}, "answer": 500}])
    assert await statuses(wire, "a", 6) == [200, 200, 500, 200, 200, 500]
    assert await statuses(wire, "b", 3) == [200, 200, 500]


def test_a_rule_may_hold_for_a_span_of_time():
    playback = Playback(parse_script([{"when": {"from_seconds": 5, "until_seconds": 10}, "answer": 500}]), started=100)
    assert [playback.answer("a", 100 + t).status for t in (0, 4.9, 5, 9.9, 10)] == [200, 200, 500, 500, 200]


def test_chance_depends_on_the_seed_and_not_on_who_comes_first():
    def play(seed: int, order: list[str]) -> dict[str, list[int]]:
        playback = Playback(
            parse_script({"seed": seed, "rules": [{"when": {"probability": 0.3}, "answer": 500}]}), started=0
        )
        answers: dict[str, list[int]] = {"a": [], "b": []}
        for name in order:
            answers[name].append(playback.answer(name, 0).status)
        return answers

    one = play(1, ["a"] * 400 + ["b"] * 400)
    assert one == play(1, ["a", "b"] * 400)
    assert one != play(2, ["a", "b"] * 400)
    assert one["a"] != one["b"]
    assert 80 < one["a"].count(500) < 160


def test_all_conditions_of_a_rule_must_hold():
    playback = Playback(parse_script([{"when": {"every": 2, "first": 3}, "answer": 500}]), started=0)
    assert [playback.answer("a", 0).status for _ in range(4)] == [200, 500, 200, 200]


async def test_retry_after_in_seconds_as_a_date_and_as_any_text(receiver, wire):
    forms = [7, 1.5, {"date_in_seconds": 30}, "soon"]
    receiver.use([{"when": {"first": n}, "answer": 429, "retry_after": form} for n, form in enumerate(forms, 1)])
    seen = [(await wire.ask("a"))[1]["retry-after"] for _ in forms]
    assert seen[:2] == ["7", "1.5"]
    assert 28 < parsedate_to_datetime(seen[2]).timestamp() - time.time() <= 30
    assert seen[3] == "soon"


async def test_a_delay_comes_before_the_answer(receiver, wire):
    receiver.use([{"delay_seconds": 0.2, "answer": 503}])
    started = time.monotonic()
    assert (await wire.ask("a"))[0] == 503
    assert time.monotonic() - started >= 0.2


async def test_a_hang_ends_with_a_closed_connection(receiver, wire):
    receiver.use([{"hang_seconds": 0.1}])
    wire.post("a")
    assert await wire.closed()
    assert (receiver.stats.of("a").cut, dict(receiver.stats.of("a").answers)) == (1, {})


async def test_a_hang_may_end_with_an_answer(receiver, wire):
    receiver.use([{"hang_seconds": 0.1, "answer": 200}])
    assert (await wire.ask("a"))[0] == 200


async def test_it_can_close_without_a_word(receiver, wire):
    receiver.use([{"close": True}])
    wire.post("a")
    assert await wire.closed()
    await eventually(lambda: receiver.stats.of("a").in_flight == 0)


async def test_body_and_headers_are_as_the_script_says(receiver, wire):
    rule = {"answer": 302, "body": "\u00fc", "headers": {"Location": "http://169.254.169.254/", "Date": "never"}}
    receiver.use([rule])
    status, headers, body = await wire.ask("a")
    assert (status, headers["location"], headers["date"], body) == (
        302,
        "http://169.254.169.254/",
        "never",
        b"\xc3\xbc",
    )


async def test_a_header_may_come_twice_and_with_any_byte(receiver, wire):
    receiver.use([{"answer": 429, "headers": {"Retry-After": ["1", "2"], "X-Odd": "\u00ff"}}])
    wire.post("a")
    head = await wire.reader.readuntil(b"\r\n\r\n")
    assert head.count(b"Retry-After: ") == 2
    assert b"X-Odd: \xff\r\n" in head


async def test_odd_statuses_can_be_sent(receiver, wire):
    receiver.use([{"when": {"first": n}, "answer": status} for n, status in enumerate((204, 199, 799), 1)])
    assert [(await wire.ask("a"))[0] for _ in range(3)] == [204, 199, 799]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"anwser": 500}, "rule 2: anwser: no such field; known are subscriber, when"),
        ({"answer": "500"}, "rule 2: answer: '500' is not a whole number"),
        ({"answer": 42}, "rule 2: answer: 42 is out of range; from 100 to 999"),
        ({"answer": True}, "rule 2: answer: True is not a whole number"),
        ({"when": {"every": 0}}, "rule 2: when.every: 0 is out of range; from 1"),
        ({"when": {"evry": 1}}, "rule 2: when.evry: no such field"),
        ({"when": {"probability": 2}}, "rule 2: when.probability: 2 is more than 1"),
        ({"when": {"from_seconds": -1}}, "rule 2: when.from_seconds: -1 is not a number from 0 upwards"),
        ({"when": []}, "rule 2: when: a list is not an object"),
        ({"delay_seconds": "1"}, "rule 2: delay_seconds: '1' is not a number"),
        ({"hang_seconds": float("inf")}, "rule 2: hang_seconds: inf is not a number"),
        ({"retry_after": [1]}, "rule 2: retry_after: [1] is no time; seconds, "),
        ({"retry_after": "1\r\nX: y"}, "rule 2: retry_after: has characters"),
        ({"close": "yes"}, "rule 2: close: 'yes' is neither true nor false"),
        ({"close": True, "answer": 200}, "rule 2: close: a rule that closes"),
        ({"body": 1}, "rule 2: body: a number is not a text"),
        ({"headers": {"bad name": "x"}}, "rule 2: headers: 'bad name' is not a header name"),
        ({"headers": {"X": "a\nb"}}, "rule 2: headers.X: 'a\\nb' is not a header value"),
        ("429", "rule 2: a text is not an object"),
    ],
)
def test_a_wrong_rule_is_named_with_its_field(rule, said):
    with pytest.raises(Invalid) as caught:
        parse_script([{"answer": 200}, rule])
    assert str(caught.value).startswith(said)


def test_all_problems_of_a_script_are_told_at_once():
    with pytest.raises(Invalid) as caught:
        parse_script([{"answer": 1, "body": 2}, {"delay_seconds": -1}])
    assert [problem.field for problem in caught.value.problems] == [
        "rule 1: answer",
        "rule 1: body",
        "rule 2: delay_seconds",
    ]


@pytest.mark.parametrize("document", [{"rules": {}}, "text", 7, None, {"seed": "x"}, {"rule": []}])
def test_what_is_not_a_script_at_all_is_refused(document):
    with pytest.raises(Invalid):
        parse_script(document)


class TestControl:
    async def call(self, wire, method: str, path: str, document: object = None) -> tuple[int, dict]:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        wire.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        status, _, answer = await wire.answer()
        return status, json.loads(answer)

    async def test_stats_can_be_read_and_reset(self, wire):
        await wire.ask("a", idempotency_key="k")
        status, seen = await self.call(wire, "GET", "/-/stats")
        assert (status, seen["total"]["requests"], seen["subscribers"]["a"]["distinct_keys"]) == (200, 1, 1)
        assert (await self.call(wire, "POST", "/-/reset"))[0] == 200
        assert (await self.call(wire, "GET", "/-/stats"))[1]["total"]["requests"] == 0

    async def test_a_script_can_be_set_and_its_counts_begin_anew(self, wire):
        for _ in range(2):
            assert (await self.call(wire, "PUT", "/-/script", [{"when": {"first": 1}, "answer": 500}]))[0] == 200
            assert await statuses(wire, "a", 2) == [500, 200]

    async def test_a_wrong_script_changes_nothing(self, receiver, wire):
        receiver.use([{"answer": 500}])
        status, said = await self.call(wire, "PUT", "/-/script", [{"answer": 7}])
        assert (status, said) == (422, {"problems": ["rule 1: answer: 7 is out of range; from 100 to 999"]})
        assert (await self.call(wire, "PUT", "/-/script", b"{"))[0] == 400
        assert await statuses(wire, "a", 1) == [500]

    async def test_secrets_can_be_set_and_never_read(self, wire):
        secret = "whsec_" + "QUFB" * 8
        assert (await self.call(wire, "PUT", "/-/secrets", {"a": [secret]}))[0] == 200
        assert await statuses(wire, "a", 1) == [401]
        assert secret not in json.dumps(await self.call(wire, "GET", "/-/stats"))


class TestAsAProcess:
    async def test_it_says_where_it_listens_and_sums_up_at_the_end(self, roles, connect, tmp_path):
        script = tmp_path / "script.json"
        script.write_text('[{"when": {"every": 2}, "answer": 500}]')
        started = roles.start("--port", "0", "--script", script, "--json", module="fanout.receiver")
        line = await started.says("listening on http://127.0.0.1:")
        assert started.log.startswith("listening on")
        wire = await connect(int(line.rpartition(":")[2]))
        assert await statuses(wire, "a", 2) == [200, 500]
        started.terminate()
        assert await started.ended() == 0
        seen = json.loads(started.log.partition("\n")[2])
        assert seen["subscribers"]["a"]["answers"] == {"200": 1, "500": 1}

    async def test_ctrl_c_prints_a_table(self, roles, connect):
        started = roles.start(module="fanout.receiver")
        wire = await connect(int((await started.says("listening on")).rpartition(":")[2]))
        await statuses(wire, "carrier-1", 3)
        started.interrupt()
        assert await started.ended() == 0
        assert "carrier-1" in started.log
        assert "200:3" in started.log

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("[{}, {\n]", "is not JSON: Expecting property name enclosed in double quotes at line 2, column 1"),
            ('[{"answer": 1}]', "rule 1: answer: 1 is out of range"),
            (None, "cannot read the script: No such file or directory"),
        ],
    )
    async def test_a_wrong_script_is_one_clear_line_and_exit_2(self, roles, tmp_path, content, said):
        script = tmp_path / "script.json"
        if content is not None:
            script.write_text(content)
        started = roles.start("--script", script, module="fanout.receiver")
        assert await started.ended() == 2
        assert said in started.log
        assert len(started.log.splitlines()) == 1

    async def test_a_taken_port_is_exit_2(self, roles, receiver):
        started = roles.start("--port", receiver.port, module="fanout.receiver")
        assert await started.ended() == 2
        assert f"cannot listen on 127.0.0.1:{receiver.port}" in started.log


async def test_closing_the_receiver_cuts_what_hangs(receiver, wire):
    receiver.use([{"hang_seconds": 60}])
    wire.post("a")
    await eventually(lambda: receiver.stats.of("a").in_flight == 1)
    await asyncio.wait_for(receiver.close(), 5)
    assert await wire.closed()
    assert receiver.stats.of("a").in_flight == 0
