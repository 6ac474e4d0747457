//! Domains that end: why, who is told, what is left.

use abi::layout::{protection, segment};
use abi::{Call, DeathCause, Error, Handle};
use worker::ScriptedDomain;

use crate::{Fixture, Outcome, refused, require, suite};

suite!("death"; alone: by_exit, by_kill, by_exception, by_a_call_that_is_none, told_once_and_at_once, revoked_account, pages_are_back,
    nobody_outside_is_hurt, whatever_its_registers_hold);

const INVALID: u64 = 0x4141_4141_4141;
/// Registers: of the interrupt controllers below 4 GiB, what nobody answers above it, and above
/// what the kernels see of memory.
const REGISTERS: [u64; 4] = [0xfec0_0000, 0xfee0_0000, 1 << 36, 1 << 40];
/// Where a program sees them.
const WINDOWS: u64 = 0x5000_0000;
/// What it does not see: nothing, an end of a page, kernels' addresses, and no addresses.
const NOWHERE: [u64; 7] =
    [0, INVALID, WINDOWS + 1, 0xffff_8000_fee0_0000, 0xffff_ffff_8000_0000, 1 << 47, u64::MAX - 7];

fn cause(scripted: &ScriptedDomain) -> Result<(Option<DeathCause>, u64), Error> {
    let state = sys::domain_state(scripted.worker.domain)?;
    Ok((DeathCause::decode(state.cause), state.status))
}

fn by_exit(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    require!(cause(&scripted)? == (Some(DeathCause::Alive), 0), "a living domain stands as {:?}", cause(&scripted)?);
    let _ = scripted.call(Call::DomainExit.number(), [42, 0, 0, 0, 0, 0], fixture.deadline_ns());
    require!(cause(&scripted)? == (Some(DeathCause::Exit), 42), "exit 42 is told as {:?}", cause(&scripted)?);
    Ok(())
}

fn by_kill(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    sys::domain_kill(scripted.worker.domain, 9)?;
    require!(cause(&scripted)? == (Some(DeathCause::Killed), 9), "a kill is told as {:?}", cause(&scripted)?);
    refused(scripted.call(Call::Null.number(), [0; 6], fixture.deadline_ns()), Error::PeerDead)?;
    // What names the dead still names it, and refuses.
    refused(scripted.worker.start([0, 0]), Error::PeerDead)
}

fn by_exception(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    refused(scripted.store(INVALID, 1, fixture.deadline_ns()), Error::PeerDead)?;
    let state = sys::domain_state(scripted.worker.domain)?;
    require!(DeathCause::decode(state.cause) == Some(DeathCause::Exception), "it is told as cause {}", state.cause);
    require!(state.exception.address == INVALID, "the fault is told at {:#x}", state.exception.address);
    require!(state.rip != 0 && state.rsp != 0, "no registers are told");
    Ok(())
}

fn by_a_call_that_is_none(fixture: &Fixture) -> Outcome {
    const LINUX_GETPID: u64 = 39;
    let scripted = fixture.scripted(0)?;
    // A native number is only refused.
    refused(scripted.call(abi::call::NATIVE_BASE | 0xfff, [0; 6], fixture.deadline_ns())?, Error::BadCall)?;
    let result = scripted.call(LINUX_GETPID, [0; 6], fixture.deadline_ns());
    require!(result == Err(Error::PeerDead), "a Linux call without a proxy gives {result:?}");
    require!(cause(&scripted)?.0 == Some(DeathCause::BadCall), "it is told as {:?}", cause(&scripted)?);
    Ok(())
}

fn told_once_and_at_once(fixture: &Fixture) -> Outcome {
    let (doorbell, bit) = fixture.doorbell(6)?;
    let scripted = fixture.scripted(0)?;
    scripted.worker.on_death(doorbell)?;
    require!(fixture.wait_for(bit, runtime::now_ns())? == 0, "a death is told of the living");
    let _ = scripted.call(Call::DomainExit.number(), [0; 6], fixture.deadline_ns());
    require!(fixture.wait_for(bit, fixture.deadline_ns())? == bit, "a death is not told");
    require!(fixture.wait_for(bit, runtime::now_ns())? == 0, "a death is told twice");
    scripted.worker.on_death(doorbell)?;
    require!(fixture.wait_for(bit, fixture.deadline_ns())? == bit, "the death of the dead is not told");
    sys::cap_drop(doorbell)?;
    Ok(())
}

