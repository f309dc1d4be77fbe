//! The interfaces that were named: opened with privilege, used by one process, or by several with a queue each.
//!
//! What is opened is inherited by children, as listeners are. Which of them uses it, or which of its queues, is
//! decided by locks that end with their holder: nginx's master opens, the workers that wait use.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bypass_netlink::{Link, Tables};
use bypass_shard::{Crossing, Shard};
use bypass_stats::Reason;
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, numbers};
use bypass_xdp::{
    check, queues, Exchange, LinkTraits, Mode, Opened, Settings, Steering, Transport, Way, Xdp,
    QUEUES_MAX,
};

use super::captured::Shown;
use super::dividing::{Around, Free, Looks};
use super::engine;
use super::relay::{Relay, LATE_MAX};
use super::secret::{self, Secret};
use super::watching::ENGINES_MAX;
use crate::datagrams;
use crate::process::{self, table};
use crate::service;
use crate::sys::{is_file_locked, lock_file, lock_part, part_holder, unlock_part};

mod cluster;
mod opening;
mod passing;
pub mod returning;

pub use cluster::{admit as admit_to_cluster, meet as meet_cluster};
pub use passing::{inherit, leave};

/// One interface.
struct Interface {
    /// No other one has it in this process: see [`new_number`].
    number: u64,
    link: u32,
    steering: Arc<Steering>,
    /// See [`secret`].
    secret: Secret,
    /// A socket of each queue, by its number; None: this process uses it, or cannot.
    opened: Vec<Option<Opened>>,
    /// Locked by the process that uses it, or in parts by the processes that use its queues.
    lease: Arc<Owned>,
    /// Each queue may have a process of its own.
    divided: Option<Divided>,
    /// Where programs of the same cluster ask for it.
    rendezvous: Option<Owned>,
}

/// A number for an interface that was opened. Once it is removed another one may have its index.
fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

struct Divided {
    exchange: Arc<Exchange>,
    /// Queues of this process, a bit each.
    own: u64,
    /// By queue: what this process uses.
    used: Vec<Option<InUse>>,
    looks: Looks,
}

/// A queue that this process uses.
struct InUse {
    /// As it was opened, with descriptors of its own, so that the queue can be given back.
    opened: Opened,
    /// Descriptors of its device.
    device: Vec<i32>,
}

impl Divided {
    fn new(exchange: Exchange) -> Self {
        Self {
            used: (0..exchange.queues()).map(|_| None).collect(),
            exchange: Arc::new(exchange),
            own: 0,
            looks: Looks::default(),
        }
    }

    /// A queue of interface `number` is this process's from now on.
    fn use_queue(&mut self, number: u64, queue: u32, opened: &Opened) -> kernel::Result<()> {
        let again = opened.again()?;
        let descriptors = again.descriptors();
        descriptors.iter().for_each(|fd| table::hide(*fd));
        if let Ok(mut used) = USED.lock() {
            used.extend(descriptors.iter().map(|fd| (number, *fd)));
        }
        let mut device = opened.descriptors();
        // Closed as soon as it is mapped.
        device.retain(|fd| *fd != opened.memory());
        self.used[queue as usize] = Some(InUse {
            opened: again,
            device,
        });
        self.own |= 1 << queue;
        Ok(())
    }

    /// A queue is not this process's any more: as it was opened.
    fn leave_queue(&mut self, queue: u32) -> Option<Opened> {
        self.own &= !(1 << queue);
        self.used[queue as usize].take().map(|used| used.opened)
    }

    /// How many queues this process should give back to one that has none.
    fn surplus(&self, owners: u32) -> u32 {
        let since_ns = now_ns().saturating_sub(self.exchange.sought_ns());
        let share = (self.exchange.queues() / (owners + 1)).max(1);
        match since_ns < SOUGHT_NS {
            true => self.own.count_ones().saturating_sub(share),
            false => 0,
        }
    }
}

