//! Replays the fuzzer's corpus: bytes of real servers and past errors, at every cut.

mod property;

fn each_of(folder: &str, mut check: impl FnMut(&[u8])) {
    let folder = format!("{}/fuzz/corpus/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        check(&std::fs::read(entry.expect("a file").path()).expect("readable"));
        files += 1;
    }
    assert!(files >= 4, "{files}");
}

#[test]
fn the_corpus_means_the_same_at_every_cut() {
    each_of("client", |bytes| {
        // the first byte is the fuzzer's cut
        let answer = bytes.get(1..).unwrap_or_default();
        for cut in 0..=answer.len() {
            property::cut_anywhere_it_means_the_same(answer, cut);
        }
    });
}

#[test]
fn the_corpus_of_blocks_is_read_or_refused() {
    each_of("hpack", |bytes| {
        property::blocks_are_read_or_refused(bytes);
        property::texts_come_back(bytes);
    });
}
