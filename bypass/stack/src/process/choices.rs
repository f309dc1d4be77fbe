//! What a program chooses while it runs, for a thread or for all: which waits spin, and whether new sockets are accelerated.
//!
//! The numbers are those of Onload's header of extensions, `onload/extensions.h`.

use core::sync::atomic::{AtomicU32, Ordering};

use bypass_options::Settings;
use bypass_sys::thread::thread;

use super::settings::settings;
use super::spin_clock::bounded;

/// A call that may spin before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Spin {
    /// recv(2) and the like on UDP sockets.
    UdpReceive = 1,
    /// The same on connections.
    TcpReceive = 3,
    /// send(2) and the like on connections.
    TcpSend = 4,
    /// accept(2).
    Accept = 5,
    /// poll(2), and select(2), which is carried out as poll.
    Poll = 9,
    /// epoll_wait(2).
    Epoll = 11,
}

/// Every call, in place of one.
const ALL: u32 = 0;
/// In place of a call: those for which EF_POLL_USEC turns spins on.
const LIKE_POLL_USEC: u32 = 16;
const CALLS: u32 = 17;
/// Marks that the thread has chosen.
const CHOSEN: u32 = 1 << ALL;
const OF_POLL_USEC: u32 = {
    let (udp, tcp) = (1 << 1 | 1 << 2, 1 << 3 | 1 << 4);
    let (select, poll, packets, epoll) = (1 << 8, 1 << 9, 1 << 10, 1 << 11);
    udp | tcp | select | poll | packets | epoll
};

impl Spin {
    const EVERY: [Self; 6] = [
        Self::UdpReceive,
        Self::TcpReceive,
        Self::TcpSend,
        Self::Accept,
        Self::Poll,
        Self::Epoll,
    ];

