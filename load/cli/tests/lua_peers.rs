//! Scripts under wrk, wrk2 and this program: the same requests, the same form of output, the same end.

#[path = "support/scripts.rs"]
mod scripts;
mod support;

use scripts::{play, play_file, server, wire};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{c_library, is_installed, program, report_skip, temporary};

/// Where Debian's package puts wrk's scripts.
const SCRIPTS: &str = "/usr/share/doc/wrk/examples/scripts";

#[test]
fn the_same_requests_as_wrk() {
    if !is_installed("wrk") {
        return;
    }
    let names = [
        "addr", "auth", "counter", "pipeline", "post", "report", "large",
    ];
    // four runs at once: what is compared is the first requests of each connection
    for some in names.chunks(2) {
        std::thread::scope(|scope| {
            let start = |name| {
                let play = move |command| wire(&play(command, name, "-t2 -c2 -d1s").0);
                let own = scope.spawn(move || play(program()));
                (own, scope.spawn(move || play(Command::new("wrk"))))
            };
            let runs: Vec<_> = some.iter().map(|name| (name, start(name))).collect();
            for (name, (own, theirs)) in runs {
                let (own, theirs) = (own.join(), theirs.join());
                assert_eq!(own.expect("run"), theirs.expect("run"), "{name}");
            }
        });
    }
}

#[test]
fn the_same_requests_as_wrk2() {
    if !is_installed("wrk2") {
        return;
    }
    // not report: latency(i) is of wrk alone
    for name in ["addr", "auth", "counter", "pipeline", "post"] {
        let options = "-t2 -c2 -d1s -R100";
        let (own, _) = play(program(), name, options);
        let (theirs, _) = play(Command::new("wrk2"), name, options);
        assert_eq!(wire(&own), wire(&theirs), "{name}");
    }
}

/// The scripts that come with wrk send the same under both programs; WRK_SCRIPTS=FOLDER and
/// WRK_PEER=wrk2 compare with others.
#[test]
fn the_scripts_of_wrk_send_the_same() {
    let named = std::env::var_os("WRK_SCRIPTS").map(std::path::PathBuf::from);
    let folder = named.unwrap_or_else(|| SCRIPTS.into());
    if !folder.is_dir() {
        return report_skip("wrk's scripts are not installed");
    }
    let (peer, options) = match std::env::var("WRK_PEER").as_deref() {
        Ok("wrk2") => ("wrk2", "-t2 -c2 -d1s -R100"),
        _ => ("wrk", "-t2 -c2 -d1s"),
    };
    let scripts = scripts_in(&folder);
    assert!(!scripts.is_empty());
    for path in scripts {
        compare(&path, peer, options);
    }
}

/// Scripts of the kinds that public repositories hold, written for this test: paths from a file, forms, logins,
/// random users, weights, pipelines, modules, reports.
#[test]
fn scripts_as_people_write_them_send_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/patterns");
    let scripts = scripts_in(folder.as_ref());
    assert!(scripts.len() >= 35, "{}", scripts.len());
    if !is_installed("wrk") {
        return;
    }
    let peers = [("wrk", "-t2 -c2 -d1s"), ("wrk2", "-t2 -c2 -d1s -R100")];
    for (peer, options) in peers {
        // the other tests report a missing wrk2
        if Command::new(peer).arg("-v").output().is_err() {
            continue;
        }
        // several runs at once: what is compared is the first requests of each connection
        for some in scripts.chunks(4) {
            std::thread::scope(|scope| {
                for path in some {
                    scope.spawn(|| compare(path, peer, options));
                }
            });
        }
    }
}

fn scripts_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder).expect("the folder");
    let paths = files.map(|entry| entry.expect("a file").path());
    let is_script = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "lua");
    paths.filter(is_script).collect()
}

/// A script sends and prints the same under a peer as under ours; figures are left out.
fn compare(path: &Path, peer: &str, options: &str) {
    let (own, printed) = play_file(program(), path, options);
    let (theirs, they_printed) = play_file(Command::new(peer), path, options);
    assert_eq!(wire(&own), wire(&theirs), "{}", path.display());
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphabetic());
        let long = words.filter(|word| word.len() > 3);
        long.map(String::from).collect()
    };
    assert_eq!(words(&printed), words(&they_printed), "{}", path.display());
}

