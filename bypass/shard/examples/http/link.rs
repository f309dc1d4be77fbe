//! The shard that the options name.

use std::net::IpAddr;
use std::sync::Arc;

use bypass_device::tap::Tap;
use bypass_shard::tcp::Address;
use bypass_shard::Shard;
use bypass_xdp::{check, Mode, Opened, Settings, Steering, Way};

use crate::Options;

/// Makes it.
pub fn shard(options: &Options) -> Result<Shard, String> {
    match (options.text("--interface"), options.text("--tap")) {
        (Some(name), None) => over_interface(name, options),
        (None, Some(name)) => over_tap(name, options),
        _ => Err("one of --interface and --tap is wanted (http --help)".into()),
    }
}

fn over_interface(name: &str, options: &Options) -> Result<Shard, String> {
    let report = check::look(name).map_err(|error| format!("{name}: {}", text(error)))?;
    let is_usable = report.is_usable();
    let Some((link, traits)) = report.link.as_ref().filter(|_| is_usable) else {
        return Err(format!("packets cannot be used on\n{report}"));
    };
    let failed = |what: &str| {
        let what = format!("{name}: {what}");
        move |error| format!("{what}: {}", text(error))
    };
    let is_wanted = |way: &&Way| !options.has("--generic") || way.mode == Mode::Generic;
    let way = traits
        .ways
        .iter()
        .find(is_wanted)
        .ok_or(format!("{name}: no generic mode"))?;
    let settings = way.settings(Settings {
        busy_poll_us: options.number("--busy-poll", 0)?,
        packet_sender: options.has("--gso"),
        partial_checksums: traits.has_partial_checksums(way),
        ..Settings::default()
    });
    let opened = Opened::open(link, options.number("--queue", 0)?, settings)
        .map_err(failed("AF_XDP socket"))?;
    let takes_fragments = opened.layout().has_fragments;
    let steering = Steering::attach(link.index, link.mtu, way.mode, takes_fragments)
        .map_err(failed("XDP program"))?;
    steering
        .set_socket(opened.layout().queue, opened.socket())
        .map_err(failed("XDP map"))?;
    let steering = Arc::new(steering);
    Shard::over_xdp(steering, vec![opened], Default::default()).map_err(failed("rings"))
}

fn over_tap(name: &str, options: &Options) -> Result<Shard, String> {
    let given = options
        .text("--address")
        .ok_or("--tap wants --address IP/PREFIX")?;
    let address = address(given).ok_or(format!("{given:?} is not IP/PREFIX"))?;
    let tap = Tap::open(name).map_err(|error| format!("{name}: {error}"))?;
    Ok(Shard::alone(
        Box::new(tap),
        [2, 0, 0, 0, 0, 0x77],
        &[address],
        &[],
        Default::default(),
    ))
}

fn address(given: &str) -> Option<Address> {
    let (ip, prefix) = given.split_once('/')?;
    let (ip, prefix_len): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
    Some(Address { ip, prefix_len })
}

fn text(error: i32) -> String {
    std::io::Error::from_raw_os_error(error).to_string()
}
