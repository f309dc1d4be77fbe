//! Facts about a connection as `struct tcp_info` has them (linux/tcp.h, tcp(7)): the engine's table, in the words
//! that shared memory holds.

use bypass_shard::tcp::{Info, LINUX_CLOSED, SEGMENT_WORD};
use bypass_shm::layout::INFO_WORDS;

/// The size of segments in what [`words`] has made, for TCP_MAXSEG.
pub fn segment_bytes(words: &[u32; INFO_WORDS]) -> u32 {
    words[SEGMENT_WORD]
}

/// Of a connection that is over.
pub fn of_nothing() -> [u32; INFO_WORDS] {
    let mut words = [0; INFO_WORDS];
    words[0] = u32::from_ne_bytes([LINUX_CLOSED, 0, 0, 0]);
    words
}

/// The facts that an engine reports.
pub fn words(info: &Info) -> [u32; INFO_WORDS] {
    info.linux_words()
}
