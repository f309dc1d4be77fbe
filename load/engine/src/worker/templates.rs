//! The heads that answers are recognised by: one for each request where these are not too many, so
//! that URLs that alternate do not drive each other out.

use crate::plan::Target;
use load_http1::Template;

/// Most heads that are kept.
const TEMPLATES_MAX: usize = 1024;

/// One head for each request, or one for all.
pub(super) struct Templates {
    /// The heads.
    pub all: Vec<Template>,
    /// Number of each target's first one; empty if there is one for all.
    first: Vec<u32>,
}

impl Templates {
    /// For the requests of these targets; nothing is known yet.
    pub fn of(targets: &[Target]) -> Templates {
        let mut first = Vec::with_capacity(targets.len());
        let mut count = 0;
        for target in targets {
            first.push(count as u32);
            count += target.requests.len();
        }
        if count == 1 || count > TEMPLATES_MAX {
            (first, count) = (Vec::new(), 1);
        }
        let all = (0..count).map(|_| Template::default()).collect();
        Templates { all, first }
    }

    /// Which head an answer to a request has.
    #[inline]
    pub fn place(&self, target: u16, request: u32) -> usize {
        if self.first.is_empty() {
            return 0;
        }
        (self.first[usize::from(target)] + request) as usize
    }

    /// Whether a head means the same for all requests that it is kept for: after HEAD the length is
    /// another thing than after GET.
    pub fn fit(&self, targets: &[Target]) -> bool {
        let requests = || targets.iter().flat_map(|target| &target.requests);
        let heads = requests().filter(|request| request.head_only).count();
        let is_shared = self.first.is_empty();
        let is_alike = !is_shared || heads == 0 || heads == requests().count();
        is_alike && requests().all(|request| request.mixed.is_none())
    }
}
