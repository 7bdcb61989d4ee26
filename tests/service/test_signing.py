"""Signatures of webhooks, against the package of the Standard Webhooks project."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import ServiceError
from ensue.service.delivery.signing import (
    Secret,
    SignatureError,
    from_stored,
    in_force,
    message_id,
    new_secret,
    rotated,
    signature,
    signed_headers,
    stored,
    verify,
)
from ensue.service.notes import Note

standardwebhooks = pytest.importorskip("standardwebhooks", reason="the reference to compare with")

NOTE = Note(12, 7, 1, "match", "ab" * 16, 0.0, '{"kind":"match","name":"Tür ☃"}'.encode())


def test_the_published_example_has_the_published_signature() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.text().map(str.encode), st.integers(0, 2**31))
def test_signatures_are_those_of_the_reference(key: bytes, body: bytes, shift: int) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    note = Note(1, 7, 1, "match", f"m{shift}", 0.0, body)
    headers = signed_headers(note, time.time(), [Secret(secret)])
    assert standardwebhooks.Webhook(secret).verify(body, headers, json_parse=False) is None
    assert verify(headers, body, secret) == f"m{shift}"


def test_what_the_reference_signs_is_verified() -> None:
    from datetime import UTC, datetime

    secret, now = new_secret(), datetime.now(UTC)
    signed = standardwebhooks.Webhook(secret).sign("msg_1", now, NOTE.body.decode())
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": signed,
    }
    assert verify(headers, NOTE.body, secret) == "msg_1"


def test_two_secrets_are_in_force_while_rotating() -> None:
    now = time.time()
    old, new = new_secret(), new_secret()
    secrets = rotated([Secret(old)], new, now, keep=60.0)
    headers = signed_headers(NOTE, now, secrets)
    assert len(headers["webhook-signature"].split(" ")) == 2
    for one in (old, new):
        standardwebhooks.Webhook(one).verify(NOTE.body, headers)
        assert verify(headers, NOTE.body, one, now=now) == NOTE.match_id
    over = signed_headers(NOTE, now + 60.0, secrets)
    assert verify(over, NOTE.body, [old, new], now=now + 60.0) == NOTE.match_id
    with pytest.raises(SignatureError, match="no signature"):
        verify(over, NOTE.body, old, now=now + 60.0)


def test_a_second_rotation_ends_the_secret_before_the_last() -> None:
    first, second, third = new_secret(), new_secret(), new_secret()
    once = rotated([Secret(first)], second, 100.0, keep=1000.0)
    twice = rotated(once, third, 200.0, keep=50.0)
    assert [(one.text, one.until) for one in twice] == [(third, None), (second, 250.0)]
    assert [one.text for one in in_force(twice, 250.0)] == [third]


def test_a_rotation_in_haste_keeps_nothing() -> None:
    fresh = new_secret()
    assert rotated([Secret(new_secret())], fresh, 100.0, keep=0.0) == (Secret(fresh),)


def test_secrets_are_stored_and_read_again() -> None:
    secrets = (Secret(new_secret()), Secret(new_secret(), 17.5))
    assert from_stored(stored(secrets)) == secrets


def test_a_secret_is_not_shown() -> None:
    secret = new_secret()
    assert secret not in repr(Secret(secret))
    assert secret[6:] not in repr([Secret(secret)])


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_short", "whsec_%%%%" + "A" * 40, "A" * 200])
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="not a webhook secret") as error:
        Secret(text)
    assert "hint" in str(error.value)
    assert len(text) < 10 or text not in str(error.value)


def test_a_note_has_the_same_id_at_every_try() -> None:
    assert message_id(NOTE) == NOTE.match_id
    started = Note(13, 7, 1, "started", None, 0.0, b"{}")
    assert message_id(started) == "sub_7_started_13"
    secrets = [Secret(new_secret())]
    first, second = (signed_headers(NOTE, now, secrets) for now in (100.0, 200.0))
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]


def _signed(**changed: str) -> tuple[dict[str, str], str]:
    secret = new_secret()
    return signed_headers(NOTE, 1000.0, [Secret(secret)]) | changed, secret


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"webhook-id": "other"}, "no signature"),
        ({"webhook-timestamp": "1001"}, "no signature"),
        ({"webhook-signature": "v1,AAAA"}, "no signature"),
        ({"webhook-signature": "nonsense"}, "no signature"),
        ({"webhook-timestamp": "soon"}, "not a number"),
        ({"webhook-id": ""}, "no header webhook-id"),
    ],
)
def test_a_forged_request_is_refused(changed: dict[str, str], said: str) -> None:
    headers, secret = _signed(**changed)
    with pytest.raises(SignatureError, match=said):
        verify(headers, NOTE.body, secret, now=1000.0)


def test_another_body_is_refused() -> None:
    headers, secret = _signed()
    with pytest.raises(SignatureError, match="no signature"):
        verify(headers, NOTE.body + b" ", secret, now=1000.0)


def test_an_old_request_is_refused_and_one_from_the_future_too() -> None:
    headers, secret = _signed()
    assert verify(headers, NOTE.body, secret, tolerance=60.0, now=1060.0) == NOTE.match_id
    with pytest.raises(SignatureError, match="61 seconds ago, the limit is 60"):
        verify(headers, NOTE.body, secret, tolerance=60.0, now=1061.0)
    with pytest.raises(SignatureError, match="61 seconds ahead"):
        verify(headers, NOTE.body, secret, tolerance=60.0, now=939.0)
