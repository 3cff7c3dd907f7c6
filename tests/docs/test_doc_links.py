"""Links and pictures of the README and the manual: what they name is there, also the anchors."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = MarkdownIt("commonmark").enable("table")

pytestmark = pytest.mark.docs


def tokens(text):
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or ()


def targets(text):
    """Places that links and pictures of a page name, without those in code."""
    places = [token.attrGet("href") or token.attrGet("src") for token in tokens(text)]
    return [unquote(str(place)) for place in places if place]


def anchors(path):
    """Anchors of the headings of a page, as forges and the manual make them."""
    text = path.read_text(encoding="utf-8")
    for included in re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE):
        text += (path.parent / included).read_text(encoding="utf-8")
    parsed = MARKDOWN.parse(text)
    made = []
    for opening, heading in pairwise(parsed):
        if opening.type == "heading_open":
            plain = "".join(token.content for token in heading.children)
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            same = sum(
                re.fullmatch(re.escape(slug) + r"(-\d+)?", other) is not None for other in made
            )
            made.append(f"{slug}-{same}" if same else slug)
    return set(made)


def broken(path, text):
    """Links of a page that lead nowhere in this checkout."""
    wrong = []
    for target in targets(text):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    assert broken(path, path.read_text(encoding="utf-8")) == []


def test_the_manuals_first_page_leads_to_all_others():
    index = ROOT / "docs/index.md"
    linked = {*targets(index.read_text(encoding="utf-8")), index.name}
    assert {path.name for path in PAGES if path.parent == index.parent} <= linked


def test_a_broken_link_is_seen():
    wrong = ["docs/nowhere.md", "docs/results.md#nowhere", "#nowhere", "no.png"]
    shown = "".join(f"[a]({target}) " for target in wrong[:3]) + f"![b]({wrong[3]})"
    sound = "\n`[c](d)`\n\n[e](#results)\n[f](docs/data.md#data)\n"
    assert broken(ROOT / "README.md", shown + sound) == wrong
