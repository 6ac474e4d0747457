//! Execution contexts: making, timing, starting, upcalls.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::arch::bases::Bases;
use crate::hardware;
use crate::memory::USER_END;
use crate::objects::context::{Options, Proxy, State};
use crate::objects::share::Capability;
use crate::objects::{Context, Ptr, Schedule, upcall};
use crate::scheduler::{GangWindow, PRIORITIES};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::call::kinds::Number;
use abi::layout::context as flags;
use abi::layout::upcall as upcalls;
use abi::{Error, Handle, Rights};

/// Longest time from one window of a gang to the next.
const PERIOD_MAX_US: u64 = 60_000_000;

pub(super) fn context_alloc(kernel: &mut Kernel, request: Request, call: ContextAlloc) -> Answer {
    let ContextAlloc { ram, domain: (domain, (_, held)), control_page: control, flags: options, priority_max } = call;
    // Threads of one's own domain change nobody else.
    if domain != request.caller.domain() && !held.rights.contains(Rights::WRITE) {
        return Err(Error::NoRights);
    }
    if !domain.is_alive() {
        return Err(Error::PeerDead);
    }
    if options & !(flags::FPU | flags::LINUX) != 0 {
        return Err(Error::BadArgument);
    }
    let priority_max = decode_priority(priority_max, request.caller)?;
    let place = domain.range().place(control, 1)?;
    let slot = request.slot(kernel)?;
    domain.ensure_slot(kernel, Handle::SELF_CONTEXT.0 as usize)?;
    let (has_vectors, is_linux) = (options & flags::FPU != 0, options & flags::LINUX != 0);
    let options = Options { has_vectors, is_linux, priority_max };
    let context = Ptr::<Context>::create(kernel, ram, domain, place, options)?;
    if domain.share().is_free(Handle::SELF_CONTEXT.0 as usize) {
        kernel.retain(context);
        domain.insert(
            Handle::SELF_CONTEXT.0 as usize,
            Capability { object: context.any(), badge: 0, rights: Rights::ALL },
        );
    }
    one(request.place(slot, context.any(), Rights::ALL))
}

/// A priority that `giver` may give: its own maximum counts, not the time that it runs on, which
/// may be donated.
fn decode_priority(word: u64, giver: Ptr<Context>) -> Result<usize, Error> {
    let priority = usize::try_from(word).ok().filter(|priority| *priority < PRIORITIES).ok_or(Error::BadArgument)?;
    if priority <= giver.priority_max { Ok(priority) } else { Err(Error::NoRights) }
}

pub(super) fn context_schedule(kernel: &mut Kernel, request: Request, call: ContextSchedule) -> Answer {
    let ContextSchedule { ram, context, priority, slice_us } = call;
    let priority = decode_priority(priority, request.caller)?;
    if context.schedule.get().is_some() {
        return Err(Error::Busy);
    }
    if context.state() == State::Dead {
        return Err(Error::PeerDead);
    }
    let slot = request.slot(kernel)?;
    let schedule = kernel.create(ram, |header| Schedule::new(header, context, priority, slice_us * 1000))?;
    kernel.retain(schedule);
    context.schedule.set(Some(schedule));
    if context.state() == State::Runnable {
        kernel.scheduler.reschedule();
        kernel.make_ready(context);
    }
    one(request.place(slot, schedule.any(), Rights::ALL))
}

pub(super) fn schedule_stat(kernel: &mut Kernel, _: Request, ScheduleStat { schedule }: ScheduleStat) -> Answer {
    kernel.update_accounting();
    Ok(Outcome::Done([schedule.used_ns(), schedule.slice_ns.get() / 1000, schedule.priority as u64]))
}

pub(super) fn schedule_set(kernel: &mut Kernel, _: Request, call: ScheduleSet) -> Answer {
    let ScheduleSet { schedule, slice_us, period_us } = call;
    if period_us != 0 && !(slice_us..=PERIOD_MAX_US).contains(&period_us) {
        return Err(Error::BadArgument);
    }
    if schedule.window.get().is_some() && period_us != 0 {
        return Err(Error::Busy);
    }
    kernel.update_accounting();
    kernel.scheduler.set_slice(schedule, slice_us * 1000, period_us * 1000);
    NOTHING
}

pub(super) fn schedule_gang(kernel: &mut Kernel, _: Request, call: ScheduleGang) -> Answer {
    let ScheduleGang { schedule, period_us, slice_us, phase_us, .. } = call;
    let times = [period_us, slice_us, phase_us];
    if schedule.context.get().is_none() {
        return Err(Error::PeerDead);
    }
    let window = if times == [0; 3] { None } else { Some(decode_window(times)?) };
    if window.is_some_and(|window| schedule.period_ns.get() != 0 || !kernel.scheduler.has_room(schedule, window)) {
        return Err(Error::Busy);
    }
    kernel.update_accounting();
    kernel.scheduler.set_window(schedule, window);
    NOTHING
}

