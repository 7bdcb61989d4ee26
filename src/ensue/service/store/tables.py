"""The tables of a service's database."""

from sqlite3 import Connection

from ensue.errors import StateError

FORMAT = 2

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE users (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
    quotas TEXT NOT NULL DEFAULT '{}', off INTEGER NOT NULL DEFAULT 0);
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL REFERENCES users, label TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE, scopes TEXT NOT NULL, created REAL NOT NULL, expires REAL,
    revoked REAL, used REAL);
CREATE INDEX tokens_of_user ON tokens (user);
CREATE TABLE sessions (
    hash BLOB PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens, csrf TEXT NOT NULL,
    created REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE regions (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL REFERENCES users, name TEXT NOT NULL,
    text TEXT NOT NULL, created REAL NOT NULL, UNIQUE (user, name));

-- An active subscription is part of the set that is matched.
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL REFERENCES users,
    name TEXT NOT NULL, text TEXT NOT NULL, language TEXT, regions TEXT NOT NULL DEFAULT '{}',
    template TEXT, quiet REAL, corners INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'active', reason TEXT, created REAL NOT NULL,
    changed REAL NOT NULL, started TEXT, expires REAL);
CREATE UNIQUE INDEX subscription_names ON subscriptions (user, name) WHERE state <> 'ended';
CREATE INDEX subscriptions_by_state ON subscriptions (state);
CREATE INDEX subscriptions_expire ON subscriptions (expires)
    WHERE expires IS NOT NULL AND state <> 'ended';

-- Usage of quotas by subscriptions that have not ended, maintained by triggers.
CREATE TABLE usage (
    user INTEGER PRIMARY KEY, subscriptions INTEGER NOT NULL, corners INTEGER NOT NULL);
CREATE TRIGGER usage_added AFTER INSERT ON subscriptions WHEN NEW.state <> 'ended' BEGIN
    INSERT INTO usage VALUES (NEW.user, 1, NEW.corners) ON CONFLICT (user) DO UPDATE
    SET subscriptions = subscriptions + 1, corners = corners + excluded.corners;
END;
CREATE TRIGGER usage_changed AFTER UPDATE OF state, corners ON subscriptions BEGIN
    UPDATE usage SET
        subscriptions = subscriptions + (NEW.state <> 'ended') - (OLD.state <> 'ended'),
        corners = corners + (NEW.state <> 'ended') * NEW.corners
            - (OLD.state <> 'ended') * OLD.corners
    WHERE user = NEW.user;
END;

-- Changes of the set that is matched; versions are consecutive.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY, version INTEGER NOT NULL, kind INTEGER NOT NULL,
    subscription INTEGER NOT NULL, text TEXT, language TEXT, regions TEXT);
CREATE INDEX changes_by_version ON changes (version);
CREATE INDEX changes_of_subscription ON changes (subscription, id);

-- Accepted events, in order, with the version of the set that matched them.
CREATE TABLE batches (
    position INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL, at REAL NOT NULL,
    rows INTEGER NOT NULL, bytes INTEGER NOT NULL, least REAL, greatest REAL, advance TEXT,
    data BLOB);
CREATE INDEX batches_by_time ON batches (greatest, least) WHERE rows > 0;
CREATE TABLE snapshots (
    position INTEGER PRIMARY KEY, version INTEGER NOT NULL, at REAL NOT NULL, data BLOB NOT NULL);
-- The next expected sequence number of each producer.
CREATE TABLE positions (
    producer TEXT PRIMARY KEY, user INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL,
    at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE bad_events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, user INTEGER NOT NULL, producer TEXT,
    reason TEXT NOT NULL, event TEXT NOT NULL);

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL,
    user INTEGER NOT NULL, kind TEXT NOT NULL, match_id TEXT, at REAL NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX outbox_of_subscription ON outbox (subscription, number);
CREATE INDEX outbox_of_user ON outbox (user, number);
CREATE UNIQUE INDEX outbox_once ON outbox (match_id) WHERE match_id IS NOT NULL;
-- The number up to which notifications of a user were deleted.
CREATE TABLE forgotten (user INTEGER PRIMARY KEY, number INTEGER NOT NULL);
-- The end of the quiet time of a subscription for an object, in the stream's time.
CREATE TABLE quiet (
    subscription INTEGER NOT NULL, object TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (subscription, object)) WITHOUT ROWID;

CREATE TABLE targets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL,
    user INTEGER NOT NULL, kind TEXT NOT NULL, config TEXT NOT NULL,
    secrets TEXT NOT NULL, cursor INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'on',
    reason TEXT, failures INTEGER NOT NULL DEFAULT 0, next_at REAL, created REAL NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0, changed REAL NOT NULL);
CREATE INDEX targets_of_subscription ON targets (subscription);
CREATE TABLE deliveries (
    target INTEGER NOT NULL, number INTEGER NOT NULL, attempts INTEGER NOT NULL,
    next_at REAL, state TEXT NOT NULL, error TEXT, at REAL NOT NULL,
    PRIMARY KEY (target, number)) WITHOUT ROWID;

CREATE TABLE counters (
    subscription INTEGER NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (subscription, name)) WITHOUT ROWID;
CREATE TABLE keys (
    user INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, answer TEXT NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (user, key)) WITHOUT ROWID;
CREATE INDEX keys_by_time ON keys (at);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, user INTEGER NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX audit_of_user ON audit (user, id);
CREATE INDEX audit_by_time ON audit (at);
"""


def create_tables(db: Connection, path: str) -> None:
    """Creates the tables in an empty file; rejects files of another format."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == FORMAT:
        return
    others = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version or others:
        what = f"has format {version}" if version else "is not a database of a service"
        raise StateError(
            f"{path} {what}; this release reads format {FORMAT}\n  hint: use another file, or the release that wrote it"
        )
    db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {FORMAT};COMMIT;")
