//! The kernel's view of a TCP connection (TCP_INFO, tcp(7); the layout is that of linux/tcp.h).

use super::socket::Fd;

/// Bytes that are asked for: up to the delivery rate, which Linux 4.9 and later have.
const SIZE: usize = 168;

/// State of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its mean deviation, microseconds.
    pub rtt_deviation_us: u32,
    /// Congestion window, segments.
    pub window_segments: u32,
    /// Segments retransmitted since the connection began.
    pub retransmitted: u32,
    /// Segments sent since then, retransmitted ones and pure acknowledgements included.
    pub segments_out: u32,
    /// Latest measured rate of delivery, bytes per second.
    pub delivery_bytes_per_second: u64,
}

/// The state of a connection; nothing for other sockets and for stacks without it.
pub fn tcp_info(fd: Fd) -> Option<TcpInfo> {
    let mut bytes = [0u8; SIZE];
    let mut size = SIZE as libc::socklen_t;
    // SAFETY: at most `size` bytes are written to the buffer, which is as long.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut size,
        )
    };
    if result < 0 || (size as usize) < SIZE {
        return None;
    }
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    Some(TcpInfo {
        rtt_us: word(68),
        rtt_deviation_us: word(72),
        window_segments: word(80),
        retransmitted: word(100),
        segments_out: word(136),
        delivery_bytes_per_second: u64::from_ne_bytes(
            bytes[160..168].try_into().unwrap_or_default(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_shows_what_it_has_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(address).expect("accepted later");
        let (mut peer, _) = listener.accept().expect("a connection");
        let before = tcp_info(stream.as_raw_fd()).expect("a TCP socket");
        for _ in 0..5 {
            stream.write_all(b"x").expect("room");
            peer.read_exact(&mut [0]).expect("one byte");
            peer.write_all(b"y").expect("room");
            stream.read_exact(&mut [0]).expect("one byte");
        }
        let after = tcp_info(stream.as_raw_fd()).expect("a TCP socket");
        assert!(after.segments_out >= before.segments_out + 5, "{after:?}");
        assert!(
            after.window_segments >= 1 && after.rtt_us < 10_000_000,
            "{after:?}"
        );
    }

    #[test]
    fn other_sockets_have_none() {
        let (one, _) = UnixStream::pair().expect("a pair");
        assert_eq!(tcp_info(one.as_raw_fd()), None);
    }
}
