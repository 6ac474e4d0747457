//! Tier 4: the servers behind a volume die and hang under Linux programs that write to it.
//!
//! `volume-faults/disk/*`: the disk's. busybox appends and two sqlite add rows, all synced
//! (`writers.sh`): they see no error, and each row is there. `volume-faults/crypto*`: the same on
//! an encrypted disk, and who encrypts dies as well. `volume-faults/volume/*`: the volume's own.
//! Who had a file open is told EIO, its journal is recovered, and each row that was said to be
//! synced is there (`appends.sh`). After any of them `e2fsck` of this machine finds nothing.

use super::volume::Disk;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::block::encrypted::Encrypted;
use crate::machine::block::image::Image;
use crate::machine::block::server::{Fault, On, Server};
use crate::machine::emulator::Drive;
use crate::machine::guest::Guest;
use crate::test::disk::table;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use system::Mount;

const LIMIT: Duration = Duration::from_secs(120);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
const WRITERS: &str = include_str!("volume_faults/writers.sh");
const APPENDS: &str = include_str!("volume_faults/appends.sh");
/// How long a server has between two deaths.
const PAUSE: Duration = Duration::from_millis(300);
/// Deaths in a plain run; each so many is a hang.
const KILLS: usize = 12;
const HANG_EVERY: usize = 6;
const NIGHTLY_KILLS: usize = 300;
/// A late disk has each write and flush under way for so long.
const LATE: Duration = Duration::from_millis(4);
/// At one death of a server in so many it holds one back.
const HELD_EVERY: usize = 2;
const ENCRYPTED_BYTES: u64 = 64 << 20;
/// Deaths of the volume's server; the last one together with the disk's.
const VOLUME_KILLS: usize = 5;
/// Which of them is a hang.
const VOLUME_HANG: usize = 3;
const MOUNTED: &str = "volume: /data: ext4 of ";

/// What the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// A file of this machine.
    File,
    /// Served by this tool, and late.
    Late,
    /// The same, and encrypted.
    Encrypted,
}

/// What dies how often, on which machine.
#[derive(Clone, Copy)]
struct Case {
    machine: MachineType,
    cpus: u32,
    medium: Medium,
    deaths: usize,
}

pub fn scenarios() -> Vec<Scenario> {
    use Medium::{Encrypted, File, Late};
    let q35 = |cpus, medium, deaths| Case { machine: MachineType::Q35, cpus, medium, deaths };
    // How the disk's server comes back on other machines is shown by `disk/kill/*`.
    let mmio = Case { machine: MachineType::MicrovmMmio, ..q35(1, File, KILLS) };
    let of = |name: &str, case| Scenario::shared(4, format!("volume-faults/{name}"), move |bench| die(bench, case));
    let by_night = |name: &str, case| {
        Scenario::nightly(4, format!("volume-faults/{name}/{NIGHTLY_KILLS}"), move |bench| die(bench, case))
    };
    let others = vec![
        of("disk/q35/2", q35(2, Late, KILLS)),
        of("disk/q35/1", q35(1, Late, KILLS)).by_night(true),
        of("disk/microvm-mmio/1", mmio).by_night(true),
        by_night("disk", q35(2, Late, NIGHTLY_KILLS)),
        of("crypto/q35/2", q35(2, Encrypted, KILLS)),
        of("crypto/q35/1", q35(1, Encrypted, KILLS)).by_night(true),
        by_night("crypto", q35(2, Encrypted, NIGHTLY_KILLS)),
    ];
    let volume = [1, 2].map(|cpus| {
        let name = format!("volume-faults/volume/q35/{cpus}");
        Scenario::shared(4, name, move |bench| volume_dies(bench, cpus)).by_night(cpus == 1)
    });
    others.into_iter().chain(volume).collect()
}

/// A disk, by its file or by its server.
struct Served {
    server: Option<Server>,
    socket: PathBuf,
    encrypted: Option<Encrypted>,
    disk: Disk,
}

impl Served {
    fn new(medium: Medium) -> Result<Served> {
        let disk = Disk::new()?;
        let socket = disk.image().with_file_name("socket");
        let mut served = Served { server: None, socket, encrypted: None, disk };
        if medium == Medium::Encrypted {
            served.encrypted = Some(Encrypted::make(ENCRYPTED_BYTES)?);
        } else {
            served.disk.format()?;
        }
        if medium != Medium::File {
            let of_file = || Image::read_file(&served.disk.image());
            let image = served.encrypted.as_ref().map_or_else(of_file, |disk| Ok(disk.image.clone()))?;
            served.server = Some(Server::start(&served.socket, image)?);
        }
        Ok(served)
    }

