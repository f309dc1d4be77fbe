//! EF_LOG: which messages the library writes.

/// Which messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogKinds(u8);

impl LogKinds {
    /// `resource_warnings`: what was asked for and is not available.
    pub const RESOURCES: Self = Self(1);
    /// `conn_drop`: sockets that are left to the kernel, with the reason.
    pub const CONNECTIONS: Self = Self(2);

    /// Whether those of `kind` are among them.
    pub fn contains(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

impl From<&str> for LogKinds {
    fn from(list: &str) -> Self {
        let kind = |name: &str| match name.trim() {
            "all" => Self::RESOURCES.0 | Self::CONNECTIONS.0,
            "resource_warnings" => Self::RESOURCES.0,
            "conn_drop" => Self::CONNECTIONS.0,
            // Onload's other kinds, which have no messages here.
            _ => 0,
        };
        Self(list.split(',').map(kind).fold(0, |all, one| all | one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_messages_are_chosen_by_their_names() {
        let has = |list: &str| {
            let kinds = LogKinds::from(list);
            [LogKinds::RESOURCES, LogKinds::CONNECTIONS].map(|kind| kinds.contains(kind))
        };
        assert_eq!(has("banner,resource_warnings"), [true, false]);
        assert_eq!(has("conn_drop, banner"), [false, true]);
        assert_eq!(has("all"), [true, true]);
        assert_eq!(has(""), [false, false]);
    }
}
