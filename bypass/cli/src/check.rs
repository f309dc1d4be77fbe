//! `bypass run --check`: what would be accelerated, and why not, without starting anything.

use std::fmt::Write as _;
use std::process::ExitCode;

use bypass_options::{table, Origin, State};
use bypass_stats::View;

use crate::failure::{print, Failure};
use crate::plan::Plan;
use crate::probe;

/// What a segment needs of the limit on the size of files, with as many sockets as by default.
pub(crate) const FILE_BYTES: u64 = 1300 << 20;
/// Descriptors below which a server with many connections soon stands.
const DESCRIPTORS_FEW: u64 = 4096;
/// Of EF_SHARE_WITH.
const EVERY_USER: i64 = -1;

/// Prints the report; exit code 0 when connections can be accelerated, else 2.
pub(crate) fn report(plan: &Plan) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    let mut obstacles = 0;
    obstacles += programs(&mut text, plan);
    obstacles += machine(&mut text);
    options(&mut text, plan);
    obstacles += interfaces(&mut text, plan);
    listeners(&mut text);
    notes(&mut text, plan);
    obstacles += verdict(&mut text, plan, obstacles);
    print(&text)?;
    Ok(if obstacles == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    })
}

fn programs(text: &mut String, plan: &Plan) -> usize {
    text.push_str("program\n");
    for program in &plan.programs {
        let verdict = program.obstacle.as_deref().unwrap_or("can be accelerated");
        let _ = writeln!(text, "  {}: {verdict}", program.path.display());
        for warning in &program.warnings {
            let _ = writeln!(text, "    warning: {warning}");
        }
    }
    let _ = writeln!(text, "  library: {}", plan.library.display());
    if plan.needs_plain_uv() {
        text.push_str("  UV_USE_IO_URING=0 would be set: Node's io_uring bypasses libc\n");
    }
    plan.programs
        .iter()
        .filter(|program| program.obstacle.is_some())
        .count()
}

fn machine(text: &mut String) -> usize {
    text.push_str("machine\n");
    let probes = probe::all();
    for probe in &probes {
        let verdict = match &probe.error {
            None => "allowed".to_owned(),
            Some(error) => format!("NOT allowed ({error}): everything would stay on the kernel"),
        };
        let _ = writeln!(text, "  {}: {verdict}", probe.what);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if let Some(descriptors) = limit.current {
        let hint = if descriptors < DESCRIPTORS_FEW {
            "; raise it with ulimit -n"
        } else {
            ""
        };
        let _ = writeln!(text, "  descriptors: {descriptors}{hint}");
    }
    let obstacles = settings();
    for obstacle in &obstacles {
        let _ = writeln!(text, "  {obstacle}: everything would stay on the kernel");
    }
    let refused = probes.iter().filter(|probe| probe.error.is_some());
    refused.count() + obstacles.len()
}

/// Settings of the host and of this process under which no memory is shared.
fn settings() -> Vec<&'static str> {
    let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    let is_small = limit.current.is_some_and(|bytes| bytes < FILE_BYTES);
    [
        (
            overcommit.is_ok_and(|text| text.trim() == "2"),
            "vm.overcommit_memory=2 (set 0 or 1)",
        ),
        (
            is_small,
            "limit on the size of files below what a segment needs (ulimit -f)",
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, what)| is_so.then_some(what))
    .collect()
}

fn options(text: &mut String, plan: &Plan) {
    let profiles = if plan.profiles.is_empty() {
        "no profile"
    } else {
        &plan.profiles
    };
    let _ = writeln!(text, "options ({profiles}; bypass options lists all)");
    let mut inert = Vec::new();
    let before = text.len();
    for option in table::all() {
        let (value, origin) = plan.resolved.value(option);
        match (origin, option.state) {
            (Origin::Default, _) => {}
            (origin, State::Implemented(what)) => {
                let _ = writeln!(
                    text,
                    "  {}={value}  [{}]  {what}",
                    option.name,
                    short(&origin)
                );
            }
            (_, State::Inert(_)) => inert.push(option.name),
        }
    }
    if text.len() == before && inert.is_empty() {
        text.push_str("  all at their defaults\n");
    }
    if !inert.is_empty() {
        let names = inert.join(" ");
        let _ = writeln!(
            text,
            "  set, but changing nothing here (bypass options NAME): {names}"
        );
    }
    for name in plan.resolved.ignored.iter().chain(&plan.overruled) {
        let _ = writeln!(text, "  {name} of the environment does not count");
    }
}

/// A place without its folders: the name of a profile says enough.
fn short(origin: &Origin) -> String {
    let place = origin.to_string();
    place.rsplit('/').next().unwrap_or(&place).to_owned()
}

/// Shows the abilities of each named interface; counts unusable ones.
fn interfaces(text: &mut String, plan: &Plan) -> usize {
    let names = plan.interfaces();
    if names.is_empty() {
        return 0;
    }
    text.push_str("interfaces for connections with other hosts\n");
    let mut unusable = 0;
    for name in &names {
        match bypass_xdp::check::interface(name) {
            Ok(report) => {
                unusable += usize::from(!report.is_usable());
                for line in report.to_string().lines() {
                    let _ = writeln!(text, "  {line}");
                }
            }
            Err(error) => {
                unusable += 1;
                let error = std::io::Error::from_raw_os_error(error);
                let _ = writeln!(text, "  {name}: unknown ({error})");
            }
        }
    }
    unusable
}

