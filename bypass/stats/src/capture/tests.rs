//! A process and its reader in one.

use super::*;
use crate::only::Only;
use crate::{Stats, View};

fn process() -> Only {
    let stats = Only::create("");
    // Some readers stay open: theirs is not a page that later tests look for.
    stats.page().pid.store(u32::MAX, Ordering::Relaxed);
    stats
}

fn view(stats: &Stats) -> View {
    let path = format!("/proc/self/fd/{}", stats.fd());
    let view = View::map(path.as_ref(), true).expect("readable");
    view.expect("a page")
}

fn begin(stats: &Stats) -> Reader {
    Reader::begin(view(stats), Filter::default(), FRAME_MAX).expect("no other reader")
}

fn frames(reader: &mut Reader) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    reader.drain(|captured| match captured.record {
        Record::Frame { bytes, .. } => all.push(bytes),
        other => panic!("{other:?}"),
    });
    all
}

fn shared(stats: &Stats) -> &Shared {
    &stats.page().capture
}

#[test]
fn frames_come_out_as_they_went_in_whatever_their_length() {
    let stats = process();
    let mut reader = begin(&stats);
    let sent: Vec<Vec<u8>> = (0..40).map(|length| vec![length as u8; length]).collect();
    for frame in &sent {
        stats.capture_frame(frame, false);
    }
    assert_eq!(frames(&mut reader), sent);
    assert_eq!(reader.dropped(), 0);
}

#[test]
fn nothing_is_recorded_without_a_reader() {
    let stats = process();
    assert!(!stats.is_captured());
    stats.capture_frame(b"before", false);
    let mut reader = begin(&stats);
    assert!(stats.is_captured());
    assert!(frames(&mut reader).is_empty());
    drop(reader);
    assert!(!stats.is_captured());
    assert!(begin(&stats).dropped() == 0);
}

#[test]
fn a_full_ring_drops_and_counts_and_continues_when_it_is_emptied() {
    let stats = process();
    let mut reader = begin(&stats);
    let frame = vec![7; 60_000];
    for _ in 0..1000 {
        stats.capture_frame(&frame, false);
    }
    let kept = frames(&mut reader);
    assert_eq!(kept.len() as u64 + reader.dropped(), 1000);
    assert!(kept.len() > 100 && reader.dropped() > 100);
    assert!(kept.iter().all(|one| *one == frame));
    // Around the end of the ring, often.
    for _ in 0..500 {
        stats.capture_frame(&frame, false);
        assert_eq!(frames(&mut reader), std::slice::from_ref(&frame));
    }
}

