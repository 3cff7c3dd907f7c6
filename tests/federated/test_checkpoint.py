import errno
import hashlib
import json
import os
import zipfile
from dataclasses import replace

import pytest
import torch
from fuzz.recipes import TENSORS
from helpers import assert_same

from cwfed.federated.state import FederatedState
from cwfed.records.checksums import CHECKSUM
from cwfed.records.files import write_sealed
from cwfed.runs.checkpoint import load_newest, save_checkpoint


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


def test_every_flipped_bit_of_a_seal_gives_way_to_the_one_before(tmp_path):
    save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    path = save_checkpoint(tmp_path, make_state(2), "me", keep=2).with_suffix(".json")
    whole, meant = path.read_bytes(), json.loads(path.read_text())
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        same = damaged.isascii() and read_json(damaged) == meant
        assert load_newest(tmp_path, "me").round == 1 + same, damaged


def read_json(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def test_none_without_any(tmp_path):
    assert load_newest(tmp_path, "me") is None
    assert load_newest(tmp_path / "missing", "me") is None


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    save_checkpoint(tmp_path, make_state(1), "other", keep=2)
    with pytest.raises(ValueError, match="expected a checkpoint of this run's configuration"):
        load_newest(tmp_path, "me")


def forge(path, payload, **seal):
    """Put something else into a checkpoint, with a seal that fits."""
    path.write_bytes(payload) if isinstance(payload, bytes) else torch.save(payload, path)
    old = json.loads(path.with_suffix(".json").read_text())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_sealed(path.with_suffix(".json"), old | {"sha256": digest} | seal)


def test_a_seal_that_names_no_run_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    forge(path, path.read_bytes(), identity=None)
    with pytest.raises(ValueError, match="expected a checkpoint of this run's configuration"):
        load_newest(tmp_path, "me")


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    forge(path, {"round": Evil()})
    with pytest.raises(ValueError, match="expected tensors only, got something else") as refused:
        load_newest(tmp_path, "me")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "owned").exists()


def test_a_packed_file_is_not_unpacked(tmp_path):
    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    packed = tmp_path / "packed"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    forge(path, packed.read_bytes())
    with pytest.raises(ValueError, match="of which nothing was run: a packed archive"):
        load_newest(tmp_path, "me")


def without(payload, *names):
    return {name: value for name, value in payload.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: [], "got no dict"),
        (lambda p: without(p, "server"), "got the fields"),
        (lambda p: p | {"more": {}}, "got the fields"),
        (lambda p: p | {"round": 7}, "got round 7 in the file of round 1"),
        (lambda p: p | {"server": {"Q": 3}}, "got no tensors by name in server"),
        (lambda p: p | {"post_local": {}}, "post_local without test"),
        (lambda p: p | {"server": {"P": p["server"]["Q"]}}, "got server without Q"),
        (lambda p: p | {"server": p["server"] | {"P": torch.ones(3)}}, "server with the unknown P"),
        (lambda p: p | {"server": {"Q": torch.ones(3, 5)}}, r"server with Q \[3, 5\]"),
        (lambda p: p | {"uploads": without(p["uploads"], "w")}, "uploads without w"),
        (lambda p: p | {"personal": p["personal"] | {"v": torch.ones(3)}}, "with the unknown v"),
        (
            lambda p: p | {"received": p["received"] | {"w": torch.ones(3, 3)}},
            r"received with w \[3, 3\] torch.float32 instead of \[3, 2\] torch.float32",
        ),
        (
            lambda p: p | {"anchors": {"w": torch.ones(3, 2, dtype=torch.float64)}},
            r"anchors with w \[3, 2\] torch.float64 instead",
        ),
    ],
)
def test_a_state_of_another_kind_is_refused(tmp_path, change, message):
    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    like = make_state(0)
    assert load_newest(tmp_path, "me", like).round == 1
    forge(path, change(torch.load(path, weights_only=True)))
    with pytest.raises(ValueError, match=message):
        load_newest(tmp_path, "me", like)


