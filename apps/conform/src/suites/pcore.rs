//! Cores as each of them sees the others, and how they are used (`PcoreUse`), which core 0 alone
//! knows. No core is free here: claims are made in `apps/cores`.

use abi::pcore::runs;
use abi::{Error, Handle, Rights};

use crate::{Failure, Fixture, Outcome, refused, require, suite};

suite!("pcore"; alone: every_core_is_seen_to_run, core_0_tells_how_cores_are_used, a_core_that_idles_is_not_used, use_is_told_to_who_may_ask,
    cores_that_run_are_not_to_be_had);

const MS_NS: u64 = 1_000_000;

fn every_core_is_seen_to_run(fixture: &Fixture) -> Outcome {
    let found = sys::pcore_current()?;
    require!(
        found == (fixture.core(), fixture.cores(), fixture.cores()),
        "this core, cores and those that run: {found:?}"
    );
    for core in 0..fixture.cores() {
        require!(sys::pcore_stat(core)?.2, "core {core} is said to stand still");
    }
    refused(sys::pcore_stat(fixture.cores()), Error::BadArgument)?;
    refused(sys::pcore_stat(u64::MAX), Error::BadArgument)
}

/// Every core has a monitor, which that of core 0 started: all but core 0 are claimed by one and
/// the same domain.
fn core_0_tells_how_cores_are_used(fixture: &Fixture) -> Outcome {
    let pcore = fixture.pcore()?;
    let mut claimants = [0; 2];
    for core in 0..fixture.cores() {
        if fixture.core() != 0 {
            refused(sys::pcore_use(pcore, core), Error::OtherCore)?;
            continue;
        }
        let (used_ns, what, claimant) = sys::pcore_use(pcore, core)?;
        let now_ns = runtime::now_ns();
        require!((1..=now_ns).contains(&used_ns), "programs had core {core} for {used_ns} ns of {now_ns}");
        require!(what == runs::MONITOR, "core {core} is said to run {what}");
        claimants = [claimant, if core < 2 { claimant } else { claimants[1] }];
        let is_right = claimants[0] == claimants[1] && (claimant == 0) == (core == 0);
        require!(is_right, "core {core} is claimed by {claimant}, core 1 by {}", claimants[1]);
    }
    Ok(())
}

fn a_core_that_idles_is_not_used(fixture: &Fixture) -> Outcome {
    if fixture.core() != 0 {
        return Err(Failure::absent("core 0 alone is told how cores are used"));
    }
    let pcore = fixture.pcore()?;
    // How much of a stretch programs had, between what is surely in it and what it can be at most.
    let stretch = |act: &dyn Fn() -> Outcome| {
        let outer_ns = runtime::now_ns();
        let before_ns = sys::pcore_use(pcore, 0)?.0;
        let inner_ns = runtime::now_ns();
        act()?;
        let inner_ns = runtime::now_ns() - inner_ns;
        let used_ns = sys::pcore_use(pcore, 0)?.0 - before_ns;
        Ok::<_, Failure>((inner_ns, used_ns, runtime::now_ns() - outer_ns))
    };
    let (least_ns, used_ns, most_ns) = stretch(&|| {
        let end_ns = runtime::now_ns() + MS_NS;
        while runtime::now_ns() < end_ns {}
        Ok(())
    })?;
    require!((least_ns..=most_ns).contains(&used_ns), "{used_ns} ns of {least_ns} to {most_ns} in which a program ran");
    // Others of this core may have something to do meanwhile, but not all the time.
    let end_ns = fixture.deadline_ns();
    loop {
        let (least_ns, used_ns, most_ns) = stretch(&|| Ok(fixture.wait_for(0, fixture.soon_ns()).map(drop)?))?;
        require!(used_ns <= most_ns, "programs had {used_ns} ns of {most_ns}");
        if used_ns < least_ns / 2 {
            return Ok(());
        }
        require!(runtime::now_ns() < end_ns, "programs had {used_ns} ns of {least_ns} in which this one slept");
    }
}

fn use_is_told_to_who_may_ask(fixture: &Fixture) -> Outcome {
    let pcore = fixture.pcore()?;
    for core in [fixture.cores(), 1 << 32, u64::MAX] {
        refused(sys::pcore_use(pcore, core), Error::BadArgument)?;
    }
    refused(sys::pcore_use(Handle::NONE, 0), Error::BadHandle)?;
    refused(sys::pcore_use(fixture.ram(), 0), Error::WrongType)?;
    let blind = sys::cap_copy(pcore, Rights::CONTROL)?;
    refused(sys::pcore_use(blind, 0), Error::NoRights)?;
    sys::cap_drop(blind)?;
    refused(sys::pcore_use(blind, 0), Error::BadHandle)?;
    // The right to look is enough.
    let reader = sys::cap_copy(pcore, Rights::READ)?;
    let told = sys::pcore_use(reader, fixture.core());
    sys::cap_drop(reader)?;
    if fixture.core() == 0 { Ok(told.map(drop)?) } else { refused(told, Error::OtherCore) }
}

fn cores_that_run_are_not_to_be_had(fixture: &Fixture) -> Outcome {
    let pcore = fixture.pcore()?;
    for core in 0..=fixture.cores() {
        let error = match core {
            _ if core == fixture.cores() => Error::BadArgument,
            _ if fixture.core() != 0 => Error::OtherCore,
            0 => Error::BadArgument,
            _ => Error::Busy,
        };
        refused(sys::pcore_alloc(pcore, fixture.ram(), core), error)?;
    }
    Ok(())
}
