//! `./pelago disk-test`: whether what a guest said it had kept is there after a power cut.
//!
//! A guest writes to a disk that this tool serves (`machine::block`) and says of each piece of work
//! when it is kept. From one run the disk is made as it is after a cut at many moments, and judged
//! ([`judge`]). That the test would find what it is for is seen by a disk that ignores flushes, and
//! by a file system that was told to send none: both have to fail.
//!
//! The guests are Linux, which runs `writer.sh`; our own with programs on its volume ([`volume`]);
//! and our own with a program that writes sectors ([`native`]).

mod ext4;
mod judge;
pub mod native;
pub mod table;
pub mod volume;

use judge::{Mending, Programs};
use native::Native;
use volume::Volume;

use crate::bench::peer::Linux;
use crate::host::place;
use crate::machine::accelerator;
use crate::machine::block::cut::{self, Cache, Cut, Disk};
use crate::machine::block::image::Image;
use crate::machine::block::log::{Content, Entry, Log};
use crate::machine::block::server::{Fault, On, Server};
use crate::machine::emulator::Accelerator;
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use crate::test::scenario::with_console;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Enough for four journals of the smallest size, and quickly checked.
const DISK_BYTES: u64 = 64 << 20;
const WRITER: &str = include_str!("writer.sh");
const WRITER_PATH: &str = "writer";
/// What it says when faults may come.
const MOUNTED: &str = "writer: mounted";
/// Of the guest's file system: with trims, too.
const OPTIONS: &str = "discard";
const OPTIONS_WITHOUT_FLUSHES: &str = "discard,nobarrier";
/// Of a boot, or of one piece of work, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// One cut that loses something is enough to see that the test finds it.
const BITES_MAX: u64 = 20;
/// So many cuts of our own volume are booted.
const BOOTS_MAX: u64 = 10;
/// How often the connection to the disk is lost for each of writes and flushes, and how late it is
/// in between.
const FAULTS: u32 = 3;
const DELAY: Duration = Duration::from_millis(20);

/// Options of `disk-test`.
#[derive(Args)]
pub struct Options {
    /// Moments of the run at which the power is cut
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    cuts: u64,
    /// Pieces of work that the guest does
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pieces: u64,
    /// What the dice of the cuts begin with; printed if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::AccelChoice,
}

/// Runs it; fails where a cut loses something, or where a lying disk does not.
pub fn run(options: &Options) -> Result<ExitCode> {
    let (accelerator, reason) = accelerator::choose(options.accel);
    println!("the guest runs by {}: {reason}", accelerator.name());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = options.seed.unwrap_or_else(now);
    let bites = options.cuts.min(BITES_MAX);
    let testbed = Testbed::new(options.accel)?;
    let native = Native::new(testbed.clone(), options.pieces);
    let log = native.record()?;
    println!("Pelago: {}", native.cut(&log, options.cuts, seed)?);
    println!("Pelago, a disk that ignores flushes: {}", native.bite(&log, bites, seed)?);
    let log = native.record_with_faults()?;
    println!("Pelago, a disk that is late, away or short at times: {}", native.cut(&log, options.cuts, seed)?);
    volume_test(&testbed, options, bites, seed)?;
    let test = Test::prepare(accelerator, options.pieces)?;
    let log = test.record()?;
    println!("{}", test.cut(&log, options.cuts, seed)?);
    println!("a disk that ignores flushes: {}", test.bite(&log, bites, seed, Cache::Ignoring)?);
    let log = test.record_without_flushes()?;
    println!("a file system that sends none: {}", test.bite(&log, bites, seed, Cache::Honest)?);
    let log = test.record_with_faults()?;
    println!("a disk that is late and away at times: {}", test.cut(&log, options.cuts, seed)?);
    println!("a disk that fails to flush: {}", test.cut_with_error(&test.record_with_error()?, options.cuts, seed)?);
    Ok(ExitCode::SUCCESS)
}

fn volume_test(testbed: &Testbed, options: &Options, bites: u64, seed: u64) -> Result<()> {
    let volume = Volume::prepare(testbed, options.pieces)?;
    let log = volume.record()?;
    println!("Pelago's volume: {}", volume.cut(&log, options.cuts, seed)?);
    println!("Pelago's volume: {}", volume.boot_cuts(&log, options.cuts.min(BOOTS_MAX), seed)?);
    println!("Pelago's volume, a disk that ignores flushes: {}", volume.bite(&log, bites, seed)?);
    let log = volume.record_with_faults()?;
    println!("Pelago's volume, a disk that is late and away at times: {}", volume.cut(&log, options.cuts, seed)?);
    let volume = Volume::prepare_encrypted(testbed, options.pieces)?;
    let log = volume.record()?;
    println!("Pelago's encrypted volume: {}", volume.cut(&log, options.cuts, seed)?);
    println!("Pelago's encrypted volume: {}", volume.boot_cuts(&log, options.cuts.min(BOOTS_MAX), seed)?);
    println!("Pelago's encrypted volume, a disk that ignores flushes: {}", volume.bite(&log, bites, seed)?);
    Ok(())
}

