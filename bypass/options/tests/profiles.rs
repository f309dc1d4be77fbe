//! Profiles as users write them: the shipped ones, the forms of the documents, and invalid ones.

use std::path::{Path, PathBuf};

use bypass_options::profile::{check_reading, Profile, Reader};
use bypass_options::Resolved;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles")
}

fn nothing(_: &str) -> Option<String> {
    None
}

fn read(text: &str) -> Result<Profile, String> {
    Reader::new(&nothing)
        .read_text("test.opf", text)
        .map_err(|error| error.to_string())
}

fn value(profile: &Profile, name: &str) -> String {
    let setting = profile
        .settings
        .iter()
        .find(|setting| setting.option.name == name);
    setting.map_or_else(|| "unset".to_owned(), |setting| setting.value.to_string())
}

#[test]
fn every_shipped_profile_is_read_without_a_complaint() {
    let mut count = 0;
    for entry in std::fs::read_dir(shipped()).expect("the profiles of the repository") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "opf") {
            let name = path.display().to_string();
            let reader = Reader::new(&nothing).folders(vec![shipped()]);
            let profile = reader.read(&name).unwrap_or_else(|error| panic!("{error}"));
            assert!(!profile.settings.is_empty(), "{name} sets nothing");
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} profiles");
}

#[test]
fn balanced_spins_briefly_and_performance_for_100_ms() {
    for (name, usec) in [
        ("nettyio-balanced", "20"),
        ("nettyio-performance", "100000"),
        ("nginx-balanced", "20"),
        ("nginx-performance", "100000"),
        ("nginx_webserver_balanced.opf", "1000000"),
        ("wrk-profile.opf", "100000"),
        ("latency-best", "100000"),
    ] {
        let reader = Reader::new(&nothing).folders(vec![shipped()]);
        let profile = reader.read(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(value(&profile, "EF_POLL_USEC"), usec, "{name}");
    }
}

#[test]
fn a_list_of_profiles_is_read_from_left_to_right() {
    let reader = Reader::new(&nothing).folders(vec![shipped()]);
    let profile = reader
        .read("safe, nettyio-performance")
        .expect("both exist");
    assert_eq!(value(&profile, "EF_POLL_USEC"), "0");
    assert_eq!(value(&profile, "EF_UL_EPOLL"), "3");
}

#[test]
fn the_first_setting_of_a_name_wins() {
    let profile = read("onload_set EF_POLL_USEC 5\nonload_set EF_POLL_USEC=9\n").expect("valid");
    assert_eq!(value(&profile, "EF_POLL_USEC"), "5");
}

#[test]
fn quotes_comments_and_continued_lines_are_read_as_a_shell_would() {
    let text =
        "# why\nonload_set EF_CLUSTER_NAME 'a b' # end\nonload_set \\\n  EF_CLUSTER_SIZE \"12\"\n\
                onload_set EF_SCALABLE_FILTERS=\"any=rss:active\"; onload_set EF_UDP 0\n";
    let profile = read(text).expect("valid");
    assert_eq!(value(&profile, "EF_CLUSTER_NAME"), "a b");
    assert_eq!(value(&profile, "EF_CLUSTER_SIZE"), "12");
    assert_eq!(value(&profile, "EF_SCALABLE_FILTERS"), "any=rss:active");
    assert_eq!(value(&profile, "EF_UDP"), "0");
}

#[test]
fn variables_and_arithmetic_are_computed() {
    let text = "workers=4\nonload_set EF_MAX_ENDPOINTS $(( 400000 / $workers ))\n\
                onload_set EF_CLUSTER_SIZE \"$workers\"\nonload_set EF_RXQ_SIZE ${NONE:-512}\n";
    let profile = read(text).expect("valid");
    assert_eq!(value(&profile, "EF_MAX_ENDPOINTS"), "100000");
    assert_eq!(value(&profile, "EF_CLUSTER_SIZE"), "4");
    assert_eq!(value(&profile, "EF_RXQ_SIZE"), "512");
}

/// The shape of the nginx profile in the documents: functions around perl, then settings, then a
/// loop that waits for the old cluster.
const NGINX_SHAPE: &str = r#"
set -o pipefail
module="nginx profile"
pattern="/(^|;)\s*worker_processes\s+(\w+)\s*;/"
read_one() {
  local found=$(perl -ne 'print "$2 " if
'"$pattern" $1)
  for workers in $found
  do
    setting=$workers
  done
  echo $setting
}
num_workers=${NGINX_NUM_WORKERS:-$(read_one "$@")}
if ! [ -n "$num_workers" ]; then
  fail "cannot be
determined"
fi
log "$module: $num_workers workers"
onload_set EF_CLUSTER_SIZE "$num_workers"
onload_set EF_CLUSTER_NAME webs
if echo "$@" | perl -n -e 'if(/\s-s/) {exit 1}'; then
  TRY=0
  while onload_stackdump --nopids stacks | grep "\s${EF_CLUSTER_NAME}-c"
>/dev/null; do
    if (( $TRY % 20 == 19 )); then
      exit 16
    fi
    TRY=$(( $TRY + 1 ))
  done
fi
"#;

#[test]
fn the_nginx_profiles_shell_is_recognised_and_done_natively() {
    let command = ["nginx", "-g", "worker_processes 7;"].map(str::to_owned);
    let reader = Reader::new(&nothing).command(&command);
    let profile = reader
        .read_text("nginx.opf", NGINX_SHAPE)
        .expect("understood");
    assert_eq!(value(&profile, "EF_CLUSTER_SIZE"), "7");
    assert!(profile.waits_for_cluster);
    assert!(profile
        .notes
        .iter()
        .any(|note| note.contains("skipped: read_one() {")));
}

#[test]
fn nginx_num_workers_beats_the_configuration() {
    let environment = |name: &str| (name == "NGINX_NUM_WORKERS").then(|| "3".to_owned());
    let command = ["nginx", "-g", "worker_processes 7;"].map(str::to_owned);
    let reader = Reader::new(&environment).command(&command);
    let profile = reader
        .read_text("nginx.opf", NGINX_SHAPE)
        .expect("understood");
    assert_eq!(value(&profile, "EF_CLUSTER_SIZE"), "3");
}

#[test]
fn errors_are_one_line_with_the_place() {
    for (text, expected) in [
        ("\nonload_set EF_POL_USEC 1", "test.opf:2: EF_POL_USEC: unknown option (nearest: EF_POLL_USEC)"),
        ("onload_set EF TCP_BACKLOG_MAX 1", "test.opf:1: EF TCP_BACKLOG_MAX: unknown option (nearest: EF_TCP_BACKLOG_MAX)"),
        ("onload_set EF_UL_EPOLL 4", "test.opf:1: EF_UL_EPOLL: 4 is out of range (0 to 3)"),
        ("onload_set EF_UDP yes", "test.opf:1: EF_UDP: invalid value \"yes\" (0 or 1)"),
        ("onload_set EF_POLL_USEC x", "test.opf:1: EF_POLL_USEC: invalid number \"x\""),
        ("onload_set EF_UDP", "test.opf:1: onload_set EF_UDP: missing value"),
        ("onload_set EF_UDP 1 2", "test.opf:1: onload_set EF_UDP: needs one value, not 2"),
        ("rm -rf x", "test.opf:1: unexpected \"rm\" (a profile has onload_set, onload_import and comments)"),
        ("onload_set EF_CLUSTER_SIZE $none", "test.opf:1: EF_CLUSTER_SIZE: $none is not set"),
        ("a=$(date)\nonload_set EF_CLUSTER_NAME $a", "test.opf:2: EF_CLUSTER_NAME: the shell command `date` is not run (write its result)"),
        ("onload_set EF_NAME 'x", "test.opf:1: a ' is not closed"),
        ("if true; then\n  onload_set EF_UDP 0\nfi", "test.opf:2: a setting inside a condition, loop or function: conditions are not evaluated (move it outside, or into a profile of its own)"),
        ("if true; then\n", "test.opf:1: the block has no end in the file"),
    ] {
        assert_eq!(read(text).expect_err(text), expected);
    }
}

#[test]
fn a_missing_profile_lists_the_existing_ones() {
    let reader = Reader::new(&nothing).folders(vec![shipped()]);
    let error = reader.read("no-such").expect_err("missing").to_string();
    assert!(
        error.starts_with("profile no-such: not found; there are "),
        "{error}"
    );
    assert!(error.contains("nginx-balanced"), "{error}");
}

#[test]
fn an_import_cycle_is_an_error() {
    let folder = std::env::temp_dir().join(format!("wirespeed-circle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(folder.join("one.opf"), "onload_import two\n").expect("written");
    std::fs::write(folder.join("two.opf"), "onload_import one\n").expect("written");
    let error = Reader::new(&nothing)
        .folders(vec![folder.clone()])
        .read("one");
    let error = error.expect_err("a circle").to_string();
    assert!(error.contains("two.opf:1: one: imports itself"), "{error}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_profile_is_exported_and_read_back_by_the_library_as_the_same_values() {
    let reader = Reader::new(&nothing).folders(vec![shipped()]);
    let profile = reader.read("wrk").expect("shipped");
    let launcher = Resolved::new(&profile, std::iter::empty());
    let exported = launcher
        .exported()
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text));
    let library = Resolved::from_environment(exported);
    for option in bypass_options::table::all() {
        assert_eq!(
            launcher.value(option).0,
            library.value(option).0,
            "{}",
            option.name
        );
    }
    assert!(library.complaints.is_empty());
}

#[test]
fn the_corpus_and_its_mutations_end_in_settings_or_in_one_line() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/profile");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        for mutated in mutations(&bytes) {
            check_reading(&String::from_utf8_lossy(&mutated));
            count += 1;
        }
    }
    assert!(count > 1000, "only {count} texts");
}

