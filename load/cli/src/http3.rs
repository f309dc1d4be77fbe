//! Options that HTTP/3 excludes: it is encrypted, and goes over UDP.

use crate::refusal::{wrong, Refusal, Wrong};
use crate::table::Args;
use load_engine::plan::Target;

/// Refuses options that do not go with HTTP/3.
pub fn check(args: &Args, targets: &[Target]) -> Result<(), Refusal> {
    if !args.http3 {
        return Ok(());
    }
    if targets.iter().any(|target| target.tls_name.is_none()) {
        return wrong("http3", Wrong::Needs("https:// (QUIC is always encrypted)"));
    }
    let of_tcp = [
        "tcp-congestion",
        "tcp-mss",
        "tcp-fast-open",
        "proxy-protocol",
        "abort",
    ];
    if let Some(name) = args.first_of(&of_tcp) {
        return wrong(name, Wrong::Clash("--http3 (QUIC goes over UDP)".into()));
    }
    if args.has("tls-resume") {
        return wrong("tls-resume", Wrong::Clash("--http3".into()));
    }
    let versions = args.tls_version.as_ref();
    if versions.is_some_and(|list| !list.0.iter().any(|version| version == "1.3")) {
        return wrong("http3", Wrong::Needs("TLS 1.3 (--tls-version)"));
    }
    Ok(())
}
