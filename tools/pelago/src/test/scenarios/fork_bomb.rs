//! Tier 4: programs that fork without end. Whatever their forks have to say, or make others say, is
//! a few lines, and a web server beside them keeps answering.

use crate::host::port;
use crate::machine::guest::{Event, Guest};
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::bad_program::{self, PAGE};
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// How long lines are counted, and how many of the system may come meanwhile.
const COUNTED: Duration = Duration::from_secs(5);
const LINES_MAX: usize = 40;
/// What each bomb says first.
const STARTS: &str = "bomb starts";

struct Case {
    name: &'static str,
    body: &'static str,
    /// How the shell starts it, beside the server. Without a `wait` it would become what it runs
    /// last.
    command: &'static str,
    /// Of a line that it has to lead to, so that there is something to be bounded.
    shows: &'static str,
    /// By night only: another way to the same bounds.
    nightly: bool,
}

const CASES: [Case; 5] = [
    // Soon no fork is left to be had: what refuses them has much to say.
    Case {
        name: "forks",
        body: "for (;;) call(57, 0, 0, 0, 0, 0, 0);",
        command: "/bad; wait",
        shows: "",
        nightly: false,
    },
    // The first program itself is the bomb: the server, which it started, is another program.
    Case {
        name: "first",
        body: "for (;;) call(57, 0, 0, 0, 0, 0, 0);",
        command: "exec /bad",
        shows: "",
        nightly: true,
    },
    // All forks write by the kernel's own call, for ever.
    Case {
        name: "logs",
        body: r#"
    for (;;) {
        call(57, 0, 0, 0, 0, 0, 0);
        for (int n = 0; n < 20; n++) native(1, (long)"one of many\n", 12, 0, 0, 0, 0);
    }"#,
        command: "/bad; wait",
        shows: " messages of linux-",
        nightly: false,
    },
    // What the first program starts are programs of their own, as far as time goes.
    Case {
        name: "children",
        body: r#"
    for (int n = 0; n < 20; n++) native(1, (long)"one of many\n", 12, 0, 0, 0, 0);
    leave(0);"#,
        command: "while :; do /bad; done; wait",
        shows: " messages of linux-",
        nightly: true,
    },
    // Each fork ends past its proxy, with a status that no proxy gives.
    Case {
        name: "ends",
        body: r#"
    for (;;) {
        if (call(57, 0, 0, 0, 0, 0, 0) == 0) native(44, -1, 0, 0, 0, 0, 0);
        call(61, -1, 0, 0, 0, 0, 0);
    }"#,
        command: "/bad; wait",
        shows: ": its proxy ended",
        nightly: true,
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let matrix = CASES.iter().flat_map(|case| [1, 2].map(|cpus| (case, cpus)));
    matrix
        .map(|(case, cpus)| {
            Scenario::shared(4, format!("fork-bomb/{}/{cpus}", case.name), move |bench| check(bench, case, cpus))
                .by_night(case.nightly || cpus == 1)
        })
        .collect()
}

fn check(bench: &Bench, case: &Case, cpus: u32) -> Result<()> {
    let program = bad_program::compile(&format!("say(\"{STARTS}\\n\", {});{}", STARTS.len() + 1, case.body))?;
    let port = port::free()?;
    let script = format!("httpd -f -p 80 -h /www & {}", case.command);
    let guest = bad_program::boot_beside_server(bench, cpus, &script, port, vec![("root/bad", program)])?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        guest.heard(STARTS, LIMIT)?;
        let lines = count(guest)?;
        println!("     {}/{cpus}: {lines} lines in {} s", case.name, COUNTED.as_secs());
        ensure!(lines <= LINES_MAX, "{lines} lines came in {} s", COUNTED.as_secs());
        guest.heard(case.shows, LIMIT)?;
        let got = web::fetch(&guest.liveness(), &format!("http://127.0.0.1:{port}/page"), LIMIT)
            .context("the request beside the bomb")?;
        ensure!(got == PAGE, "the request beside the bomb got another page");
        Ok(())
    })
}

/// How many lines the system writes while the bomb goes on.
fn count(guest: &mut Guest) -> Result<usize> {
    let (end, mut lines) = (Instant::now() + COUNTED, 0);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        match guest.next(left) {
            Ok(Some(Event::Line { whole, .. })) => lines += usize::from(whole.starts_with("pelago: ")),
            Ok(Some(_)) => {}
            Ok(None) => bail!("the machine ended"),
            // The time is over.
            Err(_) => break,
        }
    }
    Ok(lines)
}
