//! Policy: what to do when a component dies, and what is remembered of each. Pure: events and times
//! in, decisions out.
//!
//! A component has a dispatcher, its domain; a program of several cores has one on each, which are
//! made, serve and end as one. Invariants: a component is restarted under the next generation, at
//! once if it served and later each time if it does not come to serve (`runtime::Backoff`), and
//! never given up for that; one that ended by itself with status 0 is done. Deliberately unknown
//! here: how components are made, messages.
//!
//! ```text
//!            started              serves
//!   Waiting ────────► Starting ◄─────────► Serving ──► Finished  ended by itself, status 0
//!                      ▲   │      died,       │
//!       refused, died: │   │    or one of its ├───────► GivenUp   it cannot be recovered, and the
//!       again, later   └───┤    dispatchers   │                   machine ends
//!                          └──────────────────┘                   or it cannot be started at all
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

use abi::DeathCause;
use contracts::monitor::STALLED;
use contracts::spawn::{Death, DomainId};
use runtime::Backoff;
use system::{Component, Restart};

/// The stage of a component's life.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Waiting`, `Starting` | it was started, or its start was refused for now | `Starting` |
/// | `Starting` | all its dispatchers serve | `Serving` |
/// | `Serving` | a dispatcher of a program is lost | `Starting` |
/// | `Starting`, `Serving` | it dies and is to be restarted | `Starting` |
/// | `Starting`, `Serving` | it exits with 0, and is restarted otherwise | `Finished` |
/// | any | it dies and is never restarted, or cannot be started | `GivenUp` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started yet.
    Waiting,
    /// Started, not ready.
    Starting,
    /// Ready.
    Serving,
    /// Ended by itself, and that is right.
    Finished,
    /// It cannot be started on this machine.
    GivenUp,
}

/// What to do after a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start it again, after a while.
    Restart {
        /// With this generation.
        generation: u64,
        /// So much later.
        after_ns: u64,
    },
    /// Nothing.
    Finished,
    /// The system cannot go on without it.
    End,
}

/// A domain of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatcher {
    /// The domain's name.
    pub name: String,
    /// Where it runs.
    pub core: u32,
    /// While it runs.
    pub domain: Option<DomainId>,
    /// It said that it is ready.
    pub serves: bool,
}

/// A component, as the supervisor knows it.
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What the description says.
    pub restart: Restart,
    /// It has dispatchers on several cores, and spawn tells of its end.
    pub is_program: bool,
    /// By core.
    pub dispatchers: Vec<Dispatcher>,
    /// Of the last start; 0 before the first.
    pub generation: u64,
    /// How it stands.
    pub phase: Phase,
    /// When it was seen dead or stalled, until it serves again.
    pub down_ns: Option<u64>,
    /// How long the last recovery took.
    pub recovery_ns: u64,
    /// When it was told to hang, until that is noticed.
    pub hung_ns: Option<u64>,
    /// How long the last hang that it was told to was not noticed; 0: its last end was another.
    pub noticed_ns: u64,
    backoff: Backoff,
    /// Since when it serves, until it dies or stalls.
    serving_since_ns: Option<u64>,
    /// How long it served before it stalled, or a program before its first death.
    served_ns: Option<u64>,
    /// The last generation that this supervisor started or tried to.
    begun: u64,
    /// The generation whose end is known: what is heard of it later is late.
    ended: u64,
}

impl Entry {
    /// Not started yet.
    pub fn new(component: &Component, cores: u32) -> Entry {
        let dispatcher = |(name, core)| Dispatcher { name, core, domain: None, serves: false };
        Entry {
            name: component.name.clone(),
            restart: component.restart,
            is_program: component.core.is_program(),
            dispatchers: component.domains(cores).into_iter().map(dispatcher).collect(),
            generation: 0,
            phase: Phase::Waiting,
            down_ns: None,
            recovery_ns: 0,
            hung_ns: None,
            noticed_ns: 0,
            backoff: Backoff::default(),
            serving_since_ns: None,
            served_ns: None,
            begun: 0,
            ended: 0,
        }
    }

    /// It is being started under that generation by this supervisor.
    pub fn begins(&mut self, generation: u64) {
        self.begun = generation;
    }

