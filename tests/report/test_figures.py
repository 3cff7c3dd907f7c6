"""Figures against the numbers that they show, and the command that draws them."""

import io
import warnings
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from helpers import SMALL_FIT
from matplotlib import rc_context
from PIL import Image

import cwfed
from cwfed.cli import main
from cwfed.plots import (
    Curves,
    Heatmap,
    clients_figure,
    curves_figure,
    figure_bytes,
    heatmap_figure,
    mixing_figure,
    scatter_figure,
)
from cwfed.records.run import Run
from cwfed.records.snapshot import norm_shares
from cwfed.report import plots as figures

SMALL = {**SMALL_FIT, "rounds": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with the weight distribution regulariser and one without."""
    folder = tmp_path_factory.mktemp("figures")
    options = {"snapshots": {"every": 2}, "figures": {"every": 2}}
    first = cwfed.fit("quickstart", run_dir=folder / "wdr", **options, **SMALL)
    other = cwfed.fit(
        "quickstart", run_dir=folder / "no", algorithm="cwfedavg_no_wdr", **options, **SMALL
    )
    return [first, other]


def panels(figure):
    return [axes for axes in figure.axes if axes.images]


def test_the_heat_map_shows_p_and_the_norms_on_one_scale(runs):
    figure = figures.heatmap_figure(runs, 2)
    shown = panels(figure)
    values = [axes.images[0].get_array().T for axes in shown]
    np.testing.assert_allclose(values[0], runs[0].p_MK)
    for run, value, axes in zip(runs, values[1:], shown[1:], strict=True):
        norms = run.snapshot(2).norms_upload_MK
        np.testing.assert_allclose(value, norms / norms.sum(1, keepdims=True), rtol=1e-5)
        assert f"{run.algorithm}, round 2" in axes.get_title()
        # mean R of the round, worked out from what is drawn
        assert f"mean R {run.rounds['mean_R'][2]:.3f}" in axes.get_title()
    assert len({axes.images[0].get_clim() for axes in shown}) == 1
    assert [text.get_text() for text in shown[0].get_yticklabels()] == runs[0].classes


def test_the_scatter_puts_p_against_p_estimated(runs):
    axes = figures.scatter_figure(runs).axes
    for run, panel in zip(runs, axes, strict=True):
        expected = np.stack([run.p_MK.ravel(), run.snapshot().p_estimated_MK.ravel()], 1)
        np.testing.assert_allclose(panel.collections[0].get_offsets(), expected)
        assert (expected.max(0) < [panel.get_xlim()[1], panel.get_ylim()[1]]).all()


def test_the_mixing_figure_shows_the_matrices(runs):
    shown = panels(figures.mixing_figure(runs[0], 3))
    mixing = runs[0].snapshot(3).mixing
    assert [axes.get_title().splitlines()[0] for axes in shown] == ["output layer", "first layer"]
    for axes, name in zip(shown, ("output", "base"), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), mixing[name])


def test_the_curves_are_the_lines_of_the_rounds(runs):
    left, right = figures.curves_figure(runs).axes
    for run, lines, distance in zip(
        runs, (left.lines[:2], left.lines[2:4]), right.lines, strict=True
    ):
        for line, metric in zip(lines, ("received", "post_local"), strict=True):
            column = run.rounds[f"{metric}/accuracy"].dropna()
            assert line.get_xdata().tolist() == column.index.tolist()
            np.testing.assert_allclose(line.get_ydata(), 100 * column)
        np.testing.assert_allclose(distance.get_ydata(), run.rounds["mean_R"])


def test_the_box_plot_has_a_dot_for_each_client(runs):
    axes = figures.clients_figure(runs, "post_local").axes[0]
    for run, dots in zip(runs, axes.collections, strict=True):
        np.testing.assert_allclose(
            dots.get_offsets()[:, 0], 100 * run.clients["accuracy_post_local"]
        )
    assert clients_figure({"one": np.array([0.5, np.nan])}).axes[0].collections[
        0
    ].get_offsets().shape == (1, 2)


def test_runs_are_told_apart(runs):
    assert figures.labels_of(runs) == ["cwfedavg", "cwfedavg_no_wdr"]
    again = Run.load(runs[0].path)
    assert figures.labels_of([runs[0], again]) == ["1: cwfedavg (wdr)", "2: cwfedavg (wdr)"]


def test_training_draws_what_plot_draws(runs):
    names = sorted(path.name for path in (runs[0].path / "figures").iterdir())
    assert names == [f"heatmap_{round_:06d}.png" for round_ in (0, 2, 3)]
    drawn = (runs[0].path / "figures" / "heatmap_000002.png").read_bytes()
    snapshot = runs[0].snapshot(2)
    expected = [
        Heatmap("labels p", runs[0].p_MK),
        Heatmap.of_norms(
            f"norms p~, mean R {runs[0].rounds['mean_R'][2]:.3f}", snapshot.norms_upload_MK
        ),
    ]
    figure = heatmap_figure(expected, classes=runs[0].classes, title="round 2")
    assert drawn == figure_bytes(figure)


def test_figures_leave_the_hash_of_a_run_alone(runs, tmp_path):
    plain = cwfed.fit("quickstart", run_dir=tmp_path / "plain", **SMALL)
    assert plain.result["hashes"] == runs[0].result["hashes"]
    assert not (plain.path / "figures").exists()


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (20, 10), (20, 100), (100, 100)])
def test_any_number_of_clients_and_classes_fits(clients, classes):
    p_MK = np.random.default_rng(0).dirichlet(np.full(classes, 0.1), clients)
    names = [f"a rather long name {number}" for number in range(classes)]
    figure = heatmap_figure([Heatmap("p", p_MK), Heatmap("q", p_MK)], classes=names, title="t")
    width, height = Image.open(io.BytesIO(figure_bytes(figure, dpi=60))).size
    assert width < 1000
    assert height < 500
    shown = panels(figure)
    for axis in (shown[0].xaxis, shown[0].yaxis):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert boxes
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_a_name_is_no_formula():
    p_MK = np.full((2, 2), 0.5)
    names = ["$\\foo{$", "a$b$"]
    figure = heatmap_figure([Heatmap("$x^2$", p_MK)], classes=names, title="$\\bar{$")
    drawn = figure_bytes(figure)
    axes = panels(figure)[0]
    axes.set_yticks(range(2), ["$\\foo{$", "ab"])
    assert figure_bytes(figure) != drawn


def test_a_name_does_not_reach_the_terminal_by_a_warning():
    p_MK = np.full((2, 2), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes = ["a\x1b[2J", "b\x07"]
        figure_bytes(heatmap_figure([Heatmap("m\x1b", p_MK)], classes=classes, title="t\x1b"))


def test_no_file_beside_it_makes_a_name_a_program_of_latex(tmp_path):
    figure = heatmap_figure([Heatmap("plain", np.full((2, 2), 0.5))], classes=["a", "b"])
    drawn = figure_bytes(figure)
    with rc_context({"text.usetex": True}):  # as a matplotlibrc in the current folder has it
        figure = heatmap_figure([Heatmap("plain", np.full((2, 2), 0.5))], classes=["a", "b"])
        assert figure_bytes(figure) == drawn


def test_many_runs_stay_within_a_page():
    p_MK = np.full((4, 3), 1 / 3)
    one = {"received": {0: 0.1, 1: 0.2}}
    drawn = {
        "heatmap": heatmap_figure([Heatmap(f"run {n}", p_MK) for n in range(13)]),
        "scatter": scatter_figure([p_MK] * 13, [Heatmap(f"run {n}", p_MK) for n in range(13)]),
        "mixing": mixing_figure({f"run {n}": np.eye(4) for n in range(13)}),
        "curves": curves_figure([Curves(f"a long name of run {n}", one) for n in range(13)]),
    }
    for name, figure in drawn.items():
        assert Image.open(io.BytesIO(figure_bytes(figure, dpi=60))).size[0] < 1000, name
    assert [axes.get_title() for axes in panels(drawn["mixing"])][12] == "run 12"
    named = [axes.get_ylabel() for axes in panels(drawn["heatmap"])]
    assert named == (["class", "", "", ""] * 4)[:13]
    # Names beside the curves, not on them.
    figure = drawn["curves"]
    figure.draw_without_rendering()
    names, curves = figure.legends[0].get_window_extent(), figure.axes[0].get_window_extent()
    assert not names.overlaps(curves)


def test_a_diverged_model_stays_white():
    shares = norm_shares(np.array([[np.nan, 1.0], [0.0, 0.0], [np.inf, 1.0]]))
    assert np.isnan(shares[0]).all()
    assert shares[1].tolist() == [0.5, 0.5]
    assert np.isnan(shares[2, 0])
    figure_bytes(heatmap_figure([Heatmap("all", np.full((2, 2), np.nan))]))


def test_files_are_the_same_twice_and_pyplot_is_left_alone(tmp_path, runs):
    before = matplotlib.get_backend()
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        files = [tmp_path / f"{n}{suffix}" for n in range(2)]
        for file in files:
            assert main(["plot", "curves", *[str(run.path) for run in runs], "-o", str(file)]) == 0
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].read_bytes().startswith(magic)
    assert matplotlib.get_backend() == before


@pytest.mark.parametrize("kind", ["heatmap", "scatter", "mixing", "curves", "clients"])
def test_every_kind_is_drawn_into_the_run_folder(kind, runs, capsys):
    assert main(["plot", kind, *[str(run.path) for run in runs]]) == 0
    path = runs[0].path / "figures" / f"{kind}.png"
    assert capsys.readouterr().out.strip() == f"drawn in {path}"
    assert Image.open(path).size[0] > 500


MISTAKES = {
    "kind": (["pie", "RUN"], "invalid choice: 'pie'"),
    "no run": (["heatmap"], "arguments are required: RUN"),
    "no folder": (["heatmap", "nowhere"], "nowhere: expected a run folder with a config.yaml"),
    "suffix": (["heatmap", "RUN", "-o", "a.svg"], "name ending in .png or .pdf, got a.svg"),
    "target": (["heatmap", "RUN", "-o", "no/a.png"], "expected an existing folder, got no"),
    "round": (["heatmap", "RUN", "--round", "1"], "round: expected one of 0, 2, 3, got 1"),
    "no number": (["heatmap", "RUN", "--round", "x"], "--round: invalid int value: 'x'"),
    "round of curves": (["curves", "RUN", "--round", "1"], "--round: expected only with heatmap"),
    "metric": (["clients", "RUN", "--metric", "best"], "--metric: invalid choice: 'best'"),
    "wrong kind": (["curves", "RUN", "--metric", "received"], "--metric: expected only with"),
    "nothing mixed": (["mixing", "RUN", "--round", "0"], "nothing was mixed in round 0"),
    "no snapshots": (["heatmap", "BARE"], "no snapshots"),
    "no rounds": (["curves", "BARE"], "rounds.jsonl: expected a scored round, got none"),
    "no scores": (["clients", "BARE"], "expected a round with received scores, got none"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name, runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("config.yaml", "labels.json"):
        (tmp_path / file).write_bytes((runs[0].path / file).read_bytes())
    places = {"RUN": str(runs[0].path), "BARE": str(tmp_path)}
    arguments, message = MISTAKES[name]
    assert main(["plot", *(places.get(part, part) for part in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("cwfed plot: error: ")
    assert message in error
    assert "\n" not in error


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="panels: expected at least one"):
        heatmap_figure([])
    with pytest.raises(ValueError, match="b: expected a matrix of 2x3"):
        heatmap_figure([Heatmap("a", np.ones((2, 3))), Heatmap("b", np.ones((3, 2)))])
    with pytest.raises(ValueError, match="classes: expected 3 names, got 1"):
        heatmap_figure([Heatmap("a", np.ones((2, 3)))], classes=["x"])
    with pytest.raises(ValueError, match="a: expected a matrix of 2x2"):
        mixing_figure({"a": np.ones((2, 3))})
