//! A peer that keeps no rule: the corpora of `fuzz`, and the same with fixed mutations.

#[path = "hostile/script.rs"]
mod script;

use std::path::Path;

/// Plays every file of a corpus, and mutations of it.
fn replay(corpus: &str, play: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(corpus);
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("a file");
        play(&bytes);
        mutate(&bytes, play);
        count += 1;
    }
    assert!(count >= 3, "only {count} files in {corpus}");
}

fn mutate(bytes: &[u8], play: fn(&[u8])) {
    let mut state = bytes.len() as u64 + 1;
    for _ in 0..200 {
        let mut changed = bytes.to_vec();
        for _ in 0..1 + state % 4 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if !changed.is_empty() {
                let at = (state >> 33) as usize % changed.len();
                changed[at] = (state >> 20) as u8;
            }
        }
        play(&changed);
    }
}

#[test]
fn any_options_are_read() {
    replay("options", script::options);
}

#[test]
fn any_frames_are_taken() {
    replay("frames", script::frames);
}

#[test]
fn any_order_of_segments_calls_and_time_keeps_the_invariants() {
    replay("segments", script::segments);
}

/// Steps from a generator: a third of a million of them.
#[test]
fn random_steps_keep_the_invariants() {
    for seed in 0..400u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes: Vec<u8> = (0..1_600)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Many zeros: a zero means the number that is expected.
                if state >> 60 < 6 {
                    0
                } else {
                    (state >> 24) as u8
                }
            })
            .collect();
        script::segments(&bytes);
    }
}
