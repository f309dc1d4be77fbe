//! Servers of hundreds of processes: the memory of one client is shared with all of them. Connections that
//! the library leaves to the kernel fail here.

mod library;
#[path = "contract/programs.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod programs;
#[path = "contract/running.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod running;

use std::process::{Child, Command};

use running::{run_on, Hosts, Mode};

/// Both roles on this host, and nothing on the kernel that was to be accelerated.
struct Strict;

impl Hosts for Strict {
    fn spawn(&self, _role: &str, mut command: Command) -> std::io::Result<Child> {
        command
            .env("EF_NO_FAIL", "0")
            .env("EF_LOG_FILE", "/dev/null")
            .spawn()
    }
}

fn is_wholly_accelerated(name: &str) {
    let mut all = programs::programs().iter();
    let program = all.find(|one| one.name == name).expect("a program");
    let expected = run_on(&Strict, program, Mode::Kernel);
    assert_eq!(run_on(&Strict, program, Mode::Both), expected);
}

#[test]
fn every_connection_of_a_server_that_forks_for_each_is_accelerated() {
    is_wholly_accelerated("fork_many");
}

#[test]
fn every_connection_of_processes_that_accept_from_one_listener_is_accelerated() {
    is_wholly_accelerated("prefork_many");
}
