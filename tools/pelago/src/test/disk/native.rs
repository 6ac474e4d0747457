//! The same of our own guest, without a file system: `apps/disk-check` writes all of a small disk
//! by `servers/disk`, round after round, and says of each that it is kept. Each sector holds its
//! number and the round, so a disk is sound if none holds an earlier round than the last one kept.
//!
//! The guest does not wait until that is noted, so a mark may come late; never early.

use super::{Broken, DELAY, FAULTS, LIMIT, bites, judge, sound};
use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::block::SECTOR_BYTES;
use crate::machine::block::cut::{Cache, Disk};
use crate::machine::block::image::Image;
use crate::machine::block::log::Log;
use crate::machine::block::server::{Fault, On, Server};
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use crate::test::scenario::with_console;
use anyhow::{Context, Result, ensure};
use std::path::Path;

const SYSTEM: &str = "disk.toml";
/// Words for `disk-check` (`apps/disk-check/src/main.rs`).
const KEEP: &str = "disk-check.keep=";
const LEAVE: &str = "disk-check.leave";
/// What it says when it has failed, and of a program that wrote.
const FAILED: &str = "disk-check: failed: ";
const LEFT: &str = "disk-check: it is written, and not flushed";
/// Of a run of many rounds everything is kept, in memory.
const DISK_BYTES: u64 = 256 << 10;

/// What the test needs.
pub struct Native {
    testbed: Testbed,
    rounds: u64,
}

impl Native {
    /// Runs of so many rounds.
    pub fn new(testbed: Testbed, rounds: u64) -> Native {
        Native { testbed, rounds }
    }

    /// A run with a disk that is as it should be. The log to cut.
    pub fn record(&self) -> Result<Log> {
        self.record_with(|_| ()).map(|(log, _)| log)
    }

    /// A run with a disk that is late, whose connection is lost, and that gives half of what was
    /// read, again and again. The guest does not notice.
    pub fn record_with_faults(&self) -> Result<Log> {
        let inject = |server: &Server| {
            for _ in 0..FAULTS {
                for on in [On::Reads, On::Writes, On::Flushes] {
                    server.inject(on, 5, Fault::Delay(DELAY));
                    server.inject(on, 1, Fault::Disconnect);
                }
                server.inject(On::Reads, 1, Fault::Short);
            }
        };
        let (log, connections) = self.record_with(inject)?;
        ensure!(connections > FAULTS, "the emulator connected {connections} times only: no connection was lost");
        Ok(log)
    }

    /// Has the guest do its work; what was asked of its disk, and how often it was connected.
    fn record_with(&self, inject: impl FnOnce(&Server)) -> Result<(Log, u32)> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (guest, server) = self.boot(folder.path(), &format!("{KEEP}{}", self.rounds))?;
        inject(&server);
        with_console(guest, |guest| {
            for round in 1..=self.rounds {
                guest.expect(&format!("disk-check: kept {round};"), LIMIT)?;
                server.mark(round)?;
            }
            guest.expect("disk-check: done", LIMIT).map(drop)
        })?;
        let connections = server.connections();
        Ok((server.finish()?, connections))
    }

    /// The disk fails at such requests from half of the work on: the guest is told so, and the disk
    /// server serves on.
    pub fn fail(&self, on: On) -> Result<()> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (guest, server) = self.boot(folder.path(), &format!("{KEEP}{}", u32::MAX))?;
        with_console(guest, |guest| {
            guest.expect(&format!("disk-check: kept {};", self.rounds / 2), LIMIT)?;
            server.inject(on, u32::MAX, Fault::Error);
            let line = guest.expect(FAILED, LIMIT)?;
            ensure!(line.ends_with("Server(Io)"), "{on:?} failed, and it was told: {line}");
            let components = guest.control_lines("components", LIMIT)?;
            let disk = components.iter().find(|line| line.starts_with("disk ")).context("no line of the disk's")?;
            ensure!(disk.contains("generation 1 ") && disk.contains("running"), "the disk server ended: {disk}");
            Ok(())
        })
    }

    /// The machine is ended while a program has written and not flushed: all of that is durable.
    pub fn end(&self) -> Result<()> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (guest, server) = self.boot(folder.path(), LEAVE)?;
        with_console(guest, |guest| {
            guest.expect(LEFT, LIMIT)?;
            ensure!(guest.input().control("poweroff"), "the guest is gone");
            let status = guest.finish(LIMIT)?;
            ensure!(status == 0, "the machine ended with status {status}");
            Ok(())
        })?;
        let log = server.finish()?;
        log_ends_durable(&log)
    }

    fn boot(&self, folder: &Path, word: &str) -> Result<(Guest, Server)> {
        let socket = folder.join("socket");
        let server = Server::start(&socket, Image::zeros(DISK_BYTES))?;
        let system = description::load(&place::root().join("system").join(SYSTEM))?;
        let guest = self.testbed.boot_system(&system, MachineType::Q35, 1, &[], |_, machine| {
            machine.has_card = false;
            machine.block = Some(socket.clone());
            machine.command_line.push(word.to_owned());
            Ok(())
        })?;
        Ok((guest, server))
    }

    /// Cuts the power at so many moments of a run, and says what was seen; an error if a cut loses
    /// something.
    pub fn cut(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        sound(&self.judge(log, cuts, seed, Cache::Honest)?, log, cuts, seed, disk(Cache::Honest))
    }

    /// The same with a disk that ignores flushes: an error if that loses nothing.
    pub fn bite(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        bites(&self.judge(log, cuts, seed, Cache::Ignoring)?, log, cuts, seed)
    }

    fn judge(&self, log: &Log, cuts: u64, seed: u64, cache: Cache) -> Result<Vec<Broken>> {
        judge(log, cuts, seed, disk(cache), |image, marks| Ok(problem(image, super::judge::last(marks))))
    }
}

