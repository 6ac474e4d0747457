//! The command `acct`: where each core's time went, who paid for what each domain ran, and for whom
//! it was done.
//!
//! Of each core a line `core N`, then one for each of its domains: how long it ran, and whose
//! scheduling contexts paid for that, the most first. A domain pays for itself unless others called
//! its portals. What is in no row of its ledger is paid by `others`. A second line of a component
//! with clients says for whom it was done, as it says itself: since that was asked first, so the
//! first answer has none. Who works for clients that come by channels pays for them: the two lines
//! differ, and the difference is what such clients do not pay.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use channel::CallError;
use contracts::supervisor::{CoreTime, LedgerLine, SupervisorClient, SupervisorError, Work};

use crate::commands::{Answer, CORES_MAX, NO_ANSWER};

/// What servers call monitors, whose domains are called by their cores.
const MONITOR: &str = "monitor";

/// Carries the command out.
pub(crate) async fn accounts(supervisor: &SupervisorClient) -> Answer {
    let mut cores: Vec<Core> = Vec::new();
    let late = |error: CallError<SupervisorError>| format!("{NO_ANSWER} ({error:?})");
    for core in 0..CORES_MAX {
        let time = match supervisor.core_time(core).await {
            Err(CallError::Server(SupervisorError::NotFound)) => break,
            answer => answer.map_err(late)?,
        };
        let Some(time) = time else { continue };
        let (mut books, mut from) = (Vec::new(), 0);
        while let Some(ledger) = supervisor.ledger(core, from).await.map_err(late)? {
            from = ledger.domain + 1;
            let work = supervisor.work(core, ledger.domain).await.map_err(late)?;
            books.push((ledger, work));
        }
        cores.push(Core { number: core, time, books });
    }
    let names: Vec<&str> = cores.iter().flat_map(|core| &core.books).map(|(ledger, _)| ledger.name.as_str()).collect();
    let lines = cores.iter().flat_map(|core| core.shown(&names)).collect();
    Ok((lines, format!("{} cores", cores.len())))
}

/// A core's books.
struct Core {
    number: u32,
    time: CoreTime,
    /// Its domains: who paid for each, and whom each worked for, if it says so.
    books: Vec<(LedgerLine, Option<Work>)>,
}

impl Core {
    /// `names`: those of all cores' domains.
    fn shown(&self, names: &[&str]) -> Vec<String> {
        let ledgers = self.books.iter().map(|(ledger, _)| ledger).collect::<Vec<_>>();
        let mut lines = Vec::from([core_shown(self.number, &self.time)]);
        for (ledger, work) in &self.books {
            lines.push(ledger_shown(ledger, &ledgers));
            lines.extend(work.as_ref().and_then(|work| work_shown(work, names)));
        }
        lines
    }
}

fn core_shown(core: u32, time: &CoreTime) -> String {
    let CoreTime { clock_ns, idle_ns, kernel_ns, domains_ns, ended_ns } = *time;
    let booked_ns = idle_ns + kernel_ns + domains_ns + ended_ns;
    let [clock, domains, ended, kernel, idle, none] =
        [clock_ns, domains_ns, ended_ns, kernel_ns, idle_ns, clock_ns.saturating_sub(booked_ns)].map(|ns| ns / 1000);
    format!(
        "core {core:<3} {clock:>10} us: domains {domains} us, ended {ended} us, kernel {kernel} us, idle {idle} us, nobody {none} us"
    )
}

fn ledger_shown(line: &LedgerLine, all: &[&LedgerLine]) -> String {
    let mut paid: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &line.paid {
        *paid.entry(name_of(row.client, line, all)).or_default() += row.paid_ns;
    }
    let in_rows: u64 = line.paid.iter().map(|row| row.paid_ns).sum();
    *paid.entry("others").or_default() += line.cpu_ns.saturating_sub(in_rows);
    format!("  {:<20} {:>10} us, paid by {}", line.name, line.cpu_ns / 1000, parts_shown(paid))
}

