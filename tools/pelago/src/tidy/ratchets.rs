//! What there shall be less of: counted, and never more of than the file of counts says. Who brings
//! a count down has `./pelago check` write the lower one, which goes into the same commit.

use crate::host::files;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The counts, from the root on.
const KEPT: &str = "tools/pelago/ratchets.toml";
const HEAD: &str = "# What there shall be less of (tools/pelago/src/tidy/ratchets.rs). Written by `./pelago check` when it\n# is less; more than this fails the check.\n";
const MARKDOWN_COLUMNS_MAX: usize = 120;
/// A row cannot be wrapped; a longer one is prose that belongs below the table or on another page.
const TABLE_ROW_COLUMNS_MAX: usize = 240;
/// Why a function may be as long as it likes.
const TABLE: &str = "reason = \"a table of one match\"";
/// Of a count that is too high.
const PLACES_TOLD: usize = 8;
/// Names that are ours, where the field has a term that a reader knows (docs/glossary.md).
const OUR_WORDS: [&str; 44] = [
    "alarm_rang",
    "at_once",
    "bring_bills_up",
    "condemned",
    "doomed",
    "dismantle",
    "dissolve",
    "forget",
    "gets_on",
    "go_back",
    "gross",
    "Happenings",
    "Harm",
    "Hurt",
    "is_rivalled",
    "Keeper",
    "left_behind",
    "lenders",
    "lends",
    "let_at_memory",
    "Lifeline",
    "loans",
    "Metal",
    "mourn",
    "News",
    "Prompt",
    "reap",
    "Remembered",
    "ring_by",
    "rung",
    "Scene",
    "Servant",
    "settle_all",
    "shared_rang",
    "Shortage",
    "Spares",
    "stand_in_line",
    "Standing",
    "take_rung",
    "wake_slot_rang",
    "was_held_up",
    "whoever",
    "Wish",
    "Wishes",
];
/// The tool's rooms (folders of its sources), from the bottom to the top.
const TOOL_ROOMS: [&str; 7] = ["host", "image", "machine", "run", "bench", "test", "tidy"];

/// What is counted, and where it is.
pub type Counts = BTreeMap<&'static str, BTreeSet<String>>;

/// Counts over the files of the tree, from `root` on.
pub fn counts<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Counts {
    let mut counts = Counts::new();
    for (name, text) in texts {
        for (what, place) in of_file(name, text) {
            counts.entry(what).or_default().insert(format!("{name}:{place}"));
        }
    }
    counts
}

/// Compares with the counts that are kept, and writes lower ones if `writes`.
pub fn check(root: &Path, counts: &Counts, writes: bool, found: &mut Vec<String>) -> Result<()> {
    let path = root.join(KEPT);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let kept: BTreeMap<String, usize> = toml::from_str(&text).with_context(|| format!("{KEPT} cannot be read"))?;
    found.extend(more_than(&kept, counts));
    let is_less = kept.iter().any(|(what, kept)| counts.get(what.as_str()).map_or(0, BTreeSet::len) < *kept);
    if is_less && writes {
        let now = |what: &String, kept: usize| counts.get(what.as_str()).map_or(0, BTreeSet::len).min(kept);
        let lines = kept.iter().map(|(what, kept)| format!("{what} = {}\n", now(what, *kept)));
        files::write(&path, format!("{HEAD}{}", lines.collect::<String>()).as_bytes())?;
        println!("     {KEPT}: less than it said, so it says so now; commit it");
    }
    Ok(())
}

fn more_than(kept: &BTreeMap<String, usize>, counts: &Counts) -> Vec<String> {
    let mut found = Vec::new();
    for (what, places) in counts {
        let limit = kept.get(*what).copied().unwrap_or(0);
        if places.len() > limit {
            let some: Vec<&str> = places.iter().take(PLACES_TOLD).map(String::as_str).collect();
            let more = places.len().saturating_sub(PLACES_TOLD);
            found.push(format!(
                "{KEPT}:1: {what}: {} now, and {limit} at most; `git diff` shows what came: {}, and {more} more",
                places.len(),
                some.join(", ")
            ));
        }
    }
    found
}

