//! Kind, driver, queues and checksums of an interface, and the receive modes that follow from them.

use bypass_netlink::features::{self, Features};
use bypass_netlink::{peer, Link, Tables};

use crate::exchange::QUEUES_MAX;
use crate::opened::{takes_scattered_frames, Settings};
use crate::steering::Mode;
use crate::sys::ethtool;

/// MTU up to which a frame fits one page in native mode, with what most drivers put around it.
pub(crate) const NATIVE_MTU: u32 = 3498;

/// Longest packet that Linux makes for a device to cut, or of received ones, unless an administrator raises that.
const LONGEST: u32 = 65_536;

/// One way of receiving frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Where the program runs.
    pub mode: Mode,
    /// Frames may lie in several buffers: those above the MTU, which generic mode hands over as senders on this host
    /// have left them or as the kernel has merged them, and those of a large MTU.
    pub scattered: bool,
    /// Each frame is copied, also where the driver could share its buffers.
    pub copies: bool,
}

impl Way {
    /// As a socket is opened for it.
    pub fn settings(&self, settings: Settings) -> Settings {
        Settings {
            takes_gso: self.scattered,
            copies: self.copies,
            ..settings
        }
    }

    fn name(&self) -> &'static str {
        match (self.mode, self.copies) {
            (Mode::Native, false) => "native mode",
            (Mode::Native, true) => "native mode, copying",
            (Mode::Generic, _) => "generic mode",
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an interface is not used, and the command, or the step, that would help.
pub type Refusal = (String, String);

/// See the module.
#[derive(Debug, Clone)]
pub struct LinkTraits {
    /// The kind of a virtual interface, e.g. `veth`; empty for a device.
    pub kind: String,
    /// Its driver's name, where it has one.
    pub driver: String,
    /// Features of the driver; None where the kernel does not say (before Linux 6.3).
    pub features: Option<Features>,
    /// Receive queues in use: each gets a socket.
    pub queues: u32,
    /// Queues in use for sending.
    pub senders: u32,
    /// Ways of receiving, the best first: the first that the kernel grants is used.
    pub ways: Vec<Way>,
    /// Nothing of the kind is known to work.
    pub refusal: Option<Refusal>,
    /// Why generic mode is none of the ways, and what would make it one.
    pub no_generic: Option<Refusal>,
}

impl LinkTraits {
    /// Of an interface, with the one that it belongs to.
    pub fn of(tables: &Tables, link: &Link) -> Self {
        // Drivers without channels have the queues that they were made with.
        let [queues, senders] = ethtool::queues(&link.name).unwrap_or([link.rx_queues, 0]);
        let mut traits = Self {
            kind: link.kind.clone(),
            driver: ethtool::driver(&link.name).unwrap_or_default(),
            features: features::xdp(link.index).ok(),
            queues: queues.max(1),
            senders,
            ways: Vec::new(),
            refusal: None,
            no_generic: None,
        };
        let of_kind = refused_kind(link).or_else(|| refused_master(tables, link));
        match of_kind {
            Some(refusal) => traits.refusal = Some(refusal),
            None => traits.find_ways(link),
        }
        traits
    }

    /// Whether several processes may use it, each with queues of its own: each sends through the queues that it
    /// receives from.
    pub fn is_divisible(&self) -> bool {
        (2..=QUEUES_MAX).contains(&self.queues) && self.senders >= self.queues
    }

    fn find_ways(&mut self, link: &Link) {
        let scatters = takes_scattered_frames();
        let is_pair = link.kind == "veth";
        let fits = link.mtu <= NATIVE_MTU;
        let (may_be_native, has_fragments) = match (self.features, self.has_driver(link)) {
            (_, false) => (false, false),
            (Some(features), true) => (features.native, features.fragments),
            // Tried where the kernel does not say.
            (None, true) => (true, false),
        };
        let way = |mode, scattered| Way {
            mode,
            scattered,
            copies: false,
        };
        let native = (may_be_native && (fits || has_fragments && scatters))
            .then(|| way(Mode::Native, !fits));
        let may_merge = self.kind.is_empty() && ethtool::merges(&link.name);
        let must_scatter = !self.kind.is_empty() || may_merge || !fits;
        // What is longer than the length of an IP packet can say is nothing that can be taken apart.
        let has_long = match is_pair {
            true => peer::of(link).is_ok_and(|peer| peer.gso_max > LONGEST),
            false => may_merge && link.gro_max > LONGEST,
        };
        let generic =
            (!has_long && (scatters || !must_scatter)).then(|| way(Mode::Generic, scatters));
        // The peer of a native program on veth segments every GSO packet, one frame each, and either way the kernel has made
        // packets of the frames before.
        self.ways = match is_pair && scatters {
            true => generic.into_iter().chain(native).collect(),
            false => native.into_iter().chain(generic).collect(),
        };
        let zero_copies = self.features.is_some_and(|features| features.zero_copy);
        if let Some(native) = native.filter(|_| zero_copies) {
            // A driver may refuse zero-copy, and work with copies.
            let at = self
                .ways
                .iter()
                .position(|one| *one == native)
                .map_or(0, |at| at + 1);
            self.ways.insert(
                at,
                Way {
                    copies: true,
                    ..native
                },
            );
        }
        if has_long {
            let (name, of) = match is_pair {
                true => ("PEER", "gso"),
                false => (link.name.as_str(), "gro"),
            };
            self.no_generic = Some((
                "frames longer than 64 KiB may come (BIG TCP)".to_owned(),
                format!("ip link set {name} {of}_max_size {LONGEST} {of}_ipv4_max_size {LONGEST}"),
            ));
        } else if generic.is_none() {
            let what =
                "frames that the kernel has merged, or that are longer than a page, need Linux 6.6";
            let remedy = match may_merge {
                true => format!("ethtool -K {} gro off lro off", link.name),
                false if link.mtu > NATIVE_MTU => {
                    format!("ip link set {} mtu {NATIVE_MTU}", link.name)
                }
                false => String::new(),
            };
            self.no_generic = Some((what.to_owned(), remedy));
        }
        if self.ways.is_empty() {
            self.refusal = self.no_generic.clone();
        }
    }

    /// Programs can run in the driver at all: not in interfaces that are made of others.
    fn has_driver(&self, link: &Link) -> bool {
        matches!(link.kind.as_str(), "" | "veth" | "tun")
    }

    /// Frames that come this way may have a checksum that a sender on this host, or the host of a virtual machine, has
    /// left to a device.
    pub fn has_partial_checksums(&self, way: &Way) -> bool {
        const VIRTUAL: [&str; 4] = ["virtio_net", "vif", "hv_netvsc", "xen_netfront"];
        way.mode == Mode::Generic
            || !self.kind.is_empty()
            || VIRTUAL.contains(&self.driver.as_str())
    }
}

/// Kinds of interfaces that have been tried and carry, in the words of `ip -d link`; all others are refused.
const CARRYING: [&str; 6] = ["", "veth", "macvlan", "bridge", "vlan", "tun"];
/// Modes of bonds by the kernel's number, and whether they have been tried. In the last one peers send to the addresses
/// of members, which the engine does not know.
const BOND_MODES: [(&str, bool); 7] = [
    ("balance-rr", true),
    ("active-backup", true),
    ("balance-xor", true),
    ("broadcast", false),
    ("802.3ad", true),
    ("balance-tlb", false),
    ("balance-alb", false),
];
/// The mode of an ipvlan that sends Ethernet frames, and finds its neighbours itself.
const IPVLAN_L2: u32 = 0;

fn refused_kind(link: &Link) -> Option<Refusal> {
    let refusal = |what: &str, remedy: &str| Some((what.to_owned(), remedy.to_owned()));
    if link.is_loopback {
        let what = "the loopback interface carries no packets for others";
        return refusal(what, "peers on this host use shared memory");
    }
    if link.mac.is_none() {
        let what = "its packets have no Ethernet header, which is needed";
        return refusal(
            what,
            "name the interface below it, or one that is switched, not routed",
        );
    }
    let name = &link.name;
    if link.keeps_tag {
        return Some((
            "its frames keep their VLAN tag, which is not read".to_owned(),
            format!("ip link set {name} type vlan reorder_hdr on"),
        ));
    }
    if CARRYING.contains(&link.kind.as_str()) {
        return None;
    }
    let (what, remedy) = match link.kind.as_str() {
        "bond" => return refused_bond(link),
        "vrf" => (
            "it carries packets by a routing table of its own, which is not followed".to_owned(),
            "ip link set MEMBER nomaster, and name MEMBER".to_owned(),
        ),
        "ipvlan" if link.mode == Some(IPVLAN_L2) => return None,
        "ipvlan" => (
            "its parent's routes decide where its packets go, which are not followed".to_owned(),
            format!("ip link add link PARENT name {name} type ipvlan mode l2"),
        ),
        "dummy" | "ifb" => (
            "it carries no packets to other hosts".to_owned(),
            String::new(),
        ),
        kind => (
            format!("interfaces of the kind {kind} have not been tried"),
            "name the interface below it, or leave these connections to the kernel".to_owned(),
        ),
    };
    Some((what, remedy))
}

fn refused_bond(link: &Link) -> Option<Refusal> {
    let mode = link.mode.and_then(|mode| BOND_MODES.get(mode as usize));
    let (mode, is_tried) = mode.copied().unwrap_or(("of a new kernel", false));
    let what = format!("bonds in mode {mode} have not been tried");
    let remedy = format!(
        "ip link set {} type bond mode active-backup, while it has no members",
        link.name
    );
    (!is_tried).then_some((what, remedy))
}

/// A member's frames are its master's business, except that a VRF's members keep their addresses.
fn refused_master(tables: &Tables, link: &Link) -> Option<Refusal> {
    let master = link.master?;
    let Some(master) = tables.link_at(master) else {
        let what = format!("it belongs to interface number {master}");
        return Some((what, format!("ip link set {} nomaster", link.name)));
    };
    let (kind, name) = (&master.kind, &master.name);
    let what = match kind.as_str() {
        "vrf" => format!("it belongs to {kind} {name}, whose routing table is not followed"),
        _ => format!("it belongs to {kind} {name}, which has the addresses"),
    };
    let remedy = match refused_kind(master) {
        None => format!("name {name} instead"),
        Some(_) => format!("ip link set {} nomaster", link.name),
    };
    Some((what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: &str, mode: Option<u32>) -> Link {
        Link {
            index: 7,
            name: "u1".to_owned(),
            kind: kind.to_owned(),
            mode,
            keeps_tag: false,
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            leads_to: None,
            gso_max: LONGEST,
            gro_max: LONGEST,
            is_up: true,
            has_carrier: true,
            is_running: true,
            is_loopback: false,
            master: None,
            rx_queues: 1,
            tx_queues: 1,
            xdp_program: None,
        }
    }

    fn why(link: &Link) -> String {
        refused_kind(link).map_or_else(String::new, |(what, _)| what)
    }

    /// One that was not tried may give the same address to two hosts, or lose frames.
    #[test]
    fn of_bonds_and_ipvlans_only_the_modes_that_were_tried_are_used() {
        for mode in [0, 1, 2, 4] {
            assert_eq!(why(&link("bond", Some(mode))), "");
        }
        for (mode, name) in [(3, "broadcast"), (6, "balance-alb"), (9, "of a new kernel")] {
            assert!(why(&link("bond", Some(mode))).contains(name), "{mode}");
        }
        assert!(why(&link("bond", None)).contains("of a new kernel"));
        assert_eq!(why(&link("ipvlan", Some(0))), "");
        assert!(why(&link("ipvlan", Some(1))).contains("its parent's routes"));
    }

    #[test]
    fn a_vlan_that_keeps_tags_is_refused() {
        let vlan = link("vlan", None);
        assert_eq!(why(&vlan), "");
        let keeps_tag = true;
        assert!(why(&Link { keeps_tag, ..vlan }).contains("VLAN tag"));
    }
}
