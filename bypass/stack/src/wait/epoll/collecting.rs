//! From doorbells to events: which members deserve a look, and what they report.

use super::*;

/// Queues the member that lives in `slot`, if it is one of set `number`.
#[inline]
fn hear(
    (peer, number): (&Peer, usize),
    slot: usize,
    members: &mut [Option<Member>],
    ready: &mut VecDeque<u32>,
) {
    peer.segment.prefetch(slot, peer.side);
    let Some(socket) = peer.socket(slot) else {
        return;
    };
    let word = sockets::get(socket).watch.load(Ordering::Acquire);
    let index = word as u32;
    if word >> 32 != number as u64 + 1 {
        return;
    }
    if let Some(Some(member)) = members.get_mut(index as usize) {
        if !member.is_queued && member.socket == socket {
            member.is_queued = true;
            ready.push_back(index);
        }
    }
}

impl Inner {
    /// Queues every member that rang, and the members that have no ready flag.
    pub(super) fn drain(&mut self, number: usize) {
        for at in 0..self.places.len() {
            let place = &mut self.places[at];
            let (segment, hearing) = (&place.peer.segment, (&*place.peer, number));
            let ready_list = segment.ready_list(place.peer.side, place.ready_list);
            let (members, ready) = (&mut self.members, &mut self.ready);
            ready_list.drain(segment.slots_used(), &mut place.seen, |slot| {
                place.has_rung = true;
                hear(hearing, slot, members, ready);
            });
        }
        if !self.scanned.is_empty() {
            self.queue_scanned(number);
        }
        if !self.listeners.is_empty() {
            self.follow_listeners();
            let is_anyone_waiting =
                self.misses_a_place || self.places.iter().any(Place::has_waiting);
            let asked = if is_anyone_waiting {
                self.listeners.len()
            } else {
                0
            };
            for at in 0..asked {
                let (index, listener, _) = &self.listeners[at];
                let (index, arrivals) = (*index, listener.arrivals());
                if listener.has_acceptable() && self.is_news(index, arrivals) {
                    self.queue(index as usize);
                }
            }
        }
    }

    /// Whether a listener with connections that wait deserves a look: with EPOLLET only when one has
    /// come since the last.
    fn is_news(&mut self, index: u32, arrivals: u64) -> bool {
        let member = self.members[index as usize].as_ref();
        let is_edge = member.is_some_and(|member| member.events & EDGE != 0);
        !is_edge || self.reported.insert(index, arrivals) != Some(arrivals)
    }

    /// Queues members whose writers have held their announcements back; true when there were any.
    pub(super) fn drain_held_back(&mut self, number: usize) -> bool {
        let mut found = false;
        for place in &mut self.places {
            let hearing = (&*place.peer, number);
            let (members, ready) = (&mut self.members, &mut self.ready);
            let mut has_rung = false;
            place.ready_list().drain_held_back(|slot| {
                hear(hearing, slot, members, ready);
                has_rung = true;
            });
            place.has_rung |= has_rung;
            found |= has_rung;
        }
        found
    }

    pub(super) fn events_of(&self, member: &Member, wanted: u32) -> u32 {
        if member.is_in_kernel {
            let found = self.listeners.iter().any(|(index, listener, _)| {
                self.members[*index as usize]
                    .as_ref()
                    .is_some_and(|m| m.socket == member.socket)
                    && listener.has_acceptable()
            });
            return if found {
                (libc::EPOLLIN | libc::EPOLLRDNORM) as u32
            } else {
                0
            };
        }
        readiness_of(member.socket, wanted)
    }

    /// Moves ready events into `out`, leaving `share` places for the kernel's.
    pub(super) fn collect(&mut self, out: &mut [libc::epoll_event], share: usize) -> usize {
        let limit = out.len() - share.min(out.len());
        let out = &mut out[..limit];
        // Where there is room for one, each kind has it in turn.
        if self.looks & 2 == 0 {
            let found = self.collect_datagrams(out);
            return found + self.collect_ready(&mut out[found..]);
        }
        let found = self.collect_ready(out);
        found + self.collect_datagrams(&mut out[found..])
    }

