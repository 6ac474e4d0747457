//! Tier 5: `./pelago bench` measures Linux beside us, keeps and compares what it found, draws it,
//! and says what it could not do.

use super::cli::read_lines;
use crate::bench::counts;
use crate::host::child;
use crate::host::late::late;
use crate::host::skip::Skip;
use crate::image::build;
use crate::image::built::Origin;
use crate::machine::emulator::PROGRAM;
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Cheap ones, one of each source that both systems have.
const ROWS: [&str; 3] = ["getpid", "dup-close/processes", "power-on-to-ready/q35"];
/// Counted in both systems; all have a known figure of Linux.
const COUNTED: [&str; 3] = ["getppid", "dup-close/processes", "page-touch/processes"];
/// Counted with its parts.
const REQUEST: &str = "redis-get/1-client";
/// Read from a disk.
const DISK: &str = "disk-read/random/64k";
const DISK_ENCRYPTED: &str = "disk-read/random/64k/encrypted";
/// The same programs in both systems: their own instructions differ by less, as part of Linux's.
const PROGRAMS_MARGIN: f64 = 0.15;
/// Two runs differ by less, in per cent.
const COUNTS_SPREAD_PERCENT_MAX: f64 = 0.5;
/// Past what a run, or a row of one, takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);
const LINES_MAX: usize = 1024;
const FIGURE: &str = "corey.fig1";

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(5, "bench/smoke".into(), smoke),
        // Both systems boot twice, to count every instruction: 25 s.
        Scenario::nightly(5, "bench/counts".into(), both_count),
        // Both systems boot with redis, to count every instruction: 30 s.
        Scenario::nightly(5, "bench/requests".into(), requests),
        // Both systems make their disks and boot with and without encryption: 45 s.
        Scenario::nightly(5, "bench/disk".into(), disk),
        Scenario::shared(5, "bench/no-linux-kernel".into(), no_linux_kernel),
        Scenario::shared(5, "bench/broken-linux-kernel".into(), broken_linux_kernel),
        Scenario::shared(5, "bench/guest-dies".into(), guest_dies),
    ]
}

/// This program, to measure.
fn own() -> Result<Command> {
    let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
    tool.arg("bench").current_dir(crate::host::place::root());
    Ok(tool)
}

