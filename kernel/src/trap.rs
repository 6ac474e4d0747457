//! Events: from the entry stubs to a decision what runs next.
//!
//! Invariants: nothing a user does panics here; an event ends with all objects settled; a program's
//! fault is first tried as a soft fault, then given to its proxy, then it ends the domain with one
//! report. This file does not know how a call works (`calls`).

use crate::arch::context::{self, Event, Registers};
use crate::core_local::CoreLocal;
use crate::objects::Ptr;
use crate::objects::context::{Context, Proxy};
use crate::objects::domain::Death;
use crate::objects::fault::{Access, Refused};
use crate::scheduler::Decision;
use crate::state::Kernel;
use crate::trace::Event as Traced;
use crate::{calls, hardware, log, mailbox};
use abi::{Call, ControlPage, DeathCause, Error, ExceptionInfo, ProgramRegisters};

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
                self.interrupt(vector);
            }
            (Event::Timer, _) => {
                self.counters.interrupts += 1;
                self.alarm_rang();
            }
            (Event::Wake, _) => self.woken(),
            (Event::Syscall | Event::Exception { .. }, None) => unreachable!("user events come from a current context"),
        }
        self.drain_dead();
        self.decide()
    }

    pub(crate) fn woken(&mut self) {
        self.counters.wakes_taken += 1;
        self.shoot_down_others();
        mailbox::drain(&mut |slot| match slot {
            mailbox::LOG_SLOT => log::drain(),
            crate::objects::pcore::CORE_SLOT => self.core_slot_rang(),
            crate::objects::remote::SHARED_SLOT => self.shared_rang(),
            slot => {
                self.trace(Traced::Wake, 0, [slot as u64, 0]);
                self.wake_slot_rang(slot);
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

    /// Badge bits came up: program code that asked for it is interrupted, its proxy is told to look
    /// before it goes back.
    pub fn interrupt_program(&mut self, context: Ptr<Context>) {
        let Some(proxy) = context.proxy.get() else { return };
        if context.pending.get() & context.upcall_mask() == 0 {
            return;
        }
        if context.in_proxy() {
            context.set_in_proxy(ControlPage::INSIDE | ControlPage::RUNG);
        } else {
            upcall(context, proxy, ExceptionInfo { vector: ExceptionInfo::NOTIFICATION, ..ExceptionInfo::default() });
        }
    }
}

/// A Linux call: the proxy goes on with the program's registers on its own stack.
fn enter_proxy(context: Ptr<Context>, (call_entry, stack_top): (u64, u64)) {
    context.with_registers(|registers| {
        context.set_call([registers.rip, registers.rsp, registers.flags(), registers.rax]);
        registers.rip = call_entry;
        registers.rsp = stack_top;
    });
    context.set_in_proxy(ControlPage::INSIDE);
}

/// Time is taken from a context that could go on: if it wants to know, it begins with an upcall
/// when it has time again.
#[inline(never)]
pub fn preempted(context: Ptr<Context>) {
    if let Some(proxy) = context.proxy.get()
        && context.wants_ticks.get()
        && !context.in_proxy()
    {
        upcall(context, proxy, ExceptionInfo { vector: ExceptionInfo::PREEMPTION, ..ExceptionInfo::default() });
    }
}

/// Interrupts the program: all its registers go to the control page.
fn upcall(context: Ptr<Context>, proxy: Proxy, exception: ExceptionInfo) {
    context.with_registers(|registers| {
        context.set_program(&to_program(registers), exception);
        registers.rip = proxy.upcall_entry;
        registers.rsp = proxy.stack_top;
        registers.set_exact();
    });
    context.set_in_proxy(ControlPage::INSIDE);
}

/// Copies what both records have under the same names.
macro_rules! copy {
    ($from:ident to $to:ident: $($name:ident)*) => { $($to.$name = $from.$name;)* };
}

fn to_program(registers: &Registers) -> ProgramRegisters {
    let mut program = ProgramRegisters { rflags: registers.flags(), ..ProgramRegisters::default() };
    copy!(registers to program: rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip);
    program
}

/// The registers a program asks for; whatever it says is harmless (see `arch::context`).
pub fn from_program(program: &ProgramRegisters, registers: &mut Registers) {
    copy!(program to registers: rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip);
    registers.set_flags(program.rflags);
    registers.set_exact();
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
