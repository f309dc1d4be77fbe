//! Errors by their causes: the codes of RFC 9114, 8.1, and RFC 9204, 6.

/// The code of a connection that ends in good order (H3_NO_ERROR).
pub const NO_ERROR: u64 = 0x100;
/// The code of a request whose response is not wanted any more (H3_REQUEST_CANCELLED).
pub const REQUEST_CANCELLED: u64 = 0x10c;

/// An error of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A stream of a kind that may not be opened, or not twice.
    StreamCreation,
    /// The end of a stream that lasts as long as the connection.
    ClosedCriticalStream,
    /// A frame that may not come, or not here.
    FrameUnexpected,
    /// A frame of a wrong size, or one that ends with its stream.
    Frame,
    /// A longer header block than any server needs.
    ExcessiveLoad,
    /// A number of a stream or a push that cannot be.
    Id,
    /// A setting that may not be.
    Settings,
    /// A control stream that does not begin with SETTINGS.
    MissingSettings,
    /// A malformed response. It ends its stream only.
    Message,
    /// A header block that cannot be decompressed.
    Decompression,
    /// An instruction of the server's encoder that this client has not allowed.
    EncoderStream,
    /// An instruction of the server's decoder that answers nothing.
    DecoderStream,
}

impl Fault {
    /// The code that the client closes the connection or the stream with.
    pub fn code(self) -> u64 {
        match self {
            Fault::StreamCreation => 0x103,
            Fault::ClosedCriticalStream => 0x104,
            Fault::FrameUnexpected => 0x105,
            Fault::Frame => 0x106,
            Fault::ExcessiveLoad => 0x107,
            Fault::Id => 0x108,
            Fault::Settings => 0x109,
            Fault::MissingSettings => 0x10a,
            Fault::Message => 0x10e,
            Fault::Decompression => 0x200,
            Fault::EncoderStream => 0x201,
            Fault::DecoderStream => 0x202,
        }
    }

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::StreamCreation => "stream_creation_error",
            Fault::ClosedCriticalStream => "closed_critical_stream",
            Fault::FrameUnexpected => "frame_unexpected",
            Fault::Frame => "frame_error",
            Fault::ExcessiveLoad => "excessive_load",
            Fault::Id => "id_error",
            Fault::Settings => "settings_error",
            Fault::MissingSettings => "missing_settings",
            Fault::Message => "message_error",
            Fault::Decompression => "qpack_decompression_failed",
            Fault::EncoderStream => "qpack_encoder_stream_error",
            Fault::DecoderStream => "qpack_decoder_stream_error",
        }
    }
}