#[test]
fn threads_append_concurrently_and_no_record_is_torn() {
    const EACH: usize = 3000;
    let stats = process();
    let mut reader = begin(&stats);
    let mut seen = [0usize; 4];
    std::thread::scope(|scope| {
        for number in 0..seen.len() {
            let stats = &stats;
            scope.spawn(move || {
                for _ in 0..EACH {
                    stats.capture_frame(&vec![number as u8; 90 + number], false);
                }
            });
        }
        while seen.iter().sum::<usize>() + (reader.dropped() as usize) < 4 * EACH {
            for frame in frames(&mut reader) {
                let number = usize::from(frame[0]);
                assert_eq!(frame, vec![number as u8; 90 + number]);
                seen[number] += 1;
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn one_reader_at_a_time_and_one_that_is_silent_is_replaced() {
    let stats = process();
    let first = begin(&stats);
    let second = Reader::begin(view(&stats), Filter::default(), FRAME_MAX);
    assert_eq!(second.err(), Some(std::process::id()));
    shared(&stats).heard_ns.store(0, Ordering::Relaxed);
    let second = Reader::begin(view(&stats), Filter::default(), FRAME_MAX);
    assert!(second.is_ok());
    core::mem::forget(first);
}

#[test]
fn a_reader_that_was_killed_is_noticed_when_the_ring_is_full() {
    let stats = process();
    core::mem::forget(begin(&stats));
    shared(&stats).heard_ns.store(0, Ordering::Relaxed);
    let frame = vec![7; 60_000];
    while stats.is_captured() {
        stats.capture_frame(&frame, false);
    }
}

#[test]
fn a_record_that_is_never_completed_costs_no_more_than_what_is_behind_it() {
    let stats = process();
    let mut reader = begin(&stats);
    shared(&stats).reserve(10).expect("room");
    stats.capture_frame(b"behind", false);
    assert!(frames(&mut reader).is_empty());
    reader.stuck = reader
        .stuck
        .map(|(at, since_ns)| (at, since_ns - STUCK_NS - 1));
    assert!(frames(&mut reader).is_empty());
    assert_eq!(reader.dropped(), 1);
    stats.capture_frame(b"after", false);
    assert_eq!(frames(&mut reader), [b"after"]);
}

#[test]
fn invalid_cursors_and_records_are_skipped() {
    let stats = process();
    let mut reader = begin(&stats);
    for head in [1, u64::MAX, RING_WORDS as u64 + 1] {
        let shared = shared(&stats);
        shared.tail.0.store(0, Ordering::Relaxed);
        shared.head.0.store(head, Ordering::Relaxed);
        stats.capture_frame(b"frame", false);
        frames(&mut reader);
    }
    for first in [
        9 << 32,
        KIND_FRAME << 32 | 0xffff_ffff,
        KIND_SEGMENT << 32 | 900,
    ] {
        let shared = shared(&stats);
        shared.head.0.store(0, Ordering::Relaxed);
        shared.tail.0.store(20, Ordering::Relaxed);
        shared.word(0).store(first, Ordering::Relaxed);
        assert!(frames(&mut reader).is_empty(), "{first:x}");
    }
    reader.empty();
    stats.capture_frame(b"sound", false);
    assert_eq!(frames(&mut reader), [b"sound"]);
}

/// A connection of the process, which is its client, as in the table of statistics.
fn connection(stats: &Stats) -> Stream<'_> {
    let row = stats.row(0).expect("room");
    row.local
        .store("127.0.0.1:4000".parse().expect("an address"));
    row.peer.store("127.0.0.1:80".parse().expect("an address"));
    row.role.store(1, Ordering::Relaxed);
    row.path.store(1, Ordering::Relaxed);
    row.first_number.store(u32::MAX - 2, Ordering::Relaxed);
    stats.captured_stream(0).expect("same-host")
}

#[test]
fn numbers_agree_from_the_handshake_to_the_ends() {
    let stats = process();
    let mut reader = begin(&stats);
    let stream = connection(&stats);
    let row = stats.row(0).expect("room");
    stream.opened();
    for _ in 0..2 {
        stream.passed(
            By::Us,
            [&b"question"[..], &[1; SEGMENT_MAX + 1]].into_iter(),
        );
        row.bytes_out
            .fetch_add(9 + SEGMENT_MAX as u64, Ordering::Relaxed);
    }
    stream.passed(By::Peer, [&b"answer"[..]].into_iter());
    row.bytes_in.fetch_add(6, Ordering::Relaxed);
    stream.ended(By::Us);
    stream.ended(By::Us);
    stream.ended(By::Peer);
    stream.reset(By::Peer);
    stream.reset(By::Us);
    stream.passed(By::Us, [&b"late"[..]].into_iter());
    let client = "127.0.0.1:4000".parse().expect("an address");
    let (mut next, mut flags) = ([None; 2], Vec::new());
    reader.drain(|captured| {
        let Record::Segment {
            segment, length, ..
        } = captured.record
        else {
            panic!("a segment");
        };
        let own = usize::from(segment.from != client);
        let expected = next[own].unwrap_or(segment.sequence);
        assert_eq!(segment.sequence, expected, "{segment:?}");
        if let (Some(other), true) = (next[1 - own], segment.flags & 16 != 0) {
            assert_eq!(segment.acknowledgment, other, "{segment:?}");
        }
        let ends = u32::from(segment.flags & 1 != 0) + u32::from(segment.flags & 2 != 0);
        next[own] = Some(expected.wrapping_add(length as u32 + ends));
        flags.push(segment.flags);
    });
    let data = [24; 3];
    let expected = [
        &[2, 18, 16][..],
        &data,
        &[16],
        &data,
        &[24, 17, 16, 17, 16, 20],
    ]
    .concat();
    assert_eq!(flags, expected);
}
