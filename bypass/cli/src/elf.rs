//! How the loader will treat a program, read from its ELF headers.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Program headers that are looked at; real programs have about a dozen.
const HEADERS_MAX: u16 = 512;
/// Bytes of notes that are looked at.
const NOTES_MAX: u64 = 64 * 1024;
/// Bytes of the list of libraries that are looked at, and of the name of one.
const DYNAMIC_MAX: u64 = 64 * 1024;
/// See above.
const NAME_MAX: u64 = 256;
/// How the libraries of AddressSanitizer begin, of GCC and of Clang.
const SANITIZERS: [&str; 2] = ["libasan.so", "libclang_rt.asan"];
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// The facts about a program that matter for preloading a library into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elf {
    /// 64-bit little-endian for this machine's processor.
    pub(crate) is_ours: bool,
    /// The dynamic loader, or none in a static program.
    pub(crate) loader: Option<String>,
    /// Made by the Go linker: system calls are made without libc.
    pub(crate) is_go: bool,
    /// The library of AddressSanitizer that it is linked with, which has to be loaded before any other.
    pub(crate) sanitizer: Option<String>,
}

struct Header {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

/// Parses a file's headers; None when it is not an ELF file.
pub(crate) fn read(path: &Path) -> std::io::Result<Option<Elf>> {
    let mut file = File::open(path)?;
    let mut head = [0_u8; 64];
    let length = read_up_to(&mut file, &mut head)?;
    if length < 20 || head[..4] != *b"\x7fELF" {
        return Ok(None);
    }
    let is_ours = head[4] == 2 && head[5] == 1 && u16_at(&head, 18) == machine();
    if !is_ours || length < head.len() {
        return Ok(Some(Elf {
            is_ours: false,
            loader: None,
            is_go: false,
            sanitizer: None,
        }));
    }
    let headers = program_headers(&mut file, &head)?;
    let loader = match headers.iter().find(|header| header.kind == PT_INTERP) {
        Some(header) => Some(interpreter(&mut file, header)?),
        None => None,
    };
    let mut is_go = false;
    for header in headers.iter().filter(|header| header.kind == PT_NOTE) {
        is_go |= has_go_note(&part(&mut file, header, NOTES_MAX)?);
    }
    let has_dynamic = headers.iter().any(|header| header.kind == PT_DYNAMIC);
    let loader = if has_dynamic { loader } else { None };
    let is_sanitizer = |name: &String| SANITIZERS.iter().any(|start| name.starts_with(start));
    let libraries = libraries(&mut file, &headers)?;
    let sanitizer = libraries.into_iter().find(is_sanitizer);
    Ok(Some(Elf {
        is_ours,
        loader,
        is_go,
        sanitizer,
    }))
}

/// The libraries that a program names (DT_NEEDED of elf(5)).
fn libraries(file: &mut File, headers: &[Header]) -> std::io::Result<Vec<String>> {
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else {
        return Ok(Vec::new());
    };
    let bytes = part(file, dynamic, DYNAMIC_MAX)?;
    let entries: Vec<(u64, u64)> = bytes
        .chunks_exact(16)
        .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
        .collect();
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(Vec::new());
    };
    let is_there = |load: &&Header| {
        load.kind == PT_LOAD
            && (load.address..load.address.saturating_add(load.length)).contains(strings)
    };
    let Some(load) = headers.iter().find(is_there) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for (_, name) in entries.iter().filter(|(tag, _)| *tag == DT_NEEDED) {
        let offset = load.offset.wrapping_add(strings - load.address);
        let at = Header {
            kind: PT_LOAD,
            offset: offset.wrapping_add(*name),
            address: 0,
            length: NAME_MAX,
        };
        found.push(interpreter(file, &at)?);
    }
    Ok(found)
}

fn machine() -> u16 {
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    if cfg!(target_arch = "aarch64") {
        AARCH64
    } else {
        X86_64
    }
}

fn program_headers(file: &mut File, head: &[u8; 64]) -> std::io::Result<Vec<Header>> {
    let (offset, size, count) = (u64_at(head, 32), u16_at(head, 54), u16_at(head, 56));
    let mut headers = Vec::new();
    for index in 0..count.min(HEADERS_MAX) {
        let mut bytes = [0_u8; 56];
        let place = offset.saturating_add(u64::from(index) * u64::from(size));
        file.seek(SeekFrom::Start(place))?;
        if read_up_to(file, &mut bytes)? < bytes.len() {
            break;
        }
        headers.push(Header {
            kind: u32_at(&bytes, 0),
            offset: u64_at(&bytes, 8),
            address: u64_at(&bytes, 16),
            length: u64_at(&bytes, 32),
        });
    }
    Ok(headers)
}

fn interpreter(file: &mut File, header: &Header) -> std::io::Result<String> {
    let bytes = part(file, header, 4096)?;
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Notes are length of name, length of content, kind, name, content, each padded to 4 bytes.
fn has_go_note(notes: &[u8]) -> bool {
    let mut rest = notes;
    while rest.len() >= 12 {
        let (name, content) = (u32_at(rest, 0) as usize, u32_at(rest, 4) as usize);
        if rest.get(12..12 + name.min(4)) == Some(b"Go\0\0".as_slice()) {
            return true;
        }
        let step = 12
            + name
                .next_multiple_of(4)
                .saturating_add(content.next_multiple_of(4));
        rest = rest.get(step..).unwrap_or(&[]);
    }
    false
}

fn part(file: &mut File, header: &Header, most: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(header.offset))?;
    let mut bytes = Vec::new();
    file.take(header.length.min(most)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program_of_this_machine() {
        let own = std::env::current_exe().expect("a path");
        let elf = read(&own).expect("readable").expect("an ELF file");
        assert!(elf.is_ours && !elf.is_go);
        assert!(elf.loader.is_some_and(|loader| loader.contains("ld-")));
    }

    #[test]
    fn a_text_is_not_an_elf_file() {
        assert_eq!(
            read(Path::new("/proc/self/status")).expect("readable"),
            None
        );
    }

    #[test]
    fn a_go_note_is_found_behind_another_note() {
        let mut notes = Vec::new();
        for (name, content) in [(b"GNU\0", b"1234"), (b"Go\0\0", b"id__")] {
            notes.extend_from_slice(&4_u32.to_le_bytes());
            notes.extend_from_slice(&4_u32.to_le_bytes());
            notes.extend_from_slice(&1_u32.to_le_bytes());
            notes.extend_from_slice(name);
            notes.extend_from_slice(content);
        }
        assert!(has_go_note(&notes));
        assert!(!has_go_note(&notes[..20]));
        assert!(!has_go_note(&[255; 64]));
    }
}
