"""One webhook: what is sent, what counts as delivered, and where it will not go."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.dispatchers import LOOPBACK
from tests.support.receivers import Receiver, Reply, Request

from ensue.errors import ServiceError
from ensue.service.delivery.addresses import AddressGuard, AddressRefusedError, RefusedDeliveryError
from ensue.service.delivery.sink import DeliveryError
from ensue.service.delivery.webhooks import WebhookLimits, Webhooks
from ensue.service.secrets import SigningSecret, encode_secrets, new_secret
from ensue.service.store.outbox import Notification

SECRET = new_secret()
QUICK = WebhookLimits(connect_seconds=2.0, seconds=0.3)
NOW = 1_000_000.0


def note(number: int = 1, *, user: int = 1) -> Notification:
    return Notification(number, 7, user, "match", f"m{number}", 0.0, b'{"n":%d}' % number)


def config(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "secrets": encode_secrets([SigningSecret(SECRET)]), **more}


def delivered(
    answer: Callable[[Request], Reply],
    send: Callable[[Webhooks, Receiver], Awaitable[None]],
    limits: WebhookLimits | None = None,
    **given: Any,
) -> Receiver:
    """What a receiver that answers so got."""

    async def story() -> Receiver:
        guard = AddressGuard(given.get("allow", LOOPBACK), resolve=given.get("resolve"))
        webhooks = Webhooks(guard, limits, tls=given.get("tls"), clock=lambda: NOW)
        async with Receiver(answer, tls=given.get("serving")) as receiver:
            try:
                await asyncio.wait_for(send(webhooks, receiver), 60)
            finally:
                await webhooks.close()
        return receiver

    return asyncio.run(story())


async def _send_one(webhooks: Webhooks, receiver: Receiver) -> None:
    await webhooks.make(config(receiver.url)).send([note()])


def undelivered(reply: Reply, limits: WebhookLimits | None = None) -> DeliveryError:
    """How a webhook to a receiver that answers so fails."""
    with pytest.raises(DeliveryError) as error:
        delivered(lambda _: reply, _send_one, limits)
    return error.value


# ------------------------------------------------------------------------------- what is sent


def test_a_note_is_one_signed_request() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hook = webhooks.make(config(receiver.url + "?a=b", headers={"Authorization": "Bearer x"}))
        await hook.send([note()])

    receiver = delivered(lambda _: Reply(200, body=b"ok"), send)
    (request,) = receiver.requests
    assert (request.path, request.body) == ("/hook?a=b", note().body)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["authorization"] == "Bearer x"
    assert request.id == "m1"
    assert request.is_signed_with(SECRET)


def test_a_connection_is_used_again() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(receiver.url)).send([note(n) for n in range(20)])

    receiver = delivered(lambda _: Reply(200, body=b"x" * 100), send)
    assert receiver.ids == [f"m{n}" for n in range(20)]
    assert receiver.connections == 1


def test_a_connection_that_the_receiver_has_closed_is_not_used_again() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hook = webhooks.make(config(receiver.url))
        for number in range(3):
            await hook.send([note(number)])
            await receiver.hang_up()
            await asyncio.sleep(0.02)  # until that is known on this side

    receiver = delivered(lambda _: Reply(), send)
    assert (receiver.taken, receiver.connections) == (["m0", "m1", "m2"], 3)


def test_no_more_connections_are_kept_than_may_be_used() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        async with Receiver() as second, Receiver() as third:
            for one in (receiver, second, third, receiver, second, third):
                await webhooks.make(config(one.url)).send([note()])
                assert len(webhooks._connections) <= 2
            assert [one.connections for one in (second, third)] == [2, 2]

    assert delivered(lambda _: Reply(), send, WebhookLimits(at_once=2)).connections == 2


def test_an_endless_answer_is_not_read() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hook = webhooks.make(config(receiver.url))
        await hook.send([note(1), note(2)])

    receiver = delivered(lambda _: Reply(200, body=b"x" * (8 << 20)), send)
    assert receiver.taken == ["m1", "m2"]
    assert receiver.connections == 2  # the rest was left unread, so the connection was closed


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_counts(status: int) -> None:
    assert delivered(lambda _: Reply(status), _send_one).taken == ["m1"]


def test_what_follows_a_success_does_not_matter() -> None:
    stuck = Reply(200, body=b"xx", how="stuck")
    assert delivered(lambda _: stuck, _send_one, QUICK).taken == ["m1"]


# ------------------------------------------------------------------------------- what fails


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    error = undelivered(Reply(status, {"location": "http://127.0.0.1:1/"}))
    assert f"{status}" in error.why
    assert "redirects are not followed" in error.why
    assert not error.gone
    assert error.retry_after is None


@pytest.mark.parametrize("status", [400, 401, 404, 500, 502, 599])
def test_other_answers_are_failures(status: int) -> None:
    error = undelivered(Reply(status, body=b"do not show this"))
    assert f"answered {status}" in error.why
    assert "show" not in error.why
    assert (error.sent, error.gone, error.retry_after) == (0, False, None)


def test_gone_is_gone() -> None:
    assert undelivered(Reply(410)).gone


@pytest.mark.parametrize(
    ("status", "header", "asked"),
    [
        (429, "120", 120.0),
        (503, "7", 7.0),
        (429, None, 0.0),
        (503, None, None),
        (503, "Mon, 12 Jan 1970 13:47:40 GMT", 60.0),
        (503, "Mon, 12 Jan 1970 13:00:00 GMT", 0.0),
        (503, "whenever", None),
        (503, "9" * 400, 999_999_999_999.0),
        (500, "120", None),
    ],
)
def test_a_receiver_may_ask_to_wait(status: int, header: str | None, asked: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    assert undelivered(Reply(status, headers)).retry_after == asked


@pytest.mark.parametrize(
    ("how", "said"), [("hang", "no answer"), ("cut", "closed the connection"), ("half", "closed the connection")]
)
def test_a_receiver_that_does_not_answer_has_failed(how: str, said: str) -> None:
    assert said in undelivered(Reply(how=how), QUICK).why


def test_nobody_there_is_a_failure() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        receiver._server.close()
        await receiver._server.wait_closed()
        await _send_one(webhooks, receiver)

    with pytest.raises(DeliveryError, match=r"no connection to http://127\.0\.0\.1"):
        delivered(lambda _: Reply(), send)


def test_how_many_came_before_the_failure_is_told() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(receiver.url)).send([note(1), note(2), note(3)])

    with pytest.raises(DeliveryError) as error:
        delivered(lambda request: Reply(500 if request.id == "m3" else 200), send)
    assert error.value.sent == 2


def test_a_request_that_hangs_does_not_hold_its_place() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hook = webhooks.make(config(receiver.url))
        with pytest.raises(DeliveryError):
            await hook.send([note(1)])
        await hook.send([note(2)])

    limits = WebhookLimits(seconds=0.3, at_once=1)
    hang = lambda request: Reply(how="hang" if request.id == "m1" else "whole")
    assert delivered(hang, send, limits).taken == ["m2"]


# ------------------------------------------------------------------------------- how many at once


def test_no_more_requests_at_a_time_than_allowed() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        hooks = [webhooks.make(config(f"{receiver.url}/{n}")) for n in range(30)]
        sends = [asyncio.create_task(hook.send([note(n, user=n)])) for n, hook in enumerate(hooks)]
        await receiver.until(8)
        receiver.gate.set()
        await asyncio.gather(*sends)

    receiver = delivered(lambda _: Reply(), send, WebhookLimits(at_once=8))
    assert receiver.at_once == 8
    assert len(receiver.taken) == 30


def test_one_user_and_one_receiver_leave_room_for_others() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hang = webhooks.make(config(receiver.url))
        hanging = [asyncio.create_task(hang.send([note(n)])) for n in range(50)]
        await receiver.until(2)
        async with Receiver() as other:
            for user in (1, 2):
                await webhooks.make(config(other.url)).send([note(100, user=user)])
            assert other.taken == ["m100", "m100"]
        assert len(receiver.requests) == 2
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    delivered(lambda _: Reply(how="hang"), send, WebhookLimits(at_once=8))


def test_those_that_give_up_in_line_do_not_take_a_turn() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        hook = webhooks.make(config(receiver.url))
        sends = [asyncio.create_task(hook.send([note(n)])) for n in range(5)]
        await receiver.until(1)
        for task in (sends[1], sends[3]):
            task.cancel()
        receiver.gate.set()
        await asyncio.gather(*sends, return_exceptions=True)

    receiver = delivered(lambda _: Reply(), send, WebhookLimits(at_once=1))
    assert receiver.ids == ["m0", "m2", "m4"]


# ------------------------------------------------------------------------------- where it goes


class Names:
    """Names that mean what a test says, and who asked."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known: dict[str, Sequence[str]] = {name: list(v) for name, v in known.items()}
        self.asked = 0

    async def __call__(self, host: str, _: int) -> Sequence[str]:
        self.asked += 1
        return self.known[host]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "::1", "169.254.169.254"])
