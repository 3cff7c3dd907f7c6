import torch

from cwfed.functional.stacking import finite_rows, replace_rows, replicate, row


def test_replicate_shares_memory_but_not_with_the_source():
    source = {"w": torch.ones(2)}
    bank = replicate(source, 3)
    source["w"].zero_()
    assert bank["w"].tolist() == [[1, 1]] * 3
    assert bank["w"].stride(0) == 0


def test_replace_rows_leaves_the_old_bank_alone():
    bank = replicate({"w": torch.zeros(2), "steps": torch.tensor(0)}, 4)
    fresh = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "steps": torch.tensor([5, 6])}
    new = replace_rows(bank, [3, 1], fresh)
    assert new["w"].tolist() == [[0, 0], [3, 4], [0, 0], [1, 2]]
    assert new["steps"].tolist() == [0, 6, 0, 5]
    assert bank["w"].sum() == 0


def test_replace_all_rows_in_another_order():
    bank = replicate({"w": torch.zeros(1)}, 2)
    new = replace_rows(bank, [1, 0], {"w": torch.tensor([[1.0], [2.0]])})
    assert new["w"].tolist() == [[2], [1]]


def test_row_is_a_view():
    bank = {"w": torch.arange(6.0).reshape(3, 2)}
    assert row(bank, 1)["w"].tolist() == [2, 3]


def test_finite_rows_finds_one_bad_entry_wherever_it_hides():
    theta = torch.zeros(4, 3, 5)
    theta[1, 2, 4], theta[2, 0, 0], theta[2, 1, 1] = torch.nan, torch.inf, -torch.inf
    assert finite_rows(theta).tolist() == [True, False, False, True]
    assert finite_rows(theta.transpose(1, 2)).tolist() == [True, False, False, True]
    assert finite_rows(torch.tensor(torch.inf).expand(3, 2)).tolist() == [False] * 3
    assert finite_rows(torch.full((2, 9), 3e38)).tolist() == [True, True]
    assert finite_rows(torch.arange(3)).tolist() == [True] * 3
