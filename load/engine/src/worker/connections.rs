//! The connections of a thread: all of them, how many are wanted, how many requests they carry.

use super::connection::{Connection, ConnectionState};
use crate::plan::{self, Plan, Target};
use std::ops::{Index, IndexMut};

/// Connections by their numbers.
pub(super) struct Connections<S> {
    all: Vec<Connection<S>>,
    /// This stage wants the first so many open.
    pub wanted: usize,
    /// Batches of requests, or streams, without an answer.
    pub busy: usize,
}

impl<S> Connections<S> {
    /// Closed ones, by the numbers of their targets.
    pub fn new(target_of: &[usize]) -> Self {
        Connections {
            all: target_of.iter().map(|&t| Connection::new(t)).collect(),
            wanted: 0,
            busy: 0,
        }
    }

    /// How many there are, wanted or not.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// One of them, if there is one of that number.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Connection<S>> {
        self.all.get(index)
    }

    /// A batch of `depth` requests goes out on a connection.
    #[inline]
    pub fn begin_batch(&mut self, index: usize, depth: u32, due_ns: u64, now: u64) {
        let connection = &mut self.all[index];
        connection.due_ns = due_ns;
        connection.sent_ns = now;
        connection.in_flight = depth;
        connection.state = ConnectionState::Busy;
        self.busy += 1;
    }

    /// A connection waits for no more answers; with a batch in flight it counted as busy if
    /// `has_batches`, with streams each of them does.
    #[inline]
    pub fn set_not_busy(&mut self, index: usize, state: ConnectionState, has_batches: bool) {
        let connection = &mut self.all[index];
        if connection.state == ConnectionState::Busy && has_batches {
            self.busy -= 1;
        }
        connection.state = state;
    }

    /// A request goes out on a stream.
    #[inline]
    pub fn begin_stream(&mut self, index: usize) {
        let connection = &mut self.all[index];
        connection.in_flight += 1;
        connection.state = ConnectionState::Busy;
        self.busy += 1;
    }

    /// So many streams of a connection have ended.
    #[inline]
    pub fn end_streams(&mut self, index: usize, count: usize) {
        let connection = &mut self.all[index];
        connection.in_flight -= count as u32;
        if connection.in_flight == 0 {
            connection.state = ConnectionState::Idle;
        }
        self.busy -= count;
    }

    /// Wanted ones that can carry a request.
    pub fn open(&self) -> usize {
        let wanted = &self.all[..self.wanted];
        wanted.iter().filter(|one| is_open(one)).count()
    }

    /// Whether each wanted one is open, or has failed as often as its target has addresses.
    pub fn are_settled(&self, addresses: impl Fn(usize) -> usize) -> bool {
        let mut wanted = self.all[..self.wanted].iter();
        wanted.all(|one| {
            is_open(one) || usize::from(one.failures) >= addresses(usize::from(one.target))
        })
    }
}

/// The target of each connection of a thread. In an open loop each thread has its own connections to
/// every target, as its requests are due on all of them; in a closed loop they are dealt over all
/// threads.
pub(super) fn target_of_connections(plan: &Plan, number: usize, targets: &[Target]) -> Vec<usize> {
    let weights: Vec<u32> = targets.iter().map(|target| target.weight).collect();
    let own = plan.share(plan.connections_max(), number);
    if plan.open().is_some() {
        return plan::dealt(&weights, own);
    }
    let all = plan::dealt(&weights, plan.connections_max());
    let mine = all.into_iter().skip(number).step_by(plan.threads);
    mine.take(own).collect()
}

/// Whether a connection can carry a request.
pub(super) fn is_open<S>(connection: &Connection<S>) -> bool {
    matches!(
        connection.state,
        ConnectionState::Idle | ConnectionState::Busy
    )
}

/// Whether a connection is there, with a request or without one that it could take at once.
pub(super) fn is_established<S>(connection: &Connection<S>) -> bool {
    is_open(connection) || connection.state == ConnectionState::Delayed
}

impl<S> Index<usize> for Connections<S> {
    type Output = Connection<S>;

    #[inline]
    fn index(&self, index: usize) -> &Connection<S> {
        &self.all[index]
    }
}

impl<S> IndexMut<usize> for Connections<S> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Connection<S> {
        &mut self.all[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_on_its_way_is_not_established_and_one_whose_user_thinks_is() {
        let mut connection = Connection::<()>::new(0);
        connection.fd = 7;
        let mut of = |state| {
            connection.state = state;
            (is_established(&connection), is_open(&connection))
        };
        for state in [
            ConnectionState::Closed,
            ConnectionState::Connecting,
            ConnectionState::Handshaking,
        ] {
            assert_eq!(of(state), (false, false), "{state:?}");
        }
        assert_eq!(of(ConnectionState::Delayed), (true, false));
        for state in [ConnectionState::Idle, ConnectionState::Busy] {
            assert_eq!(of(state), (true, true), "{state:?}");
        }
    }
}
