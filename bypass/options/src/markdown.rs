//! The documents page about options, made from the table.

use std::fmt::Write as _;

use crate::definition::{Definition, Group};
use crate::table;

const HEAD: &str = "# Options\n\n\
Set them in the environment or in a [profile](profiles.md); the environment wins. This page is made \
from the table in `bypass/options` (`bypass options --markdown`).\n\n\
**implemented**: setting it changes what the last column says. **inert**: accepted so that profiles \
and scripts written for Onload load unchanged, with the reason why nothing changes here. A name that \
is not in the table is an error that names the nearest.\n";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        section(&mut page, group);
    }
    page
}

fn section(page: &mut String, group: Group) {
    let _ = write!(page, "\n## {}\n\n", group.heading());
    page.push_str("| option | type | default | meaning | | here |\n|---|---|---|---|---|---|\n");
    for option in table::of(group) {
        line(page, option);
    }
}

fn line(page: &mut String, option: &Definition) {
    let Definition {
        name,
        default,
        unit,
        text,
        long,
        state,
        ..
    } = option;
    let default = match (default.is_empty(), unit.is_empty()) {
        (true, _) => "–".to_owned(),
        (false, true) => (*default).to_owned(),
        (false, false) => format!("{default} {unit}"),
    };
    let more = if long.is_empty() {
        String::new()
    } else {
        format!(". {long}")
    };
    let _ = writeln!(
        page,
        "| `{name}` | {} | {default} | {text}{more} | {} | {} |",
        option.kind_text(),
        state.word(),
        state.reason()
    );
}
