//! What `bypass off` and `bypass on` do to a process: new connections use the kernel, existing ones go on.

#[path = "hostile/program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod program;

use std::time::Duration;

use bypass_stack::Outcome;
use bypass_stats::View;

use program::{accept_within, close, close_any, dial, is_accelerated, read, write, Listening};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn new_connections_use_the_kernel_until_they_are_switched_on_again() {
    let listening = Listening::open();
    let client = dial(listening.port);
    let server = accept_within(listening.fd, PATIENCE).expect("a connection");
    assert!(is_accelerated(client) && is_accelerated(server));
    let page = View::open_for_capture(std::process::id());
    let page = page.expect("readable").expect("a page");
    page.switch_off(true);
    let kernels = dial(listening.port);
    assert!(!is_accelerated(kernels));
    close_any(kernels);
    assert_eq!(write(client, b"still"), Outcome::Done(5));
    assert_eq!(read(server, 10), Ok(b"still".to_vec()));
    page.switch_off(false);
    let again = dial(listening.port);
    assert!(is_accelerated(again));
    for fd in [client, server, again] {
        close(fd);
    }
    listening.close();
}
