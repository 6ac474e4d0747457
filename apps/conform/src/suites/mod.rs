//! All suites, one file per object or question.

pub mod capability;
pub mod context;
pub mod death;
pub mod device;
pub mod gang;
pub mod nest;
pub mod notification;
pub mod parallel;
pub mod pcore;
pub mod portal;
pub mod ram;
pub mod range;
pub mod segment;
pub mod semaphore;
pub mod share;
pub mod shared_range;
pub mod threads;
pub mod time;
pub mod user_semaphore;

use crate::Suite;

/// Every suite; a new one is a line here.
pub const ALL: &[Suite] = &[
    capability::SUITE,
    context::SUITE,
    death::SUITE,
    device::SUITE,
    gang::SUITE,
    nest::SUITE,
    notification::SUITE,
    parallel::SUITE,
    pcore::SUITE,
    portal::SUITE,
    ram::SUITE,
    range::SUITE,
    segment::SUITE,
    semaphore::SUITE,
    share::SUITE,
    shared_range::SUITE,
    threads::SUITE,
    time::SUITE,
    user_semaphore::SUITE,
];
