//! A set that is a member of another.

use bypass_sys::descriptor::Owned;
use bypass_sys::numbers;

use super::*;

/// Names a set among the events of the kernel's, with its number as a member in the lower half.
const NESTED_DATA: u64 = 0x5753_6e73 << 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Nested {
    /// By chance, so that two processes that have the kernel's set after a fork do not choose the same.
    pub member: u32,
    pub number: usize,
    /// By which the program has added it.
    pub fd: i32,
    pub events: u32,
    pub data: u64,
    /// By which it was added once more, after the program had closed its own.
    pub again: Option<Owned>,
}

impl Nested {
    /// The member's data in the kernel's set: the program's may be those of any other member.
    pub fn kernel_data(member: u32) -> u64 {
        NESTED_DATA | u64::from(member)
    }

    /// Whether an event of the kernel's is of a set.
    pub fn is_named(data: u64) -> bool {
        data >> 32 == NESTED_DATA >> 32
    }

    /// The set that an event of the kernel's is of, by its data.
    pub fn named(all: &mut [Self], data: u64) -> Option<&mut Self> {
        all.iter_mut()
            .find(|one| Self::kernel_data(one.member) == data)
    }

    /// Whether this set has nothing although the kernel reported it. The kernel's own sets do not
    /// spend a one-shot on that, so the member is armed again.
    pub fn is_in_vain(&mut self, epoll: i32) -> bool {
        // By a number that is open: the one that was added may be closed, and another mean the set.
        let open = SETS[self.number % SETS_MAX].fd.load(Ordering::Relaxed);
        if is_ready(self.number) || has_kernel_events(open) {
            return false;
        }
        if self.events & ONESHOT != 0 {
            self.arm_again(epoll, open);
        }
        true
    }

    /// The kernel knows a member by the number that it was added by. Where that is closed, or another set's,
    /// the member is added by a number of ours; the first one stays as it is, and reports nothing any more.
    fn arm_again(&mut self, epoll: i32, open: i32) {
        let entry = table::get(self.fd);
        let is_ours = entry.kind() == Kind::Epoll && entry.index() == self.number;
        let known = self.again.as_ref().map(|again| again.0);
        let (events, data) = (self.events, Self::kernel_data(self.member));
        if let Some(fd) = known.or(is_ours.then_some(self.fd)) {
            let _ = kernel::epoll_control(epoll, libc::EPOLL_CTL_MOD, fd, events, data);
            return;
        }
        let Ok(again) = numbers::duplicate(open) else {
            return;
        };
        if kernel::epoll_control(epoll, libc::EPOLL_CTL_ADD, again.0, events, data).is_ok() {
            table::hide(again.0);
            self.again = Some(again);
        }
    }

    /// It has left the outer set; `epoll`: that set in the kernel, where no other process shares it.
    pub fn leave(self, epoll: Option<i32>) {
        if let Some(again) = self.again {
            if let Some(epoll) = epoll {
                let _ = kernel::epoll_control(epoll, libc::EPOLL_CTL_DEL, again.0, 0, 0);
            }
            table::show(again.0);
        }
    }
}