impl Interface {
    fn descriptors(&self) -> impl Iterator<Item = i32> + use<'_> {
        let own = [self.lease.0];
        let divided = self.divided.iter();
        let shared = divided.flat_map(|divided| divided.exchange.descriptors());
        let rendezvous = self.rendezvous.iter().map(|rendezvous| rendezvous.0);
        let all = self.of_queues().chain(self.steering.descriptors());
        all.chain(own).chain(shared).chain(rendezvous)
    }

    /// Those with which queues were opened, but for what an engine has taken of them.
    fn of_queues(&self) -> impl Iterator<Item = i32> + use<'_> {
        let opened = self.opened.iter().flatten();
        let used = self.divided.iter().flat_map(|divided| &divided.used);
        let used = used.flatten().map(|used| &used.opened);
        opened.chain(used).flat_map(Opened::descriptors)
    }
}

enum Known {
    NotOpened,
    Opened(Vec<Interface>),
}

impl Known {
    fn all(&self) -> &[Interface] {
        match self {
            Self::Opened(all) => all,
            Self::NotOpened => &[],
        }
    }
}

/// A process that needs a queue repeats its request within this time.
const SOUGHT_NS: u64 = 500_000_000;

static INTERFACES: Mutex<Known> = Mutex::new(Known::NotOpened);

/// The steering of each interface that was opened, whether an engine of this process uses it or not.
static STEERINGS: Mutex<Vec<(u32, Weak<Steering>)>> = Mutex::new(Vec::new());

/// An interface that was opened.
struct Named {
    number: u64,
    link: u32,
    name: String,
}

/// All of them, until they are gone.
static NAMES: Mutex<Vec<Named>> = Mutex::new(Vec::new());

/// Descriptors of the interfaces that this process uses, with the number of each; 0: its engine reports the close.
static USED: Mutex<Vec<(u64, i32)>> = Mutex::new(Vec::new());

/// A descriptor that an engine opens, or is about to close.
fn note(fd: i32, is_open: bool) {
    let Ok(mut used) = USED.lock() else {
        return;
    };
    if is_open {
        table::hide(fd);
        used.push((0, fd));
    } else {
        used.retain(|(_, one)| *one != fd);
        table::show(fd);
    }
}

/// The engine of an interface is about to be freed, and to close what it uses.
pub fn close(number: u64) {
    let Ok(mut used) = USED.lock() else {
        return;
    };
    used.retain(|(of, fd)| {
        if *of == number {
            table::show(*fd);
        }
        *of != number
    });
}

/// An interface is gone: it is not taken any more, and its engine, if there is one, keeps only what it uses.
fn abandon(number: u64) {
    let taken = INTERFACES.lock().ok().and_then(|mut known| {
        let Known::Opened(all) = &mut *known else {
            return None;
        };
        let at = all.iter().position(|one| one.number == number)?;
        Some(all.swap_remove(at))
    });
    let Some(mut interface) = taken else {
        return;
    };
    if let Some(rendezvous) = interface.rendezvous.take() {
        let fd = rendezvous.into_raw();
        if service::remove(fd).is_none() {
            service::close(fd);
        }
    }
    let has_engine = interface.divided.as_ref().is_some_and(|one| one.own != 0);
    let unused: Vec<i32> = match has_engine {
        true => interface.of_queues().collect(),
        false => interface.descriptors().collect(),
    };
    unused.into_iter().for_each(forget_used);
}

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    let known = INTERFACES.lock().ok();
    if let Some(Known::Opened(all)) = known.as_deref() {
        // From now on there may be somebody to leave queues to.
        let divided = all.iter().filter_map(|one| one.divided.as_ref());
        divided.for_each(|divided| divided.exchange.note_fork());
    }
    (
        known,
        (STEERINGS.lock().ok(), USED.lock().ok()),
        (NAMES.lock().ok(), returning::hold()),
        NETWORK.lock().ok(),
        passing::hold(),
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
    if let Ok(Known::Opened(all)) = INTERFACES.lock().as_deref_mut() {
        let is_used = |one: &Interface| one.divided.as_ref().is_some_and(|one| one.own != 0);
        let (used, others) = std::mem::take(all).into_iter().partition(is_used);
        *all = others;
        let used: Vec<Interface> = used;
        if let Ok(mut steerings) = STEERINGS.lock() {
            steerings.retain(|(link, _)| others_have(all, *link));
        }
        // Not dropped: their descriptors are among the ones that are closed here.
        used.into_iter().for_each(std::mem::forget);
    }
    let used = USED.lock().map(|mut used| std::mem::take(&mut *used));
    for (_, fd) in used.unwrap_or_default() {
        table::show(fd);
        let _ = kernel::close(fd);
    }
}

