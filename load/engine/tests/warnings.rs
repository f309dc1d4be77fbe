//! Each warning appears at its figure and not below it.

use load_engine::latency::Latency;
use load_engine::outcome::{Outcome, SecondSummary, ThreadOutcome};
use load_engine::plan::{Late, Open, Pace, Phase, Plan, Protocol, Shape, Step};
use load_engine::schedule::Stretch;
use load_engine::warnings::{find, Warning};
use load_http1::Malformed;

const SECOND_NS: u64 = 1_000_000_000;

fn closed() -> Plan {
    Plan::plain(10, SECOND_NS)
}

fn open() -> Plan {
    Plan {
        pace: Pace::Open(Open {
            dispatch: load_engine::plan::Dispatch::Pinned,
            stretches: vec![Stretch {
                length_ns: SECOND_NS,
                from_rps: 10_000.0,
                to_rps: 10_000.0,
            }],
            recorded: None,
            poisson: false,
            seed: 1,
            late: Late::Queue,
            deadline_ns: None,
        }),
        ..closed()
    }
}

/// 10,000 answers of 1 ms each: ten connections at work all the time, nothing to say.
fn calm() -> Outcome {
    let mut outcome = Outcome {
        window_length_ns: SECOND_NS,
        completed_in_window: 10_000,
        threads: vec![ThreadOutcome {
            busy: 0.5,
            ..ThreadOutcome::default()
        }],
        ..Outcome::default()
    };
    let total = &mut outcome.total;
    total.counts.due = 10_000;
    total.counts.sent = 10_000;
    total.counts.completed = 10_000;
    total.counts.status[200] = 10_000;
    total.times.service = many(1_000_000, 10_000);
    total.times.response = many(1_000_000, 10_000);
    outcome
}

fn many(each_ns: u64, times: u64) -> Latency {
    let mut latency = Latency::default();
    latency.record_many(each_ns, times);
    latency
}

fn ids(plan: &Plan, outcome: &Outcome) -> Vec<&'static str> {
    find(plan, outcome)
        .into_iter()
        .map(|warning| warning.id)
        .collect()
}

/// The only finding after a change is `id`, and its text holds `figure`.
fn expect(plan: &Plan, id: &str, figure: &str, change: impl Fn(&mut Outcome)) {
    let mut outcome = calm();
    change(&mut outcome);
    let found = find(plan, &outcome);
    assert_eq!(found.len(), 1, "{id}: {found:?}");
    assert_eq!(found[0].id, id);
    assert!(found[0].text.contains(figure), "{}", found[0].text);
}

#[test]
fn a_quiet_run_has_no_warnings() {
    assert_eq!(ids(&closed(), &calm()), [""; 0]);
    assert_eq!(ids(&open(), &calm()), [""; 0]);
}

#[test]
fn a_busy_generator_and_a_shared_core_have_warnings_of_their_own() {
    expect(&closed(), "generator-busy", "96.0 %", |o| {
        o.threads[0].busy = 0.96
    });
    expect(&closed(), "core-shared", "3.0 %", |o| {
        o.threads[0].waited = 0.03
    });
    expect(&closed(), "suspended", "3.0 %", |o| {
        o.threads[0].ending.away_ns = SECOND_NS * 3 / 100;
    });
    let mut outcome = calm();
    (outcome.threads[0].busy, outcome.threads[0].waited) = (0.95, 0.02);
    // the wait for the core is a part of it
    outcome.threads[0].ending.away_ns = SECOND_NS * 4 / 100;
    assert_eq!(ids(&closed(), &outcome), [""; 0]);
}

#[test]
fn a_run_that_was_interrupted_before_it_began_does_not_blame_its_core() {
    let mut outcome = Outcome {
        window_length_ns: 5_000,
        threads: vec![ThreadOutcome::default()],
        ..Outcome::default()
    };
    (outcome.threads[0].busy, outcome.threads[0].waited) = (1.0, 1.0);
    assert_eq!(ids(&closed(), &outcome), ["few-samples"]);
}

