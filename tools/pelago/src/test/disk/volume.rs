//! The same of our own guest with a volume: busybox and sqlite write files (`volume.sh`) on the
//! ext4 of `servers/volume`, and what the power leaves is judged as Linux's is: by `e2fsck`, and
//! by what was said to be kept. Some of it is booted, too, so that it is our own guest that
//! recovers the journal.

use super::judge::{Mending, Programs};
use super::{Broken, DELAY, DISK_BYTES, FAULTS, LIMIT, bites, disk, judge as judge_cuts, sound, table};
use crate::host::{path, skip::Skip};
use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::block::cut::{self, Cache};
use crate::machine::block::encrypted::Encrypted;
use crate::machine::block::image::Image;
use crate::machine::block::log::Log;
use crate::machine::block::server::{Fault, On, Server};
use crate::machine::emulator::{Drive, Machine};
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use crate::test::scenario::with_console;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use system::Mount;

const WRITER: &str = include_str!("volume.sh");
const LOOK: &str = include_str!("look.sh");
const AT: &str = "/data";
const SQLITE: &str = "sqlite3";
/// The one of files, and two of rows in a table.
const WRITERS: usize = 3;
/// Of a mark: which writer, above which piece.
const WRITER_SHIFT: u32 = 32;

/// What the test needs.
pub struct Volume {
    programs: Programs,
    testbed: Testbed,
    pieces: u64,
    /// If the disk is encrypted. Logs are of what is within it.
    encrypted: Option<Encrypted>,
}

/// How many pieces of each writer are kept.
type Kept = [u64; WRITERS];

impl Volume {
    /// Runs in which each writer does so many pieces. What this machine lacks is a [`Skip`].
    pub fn prepare(testbed: &Testbed, pieces: u64) -> Result<Volume> {
        let mount = Mount { path: AT.into(), is_read_only: false };
        Volume::of(testbed.with_volume(mount)?, pieces, None)
    }

    /// The same on an encrypted disk.
    pub fn prepare_encrypted(testbed: &Testbed, pieces: u64) -> Result<Volume> {
        let (mount, disk) = (Mount { path: AT.into(), is_read_only: false }, Encrypted::make(DISK_BYTES)?);
        Volume::of(testbed.with_encrypted_volume(mount, disk.handover.clone())?, pieces, Some(disk))
    }

    fn of(testbed: Testbed, pieces: u64, encrypted: Option<Encrypted>) -> Result<Volume> {
        if path::find(SQLITE).is_none() {
            bail!(Skip::Package { program: SQLITE, package: SQLITE });
        }
        Ok(Volume { programs: Programs::find()?, testbed, pieces, encrypted })
    }

    /// A run with a disk that is as it should be. The log to cut.
    pub fn record(&self) -> Result<Log> {
        self.record_with(|_| ()).map(|(log, _)| log)
    }

    /// A run with a disk that is late and whose connection is lost, again and again. The guest does
    /// not notice.
    pub fn record_with_faults(&self) -> Result<Log> {
        let inject = |server: &Server| {
            for _ in 0..FAULTS {
                for on in [On::Writes, On::Flushes] {
                    server.inject(on, 5, Fault::Delay(DELAY));
                    server.inject(on, 1, Fault::Disconnect);
                }
            }
        };
        let (log, connections) = self.record_with(inject)?;
        ensure!(connections > FAULTS, "the emulator connected {connections} times only: no connection was lost");
        Ok(log)
    }

