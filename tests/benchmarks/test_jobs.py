"""Cells become jobs: keys, order, what is skipped and what is chosen."""

import pytest
import yaml
from ledger_lines import make_line

from benchmarks.suite import SUITE
from cwfed.config.files import UsageError
from cwfed.sweeps.estimate import Estimator, clock, measure
from cwfed.sweeps.jobs import Resolver, check_only, expand, select_shard, unique
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.tables import load_table

CPU = PROFILES["cpu"]


@pytest.fixture(scope="module")
def resolver():
    return Resolver()


@pytest.fixture(scope="module")
def ablation():
    return SUITE.load_tables(["table3_ablation"])[0]


@pytest.fixture(scope="module")
def jobs(ablation, resolver):
    return expand(ablation, PROFILES["paper"], resolver)


def test_the_paper_profile_is_the_protocol(jobs):
    assert len(jobs) == 5 * 3
    assert {job.rounds for job in jobs} == {1000}
    assert {job.seed for job in jobs} == {0, 1, 2}
    for job in jobs:
        config = job.config
        assert config["partition"]["init_args"] == {
            "num_clients": 20,
            "alpha": 0.1,
            "seed": 1,
            "order": "auto",
        }
        assert config["partition"]["class_path"] == "cwfed.data.partitioners.ReleasedDirichlet"
        assert not any(config["released_code"].values())
        assert (config["rounds"], config["seed"]) == (job.rounds, job.seed)
        assert config["wdr_lambda"] == 1000


def test_keys_are_distinct_and_depend_on_nothing_else(ablation, jobs, resolver, tmp_path):
    assert len({job.key for job in jobs}) == len(jobs)
    assert len({job.cell for job in jobs}) == 5
    again = expand(ablation, PROFILES["paper"], Resolver(), data_dir=str(tmp_path), seeds=[2, 1, 0])
    assert {job.key for job in again} == {job.key for job in jobs}
    short = expand(ablation, PROFILES["paper"], resolver, rounds=10)
    assert {job.cell for job in short} == {job.cell for job in jobs}
    assert not {job.key for job in short} & {job.key for job in jobs}
    # A partition of our own is another cell.
    scaled = expand(ablation, CPU, resolver)
    assert not {job.cell for job in scaled} & {job.cell for job in jobs}
    assert not {job.key for job in scaled} & {job.key for job in jobs}
    names = {job.name for job in jobs}
    assert len(names) == len(jobs)
    assert all(job.key[:12] in job.name for job in jobs)


def partition_of(job):
    choice = job.config["partition"]
    return choice["class_path"].rpartition(".")[2], choice["init_args"]


@pytest.mark.parametrize("name", ["paper", "released"])
@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("table1_pathological", "cwfedavg_output"),
        ("table2_practical", "fedamp"),
        ("table4_robustness", "fedavg"),
        ("study_digits", "fedfomo"),
    ],
)
def test_the_published_split_takes_the_place_of_ours(table, row, name, resolver):
    (table,) = SUITE.load_tables([table])
    ours = expand(table, CPU, resolver, seeds=[0], only=[row])
    published = expand(table, PROFILES[name], resolver, seeds=[0], only=[row])
    kinds = {"Dirichlet": "ReleasedDirichlet", "Pathological": "ReleasedPathological"}
    for own, job in zip(ours, published, strict=True):
        (kind, arguments), (released, given) = partition_of(own), partition_of(job)
        arguments.pop("min_samples", None)
        if own.config["data"]["class_path"].endswith("Digits"):  # nobody has published a split
            assert released == kind
        elif kind in kinds:
            assert released == kinds[kind]
            assert given == {**arguments, "seed": 1, "order": "auto"}
        else:
            assert (released, given) == (kind, arguments)
        same = ["data", "model", "client", "participation", "wdr_lambda", "val_fraction"]
        assert [job.config[part] for part in same] == [own.config[part] for part in same]
        assert set(job.config["released_code"].values()) == {name == "released"}
        mine, theirs = (each.config["algorithm"]["aggregator"] for each in (own, job))
        if name == "released" and "aggregate_buffers" in (mine.get("init_args") or {}):
            assert theirs["init_args"] == {**mine["init_args"], "aggregate_buffers": False}
        else:
            assert theirs == mine


