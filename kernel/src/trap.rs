//! Events: from the entry stubs to the decision what runs next.
//!
//! Invariants: nothing a user does panics here; an event ends with all dead objects destroyed or
//! queued for it; a program's fault is first tried as a soft fault, then given to its proxy, then
//! it ends the domain with one report. This file does not know how a call works (`calls`).

use crate::arch::context::{self, Event};
use crate::core_local::CoreLocal;
use crate::objects::domain::Death;
use crate::objects::fault::{Access, Refused};
use crate::objects::upcall::{enter_proxy, upcall};
use crate::objects::{Context, Ptr, device, remote};
use crate::scheduler::Decision;
use crate::state::Kernel;
use crate::trace::Event as Traced;
use crate::{calls, hardware, log, mailbox};
use abi::{Call, DeathCause, Error, ExceptionInfo};

const PAGE_FAULT: u8 = 14;

/// This core's kernel, once `start` made it.
pub static KERNEL: CoreLocal<Option<Kernel>> = CoreLocal::new(None);

/// Handles an event other than a call and leaves the kernel.
pub fn handle(event: Event) -> ! {
    assert!(event != Event::Syscall, "calls come by `handle_syscall`");
    run(|kernel| kernel.step(event))
}

/// Handles a call and leaves the kernel; compiled on its own because it should be short.
#[inline(always)]
pub fn handle_syscall() -> ! {
    run(|kernel| kernel.step(Event::Syscall))
}

#[inline(always)]
fn run(step: impl FnOnce(&mut Kernel) -> Decision) -> ! {
    leave(KERNEL.with(|kernel| kernel.as_mut().map_or(Decision::Idle, step)))
}

/// Goes on as decided.
#[inline(always)]
pub fn leave(decision: Decision) -> ! {
    match decision {
        // SAFETY: `decide` gives the registers of the current context, whose space is loaded;
        // nothing else refers to them now.
        Decision::Resume(mut registers) => unsafe { context::resume(registers.as_mut()) },
        Decision::Idle => match KERNEL.with(|kernel| kernel.as_mut().map_or(Decision::Idle, Kernel::serve)) {
            // SAFETY: as above.
            Decision::Resume(mut registers) => unsafe { context::resume(registers.as_mut()) },
            Decision::Idle => context::idle(),
        },
    }
}

impl Kernel {
    /// Handles one event.
    #[inline(always)]
    pub fn step(&mut self, event: Event) -> Decision {
        match (event, self.scheduler.current()) {
            (Event::Syscall, Some(context)) => {
                if let Some(context) = self.system_call(context) {
                    return self.resume(context);
                }
            }
            (Event::Exception { vector, error, address }, Some(context)) => {
                self.exception(context, ExceptionInfo { vector: u64::from(vector), error, address })
            }
            (Event::Interrupt { vector }, _) => {
                self.counters.interrupts += 1;
                self.trace(Traced::Interrupt, 0, [u64::from(vector), 0]);
                device::interrupt(self, vector);
            }
            (Event::Timer, _) => {
                self.counters.interrupts += 1;
                self.on_timer();
            }
            (Event::Wake, _) => self.woken(),
            (Event::Syscall | Event::Exception { .. }, None) => unreachable!("user events come from a current context"),
        }
        self.drain_dead();
        self.decide()
    }

    pub(crate) fn woken(&mut self) {
        self.counters.wakes_taken += 1;
        self.service_tlb_shootdowns();
        mailbox::drain(&mut |slot| match slot {
            mailbox::LOG_SLOT => log::drain(),
            crate::objects::pcore::CORE_SLOT => self.on_core_slot(),
            remote::SHARED_SLOT => self.on_shared_doorbell(),
            slot => {
                self.trace(Traced::Wake, 0, [slot as u64, 0]);
                remote::on_wake_slot(self, slot);
            }
        });
    }

    #[inline(always)]
    fn system_call(&mut self, context: Ptr<Context>) -> Option<Ptr<Context>> {
        let number = context.with_registers(|registers| registers.rax);
        if let Some(call) = Call::decode(number) {
            self.counters.calls += 1;
            return calls::enter(self, context, call);
        }
        self.other_call(context, number);
        None
    }

    fn other_call(&mut self, context: Ptr<Context>, number: u64) {
        if abi::call::is_native(number) {
            self.counters.calls += 1;
            return context.set_result(Err(Error::BadCall));
        }
        self.counters.linux_calls += 1;
        let entry = context.proxy.get().and_then(|proxy| Some((proxy.call_entry?, proxy.stack_top)));
        match entry.filter(|_| !context.in_proxy()) {
            Some(entry) => enter_proxy(context, entry),
            None => {
                self.kill(context.domain(), Death::of_context(DeathCause::BadCall, context, ExceptionInfo::default()))
            }
        }
    }

    #[inline(never)]
    fn exception(&mut self, context: Ptr<Context>, exception: ExceptionInfo) {
        if exception.vector == u64::from(PAGE_FAULT) {
            let range = context.domain().range();
            match range.try_resolve(self, exception.address, Access::decode(exception.error)) {
                Ok(_) => {
                    self.counters.soft_faults += 1;
                    let faults = &context.domain().soft_faults;
                    faults.set(faults.get() + 1);
                    self.trace(Traced::SoftFault, context.header().id(), [exception.address, exception.error]);
                    return;
                }
                // The program makes the access again.
                Err(Refused::Later) => (),
                Err(Refused::NotAllowed) => self.hard_fault(context, exception, DeathCause::Exception),
                Err(Refused::NoMemory) => {
                    let starved = ExceptionInfo { vector: ExceptionInfo::NO_MEMORY, ..exception };
                    self.hard_fault(context, starved, DeathCause::NoMemory);
                }
            }
            return;
        }
        self.hard_fault(context, exception, DeathCause::Exception);
    }

    fn hard_fault(&mut self, context: Ptr<Context>, exception: ExceptionInfo, cause: DeathCause) {
        self.counters.hard_faults += 1;
        self.trace(Traced::HardFault, context.header().id(), [exception.vector, exception.address]);
        match context.proxy.get().filter(|_| !context.in_proxy()) {
            Some(proxy) => upcall(context, proxy, exception),
            None => {
                report(context, &exception);
                self.kill(context.domain(), Death::of_context(cause, context, exception));
            }
        }
    }
}

/// Says what a domain did before it ends.
fn report(context: Ptr<Context>, exception: &ExceptionInfo) {
    let domain = context.domain();
    let (id, name) = (domain.header().id(), domain.writer.name());
    context.with_registers(|registers| {
        hardware::write_line(format_args!(
            "pelago: {} (domain {id:#x}) exception {} error {:#x} address {:#x} rip {:#x} rsp {:#x}",
            name.as_str(),
            exception.vector,
            exception.error,
            exception.address,
            registers.rip,
            registers.rsp
        ));
        hardware::print_user(registers, domain.range().root(), name.as_str());
    });
}