#[test]
fn stolen_time_and_slow_clocks_are_said() {
    expect(&closed(), "steal", "2.0 %", |o| o.stolen = Some(0.02));
    expect(&closed(), "clock-source", "hpet", |o| {
        o.slow_clock = Some("hpet".to_string())
    });
    let mut outcome = calm();
    outcome.stolen = Some(0.01);
    assert_eq!(ids(&closed(), &outcome), [""; 0]);
}

#[test]
fn answers_without_a_stamp_are_counted() {
    let stamped = Plan {
        protocol: Protocol::Http1 {
            depth: 1,
            timestamps: true,
            drop_bodies: false,
        },
        ..closed()
    };
    expect(&stamped, "unstamped", "1.0 %", |o| {
        o.total.counts.unstamped = 100
    });
    expect(&stamped, "little", "rate x mean time = 12.0", |o| {
        o.total.times.client_delay = many(200_000, 10_000);
    });
}

#[test]
fn a_delay_of_a_script_is_of_no_use_at_a_rate() {
    let shape = Shape {
        depth: 1,
        dynamic: false,
        wants_answers: false,
        delays: true,
    };
    expect(&open(), "delay-unused", "delay()", |o| {
        o.shape = Some(shape)
    });
    let mut outcome = calm();
    outcome.shape = Some(shape);
    assert_eq!(ids(&closed(), &outcome), [""; 0]);
}

#[test]
fn late_and_missing_requests_are_reported() {
    expect(&open(), "lateness", "300 us", |o| {
        o.total.times.lateness = many(300_000, 10_000);
    });
    expect(&open(), "schedule-missed", "98.0 %", |o| {
        o.total.counts.sent = 9_800
    });
    expect(&open(), "backlog", "2.0 %", |o| {
        o.threads[0].ending.unfinished = 210
    });
    expect(&open(), "client-delay", "p99 101 us", |o| {
        o.total.times.client_delay = many(101_000, 10_000);
    });
}

#[test]
fn littles_law_and_missing_connections_are_checked() {
    expect(&closed(), "little", "rate x mean time = 8.0", |o| {
        o.total.times.service = many(800_000, 10_000);
    });
    expect(&closed(), "connections", "2 connections", |o| {
        (o.threads[0].ending.open, o.threads[0].ending.wanted) = (8, 10);
    });
    expect(&closed(), "in-flight", "2.0 s old", |o| {
        o.threads[0].ending.oldest_ns = 2 * SECOND_NS
    });
}

#[test]
fn a_ramp_that_ended_early_has_the_users_of_its_steps_so_far() {
    let step = |connections, length_ns| Step {
        connections,
        length_ns,
    };
    let plan = Plan {
        steps: vec![step(10, SECOND_NS), step(30, SECOND_NS)],
        ..closed()
    };
    assert_eq!(ids(&plan, &calm()), [""; 0], "the first step alone");
    let mut outcome = calm();
    outcome.window_length_ns = 2 * SECOND_NS;
    outcome.completed_in_window = 40_000;
    assert_eq!(ids(&plan, &outcome), [""; 0], "both, twenty on average");
}

#[test]
fn users_without_a_request_left_break_no_law() {
    let mut outcome = calm();
    outcome.total.times.service = many(500_000, 10_000);
    assert_eq!(ids(&closed(), &outcome), ["little"]);
    let counted = Plan {
        requests: Some(10_000),
        ..closed()
    };
    assert_eq!(ids(&counted, &outcome), [""; 0]);
}

#[test]
fn connections_that_are_renewed_by_plan_draw_no_alarm() {
    let mut outcome = calm();
    outcome.total.times.service = many(500_000, 10_000);
    (
        outcome.threads[0].ending.open,
        outcome.threads[0].ending.wanted,
    ) = (8, 10);
    assert_eq!(ids(&closed(), &outcome), ["little", "connections"]);
    let renewing = Plan {
        per_connection: Some(1),
        ..closed()
    };
    assert_eq!(ids(&renewing, &outcome), [""; 0]);
    let closing = Plan {
        close: true,
        ..closed()
    };
    assert_eq!(ids(&closing, &outcome), [""; 0]);
}

