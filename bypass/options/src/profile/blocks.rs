//! Finds the end of shell blocks, which are skipped: functions, conditions and loops.

/// The kind of block that a line opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// `name() {` … `}`.
    Function,
    /// `if` … `fi`, `while` … `done` and the like.
    Compound,
}

/// The block that this line opens, if any.
pub(super) fn opened_by(line: &str) -> Option<Block> {
    let line = line.trim();
    if matches!(
        first_word(line),
        "if" | "while" | "until" | "for" | "case" | "select"
    ) {
        return Some(Block::Compound);
    }
    let head = line.strip_prefix("function ").unwrap_or(line);
    let name_length = head
        .find(|letter: char| !is_name(letter))
        .unwrap_or(head.len());
    let rest = head[name_length..].trim_start();
    let is_function = name_length > 0
        && (rest.starts_with("()") || (head.len() < line.len() && rest.starts_with('{')));
    is_function.then_some(Block::Function)
}

/// The number of lines in the block that starts with the first of these; None if it never ends.
pub(super) fn length(block: Block, lines: &[&str]) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        let (opens, closes) = match block {
            Block::Function => braces(line),
            Block::Compound => keywords(line),
        };
        depth += opens;
        let was_open = depth > 0;
        depth = depth.saturating_sub(closes);
        if was_open && depth == 0 {
            return Some(index + 1);
        }
    }
    None
}

/// Whether a block sets options: skipping it would then change the meaning of the profile.
pub(super) fn setting_line(lines: &[&str]) -> Option<usize> {
    let sets = |line: &&str| {
        let code = line.trim_start();
        !code.starts_with('#')
            && code
                .split(|letter: char| letter.is_whitespace() || letter == ';')
                .any(is_setting)
    };
    lines.iter().position(sets)
}

/// Whether a block waits until an earlier instance has ended, by listing accelerated processes.
pub(super) fn waits_for_cluster(lines: &[&str]) -> bool {
    let mentions = |word: &str| lines.iter().any(|line| line.contains(word));
    (mentions("onload_stackdump") || mentions("onload stackdump")) && mentions("EF_CLUSTER_NAME")
}

fn is_setting(word: &str) -> bool {
    matches!(
        word,
        "onload_set" | "onload_import" | "onload_import_or_fail"
    )
}

fn braces(line: &str) -> (usize, usize) {
    let code = line.trim();
    if code.starts_with('#') {
        return (0, 0);
    }
    let opens = usize::from(code.ends_with('{') || (code.contains("() {") && code.ends_with('}')));
    let closes = usize::from(code.starts_with('}') || (opens == 1 && code.ends_with('}')));
    (opens, closes)
}

fn keywords(line: &str) -> (usize, usize) {
    let code = line.trim();
    let (mut opens, mut closes) = (0, 0);
    for command in code.split([';', '&', '|']).map(str::trim) {
        match first_word(command) {
            "if" | "while" | "until" | "for" | "case" | "select" => opens += 1,
            "fi" | "done" | "esac" => closes += 1,
            "do" | "then" | "else" if command.contains(' ') => {
                let (inner_opens, inner_closes) = keywords(after_first_word(command));
                opens += inner_opens;
                closes += inner_closes;
            }
            _ => {}
        }
    }
    (opens, closes)
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or("")
}

fn after_first_word(line: &str) -> &str {
    line.split_once(char::is_whitespace)
        .map_or("", |(_, rest)| rest)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_length(text: &str) -> Option<usize> {
        let lines: Vec<_> = text.lines().collect();
        length(opened_by(lines[0])?, &lines)
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        assert_eq!(
            block_length("find() {\n  if x; then\n    y\n  fi\n}\nafter"),
            Some(5)
        );
        assert_eq!(block_length("find() { x; }\nafter"), Some(1));
        assert_eq!(block_length("function find {\n}\n"), Some(2));
        assert_eq!(block_length("find()\n{\n  x\n}\n"), Some(4));
    }

    #[test]
    fn loops_and_conditions_nest() {
        let text = "if a; then\n  while b; do\n    if c; then d; fi\n  done >&2\nfi\nafter";
        assert_eq!(block_length(text), Some(5));
        assert_eq!(
            block_length("for i in 1 2; do echo $i; done\nafter"),
            Some(1)
        );
        assert_eq!(block_length("case $a in\n x) echo;;\nesac\n"), Some(3));
    }

    #[test]
    fn a_block_without_an_end_is_noticed() {
        assert_eq!(block_length("if a; then\n b\n"), None);
        assert_eq!(block_length("find() {\n b\n"), None);
    }

    #[test]
    fn settings_do_not_open_blocks() {
        assert_eq!(opened_by("onload_set EF_X 1"), None);
        assert_eq!(opened_by("x=$(f)"), None);
        assert_eq!(opened_by("# if this"), None);
    }

    #[test]
    fn a_block_that_sets_options_is_noticed() {
        assert_eq!(
            setting_line(&["if a; then", "  onload_set EF_X 1", "fi"]),
            Some(1)
        );
        assert_eq!(setting_line(&["if a; then onload_set EF_X 1; fi"]), Some(0));
        assert_eq!(
            setting_line(&["if a; then", "  # onload_set EF_X 1", "fi"]),
            None
        );
    }
}
