//! Nightly: redis' own tests, of the source of Debian's package, run by Tcl on this machine against
//! Debian's redis in a guest. What of them is left out or fails, and why, is in
//! `servers/redis_suite.txt`; that list is judged both ways, so it can only shrink.

use super::cli::Running;
use super::servers::wait_until;
use super::tools;
use crate::host::port;
use crate::host::skip::Skip;
use crate::host::{child, files, place};
use crate::image::built::Origin;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::iter::Peekable;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::str::Lines;
use std::time::Duration;

const NAME: &str = "redis-suite";
const LIST: &str = include_str!("servers/redis_suite.txt");
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Seconds without an end of a test after which the suite gives up and says what hangs.
const HANGS: &str = "600";
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Lines of the guest beside a failure.
const TAIL_LINES: usize = 20;
/// As redis' own workflow starts a server for these tests.
const SERVER: [&str; 11] = [
    "redis-server",
    "--protected-mode",
    "no",
    "--save",
    "",
    "--enable-protected-configs",
    "yes",
    "--enable-debug-command",
    "yes",
    "--enable-module-command",
    "yes",
];
/// Programs that tests run on this machine.
const CLIENTS: [&str; 2] = ["redis-cli", "redis-benchmark"];

/// What is known of the suite's outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    /// Tests that pass.
    passes: usize,
    /// What the suite itself leaves out, and how often it says so.
    left: BTreeMap<String, usize>,
    /// Tests that fail, by unit and name.
    failing: Vec<(String, String)>,
    /// Tests that are not run, by unit and name.
    out: Vec<(String, String)>,
}

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::nightly(3, NAME.into(), |_| run())]
}

/// Reads the list: `passes COUNT`, `left COUNT WHAT THE SUITE SAYS`, `fails UNIT TEST` and `out
/// UNIT TEST`, each but the first with ` | ` and a reason.
fn read(text: &str) -> Result<List> {
    let mut list = List::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (what, reason) = line.split_once(" | ").unwrap_or((line, ""));
        let (kind, rest) = what.split_once(' ').with_context(|| format!("not understood: {line}"))?;
        ensure!(kind == "passes" || !reason.is_empty(), "without a reason: {line}");
        let (first, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let count = || first.parse().with_context(|| format!("no number: {line}"));
        let test = (first.to_owned(), name.to_owned());
        match kind {
            "passes" => list.passes = count()?,
            "left" => ensure!(list.left.insert(name.to_owned(), count()?).is_none(), "twice: {line}"),
            "fails" | "out" => {
                ensure!(!list.failing.contains(&test) && !list.out.contains(&test), "twice: {line}");
                if kind == "out" { list.out.push(test) } else { list.failing.push(test) }
            }
            _ => bail!("not understood: {line}"),
        }
    }
    Ok(list)
}

