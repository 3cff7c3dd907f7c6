"""The page in a browser: it draws, filters, sorts, slides, and asks nobody for anything."""

import json
import shutil

import pytest
from helpers import change_json, read_rounds_of, write_rounds

from cwfed.records.run import Run
from cwfed.report.page import find_runs, make_payload, write_page

NASTY = "</script><script>window.hacked=1</script>"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Drawings reach the canvas with the next frame.
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
IMAGE = """(name) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
    done([...[...document.querySelectorAll('#inside h3')]
        .find((h) => h.textContent.startsWith(name))
        .parentElement.querySelectorAll('canvas')].map((c) => c.toDataURL()).join()))))"""


@pytest.fixture(scope="module")
def page_file(page_runs, tmp_path_factory):
    """A page of runs whose names and classes try to be markup, with an unfinished one."""
    folder = tmp_path_factory.mktemp("browser")
    runs = folder / "runs"
    shutil.copytree(page_runs, runs)
    (runs / "fedavg-0").rename(runs / "<img src=x onerror=window.hacked=1>")
    for path in runs.glob("*/labels.json"):
        classes = json.loads(path.read_text())["classes"]
        change_json(path, classes=[NASTY, *classes[1:]])
    shutil.copytree(runs / "fedavg-1", runs / "halted")
    (runs / "halted" / "result.json").unlink()
    lines = (runs / "halted" / "rounds.jsonl").read_text().splitlines()
    (runs / "halted" / "rounds.jsonl").write_text("\n".join(lines[:3]))
    lines = read_rounds_of(runs / "cwfedavg-0")
    lines[2]["excluded"] = {"1": "dropout"}
    write_rounds(runs / "cwfedavg-0", lines)
    write_page(make_payload(find_runs([runs])), folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install it)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser, page_file):
    """The page, opened; at the end there must have been no error and no request."""
    yield from watch(browser, page_file)


@pytest.fixture
def long_page(browser, page_runs, tmp_path):
    """A page of two runs with more rounds, in which the accuracy says which round it is."""
    for seed in (0, 1):
        run = tmp_path / "runs" / f"fedavg-{seed}"
        shutil.copytree(page_runs / run.name, run)
        (run / "config.yaml").write_text(
            (run / "config.yaml").read_text().replace("\nrounds: 3\n", "\nrounds: 20\n")
        )
        line = read_rounds_of(run)[-1]
        lines = []
        for number in range(21):
            scores = {**line["received"], "accuracy": number / 100 + seed / 1000}
            lines.append({**line, "round": number, "received": scores})
        write_rounds(run, lines)
        change_json(run / "result.json", rounds=20)
    write_page(make_payload(find_runs([tmp_path / "runs"])), tmp_path / "page.html")
    yield from watch(browser, tmp_path / "page.html")


def watch(browser, page_file):
    opened = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    said, asked = [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(page_file.as_uri())
    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert opened.evaluate("window.hacked") is None
    opened.close()


# Lowest and highest number that is drawn, over all series.
DRAWN = """() => {
    const chart = [...charts].find(([plot]) => plot.closest('#curves'))[1];
    return chart.getOption().series.map((one) => [one.type, one.data.map((p) => p[0]),
        one.data.map((p) => p[1])]);
}"""


def test_curves_are_narrowed_to_their_end(long_page):
    long_page.wait_for_selector("#curves canvas")
    for choice, first in (("1", 0), ("0.5", 10), ("0.2", 16)):
        long_page.check(f"input[name=span][value='{choice}']", force=True)
        series = long_page.evaluate(DRAWN)
        rounds = list(range(first, 21))
        assert [drawn for _, drawn, _ in series] == [rounds, rounds, rounds]  # a band and a line
        means = [number + 0.05 for number in rounds]
        assert series[-1][2] == pytest.approx(means, abs=0.01)  # as packed
        said = f", drawn from round {first}."
        assert (said in long_page.inner_text("#curves figcaption")) == (first > 0)
    assert len(numbers(long_page, "Accuracy (received) by round")) == 22


def test_few_rounds_are_always_drawn_whole(page):
    page.wait_for_selector("#curves canvas")
    assert page.locator("input[name=span]").count() == 3
    assert not page.locator("input[name=span]").first.is_visible()


def column(page, index):
    cells = page.locator(f"#overview tbody tr:not(.group) td:nth-child({index})")
    return [text.split("\n")[0].strip() for text in cells.all_inner_texts()]


def test_every_part_is_drawn_and_names_stay_text(page):
    titles = page.locator("#summary .body > dl > dt").all_inner_texts()
    assert titles == ["Accuracy", "Clients", "Cost", "WDR", "Left out", "Unfinished"]
    for section, drawings in (("curves", 1), ("clients", 3), ("cost", 2), ("inside", 8)):
        # Waiting for a selector, since the page's policy refuses functions made of strings.
        drawn = page.locator(f"#{section} .plot:has(canvas)")
        drawn.nth(drawings - 1).wait_for()
        assert drawn.count() == drawings
    page.check("#overview input[value=runs]", force=True)
    assert "<img src=x onerror=window.hacked=1>" in page.inner_text("#overview")
    assert "unfinished: 2 of 3" in page.inner_text("#overview")
    assert page.locator("h1").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('.plot')].filter((p) => !p.ariaLabel).length"
    )
    assert unnamed == 0


