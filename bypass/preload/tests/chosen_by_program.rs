//! A program of the kernel's that chooses among the listeners of an address (SO_ATTACH_REUSEPORT_CBPF) goes with the last
//! of them: a listener that is opened there afterwards is accelerated.

#[path = "hostile/program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod program;

use std::net::{Ipv4Addr, TcpListener};

use bypass_stack::operations::{listen, options};
use bypass_stack::process::table::{self, Kind};
use bypass_stack::Outcome;

use program::{close, close_any, dial, is_accelerated, Listening};

/// Says what a program says that sets one. Whether the kernel does so does not matter here.
fn attach(fd: i32) {
    let option = libc::SO_ATTACH_REUSEPORT_CBPF;
    let set = options::set(fd, libc::SOL_SOCKET, option, &[0; 16]);
    assert_eq!(set, Outcome::Kernel);
}

fn is_accelerated_at(port: u16) -> bool {
    let client = dial(port);
    let is_accelerated = is_accelerated(client);
    close_any(client);
    is_accelerated
}

/// A free port below the range that the kernel chooses from: no other process gets it meanwhile.
fn own_port() -> u16 {
    let first = std::process::id() as u16 % 10_000;
    let mut ports = (first..first + 10_000).map(|number| 20_000 + number % 10_000);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("a free port")
}

#[test]
fn a_program_goes_with_the_last_listener_that_it_chose_among() {
    let port = own_port();
    let listening = Listening::open_at(port);
    assert!(is_accelerated_at(port));
    attach(listening.fd);
    assert!(!is_accelerated_at(port));
    listening.close();

    let again = Listening::open_at(port);
    assert!(is_accelerated_at(port));
    again.close();

    let early = program::bound(port);
    attach(early);
    assert_eq!(listen::listen(early, 16), Outcome::Done(0));
    assert_eq!(table::get(early).kind(), Kind::Kernel);
    close_any(early);

    let last = Listening::open_at(port);
    assert!(is_accelerated_at(port));
    close(last.fd);
}
