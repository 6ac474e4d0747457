//! Tier 3: files, locks, clocks and descriptors as Linux programs see them: a program of checks
//! (`files.c`), several sqlite writers at once, and what shells and file utilities do.

use super::checks;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(120);
/// sqlite is started for each row: each start maps its libraries.
const WRITERS_LIMIT: Duration = Duration::from_secs(300);
const WRITERS: u32 = 3;
const ROWS_EACH: u32 = 10;
const CHECKS: &str = include_str!("files.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |name: &'static str, body: fn(&Bench, u32) -> Result<()>| {
        [1, 2].map(|cpus| Scenario::shared(3, format!("files/{name}/{cpus}"), move |bench| body(bench, cpus)))
    };
    let mut all = Vec::new();
    all.extend(of("checks", checks));
    all.push(Scenario::shared(3, "files/sqlite/2".into(), |bench| sqlite(bench, 2)));
    all.extend(of("utilities", utilities));
    all.extend([MachineType::Q35, MachineType::Microvm, MachineType::MicrovmMmio].map(|machine| {
        Scenario::shared(3, format!("files/clock/{}", machine.name()), move |bench| clock(bench, machine))
    }));
    all
}

/// The program of checks, and the host's clock.
fn checks(bench: &Bench, cpus: u32) -> Result<()> {
    let program = checks::compile(CHECKS)?;
    let begun = now()?;
    with_console(checks::boot(bench, cpus, program)?, |guest| {
        is_between(&guest.expect("time ", LIMIT)?, begun)?;
        checks::pass(guest)
    })
}

/// Writers that find each other at work lose no row, and the file stays whole.
fn sqlite(bench: &Bench, cpus: u32) -> Result<()> {
    if crate::host::path::find("sqlite3").is_none() {
        bail!(Skip::Package { program: "sqlite3", package: "sqlite3" });
    }
    let script = format!(
        "sqlite3 /tmp/db 'create table t(x)' || exit 3\n\
         for w in $(seq {WRITERS}); do\n\
           (for i in $(seq {ROWS_EACH}); do sqlite3 -cmd '.timeout 200000' /tmp/db \"insert into t values($w*1000+$i)\" || echo lost $w $i; done) &\n\
         done; wait\n\
         sqlite3 /tmp/db \"select 'rows', count(distinct x), 'of', count(*) from t; pragma integrity_check\""
    );
    let guest = bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", &script], |root, machine| {
        add(root, machine, &["sqlite3"])
    })?;
    with_console(guest, |guest| {
        guest.expect(&format!("rows|{0}|of|{0}", WRITERS * ROWS_EACH), WRITERS_LIMIT)?;
        guest.expect("ok", LIMIT)?;
        ends_well(guest)
    })
}

/// Debian's own utilities print no error, and shells redirect to what they name. `du` would, on
/// Linux too, about the descriptor by which it has read the list of its own.
fn utilities(bench: &Bench, cpus: u32) -> Result<()> {
    const SCRIPT: &str = "\
        (echo to-error >/dev/stderr) 2>/tmp/error; echo to-output >/dev/stdout\n\
        cat /tmp/error; cat /dev/stdin </tmp/error; (echo to-number >/dev/fd/3) 3>/tmp/number; cat /tmp/number\n\
        test -L /dev/stderr && echo a link still\n\
        dd if=/dev/urandom bs=1M count=3 2>/tmp/dd | wc -c; cat /tmp/dd\n\
        dd if=/dev/zero bs=1M count=2 2>/tmp/dd | wc -c; cat /tmp/dd\n\
        /bin/ls -l / /dev /tmp >/tmp/list 2>/tmp/errors; echo ls $?; cat /tmp/errors\n\
        /usr/bin/du -s --exclude=fd /proc >/tmp/sum 2>/tmp/errors; echo du $?; cat /tmp/errors\n\
        mkdir /tmp/many; cd /tmp/many; seq 3000 | xargs touch; ls -A | wc -l; cd /; rm -r /tmp/many && echo removed";
    let guest = bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", SCRIPT], |root, machine| {
        add(root, machine, &["/bin/ls", "/usr/bin/du"])
    })?;
    with_console(guest, |guest| {
        let lines = [
            "to-output",
            "to-error",
            "to-error",
            "to-number",
            "a link still",
            "3145728",
            "3+0 records in",
            "2097152",
            "2+0 records in",
        ];
        for words in lines.into_iter().chain(["ls 0", "du 0", "3000", "removed"]) {
            guest.expect(words, LIMIT)?;
        }
        ensure!(!guest.tail().contains("circular"), "du finds a circle");
        ends_well(guest)
    })
}

/// The time of day is the host's, on each core.
fn clock(bench: &Bench, machine: MachineType) -> Result<()> {
    let begun = now()?;
    let guest = bench.boot(
        machine,
        2,
        &["busybox", "sh", "-c", "for i in 1 2 3 4; do date +'time %s'; done"],
        |_, _| Ok(()),
    )?;
    with_console(guest, |guest| {
        for _ in 0..4 {
            is_between(&guest.expect("time ", LIMIT)?, begun)?;
        }
        ends_well(guest)
    })
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?.as_secs())
}

/// A guest's time, from a line `time SECONDS`, lies between the host's then and now. A clock of
/// whole seconds is off by one at most.
fn is_between(line: &str, begun: u64) -> Result<()> {
    let told = line.split("time ").nth(1).and_then(|rest| rest.trim().parse::<u64>().ok());
    let told = told.with_context(|| format!("no time in: {line}"))?;
    let now = now()?;
    ensure!((begun - 1..=now + 1).contains(&told), "the guest's time is {told}, this machine's was {begun} to {now}");
    Ok(())
}

fn ends_well(guest: &mut Guest) -> Result<()> {
    let status = guest.finish(LIMIT)?;
    ensure!(status == 0, "status {status}");
    Ok(())
}

/// Programs of this machine, and room for them.
fn add(root: &mut crate::image::archive::Archive, machine: &mut Machine, names: &[&str]) -> Result<()> {
    let before = root.content_bytes();
    names.iter().try_for_each(|name| rootfs::add_program(root, name, rootfs::PATH).map(drop))?;
    machine.memory_bytes += 2 * (root.content_bytes() - before);
    Ok(())
}