def test_sorting_and_filters(page):
    page.click("[data-sort=label]")
    assert column(page, 1)[0] == "cwfedavg"
    page.focus("[data-sort=label]")
    page.keyboard.press("Enter")
    assert [name.split()[0] for name in column(page, 1)] == ["fedavg", "cwfedavg"]
    head = page.locator("th", has=page.locator("[data-sort=label]"))
    assert head.get_attribute("aria-sort") == "descending"
    assert page.evaluate("document.activeElement.dataset.sort") == "label"
    page.click("[data-sort=mean_R]")
    figures = [float(text) for text in column(page, 9)]
    assert figures == sorted(figures, reverse=True)
    page.click("#methods button:has-text('cwfedavg')")
    assert [name.split()[0] for name in column(page, 1)] == ["fedavg"]
    assert page.locator("#methods button").first.get_attribute("aria-pressed") == "false"
    page.select_option("#dataset", "synthetic")
    headline = page.inner_text("#summary .body")
    page.check("input[name=metric][value=post_local]", force=True)
    assert page.inner_text("#summary .body") != headline


@pytest.fixture
def uneven_page(browser, page_runs, tmp_path):
    """A page of two methods with two seeds, and a third with one of them that it is best on."""
    runs = tmp_path / "runs"
    shutil.copytree(page_runs, runs)
    late = runs / "late"
    shutil.copytree(runs / "cwfedavg-0", late)
    config = (late / "config.yaml").read_text()
    (late / "config.yaml").write_text(config.replace("wdr_lambda: 10.0", "wdr_lambda: 77.0"))
    result = json.loads((late / "result.json").read_text())
    for metric in ("received", "post_local"):
        for choice in ("last", "best"):
            result[metric][choice]["accuracy"] = 1.0
    change_json(late / "result.json", **result)
    write_page(make_payload(find_runs([runs])), tmp_path / "page.html")
    yield from watch(browser, tmp_path / "page.html")


def test_one_incomplete_method_takes_no_mark_and_is_named(uneven_page):
    page = uneven_page
    page.wait_for_selector("#curves canvas")
    shown = json.loads(page.inner_text("#data") or page.text_content("#data"))["settings"][0]
    labels = [variant["label"] for variant in shown["variants"]]
    (lead,) = shown["rankings"]["received/last"]["leaders"]
    rows = page.locator("#overview tbody tr:not(.group)")
    marked = {
        row.locator("td").first.inner_text().split("\n")[0].strip(): "▲" in cell.inner_text()
        for row in rows.all()
        for cell in [row.locator("td").nth(3)]
    }
    assert marked == {label: label == labels[lead] for label in labels}
    late = labels.index("cwfedavg, wdr_lambda 77.0")
    assert late != lead
    (row,) = [row for row in rows.all() if "77.0" in row.inner_text()]
    assert "not ranked" in row.inner_text()
    assert "77.0 has seed 0, not 1." in page.inner_text("#summary .body")
    caption = page.inner_text("#curves figcaption")
    assert "cwfedavg, wdr_lambda 10.0, fedavg: seeds 0, 1" in caption
    assert "cwfedavg, wdr_lambda 77.0: seed 0" in caption
    # The first pair that is held against each other is the ranking's.
    order = [labels[one["variant"]] for one in shown["rankings"]["received/last"]["order"]]
    assert [page.input_value(f"#pair-{n}") for n in (0, 1)] == order


