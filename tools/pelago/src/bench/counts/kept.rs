//! The kept counts: `docs/counts.toml`, written by `./pelago bench --keep-counts`, reviewed like
//! code.

use super::Count;
use crate::host::{files, place};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A change beyond this is told.
const MARGIN_PERCENT: f64 = 2.0;
/// And so much is never told: a row of a few instructions would else be too strict.
const MARGIN_INSTRUCTIONS: f64 = 2.0;
const REMEDY: &str = "if that is meant, `./pelago bench --keep-counts` keeps the new figures";
const REMEDY_HERE: &str = "see by `./pelago bench --counts` what they are here";

/// The file: another compiler makes other instructions of the same source, so each has its own.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptCounts {
    compiler: Vec<Kept>,
}

/// The counts of one compiler.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// What `rustc --version` said where they were counted.
    version: String,
    row: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    user: f64,
    kernel: f64,
}

/// Where they are kept.
pub fn path() -> PathBuf {
    place::root().join("docs/counts.toml")
}

impl KeptCounts {
    /// Empty if there is no file.
    pub fn read() -> Result<KeptCounts> {
        if !path().exists() {
            return Ok(KeptCounts::default());
        }
        let text = String::from_utf8(files::read(&path())?)?;
        toml::from_str(&text).with_context(|| format!("{} cannot be read; {REMEDY}", path().display()))
    }

    pub fn write(&self) -> Result<()> {
        let head = "# Instructions per operation on one core, kept and compared, by compiler: docs/counts.md.\n\
                    # Written by `./pelago bench --keep-counts`.\n\n";
        files::write(&path(), (head.to_owned() + &toml::to_string(self)?).as_bytes())
    }

    /// Puts a compiler's counts in the place of its earlier ones.
    pub fn keep(&mut self, kept: Kept) {
        match self.compiler.iter_mut().find(|old| old.version == kept.version) {
            Some(old) => *old = kept,
            None => self.compiler.push(kept),
        }
    }

    /// Those of a compiler; why counts of a guest that it built say nothing beside the kept ones,
    /// if there are none.
    pub fn of(&self, version: &str) -> Result<&Kept, String> {
        self.compiler.iter().find(|kept| kept.version == version).ok_or_else(|| {
            let all: Vec<_> = self.compiler.iter().map(|kept| kept.version.as_str()).collect();
            let all = all.join("`, `");
            format!("counts are kept for the compilers `{all}` and this machine has `{version}`; compare with one of those, or {REMEDY_HERE}")
        })
    }

    /// Rows of any compiler.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.compiler.iter().flat_map(|kept| &kept.row).map(|entry| entry.name.as_str())
    }
}

impl Kept {
    /// Rounded to a tenth, so that the file changes only if something did.
    pub fn new(counts: &[Count], version: String) -> Kept {
        let round = |value: f64| (value * 10.0).round() / 10.0;
        let entry = |count: &Count| Entry {
            name: count.name.clone(),
            user: round(count.instructions - count.kernel),
            kernel: round(count.kernel),
        };
        Kept { version, row: counts.iter().map(entry).collect() }
    }

    /// Of one operation of a row, in both privileges.
    pub fn instructions(&self, row: &str) -> Option<f64> {
        self.row.iter().find(|entry| entry.name == row).map(|entry| entry.user + entry.kernel)
    }

    /// Fails with one line per row that rose or fell by more than the margin.
    pub fn check(&self, counts: &[Count]) -> Result<()> {
        let findings = self.compare(counts);
        ensure!(findings.is_empty(), "{}", findings.join("; "));
        Ok(())
    }

    /// One line for each row that is not as it was.
    fn compare(&self, counts: &[Count]) -> Vec<String> {
        let find = |name: &str| counts.iter().find(|count| count.name == name);
        let mut findings: Vec<String> = self
            .row
            .iter()
            .filter_map(|entry| match find(&entry.name) {
                Some(count) => entry.compare(count),
                None => Some(format!("{} is kept but was not measured; {REMEDY}", entry.name)),
            })
            .collect();
        let new = counts.iter().filter(|count| self.row.iter().all(|entry| entry.name != count.name));
        findings.extend(new.map(|count| format!("{} is not kept yet; {REMEDY}", count.name)));
        findings
    }
}

