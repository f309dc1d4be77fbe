//! A process that listens, and neighbours that mean no good: they say nothing, send garbage, pass
//! memory that they go on writing, take names, use up descriptors, or are another user. Whoever is
//! honest must be served all the while.

#[path = "hostile/crowd.rs"]
mod crowd;
#[path = "hostile/program.rs"]
mod program;
#[path = "hostile/words.rs"]
mod words;

use std::time::{Duration, Instant};

use bypass_shm::link::{self, Message, VERSION};
use bypass_shm::segment::Segment;
use bypass_stack::operations::descriptors;
use bypass_stack::process::table::{self, Kind};
use bypass_stack::{listener, Outcome};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::waker::Name;

use program::{accept_within, close, dial, is_accelerated, read, write, Listening};

/// Far more than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// One connection, bytes both ways, and its end.
fn serve_honestly(listening: &Listening) {
    let client = dial(listening.port);
    assert!(is_accelerated(client), "an honest client is accelerated");
    let server = accept_within(listening.fd, PATIENCE).expect("a connection");
    assert_eq!(write(client, b"ping"), Outcome::Done(4));
    assert_eq!(read(server, 10), Ok(b"ping".to_vec()));
    assert_eq!(write(server, b"pong!"), Outcome::Done(5));
    assert_eq!(read(client, 10), Ok(b"pong!".to_vec()));
    close(client);
    assert_eq!(read(server, 10), Ok(Vec::new()));
    close(server);
}

#[test]
fn callers_who_say_nothing_are_a_few_at_a_time() {
    const SILENT: usize = 300;
    let listening = Listening::open();
    serve_honestly(&listening);
    let silent: Vec<Owned> = (0..SILENT)
        .map(|_| {
            link::connect(&Name::of_listener(listening.inode)).expect("an open rendezvous socket")
        })
        .collect();
    let since = Instant::now();
    let dismissed = || {
        let is_over = |link: &&Owned| link::receive(link.0).err() == Some(libc::EPIPE);
        silent.iter().filter(is_over).count()
    };
    while dismissed() < SILENT - 100 {
        assert!(since.elapsed() < PATIENCE, "{} were dismissed", dismissed());
        std::thread::sleep(Duration::from_millis(5));
    }
    serve_honestly(&listening);
    listening.close();
}

#[test]
fn garbage_at_the_rendezvous_is_dismissed() {
    let listening = Listening::open();
    serve_honestly(&listening);
    let own = Name::of_process(bypass_stack::process::number());
    let mut dice = Dice(5);
    for _ in 0..400 {
        let name = Name::of_listener(listening.inode);
        let Ok(link) = link::connect(if dice.next() % 2 == 0 { &own } else { &name }) else {
            continue;
        };
        let words: Vec<u8> = (0..6)
            .flat_map(|at| {
                match (at, dice.next() % 3) {
                    (0, _) => dice.next() % 12,
                    (_, 0) => listening.inode,
                    (_, 1) => dice.next() % 70,
                    _ => dice.next(),
                }
                .to_ne_bytes()
            })
            .collect();
        let _ = kernel::write(link.0, &words);
        let junk = Owned(kernel::memfd_create(c"junk").expect("memory"));
        let greet = Message::Greet {
            version: VERSION,
            client: dice.next(),
        };
        let _ = link::send(link.0, greet, &[junk.0]);
    }
    serve_honestly(&listening);
    listening.close();
}

fn greet(listening: &Listening, segment: &Segment) -> Owned {
    greet_at(listening.inode, segment)
}

fn greet_at(listener: u64, segment: &Segment) -> Owned {
    let link = link::connect(&Name::of_listener(listener)).expect("an open rendezvous socket");
    let greet = Message::Greet {
        version: VERSION,
        client: segment.client(),
    };
    link::send(link.0, greet, &[segment.fd()]).expect("sent");
    let answer = link::receive_within(link.0, PATIENCE.as_millis() as u64).expect("an answer");
    assert!(matches!(answer.0, Message::Welcome), "{:?}", answer.0);
    link
}

#[test]
fn a_client_that_dies_after_its_first_message_leaves_nothing() {
    let listening = Listening::open();
    let segment = Segment::create(1, 64, 4096).expect("memory");
    // A number under which no process answers: it has died before it could be watched.
    segment.enter(0, kernel::random()).expect("a place");
    drop(greet(&listening, &segment));
    wait_until_forgotten(&segment);
    serve_honestly(&listening);
    listening.close();
}

