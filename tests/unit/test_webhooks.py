"""Signatures, pauses and verdicts of webhooks, and where a message may not go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.adapters.http_webhooks import HttpSender
from pipeline.addresses import forbidden, networks
from pipeline.deadline import Deadline
from pipeline.egress import Egress
from pipeline.errors import DeadlineExceeded, Refused, Unreachable
from pipeline.webhooks import BUSY, Answer, Due, Outcome, Pace, Verdict, attempt, judge, wanted
from schemas import signatures
from schemas.events import TERMINAL_TYPES
from schemas.runs import RunKind
from schemas.signatures import sign, verify
from schemas.webhooks import Ending, Kind, Message, SigningSecret
from tests.webhook_receiver import receiving
from worker.log import Redaction
from worker.settings import load

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
FIVE_MINUTES = 300
OTHER = SigningSecret.new().reveal()


def headers(**changed: str) -> dict[str, str]:
    return {**sign([SECRET], MESSAGE, AT, BODY), **{name.replace("_", "-"): value for name, value in changed.items()}}


def test_the_published_example_is_signed_as_published() -> None:
    """The example with which the libraries of the convention are tested."""
    assert sign([SECRET], MESSAGE, AT, BODY) == {
        "webhook-id": MESSAGE,
        "webhook-timestamp": str(AT),
        "webhook-signature": SIGNATURE,
    }


def test_a_message_is_verified_by_either_secret_while_they_are_rotated() -> None:
    both = sign([OTHER, SECRET], MESSAGE, AT, BODY)
    assert both["webhook-signature"].count("v1,") == 2
    for secret in (OTHER, SECRET):
        assert verify(secret, both, BODY, AT) == MESSAGE
    with pytest.raises(ValueError, match="does not fit"):
        verify(SigningSecret.new().reveal(), both, BODY, AT)


@pytest.mark.parametrize(
    ("changed", "body", "now", "said"),
    [
        ({}, BODY + b" ", AT, "does not fit"),
        ({"webhook_id": "msg_other"}, BODY, AT, "does not fit"),
        ({"webhook_timestamp": str(AT + 1)}, BODY, AT, "does not fit"),
        ({"webhook_signature": ""}, BODY, AT, "does not fit"),
        ({"webhook_signature": "v1,é"}, BODY, AT, "does not fit"),
        ({"webhook_signature": "v2," + SIGNATURE[3:]}, BODY, AT, "does not fit"),
        ({"webhook_timestamp": "soon"}, BODY, AT, "no time"),
        ({"webhook_timestamp": "²"}, BODY, AT, "no time"),
        ({"webhook_timestamp": "-1"}, BODY, AT, "no time"),
        ({"webhook_timestamp": "9" * 5000}, BODY, AT, "no time"),
        ({}, BODY, AT + FIVE_MINUTES + 1, "too far"),
        ({}, BODY, AT - FIVE_MINUTES - 1, "too far"),
    ],
)
def test_what_was_changed_or_is_old_is_refused(changed: dict[str, str], body: bytes, now: float, said: str) -> None:
    assert verify(SECRET, headers(), BODY, AT + FIVE_MINUTES) == MESSAGE, "so it is the change that is refused"
    with pytest.raises(ValueError, match=said):
        verify(SECRET, headers(**changed), body, now)


def test_headers_are_found_in_any_case_and_missed_by_name() -> None:
    assert verify(SECRET, {name.title(): value for name, value in headers().items()}, BODY, AT) == MESSAGE
    for name in headers():
        with pytest.raises(ValueError, match=f"{name} is missing"):
            verify(SECRET, {key: value for key, value in headers().items() if key != name}, BODY, AT)
    with pytest.raises(ValueError, match="not base64"):
        verify("whsec_?", headers(), BODY, AT)


def test_a_receiver_needs_no_more_than_the_one_file(tmp_path: Path) -> None:
    """Copied to another place, and run by a Python that knows nothing of this project."""
    (tmp_path / "copied.py").write_bytes(Path(signatures.__file__).read_bytes())
    program = f"from copied import verify; print(verify({SECRET!r}, {headers()!r}, {BODY!r}, {AT}))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == MESSAGE


def test_a_new_secret_is_long_and_shown_by_nothing_but_reveal() -> None:
    secret = SigningSecret.new()
    assert len(secret.key) == 32 and secret.reveal() != SigningSecret.new().reveal()
    assert secret.reveal().removeprefix("whsec_") not in f"{secret!r} {secret}"
    assert Redaction().text(f"it is {secret.reveal()}, you know") == "it is ***, you know"


def test_kinds_and_endings_are_those_of_runs_and_events() -> None:
    """A new ending of runs, or kind of run that people ask for, is one of webhooks too; a batch is a part of a run."""
    assert {one.value for one in Ending} == TERMINAL_TYPES
    assert {one.value for one in Kind} == {kind.value for kind in RunKind} - {"batch"}


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_to_their_most_and_are_spread(number: int, chance: float) -> None:
    pace = Pace()
    pause = pace.pause(number, chance)
    assert 0.75 * pace.first <= pause <= 1.25 * pace.most
    assert pace.pause(number, 0.0) <= pause <= pace.pause(number, 1.0)
    assert pace.pause(number + 1, 0.0) >= pace.pause(number, 0.0)


def test_the_usual_pace_begins_after_seconds_and_ends_within_a_day() -> None:
    pace = Pace()
    pauses = [pace.pause(number, 0.5) for number in range(1, pace.attempts)]
    assert pauses[:3] == [5.0, 20.0, 80.0] and pauses[-1] == 6 * 3600
    assert 16 * 3600 < sum(pauses) < 24 * 3600


@given(st.integers(100, 599), st.integers(1, 20))
def test_every_status_means_one_thing(status: int, number: int) -> None:
    """2xx is delivered, 410 disables, all else is tried again until the last attempt; a redirect is no exception."""
    pace = Pace()
    verdict = judge(status, "", number, pace, 0.5)
    assert verdict.status == status
    if status // 100 == 2:
        assert verdict == Verdict(Outcome.DELIVERED, status)
    elif status == 410:
        assert verdict.outcome is Outcome.GONE
    elif number < pace.attempts:
        assert verdict.outcome is Outcome.RETRIED and verdict.pause > 0
    else:
        assert verdict.outcome is Outcome.FAILED and str(status) in verdict.error


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("120", 120), ("9" * 400, float("inf")), ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120), ("Thu Jan  1 00:02:00 2026", 120),
        ("Thu, 01 Jan 2026 02:02:00 +0200", 120), ("Wed, 31 Dec 2025 00:00:00 GMT", 0), ("", 0), ("-5", 0), ("1.5", 0),
        ("soon", 0), ("²", 0), ("Thu, 99 Jan 2026 00:02:00 GMT", 0), ("Thu, 01 Jan 99999 00:00:00 GMT", 0), ("1, 2", 0),
    ],
)  # fmt: skip
def test_what_a_receiver_asks_for_is_seconds_or_a_date(text: str, seconds: float) -> None:
    """In any of the three forms of RFC 9110; what is neither asks for nothing."""
    assert wanted(text, datetime(2026, 1, 1, tzinfo=UTC).timestamp()) == seconds


@given(st.integers(300, 599).filter(lambda status: status != 410), st.integers(1, 9), st.floats(0, 1e9))
def test_a_wish_is_granted_up_to_the_longest_pause_and_hurries_nothing(status: int, number: int, wish: float) -> None:
    """One that speaks of the receiver holds for all that it is to be told."""
    pace = Pace()
    usual, verdict = pace.pause(number, 0.5), judge(status, "", number, pace, 0.5, wish)
    assert verdict.pause == max(usual, min(wish, pace.most))
    assert verdict.hold == (min(wish, pace.most) if status in BUSY else 0)
    assert judge(204, "", number, pace, 0.5, wish) == Verdict(Outcome.DELIVERED, 204)
    assert judge(503, "", pace.attempts, pace, 0.5, wish).hold == min(wish, pace.most)


def due(url: str = "https://example.org/", number: int = 1) -> Due:
    message = Message(type="ping", run_id=None, corpus=None, seq=None, at="2026-01-01T00:00:00+00:00", body={})
    return Due(1, number, "wh_0123456789abcdef", url, (SigningSecret.new(), SigningSecret.new()), "ping-1", message)


class Sender:
    """Answers as it is told, and keeps what it was to send."""

    def __init__(self, answer: int | Exception, retry_after: str = "") -> None:
        self.answer = answer
        self.retry_after = retry_after
        self.sent: list[tuple[Mapping[str, str], bytes]] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> Answer:
        self.sent.append((headers, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Answer(self.answer, self.retry_after)


async def test_an_attempt_is_signed_by_all_secrets_at_the_time_that_it_is_made() -> None:
    one, sender = due(), Sender(200)
    assert (await attempt(one, sender, Pace(), 1000.9, 0.5)).outcome is Outcome.DELIVERED
    [(said, body)] = sender.sent
    assert said["webhook-timestamp"] == "1000" and json.loads(body)["type"] == "ping"
    for secret in one.secrets:
        assert verify(secret.reveal(), said, body, 1000) == "ping-1"
        assert secret.reveal() not in repr(one)


async def test_an_attempt_hears_when_the_receiver_wants_the_next() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    verdict = await attempt(due(), Sender(503, " Thu, 01 Jan 2026 01:00:00 GMT "), Pace(), at, 0.5)
    assert (verdict.outcome, verdict.pause, verdict.hold) == (Outcome.RETRIED, 3600, 3600)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Refused("address rule: no"), "address rule: no"),
        (Unreachable("no connection to the server"), "no connection"),
        (DeadlineExceeded(), "no answer within 10 s"),
        (ZeroDivisionError("a secret"), "broke down (ZeroDivisionError)"),
    ],
)
async def test_whatever_goes_wrong_is_noted_and_tried_again(error: Exception, said: str) -> None:
    verdict = await attempt(due(), Sender(error), Pace(), 0, 0.5)
    assert (verdict.outcome, verdict.status) == (Outcome.RETRIED, None)
    assert said in verdict.error and "secret" not in verdict.error
    last = await attempt(due(number=10), Sender(error), Pace(), 0, 0.5)
    assert last.outcome is Outcome.FAILED


LITERALS = [
    "http://127.0.0.1/", "https://10.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[fd00:ec2::254]/",
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:a9fe:a9fe]/", "http://100.64.0.1/", "http://2130706433/",
    "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://0/", "http://①②⑦.⓪.⓪.①/", "http://localhost/",
    "http://a.localhost./", "http://[64:ff9b::7f00:1]/", "http://224.0.0.1/",
]  # fmt: skip
FORMS = {
    "http://user:pass@example.org/": "credential rule",
    "ftp://example.org/": "scheme rule",
    "file:///etc/passwd": "scheme rule",
    "http://example.org:8080/": "port rule",
    "http://example.org:0/": "port rule",
    "http://exa mple.org/": "URL rule",
    "http://example.org\\@127.0.0.1/": "URL rule",
    "http:///x": "URL rule",
}


@pytest.mark.parametrize("url", LITERALS)
def test_a_literal_private_address_is_refused_at_once(url: str) -> None:
    """In every notation that a resolver would take for an address; nothing is resolved."""
    with pytest.raises(Refused, match="address rule"):
        Egress().check(url)


@pytest.mark.parametrize(("url", "rule"), FORMS.items())
def test_a_url_that_is_none_is_refused_at_once(url: str, rule: str) -> None:
    with pytest.raises(Refused, match=rule):
        Egress().check(url)
    with pytest.raises(Refused, match=r"rule:"):
        Egress(allowed=networks("0.0.0.0/0, ::/0")).check(url.replace(":8080", ":0"))


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://", "http://[", "http://user@"]))
def test_any_text_is_a_url_or_refused(text: str, start: str) -> None:
    try:
        assert Egress().check(start + text).hostname
    except Refused as error:
        assert "rule:" in str(error)


def test_networks_that_are_allowed_are_reached_on_any_port_and_nothing_beside_them() -> None:
    egress = Egress(allowed=networks("10.1.0.0/16, fd12::/16"))
    assert egress.check("http://10.1.2.3:8080/").port == 8080
    assert egress.check("http://[fd12::1]:9000/").port == 9000
    for url in ("http://10.2.0.1/", "http://127.0.0.1/", "http://[fd13::1]/", "http://8.8.8.8:8080/"):
        with pytest.raises(Refused, match=r"address rule|port rule"):
            egress.check(url)


@pytest.mark.parametrize("address", ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "0.0.0.0", "[::]"])
def test_no_list_of_networks_allows_where_clouds_tell_their_secrets(address: str) -> None:
    with pytest.raises(Refused, match="address rule"):
        Egress(allowed=networks("0.0.0.0/0,::/0")).check(f"http://{address}/")


def test_the_setting_is_a_list_of_networks() -> None:
    given = load({"SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS": "10.0.0.0/8, 192.168.7.0/24"}).webhooks_private_networks
    assert [str(one) for one in given] == ["10.0.0.0/8", "192.168.7.0/24"]
    assert load({}).webhooks_private_networks == ()
    for wrong in ("10.0.0.1/8", "everything"):
        with pytest.raises(Exception, match="SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS") as caught:
            load({"SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS": wrong})
        assert type(caught.value).__name__ == "ConfigurationError"


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    """Also not to where another message could go."""

    async def redirect(_: object) -> int:
        return 307

    async with receiving(redirect) as receiver:
        for target in ("http://169.254.169.254/", f"http://hooks.test:{receiver.port}/elsewhere"):
            receiver.location = target
            answer = await HttpSender(receiver.egress()).post(receiver.url, {}, b"{}", Deadline.after(10))
            assert answer == Answer(307)
    assert [one.path for one in receiver.got] == ["/in", "/in"]


async def test_a_name_is_checked_each_time_it_is_resolved() -> None:
    """A name that leads to the receiver at first, and then to a private place, gets one message."""
    async with receiving() as receiver:
        answers = [["127.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["10.0.0.1"], ["::ffff:10.0.0.1"]]

        async def rebinding(host: str, port: int) -> list[str]:
            return answers.pop(0)

        def rule(address: str) -> str:
            return "" if address == "127.0.0.1" else forbidden(address)

        sender = HttpSender(Egress(resolver=rebinding, rule=rule, ports={"http": receiver.port}))
        assert await sender.post(receiver.url, {}, b"{}", Deadline.after(10)) == Answer(204)
        while answers:
            with pytest.raises(Refused, match="address rule"):
                await sender.post(receiver.url, {}, b"{}", Deadline.after(10))
    assert len(receiver.got) == 1


async def test_an_answer_without_end_is_left_after_its_head() -> None:
    """Nothing of a body is read; a head without end, and silence, end at the deadline or at the library's bound."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    sent = {"/body": b"HTTP/1.1 200 OK\r\n\r\n", "/head": b"HTTP/1.1 200 OK\r\nX: ", "/silence": b""}

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                path = (await stream.receive()).split(b" ")[1].decode()
                await stream.send(sent[path] or b"H")
                while path != "/silence":
                    await stream.send(b"x" * 10_000)
                await anyio.sleep_forever()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        sender = HttpSender(Egress(allowed=networks("127.0.0.0/8")))
        base = f"http://127.0.0.1:{port}"
        assert await sender.post(f"{base}/body", {}, b"{}", Deadline.after(10)) == Answer(200)
        with pytest.raises(Unreachable):
            await sender.post(f"{base}/head", {}, b"{}", Deadline.after(30))
        with pytest.raises(DeadlineExceeded):
            await sender.post(f"{base}/silence", {}, b"{}", Deadline.after(0.3))
        group.cancel_scope.cancel()


async def test_a_receiver_that_is_away_is_unreachable_and_a_strange_name_too() -> None:
    async with receiving() as receiver:
        egress = receiver.egress()
    sender = HttpSender(egress)
    with pytest.raises(Unreachable, match="no connection"):
        await sender.post(receiver.url, {}, b"{}", Deadline.after(10))
    for host in (".example.org", "a..b", "x" * 70 + ".org"):
        with pytest.raises(Unreachable):
            await sender.post(f"http://{host}/", {}, b"{}", Deadline.after(10))


async def test_a_name_of_other_letters_goes_over_the_wire_in_ascii() -> None:
    async with receiving() as receiver:
        url = f"http://bücher.test:{receiver.port}/in"
        assert await HttpSender(receiver.egress()).post(url, {}, b"{}", Deadline.after(10)) == Answer(204)
    assert receiver.got[0].headers["host"] == f"xn--bcher-kva.test:{receiver.port}"
