"""A table as Markdown, LaTeX and CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cwfed.sweeps.summary import MISSING, Entry, Section, partition_text
from cwfed.sweeps.tables import Column, Table

_METRICS = {"received": "received", "post_local": "post-local"}
_CSV = (
    "table", "column", "row", "metric", "choice", "rounds", "protocol_rounds", "generated_data",
    "n", "mean", "std", "paper", "paper_approx", "tolerance", "difference", "verdict", "sibling",
    "seeds", "config_hashes", "partition_hashes", "versions", "partitions",
)  # fmt: skip
_LATEX = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "α": r"$\alpha$", "λ": r"$\lambda$", "≈": r"$\approx$",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip


_SECONDS = (
    "Seconds a round are those of the clock, on machines that other work may have shared: they do "
    "not rank methods."
)
_PREAMBLE = "% Needs \\usepackage{booktabs,graphicx}\n"


def markdown(
    table: Table,
    sections: Sequence[Section],
    remarks: Iterable[str],
    plots: Mapping[Section, Sequence[str]],
) -> str:
    """Return a page: a table a column and section, and where every number comes from.

    Args:
        table: The table.
        sections: Its sections.
        remarks: Lines printed under the figures.
        plots: Names of files with curves.
    """
    parts = [f"# {table.title}\n"]
    for section in sections:
        parts.append(f"## {'Scaled: ' * section.scaled}{section.label}\n")
        for column in section.columns():
            head, rows = grid(section, column)
            bold = [[f"**{cell}**" if leads else cell for cell, leads in row] for row in rows]
            parts.append(f"### {column.title}, {section.label}\n\n{_pipes(head, bold)}")
        parts += [f"{text}\n" for text in (section.partitions, section.note) if text]
        parts += [f"![{section.label}]({name})\n" for name in plots.get(section, ())]
        if section.runs():
            parts.append(f"### Runs, {section.label}\n\n{_pipes(*provenance(section))}")
    notes = [*_sources(table), *table.tolerance_notes(), *table.notes, *remarks]
    if any(section.runs() for section in sections):
        notes.append(_SECONDS)
    parts.append("".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def latex(sections: Sequence[Section]) -> str:
    """Return tables for LaTeX, one a section; the first line says which packages they need."""
    return _PREAMBLE + "\n".join(_latex_section(section) for section in sections)


def to_csv(sections: Sequence[Section]) -> str:
    """Return one row an entry, with full hashes and versions."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=_CSV, lineterminator="\n")
    writer.writeheader()
    for section in sections:
        writer.writerows(_csv_row(section, entry) for entry in section.entries)
    return text.getvalue()


def grid(section: Section, column: Column) -> tuple[list[str], list[list[tuple[str, bool]]]]:
    """Return the heading and the cells of one column of a table, with what is to be bold."""
    table = section.table
    entries = [entry for entry in section.entries if entry.column == column]
    cells: list[tuple[str, Callable[[Entry], str]]] = [
        ("method", lambda e: e.row.title),
        ("scored", lambda e: _METRICS[e.metric]),
        (f"ours ({table.choice}), {section.label}", ours),
        ("seeds", lambda e: str(len(e.values))),
    ]
    if table.paper:
        cells.append((f"paper, {table.protocol_rounds:,} rounds", paper))
    if table.paper and not section.scaled:
        cells.append(("difference", lambda e: _signed(e.difference)))
    cells.append(("verdict", lambda e: e.verdict))
    if any(entry.sibling is not None for entry in entries):
        cells.append((_sibling_heading(table), lambda e: _number(e.sibling)))
    rows = [
        [(show(entry), entry.leads and number == 2) for number, (_, show) in enumerate(cells)]
        for entry in entries
    ]
    return [name for name, _ in cells], rows


def _sibling_heading(table: Table) -> str:
    # Only the rounds: the source is long, and stands below the figures.
    rounds = re.search(r"[\d,]+ rounds$", table.sibling_title)
    return f"sibling protocol, {rounds[0]}" if rounds else "sibling protocol"


def _sources(table: Table) -> list[str]:
    sources = {"Published figures": table.source, "Sibling protocol": table.sibling_title}
    return [f"{what}: {source.rstrip('.')}." for what, source in sources.items() if source]


