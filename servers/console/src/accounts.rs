//! The command `acct`: where each core's time went, and who paid for what each domain ran.
//!
//! Of each core a line `core N`, then one for each of its domains: how long it ran, and whose
//! scheduling contexts paid for that, the most first. A domain pays for itself unless others called
//! its portals. What is in no row of its ledger is paid by `others`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use channel::CallError;
use contracts::supervisor::{CoreTime, LedgerLine, SupervisorClient, SupervisorError};

use crate::commands::{Answer, CORES_MAX, NO_ANSWER};

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
        let mut ledgers: Vec<LedgerLine> = Vec::new();
        let next = |ledgers: &[LedgerLine]| ledgers.last().map_or(0, |line| line.domain + 1);
        while let Some(line) = supervisor.ledger(core, next(&ledgers)).await.map_err(late)? {
            ledgers.push(line);
        }
        cores.push(Core { number: core, time, ledgers });
    }
    Ok((cores.iter().flat_map(Core::shown).collect(), format!("{} cores", cores.len())))
}

/// A core's books.
struct Core {
    number: u32,
    time: CoreTime,
    ledgers: Vec<LedgerLine>,
}

impl Core {
    fn shown(&self) -> Vec<String> {
        let ledgers = self.ledgers.iter().map(|line| ledger_shown(line, &self.ledgers));
        core::iter::once(core_shown(self.number, &self.time)).chain(ledgers).collect()
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

fn ledger_shown(line: &LedgerLine, all: &[LedgerLine]) -> String {
    let mut paid: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &line.paid {
        *paid.entry(name_of(row.client, line, all)).or_default() += row.paid_ns;
    }
    let in_rows: u64 = line.paid.iter().map(|row| row.paid_ns).sum();
    *paid.entry("others").or_default() += line.cpu_ns.saturating_sub(in_rows);
    let mut paid: Vec<(&str, u64)> = paid.into_iter().filter(|(_, ns)| *ns > 0).collect();
    paid.sort_by_key(|(_, ns)| core::cmp::Reverse(*ns));
    let paid: Vec<String> = paid.iter().map(|(name, ns)| format!("{name} {} us", ns / 1000)).collect();
    format!("  {:<20} {:>10} us, paid by {}", line.name, line.cpu_ns / 1000, paid.join(", "))
}

/// Who paid for that domain, as people know it: time is donated on one core only.
fn name_of<'a>(client: u64, line: &LedgerLine, all: &'a [LedgerLine]) -> &'a str {
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
        let shown: Vec<String> =
            all.iter().map(|line| ledger_shown(line, &all).split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            shown,
            [
                "disk 9000 us, paid by client 3500 us, others 2500 us, crypto 2000 us, itself 1000 us",
                "crypto 0 us, paid by",
                "client 5 us, paid by itself 5 us",
            ]
        );
        let gone = ledger(7, "disk", 3000, &[(5, 1000), (0, 2000)]);
        assert!(ledger_shown(&gone, &all).ends_with("paid by ended 3 us"));
    }

    #[test]
    fn what_is_in_no_account_is_shown() {
        let time = CoreTime { clock_ns: 100_000, idle_ns: 30_000, kernel_ns: 1000, domains_ns: 60_000, ended_ns: 7000 };
        assert!(core_shown(2, &time).contains("domains 60 us, ended 7 us, kernel 1 us, idle 30 us, nobody 2 us"));
    }
}