/// What is to be counted in a file, and where in it.
fn of_file(name: &str, text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if name.ends_with(".md") {
        let long = (1..).zip(text.lines()).filter_map(|(number, line)| Some((too_long(line)?, number)));
        found.extend(long.map(|(what, number)| (what, number.to_string())));
    }
    // The rules name what they look for.
    if !name.ends_with(".rs") || name.starts_with("tools/pelago/src/tidy/") {
        return found;
    }
    if name.starts_with("kernel/src/") && !name.contains("/tests/") {
        if text.lines().any(|line| line.starts_with("impl Kernel {")) {
            found.push(("files-with-impl-kernel", "1".into()));
        }
        if name.starts_with("kernel/src/objects/") && text.contains("crate::shared") {
            found.push(("objects-that-name-shared", "1".into()));
        }
        let is_above =
            ["lib.rs", "main.rs", "start", "trap.rs", "arch/"].iter().any(|above| name[11..].starts_with(above));
        if !is_above && text.contains("crate::trap") {
            found.push(("below-trap-that-name-it", "1".into()));
        }
    }
    let mut is_unsafe = false;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or("");
        is_unsafe |= super::words(line).any(|word| word == "unsafe");
        if code.contains("expect(clippy::too_many_lines") && !code.contains(TABLE) {
            found.push(("functions-over-70-lines", number.to_string()));
        }
        // That one is Rust's name.
        let line = line.replace("mem::forget(", "");
        let ours = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for word in ours.filter(|word| OUR_WORDS.contains(word)) {
            found.push(("words-of-ours", format!("{number} {word}")));
        }
    }
    if is_unsafe {
        found.push(("files-with-unsafe", "1".into()));
    }
    found.extend(arrows_up(name, text).into_iter().map(|to| ("tool-arrows-up", to)));
    found
}

/// Which count a line of a Markdown page adds to, if it is too long for what it is.
fn too_long(line: &str) -> Option<&'static str> {
    let columns = line.chars().count();
    if line.trim_start().starts_with('|') {
        return (columns > TABLE_ROW_COLUMNS_MAX).then_some("table-rows-over-240-columns");
    }
    (columns > MARKDOWN_COLUMNS_MAX && !is_one_link(line)).then_some("markdown-lines-over-120-columns")
}

