#!/usr/bin/env python3
"""Draws the cases that stall.py saved: the truth as a wide band, each generator as a line.

    load/bench/stall_chart.py load/bench/stall.json docs/images/stall.svg
    load/bench/stall_chart.py load/bench/stall.json --table
"""

import argparse
import json
from pathlib import Path

COLUMNS = ["50", "90", "99", "99.9", "max"]
COLOURS = {"wirespeed-load": "#0b6e4f", "wrk2": "#c8553d", "wrk": "#8d6a9f", "h2load": "#d9a404",
           "oha": "#3a7ca5"}
PANEL_WIDTH, PANEL_HEIGHT = 430, 260
LEFT, TOP, RIGHT, BOTTOM = 54, 34, 12, 34
LEGEND_HEIGHT = 46


def milliseconds(value):
    """A latency as text."""
    return "-" if value is None else f"{value * 1e3:.2f}"


def table(cases):
    """The cases as a Markdown table: milliseconds and the error against the truth."""
    lines = []
    for case in cases:
        truth = case["truth"]
        lines += [f"**{title(case)}**, {case['rate_rps']} requests/s", "",
                  "| generator | " + " | ".join(f"p{c}" if c != "max" else c for c in COLUMNS)
                  + " |", "|---" * (len(COLUMNS) + 1) + "|",
                  "| the truth | " + " | ".join(milliseconds(truth[c]) for c in COLUMNS) + " |"]
        for name, found in case["generators"].items():
            cells = [milliseconds(found[c]) + (
                "" if found[c] is None else f" ({(found[c] / truth[c] - 1) * 100:+.1f} %)")
                for c in COLUMNS]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def title(case):
    """The title of a case: the server's stalls and load."""
    return (f"{case['stall_s'] * 1e3:g} ms every {case['period_s']:g} s, "
            f"ρ = {case['rho']:g}")


def panel(case, left, top):
    """One case: axes, the truth, the generators."""
    width, height = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM
    highest = case["truth"]["max"] * 1.25

    def place(number, value):
        share = min(value / highest, 1.0)
        return (left + LEFT + width * number / (len(COLUMNS) - 1),
                top + TOP + height * (1 - share))

    def line(values, style):
        points = [place(number, values[c]) for number, c in enumerate(COLUMNS)
                  if values[c] is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" {style}/>'
    parts = [f'<text x="{left + LEFT}" y="{top + 20}" class="head">{title(case)}</text>']
    for quarter in range(5):
        value = highest * quarter / 4
        _, y = place(0, value)
        parts.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + width}" y1="{y:.1f}" '
                     f'y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                     f'{value * 1e3:.0f}</text>')
    for number, column in enumerate(COLUMNS):
        x, _ = place(number, 0)
        name = column if column == "max" else f"p{column}"
        parts.append(f'<text x="{x:.1f}" y="{top + PANEL_HEIGHT - 14}" text-anchor="middle">'
                     f'{name}</text>')
    parts.append(line(case["truth"], 'stroke="#bbb" stroke-width="10" stroke-linecap="round"'))
    # Ours comes last: whoever is as near the truth would hide it.
    for name, found in sorted(case["generators"].items(), key=lambda item: "wirespeed" in item[0]):
        colour = COLOURS[name.replace(",", " ").split()[0]]
        parts.append(line(found, f'stroke="{colour}" stroke-width="2"'))
        for number, column in enumerate(COLUMNS):
            if found[column] is not None:
                x, y = place(number, found[column])
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    return "\n".join(parts)


def chart(cases):
    """All cases, two per row, and a legend."""
    rows = (len(cases) + 1) // 2
    width, height = 2 * PANEL_WIDTH, rows * PANEL_HEIGHT + LEGEND_HEIGHT
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12" fill="#333">')
    parts = [head, "<style>.head{font-size:14px;font-weight:bold}</style>",
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, case in enumerate(cases):
        parts.append(panel(case, number % 2 * PANEL_WIDTH, number // 2 * PANEL_HEIGHT))
    names = {"the truth": "#bbb"}
    for case in cases:
        for name in case["generators"]:
            short = name.replace(",", " ").split()[0]
            names.setdefault(short, COLOURS[short])
    x, y = LEFT, rows * PANEL_HEIGHT + 18
    parts.append(f'<text x="{x}" y="{y + 20}">latency in milliseconds; points above the upper '
                 "edge are cut there</text>")
    for name, colour in names.items():
        parts.append(f'<rect x="{x}" y="{y - 9}" width="18" height="6" fill="{colour}"/>')
        parts.append(f'<text x="{x + 24}" y="{y}">{name}</text>')
        x += 44 + 8 * len(name)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    """Reads the cases; draws them or prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases")
    parser.add_argument("image", nargs="?")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    cases = json.loads(Path(arguments.cases).read_text())
    cases.sort(key=lambda case: (case["stall_s"], case["rho"]))
    if arguments.image:
        Path(arguments.image).write_text(chart(cases))
    if arguments.table:
        print(table(cases))


if __name__ == "__main__":
    main()
