//! The number of nginx workers, read from its configuration without running nginx.

use std::path::{Path, PathBuf};

/// Most included files; a cycle of includes ends here.
const FILES_MAX: usize = 256;
const DEPTH_MAX: usize = 8;
const DEFAULT_PATHS: [&str; 3] = [
    "/etc/nginx/nginx.conf",
    "/usr/local/nginx/conf/nginx.conf",
    "/usr/local/etc/nginx/nginx.conf",
];

/// The number, and how it was found.
pub(super) struct Found {
    pub(super) workers: usize,
    pub(super) note: String,
}

/// The number for a command line that starts nginx, also behind wrappers such as taskset.
pub(super) fn count(command: &[String]) -> Found {
    let Some(arguments) = arguments_of_nginx(command) else {
        let note = "the command is not nginx: 1 worker assumed".to_owned();
        return Found { workers: 1, note };
    };
    let options = Options::of(arguments);
    if let Some(workers) = options.globals.as_deref().and_then(in_text) {
        let workers = number(&workers);
        return Found {
            workers,
            note: format!("nginx -g says {workers} workers"),
        };
    }
    let Some(path) = options.configuration() else {
        let note = "nginx's configuration was not found: 1 worker assumed".to_owned();
        return Found { workers: 1, note };
    };
    let mut left = FILES_MAX;
    let value = in_file(&path, path.parent().unwrap_or(Path::new(".")), 0, &mut left);
    let workers = value.as_deref().map_or(1, number);
    Found {
        workers,
        note: format!("{} says {workers} nginx workers", path.display()),
    }
}

/// CPUs this process may run on, which is what nproc prints.
pub(super) fn cores() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or(1, |list| {
        list.trim()
            .split(',')
            .map(range_length)
            .sum::<usize>()
            .max(1)
    })
}

fn range_length(range: &str) -> usize {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) if last >= first => last - first + 1,
        _ => 0,
    }
}

fn number(value: &str) -> usize {
    if value == "auto" {
        cores()
    } else {
        value.parse().unwrap_or(1)
    }
}

fn arguments_of_nginx(command: &[String]) -> Option<&[String]> {
    let is_nginx = |word: &String| {
        let name = Path::new(word)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        ["nginx", "openresty", "tengine", "angie"]
            .iter()
            .any(|known| name.starts_with(known))
    };
    command
        .iter()
        .position(is_nginx)
        .map(|index| &command[index + 1..])
}

#[derive(Default)]
struct Options {
    file: Option<PathBuf>,
    prefix: Option<PathBuf>,
    globals: Option<String>,
}

impl Options {
    fn of(arguments: &[String]) -> Self {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(letter) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
                continue;
            };
            if !matches!(letter, 'c' | 'p' | 'g') {
                continue;
            }
            let value = if word.len() > 2 {
                Some(word[2..].to_owned())
            } else {
                words.next().cloned()
            };
            match (letter, value) {
                ('c', Some(value)) => options.file = Some(value.into()),
                ('p', Some(value)) => options.prefix = Some(value.into()),
                ('g', Some(value)) => options.globals = Some(value),
                _ => {}
            }
        }
        options
    }

    fn configuration(&self) -> Option<PathBuf> {
        let mut candidates = Vec::new();
        match (&self.file, &self.prefix) {
            (Some(file), Some(prefix)) => candidates.push(prefix.join(file)),
            (Some(file), None) => {
                candidates.push(file.clone());
                candidates.push(Path::new("/etc/nginx").join(file));
            }
            (None, Some(prefix)) => candidates.push(prefix.join("conf/nginx.conf")),
            (None, None) => {}
        }
        if self.file.is_none() {
            candidates.extend(DEFAULT_PATHS.map(PathBuf::from));
        }
        candidates.into_iter().find(|path| path.is_file())
    }
}

fn in_text(text: &str) -> Option<String> {
    directives(text)
        .into_iter()
        .find(|words| words[0] == "worker_processes")?
        .into_iter()
        .nth(1)
}

