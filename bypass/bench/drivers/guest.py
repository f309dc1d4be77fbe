#!/usr/bin/env python3
"""Runs a command under another kernel, with emulated network cards: QEMU boots the kernel of an unpacked Debian package
with read-only access to this host's files.

    apt-get install qemu-system-x86 busybox-static
    apt-get download linux-image-6.1.0-56-amd64 && dpkg -x linux-image-*.deb kernel
    guest.py --kernel kernel -- /usr/bin/uname -r
    BYPASS_TEST_LIBRARY=$PWD/target/debug/libbypass_preload.so \
        guest.py --kernel kernel --card e1000e -- target/debug/deps/links-…

With --card there are two of a model, joined by a hub, or with --queues by a bridge of this host in a namespace of its
own (as root); BYPASS_TEST_CARDS names them to the command, BYPASS_TEST_MTU the MTU. Emulation only: no figure of speed
from such a guest means anything.
"""

import argparse
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

#: Modules that the guest needs to reach this host's files, and those of links that tests make.
ALWAYS = ("crc32c_generic", "virtio_pci", "9p", "9pnet_virtio", "veth", "bridge", "macvlan", "8021q", "bonding", "vrf", "ipvlan",
          "dummy", "ifb", "tun", "macvtap", "vxlan", "wireguard", "nf_tables", "xsk_diag")
CARDS = {"virtio-net-pci": "virtio_net", "e1000": "e1000", "e1000e": "e1000e", "vmxnet3": "vmxnet3", "igb": "igb",
         "rtl8139": "8139cp"}
END = re.compile(rb"GUEST END (\d+)")
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /host
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module.ko $(case $module in bonding) echo max_bonds=0;; dummy) echo numdummies=0;; esac) || echo "no $module"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host
for folder in proc sys dev; do /bin/busybox mount --bind /$folder /host/$folder; done
/bin/busybox mkdir -p /host/dev/shm
for folder in tmp run dev/shm; do /bin/busybox mount -t tmpfs tmpfs /host/$folder; done
/bin/busybox mount -t bpf bpf /host/sys/fs/bpf
/bin/busybox cp -r /extra/. /host/tmp/
/bin/busybox chroot /host /bin/sh /tmp/command </dev/null
echo "GUEST END $?"
/bin/busybox poweroff -f
"""


def modules(kernel, wanted):
    """Name and content of modules with the modules they need, in the order of loading."""
    folder = next((kernel / "lib/modules").glob("*"), None) or next((kernel / "usr/lib/modules").glob("*"))
    known = {path.name.split(".ko")[0].replace("-", "_"): path for path in folder.glob("kernel/**/*.ko*")}
    loaded = {}

    def add(name):
        name = name.replace("-", "_")
        if name in loaded or name not in known:
            return
        data = known[name].read_bytes()
        data = lzma.decompress(data) if known[name].suffix == ".xz" else data
        needs = re.search(rb"(?:^|\0)depends=([^\0]*)\0", data)
        for needed in needs.group(1).decode().split(",") if needs and needs.group(1) else ():
            add(needed)
        loaded[name] = data

    for name in wanted:
        add(name)
    return loaded


def archive(folder, kernel, card, command, mtu, is_hub):
    """An initial file system; the path of its archive."""
    root = folder / "root"
    for name in ("bin", "modules", "extra"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or sys.exit("guest: busybox is missing (apt-get install busybox-static)"),
                root / "bin/busybox")
    found = modules(kernel, (*ALWAYS, *([CARDS[card]] if card else ())))
    for name, data in found.items():
        (root / "modules" / f"{name}.ko").write_bytes(data)
    (root / "modules/order").write_text("\n".join(found))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    library = os.environ.get("BYPASS_TEST_LIBRARY", "")
    environment = f"export BYPASS_TEST_LIBRARY={shlex.quote(library)}\n" if library else ""
    environment += f"export PATH={shlex.quote(os.environ['PATH'])} HOME=/tmp\ncd {shlex.quote(os.getcwd())}\nip link set lo up\n"
    if mtu:
        environment += f"export BYPASS_TEST_MTU={mtu}\n"
    if card:
        environment += ('export BYPASS_TEST_CARDS="$(ls -d /sys/class/net/*/device | cut -d/ -f5 | sort | tr \'\\n\' \' \')"\n')
    if card and is_hub:
        # QEMU 7.2 sends GSO segments of a card as IP fragments into a hub, and a fragment of TCP goes to the kernel.
        environment += "for card in $BYPASS_TEST_CARDS; do ethtool -K $card tso off >/dev/null 2>&1; done\n"
    (root / "extra/command").write_text(f"{environment}\nexec {shlex.join(command)}\n")
    out = folder / "initrd"
    with out.open("wb") as file:
        names = subprocess.run(["find", "."], cwd=root, stdout=subprocess.PIPE, check=True)
        subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names.stdout, stdout=file,
                       stderr=subprocess.DEVNULL, check=True)
    return out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernel", type=Path, required=True, help="folder of an unpacked linux-image package")
    parser.add_argument("--card", choices=sorted(CARDS), help="two cards of this model, joined by a hub")
    parser.add_argument("--properties", default="", help="of both cards, such as ,mq=on")
    parser.add_argument("--queues", type=int, default=1, help="of each card; several are virtio's only")
    parser.add_argument("--mtu", type=int, help="of both cards")
    parser.add_argument("--pcap", type=Path, help="capture of what passes the first card")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=280, help="limit of the whole run")
    parser.add_argument("command", nargs="+", help="after --; in this folder")
    return parser.parse_args()


def netdev(number, wanted):
    """The host's end of a card, and properties of the card that go with it."""
    if wanted.queues == 1:
        return f"hubport,id=net{number},hubid=0", ""
    tap = f"tap,id=net{number},ifname=guest{number},script=no,downscript=no,queues={wanted.queues},vhost=off"
    return tap, f",mq=on,vectors={2 * wanted.queues + 2}"


