//! Opens an interface, with the privilege that this needs: a socket of each queue, the program, what owners share.

use super::*;

/// A message about an interface.
pub(super) fn say(name: &str, what: &str) {
    process::log::warn(&format!("{name}: {what}"));
}

/// Opens an interface in the best way that the kernel grants.
pub(super) fn open(name: &str) -> Result<Interface, String> {
    let report = check::look(name).map_err(text)?;
    if let Some(obstacle) = report.obstacles().next() {
        return Err(match obstacle.remedy.as_str() {
            "" => obstacle.what.clone(),
            remedy => format!("{} ({remedy})", obstacle.what),
        });
    }
    let (link, traits) = report.link.ok_or("it is gone")?;
    let mut refused = Vec::new();
    for way in &traits.ways {
        let opened = open_queues(&link, &traits, way);
        match opened.and_then(|opened| attach(&link, way, opened, &traits).map_err(text)) {
            Ok(interface) => {
                if !refused.is_empty() {
                    say(name, &format!("{}; {way} is used", refused.join(", ")));
                }
                return Ok(interface);
            }
            Err(why) => refused.push(format!("{way}: {why}")),
        }
    }
    if let Some((what, remedy)) = &traits.no_generic {
        refused.push(match remedy.as_str() {
            "" => format!("generic mode: {what}"),
            remedy => format!("generic mode: {what} ({remedy})"),
        });
    }
    Err(refused.join(", "))
}

/// Each queue may have a process of its own.
fn is_divided(traits: &LinkTraits) -> bool {
    traits.is_divisible() && !process::settings().cluster_ignore
}

/// All of them or none: what arrives on one that is not ours would be lost.
fn open_queues(link: &Link, traits: &LinkTraits, way: &Way) -> Result<Vec<Opened>, String> {
    let count = traits.queues;
    let settings = settings_of(traits, way);
    let open_with = |settings: Settings| -> Result<Vec<Opened>, (u32, i32)> {
        let open = |queue| {
            let opened = open_queue(link, traits, queue, settings);
            opened.map_err(|error| (queue, error))
        };
        (0..count).map(open).collect()
    };
    let opened = match open_with(settings) {
        // The limits may be enough for less.
        Err((_, libc::ENOBUFS | libc::EFBIG)) => open_with(settings.frugal()),
        other => other,
    };
    opened.map_err(|(queue, error)| format!("queue {queue} of {count}: {}", text(error)))
}

fn settings_of(traits: &LinkTraits, way: &Way) -> Settings {
    way.settings(Settings {
        packet_sender: true,
        partial_checksums: traits.has_partial_checksums(way),
        ..Settings::default()
    })
}

fn open_queue(
    link: &Link,
    traits: &LinkTraits,
    queue: u32,
    settings: Settings,
) -> kernel::Result<Opened> {
    let settings = match is_divided(traits) {
        true => settings.for_owner(queue, traits.queues),
        false => settings.for_queue(queue, traits.queues),
    };
    Opened::open(link, queue, settings)
}

/// Opens the queues that a driver begins to receive by once the program is attached, as virtio_net does with spare ones. The
/// kernel opens no socket of an unused queue.
fn open_further(
    link: &Link,
    way: &Way,
    opened: &mut Vec<Opened>,
    traits: &LinkTraits,
) -> kernel::Result<()> {
    if way.mode != Mode::Native || traits.driver != "virtio_net" {
        return Ok(());
    }
    while opened.len() < QUEUES_MAX as usize {
        match open_queue(
            link,
            traits,
            opened.len() as u32,
            settings_of(traits, way).frugal(),
        ) {
            Ok(one) => opened.push(one),
            Err(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn attach(
    link: &Link,
    way: &Way,
    mut opened: Vec<Opened>,
    traits: &LinkTraits,
) -> kernel::Result<Interface> {
    let has_fragments = opened.iter().any(|one| one.layout().has_fragments);
    let steering = Steering::attach(link.index, link.mtu, way.mode, has_fragments)?;
    open_further(link, way, &mut opened, traits)?;
    for one in &opened {
        steering.set_socket(one.layout().queue, one.socket())?;
    }
    let lease = numbers::high(|| kernel::memfd_create(c"wirespeed-lease"))?;
    let divided = || Exchange::open(opened.len() as u32).map(Divided::new);
    let interface = Interface {
        number: new_number(),
        link: link.index,
        divided: is_divided(traits).then(divided).transpose()?,
        steering: Arc::new(steering),
        secret: secret::of_host(),
        opened: opened.into_iter().map(Some).collect(),
        lease: Arc::new(lease),
        rendezvous: None,
    };
    interface.descriptors().for_each(table::hide);
    Ok(interface)
}

/// An error of the kernel's, with what would help.
pub(super) fn text(error: i32) -> String {
    if error == libc::EFBIG {
        return "the limit on the size of files is below what it needs (ulimit -f)".to_owned();
    }
    if error == libc::ENOBUFS {
        return "no more memory may be locked (ulimit -l unlimited)".to_owned();
    }
    std::io::Error::from_raw_os_error(error).to_string()
}
