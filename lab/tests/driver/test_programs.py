"""What is really started: NGINX's configuration, a JVM's log, and the stack around a program."""

import shutil
import types
from pathlib import Path

import pytest

from wirespeed.driver import command, jvm, nginx, stack
from wirespeed.driver.base import Command
from wirespeed.errors import RecipeError
from wirespeed.recipe import read
from wirespeed.recipe.model import PlacedStack, Stack
from wirespeed.recipe.resolve import Instance, Place, Resolver, jvm_options
from wirespeed.recipe.sweep import SweepPoint
from wirespeed.topology import Seat, one_host

TEMPLATE = Path(__file__).resolve().parents[3] / "servers" / "nginx" / "nginx.conf"


def instance(argv, workers=2, template=None, tool="nginx"):
    variables = {"workers": workers, "address": "127.0.0.1", "port": 8080,
                 "run": {"tmp": "/scratch", "dir": "/trial"}, "limits": {}}  # fmt: skip
    seats = [Seat("here", 1), Seat("here", 3)]
    return Instance("web", 0, "server", tool, argv, seats, 8080, "", {}, {}, None, variables,
                    template or {})  # fmt: skip


def test_nginx_workers_get_one_core_each(tmp_path):
    shutil.copy(TEMPLATE, tmp_path / "nginx.conf.j2")
    web = instance(
        ["nginx", "-c", f"{tmp_path}/web-0-nginx.conf"], template={"nginx.conf": "nginx.conf.j2"}
    )
    nginx.command(web, tmp_path / "recipe.toml", tmp_path)
    text = (tmp_path / "web-0-nginx.conf").read_text()
    assert "worker_processes 2;" in text
    assert "worker_cpu_affinity 10 1000;" in text
    assert "listen 127.0.0.1:8080" in text
    assert "{{" not in text


def recipe_of(tmp_path, argv, template, count=2):
    (tmp_path / "app.conf").write_text(template)
    path = tmp_path / "two.toml"
    path.write_text(
        f"""
wirespeed = 2
name = "two"
[[process]]
name = "app"
role = "server"
count = {count}
port = {{ base = 9000 }}
template = {{ "app.conf" = "app.conf" }}
argv = {argv}
[[process]]
name = "back-end"
role = "origin"
port = {{ base = 7000, step = 10 }}
count = 2
argv = ["back"]
[[process]]
name = "gen"
role = "load"
argv = ["gen"]
"""
    )
    return path


def test_each_instance_has_its_own_file_of_a_template_that_knows_other_processes(tmp_path):
    text = "{{ port }} {{ processes['back-end'].addr }} {{ processes['back-end'].ports }}"
    path = recipe_of(tmp_path, "['app', \"{{ template('app.conf') }}\"]", text)
    seats = {"server": [0, 1], "load": [1], "origin": [1]}
    place = Place(tmp_path, path, one_host(seats), run_dir=str(tmp_path))
    resolver = Resolver(read.read(path), SweepPoint("all", {}), place)
    servers = [one for one in resolver.instances({}) if one.role == "server"]
    for one in servers:
        nginx.command(one, path, tmp_path)
    said = [Path(one.argv[1]).read_text() for one in servers]
    assert said == ["9000 127.0.0.1 [7000, 7010]", "9001 127.0.0.1 [7000, 7010]"]


def test_a_template_with_an_unknown_name_is_an_error_of_the_recipe(tmp_path):
    (tmp_path / "t").write_text("{{ nothing }}")
    web = instance(["nginx", "-c", f"{tmp_path}/web-0-nginx.conf"], template={"nginx.conf": "t"})
    with pytest.raises(RecipeError, match=r"process\.web\.template\.nginx\.conf.*nothing"):
        nginx.command(web, tmp_path / "recipe.toml", tmp_path)


def test_a_template_that_is_not_there_is_named(tmp_path):
    web = instance(
        ["nginx", "-c", f"{tmp_path}/web-0-nginx.conf"], template={"nginx.conf": "gone.j2"}
    )
    with pytest.raises(RecipeError, match="No such file"):
        nginx.command(web, tmp_path / "recipe.toml", tmp_path)


def test_a_jvm_logs_its_collections_in_the_folder_of_the_trial(tmp_path):
    server = instance(["java", "-jar", "x.jar"], tool="jvm")
    assert (
        jvm.command(server, tmp_path).argv[1].startswith(f"-Xlog:gc:file={tmp_path}/gc-web-0.log:")
    )
    assert jvm.gc_log(server, tmp_path) == tmp_path / "gc-web-0.log"


def test_a_recipe_that_logs_collections_itself_is_left_alone(tmp_path):
    server = instance(["java", "-Xlog:gc*:file=/own/gc.log", "-jar", "x.jar"], tool="jvm")
    assert jvm.command(server, tmp_path).argv == server.argv
    assert jvm.gc_log(server, tmp_path) == Path("/own/gc.log")