/// What the test needs.
pub struct Test {
    linux: Linux,
    programs: Programs,
    accelerator: Accelerator,
    pieces: u64,
}

/// A cut that is not sound: how many pieces of work were kept before it, and what is wrong.
struct Broken {
    cut: Cut,
    kept: usize,
    problem: String,
}

impl Test {
    /// Finds all that is needed. What the machine lacks is a [`Skip`](crate::host::skip::Skip) or
    /// an error that says what to do.
    pub fn prepare(accelerator: Accelerator, pieces: u64) -> Result<Test> {
        let programs = Programs::find()?;
        let linux = Linux::find(None)?.with_module("virtio_blk");
        Ok(Test { linux, programs, accelerator, pieces })
    }

    /// A run with a disk that is as it should be. The log to cut.
    pub fn record(&self) -> Result<Log> {
        self.record_with(OPTIONS, |_| ()).map(|(log, _)| log)
    }

    /// A run of a guest that was told that flushes are not needed.
    pub fn record_without_flushes(&self) -> Result<Log> {
        self.record_with(OPTIONS_WITHOUT_FLUSHES, |_| ()).map(|(log, _)| log)
    }

    /// A run with a disk that is late and whose connection is lost, again and again. The guest does
    /// not notice.
    pub fn record_with_faults(&self) -> Result<Log> {
        let inject = |server: &Server| {
            for _ in 0..FAULTS {
                server.inject(On::Writes, 20, Fault::Delay(DELAY));
                server.inject(On::Writes, 1, Fault::Disconnect);
                server.inject(On::Flushes, 5, Fault::Delay(DELAY));
                server.inject(On::Flushes, 1, Fault::Disconnect);
            }
        };
        let (log, connections) = self.record_with(OPTIONS, inject)?;
        ensure!(connections > FAULTS, "the emulator connected {connections} times only: no connection was lost");
        Ok(log)
    }

    /// A run in which the disk fails to flush from half of the work on. What was to be kept then is
    /// not, and the guest knows it; of what it has kept before nothing is lost.
    pub fn record_with_error(&self) -> Result<Log> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (guest, server) = self.boot(folder.path(), OPTIONS)?;
        with_console(guest, |guest| {
            guest.expect(MOUNTED, LIMIT)?;
            let before = self.pieces / 2;
            self.follow(guest, &server, 1..=before)?;
            server.inject(On::Flushes, u32::MAX, Fault::Error);
            let next = format!("writer: kept {};", before + 1);
            let line = guest.expect("writer: ", LIMIT)?;
            ensure!(!line.contains(&next), "a flush failed, and yet: {line}");
            let status = guest.finish(LIMIT)?;
            ensure!(status == 1, "the writer ended with status {status} after a failed flush");
            Ok(())
        })?;
        server.finish()
    }

    /// Has the guest do its work; what was asked of its disk, and how often it was connected.
    fn record_with(&self, options: &str, inject: impl FnOnce(&Server)) -> Result<(Log, u32)> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (guest, server) = self.boot(folder.path(), options)?;
        with_console(guest, |guest| {
            guest.expect(MOUNTED, LIMIT)?;
            inject(&server);
            self.follow(guest, &server, 1..=self.pieces)?;
            let status = guest.finish(LIMIT)?;
            ensure!(status == 0, "the writer ended with status {status}");
            Ok(())
        })?;
        let connections = server.connections();
        Ok((server.finish()?, connections))
    }

    /// Starts the guest with a new file system on its disk.
    fn boot(&self, folder: &Path, options: &str) -> Result<(Guest, Server)> {
        let (file, socket) = (folder.join("disk"), folder.join("socket"));
        self.programs.make(&file, DISK_BYTES)?;
        let server = Server::start(&socket, Image::read_file(&file)?)?;
        let pieces = self.pieces.to_string();
        let machine = self.linux.machine(1, self.accelerator);
        let words = ["/bin/busybox", "sh", WRITER_PATH, options, &pieces];
        let guest = self.linux.boot(machine, &words, |archive, machine| {
            archive.file(WRITER_PATH, 0o755, WRITER.as_bytes().to_vec());
            machine.block = Some(socket.clone());
            Ok(())
        })?;
        Ok((guest, server))
    }

    /// Marks what the guest says that it has kept; it goes on when that is done.
    fn follow(&self, guest: &mut Guest, server: &Server, pieces: RangeInclusive<u64>) -> Result<()> {
        for number in pieces {
            guest.expect(&format!("writer: kept {number};"), LIMIT)?;
            server.mark(number)?;
            ensure!(guest.input().send(b"\n"), "the guest is gone");
        }
        Ok(())
    }

    /// Cuts the power at so many moments of a run, and says what was seen; an error if a cut loses
    /// something.
    pub fn cut(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        self.cut_mended(log, cuts, seed, Mending::Journal)
    }

    /// The same of a run with a disk that failed.
    pub fn cut_with_error(&self, log: &Log, cuts: u64, seed: u64) -> Result<String> {
        self.cut_mended(log, cuts, seed, Mending::Failure)
    }

    fn cut_mended(&self, log: &Log, cuts: u64, seed: u64, mending: Mending) -> Result<String> {
        let broken = self.judge(log, cuts, seed, Cache::Honest, mending)?;
        sound(&broken, log, cuts, seed, disk(Cache::Honest))
    }

    /// Cuts the power of a disk that ignores flushes, or of a guest that sends none: an error if
    /// that loses nothing, since then the test would find nothing either.
    pub fn bite(&self, log: &Log, cuts: u64, seed: u64, cache: Cache) -> Result<String> {
        bites(&self.judge(log, cuts, seed, cache, Mending::Journal)?, log, cuts, seed)
    }

    fn judge(&self, log: &Log, cuts: u64, seed: u64, cache: Cache, mending: Mending) -> Result<Vec<Broken>> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join("disk");
        judge(log, cuts, seed, disk(cache), |image, marks| {
            image.write_file(&file)?;
            self.programs.judge(&file, judge::last(marks), mending)
        })
    }
}

