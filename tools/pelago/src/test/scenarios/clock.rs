//! Tier 3: the time of day of the guest beside the host's: how far apart they are after boot, and
//! how fast they part.
//!
//! The guest is asked for its time, and the host looks at its own before and after. So a slow
//! answer makes a judgement milder and never wrong.

use super::checks;
use crate::host::late::late;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(60);
/// Questions in a row, of which the quickest answers count.
const QUESTIONS: u32 = 12;
/// How long the clocks are left to part.
const APART: Duration = Duration::from_secs(10);
const SECOND_NS: i128 = 1_000_000_000;
/// How far behind and ahead the guest may be: it is told when its emulator was started, and a busy
/// host starts that late.
const BEHIND_NS: i128 = SECOND_NS;
const AHEAD_NS: i128 = SECOND_NS * 3 / 10;
/// How fast the clocks may part. Boot finds the rate to 50.
const PARTS_PER_MILLION: i128 = 200;

/// Tells the time for each `t` typed.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    char typed;
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("clock: ready");
    while (read(0, &typed, 1) == 1 && typed != 'q') {
        struct timespec now;
        if (typed != 't') continue;
        clock_gettime(CLOCK_REALTIME, &now);
        printf("time %ld%09ld\n", now.tv_sec, now.tv_nsec);
    }
    return 0;
}
"#;

pub fn scenarios() -> Vec<Scenario> {
    let all = [MachineType::Q35, MachineType::Microvm, MachineType::MicrovmMmio];
    all.map(|machine| {
        Scenario::shared(3, format!("clock/{}", machine.name()), move |bench| run(bench, machine)).waiting()
    })
    .into()
}

fn run(bench: &Bench, machine: MachineType) -> Result<()> {
    let program = checks::compile(PROGRAM)?;
    let guest = bench.boot(machine, 2, &["busybox", "sh", "-c", "exec /clock"], |root, _| {
        root.file("root/clock", 0o755, program);
        Ok(())
    })?;
    with_console(guest, |guest| {
        guest.expect("clock: ready", LIMIT)?;
        let mut last_ns = 0;
        let (early, early_ns) = ask(guest, &mut last_ns)?;
        std::thread::sleep(APART);
        let (later, later_ns) = ask(guest, &mut last_ns)?;
        early.judge(later, later_ns - early_ns)?;
        ensure!(guest.input().send(b"q\n"), "the guest is gone");
        let status = guest.finish(LIMIT)?;
        ensure!(status == 0, "status {status}");
        Ok(())
    })
}

/// Between what the guest's clock is ahead of the host's, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    least: i128,
    most: i128,
}

impl Ahead {
    /// Fails if the clocks were too far apart at first, or parted too fast in `passed_ns`. That the
    /// guest is behind is how late its emulator was started, and nothing but that if all else is
    /// right.
    fn judge(self, later: Ahead, passed_ns: i128) -> Result<()> {
        let told = || format!("after boot the guest is ahead by {self:?} ns");
        ensure!(self.least <= AHEAD_NS, "{}", told());
        let may_ns = passed_ns * PARTS_PER_MILLION / 1_000_000;
        let (least, most) = (later.least - self.most, later.most - self.least);
        ensure!(most >= -may_ns && least <= may_ns, "in {passed_ns} ns the guest got ahead by {least} to {most} ns");
        if self.most < -BEHIND_NS {
            return Err(late(told(), &[]));
        }
        Ok(())
    }
}

/// Asks the guest some times, and gives when that was.
fn ask(guest: &mut Guest, last_ns: &mut i128) -> Result<(Ahead, i128)> {
    let mut ahead = Ahead { least: i128::MIN, most: i128::MAX };
    let mut before_ns = 0;
    for _ in 0..QUESTIONS {
        before_ns = now_ns()?;
        ensure!(guest.input().send(b"t\n"), "the guest is gone");
        let line = guest.expect("time ", LIMIT)?;
        let after_ns = now_ns()?;
        let told = line.split("time ").nth(1).and_then(|rest| rest.trim().parse::<i128>().ok());
        let told_ns = told.with_context(|| format!("no time in: {line}"))?;
        ensure!(told_ns >= *last_ns, "the time of day went back from {last_ns} to {told_ns}");
        *last_ns = told_ns;
        ahead.least = ahead.least.max(told_ns - after_ns);
        ahead.most = ahead.most.min(told_ns - before_ns);
    }
    Ok((ahead, before_ns))
}

fn now_ns() -> Result<i128> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?;
    Ok(since.as_nanos() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::late::Late;

    #[test]
    fn clocks_that_are_apart_or_part_are_found() {
        let between = |least_ms: i128, most_ms: i128| Ahead { least: least_ms * 1_000_000, most: most_ms * 1_000_000 };
        let passed_ns = 10 * SECOND_NS;
        assert!(between(-50, 0).judge(between(-51, -1), passed_ns).is_ok());
        // A slow answer may hide what a quick one shows.
        assert!(between(-500, 900).judge(between(-400, 800), passed_ns).is_ok());
        for (early, late) in [
            (between(400, 450), between(400, 450)),
            (between(-1300, -1200), between(-1300, -1200)),
            (between(0, 1), between(4, 5)),
            (between(0, 1), between(-5, -4)),
        ] {
            let error = early.judge(late, passed_ns).expect_err("they are not found");
            // One that was started late.
            assert_eq!(error.is::<Late>(), early.most < -BEHIND_NS, "{early:?} {late:?}");
        }
    }
}
