//! Scripted dialogues through packetdrill's table, as its runner makes them: calls, packets in both
//! directions and virtual time.

mod support;

use bypass_packetdrill::Interface;
use support::*;

#[test]
fn the_table_has_every_function_in_its_place() {
    assert_eq!(size_of::<Interface>(), 33 * size_of::<usize>());
    assert_eq!(
        core::mem::offset_of!(Interface, getsockopt),
        21 * size_of::<usize>()
    );
    assert_eq!(
        core::mem::offset_of!(Interface, netdev_receive),
        25 * size_of::<usize>()
    );
}

#[test]
fn a_packet_that_never_leaves_ends_the_script_instead_of_hanging_it() {
    let runner = Runner::new();
    runner.accepted();
    let (packet, _) = runner.next_packet();
    assert_eq!(packet, [], "nothing was to be sent, and no timer runs");
    runner.end();
}

#[test]
fn a_server_answers_and_retransmits_in_virtual_time() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    runner.arrives(ACK | PUSH, 1, first, &[], b"GET /");
    let acknowledged = runner.leaves();
    assert_eq!((acknowledged.ack, acknowledged.payload.len()), (6, 0));
    assert_eq!(runner.read(fd), b"GET /");
    assert_eq!(runner.send(fd, &[b'x'; 1500], 0), 1500);
    // One GSO packet, not segmented here.
    let packet = runner.leaves();
    assert_eq!((packet.seq, packet.payload.len()), (first, 1500));
    // Without an acknowledgment: a tail loss probe of the last segment, two round trips later (RFC
    // 8985, 7.2).
    let before = runner.clock();
    let probe = runner.leaves();
    assert_eq!(
        (probe.seq, probe.payload.len()),
        (first.wrapping_add(1000), 500)
    );
    assert!(
        (15_000..=60_000).contains(&(probe.at_us - before)),
        "{}",
        probe.at_us - before
    );
    // Then the first, when the retransmission timeout of at least 200 ms is over.
    let again = runner.leaves();
    assert_eq!((again.seq, again.payload.len()), (first, 1000));
    assert!(
        (again.at_us - probe.at_us) >= 150_000,
        "{}",
        again.at_us - probe.at_us
    );
    runner.end();
}

#[test]
fn a_script_does_the_same_at_every_run() {
    let play = || {
        let runner = Runner::new();
        let (fd, first) = runner.accepted();
        runner.send(fd, &[7; 3000], 0);
        let left: Vec<Left> = (0..6).map(|_| runner.leaves()).collect();
        runner.arrives(ACK, 1, first.wrapping_add(3000), &[], b"");
        let clock = runner.clock();
        runner.end();
        (left, clock)
    };
    assert_eq!(play(), play());
}

#[test]
fn calls_that_block_end_when_the_packet_comes() {
    let runner = Runner::new();
    let listener = runner.listener();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let fd = runner.accept(listener);
            (fd, runner.clock())
        });
        // Until it waits, as far as another thread can see; a later call does not wait at all.
        std::thread::sleep(std::time::Duration::from_millis(50));
        runner.sleep(100_000);
        runner.arrives(SYN, 0, 0, OPTIONS, b"");
        let answer = runner.leaves();
        runner.sleep(20_000);
        let before = runner.clock();
        runner.arrives(ACK, 1, answer.seq.wrapping_add(1), &[], b"");
        let (fd, ended) = accepting.join().expect("accepted");
        assert!(fd >= 0);
        assert!(
            (before..before + 100).contains(&ended),
            "{}",
            ended - before
        );
    });
    runner.end();
}

#[test]
fn a_client_connects_without_blocking_and_closes() {
    let runner = Runner::new();
    let fd = runner.socket(libc::SOCK_NONBLOCK);
    let to = address(REMOTE, REMOTE_PORT);
    let length = size_of_val(&to) as u32;
    let connect = || {
        // SAFETY: the address is one.
        let done =
            unsafe { (runner.0.connect)(runner.0.userdata, fd, (&raw const to).cast(), length) };
        let error = std::io::Error::last_os_error().raw_os_error();
        (done, if done == 0 { None } else { error })
    };
    assert_eq!(connect(), (-1, Some(libc::EINPROGRESS)));
    assert_eq!(connect(), (-1, Some(libc::EALREADY)));
    let syn = runner.leaves();
    assert_eq!(syn.flags, SYN);
    // The SYN is sent again after a second (RFC 6298, 2.1).
    let again = runner.leaves();
    assert_eq!((again.flags, again.seq), (SYN, syn.seq));
    assert!((again.at_us - syn.at_us - 1_000_000).abs() < 20_000);
    runner.end();
}

#[test]
fn options_and_information_are_reported() {
    let runner = Runner::new();
    let (fd, first) = runner.accepted();
    let info: [u8; 232] = runner.option(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().expect("four"));
    assert_eq!(info[0], 1, "ESTABLISHED");
    assert_eq!(
        (word(16), word(80)),
        (1000, 10),
        "segment size and congestion window"
    );
    let name: [u8; 16] = runner.option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    assert_eq!(&name[..6], b"cubic\0");
    let error: [u8; 4] = runner.option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    assert_eq!(error, [0; 4]);
    // MSG_MORE keeps a small segment back until the rest is there.
    assert_eq!(runner.send(fd, b"head", libc::MSG_MORE), 4);
    assert_eq!(runner.send(fd, b"body", 0), 4);
    let left = runner.leaves();
    assert_eq!((left.seq, &left.payload[..]), (first, &b"headbody"[..]));
    runner.arrives(ACK, 1, first.wrapping_add(8), &[], b"");
    // SAFETY: a descriptor of this table.
    assert_eq!(unsafe { (runner.0.close)(runner.0.userdata, fd) }, 0);
    let end = runner.leaves();
    assert_eq!((end.flags & FIN, end.seq), (FIN, first.wrapping_add(8)));
    runner.end();
}

#[test]
fn the_clock_moves_when_it_is_read() {
    let runner = Runner::new();
    let times: Vec<i64> = (0..100).map(|_| runner.clock()).collect();
    assert!(times.windows(2).all(|two| two[1] > two[0]));
    let before = runner.clock();
    runner.sleep(5_000);
    assert!((5_000..5_010).contains(&(runner.clock() - before)));
    runner.end();
}
