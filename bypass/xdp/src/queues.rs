//! Queues of an interface as one device: frames come from each, and leave through the first.

use bypass_device::{Capabilities, Counters, Device, Error, Frame, Offload};
use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, numbers};

use crate::device::Xdp;
use crate::opened::Opened;

/// How often a queue is tried that the kernel still sends by, each time for some 50 ms.
const TRIES: u32 = 40;

/// The device of an interface whose queues were all opened, each with the settings
/// [for it](crate::Settings::for_queue). EINVAL: there is none.
pub fn over(opened: Vec<Opened>) -> kernel::Result<Box<dyn Device>> {
    let mut queues = Vec::new();
    for one in opened {
        queues.push(patiently(one, Xdp::over)?);
    }
    if queues.len() > 1 {
        return Ok(Box::new(Queues::new(queues)?));
    }
    let only = queues.pop().ok_or(libc::EINVAL)?;
    Ok(Box::new(only))
}

/// Tries again while the kernel has yet to send what a former process has left: whoever has the whole interface gives it
/// up for good otherwise, and the processor that has the frames may stand still for a moment.
fn patiently<T, U>(
    mut opened: T,
    mut open: impl FnMut(T) -> Result<U, (i32, T)>,
) -> kernel::Result<U> {
    for _ in 1..TRIES {
        match open(opened) {
            Err((libc::EBUSY, again)) => opened = again,
            other => return other.map_err(|(error, _)| error),
        }
    }
    open(opened).map_err(|(error, _)| error)
}

/// The same of a queue that others may [join](Device::join). `also` is polled with them: a descriptor that outlives
/// the device.
pub fn among(first: Xdp, also: i32) -> kernel::Result<Box<dyn Device>> {
    let queues = Queues::new(vec![first])?;
    queues.watch(also)?;
    Ok(Box::new(queues))
}

struct Queues {
    queues: Vec<Box<dyn Device>>,
    /// A set of the kernel's with every socket: one descriptor to sleep on.
    set: Owned,
    /// Where the next look begins, so that a full queue does not starve the others.
    turn: usize,
}

impl Queues {
    fn new(queues: Vec<Xdp>) -> kernel::Result<Self> {
        let mut all = Self {
            queues: Vec::new(),
            set: numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC))?,
            turn: 0,
        };
        for queue in queues {
            all.add(Box::new(queue))?;
        }
        Ok(all)
    }

    fn watch(&self, fd: i32) -> kernel::Result<()> {
        let events = libc::EPOLLIN as u32;
        kernel::epoll_control(self.set.0, libc::EPOLL_CTL_ADD, fd, events, 0).map(|_| ())
    }

    fn add(&mut self, queue: Box<dyn Device>) -> kernel::Result<()> {
        if let Some(fd) = queue.poll_fd() {
            self.watch(fd)?;
        }
        self.queues.push(queue);
        Ok(())
    }
}

impl Device for Queues {
    fn capabilities(&self) -> Capabilities {
        self.queues[0].capabilities()
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.queues.iter_mut().for_each(|one| one.set_mtu(mtu));
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        self.receive_bursts(most, &mut |burst| {
            burst.iter().copied().for_each(&mut *take)
        })
    }

    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        let count = self.queues.len();
        let mut taken = 0;
        for step in 0..count {
            let queue = &mut self.queues[(self.turn + step) % count];
            taken += queue.receive_bursts(most - taken, take)?;
        }
        self.turn = (self.turn + 1) % count;
        Ok(taken)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        self.queues[0].send(length, offload, fill)
    }

    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        self.queues[0].send_gathered(headers, payload, offload, fill)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.queues[0].flush()
    }

    fn has_unsent(&self) -> bool {
        self.queues[0].has_unsent()
    }

    fn arm(&mut self) -> bool {
        // Each, as arming may ask the kernel to look.
        let waiting = self
            .queues
            .iter_mut()
            .filter_map(|one| one.arm().then_some(()));
        waiting.count() > 0
    }

    fn join(&mut self, queue: Box<dyn Device>) -> Result<(), Error> {
        self.add(queue).map_err(Error::Kernel)
    }

    /// Frames that have arrived wait in its rings for the next owner.
    fn part(&mut self, joined: usize) -> Result<(), Error> {
        let at = joined + 1;
        let Some(fd) = self.queues.get(at).map(|queue| queue.poll_fd()) else {
            return Err(Error::Refused);
        };
        if let Some(fd) = fd {
            // Others hold the socket, so that closing it here does not take it out of the set.
            kernel::epoll_control(self.set.0, libc::EPOLL_CTL_DEL, fd, 0, 0)
                .map_err(Error::Kernel)?;
        }
        self.queues.remove(at);
        Ok(())
    }

    fn poll_fd(&self) -> Option<i32> {
        Some(self.set.0)
    }

    fn counters(&self) -> Counters {
        let each = self.queues.iter().map(|one| one.counters());
        each.fold(Counters::default(), |sum, one| Counters {
            received: sum.received + one.received,
            sent: sum.sent + one.sent,
            receive_overruns: sum.receive_overruns + one.receive_overruns,
            receive_invalid: sum.receive_invalid + one.receive_invalid,
            send_full: sum.send_full + one.send_full,
            send_errors: sum.send_errors + one.send_errors,
            kernel_calls: sum.kernel_calls + one.kernel_calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`Xdp::over`] does: the kernel is busy with the first so many tries.
    fn opens_after(busy: u32) -> (kernel::Result<u32>, u32) {
        let mut tries = 0;
        let opened = patiently((), |()| {
            tries += 1;
            match tries > busy {
                true => Ok(7),
                false => Err((libc::EBUSY, ())),
            }
        });
        (opened, tries)
    }

    #[test]
    fn frames_that_the_kernel_still_sends_are_waited_for_but_not_for_ever() {
        assert_eq!(opens_after(0), (Ok(7), 1));
        assert_eq!(opens_after(3), (Ok(7), 4));
        assert_eq!(opens_after(TRIES), (Err(libc::EBUSY), TRIES));
    }

    #[test]
    fn any_other_error_is_returned_at_once() {
        let mut tries = 0;
        let opened: kernel::Result<u32> = patiently((), |()| {
            tries += 1;
            Err((libc::EPERM, ()))
        });
        assert_eq!((opened, tries), (Err(libc::EPERM), 1));
    }
}
