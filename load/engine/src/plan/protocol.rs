//! The protocol of all connections.

/// Bytes of the number that a message over UDP begins with.
pub const NUMBER_BYTES: usize = size_of::<u64>();

/// The protocol of all connections, and how many requests each carries at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// Requests sent together on a connection.
        depth: usize,
        /// Latencies end when the kernel received the answer, not when it was read.
        timestamps: bool,
        /// Bodies that neither a script nor an expectation needs are dropped in the kernel instead of
        /// being read (http:// over TCP).
        drop_bodies: bool,
    },
    /// HTTP/2.
    Http2 {
        /// Streams at once on a connection, each the place of one user.
        streams: usize,
        /// Each request is a gRPC call, and its answer says how it went.
        grpc: bool,
    },
    /// HTTP/3.
    Http3 {
        /// Streams at once on a connection, each the place of one user.
        streams: usize,
    },
    /// Each request is a message of WebSocket, and so is its answer.
    WebSocket {
        /// Messages sent together on a connection.
        depth: usize,
    },
    /// Each request is a message over TCP.
    Tcp {
        /// Messages in flight on a connection, each the place of one user.
        window: usize,
        /// Size of an answer where it is not the echo of the message.
        reply_bytes: Option<usize>,
    },
    /// Each request is a datagram, and its answer the echo.
    Udp {
        /// Datagrams in flight on a connection, each the place of one user.
        window: usize,
    },
}

impl Protocol {
    /// Requests sent together on a connection.
    pub fn depth(self) -> usize {
        match self {
            Protocol::Http1 { depth, .. } | Protocol::WebSocket { depth } => depth,
            Protocol::Http2 { .. }
            | Protocol::Http3 { .. }
            | Protocol::Tcp { .. }
            | Protocol::Udp { .. } => 1,
        }
    }

    /// Requests at once on a connection, each of a user of its own.
    pub fn streams(self) -> usize {
        match self {
            Protocol::Http1 { .. } | Protocol::WebSocket { .. } => 1,
            Protocol::Http2 { streams, .. } | Protocol::Http3 { streams } => streams,
            Protocol::Tcp { window, .. } | Protocol::Udp { window } => window,
        }
    }

    /// Whether answers have a status.
    pub fn is_http(self) -> bool {
        matches!(
            self,
            Protocol::Http1 { .. } | Protocol::Http2 { .. } | Protocol::Http3 { .. }
        )
    }

    /// Whether requests are gRPC calls.
    pub fn is_grpc(self) -> bool {
        matches!(self, Protocol::Http2 { grpc: true, .. })
    }

    /// Whether latencies end at the kernel's timestamps.
    pub fn has_timestamps(self) -> bool {
        matches!(
            self,
            Protocol::Http1 {
                timestamps: true,
                ..
            }
        )
    }

    /// Whether bodies are dropped in the kernel.
    pub fn drops_bodies(self) -> bool {
        matches!(
            self,
            Protocol::Http1 {
                drop_bodies: true,
                ..
            }
        )
    }

    /// The same with one request at a time.
    pub(super) fn single(mut self) -> Protocol {
        match &mut self {
            Protocol::Http1 { depth: many, .. }
            | Protocol::WebSocket { depth: many }
            | Protocol::Http2 { streams: many, .. }
            | Protocol::Http3 { streams: many }
            | Protocol::Tcp { window: many, .. }
            | Protocol::Udp { window: many } => *many = 1,
        }
        self
    }
}
