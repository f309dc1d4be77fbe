"""Writes a run's comment.md to a pull request, over the one that this action wrote there for the same server.

    comment.py COMMENT.md RUN

GH_TOKEN, GITHUB_REPOSITORY and PULL say where. All workflows of a repository write as one user, so the user's last
comment may be another workflow's: a comment is known by its first line, and by the command that it is about.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def api(*words, body=None):
    """What GitHub answers to a request."""
    text = None if body is None else json.dumps({"body": body})
    return subprocess.run(["gh", "api", *words, *["--input", "-"] * (body is not None)], input=text,
                          stdout=subprocess.PIPE, text=True, check=True).stdout


def items(text):
    """Those of all pages, which follow each other as one list each."""
    found, decoder, text = [], json.JSONDecoder(), text.strip()
    while text:
        page, end = decoder.raw_decode(text)
        found += page
        text = text[end:].strip()
    return found


def write(body, run):
    where = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    comments = f"{where}/{os.environ['PULL']}/comments"
    marker, about = body.partition("\n")[0], f"<!-- about: {run.replace('--', '- -')} -->"
    ours = [one["id"] for one in items(api(comments, "--paginate"))
            if one["body"].startswith(marker) and about in one["body"]]
    way = ["--method", "PATCH", f"{where}/comments/{ours[-1]}"] if ours else ["--method", "POST", comments]
    api(*way, body=f"{body}{about}\n")


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2])
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"the comment was not written: {error}") from None