fn others_have(interfaces: &[Interface], link: u32) -> bool {
    interfaces.iter().any(|one| one.link == link)
}

/// Opens every interface that was named, once, and prints on standard error the names of interfaces that do not open.
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
        match room.and_then(|()| open_one(name)) {
            Ok(interface) => opened.push(interface),
            Err(why) => {
                process::fall_back(Reason::Interface);
                opening::say(
                    name,
                    &format!("{why}; connections there stay on the kernel"),
                );
            }
        }
    }
    *known = Known::Opened(opened);
    drop(known);
    cluster::meet();
}

/// IPsec policies have begun to apply to new connections over an interface that is in use, or have ceased.
pub fn say_policies(number: u64, apply: bool) {
    let known = NAMES.lock();
    let named = known.iter().flat_map(|names| names.iter());
    let named = named.filter(|one| one.number == number);
    let what = match apply {
        true => "IPsec policies have changed; new connections there go to the kernel",
        false => "no IPsec policy applies any more; new connections there are accelerated",
    };
    for one in named {
        opening::say(&one.name, what);
        process::fall_back(Reason::Interface);
    }
}

fn open_one(name: &str) -> Result<Interface, String> {
    let interface = passing::inherited(name).map_or_else(|| cluster::open(name), Ok)?;
    if let Ok(mut steerings) = STEERINGS.lock() {
        steerings.push((interface.link, Arc::downgrade(&interface.steering)));
    }
    if let Ok(mut names) = NAMES.lock() {
        names.push(Named {
            number: interface.number,
            link: interface.link,
            name: name.to_owned(),
        });
    }
    Ok(interface)
}

/// Permits the ports of listeners and the addresses of the interfaces, whichever process of the program accepts there:
/// while there is the privilege.
pub fn permit(ports: &[u16]) {
    let Ok(mut all) = STEERINGS.lock() else {
        return;
    };
    all.retain(|(_, one)| one.upgrade().is_some());
    let tables = match all.is_empty() {
        true => None,
        false => Tables::new().ok(),
    };
    let addresses = tables.as_ref().map_or(&[][..], Tables::addresses);
    for (_, steering) in &*all {
        let Some(steering) = steering.upgrade() else {
            continue;
        };
        let is_named =
            |one: &&bypass_netlink::Address| all.iter().any(|(link, _)| *link == one.link);
        for one in addresses.iter().filter(is_named) {
            steering.permit_address(one.ip);
        }
        for port in ports {
            steering.permit(Transport::Tcp, *port);
        }
    }
}

/// Privileges are gone: what may not be had without them is closed.
pub fn give_up_privileges() {
    let Ok(all) = STEERINGS.lock() else {
        return;
    };
    for steering in all.iter().filter_map(|(_, one)| one.upgrade()) {
        for fd in steering.give_up_privileges() {
            forget_used(fd.0);
        }
    }
}