def test_a_hidden_method_is_said_to_be_ranked(page):
    assert "ranked all the same" not in page.inner_text("main")
    page.click("#methods button:has-text('cwfedavg')")
    for section in ("summary", "overview"):
        words = page.inner_text(f"#{section} .body")
        assert "Hidden, and ranked all the same: cwfedavg." in words
    page.click("#methods button:has-text('cwfedavg')")
    assert "ranked all the same" not in page.inner_text("main")


def numbers(page, heading):
    """Open a drawing's table with the keyboard; return its cells, row by row, the head first."""
    figure = page.locator("figure", has=page.locator(f"h3:text-is('{heading}')"))
    if not figure.locator("table").count():
        figure.locator("summary").focus()
        page.keyboard.press("Enter")
        figure.locator("table").wait_for()
    rows = figure.locator("tr")
    return [rows.nth(n).locator("th, td").all_inner_texts() for n in range(rows.count())]


def test_every_drawing_has_its_numbers_as_a_table(page, page_file):
    drawings = page.locator("figure").count()
    assert page.locator("figure summary:has-text('Show as table')").count() == drawings
    folder = page_file.parent / "runs"
    run = Run.load(folder / "cwfedavg-0")
    other = Run.load(folder / "cwfedavg-1")
    accuracy = numbers(page, "Accuracy (received) by round")
    assert accuracy[0][:2] == ["round", "cwfedavg"]
    values = [100 * each.lines[-1]["received"]["accuracy"] for each in (run, other)]
    mean = f"{sum(values) / 2:.2f} % ({min(values):.2f} % to {max(values):.2f} %)"
    assert accuracy[4][:2] == ["3", mean]
    first = numbers(page, "Accuracy of the clients, by method")[1]
    clients, counts = run.clients.iloc[0], run.label_counts().iloc[0]
    assert first[:5] == [
        *("0", "0", str(counts.sum()), str((counts > 0).sum()), str(int(clients["test"])))
    ]
    assert first[5].startswith(f"{100 * clients['accuracy_received']:.2f} %")
    held = numbers(page, "Who holds which classes")
    assert [int(text) for text in held[1][1:]] == counts.tolist()
    lost = numbers(page, "Who was left out of which rounds")
    assert lost[2] == ["1", "0", "1", "0"]
    fit = numbers(page, "Norms against labels")
    expected = run.snapshot().p_estimated_MK[0]
    assert [float(text) for text in fit[2][1:]] == pytest.approx(expected.tolist(), abs=2e-3)
    page.focus("#round")
    page.keyboard.press("Home")
    page.evaluate(FRAME)
    expected = run.snapshot(0).p_estimated_MK[0]
    moved = numbers(page, "Norms against labels")
    assert [float(text) for text in moved[2][1:]] == pytest.approx(expected.tolist(), abs=2e-3)


def test_the_slider_moves_with_the_keys_and_changes_the_maps(page):
    page.wait_for_selector("#inside canvas")
    before = page.evaluate(IMAGE, "Uploaded")
    labels = page.evaluate(IMAGE, "Label distribution")
    page.focus("#round")
    assert page.inner_text("#round-now") == "3 of 3"
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#round-now") == "2 of 3"
    page.keyboard.press("Home")
    assert page.inner_text("#round-now") == "0 of 3"
    assert page.evaluate(IMAGE, "Uploaded") != before
    assert page.evaluate(IMAGE, "Label distribution") == labels
    assert page.evaluate("document.activeElement.id") == "round"


def test_dark_mode_follows_the_system_and_the_switch(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    assert page.evaluate(ground) != light
    page.focus("#theme")
    page.keyboard.press("Enter")
    assert page.evaluate(ground) == light
    assert page.get_attribute("#theme", "aria-pressed") == "false"


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    assert {
        "theme",
        "dataset",
        "setting",
        "metric",
        "choice",
        "figure",
        "pair-0",
        "run",
        "round",
    } <= reached
    page.focus("#setting")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_phone_scrolls_down_only(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_selector("#inside canvas")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
