//! Resource limits (getrlimit(2)): what holds, what a program made of it, and who may change what.
//!
//! Invariants: a soft limit is at most its hard one, and a hard limit at most what the tables and
//! servers can hold, so that what a program is told is not more than it gets. Plain data: a child
//! inherits them, and they last over exec.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptors::DESCRIPTORS_MAX;
use crate::errno::Errno;
use crate::layouts::Limit;
use crate::memory::{STACK_BYTES, STACK_BYTES_MAX};
use crate::signals::QUEUED_MAX;
use crate::signals::number::{SIGKILL, SIGXCPU};

/// Numbers of resources (RLIMIT_*).
#[allow(missing_docs)]
pub mod resource {
    pub const CPU: u64 = 0;
    pub const FILE_BYTES: u64 = 1;
    pub const DATA: u64 = 2;
    pub const STACK: u64 = 3;
    pub const CORE: u64 = 4;
    pub const PROCESSES: u64 = 6;
    pub const DESCRIPTORS: u64 = 7;
    pub const ADDRESSES: u64 = 9;
    pub const SIGNALS: u64 = 11;
    pub const MESSAGES: u64 = 12;
    pub const NICE: u64 = 13;
    pub const REAL_TIME: u64 = 14;
}

/// How many resources there are.
const RESOURCES: usize = 16;
/// Descriptors that a program begins with, as on Linux: some close each number below their limit,
/// and select(2) of old programs has no room for more.
pub const DESCRIPTORS_SOFT: u64 = 1024;
/// No limit (RLIM_INFINITY).
pub const UNLIMITED: u64 = u64::MAX;
const NS_PER_S: u64 = 1_000_000_000;

/// The limits of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limits([Limit; RESOURCES]);

/// The most that can be had of a resource. There are no core files, message queues and real-time
/// priorities, and all have niceness 0.
const fn most(resource: u64) -> u64 {
    match resource {
        resource::STACK => STACK_BYTES_MAX,
        resource::PROCESSES => contracts::process::BRANCH_MAX as u64,
        resource::DESCRIPTORS => DESCRIPTORS_MAX as u64,
        resource::SIGNALS => QUEUED_MAX as u64,
        resource::CORE | resource::MESSAGES | resource::NICE | resource::REAL_TIME => 0,
        _ => UNLIMITED,
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let mut all = [Limit::default(); RESOURCES];
        for (resource, limit) in (0..).zip(&mut all) {
            let maximum = most(resource);
            let current = match resource {
                resource::STACK => STACK_BYTES,
                resource::DESCRIPTORS => DESCRIPTORS_SOFT,
                _ => maximum,
            };
            *limit = Limit { current, maximum };
        }
        Limits(all)
    }
}

impl Limits {
    fn index(resource: u64) -> Result<usize, Errno> {
        // Linux takes the low 32 bits.
        let index = resource as u32 as usize;
        if index < RESOURCES { Ok(index) } else { Err(Errno::EINVAL) }
    }

    /// What holds. `EINVAL` for no resource.
    pub fn get(&self, resource: u64) -> Result<Limit, Errno> {
        Self::index(resource).map(|index| self.0[index])
    }

    /// The soft limit of a resource that there is.
    pub fn soft(&self, resource: u64) -> u64 {
        self.get(resource).map_or(0, |limit| limit.current)
    }

    /// How many processes and threads the user may have, as far as that is less than all can have.
    pub fn processes(&self) -> Option<u32> {
        let limit = self.soft(resource::PROCESSES);
        u32::try_from(limit).ok().filter(|_| limit < most(resource::PROCESSES))
    }

    /// How much of the processor the process may have used before it is told (RLIMIT_CPU), at
    /// least 1. `None` if there is no limit.
    pub fn cpu_ns(&self) -> Option<u64> {
        let seconds = self.soft(resource::CPU);
        (seconds != UNLIMITED).then(|| seconds.saturating_mul(NS_PER_S).max(1))
    }

    /// The process has used so much of the processor. Gives the signal that this brings: SIGKILL at
    /// the hard limit; at the soft one SIGXCPU, and the limit is a second more then, as on Linux.
    pub fn meet_cpu(&mut self, used_ns: u64) -> Option<u8> {
        let limit = &mut self.0[resource::CPU as usize];
        let is_met = |seconds: u64| used_ns / NS_PER_S >= seconds;
        if is_met(limit.maximum) {
            return Some(SIGKILL);
        }
        is_met(limit.current).then(|| {
            limit.current += 1;
            SIGXCPU
        })
    }