def test_another_format_is_refused_and_the_first_one_read(tmp_path):
    path = save_checkpoint(tmp_path, make_state(1), "me", keep=2)
    seal = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(without(seal, "format", CHECKSUM)))
    assert load_newest(tmp_path, "me").round == 1
    write_sealed(path.with_suffix(".json"), seal | {"format": 2})
    with pytest.raises(ValueError, match="expected a checkpoint of format 1, got 2"):
        load_newest(tmp_path, "me")


def test_all_damaged_is_an_error_and_no_fresh_start(tmp_path):
    for round_ in (1, 2):
        save_checkpoint(tmp_path, make_state(round_), "me", keep=2).write_bytes(b"")
    with pytest.raises(ValueError, match=r"got none: round_000002.pt is damaged"):
        load_newest(tmp_path, "me")


def test_seals_that_are_gone_are_no_fresh_start(tmp_path):
    paths = [save_checkpoint(tmp_path, make_state(n), "me", keep=2) for n in (1, 2)]
    paths[1].with_suffix(".json").unlink()
    assert load_newest(tmp_path, "me").round == 1
    paths[0].with_suffix(".json").unlink()
    with pytest.raises(ValueError, match=r"got none: round_000001.pt has no seal"):
        load_newest(tmp_path, "me")
    paths[1].unlink()
    assert load_newest(tmp_path, "me") is None, "a kill in the first checkpoint leaves this"


@pytest.mark.parametrize("name", ["round_2", "round_0000002", "round_٠٠٠٠٠٢", "round_²"])
def test_a_copy_under_another_name_is_no_checkpoint(tmp_path, name):
    path = save_checkpoint(tmp_path, make_state(2), "me", keep=2)
    (tmp_path / f"{name}.pt").write_bytes(b"")
    (tmp_path / f"{name}.json").write_text("{}")
    assert load_newest(tmp_path, "me").round == 2
    save_checkpoint(tmp_path, make_state(3), "me", keep=1)
    assert not path.exists()
    assert (tmp_path / f"{name}.pt").exists()


def test_later_checkpoints_do_not_push_the_newest_out(tmp_path):
    for round_ in (7, 8):
        save_checkpoint(tmp_path, make_state(round_), "me", keep=2)
    save_checkpoint(tmp_path, make_state(3), "me", keep=1)
    assert [p.name for p in tmp_path.glob("*.pt")] == ["round_000003.pt"]


def test_a_write_that_fails_names_the_file_and_leaves_the_one_before(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, make_state(1), "me", keep=1)
    write, calls = os.write, []

    def full(descriptor, data):
        calls.append(len(data))
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match=r"No space left on device: .*round_000002.pt'"):
        save_checkpoint(tmp_path, make_state(2), "me", keep=1)
    assert load_newest(tmp_path, "me").round == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("bank", ["uploads", "server"])
def test_tensors_of_kinds_that_no_run_writes_are_refused(tmp_path, bank, kind):
    """Under a right seal, as that of somebody who means it; the strides of a run may be any."""
    state = make_state(1)
    key = {"uploads": "w", "server": "Q"}[bank]
    odd = TENSORS[kind](getattr(state, bank)[key])
    banks = {name: dict(getattr(state, name)) for name in (bank,)}
    banks[bank][key] = odd
    save_checkpoint(tmp_path, replace(state, **banks), "me", keep=1)
    if kind == "reversed" or (bank, kind) == ("server", "overlapping"):
        assert_same(getattr(load_newest(tmp_path, "me", state), bank), banks[bank])
        return
    message = rf"round_000001.pt: expected a state of this version and run, got {bank} with {key}"
    with pytest.raises(ValueError, match=message):
        load_newest(tmp_path, "me", state)


def test_tensors_that_share_memory_in_part_are_refused(tmp_path):
    state = make_state(1)
    windows = torch.arange(6.0).as_strided((3, 4), (1, 1))
    save_checkpoint(tmp_path, replace(state, server={"Q": windows}), "me", keep=1)
    with pytest.raises(ValueError, match="server with Q as a tensor whose numbers share"):
        load_newest(tmp_path, "me", state)
