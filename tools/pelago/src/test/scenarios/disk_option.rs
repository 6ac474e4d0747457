//! Tier 3: `run --disk`, by running this very tool as a person does: what programs write is there
//! in the next run and for this machine's own programs, however the run was ended.

use super::cli::Running;
use crate::host::skip::Skip;
use crate::host::{child, path};
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What has the tool end a program that takes no notice: it is sent so often.
const INTERRUPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(10);

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(3, "disk-option/read".into(), |_| read()),
        Scenario::shared(3, "disk-option/keep".into(), |_| keep()),
        Scenario::shared(3, "disk-option/end".into(), |_| end()),
    ]
}

fn start(disk: &str, words: &[&str]) -> Result<Running> {
    Running::start(&[&["--accel", "tcg", "--disk", disk, "busybox"], words].concat(), &[])
}

/// Runs a shell's line; what it said.
fn run(disk: &str, line: &str) -> Result<Vec<String>> {
    let mut running = start(disk, &["sh", "-c", line])?;
    let status = running.finish()?;
    ensure!(status.success(), "{line}: {status}\n{}", running.said().join("\n"));
    Ok(running.said().to_vec())
}

fn expect(said: &[String], wanted: &str) -> Result<()> {
    ensure!(said.iter().any(|line| line == wanted), "`{wanted}` was not said:\n{}", said.join("\n"));
    Ok(())
}

fn program(name: &'static str) -> Result<Command> {
    let found = path::find_of_root(name).ok_or(Skip::Package { program: name, package: "e2fsprogs" })?;
    Ok(Command::new(found))
}

/// A volume that this machine made is read, by two machines at once, and written by none of them.
fn read() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (tree, image) = (folder.path().join("tree"), folder.path().join("a.img"));
    crate::host::files::write(&tree.join("b/c"), b"from this machine\n")?;
    std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).context("cannot make a file")?;
    let made =
        child::output(program("mkfs.ext4")?.args(["-q", "-b", "4096", "-d"]).args([&tree, &image]), child::SHORT)?;
    ensure!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr));
    let before = std::fs::read(&image).context("cannot read the disk's file")?;
    let disk = format!("{}:/else,ro", image.display());
    let line = "cat /else/b/c; ls -lR /else | grep -c '^-'; echo x >/else/new || echo refused; read line";
    let mut one = start(&disk, &["sh", "-c", line])?;
    one.expect("an ext4 file system of 64 MiB, is /else, to be read only")?;
    for words in ["from this machine", "1"] {
        one.expect(words)?;
    }
    // One comes by standard error and the other by standard output, in either order.
    let [refusal, word] = ["Read-only file system", "refused"];
    while !([refusal, word].iter().all(|words| one.said().iter().any(|line| line.contains(words)))) {
        one.expect("")?;
    }
    expect(&run(&disk, "cat /else/b/c")?, "from this machine")?;
    let mut writer = start(disk.trim_end_matches(",ro"), &["true"])?;
    ensure!(!writer.finish()?.success(), "a disk was given to one that writes while one reads it");
    ensure!(
        writer.said().len() == 1 && writer.said()[0].contains("in use by another ./pelago run"),
        "{:?}",
        writer.said()
    );
    drop(one);
    ensure!(std::fs::read(&image).context("cannot read the disk's file")? == before, "its bytes changed");
    Ok(())
}

/// A disk is made, and has in the next run what was written in the first, synced or not.
fn keep() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let image = folder.path().join("new.img");
    let disk = image.display().to_string();
    run(&format!("{disk},size=64M"), "mkdir /data/a; echo kept >/data/a/b; sync; echo last >/data/c")?;
    sound(&image)?;
    let said = run(&disk, "cat /data/a/b /data/c; rm -r /data/a; ls -A /data")?;
    ["kept", "last", "lost+found"].into_iter().try_for_each(|line| expect(&said, line))?;
    sound(&image)
}

/// What was written is there when the machine was ended by a signal, whether the program ends by it
/// or takes no notice.
fn end() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let image = folder.path().join("new.img");
    let disk = format!("{},size=64M", image.display());
    for (signal, trap, times) in
        [(Signal::SIGTERM, "true", 1), (Signal::SIGINT, "true", 1), (Signal::SIGTERM, "trap '' TERM INT", INTERRUPTS)]
    {
        let line = format!("{trap}; echo {signal} {times} >>/data/ends; echo all is said; while :; do sleep 1; done");
        let mut running = start(&disk, &["sh", "-c", &line])?;
        // A word of no other line: by a signal that comes before the program it ends without it.
        running.expect("all is said")?;
        for _ in 0..times {
            running.signal(signal)?;
            until_taken(running.id(), signal)?;
        }
        ensure!(!running.finish()?.success(), "it ended well");
        sound(&image)?;
    }
    let said = run(&disk, "cat /data/ends")?;
    ["SIGTERM 1", "SIGINT 1", "SIGTERM 3"].into_iter().try_for_each(|line| expect(&said, line))
}

/// A process has taken a signal: a second one before that would be lost.
fn until_taken(process: u32, signal: Signal) -> Result<()> {
    let end = Instant::now() + child::SHORT;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("the tool has ended")?;
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).context("no ShdPnd in status")?;
        let pending = u64::from_str_radix(pending.trim(), 16).context("ShdPnd is no number")?;
        if pending & 1 << (signal as i32 - 1) == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{signal} is not taken");
        std::thread::sleep(PAUSE);
    }
}

/// This machine's `e2fsck` finds nothing, and no journal to recover.
fn sound(image: &Path) -> Result<()> {
    let found = child::output(program("e2fsck")?.arg("-fn").arg(image), child::SHORT)?;
    let told = String::from_utf8_lossy(&found.stdout);
    ensure!(found.status.success() && !told.contains("recover"), "e2fsck: {told}");
    Ok(())
}