fn run() -> Result<()> {
    let list = read(LIST)?;
    if crate::host::path::find("tclsh").is_none() {
        bail!(Skip::Package { program: "tclsh", package: "tcl" });
    }
    let (source, origin) = (place::test_source("redis"), Origin::Root("redis").words()?);
    if !source.is_dir() {
        bail!(Skip::Source("redis"));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    prepare(&source, &place::test_root("redis"), folder.path())?;
    let port = port::free()?;
    let forward = format!("{port}:6379");
    let options = ["--accel", "tcg", "-q", "--cpus", "1", "-p", &forward];
    let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
    let mut guest = Running::start(&[&options, tools::LARGE_MEMORY, &origin[..], &SERVER].concat(), &[])?;
    wait_until(&mut guest, || is_of(port, &source))?;
    let output = test(&mut guest, suite(folder.path(), port, &list))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let found = judge(&list, &said);
    let tail = |guest: &mut Running| {
        let lines = guest.said();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    };
    ensure!(found.is_empty(), "{}\nthe guest said last:\n{}", found.join("\n"), tail(&mut guest));
    guest.lives()?;
    guest.signal(nix::sys::signal::Signal::SIGTERM)?;
    let status = guest.finish()?;
    ensure!(status.success(), "{status}:\n{}", tail(&mut guest));
    let left: usize = list.left.values().sum();
    let (passed, failing, out) = (list.passes, list.failing.len(), list.out.len());
    println!(
        "     {NAME}: {passed} tests passed, {failing} failed as listed, {out} are out; the suite left out {left}"
    );
    Ok(())
}

/// The tests, and the programs that they run by the loader and the libraries of their root.
fn prepare(source: &Path, root: &Path, folder: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(source.join("tests")).arg(folder);
    ensure!(child::status(&mut copy, child::SHORT)?.success(), "the tests cannot be copied");
    for client in CLIENTS {
        let path = |path: &str| root.join(path).display().to_string();
        let (loader, libraries) = (path("lib64/ld-linux-x86-64.so.2"), path("usr/lib/x86_64-linux-gnu"));
        let program = path(&format!("usr/bin/{client}"));
        let script = format!("#!/bin/sh\nexec '{loader}' --library-path '{libraries}' '{program}' \"$@\"\n");
        let file = folder.join("src").join(client);
        files::write(&file, script.as_bytes())?;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, executable).context("cannot change permissions")?;
    }
    Ok(())
}

/// Whether the server answers, and is of the version that the tests are of.
fn is_of(port: u16, source: &Path) -> Result<()> {
    let version = files::read(&source.join(".version"))?;
    let expected = format!("redis_version:{}", String::from_utf8_lossy(&version).trim());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"INFO server\r\n").context("nothing can be sent")?;
    for line in BufReader::new(stream).lines() {
        let line = line.context("no answer")?;
        if line.starts_with("redis_version:") {
            ensure!(line == expected, "the server has {line}, the tests are of {expected}");
            return Ok(());
        }
    }
    bail!("the server does not tell its version")
}

fn suite(folder: &Path, port: u16, list: &List) -> Command {
    let mut suite = Command::new("tclsh");
    suite.args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &port.to_string()]);
    suite.args(["--tags", "-slow", "--durable", "--timeout", HANGS]);
    for (_, name) in &list.out {
        suite.args(["--skiptest", name]);
    }
    // No colours.
    suite.current_dir(folder).env("TERM", "dumb");
    suite
}

/// Runs the suite to its end. What the guest says meanwhile is taken, else it would wait.
fn test(guest: &mut Running, mut suite: Command) -> Result<Output> {
    std::thread::scope(|scope| {
        let suite = scope.spawn(move || child::output(&mut suite, LIMIT));
        while !suite.is_finished() {
            guest.said();
            std::thread::sleep(PAUSE);
        }
        suite.join().unwrap_or_else(|_| bail!("nobody waited for the suite"))
    })
}

/// What differs from the list.
fn judge(list: &List, said: &str) -> Vec<String> {
    let (mut found, mut passed, mut left) = (Vec::new(), 0, BTreeMap::new());
    let (mut failing, mut out) = (list.failing.clone(), list.out.clone());
    let mut unit = "";
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        let (kind, rest) = line.split_once("]: ").unwrap_or((line, ""));
        match kind {
            "[ok" => passed += 1,
            "[ignore" => {
                let why = rest.rsplit(": ").next().unwrap_or(rest);
                *left.entry(why.to_owned()).or_insert(0) += 1;
            }
            "[skip" => out.retain(|(of, name)| of != unit || name != rest),
            "[err" => {
                let name = rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name);
                if let Some(place) = failing.iter().position(|(of, known)| of == unit && known == name) {
                    failing.remove(place);
                    continue;
                }
                found.push(format!("{unit} {name} does not pass: {}", reason(&mut lines)));
            }
            "[exception" | "[TIMEOUT" => found.push(format!("{unit}: {line}: {}", reason(&mut lines))),
            _ => unit = line.strip_prefix("Testing ").unwrap_or(unit),
        }
    }
    if !said.contains("The End") {
        let last: Vec<&str> = said.lines().rev().take(TAIL_LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        found.push(format!("the suite did not come to its end; it said last:\n{}", last.join("\n")));
    }
    if !found.is_empty() {
        found.push(format!("{passed} tests pass, the list says {}", list.passes));
        return found;
    }
    let strike = |(unit, name): (String, String), what| format!("{unit} {name} {what}: strike it out of the list");
    found.extend(failing.into_iter().map(|test| strike(test, "passes")));
    found.extend(out.into_iter().map(|test| strike(test, "is no test of the suite")));
    if left != list.left {
        found.push(format!("the suite leaves out {left:?}, the list says {:?}", list.left));
    }
    if passed != list.passes {
        found.push(format!("{passed} tests pass, the list says {}", list.passes));
    }
    found
}