    /// It runs: the domain of a dispatcher, by number.
    pub fn started(&mut self, number: usize, domain: DomainId, generation: u64) {
        if generation <= self.ended {
            return;
        }
        self.generation = generation;
        let Some(dispatcher) = self.dispatchers.get_mut(number) else { return };
        if dispatcher.domain != Some(domain) {
            (dispatcher.domain, dispatcher.serves) = (Some(domain), false);
        }
        // It may have said that it serves before the answer to the start came.
        if self.phase != Phase::Serving {
            self.phase = Phase::Starting;
        }
    }

    /// A dispatcher serves; gives how long the component was down, if it was and this is the last
    /// that was missing.
    pub fn serves(&mut self, domain: DomainId, now_ns: u64) -> Option<u64> {
        let dispatcher = self.dispatchers.iter_mut().find(|dispatcher| dispatcher.domain == Some(domain))?;
        dispatcher.serves = true;
        if self.dispatchers.iter().any(|dispatcher| !dispatcher.serves) {
            return None;
        }
        self.phase = Phase::Serving;
        if self.served_ns.is_none() {
            self.serving_since_ns.get_or_insert(now_ns);
        }
        let down_ns = self.down_ns.take()?;
        self.recovery_ns = now_ns.saturating_sub(down_ns);
        Some(self.recovery_ns)
    }

    /// A dispatcher of a program died: the program ends, which is told when the last is gone.
    pub fn lost(&mut self, domain: DomainId, now_ns: u64) {
        let dispatcher = self.dispatchers.iter_mut().find(|dispatcher| dispatcher.domain == Some(domain));
        let Some(dispatcher) = dispatcher else { return };
        (dispatcher.domain, dispatcher.serves) = (None, false);
        self.serves_no_more(now_ns);
        self.down_ns.get_or_insert(now_ns);
        if self.phase == Phase::Serving {
            self.phase = Phase::Starting;
        }
    }

    /// It hangs.
    pub fn stalls(&mut self, now_ns: u64) {
        self.serves_no_more(now_ns);
        self.down_ns.get_or_insert(now_ns);
        if let Some(hung_ns) = self.hung_ns.take() {
            self.noticed_ns = now_ns.saturating_sub(hung_ns);
        }
    }

    /// It is being broken for a test; by a hang if so.
    pub fn is_broken(&mut self, by_hang: bool, now_ns: u64) {
        (self.hung_ns, self.noticed_ns) = (by_hang.then_some(now_ns), 0);
    }

    /// It died; a program with its last dispatcher, by the death of the first. `None`: that end is
    /// known already.
    pub fn died(&mut self, generation: u64, death: &Death, now_ns: u64) -> Option<Decision> {
        if generation <= self.ended {
            return None;
        }
        self.generation = self.generation.max(generation);
        self.ended = self.generation;
        Some(self.after_death(death, now_ns))
    }

    fn serves_no_more(&mut self, now_ns: u64) {
        let since_ns = self.serving_since_ns.take();
        self.served_ns = self.served_ns.or(since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)));
    }

    /// How long the generation that ends now served, from when this supervisor heard that it does.
    /// What it did not start itself, and never saw serve, may have served: it is started again at
    /// once the first times, as what served briefly.
    fn take_served(&mut self, now_ns: u64) -> Option<u64> {
        self.serves_no_more(now_ns);
        self.served_ns.take().or((self.begun != self.generation).then_some(0))
    }

    fn after_death(&mut self, death: &Death, now_ns: u64) -> Decision {
        let served_ns = self.take_served(now_ns);
        self.dispatchers.iter_mut().for_each(|one| (one.domain, one.serves) = (None, false));
        let by_itself = DeathCause::decode(death.cause) == Some(DeathCause::Exit) && death.status == 0;
        if by_itself && self.restart == Restart::Always {
            (self.phase, self.down_ns) = (Phase::Finished, None);
            return Decision::Finished;
        }
        if self.restart == Restart::Never {
            self.phase = Phase::GivenUp;
            return Decision::End;
        }
        self.down_ns.get_or_insert(now_ns);
        self.phase = Phase::Starting;
        Decision::Restart { generation: self.generation + 1, after_ns: self.backoff.failed(now_ns, served_ns) }
    }

    /// Its start was refused for want of something that may be there later; gives how long to wait.
    pub fn refused(&mut self, now_ns: u64) -> u64 {
        self.phase = Phase::Starting;
        self.backoff.refused(now_ns)
    }

    /// Whether that generation is known to have ended.
    pub fn is_over(&self, generation: u64) -> bool {
        generation <= self.ended
    }

    /// The domains of a generation that has not come to serve.
    pub fn silent(&self, generation: u64) -> Vec<(u32, DomainId)> {
        let is_it = self.phase == Phase::Starting && self.generation == generation;
        let all = self.dispatchers.iter().filter(|_| is_it);
        all.filter_map(|one| Some((one.core, one.domain?))).collect()
    }
}