/// Whether a process is in the network namespace of this one; one that cannot be asked may be.
fn shares_network(process: u32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let other = namespace(&process.to_string());
    other.is_none() || other == namespace("self")
}

/// Ports that accelerated processes of ours listen on now.
fn listeners(text: &mut String) {
    text.push_str("listeners that accelerated programs reach over shared memory now\n");
    let mut count = 0;
    for (pid, view) in View::list()
        .into_iter()
        .filter(|(pid, _)| shares_network(*pid))
    {
        for socket in view
            .connections()
            .iter()
            .filter(|socket| socket.role == "listener")
        {
            let command = view.header().command;
            let line = format!(
                "  {}  {} (pid {pid})\n",
                socket.local,
                command.escape_debug()
            );
            // nginx's workers have a listener each on one port: one line says it.
            if !text.contains(&line) {
                text.push_str(&line);
            }
            count += 1;
        }
    }
    if count == 0 {
        text.push_str("  none: start the server with bypass run too\n");
    }
}

fn notes(text: &mut String, plan: &Plan) {
    if plan.profile.notes.is_empty() {
        return;
    }
    text.push_str("profile\n");
    for note in &plan.profile.notes {
        let _ = writeln!(text, "  {note}");
    }
}

/// Says the result, and counts the options that switch acceleration off.
fn verdict(text: &mut String, plan: &Plan, obstacles: usize) -> usize {
    let number = |name| plan.resolved.number(name);
    let mut off = Vec::new();
    if number("EF_DONT_ACCELERATE") != 0 {
        off.push("EF_DONT_ACCELERATE=1");
    }
    if number("EF_UL_EPOLL") == 0 {
        off.push("EF_UL_EPOLL=0");
    }
    if number("EF_TCP_CLIENT_LOOPBACK") == 0 && number("EF_TCP_SERVER_LOOPBACK") == 0 {
        off.push("EF_TCP_CLIENT_LOOPBACK=0 and EF_TCP_SERVER_LOOPBACK=0");
    }
    text.push_str("result\n");
    if obstacles == 0 && off.is_empty() {
        let share_with = number("EF_SHARE_WITH");
        let _ = writeln!(
            text,
            "  TCP connections to accelerated programs of {} {} go over shared memory.",
            users(share_with),
            place(&plan.directory())
        );
        let takes_datagrams = number("EF_UDP") != 0;
        let rest = beyond_this_host(
            &plan.interfaces(),
            takes_datagrams,
            share_with != EVERY_USER,
        );
        text.push_str(&rest);
    } else if obstacles == 0 {
        let _ = writeln!(text, "  nothing is accelerated: {}", off.join(", "));
    } else {
        text.push_str("  nothing is accelerated, for the reasons above\n");
    }
    off.len()
}

/// With whom EF_SHARE_WITH lets this user share memory.
fn users(share_with: i64) -> String {
    match share_with {
        0 => "this user".to_owned(),
        EVERY_USER => "every user (EF_SHARE_WITH at both ends)".to_owned(),
        other => format!("this user and of user {other} (EF_SHARE_WITH at both ends)"),
    }
}

/// Where those programs are.
fn place(directory: &str) -> String {
    match directory {
        "" => "in this network namespace".to_owned(),
        shared => format!("with the directory {shared}"),
    }
}

/// What happens to connections that no memory can carry.
fn beyond_this_host(interfaces: &[String], takes_datagrams: bool, has_other_users: bool) -> String {
    let users = if has_other_users { " other users," } else { "" };
    if interfaces.is_empty() {
        return format!(
            "  Everything else stays on the kernel: other hosts,{users} UDP, Unix sockets, programs that are not \
             accelerated.\n"
        );
    }
    let names = interfaces.join(", ");
    let (with, datagrams) = match takes_datagrams {
        true => (" (and UDP there)", ""),
        false => ("", " UDP,"),
    };
    format!(
        "  Those with other hosts over {names}{with} are handled in the program.\n  Everything else stays on the \
         kernel: other interfaces,{users}{datagrams} Unix sockets.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_are_taken_are_not_said_to_stay_on_the_kernel() {
        let names = ["eth1".to_owned()];
        let (with, without) = (
            beyond_this_host(&names, true, true),
            beyond_this_host(&names, false, true),
        );
        assert!(without.contains("other users, UDP, Unix sockets") && !without.contains("there"));
        assert!(
            with.contains("eth1 (and UDP there)") && !with.contains("other users, UDP"),
            "{with}"
        );
        assert!(beyond_this_host(&[], true, true).contains("UDP"));
    }

    #[test]
    fn users_who_share_memory_are_not_said_to_stay_on_the_kernel() {
        for interfaces in [&[][..], &["eth1".to_owned()]] {
            assert!(beyond_this_host(interfaces, false, true).contains(", other users,"));
            assert!(!beyond_this_host(interfaces, false, false).contains("users"));
        }
        assert_eq!(users(0), "this user");
        assert!(users(-1).starts_with("every user "));
        assert_eq!(place(""), "in this network namespace");
        assert_eq!(place("/srv/share"), "with the directory /srv/share");
    }
}