/// The result of a look for free interfaces and queues.
#[derive(Default)]
pub struct Taken {
    /// New engines.
    pub engines: Vec<Relay>,
    /// Further queues, with the numbers of their interfaces, for engines that are there.
    pub queues: Vec<(u64, u32, Opened)>,
    /// Queues, with the numbers of their interfaces, that are to be given back.
    pub surplus: Vec<(u64, u32)>,
    /// Numbers of interfaces that were gone before there was an engine.
    pub gone: Vec<u64>,
    /// Other processes use an interface on which this one has no engine.
    pub is_waiting: bool,
    /// There are queues that may become free.
    pub is_looking: bool,
    /// Some are.
    pub has_free: bool,
    /// Other processes that have some.
    pub holders: Vec<i32>,
}

/// What this process wants interfaces for.
pub struct Wants {
    /// It accepts at a listener.
    pub connections: bool,
    /// It needs an engine for what it opens or sends.
    pub engine: bool,
}

impl Wants {
    /// Not so an old worker that has closed its listeners and lives as long as its last connections do: what it took would
    /// be of no use to it, and the frames that wait there are for who accepts.
    fn any(&self) -> bool {
        self.connections || self.engine
    }
}

/// Takes the interfaces that no other process uses and, of divided interfaces, the queues that this process is to
/// take.
pub fn take(wants: &Wants) -> Taken {
    let mut taken = Taken::default();
    let Ok(mut known) = INTERFACES.lock() else {
        return taken;
    };
    let Known::Opened(all) = &mut *known else {
        return taken;
    };
    for mut interface in std::mem::take(all) {
        let is_alone = interface.divided.as_ref().is_none_or(is_alone);
        if !is_alone {
            take_queues(&mut interface, wants, &mut taken);
            all.push(interface);
            continue;
        }
        if !wants.any() {
            all.push(interface);
            continue;
        }
        if lock_file(interface.lease.0).is_err() {
            // Connections reach this process through the listeners that it shares with the other one.
            taken.has_free = true;
            all.push(interface);
            continue;
        }
        let (number, steering) = (interface.number, interface.steering.clone());
        match over_all(interface) {
            Ok(relay) => taken.engines.push(relay),
            Err(libc::ENODEV) => taken.gone.push(number),
            Err(_) => {
                // No process would read what a former process had claimed: the kernel handles it again.
                steering.keep_only(Transport::Tcp, &[]);
                steering.keep_only(Transport::Udp, &[]);
                process::fall_back(Reason::Interface);
            }
        }
    }
    let has_engine = |one: &Interface| one.divided.as_ref().is_some_and(|divided| divided.own != 0);
    taken.is_waiting = !all.iter().all(has_engine);
    // Also who has all queues: somebody may come who has none.
    taken.is_looking = !all.is_empty();
    taken
}

/// No other process can have any of its queues, now or later.
fn is_alone(divided: &Divided) -> bool {
    divided.own == 0 && !divided.exchange.has_forked()
}