fn revoked_account(fixture: &Fixture) -> Outcome {
    let (doorbell, bit) = fixture.doorbell(6)?;
    let scripted = fixture.scripted(0)?;
    scripted.worker.on_death(doorbell)?;
    fixture.revoke(scripted.worker.ram)?;
    require!(fixture.wait_for(bit, fixture.deadline_ns())? == bit, "its end is not told");
    refused(sys::cap_stat(scripted.worker.context), Error::BadHandle)?;
    sys::cap_drop(doorbell)?;
    Ok(())
}

/// Free pages of the core are not ours alone to count; those of an account are.
fn pages_are_back(fixture: &Fixture) -> Outcome {
    let used = || sys::ram_stat(fixture.ram()).map(|(_, used, _)| used);
    drop(fixture.scripted(0)?);
    let before = used()?;
    for _ in 0..4 {
        let scripted = fixture.scripted(0)?;
        let _ = scripted.store(INVALID, 1, fixture.deadline_ns());
    }
    require!(used()? == before, "four deaths cost {} pages", used()? - before);
    Ok(())
}

fn nobody_outside_is_hurt(fixture: &Fixture) -> Outcome {
    let (bad, good) = (fixture.scripted(0)?, fixture.scripted(1)?);
    good.store(fixture.shared_with_scripted() + 8 * 100, 7, fixture.deadline_ns())?;
    // Everything it has in its hands goes: its first slots, then itself.
    for slot in Handle::SELF_DOMAIN.0..Handle::FIRST_FREE.0 {
        let _ = bad.call(Call::CapDrop.number(), [slot, 0, 0, 0, 0, 0], fixture.deadline_ns());
    }
    let _ = bad.call(Call::DomainExit.number(), [0; 6], fixture.deadline_ns());
    let kept = good.load(fixture.shared_with_scripted() + 8 * 100, fixture.deadline_ns())?;
    require!(kept == 7, "another domain's memory holds {kept}");
    Ok(())
}

/// A program that faults is told of, by what its registers point to; nothing is read that is no
/// memory, and others are served on.
fn whatever_its_registers_hold(fixture: &Fixture) -> Outcome {
    let good = fixture.scripted(1)?;
    let windows = (0..REGISTERS.len() as u64).map(|number| WINDOWS + number * abi::PAGE_BYTES);
    for address in windows.chain(NOWHERE) {
        // RBP leads there, to a last word before there, and to a frame of memory that leads there.
        for frame in [address, address.wrapping_sub(8), fixture.shared_with_scripted()] {
            let bad = fixture.scripted(0)?;
            let range = bad.worker.range()?;
            for (number, base) in (0..).zip(REGISTERS) {
                let window = sys::segment_import(fixture.pcore()?, fixture.ram(), base, 1, segment::UNCACHED)?;
                sys::range_map(range, WINDOWS + number * abi::PAGE_BYTES, window, 0, 1, protection::READ)?;
                sys::range_fill(range, WINDOWS + number * abi::PAGE_BYTES, 1)?;
                sys::cap_drop(window)?;
            }
            refused(bad.crash(address, frame, fixture.deadline_ns()), Error::PeerDead)?;
            let state = sys::domain_state(bad.worker.domain)?;
            require!(state.exception.vector == 6 && state.rsp == address, "it is told of {:?}", state.exception);
            good.store(fixture.shared_with_scripted() + 8 * 100, address, fixture.deadline_ns())?;
            let kept = good.load(fixture.shared_with_scripted() + 8 * 100, fixture.deadline_ns())?;
            require!(kept == address, "another domain's memory holds {kept}");
            sys::cap_drop(range)?;
        }
    }
    Ok(())
}
