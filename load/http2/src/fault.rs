//! Errors of a connection: the error codes of RFC 9113, 7.

/// An error of the whole connection, by its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Frames that a server may not send, or not here.
    Protocol,
    /// A window that grew beyond its limit.
    FlowControl,
    /// A frame of a wrong size.
    FrameSize,
    /// A header block that cannot be decompressed.
    Compression,
    /// More PINGs or SETTINGS, or a longer header block, than any server needs.
    EnhanceYourCalm,
}

impl Fault {
    /// Its code (RFC 9113, 7).
    pub fn code(self) -> u32 {
        match self {
            Fault::Protocol => 1,
            Fault::FlowControl => 3,
            Fault::FrameSize => 6,
            Fault::Compression => 9,
            Fault::EnhanceYourCalm => 11,
        }
    }

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Protocol => "protocol_error",
            Fault::FlowControl => "flow_control_error",
            Fault::FrameSize => "frame_size_error",
            Fault::Compression => "compression_error",
            Fault::EnhanceYourCalm => "enhance_your_calm",
        }
    }
}
