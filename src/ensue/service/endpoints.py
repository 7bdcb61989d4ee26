"""Where brokers and folders are, as users write it: a URL or a mapping, checked before use."""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from ensue.errors import ServiceError, did_you_mean

T = TypeVar("T")
PORTS = {"kafka": 9092, "mqtt": 1883, "nats": 4222}
SECRETS = frozenset({"password", "token"})
# The key that the path of a URL goes to.
_PATHS = {"kafka": "topic", "mqtt": "topic", "nats": "subject", "folder": "path"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


class Secret:
    """A password or token that shows itself to nobody who does not ask for it.

    >>> Secret("hunter2")
    Secret(***)
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """What it is, for whoever has to send it."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True, slots=True)
class Server:
    """A host and a port.

    >>> str(Server("::1", 9092)), str(Server("kafka.example", 9092))
    ('[::1]:9092', 'kafka.example:9092')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Access:
    """A broker and the account there: connections with equal ones may be shared."""

    servers: tuple[Server, ...]
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    mechanism: str | None = None
    tls: bool = False
    ca: str | None = None
    timeout: float = 30.0  # seconds that anything asked of the broker may take

    @property
    def shown(self) -> str:
        """The servers, for people."""
        return ", ".join(map(str, self.servers))

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS connections are checked by, or None without TLS."""
        return ssl.create_default_context(cafile=self.ca) if self.tls else None

    def without_secrets(self, text: str) -> str:
        """A text of somebody else, in which the password cannot be read."""
        for secret in (self.password, self.token):
            if secret is not None and secret.reveal():
                text = text.replace(secret.reveal(), "***")
        return text


# -------------------------------------------------------------------------------------- URLs


def endpoint_of(url: str) -> tuple[str, dict[str, Any]]:
    """The kind and the configuration that a URL stands for.

    >>> endpoint_of("kafka://one:9092,two:9092/trucks?start=latest")
    ('kafka', {'servers': 'one:9092,two:9092', 'topic': 'trucks', 'start': 'latest'})
    >>> endpoint_of("mqtt://localhost/trucks/#")
    ('mqtt', {'server': 'localhost', 'topic': 'trucks/#'})
    >>> endpoint_of("nats://localhost:4222/trucks.*?stream=TRUCKS")
    ('nats', {'servers': 'localhost:4222', 'subject': 'trucks.*', 'stream': 'TRUCKS'})
    >>> endpoint_of("folder:/data/trucks")
    ('folder', {'path': '/data/trucks'})
    """
    kind, colon, rest = url.partition(":")
    if kind not in _PATHS or not colon:
        # a URL may hold a password, so only what stands before the colon is shown
        forms = "kafka://host:9092/topic, mqtt://host:1883/topic, nats://host:4222/subject"
        raise ServiceError(
            f"'{kind}' is neither a kind of broker nor a folder\n  hint: as in {forms}, "
            "folder:/path"
        )
    rest, _, query = rest.partition("?")
    config: dict[str, Any] = {}
    if kind == "folder":
        config["path"] = unquote(rest.removeprefix("//") if rest.startswith("///") else rest)
    else:
        if not rest.startswith("//"):
            raise ServiceError(f"a {kind} URL names a host\n  hint: {kind}://host/...")
        authority, _, path = rest[2:].partition("/")
        config |= _account(kind, authority)
        if path:
            config[_PATHS[kind]] = unquote(path)
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in config:
            raise ServiceError(
                f"the {kind} URL says '{name}' twice\n  hint: leave one of them out"
            )
        config[name] = value
    return kind, config


def _account(kind: str, authority: str) -> dict[str, Any]:
    account, at, servers = authority.rpartition("@")
    found: dict[str, Any] = {"server" if kind == "mqtt" else "servers": servers}
    if at:
        username, colon, password = account.partition(":")
        if kind == "nats" and not colon:  # as NATS itself reads it
            return found | {"token": unquote(username)}
        found["username"] = unquote(username)
        if colon:
            found["password"] = unquote(password)
    return found


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration for people, without its secrets.

    >>> shown({"topic": "trucks", "password": "hunter2"})
    {'topic': 'trucks', 'password': '***'}
    """
    return {name: "***" if name in SECRETS else value for name, value in config.items()}


# ---------------------------------------------------------------------------- configurations


class Given:
    """A configuration that is read key by key; what nobody has asked for is refused."""

    def __init__(self, what: str, config: Mapping[str, Any]) -> None:
        self._what = what
        self._config = dict(config)
        self._asked: list[str] = []

    def text(self, name: str, *, hint: str) -> str:
        """A text that must be there."""
        found = self.optional(name, hint=hint)
        if found is None:
            raise ServiceError(f"{self._what}: '{name}' is missing\n  hint: {hint}")
        return found

    def optional(self, name: str, *, hint: str) -> str | None:
        """A text that may be left out."""

        def read(value: Any) -> str | None:
            return value if isinstance(value, str) and value else None

        return self._read(name, None, read, hint)

    def whole(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number, which in a URL is text."""

        def read(value: Any) -> int | None:
            if isinstance(value, bool) or not re.fullmatch(r"\d{1,12}", str(value)):
                return None
            return int(value) if int(value) >= least else None

        return self._read(name, default, read, f"a whole number, at least {least}")

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds above 0."""

        def read(value: Any) -> float | None:
            try:
                number = float(value)
            except (TypeError, ValueError):
                return None
            usable = 0 < number < float("inf") and not isinstance(value, bool)
            return number if usable else None

        return self._read(name, default, read, "a number of seconds, above 0")

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """One of some words."""

        def read(value: Any) -> str | None:
            return value if value in known else None

        return self._read(name, default, read, f"one of {', '.join(known)}")

    def flag(self, name: str) -> bool:
        """Yes or no; no if nothing is said."""
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

        def read(value: Any) -> bool | None:
            return words.get(str(value).lower())

        return self._read(name, False, read, "true or false")

    def secret(self, name: str) -> Secret | None:
        """A text that is not shown, whatever is wrong with it."""
        value = self._taken(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise ServiceError(f"{self._what}: '{name}' cannot be used\n  hint: a text")
        return Secret(value)

    def servers(self, name: str, port: int, *, several: bool) -> tuple[Server, ...]:
        """Hosts, each with its port or the usual one."""
        hint = f"'host' or 'host:{port}'" + (", several with commas between" if several else "")
        value = self._taken(name)
        if value is None or value in ("", []):
            raise ServiceError(f"{self._what}: '{name}' is missing\n  hint: {hint}")
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or (len(parts) > 1 and not several):
            parts = [""]  # refused below
        return tuple(self._server(name, str(part).strip(), port, hint) for part in parts)

    def access(self, kind: str, *, mechanisms: bool = False, token: bool = False) -> Access:
        """The broker, and who we are there."""
        several = kind != "mqtt"
        tls = self.flag("tls")
        port = 8883 if tls and kind == "mqtt" else PORTS[kind]
        found = Access(
            servers=self.servers("servers" if several else "server", port, several=several),
            username=self.optional("username", hint="a name"),
            password=self.secret("password"),
            token=self.secret("token") if token else None,
            mechanism=self.choice("mechanism", _MECHANISMS[0], _MECHANISMS)
            if mechanisms
            else None,
            tls=tls,
            ca=self.optional("ca", hint="a file of certificates, in PEM form"),
            timeout=self.seconds("timeout", 30.0),
        )
        if found.password is not None and found.username is None:
            raise ServiceError(
                f"{self._what}: a password without a user name\n  hint: pass 'username' too"
            )
        if found.ca is not None and not found.tls:
            raise ServiceError(f"{self._what}: 'ca' is for TLS\n  hint: pass tls=true too")
        try:
            if found.ca is not None:
                found.ssl_context()
        except (OSError, ssl.SSLError):
            raise ServiceError(
                f"{self._what}: 'ca' cannot be read as certificates\n"
                "  hint: a file in PEM form that the service may read"
            ) from None
        return found

    def done(self) -> None:
        """Refuses what was not asked for."""
        for name in self._config:
            if name not in self._asked:
                hint = did_you_mean(name, self._asked)
                raise ServiceError(f"{self._what}: there is no '{name}'\n  hint: {hint}")

    def _mechanism(self) -> str:
        return self.choice("mechanism", _MECHANISMS[0], _MECHANISMS)

    def _server(self, name: str, text: str, port: int, hint: str) -> Server:
        found = _SERVER.fullmatch(text)
        number = int((found and found["port"]) or port)
        if found is None or not 0 < number < 65_536:
            # not shown: there may be a password in front of the host
            raise ServiceError(f"{self._what}: '{name}' is not an address\n  hint: {hint}")
        return Server(found["host"].strip("[]"), number)

    def _read(self, name: str, default: T, read: Callable[[Any], T | None], hint: str) -> T:
        value = self._taken(name)
        if value is None:
            return default
        found = read(value)
        if found is None:
            raise ServiceError(f"{self._what}: {name}={value!r}\n  hint: {hint}")
        return found

    def _taken(self, name: str) -> Any:
        self._asked.append(name)
        return self._config.get(name)