impl Entry {
    fn compare(&self, count: &Count) -> Option<String> {
        let parts = [("user", self.user, count.instructions - count.kernel), ("kernel", self.kernel, count.kernel)];
        let changed = parts.into_iter().filter(|(_, old, new)| {
            let margin = (old * MARGIN_PERCENT / 100.0).max(MARGIN_INSTRUCTIONS);
            (new - old).abs() > margin
        });
        let told: Vec<String> = changed
            .map(|(part, old, new)| {
                let verb = if new > old { "rose" } else { "fell" };
                format!("{part} {verb} from {old:.1} to {new:.1} instructions")
            })
            .collect();
        (!told.is_empty()).then(|| format!("{}: {}; {REMEDY}", self.name, told.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILER: &str = "rustc 1.95.0 (59807616e 2026-04-14)";

    fn kept(counts: &[Count]) -> Kept {
        Kept::new(counts, COMPILER.into())
    }

    fn count(name: &str, user: f64, kernel: f64) -> Count {
        Count { name: name.into(), instructions: user + kernel, kernel, components: Vec::new() }
    }

    #[test]
    fn rises_and_falls_beyond_the_margin_are_told_with_both_figures() {
        let kept = kept(&[count("call", 1000.0, 500.0), count("short", 10.0, 0.0)]);
        assert!(kept.compare(&[count("call", 1019.0, 491.0), count("short", 11.9, 0.0)]).is_empty());
        let rose = kept.compare(&[count("call", 1021.0, 500.0), count("short", 10.0, 0.0)]);
        assert!(rose[0].contains("user rose from 1000.0 to 1021.0") && rose[0].contains("--keep-counts"), "{rose:?}");
        let fell = kept.compare(&[count("call", 1000.0, 480.0), count("short", 10.0, 0.0)]);
        assert!(fell[0].contains("kernel fell from 500.0 to 480.0"), "{fell:?}");
        // What one part gains the other may not hide.
        assert_eq!(kept.compare(&[count("call", 1100.0, 400.0), count("short", 10.0, 0.0)]).len(), 1);
    }

    #[test]
    fn rows_come_and_go_by_intent_only() {
        let kept = kept(&[count("old", 10.0, 0.0)]);
        let findings = kept.compare(&[count("new", 10.0, 0.0)]);
        assert!(findings[0].contains("old is kept but") && findings[1].contains("new is not kept"), "{findings:?}");
    }

    #[test]
    fn each_compiler_has_its_own() {
        let other = "rustc 1.96.0 (built from a source tarball)";
        let mut book = KeptCounts::default();
        book.keep(kept(&[count("a", 1.0, 2.0)]));
        let reason = book.of(other).unwrap_err();
        assert!(reason.contains(COMPILER) && reason.contains("1.96.0"), "{reason}");
        book.keep(Kept::new(&[count("a", 3.0, 2.0)], other.into()));
        book.keep(kept(&[count("a", 4.0, 2.0)]));
        assert_eq!(book.of(COMPILER).unwrap().row[0].user, 4.0);
        assert_eq!(book.of(other).unwrap().row[0].user, 3.0);
        assert_eq!(book.compiler.len(), 2);
        // Rows without a compiler are not taken for any.
        assert!(toml::from_str::<KeptCounts>("[[row]]\nname = \"a\"\nuser = 1.0\nkernel = 2.0\n").is_err());
    }

    #[test]
    fn the_file_reads_as_it_was_written() {
        let book = KeptCounts { compiler: vec![kept(&[count("a", 1.25, 2.0)])] };
        assert_eq!(toml::from_str::<KeptCounts>(&toml::to_string(&book).unwrap()).unwrap(), book);
    }
}
