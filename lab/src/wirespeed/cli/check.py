"""`wirespeed check FILE`: contradictions in a table of results."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from wirespeed.check import laws, table
from wirespeed.cli import output
from wirespeed.errors import InputError

SHOWN_MAX = 20  # findings of one law and file


def check(files: list[Path], as_json: bool) -> int:
    """Prints what the laws say of each file; 1 when figures contradict each other, else 0."""
    findings = {str(path): _checked(path) for path in files}
    if as_json:
        plain = {name: output.records(rows) for name, rows in findings.items()}
        output.write(plain)
    else:
        for name, rows in findings.items():
            _show(name, rows)
    return int(any(finding.broken for rows in findings.values() for finding in rows))


def _checked(path: Path) -> list[laws.Finding]:
    cases = table.read(path)
    if not laws.can_apply(cases):
        raise InputError(
            f"{path}: no law applies to its {len(cases)} cases (Little's law, for example, needs "
            "connections, a rate and latency_mean)"
        )
    return laws.check(cases)


def _show(name: str, findings: list[laws.Finding]) -> None:
    console = Console(highlight=False, emoji=False)
    if not findings:
        console.print(f"{escape(name)}: nothing found", soft_wrap=True)
        return
    console.print(f"[bold]{escape(name)}[/bold]: {len(findings)} findings", soft_wrap=True)
    for law, group in groupby(findings, key=lambda finding: finding.law):
        rows = list(group)
        console.print(f"\n[bold]{law}[/bold]")
        for finding in rows[:SHOWN_MAX]:
            console.print(f"  {escape(finding.where)}\n    {escape(finding.says)}", soft_wrap=True)
        if len(rows) > SHOWN_MAX:
            console.print(f"  and {len(rows) - SHOWN_MAX} more (--json prints all)")