def ours(entry: Entry) -> str:
    """Return our figure: ``91.10 ± 0.20``."""
    if entry.std is None:
        return _number(entry.mean, "–")
    return f"{_number(entry.mean)} ± {entry.std:.2f}"


def paper(entry: Entry) -> str:
    """Return the published figure: ``91.23``, ``≈ 45``, ``n/a``."""
    value = entry.published.value
    if value is None:
        return "n/a"
    return f"≈ {value:g}" if entry.published.approx else f"{value:.2f}"


def provenance(section: Section) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of the runs behind a section."""
    head = ["method", "column", "seed", "config", "partition", "cwfed", "torch",
            "MB up a client and round", "MB down", "seconds a round"]  # fmt: skip
    rows, seen = [], set()
    for entry in section.entries:
        for line in entry.lines:
            if line["key"] in seen:
                continue
            seen.add(line["key"])
            rows.append([entry.row.title, entry.column.title, str(line["seed"]), *_origin(line)])
    return head, rows


def _origin(line: Mapping[str, Any]) -> list[str]:
    metrics, versions = line["metrics"], line["versions"]
    traffic = metrics.get("bytes") or {}
    seconds = (metrics.get("seconds") or 0.0) / max(line["rounds"], 1)
    return [
        f"`{line['config_hash'][:12]}`",
        f"`{line['partition_hash'][:12]}`",
        str(versions.get("cwfed", "unknown")),
        str(versions.get("torch", "unknown")),
        *(f"{(traffic.get(way) or 0.0) / 1e6:.2f}" for way in ("up", "down")),
        f"{seconds:.1f}",
    ]


def _pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in r)} |\n" for r in lines)


def _latex_section(section: Section) -> str:
    blocks, width = [], 0
    for column in section.columns():
        head, rows = grid(section, column)
        width = max(width, len(head))
        body = [
            " & ".join(rf"\textbf{{{_escape(c)}}}" if leads else _escape(c) for c, leads in row)
            for row in rows
        ]
        title = rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{_escape(column.title)}}}}}"
        lines = [title, " & ".join(map(_escape, head)), *body]
        blocks.append("".join(f"{line} \\\\\n" for line in lines))
    said = [f"{section.table.title}, {section.label}.", section.partitions, section.note]
    caption = _escape(" ".join(text for text in said if text).rstrip(" ."))
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n"
        # Up to eight columns are wider than most pages; narrower tables keep their size.
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{ll{'r' * (width - 2)}}}\n\\toprule\n"
        + "\\midrule\n".join(blocks)
        + "\\bottomrule\n\\end{tabular}}\n\\end{table}\n"
    )


def _csv_row(section: Section, entry: Entry) -> dict[str, Any]:
    return {
        "table": section.table.name,
        "column": entry.column.name,
        "row": entry.row.name,
        "metric": entry.metric,
        "choice": section.table.choice,
        "rounds": section.rounds if entry.verdict != MISSING else "",
        "protocol_rounds": section.table.protocol_rounds,
        "generated_data": section.generated,
        "n": len(entry.values),
        "mean": _plain(entry.mean),
        "std": _plain(entry.std),
        "paper": _plain(entry.published.value),
        "paper_approx": entry.published.approx,
        "tolerance": entry.published.tolerance.points,
        # What is scaled is not set against what it cannot be compared with.
        "difference": "" if section.scaled else _plain(entry.difference),
        "verdict": entry.verdict,
        "sibling": _plain(entry.sibling),
        **_csv_origin(entry.lines),
    }


def _csv_origin(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    versions = {" ".join(f"{n}={v}" for n, v in line["versions"].items()) for line in lines}
    return {
        "seeds": " ".join(str(line["seed"]) for line in lines),
        "config_hashes": " ".join(line["config_hash"] for line in lines),
        "partition_hashes": " ".join(line["partition_hash"] for line in lines),
        "versions": "; ".join(sorted(versions)),
        "partitions": "; ".join(sorted({partition_text(line) for line in lines})),
    }


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _number(value: float | None, missing: str = "n/a") -> str:
    return missing if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.2f}".replace("-", "−")


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
