//! User-level sockets of one process: descriptors, readiness, waiting.
