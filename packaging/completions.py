"""Shell completions of every command, from the same option tables as the manual pages.

    python packaging/completions.py bash|zsh|fish      # of this checkout; ./wirespeed completion
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import manual
import tree

FILES = {
    "bash": "bash-completion/completions/wirespeed",
    "zsh": "zsh/vendor-completions/_wirespeed",
    "fish": "fish/vendor_completions.d/wirespeed.fish",
}
PARENTS = ("wirespeed", "bypass")
#: Commands of the front door itself, and the programs that it starts.
OF_THE_DOOR = ("load", "bypass", "build", "package", "completion", "lab")
#: Servers that need Java to say their options; a checkout that has not built them completes the rest.
JAVA = ("wirespeed-http-server", "wirespeed-origin", "wirespeed-gateway")
WITH_RECIPE = ("run", "plan", "knee")


def write(pages, share):
    """One file a shell: subcommands after a command, recipes after `run`, options after a dash."""
    for shell, path in FILES.items():
        target = share / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(script(shell, pages))
    for name in ("bypass", "wirespeed-load", "onload", "onload_stackdump", "onload_tcpdump"):
        (share / FILES["bash"]).with_name(name).symlink_to("wirespeed")


def script(shell, pages):
    options = {page.name: " ".join(page.flags()) for page in pages}
    # What a reader types for the generator is `wirespeed load` in a checkout.
    options.setdefault("wirespeed-load", "")
    recipes = sorted(path.stem for path in (tree.ROOT / "recipes").glob("*.toml"))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](
        options, words_after(options), " ".join(recipes))


def words_after(options):
    """Command → what may stand after it: `wirespeed` → run …, `wirespeed-tune` → apply …."""
    found = {}
    for name in options:
        parent, _, word = name.rpartition("-")
        if name.startswith(("wirespeed-http-server", "wirespeed-load")):
            parent, word = "wirespeed", name.partition("-")[2]
        if parent in options:
            found.setdefault(parent, set()).add(word)
    found["wirespeed"] |= set(OF_THE_DOOR)
    found["wirespeed-completion"] = set(FILES)
    found["wirespeed-build"] = set(parts())
    return {name: " ".join(sorted(words)) for name, words in found.items()}


def parts():
    """What `wirespeed build` can name, as the front door lists it."""
    done = subprocess.run([tree.ROOT / "wirespeed", "build", "--list"], capture_output=True, text=True,
                          check=True)
    return [line.split()[0] for line in done.stdout.splitlines()]


def _bash(options, words, recipes):
    flags = "\n".join(f'        "{name}") words="{known}" ;;' for name, known in options.items())
    after = "\n".join(f'        "{name}") words="{known}" ;;' for name, known in words.items())
    with_recipe = "|".join(f"wirespeed-{name}" for name in WITH_RECIPE)
    return f"""\
# Completion of wirespeed, bypass and wirespeed-load.
_wirespeed() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[0]##*/}}" words="" place=1
    while [ "$place" -lt "$COMP_CWORD" ]; do
        case "$command-${{COMP_WORDS[place]}}" in
            wirespeed-bypass) command=bypass ;;
            {"|".join(name for name in options if "-" in name)}) command="$command-${{COMP_WORDS[place]}}" ;;
        esac
        place=$((place + 1))
    done
    if [[ "$word" == -* ]]; then
        case "$command" in
{flags}
        esac
    else
        case "$command" in
{after}
        {with_recipe}) words="{recipes}" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _wirespeed wirespeed ./wirespeed bypass wirespeed-load onload onload_stackdump onload_tcpdump
"""


def _zsh(options, words, recipes):
    flags = "\n".join(f"            {name}) compadd -- {known} ;;" for name, known in options.items())
    after = "\n".join(f"        {name}) compadd -- {known}; return ;;" for name, known in words.items())
    with_recipe = "|".join(f"wirespeed-{name}" for name in WITH_RECIPE)
    known = " ".join(name for name in options if "-" in name)
    return f"""\
#compdef wirespeed bypass wirespeed-load onload onload_stackdump onload_tcpdump
_wirespeed() {{
    local command="${{words[1]:t}}" word
    local -a known=({known})
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        [[ "$command-$word" == wirespeed-bypass ]] && command=bypass && continue
        (( ${{known[(Ie)$command-$word]}} )) && command="$command-$word"
    done
    if [[ "$PREFIX" == -* ]]; then
        case "$command" in
{flags}
        esac
        return
    fi
    case "$command" in
{after}
        {with_recipe}) compadd -- {recipes} ;;
    esac
    _files
}}
compdef _wirespeed wirespeed ./wirespeed bypass wirespeed-load onload onload_stackdump onload_tcpdump 2>/dev/null
[[ "$funcstack[1]" == _wirespeed ]] && _wirespeed "$@"
"""


def _fish(options, words, recipes):
    lines = ["# Completion of wirespeed, bypass and wirespeed-load."]
    for name, known in words.items():
        when = _within(name) or "__fish_use_subcommand"
        lines.append(f'complete -c {name.partition("-")[0]} -n "{when}" -f -a "{known}"')
    lines += [f'complete -c wirespeed -n "__fish_seen_subcommand_from {name}" -a "{recipes}"'
              for name in WITH_RECIPE]
    for name, known in options.items():
        is_own = name == "wirespeed-load"
        command = name if is_own else name.partition("-")[0]
        when = "" if is_own or not _within(name) else f' -n "{_within(name)}"'
        lines += [f"complete -c {command}{when} {_fish_option(flag)}" for flag in known.split()]
    return "\n".join(lines) + "\n"


def _within(name):
    """fish's condition that the words of a page's name were typed; empty for the command itself."""
    _, _, rest = name.partition("-")
    return " && ".join(f"__fish_seen_subcommand_from {word}"
                       for word in ([rest] if rest == "http-server" else rest.split("-")) if rest)


def _fish_option(flag):
    if flag.startswith("--"):
        return f"-l {flag[2:]}"
    return f"-{'s' if len(flag) == 2 else 'o'} {flag[1:]}"


def main(shell):
    """Prints the script of this checkout, whose programs are built."""
    with tempfile.TemporaryDirectory() as folder:
        for command, target in tree.COMMANDS.items():
            (Path(folder) / command).symlink_to(tree.ROOT / target)
        pages = list(manual.pages(Path(folder), leave_out=JAVA))
    pages += [manual.Page(name, "", [], [], manual.OF_THE_DOOR.get(name, [])) for name in JAVA]
    import package  # which imports this module

    pages.append(manual.from_help("wirespeed-package", "", package.parser().format_help()))
    print(script(shell, pages), end="")


if __name__ == "__main__":
    main(sys.argv[1])