fn bench(words: &[&str], change: impl FnOnce(&mut Command)) -> Result<Output> {
    let mut tool = own()?;
    tool.args(words);
    change(&mut tool);
    child::output(&mut tool, LIMIT)
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Both columns of a row have figures.
fn measured(row: &Value, system: &str) -> bool {
    row[system]["samples"].as_array().is_some_and(|samples| {
        !samples.is_empty() && samples.iter().all(|sample| sample.as_f64().is_some_and(|sample| sample > 0.0))
    })
}

fn need_linux() -> Result<()> {
    match crate::bench::peer::Package::find(&crate::host::place::linux_package()) {
        Err(problem) => bail!(Skip::Cannot(format!("{problem:#}"))),
        Ok(_) => Ok(()),
    }
}

fn smoke(_: &Bench) -> Result<()> {
    need_linux()?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let kept = folder.path().join("results.json").display().to_string();
    let short = ["--cpus", "1", "--rounds", "1", "--measure", "times", "--json", &kept];
    let output = bench(&[&ROWS[..], &short[..]].concat(), |_| {})?;
    ensure!(output.status.success(), "it failed:\n{}", told(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let results: Value =
        serde_json::from_slice(&crate::host::files::read(folder.path().join("results.json").as_path())?)?;
    let setting = &results["setting"];
    ensure!(setting["placement"]["Linux"] == "bound", "Linux's workers were not bound to cores: {setting}");
    let line = setting["linux_command_line"].as_str().unwrap_or_default();
    ensure!(line.contains("mitigations=off"), "Linux's command line is not kept: {setting}");
    let rows = results["rows"].as_array().context("the results have no rows")?;
    for name in ROWS {
        ensure!(printed.contains(name), "the table lacks {name}:\n{printed}");
        let row = rows.iter().find(|row| row["name"] == name).with_context(|| format!("the results lack {name}"))?;
        ensure!(measured(row, "ours") && measured(row, "linux"), "{name} lacks figures: {row}");
    }
    // A process's own descriptors are its own business in both; wildly apart means that something
    // else was measured.
    let median = |name: &str, system: &str| {
        let row = rows.iter().find(|row| row["name"] == name)?;
        let mut samples: Vec<f64> = row[system]["samples"].as_array()?.iter().filter_map(Value::as_f64).collect();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    };
    let (ready, linux) = (median(ROWS[2], "ours"), median(ROWS[2], "linux"));
    same_results(&kept)?;
    draw(&kept)?;
    // Last: all else is not a matter of time.
    if ready >= linux {
        return Err(late(format!("Pelago needs {ready:?} ms to be ready, Linux {linux:?}"), &[]));
    }
    Ok(())
}

/// Reads of a disk and of an encrypted one, in time and in the host's processor time.
fn disk(_: &Bench) -> Result<()> {
    need_linux()?;
    for (program, package) in [("mkfs.ext4", "e2fsprogs"), ("dmsetup", "dmsetup")] {
        crate::host::path::find_of_root(program).ok_or(Skip::Package { program, package })?;
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let kept = folder.path().join("results.json");
    let short = [DISK, "--cpus", "1", "--rounds", "1", "--measure", "times", "--json"];
    let output = bench(&short, |tool| {
        tool.arg(&kept);
    })?;
    ensure!(output.status.success(), "it failed:\n{}", told(&output));
    let results: Value = serde_json::from_slice(&crate::host::files::read(&kept)?)?;
    let rows = results["rows"].as_array().context("the results have no rows")?;
    for (name, unit) in [DISK, DISK_ENCRYPTED].into_iter().flat_map(|name| ["ns", "us"].map(|unit| (name, unit))) {
        let row = rows.iter().find(|row| row["name"] == name && row["unit"] == unit);
        let row = row.with_context(|| format!("the results lack {name} in {unit}"))?;
        ensure!(measured(row, "ours") && measured(row, "linux"), "{name} lacks figures: {row}");
    }
    Ok(())
}

/// Instructions of both systems side by side: they repeat, and Linux's are what is known of it.
fn both_count(_: &Bench) -> Result<()> {
    need_linux()?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let count = |name: &str| -> Result<(String, Value)> {
        let path = folder.path().join(name);
        let output = bench(&[&COUNTED[..], &["--measure", "instructions", "--json"]].concat(), |tool| {
            tool.arg(&path);
        })?;
        ensure!(output.status.success(), "it failed:\n{}", told(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((printed, serde_json::from_slice(&crate::host::files::read(&path)?)?))
    };
    let ((printed, one), (_, other)) = (count("one")?, count("other")?);
    let sample = |results: &Value, name: &str, system: &str| {
        let row = results["rows"].as_array()?.iter().find(|row| row["name"] == name)?;
        row[system]["samples"][0].as_f64()
    };
    for (name, system) in COUNTED.iter().flat_map(|name| [(name, "ours"), (name, "linux")]) {
        let samples = [&one, &other].map(|results| sample(results, name, system));
        let [Some(first), Some(second)] = samples else { bail!("{name} lacks a count of {system}: {samples:?}") };
        let percent = (first - second).abs() / first * 100.0;
        ensure!(percent < COUNTS_SPREAD_PERCENT_MAX, "{name}, {system}: {first} and {second} instructions in two runs");
    }
    // The empty call of ours, beside the least that Linux has.
    if let Ok(kept) = counts::KeptCounts::read()?.of(&build::compiler()?) {
        let linux = sample(&one, COUNTED[0], "linux").context("no count of Linux's getppid")?;
        let null = kept.instructions("null-call").context("no count of the null call is kept")?;
        ensure!(null <= linux, "our null call takes {null} instructions, Linux's getppid {linux}");
    }
    let all = format!("{0} of {0} counts", COUNTED.len());
    ensure!(printed.contains(&all), "Linux's counts are not what is known of it:\n{printed}");
    Ok(())
}

/// A request by its parts: who serves is told from who asks, and each program from its proxy.
fn requests(_: &Bench) -> Result<()> {
    need_linux()?;
    Origin::Root("redis").words()?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join("results.json");
    let output = bench(&[REQUEST, "--cpus", "1", "--measure", "instructions", "--json"], |tool| {
        tool.arg(&path);
    })?;
    ensure!(output.status.success(), "it failed:\n{}", told(&output));
    let results: Value = serde_json::from_slice(&crate::host::files::read(&path)?)?;
    let row = &results["rows"][0];
    let part = |system: &str, name: &str| row[system]["parts"][name].as_f64().unwrap_or_default();
    for name in ["program", "program/proxy", "client", "client/proxy", "tcp", "kernel"] {
        ensure!(part("ours", name) > 0.0, "nothing is {name}'s: {row}");
    }
    let (ours, linux) = (part("ours", "program") + part("ours", "client"), part("linux", "program"));
    ensure!(
        (ours / linux - 1.0).abs() < PROGRAMS_MARGIN,
        "redis and its client take {ours} instructions here and {linux} in Linux: {row}"
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().find(|line| line.starts_with(&format!("{REQUEST}: ")));
    ensure!(line.is_some_and(|line| line.contains("its proxy")), "no line has the parts:\n{printed}");
    Ok(())
}

fn same_results(kept: &str) -> Result<()> {
    let output = bench(&["--from", kept, "--against", kept], |_| {})?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && printed.contains("3 rows in both, 0 changes"), "{printed}{}", told(&output));
    Ok(())
}

fn draw(kept: &str) -> Result<()> {
    let path = crate::host::place::out().join(format!("{FIGURE}.svg"));
    if path.exists() {
        std::fs::remove_file(&path).context("cannot remove the old chart")?;
    }
    let output = bench(&[FIGURE, "--from", kept], |_| {})?;
    ensure!(output.status.success(), "no chart: {}", told(&output));
    let chart = String::from_utf8_lossy(&crate::host::files::read(&path)?).into_owned();
    ensure!(chart.contains("Pelago, a table each") && chart.contains("Linux, a table each"), "the chart lacks a curve");
    Ok(())
}

/// Without the package our own column is measured all the same.
fn no_linux_kernel(_: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let missing = folder.path().join("none");
    without_linux(&missing, "linux-image-cloud-amd64")
}

/// A kernel that does not boot ends its guest at once; the line says which row it was and the
/// others are measured.
fn broken_linux_kernel(_: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    crate::host::files::write(&folder.path().join("boot/vmlinuz-0"), b"no kernel\n")?;
    for name in ["virtio_pci", "virtio_net"] {
        crate::host::files::write(&folder.path().join(format!("lib/modules/0/{name}.ko")), b"no module\n")?;
    }
    without_linux(folder.path(), "the guest ended")
}

/// A guest that dies in mid-run takes the row with it that was under way; those after it are
/// measured.
fn guest_dies(_: &Bench) -> Result<()> {
    let [before, victim, after] = ["getpid", "fork-exec", "page-touch/processes"];
    let mut tool = own()?;
    tool.args([before, victim, after, "--cpus", "1", "--rounds", "1", "--measure", "times"]);
    let mut tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot run myself")?;
    let (mut told, mut killed) = (String::new(), false);
    let (sender, lines) = sync_channel(LINES_MAX);
    read_lines(tool.stderr.take().context("no standard error")?, sender);
    loop {
        let line = match lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = tool.kill();
                let words = format!("the tool says nothing for {} s and does not end:\n{told}", LIMIT.as_secs());
                return Err(late(words, &[told]));
            }
        };
        if !killed && line.contains("Pelago") && line.ends_with(victim) {
            killed = true;
            kill_guest(tool.id())?;
        }
        told += &(line + "\n");
    }
    let output = child::finish(tool, "the tool", LIMIT)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(killed, "the row {victim} never began:\n{told}");
    ensure!(!output.status.success(), "the status is 0");
    let line = format!("pelago: no figure for {victim} at 1: Pelago: the guest ended during this row");
    ensure!(told.lines().any(|told| told.starts_with(&line)), "no line says `{line}`:\n{told}");
    for (name, failed) in [(before, false), (victim, true), (after, false)] {
        let row = printed.lines().find(|line| line.starts_with(&format!("{name} ")));
        let row = row.with_context(|| format!("the table lacks {name}:\n{printed}"))?;
        ensure!(row.contains("failed") == failed, "a guest died during {victim}: {row}");
    }
    Ok(())
}

/// Ends the emulators that a process has started (proc(5)).
fn kill_guest(tool: u32) -> Result<()> {
    let tasks = std::fs::read_dir(format!("/proc/{tool}/task")).context("the tool is gone")?;
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let children: String = tasks.flatten().map(children).collect();
    let emulators = children.split_whitespace().filter(|child| {
        std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.starts_with(PROGRAM))
    });
    let emulators = emulators.map(str::parse).collect::<Result<Vec<i32>, _>>().context("a process has no number")?;
    ensure!(!emulators.is_empty(), "the tool runs no emulator: {children}");
    for emulator in emulators {
        kill(Pid::from_raw(emulator), Signal::SIGKILL).context("the emulator cannot be killed")?;
    }
    Ok(())
}

fn without_linux(package: &std::path::Path, says: &str) -> Result<()> {
    let words = ["getpid", "--cpus", "1", "--rounds", "1", "--measure", "times"];
    let output = bench(&words, |tool| {
        tool.env("PELAGO_LINUX", package);
    })?;
    let (told, printed) = (told(&output), String::from_utf8_lossy(&output.stdout).into_owned());
    ensure!(!output.status.success(), "the status is 0");
    let line = told.lines().find(|line| line.starts_with("pelago: no figure for getpid at 1: Linux: "));
    ensure!(line.is_some_and(|line| line.contains(says)), "no line says `{says}`:\n{told}");
    let row = printed.lines().find(|line| line.starts_with("getpid ")).context("the table lacks the row")?;
    ensure!(row.contains(" .. ") && row.contains("failed"), "our own figure is missing: {row}");
    Ok(())
}
