//! Merges defaults, profile and environment into one value per option.

use std::collections::HashMap;

use crate::definition::{Definition, Value};
use crate::nearest::unknown_option;
use crate::profile::Profile;
use crate::table;

/// Set by the launcher to the names of the profiles that it has applied. The library then uses the
/// environment as it is: the launcher has already applied EF_LOAD_ENV=0.
pub const PROFILE_VARIABLE: &str = "WIRESPEED_BYPASS_PROFILE";

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// A line of a profile: `file:line`.
    Profile(String),
    /// The environment.
    Environment,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::Profile(place) => out.write_str(place),
            Self::Environment => out.write_str("environment"),
        }
    }
}

/// The result: options that are set, and complaints about others.
#[derive(Debug, Default, Clone)]
pub struct Resolved {
    chosen: HashMap<&'static str, (Value, Origin)>,
    /// One line for each error in the environment.
    pub complaints: Vec<String>,
    /// EF_ variables of the environment that EF_LOAD_ENV=0 excluded.
    pub ignored: Vec<String>,
}

impl Resolved {
    /// Environment over profile over default; a profile's values were checked when it was read.
    pub fn new(profile: &Profile, environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut resolved = Self::default();
        for setting in &profile.settings {
            let origin = Origin::Profile(setting.place.to_string());
            resolved
                .chosen
                .insert(setting.option.name, (setting.value.clone(), origin));
        }
        let (variables, applied) = options_of(environment);
        let load_environment = variables.iter().find(|(name, _)| name == "EF_LOAD_ENV");
        if let Some((name, text)) = load_environment {
            resolved.take(name, text);
        }
        if resolved.number("EF_LOAD_ENV") == 0 && !applied {
            resolved.ignored = variables.into_iter().map(|(name, _)| name).collect();
            resolved.ignored.retain(|name| name != "EF_LOAD_ENV");
            resolved.ignored.sort();
            return resolved;
        }
        for (name, text) in &variables {
            resolved.take(name, text);
        }
        resolved.finish()
    }

    /// As the library reads it: the environment has all settings.
    pub fn from_environment(environment: impl Iterator<Item = (String, String)>) -> Self {
        Self::new(&Profile::default(), environment)
    }

    fn take(&mut self, name: &str, text: &str) {
        let Some(option) = table::find(name) else {
            self.complaints.push(unknown_option(name));
            return;
        };
        match option.parse(text) {
            Ok(value) => {
                self.chosen
                    .insert(option.name, (value, Origin::Environment));
            }
            Err(complaint) => self.complaints.push(complaint),
        }
    }

    fn finish(mut self) -> Self {
        self.complaints.sort();
        if self.number("EF_VALIDATE_ENV") == 0 {
            self.complaints
                .retain(|line| !line.contains("no such option"));
        }
        self
    }

    /// The effective value and its origin, with EF_POLL_USEC's implied switches.
    pub fn value(&self, option: &'static Definition) -> (Value, Origin) {
        if let Some(found) = self.chosen.get(option.name) {
            return found.clone();
        }
        match self.implied(option.name) {
            Some((value, origin)) => (Value::Number(value), origin),
            None => (option.default_value(), Origin::Default),
        }
    }

    /// EF_POLL_USEC above 0 turns on the spins of waiting and of data, but not of accept and
    /// connect.
    fn implied(&self, name: &str) -> Option<(i64, Origin)> {
        let value = match name {
            "EF_EPOLL_SPIN" | "EF_POLL_SPIN" | "EF_SELECT_SPIN" | "EF_TCP_RECV_SPIN"
            | "EF_TCP_SEND_SPIN" | "EF_PKT_WAIT_SPIN" | "EF_UDP_RECV_SPIN" | "EF_UDP_SEND_SPIN" => {
                1
            }
            "EF_INT_DRIVEN" => 0,
            _ => return None,
        };
        let (limit, origin) = self.chosen.get("EF_POLL_USEC")?;
        (*limit != Value::Number(0)).then(|| (value, origin.clone()))
    }

    /// A number or switch by its full name; 0 for a name that is not in the table.
    pub fn number(&self, name: &str) -> i64 {
        match table::find(name).map(|option| self.value(option).0) {
            Some(Value::Number(number)) => number,
            _ => 0,
        }
    }

    /// A text by its full name.
    pub fn text(&self, name: &str) -> String {
        table::find(name).map_or_else(String::new, |option| self.value(option).0.to_string())
    }

    /// Whether the option is set, in a profile or in the environment.
    pub fn is_set(&self, name: &str) -> bool {
        self.chosen.contains_key(name)
    }

