//! libc in front, user-level stack or kernel behind.