/// The text itself, cut at several places, with single bytes replaced and with pieces doubled; the
/// same in every run.
fn mutations(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![bytes.to_vec()];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below.max(1) as u64).unwrap_or(0)
    };
    for _ in 0..200 {
        let mut text = bytes.to_vec();
        let at = next(text.len());
        match next(3) {
            0 => text.truncate(at),
            1 => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = b"$(){}'\"\\`;|&<>#=\n \0a9_"[next(22)];
                }
            }
            _ => text.extend_from_slice(&bytes[at..]),
        }
        all.push(text);
    }
    all
}

#[test]
fn the_page_of_options_is_the_one_in_the_documents() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let written = std::fs::read_to_string(path).expect("docs/options.md");
    assert!(
        written == bypass_options::markdown::page(),
        "docs/options.md differs: write it again with `bypass options --markdown > docs/options.md`"
    );
}

#[test]
fn every_option_of_the_documents_is_in_the_table() {
    let names = include_str!("options_of_the_documents.txt");
    let mut count = 0;
    for name in names.split_whitespace() {
        assert!(
            bypass_options::table::find(name).is_some(),
            "{name} is missing"
        );
        count += 1;
    }
    assert!(count > 45);
}

/// A field that no code reads would be an option that is documented as implemented and is not.
#[test]
fn every_setting_is_used_in_the_library() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = String::new();
    let mut folders = ["stack/src", "shm/src", "preload/src"]
        .map(|folder| crates.join(folder))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                sources.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
    }
    let settings = include_str!("../src/settings.rs");
    let fields = settings
        .lines()
        .filter_map(|line| line.strip_prefix("    pub "))
        .filter(|item| !item.starts_with("fn "));
    let unread: Vec<_> = fields
        .filter_map(|field| field.split(':').next())
        .filter(|name| !sources.contains(&format!(".{name}")))
        .collect();
    assert!(unread.is_empty(), "nothing reads {unread:?}");
}
