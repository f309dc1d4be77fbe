//! Interfaces that survive exec: a server's next binary, which inherits its listeners, goes on with what the former image
//! has opened, as forked children do.
//!
//! The description travels in a memory file: for each interface its words, then those of its queues.

use super::*;
use bypass_sys::memory;
use bypass_xdp::Layout;

const MAGIC: u64 = u64::from_le_bytes(*b"WSxdp\x05\0\0");
/// Words of a layout.
const LAYOUT: usize = 9;
/// Words of a file at most.
const WORDS_MAX: usize = 1 << 16;

/// State that an image leaves to the next one.
pub struct Left {
    /// The memory file.
    pub file: Owned,
    /// Descriptors that the next image needs.
    pub descriptors: Vec<i32>,
}

/// Interfaces that a former image has left to this one.
static INHERITED: Mutex<Vec<Interface>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    INHERITED.lock().ok()
}

/// Says in a memory file what is open; None when there is nothing to leave.
pub fn leave() -> Option<Left> {
    let known = INTERFACES.lock().ok()?;
    // A master whose workers listen may have opened nothing since it was left them itself.
    let inherited = INHERITED.lock().ok()?;
    // An interface that this process uses ends with it. One that no process uses yet would belong to the next image
    // alone, which may be a program that accepts once and ends: a process that waits for its end could not accept the
    // connections that wait then.
    let is_left =
        |one: &&Interface| one.opened.iter().all(Option::is_some) && is_file_locked(one.lease.0);
    let left: Vec<&Interface> = known
        .all()
        .iter()
        .chain(&*inherited)
        .filter(is_left)
        .collect();
    if left.is_empty() {
        return None;
    }
    let mut described = Description::default();
    left.iter().for_each(|one| described.add(one));
    let descriptors = described.descriptors.clone();
    let file = described.file()?;
    Some(Left { file, descriptors })
}

/// Everything that a process needs to know of interfaces to use them.
#[derive(Default)]
pub struct Description {
    is_unprivileged: bool,
    words: Vec<u64>,
    /// In the order in which the words speak of them.
    pub descriptors: Vec<i32>,
}

impl Description {
    /// Of as much as whoever reads it may have.
    pub fn for_unprivileged(is_unprivileged: bool) -> Self {
        Self {
            is_unprivileged,
            ..Self::default()
        }
    }

    /// Adds an interface, every queue of which is open here.
    pub fn add(&mut self, interface: &Interface) {
        let used = interface.divided.iter().flat_map(|one| &one.used);
        let used = used.flatten().map(|used| &used.opened);
        let mut queues: Vec<&Opened> = interface.opened.iter().flatten().chain(used).collect();
        queues.sort_by_key(|queue| queue.layout().queue);
        let exchange = interface.divided.iter();
        let exchange: Vec<i32> = exchange
            .flat_map(|divided| divided.exchange.descriptors())
            .collect();
        let is_generic = interface.steering.mode() == Mode::Generic;
        let counts = [queues.len(), exchange.len()];
        let secret = u128::from_ne_bytes(interface.secret);
        self.words.extend([
            u64::from(interface.link),
            u64::from(is_generic),
            secret as u64,
            (secret >> 64) as u64,
        ]);
        self.words.extend(counts.map(|count| count as u64));
        let steering = interface.steering.descriptors();
        let kept = match self.is_unprivileged {
            true => steering.len().min(Steering::UNPRIVILEGED),
            false => steering.len(),
        };
        self.words.push(kept as u64);
        self.mention(steering.into_iter().take(kept));
        self.mention(exchange);
        self.mention([interface.lease.0]);
        self.words.push(u64::from(interface.rendezvous.is_some()));
        self.mention(interface.rendezvous.iter().map(|rendezvous| rendezvous.0));
        for queue in queues {
            let layout = queue.layout().encode();
            let fours = layout.chunks_exact(4);
            let word = |four: &[u8]| u32::from_ne_bytes(four.try_into().unwrap_or_default());
            self.words.extend(fours.map(|four| u64::from(word(four))));
            let fds = queue.descriptors();
            self.words.push(fds.len() as u64);
            self.mention(fds);
        }
    }

    fn mention(&mut self, fds: impl IntoIterator<Item = i32>) {
        let before = self.descriptors.len();
        self.descriptors.extend(fds);
        let new = &self.descriptors[before..];
        self.words.extend(new.iter().map(|fd| *fd as u64));
    }