/// Takes queues of an interface that others may use too.
fn take_queues(interface: &mut Interface, wants: &Wants, taken: &mut Taken) {
    let divided = interface.divided.as_mut();
    let Some(divided) = divided.filter(|divided| divided.own != 0 || wants.any()) else {
        return;
    };
    let lease = interface.lease.0;
    let count = divided.exchange.queues();
    let is_own = |queue: u32, own: u64| own & 1 << queue != 0;
    let (mut free, mut owners) = (Vec::new(), vec![]);
    for queue in 0..count {
        let owner = divided.exchange.owner(queue);
        let holder = part_holder(lease, queue);
        taken.holders.extend(holder);
        taken.has_free |= holder.is_none() && !is_own(queue, divided.own);
        if is_own(queue, divided.own) || holder.is_some() {
            owners.extend(owner);
        } else if interface.opened[queue as usize].is_some() {
            let is_new = owner.is_none();
            free.push(Free { queue, is_new });
        }
    }
    owners.sort_unstable();
    owners.dedup();
    let members = process::settings().cluster_size;
    let around = Around {
        queues: count,
        members: u32::try_from(members).unwrap_or(u32::MAX),
        owners: owners.len() as u32,
        own: divided.own.count_ones(),
        listens: wants.connections,
        wants: wants.any(),
    };
    let had_none = divided.own == 0;
    let (chosen, most) = divided.looks.choose(&free, &around);
    if chosen.is_empty() && divided.own != 0 {
        let home = divided.exchange.owner(divided.own.trailing_zeros());
        let others = (0..count).filter(|queue| is_own(*queue, divided.own) && Some(*queue) != home);
        let surplus = others.take(divided.surplus(around.owners) as usize);
        taken
            .surplus
            .extend(surplus.map(|queue| (interface.number, queue)));
        return;
    }
    let locked = chosen.into_iter();
    let locked = locked.filter(|queue| lock_part(lease, *queue).is_ok());
    let locked: Vec<u32> = locked.take(most).collect();
    let mut locked = locked.into_iter();
    if had_none {
        for home in locked.by_ref() {
            match over_queue(interface, home) {
                Ok(relay) => {
                    taken.engines.push(relay);
                    break;
                }
                Err(libc::ENODEV) => {
                    put_back(interface, home);
                    taken.gone.push(interface.number);
                    return;
                }
                Err(_) => {
                    // No process would read what a former process had claimed there.
                    let steering = interface.steering.of_queue(home);
                    steering.keep_only(Transport::Tcp, &[]);
                    steering.keep_only(Transport::Udp, &[]);
                    put_back(interface, home);
                    process::fall_back(Reason::Interface);
                }
            }
        }
        let has_engine = |relay: &Relay| relay.number == interface.number;
        let has_one = taken.engines.iter().any(has_engine);
        if let Some(divided) = &interface.divided {
            match has_one {
                true => divided.exchange.found(),
                false => divided.exchange.seek(now_ns()),
            }
        }
        if !has_one {
            return;
        }
    }
    for queue in locked {
        hand_out(interface, queue, taken);
    }
}

/// A queue that this process is to use no longer, or cannot: another may take it, or this one again.
pub fn give_back(number: u64, queue: u32) {
    with_divided(number, |interface| put_back(interface, queue));
}

fn put_back(interface: &mut Interface, queue: u32) {
    let left = interface
        .divided
        .as_mut()
        .and_then(|divided| divided.leave_queue(queue));
    if left.is_some() {
        interface.opened[queue as usize] = left;
    }
    unlock_part(interface.lease.0, queue);
}

/// The device of a queue is about to be closed.
pub fn forget_device(number: u64, queue: u32) {
    with_divided(number, |interface| {
        let divided = interface.divided.iter_mut();
        let used = divided.flat_map(|divided| divided.used[queue as usize].as_mut());
        let fds = used.flat_map(|used| std::mem::take(&mut used.device));
        fds.for_each(forget_used);
    });
}

fn with_divided(number: u64, act: impl FnOnce(&mut Interface)) {
    let Ok(mut known) = INTERFACES.lock() else {
        return;
    };
    let Known::Opened(all) = &mut *known else {
        return;
    };
    let mut all = all.iter_mut();
    let Some(interface) = all.find(|one| one.number == number) else {
        return;
    };
    if interface.divided.is_some() {
        act(interface);
    }
}

/// Another queue for the engine that this process has.
fn hand_out(interface: &mut Interface, queue: u32, taken: &mut Taken) {
    let (Some(opened), Some(divided)) = (
        interface.opened[queue as usize].take(),
        &mut interface.divided,
    ) else {
        return;
    };
    match divided.use_queue(interface.number, queue, &opened) {
        Ok(()) => taken.queues.push((interface.number, queue, opened)),
        Err(_) => {
            interface.opened[queue as usize] = Some(opened);
            put_back(interface, queue);
        }
    }
}

/// An engine on all queues.
fn over_all(mut interface: Interface) -> kernel::Result<Relay> {
    // Nobody is there to exchange frames with.
    if let Some(divided) = interface.divided.take() {
        divided.exchange.descriptors().for_each(table::show);
    }
    let used: Vec<i32> = interface.descriptors().collect();
    let (number, link) = (interface.number, interface.link);
    let opened = interface.opened.into_iter().flatten().collect();
    let device = Box::new(Shown(queues::over(opened)?));
    let settings = settings(interface.secret);
    let shard = Shard::over(interface.steering, link, device, settings)?;
    note_used(&shard, number, used);
    Relay::new(shard, interface.lease, (number, link), false)
}