def test_jvm_options_depend_on_the_version(tmp_path):
    (tmp_path / "jvm.options").write_text("# why\n-Xms64m  # heap\n24+: --new\n\n-Xmx64m\n")
    assert jvm_options(tmp_path, 17) == ["-Xms64m", "-Xmx64m"]
    assert jvm_options(tmp_path, 24) == ["-Xms64m", "--new", "-Xmx64m"]


def test_the_front_door_reads_jvm_options_as_the_lab_does():
    """It starts servers without the lab, so both have a reader."""
    root = TEMPLATE.parents[2]
    door = types.ModuleType("front_door")
    door.__file__ = str(root / "wirespeed")
    exec(compile((root / "wirespeed").read_text(), door.__file__, "exec"), door.__dict__)
    files = list(root.glob("servers/*/jvm.options"))
    assert files
    for path in files:
        for major in (17, 21, 24, 25):
            assert door.jvm_options(path.parent.name, major) == jvm_options(path.parent, major)


def checkout(tmp_path, programs=True, profile=True):
    (tmp_path / "target" / "release").mkdir(parents=True)
    (tmp_path / "profiles").mkdir()
    for name in ("bypass", "libbypass_preload.so") if programs else ():
        (tmp_path / "target" / "release" / name).touch()
    if profile:
        (tmp_path / "profiles" / "fast.opf").touch()
    return tmp_path


FAST = Stack(provider="auto", profile="fast", env={"EF_X": "1"})


@pytest.fixture
def no_onload(monkeypatch):
    monkeypatch.setattr(stack.shutil, "which", lambda name: None)


def test_the_kernel_adds_nothing(tmp_path):
    command = Command(["app"])
    assert stack.wrap(tmp_path, Stack(), command) == command
    assert stack.wrap(tmp_path, None, command) == command


def test_bypass_is_put_in_front(tmp_path, no_onload):
    root = checkout(tmp_path)
    wrapped = stack.wrap(root, FAST, Command(["app", "-x"], {"A": "b"}))
    bypass = f"{root}/target/release/bypass"
    assert wrapped.argv == [bypass, "run", "--profile=fast", "--", "app", "-x"]
    assert wrapped.env == {"A": "b", "EF_X": "1"}


def test_onload_is_preferred_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(stack.shutil, "which", lambda name: "/usr/bin/onload")
    wrapped = stack.wrap(checkout(tmp_path), FAST, Command(["app"]))
    assert wrapped.argv == ["onload", "--profile=fast", "app"]


@pytest.mark.parametrize(
    ("programs", "profile", "wanted", "problem"),
    [
        (False, True, FAST, "bypass is not built"),
        (True, False, FAST, "profiles/fast.opf not found"),
        (True, True, Stack(provider="onload"), "onload is not installed"),
        (True, True, FAST, ""),
    ],
)
def test_why_a_stack_cannot_run_here(tmp_path, no_onload, programs, profile, wanted, problem):
    root = checkout(tmp_path, programs, profile)
    assert stack.provider(root, wanted).problem == problem


def test_onload_of_a_sites_hosts_counts_and_not_that_of_this_machine(tmp_path, monkeypatch):
    wanted = PlacedStack(provider="auto", profile="fast", has_onload=True)
    monkeypatch.setattr(stack, "_has_onload", lambda: False)
    assert stack.provider(tmp_path, wanted) == stack.Provider("onload")
    assert stack.wrap(tmp_path, wanted, Command(["app"])).argv[:2] == ["onload", "--profile=fast"]
    monkeypatch.setattr(stack, "_has_onload", lambda: True)
    far = PlacedStack(provider="onload", has_onload=False)
    assert stack.provider(tmp_path, far).problem == "onload is not installed"


@pytest.mark.parametrize(
    "options",
    [
        ["-HAuthorization: Bearer x"], ["--header=Authorization: Bearer x"], ["-sa.lua"],
        ["-XPOST"], ["--data", "users.csv"], ["--urls=paths.txt"], ["--replay", "access.log"],
        ["--expect", "status=404"], ["--proxy-protocol", "v1"], ["--grpc"],
    ],
)  # fmt: skip
def test_other_requests_than_a_bare_get_are_not_checked_with_one(options):
    """A cell whose requests were right was refused for the response to another request."""
    url = "http://10.0.0.1:8080/users/{id}"
    assert command.checked_url(generator(options, url)) == ""


@pytest.mark.parametrize(
    "options", [[], ["-c50"], ["-t", "2"], ["-H", "Connection: close"], ["-HConnection: close"]]
)
def test_a_bare_get_is_asked_for_before_it_is_measured(options):
    assert command.checked_url(generator(options, "http://x:80/file")) == "http://x:80/file"


def generator(options, url):
    argv, seats = [*options, url], [Seat("here", 1)]
    return Instance("gen", 0, "load", "load", argv, seats, None, "", {}, {}, None, {}, {})