    /// The memory file that says so.
    pub fn file(&self) -> Option<Owned> {
        let words = [MAGIC].into_iter().chain(self.words.iter().copied());
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        memory::file_of(c"wirespeed-interfaces", &bytes).ok()
    }
}

/// The interface that another process describes in `file`, with its descriptors in the order of the description.
pub fn received(file: &Owned, descriptors: Vec<Owned>) -> Option<Interface> {
    let mut words = Words {
        words: read(file.0)?.into_iter(),
        passed: Some(descriptors.into_iter()),
    };
    let is_known = words.next() == Some(MAGIC);
    is_known.then(|| words.interface()).flatten()
}

/// In the next image, before it opens anything itself: what it was left.
pub fn inherit(file: i32) {
    let file = Owned(file);
    let Some(words) = read(file.0) else { return };
    let mut words = Words {
        words: words.into_iter(),
        passed: None,
    };
    if words.next() != Some(MAGIC) {
        return;
    }
    let Ok(mut inherited) = INHERITED.lock() else {
        return;
    };
    while let Some(interface) = words.interface() {
        interface.descriptors().for_each(table::hide);
        inherited.push(interface);
    }
}

fn read(file: i32) -> Option<Vec<u64>> {
    let size = usize::try_from(kernel::fstat(file).ok()?.st_size).ok()?;
    let mut bytes = vec![0u8; size.min(WORDS_MAX * 8)];
    let count = kernel::read_at(file, &mut bytes, 0).ok()?;
    let eights = bytes[..count].chunks_exact(8);
    Some(
        eights
            .map(|eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()))
            .collect(),
    )
}

/// The one named `name`, if a former image has left it.
pub fn inherited(name: &str) -> Option<Interface> {
    let mut all = INHERITED.lock().ok().filter(|all| !all.is_empty())?;
    let tables = Tables::new().ok()?;
    let link = tables.link(name)?.index;
    let at = all.iter().position(|one| one.link == link)?;
    Some(all.swap_remove(at))
}

/// The words of a file, from the front.
struct Words {
    words: std::vec::IntoIter<u64>,
    /// Descriptors that came from another process, where their numbers are others.
    passed: Option<std::vec::IntoIter<Owned>>,
}

impl Words {
    fn next(&mut self) -> Option<u64> {
        self.words.next()
    }

    /// A descriptor that this image has got; it is not the next one's.
    fn descriptor(&mut self) -> Option<Owned> {
        let fd = i32::try_from(self.next()?).ok()?;
        if let Some(passed) = &mut self.passed {
            return passed.next();
        }
        kernel::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize).ok()?;
        Some(Owned(fd))
    }

    fn descriptors(&mut self, count: usize) -> Option<Vec<Owned>> {
        (0..count).map(|_| self.descriptor()).collect()
    }

    fn interface(&mut self) -> Option<Interface> {
        let link = self.next()? as u32;
        let mode = match self.next()? {
            0 => Mode::Native,
            _ => Mode::Generic,
        };
        let secret = u128::from(self.next()?) | u128::from(self.next()?) << 64;
        let counts = [self.next()? as usize, self.next()? as usize];
        let count = self.next()? as usize;
        let steering = self.descriptors(count.min(WORDS_MAX))?;
        let steering = Steering::of(mode, steering).ok()?;
        let exchange = self.descriptors(counts[1].min(WORDS_MAX))?;
        let lease = self.descriptor()?;
        let rendezvous = self.next()?.min(1) as usize;
        let rendezvous = self.descriptors(rendezvous)?.pop();
        let opened: Option<Vec<Opened>> = (0..counts[0]).map(|_| self.queue()).collect();
        let divided = match exchange.is_empty() {
            true => None,
            false => Some(Divided::new(Exchange::of(exchange).ok()?)),
        };
        let opened = opened?;
        let is_whole = |divided: &Divided| divided.exchange.queues() as usize == opened.len();
        if !divided.iter().all(is_whole) {
            return None;
        }
        Some(Interface {
            number: new_number(),
            link,
            steering: Arc::new(steering),
            secret: secret.to_ne_bytes(),
            opened: opened.into_iter().map(Some).collect(),
            lease: Arc::new(lease),
            divided,
            rendezvous,
        })
    }

    fn queue(&mut self) -> Option<Opened> {
        let mut layout = Vec::with_capacity(LAYOUT * 4);
        for _ in 0..LAYOUT {
            layout.extend((self.next()? as u32).to_ne_bytes());
        }
        let count = self.next()? as usize;
        let fds = self.descriptors(count.min(WORDS_MAX))?;
        Opened::of(Layout::decode(&layout)?, fds).ok()
    }
}
