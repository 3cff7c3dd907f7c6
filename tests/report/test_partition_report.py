"""The partition's table and figure: right numbers, within the width, clear refusals."""

import io
import re

import matplotlib
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from cwfed.data.images import ImageData
from cwfed.data.manifest import label_counts, make_manifest
from cwfed.data.partitioners import IID, Dirichlet, Pathological
from cwfed.records.manifest import PARTS
from cwfed.report.partition import partition_table, plot_partition, skew


def image_data(num_classes, per_class):
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    return ImageData(images, labels, tuple(f"name{j}" for j in range(num_classes)), "ab", "toy")


def case(num_classes=10, per_class=60, partitioner=None, **options):
    data = image_data(num_classes, per_class)
    return make_manifest(data, partitioner or Pathological(20, 2), seed=0, **options), data


def text_of(manifest, data, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(partition_table(manifest, data.labels_N, data.class_names, width))
    return console.file.getvalue()


def test_skew_of_one_class_a_client_and_of_equal_clients():
    manifest, data = case(10, 60, Pathological(10, 1))
    measured = skew(manifest, data.labels_N)
    assert measured.mean_classes == 1
    assert measured.mean_tv == pytest.approx(0.9)
    assert (measured.size_cv, measured.min_size, measured.max_size) == (0, 60, 60)
    manifest, data = case(2, 5000, IID(4))
    assert skew(manifest, data.labels_N).mean_tv < 0.03


@pytest.mark.parametrize("val_fraction", [0.0, 0.2])
def test_the_table_shows_every_count(val_fraction):
    manifest, data = case(val_fraction=val_fraction)
    lines = text_of(manifest, data, 100).splitlines()
    counts = label_counts(manifest, data.labels_N, PARTS)
    parts = [part for part in PARTS if part != "val" or val_fraction]
    assert lines[0].split() == ["client", *parts, *map(str, range(10))]
    for client, line in enumerate(lines[1:21]):
        sizes = [str(len(getattr(manifest.clients[client], part))) for part in parts]
        cells = [str(n) if n else "·" for n in counts[client].tolist()]
        assert line.split() == [str(client), *sizes, *cells]
    assert lines[-1] == f"Skew: {skew(manifest, data.labels_N)}"


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize(("classes", "clients"), [(10, 20), (20, 20), (100, 20), (200, 100)])
def test_the_table_fits_its_width(classes, clients, width):
    manifest, data = case(classes, 100, Dirichlet(clients), val_fraction=0.1)
    lines = text_of(manifest, data, width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(bool(re.match(r" *\d+ +\d+ +\d+ +\d+ +\S", line)) for line in lines) == clients
    assert "Skew: " in "\n".join(lines)


def test_strips_shade_by_count_and_say_what_a_mark_means():
    manifest, data = case(100, 80, Pathological(10, 10))
    text = text_of(manifest, data, 140)
    strip = text.splitlines()[1].split()[-1]
    assert strip == "█" * 10 + "·" * 90
    assert "Each mark is a class: · 0  ░ 1–10  ▒ 11–20  ▓ 21–40  █ 41–80 samples" in text
    narrow = text_of(manifest, data, 60)
    assert "Each mark is 3 classes: · 0" in narrow
    assert narrow.splitlines()[1].split()[-1] == "███▓" + "·" * 30


def test_a_single_sample_shows_in_a_strip():
    manifest, data = case(100, 2, IID(10))
    marks = [line.split()[-1] for line in text_of(manifest, data, 140).splitlines()[1:11]]
    counts = label_counts(manifest, data.labels_N, PARTS)
    for row, strip in zip(counts.tolist(), marks, strict=True):
        assert [mark != "·" for mark in strip] == [n > 0 for n in row]


@pytest.mark.parametrize(("classes", "clients"), [(10, 20), (100, 20), (200, 100), (1, 1)])
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".PNG"])
def test_the_figure_is_written(tmp_path, classes, clients, suffix):
    manifest, data = case(classes, 40, IID(clients), val_fraction=0.1)
    path = tmp_path / f"partition{suffix}"
    plot_partition(manifest, data.labels_N, data.class_names, path)
    magic = b"%PDF" if suffix == ".pdf" else b"\x89PNG"
    assert path.read_bytes().startswith(magic)


def drawn(monkeypatch, tmp_path, manifest, data):
    kept = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **kw: (kept.append(self), save(self, *args, **kw))
    )
    plot_partition(manifest, data.labels_N, data.class_names, tmp_path / "p.png")
    return kept[0]


def test_bubble_areas_are_proportional_to_counts_at_their_places(monkeypatch, tmp_path):
    manifest, data = case(val_fraction=0.2)
    counts = label_counts(manifest, data.labels_N, PARTS)
    bars, bubbles = drawn(monkeypatch, tmp_path, manifest, data).axes
    points = bubbles.collections[0]
    places = points.get_offsets().astype(int).tolist()
    assert places == counts.nonzero().tolist()
    held = torch.tensor([counts[x, y] for x, y in places])
    ratios = torch.from_numpy(points.get_sizes()) / held
    assert torch.allclose(ratios, ratios[0].expand_as(ratios))
    heights = [bar.get_height() for bar in bars.patches]
    assert sum(heights) == 600
    assert heights[:20] == [len(client.train) for client in manifest.clients]
    tops = [bar.get_y() + bar.get_height() for bar in bars.patches[-20:]]
    assert tops == [len(client.all) for client in manifest.clients]
    assert [label.get_text() for label in bubbles.get_yticklabels()] == list(data.class_names)


def test_the_figure_is_the_same_twice_and_leaves_pyplot_alone(tmp_path):
    manifest, data = case()
    before = matplotlib.get_backend()
    for suffix in ("png", "pdf"):
        files = [tmp_path / f"{n}.{suffix}" for n in range(2)]
        for file in files:
            plot_partition(manifest, data.labels_N, data.class_names, file)
        assert files[0].read_bytes() == files[1].read_bytes()
    assert b"CreationDate" not in files[0].read_bytes()
    assert matplotlib.get_backend() == before


def test_refusals_name_what_was_expected(tmp_path):
    manifest, data = case()
    with pytest.raises(ValueError, match=r"expected a file ending in .png or .pdf, got 'p.svg'"):
        plot_partition(manifest, data.labels_N, data.class_names, tmp_path / "p.svg")
    with pytest.raises(ValueError, match="path: expected an existing folder"):
        plot_partition(manifest, data.labels_N, data.class_names, tmp_path / "no" / "p.png")
    with pytest.raises(ValueError, match="class_names: expected 10 names, got 9"):
        plot_partition(manifest, data.labels_N, data.class_names[1:], tmp_path / "p.png")
    with pytest.raises(ValueError, match="class_names: expected 10 names, got 9"):
        partition_table(manifest, data.labels_N, data.class_names[1:], 80)
    with pytest.raises(ValueError, match="labels_N: expected 600 labels"):
        skew(manifest, data.labels_N[1:])
