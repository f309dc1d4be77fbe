//! HTTP/1 bytes of the load generator: requests written, responses parsed; no I/O.
