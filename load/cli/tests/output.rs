//! What is printed and written: wrk's shape, every mistake's message, the files of other tools.

mod support;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::Deserializer;
use std::os::unix::process::CommandExt;
use std::process::Command;
use support::{always, count, is_installed, measured, program, run, temporary, Server, HELLO};

/// Digits and units become one sign, runs of blanks one blank: the layout remains.
fn masked(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| {
            let words = line.split_whitespace().map(|word| {
                let figure = word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let figure = figure && word.contains(|c: char| c.is_ascii_digit() || c == 'n');
                if figure {
                    "#"
                } else {
                    word
                }
            });
            words.collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn stdout_of(mut command: Command, line: &str) -> String {
    let output = command
        .args(line.split_whitespace())
        .output()
        .expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_report_has_the_shape_of_wrk() {
    let server = Server::start(always(HELLO));
    let text = stdout_of(
        program(),
        &format!("-t2 -c4 -d1s -T 30s --latency {}", server.url()),
    );
    let expected = [
        &format!("Running # test @ {}", server.url()),
        "# threads and # connections",
        "Thread Stats Avg Stdev Max +/- Stdev",
        "Latency # # # #",
        "Req/Sec # # # #",
        "Latency Distribution",
        "# #",
        "# #",
        "# #",
        "# #",
        "# requests in #, #",
        "Requests/sec: #",
        "Transfer/sec: #",
    ];
    let mut lines = masked(&text);
    lines[10] = lines[10]
        .replace("# read", "#")
        .replace("in # #", "in #, #");
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn the_report_is_line_for_line_that_of_wrk() {
    if !is_installed("wrk") {
        return;
    }
    let good = Server::start(always(HELLO));
    let bad = Server::start(always(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    let mute = Server::start(|mut conversation| while conversation.request().is_some() {});
    for server in [good, bad, mute] {
        let lines = [
            "-t2 -c4 -d1s -T 30s",
            "-t1 -c2 -d1s -T 30s --latency",
            "-d1 -c10 -T 30s",
        ]
        .map(|options| format!("{options} {}", server.url()));
        // in parallel: figures are not compared
        std::thread::scope(|scope| {
            let runs = lines.each_ref().map(|line| {
                let own = scope.spawn(|| masked(&stdout_of(program(), line)));
                let theirs = scope.spawn(|| masked(&stdout_of(Command::new("wrk"), line)));
                (line, own, theirs)
            });
            for (line, own, theirs) in runs {
                let (own, theirs) = (own.join(), theirs.join());
                assert_eq!(own.expect("run"), theirs.expect("run"), "{line}");
            }
        });
    }
}

/// Layout of a report with its spectrum: how many rows that has depends on the values.
fn layout(text: &str) -> Vec<String> {
    let mut lines = masked(&text.replace("-nan%", "0.00%").replace("-nan", "0.00"));
    // wrk2 has no samples of the rate in its first ten seconds and prints "-nan -nan 0.00 0.00%"
    lines.retain(|line| line != "# # # inf");
    lines.dedup_by(|next, line| next == line && line == "# # # #");
    lines
}

#[test]
fn the_report_is_line_for_line_that_of_wrk2() {
    if !is_installed("wrk2") {
        return;
    }
    let good = Server::start(always(HELLO));
    let bad = Server::start(always(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    for server in [good, bad] {
        for options in ["", "-L", "--latency", "-U", "-t2 -B", "--u_latency"] {
            let line = format!("-c4 -d1s -R200 {options} {}", server.url());
            let theirs = stdout_of(Command::new("wrk2"), &line);
            let mut called = program();
            called.arg0("wrk2");
            assert_eq!(layout(&stdout_of(called, &line)), layout(&theirs), "{line}");
        }
    }
}

/// Text that scripts commonly cut out of a report: awk on words, a pattern for the percentiles, the
/// rows of the spectrum for a plotter.
#[test]
fn common_ways_to_parse_a_report_work() {
    let server = Server::start(always(HELLO));
    let text = stdout_of(
        program(),
        &format!("-t1 -c4 -d2s -R 500 -T 30s -L {}", server.url()),
    );
    let word = |line: &str, number: usize| -> String {
        let line = text.lines().find(|own| own.trim_start().starts_with(line));
        let word = line.and_then(|line| line.split_whitespace().nth(number));
        word.expect("the line").to_string()
    };
    let rate: f64 = word("Requests/sec:", 1).parse().expect("a number");
    assert!(rate > 0.0 && rate <= 510.0, "{rate}");
    assert!(word("Transfer/sec:", 1).ends_with('B'));
    assert!(word("Latency  ", 1).ends_with("ms") || word("Latency  ", 1).ends_with("us"));
    let percentile = word("99.000%", 1);
    let digits = percentile.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    assert!(digits.parse::<f64>().is_ok(), "{percentile}");
    let rows: Vec<Vec<f64>> = text
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(|word| word.parse().unwrap_or(f64::NAN))
        })
        .map(|words| words.collect::<Vec<f64>>())
        .filter(|words| words.len() == 4 && !words[..3].iter().any(|word| word.is_nan()))
        .collect();
    assert!(rows.len() > 5, "{text}");
    assert!(rows
        .windows(2)
        .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1]));
    assert_eq!(rows.last().map(|row| (row[1], row[2])), Some((1.0, 1000.0)));
}

#[test]
fn with_a_rate_the_report_has_the_spectrum_of_wrk2() {
    let server = Server::start(always(HELLO));
    let text = stdout_of(
        program(),
        &format!("-t1 -c4 -d1s -R 500 -T 30s -U {}", server.url()),
    );
    for line in [
        "  Latency Distribution (HdrHistogram - Recorded Latency)",
        "  Detailed Percentile spectrum:",
        "       Value   Percentile   TotalCount 1/(1-Percentile)",
        "  Latency Distribution (HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account))",
        "----------------------------------------------------------",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
    assert_eq!(
        text.lines()
            .filter(|line| line.ends_with("         500          inf"))
            .count(),
        2
    );
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    let table = [
        ("", "a URL is missing, such as http://127.0.0.1:8080/"),
        ("-q http://h/", "-q: unknown option (see --help)"),
        (
            "-c x http://h/",
            "--connections: invalid number 'x' (N, A..B or A..B:STEP)",
        ),
        (
            "-c 1 -t 2 http://h/",
            "number of connections must be >= threads",
        ),
        ("-d 0 http://h/", "--duration: must be greater than 0"),
        (
            "-d x http://h/",
            "--duration: invalid time 'x' (for example 30s, 500ms or 2m)",
        ),
        ("-R 0 http://h/", "--rate: must be greater than 0"),
        (
            "-H x http://h/",
            "--header: invalid field 'x' (write 'Name: value')",
        ),
        ("nonsense", "invalid URL: nonsense"),
        ("ftp://h/", "invalid URL: ftp://h/"),
        (
            "-R 1 http://127.0.0.1:1/",
            "unable to connect to 127.0.0.1:1 Connection refused",
        ),
        ("http://no-such-host.invalid/", "unable to resolve"),
        // values are read before names are resolved
        (
            "--late x -R 1 http://127.0.0.1:1/",
            "--late: unknown value 'x' (queue, drop)",
        ),
        (
            "--pin x http://h/",
            "--pin: invalid list of cores 'x' (for example 2-5,8)",
        ),
        (
            "-X get http://h/",
            "--method: invalid method 'get' (for example GET)",
        ),
        (
            "--body a --body-file b http://h/",
            "--body: does not work with --body-file (remove one)",
        ),
        (
            "--urls /none",
            "--urls: cannot read /none: No such file or directory (os error 2)",
        ),
        (
            "--sink http://h/",
            "--sink: replaces the URL (remove the URL)",
        ),
        ("merge a", "merge: needs at least two result files"),
        (
            "completion tcsh",
            "completion: unknown shell (bash, zsh or fish)",
        ),
    ];
    for (line, message) in table {
        let output = run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.starts_with(&format!("wirespeed-load: {message}")),
            "{line}: {text}"
        );
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
        let absent = message.starts_with("unable");
        assert_eq!(
            output.status.code(),
            Some(if absent { 1 } else { 2 }),
            "{line}"
        );
    }
}

#[test]
fn called_as_wrk_it_has_the_manners_of_wrk() {
    let called = |name: &str, line: &str| {
        let mut command = program();
        command.arg0(name).args(line.split_whitespace());
        command.output().expect("it starts")
    };
    let usage = called("wrk", "--help");
    assert_eq!(usage.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&usage.stdout).starts_with("Usage: "));
    let unknown = called("/usr/bin/wrk", "-Z");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stdout).starts_with("Usage: "));
    let version = called("wrk", "-v");
    assert_eq!(version.status.code(), Some(1));
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    assert!(text.contains(" [epoll]\nUsage: "), "{text}");
    let server = Server::start(always(HELLO));
    let more = format!("-t1 -c1 -d100ms -H none {} more words", server.url());
    assert_eq!(called("wrk", &more).status.code(), Some(0));
    // as wrk, which looks for a space behind the first colon
    let fields = format!("-t1 -c1 -d100ms -H X-Near:1 -H :a {}", server.url());
    assert_eq!(called("wrk", &fields).status.code(), Some(0));
    let is_near = |line: &String| line.starts_with("X-Near");
    assert!(!server
        .seen()
        .iter()
        .any(|seen| seen.headers.iter().any(is_near)));
    assert_eq!(run(&more).status.code(), Some(2), "words are invalid URLs");
    let rate = called("wrk2", "http://127.0.0.1:1/");
    assert_eq!(rate.status.code(), Some(1));
    let text = String::from_utf8_lossy(&rate.stderr).into_owned();
    assert_eq!(
        text,
        "Throughput MUST be specified with the --rate or -R option\n"
    );
    let absent = called("wrk", "http://127.0.0.1:1/");
    assert_eq!(absent.status.code(), Some(1));
    let text = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert_eq!(
        text,
        "unable to connect to 127.0.0.1:1 Connection refused\n"
    );
}

#[test]
fn help_and_version_are_not_mistakes() {
    for line in [
        "--help",
        "-h",
        "--version",
        "-v",
        "completion bash",
        "completion fish",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(!output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn files_of_all_kinds_agree_with_the_result() {
    let server = Server::start(always(HELLO));
    let files = ["json", "csv", "hlog", "hgrm"].map(temporary);
    let former = ["json", "csv", "hlog", "hgrm"].map(temporary);
    for (file, former) in files.iter().zip(&former) {
        std::fs::write(file, "of the last run").expect("a file");
        std::fs::hard_link(file, former).expect("another name");
    }
    let [json, csv, hlog, hgrm] = files;
    let output = program()
        .args(["-t1", "-c2", "-d2s", "-R100", "-T30s", "--live", "always"])
        .args([
            "--json".as_ref(),
            json.as_os_str(),
            "--csv".as_ref(),
            csv.as_os_str(),
        ])
        .args([
            "--hlog".as_ref(),
            hlog.as_os_str(),
            "--hgrm".as_ref(),
            hgrm.as_os_str(),
        ])
        .arg(server.url())
        .output()
        .expect("it starts");
    assert!(output.status.success());
    for former in former {
        let text = std::fs::read_to_string(&former).expect("still there");
        assert_eq!(
            text, "of the last run",
            "put in its place, not written over"
        );
        std::fs::remove_file(former).expect("ours");
    }
    let live = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(live.contains("s left") && live.contains("p99.9"), "{live}");
    let read = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).expect("written");
        std::fs::remove_file(path).expect("ours");
        text
    };
    let lines = read(&csv);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let logged = logged_samples(&read(&hlog));
    assert!(read(&hgrm).contains("Total count    =          200]"));
    let result: serde_json::Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert_eq!(count(&result, "/latency/response/count"), 200);
    // late answers come in the drain, after the last logged second
    assert!((1..=200).contains(&logged), "{logged}");
}

#[test]
fn a_second_without_a_response_has_no_latencies() {
    let server = Server::start(|mut conversation| while conversation.request().is_some() {});
    let csv = temporary("csv");
    let result = measured(&format!(
        "-t1 -c1 -d1s -R20 -T30s --drain 100ms --csv {} {}",
        csv.display(),
        server.url()
    ));
    let text = std::fs::read_to_string(&csv).expect("written");
    std::fs::remove_file(&csv).expect("ours");
    let line = text.lines().nth(1).expect("a second");
    assert_eq!(line, "0.000,1.000,measured,0,0,0.0,,,,0");
    assert!(
        result["seconds"][0]["p50"].is_null(),
        "{}",
        result["seconds"]
    );
}

/// Samples of the response times in a log, read as other tools read it.
fn logged_samples(text: &str) -> u64 {
    let mut samples = 0;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let Ok(LogEntry::Interval(interval)) = entry else {
            continue;
        };
        if interval.tag().is_some_and(|tag| tag.as_str() == "response") {
            use base64::Engine as _;
            let encoded = interval.encoded_histogram();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .expect("base64");
            let histogram: hdrhistogram::Histogram<u64> = Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .expect("a histogram");
            samples += histogram.len();
        }
    }
    samples
}

#[test]
fn results_of_two_runs_are_merged() {
    let server = Server::start(always(HELLO));
    let [one, two, both] = ["json", "json", "json"].map(temporary);
    let start = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs_f64()
        + 3.0;
    let spawn = |file: &std::path::Path| {
        let mut command = program();
        command.args([
            "-t1",
            "-c2",
            "-d1s",
            "-R50",
            "-T30s",
            "--start-at",
            &start.to_string(),
            "--json",
        ]);
        command
            .arg(file)
            .arg(server.url())
            .spawn()
            .expect("it starts")
    };
    let mut runs = [spawn(&one), spawn(&two)];
    assert!(runs
        .iter_mut()
        .all(|run| run.wait().is_ok_and(|status| status.success())));
    let output = program()
        .arg("merge")
        .args([&one, &two])
        .arg("--json")
        .arg(&both)
        .output();
    let output = output.expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read_to_string(&both).expect("written");
    let merged: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(count(&merged, "/latency/response/count"), 100);
    assert_eq!(count(&merged, "/totals/due"), 100);
    for file in [one, two, both] {
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn an_interrupt_ends_the_run_with_its_report() {
    let server = Server::start(always(HELLO));
    let mut command = program();
    command
        .args(["-t1", "-c1", "-d60s", "-R100"])
        .arg(server.url());
    command.stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    while server.seen().len() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Requests/sec:"));
}

/// What a run shows on a terminal, standard error included.
fn on_a_terminal(line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_wirespeed-load");
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("{program} {line}"), "/dev/null"]);
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.expect("script, of util-linux");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_terminal_shows_how_a_longer_run_goes_and_a_pipe_does_not() {
    let server = Server::start(always(HELLO));
    let line = |seconds: u32| format!("-t1 -c2 -d{seconds}s -R100 -T30s {}", server.url());
    let shown = on_a_terminal(&line(3));
    for part in [
        "2 s left",
        "1 s left",
        "requests/s",
        "p99.9",
        "errors      0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // the view is taken away before the report is printed
    let gone = shown.rfind("\x1b[J").expect("taken away");
    assert!(shown[gone..].contains("Requests/sec:"), "{shown}");
    assert!(!shown[gone..].contains("s left"), "{shown}");
    assert!(!on_a_terminal(&line(1)).contains('\x1b'), "over at once");
    let piped = run(&line(3));
    assert!(!String::from_utf8_lossy(&piped.stderr).contains('\x1b'));
}
