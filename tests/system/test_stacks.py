"""The shipped quickstart on its three stacks, with the real NGINX, generator and bypass."""

import json

from test_measure import finished_trials, only_run, runs_here

STACKS = {"kernel": None, "balanced": "nginx-balanced", "performance": "nginx-performance"}


def test_every_stack_of_the_quickstart_serves_as_it_says(wirespeed):
    part = "server=nginx,payload=128,connections=1"
    wirespeed("run", "quickstart", "--only", part, "--repeat", "1", *runs_here(wirespeed))
    trials = [json.loads(path.read_text()) for path in finished_trials(only_run(wirespeed.folder))]
    assert {trial["axes"]["stack"] for trial in trials} == set(STACKS)
    for trial in trials:
        assert trial["valid"], trial["reasons"]
        profile = STACKS[trial["axes"]["stack"]]
        server, load = (process["argv"] for process in trial["processes"])
        assert (f"--profile={profile}" in server) == (profile is not None)
        assert ("--profile=wrk" in load) == (profile is not None)


def test_a_generator_that_is_not_accelerated_makes_the_trial_invalid(wirespeed):
    recipe = wirespeed.folder / "half.toml"
    shipped = (wirespeed.root / "recipes" / "quickstart.toml").read_text()
    recipe.write_text(shipped.replace('client = "wrk"', 'client = "kernel"')
                      .replace("../servers", str(wirespeed.root / "servers")))
    part = "server=nginx,payload=128,connections=1,stack=balanced"
    wirespeed("run", str(recipe), "--only", part, "--repeat", "1", *runs_here(wirespeed), expect=1)
    trial = json.loads(finished_trials(only_run(wirespeed.folder))[-1].read_text())
    assert not trial["valid"]
    assert "the kernel" in trial["reasons"][0]
