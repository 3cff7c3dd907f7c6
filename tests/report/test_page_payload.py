"""What a page says: the runs' own numbers, groups of what may be compared, damage that is named."""

import csv
import json
import os
import shutil
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest
import yaml
from helpers import change_json, read_rounds_of, write_rounds
from hypothesis import given
from hypothesis import strategies as st

from cwfed.analysis.facts import read_facts
from cwfed.records.manifest import Manifest
from cwfed.records.run import Run
from cwfed.report.page import find_runs, inside, make_payload, write_page
from cwfed.report.page.arrays import quantise, restore
from cwfed.report.page.inside import left_out

numbers = st.floats(-1e6, 1e6) | st.just(float("nan"))


@given(st.lists(numbers, min_size=1, max_size=40), st.sampled_from([8, 16]))
def test_packing_loses_at_most_half_a_step(values, bits):
    packed = quantise(np.array(values), bits)
    back = restore(packed)
    np.testing.assert_array_equal(np.isnan(back), np.isnan(values))
    half = (packed["high"] - packed["low"]) / (2 * (2**bits - 2))
    good = ~np.isnan(back)
    assert (np.abs(back - values)[good] <= half * (1 + 1e-9) + 1e-9).all()


@pytest.fixture(scope="module")
def payload(page_runs):
    return make_payload(find_runs([page_runs]))


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_the_numbers_are_those_of_the_run(page_runs, payload):
    assert [run["name"] for run in payload["runs"]] == [
        *("cwfedavg-0", "cwfedavg-1", "fedavg-0", "fedavg-1")
    ]
    for shown in payload["runs"]:
        folder = page_runs / shown["name"]
        result = read(folder, "result.json")
        figures = shown["figures"]
        for metric in ("received", "post_local"):
            for choice in ("last", "best"):
                assert figures[f"{metric}/{choice}"] == result[metric][choice]["accuracy"]
            assert figures[f"{metric}/worst10"] == result[metric]["fairness"]["worst10"]
        assert figures["mean_R"] == result["mean_R"]
        sent = [result["bytes"][way]["per_client_and_round"] for way in ("up", "down")]
        assert figures["megabytes"] == pytest.approx(sum(sent) / 1e6)
        assert shown["hashes"]["partition"] == result["hashes"]["partition"]
        rows = list(csv.DictReader((folder / "clients.csv").open()))
        ratios = [
            c / t for c, t in zip(shown["correct"]["received/last"], shown["test"], strict=True)
        ]
        assert ratios == pytest.approx([float(row["accuracy_received"]) for row in rows])


def test_curves_are_those_of_the_rounds(page_runs, payload):
    for shown in payload["runs"]:
        lines = read_rounds_of(page_runs / shown["name"])
        curves = shown["curves"]
        assert curves["rounds"] == [0, 1, 2, 3]
        accuracy = [line["received"]["accuracy"] for line in lines]
        np.testing.assert_allclose(restore(curves["received_accuracy"]), accuracy, atol=1e-5)
        loss = restore(curves["post_local_loss"])
        assert np.isnan(loss[0])
        expected = [line["post_local"]["loss"] for line in lines[1:]]
        np.testing.assert_allclose(loss[1:], expected, atol=1e-4)
        spent = [sum(line["seconds"].values()) for line in lines[1:]]
        np.testing.assert_allclose(restore(curves["seconds"])[1:], np.cumsum(spent), atol=1e-3)
        sent = sum(sum(line["bytes"]["up"]) + sum(line["bytes"]["down"]) for line in lines)
        assert restore(curves["megabytes"])[-1] == pytest.approx(sent / 4 / 1e6, rel=1e-4)


def test_arrays_are_those_of_the_snapshots(page_runs, payload):
    for shown in payload["runs"]:
        run = Run.load(page_runs / shown["name"])
        held, division = shown["snapshots"], payload["partitions"][shown["partition"]]
        assert held["rounds"] == [0, 1, 2, 3]
        for step, round_ in enumerate(held["rounds"]):
            snapshot = run.snapshot(round_)
            for name, values in (
                ("upload", snapshot.norms_upload_MK),
                ("received", snapshot.norms_received_MK),
                *((group, matrix) for group, matrix in snapshot.mixing.items()),
            ):
                packed = held[name]
                half = (packed["high"] - packed["low"]) / (2 * 254)
                np.testing.assert_allclose(restore(packed)[step], values, atol=half * 1.001 + 1e-9)
            assert held["mean_R"][step] == run.lines[round_]["mean_R"]
        for part in ("train", "test"):
            counts = restore(division[part]).round()
            np.testing.assert_array_equal(counts, run.label_counts(part).to_numpy())
        np.testing.assert_allclose(restore(division["p"]), run.p_MK, atol=1e-5)


