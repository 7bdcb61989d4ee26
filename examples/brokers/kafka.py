"""A real Kafka broker on this machine, and the jars that let Spark talk to it.

Both come from Maven by their coordinates, once, into a cache folder. `python -m
brokers.kafka` runs a broker until Ctrl-C.

    with Broker() as broker:
        frame.write.format("kafka").option("kafka.bootstrap.servers", broker.address)...
"""

import atexit
import base64
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import TracebackType

from brokers.processes import free_port, is_free, last_lines, run_until_interrupted
from ensue.errors import RunnerError
from ensue.optional_deps import format_install_hint

KAFKA = "4.3.1"
# Tried on Spark 4.3.0, for when Maven lacks the connector of the installed Spark. Maven lacked
# the token provider 4.2.0 as well, which serves secured clusters: hence the older release.
STAND_IN = ("4.2.0", "4.0.0")

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PATIENCE = 60.0  # seconds for a broker to answer
_SCALA = "2.13"
# What PySpark brings itself: a second copy on the classpath could be of another release.
_IN_PYSPARK = (
    ("org.scala-lang", "*"),
    ("org.scala-lang.modules", "*"),
    ("org.apache.spark", f"spark-tags_{_SCALA}"),
    ("org.apache.hadoop", "*"),
    ("org.slf4j", "*"),
    ("org.lz4", "*"),
    ("at.yawk.lz4", "*"),
    ("org.xerial.snappy", "*"),
    ("com.github.luben", "*"),
    ("com.google.code.findbugs", "*"),
)


class ConnectorWarning(UserWarning):
    """The Kafka connector is of another release than Spark."""


@dataclass(frozen=True, slots=True)
class Connector:
    """Spark's Kafka connector."""

    release: str
    jars: tuple[Path, ...]


# -------------------------------------------------------------------------------- from Maven


def cache_folder() -> Path:
    """Where jars are kept: below `ENSUE_CACHE` or the user's cache folder."""
    home = os.environ.get("ENSUE_CACHE")
    return (Path(home) if home else Path.home() / ".cache" / "ensue") / "kafka"


def jars(cache: Path | None = None) -> list[Path]:
    """The connector's jars for the `spark.jars` of a session; the first call downloads them."""
    return list(connector(cache).jars)


def connector(cache: Path | None = None) -> Connector:
    """The connector of the installed Spark, or with a ConnectorWarning the STAND_IN."""
    found, why = _chosen(cache or cache_folder())
    if why is not None:
        release, tokens = STAND_IN
        warnings.warn(
            f"Kafka connector {release} (token provider {tokens}) on Spark {_spark_release()}. {why}",
            ConnectorWarning,
            stacklevel=2,
        )
    return found


@lru_cache(maxsize=4)
def _chosen(cache: Path) -> tuple[Connector, str | None]:
    """The connector, and why it is not that of the installed Spark."""
    spark = _spark_release()
    try:
        return _connector(cache, spark, spark), None
    except RunnerError as error:
        return _connector(cache, *STAND_IN), str(error)


def _connector(cache: Path, release: str, tokens: str) -> Connector:
    pom = _pom(
        [("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", release)],
        managed=[("org.apache.spark", f"spark-token-provider-kafka-0-10_{_SCALA}", tokens)],
        without=_IN_PYSPARK,
    )
    return Connector(release, _copied(cache / f"connector-{release}-{tokens}", pom))


def _broker_jars(cache: Path) -> tuple[Path, ...]:
    # Kafka brings no logger along, and one that does not start would say nothing.
    pom = _pom([("org.apache.kafka", f"kafka_{_SCALA}", KAFKA), ("org.slf4j", "slf4j-simple", "1.7.36")])
    return _copied(cache / f"broker-{KAFKA}", pom)


def _spark_release() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise RunnerError(f"Spark is not installed\n  hint: {format_install_hint('spark')}") from None


def _pom(
    wanted: Sequence[tuple[str, str, str]],
    *,
    managed: Sequence[tuple[str, str, str]] = (),
    without: Sequence[tuple[str, str]] = (),
) -> str:
    """A Maven project that does nothing but depend.

    >>> "<version>4.3.1</version>" in _pom([("org.apache.kafka", "kafka_2.13", "4.3.1")])
    True
    """
    excluded = "".join(f"<exclusion><groupId>{g}</groupId><artifactId>{a}</artifactId></exclusion>" for g, a in without)

    def listed(coordinates: Sequence[tuple[str, str, str]]) -> str:
        return "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId>"
            f"<version>{v}</version><exclusions>{excluded}</exclusions></dependency>"
            for g, a, v in coordinates
        )

    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ensue</groupId><artifactId>kafka</artifactId><version>1</version>"
        "<packaging>pom</packaging><dependencyManagement><dependencies>"
        f"{listed(managed)}</dependencies></dependencyManagement>"
        f"<dependencies>{listed(wanted)}</dependencies></project>"
    )


