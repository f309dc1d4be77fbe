//! Checks whether an interface can carry packets in user space, and names anything missing with its remedy.
//!
//! Promises of the report are tried where that disturbs no traffic. Nothing is attached, and nothing is left.

use std::fmt;
use std::net::IpAddr;

use bypass_netlink::{filter, xfrm, Link, Tables};
use bypass_sys::kernel;

use crate::opened::{Layout, Opened, Settings};
use crate::steering::{Mode, Steering};
use crate::traits::{LinkTraits, Way, NATIVE_MTU};

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
    /// The command, or the step, that fixes it; empty where nothing does.
    pub remedy: String,
}

/// What is known of an interface.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The interface, and what follows from its kind; None when there is none of this name.
    pub link: Option<(Link, LinkTraits)>,
    /// Obstacles and limits.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether packets can be used.
    pub fn is_usable(&self) -> bool {
        self.obstacles().next().is_none()
    }

    /// Findings that rule the interface out.
    pub fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.weight == Weight::Obstacle)
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
            Some((link, traits)) => {
                let kind = match (link.kind.as_str(), traits.driver.as_str()) {
                    ("", "") => "device",
                    ("", driver) => driver,
                    (kind, _) => kind,
                };
                let way = traits
                    .ways
                    .first()
                    .map_or("not used".to_owned(), Way::to_string);
                let used = if traits.is_divisible() {
                    " for as many processes"
                } else {
                    ""
                };
                let (name, mtu, queues) = (&self.name, link.mtu, traits.queues);
                writeln!(f, "{name}: {kind}, {way}, queues {queues}{used}, MTU {mtu}")?;
                if let [_, others @ ..] = &traits.ways[..] {
                    let others: Vec<String> = others.iter().map(Way::to_string).collect();
                    if !others.is_empty() {
                        writeln!(f, "  if the kernel refuses that: {}", others.join(", "))?;
                    }
                }
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

/// Asks about an interface, of which every queue is to be used, and tries what the answer promises.
pub fn interface(name: &str) -> kernel::Result<Report> {
    let mut report = look(name)?;
    if let (true, Some((link, traits))) = (report.is_usable(), report.link.clone()) {
        if let Some(way) = traits.ways.first() {
            try_it(&mut report, &link, &traits, way);
        }
    }
    Ok(report)
}

/// The same without a try, for whoever opens it now.
pub fn look(name: &str) -> kernel::Result<Report> {
    let tables = Tables::new()?;
    let mut report = Report {
        name: name.to_owned(),
        link: None,
        findings: Vec::new(),
    };
    let Some(link) = tables.link(name).cloned() else {
        report.add(
            Weight::Obstacle,
            "there is no such interface",
            "ip link shows the existing ones",
        );
        return Ok(report);
    };
    let traits = LinkTraits::of(&tables, &link);
    report.link = Some((link.clone(), traits.clone()));
    if let Some((what, remedy)) = &traits.refusal {
        report.add(Weight::Obstacle, what, remedy);
    }
    look_at_link(&mut report, &tables, &link);
    look_at_program(&mut report, &link);
    look_at_policies(&mut report);
    look_at_fragments(&mut report);
    look_at_rights(&mut report, &link, &traits);
    if let (true, Some(way)) = (report.is_usable(), traits.ways.first()) {
        look_at_way(&mut report, &link, &traits, way);
        look_at_filter(&mut report);
        look_at_arp(&mut report, &tables, &link);
    }
    Ok(report)
}

fn look_at_link(report: &mut Report, tables: &Tables, link: &Link) {
    if !link.is_up {
        report.add(
            Weight::Obstacle,
            "it is down",
            format!("ip link set {} up", link.name),
        );
    }
    // Connections of link-local addresses stay on the kernel.
    let is_of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut own = tables.addresses().iter();
    if !own.any(|one| one.link == link.index && !is_of_link(one.ip)) {
        let remedy = format!("ip addr add ADDRESS/LENGTH dev {}", link.name);
        report.add(
            Weight::Limit,
            "it has no address: nothing comes to it until it has one",
            remedy,
        );
    }
}

/// What is taken, and what is sent, passes by the kernel's IPsec. A process that may not ask for policies lacks other
/// rights too.
fn look_at_policies(report: &mut Report) {
    let policies = xfrm::policies().unwrap_or_default();
    if let [first, others @ ..] = &policies[..] {
        let further = match others.len() {
            0 => String::new(),
            count => format!(", and {count} more"),
        };
        let what = format!("an IPsec policy would not apply to its connections ({first}{further})");
        report.add(Weight::Obstacle, what, "ip xfrm policy shows them all");
    }
}

/// Its packets always have the bit that says that no router may cut them.
fn look_at_fragments(report: &mut Report) {
    let setting = "net.ipv4.ip_no_pmtu_disc";
    let path = format!("/proc/sys/{}", setting.replace('.', "/"));
    let is_usual = |text: String| text.trim() == "0";
    if !std::fs::read_to_string(path).map_or(true, is_usual) {
        let what = format!("{setting} has routers cut packets, and its own may not be cut");
        report.add(Weight::Obstacle, what, format!("sysctl -w {setting}=0"));
    }
}

/// What is taken passes no packet filter.
fn look_at_filter(report: &mut Report) {
    let chains = filter::incoming_chains().unwrap_or_default();
    if !chains.is_empty() {
        let what = format!(
            "rules of the packet filter do not apply to its connections ({})",
            chains.join(", ")
        );
        report.add(Weight::Limit, what, "filter in front of this host");
    }
}

/// Linux answers ARP for an address at every interface: frames for it may come by another one, where the kernel, which does
/// not know its connections, resets them.
fn look_at_arp(report: &mut Report, tables: &Tables, link: &Link) {
    let ignores = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
    };
    let is_other = |other: &Link| {
        let is_own = other.index == link.index || other.master == Some(link.index);
        other.is_up && !other.is_loopback && other.mac.is_some() && !is_own
    };
    let mut others: Vec<&str> = tables
        .links()
        .filter(|other| is_other(other) && !ignores(&other.name))
        .map(|other| other.name.as_str())
        .collect();
    others.sort_unstable();
    if !others.is_empty() && !ignores("all") {
        let what = format!(
            "other interfaces answer ARP for its addresses, and connections whose frames come there are reset ({})",
            others.join(", ")
        );
        report.add(
            Weight::Limit,
            what,
            "sysctl -w net.ipv4.conf.all.arp_ignore=1",
        );
    }
}

