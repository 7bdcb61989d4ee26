"""Users, tokens, scopes, quotas, sessions, and what is written down about them."""

import re
from pathlib import Path
from typing import Any

import pytest

from ensue.errors import ServiceError
from ensue.service.access import Accounts, Principal
from ensue.service.errors import ConflictError, NotAllowedError, NotFoundError, UnauthenticatedError
from ensue.service.settings import ServiceLimits
from ensue.service.store import user_store as users
from ensue.service.store.database import Database
from ensue.service.store.user_store import READ, SCOPES, SUBSCRIBE
from support.services import run


class Clock:
    """The time as a test wants it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path):
    found = Database(tmp_path / "a.db", synchronous="NORMAL")
    yield found
    found.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(database: Database, clock: Clock) -> Accounts:
    return Accounts(database, ServiceLimits(), clock=clock)


def done(database: Database, work: Any) -> Any:
    return database.submit(work).result()


def person(database: Database, name: str = "ann", *scopes: str, **more: Any) -> users.IssuedToken:
    """A token for a new user."""

    def make(db: Any) -> users.IssuedToken:
        id = users.add_user(db, name, at=1_000_000.0)
        return users.add_token(db, id, scopes=scopes or SCOPES, at=1_000_000.0, **more)

    return done(database, make)


# -------------------------------------------------------------------------------- tokens


def test_a_token_is_known_by_its_hash_only(database: Database, accounts: Accounts):
    made = person(database, "ann", READ)
    assert re.fullmatch(r"ens_[A-Za-z0-9_-]{43}", made.token)
    assert accounts.authenticate(made.token).name == "ann"
    everything = Path(database.path).read_bytes() + Path(f"{database.path}-wal").read_bytes()
    assert made.token.encode() not in everything
    assert made.token[4:].encode() not in everything
    assert made.token not in repr(made)


def test_two_tokens_are_never_the_same(database: Database):
    made = {person(database, f"user{n}").token for n in range(50)}
    assert len(made) == 50


@pytest.mark.parametrize("token", ["", "ens_", "nonsense", "ens_" + "a" * 43, "ens_" + "ä" * 43, "ens_" + "a" * 44])
def test_an_unknown_token_is_refused(database: Database, accounts: Accounts, token: str):
    person(database)
    with pytest.raises(UnauthenticatedError, match="this token is unknown"):
        accounts.authenticate(token)


def test_a_token_ends_when_it_expires(database: Database, accounts: Accounts, clock: Clock):
    made = person(database, "ann", READ, age=60.0)
    clock.now += 59.0
    assert accounts.authenticate(made.token).may(READ)
    clock.now += 1.0
    with pytest.raises(UnauthenticatedError, match="expired"):
        accounts.authenticate(made.token)


def test_no_token_is_good_for_longer_than_the_limit(database: Database):
    limits = ServiceLimits(token_age=100.0)
    made = person(database, "ann", READ, limits=limits)
    assert made.expires == 1_000_000.0 + 100.0
    for age in (101.0, 0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ServiceError, match="at most"):
            done(database, lambda db, age=age: users.add_token(db, "ann", age=age, limits=limits))


def test_a_revoked_token_ends_at_once(database: Database, accounts: Accounts):
    made = person(database, "ann")
    by = accounts.authenticate(made.token)
    told: list[int] = []
    accounts.revoked.append(told.append)
    run(lambda: accounts.revoke(by, made.id))
    with pytest.raises(UnauthenticatedError, match="revoked"):
        accounts.authenticate(made.token)
    assert told == [made.id]


def test_a_token_that_another_process_revoked_ends_at_once(database: Database, clock: Clock):
    made = person(database, "ann")
    here = Accounts(database, ServiceLimits(), clock=clock)
    assert here.authenticate(made.token).name == "ann"
    other = Database(database.path, synchronous="NORMAL")
    other.submit(lambda db: users.revoke_token(db, made.id, clock.now)).result()
    other.close()
    with pytest.raises(UnauthenticatedError, match="revoked"):
        here.authenticate(made.token)


def test_the_tokens_of_a_user_who_is_off_are_refused(database: Database, accounts: Accounts):
    made, root = person(database, "ann"), person(database, "root")
    by = accounts.authenticate(root.token)
    told: list[int] = []
    accounts.revoked.append(told.append)
    user = accounts.authenticate(made.token).user
    run(lambda: accounts.change_user(by, user, quotas=None, off=True))
    with pytest.raises(UnauthenticatedError, match="is disabled"):
        accounts.authenticate(made.token)
    assert told == [made.id]
    assert made.id not in run(accounts.list_valid)
    run(lambda: accounts.change_user(by, user, quotas=None, off=False))
    assert accounts.authenticate(made.token).user == user
    assert made.id in run(accounts.list_valid)


def test_nobody_switches_themselves_off(database: Database, accounts: Accounts):
    by = accounts.authenticate(person(database, "root").token)
    with pytest.raises(ConflictError):
        run(lambda: accounts.change_user(by, by.user, quotas=None, off=True))


def test_standing_tokens_are_those_that_can_be_used(database: Database, accounts: Accounts, clock: Clock):
    first, second = person(database, "ann", age=60.0), person(database, "bob")
    assert run(accounts.list_valid) == {first.id, second.id}
    clock.now += 60.0
    assert run(accounts.list_valid) == {second.id}
    done(database, lambda db: users.revoke_token(db, second.id, clock.now))
    assert run(accounts.list_valid) == frozenset()


def test_it_is_noted_when_a_token_was_used_last(database: Database, accounts: Accounts, clock: Clock):
    made = person(database, "ann")
    clock.now += 7.0
    accounts.authenticate(made.token)
    row = done(database, lambda db: db.execute("SELECT * FROM tokens WHERE id = ?", (made.id,)).fetchone())
    assert row["used"] == clock.now


# -------------------------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("given", "reaches"),
    [("read", {"read"}), ("subscribe", {"read", "subscribe"}), ("publish", {"publish"}), ("admin", set(SCOPES))],
)
def test_scopes_imply_others(database: Database, accounts: Accounts, given: str, reaches: set[str]):
    found = accounts.authenticate(person(database, "ann", given).token)
    assert found.scopes == reaches


def test_what_the_scope_is_missing_for_is_refused():
    with pytest.raises(NotAllowedError, match="'subscribe'"):
        Principal(1, "ann", frozenset({READ})).require(SUBSCRIBE)


def test_an_unknown_scope_is_refused(database: Database):
    with pytest.raises(ServiceError, match="did you mean 'publish'"):
        person(database, "ann", "publsh")
    with pytest.raises(ServiceError, match="without a scope"):
        users.validate_scopes([])


# -------------------------------------------------------------------------------- users


def test_a_name_is_given_once(database: Database):
    person(database, "ann")
    with pytest.raises(ConflictError, match="'ann'"):
        person(database, "ann")


@pytest.mark.parametrize("name", ["", "a b", "-x", "a" * 65, "ann\n", "<script>"])
def test_odd_names_are_refused(database: Database, name: str):
    with pytest.raises(ServiceError, match="is not a valid user name"):
        person(database, name)


def test_quotas_take_the_place_of_limits(database: Database, accounts: Accounts):
    made = person(database, "ann")
    by = accounts.authenticate(made.token)
    run(lambda: accounts.change_user(by, by.user, quotas={"subscriptions_per_user": 3, "body_bytes": 10}, off=None))
    found = accounts.authenticate(made.token).limits(ServiceLimits())
    assert (found.subscriptions_per_user, found.body_bytes) == (3, 10)
    assert found.corners_per_user == ServiceLimits().corners_per_user
    same = done(database, lambda db: users.get_user_limits(db, by.user, ServiceLimits()))
    assert same == found


@pytest.mark.parametrize("quotas", [{"subscriptions": 3}, {"retention": 1.0}, {"allow": 1}, {"body_bytes": -1}])
def test_a_quota_that_there_is_not_is_refused(quotas: dict[str, Any]):
    with pytest.raises(ServiceError):
        users.validate_quotas(quotas)


def test_what_is_not_there_cannot_be_changed(database: Database, accounts: Accounts):
    by = accounts.authenticate(person(database, "root").token)
    for work in (lambda: accounts.revoke(by, 99), lambda: accounts.change_user(by, 99, quotas=None, off=True)):
        with pytest.raises(NotFoundError):
            run(work)
    for look in (lambda db: users.list_tokens(db, 99), lambda db: users.add_token(db, 99, scopes=[READ])):
        with pytest.raises(NotFoundError):
            done(database, look)


# -------------------------------------------------------------------------------- open or not


def test_a_service_is_open_until_the_first_token(database: Database, accounts: Accounts):
    assert accounts.is_open
    found = run(accounts.local)
    assert (found.name, found.scopes) == ("local", frozenset(SCOPES))
    person(database, "ann")
    assert not accounts.is_open


def test_a_service_whose_tokens_are_over_is_not_open(database: Database, accounts: Accounts, clock: Clock):
    made = person(database, "ann", age=60.0)
    done(database, lambda db: users.revoke_token(db, made.id, clock.now))
    clock.now += 100.0
    assert not accounts.is_open