def test_tables_share_the_runs_of_the_same_cell(jobs, resolver):
    (practical,) = SUITE.load_tables(["table2_practical"])
    shared = expand(practical, PROFILES["paper"], resolver, only=["fedavg/cifar100"])
    assert {job.key for job in shared} < {job.key for job in jobs}
    released = expand(practical, CPU, resolver, only=["local/cifar10", "fedamp_released/cifar10"])
    assert len(released) == 2
    assert [job.row for job in unique(released)] == ["fedamp_released"], "one run serves both"
    tuned = expand(practical, CPU, resolver, only=["fedavg/cifar10", "fedavg_finetuned/cifar10"])
    assert len(tuned) == 2
    assert [job.row for job in unique(tuned)] == ["fedavg"]


def test_every_column_gets_its_first_rows_early(resolver):
    (table,) = SUITE.load_tables(["table4_robustness"])
    order = expand(table, CPU, resolver, seeds=[0, 1], rounds=7)
    assert {job.rounds for job in order} == {7}
    assert [job.seed for job in order] == [0] * 20 + [1] * 20
    rows = ("cwfedavg_output", "fedavg", "fedamp_released", "fedamp")
    assert [job.row for job in order[:20]] == [row for row in rows for _ in range(5)]
    assert [job.column for job in order[:5]] == list(table.columns)
    settings = [job.config["partition"]["init_args"] for job in order[:5]]
    assert [(s["num_clients"], s["alpha"]) for s in settings] == [
        (50, 0.1),
        (100, 0.1),
        (20, 0.01),
        (20, 0.5),
        (20, 1.0),
    ]


def test_cfl_is_skipped_where_it_cannot_split(resolver):
    (table,) = SUITE.load_tables(["table1_pathological"])

    def skip(rounds):
        (job,) = expand(table, CPU, resolver, rounds=rounds, only=["cfl/mnist"])
        return job.skip

    assert "first 20 rounds" in skip(20)
    assert skip(21) is None


def test_only_chooses_cells_and_knows_what_there_is(resolver):
    (table,) = SUITE.load_tables(["table1_pathological"])

    def cells(*only):
        return {(job.row, job.column) for job in expand(table, CPU, resolver, only=only)}

    assert cells("fedavg/mnist") == {("fedavg", "mnist")}
    assert cells("fedavg") == cells("fedavg/*") == {("fedavg", c) for c in table.columns}
    assert cells("*/mnist") == cells("/mnist") == {(row, "mnist") for row in table.rows}
    with pytest.raises(UsageError, match=r"--only: column: expected one of .*; got 'mnits'"):
        check_only([table], ["fedavg/mnits"])
    with pytest.raises(UsageError, match=r"--only: method: expected one of .*; got 'magic'"):
        check_only([table], ["magic"])


def test_shards_are_disjoint_and_together_all(jobs):
    shards = [{job.key for job in select_shard(jobs, (i, 4))} for i in (1, 2, 3, 4)]
    assert sum(map(len, shards)) == len(jobs)
    assert set.union(*shards) == {job.key for job in jobs}


def test_options_of_table_column_row_and_cell_count_in_this_order(tmp_path, resolver):
    path = tmp_path / "mine.yaml"
    options = {"wdr_lambda": 1, "val_fraction": 0.1, "participation": 0.5, "client.batch_size": 5}
    table = {
        "title": "T",
        "protocol_rounds": 30,
        "options": options,
        "columns": {
            "one": {"config": "quickstart", "options": {"wdr_lambda": 2, "participation": 0.6}},
            "two": {
                "config": "quickstart",
                "options": {"wdr_lambda": 2},
                "generated": {"partition.num_clients": 3},
            },
        },
        "rows": {
            "cwfedavg": {
                "metric": "both",
                "options": {"wdr_lambda": 3},
                "cells": {"one": {"wdr_lambda": 4}},
            }
        },
    }
    path.write_text(yaml.safe_dump(table))
    one, two = expand(load_table(path), PROFILES["paper"], resolver, seeds=[0])
    assert (one.config["wdr_lambda"], two.config["wdr_lambda"]) == (4, 3)
    assert (one.config["participation"], two.config["participation"]) == (0.6, 0.5)
    assert one.config["val_fraction"] == 0.1
    assert one.config["client"]["batch_size"] == 5
    assert one.rounds == 30
    assert two.config["partition"]["init_args"]["num_clients"] == 10
    one, two = expand(load_table(path), PROFILES["smoke"], resolver)
    assert one.config["partition"]["init_args"]["num_clients"] == 10
    assert two.config["partition"]["init_args"]["num_clients"] == 3
    assert two.config["data"]["class_path"].endswith("SyntheticImages")
    assert (two.rounds, two.config["wdr_lambda"]) == (2, 3)


