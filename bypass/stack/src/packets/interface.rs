//! The interfaces that were named: opened with privilege, used by one process.
//!
//! What is opened is inherited by children, as listeners are. Which of them uses it is decided by a
//! lock that ends with its holder: nginx's master opens, the first worker that waits uses.

use std::sync::{Arc, Mutex};

use bypass_netlink::{Link, Tables};
use bypass_shard::Shard;
use bypass_stats::Reason;
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_xdp::{check, queues, Mode, Opened, Settings, Steering, Transport};

use super::captured::Shown;
use super::engine;
use super::relay::{Relay, LATE_MAX};
use super::watching::ENGINES_MAX;
use crate::process::{self, table};
use crate::sys::lock_file;

/// One interface.
struct Interface {
    steering: Arc<Steering>,
    /// A socket of each queue.
    opened: Vec<Opened>,
    /// Locked by the process that uses it.
    lease: Owned,
}

impl Interface {
    fn descriptors(&self) -> impl Iterator<Item = i32> + use<'_> {
        let own = [self.lease.0];
        let opened = self.opened.iter().flat_map(Opened::descriptors);
        opened.chain(self.steering.descriptors()).chain(own)
    }
}

enum Known {
    NotOpened,
    Opened(Vec<Interface>),
}

static INTERFACES: Mutex<Known> = Mutex::new(Known::NotOpened);

/// Descriptors of those that this process uses.
static USED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A descriptor that an engine opens, or is about to close.
fn note(fd: i32, is_open: bool) {
    let Ok(mut used) = USED.lock() else {
        return;
    };
    if is_open {
        table::hide(fd);
        used.push(fd);
    } else {
        used.retain(|one| *one != fd);
        table::show(fd);
    }
}

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    (
        INTERFACES.lock().ok(),
        USED.lock().ok(),
        NETWORK.lock().ok(),
    )
}

/// In a forked child: the parent is to hear all news of the network.
pub fn forget_network() {
    let taken = NETWORK.lock().ok().and_then(|mut known| known.take());
    if let Some((tables, _)) = taken {
        table::show(tables.fd());
    }
}

/// In a forked child: an interface must not stay taken when its user has ended.
pub fn close_used() {
    let used = USED.lock().map(|mut used| std::mem::take(&mut *used));
    for fd in used.unwrap_or_default() {
        table::show(fd);
        let _ = kernel::close(fd);
    }
}

/// Opens every interface that was named, once; those that cannot be are named on standard error.
pub fn open_all() {
    let Ok(mut known) = INTERFACES.lock() else {
        return;
    };
    if matches!(*known, Known::Opened(_)) {
        return;
    }
    let mut opened = Vec::new();
    for name in &process::settings().interfaces {
        let room = (opened.len() < ENGINES_MAX).then_some(());
        let room = room.ok_or_else(|| format!("more than {ENGINES_MAX} interfaces"));
        match room.and_then(|()| open(name)) {
            Ok(interface) => opened.push(interface),
            Err(why) => {
                process::fall_back(Reason::Interface);
                let line = format!("bypass: {name}: {why}; connections there stay on the kernel\n");
                let _ = kernel::write(2, line.as_bytes());
            }
        }
    }
    *known = Known::Opened(opened);
}

fn open(name: &str) -> Result<Interface, String> {
    let report = check::interface(name).map_err(text)?;
    if let Some(obstacle) = report.obstacles().next() {
        return Err(match obstacle.remedy.as_str() {
            "" => obstacle.what.clone(),
            remedy => format!("{} ({remedy})", obstacle.what),
        });
    }
    let link = report.link.clone().ok_or("it is gone")?;
    let mode = report.mode();
    let opened = open_queues(&link, mode, report.queues)?;
    attach(&link, mode, opened).map_err(text)
}

/// All of them or none: what arrives on one that is not ours would be lost.
fn open_queues(link: &Link, mode: Mode, count: u32) -> Result<Vec<Opened>, String> {
    let settings = Settings {
        packet_sender: true,
        uncut_trains: mode == Mode::Generic && link.kind == "veth",
        ..Settings::default()
    };
    let open_with = |settings: Settings| -> Result<Vec<Opened>, (u32, i32)> {
        let open = |queue| {
            let opened = Opened::open(link, queue, settings.for_queue(queue, count));
            opened.map_err(|error| (queue, error))
        };
        (0..count).map(open).collect()
    };
    let opened = match open_with(settings) {
        // The limits may be enough for less.
        Err((_, libc::ENOBUFS | libc::EFBIG)) => open_with(settings.frugal()),
        other => other,
    };
    opened.map_err(|(queue, error)| format!("queue {queue} of {count}: {}", text(error)))
}

