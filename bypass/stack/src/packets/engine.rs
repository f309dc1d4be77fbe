//! The engine as the options of the program want it.

use bypass_options::Tcp;
use bypass_shard::tcp::{Config, Ecn};
use bypass_shard::Settings;

/// Bytes of a full segment over Ethernet, with timestamps.
const SEGMENT: u64 = 1448;
/// More than any buffer holds.
const SEGMENTS_MAX: u64 = 65_535;
const SECOND_US: u64 = 1_000_000;

/// What an engine is made with.
pub fn settings(options: &Tcp) -> Settings {
    let mut engine = Config::default();
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
    put(&mut engine.syn_cookies, options.syn_cookies);
    if let Some(offered) = options.syn_options {
        engine.timestamps = offered.timestamps;
        engine.window_scaling = offered.window_scaling;
        engine.sack = offered.sack;
        engine.ecn = if offered.ecn { Ecn::Request } else { Ecn::Off };
    }
    put(&mut engine.retries, options.retries);
    put(&mut engine.syn_retries, options.syn_retries);
    // A timer of nothing would send for ever.
    let time_us = |ms: u64| ms.max(1) * 1000;
    put(&mut engine.rto_min_us, options.rto_min_ms.map(time_us));
    put(&mut engine.rto_max_us, options.rto_max_ms.map(time_us));
    engine.rto_max_us = engine.rto_max_us.max(engine.rto_min_us);
    Settings { engine }
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
        let made = settings(&Tcp::default()).engine;
        assert_eq!(format!("{made:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn options_reach_the_engine_in_its_units() {
        let made = settings(&Tcp {
            initial_window_bytes: Some(14_480),
            segment_life_s: Some(1),
            syn_retries: Some(2),
            rto_min_ms: Some(0),
            rto_max_ms: Some(0),
            ..Tcp::default()
        });
        let engine = made.engine;
        assert_eq!((engine.initial_window, engine.syn_retries), (10, 2));
        assert_eq!(engine.time_wait_us, 2_000_000);
        assert_eq!((engine.rto_min_us, engine.rto_max_us), (1000, 1000));
    }
}
