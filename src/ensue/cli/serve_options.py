"""The options of `ensue serve` and `ensue token`."""

from argparse import ArgumentParser


def serve_options(parser: ArgumentParser) -> None:
    """What a service is told on the command line."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the file of the service, created on first use; it stores the description of its "
        "events",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="replay a day of 200 trucks at higher speed; without FILE, in a temporary file",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8765, help="default: 8765; 0 takes a free one")
    parser.add_argument("--no-console", action="store_true", help="only the HTTP interface")
    parser.add_argument(
        "--background",
        metavar="FILE,WEST,SOUTH,EAST,NORTH",
        help="a picture under the objects of a plane, and the area it covers: plan.png,0,0,120,80",
    )
    _events(parser)
    _work(parser)
    _demo(parser)


def _events(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the events, for a new FILE")
    group.add_argument(
        "--schema",
        metavar="COLUMNS",
        help='"ts timestamp, id long, type string, lon double, lat double"',
    )
    group.add_argument(
        "--like", metavar="PATH", help="or an event file with the columns: Parquet, CSV, JSON"
    )
    group.add_argument("--time", metavar="COLUMN", help="or START,END for events that last")
    group.add_argument("--type", metavar="COLUMN", help="the type of an event")
    group.add_argument("--order", metavar="COLUMN", action="append", default=[])
    group.add_argument("--location", metavar="X,Y", help="two columns, or one with WKT or WKB")
    group.add_argument("--space", choices=("plane", "earth"), help="default: plane")
    group.add_argument("--key", metavar="COLUMN", help="the object of an event")
    group.add_argument(
        "--watermark", metavar="LENGTH", help='how far events may be out of order: "10 seconds"'
    )
    group.add_argument(
        "--idle",
        metavar="SECONDS",
        type=float,
        help="after this long without events, time follows the clock",
    )


def _work(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("how it works")
    group.add_argument(
        "--source",
        metavar="URL",
        action="append",
        default=[],
        help="reads events from kafka://host:9092/topic, mqtt://host:1883/topic, "
        "nats://host:4222/subject?stream=NAME or folder:/path; repeat it for several",
    )
    group.add_argument(
        "--region",
        metavar="NAME=WKT",
        action="append",
        default=[],
        help="a region that everybody may use",
    )
    group.add_argument(
        "--limit",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="as in retention=86400; docs/service.md lists them",
    )
    group.add_argument(
        "--synchronous",
        choices=("FULL", "NORMAL"),
        default="FULL",
        help="FULL survives a power cut, NORMAL a crash of the process; default: FULL",
    )
    group.add_argument(
        "--reset-watermark",
        action="store_true",
        help="drop events that are far ahead of the clock, and forget partial matches",
    )
    group.add_argument(
        "--spark",
        nargs="?",
        const="local[2]",
        metavar="MASTER",
        help="match on Spark instead of in this process; default: local[2]",
    )
    group.add_argument(
        "--secret-key-file",
        metavar="PATH",
        help="the key for the secrets in FILE, created on first use; default: FILE.key, or the "
        "environment variable ENSUE_SECRET_KEY",
    )
    group.add_argument("--certificate", metavar="FILE", help="for https, with --certificate-key")
    group.add_argument("--certificate-key", metavar="FILE")
    group.add_argument(
        "--proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="a proxy to trust about clients",
    )


def _demo(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("--demo")
    group.add_argument(
        "--speed", type=float, default=60.0, help="how many times faster; default: 60"
    )
    group.add_argument("--trucks", type=int, default=200, help="default: 200")
    group.add_argument("--once", action="store_true", help="stop and check when the day is over")


def token_options(parser: ArgumentParser) -> None:
    """What a token is asked for with."""
    parser.add_argument("file", metavar="FILE", help="the file of the service")
    parser.add_argument(
        "--user", metavar="NAME", required=True, help="who it is for; added if new"
    )
    parser.add_argument(
        "--scopes",
        default="read,subscribe,publish,admin",
        help="from read, subscribe, publish, admin; default: all",
    )
    parser.add_argument(
        "--days", type=float, help="lifetime of the token in days; default: a year"
    )
    parser.add_argument("--label", default="", help="what it is for")
