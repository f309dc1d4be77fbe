"""Manual pages, from what each command says of itself; completions.py makes completions of them.

The lab's commands are read from their parser, the other programs from their --help, which comes
from their option tables: nothing is described twice. Run as a program it prints docs/commands.md.
"""

import gzip
import re
import subprocess
from dataclasses import dataclass, field

from typer.main import get_command
from wirespeed.cli.app import app

_OPTION = re.compile(r"\s{2,8}(-{1,2}[A-Za-z0-9].*?)(?:\s{2,}(\S.*))?$")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
#: Page → what it is in a line, and the words that print its help.
PROGRAMS = {
    "wirespeed": ("measure network servers and show what makes them faster", ["wirespeed", "help"]),
    "wirespeed-load": ("HTTP load generator", ["wirespeed-load"]),
    "wirespeed-http-server": ("HTTP server under test", ["wirespeed", "http-server"]),
    "wirespeed-origin": ("slow HTTP origin", ["wirespeed", "origin"]),
    "wirespeed-gateway": ("HTTP gateway", ["wirespeed", "gateway"]),
    "wirespeed-build": ("build or install what a measurement needs", ["wirespeed", "build"]),
    "wirespeed-completion": ("print a completion script", ["wirespeed", "completion"]),
    "bypass": ("user-level sockets for unmodified programs", ["bypass"]),
    "bypass-run": ("start a program on user-level sockets", ["bypass", "run"]),
    "bypass-stat": ("show what accelerated processes are doing", ["bypass", "stat"]),
    "bypass-top": ("show live what accelerated processes are doing", ["bypass", "top"]),
    "bypass-doctor": ("find what keeps a running process from being accelerated", ["bypass", "doctor"]),
    "bypass-unit": ("print a drop-in that starts a systemd service on user-level sockets", ["bypass", "unit"]),
    "bypass-off": ("leave new connections of running processes to the kernel", ["bypass", "off"]),
    "bypass-on": ("accelerate new connections of running processes again", ["bypass", "on"]),
    "bypass-capture": ("write the frames of accelerated processes as a capture file", ["bypass", "capture"]),
    "bypass-options": ("list the EF_ options", ["bypass", "options"]),
    "onload": ("start a program on user-level sockets", ["onload"]),
    "onload_stackdump": ("show what accelerated processes are doing", ["onload_stackdump"]),
    "onload_tcpdump": ("write the frames of accelerated processes as a capture file", ["onload_tcpdump"]),
}
#: Options that the front door handles before it starts the program.
OF_THE_DOOR = {"wirespeed-gateway": [("--carrier NAME", "netty, also without it, or tomcat")]}


@dataclass
class Page:
    """One command: its name, one line about it, usage, text, and options with their text."""

    name: str
    title: str
    usage: list[str]
    text: list[str]
    options: list[tuple[str, str]] = field(default_factory=list)

    def flags(self):
        return sorted({flag for form, _ in self.options for flag in _FLAG.findall(form)})


def pages(bin_folder, leave_out=()):
    """Every page; the programs are asked through the links of `bin_folder`."""
    for name, (title, (program, *words)) in PROGRAMS.items():
        if name not in leave_out:
            shown = subprocess.run([bin_folder / program, *words, "--help"], capture_output=True,
                                   text=True, check=True)
            page = from_help(name, title, shown.stdout)
            page.options += OF_THE_DOOR.get(name, [])
            yield page
    yield from lab_pages()


def lab_pages(group=None, name="wirespeed"):
    """A page for each command of the lab, `wirespeed-tune-apply` as well as `wirespeed-tune`."""
    for word, command in _commands(group or get_command(app)).items():
        yield _from_parser(f"{name}-{word}", command)
        if _commands(command):
            yield from lab_pages(command, f"{name}-{word}")


def _commands(command):
    """The commands of a group by name; of any other command, none."""
    return getattr(command, "commands", {})