/// `None`: it worked for nobody.
fn work_shown(work: &Work, names: &[&str]) -> Option<String> {
    let mut parts: BTreeMap<&str, u64> = BTreeMap::from([("others", work.others_ns), ("ended", work.ended_ns)]);
    for (client, ns) in &work.clients {
        // A program that ended while this was asked.
        let is_there = names.contains(&client.as_str()) || client == MONITOR;
        *parts.entry(if is_there { client } else { "ended" }).or_default() += ns;
    }
    let for_clients_ns: u64 = parts.values().sum();
    let in_no_task_ns = work.ran_ns.saturating_sub(for_clients_ns + work.own_ns);
    parts.extend([("itself", work.own_ns), ("no task", in_no_task_ns)]);
    let shown = || format!("  {:<20} {:>10} us, done for {}", "", work.ran_ns / 1000, parts_shown(parts));
    (for_clients_ns > 0).then(shown)
}

/// The most first.
fn parts_shown(parts: BTreeMap<&str, u64>) -> String {
    let mut parts: Vec<(&str, u64)> = parts.into_iter().filter(|(_, ns)| *ns > 0).collect();
    parts.sort_by_key(|(_, ns)| core::cmp::Reverse(*ns));
    let parts: Vec<String> = parts.iter().map(|(name, ns)| format!("{name} {} us", ns / 1000)).collect();
    parts.join(", ")
}

/// Who paid for that domain, as people know it: time is donated on one core only.
fn name_of<'a>(client: u64, line: &LedgerLine, all: &[&'a LedgerLine]) -> &'a str {
    if client == line.domain {
        return "itself";
    }
    all.iter().find(|other| other.domain == client).map_or("ended", |other| &other.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contracts::supervisor::Paid;

    fn ledger(domain: u64, name: &str, cpu_ns: u64, paid: &[(u64, u64)]) -> LedgerLine {
        let row = |(number, (client, paid_ns)): (usize, &(u64, u64))| Paid {
            payer: number as u64,
            client: *client,
            paid_ns: *paid_ns,
        };
        LedgerLine { domain, name: name.into(), cpu_ns, paid: paid.iter().enumerate().map(row).collect() }
    }

    #[test]
    fn a_line_says_who_paid_the_most_first() {
        let all = [
            ledger(7, "disk", 9_000_000, &[(7, 1_000_000), (9, 3_000_000), (8, 2_000_000), (9, 500_000)]),
            ledger(8, "crypto", 0, &[]),
            ledger(9, "client", 5000, &[(9, 5000)]),
        ];
        let shown: Vec<String> = all
            .iter()
            .map(|line| ledger_shown(line, &all.each_ref()).split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            shown,
            [
                "disk 9000 us, paid by client 3500 us, others 2500 us, crypto 2000 us, itself 1000 us",
                "crypto 0 us, paid by",
                "client 5 us, paid by itself 5 us",
            ]
        );
        let gone = ledger(7, "disk", 3000, &[(5, 1000), (0, 2000)]);
        assert!(ledger_shown(&gone, &all.each_ref()).ends_with("paid by ended 3 us"));
    }

    #[test]
    fn a_second_line_says_for_whom_and_sums_to_all_that_ran() {
        let work = |clients: &[(&str, u64)], own_ns, ran_ns| Work {
            clients: clients.iter().map(|(client, ns)| ((*client).into(), *ns)).collect(),
            others_ns: 1000,
            ended_ns: 2000,
            own_ns,
            ran_ns,
        };
        let shown = |work: &Work| work_shown(work, &["fs", "linux-2"]).unwrap();
        let told = shown(&work(&[("linux-2", 70_000), ("linux-5", 4000), ("monitor", 3000)], 9000, 100_000));
        assert_eq!(
            told.split_whitespace().collect::<Vec<_>>().join(" "),
            "100 us, done for linux-2 70 us, no task 11 us, itself 9 us, ended 6 us, monitor 3 us, others 1 us"
        );
        // Never less than nothing, and no line of whom nobody asked.
        assert!(shown(&work(&[("fs", 70_000)], 9000, 80_000)).ends_with("itself 9 us, ended 2 us, others 1 us"));
        let nobodys = Work { others_ns: 0, ended_ns: 0, ..work(&[], 9000, 10_000) };
        assert_eq!(work_shown(&nobodys, &[]), None);
    }

    #[test]
    fn what_is_in_no_account_is_shown() {
        let time = CoreTime { clock_ns: 100_000, idle_ns: 30_000, kernel_ns: 1000, domains_ns: 60_000, ended_ns: 7000 };
        assert!(core_shown(2, &time).contains("domains 60 us, ended 7 us, kernel 1 us, idle 30 us, nobody 2 us"));
    }
}
