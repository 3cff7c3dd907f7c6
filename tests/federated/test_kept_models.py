import torch

from cwfed.federated.kept_models import ModelKeeper


def line(round_, accuracy):
    score = {"accuracy": accuracy, "fairness": None}
    return {"round": round_, "received": score, "post_local": score}


def test_the_best_models_are_kept_also_where_a_kill_came_before_that(tmp_path):
    lines, banks = [line(0, 0.9)], [{"w": torch.full((2, 1), float(n))} for n in range(4)]
    for round_, accuracy in ((1, 0.5), (2, 0.4)):
        lines.append(line(round_, accuracy))
        keeper = ModelKeeper(tmp_path)
        keeper.start(lines, banks[round_])
        (kept,) = keeper.files()
        assert kept.round == 1
    ModelKeeper(tmp_path).start([*lines, line(3, 0.6)], banks[3])
    content = torch.load(tmp_path / "models" / "best.pt", weights_only=True)
    assert content["round"] == 3
    assert torch.equal(content["models"]["w"], banks[3]["w"])