/// Whether a line is one link and nothing else but a list's mark before it and a full stop or comma
/// behind it: `[text](target)` or `[name]: target`.
fn is_one_link(line: &str) -> bool {
    let line = line.trim();
    let line = ["- ", "* "].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
    let Some((_, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    if let Some(target) = rest.strip_prefix(": ") {
        return !target.is_empty() && !target.contains(' ');
    }
    let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    target.is_some_and(|(_, behind)| ["", ".", ","].contains(&behind))
}

/// What a file of the tool names in a room above its own: room and module.
fn arrows_up(name: &str, text: &str) -> BTreeSet<String> {
    let Some(inside) = name.strip_prefix("tools/pelago/src/") else { return BTreeSet::new() };
    let Some(own) = inside.split('/').next().and_then(height) else { return BTreeSet::new() };
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let mut above = BTreeSet::new();
    for (start, _) in code.match_indices("crate::") {
        for path in paths(&code[start + "crate::".len()..]) {
            let mut steps = path.split("::");
            if steps.next().and_then(height).is_some_and(|height| height > own) {
                above.insert(path.split("::").take(2).collect::<Vec<_>>().join("::"));
            }
        }
    }
    above
}

/// The paths that follow `crate::`: one, or those of a list in braces, each up to its own braces.
fn paths(rest: &str) -> Vec<&str> {
    let is_of_a_path = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let Some(list) = rest.strip_prefix('{') else {
        return vec![rest.split(|letter| !is_of_a_path(letter)).next().unwrap_or("")];
    };
    let (mut paths, mut depth) = (Vec::new(), 1);
    for (at, letter) in list.char_indices() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if depth == 0 {
            break;
        }
        let begins = is_of_a_path(letter) && !list[..at].ends_with(is_of_a_path);
        if depth == 1 && begins {
            paths.push(list[at..].split(|letter| !is_of_a_path(letter)).next().unwrap_or(""));
        }
    }
    paths
}

/// How high a room of the tool stands; `main.rs` is in none.
fn height(room: &str) -> Option<usize> {
    TOOL_ROOMS.iter().position(|one| *one == room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> Vec<&'static str> {
        of_file(name, text).into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn what_there_shall_be_less_of_is_counted() {
        let long = "x".repeat(MARKDOWN_COLUMNS_MAX + 1);
        assert_eq!(count("docs/x.md", &format!("{long}\nshort\n")), ["markdown-lines-over-120-columns"]);
        assert_eq!(count("kernel/src/state.rs", "impl Kernel {\n"), ["files-with-impl-kernel"]);
        assert_eq!(count("kernel/src/tests/x.rs", "impl Kernel {\n"), Vec::<&str>::new());
        assert_eq!(count("kernel/src/objects/x.rs", "use crate::shared::Pool;\n"), ["objects-that-name-shared"]);
        assert_eq!(count("kernel/src/calls/x.rs", "use crate::trap;\n"), ["below-trap-that-name-it"]);
        assert_eq!(count("lib/ring/src/x.rs", "unsafe { 1 } // unsafe\nunsafe { 2 }\n"), ["files-with-unsafe"]);
        assert_eq!(count("lib/ring/src/x.rs", "// not unsafe\n"), Vec::<&str>::new());
        assert_eq!(
            count("lib/x.rs", "#[expect(clippy::too_many_lines, reason = \"x\")]\n"),
            ["functions-over-70-lines"]
        );
        assert_eq!(count("lib/x.rs", &format!("#[expect(clippy::too_many_lines, {TABLE})]\n")), Vec::<&str>::new());
        assert_eq!(count("lib/x.rs", "/// whoever lends\nfn rungs() {}\n"), ["words-of-ours", "words-of-ours"]);
        assert_eq!(count("lib/x.rs", "core::mem::forget(x);\ny.forget(x);\n"), ["words-of-ours"]);
    }

    #[test]
    fn rows_of_tables_and_single_links_may_be_longer() {
        let count = |line: &str| count("docs/x.md", line);
        let (prose, row) = (["markdown-lines-over-120-columns"], ["table-rows-over-240-columns"]);
        let filler = "x".repeat(MARKDOWN_COLUMNS_MAX);
        assert_eq!(count(&format!("| {filler} |")), Vec::<&str>::new());
        assert_eq!(count(&format!("  | {filler}{filler} |")), row);
        for link in [format!("[a]({filler}.md)"), format!("- [a]({filler}.md),"), format!("[a]: https://{filler}")] {
            assert_eq!(count(&link), Vec::<&str>::new(), "{link}");
        }
        for more in [format!("[a]({filler}) and more"), format!("see [a]({filler})"), format!("[a]: {filler} b")] {
            assert_eq!(count(&more), prose, "{more}");
        }
    }

    #[test]
    fn arrows_that_go_up_are_found() {
        let up = |name: &str, text: &str| arrows_up(name, text).into_iter().collect::<Vec<_>>();
        let child = "tools/pelago/src/host/child.rs";
        assert_eq!(up(child, "use crate::{host::files, test::scenario::Skip};\n"), ["test::scenario"]);
        let nested = "use crate::{host::{files, place}, test::{notes::Notes, scenario}, bench::counts};\n";
        assert_eq!(up(child, nested), ["bench::counts", "test::"]);
        assert_eq!(up(child, "use crate::test;\nuse crate::test::{notes, scenario};\n"), ["test", "test::"]);
        assert_eq!(up("tools/pelago/src/image/elf.rs", "crate::image::x(); crate::machine::y::z()\n"), ["machine::y"]);
        assert_eq!(up("tools/pelago/src/bench/mod.rs", "use crate::machine::guest::Guest;\n"), Vec::<String>::new());
        assert_eq!(up("lib/sys/src/lib.rs", "use crate::test;\n"), Vec::<String>::new());
    }

    #[test]
    fn what_became_less_is_written_down_and_never_more() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(KEPT);
        files::write(&path, b"files-with-unsafe = 0\nwords-of-ours = 9\n").unwrap();
        let counts = counts([("a.rs", "unsafe {} // lends\n")].into_iter());
        for (writes, words) in [(false, 9), (true, 1)] {
            let mut found = Vec::new();
            check(root.path(), &counts, writes, &mut found).unwrap();
            assert_eq!(found.len(), 1, "one more with unsafe: {found:?}");
            let kept: BTreeMap<String, usize> = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!((kept["files-with-unsafe"], kept["words-of-ours"]), (0, words));
        }
    }

    #[test]
    fn more_than_is_kept_is_found_with_all_its_places() {
        let counts = counts([("a.rs", "unsafe {}"), ("b.rs", "unsafe {}")].into_iter());
        let kept = |limit| BTreeMap::from([("files-with-unsafe".to_owned(), limit)]);
        assert_eq!(more_than(&kept(2), &counts), Vec::<String>::new());
        let found = more_than(&kept(1), &counts);
        assert!(found.len() == 1 && found[0].contains("a.rs:1") && found[0].contains("b.rs:1"), "{found:?}");
    }
}
