"""An Iceberg catalogue in memory: pyiceberg's own need a database."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class Catalogue(NoopCatalog):
    """Keeps the tables that it has created; each commit writes new metadata."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.tables: dict[Any, Table] = {}

    def create(self, folder: Path, schema: pa.Schema, name: str = "t") -> Table:
        io = load_file_io({}, str(folder))
        fresh = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
        metadata = new_table_metadata(fresh, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(folder))
        place = f"{folder}/metadata/0.metadata.json"
        ToOutputFile.table_metadata(metadata, io.new_output(place))
        table = Table(("db", name), metadata, place, io, self)
        self.tables[("db", name)] = table
        return table

    def load_table(self, identifier: Any) -> Table:
        return self.tables[tuple(identifier)]

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:  # noqa: ARG002
        known = self.tables[tuple(table.name())]
        metadata = update_table_metadata(known.metadata, updates)
        number = len(metadata.snapshots) + len(metadata.schemas)
        place = f"{metadata.location}/metadata/{number}.metadata.json"
        ToOutputFile.table_metadata(metadata, known.io.new_output(place), overwrite=True)
        self.tables[tuple(table.name())] = Table(table.name(), metadata, place, known.io, self)
        return CommitTableResponse(metadata=metadata, metadata_location=place)
