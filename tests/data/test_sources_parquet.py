"""Parquet files: damage is named by file and row, columns and class names are found."""

import pyarrow as pa
import pytest
from image_files import encode, fails, load, small_images, write_parquet

from cwfed.data.decoding import decode_image
from cwfed.data.sources import MNIST, Parquet


def test_truncated_parquet(tmp_path, rows):
    path = write_parquet(tmp_path / "a.parquet", *rows)
    path.write_bytes(path.read_bytes()[:-20])
    fails(Parquet(str(path)), tmp_path, path, "not a whole Parquet file")


def test_damaged_parquet_pages(tmp_path, rows):
    path = write_parquet(tmp_path / "a.parquet", *rows)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    fails(Parquet(str(path)), tmp_path, path, "damaged Parquet file")


def test_truncated_image_in_a_row(tmp_path, rows):
    files, labels = rows
    for cut in (1, 6, 12, 40, len(files[17]) - 20):
        damaged = [*files[:17], files[17][:-cut], *files[18:]]
        path = write_parquet(tmp_path / "a.parquet", damaged, labels)
        fails(Parquet(str(path)), tmp_path, path, "row 17")


def test_every_changed_byte_of_a_png_is_found(tmp_path):
    """Pillow alone lets some of these pass as other pixels."""
    file = encode(small_images(1, 1, (1, 12, 12))[0][0])
    for position in range(len(file)):
        damaged = bytearray(file)
        damaged[position] ^= 0x55
        with pytest.raises((ValueError, OSError, SyntaxError)):
            decode_image(bytes(damaged), mode="L")


def test_rows_are_counted_within_each_file(tmp_path, rows):
    files, labels = rows
    write_parquet(tmp_path / "in" / "a.parquet", files, labels)
    path = write_parquet(tmp_path / "in" / "b.parquet", [*files[:2], b"no image"], labels[:3])
    fails(Parquet(str(tmp_path / "in")), tmp_path, path, "row 2", "expected a PNG, JPEG or WebP")


@pytest.mark.parametrize("label", [-1, 10])
def test_label_out_of_range(tmp_path, rows, label):
    files, labels = rows
    labels[5] = label
    path = write_parquet(tmp_path / "mnist.parquet", files, labels)
    fails(MNIST(str(path)), tmp_path, path, "row 5", "0..9", "'label'", f"got {label}")
    names = [str(digit) for digit in range(10)]
    path = write_parquet(tmp_path / "own.parquet", files, labels, names=names)
    fails(Parquet(str(path)), tmp_path, path, "row 5", "0..9", f"got {label}")


def test_negative_label_without_names(tmp_path, rows):
    files, labels = rows
    labels[5] = -3
    path = write_parquet(tmp_path / "a.parquet", files, labels)
    fails(Parquet(str(path)), tmp_path, path, "row 5", "in 0..29", "got -3")


def test_null_label(tmp_path, rows):
    files, labels = rows
    labels[9] = None
    path = write_parquet(tmp_path / "a.parquet", files, labels)
    fails(Parquet(str(path)), tmp_path, path, "row 9", "no label", "'label'")


@pytest.mark.parametrize("whole", [True, False])
def test_null_image(tmp_path, rows, whole):
    files, labels = rows
    path = tmp_path / "a.parquet"
    if whole:
        write_parquet(path, [*files[:9], None, *files[10:]], labels)
    else:
        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        cells = [
            {"bytes": data if row != 9 else None, "path": "x"} for row, data in enumerate(files)
        ]
        table = pa.table({"image": pa.array(cells, struct), "label": labels})
        pa.parquet.write_table(table, path)
    fails(Parquet(str(path)), tmp_path, path, "row 9", "no image bytes", "'image'")


def test_labels_with_a_gap_need_names(tmp_path, rows):
    files, labels = rows
    doubled = [2 * label for label in labels]
    path = write_parquet(tmp_path / "a.parquet", files, doubled)
    fails(Parquet(str(path)), tmp_path, path, "no sample has label 1", "largest label is 18")
    write_parquet(path, files, doubled, names=[f"class {label}" for label in range(19)])
    assert load(Parquet(str(path)), tmp_path).num_classes == 19


def test_no_rows(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [], [])
    fails(Parquet(str(path)), tmp_path, path, "found no rows")


def test_no_files(tmp_path):
    (tmp_path / "in").mkdir()
    fails(Parquet(str(tmp_path / "in")), tmp_path, "path: expected Parquet files", "found none")
    missing = tmp_path / "missing.parquet"
    fails(Parquet(str(missing)), tmp_path, "path: expected", missing, error=FileNotFoundError)


# Columns and class names


def test_columns_are_found_or_asked_for(tmp_path, rows):
    files, labels = rows
    raw = pa.array(files, pa.binary())
    other = {"coarse": pa.array(labels[::-1]), "raw": raw}
    path = write_parquet(tmp_path / "a.parquet", files, labels, label_column="fine", extra=other)
    fails(Parquet(str(path)), tmp_path, path, "set image_column to one of ['image', 'raw']")
    fails(
        Parquet(str(path), image_column="image"),
        tmp_path,
        "set label_column to one of ['fine', 'coarse']",
    )
    fails(Parquet(str(path), "nix"), tmp_path, "image_column: expected one of", "got 'nix'")
    chosen = load(Parquet(str(path), "image", "fine"), tmp_path)
    assert load(Parquet(str(path), "raw", "fine"), tmp_path).content_hash == chosen.content_hash
    assert load(Parquet(str(path), "raw", "coarse"), tmp_path).content_hash != chosen.content_hash


def test_fine_label_is_preferred(tmp_path, rows):
    files, labels = rows
    only = write_parquet(tmp_path / "a.parquet", files, labels)
    both = write_parquet(
        tmp_path / "b.parquet",
        files,
        labels,
        label_column="fine_label",
        extra={"label": pa.array([0] * len(files))},
    )
    one, other = (load(Parquet(str(path)), tmp_path) for path in (only, both))
    assert one.content_hash == other.content_hash


def test_no_column_fits(tmp_path, rows):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"text": ["a"], "label": [0]}), path)
    fails(Parquet(str(path)), tmp_path, path, "no column fits as image_column", "text (string)")


def test_class_names_come_from_the_metadata(tmp_path, rows):
    names = tuple("abcdefghij")
    path = write_parquet(tmp_path / "a.parquet", *rows, names=names)
    data = load(Parquet(str(path), name="mine"), tmp_path)
    assert (data.class_names, data.name) == (names, "mine")
    bare = write_parquet(tmp_path / "b.parquet", *rows)
    assert load(Parquet(str(bare)), tmp_path).class_names == tuple("0123456789")


def test_files_with_other_class_names(tmp_path, rows):
    write_parquet(tmp_path / "in" / "a.parquet", *rows, names="abcdefghij")
    path = write_parquet(tmp_path / "in" / "b.parquet", *rows, names="abcdefghji")
    fails(Parquet(str(tmp_path / "in")), tmp_path, path, "expected the class names ('a',")


def test_known_names_in_another_order(tmp_path, rows, monkeypatch):
    path = write_parquet(tmp_path / "mnist.parquet", *rows, names="1023456789")
    fails(MNIST(str(path)), tmp_path, path, "expected the class names ('0', '1'")
    monkeypatch.setattr(MNIST, "counts", (3,) * 10)
    spelled = [f"{digit} - so" for digit in range(10)]
    write_parquet(path, *rows, names=spelled)
    assert load(MNIST(str(path)), tmp_path).class_names == tuple("0123456789")
