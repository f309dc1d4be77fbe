//! The TCP engine behind packetdrill's interface for user-level stacks.
//!
//! packetdrill loads a library (`--so_filename`), calls [`packetdrill_interface_init`] and finds a table of
//! functions: the calls of a script, packets in and out, and the clock. Here the clock is virtual: it
//! moves when packetdrill sleeps, waits for a packet, or reads it, so that a script takes no longer
//! than its computation and does the same at every run. Flags (`--so_flags`, separated by commas): `local=ADDRESS`,
//! which must be packetdrill's `--local_ip` where a script connects without bind; `mtu=BYTES`;
//! `segmentation_max=BYTES`, with which trains leave whole, as Linux's do; and what scripts set by sysctl:
//! `receive_bytes_max`, `send_bytes`, `slow_start_after_idle`, `sack`, `timestamps`, `window_scaling`, and `ecn`
//! (Linux's numbers: 0 never, 1 asks, 2 accepts).
//!
//! Descriptors are real ones of `/dev/null`: packetdrill closes them itself.

mod host;
mod options;
mod script;
mod sets;

use core::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void, CStr};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use host::Host;
use script::{Result, Script};

type Data = *mut c_void;
type Name = *const libc::sockaddr;
type NameOut = *mut libc::sockaddr;
type Length = *mut libc::socklen_t;