def test_means_are_over_the_seeds_of_one_configuration(payload):
    (setting,) = payload["settings"]
    assert [variant["label"] for variant in setting["variants"]] == ["cwfedavg", "fedavg"]
    runs = payload["runs"]
    for variant, indices in zip(setting["variants"], ([0, 1], [2, 3]), strict=True):
        assert variant["counted"] == indices
        for name, stat in variant["means"].items():
            values = [runs[index]["figures"][name] for index in indices]
            assert stat["mean"] == pytest.approx(fmean(values))
            assert stat["std"] == pytest.approx(stdev(values))
            assert stat["n"] == 2


def copied(page_runs, tmp_path, *names):
    for name in names:
        shutil.copytree(page_runs / name.split("+")[0], tmp_path / name)
    return tmp_path


def change_yaml(path, **changes):
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**config, **changes}))


def groups(folder):
    payload = make_payload(find_runs([folder]))
    return {
        setting["label"]: {
            variant["label"]: [payload["runs"][index]["name"] for index in variant["counted"]]
            for variant in setting["variants"]
        }
        for setting in payload["settings"]
    }


def test_one_seed_on_two_partitions_is_never_one_setting(page_runs, tmp_path):
    folder = copied(page_runs, tmp_path, "cwfedavg-0", "cwfedavg-1", "fedavg-0")
    path = folder / "fedavg-0" / "partition.json"
    manifest = Manifest.load(path)
    other = replace(manifest, clients=manifest.clients[::-1])
    other.save(path)
    made = groups(folder)
    assert len(made) == 3
    assert all(len(names) == 1 for group in made.values() for names in group.values())
    assert [list(group) for label, group in made.items() if other.hash[:8] in label] == [["fedavg"]]


def test_other_data_rounds_and_options_stand_apart(page_runs, tmp_path):
    folder = copied(page_runs, tmp_path, "cwfedavg-0", "cwfedavg-0+l", "fedavg-0", "fedavg-0+r")
    change_yaml(folder / "fedavg-0+r" / "config.yaml", rounds=4)
    change_yaml(folder / "cwfedavg-0+l" / "config.yaml", wdr_lambda=77.0)
    made = list(groups(folder).values())
    assert len(made) == 2
    assert {"cwfedavg, wdr_lambda 10.0", "cwfedavg, wdr_lambda 77.0", "fedavg"} in map(set, made)
    path = folder / "fedavg-0" / "partition.json"
    replace(Manifest.load(path), dataset_hash="e" * 64).save(path)
    assert len(groups(folder)) == 3


def test_the_ranking_of_the_words_is_that_of_the_marks(page_runs, tmp_path):
    names = ("cwfedavg-0", "cwfedavg-1", "fedavg-0", "fedavg-1", "cwfedavg-0+late")
    folder = copied(page_runs, tmp_path, *names)
    change_yaml(folder / "cwfedavg-0+late" / "config.yaml", wdr_lambda=77.0)
    (setting,) = make_payload(find_runs([folder]))["settings"]
    labels = [variant["label"] for variant in setting["variants"]]
    assert labels == ["cwfedavg, wdr_lambda 10.0", "cwfedavg, wdr_lambda 77.0", "fedavg"]

    def mean(name, metric, choice):
        results = [read(folder / f"{name}-{seed}", "result.json") for seed in (0, 1)]
        chosen = [r[metric]["fairness" if choice == "worst10" else choice] for r in results]
        return fmean(c["worst10" if choice == "worst10" else "accuracy"] for c in chosen)

    for key, ranking in setting["rankings"].items():
        # The two that have both seeds, and not the one seed that all three have.
        assert list(ranking["seeds"]) == [0, 1]
        assert ranking["apart"] == [1]
        means = {0: mean("cwfedavg", *key.split("/")), 2: mean("fedavg", *key.split("/"))}
        shown = {one["variant"]: one["mean"] for one in ranking["order"]}
        assert shown == pytest.approx(means)
        assert ranking["leaders"] == [n for n in means if means[n] == max(means.values())]
    summary = setting["summary"]["received/last"]
    points = {p["title"]: p["text"] for p in summary["points"]}
    assert "mean of 2 seeds" in summary["headline"]
    assert "wdr_lambda 77.0 has seed 0, not 1." in points["Not ranked"]


