//! The load engine: threads, connections, schedule, histograms.
