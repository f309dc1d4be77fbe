//! What an interface can do for packets in user space, and what is missing, with the remedy.
//!
//! Nothing is attached and nothing is changed: the kernel is only asked.

use std::fmt;

use bypass_netlink::features::{self, Features};
use bypass_netlink::{Link, Tables};
use bypass_sys::kernel;

use crate::exchange::QUEUES_MAX;
use crate::opened::{Layout, Settings};
use crate::steering::Mode;
use crate::sys::channels;

/// MTU up to which a frame fits one page in native mode, with what the driver puts around it.
const NATIVE_MTU: u32 = 3498;

// linux/capability.h.
const CAPABILITIES: [(u32, &str); 3] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (39, "CAP_BPF")];
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Packets cannot be used on this interface.
    Obstacle,
    /// They can, with a limit.
    Limit,
}

/// One thing that is missing or limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// See [`Weight`].
    pub weight: Weight,
    /// What it is.
    pub what: String,
    /// The command, or the step, that mends it; empty where nothing does.
    pub remedy: String,
}

/// What is known of an interface.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The interface; None when there is none of this name.
    pub link: Option<Link>,
    /// What its driver offers.
    pub features: Features,
    /// Receive queues in use: each gets a socket.
    pub queues: u32,
    /// Queues in use for sending.
    pub senders: u32,
    /// What stands in the way.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether packets can be used.
    pub fn is_usable(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.weight != Weight::Obstacle)
    }

    /// What stands in the way.
    pub fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.weight == Weight::Obstacle)
    }

    /// Where the program would run: in the driver where it can, where it takes frames of the MTU, and where
    /// that saves work. On veth it does not: frames have been packets of the kernel's before either way, and
    /// a peer of a native program has every train of segments cut, one frame for each segment.
    pub fn mode(&self) -> Mode {
        let mtu = self.link.as_ref().map_or(0, |link| link.mtu);
        let fits = mtu <= NATIVE_MTU || self.features.fragments;
        let is_pair = self.link.as_ref().is_some_and(|link| link.kind == "veth");
        let takes_trains = is_pair && self.features.fragments;
        match self.features.native && fits && !takes_trains {
            true => Mode::Native,
            false => Mode::Generic,
        }
    }

    /// Whether several processes may use it, each with queues of its own: each sends through the queues that it
    /// receives from.
    pub fn is_divisible(&self) -> bool {
        (2..=QUEUES_MAX).contains(&self.queues) && self.senders >= self.queues
    }

    fn add(&mut self, weight: Weight, what: impl Into<String>, remedy: impl Into<String>) {
        let (what, remedy) = (what.into(), remedy.into());
        self.findings.push(Finding {
            weight,
            what,
            remedy,
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.link {
            Some(link) => {
                let kind = if link.kind.is_empty() {
                    "device"
                } else {
                    &link.kind
                };
                let mode = match self.mode() {
                    Mode::Native => "native",
                    Mode::Generic => "generic",
                };
                let copy = if self.features.zero_copy {
                    "zero-copy"
                } else {
                    "copy"
                };
                let (name, mtu, queues) = (&self.name, link.mtu, self.queues);
                let used = match self.is_divisible() {
                    true => " for as many processes",
                    false => "",
                };
                writeln!(
                    f,
                    "{name}: {kind}, {mode} mode, {copy}, queues {queues}{used}, MTU {mtu}"
                )?;
            }
            None => writeln!(f, "{}:", self.name)?,
        }
        for finding in &self.findings {
            let word = match finding.weight {
                Weight::Obstacle => "missing",
                Weight::Limit => "limit",
            };
            write!(f, "  {word}: {}", finding.what)?;
            match finding.remedy.as_str() {
                "" => writeln!(f)?,
                remedy => writeln!(f, "; {remedy}")?,
            }
        }
        Ok(())
    }
}

/// Asks about an interface, of which every queue is to be used.
pub fn interface(name: &str) -> kernel::Result<Report> {
    let tables = Tables::new()?;
    let mut report = Report {
        name: name.to_owned(),
        link: tables.link(name).cloned(),
        features: Features::default(),
        queues: 0,
        senders: 0,
        findings: Vec::new(),
    };
    let Some(link) = report.link.clone() else {
        report.add(
            Weight::Obstacle,
            "there is no such interface",
            "ip link shows those that exist",
        );
        return Ok(report);
    };
    report.features = features::xdp(link.index).unwrap_or_default();
    // Drivers without channels have the queues that they were made with.
    let [queues, senders] = channels::in_use(name).unwrap_or([link.rx_queues, 0]);
    (report.queues, report.senders) = (queues.max(1), senders);
    look_at_link(&mut report, &link);
    look_at_program(&mut report, &link);
    look_at_mtu(&mut report, &link);
    look_at_rights(&mut report, &link);
    Ok(report)
}

fn look_at_link(report: &mut Report, link: &Link) {
    if link.is_loopback {
        let remedy = "peers on this host use shared memory";
        report.add(
            Weight::Obstacle,
            "the loopback interface carries no packets for others",
            remedy,
        );
    }
    if !link.is_up {
        report.add(
            Weight::Obstacle,
            "it is down",
            format!("ip link set {} up", link.name),
        );
    }
    if let Some(master) = link.master {
        let what = format!("it belongs to interface number {master}, which has the addresses");
        report.add(Weight::Obstacle, what, "name that interface instead");
    }
    if !report.features.native {
        let what = "the driver runs no XDP programs: generic mode is used";
        report.add(Weight::Limit, what, "");
    }
    if !report.features.zero_copy {
        report.add(
            Weight::Limit,
            "the driver has no zero-copy: each frame is copied once",
            "",
        );
    }
}

fn look_at_program(report: &mut Report, link: &Link) {
    if let Some(program) = link.xdp_program {
        let what = format!("XDP program {program} is attached already");
        let remedy = format!(
            "ip link set dev {} xdp off, or end its holder (bpftool link); two programs over bypass share the queues where \
             both have the same EF_CLUSTER_NAME",
            link.name
        );
        report.add(Weight::Obstacle, what, remedy);
    }
}

fn look_at_mtu(report: &mut Report, link: &Link) {
    if link.mtu > NATIVE_MTU && report.features.native && !report.features.fragments {
        let what = format!(
            "MTU {} needs frames of several buffers, which the driver does not offer: generic mode is used",
            link.mtu
        );
        report.add(
            Weight::Limit,
            what,
            format!("ip link set {} mtu {NATIVE_MTU}", link.name),
        );
    }
}

fn look_at_rights(report: &mut Report, link: &Link) {
    if kernel::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
        .map(|fd| kernel::close(fd as i32))
        == Err(libc::EAFNOSUPPORT)
    {
        let remedy = "CONFIG_XDP_SOCKETS=y";
        report.add(
            Weight::Obstacle,
            "the kernel was built without AF_XDP",
            remedy,
        );
    }
    let held = effective_capabilities();
    let has = |number: u32| held & (1 << number | 1 << CAP_SYS_ADMIN) != 0;
    for (number, name) in CAPABILITIES {
        // The administrator's capability stands for CAP_BPF, not for those of the network.
        let is_there = if number == 39 {
            has(number)
        } else {
            held & 1 << number != 0
        };
        if !is_there {
            let remedy = "start it as root; workers may drop privileges afterwards";
            report.add(Weight::Obstacle, format!("{name} is missing"), remedy);
        }
    }
    let limit = locked_memory_kib();
    let needed = memory_kib(link, report);
    if held & 1 << CAP_IPC_LOCK == 0 && limit < needed {
        let queues = report.queues;
        let what =
            format!("{limit} KiB of memory may be locked, its queues ({queues}) need {needed}");
        let remedy = format!(
            "ulimit -l unlimited, or fewer queues: ethtool -L {}",
            link.name
        );
        report.add(Weight::Obstacle, what, remedy);
    }
}

/// What the sockets of all queues lock at least.
fn memory_kib(link: &Link, report: &Report) -> u64 {
    let queues = report.queues;
    let settings = |queue| {
        let frugal = Settings::default().frugal();
        match report.is_divisible() {
            true => frugal.for_owner(queue, queues),
            false => frugal.for_queue(queue, queues),
        }
    };
    let layout = |queue| Layout::of(link, queue, settings(queue));
    let bytes: usize = (0..queues).filter_map(layout).map(|one| one.bytes()).sum();
    bytes as u64 / 1024
}

fn effective_capabilities() -> u64 {
    line_of("/proc/self/status", "CapEff:")
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn locked_memory_kib() -> u64 {
    let line = line_of("/proc/self/limits", "Max locked memory").unwrap_or_default();
    match line.split_whitespace().next() {
        Some(number) => number.parse::<u64>().map_or(u64::MAX, |bytes| bytes / 1024),
        None => u64::MAX,
    }
}

/// What follows `start` in the first line of a file that begins so.
fn line_of(path: &str, start: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(start))
        .map(str::to_owned)
}