    fn boot(&self, bench: &Bench, case: Case) -> Result<Guest> {
        let mount = Mount { path: "/data".into(), is_read_only: false };
        let bed = match &self.encrypted {
            Some(disk) => bench.with_encrypted_volume(mount, disk.handover.clone())?,
            None => bench.with_volume(mount)?,
        };
        bed.boot(case.machine, case.cpus, &["busybox", "sh", "-c", WRITERS], |root, machine| {
            machine.has_card = false;
            match self.server {
                Some(_) => machine.block = Some(self.socket.clone()),
                None => machine.drive = Some(Drive { file: self.disk.image(), is_read_only: false }),
            }
            let before = root.content_bytes();
            rootfs::add_program(root, "sqlite3", rootfs::PATH)?;
            machine.memory_bytes += 2 * (root.content_bytes() - before);
            Ok(())
        })
    }

    /// From now on it takes its time.
    fn be_late(&self) {
        if let Some(server) = &self.server {
            [On::Writes, On::Flushes].into_iter().for_each(|on| server.inject(on, u32::MAX, Fault::Delay(LATE)));
        }
    }

    /// The volume's tree. The guest has ended.
    fn judge(&mut self) -> Result<PathBuf> {
        if let Some(server) = self.server.take() {
            let last = server.finish()?.last();
            let inside = self.encrypted.as_ref().map(|disk| disk.decrypted(&last)).transpose()?;
            inside.unwrap_or(last).write_file(&self.disk.image())?;
        }
        self.disk.judge()
    }
}

/// Servers die again and again, and nobody sees anything of it.
fn die(bench: &Bench, case: Case) -> Result<()> {
    if crate::host::path::find("sqlite3").is_none() {
        bail!(Skip::Package { program: "sqlite3", package: "sqlite3" });
    }
    let mut served = Served::new(case.medium)?;
    with_console(served.boot(bench, case)?, |guest| {
        (0..3).try_for_each(|writer| guest.heard(&format!("writers: {writer} is at 1"), LIMIT).map(drop))?;
        served.be_late();
        let deaths = kill_servers(guest, &served, case)?;
        guest.tell(b"\n")?;
        let kept = [0, 1, 2].map(|writer| kept(guest, &format!("writers: kept {writer} ")));
        let [rows, first, second] = kept;
        let (rows, first, second) = (rows?, first?, second?);
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let busy = check_lines(guest, deaths)?;
        let least = match case.medium {
            // This machine is done with a request before the next signal, most times.
            Medium::File => 0,
            Medium::Late | Medium::Encrypted => deaths.disk / HELD_EVERY,
        };
        ensure!(busy >= least, "of {} deaths of the disk's server {busy} had requests under way", deaths.disk);
        let tree = served.judge()?;
        let wanted: String = (1..=rows).map(|row| format!("row {row}\n")).collect();
        ensure!(fs::read_to_string(tree.join("rows"))? == wanted, "the file is not that of {rows} rows");
        let missing = table::missing(&tree.join("db"), &[first, second])?;
        ensure!(missing.is_none(), "{missing:?}");
        println!(
            "     {}/{}: {} deaths of the disk's server, {busy} with requests under way, and {} of who encrypts; no error, and {rows} appends, {first} and {second} rows of sqlite are there",
            case.machine.name(),
            case.cpus,
            deaths.disk,
            deaths.crypto
        );
        Ok(())
    })
}

/// How often each died.
#[derive(Clone, Copy, Default)]
struct Deaths {
    disk: usize,
    crypto: usize,
}

/// Kills the servers below the volume so often, in turn if there are two. Where this tool serves
/// the disk, some die while it holds a request back.
fn kill_servers(guest: &mut Guest, served: &Served, case: Case) -> Result<Deaths> {
    let mut deaths = Deaths::default();
    for death in 1..=case.deaths {
        let verb = if death.is_multiple_of(HANG_EVERY) { "hang" } else { "kill" };
        // Either hangs, too.
        let is_crypto = case.medium == Medium::Encrypted && (death + death / HANG_EVERY) % 2 == 1;
        let (victim, count) = if is_crypto { ("crypto", &mut deaths.crypto) } else { ("disk", &mut deaths.disk) };
        *count += 1;
        let server = served.server.as_ref().filter(|_| count.is_multiple_of(HELD_EVERY));
        let held = server.map(|server| server.hold(LIMIT)).transpose()?;
        let reply = guest.control(&format!("chaos {verb} {victim}"), CONTROL_LIMIT)?;
        drop(held);
        ensure!(reply.contains(&format!("{victim}; generation {} serves", *count + 1)), "{reply}");
        listen(guest, PAUSE)?;
    }
    Ok(deaths)
}

/// What the disk's server said at its starts.
fn disk_starts(guest: &Guest) -> impl Iterator<Item = &String> {
    guest.transcript.iter().filter(|line| line.contains("disk: ") && line.contains(", start "))
}

