"""`ensue serve`: the subscription service with its HTTP interface and console."""

import logging
import re
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.extras import needed

with needed("the service", "service"):
    from ensue.console.background import Background
    from ensue.console.pages import add_pages
    from ensue.service.access import add_token, add_user
    from ensue.service.database import Database
    from ensue.service.service import Service
    from ensue.service.sources.table import source_of
    from ensue.service.store.users import user_named
    from ensue.service.web.app import Console
    from ensue.service.web.server import Server

_TYPES = {
    "long": pa.int64(), "bigint": pa.int64(), "int": pa.int32(), "integer": pa.int32(),
    "string": pa.string(), "text": pa.string(), "double": pa.float64(), "float": pa.float64(),
    "boolean": pa.bool_(), "bool": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_COLUMN = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<name>\w+))[\s:]+(?P<type>[\w\[\]]+)\s*')


def serve(options: Namespace) -> Exit:
    """Runs a service until Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("aiokafka", "httpx", "httpcore", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if options.demo:
        from ensue.cli.serve_demo import serve_demo

        return serve_demo(options)
    if options.file is None:
        raise UsageError("name the file of the service, or try --demo")
    if not Path(options.file).exists() and options.schema is None and options.like is None:
        raise UsageError(
            f"{options.file} is new, so describe its events\n"
            '  hint: --schema "ts timestamp, id long, lon double, lat double" --time ts'
        )
    service = Service(options.file, **said_of_events(options), **said_of_work(options))
    server_of(service, options).run(_started)
    return Exit.FINE


def server_of(service: Service, options: Namespace) -> Server:
    """The server that the options describe."""
    return Server(
        service,
        host=options.host,
        port=options.port,
        console=None if options.no_console else _console(options),
        certificate=options.certificate,
        key=options.certificate_key,
        proxies=options.proxy,
    )


def _console(options: Namespace) -> Console:
    if options.background is None:
        return add_pages
    return partial(add_pages, background=Background.given(options.background))


def _started(address: str) -> None:
    output().print(f"listening on {address}")
    notice("Ctrl-C stops it; what was answered is kept")


def said_of_events(options: Namespace) -> dict[str, Any]:
    """What the options say of the columns of events; nothing: the file knows it."""
    if options.schema is None and options.like is None:
        given = ("time", "type", "location", "space", "key", "watermark", "idle")
        for name in given:
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name} goes with --schema or --like\n"
                    "  hint: an existing file already has them"
                )
        return {}
    if options.time is None:
        raise UsageError("--time says when an event happened: a column, or START,END")
    schema: Any = columns_of(options.schema) if options.schema else _like(options.like)
    return {
        "schema": schema,
        "time": _one_or_two(options.time),
        "type": options.type,
        "order": tuple(options.order),
        "location": None if options.location is None else _one_or_two(options.location),
        "space": options.space or "plane",
        "key": options.key,
        "watermark": _watermark(options.watermark),
        "idle": options.idle,
    }


def said_of_work(options: Namespace) -> dict[str, Any]:
    """What the options say of how it works."""
    found: dict[str, Any] = {
        "regions": _pairs(options.region, "--region"),
        "limits": _limits(_pairs(options.limit, "--limit")),
        "synchronous": options.synchronous,
        "sources": [source_of(url) for url in options.source],
        "reset_watermark": options.reset_watermark,
        "secret_key_file": options.secret_key_file,
    }
    if options.spark is not None:
        from ensue.service.matching.spark import on_spark

        found["matching"] = on_spark(master=options.spark)
    return found


def columns_of(text: str) -> pa.Schema:
    """Columns as they are written on the command line.

    >>> columns_of('ts timestamp, id long, "net weight" double').names
    ['ts', 'id', 'net weight']
    """
    fields = []
    for part in text.split(","):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise UsageError(
                f"--schema: '{part.strip()}' is not a column definition\n  hint: as in: id long"
            )
        kind = found["type"].lower()
        try:
            type = _TYPES[kind] if kind in _TYPES else pa.type_for_alias(kind)
        except ValueError:
            raise UsageError(
                f"--schema: there is no type '{found['type']}'\n  hint: {', '.join(_TYPES)}"
            ) from None
        fields.append((found["quoted"] or found["name"], type))
    return pa.schema(fields)


def _like(path: str) -> pa.Schema:
    from ensue.cli.event_files import read_local
    from ensue.runners.event_files import EventFile

    found: pa.Schema = read_local((EventFile(path),), rows=1_000).schema
    return found


def _one_or_two(text: str) -> str | tuple[str, str]:
    first, comma, second = (part.strip() for part in text.partition(","))
    return (first, second) if comma else first


def _watermark(text: str | None) -> str | float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{option} {text}: it is NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _limits(given: Mapping[str, str]) -> dict[str, Any]:
    lists = ("allow", "brokers")
    return {n: tuple(v.split(",")) if n in lists else v for n, v in given.items()}


# -------------------------------------------------------------------------------- tokens


def token(options: Namespace) -> Exit:
    """Makes a token, and shows it this once."""
    if not Path(options.file).exists():
        raise UsageError(
            f"there is no {options.file}\n  hint: ensue serve makes it; run that once first"
        )
    database = Database(options.file)
    age = None if options.days is None else options.days * 86_400
    scopes = [scope.strip() for scope in options.scopes.split(",") if scope.strip()]

    def make(db: Any) -> str:
        if user_named(db, options.user) is None:
            add_user(db, options.user)
        return add_token(db, options.user, scopes=scopes, label=options.label, age=age).token

    try:
        made = database.submit(make).result()
    finally:
        database.close()
    output().print(made)
    notice("it is shown only this once: Authorization: Bearer " + made[:8] + "...")
    return Exit.FINE


def temporary_file() -> Path:
    """A file of a service in a folder of its own."""
    return Path(tempfile.mkdtemp(prefix="ensue-demo-")) / "fleet.db"
