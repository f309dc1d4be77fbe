//! Same-host byte streams over shared memory: segments, rings, rendezvous.
