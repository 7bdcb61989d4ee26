"""docs/deployment.md, word by word: its commands on a standalone cluster of this machine.

A master and two workers are processes of their own. The package reaches the executors as a wheel,
in an archive or by `--py-files`. Places and ports are all that is not as on the page.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.docs.pages import ROOT

import ensue
from brokers.processes import free_port, last_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
PATIENCE = 600.0  # seconds for any one command; a busy machine downloads and packs slowly
PIECES = 4  # files of the stream
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def block(section: str, language: str, beginning: str) -> str:
    """The one code block of a section of the page that begins so."""
    (text,) = (s for s in PAGE.split("\n## ") if s.startswith(section + "\n"))
    fenced = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = (code for code in fenced if code.startswith(beginning))
    return found


@dataclass(frozen=True)
class Machine:
    """A folder in which the page is followed, and the ports and settings of this machine."""

    folder: Path
    port: int  # of the master
    connect: int  # of a Spark Connect server

    @property
    def settings(self) -> dict[str, str]:
        """The surroundings of commands. What is tested reaches executors by the archive alone."""
        here = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYSPARK"))}
        return here | {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER_WEBUI_PORT": "0",
            "SPARK_WORKER_WEBUI_PORT": "0",
            "COLUMNS": "100",
        }

    def shell(self, commands: str) -> list[str]:
        """Commands of the page, for this place and port."""
        here = commands.replace("/path/to/ensue", str(ROOT))
        here = here.replace("127.0.0.1:7077", f"127.0.0.1:{self.port}")
        here = here.replace("--port 7077", f"--port {self.port}")
        here = here.replace("port=15002", f"port={self.connect}")
        return ["bash", "-euc", f"exec 2>&1\n{here}"]

    def do(self, commands: str, **settings: str) -> str:
        """Runs commands to their end; what they say."""
        with self.process(commands, **settings) as process:
            try:
                said, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                pytest.fail(f"not done after {PATIENCE:.0f} s: {commands}")
        assert process.returncode == 0, f"{commands}\n{said[-4000:]}"
        return said

    @contextmanager
    def process(self, commands: str, log: Path | None = None, **settings: str) -> Iterator["subprocess.Popen[str]"]:
        """Commands that run beside the test, in a process group that ends with the block."""
        with ExitStack() as files:
            out = subprocess.PIPE if log is None else files.enter_context(log.open("w"))
            process = subprocess.Popen(
                self.shell(commands),
                cwd=self.folder,
                env=self.settings | settings,
                stdin=subprocess.DEVNULL,
                stdout=out,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                end(process, signal.SIGKILL)

    def driver(self) -> dict[str, str]:
        """For the driver alone: the package that is tested, from where it is."""
        return {"PYTHONPATH": str(Path(ensue.__file__).parents[1])}


def end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """Ends a process with those that it started itself; executors are in the workers' groups."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
    process.wait(60)


def until(happened: Callable[[], object], what: str, *logs: Path) -> None:
    """Waits; a wait in vain shows the ends of logs."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            pytest.fail("\n".join([f"still not: {what}", *map(last_lines, logs)]))
        time.sleep(0.2)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The page followed as far as the cluster: wheel, archive, events, query, jobs."""
    folder = tmp_path_factory.mktemp("deployment")
    made = Machine(folder, free_port(), free_port())
    (folder / "conf").mkdir()
    settings = SETTINGS | {"spark.executorEnv.ENSUE_CACHE": str(folder / "kernels")}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
    made.do(block("Packaging", "sh", "pip wheel"))
    made.do(block("Packaging", "sh", "python -m venv"))
    made.do(block("spark-submit", "sh", "PYTHONPATH="), **made.driver())
    for job in ("job.py", "stream.py"):
        (folder / job).write_text(block("spark-submit", "py", f"# {job}"))
    client = block("Spark Connect", "py", "# client.py")
    (folder / "client.py").write_text(client.replace("127.0.0.1:15002", f"127.0.0.1:{made.connect}"))
    return made


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Iterator[Machine]:
    """A master and two workers."""
    commands = block("A standalone cluster", "sh", "spark-class").splitlines()
    logs = [machine.folder / f"server-{k}.log" for k in range(len(commands))]
    with ExitStack() as servers:
        for command, log in zip(commands, logs, strict=True):
            servers.enter_context(machine.process(command, log))
        registered = "Registering worker"
        until(lambda: logs[0].read_text().count(registered) == 2, "two workers", *logs)
        yield machine