def test_a_name_that_means_a_private_address_is_refused(address: str) -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config("http://inner.example/")).send([note()])

    names = Names(**{"inner.example": [address]})
    with pytest.raises(RefusedDeliveryError, match="webhooks may only reach public addresses"):
        delivered(lambda _: Reply(), send, allow=(), resolve=names)


def test_a_private_address_is_refused_when_the_webhook_is_made_known() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.check(config(receiver.url))

    with pytest.raises(AddressRefusedError, match="loopback"):
        delivered(lambda _: Reply(), send, allow=())


def test_a_name_that_changes_its_meaning_is_refused_when_it_is_used() -> None:
    names = Names(**{"hooks.example": ["8.8.8.8"]})

    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        given = config("http://hooks.example/")
        await webhooks.check(given)
        names.known["hooks.example"] = ["127.0.0.1"]
        await webhooks.make(given).send([note()])

    with pytest.raises(RefusedDeliveryError, match="loopback"):
        delivered(lambda _: Reply(), send, allow=(), resolve=names)


def test_a_connection_that_is_old_enough_is_made_anew_and_checked_anew() -> None:
    names = Names(**{"hooks.example": ["127.0.0.1"]})

    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        hook = webhooks.make(config(f"http://hooks.example:{receiver.port}/"))
        await hook.send([note(1)])
        names.known["hooks.example"] = ["10.0.0.1"]
        with pytest.raises(RefusedDeliveryError, match=r"10\.0\.0\.1"):
            await hook.send([note(2)])

    receiver = delivered(lambda _: Reply(), send, WebhookLimits(connection_seconds=0.0), resolve=names)
    assert (receiver.taken, names.asked) == (["m1"], 2)


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    names = Names(**{"hooks.example": ["127.0.0.1"]})

    class Flipping(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            found = await super().__call__(host, port)
            self.known[host] = ["10.255.255.1"]  # whoever asks again is sent elsewhere
            return found

    names = Flipping(**names.known)

    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(f"http://hooks.example:{receiver.port}/x")).send([note()])

    receiver = delivered(lambda _: Reply(), send, resolve=names)
    assert names.asked == 1
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    names = Names(**{"hooks.example": ["127.0.0.99", "127.0.0.1"]})

    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(f"http://hooks.example:{receiver.port}/")).send([note()])

    assert delivered(lambda _: Reply(), send, resolve=names).taken == ["m1"]