    /// Has the guest do its work; what was asked of its disk, and how often it was connected.
    fn record_with(&self, inject: impl FnOnce(&Server)) -> Result<(Log, u32)> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let socket = folder.path().join("socket");
        let server = Server::start(&socket, self.empty_disk(folder.path())?)?;
        let pieces = self.pieces.to_string();
        let guest = self.boot(WRITER, &pieces, |machine| machine.block = Some(socket.clone()))?;
        with_console(guest, |guest| {
            guest.expect("volume: /data: ext4 of ", LIMIT)?;
            inject(&server);
            follow(guest, &server)?;
            let status = guest.finish(LIMIT)?;
            ensure!(status == 0, "the writers ended with status {status}");
            Ok(())
        })?;
        let connections = server.connections();
        let log = server.finish()?;
        let log = self.encrypted.as_ref().map(|disk| disk.within(&log)).transpose()?.unwrap_or(log);
        let kept = kept(&log.marks(log.entries().len()).collect::<Vec<_>>());
        ensure!(kept == [self.pieces; WRITERS], "the writers kept {kept:?} pieces, not {} each", self.pieces);
        Ok((log, connections))
    }

    /// One with an empty file system.
    fn empty_disk(&self, folder: &Path) -> Result<Image> {
        if let Some(disk) = &self.encrypted {
            return Ok(disk.image.clone());
        }
        let file = folder.join("disk");
        self.programs.make(&file, DISK_BYTES)?;
        Image::read_file(&file)
    }

    fn boot(&self, script: &str, argument: &str, change: impl FnOnce(&mut Machine)) -> Result<Guest> {
        let words = ["busybox", "sh", "-c", script, "sh", argument];
        self.testbed.boot(MachineType::Q35, 1, &words, |root: &mut Archive, machine| {
            machine.has_card = false;
            change(machine);
            let before = root.content_bytes();
            rootfs::add_program(root, SQLITE, rootfs::PATH)?;
            machine.memory_bytes += 2 * (root.content_bytes() - before);
            Ok(())
        })
    }

    /// Cuts the power at so many moments of a run, and says what was seen; an error if a cut loses
    /// something.
    pub fn cut(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        sound(&self.judge(log, cuts, seed, Cache::Honest)?, log, cuts, seed, disk(Cache::Honest))
    }

    /// The same with a disk that ignores flushes, or as if our driver sent none: an error if that
    /// loses nothing.
    pub fn bite(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        bites(&self.judge(log, cuts, seed, Cache::Ignoring)?, log, cuts, seed)
    }

    fn judge(&self, log: &Log, cuts: u64, seed: u64, cache: Cache) -> Result<Vec<Broken>> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join("disk");
        judge_cuts(log, cuts, seed, disk(cache), |image, marks| {
            image.write_file(&file)?;
            self.judge_one(&file, kept(marks))
        })
    }

    /// What is wrong with a disk on which that is to be. The image is changed.
    fn judge_one(&self, file: &Path, [files, rows @ ..]: Kept) -> Result<Option<String>> {
        let problem = self.programs.judge(file, files, Mending::Journal)?;
        if problem.is_some() {
            return Ok(problem);
        }
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        for name in ["db", "db-journal"] {
            self.programs.copy_out(file, name, folder.path())?;
        }
        table::missing(&folder.path().join("db"), &rows)
    }

    /// Boots what so many cuts leave: our guest recovers it, reads all that was kept, and writes
    /// again; then this machine finds it sound, too. Says what was seen.
    pub fn boot_cuts(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join("disk");
        let mut recovered = 0;
        for cut in cut::cuts(log, cuts, seed) {
            let inside = cut.image(log, disk(Cache::Honest));
            let kept = kept(&log.marks(cut.position).collect::<Vec<_>>());
            let blocks = self
                .boot_one(&inside, &file, kept)
                .with_context(|| format!("cut {} of seed {seed} is booted", cut.number))?;
            recovered += usize::from(blocks > 0);
        }
        ensure!(recovered > 0, "no journal of {cuts} cuts had anything to recover");
        Ok(format!("{cuts} of them were booted, {recovered} with a journal to recover: all was there"))
    }

    /// Boots one; so many blocks came from its journal.
    fn boot_one(&self, inside: &Image, file: &Path, kept: Kept) -> Result<u64> {
        match &self.encrypted {
            Some(disk) => disk.write_file(inside, file)?,
            None => inside.write_file(file)?,
        }
        let drive = Drive { file: file.to_owned(), is_read_only: false };
        let guest = self.boot(LOOK, table::QUERY, |machine| machine.drive = Some(drive))?;
        let mut blocks = 0;
        with_console(guest, |guest| {
            let line = guest.heard("volume: /data: ext4 of ", LIMIT)?;
            let number = line.split(", ").last().and_then(|words| words.split(' ').next()?.parse().ok());
            blocks = number.with_context(|| format!("no number of blocks: {line}"))?;
            guest.heard("look: table", LIMIT)?;
            guest.heard("look: end", LIMIT)?;
            let said = guest.transcript.iter().skip_while(|line| !line.contains("look: table")).skip(1);
            let said: Vec<&str> = said.map(String::as_str).take_while(|line| !line.contains("look: end")).collect();
            if kept[1..].iter().any(|rows| *rows > 0) {
                let problem = table::of_answer(&(said.join("\n") + "\n"), &kept[1..]);
                ensure!(problem.is_none(), "{problem:?}");
            }
            let status = guest.finish(LIMIT)?;
            ensure!(status == 0, "the program that looks ended with status {status}");
            Ok(())
        })?;
        if let Some(disk) = &self.encrypted {
            disk.decrypted(&Image::read_file(file)?)?.write_file(file)?;
        }
        // It was ended in order, so there is nothing to mend, either.
        let problem = self.programs.find_problem(file)?;
        ensure!(problem.is_none(), "after the boot: {problem:?}");
        let problem = self.judge_one(file, kept)?;
        ensure!(problem.is_none(), "after the boot: {problem:?}");
        Ok(blocks)
    }
}

/// Marks what the guest says that it has kept, until it is done.
fn follow(guest: &mut Guest, server: &Server) -> Result<()> {
    loop {
        let line = guest.expect("writer: ", LIMIT)?;
        if line.contains("writer: done") {
            return Ok(());
        }
        let mark = mark_of(&line).with_context(|| format!("the guest says: {line}"))?;
        server.mark(mark)?;
    }
}

/// The mark for a line `writer: kept WRITER PIECE;`.
fn mark_of(line: &str) -> Option<u64> {
    let (writer, piece) = line.split("writer: kept ").nth(1)?.split(';').next()?.split_once(' ')?;
    let (writer, piece): (u64, u64) = (writer.parse().ok()?, piece.parse().ok()?);
    (writer < WRITERS as u64).then_some(writer << WRITER_SHIFT | piece)
}

fn kept(marks: &[u64]) -> Kept {
    let mut kept = [0; WRITERS];
    for mark in marks {
        let writer = &mut kept[(mark >> WRITER_SHIFT) as usize];
        *writer = (*writer).max(mark & u64::from(u32::MAX));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_writer_has_its_own_marks() {
        let marks: Vec<u64> = ["writer: kept 0 1;", "writer: kept 2 7;", "x writer: kept 0 2;", "writer: kept 2 6;"]
            .iter()
            .map(|line| mark_of(line).unwrap())
            .collect();
        assert_eq!(kept(&marks), [2, 0, 7]);
        for line in ["writer: kept 3 1;", "writer: kept 1", "writer: failed: x", "writer: kept 1 x;"] {
            assert_eq!(mark_of(line), None, "{line}");
        }
    }
}