/// A disk with ext4.
fn disk(cache: Cache) -> Disk {
    Disk { cache, whole: ext4::whole }
}

/// Those of so many cuts that are not sound: `problem` looks at a disk on which all is to be that
/// was marked.
fn judge(
    log: &Log,
    cuts: u64,
    seed: u64,
    disk: Disk,
    mut problem: impl FnMut(&Image, &[u64]) -> Result<Option<String>>,
) -> Result<Vec<Broken>> {
    let mut broken = Vec::new();
    for cut in cut::cuts(log, cuts, seed) {
        let marks: Vec<u64> = log.marks(cut.position).collect();
        if let Some(problem) = problem(&cut.image(log, disk), &marks)? {
            broken.push(Broken { cut, kept: marks.len(), problem });
        }
    }
    Ok(broken)
}

/// What was seen if none is broken; else an error, and the first one's disk is left to look at.
fn sound(broken: &[Broken], log: &Log, cuts: u64, seed: u64, disk: Disk) -> Result<String> {
    let Some(Broken { cut, kept, problem }) = broken.first() else {
        return Ok(format!("{cuts} cuts of a run of {}: all are sound (seed {seed})", counted(log)));
    };
    let left = place::out().join("disk-test.img");
    cut.image(log, disk).write_file(&left)?;
    bail!(
        "{} of {cuts} cuts of a run of {} are not sound; cut {} of seed {seed}, after {} of {} entries with {kept} pieces kept, is in {}: {problem}",
        broken.len(),
        counted(log),
        cut.number,
        cut.position,
        log.entries().len(),
        left.display()
    );
}

/// What was seen if some are broken, as they have to be; else an error.
fn bites(broken: &[Broken], log: &Log, cuts: u64, seed: u64) -> Result<String> {
    let Some(Broken { problem, .. }) = broken.first() else {
        bail!("{cuts} cuts of a run of {} lose nothing, and have to (seed {seed})", counted(log));
    };
    let problem = problem.lines().next().unwrap_or_default();
    Ok(format!("{} of {cuts} cuts lose something, as they have to; the first: {problem}", broken.len()))
}

fn counted(log: &Log) -> String {
    let count = |is: fn(&Entry) -> bool| log.entries().iter().filter(|entry| is(entry)).count();
    format!(
        "{} writes, {} trims or zeros, {} flushes and {} pieces kept",
        count(|entry| matches!(entry, Entry::Write { content: Content::Data(_), .. })),
        count(|entry| matches!(entry, Entry::Write { content: Content::Zeros(_), .. })),
        count(|entry| matches!(entry, Entry::Flush { .. })),
        count(|entry| matches!(entry, Entry::Mark(_)))
    )
}