/// This program under the name of wrk, whose exit codes it then has.
fn called_wrk() -> Command {
    let mut command = program();
    command.arg0("wrk");
    command
}

/// How a run with this text as its script ends.
fn ended(mut command: Command, text: &str, options: &str) -> Output {
    let (server, file) = (server(), temporary("lua"));
    std::fs::write(&file, text).expect("a file");
    let output = command
        .args(options.split_whitespace())
        .arg("-s")
        .arg(&file)
        .arg(server.url())
        .output();
    std::fs::remove_file(&file).expect("ours");
    output.expect("it starts")
}

/// Exit code of a run, and whether it printed a report.
fn end(output: &Output) -> (Option<i32>, bool) {
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.code(), text.contains("Thread Stats"))
}

/// A script whose function does this at its third call at the latest; `load` is the script's own text.
fn script_that(function: &str, does: &str) -> String {
    match function {
        "load" => does.to_string(),
        "setup" | "init" | "done" => format!("function {function}() {does} end"),
        _ => format!(
            "local n = 0\nfunction {function}() n = n + 1 if n == 3 then {does} end\n  \
             return {} end",
            if function == "delay" {
                "0"
            } else {
                "wrk.format()"
            }
        ),
    }
}

const FUNCTIONS: [&str; 7] = [
    "load", "setup", "init", "request", "response", "delay", "done",
];

#[test]
fn an_error_in_each_function_ends_the_run_as_under_wrk() {
    if !is_installed("wrk") {
        return;
    }
    for function in FUNCTIONS {
        let text = script_that(function, "error('broken')");
        // long, to see that the error ends it; an error of the script's own text does not
        let options = ["-t1 -c1 -d60s", "-t1 -c1 -d1s"];
        let options = options[usize::from(matches!(function, "load" | "done"))];
        let own = ended(called_wrk(), &text, options);
        let theirs = ended(Command::new("wrk"), &text, options);
        assert_eq!(end(&own), end(&theirs), "{function}");
        for output in [own, theirs] {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(errors.contains(": broken"), "{function}: {errors}");
        }
    }
}

#[test]
fn an_error_in_one_thread_ends_all() {
    let text = "
        local threads, n = 0, 0
        function setup(thread)
            threads = threads + 1
            thread:set('id', threads)
        end
        function response()
            n = n + 1
            if id == 2 and n == 3 then error('broken') end
        end";
    let began = Instant::now();
    let own = ended(called_wrk(), text, "-t3 -c3 -d600s");
    assert_eq!(end(&own), (Some(1), false));
    assert!(began.elapsed() < Duration::from_secs(300));
    if is_installed("wrk") {
        assert_eq!(
            end(&own),
            end(&ended(Command::new("wrk"), text, "-t3 -c3 -d600s"))
        );
    }
}

#[test]
fn a_script_that_ends_the_program_does_so_as_under_wrk() {
    if !is_installed("wrk") {
        return;
    }
    for function in FUNCTIONS {
        let text = script_that(function, "print('leaving') os.exit(7)");
        let options = ["-t1 -c1 -d60s", "-t1 -c1 -d1s"][usize::from(function == "done")];
        let own = ended(called_wrk(), &text, options);
        let theirs = ended(Command::new("wrk"), &text, options);
        assert_eq!(end(&own), end(&theirs), "{function}");
        assert_eq!(own.status.code(), Some(7), "{function}");
        let printed = String::from_utf8_lossy(&own.stdout).into_owned();
        assert!(printed.contains("leaving\n"), "{function}: {printed}");
    }
}

