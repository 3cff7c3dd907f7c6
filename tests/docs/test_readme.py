"""The README: short, and its figures are those of the ledger and of the paper."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLES = {
    "CIFAR-100 practical, 10 rounds": ("table2_practical", "cifar100"),
    "CIFAR-100 pathological, 10 rounds": ("table1_pathological", "cifar100"),
    "MNIST pathological, 10 rounds": ("table1_pathological", "mnist"),
}
# Name in the README: row of our run, row beside which the paper's figure stands.
ROWS = {
    "FedAvg": ("fedavg", "fedavg"),
    "local training": ("local", "fedamp_released"),
    "FedFomo": ("fedfomo", "fedfomo"),
    "FedUV": ("feduv", "feduv"),
    "cwFedAvg": ("cwfedavg_output", "cwfedavg_output"),
}
METRICS = {"received": "received", "after training": "post_local"}
# What the paper reports of cwFedAvg is what clients receive.
UNPUBLISHED = {("cwFedAvg", "after training")}

pytestmark = pytest.mark.docs


def table():
    """The table of results: a list of cells for each line, the heading first."""
    (text,) = re.findall(r"^\| method, scored .*?\n\n", README, re.MULTILINE | re.DOTALL)
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()
    ]
    return [lines[0], *lines[2:]]


@pytest.fixture(scope="module")
def ledger():
    """Best test accuracies in percent of runs of seed 0, by table, row, column, rounds, metric."""
    lines = (ROOT / "benchmarks/ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        (line["table"], line["row"], line["column"], line["rounds"], metric): 100
        * scored["best"]["accuracy"]
        for line in map(json.loads, lines)
        if line["seed"] == 0
        for metric, scored in line["metrics"].items()
        if metric in METRICS.values()
    }


def published(name, row, column):
    shipped = yaml.safe_load((ROOT / f"benchmarks/tables/{name}.yaml").read_text(encoding="utf-8"))
    return shipped["paper"][row][list(shipped["columns"]).index(column)]


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_results_are_those_of_the_ledger_and_the_paper(ledger):
    heading, *lines = table()
    assert heading[1::2] == list(TABLES)
    assert set(heading[2::2]) == {"paper"}
    assert len(lines) == len(ROWS) + 1
    for line in lines:
        name, metric = line[0].rstrip(" ¹²³").split(", ")
        ours, theirs = ROWS[name]
        for (shipped, column), cell, paper in zip(
            TABLES.values(), line[1::2], line[2::2], strict=True
        ):
            assert cell == f"{ledger[shipped, ours, column, 10, METRICS[metric]]:.2f}", line
            figure = published(shipped, theirs, column)
            missing = figure is None or (name, metric) in UNPUBLISHED
            assert paper == ("–" if missing else f"{figure:.2f}"), line


def test_the_sentence_on_50_rounds_is_the_ledgers(ledger):
    (pair,) = re.findall(r"has passed FedAMP: ([\d.]+) to ([\d.]+) ", README)
    rows = ("cwfedavg_output", "fedamp")
    found = [ledger["table2_practical", row, "cifar100", 50, "received"] for row in rows]
    assert list(pair) == [f"{accuracy:.2f}" for accuracy in found]
