//! The documents page about options, made from the table.

use std::fmt::Write as _;

use crate::definition::{Definition, Group, State};
use crate::table;

const HEAD: &str = "# Options\n\n\
Set them in the environment or in a [profile](profiles.md); the environment wins. This page is made \
from the table in `bypass/options` (`bypass options --markdown`). A name that is not in the table is \
an error that names the nearest.\n\n\
First the options that change something here, with the value that applies when they are not set; \
then, [below](#accepted-without-effect), the options that are accepted so that profiles and scripts written \
for Onload load unchanged, with the reason why nothing changes.\n";

const INERT: &str = "\n## Accepted without effect\n\n\
| option | Onload's meaning | why nothing changes here |\n|---|---|---|\n";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        section(&mut page, group);
    }
    page.push_str(INERT);
    for option in Group::ALL.into_iter().flat_map(table::of) {
        if let State::Inert(reason) = option.state {
            let _ = writeln!(page, "| `{}` | {} | {reason} |", option.name, option.text);
        }
    }
    page
}

/// The options of a group that change something; nothing where it has none.
fn section(page: &mut String, group: Group) {
    let mut live = table::of(group)
        .filter(|option| matches!(option.state, State::Implemented(_)))
        .peekable();
    if live.peek().is_none() {
        return;
    }
    let _ = write!(page, "\n## {}\n\n", group.heading());
    page.push_str("| option | type | default | meaning | effect here |\n|---|---|---|---|---|\n");
    for option in live {
        line(page, option);
    }
}

fn line(page: &mut String, option: &Definition) {
    let more = if option.long.is_empty() {
        String::new()
    } else {
        format!(". {}", option.long)
    };
    let _ = writeln!(
        page,
        "| `{}` | {} | {} | {}{more} | {} |",
        option.name,
        option.kind_text(),
        option.default_text(),
        option.text,
        option.state.reason()
    );
}
