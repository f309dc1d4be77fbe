//! Replays the fuzzer's corpus: real heads and past troubles, at every cut.

mod property;

#[test]
fn the_corpus_means_the_same_at_every_cut() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/response");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
        // the first byte is the fuzzer's cut
        let answer = bytes.get(1..).unwrap_or_default();
        for cut in 0..=answer.len() {
            property::cut_anywhere_it_means_the_same(answer, cut);
        }
        property::the_template_agrees(answer);
        files += 1;
    }
    assert!(files >= 12, "{files}");
}

#[test]
fn the_corpus_of_requests_and_urls_is_counted_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/request");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
        property::requests_are_counted_or_refused(&bytes);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            property::a_url_says_where_it_goes(text);
        }
        files += 1;
    }
    assert!(files >= 8, "{files}");
}
