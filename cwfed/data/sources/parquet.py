"""Parquet files in the layout of the public hub: encoded images and integer labels."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cwfed.data.decoding import BATCH, BATCH_BYTES, Encoded, Mode, decode_samples, is_gray, located
from cwfed.data.sources.base import FileSource, Found, Reading, describe, require_path

PREFERRED_LABELS = ("fine_label", "label")
GROUP_BYTES = 1 << 28
MOST_RATIO = 50


class Parquet(FileSource):
    """Images from Parquet files in the layout of the public hub.

    One column holds ``{bytes, path}`` structs with PNG, JPEG or WebP files, another integer labels
    that count from 0. Class names come from the files' metadata where the hub left them. If all
    images are gray the data set has one channel, else three.

    Args:
        path: A file, several files, or a folder with Parquet files at any depth.
        image_column: Column of the images; by default the only one that fits.
        label_column: Column of the labels; by default ``fine_label``, else ``label``, else the only
            integer column.
        name: Name of the data set.

    Raises:
        ValueError: An argument is not of its kind.
    """

    def __init__(
        self,
        path: str | list[str],
        image_column: str | None = None,
        label_column: str | None = None,
        name: str = "parquet",
    ) -> None:
        if isinstance(path, list) and not path:
            raise ValueError("path: expected at least one file, got an empty list")
        paths = path if isinstance(path, list) else [path]
        self.paths = [require_path("path", one) for one in paths]
        self.image_column = image_column
        self.label_column = label_column
        self.name = require_path("name", name)

    def _find(self, data_dir: Path) -> Found:
        found = [_expand(Path(path).expanduser()) for path in self.paths]
        return parquet_files(
            list(chain.from_iterable(found)),
            image_column=self.image_column,
            label_column=self.label_column,
        )


def parquet_files(
    files: Sequence[Path],
    *,
    mode: Mode | None = None,
    class_names: tuple[str, ...] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Found:
    """Return Parquet files as a data set to be read.

    Args:
        files: The files, in the order to read them.
        mode: Channels; ``None`` decides by the images.
        class_names: Names if known; ``None`` takes those of the files.
        image_column: Column of the images; ``None`` finds it.
        label_column: Column of the labels; ``None`` finds it.
    """

    def read() -> Reading:
        tables = [open_table(path, image_column, label_column) for path in files]
        return _read_tables(tables, mode, class_names)

    settings = {"mode": mode, "columns": [image_column, label_column], "classes": class_names}
    return Found("parquet", tuple(files), settings, read)


@dataclass(frozen=True)
class Table:
    """An open Parquet file and what of it to read.

    Attributes:
        path: The file.
        rows: Number of rows.
        image_column: Name of the image column.
        label_column: Name of the label column.
        class_names: Names in the file's metadata, if any.
    """

    path: Path
    rows: int
    image_column: str
    label_column: str
    class_names: tuple[str, ...] | None


def open_table(path: Path, image_column: str | None, label_column: str | None) -> Table:
    """Read a Parquet file's schema and choose the columns.

    Args:
        path: The file.
        image_column: The caller's choice, or ``None``.
        label_column: The caller's choice, or ``None``.

    Raises:
        ValueError: The file is no whole Parquet file, or the columns are not there or not clear.
    """
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a whole Parquet file: {error}") from error
    image = _choose(schema, "image_column", image_column, _holds_images, path, ())
    label = _choose(
        schema, "label_column", label_column, pa.types.is_integer, path, PREFERRED_LABELS
    )
    for column in (image, label):
        if schema.names.count(column) > 1:
            raise ValueError(f"{path}: expected one column {column!r}, got several")
    return Table(path, rows, image, label, _hub_names(schema, label))


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        if not files:
            raise ValueError(f"path: expected Parquet files (*.parquet) below {path}, found none")
        return files
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a Parquet file or a folder of them, got {path}")
    return [path]


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _holds_bytes(kind.field("bytes").type)
    return _holds_bytes(kind)


def _holds_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _choose(
    schema: pa.Schema,
    argument: str,
    chosen: str | None,
    fits: Callable[[pa.DataType], bool],
    path: Path,
    preferred: tuple[str, ...],
) -> str:
    """Return the column a person chose, a preferred one, or the only one that fits."""
    candidates = [field.name for field in schema if fits(field.type)]
    if chosen is not None:
        if chosen in candidates:
            return chosen
        raise ValueError(f"{argument}: expected one of {candidates} in {path}, got {chosen!r}")
    for name in preferred:
        if name in candidates:
            return name
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ValueError(f"{path}: several columns fit, set {argument} to one of {candidates}")
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    raise ValueError(f"{path}: no column fits as {argument}; the file has {columns}")


def _hub_names(schema: pa.Schema, label_column: str) -> tuple[str, ...] | None:
    """Return the class names the hub writes into the schema's metadata, if they are there."""
    try:
        content = json.loads((schema.metadata or {})[b"huggingface"])
        names = content["info"]["features"][label_column]["names"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    usable = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return tuple(names) if usable else None


def _read_tables(
    tables: list[Table], mode: Mode | None, class_names: tuple[str, ...] | None
) -> Reading:
    files = [table.path for table in tables]
    count = sum(table.rows for table in tables)
    if count == 0:
        raise ValueError(f"{describe(files)}: expected images, found no rows")
    names = _agreed_names(tables, class_names)

    def rows() -> Iterator[Encoded]:
        # Without names, labels count from 0 without gaps: there are no more than samples.
        limit = count if names is None else len(names)
        return chain.from_iterable(_rows(table, limit) for table in tables)

    mode = mode or ("L" if all(_looks_gray(row) for row in rows()) else "RGB")
    samples = decode_samples(rows(), count, mode=mode, title=files[0].stem)
    return Reading(samples, names or _counted_names(samples.labels_N, files))


def _agreed_names(tables: list[Table], known: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the class names, after checking that all files number the classes alike."""
    agreed = known
    for table in tables:
        agreed = agreed or table.class_names
        # The hub spells some known names differently; the same names in another order are an error.
        same_set = table.class_names and sorted(table.class_names) == sorted(agreed or ())
        differs = table.class_names is not None and table.class_names != agreed
        if differs and (same_set or known is None):
            raise ValueError(
                f"{table.path}: expected the class names {agreed} in this order, found "
                f"{table.class_names}"
            )
    return agreed


def _counted_names(labels_N: np.ndarray, files: list[Path]) -> tuple[str, ...]:
    counts = np.bincount(labels_N)
    if (counts == 0).any():
        raise ValueError(
            f"{describe(files)}: expected labels that count from 0 without gaps, since there are "
            f"no class names; no sample has label {int(np.flatnonzero(counts == 0)[0])}, the "
            f"largest label is {len(counts) - 1}"
        )
    return tuple(str(label) for label in range(len(counts)))


def _looks_gray(row: Encoded) -> bool:
    try:
        return is_gray(row.data)
    except Exception as error:  # damaged files make Pillow raise nearly anything
        raise located(row, error) from error


def _rows(table: Table, limit: int) -> Iterator[Encoded]:
    """Yield the rows of one file, checked for nulls and for labels in ``[0, limit)``."""
    row = 0
    columns = [table.image_column, table.label_column]
    for batch in _batches(table, columns):
        images = batch.column(table.image_column)
        if pa.types.is_struct(images.type):
            # Unlike field(), flatten() passes the nulls of the struct on to its fields.
            images = images.flatten()[images.type.get_field_index("bytes")]
        labels = batch.column(table.label_column).to_pylist()
        for data, label in zip(images.to_pylist(), labels, strict=True):
            where = f"{table.path}, row {row}"
            if data is None:
                raise ValueError(f"{where}: no image bytes in column {table.image_column!r}")
            _check_label(label, limit, where, table.label_column)
            yield Encoded(str(table.path), f"row {row}", data, label)
            row += 1


def _check_label(label: int | None, limit: int, where: str, column: str) -> None:
    if label is None:
        raise ValueError(f"{where}: no label in column {column!r}")
    if not 0 <= label < limit:
        raise ValueError(
            f"{where}: expected a label in 0..{limit - 1} in column {column!r}, got {label}"
        )


def _batches(table: Table, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(table.path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                size = min(_rows_at_once(table, file.metadata.row_group(group)), BATCH)
                yield from file.iter_batches(size, row_groups=[group], columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{table.path}: damaged Parquet file: {error}") from error


def _rows_at_once(table: Table, group: pq.RowGroupMetaData) -> int:
    """Return how many rows of a row group to hold at once, so that it takes little memory.

    Raises:
        ValueError: A column unpacks to much more than images do.
    """
    dearest = 1
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.split(".")[0] not in (table.image_column, table.label_column):
            continue
        packed, unpacked = column.total_compressed_size, column.total_uncompressed_size
        ratio = unpacked / max(packed, 1)
        if unpacked > GROUP_BYTES and ratio > MOST_RATIO:
            raise ValueError(
                f"{table.path}: expected images, which hardly pack; {packed:,} bytes of column "
                f"{column.path_in_schema!r} unpack to {unpacked:,}"
            )
        dearest = max(dearest, unpacked // max(group.num_rows, 1))
        if column.has_dictionary_page:
            # Any row may be the dictionary's longest value, however often it is used.
            page = column.data_page_offset - column.dictionary_page_offset
            dearest = max(dearest, min(unpacked, int(page * max(ratio, 1))))
    return max(1, BATCH_BYTES // dearest)