/// A disk that tears at every sector: nobody relies on more.
fn disk(cache: Cache) -> Disk {
    Disk { cache, whole: |_, _| Vec::new() }
}

/// What is wrong with a disk on which that round is to be, or later ones.
fn problem(image: &Image, kept: u64) -> Option<String> {
    let mut bytes = [0; SECTOR_BYTES as usize];
    for sector in 0..image.bytes() / SECTOR_BYTES {
        image.read(sector * SECTOR_BYTES, &mut bytes);
        let word = bytes.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        if bytes.chunks(8).any(|eight| eight != word.to_le_bytes()) {
            return Some(format!("sector {sector} is of several writes"));
        }
        let (round, of) = (word >> 32, word & u64::from(u32::MAX));
        if word != 0 && of != sector {
            return Some(format!("sector {sector} has the bytes of sector {of}"));
        }
        if round < kept {
            return Some(format!("sector {sector} is of round {round}, and round {kept} was kept"));
        }
    }
    None
}

/// Whether something was written, and all of it is durable at the end.
fn log_ends_durable(log: &Log) -> Result<()> {
    use crate::machine::block::log::Entry;
    let last = log.entries().iter().rposition(|entry| matches!(entry, Entry::Write { .. }));
    let last = last.context("nothing was written")?;
    let covers = |entry: &Entry| matches!(entry, Entry::Flush { covers } if *covers > last);
    ensure!(log.entries().iter().any(covers), "the machine ended, and what was written was not flushed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_round_is_missed() {
        let image = |words: &[u64]| {
            let mut image = Image::zeros(words.len() as u64 * SECTOR_BYTES);
            for (sector, word) in (0..).zip(words) {
                image.write(sector * SECTOR_BYTES, &word.to_le_bytes().repeat(SECTOR_BYTES as usize / 8));
            }
            image
        };
        let word = |round: u64, sector: u64| round << 32 | sector;
        assert_eq!(problem(&image(&[word(2, 0), word(3, 1)]), 2), None);
        assert_eq!(problem(&image(&[0, 0]), 0), None);
        for (words, said) in [
            ([word(2, 0), word(1, 1)], "sector 1 is of round 1"),
            ([0, word(2, 1)], "sector 0 is of round 0"),
            ([word(2, 0), word(2, 0)], "sector 1 has the bytes of sector 0"),
        ] {
            assert!(problem(&image(&words), 2).unwrap().contains(said));
        }
        let mut torn = image(&[word(2, 0)]);
        torn.write(504, &[0; 8]);
        assert!(problem(&torn, 0).unwrap().contains("several writes"));
    }
}