    fn is_in(self, options: &Settings) -> bool {
        match self {
            Self::UdpReceive => options.udp_recv_spin,
            Self::TcpReceive => options.tcp_recv_spin,
            Self::TcpSend => options.tcp_send_spin,
            Self::Accept => options.tcp_accept_spin,
            Self::Poll => options.poll_spin,
            Self::Epoll => options.epoll_spin,
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// How long the calling thread spins in such a call.
#[inline]
pub fn spin_ns(call: Spin) -> u64 {
    let is_on = match thread().spins.load(Ordering::Relaxed) {
        0 => call.is_in(settings()),
        chosen => chosen & call.bit() != 0,
    };
    if is_on {
        bounded(settings().spin_usec * 1000)
    } else {
        0
    }
}

/// The calls in which the calling thread spins: a bit for each number.
pub fn spins() -> u32 {
    match thread().spins.load(Ordering::Relaxed) {
        0 => by_options(settings()),
        chosen => chosen & !CHOSEN,
    }
}

fn by_options(options: &Settings) -> u32 {
    let on = Spin::EVERY.iter().filter(|call| call.is_in(options));
    on.fold(0, |bits, call| bits | call.bit())
}

/// The calling thread spins, or not, in calls of this number from now on. EINVAL for an unknown number.
pub fn choose_spin(call: u32, is_on: bool) -> Result<(), i32> {
    let bits = match call {
        ALL => ((1 << CALLS) - 1) & !CHOSEN,
        LIKE_POLL_USEC => OF_POLL_USEC,
        call if call < CALLS => 1 << call,
        _ => return Err(libc::EINVAL),
    };
    let now = if is_on {
        spins() | bits
    } else {
        spins() & !bits
    };
    thread().spins.store(now | CHOSEN, Ordering::Relaxed);
    Ok(())
}

/// Bits of a thread's choice of acceleration; without any, it accelerates and follows the process.
/// The choice is the thread's own, and counts before that of the process.
const OWN: u32 = 1;
/// New sockets are left to the kernel.
const OFF: u32 = 2;
const CHOICE: u32 = OWN | OFF;
const CHOICE_BITS: u32 = 2;
/// The last call left the choice as it was: what the thread keeps is the choice of the process.
const UNCHANGED: u32 = 4;

/// The choice for all threads, which has no other bit than [`OFF`].
static OF_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether a new socket of the calling thread is left to the kernel by choice.
pub fn is_left_to_kernel() -> bool {
    let own = thread().acceleration.load(Ordering::Relaxed);
    let chosen = match own & OWN {
        0 => OF_PROCESS.load(Ordering::Relaxed),
        _ => own,
    };
    chosen & OFF != 0
}

/// For the calling thread, or for all threads that have no choice of their own; the caller is one of these then.
pub fn choose_acceleration(is_for_all: bool, is_on: bool) {
    let chosen = if is_on { 0 } else { OFF };
    if is_for_all {
        OF_PROCESS.store(chosen, Ordering::Relaxed);
    }
    let own = if is_for_all { 0 } else { OWN };
    thread().acceleration.store(chosen | own, Ordering::Relaxed);
}

/// The calling thread follows the process, whose choice stays.
pub fn follow_process() {
    let own = thread().acceleration.load(Ordering::Relaxed);
    let now = own & OFF | UNCHANGED;
    thread().acceleration.store(now, Ordering::Relaxed);
}

/// Keeps the calling thread's choice, on top of earlier ones. ENOMEM beyond fifteen.
pub fn keep_acceleration() -> Result<(), i32> {
    let own = thread().acceleration.load(Ordering::Relaxed);
    let choice = match own & UNCHANGED {
        0 => own & CHOICE,
        _ => OF_PROCESS.load(Ordering::Relaxed),
    };
    // A bit marks the end of the choices.
    let kept = thread().acceleration_kept.load(Ordering::Relaxed).max(1);
    if kept.leading_zeros() < CHOICE_BITS {
        return Err(libc::ENOMEM);
    }
    let now = kept << CHOICE_BITS | choice;
    thread().acceleration_kept.store(now, Ordering::Relaxed);
    Ok(())
}

/// Makes the choice again that was kept last. EINVAL without one.
pub fn restore_acceleration() -> Result<(), i32> {
    let kept = thread().acceleration_kept.load(Ordering::Relaxed);
    if kept <= 1 {
        return Err(libc::EINVAL);
    }
    let now = kept >> CHOICE_BITS;
    thread().acceleration_kept.store(now, Ordering::Relaxed);
    choose_acceleration(kept & OWN == 0, kept & OFF == 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Choices are a thread's.
    fn in_a_thread<T: Send + 'static>(work: fn() -> T) -> T {
        std::thread::spawn(work).join().expect("a thread that ends")
    }

    #[test]
    fn a_thread_begins_with_the_options_and_changes_one_call() {
        in_a_thread(|| {
            assert_eq!(spins(), by_options(settings()));
            choose_spin(Spin::Accept as u32, true).expect("known");
            assert_eq!(spins(), by_options(settings()) | Spin::Accept.bit());
            choose_spin(Spin::Accept as u32, false).expect("known");
            assert_eq!(spins(), by_options(settings()) & !Spin::Accept.bit());
            assert_eq!(choose_spin(CALLS, true), Err(libc::EINVAL));
            assert_eq!(in_a_thread(spins), by_options(settings()));
        });
    }

    #[test]
    fn all_calls_and_those_of_poll_usec_have_numbers_of_their_own() {
        in_a_thread(|| {
            choose_spin(ALL, false).expect("known");
            assert_eq!(spins(), 0);
            assert!(Spin::EVERY.iter().all(|call| spin_ns(*call) == 0));
            choose_spin(LIKE_POLL_USEC, true).expect("known");
            assert_eq!(spins() & Spin::Accept.bit(), 0);
            assert_eq!(spins(), OF_POLL_USEC);
            choose_spin(ALL, true).expect("known");
            assert_eq!(spins(), (1 << CALLS) - 2);
        });
    }

    #[test]
    fn options_turn_on_the_calls_that_they_name() {
        let options = Settings {
            udp_recv_spin: true,
            epoll_spin: true,
            ..Settings::default()
        };
        let expected = Spin::UdpReceive.bit() | Spin::Epoll.bit();
        assert_eq!(by_options(&options), expected);
    }

    /// The choice for all threads is one for all tests: each begins with that of the start.
    fn alone<T: Send + 'static>(work: fn() -> T) -> T {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
        in_a_thread(|| choose_acceleration(true, true));
        in_a_thread(work)
    }

    #[test]
    fn a_threads_choice_counts_before_that_for_all() {
        alone(|| {
            choose_acceleration(true, false);
            assert!(is_left_to_kernel() && in_a_thread(is_left_to_kernel));
            choose_acceleration(false, true);
            assert!(!is_left_to_kernel() && in_a_thread(is_left_to_kernel));
        });
    }

    #[test]
    fn a_thread_that_chooses_for_all_has_no_choice_of_its_own_any_more() {
        alone(|| {
            choose_acceleration(false, true);
            choose_acceleration(true, false);
            assert!(is_left_to_kernel());
        });
    }

    #[test]
    fn a_thread_that_follows_the_process_leaves_its_choice() {
        alone(|| {
            choose_acceleration(true, false);
            choose_acceleration(false, true);
            follow_process();
            assert!(is_left_to_kernel() && in_a_thread(is_left_to_kernel));
        });
    }

    #[test]
    fn kept_choices_come_back_in_reverse_and_for_whom_they_were() {
        alone(|| {
            assert_eq!(restore_acceleration(), Err(libc::EINVAL));
            keep_acceleration().expect("room");
            choose_acceleration(true, false);
            choose_acceleration(false, true);
            keep_acceleration().expect("room");
            choose_acceleration(false, false);
            restore_acceleration().expect("one was kept");
            assert!(!is_left_to_kernel() && in_a_thread(is_left_to_kernel));
            restore_acceleration().expect("another was kept");
            assert!(!is_left_to_kernel() && !in_a_thread(is_left_to_kernel));
            assert_eq!(restore_acceleration(), Err(libc::EINVAL));
        });
    }

    #[test]
    fn after_no_change_the_choice_of_the_process_is_kept() {
        alone(|| {
            choose_acceleration(true, false);
            choose_acceleration(false, true);
            follow_process();
            keep_acceleration().expect("room");
            choose_acceleration(true, true);
            restore_acceleration().expect("one was kept");
            assert!(in_a_thread(is_left_to_kernel));
        });
    }

    #[test]
    fn fifteen_choices_are_kept() {
        alone(|| {
            choose_acceleration(false, false);
            (0..15).for_each(|_| keep_acceleration().expect("room"));
            assert_eq!(keep_acceleration(), Err(libc::ENOMEM));
            (0..15).for_each(|_| restore_acceleration().expect("one was kept"));
            assert_eq!(restore_acceleration(), Err(libc::EINVAL));
        });
    }
}