def test_a_seed_counts_once_and_an_unfinished_run_not_at_all(page_runs, tmp_path):
    folder = copied(page_runs, tmp_path, "fedavg-0", "fedavg-0+again", "fedavg-1")
    (folder / "fedavg-1" / "result.json").unlink()
    lines = (folder / "fedavg-1" / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "fedavg-1" / "rounds.jsonl").write_text("".join(lines[:3]) + '{"round": 3, "rec')
    payload = make_payload(find_runs([folder]))
    (setting,) = payload["settings"]
    (variant,) = setting["variants"]
    assert variant["counted"] == [0]
    assert len(variant["runs"]) == 3
    half = payload["runs"][2]
    assert (half["finished"], half["rounds"], half["planned"]) == (False, 2, 3)
    assert half["figures"]["received/last"] == json.loads(lines[2])["received"]["accuracy"]
    points = {p["title"]: p["text"] for p in setting["summary"]["received/last"]["points"]}
    assert "fedavg-1 (2 of 3 rounds)" in points["Unfinished"]


def test_what_is_missing_is_left_out_with_the_reason(page_runs, tmp_path):
    folder = copied(page_runs, tmp_path, "fedavg-0", "fedavg-1", "cwfedavg-0")
    (folder / "fedavg-0" / "labels.json").unlink()
    shutil.rmtree(folder / "fedavg-0" / "snapshots")
    (folder / "fedavg-1" / "labels.json").write_text("{}")
    for path in (folder / "fedavg-1" / "snapshots").iterdir():
        path.write_bytes(b"PK nothing")
    (folder / "cwfedavg-0" / "partition.json").unlink()
    (folder / "cwfedavg-0" / "snapshots" / "round_000001.npz").write_bytes(b"")
    runs = {run["name"]: run for run in make_payload(find_runs([folder]))["runs"]}
    first, second, third = runs["fedavg-0"], runs["fedavg-1"], runs["cwfedavg-0"]
    assert first["snapshots"] is None
    assert any("labels.json: not there" in note for note in first["notes"])
    assert any("no snapshots" in note for note in first["notes"])
    assert any("labels.json: expected label counts" in note for note in second["notes"])
    assert any("damaged" in note and "norms" in note for note in second["notes"])
    assert third["test"] is None
    assert third["snapshots"]["rounds"] == [0, 2, 3]
    assert any("rounds 1 are left out" in note for note in third["notes"])


def test_who_was_left_out_of_which_rounds(page_runs, tmp_path):
    folder = copied(page_runs, tmp_path, "fedavg-0", "fedavg-1")
    lines = read_rounds_of(folder / "fedavg-0")
    lines[1]["excluded"] = {"2": "dropout"}
    lines[2]["participants"], lines[2]["excluded"] = [0, 2], {"0": "straggler", "2": "dropout"}
    lines[2]["bytes"] = {way: sent[:2] for way, sent in lines[2]["bytes"].items()}
    write_rounds(folder / "fedavg-0", lines)
    payload = make_payload(find_runs([folder]))
    lossy, whole = payload["runs"]
    held, nan = lossy["left_out"], float("nan")
    expected = [[0, 1, 0], [0, nan, 0], [1, 1, 0], [0, nan, 0]]
    np.testing.assert_array_equal(restore(held["lost"]), expected)
    assert held["rounds"] == [[1, 1], [2, 2], [3, 3]]
    assert held["reasons"] == {"dropout": 2, "straggler": 1}
    assert lossy["figures"]["left_out"] == 3 / 10
    assert restore(lossy["curves"]["left_out"]).tolist() == [0, 1, 2, 0]
    assert (whole["left_out"], whole["figures"]["left_out"]) == (None, 0)
    # With little room, rounds are put together; none is lost.
    (run, _) = find_runs([folder]).runs
    packed = left_out(read_facts(run, "x"), room=4)
    assert packed["rounds"] == [[1, 2], [3, 3]]
    assert restore(packed["lost"]).tolist() == [[1, 0], [0, 0], [2, 0], [0, 0]]


