//! Calls as scripts for Linux make them, each of which once failed or hung a script.

mod support;

use core::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use support::*;

const TCP: c_int = libc::IPPROTO_TCP;
/// linux/tcp.h.
const TCP_INQ: c_int = 36;

/// Reads into one piece, with space for control data; returns the bytes read, and the bytes left.
fn receive_with_inq(runner: &Runner, fd: c_int, length: usize) -> (usize, i32) {
    let (mut bytes, mut control) = (vec![0u8; length], [0u64; 8]);
    let mut piece = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    // SAFETY: all zero is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message and its buffers are as long as it says.
    unsafe {
        let got = (runner.0.recvmsg)(runner.0.userdata, fd, &raw mut message, 0);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null(), "no control data");
        assert_eq!(((*header).cmsg_level, (*header).cmsg_type), (TCP, TCP_INQ));
        let left = libc::CMSG_DATA(header).cast::<i32>().read_unaligned();
        (result(got).expect("bytes"), left)
    }
}

#[test]
fn a_thread_that_has_yet_to_start_its_call_waits_for_its_time() {
    let runner = Runner::new();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = runner.clock() + 100_000;
            runner.sleep((until - runner.clock() - 20) as u32);
            while runner.clock() < until {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "time does not advance"
                );
            }
        });
    });
    runner.end();
}

#[test]
fn a_blocking_write_ends_when_a_third_is_free() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    runner
        .set(
            fd,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            &10_000i32.to_ne_bytes(),
        )
        .expect("set");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (runner.send(fd, &[b'x'; 60_000], 0), runner.clock()));
        // It waits once what finds room has left; until then nothing is to be sent, and no timer runs.
        let begun = Instant::now();
        while runner.next_packet().0.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing leaves");
            std::thread::sleep(Duration::from_millis(1));
        }
        for acked in [10_000, 20_000] {
            runner.sleep(10_000);
            runner.arrives(ACK, 1, first.wrapping_add(acked), &[], b"");
            assert!(!writing.is_finished(), "{acked}");
        }
        runner.sleep(10_000);
        let before = runner.clock();
        runner.arrives(ACK, 1, first.wrapping_add(30_000), &[], b"");
        let (sent, ended) = writing.join().expect("written");
        assert_eq!(sent, 60_000);
        assert!(
            (before..before + 100).contains(&ended),
            "{}",
            ended - before
        );
    });
    runner.end();
}

#[test]
fn unmapped_memory_is_reported() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    runner.arrives(ACK, 1, first, &[], b"something");
    let null = core::ptr::null_mut::<c_void>();
    // SAFETY: invalid memory is what the calls must detect.
    unsafe {
        let written = (runner.0.write)(runner.0.userdata, fd, null, 1000);
        assert_eq!(result(written), Err(libc::EFAULT));
        let got = (runner.0.read)(runner.0.userdata, fd, null, 1000);
        assert_eq!(result(got), Err(libc::EFAULT));
    }
    runner.end();
}

#[test]
fn only_tcp_is_a_protocol_of_streams() {
    let runner = Runner::new();
    // SAFETY: numbers only.
    let socket = |protocol| unsafe {
        let kind = libc::SOCK_STREAM;
        (runner.0.socket)(runner.0.userdata, libc::AF_INET, kind, protocol)
    };
    assert_eq!(
        result(socket(libc::IPPROTO_UDP) as isize),
        Err(libc::EPROTONOSUPPORT)
    );
    assert!(socket(libc::IPPROTO_TCP) >= 0);
    runner.end();
}

#[test]
fn options_without_effect_are_kept_and_those_of_ip_may_have_one_byte() {
    let runner = Runner::new();
    let fd = runner.socket(0);
    for (level, name, value) in [
        (libc::SOL_IP, libc::IP_FREEBIND, &[1, 0, 0, 0][..]),
        (libc::SOL_IP, libc::IP_MTU_DISCOVER, &[1]),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY, &[1, 0, 0, 0]),
    ] {
        assert_eq!(runner.set(fd, level, name, value), Ok(()), "{level} {name}");
        assert_eq!(runner.option::<4>(fd, level, name), [1, 0, 0, 0]);
    }
    assert_eq!(runner.set(fd, libc::SOL_IP, libc::IP_TOS, &[4]), Ok(()));
    assert_eq!(
        runner.set(fd, TCP, libc::TCP_NODELAY, &[1]),
        Err(libc::EINVAL)
    );
    runner.end();
}

#[test]
fn the_segment_size_is_reported_before_the_socket_is_open() {
    let runner = Runner::new();
    let fd = runner.socket(0);
    let size = || i32::from_ne_bytes(runner.option(fd, TCP, libc::TCP_MAXSEG));
    assert_eq!(size(), 536);
    runner
        .set(fd, TCP, libc::TCP_MAXSEG, &1100i32.to_ne_bytes())
        .expect("set");
    assert_eq!(size(), 1100);
    assert_eq!(
        runner.set(fd, TCP, libc::TCP_MAXSEG, &[1, 0, 0, 0]),
        Err(libc::EINVAL)
    );
    runner.end();
}

