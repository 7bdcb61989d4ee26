"""The events both sides read, as a CSV file, and the matches both sides write."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from examples.samples.stocks import stocks

COLUMNS = ("ts", "type", "symbol", "price", "volume")  # the file has no header: Flink reads none


def trades(events: int, symbols: int, seed: int) -> pa.Table:
    """Stock events with whole milliseconds as times, no two the same.

    Flink orders rows by milliseconds and leaves the order of equal times open, so ties are
    spread: each time is at least one more than the one before.

    >>> trades(1000, symbols=10, seed=1)["ts"].value_counts().field("counts").unique().to_pylist()
    [1]
    """
    table = stocks(events, symbols, seed)
    rank = np.arange(events)
    milliseconds = table["ts"].cast(pa.int64()).to_numpy() // 1000
    spread = rank + np.maximum.accumulate(milliseconds - rank)
    return table.set_column(0, "ts", pa.array(spread)).select(COLUMNS)


def write(table: pa.Table, path: Path) -> None:
    """Writes events, or matches, without a header."""
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    pyarrow.csv.write_csv(table, path, options)


def read(path: Path) -> pa.Table:
    """Reads events as a user of Ensue would: times as timestamps, names as dictionaries."""
    names = pa.dictionary(pa.int32(), pa.string())
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=COLUMNS),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"ts": pa.int64(), "type": names, "symbol": names}),
    )
    return table.set_column(0, "ts", table["ts"].cast(pa.timestamp("ms", "UTC")))


def read_matches(path: Path, columns: tuple[str, ...]) -> list[tuple[int, ...]]:
    """The matches of a file, or of the files of a folder, sorted; a match found twice stays so."""
    files = [path] if path.is_file() else sorted(path.glob("*"))
    tables = [
        pyarrow.csv.read_csv(file, read_options=pyarrow.csv.ReadOptions(column_names=columns))
        for file in files
        if file.stat().st_size
    ]
    if not tables:
        return []
    rows = pa.concat_tables(tables)
    return sorted(zip(*(rows[c].to_pylist() for c in columns), strict=True))