fn attach(link: &Link, mode: Mode, opened: Vec<Opened>) -> kernel::Result<Interface> {
    let has_fragments = opened.iter().any(|one| one.layout().has_fragments);
    let steering = Steering::attach(link.index, mode, has_fragments)?;
    for one in &opened {
        steering.set_socket(one.layout().queue, one.socket())?;
    }
    let lease = Owned(kernel::move_high(kernel::memfd_create(
        c"wirespeed-lease",
    )?)?);
    let interface = Interface {
        steering: Arc::new(steering),
        opened,
        lease,
    };
    interface.descriptors().for_each(table::hide);
    Ok(interface)
}

fn text(error: i32) -> String {
    if error == libc::EFBIG {
        return "the limit on the size of files is below what it needs (ulimit -f)".to_owned();
    }
    if error == libc::ENOBUFS {
        return "no more memory may be locked (ulimit -l unlimited)".to_owned();
    }
    std::io::Error::from_raw_os_error(error).to_string()
}

/// Engines over the interfaces that no other process uses, and whether there are others.
pub fn take() -> (Vec<Relay>, bool) {
    let Ok(mut known) = INTERFACES.lock() else {
        return (Vec::new(), false);
    };
    let Known::Opened(all) = &mut *known else {
        return (Vec::new(), false);
    };
    let mut relays = Vec::new();
    for interface in std::mem::take(all) {
        if lock_file(interface.lease.0).is_err() {
            // Connections reach this process through the listeners that it shares with the other one.
            all.push(interface);
            continue;
        }
        let steering = interface.steering.clone();
        match over(interface) {
            Ok(relay) => relays.push(relay),
            Err(_) => {
                // What a process before this one had claimed nobody would read: the kernel's again.
                steering.keep_only(Transport::Tcp, &[]);
                process::fall_back(Reason::Interface);
            }
        }
    }
    (relays, !all.is_empty())
}

/// How long an acknowledgment waits for an answer that may carry it while the program has something to do in each of
/// its rounds: a client that opens a connection waits twice before its request, with others to look after meanwhile.
const ANSWER_WAIT_US: u64 = 1000;

fn over(interface: Interface) -> kernel::Result<Relay> {
    let mut used: Vec<i32> = interface.descriptors().collect();
    let steering = interface.steering.clone();
    let link = interface.opened.first().ok_or(libc::EINVAL)?.layout().link;
    let device = Box::new(Shown(queues::over(interface.opened)?));
    let mut host = engine::of_host();
    let connections = process::settings().max_endpoints.saturating_add(LATE_MAX);
    host.connections_max = u32::try_from(connections).unwrap_or(u32::MAX);
    // Between two rounds, in which whoever waits drives the engine.
    host.answers_follow = true;
    host.answer_wait_us = ANSWER_WAIT_US;
    let settings = bypass_shard::Settings {
        notice: note,
        ..engine::settings(host, &process::settings().tcp)
    };
    let shard = Shard::over(steering, link, device, settings)?;
    let polled = shard.poll_fds().into_iter().flatten();
    let own: Vec<i32> = polled.filter(|fd| !used.contains(fd)).collect();
    own.iter().for_each(|fd| table::hide(*fd));
    used.extend(own);
    if let Ok(mut all) = USED.lock() {
        all.extend(used);
    }
    Relay::new(shard, interface.lease)
}

/// What the kernel knows of the network, for connections that may not be ours, and when it was last asked.
static NETWORK: Mutex<Option<(Tables, u64)>> = Mutex::new(None);
/// Changes of the network may be so old, as those that engines follow.
const NETWORK_NS: u64 = 10_000_000;

/// Whether the way to `target` may lead over an interface that was named, for all the kernel knows.
pub fn leads_over_named(target: std::net::IpAddr) -> bool {
    let names = &process::settings().interfaces;
    let Ok(mut known) = NETWORK.lock() else {
        return false;
    };
    if known.is_none() {
        *known = Tables::new().ok().map(|tables| (tables, now_ns()));
        known.iter().for_each(|(of, _)| table::hide(of.fd()));
    }
    let Some((tables, asked_ns)) = known.as_mut() else {
        return false;
    };
    if now_ns().saturating_sub(*asked_ns) >= NETWORK_NS {
        *asked_ns = now_ns();
        let _ = tables.update();
    }
    let hop = tables.next_hop(target).filter(|hop| !hop.is_local);
    let link = hop.and_then(|hop| tables.link_at(hop.link));
    link.is_some_and(|link| names.contains(&link.name))
}