def test_a_name_that_nobody_knows_fails_and_is_not_refused() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config("http://nobody.example/")).send([note()])

    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(DeliveryError, match=r"the host nobody\.example cannot be resolved") as error:
        delivered(lambda _: Reply(), send, resolve=unknown)
    assert not isinstance(error.value, RefusedDeliveryError)


def test_a_name_that_takes_too_long_is_given_up() -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config("http://slow.example/")).send([note()])

    async def slow(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    limits = WebhookLimits(connect_seconds=0.05)
    with pytest.raises(DeliveryError, match=r"no connection to http://slow\.example"):
        delivered(lambda _: Reply(), send, limits, resolve=slow)


# ------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of hooks.example, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, and makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "hooks.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", made.with_suffix(".key"), "-out", made, "-subj", "/CN=hooks.example",
         "-addext", "subjectAltName=DNS:hooks.example"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made


def _tls(certificate: Path) -> dict[str, Any]:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, certificate.with_suffix(".key"))
    asked: list[str | None] = []
    serving.sni_callback = lambda _socket, name, _context: asked.append(name)
    return {"serving": serving, "tls": ssl.create_default_context(cafile=str(certificate)), "asked": asked}


def test_tls_speaks_of_the_name_though_the_connection_goes_to_an_address(certificate: Path) -> None:
    tls = _tls(certificate)

    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(f"https://hooks.example:{receiver.port}/")).send([note()])

    names = Names(**{"hooks.example": ["127.0.0.1"]})
    assert delivered(lambda _: Reply(), send, resolve=names, **tls).taken == ["m1"]
    assert tls["asked"] == ["hooks.example"]


def test_a_certificate_of_another_name_is_a_failure(certificate: Path) -> None:
    async def send(webhooks: Webhooks, receiver: Receiver) -> None:
        await webhooks.make(config(f"https://other.example:{receiver.port}/")).send([note()])

    names = Names(**{"other.example": ["127.0.0.1"]})
    with pytest.raises(DeliveryError, match="certificate verify failed"):
        delivered(lambda _: Reply(), send, resolve=names, **_tls(certificate))


# ------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uri": "https://example.org"}, "did you mean 'url'"),
        ({}, "needs a url"),
        ({"url": 7}, "needs a url"),
        ({"url": "https://example.org/" + "a" * 3000}, "needs a url"),
        ({"url": "ftp://example.org"}, "http or https"),
        ({"url": "https://example.org", "secrets": []}, "no secret"),
        ({"url": "https://example.org", "headers": "x"}, "map names to strings"),
        ({"url": "https://example.org", "headers": {"a b": "x"}}, "not a header"),
        ({"url": "https://example.org", "headers": {"Host": "x"}}, "set by the service"),
        ({"url": "https://example.org", "headers": {"Webhook-Id": "x"}}, "set by the service"),
        ({"url": "https://example.org", "headers": {"a": "x\r\nb: c"}}, "an invalid value"),
        ({"url": "https://example.org", "headers": {"a": 7}}, "an invalid value"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    async def story() -> None:
        webhooks = Webhooks()
        try:
            with pytest.raises(ServiceError, match=said) as error:
                await webhooks.check({"secrets": encode_secrets([SigningSecret(SECRET)]), **given})
            assert SECRET not in str(error.value)
        finally:
            await webhooks.close()

    asyncio.run(story())
