//! `bypass unit NAME`: a drop-in by which systemd starts a service on user-level sockets.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::{print, Failure};
use crate::plan::LIBRARY;

const HELP: &str = "\
usage: bypass unit [-p PROFILE] NAME

Prints a drop-in for a systemd service: its own command behind bypass run, and, where the unit
restricts them, the address families and system calls that acceleration needs.

  mkdir -p /etc/systemd/system/nginx.service.d
  bypass unit nginx > /etc/systemd/system/nginx.service.d/bypass.conf
  systemctl daemon-reload && systemctl restart nginx

  -p, --profile PROFILE  options by name (default safe)
  -h, --help

Exit codes: 0 printed, 1 systemd does not know the unit, or its command cannot be wrapped, 2 bad input.
";

const PROFILE: &str = "safe";
/// Address families without which everything is on the kernel.
const FAMILIES: &str = "AF_UNIX AF_NETLINK AF_INET AF_INET6";
/// System calls without which it is, besides those of every program that uses sockets.
const CALLS: &str = "@network-io @io-event memfd_create pidfd_open membarrier";

/// Prints the drop-in.
pub(crate) fn command(words: &[OsString]) -> Result<ExitCode, Failure> {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    let (mut profile, mut names) = (PROFILE.to_owned(), Vec::new());
    while let Some(word) = words.next() {
        match &*word {
            "-h" | "--help" => return print(HELP),
            "-p" | "--profile" => {
                let given = words.next().filter(|name| !name.is_empty());
                let missing = || Failure::usage(format!("unit: {word} needs a name"));
                profile = given.ok_or_else(missing)?.into_owned();
            }
            other if other.starts_with('-') => {
                let text = format!("unit: unknown option {other} (see bypass unit --help)");
                return Err(Failure::usage(text));
            }
            name => names.push(with_suffix(name)),
        }
    }
    let [name] = &names[..] else {
        return Err(Failure::usage(
            "unit: one name of a service is wanted (see bypass unit --help)",
        ));
    };
    let own = std::env::current_exe().map_err(|error| Failure::failed(format!("unit: {error}")))?;
    let unit = Unit::parse(&text_of(name)?);
    print(&drop_in(name, &unit, &own, &profile)?)
}

fn with_suffix(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => format!("{name}.service"),
    }
}

