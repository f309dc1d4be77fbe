//! Programs that were started independently and share the queues of an interface, as the forked children of one program
//! do: EF_CLUSTER_NAME.
//!
//! The first program opens the interface and a rendezvous socket with the cluster's name. Each later program requests
//! there everything that the interface was opened with, the rendezvous socket included, so that any of them can answer
//! as long as one lives.

use std::sync::MutexGuard;

use bypass_shm::link::{self, Message, FDS_MAX, VERSION};
use bypass_sys::waker::Name;

use super::opening::text;
use super::passing::{received, Description};
use super::*;
use crate::service::{self, Role};

/// How long somebody who asks waits for the next word.
const ANSWER_MS: u64 = 2000;
/// Tries to be the first or to find who is: the last program may be about to end.
const TRIES: usize = 20;
const PAUSE: core::time::Duration = core::time::Duration::from_millis(10);

/// Opens an interface, or joins those of the cluster that have.
pub(super) fn open(name: &str) -> Result<Interface, String> {
    let settings = process::settings();
    if settings.cluster_name.is_empty() || settings.cluster_ignore {
        return opening::open(name);
    }
    let tables = Tables::new().map_err(text)?;
    let link = tables.link(name).ok_or("there is no such interface")?.index;
    let place = Name::of_cluster(hash(&settings.cluster_name), link);
    for _ in 0..TRIES {
        match link::open_rendezvous(&place) {
            Ok(rendezvous) => return open_first(name, rendezvous),
            Err(libc::EADDRINUSE) => {}
            Err(error) => return Err(text(error)),
        }
        match join(&place) {
            Ok(interface) => return Ok(interface),
            Err(libc::ECONNREFUSED | libc::EPIPE | libc::ECONNRESET) => std::thread::sleep(PAUSE),
            Err(libc::EACCES) => return Err("its cluster is another user's".to_owned()),
            Err(_) => break,
        }
    }
    Err(format!(
        "the programs of cluster {} do not answer",
        settings.cluster_name
    ))
}

fn open_first(name: &str, rendezvous: Owned) -> Result<Interface, String> {
    let mut interface = opening::open(name)?;
    if let Some(divided) = &interface.divided {
        divided.exchange.note_fork();
        table::hide(rendezvous.0);
        interface.rendezvous = Some(rendezvous);
    }
    Ok(interface)
}

/// Asks who is there.
fn join(place: &Name) -> kernel::Result<Interface> {
    let link = link::connect(place)?;
    // What is run on an interface must come from root or from us.
    let owner = kernel::peer_credentials(link.0)?.uid;
    if owner != 0 && !process::is_own(owner) {
        return Err(libc::EACCES);
    }
    let ask = Message::JoinCluster { version: VERSION };
    let mut said = link::ask(link.0, ask, &[], ANSWER_MS)?;
    let mut descriptors = Vec::new();
    loop {
        let (Message::Interface { left }, fds) = said else {
            return Err(libc::EPROTO);
        };
        descriptors.extend(fds);
        if left == 0 {
            break;
        }
        said = link::receive_within(link.0, ANSWER_MS)?;
    }
    if descriptors.is_empty() {
        return Err(libc::EPROTO);
    }
    let file = descriptors.remove(0);
    let interface = received(&file, descriptors).ok_or(libc::EPROTO)?;
    interface.descriptors().for_each(table::hide);
    Ok(interface)
}

/// Has the service thread, if there is one already, look after the rendezvous sockets.
pub fn meet() {
    if !service::is_running() {
        return;
    }
    for interface in opened().iter().flat_map(|known| known.all()) {
        if let Some(rendezvous) = &interface.rendezvous {
            service::add(rendezvous.0, Role::Cluster(interface.number));
        }
    }
}

/// Gives somebody who has asked at the rendezvous socket of interface `number`, over `asking`, the interface.
pub fn admit(number: u64, asking: i32) {
    let known = opened();
    let mut all = known.iter().flat_map(|known| known.all());
    let Some(interface) = all.find(|one| one.number == number) else {
        return;
    };
    let Some(rendezvous) = &interface.rendezvous else {
        return;
    };
    let Ok(uid) = kernel::peer_credentials(asking).map(|one| one.uid) else {
        return;
    };
    let is_owner = kernel::fstat(rendezvous.0).is_ok_and(|file| file.st_uid == uid);
    if uid != 0 && !is_owner {
        return;
    }
    let mut described = Description::for_unprivileged(uid != 0);
    described.add(interface);
    let Some(file) = described.file() else {
        return;
    };
    let descriptors: Vec<i32> = [file.0].into_iter().chain(described.descriptors).collect();
    let mut left = descriptors.len();
    for some in descriptors.chunks(FDS_MAX) {
        left -= some.len();
        let message = Message::Interface { left: left as u64 };
        if link::send(asking, message, some).is_err() {
            return;
        }
    }
}

fn opened() -> Option<MutexGuard<'static, Known>> {
    INTERFACES.lock().ok()
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
