//! Epoll sets of a script: members, their events, and which of them were reported.

/// A member.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Descriptor.
    pub fd: i32,
    /// Requested events, with EPOLLET and EPOLLONESHOT.
    pub events: u32,
    /// Returned with them.
    pub data: u64,
    /// An event since the last check, for edges.
    is_woken: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Set {
    members: Vec<Member>,
}

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

impl Set {
    /// epoll_ctl(2); an error number.
    pub fn control(&mut self, command: i32, fd: i32, events: u32, data: u64) -> Result<(), i32> {
        let at = self.members.iter().position(|member| member.fd == fd);
        let member = Member {
            fd,
            events,
            data,
            is_woken: true,
        };
        match (command, at) {
            (libc::EPOLL_CTL_ADD, None) => self.members.push(member),
            (libc::EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
            (libc::EPOLL_CTL_MOD, Some(at)) => self.members[at] = member,
            (libc::EPOLL_CTL_DEL, Some(at)) => drop(self.members.remove(at)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    /// Descriptors of the members.
    pub fn fds(&self) -> Vec<i32> {
        self.members.iter().map(|member| member.fd).collect()
    }

    /// An event of a descriptor: an edge, if it was requested.
    pub fn wake(&mut self, fd: i32, events: u32) {
        let of = self.members.iter_mut().filter(|member| member.fd == fd);
        for member in of {
            member.is_woken |= events & (member.events | ALWAYS) != 0;
        }
    }

    /// Events to report, at most `most`; `ready` is the readiness of each member.
    pub fn collect(&mut self, ready: &[u32], most: usize) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for (member, ready) in self.members.iter_mut().zip(ready) {
            let is_off = member.events & ONESHOT != 0 && member.events & !(EDGE | ONESHOT) == 0;
            let now = ready & (member.events | ALWAYS);
            let is_news = member.events & EDGE == 0 || member.is_woken;
            if is_off || !is_news || found.len() == most {
                continue;
            }
            member.is_woken = false;
            if now == 0 {
                continue;
            }
            found.push((now, member.data));
            if member.events & ONESHOT != 0 {
                member.events &= EDGE | ONESHOT;
            }
        }
        found
    }
}
