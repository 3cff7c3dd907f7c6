"""Rounds are read as they were written, or their damage is named; older ones by their fields."""

import copy
import hashlib
import json

import pytest

from cwfed.records.atomic import append_atomic
from cwfed.records.round_lines import append_line, line_text, read_lines, read_rounds


def score(correct):
    accuracies = [one / 10 for one in correct]
    return {
        "accuracy": sum(correct) / 20,
        "loss": 1.25,
        "fairness": {"mean": sum(accuracies) / 2, "std": 0.125, "worst10": min(accuracies)},
        "correct": correct,
    }


def make_line(number):
    asked = [0, 1] if number else []
    lost = {"excluded": {"1": "dropout"}} if number == 2 else {}
    return {
        "round": number,
        "participants": asked,
        **lost,
        "received": score([4 + number, 2]),
        "post_local": score([6, 2 + number]) if number else None,
        "train_loss": -0.5 if number else None,
        "mean_R": 0.75,
        "method": {"clusters": 2.0} if number else {},
        "bytes": {"up": [1000] * len(asked), "down": [900] * len(asked)},
        "seconds": {"fit": 0.0345} if number else {},
    }


LINES = [make_line(number) for number in range(3)]


@pytest.fixture
def path(tmp_path):
    for line in LINES:
        append_line(tmp_path / "rounds.jsonl", line)
    return tmp_path / "rounds.jsonl"


@pytest.fixture
def older(tmp_path):
    """A file as versions without checksums wrote it."""
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return tmp_path / "rounds.jsonl"


def test_a_line_ends_with_the_checksum_of_the_rest(path):
    for text, line in zip(path.read_text().splitlines(), LINES, strict=True):
        before, _, after = text.rpartition(', "checksum": ')
        assert json.loads(before + "}") == line
        assert after == f'"{hashlib.sha256((before + "}").encode()).hexdigest()[:16]}"}}'
    assert read_lines(path) == LINES


def test_older_lines_are_read_too(older):
    assert read_lines(older) == LINES
    assert read_lines(older, 2) == LINES[:2]


def test_no_flipped_bit_passes(path):
    """Every bit of the file: the line is refused by name, or what is read is what was written."""
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            found = read_rounds(path)
            if found.damage is None or found.cut:
                assert found.lines == LINES, (at, bit)
            else:
                assert found.damage.startswith(f"{path}: ")


@pytest.mark.parametrize("layout", ["crlf", "spaces", "no end"])
def test_the_layout_does_not_enter(path, layout):
    text = path.read_text()
    if layout == "crlf":
        text = text.replace("\n", "\r\n")
    elif layout == "spaces":
        text = text.replace('": ', '":  ')
    path.write_text(text.removesuffix("\n") if layout == "no end" else text, newline="")
    assert read_lines(path) == LINES


def test_an_unfinished_last_line_is_passed_over(path):
    whole = path.read_bytes()
    end = whole.rindex(b"\n", 0, -1) + 1
    for length in range(end, len(whole) - 1):
        path.write_bytes(whole[:length])
        found = read_rounds(path)
        assert found.lines == LINES[:2]
        assert found.cut is (length > end)
        assert read_lines(path) == LINES[:2]


@pytest.mark.parametrize("bad", ['{"round": 7}', "[]", "not json", '{"rounds": 1}', "[" * 99999])
def test_a_damaged_line_is_named(path, bad):
    texts = path.read_text().splitlines()
    path.write_text("\n".join([texts[0], bad, texts[2]]) + "\n")
    with pytest.raises(ValueError, match=r"rounds.jsonl: expected round 1 in line 2, got"):
        read_lines(path)
    assert read_rounds(path).lines == LINES[:1]
    assert read_lines(path, 1) == LINES[:1]


def test_all_lines_have_checksums_or_none(path):
    texts = [json.dumps(LINES[0]), *path.read_text().splitlines()[1:]]
    path.write_text("\n".join(texts) + "\n")
    with pytest.raises(ValueError, match="line 1, round 0: checksum: expected one"):
        read_lines(path)


DAMAGE = {
    "received.accuracy": (("received", "accuracy"), 4.71),
    "received.accuracy: expected 7 correct of 20": (("received", "accuracy"), 0.4),
    "received.loss": (("received", "loss"), -1.0),
    "received.fairness": (("received", "fairness"), [1]),
    "received.fairness.std": (("received", "fairness", "std"), "0.1"),
    "received.correct": (("received", "correct"), [6, 2.0]),
    "correct: expected 2 clients": (("received", "correct"), [6, 0, 0]),
    "received: expected a mapping": (("received",), 1),
    "participants": (("participants",), [0, -1]),
    "participants: expected each once": (("participants",), [1, 1]),
    "participants: expected clients below 2": (("participants",), [0, 5]),
    "excluded: expected participants": (("excluded",), {"7": "dropout"}),
    "excluded: expected one of": (("excluded",), {"1": "dropouu"}),
    "mean_R": (("mean_R",), 1.6),
    "mean_R: expected a number": (("mean_R",), [0.1]),
    "expected round 1 in line 2": (("mean_R",), float("nan")),
    "train_loss": (("train_loss",), "x"),
    "train_loss: expected": (("train_loss",), 10**400),
    "method.clusters": (("method", "clusters"), "2"),
    "bytes.up": (("bytes", "up"), [1000, None]),
    "bytes.up: expected 2 numbers": (("bytes", "up"), [1000]),
    "seconds.fit": (("seconds", "fit"), -0.1),
    "expected round 1": (("round",), 1.0),
    "mean_S: expected only": (("mean_S",), 0.1),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_fields_of_older_lines_are_checked(older, message):
    way, value = DAMAGE[message]
    line = place = copy.deepcopy(LINES[1])
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    older.write_text("".join(json.dumps(each) + "\n" for each in (LINES[0], line, LINES[2])))
    with pytest.raises(ValueError, match=r"rounds.jsonl: ") as caught:
        read_lines(older)
    assert message in str(caught.value)
    assert read_rounds(older).lines == LINES[:1]


@pytest.mark.parametrize("field", ["participants", "received", "mean_R", "bytes", "seconds"])
def test_a_missing_field_is_named(older, field):
    line = {name: value for name, value in LINES[0].items() if name != field}
    older.write_text(json.dumps(line) + "\n")
    with pytest.raises(ValueError, match=f"line 1, round 0: {field}: expected it"):
        read_lines(older)


def test_a_right_checksum_makes_no_sense_of_nonsense(path):
    path.write_text(line_text(LINES[0] | {"mean_R": "x"}))
    with pytest.raises(ValueError, match="line 1, round 0: mean_R: expected a number"):
        read_lines(path)


def test_a_name_twice_is_refused(older):
    text = older.read_text().replace('"mean_R": 0.75', '"mean_R": 0.75, "mean_R": 0.5', 1)
    older.write_text(text)
    with pytest.raises(ValueError, match="mean_R: expected once, got it twice"):
        read_lines(older)


def test_an_appended_line_needs_the_size_that_was_left(path):
    size = path.stat().st_size
    append_line(path, make_line(3), size)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"rounds.jsonl: expected the [\d,]+ bytes so far, got"):
        append_line(path, make_line(4), size)
    assert path.read_bytes() == before
    append_atomic(path, "x")
