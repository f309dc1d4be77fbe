//! A peer that keeps no rule: the corpora of `fuzz` with fixed mutations, and a thread that writes
//! all over the shared memory while a victim works. Nothing may crash, hang or leave its memory.

#[path = "hostile/script.rs"]
mod script;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bypass_shm::segment::Segment;
use bypass_sys::kernel;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The text, and the same with single bytes replaced, cut, or doubled.
fn mutations(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut all = vec![bytes.to_vec()];
    for _ in 0..count {
        let mut text = bytes.to_vec();
        for _ in 0..1 + dice.next() % 4 {
            let at = dice.next() as usize % text.len().max(1);
            match (dice.next() % 4, text.get_mut(at)) {
                (0, _) => text.truncate(at),
                (1, _) => text.extend_from_slice(&bytes[at.min(bytes.len())..]),
                (_, Some(byte)) => *byte = dice.next() as u8,
                _ => {}
            }
        }
        all.push(text);
    }
    all
}

fn replay(corpus: &str, count: usize, play: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(corpus);
    let mut played = 0;
    for entry in std::fs::read_dir(folder).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        for script in mutations(&bytes, count) {
            play(&script);
            played += 1;
        }
    }
    assert!(played > count, "the corpus is missing");
}

#[test]
fn scripts_of_a_peer_that_writes_anywhere_are_survived() {
    replay("memory", 40, script::play);
}

#[test]
fn greetings_of_any_bytes_and_descriptors_are_refused() {
    replay("greeting", 40, script::greet);
}

#[test]
fn a_peer_that_scribbles_all_the_time_harms_no_process() {
    const ACTS: usize = 60_000;
    let shared = script::Shared::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when the victim panics: then the test fails and does not hang.
        let _end = Ended(&is_over);
        for seed in 1..3 {
            let (shared, is_over) = (&shared, &is_over);
            scope.spawn(move || {
                let mut dice = Dice(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let (region, place) = (dice.next() as u8, dice.next() as u32);
                    // Mostly values that are nearly right: those pass the coarse checks.
                    let value = match dice.next() % 4 {
                        0 => dice.next(),
                        1 => u64::MAX - dice.next() % 5000,
                        _ => dice.next() % 9000,
                    };
                    shared.scribble(region, place, value);
                }
            });
        }
        let mut dice = Dice(99);
        for _ in 0..ACTS {
            let (what, slot) = (dice.next() as u8, dice.next() as usize % 4);
            script::act(&shared.victim, what, slot, dice.next() as usize % 9000);
        }
    });
}

/// Says that it is over when it goes.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn memory_that_could_vanish_is_not_mapped() {
    // Large pages are taken from a pool when they are touched: an empty pool would be SIGBUS.
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"huge".as_ptr(), flags) };
    if fd < 0 {
        // This kernel has none: nothing to be refused.
        return;
    }
    kernel::ftruncate(fd, 2 << 20).expect("a size");
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    kernel::fcntl(fd, libc::F_ADD_SEALS, seals as usize).expect("sealed");
    assert_eq!(
        bypass_sys::memory::Mapping::view(fd).err(),
        Some(libc::EPROTO)
    );
}

#[test]
fn descriptors_that_are_refused_are_closed() {
    const TIMES: usize = 300;
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let lies: [fn() -> i32; 3] = [
        || kernel::memfd_create(c"unsealed").expect("memory"),
        || kernel::open(c"/dev/null", libc::O_RDWR).expect("a device"),
        || kernel::eventfd(0, 0).expect("an eventfd") as i32,
    ];
    let before = open();
    for turn in 0..TIMES {
        assert!(Segment::adopt(lies[turn % lies.len()]()).is_err());
    }
    // Other tests of this process open a few meanwhile.
    assert!(open() < before + TIMES / 2);
}

/// More descriptors than a message of ours has, none, or a caller who goes in the middle: all that
/// came are closed again.
#[test]
fn descriptors_that_were_not_requested_are_closed() {
    const TIMES: usize = 200;
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = open();
    for turn in 0..TIMES {
        // Up to 19 of them, unsealed memory; with each way to go on.
        script::greet(&[6, (turn % 80) as u8, 1, 2, 3]);
    }
    assert!(open() < before + TIMES / 2);
}
