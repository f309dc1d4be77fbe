//! Numbers that accelerated clients say as their local ports. No port of the kernel's is behind them, so what
//! keeps two living connections from the same number is here: a process takes them in blocks, each of
//! which it holds by an abstract Unix name. Those belong to a network namespace, as ports do, and are
//! free when their process ends.
//!
//! Odd numbers of the kernel's default range, of which connect(2) itself takes even ones.

use std::collections::VecDeque;
use std::sync::Mutex;

use bypass_sys::descriptor::Owned;
use bypass_sys::waker::Name;
use bypass_sys::{kernel, numbers};

use super::table;

const FIRST: u16 = 32_769;
/// Numbers of a block.
const BLOCK: usize = 64;
/// Blocks of a network namespace.
const BLOCKS: usize = 218;
/// Blocks that are tried before a process does without.
const TRIES: usize = 32;
/// Connections after which one that does without tries again.
const RETRY: usize = 256;

struct Ports {
    /// Longest unused first.
    free: VecDeque<u16>,
    names: Vec<Owned>,
    /// Next port number when the process has no block of its own, so that ports are not unique across processes.
    next: usize,
    /// Connections until a block is asked for again.
    rest: usize,
}

static PORTS: Mutex<Ports> = Mutex::new(Ports {
    free: VecDeque::new(),
    names: Vec::new(),
    next: 0,
    rest: 0,
});

/// A number that no other living connection says; whether it is to be [given back](give_back) afterwards.
/// Without a block to be had it is any number. Processes begin at different places, by their number `process`.
pub fn take(process: u64) -> (u16, bool) {
    let Ok(mut ports) = PORTS.lock() else {
        return (FIRST, false);
    };
    if ports.free.is_empty() {
        ports.take_block(process as usize);
    }
    match ports.free.pop_front() {
        Some(port) => (port, true),
        None => (ports.any(process as usize), false),
    }
}

/// The connection that said `port` is over at both ends.
pub fn give_back(port: u16) {
    if let Ok(mut ports) = PORTS.lock() {
        ports.free.push_back(port);
    }
}

/// Gives up the descriptors that hold the blocks, where the program would have none left; says how many.
pub fn give_up() -> usize {
    let names = PORTS
        .lock()
        .map(|mut ports| std::mem::take(&mut ports.names));
    let names = names.unwrap_or_default();
    names.iter().for_each(|name| table::show(name.0));
    names.len()
}

/// In a forked child: they are the parent's.
pub fn forget() {
    give_up();
    if let Ok(mut ports) = PORTS.lock() {
        ports.free.clear();
        ports.rest = 0;
    }
}

/// Locks the numbers across a fork.
pub fn hold() -> impl Sized {
    PORTS.lock().ok()
}

fn port_of(place: usize) -> u16 {
    FIRST + 2 * place as u16
}

impl Ports {
    fn any(&mut self, process: usize) -> u16 {
        let start = process % (BLOCKS * BLOCK);
        self.next = self.next.wrapping_add(1);
        port_of(start.wrapping_add(self.next) % (BLOCKS * BLOCK))
    }

    fn take_block(&mut self, process: usize) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        match hold_block(process.wrapping_add(self.names.len())) {
            Some((block, name)) => {
                table::hide(name.0);
                self.names.push(name);
                self.free
                    .extend((block * BLOCK..(block + 1) * BLOCK).map(port_of));
            }
            None => self.rest = RETRY,
        }
    }
}

/// The first free block from `start` on, and the descriptor that holds it.
fn hold_block(start: usize) -> Option<(usize, Owned)> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let name = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0)).ok()?;
    let is_ours =
        |block: &usize| kernel::bind(name.0, Name::of_ports(*block as u64).bytes()).is_ok();
    let mut tried = (0..TRIES).map(|step| start.wrapping_add(step) % BLOCKS);
    let block = tried.find(is_ours)?;
    Some((block, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_again_only_when_it_was_given_back() {
        let (first, is_kept) = take(7);
        assert!(is_kept);
        for _ in 0..20_000 {
            let (port, is_kept) = take(7);
            assert!(is_kept && port != first);
            give_back(port);
        }
        give_back(first);
    }

    #[test]
    fn a_block_is_held_once() {
        let (first, _name) = hold_block(7).expect("a block");
        let (second, _other) = hold_block(first).expect("another");
        assert_ne!(first, second);
    }
}
