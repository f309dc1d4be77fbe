//! The definition of an option: a row of the table, and a value that fits it.

use std::net::{IpAddr, SocketAddr};

/// One option, declared once.
#[derive(Debug)]
pub struct Definition {
    /// The full name, with `EF_`.
    pub name: &'static str,
    /// The section of the documentation page with this option.
    pub group: Group,
    /// Type and bounds.
    pub kind: Kind,
    /// Onload's value when the option is not set, which a profile's conditions and `is_set` refer to.
    pub default: &'static str,
    /// The value that applies here when the option is not set, or "" when it is `default`.
    pub unset: &'static str,
    /// Unit of a number, or "" when it is a count, a switch or a text.
    pub unit: &'static str,
    /// One line.
    pub text: &'static str,
    /// Details for users who tune it; may be empty.
    pub long: &'static str,
    /// Whether setting it has an effect.
    pub state: State,
}

/// The sections of the table, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Busy waiting.
    Spinning,
    /// Which programs and sockets are accelerated.
    Acceleration,
    /// Sockets, descriptors, epoll.
    Sockets,
    /// Memory.
    Memory,
    /// Several processes behind one port.
    Clusters,
    /// Source ports and filters.
    Ports,
    /// TCP itself.
    Tcp,
    /// Sending and receiving on a network card.
    Hardware,
    /// Names, logs, processes.
    Process,
}

impl Group {
    /// Every group, in the order of the page.
    pub const ALL: [Self; 9] = [
        Self::Spinning,
        Self::Acceleration,
        Self::Sockets,
        Self::Memory,
        Self::Clusters,
        Self::Ports,
        Self::Tcp,
        Self::Hardware,
        Self::Process,
    ];

    /// The heading of the section.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Spinning => "Spinning",
            Self::Acceleration => "What is accelerated",
            Self::Sockets => "Sockets and epoll",
            Self::Memory => "Memory",
            Self::Clusters => "Clusters",
            Self::Ports => "Ports and filters",
            Self::Tcp => "TCP",
            Self::Hardware => "Network cards",
            Self::Process => "Processes and messages",
        }
    }
}

/// Type and bounds of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0 or 1.
    Switch,
    /// A whole number within bounds, both included.
    Number {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Any text.
    Text,
    /// Networks, separated by spaces or commas.
    Networks,
    /// Addresses with the ports that they are translated to, separated by spaces or commas.
    Translations,
}

/// Whether an option does something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has an effect; the text describes it.
    Implemented(&'static str),
    /// It is accepted without effect; the text gives the reason.
    Inert(&'static str),
}

impl State {
    /// "implemented" or "inert".
    pub fn word(self) -> &'static str {
        match self {
            Self::Implemented(_) => "implemented",
            Self::Inert(_) => "inert",
        }
    }

    /// The effect here, or the reason for none.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Implemented(text) | Self::Inert(text) => text,
        }
    }
}

/// A value that was checked against its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A switch or a number.
    Number(i64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

impl Definition {
    /// Checks a text against type and bounds; the error is one line without the place.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Networks => match networks(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(word) => Err(format!(
                    "{}: {word:?} is not a network (such as 10.0.0.0/8 or 2001:db8::/32)",
                    self.name
                )),
            },
            Kind::Translations => match translations(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(word) => Err(format!(
                    "{}: {word:?} is not ADDRESS:PORT:OWN_PORT over IPv4 (such as 192.0.2.1:8080:80)",
                    self.name
                )),
            },
            Kind::Switch => match text.trim() {
                "0" => Ok(Value::Number(0)),
                "1" => Ok(Value::Number(1)),
                _ => Err(format!("{}: invalid value {text:?} (0 or 1)", self.name)),
            },
            Kind::Number { min, max } => self.parse_number(text, min, max),
        }
    }

    fn parse_number(&self, text: &str, min: i64, max: i64) -> Result<Value, String> {
        let number = whole_number(text.trim())
            .ok_or_else(|| format!("{}: invalid number {text:?}", self.name))?;
        if (min..=max).contains(&number) {
            return Ok(Value::Number(number));
        }
        let unit = if self.unit.is_empty() {
            String::new()
        } else {
            format!(" {}", self.unit)
        };
        Err(format!(
            "{}: {number} is out of range ({min} to {max}{unit})",
            self.name
        ))
    }

    /// The default as a value; the table's own test proves that each one parses.
    pub fn default_value(&self) -> Value {
        self.parse(self.default)
            .expect("a test parses every default of the table")
    }

    /// The value that applies here when the option is not set, with its unit; "–" for nothing.
    pub fn default_text(&self) -> String {
        match (self.unset, self.default, self.unit) {
            ("", "", _) => "–".to_owned(),
            ("", default, "") => default.to_owned(),
            ("", default, unit) => format!("{default} {unit}"),
            (unset, ..) => unset.to_owned(),
        }
    }

    /// Type and bounds as the documents print them.
    pub fn kind_text(&self) -> String {
        match self.kind {
            Kind::Switch => "0 or 1".to_owned(),
            Kind::Text => "text".to_owned(),
            Kind::Networks => "networks".to_owned(),
            Kind::Translations => "ADDRESS:PORT:OWN_PORT, …".to_owned(),
            Kind::Number { min, max: i64::MAX } => format!("number ≥ {min}"),
            Kind::Number { min, max } => format!("{min} … {max}"),
        }
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    let words = list.split([' ', ',', ';', '\t']);
    words.filter(|word| !word.is_empty())
}