/// packetdrill's table, in its order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // each is the call of that name
pub struct Interface {
    pub userdata: Data,
    pub free: unsafe extern "C" fn(Data),
    pub socket: unsafe extern "C" fn(Data, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(Data, c_int, Name, libc::socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(Data, c_int, NameOut, Length) -> c_int,
    pub connect: unsafe extern "C" fn(Data, c_int, Name, libc::socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(Data, c_int, Data, usize) -> isize,
    pub readv: unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> isize,
    pub recv: unsafe extern "C" fn(Data, c_int, Data, usize, c_int) -> isize,
    pub recvfrom: unsafe extern "C" fn(Data, c_int, Data, usize, c_int, NameOut, Length) -> isize,
    pub recvmsg: unsafe extern "C" fn(Data, c_int, *mut libc::msghdr, c_int) -> isize,
    pub write: unsafe extern "C" fn(Data, c_int, *const c_void, usize) -> isize,
    pub writev: unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> isize,
    pub send: unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int) -> isize,
    pub sendto: unsafe extern "C" fn(
        Data,
        c_int,
        *const c_void,
        usize,
        c_int,
        Name,
        libc::socklen_t,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(Data, c_int, *const libc::msghdr, c_int) -> isize,
    /// Variable arguments in C: one that is an integer or a pointer comes the same way.
    pub fcntl: unsafe extern "C" fn(Data, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, Data, Length) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, libc::socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(Data, *mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(Data, *const c_void, usize) -> c_int,
    pub netdev_receive: unsafe extern "C" fn(Data, Data, *mut usize, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(Data, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(Data, *mut libc::timeval, Data) -> c_int,
    pub epoll_create: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    pub epoll_wait:
        unsafe extern "C" fn(Data, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(Data, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(
        Data,
        c_int,
        *mut libc::loff_t,
        c_int,
        *mut libc::loff_t,
        usize,
        c_uint,
    ) -> isize,
}

/// Fills packetdrill's table. Flags that are not known end the process: the script would run with
/// something else than was asked for.
///
/// # Safety
/// `flags` must be null or a C string, `table` must have room for an [`Interface`].
#[no_mangle]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    // SAFETY: by contract.
    let flags = (!flags.is_null()).then(|| unsafe { CStr::from_ptr(flags) });
    let flags = flags.unwrap_or_default().to_string_lossy();
    let Some(host) = Host::new(&flags) else {
        eprintln!("bypass-packetdrill: {flags}: flags are local=ADDRESS and settings, NAME=NUMBER");
        std::process::exit(2);
    };
    let userdata = Box::into_raw(Box::new(Script::new(host))).cast();
    let interface = Interface {
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
    };
    // SAFETY: by contract.
    unsafe { table.write(interface) };
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

/// A real descriptor, which packetdrill may close.
fn descriptor() -> Result<c_int> {
    // SAFETY: a constant name.
    match unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) } {
        -1 => Err(libc::EMFILE),
        fd => Ok(fd),
    }
}

unsafe extern "C" fn socket(data: Data, family: c_int, kind: c_int, _: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if ![libc::AF_INET, libc::AF_INET6].contains(&family) || kind & !flags != libc::SOCK_STREAM {
        return number(Err(libc::EPROTONOSUPPORT));
    }
    number(descriptor().inspect(|fd| {
        // SAFETY: see above.
        unsafe { script(data) }.add(*fd, kind & libc::SOCK_NONBLOCK != 0);
    }))
}

/// # Safety
/// `name` must be readable for `length` bytes.
unsafe fn address(name: Name, length: libc::socklen_t) -> Result<SocketAddr> {
    if name.is_null() || (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: long enough, whatever the alignment.
    let v4: libc::sockaddr_in = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
    if i32::from(v4.sin_family) == libc::AF_INET {
        let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
        return Ok((ip, u16::from_be(v4.sin_port)).into());
    }
    if (length as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(libc::EAFNOSUPPORT);
    }
    // SAFETY: as above.
    let v6: libc::sockaddr_in6 = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
    let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
    let ip = ip.to_ipv4_mapped().map_or(ip.into(), Into::into);
    Ok(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
}

/// # Safety
/// `name` must be null, or writable for `*length` bytes.
unsafe fn give_address(of: SocketAddr, name: NameOut, length: Length) {
    if name.is_null() || length.is_null() {
        return;
    }
    let port = of.port().to_be_bytes();
    let bytes = match of {
        SocketAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &v6.ip().octets(), &[0; 4]].concat()
        }
    };
    // SAFETY: no more than fits.
    unsafe {
        let fits = bytes.len().min(*length as usize);
        name.cast::<u8>().copy_from(bytes.as_ptr(), fits);
        *length = bytes.len() as libc::socklen_t;
    }
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

/// Bytes that a call gives or takes, as one piece.
///
/// # Safety
/// `pieces` must be readable for `count` entries.
unsafe fn total(pieces: *const libc::iovec, count: usize) -> usize {
    // SAFETY: by contract.
    (0..count)
        .map(|at| unsafe { (*pieces.add(at)).iov_len })
        .sum()
}

/// # Safety
/// The pieces must be readable.
unsafe fn gather(pieces: *const libc::iovec, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..count {
        // SAFETY: by contract.
        let piece = unsafe { *pieces.add(at) };
        if piece.iov_len > 0 {
            // SAFETY: by contract.
            let from = unsafe { core::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
            bytes.extend_from_slice(from);
        }
    }
    bytes
}

/// # Safety
/// The pieces must be writable.
unsafe fn scatter(mut bytes: &[u8], pieces: *const libc::iovec, count: usize) {
    for at in 0..count {
        // SAFETY: by contract.
        let piece = unsafe { *pieces.add(at) };
        let (now, rest) = bytes.split_at(piece.iov_len.min(bytes.len()));
        // SAFETY: no more than fits.
        unsafe {
            piece
                .iov_base
                .cast::<u8>()
                .copy_from(now.as_ptr(), now.len())
        };
        bytes = rest;
    }
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
    let mut bytes = vec![0; length];
    count(script.receive(fd, &mut bytes, flags).inspect(|got| {
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
    count(script.send(fd, &bytes, flags))
}

fn piece(base: *const c_void, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast_mut(),
        iov_len: length,
    }
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
        (*to).msg_flags = 0;
        (*to).msg_controllen = 0;
        receive(data, fd, ((*to).msg_iov, (*to).msg_iovlen), flags)
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
    done(queued.and_then(|(unread, unacknowledged)| {
        let value = match request {
            libc::FIONREAD => unread,
            libc::TIOCOUTQ => unacknowledged,
            _ => return Err(libc::ENOTTY),
        };
        // SAFETY: both requests have a place for a number.
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
    done(unsafe { script(data) }.set_option(fd, level, name, &value))
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
    done(unsafe { script(data) }.arrive(&packet))
}

unsafe extern "C" fn netdev_receive(
    data: Data,
    into: Data,
    length: *mut usize,
    at_us: *mut c_longlong,
) -> c_int {
    // SAFETY: see above.
    let left = unsafe { script(data) }.leave();
    // Nothing will ever leave: no bytes are no packet, and the script fails; after an error it would ask for ever.
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

/// Between a pipe, which is the kernel's, and a socket.
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
    // SAFETY: see above; the buffer is ours.
    unsafe {
        let script = script(data);
        match (script.has(from), script.has(to)) {
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
