//! The state of a socket, in one word for all its numbers, and the transitions between states.
//!
//! The word is [`Socket::flags`]: at most one bit for the phase, and bits for what has been shut down, next to
//! the options. Reads and writes test these bits with the rest of the word, which they load anyway; only
//! changes go through this module. That the other side has ended or reset the connection is not a
//! state of the socket: it is recorded in the segment, where the other side wrote it.

use core::sync::atomic::Ordering;

use super::{Socket, BOUND, CONNECTED, IN_USE, LISTENING, OPENING, REFUSED, SHUT_READ, SHUT_WRITE};
use crate::process::table::{Entry, Kind};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Of no descriptor.
    Closed,
    /// As socket(2) made it.
    Unbound,
    /// Has a local address that the program chose.
    Bound,
    /// Accepts connections.
    Listening,
    /// connect(2) to another host or network namespace is under way.
    Connecting,
    /// connect(2) to another host has failed, and the program has not closed or dissolved it yet.
    Refused,
    /// Both directions are open.
    Connected,
    /// A connection that is shut for reading.
    ShutRead,
    /// A connection that is shut for writing.
    ShutWrite,
    /// A connection that is shut for both.
    ShutBoth,
}

/// What happens to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A descriptor is made for it.
    Create,
    /// bind(2).
    Bind,
    /// listen(2), or a listener comes from another process.
    Listen,
    /// connect(2) to another host or network namespace begins.
    Open,
    /// connect(2) has worked, accept(2) has taken it, or it comes from another process.
    Connect,
    /// connect(2) has failed.
    Refuse,
    /// shutdown(2) of reading.
    ShutRead,
    /// shutdown(2) of writing.
    ShutWrite,
    /// connect(2) to no address, or the connection cannot be made after all.
    Dissolve,
    /// Its last descriptor is closed, or is handled by the kernel from now on.
    Close,
}

/// The bits that a state is made of; BOUND outlives a connection.
const PHASES: u32 = LISTENING | OPENING | REFUSED | CONNECTED;
const ALL: u32 = IN_USE | PHASES | SHUT_READ | SHUT_WRITE;

impl State {
    /// The state that the word of a socket says.
    pub fn of(word: u32) -> Self {
        if word & IN_USE == 0 {
            return Self::Closed;
        }
        match word & PHASES {
            LISTENING => Self::Listening,
            OPENING => Self::Connecting,
            REFUSED => Self::Refused,
            CONNECTED => match (word & SHUT_READ != 0, word & SHUT_WRITE != 0) {
                (false, false) => Self::Connected,
                (true, false) => Self::ShutRead,
                (false, true) => Self::ShutWrite,
                (true, true) => Self::ShutBoth,
            },
            _ if word & BOUND != 0 => Self::Bound,
            _ => Self::Unbound,
        }
    }

    /// The state after an event, None where the event cannot happen. A socket that was bound before it
    /// was connected is so again when the connection is dissolved.
    pub fn after(self, event: Event, is_bound: bool) -> Option<Self> {
        use State::*;
        match (self, event) {
            (Closed, Event::Create) => Some(Unbound),
            (Closed, _) | (_, Event::Create) => None,
            (_, Event::Close) => Some(Closed),
            (Unbound, Event::Bind) => Some(Bound),
            (Unbound | Bound, Event::Listen) => Some(Listening),
            (Unbound | Bound, Event::Open) => Some(Connecting),
            (Unbound | Bound | Connecting, Event::Connect) => Some(Connected),
            (Connecting, Event::Refuse) => Some(Refused),
            (Connecting, Event::ShutRead | Event::ShutWrite) => Some(Connecting),
            (Connected | ShutRead, Event::ShutRead) => Some(ShutRead),
            (ShutWrite | ShutBoth, Event::ShutRead) => Some(ShutBoth),
            (Connected | ShutWrite, Event::ShutWrite) => Some(ShutWrite),
            (ShutRead | ShutBoth, Event::ShutWrite) => Some(ShutBoth),
            (Unbound | Bound | Listening, _) => None,
            (_, Event::Dissolve) => Some(if is_bound { Bound } else { Unbound }),
            _ => None,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::Closed => 0,
            Self::Unbound => IN_USE,
            Self::Bound => IN_USE | BOUND,
            Self::Listening => IN_USE | BOUND | LISTENING,
            Self::Connecting => IN_USE | OPENING,
            Self::Refused => IN_USE | REFUSED,
            Self::Connected => IN_USE | CONNECTED,
            Self::ShutRead => IN_USE | CONNECTED | SHUT_READ,
            Self::ShutWrite => IN_USE | CONNECTED | SHUT_WRITE,
            Self::ShutBoth => IN_USE | CONNECTED | SHUT_READ | SHUT_WRITE,
        }
    }

