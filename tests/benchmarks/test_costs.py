import os

import pytest
import torch

from benchmarks import aggregation, measure, memory


def rows(text):
    return [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]


def test_times_stand_beside_the_copy_and_the_product(capsys):
    threads = torch.get_num_threads()
    try:
        command = ["--clients", "2", "3", "--threads", "1", "--repeats", "1"]
        assert aggregation.main([*command, "--methods", "fedavg"]) == 0
    finally:
        torch.set_num_threads(threads)
    table = rows(capsys.readouterr().out)
    assert [row[:2] for row in table] == [["2", "1"], ["3", "1"]]
    assert all("(1.00, " in row[2] and ", 1.00)" in row[3] for row in table)


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's memory accounting"
)
def test_the_peak_of_rounds_counts_banks(capsys):
    assert memory.main(["--clients", "30", "--methods", "cwfedavg all"]) == 0
    ((name, clients, _, bank, peak),) = rows(capsys.readouterr().out)
    assert (name, clients, bank) == ("cwfedavg all", "30", "0.11")
    assert float(peak) > 3 * 0.1


def test_random_clients_answer_in_the_shapes_of_the_contract():
    uploads, server = measure.cohort("cnn4_cifar10", 3)
    means, counts = measure.RandomClients(server).class_means(torch.tensor([2, 0]), uploads)
    assert means.shape == (2, 10, 512)
    assert torch.equal(counts, server.label_counts_MK[[2, 0]])