fn look_at_way(report: &mut Report, link: &Link, traits: &LinkTraits, way: &Way) {
    let features = traits.features.unwrap_or_default();
    if way.mode == Mode::Generic && link.kind != "veth" {
        let is_large = features.native && link.mtu > NATIVE_MTU && !features.fragments;
        let (what, remedy) = match is_large {
            true => (
                format!("MTU {} needs frames of several buffers, which the driver does not offer: generic mode is used", link.mtu),
                format!("ip link set {} mtu {NATIVE_MTU}", link.name),
            ),
            false => (
                "no program runs in a driver of it: generic mode is used".to_owned(),
                String::new(),
            ),
        };
        report.add(Weight::Limit, what, remedy);
    }
    if traits.features.is_none() && way.mode == Mode::Native {
        let what = "the kernel does not say what the driver offers (before Linux 6.3): native mode is tried";
        report.add(Weight::Limit, what, "");
    }
    if !features.zero_copy {
        let what = "the driver has no zero-copy: each frame is copied once";
        report.add(Weight::Limit, what, "");
    }
}

/// Tries the promise, as far as that disturbs no traffic: the program is loaded, and attached to a queue's socket in
/// memory of its own, but not to the interface, whose driver may stop it for a moment.
fn try_it(report: &mut Report, link: &Link, traits: &LinkTraits, way: &Way) {
    if let Err(error) = Steering::try_program(link.mtu, way.scattered) {
        let what = format!("the kernel does not load its program ({})", text(error));
        let remedy = "start it as root of the host, outside a user namespace";
        report.add(Weight::Obstacle, what, remedy);
    }
    let settings = Settings {
        copies: true,
        ..way
            .settings(Settings::default())
            .frugal()
            .for_queue(0, traits.queues)
    };
    match Opened::open(link, 0, settings) {
        Ok(_) => {}
        Err(libc::EBUSY) => {
            let what = "queue 0 has an AF_XDP socket already";
            report.add(
                Weight::Obstacle,
                what,
                "end its program (ss --xdp shows it)",
            );
        }
        Err(error) => {
            let what = format!(
                "the kernel opens no AF_XDP socket on queue 0 ({})",
                text(error)
            );
            report.add(Weight::Obstacle, what, "");
        }
    }
}

fn text(error: i32) -> String {
    std::io::Error::from_raw_os_error(error).to_string()
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

fn look_at_rights(report: &mut Report, link: &Link, traits: &LinkTraits) {
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
    let needed = memory_kib(link, traits);
    if held & 1 << CAP_IPC_LOCK == 0 && limit < needed {
        let queues = traits.queues;
        let what =
            format!("{limit} KiB of memory may be locked, its queues ({queues}) need {needed}");
        let remedy = format!(
            "ulimit -l unlimited, or fewer queues: ethtool -L {}",
            link.name
        );
        report.add(Weight::Obstacle, what, remedy);
    }
}

/// Memory that the sockets of all queues lock at least.
fn memory_kib(link: &Link, traits: &LinkTraits) -> u64 {
    let queues = traits.queues;
    let settings = |queue| {
        let frugal = Settings::default().frugal();
        match traits.is_divisible() {
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

/// The text behind `start` in the first line of a file that begins so.
fn line_of(path: &str, start: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(start))
        .map(str::to_owned)
}