def from_help(name, title, text):
    """A page from the text that a program prints about itself."""
    usage, rest = [], text.splitlines()
    while rest and (re.match(r"usage:", rest[0], re.I) or (usage and rest[0].startswith("  "))):
        usage.append(re.sub(r"^usage:\s*", "", rest.pop(0), flags=re.I).strip())
    page = Page(name, title, usage, [])
    for line in rest:
        match = _OPTION.match(line)
        if match:
            page.options.append((match[1].strip(), match[2] or ""))
        elif page.options and line.startswith(" " * 10):
            form, said = page.options[-1]
            page.options[-1] = (form, f"{said} {line.strip()}".strip())
        else:
            page.text.append(line)
    return page


def _from_parser(name, command):
    first, _, rest = (command.help or "").partition("\n")
    subcommands = getattr(command, "commands", {})
    usage = [name.replace("-", " "), "[OPTIONS]" if not subcommands else "COMMAND"]
    options = []
    text = rest.splitlines() + [f"{word}: {one.help}" for word, one in subcommands.items()]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            usage.append(parameter.metavar or parameter.name.upper())
            continue
        if parameter.hidden:
            continue
        form = ", ".join([*sorted(parameter.opts, key=len), *parameter.secondary_opts])
        if not parameter.is_flag and parameter.metavar:
            form += f" {parameter.metavar}"
        options.append((form, f"{parameter.help or ''}{_default(parameter)}"))
    options.append(("-h, --help", "Show this page."))
    return Page(name, first.rstrip("."), [" ".join(usage)], text, options)


def _default(parameter):
    """` Default: 8000.` of an option that has one, as --help shows it in brackets."""
    if parameter.is_flag:
        return f" Default: {parameter.opts[0]}." if parameter.secondary_opts and parameter.default else ""
    return f" Default: {parameter.default}." if parameter.default else ""


def roff(page, version):
    """The page in man(7)."""
    lines = [f'.TH {page.name.upper()} 1 "" "wirespeed {version}" "User Commands"',
             ".SH NAME", rf"{_escaped(page.name)} \- {_escaped(page.title)}", ".SH SYNOPSIS"]
    for line in page.usage:
        lines += [_escaped(line), ".br"]
    if any(line.strip() for line in page.text):
        lines += [".SH DESCRIPTION", ".nf", *map(_escaped, _trimmed(page.text)), ".fi"]
    if page.options:
        lines.append(".SH OPTIONS")
        for form, said in page.options:
            lines += [".TP", rf"\fB{_escaped(form)}\fR", _escaped(said) or r"\&"]
    lines += [".SH SEE ALSO", r"wirespeed(1), bypass(1), wirespeed\-load(1)"]
    return "\n".join(lines) + "\n"


def _trimmed(lines):
    text = "\n".join(lines).strip("\n")
    return text.splitlines()


def _escaped(text):
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def write_manual(pages, folder, version):
    """Compressed pages, without a time stamp, so that equal pages are equal files."""
    folder.mkdir(parents=True)
    for page in pages:
        packed = gzip.compress(roff(page, version).encode(), 9, mtime=0)
        (folder / f"{page.name}.1.gz").write_bytes(packed)


REFERENCE = """\
# Commands of the lab

Generated from the parser of the commands (`packaging/manual.py`); a test compares it. Each command prints the same with
`--help`. The programs have pages of their own: [`load`](load-options.md), [`bypass`](bypass.md),
[`gateway`](gateway-options.md), [`http-server` and `origin`](http-server.md).
"""


def reference():
    """Every command of the lab as one page of Markdown."""
    return REFERENCE + "".join(map(_section, lab_pages()))


def _section(page):
    lines = ["", f"## {page.name.removeprefix('wirespeed-').replace('-', ' ')}", "", f"{_cell(page.title)}.", ""]
    lines += [f"Usage: ./{_cell(usage)}" for usage in page.usage] + [""]
    lines += [f"- {_cell(line)}" for line in _trimmed(page.text) if line.strip()]
    options = [(form, said) for form, said in page.options if form != "-h, --help"]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{form.replace('|', chr(92) + '|')}` | {_cell(said)} |" for form, said in options]
    return "\n".join(lines).rstrip() + "\n"


def _cell(text):
    return text.replace("|", r"\|").replace("<", r"\<").replace("`wirespeed ", "`./wirespeed ")


if __name__ == "__main__":
    print(reference(), end="")