/// No error, no reset of the device, and the volume's server lived; how many deaths of the disk's
/// server had requests under way.
fn check_lines(guest: &Guest, deaths: Deaths) -> Result<usize> {
    let started = disk_starts(guest).count();
    ensure!(started == deaths.disk + 1, "{started} starts of the disk's server");
    let is_bad = |line: &&String| {
        ["writers: failed", "cannot be read", "cannot be written", "cannot flush"]
            .iter()
            .any(|words| line.contains(words))
            || (line.contains("disk: the device is reset") && !line.contains("Heirs"))
    };
    ensure!(mounts(guest) == 1, "the volume was opened {} times", mounts(guest));
    if let Some(line) = guest.transcript.iter().find(is_bad) {
        bail!("{line}");
    }
    Ok(disk_starts(guest).filter(|line| !line.contains(" 0 requests under way")).count())
}

/// How often the volume was opened.
fn mounts(guest: &Guest) -> usize {
    guest.transcript.iter().filter(|line| line.contains(MOUNTED)).count()
}

/// The number that a line of the program begins with behind some words.
fn kept(guest: &mut Guest, words: &str) -> Result<u64> {
    let line = guest.heard(words, LIMIT)?;
    let number = line.split(words).nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
    number.with_context(|| format!("no number: {line}"))
}

/// Hears what is said for so long.
fn listen(guest: &mut Guest, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while matches!(guest.next(end.saturating_duration_since(Instant::now())), Ok(Some(_))) {}
    let failed = guest.transcript.iter().find(|line| line.contains("writers: failed"));
    failed.map_or(Ok(()), |line| bail!("{line}"))
}

/// The volume's server dies again and again; it is back each time, with all that was synced.
fn volume_dies(bench: &Bench, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    fs::write(disk.tree().join("held"), "held by one that has it open\n")?;
    disk.format()?;
    let guest = disk.boot(bench, MachineType::Q35, cpus, false, APPENDS)?;
    with_console(guest, |guest| {
        guest.expect("appends: at 1", LIMIT)?;
        let mut back_ms = Vec::new();
        for death in 1..=VOLUME_KILLS {
            listen(guest, PAUSE)?;
            back_ms.push(kill_volume(guest, death)?);
            ensure!(guest.input().send(b"look\n"), "the guest is gone");
            let line = guest.expect("appends: open: ", LIMIT)?;
            ensure!(line.contains("Input/output error"), "a description of before: {line}");
            guest.expect("appends: again: held", LIMIT)?;
        }
        ensure!(guest.input().send(b"stop\n"), "the guest is gone");
        let rows = kept(guest, "appends: kept ")?;
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        let told: Vec<&String> = guest.transcript.iter().filter(|line| line.contains("appends: told: ")).collect();
        let other = told.iter().find(|line| !line.contains("Input/output error"));
        ensure!(other.is_none(), "an append failed otherwise: {other:?}");
        let repeated = check_rows(&fs::read_to_string(disk.judge()?.join("rows"))?, rows)?;
        ensure!(repeated <= told.len(), "{repeated} rows are there twice, and {} errors were told", told.len());
        println!(
            "     q35/{cpus}: {VOLUME_KILLS} deaths of the volume's server, back after {back_ms:.0?} ms; {rows} rows are there, {} appends were told EIO, {repeated} of them are there twice",
            told.len()
        );
        Ok(())
    })
}

/// Kills the volume's server; after so many milliseconds it has recovered the journal.
fn kill_volume(guest: &mut Guest, death: usize) -> Result<f64> {
    let verb = if death == VOLUME_HANG { "hang" } else { "kill" };
    let before = mounts(guest);
    let begin = Instant::now();
    let reply = guest.control(&format!("chaos {verb} volume"), CONTROL_LIMIT)?;
    ensure!(reply.contains(&format!("volume; generation {} serves", death + 1)), "{reply}");
    if death == VOLUME_KILLS {
        // It opens the volume just now, or has.
        let reply = guest.control("chaos kill disk", CONTROL_LIMIT)?;
        ensure!(reply.contains("disk; generation 2 serves"), "{reply}");
    }
    if mounts(guest) == before {
        guest.expect(MOUNTED, LIMIT)?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// Whether all rows are there, in order; how many are there twice, since their writer was told an
/// error though they were written.
fn check_rows(rows: &str, kept: u64) -> Result<usize> {
    let (mut last, mut repeated) = (0, 0);
    for line in rows.lines() {
        let row = line.strip_prefix("row ").and_then(|row| row.parse().ok());
        let row: u64 = row.with_context(|| format!("`{line}` is no row"))?;
        ensure!(row == last || row == last + 1, "row {row} follows row {last}");
        repeated += usize::from(row == last);
        last = row;
    }
    ensure!(last == kept, "the last row is {last}, and {kept} were synced");
    Ok(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_row_is_missed() {
        assert_eq!(check_rows("row 1\nrow 2\nrow 2\nrow 3\n", 3).unwrap(), 1);
        for rows in ["row 1\nrow 3\n", "row 1\nrow 2\n", "row 2\nrow 3\n", "row 1\nrow 2\n\0\0\0\nrow 3\n", ""] {
            assert!(check_rows(rows, 3).is_err(), "{rows:?}");
        }
    }
}