fn decode_window([period_us, slice_us, phase_us]: [u64; 3]) -> Result<GangWindow, Error> {
    if !Number::Slice.limits().contains(&slice_us)
        || !(slice_us..=PERIOD_MAX_US).contains(&period_us)
        || phase_us >= period_us
    {
        return Err(Error::BadArgument);
    }
    Ok(GangWindow { period_ns: period_us * 1000, slice_ns: slice_us * 1000, phase_ns: phase_us * 1000 })
}

pub(super) fn context_start(kernel: &mut Kernel, _: Request, call: ContextStart) -> Answer {
    let ContextStart { context, instruction, stack, arguments } = call;
    match context.state() {
        State::New => kernel.start(context, instruction, stack, arguments),
        State::Dead => return Err(Error::PeerDead),
        _ => return Err(Error::Busy),
    }
    NOTHING
}

fn check_address(address: u64) -> Result<(), Error> {
    if address < USER_END { Ok(()) } else { Err(Error::BadArgument) }
}

pub(super) fn context_proxy(kernel: &mut Kernel, request: Request, call: ContextProxy) -> Answer {
    let ContextProxy { call_entry, upcall_entry, stack_top, flags: options } = call;
    if !request.caller.is_linux {
        return Err(Error::NoRights);
    }
    check_address(call_entry)?;
    let proxy = Proxy { call_entry: Some(call_entry), upcall_entry, stack_top };
    set_proxy(kernel, request.caller, Some(proxy), options)
}

pub(super) fn context_upcall(kernel: &mut Kernel, request: Request, call: ContextUpcall) -> Answer {
    let ContextUpcall { upcall_entry, stack_top, flags: options } = call;
    if request.caller.is_linux {
        return Err(Error::NoRights);
    }
    let proxy = Proxy { call_entry: None, upcall_entry, stack_top };
    set_proxy(kernel, request.caller, (upcall_entry != 0).then_some(proxy), options)
}

fn set_proxy(kernel: &mut Kernel, context: Ptr<Context>, proxy: Option<Proxy>, options: u64) -> Answer {
    if options & !upcalls::TICKS != 0 {
        return Err(Error::BadArgument);
    }
    if let Some(Proxy { upcall_entry, stack_top, .. }) = proxy {
        [upcall_entry, stack_top].into_iter().try_for_each(check_address)?;
    }
    context.proxy.set(proxy);
    kernel.scheduler.set_preemption_upcalls(context, proxy.is_some() && options & upcalls::TICKS != 0);
    NOTHING
}

pub(super) fn context_base(_: &Kernel, request: Request, ContextBase { which, address }: ContextBase) -> Answer {
    let change: fn(&mut Bases, u64) = match which {
        0 => |bases, address| bases.fs = address,
        1 => |bases, address| bases.gs = address,
        _ => return Err(Error::BadArgument),
    };
    // The caller runs, so the processor holds its bases.
    hardware::change_bases(&request.caller.bases, |bases| change(bases, address));
    NOTHING
}

pub(super) fn context_resume(_: &Kernel, request: Request, _: ContextResume) -> Answer {
    let program = request.caller.program();
    check_address(program.rip)?;
    request.caller.with_registers(|registers| upcall::from_program(&program, registers));
    // The kernel clears the mark, not the proxy: between a clear in user mode and this call another
    // upcall would overwrite `program`.
    request.caller.set_in_proxy(0);
    Ok(Outcome::Blocked)
}

pub(super) fn context_watch(kernel: &mut Kernel, _: Request, call: ContextWatch) -> Answer {
    let ContextWatch { context, limit_ns, target } = call;
    if (1..flags::WATCH_LIMIT_MIN_NS).contains(&limit_ns) {
        return Err(Error::BadArgument);
    }
    let target = match (limit_ns, target) {
        (0, _) => None,
        (_, None) => return Err(Error::BadHandle),
        (_, Some((_, source))) => Some(source),
    };
    if context.state() == State::Dead {
        return Err(Error::PeerDead);
    }
    kernel.scheduler.cancel_watch(context);
    context.watch_limit_ns.set(limit_ns);
    kernel.keep(&context.watch_target, target.map(|(_, target)| target), target.map(|(from, _)| from));
    kernel.scheduler.arm_watch(context);
    NOTHING
}

pub(super) fn context_end(kernel: &mut Kernel, request: Request, ContextEnd { context }: ContextEnd) -> Answer {
    if context.state() == State::Dead {
        return Err(Error::PeerDead);
    }
    if !kernel.end_context_within(context, &mut Budget::step()) {
        return Ok(Outcome::Retry);
    }
    if context == request.caller { Ok(Outcome::Blocked) } else { NOTHING }
}

pub(super) fn yield_slice(kernel: &mut Kernel, _: Request, _: Yield) -> Answer {
    kernel.scheduler.yield_slice();
    NOTHING
}
