//! What a call can answer instead of a result.

use core::fmt;

/// Why a call did nothing. [`Error::errno`] is the number that a socket call reports for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Nothing to read, no room to write, nothing to accept: try again after an event.
    WouldBlock,
    /// The handle is of a socket that was closed.
    BadHandle,
    /// The call does not fit the socket: a listener cannot send.
    InvalidArgument,
    /// The connection is not established yet.
    NotConnected,
    /// Writing is over, by this side's shutdown or by an error already reported.
    BrokenPipe,
    /// The peer reset the connection.
    ConnectionReset,
    /// The peer refused the connection.
    ConnectionRefused,
    /// The peer no longer answers.
    TimedOut,
    /// No way to the host.
    HostUnreachable,
    /// No route to the network.
    NetworkUnreachable,
    /// A router does not let packets through.
    PermissionDenied,
    /// The host does not know TCP.
    ProtocolUnavailable,
    /// The route that the packet was to take failed.
    NotSupported,
    /// The host is not known.
    HostDown,
    /// The host is cut off from its network.
    HostIsolated,
    /// The address or pair of addresses is taken.
    AddressInUse,
    /// The address is not one of ours.
    AddressNotAvailable,
    /// A limit on connections or memory is reached.
    NoBuffers,
}

impl Error {
    /// Linux's error number.
    pub fn errno(self) -> i32 {
        match self {
            Error::WouldBlock => 11,
            Error::BadHandle => 9,
            Error::InvalidArgument => 22,
            Error::NotConnected => 107,
            Error::BrokenPipe => 32,
            Error::ConnectionReset => 104,
            Error::ConnectionRefused => 111,
            Error::TimedOut => 110,
            Error::HostUnreachable => 113,
            Error::NetworkUnreachable => 101,
            Error::PermissionDenied => 13,
            Error::ProtocolUnavailable => 92,
            Error::NotSupported => 95,
            Error::HostDown => 112,
            Error::HostIsolated => 64,
            Error::AddressInUse => 98,
            Error::AddressNotAvailable => 99,
            Error::NoBuffers => 105,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Error::WouldBlock => "not ready",
            Error::BadHandle => "no such socket",
            Error::InvalidArgument => "not possible on this socket",
            Error::NotConnected => "not connected",
            Error::BrokenPipe => "broken pipe",
            Error::ConnectionReset => "connection reset by peer",
            Error::ConnectionRefused => "connection refused",
            Error::TimedOut => "timed out",
            Error::HostUnreachable => "host unreachable",
            Error::NetworkUnreachable => "network unreachable",
            Error::PermissionDenied => "permission denied",
            Error::ProtocolUnavailable => "protocol not available",
            Error::NotSupported => "operation not supported",
            Error::HostDown => "host down",
            Error::HostIsolated => "host not on the network",
            Error::AddressInUse => "address in use",
            Error::AddressNotAvailable => "address not available",
            Error::NoBuffers => "no buffer space",
        })
    }
}

impl core::error::Error for Error {}