def _copied(folder: Path, pom: str) -> tuple[Path, ...]:
    """The jars of a project, in a folder that appears only when it is complete."""
    stamp = folder / "pom.xml"
    if not (stamp.exists() and stamp.read_text() == pom):
        maven = shutil.which("mvn")
        if maven is None:
            raise RunnerError("Maven (mvn) is not on PATH, and the jars come through it")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as name:
                new = Path(name) / "jars"
                new.mkdir()
                (new / "pom.xml").write_text(pom)
                _run_maven([maven, "-B", "-q", "-f", str(new / "pom.xml"), _COPY], new)
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # another process was quicker
                    new.rename(folder)
        except OSError as error:
            raise RunnerError(f"cannot keep jars in {folder.parent}: {error}") from None
    return tuple(sorted(folder.glob("*.jar")))


def _run_maven(command: list[str], folder: Path) -> None:
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    try:
        ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        raise RunnerError("Maven did not finish within ten minutes") from None
    if ended.returncode:
        said = [line for line in ended.stdout.splitlines() if "[ERROR]" in line]
        first = said[0].removeprefix("[ERROR] ") if said else ended.stderr.strip()
        reason = first.partition(" -> [Help")[0].rpartition("kafka:pom:1: ")[2]
        raise RunnerError(f"Maven says: {reason}")


@lru_cache(maxsize=1)
def missing() -> str | None:
    """Why neither broker nor connector can run here, or None; the first call downloads them."""
    try:
        _java()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConnectorWarning)
            connector()
        _broker_jars(cache_folder())
    except RunnerError as error:
        return str(error)
    return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise RunnerError("Kafka needs Java 17 or newer, and none is on PATH or in JAVA_HOME")
    return found


# ------------------------------------------------------------------------------------ broker


class Broker:
    """One process that is broker and controller (KRaft), on loopback; its data ends with it."""

    def __init__(self, *, port: int = 0, partitions: int = 1, cache: Path | None = None) -> None:
        self.port = port or free_port()
        self.partitions = partitions
        self._cache = cache or cache_folder()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For `kafka.bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Broker":
        self._folder = Path(tempfile.mkdtemp(prefix="ensue-kafka-"))
        try:
            self._start(self._folder)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def wait(self) -> None:
        """Until the broker ends by itself."""
        if self._process is not None:
            self._process.wait()

    def _start(self, folder: Path) -> None:
        if not is_free(self.port):  # whoever listens there would answer in the broker's place
            raise RunnerError(f"Kafka does not start: port {self.port} is in use")
        settings = folder / "server.properties"
        settings.write_text(_settings(self.port, free_port(), self.partitions, folder / "data"))
        classes = os.pathsep.join(map(str, _broker_jars(self._cache)))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        java = [_java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", quiet, "-cp", classes]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        log = folder / "log"
        with log.open("wb") as said:
            formatted = subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
                stdout=said,
                stderr=said,
                check=False,
            )
            if formatted.returncode:
                raise RunnerError(f"Kafka cannot format its folder:\n{last_lines(log)}")
            atexit.register(self._stop)  # for a broker whose block is never left
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        until = time.monotonic() + _PATIENCE
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RunnerError(f"Kafka does not start:\n{last_lines(log)}")
            time.sleep(0.1)

    def _stop(self) -> None:
        atexit.unregister(self._stop)
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _settings(port: int, controller: int, partitions: int, data: Path) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions={partitions}
auto.create.topics.enable=true
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def _answers(port: int) -> bool:
    """Whether requests are served: an open port alone does not say so."""
    api_versions = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # size, key, version, id, no client
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(api_versions)
            return len(line.recv(4)) == 4
    except OSError:
        return False


def main(arguments: Sequence[str]) -> int:
    """Runs a broker until Ctrl-C; the one argument is its port."""
    return run_until_interrupted(f"Kafka {KAFKA}", lambda port: Broker(port=port), arguments, 9092)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