/// An engine on one queue, with which others of this interface may follow.
fn over_queue(interface: &mut Interface, home: u32) -> kernel::Result<Relay> {
    let mut used: Vec<i32> = interface.descriptors().collect();
    let divided = interface.divided.as_mut().ok_or(libc::EINVAL)?;
    let place = &mut interface.opened[home as usize];
    let opened = place.take().ok_or(libc::EINVAL)?;
    let number = interface.number;
    if let Err(error) = divided.use_queue(number, home, &opened) {
        *place = Some(opened);
        return Err(error);
    }
    let first = match Xdp::over(opened) {
        Ok(first) => first,
        // What it was opened with is put back, with descriptors of its own.
        Err((error, _)) => return Err(error),
    };
    let crossing = Crossing::new(divided.exchange.clone(), home)?;
    used.push(crossing.poll_fd());
    table::hide(crossing.poll_fd());
    let device = queues::among(first, crossing.poll_fd())?;
    let steering = Arc::new(interface.steering.of_queue(home));
    let mut shard = Shard::over(
        steering,
        interface.link,
        Box::new(Shown(device)),
        settings(interface.secret),
    )?;
    shard.crosses(crossing);
    note_used(&shard, number, used);
    Relay::new(
        shard,
        interface.lease.clone(),
        (number, interface.link),
        true,
    )
}

/// How long an acknowledgment waits for an answer that may carry it while the program has something to do in each of
/// its rounds: a client that opens a connection waits twice before its request, with others to look after meanwhile.
const ANSWER_WAIT_US: u64 = 1000;

/// The interfaces that are open.
pub fn links() -> Vec<u32> {
    let names = NAMES.lock();
    let open = names.iter().flat_map(|names| names.iter());
    open.map(|one| one.link).collect()
}

fn settings(secret: Secret) -> bypass_shard::Settings {
    let mut host = engine::of_host();
    host.secret = secret;
    let connections = process::settings().max_endpoints.saturating_add(LATE_MAX);
    host.connections_max = u32::try_from(connections).unwrap_or(u32::MAX);
    // Between two rounds, in which whoever waits drives the engine.
    host.answers_follow = true;
    host.answer_wait_us = ANSWER_WAIT_US;
    bypass_shard::Settings {
        beside: links(),
        accept_from: process::settings().accept_from.clone(),
        notice: note,
        receiver: datagrams::deliver,
        ..engine::settings(host, &process::settings().tcp)
    }
}

/// A descriptor is closed: its number may be another's.
pub fn forget_used(fd: i32) {
    note(fd, false);
}

/// Everything of interface `number` that a forked child must close: `opened`, and what its engine has made.
fn note_used(shard: &Shard, number: u64, opened: Vec<i32>) {
    let polled = shard.poll_fds().into_iter().flatten();
    let own: Vec<i32> = polled.filter(|fd| !opened.contains(fd)).collect();
    own.iter().for_each(|fd| table::hide(*fd));
    if let Ok(mut used) = USED.lock() {
        // Devices have closed some, and some were noted before.
        let is_new = |fd: &i32| used.iter().all(|(_, known)| known != fd);
        let is_open = |fd: &i32| kernel::fcntl(*fd, libc::F_GETFD, 0).is_ok();
        let all = opened.into_iter().filter(is_open).chain(own);
        let new: Vec<i32> = all.filter(is_new).collect();
        used.extend(new.into_iter().map(|fd| (number, fd)));
    }
}

/// The kernel's view of the network, for connections that may not be accelerated, and when it was last read.
static NETWORK: Mutex<Option<(Tables, u64)>> = Mutex::new(None);
/// The view may be this old, like the one that engines follow.
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