def test_a_cell_that_does_not_resolve_is_named(tmp_path, resolver):
    path = tmp_path / "mine.yaml"
    table = {
        "title": "T",
        "columns": {"one": {"config": "quickstart", "options": {"partition.alhpa": 1}}},
        "rows": {"fedavg": {"metric": "received"}},
    }
    path.write_text(yaml.safe_dump(table))
    with pytest.raises(UsageError, match=r"mine: fedavg/one: .*alhpa"):
        expand(load_table(path), CPU, resolver)
    table["columns"]["one"] = {"config": "quikstart"}
    path.write_text(yaml.safe_dump(table))
    with pytest.raises(UsageError, match=r"fedavg/one: columns\.one\.config: .*'quikstart'"):
        expand(load_table(path), CPU, resolver)
    table["columns"]["one"] = {"config": "quickstart", "options": {"seed": 3}}
    path.write_text(yaml.safe_dump(table))
    with pytest.raises(UsageError, match="expected seed to be given by the table's field seeds"):
        expand(load_table(path), CPU, resolver)


def test_two_data_sets_are_never_one_run(tmp_path, resolver):
    path = tmp_path / "mine.yaml"
    columns = {
        name: {"config": "quickstart", "options": {"data": "ImageFolder", "data.path": f"/{place}"}}
        for name, place in (("one", "a"), ("two", "b"))
    }
    rows = {"fedavg": {"metric": "received"}}
    path.write_text(yaml.safe_dump({"title": "T", "columns": columns, "rows": rows}))
    said = r"data\.path: expected one path .* got /a in mine/fedavg/one seed 0 and /b in mine/fed"
    with pytest.raises(UsageError, match=said):
        expand(load_table(path), CPU, resolver)
    assert len(expand(load_table(path), CPU, resolver, only=["/two"])) == 1


def test_arithmetic_of_the_cnn_on_mnist(resolver):
    # Multiply-adds of a 28 x 28 image, layer by layer; two operations each. The backward pass has
    # twice the forward pass's, less the gradient of the images.
    conv1, conv2 = 24 * 24 * 32 * 25, 8 * 8 * 64 * 32 * 25
    linear = 1024 * 512 + 512 * 10
    an_image = 2 * (3 * (conv1 + conv2 + linear) - conv1)
    (table,) = SUITE.load_tables(["table1_pathological"])
    (job,) = expand(table, CPU, resolver, only=["fedavg/mnist"])
    flops, memory = measure(job.config)
    assert flops == pytest.approx(an_image * 70_000 * (0.75 + 2 * 0.25 / 3))
    assert memory > 582_026 * 20 * 4


def test_estimates_learn_from_finished_jobs(jobs, ablation, resolver):
    known, other = jobs[0], jobs[1]
    estimator = Estimator()
    before = estimator.seconds(other)
    line = make_line(known.cell, [0.1, 0.2, 0.3, 0.4, 0.5], config=known.config)
    estimator.learn(line)
    # Eight seconds for four rounds.
    assert estimator.seconds(known) == 2.0 * 1000
    assert estimator.seconds(other) == pytest.approx(2000)
    assert before != estimator.seconds(other)
    assert [clock(s) for s in (45, 720, 12_000, 187_200)] == [
        "45 s",
        "12 min",
        "3 h 20 min",
        "2 days 4 h",
    ]
