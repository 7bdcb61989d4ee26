"""`ensue serve` and `ensue token`: the subscription service with its HTTP API and console."""

import logging
import re
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.cli.options import parse_length
from ensue.cli.terminal import ExitCode, UsageError, get_output_console, print_notice
from ensue.errors import ServiceError, did_you_mean
from ensue.optional_deps import require_extra
from ensue.schema import parse_columns
from ensue.service.brokers.kafka import KafkaSource
from ensue.service.brokers.mqtt import MqttSource
from ensue.service.brokers.nats import NatsSource
from ensue.service.endpoints import parse_endpoint
from ensue.service.sources.folder_source import FolderSource
from ensue.service.sources.source import EventSource

with require_extra("the service", "service"):
    from ensue.console.pages import Background, add_pages
    from ensue.service.service import Service
    from ensue.service.store.database import Database
    from ensue.service.store.user_store import add_token, add_user, find_user
    from ensue.service.web.app import Console
    from ensue.service.web.server import HttpServer

_TYPES = {
    "long": pa.int64(), "bigint": pa.int64(), "int": pa.int32(), "integer": pa.int32(),
    "string": pa.string(), "text": pa.string(), "double": pa.float64(), "float": pa.float64(),
    "boolean": pa.bool_(), "bool": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_COLUMN = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<name>\w+))[\s:]+(?P<type>[\w\[\]]+)\s*')


def serve(options: Namespace) -> ExitCode:
    """Run a service until Ctrl-C."""
    log_to_stderr()
    if not Path(options.file).exists() and options.schema is None and options.like is None:
        raise UsageError(
            f"{options.file} is new, so describe its events\n"
            '  hint: --schema "ts timestamp, id long, lon double, lat double" --time ts'
        )
    service = Service(options.file, **get_event_arguments(options), **get_service_arguments(options))
    build_server(service, options).run(_print_address)
    return ExitCode.FINE


def log_to_stderr() -> None:
    """Log the messages of the service with their time, and only warnings of libraries."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("aiokafka", "httpx", "httpcore2", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def build_server(service: Service, options: Namespace) -> HttpServer:
    console: Console | None = None if options.no_console else add_pages
    if console is not None and options.background is not None:
        console = partial(add_pages, background=Background.parse(options.background))
    return HttpServer(
        service,
        host=options.host,
        port=options.port,
        console=console,
        certificate=options.certificate,
        key=options.certificate_key,
        proxies=options.proxy,
    )


def _print_address(address: str) -> None:
    get_output_console().print(f"listening on {address}")
    print_notice("Ctrl-C stops the service; acknowledged events are stored")


def get_event_arguments(options: Namespace) -> dict[str, Any]:
    """Return the event arguments of the service; none if the file describes its events."""
    if options.schema is None and options.like is None:
        for name in ("time", "type", "location", "space", "key", "watermark", "idle"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} needs --schema or --like\n  hint: an existing file already has them")
        return {}
    if options.time is None:
        raise UsageError("--time is missing: the time column of an event, or START,END")
    schema: Any = parse_schema(options.schema) if options.schema else _like(options.like)
    return {
        "schema": schema,
        "time": parse_columns(options.time),
        "type": options.type,
        "order": tuple(options.order),
        "location": None if options.location is None else parse_columns(options.location),
        "space": options.space or "plane",
        "key": options.key,
        "watermark": parse_length(options.watermark),
        "idle": options.idle,
    }


def get_service_arguments(options: Namespace) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "regions": _pairs(options.region, "--region"),
        "limits": {
            name: tuple(value.split(",")) if name in ("allow", "brokers") else value
            for name, value in _pairs(options.limit, "--limit").items()
        },
        "synchronous": options.synchronous,
        "sources": [build_source(url) for url in options.source],
        "reset_watermark": options.reset_watermark,
        "secret_key_file": options.secret_key_file,
    }
    if options.spark is not None:
        from ensue.service.matching.spark_backend import on_spark

        arguments["matching"] = on_spark(master=options.spark)
    return arguments


def parse_schema(text: str) -> pa.Schema:
    """Parse the columns of --schema.

    >>> parse_schema('ts timestamp, id long, "net weight" double').names
    ['ts', 'id', 'net weight']
    """
    fields = []
    for part in text.split(","):
        parsed = _COLUMN.fullmatch(part)
        if parsed is None:
            raise UsageError(f"--schema: '{part.strip()}' is not a column definition\n  hint: write it like: id long")
        kind = parsed["type"].lower()
        try:
            type = _TYPES[kind] if kind in _TYPES else pa.type_for_alias(kind)
        except ValueError:
            raise UsageError(f"--schema: there is no type '{parsed['type']}'\n  hint: {', '.join(_TYPES)}") from None
        fields.append((parsed["quoted"] or parsed["name"], type))
    return pa.schema(fields)


def _like(path: str) -> pa.Schema:
    from ensue.backends.event_files import EventFile
    from ensue.cli.inputs import read_local

    schema: pa.Schema = read_local((EventFile(path),), rows=1_000).schema
    return schema


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{option} {text}: write it like NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


# -------------------------------------------------------------------------------- tokens


def create_token(options: Namespace) -> ExitCode:
    if not Path(options.file).exists():
        raise UsageError(f"there is no {options.file}\n  hint: run ensue serve once, which creates it")
    database = Database(options.file)
    age = None if options.days is None else options.days * 86_400
    scopes = [scope.strip() for scope in options.scopes.split(",") if scope.strip()]

    def make(db: Any) -> str:
        if find_user(db, options.user) is None:
            add_user(db, options.user)
        return add_token(db, options.user, scopes=scopes, label=options.label, age=age).token

    try:
        new_token = database.submit(make).result()
    finally:
        database.close()
    get_output_console().print(new_token)
    print_notice("the token is shown only once: Authorization: Bearer " + new_token[:8] + "...")
    return ExitCode.FINE


SOURCES = {"folder": FolderSource, "kafka": KafkaSource, "mqtt": MqttSource, "nats": NatsSource}


def build_source(url: str) -> EventSource:
    kind, config = parse_endpoint(url)
    if kind not in SOURCES:
        raise ServiceError(f"'{kind}' is not a source\n  hint: {did_you_mean(kind, SOURCES)}")
    return SOURCES[kind](config)