    /// Kind of its numbers in the table of descriptors: only the information that every call needs.
    pub fn kind(self) -> Kind {
        match self {
            Self::Closed => Kind::Kernel,
            Self::Unbound | Self::Bound => Kind::Unbound,
            Self::Listening => Kind::Listener,
            _ => Kind::Connected,
        }
    }
}

/// The word after an event, None where the event cannot happen.
fn next(word: u32, event: Event) -> Option<u32> {
    let after = State::of(word).after(event, word & BOUND != 0)?;
    // What is shut down while it is being connected stays so, and comes along from another process.
    let shut = match event {
        Event::ShutRead => word | SHUT_READ,
        Event::ShutWrite => word | SHUT_WRITE,
        Event::Dissolve | Event::Close => 0,
        _ => word,
    };
    Some(word & !ALL | after.bits() | shut & (SHUT_READ | SHUT_WRITE))
}

impl Socket {
    /// What it is now.
    pub fn state(&self) -> State {
        State::of(self.flags.load(Ordering::Acquire))
    }

    /// The only way from one state to another; false where the event cannot happen, and nothing has.
    pub fn change(&self, event: Event) -> bool {
        let next = |word| next(word, event);
        self.flags
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .is_ok()
    }

    /// Entry of each of its numbers in the table of descriptors.
    pub fn entry(&self, index: usize) -> Entry {
        Entry::new(self.state().kind(), index, self.life())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 10] = [
        State::Closed,
        State::Unbound,
        State::Bound,
        State::Listening,
        State::Connecting,
        State::Refused,
        State::Connected,
        State::ShutRead,
        State::ShutWrite,
        State::ShutBoth,
    ];
    const EVENTS: [Event; 10] = [
        Event::Create,
        Event::Bind,
        Event::Listen,
        Event::Open,
        Event::Connect,
        Event::Refuse,
        Event::ShutRead,
        Event::ShutWrite,
        Event::Dissolve,
        Event::Close,
    ];
    /// All bits that do not belong to the state.
    const OPTIONS: u32 = !(ALL | BOUND);

    /// The cells of the row of docs/internals/bypass.md that begins with this one.
    fn row(first: &str) -> Vec<&'static str> {
        let page = include_str!("../../../../docs/internals/bypass.md");
        let (_, page) = page.split_once("## States of a socket").expect("the table");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim);
        let mut found = rows.map(|line| cells(line).collect::<Vec<_>>());
        found
            .find(|cells| cells[0] == first)
            .unwrap_or_else(|| panic!("no row {first}"))
    }

    #[test]
    fn each_state_changes_as_the_documents_say() {
        let header = row("state");
        for state in STATES {
            let cells = row(&format!("{state:?}"));
            assert_eq!(cells.len(), EVENTS.len() + 1, "{state:?}");
            for (place, event) in EVENTS.iter().enumerate() {
                assert_eq!(header[place + 1], format!("{event:?}"));
                let after = state.after(*event, false);
                let said = after.map_or("–".to_owned(), |state| format!("{state:?}"));
                assert_eq!(cells[place + 1], said, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn a_word_says_its_state_and_keeps_the_options_through_every_event() {
        for state in STATES {
            assert_eq!(State::of(state.bits() | OPTIONS), state);
            for event in EVENTS {
                let word = next(state.bits() | OPTIONS, event);
                let is_bound = state.bits() & BOUND != 0;
                assert_eq!(word.map(State::of), state.after(event, is_bound));
                assert!(word.is_none_or(|word| word & OPTIONS == OPTIONS));
            }
        }
    }

    #[test]
    fn a_bound_socket_is_bound_again_when_its_connection_is_dissolved() {
        let mut word = State::Unbound.bits();
        let way = [
            Event::Bind,
            Event::Connect,
            Event::ShutRead,
            Event::Dissolve,
        ];
        for event in way {
            word = next(word, event).expect("allowed");
        }
        assert_eq!(State::of(word), State::Bound);
    }

    #[test]
    fn a_direction_shut_while_connecting_is_shut_in_the_connection() {
        let way = [Event::ShutWrite, Event::Connect];
        let word = way.iter().fold(State::Connecting.bits(), |word, event| {
            next(word, *event).expect("allowed")
        });
        assert_eq!(State::of(word), State::ShutWrite);
    }

    #[test]
    fn of_two_threads_that_connect_one_socket_one_does() {
        let socket = Socket::new();
        assert!(socket.change(Event::Create));
        assert!(socket.change(Event::Connect));
        assert!(!socket.change(Event::Connect) && !socket.change(Event::Open));
        assert_eq!(socket.state(), State::Connected);
    }
}
