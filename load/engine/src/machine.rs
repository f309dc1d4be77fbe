//! Losses of the generator to its machine: cores that others used, time that a hypervisor took,
//! and the clock. Read from /proc and /sys; what cannot be read is left out.

use std::fs::read_to_string;
use std::time::Duration;

/// Sources of time that user space reads without a system call.
const FAST_CLOCKS: [&str; 4] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
];
/// Where a new enough kernel names its source of time.
const CLOCK_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Fields of a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
const STEAL: usize = 7;
/// Fewer ticks than this between two readings say nothing about shares of 1 %.
const TICKS_MIN: u64 = 100;

/// How long the calling thread has waited for a core although it had work.
pub fn waited_for_core() -> Duration {
    let text = read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(second_number(&text))
}

fn second_number(text: &str) -> u64 {
    let field = text.split_whitespace().nth(1);
    field.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Ticks of some cores since the start of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Of the given cores; of all cores if none is given.
    pub fn now(cores: &[usize]) -> Ticks {
        Ticks::read(&read_to_string("/proc/stat").unwrap_or_default(), cores)
    }

    fn read(text: &str, cores: &[usize]) -> Ticks {
        let wanted: Vec<String> = cores.iter().map(|core| format!("cpu{core}")).collect();
        let mut sum = Ticks::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let own = if wanted.is_empty() {
                name == "cpu"
            } else {
                wanted.iter().any(|w| w == name)
            };
            if own {
                // what follows steal is counted in user time already
                let ticks: Vec<u64> = words
                    .take(STEAL + 1)
                    .filter_map(|w| w.parse().ok())
                    .collect();
                sum.all += ticks.iter().sum::<u64>();
                sum.stolen += ticks.get(STEAL).copied().unwrap_or(0);
            }
        }
        sum
    }

    /// The share of the time since `earlier` that a hypervisor took, if the time was long enough.
    pub fn stolen_since(self, earlier: Ticks) -> Option<f64> {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        (all >= TICKS_MIN).then(|| stolen as f64 / all as f64)
    }
}

/// The kernel's source of time if reading it is slow or it may jump; `None` if it is good.
pub fn slow_clock() -> Option<String> {
    let name = read_to_string(CLOCK_FILE).ok()?;
    let name = name.trim();
    (!FAST_CLOCKS.contains(&name)).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_share_of_the_cores_that_matter() {
        let before =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 10 0 0 90 0 0 0 0 5 0\n";
        let after =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 0 0 0 0 0 0 0 90 0 0\ncpu1 90 0 0 200 0 0 0 10 7 0\n";
        let share =
            |cores: &[usize]| Ticks::read(after, cores).stolen_since(Ticks::read(before, cores));
        assert_eq!(share(&[1]), Some(0.05));
        assert_eq!(share(&[0, 1]), Some(100.0 / 290.0));
        assert_eq!(share(&[]), None, "no ticks have passed");
    }

    #[test]
    fn the_wait_is_the_second_figure() {
        assert_eq!(second_number("83088 28472 2\n"), 28_472);
        assert_eq!(second_number(""), 0);
        assert!(read_to_string(CLOCK_FILE).is_err() || slow_clock() != Some(String::new()));
    }
}
