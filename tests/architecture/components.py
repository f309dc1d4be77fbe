"""Reads the table of components in ARCHITECTURE.md and finds the edges that the code really uses."""

import ast
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = "{http://maven.apache.org/POM/4.0.0}"


def table():
    """Component → the components it may use, from the table in ARCHITECTURE.md."""
    rows = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and re.fullmatch(r"`[\w-]+/[\w-]+`", cells[0]):
            rows[cells[0].strip("`")] = set(re.findall(r"`([\w/-]+)`", cells[2]))
    return rows


def rust_edges():
    """Crate folder → the crate folders it depends on; dev-dependencies are not counted."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = json.loads(output)["packages"]
    components = {p["name"]: str(Path(p["manifest_path"]).parent.relative_to(ROOT)) for p in packages}
    return {components[p["name"]]: {components[d["name"]] for d in p["dependencies"]
                               if d["name"] in components and d["kind"] != "dev"} for p in packages}


def java_edges():
    """Module folder → the modules of ours it depends on, from the poms."""
    reactor = ElementTree.parse(ROOT / "servers" / "pom.xml").getroot()
    modules = {module.text for module in reactor.iter(f"{POM}module")}
    edges = {}
    for module in modules:
        pom = ElementTree.parse(ROOT / "servers" / module / "pom.xml").getroot()
        names = {artifact.text for dependency in pom.iter(f"{POM}dependency")
                 for artifact in dependency.iter(f"{POM}artifactId")}
        edges[f"servers/{module}"] = {f"servers/{name}" for name in names & modules}
    return edges


def python_edges():
    """Package of the lab → the packages of the lab that it imports."""
    source = ROOT / "lab" / "src" / "wirespeed"
    edges = {}
    for path in source.rglob("*.py"):
        component = path.relative_to(source).parts[0].removesuffix(".py")
        if component.startswith("__"):
            continue
        used = edges.setdefault(f"lab/{component}", set())
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "wirespeed" and len(parts) > 1 and parts[1] != component:
                used.add(f"lab/{parts[1]}")
    return edges


def imports(path):
    """Every module name that a file imports, with `from wirespeed import x` as `wirespeed.x`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "wirespeed":
                yield from (f"wirespeed.{alias.name}" for alias in node.names)
            else:
                yield node.module