    /// May a limit become this one? `EINVAL`; `EPERM` for who raises a hard limit and is not user
    /// 0, and for what cannot be had (on Linux, more descriptors than fs.nr_open).
    pub fn check(&self, resource: u64, new: Limit, is_root: bool) -> Result<(), Errno> {
        let old = self.get(resource)?;
        if new.current > new.maximum {
            return Err(Errno::EINVAL);
        }
        let is_raised = new.maximum > old.maximum;
        if is_raised && (!is_root || new.maximum > most(resource)) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Changes a limit; as for [`Limits::check`].
    pub fn set(&mut self, resource: u64, new: Limit, is_root: bool) -> Result<(), Errno> {
        self.check(resource, new, is_root)?;
        self.0[Self::index(resource)?] = new;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::resource::*;
    use super::*;

    fn limit(current: u64, maximum: u64) -> Limit {
        Limit { current, maximum }
    }

    #[test]
    fn what_is_told_first_is_what_holds() {
        let limits = Limits::default();
        assert_eq!(limits.get(STACK), Ok(limit(8 << 20, STACK_BYTES_MAX)));
        assert_eq!(limits.get(DESCRIPTORS), Ok(limit(1024, 10_240)));
        assert_eq!(limits.get(CORE), Ok(limit(0, 0)));
        assert_eq!(limits.get(ADDRESSES), Ok(limit(UNLIMITED, UNLIMITED)));
        for resource in [16, 17, u64::from(u32::MAX)] {
            assert_eq!(limits.get(resource), Err(Errno::EINVAL));
        }
        for resource in 0..RESOURCES as u64 {
            let Limit { current, maximum } = limits.get(resource).unwrap();
            assert!(current <= maximum && maximum == most(resource));
        }
    }

    #[test]
    fn the_page_of_limits_has_the_number_of_descriptors() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let in_thousands = |count: u64| format!("{},{:03}", count / 1000, count % 1000);
        let numbers = [DESCRIPTORS_SOFT, DESCRIPTORS_MAX as u64].map(in_thousands).join("; ");
        let row = format!("| descriptors of a process, soft limit at first and hard limit | {numbers} |");
        assert!(std::fs::read_to_string(page).unwrap().contains(&row), "docs/limits.md does not say `{row}`");
    }

    #[test]
    fn what_is_set_is_told() {
        let mut limits = Limits::default();
        for resource in 0..RESOURCES as u64 {
            let hard = limits.get(resource).unwrap().maximum;
            for new in [limit(hard / 2, hard), limit(hard, hard), limit(hard / 4, hard / 2), limit(0, 0)] {
                assert_eq!(limits.set(resource, new, false), Ok(()));
                assert_eq!(limits.get(resource), Ok(new));
            }
        }
        assert_eq!(limits.set(16, limit(0, 0), true), Err(Errno::EINVAL));
    }

    #[test]
    fn nobody_gets_more_than_there_is() {
        let mut limits = Limits::default();
        assert_eq!(limits.set(DESCRIPTORS, limit(2, 1), true), Err(Errno::EINVAL));
        assert_eq!(limits.set(DESCRIPTORS, limit(10_241, 10_241), true), Err(Errno::EPERM));
        assert_eq!(limits.set(DESCRIPTORS, limit(64, UNLIMITED), true), Err(Errno::EPERM));
        assert_eq!(limits.set(STACK, limit(UNLIMITED, UNLIMITED), true), Err(Errno::EPERM));
        assert_eq!(limits.set(CORE, limit(1, 1), true), Err(Errno::EPERM));
        assert_eq!(limits, Limits::default());
        // What redis asks for, without being user 0.
        assert_eq!(limits.set(DESCRIPTORS, limit(10_032, 10_240), false), Ok(()));
        // A hard limit comes back for user 0 only.
        assert_eq!(limits.set(DESCRIPTORS, limit(64, 64), false), Ok(()));
        assert_eq!(limits.set(DESCRIPTORS, limit(64, 65), false), Err(Errno::EPERM));
        assert_eq!(limits.set(DESCRIPTORS, limit(65, 64), false), Err(Errno::EINVAL));
        assert_eq!(limits.set(DESCRIPTORS, limit(64, 1024), true), Ok(()));
        assert_eq!(limits.get(DESCRIPTORS), Ok(limit(64, 1024)));
    }

    #[test]
    fn a_limit_of_processes_is_one_that_is_less_than_all() {
        let mut limits = Limits::default();
        assert_eq!(limits.processes(), None);
        for (soft, told) in [(420, None), (419, Some(419)), (0, Some(0))] {
            assert_eq!(limits.set(PROCESSES, limit(soft, 420), false), Ok(()));
            assert_eq!(limits.processes(), told);
        }
    }

    #[test]
    fn who_used_too_much_is_told_each_second_and_then_killed() {
        let mut limits = Limits::default();
        assert_eq!((limits.cpu_ns(), limits.meet_cpu(u64::MAX)), (None, None));
        limits.set(CPU, limit(1, 3), false).unwrap();
        assert_eq!((limits.cpu_ns(), limits.meet_cpu(NS_PER_S - 1)), (Some(NS_PER_S), None));
        assert_eq!((limits.meet_cpu(NS_PER_S), limits.get(CPU)), (Some(SIGXCPU), Ok(limit(2, 3))));
        assert_eq!((limits.meet_cpu(NS_PER_S), limits.cpu_ns()), (None, Some(2 * NS_PER_S)));
        assert_eq!(limits.meet_cpu(2 * NS_PER_S + 5), Some(SIGXCPU));
        assert_eq!((limits.meet_cpu(3 * NS_PER_S - 1), limits.meet_cpu(3 * NS_PER_S)), (None, Some(SIGKILL)));
        // No seconds at all are used up at once.
        limits.set(CPU, limit(0, 1), false).unwrap();
        assert_eq!((limits.cpu_ns(), limits.meet_cpu(1), limits.get(CPU)), (Some(1), Some(SIGXCPU), Ok(limit(1, 1))));
        limits.set(CPU, limit(UNLIMITED - 1, UNLIMITED), true).unwrap();
        assert_eq!((limits.cpu_ns(), limits.meet_cpu(UNLIMITED - 1)), (Some(u64::MAX), None));
    }
}
