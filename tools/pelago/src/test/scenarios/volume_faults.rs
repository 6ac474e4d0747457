//! Tier 4: the servers behind a volume die and hang under Linux programs that write to it.
//!
//! `volume-faults/disk/*`: the disk's. busybox appends and two sqlite add rows, all synced
//! (`writers.sh`): they see no error, and each row is there. `volume-faults/volume/*`: the volume's
//! own. Who had a file open is told EIO, its journal is recovered, and each row that was said to be
//! synced is there (`appends.sh`). After either `e2fsck` of this machine finds nothing.

use super::volume::Disk;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::guest::Guest;
use crate::test::disk::table;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
const WRITERS: &str = include_str!("volume_faults/writers.sh");
const APPENDS: &str = include_str!("volume_faults/appends.sh");
/// How long a server has between two deaths.
const PAUSE: Duration = Duration::from_millis(300);
/// Deaths of the disk's server in a plain run; each so many is a hang.
const KILLS: usize = 12;
const HANG_EVERY: usize = 6;
const NIGHTLY_KILLS: usize = 300;
/// Of those of a night so many have requests under way. Of few none may have any, where the host is
/// done with a request before the next signal: `disk/kill/*` has them in a plain run, too.
const BUSY_KILLS: usize = 20;
/// Deaths of the volume's server; the last one together with the disk's.
const VOLUME_KILLS: usize = 5;
/// Which of them is a hang.
const VOLUME_HANG: usize = 3;
const MOUNTED: &str = "volume: /data: ext4 of ";

pub fn scenarios() -> Vec<Scenario> {
    let disk = [(MachineType::Q35, 2), (MachineType::Q35, 1), (MachineType::MicrovmMmio, 1)].map(|(machine, cpus)| {
        let name = format!("volume-faults/disk/{}/{cpus}", machine.name());
        // How the disk's server comes back on other machines is shown by `disk/kill/*`.
        let is_plain = (machine, cpus) == (MachineType::Q35, 2);
        Scenario::shared(4, name, move |bench| disk_dies(bench, machine, cpus, KILLS)).by_night(!is_plain)
    });
    let long = Scenario::nightly(4, format!("volume-faults/disk/{NIGHTLY_KILLS}"), |bench| {
        disk_dies(bench, MachineType::Q35, 2, NIGHTLY_KILLS)
    });
    let volume = [1, 2].map(|cpus| {
        let name = format!("volume-faults/volume/q35/{cpus}");
        Scenario::shared(4, name, move |bench| volume_dies(bench, cpus)).by_night(cpus == 1)
    });
    disk.into_iter().chain([long]).chain(volume).collect()
}

/// The disk's server dies again and again, and nobody sees anything of it.
fn disk_dies(bench: &Bench, machine: MachineType, cpus: u32, kills: usize) -> Result<()> {
    if crate::host::path::find("sqlite3").is_none() {
        bail!(Skip::Package { program: "sqlite3", package: "sqlite3" });
    }
    let disk = Disk::new()?;
    disk.format()?;
    let guest = disk.boot_with(bench, machine, cpus, false, WRITERS, |root, machine| {
        let before = root.content_bytes();
        rootfs::add_program(root, "sqlite3", rootfs::PATH)?;
        machine.memory_bytes += 2 * (root.content_bytes() - before);
        Ok(())
    })?;
    with_console(guest, |guest| {
        (0..3).try_for_each(|writer| guest.heard(&format!("writers: {writer} is at 1"), LIMIT).map(drop))?;
        let busy = kill_disk(guest, kills)?;
        ensure!(
            kills < NIGHTLY_KILLS || busy >= BUSY_KILLS,
            "the disk's server was idle nearly each time that it died"
        );
        ensure!(guest.input().send(b"\n"), "the guest is gone");
        let kept = [0, 1, 2].map(|writer| kept(guest, &format!("writers: kept {writer} ")));
        let [rows, first, second] = kept;
        let (rows, first, second) = (rows?, first?, second?);
        ensure!(guest.finish(LIMIT)? == 0, "the program failed");
        check_lines(guest, kills)?;
        let tree = disk.judge()?;
        let wanted: String = (1..=rows).map(|row| format!("row {row}\n")).collect();
        ensure!(fs::read_to_string(tree.join("rows"))? == wanted, "the file is not that of {rows} rows");
        let missing = table::missing(&tree.join("db"), &[first, second])?;
        ensure!(missing.is_none(), "{missing:?}");
        println!(
            "     {}/{cpus}: {kills} deaths of the disk's server, {busy} with requests under way; no error, and {rows} appends, {first} and {second} rows of sqlite are there",
            machine.name()
        );
        Ok(())
    })
}

/// Kills the disk's server so often; how many of them had requests under way.
fn kill_disk(guest: &mut Guest, kills: usize) -> Result<usize> {
    for death in 1..=kills {
        let verb = if death.is_multiple_of(HANG_EVERY) { "hang" } else { "kill" };
        let reply = guest.control(&format!("chaos {verb} disk"), CONTROL_LIMIT)?;
        ensure!(reply.contains(&format!("disk; generation {} serves", death + 1)), "{reply}");
        listen(guest, PAUSE)?;
    }
    Ok(disk_starts(guest).filter(|line| !line.contains(" 0 requests under way")).count())
}

/// What the disk's server said at its starts.
fn disk_starts(guest: &Guest) -> impl Iterator<Item = &String> {
    guest.transcript.iter().filter(|line| line.contains("disk: ") && line.contains(", start "))
}

/// No error, no reset of the device, and the volume's server lived.
fn check_lines(guest: &Guest, deaths: usize) -> Result<()> {
    let started = disk_starts(guest).count();
    ensure!(started == deaths + 1, "{started} starts of the disk's server");
    let is_bad = |line: &&String| {
        ["writers: failed", "cannot be read", "cannot be written", "cannot flush"]
            .iter()
            .any(|words| line.contains(words))
            || (line.contains("disk: the device is reset") && !line.contains("Heirs"))
    };
    ensure!(mounts(guest) == 1, "the volume was opened {} times", mounts(guest));
    guest.transcript.iter().find(is_bad).map_or(Ok(()), |line| bail!("{line}"))
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
