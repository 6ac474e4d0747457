//! Cores that are lost and run again: how long each waits.
//!
//! Invariants: a core that served is run again at once, however often it is lost; one that is lost
//! as soon as it is up, or does not come up, waits ever longer (`runtime::Backoff`). Deliberately
//! unknown here: how a core is run.

use alloc::collections::BTreeMap;

use runtime::Backoff;

/// What is known of each core that was up or was to be.
#[derive(Default)]
pub struct LostCores(BTreeMap<u32, Past>);

#[derive(Default)]
struct Past {
    backoff: Backoff,
    /// Since when it is up.
    up_since_ns: Option<u64>,
    /// How long it was up, until that has been taken into account.
    served_ns: Option<u64>,
}

impl LostCores {
    /// A core is up.
    pub fn up(&mut self, core: u32, now_ns: u64) {
        self.0.entry(core).or_default().up_since_ns = Some(now_ns);
    }

    /// A core that was up is lost.
    pub fn lost(&mut self, core: u32, now_ns: u64) {
        let past = self.0.entry(core).or_default();
        past.served_ns = past.up_since_ns.take().map(|since_ns| now_ns.saturating_sub(since_ns));
    }

    /// How long to wait before a core is run again, after it was lost or could not be run.
    pub fn wait_ns(&mut self, core: u32, now_ns: u64) -> u64 {
        let past = self.0.entry(core).or_default();
        past.backoff.failed(now_ns, past.served_ns.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;
    /// How long a core that is lost takes to halt.
    const HALT_NS: u64 = 300 * MS;

    /// The waits of a core that is lost so long after it came up, `times` times in a row.
    fn waits(cores: &mut LostCores, times: usize, served_ns: u64) -> Vec<u64> {
        let mut now_ns = 0;
        let waits = (0..times).map(|_| {
            cores.up(1, now_ns);
            cores.lost(1, now_ns + served_ns);
            now_ns += served_ns + HALT_NS;
            let wait_ns = cores.wait_ns(1, now_ns);
            now_ns += wait_ns;
            wait_ns
        });
        waits.collect()
    }

    #[test]
    fn a_core_that_served_is_run_again_at_once_however_often_it_is_lost() {
        assert_eq!(waits(&mut LostCores::default(), 50, 1_000 * MS), [0; 50]);
    }

    /// The time that it took to halt it is not time for which it served.
    #[test]
    fn a_core_that_is_lost_at_once_counts_as_one_that_served_briefly() {
        let mut cores = LostCores::default();
        let (mut backoff, mut now_ns) = (Backoff::default(), 0);
        let expected: Vec<u64> = (0..20)
            .map(|_| {
                now_ns += MS + HALT_NS;
                let wait_ns = backoff.failed(now_ns, Some(MS));
                now_ns += wait_ns;
                wait_ns
            })
            .collect();
        assert!(expected[19] > 600 * MS);
        assert_eq!(waits(&mut cores, 20, MS), expected);
    }

    /// What it served counts once: a core that does not come up afterwards waits ever longer, and
    /// others do not.
    #[test]
    fn a_core_that_does_not_come_up_waits_ever_longer() {
        let mut cores = LostCores::default();
        cores.up(1, 0);
        cores.lost(1, 1_000 * MS);
        let waits: Vec<u64> = (0..12).map(|_| cores.wait_ns(1, 1_000 * MS)).collect();
        assert_eq!(waits[..4], [0, 10 * MS, 20 * MS, 40 * MS]);
        assert_eq!(waits[11], 5_000 * MS);
        assert_eq!(cores.wait_ns(2, 1_000 * MS), 10 * MS);
    }
}