@pytest.fixture(scope="module")
def expected(machine: Machine) -> pa.Table:
    """What a run in this process finds."""
    events = pq.read_table(machine.folder / "shop" / "readings.parquet")
    query = (machine.folder / "theft.ensue").read_text()
    found = _in_order(ensue.match(events, query, time="ts", type="reader"))
    assert found.num_rows > 5
    return found


def _in_order(matches: pa.Table) -> pa.Table:
    """Matches by their ids, with the types that Spark writes."""
    utc = pa.timestamp("us", "UTC")
    fields = [(f.name, utc if pa.types.is_timestamp(f.type) else f.type) for f in matches.schema]
    return matches.cast(pa.schema(fields)).sort_by("match_id")


def _written(folder: Path) -> pa.Table:
    return _in_order(pq.read_table(folder))


def submit(program: str) -> str:
    """The page's command for one of its programs, with the settings above it."""
    lines = block("spark-submit", "sh", "export PYSPARK").splitlines()
    return "\n".join(line for line in lines if line.startswith("export") or f" {program} " in line)


def test_a_batch_job_finds_what_a_run_here_finds(cluster: Machine, expected: pa.Table):
    cluster.do(submit("job.py"), **cluster.driver())
    assert _written(cluster.folder / "thefts").equals(expected)
    unpacked = list((cluster.folder / "workers").glob("app-*/*/environment/bin/python"))
    assert len(unpacked) == 2, "both workers ran the environment that was shipped"


def test_a_stream_whose_driver_is_killed_goes_on(cluster: Machine, expected: pa.Table):
    folder, found = cluster.folder, cluster.folder / "thefts-live"
    events = pq.read_table(folder / "readings" / "readings.parquet").sort_by("ts")
    (folder / "readings" / "readings.parquet").unlink()
    cut = [events.num_rows * k // PIECES for k in range(PIECES + 1)]

    def arrive(k: int) -> None:
        piece = events.slice(cut[k], cut[k + 1] - cut[k])
        pq.write_table(piece, folder / f"piece-{k}")
        (folder / f"piece-{k}").rename(folder / "readings" / f"{k}.parquet")

    def matches() -> int:
        return pq.read_table(found).num_rows if list(found.glob("*.parquet")) else 0

    log = folder / "stream.log"
    for k in range(PIECES // 2 + 1):
        arrive(k)
    with cluster.process(submit("stream.py"), log, **cluster.driver()) as running:
        until(lambda: matches() or running.poll() is not None, "a first match", log)
        assert running.poll() is None, last_lines(log)
        end(running, signal.SIGKILL)
    before = matches()
    for k in range(PIECES // 2 + 1, PIECES):
        arrive(k)
    later = events.slice(events.num_rows - 1).to_pylist()[0]
    later |= {"ts": later["ts"].replace(year=later["ts"].year + 1), "tag": "nobody's"}
    pq.write_table(pa.Table.from_pylist([later], events.schema), folder / "readings" / "9.parquet")
    again = folder / "stream-again.log"
    with cluster.process(submit("stream.py"), again, **cluster.driver()) as running:
        done = lambda: matches() == expected.num_rows or running.poll() is not None
        until(done, "all matches", again)
        assert running.poll() is None, last_lines(again)
        end(running, signal.SIGTERM)
    assert 0 < before < expected.num_rows
    assert _written(found).equals(expected)


def test_a_wheel_called_zip_reaches_executors_by_py_files(cluster: Machine, expected: pa.Table):
    machines = cluster.folder / "dependencies"  # what is installed on every machine
    shutil.copytree(cluster.folder / "environment", machines, symlinks=True)
    cluster.do(f"{machines}/bin/python -m pip uninstall -y ensue")
    settings = {"PYSPARK_PYTHON": f"{machines}/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    cluster.do(block("Packaging", "sh", "cp wheels"), **cluster.driver(), **settings)
    assert _written(cluster.folder / "thefts-zip").equals(expected)
    assert not list(machines.glob("lib/*/site-packages/ensue/__init__.py"))


def test_a_client_of_spark_connect(cluster: Machine, expected: pa.Table):
    log = cluster.folder / "connect.log"
    with cluster.process(block("Spark Connect", "sh", "spark-submit"), log) as server:
        ready = lambda: "Spark Connect server started" in log.read_text()
        until(lambda: ready() or server.poll() is not None, "a server", log)
        assert server.poll() is None, last_lines(log)
        cluster.do(block("Spark Connect", "sh", "python client.py"), **cluster.driver())
    assert _written(cluster.folder / "thefts-connect").equals(expected)
