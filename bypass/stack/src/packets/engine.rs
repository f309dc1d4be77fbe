//! The engine as the options of the program want it.

use std::ffi::CString;

use bypass_options::Tcp;
use bypass_shard::tcp::{Config, Ecn, SocketOption};
use bypass_shard::Settings;
use bypass_sys::{kernel, numbers};

use super::options;

/// Bytes of a full segment over Ethernet, with timestamps.
const SEGMENT: u64 = 1448;
/// More than any buffer holds.
const SEGMENTS_MAX: u64 = 65_535;
const SECOND_US: u64 = 1_000_000;
/// More than three numbers take.
const SETTING_BYTES: usize = 128;

/// Least and largest buffers that can be asked for.
const BUFFER_BYTES: core::ops::RangeInclusive<u64> = 2_048..=8 << 20;

/// An engine whose connections begin as the kernel's do on this host (net.ipv4.tcp_keepalive_time and
/// its like).
pub fn of_host() -> Config {
    let mut engine = Config::default();
    for wish in options::of_new_socket() {
        match wish.option() {
            Some(SocketOption::KeepIdle { seconds }) => {
                engine.keepalive_idle_us = u64::from(seconds) * SECOND_US;
            }
            Some(SocketOption::KeepInterval { seconds }) => {
                engine.keepalive_interval_us = u64::from(seconds) * SECOND_US;
            }
            Some(SocketOption::KeepCount(probes)) => engine.keepalive_probes = probes,
            Some(SocketOption::SynRetries(retries)) => engine.syn_retries = retries,
            Some(SocketOption::Hops(hops)) => engine.hops = hops,
            Some(SocketOption::FinWait { seconds }) => {
                engine.fin_wait_us = u64::from(seconds) * SECOND_US;
            }
            Some(SocketOption::CongestionControl(control)) => engine.congestion = control,
            _ => {}
        }
    }
    obey(&mut engine, |name| setting(&format!("tcp_{name}")));
    engine
}

