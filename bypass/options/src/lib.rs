//! Every `EF_*` option once, as data, and the reader of the profiles that set them.
//!
//! [`table::OPTIONS`] is the only place where an option is declared; the parser, `bypass options`,
//! `docs/options.md` and the library all read it. [`profile`] reads `.opf` files without a shell,
//! [`Resolved`] joins profile and environment, [`Settings`] is the result in types.
#![forbid(unsafe_code)]

mod definition;
mod engine;
pub mod markdown;
mod messages;
mod nearest;
pub mod profile;
pub mod programs;
mod resolve;
mod settings;
pub mod table;

pub use definition::{Definition, Group, Kind, State, Value};
pub use engine::{SynOptions, Tcp};
pub use messages::LogKinds;
pub use nearest::{nearest, unknown_option};
pub use resolve::{environment, Origin, Resolved, KEEP_VARIABLE, PROFILE_VARIABLE};
pub use settings::{interfaces, Settings, ShareWith};