fn in_file(path: &Path, folder: &Path, depth: usize, left: &mut usize) -> Option<String> {
    if depth > DEPTH_MAX || *left == 0 {
        return None;
    }
    *left -= 1;
    let bytes = std::fs::read(path).ok()?;
    for words in directives(&String::from_utf8_lossy(&bytes)) {
        match (words[0].as_str(), words.get(1)) {
            ("worker_processes", Some(value)) => return Some(value.clone()),
            ("include", Some(pattern)) => {
                let files = matching(&folder.join(pattern));
                let found = files
                    .iter()
                    .find_map(|file| in_file(file, folder, depth + 1, left));
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
    }
    None
}

/// The directives outside every block, as words: worker_processes is valid only there.
fn directives(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for token in tokens(text) {
        match token.as_str() {
            "{" => {
                depth += 1;
                words.clear();
            }
            "}" => depth = depth.saturating_sub(1),
            ";" if depth == 0 && !words.is_empty() => all.push(std::mem::take(&mut words)),
            ";" => words.clear(),
            _ if depth == 0 => words.push(token),
            _ => {}
        }
    }
    all
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => while letters.next_if(|letter| *letter != '\n').is_some() {},
            ';' | '{' | '}' => tokens.push(letter.to_string()),
            '"' | '\'' => tokens.push(
                letters
                    .by_ref()
                    .take_while(|next| *next != letter)
                    .collect(),
            ),
            _ if letter.is_whitespace() => {}
            _ => {
                let mut word = letter.to_string();
                let is_word = |next: &char| !next.is_whitespace() && !";{}".contains(*next);
                while let Some(next) = letters.next_if(is_word) {
                    word.push(next);
                }
                tokens.push(word);
            }
        }
    }
    tokens
}

/// The files of an include; `*` and `?` are supported in the last part of the path.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    if !name.contains(['*', '?']) {
        return vec![pattern.to_owned()];
    }
    let folder = pattern.parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let file = path
                .file_name()
                .and_then(|file| file.to_str())
                .unwrap_or("");
            !file.starts_with('.') && fits(name.as_bytes(), file.as_bytes())
        })
        .collect();
    files.sort();
    files
}

/// Matches `*` and `?` by going back to the last star; linear space, no recursion.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn folder(name: &str) -> PathBuf {
        let unique = format!("wirespeed-workers-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(folder.join("main.d")).expect("a temporary folder");
        folder
    }

    #[test]
    fn the_configuration_named_on_the_command_line_is_read() {
        let folder = folder("named");
        let path = folder.join("nginx.conf");
        let text = "# worker_processes 9;\nuser x;worker_processes  3;\nhttp { server { } }\n";
        std::fs::write(&path, text).expect("written");
        let found = count(&words(&format!(
            "taskset -c 1 /usr/sbin/nginx -c {}",
            path.display()
        )));
        assert_eq!(found.workers, 3);
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn includes_with_stars_are_followed_and_circles_end() {
        let folder = folder("include");
        let path = folder.join("nginx.conf");
        std::fs::write(&path, "include main.d/*.conf;\ninclude nginx.conf;\n").expect("written");
        std::fs::write(folder.join("main.d/a.conf"), "worker_processes \"5\";").expect("written");
        std::fs::write(folder.join("main.d/a.txt"), "worker_processes 6;").expect("written");
        let command = words(&format!("nginx -c {}", path.display()));
        assert_eq!(count(&command).workers, 5);
        std::fs::remove_file(folder.join("main.d/a.conf")).expect("removed");
        assert_eq!(count(&command).workers, 1);
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn auto_is_the_number_of_cpus_we_may_use() {
        let command = ["nginx", "-g", "worker_processes auto;"].map(str::to_owned);
        assert_eq!(count(&command).workers, cores());
        let command = ["nginx", "-g", "daemon off; worker_processes 12;"].map(str::to_owned);
        assert_eq!(count(&command).workers, 12);
    }

    #[test]
    fn another_program_has_one_worker_and_a_note() {
        let found = count(&words("curl http://localhost/"));
        assert_eq!(found.workers, 1);
        assert!(found.note.contains("not nginx"));
    }

    #[test]
    fn stars_match_anywhere_in_a_name() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.old", false),
            ("a*b?c", "axxbyc", true),
            ("a*b", "ab", true),
            ("a?", "a", false),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