def bridge(mtu):
    """Two taps with several queues and a bridge between them; in the namespace of the caller."""
    commands = ["link add joined type bridge", "link set joined up"]
    for name in ("guest1", "guest2"):
        commands += [f"tuntap add {name} mode tap multi_queue vnet_hdr", f"link set {name} mtu {mtu or 1500}",
                     f"link set {name} master joined", f"link set {name} up"]
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def main():
    wanted = arguments()
    if wanted.queues > 1 and "GUEST_NAMESPACE" not in os.environ:
        os.environ["GUEST_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    if wanted.queues > 1:
        bridge(wanted.mtu)
    image = next((wanted.kernel / "boot").glob("vmlinuz-*"))
    cards = []
    for number in (1, 2) if wanted.card else ():
        bus = ""
        if wanted.card in ("e1000e", "igb"):
            cards += ["-device", f"pcie-root-port,id=port{number},chassis={number},slot={number}"]
            bus = f",bus=port{number}"
        end, properties = netdev(number, wanted)
        cards += ["-netdev", end, "-device", f"{wanted.card},netdev=net{number},mac=52:54:00:00:00:0{number},romfile={bus}"
                  f"{properties}{wanted.properties}"]
    if wanted.pcap and cards:
        cards += ["-object", f"filter-dump,id=dump,netdev=net1,file={wanted.pcap.resolve()}"]
    with tempfile.TemporaryDirectory() as name:
        initrd = archive(Path(name), wanted.kernel, wanted.card, wanted.command, wanted.mtu,
                         wanted.queues == 1)
        return watched(
            ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(wanted.cpus),
             "-m", "2048", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
             "-kernel", image, "-initrd", initrd, "-append",
             "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
             "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap", *cards], wanted.seconds)


def watched(command, limit_s):
    """Shows what the guest prints, as it comes; the status of its command, or 1 where it has not ended in time."""
    status = 1
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as guest:
        limit = threading.Timer(limit_s, guest.kill)
        limit.start()
        for line in guest.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if end := END.search(line):
                status = int(end.group(1))
        limit.cancel()
    return status


if __name__ == "__main__":
    sys.exit(main())
