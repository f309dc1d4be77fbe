//! The example responder and client against curl, wrk and a server of the kernel's.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bypass_testkit::{require_tool, skip, veth, Case, Namespace};

const CASES: &[Case] = &[
    ("curl_and_wrk_are_served_over_veth", over_veth),
    ("curl_and_wrk_are_served_over_tap", over_tap),
    ("the_client_fetches_from_a_server_of_the_kernels", client),
    (
        "an_interface_that_cannot_be_used_is_refused_in_one_line",
        refused,
    ),
];

fn main() {
    bypass_testkit::main(CASES)
}

/// The example, which cargo builds next to the tests.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let folder = own
        .parent()
        .and_then(|deps| deps.parent())
        .expect("target/PROFILE/deps");
    folder.join("examples").join("http")
}

/// A server inside a namespace, killed with this.
struct Server(Child);

impl Server {
    fn start(side: &Namespace, words: &str) -> Self {
        let mut command = Command::new(program());
        command.args(words.split(' ')).stderr(Stdio::piped());
        let mut child = side.run(move || command.spawn().expect("the example was built"));
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("text");
        let server = Self(child);
        if line.contains("Operation not permitted") || line.contains("CAP_") {
            skip(format!("no privilege: {line}"));
        }
        assert!(line.contains("serves"), "{words}: {line}");
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn pair() -> [Namespace; 2] {
    let sides = [Namespace::new(), Namespace::new()];
    veth((&sides[0], "va"), (&sides[1], "vb"), 1);
    for (side, name, host) in [(&sides[0], "va", 1), (&sides[1], "vb", 2)] {
        side.ip(&format!("addr add 10.77.0.{host}/24 dev {name}"));
        side.ip(&format!("addr add fd77::{host}/64 dev {name} nodad"));
    }
    sides
}

fn check(side: &Namespace) {
    require_tool("curl");
    require_tool("wrk");
    let page = side.command("curl", "-sS --max-time 60 http://10.77.0.2:8080/");
    assert_eq!(page, "x".repeat(3000));
    let close = side.command(
        "curl",
        "-sS --max-time 60 -H Connection:close http://10.77.0.2:8080/ http://10.77.0.2:8080/",
    );
    assert_eq!(close.len(), 6000);
    for words in ["", " -H Connection:close"] {
        let words = format!("-t1 -c20 -d2s --timeout 60s{words} http://10.77.0.2:8080/");
        let report = side.command("wrk", &words);
        let requests = report
            .lines()
            .find_map(|line| line.trim().split_once(" requests in"));
        let requests = requests
            .and_then(|(count, _)| count.parse::<u32>().ok())
            .unwrap_or(0);
        // One for each connection: a busy machine may have no time for more.
        assert!(requests >= 20, "{report}");
        assert!(
            !report.contains("Socket errors") && !report.contains("Non-2xx"),
            "{report}"
        );
    }
}

fn over_veth() {
    let sides = pair();
    for words in ["", " --generic", " --gso", " --busy-poll 20"] {
        let server = Server::start(
            &sides[1],
            &format!("serve --interface vb --size 3000{words}"),
        );
        check(&sides[0]);
        let page = sides[0].command("curl", "-sS -g --max-time 60 http://[fd77::2]:8080/");
        assert_eq!(page.len(), 3000);
        drop(server);
        await_detached(&sides[1], "vb");
    }
}

/// The kernel lets go of an interface some time after the program that used it was killed.
fn await_detached(side: &Namespace, name: &str) {
    let begun = Instant::now();
    while side
        .ip(&format!("link show dev {name}"))
        .contains("prog/xdp")
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn over_tap() {
    let side = Namespace::new();
    let _server = Server::start(&side, "serve --tap va --address 10.77.0.2/24 --size 3000");
    side.ip("addr add 10.77.0.1/24 dev va");
    side.ip("link set va up");
    check(&side);
}

fn client() {
    let sides = pair();
    let _server = Server::start(&sides[0], "kernel --size 200000");
    let fetched = sides[1].run(|| {
        let mut command = Command::new(program());
        command.args(["get", "--interface", "vb", "http://10.77.0.1:8080/page"]);
        command.output().expect("the example was built")
    });
    let error = String::from_utf8_lossy(&fetched.stderr);
    if error.contains("CAP_") {
        skip(format!("no privilege: {error}"));
    }
    assert!(fetched.status.success(), "{error}");
    assert_eq!(fetched.stdout, "x".repeat(200_000).into_bytes());
}

fn refused() {
    let side = Namespace::new();
    let output = side.run(|| {
        Command::new(program())
            .args(["serve", "--interface", "eth9"])
            .output()
    });
    let output = output.expect("the example was built");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("there is no such interface"), "{error}");
}
