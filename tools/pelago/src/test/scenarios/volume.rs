//! Tier 3: the ext4 volume on a disk, seen by programs at a path (decision 87). The host makes it
//! of a tree, and what busybox finds is compared with that tree.

use super::checks;
use crate::host::child;
use crate::host::skip::Skip;
use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Drive, Machine};
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use system::Mount;

mod calls;
mod durable;

const LIMIT: Duration = Duration::from_secs(60);
/// Where programs see it.
const AT: &str = "/data";
const VOLUME_BYTES: u64 = 64 << 20;
const MKFS: &str = "mkfs.ext4";
/// Of one that is to be full.
const SMALL_BYTES: u64 = 24 << 20;
/// Status of a machine that cannot go on (`servers/volume`).
const NO_DISK: i32 = 70;
/// Between what the program says.
const MARKS: [&str; 2] = ["-- begin --", "-- end --"];
/// Names of a directory that is large enough for an index.
const MANY: usize = 400;

pub fn scenarios() -> Vec<Scenario> {
    let machines =
        [(MachineType::Q35, 1), (MachineType::Q35, 2), (MachineType::MicrovmMmio, 1), (MachineType::MicrovmMmio, 2)];
    let read = machines.map(|(machine, cpus)| {
        let name = format!("volume/read/{}/{cpus}", machine.name());
        Scenario::shared(3, name, move |bench| read(bench, machine, cpus))
    });
    let write = machines.map(|(machine, cpus)| {
        let name = format!("volume/write/{}/{cpus}", machine.name());
        Scenario::shared(3, name, move |bench| write(bench, machine, cpus))
    });
    let refused = Scenario::shared(3, "volume/refused/q35/1".into(), refused);
    let durable = [1, 2]
        .map(|cpus| Scenario::shared(3, format!("volume/durable/q35/{cpus}"), move |bench| durable::run(bench, cpus)));
    let calls = [1, 2]
        .map(|cpus| Scenario::shared(3, format!("volume/calls/q35/{cpus}"), move |bench| calls::run(bench, cpus)));
    let on_linux = Scenario::shared(3, "volume/calls/linux".into(), |_| calls::on_linux());
    let full = Scenario::shared(3, "volume/full/q35/2".into(), full);
    let read_only = Scenario::shared(3, "volume/read-only/q35/1".into(), read_only);
    let none = Scenario::shared(3, "volume/none/q35/2".into(), none);
    let memory = Scenario::shared(3, "volume/memory/q35/2".into(), memory).by_night(true);
    let rest = [refused, on_linux, full, memory, read_only, none].into_iter().chain(durable).chain(calls);
    read.into_iter().chain(write).chain(rest).collect()
}