/// The unit's files, as systemd reads them.
fn text_of(name: &str) -> Result<String, Failure> {
    let done = Command::new("systemctl").args(["cat", "--", name]).output();
    let done = done.map_err(|error| Failure::failed(format!("systemctl: {error}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let line = said.lines().next().unwrap_or("systemctl cat has failed");
        return Err(Failure::failed(format!("unit {name}: {line}")));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The effective settings of a unit: those of the section Service in their order, unless a later empty one has taken
/// them back.
#[derive(Debug, Default)]
struct Unit(Vec<(String, String)>);

impl Unit {
    fn parse(text: &str) -> Self {
        let mut unit = Self::default();
        let mut is_service = false;
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim);
        for line in lines.filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_service) {
                unit.set(name.trim(), value.trim());
            }
        }
        unit
    }

    fn set(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            self.0.retain(|(known, _)| known != name);
        } else {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    fn is_on(&self, name: &str) -> bool {
        let last = self.all(name).last().unwrap_or_default();
        ["yes", "true", "on", "1"].contains(&last)
    }
}

fn drop_in(name: &str, unit: &Unit, own: &Path, profile: &str) -> Result<String, Failure> {
    let own = own.display().to_string();
    if own.contains(|letter: char| letter.is_whitespace() || letter == '%' || letter == '"') {
        return Err(Failure::failed(format!(
            "unit: the path of this program cannot stand in a unit: {own}"
        )));
    }
    let run = format!("{own} run -p {profile} --");
    let mut page = format!(
        "# /etc/systemd/system/{name}.d/bypass.conf, by bypass unit\n[Service]\nExecStart=\n"
    );
    let mut commands = unit.all("ExecStart").peekable();
    if commands.peek().is_none() {
        return Err(Failure::failed(format!(
            "unit {name}: it has no ExecStart="
        )));
    }
    for command in commands {
        let _ = writeln!(page, "ExecStart={}", wrapped(name, command, &run)?);
    }
    if unit.has("RestrictAddressFamilies") {
        let _ = writeln!(
            page,
            "# Added to the ones that the unit allows.\nRestrictAddressFamilies={FAMILIES}"
        );
    }
    if unit.has("SystemCallFilter") {
        let _ = writeln!(
            page,
            "# Added to the ones that the unit allows.\nSystemCallFilter={CALLS}"
        );
    }
    if unit.is_on("PrivateUsers") {
        page.push_str("# A user namespace hides other users, with whom no memory is shared then.\nPrivateUsers=no\n");
    }
    if unit.has("NoExecPaths") {
        let library = Path::new(&own).with_file_name(LIBRARY);
        let _ = writeln!(
            page,
            "# Added to the files that the unit may execute.\nExecPaths={own} {}",
            library.display()
        );
    }
    if unit.has("LimitFSIZE") {
        page.push_str("# Shared memory is a file.\nLimitFSIZE=infinity\n");
    }
    for (setting, why) in [
        (
            "DynamicUser",
            "its user has no fixed number that the other end could name: use a static user",
        ),
        (
            "PrivateNetwork",
            "both ends must be in one network namespace",
        ),
    ] {
        if unit.is_on(setting) {
            let _ = writeln!(page, "# To do: the unit has {setting}=; {why}.");
        }
    }
    if unit.has("RootDirectory") || unit.has("RootImage") {
        let _ = writeln!(page, "# To do: the unit has a root of its own, in which {own} and the library must be, and /proc.");
    }
    Ok(page)
}

/// A command behind `run`; what stands before its path (systemd.service(5)) stays in front.
fn wrapped(name: &str, command: &str, run: &str) -> Result<String, Failure> {
    let path = command.trim_start_matches(['-', ':', '+', '!']);
    let prefixes = &command[..command.len() - path.len()];
    if path.starts_with('@') {
        let text = format!(
            "unit {name}: a command with another name of its own (@) cannot be wrapped: {command}"
        );
        return Err(Failure::failed(text));
    }
    if path.contains("/bypass run ") {
        let text = format!("unit {name}: it starts by bypass already: {command}");
        return Err(Failure::failed(text));
    }
    Ok(format!("{prefixes}{run} {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, Failure> {
        drop_in(
            "x.service",
            &Unit::parse(text),
            Path::new("/usr/bin/bypass"),
            "safe",
        )
    }

    fn lines(text: &str) -> Vec<String> {
        let page = of(text).expect("a drop-in");
        page.lines().skip(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_last_commands_of_the_unit_are_wrapped() {
        let text = "[Unit]\nExecStart=/no\n[Service]\nExecStart=/old\n# a\n[Service]\nExecStart=\n\
                    ExecStart=-/usr/sbin/nginx -g 'daemon on;' \\\n  -q\nExecStartPre=/bin/true\n";
        assert_eq!(
            lines(text),
            [
                "ExecStart=",
                "ExecStart=-/usr/bin/bypass run -p safe -- /usr/sbin/nginx -g 'daemon on;'    -q"
            ]
        );
    }

    #[test]
    fn only_what_the_unit_restricts_is_widened() {
        let all = "[Service]\nExecStart=/x\nRestrictAddressFamilies=AF_INET\nSystemCallFilter=@system-service\n\
                   PrivateUsers=yes\nLimitFSIZE=1M\nNoExecPaths=/\nDynamicUser=true\nPrivateNetwork=no\n";
        let found = lines(all).join("\n");
        for setting in [
            "RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6",
            "SystemCallFilter=@network-io @io-event memfd_create pidfd_open membarrier",
            "PrivateUsers=no",
            "ExecPaths=/usr/bin/bypass /usr/bin/libbypass_preload.so",
            "LimitFSIZE=infinity",
            "DynamicUser=; its user",
        ] {
            assert!(found.contains(setting), "{setting}: {found}");
        }
        assert!(!found.contains("PrivateNetwork"));
        assert_eq!(lines("[Service]\nExecStart=/x\n").len(), 2);
    }

    #[test]
    fn a_command_that_cannot_be_wrapped_is_a_failure() {
        for text in [
            "[Service]\nType=oneshot\n",
            "[Service]\nExecStart=@/x y\n",
            "[Service]\nExecStart=/usr/bin/bypass run -p safe -- /x\n",
        ] {
            assert_eq!(
                of(text).expect_err(text).code(),
                ExitCode::from(1),
                "{text}"
            );
        }
    }
}
