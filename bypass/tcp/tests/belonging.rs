//! Whose frames are, where several engines have the addresses of one host.

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use bypass_tcp::{Handle, Rx};
use support::{config, Host, World};

/// A connection from host 0 to host 1, and what host 0 has sent for it: SYN, acknowledgment, bytes.
fn connected() -> (World, Handle, Vec<Vec<u8>>) {
    let mut world = World::plain();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = sent.clone();
    world.filter = Some(Box::new(move |from, frame| {
        if from == 0 && frame[12..14] != [8, 6] {
            seen.borrow_mut().push(frame.to_vec());
        }
        false
    }));
    let (client, server) = world.connect();
    world.send(0, client, b"bytes");
    world.run_us(1_000_000);
    let sent = sent.borrow().clone();
    assert!(sent.len() >= 3);
    (world, server, sent)
}

/// Another engine of host 1, with its own numbers.
fn beside(world: &World, listens: bool) -> Host {
    let mut other = Host::new(1, config(3), world.now_us);
    if listens {
        let at = "[::]:80".parse().unwrap();
        other.engine.listen(at, 128).unwrap();
    }
    other
}

#[test]
fn a_connection_is_its_engines_and_all_know_it_by_one_mark() {
    let (world, server, sent) = connected();
    let other = beside(&world, true);
    let own = &world.hosts[1].engine;
    for frame in &sent[1..] {
        assert_eq!(own.may_be_anothers(&Rx::new(frame)), None);
        let mark = other.engine.may_be_anothers(&Rx::new(frame));
        assert!(mark.is_some());
        assert_eq!(mark, own.mark_of(server));
        assert_eq!(mark, other.engine.mark_of_frame(&Rx::new(frame)));
    }
}

#[test]
fn a_new_connection_is_for_who_listens() {
    let (world, _, sent) = connected();
    let syn = Rx::new(&sent[0]);
    assert_eq!(beside(&world, true).engine.may_be_anothers(&syn), None);
    assert!(beside(&world, false).engine.may_be_anothers(&syn).is_some());
}

/// The SYN was sent again and came by another queue, after the first one had been answered.
#[test]
fn an_acknowledgment_is_for_who_has_sent_what_it_acknowledges() {
    let (world, _, sent) = connected();
    let mut other = beside(&world, true);
    let (syn, answer) = (Rx::new(&sent[0]), Rx::new(&sent[1]));
    other
        .engine
        .rx_burst(world.now_us, &[Rx::new(&sent[0])], &mut other.frames);
    assert_eq!(other.engine.counts().half_open, 1);
    assert_eq!(other.engine.may_be_anothers(&syn), None);
    assert!(other.engine.may_be_anothers(&answer).is_some());
}

#[test]
fn malformed_frames_belong_to_no_other_engine() {
    let (world, _, sent) = connected();
    let other = beside(&world, false);
    for length in 0..sent[1].len() {
        let cut = Rx::new(&sent[1][..length]);
        assert_eq!(other.engine.may_be_anothers(&cut), None, "{length}");
    }
}
