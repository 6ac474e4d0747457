//! Tier 3: `run --disk ...,key=`, by running this very tool as a person does: nothing that programs
//! write is on the image in the clear, the key is nowhere but where it belongs, and the one that
//! encrypts may die under a writer. cryptsetup, mkfs.ext4 and e2fsck judge.

use super::cli::Running;
use crate::host::disk::DiskOption;
use crate::host::skip::Skip;
use crate::host::{child, files, path, place};
use crate::machine::control;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const KEY: &[u8] = b"open, sesame: 27182818284590452353";
/// What a program writes, in words that nothing else has.
const WORDS: &str = "forty thieves in the forest";
/// What cryptsetup makes of a copy of the image.
const DECRYPTED: &str = "decrypted";
/// How a round of writing is disturbed.
const ROUNDS: [&[&str]; 8] = [
    &["kill crypto"],
    &["kill crypto"],
    &["hang crypto"],
    &["kill disk"],
    // The console has no key to bring any more.
    &["kill console", "kill crypto"],
    &["kill disk", "kill crypto"],
    &["fault crypto"],
    &["kill crypto"],
];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(3, "crypto/keep".into(), |_| keep()),
        // As the next one, with sectors of another size.
        Scenario::shared(3, "crypto/others/512".into(), |_| others("512")).by_night(true),
        Scenario::shared(3, "crypto/others/4096".into(), |_| others("4096")),
        Scenario::shared(3, "crypto/kill".into(), |_| kill()),
    ]
}

fn program(name: &'static str, package: &'static str) -> Result<Command> {
    Ok(Command::new(path::find_of_root(name).ok_or(Skip::Package { program: name, package })?))
}