#[test]
fn each_warning_names_the_first_cause_of_its_own_error() {
    let mut outcome = calm();
    outcome.total.notes = [
        "connect: refused",
        "no response in time",
        "unasked: \"x\"",
        "read: reset",
        "read: closed",
    ]
    .map(String::from)
    .to_vec();
    let errors = &mut outcome.total.counts.errors;
    (errors.read, errors.timeout, errors.write) = (1, 1, 1);
    errors.malformed[Malformed::Unasked as usize] = 1;
    let found = find(&closed(), &outcome);
    let told = |id: &str| {
        let of_id = |warning: &&Warning| warning.id == id;
        let text = &found.iter().find(of_id).expect("a warning").text;
        text.rsplit_once(" (")
            .map_or("", |(_, cause)| cause)
            .to_string()
    };
    assert_eq!(told("read-errors"), "read: reset)");
    assert_eq!(told("timeouts"), "no response in time)");
    assert_eq!(told("malformed"), "unasked: \"x\")");
    assert_eq!(told("write-errors"), "", "none is known");
}

#[test]
fn every_error_has_its_warning() {
    type Change = fn(&mut Outcome);
    let table: [(&str, Change); 9] = [
        ("connect-errors", |o| {
            o.total.counts.errors.connect_refused = 7
        }),
        ("read-errors", |o| o.total.counts.errors.read = 7),
        ("write-errors", |o| o.total.counts.errors.write = 7),
        ("timeouts", |o| o.total.counts.errors.timeout = 7),
        ("malformed", |o| o.total.counts.errors.malformed[0] = 7),
        ("http3-errors", |o| o.total.counts.errors.http3 = 7),
        ("websocket-errors", |o| o.total.counts.errors.websocket = 7),
        ("grpc-errors", |o| o.total.counts.errors.grpc = 7),
        ("short-bodies", |o| o.total.counts.errors.short_body = 7),
    ];
    for (id, change) in table {
        expect(&closed(), id, "7 ", change);
    }
    expect(&closed(), "non-2xx", "1.0 %", |o| {
        (o.total.counts.status[200], o.total.counts.status[500]) = (9_900, 100);
    });
}

#[test]
fn a_percentile_of_one_stall_is_said() {
    let slow = |outcome: &mut Outcome, stalls: u64| {
        outcome.total.times.service.record_many(1_100_000, 9);
        for stall in 1..=stalls {
            outcome.peaks.note(stall * 50_000_000, 1_100_000);
        }
    };
    expect(&closed(), "few-episodes", "during 2 separate", |o| {
        slow(o, 2)
    });
    let mut outcome = calm();
    slow(&mut outcome, 3);
    assert_eq!(ids(&closed(), &outcome), [""; 0]);
}

#[test]
fn few_samples_are_said() {
    let mut outcome = calm();
    outcome.total.times.service = many(1_000_000, 999);
    assert!(ids(&closed(), &outcome).contains(&"few-samples"));
}

#[test]
fn a_rate_that_changes_is_said_unless_it_shall_change() {
    let mut outcome = calm();
    let growing = (0..8).map(|second| SecondSummary {
        phase: Phase::Measured,
        step: 0,
        offset_ns: second * SECOND_NS as i64,
        length_ns: SECOND_NS,
        completed: 1_000 + 100 * second as u64,
        errors: 0,
        bytes_in: 0,
        p50_ns: None,
        p99_ns: None,
        max_ns: 0,
    });
    outcome.seconds = growing.collect();
    assert!(ids(&closed(), &outcome).contains(&"drift"));
    assert!(ids(&open(), &outcome).contains(&"drift"));
    let ramp = Stretch {
        length_ns: SECOND_NS,
        from_rps: 1_000.0,
        to_rps: 1_800.0,
    };
    for (stretches, recorded) in [(vec![ramp], None), (Vec::new(), Some(vec![0u64, 5].into()))] {
        let mut plan = open();
        if let Pace::Open(open) = &mut plan.pace {
            (open.stretches, open.recorded) = (stretches, recorded);
        }
        assert!(!ids(&plan, &outcome).contains(&"drift"));
    }
}
