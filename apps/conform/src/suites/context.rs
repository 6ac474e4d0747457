//! ExecutionContext and its time.

use abi::{Call, Error, Handle, Rights};
use worker::Job;

use crate::{Fixture, Outcome, drop_all, refused, require, suite};

suite!("context"; alone: starts_once, has_time_once, time_is_no_better_than_its_makers, a_maximum_is_inherited,
    addresses_are_decoded, the_rest_of_a_slice_is_given);

fn starts_once(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    worker.start([0, 0])?;
    refused(worker.start([0, 0]), Error::Busy)
}

fn has_time_once(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    refused(sys::context_schedule(fixture.ram(), worker.context, 0, 1000), Error::Busy)
}

fn time_is_no_better_than_its_makers(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    let context = sys::context_alloc(fixture.ram(), worker.domain, 0x6000_0000, 0, 0)?;
    refused(sys::context_alloc(fixture.ram(), worker.domain, 0x6000_1000, 0, 7), Error::NoRights)?;
    refused(sys::context_alloc(fixture.ram(), worker.domain, 0x6000_1000, 0, 8), Error::BadArgument)?;
    refused(sys::context_schedule(fixture.ram(), context, 7, 1000), Error::NoRights)?;
    refused(sys::context_schedule(fixture.ram(), context, 8, 1000), Error::BadArgument)?;
    refused(sys::context_schedule(fixture.ram(), context, 0, 99), Error::BadArgument)?;
    refused(sys::context_schedule(fixture.ram(), context, 0, 1_000_001), Error::BadArgument)?;
    let weak = sys::cap_copy(context, Rights::READ)?;
    refused(sys::context_schedule(fixture.ram(), weak, 0, 1000), Error::NoRights)?;
    drop_all(&[weak, context])
}

/// A context of another domain, whose maximum is the lowest there is: it gives no more, though it
/// runs on our time and we may give more.
fn a_maximum_is_inherited(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    let call = |call: Call, words| scripted.call(call.number(), words, fixture.deadline_ns());
    let (ram, domain) = (Handle::SELF_RAM.0, Handle::SELF_DOMAIN.0);
    let [context, ..] = call(Call::ContextAlloc, [ram, domain, 0x6000_0000, 0, 0, 0])??;
    refused(call(Call::ContextAlloc, [ram, domain, 0x6000_1000, 0, 1, 0])?, Error::NoRights)?;
    refused(call(Call::ContextSchedule, [ram, context, 1, 1000, 0, 0])?, Error::NoRights)?;
    call(Call::ContextSchedule, [ram, context, 0, 1000, 0, 0])??;
    Ok(())
}

fn addresses_are_decoded(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    for control in [0, 1, 0xffff_8000_0000_0000, abi::layout::USER_END] {
        refused(sys::context_alloc(fixture.ram(), worker.domain, control, 0, 0), Error::BadArgument)?;
    }
    refused(sys::context_alloc(fixture.ram(), worker.domain, 0x6000_0000, 1 << 20, 0), Error::BadArgument)?;
    let context = sys::context_alloc(fixture.ram(), worker.domain, 0x6000_0000, 0, 0)?;
    for (instruction, stack) in [(0x8000_0000_0000_0000, 0), (0, 0xffff_ffff_ffff_ffff)] {
        // SAFETY: of another domain.
        refused(unsafe { sys::context_start(context, instruction, stack, [0, 0]) }, Error::BadArgument)?;
    }
    sys::cap_drop(context)?;
    Ok(())
}

fn the_rest_of_a_slice_is_given(_: &Fixture) -> Outcome {
    sys::yield_slice()?;
    let (kind, _, _) = sys::cap_stat(Handle::SELF_CONTEXT)?;
    require!(kind == abi::ObjectType::ExecutionContext as u64, "slot 4 holds type {kind}");
    Ok(())
}
