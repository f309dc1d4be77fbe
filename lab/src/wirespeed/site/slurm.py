"""Hosts from a Slurm allocation: the same agent, started on each node by srun.

The allocation is held by a program that waits for the end of its input, so that it is given back
however the lab ends.
"""

from __future__ import annotations

import select
import subprocess
import sys

from wirespeed.errors import HostError, InputError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.interrupts import held_back
from wirespeed.recipe.model import Site
from wirespeed.site import ssh
from wirespeed.site.base import Ask, Opened
from wirespeed.topology import Topology

ANSWER_S = 30
RELEASE_S = 10
QUEUED_S = 2  # without an allocation: it waits in the queue


class Slurm:
    """The first node is the server's, the others the generators'."""

    def open(self, ask: Ask) -> Opened:
        allocation = Allocation(ask.site)
        try:
            nodes = allocation.nodes
            hosts = roles_of(nodes, ask.has_origin)
            fleet = Fleet([far_of(ask.site, allocation.job, node) for node in nodes], ask.mark)
        except BaseException:
            allocation.release()
            raise
        fleet.undo.append(allocation.release)
        try:
            opened = ssh.topology(ask.site, hosts, fleet)
            server = nodes[0]
            if not ask.site.server.addr:
                addr = address_of(server)
                opened.addresses["server"] = dict.fromkeys(opened.links, addr)
            return Opened(fleet, opened)
        except BaseException:
            fleet.close()
            raise

    def foreseen(self, ask: Ask) -> Topology | None:
        return None


def roles_of(nodes: list[str], has_origin: bool) -> dict[str, list[str]]:
    if len(nodes) < 2:
        raise InputError(
            "a slurm site needs two nodes, one for the server and one for the generator"
        )
    load = nodes[1:]
    return {"server": nodes[:1], "load": load, "origin": load[:1] if has_origin else []}


def far_of(site: Site, job: int, node: str) -> Transport:
    prefix = (
        "srun", "--overlap", "--cpu-bind=none", "--mpi=none", "--unbuffered", f"--jobid={job}",
        "-N1", "-n1", "-w", node,
    )  # fmt: skip
    return Transport(node, prefix, site.python, lease_s=site.lease, shares_files=False)


class Allocation:
    """A job of its own, or the one that the site names."""

    def __init__(self, site: Site) -> None:
        self._holder: subprocess.Popen[str] | None = None
        self.job = site.slurm.job or 0
        try:
            self.job = self.job or self._allocate(site)
            self.nodes = nodes_of(self.job)
        except BaseException:
            self.release()
            raise

    def _allocate(self, site: Site) -> int:
        command = ["salloc", "-Q", f"-N{site.slurm.nodes}", "--exclusive", *site.slurm.options]
        if site.slurm.partition:
            command.append(f"--partition={site.slurm.partition}")
        holder = ["sh", "-c", "echo $SLURM_JOB_ID; exec cat"]
        try:
            with held_back():  # else a request that has just been made is not known yet
                self._holder = subprocess.Popen(
                    command + holder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise HostError(
                "a slurm site needs Slurm's commands: salloc is not installed"
            ) from None
        assert self._holder.stdout
        if not select.select([self._holder.stdout], [], [], QUEUED_S)[0]:
            print(f"wirespeed: waiting for {site.slurm.nodes} nodes of Slurm", file=sys.stderr)
        line = self._holder.stdout.readline().strip()
        if not line.isdigit():
            raise HostError("salloc gave no allocation")
        return int(line)

    def release(self) -> None:
        holder, self._holder = self._holder, None
        if holder is None or holder.stdin is None:
            return
        if not self.job:  # it waits in the queue and reads nothing; by TERM it leaves the queue
            holder.terminate()
        holder.stdin.close()
        try:
            holder.wait(timeout=RELEASE_S)
        except subprocess.TimeoutExpired:
            holder.terminate()
            holder.wait()
        if holder.stdout:
            holder.stdout.close()


def nodes_of(job: int) -> list[str]:
    listed = said(["squeue", "-h", "-j", str(job), "-o", "%N"]).strip()
    return said(["scontrol", "show", "hostnames", listed]).split()


def address_of(node: str) -> str:
    words = said(["scontrol", "-o", "show", "node", node]).split()
    addresses = [word[len("NodeAddr=") :] for word in words if word.startswith("NodeAddr=")]
    return addresses[0] if addresses else node


def said(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
