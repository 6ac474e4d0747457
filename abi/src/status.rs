//! How a domain stands and how it ended.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the processor reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExceptionInfo {
    /// Exception vector (14 = page fault), or [`Self::NOTIFICATION`].
    pub vector: u64,
    /// Its error code.
    pub error: u64,
    /// CR2 for page faults.
    pub address: u64,
}

impl ExceptionInfo {
    /// Upcall for notifications, not an exception.
    pub const NOTIFICATION: u64 = 0x100;
    /// Upcall because a page could not be had (out of memory): the program is to be ended.
    pub const NO_MEMORY: u64 = 0x101;
    /// As the vector of an upcall: a slice ended, or was taken by something of a better priority.
    pub const PREEMPTION: u64 = 0x102;
}

/// Why a domain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum DeathCause {
    /// It lives.
    Alive = 0,
    /// It called `DomainExit`.
    Exit = 1,
    /// Somebody called `DomainKill`.
    Killed = 2,
    /// A processor exception nobody handles.
    Exception = 3,
    /// A Linux call without a proxy. A native number without a call is refused with
    /// `Error::BadCall`.
    BadCall = 4,
    /// No page for a fault.
    NoMemory = 5,
    /// The Ram that paid for it, or for one of its contexts or for their time, was revoked.
    Revoked = 6,
}

impl DeathCause {
    /// Decodes `DomainState::cause`.
    pub const fn decode(value: u64) -> Option<DeathCause> {
        Some(match value {
            0 => DeathCause::Alive,
            1 => DeathCause::Exit,
            2 => DeathCause::Killed,
            3 => DeathCause::Exception,
            4 => DeathCause::BadCall,
            5 => DeathCause::NoMemory,
            6 => DeathCause::Revoked,
            _ => return None,
        })
    }
}

/// Filled in by `Call::DomainState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DomainState {
    /// Object id: home core in bits 63..48, sequence number below; never used again.
    pub id: u64,
    /// A `DeathCause`.
    pub cause: u64,
    /// Status of `DomainExit` or `DomainKill`.
    pub status: u64,
    /// For `DeathCause::Exception`.
    pub exception: ExceptionInfo,
    /// Instruction and stack pointer at death.
    pub rip: u64,
    pub rsp: u64,
    /// Pages charged to its Ram.
    pub used_pages: u64,
    /// Nanoseconds of processor time its contexts used.
    pub cpu_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_its_number_and_no_other_number_is_one() {
        let all = (0..7).map(|number| DeathCause::decode(number).map(|cause| cause as u64));
        assert!(all.eq((0..7).map(Some)));
        assert_eq!([7, 8, 1 << 32, u64::MAX].map(DeathCause::decode), [None; 4]);
    }
}