def test_partitions_have_a_budget_too(page_runs, monkeypatch):
    found = find_runs([page_runs])
    one = 6 * found.runs[0].p_MK.size
    monkeypatch.setattr(inside, "PARTITIONS", one)
    payload = make_payload(found)
    first, second = (payload["runs"][n] for n in (0, 1))
    assert payload["partitions"][first["partition"]] is not None
    assert payload["partitions"][second["partition"]] is None
    assert any("partition is left out" in note for note in second["notes"])
    size = inside.snapshot_rounds([read_facts(run, "x") for run in found.runs], inside.BUDGET)[0]
    assert size == {}


def test_runs_are_found_below_folders_and_told_apart(page_runs, tmp_path):
    for parent in ("a", "b"):
        shutil.copytree(page_runs / "fedavg-0", tmp_path / parent / "same")
    found = find_runs([tmp_path, tmp_path / "a" / "same"])
    assert [run["name"] for run in make_payload(found)["runs"]] == ["a/same", "b/same"]
    (tmp_path / "b" / "same" / "rounds.jsonl").write_text('{"round": 0}\n{"round": 1}\n')
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    assert "rounds.jsonl" in found.skipped[0]
    with pytest.raises(ValueError, match=r"rounds.jsonl: line 1, round 0: participants: expected"):
        find_runs([tmp_path / "b" / "same"])
    with pytest.raises(ValueError, match=r"RUN: no run can be read: .*rounds.jsonl"):
        find_runs([tmp_path / "b"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="without any"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(ValueError, match="expected a run folder or a folder of runs"):
        find_runs([tmp_path / "missing"])


def test_many_large_runs_stay_below_five_megabytes(page_runs, tmp_path):
    clients, classes, rounds = 20, 100, 100
    template = tmp_path / "t"
    shutil.copytree(page_runs / "cwfedavg-0", template)
    shutil.rmtree(template / "snapshots")
    (template / "snapshots").mkdir()
    random = np.random.default_rng(0)
    norms = random.random((2, clients, classes), dtype=np.float32)
    mixing = random.random((2, clients, clients), dtype=np.float32)
    names = ("norms_upload", "norms_received", "mixing_output", "mixing_base")
    first = template / "snapshots" / "round_000000.npz"
    np.savez(first, **dict(zip(names, [*norms, *mixing], strict=True)))
    for round_ in range(2, rounds + 1, 2):
        os.link(first, template / "snapshots" / f"round_{round_:06d}.npz")
    counts = random.integers(0, 50, (clients, classes)).tolist()
    p = (np.array(counts) / np.sum(counts, 1, keepdims=True)).tolist()
    labels = {"classes": [f"class {k}" for k in range(classes)], "p": p}
    labels["counts"] = dict.fromkeys(("train", "val", "test"), counts)
    (template / "labels.json").write_text(json.dumps(labels))
    line = read_rounds_of(template)[-1]
    for metric in ("received", "post_local"):
        line[metric]["correct"] = [1] * clients
    write_rounds(template, [{**line, "round": round_} for round_ in range(rounds + 1)])
    change_json(template / "result.json", rounds=rounds)
    change_yaml(template / "config.yaml", rounds=rounds)
    for seed in range(20):
        shutil.copytree(template, tmp_path / "many" / f"r{seed}", copy_function=os.link)
        (tmp_path / "many" / f"r{seed}" / "config.yaml").unlink()
        shutil.copy(template / "config.yaml", tmp_path / "many" / f"r{seed}" / "config.yaml")
        change_yaml(tmp_path / "many" / f"r{seed}" / "config.yaml", seed=seed)
    payload = make_payload(find_runs([tmp_path / "many"]))
    kept = [run["snapshots"]["rounds"] for run in payload["runs"]]
    assert all(len(one) >= 10 and one[0] == 0 and one[-1] == rounds for one in kept)
    assert write_page(payload, tmp_path / "page.html") < 5_000_000
