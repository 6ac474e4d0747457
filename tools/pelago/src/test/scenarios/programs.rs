//! Tier 3: unmodified Linux programs, by their output and their status.

use crate::image::machine_type::MachineType;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

struct Case {
    name: &'static str,
    program: &'static [&'static str],
    /// Lines that must come, in this order.
    expect: &'static [&'static str],
    status: i32,
}

const CASES: [Case; 7] = [
    Case {
        name: "echo",
        program: &["busybox", "echo", "hello from pelago"],
        expect: &["hello from pelago"],
        status: 0,
    },
    Case { name: "status", program: &["busybox", "sh", "-c", "exit 7"], expect: &[], status: 7 },
    Case { name: "false", program: &["busybox", "false"], expect: &[], status: 1 },
    Case { name: "cat", program: &["busybox", "cat", "/etc/hostname"], expect: &["pelago"], status: 0 },
    Case {
        name: "pipe",
        program: &["busybox", "sh", "-c", "ls / | grep -x etc; echo abc | wc -c; echo -n hello | md5sum"],
        expect: &["etc", "4", "5d41402abc4b2a76b9719d911017c592"],
        status: 0,
    },
    Case {
        name: "fork",
        program: &[
            "busybox",
            "sh",
            "-c",
            "for i in 1 2 3 4 5 6 7 8; do (exit $i) || echo child $?; done; wait; echo done",
        ],
        expect: &["child 1", "child 8", "done"],
        status: 0,
    },
    Case {
        name: "files",
        program: &[
            "busybox",
            "sh",
            "-c",
            "mkdir /tmp/d && echo x >/tmp/d/f && mv /tmp/d/f /tmp/g && cat /tmp/g && rm /tmp/g && ls /tmp/g",
        ],
        expect: &["x"],
        status: 1,
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let matrix = CASES.iter().flat_map(|case| [1, 2].map(|cpus| (case, cpus)));
    matrix
        .map(|(case, cpus)| {
            Scenario::shared(3, format!("programs/{}/{cpus}", case.name), move |bench| check(bench, case, cpus))
        })
        .collect()
}

fn check(bench: &Bench, case: &Case, cpus: u32) -> Result<()> {
    let guest = bench.boot(MachineType::Q35, cpus, case.program, |_, _| Ok(()))?;
    with_console(guest, |guest| {
        for words in case.expect {
            guest.expect(words, LIMIT)?;
        }
        let status = guest.finish(LIMIT)?;
        ensure!(status == case.status, "status {status} instead of {}", case.status);
        Ok(())
    })
}
