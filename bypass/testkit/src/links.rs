//! Links other than a veth pair: interfaces above others, and a host that forwards frames between
//! two.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, network};

use crate::{skip, Namespace};

// linux/if_tun.h.
const TUNSETIFF: u64 = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NAPI: u16 = 0x0010;
const IFF_NO_PI: u16 = 0x1000;
const FRAME_MAX: usize = 65_549;

/// An interface above another one of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// A macvlan in bridge mode.
    Macvlan,
    /// A bridge, of which the lower interface is a port.
    Bridge,
    /// A VLAN, of which the other end must be one too.
    Vlan,
    /// An active-backup bond, of which the lower interface is the only member.
    Bond,
}

impl Upper {
    /// Creates it, and brings both up; the lower one keeps no address. Skips the test if this
    /// kernel does not support the kind.
    pub fn make(self, side: &Namespace, lower: &str, name: &str) {
        let make = match self {
            Self::Macvlan => format!("link add {name} link {lower} type macvlan mode bridge"),
            Self::Bridge => format!("link add {name} type bridge"),
            Self::Vlan => format!("link add {name} link {lower} type vlan id 7"),
            Self::Bond => format!("link add {name} type bond mode active-backup miimon 100"),
        };
        if side.may("ip", &make).is_none() {
            skip(format!("this kernel has no {self:?}"));
        }
        if matches!(self, Self::Bridge | Self::Bond) {
            side.ip(&format!("link set {lower} down"));
            side.ip(&format!("link set {lower} master {name}"));
        }
        // Otherwise both answer ARP for the address of one of them, and frames arrive at either.
        side.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1"))
            .expect("own namespace");
        side.ip(&format!("link set {lower} up"));
        side.ip(&format!("link set {name} up"));
    }
}

/// A TAP interface of a namespace; this process is its other end.
pub struct Tap(Owned);

impl Tap {
    /// Creates interface `name`, up. With `merges` the kernel's software GRO merges frames sent
    /// through it, as on a card without LRO. Skips the test if it may not create one.
    pub fn new(side: &Namespace, name: &str, merges: bool) -> Self {
        let made = side.run(|| -> kernel::Result<Owned> {
            let fd = Owned(kernel::open(
                c"/dev/net/tun",
                libc::O_RDWR | libc::O_NONBLOCK,
            )?);
            let mut request = [0u8; 40];
            request[..name.len()].copy_from_slice(name.as_bytes());
            let flags = IFF_TAP | IFF_NO_PI | if merges { IFF_NAPI } else { 0 };
            request[16..18].copy_from_slice(&flags.to_ne_bytes());
            network::ioctl(fd.0, TUNSETIFF, &mut request)?;
            Ok(fd)
        });
        let fd = made.unwrap_or_else(|error| skip(format!("no TAP interface (error {error})")));
        side.ip(&format!("link set {name} up"));
        Self(fd)
    }

    fn take(&self, frame: &mut [u8]) -> Option<usize> {
        kernel::read(self.0 .0, frame).ok()
    }
}

/// Forwards frames between two TAP interfaces until it is dropped, as a switch or a tunnel does.
pub struct Hop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hop {
    /// Passes each frame, from either side, to `change` with its number first.
    pub fn new(ends: [Tap; 2], mut change: impl FnMut(usize, &mut [u8]) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let forward = move || {
            let mut frame = vec![0; FRAME_MAX];
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let mut polled = [0, 1].map(|end: usize| libc::pollfd {
                    fd: ends[end].0 .0,
                    events: libc::POLLIN,
                    revents: 0,
                });
                let _ = kernel::poll(&mut polled, Some(Duration::from_millis(50)), None);
                for (from, to) in [(0, 1), (1, 0)] {
                    while let Some(length) = ends[from].take(&mut frame) {
                        change(number, &mut frame[..length]);
                        number += 1;
                        let _ = kernel::write(ends[to].0 .0, &frame[..length]);
                    }
                }
            }
        };
        let thread = Some(std::thread::spawn(forward));
        Self { stop, thread }
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
