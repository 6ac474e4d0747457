//! `./pelago test --quick`: what one wants to know after each change, in some three minutes. The
//! unit tests of the crates that were changed, and of each family of scenarios one machine and core
//! count.

use crate::host::child;
use crate::host::place;
use crate::image::build;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;
use std::collections::BTreeSet;
use std::process::Command;

/// Branches that work is merged into, the first of which is there counts.
const TRUNKS: [&str; 4] = ["origin/HEAD", "origin/main", "main", "master"];
/// The machine and the cores that are taken where there is a choice.
const MACHINE: &str = "q35";
const CPUS: &str = "2";

/// What is left to a whole run: each takes long, and much of what they ask others ask, too (the
/// counts, redis and an encrypted disk under faults, deaths amid transfers, calls of Linux, a
/// machine that is full).
const LEFT_OUT: [&str; 8] = [
    "busy-host/",
    "counts/model/",
    "crypto/",
    "double-faults/",
    "fork-bomb/",
    "killed-processes/",
    "linux-fuzz/",
    "server-faults/",
];

/// Keeps one scenario of each family: those of one kind of question, which share the first word of
/// their names.
pub fn thin(scenarios: &mut Vec<Scenario>) {
    let names: Vec<String> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let kept = representatives(&names);
    scenarios.retain(|scenario| kept.contains(scenario.name.as_str()));
}

fn family(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The first of each family that has the machine and the cores, or as much of it as any has.
fn representatives(names: &[String]) -> BTreeSet<&str> {
    let fit = |name: &str| {
        let words: Vec<&str> = name.split('/').collect();
        usize::from(words.contains(&MACHINE)) + usize::from(words.last() == Some(&CPUS))
    };
    let is_left_out = |name: &&str| LEFT_OUT.iter().any(|start| name.starts_with(start));
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| !is_left_out(name)).collect();
    let families: BTreeSet<&str> = names.iter().map(|name| family(name)).collect();
    let best = |wanted: &str| {
        let own = names.iter().copied().filter(|name| family(name) == wanted);
        // Of equals `max_by_key` gives the last.
        own.rev().max_by_key(|name| fit(name))
    };
    families.into_iter().filter_map(best).collect()
}

/// Names of the packages that were changed since this branch left the trunk, or, on the trunk
/// itself, since the last commit.
pub fn changed(metadata: &Metadata) -> Result<BTreeSet<String>> {
    let base = TRUNKS.iter().find_map(|trunk| git(&["merge-base", "HEAD", trunk]).ok());
    let base = base.map_or_else(|| "HEAD".to_owned(), |base| base.trim().to_owned());
    let tracked = git(&["diff", "--name-only", &base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let packages = metadata.workspace_packages();
    let folders: Vec<(String, String)> =
        packages.iter().map(|package| (package.name.to_string(), build::folder(metadata, package))).collect();
    Ok(of_files(&folders, tracked.lines().chain(new.lines())))
}

/// The packages, by name and folder, in whose folders the files are; all, where one of them is what
/// all are built by.
fn of_files<'f>(packages: &[(String, String)], files: impl Iterator<Item = &'f str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        if file == "Cargo.toml" || file == "Cargo.lock" || file.starts_with(".cargo/") {
            return packages.iter().map(|(name, _)| name.clone()).collect();
        }
        let holds = |folder: &str| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        // A package may lie in another's folder.
        let owner = packages.iter().filter(|(_, folder)| holds(folder)).max_by_key(|(_, folder)| folder.len());
        found.extend(owner.map(|(name, _)| name.clone()));
    }
    found
}

fn git(words: &[&str]) -> Result<String> {
    let output = child::output(Command::new("git").current_dir(place::root()).args(words), child::SHORT)
        .context("git says what was changed; without it run ./pelago test")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_one() {
        let names =
            ["boot/q35/1", "boot/q35/2", "boot/numa4/q35/2", "web/microvm/1", "web/microvm/2", "cli/page", "cli/gdb"];
        let names = names.map(str::to_owned);
        let kept: Vec<_> = representatives(&names).into_iter().collect();
        assert_eq!(kept, ["boot/q35/2", "cli/page", "web/microvm/2"]);
    }

    #[test]
    fn a_changed_file_is_its_packages() {
        let packages = [("kernel", "kernel"), ("sys", "lib/sys"), ("system", "lib/system")];
        let packages = packages.map(|(name, folder)| (name.to_owned(), folder.to_owned()));
        let of = |files: &[&str]| of_files(&packages, files.iter().copied()).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&["lib/system/src/lib.rs", "README.md", "lib/sys/Cargo.toml"]), ["sys", "system"]);
        assert!(of(&["docs/counts.toml"]).is_empty());
        assert_eq!(of(&["Cargo.lock"]).len(), 3);
    }

    /// What is run of the scenarios that there are: of each file in `scenarios/` something.
    #[test]
    fn few_are_left_and_each_has_a_family() {
        let mut all = crate::test::scenarios::all();
        all.retain(|scenario| !scenario.nightly);
        let before = all.len();
        thin(&mut all);
        assert!((20..before / 3).contains(&all.len()), "{} of {before}", all.len());
        assert!(all.iter().all(|scenario| !LEFT_OUT.iter().any(|start| scenario.name.starts_with(start))));
    }
}