/// A folder of the host for a volume's tree and its image.
pub struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// One without a volume, and an empty tree.
    pub fn new() -> Result<Disk> {
        let folder = tempfile::tempdir().context("cannot make a folder for a disk")?;
        fs::create_dir(folder.path().join("tree")).context("cannot make a folder for a volume's tree")?;
        Ok(Disk { folder })
    }

    /// What is to be on the volume.
    pub fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// The disk's file.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Makes a volume of the tree.
    pub fn format(&self) -> Result<()> {
        self.format_to(VOLUME_BYTES)
    }

    /// Makes one of so many bytes.
    pub fn format_to(&self, bytes: u64) -> Result<()> {
        let program = program(MKFS)?;
        let image = fs::File::create(self.image()).context("cannot make a file for a disk")?;
        image.set_len(bytes).context("cannot size a disk's file")?;
        let mut make = Command::new(program);
        make.args(["-q", "-b", "4096", "-E", "root_owner=0:0", "-d"]).args([self.tree(), self.image()]);
        let made = child::output(&mut make, child::SHORT)?;
        ensure!(made.status.success(), "{MKFS}: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    /// Has e2fsck look at the volume, which was ended in order, and copies its tree out.
    pub fn judge(&self) -> Result<PathBuf> {
        let looked = child::output(Command::new(program("e2fsck")?).arg("-fn").arg(self.image()), child::SHORT)?;
        let words = String::from_utf8_lossy(&looked.stdout);
        ensure!(looked.status.success(), "e2fsck: {words}");
        let told = child::output(Command::new(program("dumpe2fs")?).arg("-h").arg(self.image()), child::SHORT)?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure!(!told.contains("needs_recovery"), "it was not ended in order: {told}");
        let out = self.folder.path().join("out");
        fs::create_dir(&out)?;
        let request = format!("rdump / {}", out.display());
        let mut copy = Command::new(program("debugfs")?);
        let copied = child::output(copy.args(["-R", &request]).arg(self.image()), child::SHORT)?;
        ensure!(copied.status.success(), "debugfs: {}", String::from_utf8_lossy(&copied.stderr));
        Ok(out)
    }

    /// Boots with it.
    pub fn boot(&self, bench: &Bench, machine: MachineType, cpus: u32, ro: bool, script: &str) -> Result<Guest> {
        self.boot_with(bench, machine, cpus, ro, script, |_, _| Ok(()))
    }

    /// The same with a program of checks, to be called as /checks; it may write to the volume.
    pub fn boot_checks(
        &self,
        bench: &Bench,
        machine: MachineType,
        cpus: u32,
        source: &str,
        script: &str,
    ) -> Result<Guest> {
        let program = checks::compile(source)?;
        self.boot_with(bench, machine, cpus, false, script, |root, _| {
            root.file("root/checks", 0o755, program);
            Ok(())
        })
    }

    /// The same with more in its root.
    pub fn boot_with(
        &self,
        bench: &Bench,
        machine: MachineType,
        cpus: u32,
        ro: bool,
        script: &str,
        fill: impl FnOnce(&mut Archive, &mut Machine) -> Result<()>,
    ) -> Result<Guest> {
        let bed = bench.with_volume(Mount { path: AT.into(), is_read_only: ro })?;
        let program = ["busybox", "sh", "-c", script];
        bed.boot(machine, cpus, &program, |root, machine| {
            machine.has_card = false;
            machine.drive = Some(Drive { file: self.image(), is_read_only: ro });
            fill(root, machine)
        })
    }
}

/// A program that knows ext4.
fn program(name: &'static str) -> Result<PathBuf> {
    let all = ["/usr/sbin", "/sbin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
    let found = all.into_iter().find(|path| path.exists());
    found.ok_or_else(|| Skip::Package { program: name, package: "e2fsprogs" }.into())
}

/// Bytes that are the same in no two pages, and in every run.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Files of all kinds and sizes.
fn fill(tree: &Path) -> Result<()> {
    for (number, length) in [0, 1, 4095, 4096, 4097, 70_000, 3 << 20].into_iter().enumerate() {
        fs::write(tree.join(format!("size-{length}")), bytes(length, number as u64 + 7))?;
    }
    let holes = fs::File::create(tree.join("holes"))?;
    for at in [0, 5 << 20, (5 << 20) + 9000] {
        holes.write_all_at(b"written", at)?;
    }
    holes.set_len(6 << 20)?;
    let deep = tree.join("a/b/c/d/e");
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("with blank, and \u{e4}"), "deep\n")?;
    fs::create_dir(tree.join("many"))?;
    for number in 0..MANY {
        fs::write(tree.join(format!("many/name-of-some-length-{number:05}")), format!("{number}\n"))?;
    }
    fs::hard_link(tree.join("size-1"), tree.join("a/second-name"))?;
    let long = format!("{}size-4096", "./".repeat(40));
    for (name, target) in [
        ("short", "a/b"),
        ("long", &long),
        ("out", "/etc/hostname"),
        ("up", "../etc/hostname"),
        ("home", "/data/a/b/../second-name"),
        ("nowhere", "/none"),
        ("circle", "circle"),
    ] {
        symlink(target, tree.join(name))?;
    }
    fs::write(tree.join("script"), "#!/bin/sh\necho run from the volume\n")?;
    fs::set_permissions(tree.join("script"), fs::Permissions::from_mode(0o751))?;
    Ok(())
}

/// What a command of the host says, by lines, in order.
fn told(tree: &Path, command: &str) -> Result<Vec<String>> {
    let mut shell = Command::new("sh");
    let told = child::output(shell.args(["-c", command]).current_dir(tree).env("LC_ALL", "C"), child::SHORT)?;
    ensure!(told.status.success(), "{command}: {}", String::from_utf8_lossy(&told.stderr));
    let mut lines: Vec<String> = String::from_utf8_lossy(&told.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// What the program said between the next two marks.
fn between_marks(guest: &mut Guest) -> Result<Vec<String>> {
    guest.expect(MARKS[0], LIMIT)?;
    let begin = guest.transcript.len();
    guest.expect(MARKS[1], LIMIT)?;
    let mut found = guest.transcript[begin..guest.transcript.len() - 1].to_vec();
    found.sort();
    Ok(found)
}

/// Compares what was found with what the host says of a tree.
fn compare(found: &[String], tree: &Path, command: &str) -> Result<()> {
    let expected = told(tree, command)?;
    for (found, expected) in found.iter().zip(&expected) {
        ensure!(found == expected, "{command}: `{found}` instead of `{expected}`");
    }
    ensure!(found.len() == expected.len(), "{command}: {} lines, not {}", found.len(), expected.len());
    Ok(())
}

const SUMS: &str = "find . -type f -exec md5sum {} +";
const NAMES: &str = "find . ! -name lost+found";
const ATTRIBUTES: &str = "stat -c '%n %a %s %h %Y %F' size-* holes a short long script";

/// The volume itself, and where it meets the root.
const REST: &str = "
cat out up home; readlink long; cat nowhere; cat circle
cd a/b/c; pwd; cd ../../..; pwd; cd ..; pwd; cd /data/short/c && pwd
cat /data/../etc/hostname /data/a/../../etc/hostname
./script; /data/script; cd /data; ./script
grep ext4 /proc/mounts /proc/filesystems; stat -f -c '%T %s' /data
ls -l /proc/self/fd/9 9<size-1 | sed 's/.* -> //'
touch new; echo x >size-1; mkdir d; rm size-1; mv size-1 two; ln size-1 two; ln -s x y; chmod 1 size-1
mv /data /else; rmdir /data; ln /etc/hostname here; mv /etc/hostname .; cat /etc/hostname
busybox ls -d /data/lost+found
ln -s /data/a /tmp/in; cat /tmp/in/second-name | wc -c; ls /tmp/in/../size-1
";

fn read(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    fill(&disk.tree()).context("cannot fill a volume's tree")?;
    disk.format()?;
    let script = format!(
        "cd {AT}; for i in '{SUMS}' '{NAMES}' \"{ATTRIBUTES}\"; do echo '{}'; eval \"$i\"; echo '{}'; done; {REST}",
        MARKS[0], MARKS[1]
    );
    let guest = disk.boot(bench, machine, cpus, true, &script)?;
    with_console(guest, |guest| {
        for command in [SUMS, NAMES, ATTRIBUTES] {
            compare(&between_marks(guest)?, &disk.tree(), command)?;
        }
        guest.finish(LIMIT)?;
        Ok(())
    })
}

/// Changes of all kinds.
const CHANGES: &str = "
mkdir d d/e; echo one >d/a; cp /bin/busybox d/busybox; mv d/a d/b; ln d/b d/c; ln -s b d/s; ln -s $(printf 'x%0100d' 7) d/t
i=0; while [ $i -lt 150 ]; do echo $i >d/e/another-name-of-which-there-are-blocks-$i; i=$((i+1)); done
rm size-0 holes; rm -r many; mv a/b d/moved; rmdir a 2>/dev/null; mv size-1 size-4095
dd if=/dev/urandom of=big bs=64k count=48 2>/dev/null; dd if=/dev/urandom of=far bs=4k seek=2000 count=3 2>/dev/null
echo more >>size-4097; truncate -s 100 size-70000; truncate -s 2000000 size-3145728; truncate -s 9000 size-4096
chmod 640 d/b; touch -d '2001-02-03 04:05:06' d/b; chown 7:8 d/b; mkfifo d/fifo
exec 5<>open; echo kept >&5; rm open; cat <&5 | wc -c; mv big /tmp/big; mv /tmp/big big2; mkdir sub; cd sub; rmdir ../sub; ls
cd /data; d/busybox echo run from what was written; sync
";

/// What is changed here is there for the host, whose e2fsck finds nothing to mend.
fn write(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    fill(&disk.tree()).context("cannot fill a volume's tree")?;
    disk.format()?;
    let all = "find . ! -name lost+found ! -type f ! -type p";
    let script = format!(
        "cd {AT}; {CHANGES} for i in '{SUMS}' '{all}'; do echo '{}'; eval \"$i\"; echo '{}'; done; \
         stat -c '%a %u %g %Y %h' d/b; echo last >unsynced",
        MARKS[0], MARKS[1]
    );
    let guest = disk.boot(bench, machine, cpus, false, &script)?;
    with_console(guest, |guest| {
        guest.expect("run from what was written", LIMIT)?;
        let (sums, others) = (between_marks(guest)?, between_marks(guest)?);
        guest.expect("640 7 8 981173106 2", LIMIT)?;
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let judged = disk.judge()?;
        ensure!(fs::read_to_string(judged.join("unsynced"))? == "last\n", "what was not synced is not there");
        fs::remove_file(judged.join("unsynced"))?;
        compare(&sums, &judged, SUMS)?;
        compare(&others, &judged, all)
    })
}

/// What is no volume of ours is named in one line, and nobody takes an empty folder for it.
fn refused(bench: &Bench) -> Result<()> {
    let disk = Disk::new()?;
    fs::write(disk.image(), bytes(1 << 20, 5)).context("cannot make a file for a disk")?;
    let guest = disk.boot(bench, MachineType::Q35, 1, false, "ls /data; echo x >/data/x; echo status $?")?;
    with_console(guest, |guest| {
        guest.expect("volume: /data: not an ext4 volume: what is asked of it fails", LIMIT)?;
        guest.expect("ls: /data: Input/output error", LIMIT)?;
        guest.expect("can't create /data/x: Input/output error", LIMIT)?;
        guest.expect("status 1", LIMIT)?;
        guest.finish(LIMIT).map(drop)
    })
}

const FULL: &str = include_str!("volume/full.sh");

/// A full volume: what was said to be synced is there, and what is removed is room again.
fn full(bench: &Bench) -> Result<()> {
    let disk = Disk::new()?;
    disk.format_to(SMALL_BYTES)?;
    let guest = disk.boot(bench, MachineType::Q35, 2, false, FULL)?;
    with_console(guest, |guest| {
        let number = |guest: &mut Guest, words: &str| -> Result<u64> {
            let line = guest.heard(words, LIMIT)?;
            let number = line.split(words).nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
            number.with_context(|| format!("no number: {line}"))
        };
        let rows = number(guest, "rows kept ")?;
        let first = number(guest, "full at ")?;
        ensure!(rows > 0 && first > SMALL_BYTES / 4, "{rows} rows and {first} bytes filled it");
        let second = guest.expect("full at ", LIMIT)?;
        let second: u64 = second.trim_start_matches("full at ").trim_end_matches(';').parse()?;
        ensure!(second.abs_diff(first) <= 64 << 10, "first {first} bytes had room, and then {second}");
        guest.expect("kept", LIMIT)?;
        let sums = between_marks(guest)?;
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let told = |words: &str| guest.transcript.iter().filter(|line| line.contains(words)).count();
        // Who fills, twice; who appends; who makes folders, and who copies.
        let refused = told("No space left on device");
        ensure!(refused == 5, "{refused} were told that there is no room");
        let tree = disk.judge()?;
        compare(&sums, &tree, SUMS)?;
        let text = fs::read_to_string(tree.join("rows"))?;
        let row = |row: u64| format!("row {row} {row:04000}\n");
        let rest = text.strip_prefix(&(1..=rows).map(row).collect::<String>());
        // Of the row that had no room a part may be there, as on Linux.
        let is_right = rest.is_some_and(|rest| row(rows + 1).starts_with(rest));
        ensure!(is_right, "{rows} rows were kept, and {} are there", text.lines().count());
        Ok(())
    })
}

const MEMORY: &str = include_str!("volume/memory.sh");
/// Of a volume with more than its server has memory for.
const LARGE_BYTES: u64 = 160 << 20;

/// The cache takes the server's memory and gives it up for what is written: nobody hears of it.
fn memory(bench: &Bench) -> Result<()> {
    let disk = Disk::new()?;
    fs::write(disk.tree().join("seed"), bytes(1 << 20, 7))?;
    disk.format_to(LARGE_BYTES)?;
    let guest = disk.boot(bench, MachineType::Q35, 2, false, MEMORY)?;
    with_console(guest, |guest| {
        guest.expect("names 1000;", 2 * LIMIT)?;
        let sums = between_marks(guest)?;
        guest.expect("alike", LIMIT)?;
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let lives = guest.transcript.iter().filter(|line| line.contains("volume: /data: ext4 of")).count();
        ensure!(lives == 1, "the volume's server had {lives} lives");
        let tree = disk.judge()?;
        ensure!(fs::read_dir(tree.join("names"))?.count() == 1000, "names are missing");
        compare(&sums, &tree, "md5sum one two")
    })
}

const READ_ONLY: &str = include_str!("volume/read_only.sh");

/// A volume that is only read: all changes are refused, and not a byte of the disk is another.
fn read_only(bench: &Bench) -> Result<()> {
    let disk = Disk::new()?;
    fill(&disk.tree()).context("cannot fill a volume's tree")?;
    disk.format()?;
    let before = fs::read(disk.image())?;
    let guest = disk.boot(bench, MachineType::Q35, 1, true, READ_ONLY)?;
    with_console(guest, |guest| {
        guest.expect("all refused", LIMIT)?;
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let other = guest.transcript.iter().find(|line| line.starts_with("done: ") || line.starts_with("told: "));
        ensure!(other.is_none(), "{other:?}");
        ensure!(guest.transcript.iter().any(|line| line == "echo run from the volume"), "a file was not read");
        ensure!(fs::read(disk.image())? == before, "the disk's bytes changed");
        Ok(())
    })
}

/// Without the disk that it was to have the machine ends, and says why.
fn none(bench: &Bench) -> Result<()> {
    let bed = bench.with_volume(Mount { path: AT.into(), is_read_only: false })?;
    let guest = bed.boot(MachineType::Q35, 2, &["busybox", "sh", "-c", "read line"], |_, machine| {
        machine.has_card = false;
        Ok(())
    })?;
    with_console(guest, |guest| {
        guest.expect("volume: /data: no disk: Server(NoDevice)", LIMIT)?;
        guest.expect("volume: the machine ends: start it with its disk", LIMIT)?;
        let status = guest.finish(LIMIT)?;
        ensure!(status == NO_DISK, "the machine ended with status {status}");
        Ok(())
    })
}