    fn collect_ready(&mut self, out: &mut [libc::epoll_event]) -> usize {
        let limit = out.len();
        let mut found = 0;
        for _ in 0..self.ready.len() {
            if found == limit {
                break;
            }
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            let Some(member) = self.members[index as usize].as_ref() else {
                continue;
            };
            let wanted = member.events;
            let events = if member.is_armed() {
                self.events_of(member, wanted) & (wanted | ALWAYS)
            } else {
                0
            };
            let Some(member) = self.members[index as usize].as_mut() else {
                continue;
            };
            if events == 0 {
                member.is_queued = false;
                continue;
            }
            out[found] = libc::epoll_event {
                events,
                u64: member.data,
            };
            found += 1;
            if wanted & ONESHOT != 0 {
                member.disarm();
                if let (true, Some(set)) = (member.is_in_kernel, self.numbers.first()) {
                    let (events, data) = (member.events, member.kernel_data());
                    let command = libc::EPOLL_CTL_MOD;
                    let _ = kernel::epoll_control(*set, command, member.kernel_fd, events, data);
                }
            }
            if wanted & (EDGE | ONESHOT) != 0 {
                member.is_queued = false;
            } else {
                self.ready.push_back(index);
            }
        }
        found
    }

    /// Whether a member has an event to report.
    pub(super) fn has_event(&self, index: usize) -> bool {
        let member = self.members[index].as_ref();
        member.is_some_and(|member| {
            let found = self.events_of(member, member.events);
            member.is_armed() && found & (member.events | ALWAYS) != 0
        })
    }

    /// Whether a queued member has an event; those without leave the queue.
    pub(super) fn has_ready(&mut self) -> bool {
        if self.has_datagrams() {
            return true;
        }
        while let Some(index) = self.ready.front().copied() {
            if self.has_event(index as usize) {
                return true;
            }
            if let Some(member) = self.members[index as usize].as_mut() {
                member.is_queued = false;
            }
            self.ready.pop_front();
        }
        false
    }

    /// Takes our waker's event, and those of inner sets that have nothing any more, out of what
    /// the kernel says, and gives the others of those the program's data, as one-shot listeners that are armed;
    /// returns how many are left.
    pub(super) fn without_waker(&mut self, epoll: i32, events: &mut [libc::epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let mut event = events[at];
            let data = { event.u64 };
            if data == WAKER_DATA {
                if let Some(waker) = &self.waker {
                    waker.take();
                }
                continue;
            }
            if data == quiet::WAKER_DATA {
                self.hear_quiet();
                continue;
            }
            if Nested::is_named(data) {
                let nested = Nested::named(&mut self.nested, data);
                match nested.map(|nested| (nested.is_in_vain(epoll), nested.data)) {
                    Some((false, data)) => event.u64 = data,
                    _ => continue,
                }
            }
            if datagrams::is_named(data) {
                let Some(own) = self.of_datagrams(event) else {
                    continue;
                };
                event = own;
            }
            if data >> 32 == ONESHOT_DATA >> 32 {
                let Some(data) = self.fire(data as u32) else {
                    continue;
                };
                event.u64 = data;
            }
            events[kept] = event;
            kept += 1;
        }
        kept
    }

    /// The kernel reports the one-shot listener of that name: the program's data, unless a client of ours was
    /// reported before.
    fn fire(&mut self, name: u32) -> Option<u64> {
        let is_it = |one: &&mut Member| one.is_in_kernel && one.name == name;
        let of = self.listeners.iter().map(|(index, ..)| *index as usize);
        for index in of {
            let member = self.members[index].as_mut();
            if let Some(member) = member.filter(is_it) {
                let was_armed = member.is_armed();
                member.disarm();
                return was_armed.then_some(member.data);
            }
        }
        None
    }
}