/// Another user takes the name of a client's rendezvous socket, which everybody can see, when the client ends: that
/// is not the client, and the server must not wait for it.
#[test]
fn a_dead_clients_name_taken_by_another_user_is_not_the_client() {
    const RENDEZVOUS: &str = "HOSTILE_TEST_TAKEN";
    if let Ok(number) = std::env::var(RENDEZVOUS) {
        let name = Name::of_process(number.parse().expect("a number"));
        let _rendezvous = link::open_rendezvous(&name).expect("a free name");
        println!("taken");
        // Until the test has seen enough.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let number = kernel::random();
    let arguments = [
        "--exact",
        "a_dead_clients_name_taken_by_another_user_is_not_the_client",
        "--nocapture",
    ];
    let Some(mut taker) = program::as_other_user(&arguments, (RENDEZVOUS, number)) else {
        return;
    };
    program::wait_for_line(&mut taker, "taken");
    let listening = Listening::open();
    let segment = Segment::create(1, 64, 4096).expect("memory");
    segment.enter(0, number).expect("a place");
    drop(greet(&listening, &segment));
    wait_until_forgotten(&segment);
    assert_eq!(
        taker.try_wait().expect("a child").map(|end| end.code()),
        None
    );
    drop(taker.stdin.take());
    taker.wait().expect("an end");
    serve_honestly(&listening);
    listening.close();
}

fn wait_until_forgotten(segment: &Segment) {
    let since = Instant::now();
    while bypass_stack::peer::find(segment.id(), 1).is_some() {
        assert!(
            since.elapsed() < PATIENCE,
            "segment {:?} is kept",
            segment.id()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_rendezvous_without_an_answer_leaves_the_connection_to_the_kernel() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
    let inode = kernel::fstat(fd).expect("open").st_ino;
    let rendezvous = link::open_rendezvous(&Name::of_listener(inode)).expect("a free name");
    let client = dial(port);
    assert!(!is_accelerated(client));
    program::close_any(client);
    drop(rendezvous);
}

#[test]
fn only_the_listening_socket_itself_is_proof() {
    let listening = Listening::open();
    assert!(listener::proves(listening.fd, listening.inode));
    assert!(!listener::proves(listening.fd, listening.inode + 1));
    let file = Owned(kernel::memfd_create(c"any").expect("memory"));
    let inode = kernel::fstat(file.0).expect("open").st_ino;
    assert!(!listener::proves(file.0, inode), "a file of that number");
    listening.close();
}

/// Another process of the same user may have fewer rights than the server, as one in a container: it is served through
/// memory of its own, and gets nothing by which it could take connections of others.
#[test]
fn what_a_client_is_shown_accepts_no_connection() {
    let listening = Listening::open();
    let segment = Segment::create(1, 64, 4096).expect("memory");
    segment.enter(0, kernel::random()).expect("a place");
    let link = link::connect(&Name::of_listener(listening.inode)).expect("a rendezvous socket");
    let client = segment.client();
    let greet = |version| Message::Greet { version, client };
    link::send(link.0, greet(VERSION), &[segment.fd()]).expect("sent");
    let (_, shown) = link::receive_within(link.0, PATIENCE.as_millis() as u64).expect("an answer");
    let proof = shown.first().expect("a proof");
    assert!(listener::names(proof.0, listening.inode, link.0));
    let accepted = kernel::accept_from(proof.0, 0).map(|(fd, _)| fd);
    assert_eq!(accepted, Err(libc::EBADF));
    // Nor does it let anybody in among the processes that hold the socket.
    assert!(!listener::proves(proof.0, listening.inode));
    listening.close();
}

#[test]
fn another_user_is_refused() {
    const RENDEZVOUS: &str = "HOSTILE_TEST_RENDEZVOUS";
    if let Ok(rendezvous) = std::env::var(RENDEZVOUS) {
        let inode = rendezvous.parse().expect("a number");
        let link = link::connect(&Name::of_listener(inode)).expect("an open rendezvous socket");
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let greet = Message::Greet {
            version: VERSION,
            client: 1,
        };
        link::send(link.0, greet, &[segment.fd()]).expect("sent");
        let answer = link::receive_within(link.0, 20_000).expect("an answer");
        assert!(matches!(answer.0, Message::Refuse { .. }), "{:?}", answer.0);
        return;
    }
    let listening = Listening::open();
    let arguments = ["--exact", "another_user_is_refused"];
    let Some(child) = program::as_other_user(&arguments, (RENDEZVOUS, listening.inode)) else {
        return listening.close();
    };
    let result = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&result.stdout).into_owned();
    assert!(result.status.success(), "{said}");
    listening.close();
}

#[test]
fn the_programs_own_calls_cannot_reach_the_librarys_descriptors() {
    let listening = Listening::open();
    serve_honestly(&listening);
    let hidden: Vec<i32> = (0..8192)
        .filter(|fd| table::get(*fd).kind() == Kind::Internal)
        .collect();
    assert!(!hidden.is_empty());
    for fd in hidden {
        // The library itself may have closed it since, when a peer of another test has ended.
        let outcome = descriptors::close(fd);
        let is_ours = table::get(fd).kind() == Kind::Internal;
        assert!(
            !is_ours || outcome == Outcome::Error(libc::EBADF),
            "{fd}: {outcome:?}"
        );
    }
    serve_honestly(&listening);
    listening.close();
}