#[test]
fn a_script_that_is_not_there_and_a_text_that_is_not_a_request_end_as_under_wrk() {
    if !is_installed("wrk") {
        return;
    }
    let options = "-t1 -c1 -d1s -s /no/such/script.lua";
    let server = server();
    let code = |mut command: Command| {
        let words = options.split_whitespace();
        let output = command.args(words).arg(server.url()).output();
        output.expect("it starts").status.code()
    };
    assert_eq!(code(called_wrk()), code(Command::new("wrk")));
    for text in [
        "nonsense",
        "GET / HTTP/1.1\\r\\n",
        "get / HTTP/1.1\\r\\n\\r\\n",
    ] {
        let script = format!("function request() return '{text}' end");
        let own = ended(called_wrk(), &script, "-t1 -c1 -d1s");
        let theirs = ended(Command::new("wrk"), &script, "-t1 -c1 -d1s");
        assert_eq!(end(&own), end(&theirs), "{text}");
    }
}

#[test]
fn lines_that_scripts_print_have_their_place_among_the_lines_of_the_report() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/scripts/patterns/prints.lua"
    );
    let mut programs = vec![program()];
    if is_installed("wrk") {
        programs.push(Command::new("wrk"));
    }
    let order = [
        ["loading", "beginning"],
        ["setting up", "beginning"],
        ["beginning", "Running"],
        ["first response", "Thread Stats"],
        ["Transfer/sec", "finished"],
    ];
    for command in programs {
        let name = format!("{command:?}");
        let (_, text) = play_file(command, path.as_ref(), "-t1 -c1 -d1s");
        let at = |line: &str| {
            text.find(line)
                .unwrap_or_else(|| panic!("{name}: {line}: {text}"))
        };
        for [before, after] in order {
            assert!(at(before) < at(after), "{name}: {before}, {after}: {text}");
        }
    }
}

/// A module of Lua in C, by the functions of Lua that the program exports.
const MODULE: &str = r#"
typedef struct lua_State lua_State;
typedef struct { const char *name; int (*function)(lua_State *); } luaL_Reg;
extern void luaL_register(lua_State *, const char *, const luaL_Reg *);
extern double luaL_checknumber(lua_State *, int);
extern const char *luaL_checklstring(lua_State *, int, unsigned long *);
extern void lua_pushnumber(lua_State *, double);
extern void lua_createtable(lua_State *, int, int);
extern void lua_setfield(lua_State *, int, const char *);
extern int luaL_newmetatable(lua_State *, const char *);
extern void *lua_newuserdata(lua_State *, unsigned long);
extern void lua_settop(lua_State *, int);
static int double_of(lua_State *L) {
    unsigned long length;
    luaL_checklstring(L, 2, &length);
    lua_pushnumber(L, 2 * luaL_checknumber(L, 1) + length);
    return 1;
}
int luaopen_module(lua_State *L) {
    const luaL_Reg functions[] = {{"double", double_of}, {0, 0}};
    luaL_newmetatable(L, "module");
    lua_newuserdata(L, 8);
    lua_settop(L, 0);
    lua_createtable(L, 0, 1);
    luaL_register(L, 0, functions);
    lua_pushnumber(L, 7);
    lua_setfield(L, -2, "version");
    return 1;
}
"#;

#[test]
fn modules_written_in_c_and_those_of_the_system_are_found() {
    let library = c_library(MODULE);
    let script = format!(
        "local open = assert(package.loadlib('{}', 'luaopen_module'))
         local module = open()
         local n = 0
         function request()
            n = n + 1
            return wrk.format('GET', '/' .. module.double(n, 'abc') .. '/' .. module.version)
         end
         assert(package.path:find('/usr/share/lua/5.1/?.lua', 1, true))
         assert(package.cpath:find('/lua/5.1/?.so', 1, true))",
        library.display()
    );
    let file = temporary("lua");
    std::fs::write(&file, script).expect("a file");
    let (seen, _) = play_file(program(), &file, "-t1 -c1 -d1s");
    assert_eq!(seen[0].path(), "/7/7");
    if is_installed("wrk") {
        let (theirs, _) = play_file(Command::new("wrk"), &file, "-t1 -c1 -d1s");
        assert_eq!(wire(&seen), wire(&theirs));
    }
    for path in [file, library] {
        std::fs::remove_file(path).expect("ours");
    }
}