/// Networks separated by spaces or commas, an address alone being one. Err: the word that is none.
pub(crate) fn networks(list: &str) -> Result<Vec<(IpAddr, u8)>, &str> {
    let each = words(list).map(|word| network(word).ok_or(word));
    each.collect()
}

/// Addresses that are translated to an own one, each with the own port, separated by spaces or commas. Err: the word that
/// is none.
pub(crate) fn translations(list: &str) -> Result<Vec<(SocketAddr, u16)>, &str> {
    let each = words(list).map(|word| translation(word).ok_or(word));
    each.collect()
}

fn translation(word: &str) -> Option<(SocketAddr, u16)> {
    let (address, port) = word.rsplit_once(':')?;
    let address: SocketAddr = address.parse().ok()?;
    let port = port.parse().ok()?;
    let is_one = address.is_ipv4() && address.port() != 0 && port != 0;
    is_one.then_some((address, port))
}

fn network(word: &str) -> Option<(IpAddr, u8)> {
    let (address, len) = match word.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (word, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Some(most), |len| len.parse().ok())?;
    (len <= most).then_some((address, len))
}

/// Decimal, or hexadecimal with 0x as C programs accept.
fn whole_number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A switch with its default; the state is added by [`Definition::does`] or [`Definition::inert`].
pub(crate) const fn switch(name: &'static str, default: bool, text: &'static str) -> Definition {
    row(name, Kind::Switch, if default { "1" } else { "0" }, text)
}

/// A number with default and bounds.
pub(crate) const fn number(
    name: &'static str,
    default: &'static str,
    bounds: std::ops::RangeInclusive<i64>,
    text: &'static str,
) -> Definition {
    row(
        name,
        Kind::Number {
            min: *bounds.start(),
            max: *bounds.end(),
        },
        default,
        text,
    )
}

/// A text with its default.
pub(crate) const fn text(
    name: &'static str,
    default: &'static str,
    text: &'static str,
) -> Definition {
    row(name, Kind::Text, default, text)
}

/// Networks, none by default.
pub(crate) const fn networks_of(name: &'static str, text: &'static str) -> Definition {
    row(name, Kind::Networks, "", text)
}

/// Translated addresses, none by default.
pub(crate) const fn translations_of(name: &'static str, text: &'static str) -> Definition {
    row(name, Kind::Translations, "", text)
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    text: &'static str,
) -> Definition {
    let state = State::Inert("");
    Definition {
        name,
        group: Group::Process,
        kind,
        default,
        unset: "",
        unit: "",
        text,
        long: "",
        state,
    }
}

impl Definition {
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(crate) const fn unset(mut self, what: &'static str) -> Self {
        self.unset = what;
        self
    }

    pub(crate) const fn long(mut self, long: &'static str) -> Self {
        self.long = long;
        self
    }

    pub(crate) const fn does(mut self, what: &'static str) -> Self {
        self.state = State::Implemented(what);
        self
    }

    pub(crate) const fn inert(mut self, why: &'static str) -> Self {
        self.state = State::Inert(why);
        self
    }

    pub(crate) const fn of(mut self, group: Group) -> Self {
        self.group = group;
        self
    }
}