/// The text of a setting of the host, by a descriptor that the program does not see.
fn setting(name: &str) -> Option<String> {
    let path = CString::new(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    let file = numbers::high(|| kernel::open(&path, libc::O_RDONLY)).ok()?;
    let mut bytes = [0; SETTING_BYTES];
    let count = kernel::read(file.0, &mut bytes).ok()?;
    String::from_utf8(bytes[..count].to_vec()).ok()
}

/// Takes over settings of the host that no socket shows (net.ipv4.tcp_*, for IPv6 too); `read` gives the
/// text of a setting, where the kernel has it.
fn obey(engine: &mut Config, read: impl Fn(&str) -> Option<String>) {
    let number = |name, at| -> Option<u64> { read(name)?.split_whitespace().nth(at)?.parse().ok() };
    let one = |name| number(name, 0);
    let is_on = |name| one(name).map(|value| value != 0);
    let count = |name| one(name).map(|value| value.clamp(1, u64::from(u8::MAX)) as u8);
    put(&mut engine.retries, count("retries2"));
    put(&mut engine.syn_ack_retries, count("synack_retries"));
    let linear = one("syn_linear_timeouts").map(|count| count.min(u64::from(u8::MAX)) as u8);
    put(&mut engine.syn_linear_timeouts, linear);
    // Zero stands for as many as the engine has.
    let orphans = count("orphan_retries").filter(|_| is_on("orphan_retries") == Some(true));
    put(&mut engine.orphan_retries, orphans);
    put(&mut engine.timestamps, is_on("timestamps"));
    put(&mut engine.sack, is_on("sack"));
    put(&mut engine.window_scaling, is_on("window_scaling"));
    put(&mut engine.ecn, one("ecn").map(ecn));
    put(&mut engine.syn_cookies, is_on("syncookies"));
    put(
        &mut engine.slow_start_after_idle,
        is_on("slow_start_after_idle"),
    );
    put(&mut engine.loss_probe, is_on("early_retrans"));
    put(
        &mut engine.rto_min_us,
        one("rto_min_us").map(|us| us.max(1000)),
    );
    put(
        &mut engine.rto_max_us,
        one("rto_max_ms").map(|ms| ms.max(1) * 1000),
    );
    let bytes = |value: u64| value.min(u64::from(u32::MAX));
    let low = one("notsent_lowat")
        .map(bytes)
        .filter(|low| *low < u64::from(u32::MAX));
    put(&mut engine.unsent_low, low.map(|low| low as u32));
    obey_memory(engine, number);
}

/// Limits of buffers where they are lower than the engine's. Of the kernel's bytes for receiving half are data.
fn obey_memory(engine: &mut Config, number: impl Fn(&'static str, usize) -> Option<u64>) {
    let lower = |place: &mut u32, limit: Option<u64>| {
        let limit = limit.map(|limit| limit.max(*BUFFER_BYTES.start()));
        *place = limit.map_or(*place, |limit| limit.min(u64::from(*place)) as u32);
    };
    let half = |value: u64| value / 2;
    lower(&mut engine.receive_bytes_max, number("rmem", 2).map(half));
    lower(&mut engine.receive_bytes, number("rmem", 1).map(half));
    lower(
        &mut engine.receive_bytes,
        Some(u64::from(engine.receive_bytes_max)),
    );
    if number("moderate_rcvbuf", 0) == Some(0) {
        engine.receive_bytes_max = engine.receive_bytes;
    }
    lower(&mut engine.send_bytes_max, number("wmem", 2));
    lower(
        &mut engine.send_bytes,
        Some(u64::from(engine.send_bytes_max)),
    );
}

/// By Linux's number. Accurate ECN, which the engine does not have, falls back to the plain one.
fn ecn(number: u64) -> Ecn {
    match number {
        0 => Ecn::Off,
        1 | 3 | 4 => Ecn::Request,
        _ => Ecn::Accept,
    }
}

/// The settings of an engine: `engine`, except where the options specify something else.
pub fn settings(mut engine: Config, options: &Tcp) -> Settings {
    put(
        &mut engine.initial_window,
        options.initial_window_bytes.map(segments),
    );
    let life_us = |seconds: u64| 2 * seconds * SECOND_US;
    put(
        &mut engine.time_wait_us,
        options.segment_life_s.map(life_us),
    );
    let wait_us = |seconds: u64| seconds * SECOND_US;
    put(&mut engine.fin_wait_us, options.fin_timeout_s.map(wait_us));
    let most = |count: u64| count.min(u64::from(u32::MAX)) as u32;
    put(&mut engine.half_open_max, options.half_open_max.map(most));
    put(
        &mut engine.half_open_of_listener_max,
        options.half_open_of_listener_max.map(most),
    );
    put(&mut engine.syn_cookies, options.syn_cookies);
    set_buffers(&mut engine, options);
    // Each of them is for one segment at least.
    let quick = |bytes: u64| segments(bytes).min(u32::from(u8::MAX)) as u8;
    put(
        &mut engine.quick_acks.start,
        options.quick_start_bytes.map(quick),
    );
    put(
        &mut engine.quick_acks.idle,
        options.quick_idle_bytes.map(quick),
    );
    put(
        &mut engine.quick_acks.loss,
        options.quick_loss_bytes.map(quick),
    );
    put(
        &mut engine.delayed_ack_segments,
        options.delayed_ack_segments.map(most),
    );
    put(&mut engine.loss_probe, options.loss_probe);
    if let Some(offered) = options.syn_options {
        engine.timestamps = offered.timestamps;
        engine.window_scaling = offered.window_scaling;
        engine.sack = offered.sack;
        engine.ecn = if offered.ecn { Ecn::Request } else { Ecn::Off };
    }
    put(&mut engine.retries, options.retries);
    if let Some(retries) = options.syn_retries {
        // So many in all.
        (engine.syn_retries, engine.syn_linear_timeouts) = (retries, 0);
    }
    // A timer of nothing would send for ever.
    let time_us = |ms: u64| ms.max(1) * 1000;
    put(
        &mut engine.keepalive_idle_us,
        options.keepalive_idle_ms.map(time_us),
    );
    put(
        &mut engine.rto_initial_us,
        options.rto_initial_ms.map(time_us),
    );
    put(&mut engine.rto_min_us, options.rto_min_ms.map(time_us));
    put(&mut engine.rto_max_us, options.rto_max_ms.map(time_us));
    engine.rto_max_us = engine.rto_max_us.max(engine.rto_min_us);
    Settings {
        engine,
        ..Settings::default()
    }
}

/// A size that is set, or a fixed one, does not grow with the connection.
fn set_buffers(engine: &mut Config, options: &Tcp) {
    let size = |bytes: u64| bytes.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end()) as u32;
    put(&mut engine.send_bytes, options.send_bytes.map(size));
    if options.send_bytes.is_some() || options.send_is_fixed {
        engine.send_bytes_max = engine.send_bytes;
    }
    put(&mut engine.receive_bytes, options.receive_bytes.map(size));
    if options.receive_bytes.is_some() || options.receive_is_fixed {
        engine.receive_bytes_max = engine.receive_bytes;
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn segments(bytes: u64) -> u32 {
    bytes.div_ceil(SEGMENT).min(SEGMENTS_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_stays_as_the_engine_has_it() {
        let made = settings(Config::default(), &Tcp::default()).engine;
        assert_eq!(format!("{made:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn the_table_of_options_has_the_engines_defaults() {
        let engine = Config::default();
        let acks = format!("{} segments", engine.quick_acks.start);
        for (name, value) in [
            (
                "EF_TCP_INITIAL_CWND",
                format!("{} segments", engine.initial_window),
            ),
            ("EF_TCP_SYNRECV_MAX", engine.half_open_max.to_string()),
            (
                "EF_TCP_TCONST_MSL",
                format!("{} s", engine.time_wait_us / 2 / SECOND_US),
            ),
            (
                "EF_RFC_RTO_INITIAL",
                format!("{} ms", engine.rto_initial_us / 1000),
            ),
            ("EF_DELACK_THRESH", engine.delayed_ack_segments.to_string()),
            ("EF_TCP_FASTSTART_INIT", acks),
        ] {
            let option = bypass_options::table::find(name).expect("an option");
            assert_eq!(option.default_text(), value, "{name}");
        }
    }

    #[test]
    fn options_reach_the_engine_in_its_units() {
        let options = Tcp {
            initial_window_bytes: Some(14_480),
            segment_life_s: Some(1),
            syn_retries: Some(2),
            rto_min_ms: Some(0),
            rto_max_ms: Some(0),
            keepalive_idle_ms: Some(5_000),
            loss_probe: Some(false),
            ..Tcp::default()
        };
        let made = settings(Config::default(), &options);
        let engine = made.engine;
        assert_eq!((engine.initial_window, engine.syn_retries), (10, 2));
        assert_eq!(engine.time_wait_us, 2_000_000);
        assert_eq!((engine.rto_min_us, engine.rto_max_us), (1000, 1000));
        assert_eq!(
            (engine.keepalive_idle_us, engine.loss_probe),
            (5_000_000, false)
        );
    }

    #[test]
    fn a_buffer_of_a_size_that_is_set_does_not_grow() {
        let options = Tcp {
            send_bytes: Some(1),
            receive_is_fixed: true,
            ..Tcp::default()
        };
        let engine = settings(Config::default(), &options).engine;
        assert_eq!((engine.send_bytes, engine.send_bytes_max), (2_048, 2_048));
        let usual = Config::default().receive_bytes;
        assert_eq!(engine.receive_bytes_max, usual);
    }

    fn obeyed(settings: &[(&str, &str)]) -> Config {
        let mut engine = Config::default();
        obey(&mut engine, |name| {
            let found = settings.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| format!("{value}\n"))
        });
        engine
    }

    /// A kernel that was left as it is has the engine's values.
    #[test]
    fn the_kernels_defaults_change_nothing() {
        let usual = [
            ("retries2", "15"),
            ("synack_retries", "5"),
            ("orphan_retries", "0"),
            ("timestamps", "1"),
            ("sack", "1"),
            ("window_scaling", "1"),
            ("ecn", "2"),
            ("syncookies", "1"),
            ("slow_start_after_idle", "1"),
            ("early_retrans", "3"),
            ("rto_min_us", "200000"),
            ("rto_max_ms", "120000"),
            ("notsent_lowat", "4294967295"),
            ("rmem", "4096\t131072\t33554432"),
            ("wmem", "4096\t16384\t4194304"),
            ("moderate_rcvbuf", "1"),
        ];
        let plain = format!("{:?}", Config::default());
        assert_eq!(format!("{:?}", obeyed(&usual)), plain);
        assert_eq!(format!("{:?}", obeyed(&[])), plain);
    }

    #[test]
    fn settings_of_the_host_are_obeyed() {
        let engine = obeyed(&[
            ("retries2", "3"),
            ("synack_retries", "1"),
            ("syn_linear_timeouts", "4"),
            ("orphan_retries", "2"),
            ("timestamps", "0"),
            ("sack", "0"),
            ("window_scaling", "0"),
            ("ecn", "1"),
            ("syncookies", "0"),
            ("slow_start_after_idle", "0"),
            ("early_retrans", "0"),
            ("rto_min_us", "5000"),
            ("rto_max_ms", "2000"),
            ("notsent_lowat", "16384"),
            ("rmem", "4096 32768 65536"),
            ("wmem", "4096 16384 65536"),
        ]);
        let tries = (
            engine.retries,
            engine.syn_ack_retries,
            engine.orphan_retries,
        );
        assert_eq!(tries, (3, 1, 2));
        assert_eq!(engine.syn_linear_timeouts, 4);
        assert!(!engine.timestamps && !engine.sack && !engine.window_scaling);
        assert_eq!((engine.ecn, engine.syn_cookies), (Ecn::Request, false));
        assert!(!engine.slow_start_after_idle && !engine.loss_probe);
        assert_eq!((engine.rto_min_us, engine.rto_max_us), (5_000, 2_000_000));
        assert_eq!(engine.unsent_low, 16_384);
        let receives = (engine.receive_bytes, engine.receive_bytes_max);
        assert_eq!(receives, (16_384, 32_768));
        assert_eq!((engine.send_bytes, engine.send_bytes_max), (65_536, 65_536));
        let fixed = obeyed(&[("moderate_rcvbuf", "0")]);
        assert_eq!(fixed.receive_bytes_max, fixed.receive_bytes);
        assert_eq!(obeyed(&[("retries2", "what")]).retries, 15);
        let by_number = [0, 1, 2, 3, 4, 5].map(ecn);
        let [off, asks, takes] = [Ecn::Off, Ecn::Request, Ecn::Accept];
        assert_eq!(by_number, [off, asks, takes, asks, asks, takes]);
    }

    /// The table had numbers of the engine where the host's settings decide.
    #[test]
    fn the_table_of_options_names_the_settings_of_the_host_that_apply() {
        let plain = format!("{:?}", Config::default());
        for (name, obeys) in [
            ("EF_TAIL_DROP_PROBE", "early_retrans=0"),
            ("EF_TCP_SYNCOOKIES", "syncookies=0"),
            (
                "EF_TCP_SYN_OPTS",
                "timestamps=0 window_scaling=0 sack=0 ecn=1",
            ),
            ("EF_TCP_RCVBUF_MODE", "moderate_rcvbuf=0"),
            ("EF_RETRANSMIT_THRESHOLD", "retries2=3"),
            ("EF_RFC_RTO_MIN", "rto_min_us=5000"),
            ("EF_RFC_RTO_MAX", "rto_max_ms=2000"),
        ] {
            let shown = default_of(name);
            for pair in obeys.split(' ').filter_map(|pair| pair.split_once('=')) {
                assert_ne!(format!("{:?}", obeyed(&[pair])), plain, "{pair:?}");
                assert!(shown.contains(pair.0), "{name}: {shown}");
            }
        }
        for (name, of_a_socket) in [
            ("EF_TCP_FIN_TIMEOUT", "tcp_fin_timeout"),
            ("EF_RETRANSMIT_THRESHOLD_SYN", "tcp_syn_retries"),
            ("EF_KEEPALIVE_TIME", "tcp_keepalive_time"),
        ] {
            assert_eq!(default_of(name), format!("the host's {of_a_socket}"));
            assert!(setting(of_a_socket).is_some(), "{of_a_socket}");
        }
        // Older kernels lack these two.
        for (name, us) in [
            ("EF_RFC_RTO_MIN", Config::default().rto_min_us),
            ("EF_RFC_RTO_MAX", Config::default().rto_max_us),
        ] {
            let own = format!(", else {} ms", us / 1000);
            assert!(default_of(name).ends_with(&own), "{name}");
        }
    }

    fn default_of(option: &str) -> String {
        bypass_options::table::find(option)
            .expect("an option")
            .default_text()
    }

    #[test]
    fn a_setting_reads_as_the_kernel_shows_it() {
        let shown = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok();
        assert!(shown.is_some() && setting("tcp_rmem") == shown);
        assert_eq!(setting("tcp_of_another_kernel"), None);
    }

    #[test]
    fn an_engine_begins_as_the_hosts_own_sockets_do() {
        let engine = of_host();
        let wanted = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time");
        let seconds: u64 = wanted.expect("readable").trim().parse().expect("a number");
        assert_eq!(engine.keepalive_idle_us, seconds * SECOND_US);
    }
}
