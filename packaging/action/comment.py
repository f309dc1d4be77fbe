"""Writes a run's comment.md to a pull request, over the one that this action wrote there for the same server.

    comment.py COMMENT.md RUN PATH CONNECTIONS BUILD

GH_TOKEN, GITHUB_REPOSITORY and PULL say where. All workflows of a repository write as one user, so the user's last
comment may be another workflow's: a comment is known by its author, by its first line, and by what was measured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

COMMENTS = """
query($owner: String!, $name: String!, $pull: Int!, $endCursor: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $pull) {
    comments(first: 100, after: $endCursor) {
      nodes { url body viewerDidAuthor }
      pageInfo { hasNextPage endCursor }
    }
  } }
}"""


def api(*words, body=None):
    """What GitHub answers to a request."""
    text = None if body is None else json.dumps({"body": body})
    return subprocess.run(["gh", "api", *words, *["--input", "-"] * (body is not None)], input=text,
                          stdout=subprocess.PIPE, text=True, check=True).stdout


def own_comments():
    """(number, text) of the comments that this token's user wrote: anybody else may copy their lines."""
    owner, _, name = os.environ["GITHUB_REPOSITORY"].partition("/")
    text = api("graphql", "--paginate", "-f", f"query={COMMENTS}", "-f", f"owner={owner}", "-f", f"name={name}",
               "-F", f"pull={os.environ['PULL']}").strip()
    found, decoder = [], json.JSONDecoder()
    while text:  # pages follow each other
        page, end = decoder.raw_decode(text)
        found += page["data"]["repository"]["pullRequest"]["comments"]["nodes"]
        text = text[end:].strip()
    return [(one["url"].rpartition("-")[2], one["body"]) for one in found if one["viewerDidAuthor"]]


def write(body, measured):
    where = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    marker, key = body.partition("\n")[0], " | ".join(" ".join(one.split()) for one in measured)
    about = f"<!-- about: {key.replace('--', '- -')} -->"
    ours = [number for number, text in own_comments() if text.startswith(marker) and about in text]
    way = (["--method", "PATCH", f"{where}/comments/{ours[-1]}"] if ours
           else ["--method", "POST", f"{where}/{os.environ['PULL']}/comments"])
    api(*way, body=f"{body}{about}\n")


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:])
    except (OSError, ValueError, LookupError, TypeError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"the comment was not written: {error}") from None