/// The cause of a death, in words.
pub fn cause(death: &Death) -> String {
    let Death { status, address, rip, .. } = death;
    match DeathCause::decode(death.cause) {
        Some(DeathCause::Killed) if *status == STALLED => "stalled".into(),
        Some(DeathCause::Killed) => "killed".into(),
        Some(DeathCause::Exit) => alloc::format!("exit {status}"),
        Some(DeathCause::Exception) => alloc::format!("exception {status} at {rip:#x}, address {address:#x}"),
        Some(DeathCause::BadCall) => alloc::format!("bad call at {rip:#x}"),
        Some(DeathCause::NoMemory) => "out of memory".into(),
        Some(DeathCause::Revoked) => "its memory was revoked".into(),
        Some(DeathCause::Alive) | None => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use system::Placement;

    fn death(cause: DeathCause, status: u64) -> Death {
        Death { domain: 1, cause: cause as u64, status, address: 0, rip: 0, cpu_ns: 0 }
    }

    fn entry(core: Placement, restart: Restart) -> Entry {
        let component = Component {
            name: "ip".into(),
            program: "ip".into(),
            core,
            priority: 1,
            budget: None,
            memory_limit_pages: 1,
            provides: Vec::new(),
            uses: Vec::new(),
            binds: Vec::new(),
            restart,
            devices: Vec::new(),
            has_vectors: false,
            regions: Vec::new(),
            workers: system::Workers::None,
            handlers: system::Handlers::One,
        };
        Entry::new(&component, 3)
    }

    #[test]
    fn a_death_is_followed_by_the_next_generation_and_measured() {
        let mut entry = entry(Placement::default(), Restart::Always);
        entry.started(0, 7, 1);
        assert_eq!(entry.serves(7, 5), None);
        entry.is_broken(true, 40);
        entry.stalls(100);
        // Reported again before it is ended.
        entry.stalls(130);
        assert_eq!(entry.noticed_ns, 60);
        assert_eq!(
            entry.died(1, &death(DeathCause::Killed, STALLED), 150),
            Some(Decision::Restart { generation: 2, after_ns: 0 })
        );
        // Told again, by another that heard of it too.
        assert_eq!(entry.died(1, &death(DeathCause::Killed, STALLED), 160), None);
        assert!(entry.is_over(1) && !entry.is_over(2));
        // The answer to the first start comes late.
        entry.started(0, 7, 1);
        assert_eq!((entry.dispatchers[0].domain, entry.generation), (None, 1));
        entry.started(0, 8, 2);
        assert_eq!(entry.serves(8, 400), Some(300));
        assert_eq!((entry.recovery_ns, entry.noticed_ns), (300, 60));
        entry.is_broken(false, 500);
        assert_eq!(entry.noticed_ns, 0);
    }

    #[test]
    fn a_program_serves_with_its_last_dispatcher_and_is_down_from_its_first_death() {
        let mut program = entry(Placement::Every, Restart::Always);
        let names: Vec<_> = program.dispatchers.iter().map(|one| (one.name.as_str(), one.core)).collect();
        assert_eq!(names, [("ip-0", 0), ("ip-1", 1), ("ip-2", 2)]);
        for (generation, first) in [(1, 10), (2, 20)] {
            // The second says that it serves before the answer to the start names all.
            program.started(1, first + 1, generation);
            assert_eq!(program.serves(first + 1, 50), None);
            (0..3).for_each(|number| program.started(number, first + number as u64, generation));
            assert_eq!((program.serves(first, 60), program.phase), (None, Phase::Starting));
            assert_eq!(program.serves(99, 60), None);
            assert_eq!(program.serves(first + 2, 1000), (generation == 2).then_some(700));
            assert_eq!(program.phase, Phase::Serving);
            program.lost(first + 2, 300);
            let left: Vec<_> = program.dispatchers.iter().map(|one| (one.domain, one.serves)).collect();
            assert_eq!(left, [(Some(first), true), (Some(first + 1), true), (None, false)]);
            program.lost(first + 2, 310);
            assert_eq!(program.phase, Phase::Starting);
            program.lost(first, 320);
            let decision = program.died(generation, &death(DeathCause::Exception, 14), 330);
            assert_eq!(decision, Some(Decision::Restart { generation: generation + 1, after_ns: 0 }));
            assert!(program.dispatchers.iter().all(|one| one.domain.is_none()));
        }
    }

    /// Starts the next generation, which serves so long after its start or never; ends it after so
    /// long, and gives how long its successor waits.
    fn live(entry: &mut Entry, now_ns: u64, serves_ns: Option<u64>, ends_ns: u64) -> u64 {
        let generation = entry.generation + 1;
        entry.begins(generation);
        entry.started(0, generation, generation);
        serves_ns.into_iter().for_each(|serves_ns| _ = entry.serves(generation, now_ns + serves_ns));
        let decision = entry.died(generation, &death(DeathCause::Killed, 137), now_ns + ends_ns);
        let Some(Decision::Restart { generation: next, after_ns }) = decision else { panic!("{decision:?}") };
        assert!(next == generation + 1 && entry.phase == Phase::Starting);
        after_ns
    }

    #[test]
    fn one_that_never_serves_is_started_ever_later_to_5_s_and_never_given_up() {
        let mut entry = entry(Placement::default(), Restart::Always);
        let mut now_ns = 0;
        let mut wait = |entry: &mut Entry, serves_ns, ends_ns| {
            let after_ns = live(entry, now_ns, serves_ns, ends_ns);
            now_ns += ends_ns + after_ns;
            after_ns
        };
        let waits: Vec<u64> = (0..100).map(|_| wait(&mut entry, None, 1)).collect();
        assert_eq!(waits[..3], [10_000_000, 20_000_000, 40_000_000]);
        assert!(waits.is_sorted() && waits[9..].iter().all(|after_ns| *after_ns == 5_000_000_000));
        // However long it took over that.
        assert_eq!(wait(&mut entry, None, 60_000_000_000), 5_000_000_000);
        assert_eq!(entry.refused(0), 5_000_000_000);
        // And once it did, all that is forgotten.
        assert_eq!(wait(&mut entry, Some(30_000_000_000), 30_200_000_000), 0);
        assert_eq!(wait(&mut entry, None, 1), 10_000_000);
    }

    #[test]
    fn one_that_is_killed_once_a_second_for_an_hour_is_always_started_at_once() {
        let mut entry = entry(Placement::default(), Restart::Always);
        for second in 0..3600 {
            assert_eq!(live(&mut entry, second * 1_000_000_000, Some(10_000_000), 1_000_000_000), 0, "{second}");
        }
    }

    #[test]
    fn who_refuses_is_not_asked_again_at_once() {
        assert_eq!(entry(Placement::default(), Restart::Always).refused(1), 100_000_000);
    }

    #[test]
    fn it_served_until_it_stalled_and_a_program_until_its_first_death() {
        for placement in [Placement::default(), Placement::Every] {
            let mut entry = entry(placement, Restart::Always);
            let mut now_ns = 0;
            let waits = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(|generation| {
                entry.begins(generation);
                let domains = (0..entry.dispatchers.len()).map(|number| (number, 10 * generation + number as u64));
                let domains: Vec<_> = domains.collect();
                domains.iter().for_each(|(number, domain)| entry.started(*number, *domain, generation));
                domains.iter().for_each(|(_, domain)| _ = entry.serves(*domain, now_ns));
                // Not long enough, and long enough if its end counted.
                let over_ns = now_ns + 199_999_999;
                if entry.is_program {
                    entry.lost(domains[1].1, over_ns)
                } else {
                    entry.stalls(over_ns)
                }
                // The monitors are asked who serves, and do not know yet.
                domains.iter().for_each(|(_, domain)| _ = entry.serves(*domain, over_ns + 1));
                let ended_ns = now_ns + 200_050_000;
                let decision = entry.died(generation, &death(DeathCause::Killed, STALLED), ended_ns);
                let Some(Decision::Restart { after_ns, .. }) = decision else { panic!("{decision:?}") };
                now_ns = ended_ns + after_ns;
                after_ns
            });
            assert_eq!((&waits[..10], &waits[10..]), (&[0; 10][..], &[199_950_000, 599_950_000][..]));
        }
    }

    #[test]
    fn what_it_did_not_start_itself_may_have_served() {
        // Its predecessor started it; it died before this one heard of it, or before it served.
        for is_seen in [false, true] {
            let mut entry = entry(Placement::default(), Restart::Always);
            if is_seen {
                entry.started(0, 7, 3);
            }
            let decision = entry.died(3, &death(DeathCause::Killed, 137), 5);
            assert_eq!(decision, Some(Decision::Restart { generation: 4, after_ns: 0 }));
            assert_eq!(live(&mut entry, 5, None, 1), 10_000_000);
        }
        // It serves since this one heard so, however often it hears it.
        let mut entry = entry(Placement::default(), Restart::Always);
        for second in 0..20 {
            let now_ns = second * 1_000_000_000;
            entry.started(0, second, second + 1);
            [0, 100_000_000].iter().for_each(|later_ns| _ = entry.serves(second, now_ns + later_ns));
            let decision = entry.died(second + 1, &death(DeathCause::Killed, 137), now_ns + 200_000_000);
            assert_eq!(decision, Some(Decision::Restart { generation: second + 2, after_ns: 0 }));
        }
    }

    #[test]
    fn who_does_not_come_to_serve_is_known_by_its_domains() {
        let mut entry = entry(Placement::default(), Restart::Always);
        entry.started(0, 7, 1);
        assert_eq!(entry.silent(1), [(0, 7)]);
        assert_eq!(entry.silent(2), []);
        entry.serves(7, 5);
        assert_eq!(entry.silent(1), []);
    }

    #[test]
    fn an_end_by_itself_is_no_crash_and_state_in_the_heap_is_not_restarted() {
        let mut page = entry(Placement::default(), Restart::Always);
        assert_eq!(page.died(1, &death(DeathCause::Exit, 0), 1), Some(Decision::Finished));
        let mut fs = entry(Placement::default(), Restart::Never);
        assert_eq!(fs.died(1, &death(DeathCause::Exit, 0), 1), Some(Decision::End));
        // An exit that tells of a failure, and an end by another that looks like success.
        for (cause, status) in [(DeathCause::Exit, 1), (DeathCause::Killed, 0)] {
            let mut failed = entry(Placement::default(), Restart::Always);
            let decision = failed.died(1, &death(cause, status), 1);
            assert_eq!(decision, Some(Decision::Restart { generation: 2, after_ns: 0 }), "{cause:?} {status}");
        }
    }

    #[test]
    fn a_death_is_told_by_its_cause_and_where_it_was() {
        let told = |of: DeathCause, status| cause(&Death { address: 0x10, rip: 0x20, ..death(of, status) });
        assert_eq!(told(DeathCause::Killed, STALLED), "stalled");
        assert_eq!(told(DeathCause::Killed, 137), "killed");
        assert_eq!(told(DeathCause::Exit, 3), "exit 3");
        assert_eq!(told(DeathCause::Exception, 14), "exception 14 at 0x20, address 0x10");
        assert_eq!(told(DeathCause::BadCall, 0), "bad call at 0x20");
        assert_eq!(told(DeathCause::NoMemory, 0), "out of memory");
        assert_eq!(told(DeathCause::Revoked, 0), "its memory was revoked");
        assert_eq!(told(DeathCause::Alive, 0), "unknown");
    }
}
