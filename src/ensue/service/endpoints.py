"""Addresses and accounts of brokers and folders, parsed from a URL or a mapping."""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import SecretStr

from ensue.errors import ServiceError, did_you_mean

T = TypeVar("T")
DEFAULT_PORTS = {"kafka": 9092, "mqtt": 1883, "nats": 4222}
# The configuration key that the path of a URL sets.
_PATHS = {"kafka": "topic", "mqtt": "topic", "nats": "subject", "folder": "path"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A host and a port.

    >>> str(ServerAddress("::1", 9092)), str(ServerAddress("kafka.example", 9092))
    ('[::1]:9092', 'kafka.example:9092')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The address of a broker and the credentials; equal ones can share a connection."""

    servers: tuple[ServerAddress, ...]
    username: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    mechanism: str | None = None
    tls: bool = False
    ca: str | None = None
    timeout: float = 30.0  # seconds per request to the broker

    @property
    def shown(self) -> str:
        return ", ".join(map(str, self.servers))

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context that verifies TLS connections, or None without TLS."""
        return ssl.create_default_context(cafile=self.ca) if self.tls else None

    def without_secrets(self, text: str) -> str:
        """Masks the credentials in a text of the broker."""
        for secret in (self.password, self.token):
            if secret is not None:
                text = text.replace(secret.get_secret_value(), "***")
        return text


# -------------------------------------------------------------------------------------- URLs


def parse_endpoint(url: str) -> tuple[str, dict[str, Any]]:
    """Returns the kind and the configuration that a URL describes.

    >>> parse_endpoint("kafka://one:9092,two:9092/trucks?start=latest")
    ('kafka', {'servers': 'one:9092,two:9092', 'topic': 'trucks', 'start': 'latest'})
    >>> parse_endpoint("mqtt://localhost/trucks/#")
    ('mqtt', {'server': 'localhost', 'topic': 'trucks/#'})
    >>> parse_endpoint("nats://localhost:4222/trucks.*?stream=TRUCKS")
    ('nats', {'servers': 'localhost:4222', 'subject': 'trucks.*', 'stream': 'TRUCKS'})
    >>> parse_endpoint("folder:/data/trucks")
    ('folder', {'path': '/data/trucks'})
    """
    kind, colon, rest = url.partition(":")
    if kind not in _PATHS or not colon:
        # a URL may contain a password, so only the part before the colon is shown
        forms = "kafka://host:9092/topic, mqtt://host:1883/topic, nats://host:4222/subject"
        raise ServiceError(f"'{kind}' is not a broker or 'folder'\n  hint: as in {forms}, folder:/path")
    rest, _, query = rest.partition("?")
    config: dict[str, Any] = {}
    if kind == "folder":
        config["path"] = unquote(rest.removeprefix("//") if rest.startswith("///") else rest)
    else:
        if not rest.startswith("//"):
            raise ServiceError(f"a {kind} URL must name a host\n  hint: {kind}://host/...")
        authority, _, path = rest[2:].partition("/")
        config |= _parse_account(kind, authority)
        if path:
            config[_PATHS[kind]] = unquote(path)
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in config:
            raise ServiceError(f"the {kind} URL contains '{name}' twice\n  hint: remove one of them")
        config[name] = value
    return kind, config


def _parse_account(kind: str, authority: str) -> dict[str, Any]:
    account, at, servers = authority.rpartition("@")
    parsed: dict[str, Any] = {"server" if kind == "mqtt" else "servers": servers}
    if at:
        username, colon, password = account.partition(":")
        if kind == "nats" and not colon:  # NATS reads it as a token
            return parsed | {"token": unquote(username)}
        parsed["username"] = unquote(username)
        if colon:
            parsed["password"] = unquote(password)
    return parsed


# ---------------------------------------------------------------------------- configurations


class ConfigReader:
    """Reads a configuration key by key; `done` rejects unknown keys."""

    def __init__(self, what: str, config: Mapping[str, Any]) -> None:
        self._what = what
        self._config = dict(config)
        self._known: list[str] = []

    def text(self, name: str, *, hint: str) -> str:
        parsed = self.optional(name, hint=hint)
        if parsed is None:
            raise ServiceError(f"{self._what}: '{name}' is missing\n  hint: {hint}")
        return parsed

    def optional(self, name: str, *, hint: str) -> str | None:
        return self._read(name, None, lambda v: v if isinstance(v, str) and v else None, hint)

    def read_integer(self, name: str, default: int, *, least: int = 1) -> int:
        """An integer, which in a URL is text."""

        def read(value: Any) -> int | None:
            if isinstance(value, bool) or not re.fullmatch(r"\d{1,12}", str(value)):
                return None
            return int(value) if int(value) >= least else None

        return self._read(name, default, read, f"a whole number, at least {least}")

    def seconds(self, name: str, default: float) -> float:

        def read(value: Any) -> float | None:
            try:
                number = float(value)
            except (TypeError, ValueError):
                return None
            usable = 0 < number < float("inf") and not isinstance(value, bool)
            return number if usable else None

        return self._read(name, default, read, "a number of seconds, above 0")

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        hint = f"one of {', '.join(known)}"
        return self._read(name, default, lambda v: v if v in known else None, hint)

    def flag(self, name: str) -> bool:
        """A boolean, False by default."""
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return self._read(name, False, lambda v: words.get(str(v).lower()), "true or false")

    def secret(self, name: str) -> SecretStr | None:
        """A string that never appears in errors."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise ServiceError(f"{self._what}: '{name}' cannot be used\n  hint: a text")
        return SecretStr(value)

    def servers(self, name: str, port: int, *, several: bool) -> tuple[ServerAddress, ...]:
        """Hosts, each with its own or the default port."""
        hint = f"'host' or 'host:{port}'" + (", several with commas between" if several else "")
        value = self._take(name)
        if value is None or value in ("", []):
            raise ServiceError(f"{self._what}: '{name}' is missing\n  hint: {hint}")
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or (len(parts) > 1 and not several):
            parts = [""]  # refused below
        return tuple(self._server(name, str(part).strip(), port, hint) for part in parts)

    def access(self, kind: str, *, mechanisms: bool = False, token: bool = False) -> BrokerAccess:
        several = kind != "mqtt"
        tls = self.flag("tls")
        port = 8883 if tls and kind == "mqtt" else DEFAULT_PORTS[kind]
        parsed = BrokerAccess(
            servers=self.servers("servers" if several else "server", port, several=several),
            username=self.optional("username", hint="a name"),
            password=self.secret("password"),
            token=self.secret("token") if token else None,
            mechanism=self.choice("mechanism", _MECHANISMS[0], _MECHANISMS) if mechanisms else None,
            tls=tls,
            ca=self.optional("ca", hint="a file of certificates, in PEM form"),
            timeout=self.seconds("timeout", 30.0),
        )
        if parsed.password is not None and parsed.username is None:
            raise ServiceError(f"{self._what}: a password without a user name\n  hint: pass 'username' too")
        if parsed.ca is not None and not parsed.tls:
            raise ServiceError(f"{self._what}: 'ca' needs TLS\n  hint: pass tls=true too")
        try:
            if parsed.ca is not None:
                parsed.ssl_context()
        except (OSError, ssl.SSLError):
            raise ServiceError(
                f"{self._what}: 'ca' cannot be read as certificates\n"
                "  hint: a file in PEM form that the service may read"
            ) from None
        return parsed

    def done(self) -> None:
        for name in self._config:
            if name not in self._known:
                hint = did_you_mean(name, self._known)
                raise ServiceError(f"{self._what}: unknown key '{name}'\n  hint: {hint}")

    def _server(self, name: str, text: str, port: int, hint: str) -> ServerAddress:
        parsed = _SERVER.fullmatch(text)
        number = int((parsed and parsed["port"]) or port)
        if parsed is None or not 0 < number < 65_536:
            # not shown: it may contain a password
            raise ServiceError(f"{self._what}: '{name}' is not an address\n  hint: {hint}")
        return ServerAddress(parsed["host"].strip("[]"), number)

    def _read(self, name: str, default: T, read: Callable[[Any], T | None], hint: str) -> T:
        value = self._take(name)
        if value is None:
            return default
        parsed = read(value)
        if parsed is None:
            raise ServiceError(f"{self._what}: {name}={value!r}\n  hint: {hint}")
        return parsed

    def _take(self, name: str) -> Any:
        self._known.append(name)
        return self._config.get(name)
