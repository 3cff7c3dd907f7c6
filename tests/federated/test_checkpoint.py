import json

import pytest
import torch
from helpers import assert_same

from cwfed.federated.checkpoint import load_newest, save_checkpoint
from cwfed.federated.state import FederatedState


def make_state(round_):
    bank = {"w": torch.randn(3, 2), "steps": torch.arange(3)}
    shared = {"w": torch.randn(2).expand(3, 2), "steps": torch.arange(3)}
    scores = {"test": torch.rand(3, 3, dtype=torch.float64)}
    return FederatedState(round_, bank, shared, shared, bank, {"Q": torch.rand(3, 4)}, scores)


def test_round_trip(tmp_path):
    state = make_state(4)
    save_checkpoint(tmp_path, state, "me", keep=2)
    loaded = load_newest(tmp_path, "me")
    assert loaded.round == 4
    for field in ("uploads", "received", "anchors", "personal", "server", "post_local"):
        assert_same(getattr(loaded, field), getattr(state, field))
    assert loaded.received["w"].stride(0) == 0, "one model for all stays one model"


def test_only_the_newest_are_kept(tmp_path):
    for round_ in range(1, 6):
        save_checkpoint(tmp_path, make_state(round_), "me", keep=2)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [
        "round_000004.json",
        "round_000004.pt",
        "round_000005.json",
        "round_000005.pt",
    ]


@pytest.mark.parametrize("damage", ["truncate", "flip", "no_seal", "bad_seal", "empty"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, damage):
    save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    path = save_checkpoint(tmp_path, make_state(2), "me", keep=2)
    data = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    elif damage == "no_seal":
        path.with_suffix(".json").unlink()
    elif damage == "bad_seal":
        path.with_suffix(".json").write_text("[")
    else:
        path.write_bytes(b"")
    assert load_newest(tmp_path, "me").round == 1


def test_none_without_any(tmp_path):
    assert load_newest(tmp_path, "me") is None
    assert load_newest(tmp_path / "missing", "me") is None


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    save_checkpoint(tmp_path, make_state(1), "other", keep=2)
    with pytest.raises(ValueError, match="expected a checkpoint of this run's configuration"):
        load_newest(tmp_path, "me")


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    torch.save({"round": Evil()}, path)
    seal = json.loads(path.with_suffix(".json").read_text())
    import hashlib

    seal["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(seal))
    with pytest.raises(Exception, match=r"weights_only|Weights only|Unsupported"):
        load_newest(tmp_path, "me")
    assert not (tmp_path / "owned").exists()
