//! The functions of packetdrill's table.

use core::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};

use crate::memory::{address, gather, give_address, give_control, piece, scatter, total};
use crate::script::{Result, Script};
use crate::{Data, Interface, Length, Name, NameOut};

/// asm-generic/sockios.h, linux/sockios.h.
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894b;

/// packetdrill's table with these functions.
pub fn table(userdata: Data) -> Interface {
    Interface {
        userdata,
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    }
}

// Every function below is called by packetdrill with the userdata of its table, and with pointers as the
// call of its name demands.

/// # Safety
/// `data` must be the userdata of a table that was not freed.
unsafe fn script<'a>(data: Data) -> &'a Script {
    // SAFETY: by contract.
    unsafe { &*data.cast::<Script>() }
}

fn fail(error: i32) {
    // SAFETY: the place of the thread's error number.
    unsafe { *libc::__errno_location() = error };
}

fn number(result: Result<i32>) -> c_int {
    result.unwrap_or_else(|error| {
        fail(error);
        -1
    })
}

fn done(result: Result<()>) -> c_int {
    number(result.map(|()| 0))
}

fn count(result: Result<usize>) -> isize {
    result.map_or_else(
        |error| {
            fail(error);
            -1
        },
        |count| count as isize,
    )
}

unsafe extern "C" fn free(data: Data) {
    // SAFETY: made by `packetdrill_interface_init`, and freed once.
    drop(unsafe { Box::from_raw(data.cast::<Script>()) });
}

/// A real descriptor, because packetdrill may close it.
fn descriptor() -> Result<c_int> {
    // SAFETY: a constant name.
    match unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) } {
        -1 => Err(libc::EMFILE),
        fd => Ok(fd),
    }
}

unsafe extern "C" fn socket(data: Data, family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_tcp = kind & !flags == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol);
    if ![libc::AF_INET, libc::AF_INET6].contains(&family) || !is_tcp {
        return number(Err(libc::EPROTONOSUPPORT));
    }
    number(descriptor().inspect(|fd| {
        // SAFETY: see above.
        unsafe { script(data) }.add(*fd, kind & libc::SOCK_NONBLOCK != 0);
    }))
}

unsafe extern "C" fn bind(data: Data, fd: c_int, name: Name, length: libc::socklen_t) -> c_int {
    // SAFETY: see above.
    let (script, at) = unsafe { (script(data), address(name, length)) };
    done(at.and_then(|at| script.bind(fd, at)))
}

unsafe extern "C" fn listen(data: Data, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: see above.
    done(unsafe { script(data) }.listen(fd, backlog))
}

unsafe extern "C" fn accept(data: Data, fd: c_int, name: NameOut, length: Length) -> c_int {
    // SAFETY: see above.
    let script = unsafe { script(data) };
    number(descriptor().and_then(|new| match script.accept(fd, new) {
        Ok(from) => {
            // SAFETY: see above.
            unsafe { give_address(from, name, length) };
            Ok(new)
        }
        Err(error) => {
            // SAFETY: opened here.
            unsafe { libc::close(new) };
            Err(error)
        }
    }))
}

unsafe extern "C" fn connect(data: Data, fd: c_int, name: Name, length: libc::socklen_t) -> c_int {
    // SAFETY: see above.
    let (script, to) = unsafe { (script(data), address(name, length)) };
    done(to.and_then(|to| script.connect(fd, to)))
}

/// # Safety
/// As of the table's functions.
unsafe fn receive(
    data: Data,
    fd: c_int,
    (pieces, pieces_count): (*const libc::iovec, usize),
    flags: c_int,
) -> isize {
    // SAFETY: by contract.
    let (script, length) = unsafe { (script(data), total(pieces, pieces_count)) };
    let mut bytes = vec![0; length.unwrap_or(0)];
    let got = length.and_then(|_| script.receive(fd, &mut bytes, flags));
    count(got.inspect(|got| {
        // SAFETY: by contract.
        unsafe { scatter(&bytes[..*got], pieces, pieces_count) };
    }))
}

/// # Safety
/// As of the table's functions.
unsafe fn transmit(
    data: Data,
    fd: c_int,
    (pieces, pieces_count): (*const libc::iovec, usize),
    flags: c_int,
) -> isize {
    // SAFETY: by contract.
    let (script, bytes) = unsafe { (script(data), gather(pieces, pieces_count)) };
    count(bytes.and_then(|bytes| script.send(fd, &bytes, flags)))
}

unsafe extern "C" fn read(data: Data, fd: c_int, into: Data, length: usize) -> isize {
    // SAFETY: see above.
    unsafe { receive(data, fd, (&piece(into, length), 1), 0) }
}

unsafe extern "C" fn readv(data: Data, fd: c_int, to: *const libc::iovec, many: c_int) -> isize {
    // SAFETY: see above.
    unsafe { receive(data, fd, (to, many.max(0) as usize), 0) }
}