/// The lines up to the next test's.
fn reason(lines: &mut Peekable<Lines>) -> String {
    let mut why = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with('[')) {
        why.push(line);
    }
    why.join("\n    | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: &str = "# more\npasses 1\nleft 2 Not here: for a | reason\nfails unit/a B: c | it is so\n\
        out unit/a D | it has no place\n";
    const SAID: &str = "Testing unit/a\n[ok]: A (3 ms)\n[ignore]: Not here\n[ignore]: X: Not here\n\
        [err]: B: c in tests/unit/a.tcl\nExpected\n[skip]: D\n   The End\n*** [err]: B: c in tests/unit/a.tcl\n";

    fn few() -> List {
        List { left: [("Not here".to_owned(), 2)].into(), ..read(FEW).unwrap() }
    }

    /// By its name or by night.
    #[test]
    fn the_shell_fetches_the_source_for_it() {
        let script = std::fs::read_to_string(place::root().join("tools/machine.sh")).unwrap();
        assert!(script.contains(&format!("*\" --nightly \"* | *\" {NAME} \"*) ;;")), "{NAME} is not asked for there");
    }

    #[test]
    fn the_list_is_read() {
        let list = read(FEW).unwrap();
        let test = |name: &str| vec![("unit/a".to_owned(), name.to_owned())];
        assert_eq!((list.passes, list.failing, list.out), (1, test("B: c"), test("D")));
        assert_eq!(list.left, [("Not here: for a".to_owned(), 2)].into());
        for bad in ["passes", "passes many", "fails unit/a B", "out a B | c\nout a B | d", "else a | b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_differs_is_told_both_ways() {
        assert_eq!(judge(&few(), SAID), Vec::<String>::new());
        let told = |from: &str, to: &str| judge(&few(), &SAID.replace(from, to)).join("\n");
        assert_eq!(
            told("[ok]: A (3 ms)", "[err]: A in tests/unit/a.tcl\nno"),
            "unit/a A does not pass: no\n0 tests pass, the list says 1"
        );
        assert!(told("[err]: B: c in tests/unit/a.tcl\nExpected", "").contains("unit/a B: c passes: strike it out"));
        assert!(told("[skip]: D", "").contains("unit/a D is no test of the suite"));
        assert!(told("[ignore]: Not here\n", "").contains("the list says {\"Not here\": 2}"));
        assert_eq!(told("[ok]: A", "[ok]: Z (1 ms)\n[ok]: A"), "2 tests pass, the list says 1");
        assert!(told("The End", "").contains("did not come to its end"));
        assert!(told("[skip]: D", "[exception]: gone\n[skip]: D").contains("gone"));
        // Of another unit.
        assert!(told("Testing unit/a", "Testing unit/b").contains("unit/b B: c does not pass"));
    }

    /// Who mends something lowers this; nobody raises it. None fails.
    #[test]
    fn the_list_of_redis_only_shrinks() {
        let list = read(LIST).unwrap();
        assert!(list.failing.is_empty() && list.out.len() <= OUT_MAX, "{list:?}");
    }

    const OUT_MAX: usize = 5;
}