    /// The variables that the launcher adds to the program's environment: the profile's part of the
    /// result.
    pub fn exported(&self) -> Vec<(&'static str, String)> {
        let mut pairs: Vec<_> = self
            .chosen
            .iter()
            .filter(|(_, (_, origin))| matches!(origin, Origin::Profile(_)))
            .map(|(name, (value, _))| (*name, value.to_string()))
            .collect();
        pairs.sort();
        pairs
    }
}

/// The text variables of this process; `std::env::vars` would panic at others.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The EF_ variables, and whether a launcher has already applied a profile.
fn options_of(
    environment: impl Iterator<Item = (String, String)>,
) -> (Vec<(String, String)>, bool) {
    let mut applied = false;
    let mut variables = Vec::new();
    for (name, value) in environment {
        applied |= name == PROFILE_VARIABLE;
        if name.starts_with("EF_") {
            variables.push((name, value));
        }
    }
    (variables, applied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        pairs.into_iter()
    }

    fn profile(text: &str) -> Profile {
        crate::profile::Reader::new(&|_: &str| None)
            .read_text("test.opf", text)
            .expect("valid")
    }

    #[test]
    fn environment_beats_profile_beats_default() {
        let text = "onload_set EF_POLL_USEC 20\nonload_set EF_UL_EPOLL 3\n";
        let resolved = Resolved::new(&profile(text), environment(&[("EF_POLL_USEC", "7")]));
        assert_eq!(resolved.number("EF_POLL_USEC"), 7);
        assert_eq!(resolved.number("EF_UL_EPOLL"), 3);
        assert_eq!(resolved.number("EF_MAX_ENDPOINTS"), 8192);
        assert_eq!(resolved.exported(), [("EF_UL_EPOLL", "3".to_owned())]);
    }

    #[test]
    fn load_env_0_in_the_environment_keeps_only_the_profile() {
        let variables = [
            ("EF_LOAD_ENV", "0"),
            ("EF_POLL_USEC", "7"),
            ("EF_NO_SUCH", "1"),
        ];
        let set = profile("onload_set EF_POLL_USEC 20");
        let resolved = Resolved::new(&set, environment(&variables));
        assert_eq!(resolved.number("EF_POLL_USEC"), 20);
        assert_eq!(resolved.ignored, ["EF_NO_SUCH", "EF_POLL_USEC"]);
    }

    #[test]
    fn load_env_0_in_the_profile_is_overridden_by_load_env_1_in_the_environment() {
        let set = profile("onload_set EF_LOAD_ENV 0\nonload_set EF_POLL_USEC 20");
        let ignoring = Resolved::new(&set, environment(&[("EF_POLL_USEC", "7")]));
        assert_eq!(ignoring.number("EF_POLL_USEC"), 20);
        let variables = [("EF_POLL_USEC", "7"), ("EF_LOAD_ENV", "1")];
        let loading = Resolved::new(&set, environment(&variables));
        assert_eq!(loading.number("EF_POLL_USEC"), 7);
    }

    #[test]
    fn a_profile_applied_by_a_launcher_counts_even_if_load_env_is_0() {
        let variables = [
            (PROFILE_VARIABLE, "wrk"),
            ("EF_LOAD_ENV", "0"),
            ("EF_POLL_USEC", "7"),
        ];
        assert_eq!(
            Resolved::from_environment(environment(&variables)).number("EF_POLL_USEC"),
            7
        );
    }

    #[test]
    fn poll_usec_turns_on_waiting_and_data_spins_but_not_accept_and_connect() {
        let variables = [("EF_POLL_USEC", "20"), ("EF_TCP_SEND_SPIN", "0")];
        let resolved = Resolved::from_environment(environment(&variables));
        assert_eq!(resolved.number("EF_EPOLL_SPIN"), 1);
        assert_eq!(resolved.number("EF_TCP_RECV_SPIN"), 1);
        assert_eq!(resolved.number("EF_TCP_SEND_SPIN"), 0);
        assert_eq!(resolved.number("EF_TCP_ACCEPT_SPIN"), 0);
        assert_eq!(resolved.number("EF_INT_DRIVEN"), 0);
    }

    #[test]
    fn wrong_names_and_values_of_the_environment_are_one_line_each() {
        let variables = [("EF_POL_USEC", "1"), ("EF_UL_EPOLL", "9"), ("PATH", "/bin")];
        let resolved = Resolved::from_environment(environment(&variables));
        assert_eq!(
            resolved.complaints,
            [
                "EF_POL_USEC: unknown option (nearest: EF_POLL_USEC)",
                "EF_UL_EPOLL: 9 is out of range (0 to 3)"
            ]
        );
        assert_eq!(resolved.number("EF_UL_EPOLL"), 1);
    }
}