unsafe extern "C" fn recv(data: Data, fd: c_int, into: Data, length: usize, flags: c_int) -> isize {
    // SAFETY: see above.
    unsafe { receive(data, fd, (&piece(into, length), 1), flags) }
}

unsafe extern "C" fn recvfrom(
    data: Data,
    fd: c_int,
    into: Data,
    length: usize,
    flags: c_int,
    _: NameOut,
    _: Length,
) -> isize {
    // SAFETY: see above.
    unsafe { recv(data, fd, into, length, flags) }
}

unsafe extern "C" fn recvmsg(data: Data, fd: c_int, to: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: see above.
    unsafe {
        let got = receive(data, fd, ((*to).msg_iov, (*to).msg_iovlen), flags);
        (*to).msg_flags = 0;
        match script(data).left(fd).filter(|_| got >= 0) {
            Some(left) => give_control(&mut *to, left),
            None => (*to).msg_controllen = 0,
        }
        got
    }
}

unsafe extern "C" fn write(data: Data, fd: c_int, from: *const c_void, length: usize) -> isize {
    // SAFETY: see above.
    unsafe { transmit(data, fd, (&piece(from, length), 1), 0) }
}

unsafe extern "C" fn writev(data: Data, fd: c_int, of: *const libc::iovec, many: c_int) -> isize {
    // SAFETY: see above.
    unsafe { transmit(data, fd, (of, many.max(0) as usize), 0) }
}

unsafe extern "C" fn send(
    data: Data,
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: see above.
    unsafe { transmit(data, fd, (&piece(from, length), 1), flags) }
}

unsafe extern "C" fn sendto(
    data: Data,
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
    _: Name,
    _: libc::socklen_t,
) -> isize {
    // SAFETY: see above.
    unsafe { send(data, fd, from, length, flags) }
}

unsafe extern "C" fn sendmsg(
    data: Data,
    fd: c_int,
    of: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: see above.
    unsafe { transmit(data, fd, ((*of).msg_iov, (*of).msg_iovlen), flags) }
}

unsafe extern "C" fn fcntl(data: Data, fd: c_int, command: c_int, value: c_long) -> c_int {
    // SAFETY: see above.
    let script = unsafe { script(data) };
    let flag = |on: bool| libc::O_RDWR | if on { libc::O_NONBLOCK } else { 0 };
    match command {
        libc::F_GETFL => number(script.set_nonblocking(fd, None).map(flag)),
        libc::F_SETFL => {
            let is_on = value & c_long::from(libc::O_NONBLOCK) != 0;
            done(script.set_nonblocking(fd, Some(is_on)).map(|_| ()))
        }
        // SAFETY: of the descriptor itself.
        _ => unsafe { libc::fcntl(fd, command, value) },
    }
}

unsafe extern "C" fn ioctl(data: Data, fd: c_int, request: c_ulong, into: *mut c_int) -> c_int {
    // SAFETY: see above.
    let queued = unsafe { script(data) }.queued(fd);
    done(queued.and_then(|queued| {
        let value = match request {
            libc::FIONREAD => queued.unread,
            libc::TIOCOUTQ => queued.unacknowledged,
            SIOCOUTQNSD => queued.unsent,
            SIOCATMARK => usize::from(queued.is_at_mark),
            _ => return Err(libc::ENOTTY),
        };
        // SAFETY: each request has a place for a number.
        unsafe { *into = value as c_int };
        Ok(())
    }))
}

unsafe extern "C" fn close(data: Data, fd: c_int) -> c_int {
    // SAFETY: see above; the descriptor is one of /dev/null, or a pipe's.
    unsafe {
        script(data).close(fd);
        libc::close(fd)
    }
}

unsafe extern "C" fn shutdown(data: Data, fd: c_int, how: c_int) -> c_int {
    // SAFETY: see above.
    done(unsafe { script(data) }.shutdown(fd, how))
}

unsafe extern "C" fn getsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    into: Data,
    length: Length,
) -> c_int {
    // SAFETY: see above.
    let value = unsafe { script(data) }.option(fd, level, name);
    done(value.map(|bytes| {
        // SAFETY: no more than fits.
        unsafe {
            let fits = bytes.len().min(*length as usize);
            into.cast::<u8>().copy_from(bytes.as_ptr(), fits);
            *length = fits as libc::socklen_t;
        }
    }))
}

unsafe extern "C" fn setsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    // SAFETY: see above.
    let value = unsafe { gather(&piece(from, length as usize), 1) };
    // SAFETY: see above.
    done(value.and_then(|value| unsafe { script(data) }.set_option(fd, level, name, &value)))
}

