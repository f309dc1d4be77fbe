"""Hosts for tests and benchmarks of sites: namespaces on a switch, each with an sshd, and Slurm.

Everything lives in processes of this one: when they end, namespaces and interfaces are gone.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from ports import free_ports

PATIENCE_S = 180.0  # a loaded two-core machine
CABLE = "192.0.2.{}"
# SHLVL: a bash below another reads no ~/.bashrc; so the files of this user do not affect the hosts.
SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = """
ListenAddress {address}
HostKey {folder}/hostkey
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
MaxStartups 200:30:400
LoginGraceTime 0
LogLevel ERROR
SetEnv SHLVL=1
"""
SSH_CONFIG = """
Host host*
  User root
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""
SLURM_CONFIG = """
ClusterName=ci
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=60
MessageTimeout=60
TCPTimeout=30
WaitTime=0
InactiveLimit=0
PropagateResourceLimits=NONE
"""


def run(*argv):
    subprocess.run(argv, check=True, capture_output=True, text=True)


class Farm:
    """`count` hosts and a desk, each a namespace with one interface on a common switch."""

    def __init__(self, folder, count):
        self.folder, self.count = Path(folder), count
        self.processes = []
        try:
            self.switch = self._namespace()
            self._in(self.switch, "ip link add br0 type bridge")
            self._in(self.switch, "ip link set br0 up")
            self.desk = self._host(1)
            self.hosts = [self._host(11 + number) for number in range(count)]
            self._keys()
            for number in range(count):
                self._sshd(number)
        except BaseException:
            self.close()
            raise

    def _namespace(self):
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 3600"],
            stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout.readline() == b"up\n"
        process.stdout.close()
        return process.pid

    def _in(self, pid, command):
        run("nsenter", f"--net=/proc/{pid}/ns/net", *command.split())

    def _host(self, number):
        pid = self._namespace()
        self._in(self.switch, f"ip link add p{number} type veth peer name eth0 netns {pid}")
        self._in(self.switch, f"ip link set p{number} master br0 up")
        self._in(pid, f"ip address add {address(number)}/24 dev eth0")
        self._in(pid, "ip link set eth0 up")
        return pid

    def cable(self, first, second):
        """Connects two hosts directly, without the switch; their addresses in the same order."""
        near, far = (self.hosts[number] for number in (first, second))
        self._in(near, f"ip link add cable type veth peer name cable netns {far}")
        addresses = CABLE.format(1), CABLE.format(2)
        for pid, its in zip((near, far), addresses, strict=True):
            self._in(pid, f"ip address add {its}/24 dev cable")
            self._in(pid, "ip link set cable up")
        return addresses

    def _keys(self):
        for name in ("hostkey", "id"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        shutil.copy(self.folder / "id.pub", self.folder / "authorized_keys")
        key = " ".join((self.folder / "hostkey.pub").read_text().split()[:2])
        config = SSH_CONFIG.format(folder=self.folder)
        lines = []
        for number in range(self.count):
            config += f"Host host{number}\n  HostName {address(11 + number)}\n"
            lines.append(f"{address(11 + number)} {key}\n")
        (self.folder / "known_hosts").write_text("".join(lines))
        (self.folder / "ssh_config").write_text(config)

    def _sshd(self, number):
        os.makedirs("/run/sshd", exist_ok=True)
        config = self.folder / f"sshd{number}.conf"
        config.write_text(SSHD_CONFIG.format(folder=self.folder, address=address(11 + number)))
        inside = ["nsenter", f"--net=/proc/{self.hosts[number]}/ns/net"]
        self.processes.append(subprocess.Popen([*inside, SSHD, "-D", "-f", str(config)]))

    def at_desk(self, argv):
        """The command line, in the desk's namespace."""
        return ["nsenter", f"--net=/proc/{self.desk}/ns/net", "--", *argv]

    def wait(self):
        """Until every sshd answers."""
        for number in range(self.count):
            deadline = time.monotonic() + PATIENCE_S
            command = ["ssh", "-F", str(self.folder / "ssh_config"), f"host{number}", "true"]
            while subprocess.run(self.at_desk(command), capture_output=True).returncode:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def cut(self, number):
        """Cuts the link without closing connections."""
        self._in(self.switch, f"ip link set p{11 + number} down")

    def close(self):
        """Ends the sessions too: behind a cut link an sshd waits for its client forever."""
        own = {network(process.pid) for process in self.processes} - {network("self"), None}
        for process in reversed(self.processes):
            process.kill()
        for process in self.processes:
            process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while (left := [pid for pid in everybody() if network(pid) in own]) and (
            time.monotonic() < deadline
        ):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def everybody():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def network(pid):
    """The network namespace of a process; None when it has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return None


def address(number):
    return f"10.88.0.{number}"


class Slurm:
    """A real cluster of one machine: a controller and `count` node daemons."""

    def __init__(self, folder, count):
        self.folder = Path(folder)
        (self.folder / "state").mkdir(parents=True)
        host, ports = socket.gethostname().split(".")[0], free_ports(count + 1)
        text = SLURM_CONFIG.format(folder=folder, host=host, port=ports[0])
        for number in range(1, count + 1):
            (self.folder / "spool" / f"n{number}").mkdir(parents=True)
            text += (
                f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} "
                "CPUs=4 RealMemory=1000 State=UNKNOWN\n"
            )
        text += f"PartitionName=ci Nodes=n[1-{count}] Default=YES MaxTime=60 State=UP\n"
        self.config = self.folder / "slurm.conf"
        self.config.write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.environment = {"SLURM_CONF": str(self.config)}
        daemons = f"slurmctld -D -c -f {self.config} & " + "".join(
            f"slurmd -D -N n{number} -f {self.config} & " for number in range(1, count + 1)
        )
        # A process namespace of their own: slurmstepd outlives its slurmd otherwise.
        self.process = subprocess.Popen(
            ["unshare", "-pf", "--kill-child=KILL", "--mount-proc", "sh", "-c", daemons + "wait"],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=open(self.folder / "stderr", "w"),  # noqa: SIM115
            start_new_session=True,
        )
        self._wait(count)

    def _wait(self, count):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            done = subprocess.run(
                ["timeout", "20", "sinfo", "-h", "-o", "%D %t"],
                env={**os.environ, **self.environment}, capture_output=True, text=True,
            )  # fmt: skip
            if done.stdout.split() == [str(count), "idle"]:
                return
            time.sleep(0.1)
        self.close()
        raise AssertionError((self.folder / "stderr").read_text())

    def jobs(self):
        done = subprocess.run(
            ["timeout", "60", "squeue", "-h", "-o", "%i"],
            env={**os.environ, **self.environment}, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.split() if done.returncode == 0 else ["unknown"]

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
