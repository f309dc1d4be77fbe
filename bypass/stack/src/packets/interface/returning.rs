//! Interfaces that were removed while they were used: one that is made again under the same name (by a restarted container
//! or virtual machine, a reloaded driver) is used again, if the process still has the privilege.

use super::*;

/// Between looks for them.
const LOOK_NS: u64 = 500_000_000;

/// Names of the missing ones, and when they were looked for.
static GONE: Mutex<(Vec<String>, u64)> = Mutex::new((Vec::new(), 0));

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    GONE.lock().ok()
}

/// In a forked child: they are the parent's.
pub fn forget() {
    if let Ok(mut gone) = GONE.lock() {
        gone.0.clear();
    }
}

/// An interface that this process uses, or was about to, is gone.
pub fn expect(number: u64) {
    abandon(number);
    let name = NAMES.lock().ok().and_then(|mut names| {
        let at = names.iter().position(|one| one.number == number)?;
        Some(names.swap_remove(at).name)
    });
    let (Some(name), Ok(mut gone)) = (name, GONE.lock()) else {
        return;
    };
    process::fall_back(Reason::Interface);
    opening::say(
        &name,
        "it is gone, and its connections with it; the kernel has new ones until it is back",
    );
    gone.0.push(name);
}

/// Whether there are any.
pub fn are_expected() -> bool {
    GONE.lock().is_ok_and(|gone| !gone.0.is_empty())
}

/// Opens the ones that are back. Whether there were any.
pub fn open_returned() -> bool {
    let Ok(mut gone) = GONE.lock() else {
        return false;
    };
    if gone.0.is_empty() || now_ns().saturating_sub(gone.1) < LOOK_NS {
        return false;
    }
    gone.1 = now_ns();
    let Ok(tables) = Tables::new() else {
        return false;
    };
    let is_back = |name: &String| tables.link(name).is_some_and(|link| link.is_up);
    let (back, others) = std::mem::take(&mut gone.0).into_iter().partition(is_back);
    gone.0 = others;
    let back: Vec<String> = back;
    let Ok(mut known) = INTERFACES.lock() else {
        return false;
    };
    let Known::Opened(all) = &mut *known else {
        return false;
    };
    let before = all.len();
    for name in &back {
        match open_one(name) {
            Ok(interface) => {
                opening::say(name, "it is back and used again");
                all.push(interface);
            }
            // Gone once more, meanwhile.
            Err(_) if !is_there(name) => gone.0.push(name.clone()),
            Err(why) => {
                opening::say(
                    name,
                    &format!("it is back, but {why}; connections there stay on the kernel"),
                );
            }
        }
    }
    all.len() > before
}

fn is_there(name: &str) -> bool {
    Tables::new().is_ok_and(|tables| tables.link(name).is_some())
}