fn succeed(command: &mut Command) -> Result<Vec<u8>> {
    let output = child::output(command, child::SHORT)?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// A folder with a key, and an image that is there or not.
struct Disk(TempDir);

impl Disk {
    fn new() -> Result<Disk> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        files::write(&folder.path().join("key"), KEY)?;
        Ok(Disk(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn option(&self, more: &str) -> String {
        format!("{},key={}{more}", self.path("image").display(), self.path("key").display())
    }

    fn start(&self, more: &str, line: &str) -> Result<Running> {
        let disk = self.option(more);
        Running::start(&["--verbose", "--accel", "tcg", "--disk", &disk, "busybox", "sh", "-c", line], &[])
    }

    fn run(&self, more: &str, line: &str) -> Result<Vec<String>> {
        let mut running = self.start(more, line)?;
        let status = running.finish()?;
        ensure!(status.success(), "{line}: {status}\n{}", running.said().join("\n"));
        Ok(running.said().to_vec())
    }

    /// The volume's key.
    fn volume_key(&self) -> Result<Vec<u8>> {
        let disk = self.option(",ro").parse::<DiskOption>()?.check()?;
        Ok(disk.handover().context("it was not opened")?.key.bytes().to_vec())
    }

    /// Has cryptsetup decrypt a copy of the image, and e2fsck look at it, which finds nothing and
    /// no journal to recover. Gives the bytes of the copy.
    fn judge(&self) -> Result<Vec<u8>> {
        let (copy, header) = (self.path(DECRYPTED), self.path("header"));
        std::fs::copy(self.path("image"), &copy).context("cannot copy the image")?;
        let mut command = program("cryptsetup", "cryptsetup-bin")?;
        command.args(["--batch-mode", "reencrypt", "--decrypt", "--force-offline-reencrypt", "--header"]);
        succeed(command.arg(&header).arg("--key-file").args([self.path("key"), copy.clone()]))?;
        std::fs::remove_file(&header).context("cryptsetup left no header")?;
        let told = succeed(program("e2fsck", "e2fsprogs")?.arg("-fn").arg(&copy))?;
        let told = String::from_utf8_lossy(&told);
        ensure!(!told.contains("recover"), "e2fsck: {told}");
        files::read(&copy)
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// What a program wrote is on the image, but not in the clear, and in the next run; the key is in
/// no archive, command line or line of the log.
fn keep() -> Result<()> {
    let disk = Disk::new()?;
    let line = format!("for n in $(seq 500); do echo {WORDS} $n; done >/data/a; sync; echo all is written; read line");
    let mut running = disk.start(",size=64M", &line)?;
    running.expect("all is written")?;
    let seen = seen(running.id())?;
    running.line("")?;
    ensure!(running.finish()?.success(), "it ended badly:\n{}", running.said().join("\n"));
    let log = running.said().join("\n").into_bytes();
    let key = disk.volume_key()?;
    let inside = disk.judge()?;
    ensure!(has(&inside, WORDS.as_bytes()), "what was written is not in the volume");
    ensure!(!has(&files::read(&disk.path("image"))?, WORDS.as_bytes()), "what was written is on the image");
    ensure!(has(&log, b"encrypted in blocks of 4096 bytes"), "nothing was encrypted:\n{}", running.said().join("\n"));
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    for (name, bytes) in seen.iter().map(|(name, bytes)| (name.as_str(), bytes)).chain([("the log", &log)]) {
        for secret in [KEY, &key[..16], &key[48..], &digits.as_bytes()[..32], &digits.as_bytes()[96..]] {
            ensure!(!has(bytes, secret), "the key is in {name}");
        }
    }
    let said = disk.run("", "tail -n 1 /data/a; echo more >/data/new")?;
    ensure!(said.iter().any(|line| *line == format!("{WORDS} 500")), "{}", said.join("\n"));
    disk.judge().map(drop)
}

/// The boot archive of a run, and the command lines of it and of the emulator.
fn seen(run: u32) -> Result<Vec<(String, Vec<u8>)>> {
    let start = format!("{run}-");
    let folders = std::fs::read_dir(place::instances()).context("no run has a folder")?;
    let mut folders = folders.flatten().map(|entry| entry.path());
    let folder = folders.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)));
    let archive = files::read(&folder.context("the run has no folder")?.join("boot.archive"))?;
    ensure!(has(&archive, b"sbin/crypto"), "the archive lacks what encrypts");
    let mut seen = vec![("the archive".to_owned(), archive)];
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap_or_default();
    for process in [run.to_string()].iter().map(String::as_str).chain(children.split_whitespace()) {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).context("a process of the run has ended")?;
        seen.push((format!("the command line {}", String::from_utf8_lossy(&line)), line));
    }
    ensure!(seen.iter().any(|(name, _)| name.contains("qemu")), "the emulator is no child of the run");
    Ok(seen)
}

/// A volume that mkfs.ext4 filled and cryptsetup encrypted is read and written.
fn others(sector: &str) -> Result<()> {
    let disk = Disk::new()?;
    let tree = disk.path("tree");
    files::write(&tree.join("b/c"), format!("{WORDS}\n").as_bytes())?;
    let image = disk.path("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(96 << 20)).context("cannot make a file")?;
    let mut command = program("mkfs.ext4", "e2fsprogs")?;
    succeed(command.args(["-q", "-b", "4096", "-d"]).args([&tree, &image]).arg("64M"))?;
    let words = ["--batch-mode", "reencrypt", "--encrypt", "--reduce-device-size", "32M", "--resilience", "none"];
    let derivation = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--sector-size", sector, "--key-file"];
    let mut command = program("cryptsetup", "cryptsetup-bin")?;
    succeed(command.args(words).args(derivation).args([disk.path("key"), image.clone()]))?;
    ensure!(!has(&files::read(&image)?, WORDS.as_bytes()), "cryptsetup encrypted nothing");
    let line = "cat /data/b/c; cp -r /data/b /data/d; echo ours >>/data/d/c; sync; md5sum </data/d/c";
    let said = disk.run("", line)?;
    ensure!(said.iter().any(|line| line == WORDS), "{}", said.join("\n"));
    ensure!(said.iter().any(|line| line.contains(&format!("encrypted in blocks of {sector} bytes"))), "{said:?}");
    let written = format!("{WORDS}\nours\n");
    ensure!(has(&disk.judge()?, written.as_bytes()), "what was written is not in the volume");
    ensure!(!has(&files::read(&image)?, WORDS.as_bytes()), "it is on the image in the clear");
    copied(&disk.path(DECRYPTED), "/d/c", &written)
}

/// A file of a volume is as it should be, by debugfs.
fn copied(volume: &Path, name: &str, wanted: &str) -> Result<()> {
    let read = succeed(program("debugfs", "e2fsprogs")?.args(["-R", &format!("cat {name}")]).arg(volume))?;
    ensure!(read == wanted.as_bytes(), "{name} is {:?}", String::from_utf8_lossy(&read));
    Ok(())
}

/// The one that encrypts, the disk's server or both die under a writer: it hears of no error, and
/// all that it wrote is there, encrypted with the same key, which nobody gave again.
fn kill() -> Result<()> {
    let disk = Disk::new()?;
    let script = "while read name; do echo begun $name; seq 40000 >/data/$name && sync && rm -f /data/gone && \
        seq 9 >/data/gone && sync && echo did $name; done; md5sum /data/r*; echo the end";
    let mut running = disk.start(",size=64M", script)?;
    for (round, breaks) in ROUNDS.iter().enumerate() {
        running.line(&format!("r{round}"))?;
        running.expect(&format!("begun r{round}"))?;
        for what in *breaks {
            let reply = control::request(Some(running.id()), &format!("chaos {what}"))?.join("; ");
            ensure!(reply.starts_with("ok"), "chaos {what}: {reply}\n{}", running.said().join("\n"));
        }
        running.expect(&format!("did r{round}"))?;
    }
    running.end_input();
    ensure!(running.finish()?.success(), "it ended badly:\n{}", running.said().join("\n"));
    let wanted: String = (1..=40_000).map(|number| format!("{number}\n")).collect();
    files::write(&disk.path("wanted"), wanted.as_bytes())?;
    let sum = String::from_utf8(succeed(Command::new("md5sum").arg(disk.path("wanted")))?)?;
    let sum = sum.split_whitespace().next().context("md5sum says nothing")?;
    let right = running.said().iter().filter(|line| line.starts_with(sum)).count();
    ensure!(right == ROUNDS.len(), "{right} files are right:\n{}", running.said().join("\n"));
    disk.judge()?;
    copied(&disk.path(DECRYPTED), "/r0", &wanted)
}