/// packetdrill reads all three whenever a script looks at a connection, and ends if one is missing
/// or short.
#[test]
fn scripts_can_inspect_every_kind_of_socket() {
    const INFO_BYTES: usize = 280;
    // linux/tcp_states.h: established, listening, closed.
    let kinds: [(fn(&Runner) -> c_int, u8); 3] = [
        (|runner| runner.accepted().0, 1),
        (|runner| runner.listener(), 10),
        (|runner| runner.socket(0), 7),
    ];
    for (open, state) in kinds {
        let runner = Runner::new();
        let fd = open(&runner);
        let info: [u8; INFO_BYTES] = runner.option(fd, TCP, libc::TCP_INFO);
        assert_eq!(info[0], state);
        let memory: [u8; 36] = runner.option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO);
        let received = u32::from_ne_bytes(memory[4..8].try_into().expect("a word"));
        assert_eq!(received, 540_000, "SK_MEMINFO_RCVBUF");
        let error: [u8; 4] = runner.option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
        assert_eq!(error, [0; 4]);
        runner.end();
    }
}

#[test]
fn a_listener_has_nothing_to_read() {
    let runner = Runner::new();
    let fd = runner.listener();
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as it says.
    let got = unsafe { (runner.0.read)(runner.0.userdata, fd, bytes.as_mut_ptr().cast(), 8) };
    assert_eq!(result(got), Err(libc::ENOTCONN));
    // Writing to a socket that is neither is a broken pipe.
    let fresh = runner.socket(0);
    assert_eq!(result(runner.send(fresh, b"bytes", 0)), Err(libc::EPIPE));
    runner.end();
}

#[test]
fn flags_replace_settings_by_sysctl() {
    let flags = c"local=192.168.0.1,quick_acks=0,invalid_pause_ms=0,keep_idle=5,keep_interval=6,keep_count=7";
    let runner = Runner::with(flags);
    let (fd, first) = runner.accepted();
    let number = |name| u32::from_ne_bytes(runner.option(fd, TCP, name));
    let seen = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT].map(number);
    assert_eq!(seen, [5, 6, 7]);
    // Each segment before the window is acknowledged, and one with bytes waits for the delay.
    for _ in 0..2 {
        runner.arrives(ACK, 0, first, &[], &[]);
        assert_eq!(runner.leaves().ack, 1);
    }
    let before_us = runner.clock();
    runner.arrives(ACK, 1, first, &[], b"bytes");
    assert!(runner.leaves().at_us >= before_us + 39_000);
    runner.end();
}

#[test]
fn unread_bytes_are_reported_with_received_bytes() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    runner
        .set(fd, TCP, TCP_INQ, &1i32.to_ne_bytes())
        .expect("set");
    runner.arrives(ACK, 1, first, &[], &[b'x'; 1000]);
    assert_eq!(receive_with_inq(&runner, fd, 400), (400, 600));
    assert_eq!(receive_with_inq(&runner, fd, 600), (600, 0));
    runner.arrives(ACK | FIN, 1001, first, &[], &[b'x'; 10]);
    assert_eq!(
        receive_with_inq(&runner, fd, 10),
        (10, 1),
        "one for the end"
    );
    runner.end();
}

#[test]
fn each_arrival_reports_one_edge() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLET) as u32,
        u64: 7,
    };
    // SAFETY: numbers, and an event.
    let set = unsafe {
        let set = (runner.0.epoll_create)(runner.0.userdata, 1);
        let add = libc::EPOLL_CTL_ADD;
        assert_eq!(
            (runner.0.epoll_ctl)(runner.0.userdata, set, add, fd, &raw mut event),
            0
        );
        set
    };
    let seen = || {
        let mut found = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event fits.
        unsafe { (runner.0.epoll_wait)(runner.0.userdata, set, &raw mut found, 1, 0) }
    };
    assert_eq!(seen(), 0);
    for seq in [1, 101] {
        runner.arrives(ACK, seq, first, &[], &[b'x'; 100]);
        assert_eq!((seen(), seen()), (1, 0), "bytes at {seq}");
    }
    runner.end();
}

#[test]
fn gso_packets_leave_whole_or_segmented() {
    let lengths = |flags| {
        let runner = Runner::with(flags);
        let (fd, _) = runner.accepted();
        assert_eq!(runner.send(fd, &[b'x'; 2000], 0), 2000);
        let first = runner.leaves();
        let seen = (first.payload.len(), first.flags & PUSH != 0);
        runner.end();
        seen
    };
    assert_eq!(lengths(c"local=192.168.0.1"), (2000, true));
    assert_eq!(lengths(c"local=192.168.0.1,cut=1"), (1000, false));
}
