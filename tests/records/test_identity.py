"""A run's identity: the same for the same meaning, another for another."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import yaml
from walk_options import class_defaults, classes, option_defaults, parser, phase_defaults

import cwfed.records.identity as identity
from cwfed.config.files import config_root, order_arguments
from cwfed.config.parser import absolute_paths, parse, plain
from cwfed.records.defaults import CHANGES, VERSION_1
from cwfed.records.identity import (
    CANNOT_CHANGE_NUMBERS,
    cell_hash,
    chosen,
    config_hash,
    defaults,
    filled,
    identities,
    is_resolved,
    portable,
)


def resolve(*arguments):
    made = parser()
    config = parse(made, order_arguments(["--config", "quickstart", *arguments]))
    absolute_paths(config)
    return plain(made, config)


@pytest.fixture(scope="module")
def config():
    return resolve()


def cannot_change(name):
    """Whether an option, or a group that it is in, stands in the list."""
    parts = name.split(".")
    groups = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return bool(groups & set(CANNOT_CHANGE_NUMBERS))


def with_value(config, name, value):
    made = deepcopy(config)
    *groups, last = name.split(".")
    inner = made
    for group in groups:
        inner = inner.setdefault(group, {})
    inner[last] = value
    return made


def test_every_option_changes_the_identity_or_stands_in_the_list(config):
    # Options of jsonargparse's own print and end.
    names = [n for n in option_defaults() if n != "print_config" and not n.endswith(".help")]
    assert len(names) > 40
    for name in names:
        changed = with_value(config, name, "something else")
        assert (config_hash(changed) == config_hash(config)) is cannot_change(name), name


def test_every_argument_of_a_class_changes_the_identity_or_stands_in_the_list(config):
    found = classes()
    assert {"CwFedAvg", "WDR", "Dirichlet", "CNN4", "Digits", "SGD", "PrototypeHead"} <= set(found)
    for name, kind in found.items():
        choice = {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": {}}
        for option in ("data", "partition", "model", "algorithm.aggregator", "client.optimizer"):
            base = with_value(config, option, choice)
            for argument in class_defaults(kind):
                value = {**choice, "init_args": {argument: "something else"}}
                same = config_hash(with_value(config, option, value)) == config_hash(base)
                assert same is cannot_change(f"{option}.{argument}"), (name, argument)


def test_every_field_of_a_phase_changes_the_identity(config):
    base = with_value(config, "algorithm.phases", [{}])
    for name in phase_defaults():
        changed = with_value(config, "algorithm.phases", [{name: "something else"}])
        assert config_hash(changed) != config_hash(base), name


def test_a_phase_of_as_many_epochs_as_the_run_s_says_nothing(config):
    def of(epochs, local_epochs=1):
        phases = with_value(config, "algorithm.phases", [{"trainable": "base", "epochs": epochs}])
        return config_hash(with_value(phases, "client.local_epochs", local_epochs))

    assert of(1) == of(None)
    assert of(3, 3) == of(None, 3) != of(1, 3)
    assert len({of(1), of(2), of(3), of(1, 3), of(None, 3)}) == 5


def test_the_list_names_options_that_there_are():
    names = {*option_defaults(), "plot", "save", "save_pfllib"}
    places = {f"{option}.path" for option in ("data", "partition")}
    for name, reason in CANNOT_CHANGE_NUMBERS.items():
        known = name in places or any(n == name or n.startswith(f"{name}.") for n in names)
        assert known, f"{name} is no option"
        assert reason


def live_defaults():
    """Defaults as the code has them, under the names of the table."""
    found = {n: v for n, v in option_defaults().items() if not cannot_change(n)}
    found |= {f"TrainingPhase.{name}": value for name, value in phase_defaults().items()}
    for name, kind in classes().items():
        found |= {f"{name}.{n}": v for n, v in class_defaults(kind).items() if n != "path"}
    own = {n: v for n, v in found.items() if n != "print_config" and not n.endswith(".help")}
    return {name: value for name, value in own.items() if value is not ...}


def test_the_table_has_the_defaults_of_the_code():
    """A new option belongs into VERSION_1 and a changed default into CHANGES: CONTRIBUTING.md."""
    live, table = live_defaults(), defaults()
    for name, value in live.items():
        kind = getattr(torch.optim, name.split(".")[0], None)
        if name not in table and kind is not None:
            continue  # of a newer PyTorch, whose signature is asked
        assert name in table, f"{name} has no line in cwfed/records/defaults.py"
        assert identity._same(table[name], value), f"{name}: {table[name]} is not {value}"
    installed = {name.split(".")[0] for name in live}
    stale = [
        n for n in table if n not in live and n.split(".")[0] in installed - set(dir(torch.optim))
    ]
    assert not stale, "lines of options that are gone"


def test_versions_change_only_what_is_known():
    for changes in CHANGES.values():
        assert set(changes) <= set(VERSION_1)


def test_an_option_with_a_default_leaves_the_identity(config, monkeypatch):
    before = config_hash(config)
    newer = with_value(config, "client.clip", None)
    newer["algorithm"]["aggregator"]["init_args"]["momentum"] = 0.0
    assert config_hash(newer) != before, "an option that nobody has entered"
    table = {**defaults(), "client.clip": None, "CwFedAvg.momentum": 0}
    monkeypatch.setattr(identity, "defaults", lambda version=2: table)
    assert config_hash(newer) == before
    newer["client"]["clip"] = 1.0
    assert config_hash(newer) != before


def test_a_default_that_changes_keeps_the_meaning_of_older_runs(config, monkeypatch):
    """An option whose default is not the old behaviour: runs that lack it did the old."""
    fresh = with_value(config, "algorithm.aggregator.init_args.fallback", "received")
    older, explicit = config, with_value(config, "algorithm.aggregator.init_args.fallback", "kept")
    monkeypatch.setattr(identity, "VERSION_1", {**VERSION_1, "CwFedAvg.fallback": "kept"})
    monkeypatch.setattr(identity, "CHANGES", {2: {}, 3: {"CwFedAvg.fallback": "received"}})
    for cached in (identity.defaults, identity._changed):
        monkeypatch.setattr(identity, cached.__name__, cached.__wrapped__)
    monkeypatch.setattr(identity, "_changed", lambda: ("CwFedAvg.fallback",))
    by_version = {version: config_hash(older, version) for version in (2, 3)}
    assert config_hash(explicit, 3) == by_version[3] != config_hash(fresh, 3)
    assert chosen(fresh, 3)["algorithm"]["aggregator"] == {"class_path": "CwFedAvg"}
    assert filled(older)["algorithm"]["aggregator"]["init_args"]["fallback"] == "kept"
    assert identity.older_meanings(older) == {"CwFedAvg.fallback": "kept"}
    assert not identity.older_meanings(fresh)
    # What was hashed when it was the default is still known.
    assert by_version[2] in identities(older)
    assert config_hash(explicit, 2) == by_version[2]


def test_a_class_that_moves_keeps_its_name(config):
    moved = deepcopy(config)
    moved["algorithm"]["aggregator"]["class_path"] = "cwfed.methods.classwise.CwFedAvg"
    moved["client"]["optimizer"]["class_path"] = "torch.optim.sgd.SGD"
    assert config_hash(moved) == config_hash(config)


def test_classes_of_others_are_known_by_their_full_path(config):
    def named(path):
        return config_hash(with_value(config, "algorithm.aggregator.class_path", path))

    assert len({named(path) for path in ("a.Half", "b.Half", "a.b.Half", "Half")}) == 4
    assert named("mine.CwFedAvg") != config_hash(config)


def test_an_optimiser_that_gains_an_argument_stays_the_same(config, monkeypatch):
    class SGD(torch.optim.SGD):
        def __init__(self, params, lr=1e-3, momentum=0, *, fancy=None, bold=True):
            super().__init__(params, lr, momentum)

    newer = deepcopy(config)
    newer["client"]["optimizer"]["init_args"] |= {"fancy": None, "bold": True}
    assert config_hash(newer) != config_hash(config), "this PyTorch knows no such argument"
    monkeypatch.setattr(torch.optim, "SGD", SGD)
    identity._newer_default.cache_clear()
    assert config_hash(newer) == config_hash(config)
    newer["client"]["optimizer"]["init_args"]["bold"] = False
    assert config_hash(newer) != config_hash(config)
    identity._newer_default.cache_clear()


def test_the_order_of_keys_is_no_matter(config):
    def backwards(value):
        if not isinstance(value, dict):
            return value
        return {key: backwards(value[key]) for key in reversed(value)}

    other = backwards(config)
    assert list(other) != list(config)
    assert config_hash(other) == config_hash(config)
    # That of terms is: their sum is rounded in that order.
    terms = [{"class_path": "WDR"}, {"class_path": "AttentionProximal"}]
    several = [with_value(config, "algorithm.objectives", t) for t in (terms, terms[::-1])]
    assert config_hash(several[0]) != config_hash(several[1])


def test_what_is_said_and_what_is_default_are_one():
    said = resolve("--participation", "1.0", "--client.optimizer.momentum", "0")
    assert config_hash(said) == config_hash(resolve())
    assert config_hash(resolve("--client.batch_size", "11")) != config_hash(said)


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, "1"), (None, 0), (0, "")])
def test_values_of_other_kinds_are_not_one(config, one, other):
    pair = [with_value(config, "val_fraction", value) for value in (one, other)]
    assert config_hash(pair[0]) != config_hash(pair[1])


def test_whole_numbers_are_one_where_the_type_is_known(config):
    def of(option, value):
        return config_hash(with_value(config, option, value))

    assert of("wdr_lambda", 7) == of("wdr_lambda", 7.0)
    argument = "algorithm.aggregator.init_args.x"
    mine = with_value(config, "algorithm.aggregator.class_path", "mine.Own")
    # One client or all of them: only their author knows.
    assert config_hash(with_value(mine, argument, 1)) != config_hash(
        with_value(mine, argument, 1.0)
    )


def test_the_name_of_the_method_counts(config):
    assert config_hash(with_value(config, "algorithm.name", "mine")) != config_hash(config)


def test_a_cell_is_known_whatever_its_seed_and_length(config):
    others = [config | {"seed": 7, "rounds": 3}, config | {"seed": 0, "rounds": 1000}]
    assert {cell_hash(other) for other in others} == {cell_hash(config)}
    assert cell_hash(config | {"participation": 0.5}) != cell_hash(config)


def test_what_is_chosen_reads_like_the_commands(config):
    assert chosen(config) == {
        "data": {"class_path": "Digits"},
        "partition": {"class_path": "Dirichlet", "init_args": {"num_clients": 10}},
        "model": {"class_path": "CNN4"},
        "algorithm": {
            "name": "cwfedavg",
            "aggregator": {"class_path": "CwFedAvg"},
            "objectives": [{"class_path": "WDR"}],
        },
        "rounds": 20,
        "wdr_lambda": 10,
        "client": {"optimizer": {"class_path": "SGD", "init_args": {"lr": 0.05}}},
    }


def test_what_is_portable_has_no_place(config):
    manifest = {"class_path": "FromManifest", "init_args": {"path": "/a/b.json"}}
    kept = portable(config | {"partition": manifest, "data_dir": "/data", "logger": "wandb"})
    assert kept["partition"] == {"class_path": "FromManifest", "init_args": {}}
    assert kept["trainer"] == {"precision": "32-true", "matmul_precision": "highest"}
    assert "policy" not in kept["faults"]
    assert not {"data_dir", "logger", "wandb", "checkpoint"} & set(kept)
    assert config_hash(kept) == config_hash(config | {"partition": manifest})


def test_a_run_s_configuration_is_told_from_a_person_s(config):
    assert is_resolved(config)
    assert is_resolved(portable(config))
    for path in config_root().rglob("*.yaml"):
        assert not is_resolved(yaml.safe_load(path.read_text())), path


def test_hashing_does_not_change_what_is_hashed(config):
    before = deepcopy(config)
    identities(config)
    assert config == before


def test_reading_a_run_loads_no_framework():
    folder = Path(__file__).parent / "runs_0_1" / "cwfedavg"
    code = (
        "import pkgutil, sys, cwfed.records\n"
        "from importlib import import_module\n"
        "for module in pkgutil.iter_modules(cwfed.records.__path__, 'cwfed.records.'):\n"
        "    import_module(module.name)\n"
        f"run = cwfed.Run.load({str(folder)!r})\n"
        "assert run.lines and run.algorithm and run.seed == 3\n"
        "cwfed.records.identity.identities(run.config)\n"
        "print({'torch', 'lightning', 'pandas', 'matplotlib', 'wandb'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("odd", [{}, {"data": 3}, {"algorithm": []}, {"client": {"optimizer": 1}}])
def test_odd_configurations_have_an_identity_too(odd):
    assert len(config_hash(odd)) == 64
    assert json.dumps(chosen(odd))


@pytest.mark.parametrize("name", ["trainer", "faults", "data", "partition"])
@pytest.mark.parametrize("odd", [3, "x", [1], True, {"init_args": 3}])
def test_what_is_no_configuration_is_refused_by_field(config, name, odd):
    for whole in (odd, []):
        if not isinstance(whole, dict):
            for hashed in (identities, portable, cell_hash):
                with pytest.raises(ValueError, match="configuration: expected a mapping"):
                    hashed(whole)
    if not isinstance(odd, dict):
        with pytest.raises(ValueError, match=f"{name}: expected a mapping of options"):
            identities({**config, name: odd})
    elif name in ("data", "partition"):
        with pytest.raises(ValueError, match="init_args: expected a mapping of options"):
            identities({**config, name: odd})
