"""Secrets of webhooks: requests are signed with those in force, and never shown."""

import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from ensue.errors import ServiceError
from ensue.service.secrets import (
    SigningSecret,
    decode_secrets,
    encode_secrets,
    new_secret,
    rotate_secrets,
    select_valid,
    sign_request,
)
from ensue.service.store.outbox import Notification

NOTE = Notification(12, 7, 1, "match", "ab" * 16, 0.0, '{"kind":"match","name":"Tür ☃"}'.encode())


def test_the_published_example_has_the_published_signature() -> None:
    secret = SigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    note = Notification(1, 7, 1, "match", "msg_p5jXN8AQM9LWM0D4loKWxJek", 0.0, body)
    assert sign_request(note, 1614265330.9999998, [secret]) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_two_secrets_are_in_force_while_rotating() -> None:
    now = time.time()
    old, new = new_secret(), new_secret()
    secrets = rotate_secrets([SigningSecret(old)], new, now, keep=60.0)
    headers = sign_request(NOTE, now, secrets)
    assert len(headers["webhook-signature"].split(" ")) == 2
    for one in (old, new):
        assert Webhook(one).verify(NOTE.body, headers)["name"] == "Tür ☃"
    over = sign_request(NOTE, now + 60.0, secrets)
    Webhook(new).verify(NOTE.body, over)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(old).verify(NOTE.body, over)


def test_a_second_rotation_ends_the_secret_before_the_last() -> None:
    first, second, third = new_secret(), new_secret(), new_secret()
    once = rotate_secrets([SigningSecret(first)], second, 100.0, keep=1000.0)
    twice = rotate_secrets(once, third, 200.0, keep=50.0)
    assert [(one.text, one.until) for one in twice] == [(third, None), (second, 250.0)]
    assert [one.text for one in select_valid(twice, 250.0)] == [third]


def test_a_rotation_in_haste_keeps_nothing() -> None:
    fresh = new_secret()
    assert rotate_secrets([SigningSecret(new_secret())], fresh, 100.0, keep=0.0) == (SigningSecret(fresh),)


def test_secrets_are_stored_and_read_again() -> None:
    secrets = (SigningSecret(new_secret()), SigningSecret(new_secret(), 17.5))
    assert decode_secrets(encode_secrets(secrets)) == secrets


def test_a_secret_is_not_shown() -> None:
    secret = new_secret()
    assert secret not in repr(SigningSecret(secret))
    assert secret[6:] not in repr([SigningSecret(secret)])


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_short", "whsec_%%%%" + "A" * 40, "A" * 200])
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="not a webhook secret") as error:
        SigningSecret(text)
    assert "hint" in str(error.value)
    assert len(text) < 10 or text not in str(error.value)


def test_a_note_has_the_same_id_at_every_try() -> None:
    assert NOTE.message_id == NOTE.match_id
    started = Notification(13, 7, 1, "started", None, 0.0, b"{}")
    assert started.message_id == "sub_7_started_13"
    secrets = [SigningSecret(new_secret())]
    first, second = (sign_request(NOTE, now, secrets) for now in (100.0, 200.0))
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]