unsafe extern "C" fn poll(
    data: Data,
    fds: *mut libc::pollfd,
    many: libc::nfds_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: see above.
    let (script, fds) = unsafe {
        (
            script(data),
            core::slice::from_raw_parts_mut(fds, many as usize),
        )
    };
    let wanted: Vec<_> = fds
        .iter()
        .map(|one| (one.fd, u32::from(one.events as u16)))
        .collect();
    let found = script.poll(&wanted, timeout_ms);
    let mut ready = 0;
    for (at, one) in fds.iter_mut().enumerate() {
        one.revents = found.get(at).map_or(0, |bits| *bits as i16);
        ready += c_int::from(one.revents != 0);
    }
    ready
}

unsafe extern "C" fn netdev_send(data: Data, packet: *const c_void, length: usize) -> c_int {
    // SAFETY: see above.
    let packet = unsafe { gather(&piece(packet, length), 1) };
    // SAFETY: see above.
    done(packet.and_then(|packet| unsafe { script(data) }.arrive(&packet)))
}

unsafe extern "C" fn netdev_receive(
    data: Data,
    into: Data,
    length: *mut usize,
    at_us: *mut c_longlong,
) -> c_int {
    // SAFETY: see above.
    let left = unsafe { script(data) }.leave();
    // Nothing will ever leave: zero bytes are an invalid packet, and the script fails; after an
    // error it would ask forever.
    let (left_us, packet) = left.unwrap_or_default();
    // SAFETY: no more than fits.
    unsafe {
        let fits = packet.len().min(*length);
        into.cast::<u8>().copy_from(packet.as_ptr(), fits);
        *length = fits;
        *at_us = left_us as c_longlong;
    }
    0
}

unsafe extern "C" fn usleep(data: Data, us: c_uint) -> c_int {
    // SAFETY: see above.
    unsafe { script(data) }.sleep(u64::from(us));
    0
}

unsafe extern "C" fn gettimeofday(data: Data, into: *mut libc::timeval, _: Data) -> c_int {
    // SAFETY: see above.
    let now_us = unsafe { script(data) }.clock();
    let now = libc::timeval {
        tv_sec: (now_us / 1_000_000) as libc::time_t,
        tv_usec: (now_us % 1_000_000) as libc::suseconds_t,
    };
    // SAFETY: see above.
    unsafe { *into = now };
    0
}

unsafe extern "C" fn epoll_create(data: Data, _: c_int) -> c_int {
    number(descriptor().inspect(|fd| {
        // SAFETY: see above.
        unsafe { script(data) }.add_set(*fd);
    }))
}

unsafe extern "C" fn epoll_ctl(
    data: Data,
    set: c_int,
    command: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: see above.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    let event = event.map_or((0, 0), |event| (event.events, event.u64));
    // SAFETY: see above.
    done(unsafe { script(data) }.control(set, command, fd, event))
}

unsafe extern "C" fn epoll_wait(
    data: Data,
    set: c_int,
    into: *mut libc::epoll_event,
    most: c_int,
    timeout_ms: c_int,
) -> c_int {
    let Ok(most @ 1..) = usize::try_from(most) else {
        return number(Err(libc::EINVAL));
    };
    // SAFETY: see above.
    let found = unsafe { script(data) }.wait_for(set, most, timeout_ms);
    number(found.map(|found| {
        for (at, (events, data)) in found.iter().enumerate() {
            let event = libc::epoll_event {
                events: *events,
                u64: *data,
            };
            // SAFETY: no more than `most`.
            unsafe { into.add(at).write_unaligned(event) };
        }
        found.len() as c_int
    }))
}

unsafe extern "C" fn pipe(_: Data, into: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { libc::pipe(into) }
}

/// Between a pipe, which the kernel handles, and a socket.
unsafe extern "C" fn splice(
    data: Data,
    from: c_int,
    from_at: *mut libc::loff_t,
    to: c_int,
    to_at: *mut libc::loff_t,
    length: usize,
    flags: c_uint,
) -> isize {
    const PIECE: usize = 65_536;
    let mut bytes = vec![0u8; length.min(PIECE)];
    let wait = match flags & libc::SPLICE_F_NONBLOCK {
        0 => 0,
        _ => libc::MSG_DONTWAIT,
    };
    // SAFETY: see above; the buffer is local.
    unsafe {
        let script = script(data);
        match (script.has(from), script.has(to)) {
            // The kernel stops before an urgent byte without an error.
            (true, false) if script.queued(from).is_ok_and(|queued| queued.is_at_mark) => 0,
            (true, false) => count(script.receive(from, &mut bytes, wait).and_then(|got| {
                let put = libc::write(to, bytes.as_ptr().cast(), got);
                usize::try_from(put).map_err(|_| libc::EAGAIN)
            })),
            (false, true) => match libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()) {
                got @ 1.. => count(script.send(to, &bytes[..got as usize], wait)),
                other => other,
            },
            (true, true) => count(Err(libc::EINVAL)),
            (false, false) => libc::splice(from, from_at, to, to_at, length, flags),
        }
    }
}
