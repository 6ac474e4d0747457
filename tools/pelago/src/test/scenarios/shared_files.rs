//! Tier 3: files in memory that is shared: a program of checks (`shared_files.c`), and processes
//! that find each other at one sqlite database in WAL mode.

use super::checks;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const WRITERS: u32 = 3;
const ROWS_EACH: u32 = 10;
const CHECKS: &str = include_str!("shared_files.c");

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("shared-files/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    let mut all: Vec<_> = [1, 2].map(of).into();
    // What it stands on, the others ask in a tenth of the time.
    all.push(Scenario::shared(3, "shared-files/sqlite/2".into(), |bench| sqlite(bench, 2)).by_night(true));
    all
}

/// Writers of three processes wait for each other by locks and by the memory of the log's index,
/// which all have mapped: each row is told, and is there.
fn sqlite(bench: &Bench, cpus: u32) -> Result<()> {
    if crate::host::path::find("sqlite3").is_none() {
        bail!(Skip::Package { program: "sqlite3", package: "sqlite3" });
    }
    let script = format!(
        "sqlite3 /tmp/db 'pragma journal_mode=wal; create table t(x)' || exit 3\n\
         for w in $(seq {WRITERS}); do\n\
           (for i in $(seq {ROWS_EACH}); do sqlite3 -cmd '.timeout 60000' /tmp/db \"insert into t values($w*1000+$i)\" 2>>/tmp/refused$w && echo row >>/tmp/told$w; done) &\n\
         done; wait\n\
         echo refused $(cat /tmp/refused* | wc -l)\n\
         echo told $(cat /tmp/told* | wc -l) found $(sqlite3 /tmp/db 'select count(distinct x) from t') end\n\
         sqlite3 /tmp/db 'pragma integrity_check'"
    );
    let guest = bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", &script], |root, machine| {
        let before = root.content_bytes();
        rootfs::add_program(root, "sqlite3", rootfs::PATH)?;
        machine.memory_bytes += 2 * (root.content_bytes() - before);
        Ok(())
    })?;
    with_console(guest, |guest| {
        let line = guest.expect("told ", LIMIT)?;
        let mut words = line.split("told ").nth(1).context("no count")?.split_whitespace();
        let (told, found) = (words.next(), words.nth(1));
        let all = (WRITERS * ROWS_EACH).to_string();
        ensure!(told == found && told == Some(&all), "rows were lost or refused: {line}");
        guest.expect("ok", LIMIT)?;
        let status = guest.finish(LIMIT)?;
        ensure!(status == 0, "status {status}");
        Ok(())
    })
}
