"""Esper's jars, by Maven, and the runner compiled against them: both outside of the repository."""

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
POM, RUNNER = HERE / "pom.xml", HERE / "EsperRunner.java"


def class_path(cache: Path) -> str:
    """What `java -cp` takes; the first call fetches and compiles."""
    home = cache / "esper"
    jars, classes, stamp = home / "jars", home / "classes", home / "stamp"
    wanted = POM.read_text() + RUNNER.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        for tool in ("mvn", "javac"):
            if shutil.which(tool) is None:
                raise SystemExit(f"{tool} is not on PATH: install Maven and a JDK (17 or newer)")
        print(f"Fetching Esper into {home} (once) ...", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        classes.mkdir(parents=True)
        _run("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
             f"-DoutputDirectory={jars}")  # fmt: skip
        _run("javac", "-cp", f"{jars}/*", "-d", str(classes), str(RUNNER))
        stamp.write_text(wanted)  # last: what is broken starts anew
    return f"{jars}/*:{classes}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
