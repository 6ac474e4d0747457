//! ExecutionContext: a thread of control.
//!
//! Invariants: the state says what it waits for, and each blocked state has exactly one way out,
//! [`Kernel::complete`], which takes the context out of the queues, donations and deadlines of that
//! state; a context that is not `Runnable` is in no ready queue, nor is its time. The processor
//! writes its registers while it is current, the kernel otherwise. A context is on its domain's
//! list until it ends; the dead object stays while capabilities name it.
//!
//! ```text
//!        ContextStart                Wait, nothing pending
//!   New ──────────────► Runnable ───────────────────────────► Waiting      bits, or the deadline
//!                         │  ▲   SemaphoreDown of 0
//!                         │  ├──────────────────────────────► OnSemaphore  an up, or the deadline
//!                         │  │   PortalReplyWait, no caller
//!                         │  ├──────────────────────────────► Accepting    a caller, the deadline
//!                         │  │   PortalCall, callee accepts
//!                         │  ├──────────────────────────────► Served       the reply
//!                         │  │   PortalCall, callee is busy       ▲ its turn
//!                         │  ├──────────────────────────────► Queued       or the deadline
//!                         │  │   PortalCall of a mailbox
//!                         │  └──────────────────────────────► Donation     the callee idles
//!                         ▼
//!   from any state ────► Dead            right: what makes it Runnable again, by `complete`;
//!                                        for the last three the callee's death does, too
//! ```
//!
//! `set_state` asserts that a change is one of these arrows, or from Queued to Served.

use super::mapping::PageRun;
use super::portal::Depths;
use super::{Domain, Header, Link, List, Made, Object, Portal, Ptr, Ram, Schedule, Segment, Semaphore, Slot, linked};
use crate::arch::bases::Bases;
use crate::arch::context::Registers;
use crate::hardware::{self, VectorArea};
use crate::memory::{PhysAddr, phys_to_virt};
use crate::scheduler::Progress;
use crate::state::Kernel;
use crate::steps::{Budget, CONTEXT_WORK, WAKE_WORK};
use abi::control::{ControlPage, ProgramRegisters};
use abi::layout::protection;
use abi::{Error, ExceptionInfo, ObjectType};
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr::NonNull;
use intrusive_collections::RBTreeLink;

/// What a context does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In `PortalCall`, in the queue of a rendezvous callee.
    Queued(Ptr<Context>),
    /// In `PortalCall`, until the rendezvous callee replies.
    Served(Ptr<Context>),
    /// In `PortalCall`, until the mailbox callee idles.
    Donation(Ptr<Context>),
    /// Made, not started.
    New,
    /// In `Wait`.
    Waiting,
    /// In `SemaphoreDown`.
    OnSemaphore(Ptr<Semaphore>),
    /// In `PortalReplyWait`, without a caller.
    Accepting,
    /// Can run.
    Runnable,
    /// Ended.
    Dead,
}

/// Where a Linux program's calls and faults go, or a native program's upcalls.
#[derive(Clone, Copy)]
pub struct Proxy {
    /// Entered for Linux calls; `None`: there are to be none.
    pub call_entry: Option<u64>,
    /// Entered for faults, notifications and ends of slices.
    pub upcall_entry: u64,
    /// Stack pointer at entry.
    pub stack_top: u64,
}

/// A thread of control.
#[repr(C, align(16))]
pub struct Context {
    header: Header,
    domain: Ptr<Domain>,
    state: Cell<State>,
    /// Badge bits not yet taken by `Wait`.
    pub(crate) pending: Cell<u64>,
    pub(crate) proxy: Cell<Option<Proxy>>,
    /// It asked for an upcall at the end of each slice.
    pub(crate) wants_preemption_upcalls: Cell<bool>,
    pub(crate) schedule: Cell<Option<Ptr<Schedule>>>,
    control: Cell<Option<Ptr<Segment>>>,
    control_frame: PhysAddr,
    /// May call `ContextProxy`.
    pub(crate) is_linux: bool,
    /// The highest priority of time that it may make, whatever time it runs on.
    pub(crate) priority_max: usize,
    has_vectors: bool,
    of_domain: Link<Context>,
    /// Contexts that donate time to it.
    pub(super) donors: List<Context, 1>,
    pub(super) of_callee: Link<Context>,
    /// Rendezvous callers in its queue.
    pub(crate) callers: List<Context, 2>,
    /// In the queue of a rendezvous callee, or among the callers of a mailbox.
    of_queue: Link<Context>,
    on_semaphore: Link<Context>,
    /// Mailbox callers, which go on when it idles, except one that is its first donor.
    pub(crate) mailbox_callers: List<Context, 2>,
    /// Linked while it was woken, or ended, and some donors were not told; the next to be woken.
    waking: Link<Context>,
    pub(crate) next_to_wake: Cell<Option<Ptr<Context>>>,
    /// Longest chain of donations that ends here, and the depths of its donors but the first.
    pub(super) depth: Cell<u8>,
    pub(super) depths: Depths,
    /// The rendezvous caller being served.
    pub(crate) serving: Cell<Option<Ptr<Context>>>,
    /// Badge of the call it makes, while it is queued.
    pub(super) badge: Cell<u64>,
    pub(crate) timeout: RBTreeLink,
    pub(crate) timeout_ns: Cell<u64>,
    pub(crate) watch: RBTreeLink,
    pub(crate) watch_ns: Cell<u64>,
    /// Probes left until it is reported, and the progress of its program at the last one.
    pub(crate) watch_left: Cell<(u64, Progress)>,
    /// 0: not watched.
    pub(crate) watch_limit_ns: Cell<u64>,
    pub(crate) watch_target: Slot,
    /// What its call `RamRevoke` destroys in steps: the slot holds it, so that it is not destroyed
    /// at once.
    pub(crate) revoked: Slot,
    /// The segment that its call makes, in several steps; nothing else names it.
    pub(crate) partial: Slot,
    /// Portals into it.
    pub(crate) portals: List<Portal>,
    registers: UnsafeCell<Registers>,
    pub(crate) bases: Cell<Bases>,
    vectors: UnsafeCell<VectorArea>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Context {
    const TYPE: ObjectType = ObjectType::ExecutionContext;
}

linked!(Context, 0: of_domain);
linked!(Context, 1: of_callee);
linked!(Context, 2: of_queue);
linked!(Context, 3: on_semaphore);
linked!(Context, 4: waking);

impl Context {
    /// What it does.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// Changes its state, by an arrow of the diagram above.
    #[inline(always)]
    pub(crate) fn set_state(&self, state: State) {
        use State::*;
        let fits = match self.state.get() {
            Dead => false,
            Runnable => !matches!(state, New | Runnable),
            Queued(_) => matches!(state, Runnable | Served(_) | Dead),
            _ => matches!(state, Runnable | Dead),
        };
        assert!(fits, "a change of state that no context makes");
        self.state.set(state);
    }

    /// Its domain, valid until it ends; a dead context holds no reference of its domain.
    pub fn domain(&self) -> Ptr<Domain> {
        self.domain
    }

    /// Longest chain of donations that ends here.
    #[cfg(test)]
    pub(crate) fn depth(&self) -> u8 {
        self.depth.get()
    }

    /// Contexts on the longest chain of donations that ends here, itself among them.
    pub(crate) fn chain(&self) -> u32 {
        u32::from(self.depth.get()) + 1
    }

    /// The callee that it donates its time to.
    pub fn donates_to(&self) -> Option<Ptr<Context>> {
        match self.state.get() {
            State::Queued(callee) | State::Served(callee) | State::Donation(callee) => Some(callee),
            _ => None,
        }
    }

    /// Whether donors of it are still to be woken.
    pub(crate) fn is_waking(&self) -> bool {
        self.waking.is_linked()
    }

    /// Where its registers are saved.
    pub fn registers_at(&self) -> NonNull<Registers> {
        NonNull::from(&self.registers).cast()
    }

    /// Looks at or changes its registers.
    pub fn with_registers<R>(&self, f: impl FnOnce(&mut Registers) -> R) -> R {
        // SAFETY: the kernel is single-threaded, the processor writes them only outside the kernel,
        // and `f` has no way to reach them twice.
        f(unsafe { &mut *self.registers.get() })
    }

    /// Whether it has vector registers.
    pub fn has_vectors(&self) -> bool {
        self.has_vectors
    }

    /// Saves or restores its vector state.
    pub fn with_vectors<R>(&self, f: impl FnOnce(&mut VectorArea) -> R) -> R {
        // SAFETY: as for registers.
        f(unsafe { &mut *self.vectors.get() })
    }

    /// Sets the result of its call.
    pub fn set_result(&self, result: Result<[u64; 3], Error>) {
        self.with_registers(|registers| match result {
            Ok([first, second, third]) => {
                registers.rax = 0;
                registers.rdi = first;
                registers.rsi = second;
                registers.rdx = third;
            }
            Err(error) => registers.rax = (error as u64).wrapping_neg(),
        });
    }

    /// Has it execute the instruction of its call again when it goes on.
    pub fn retry_call(&self) {
        self.with_registers(|registers| registers.rip = registers.rip.wrapping_sub(Registers::CALL_BYTES));
    }

    /// The words of the `PortalCall` that it is in.
    pub(super) fn words_sent(&self) -> [u64; 4] {
        self.with_registers(|registers| [registers.rsi, registers.rdx, registers.r10, registers.r8])
    }

    /// Sets the result of `PortalReplyWait`.
    pub(super) fn set_received(&self, badge: u64, words: [u64; 4]) {
        self.set_result(Ok([badge, words[0], words[1]]));
        self.with_registers(|registers| (registers.r8, registers.r9, registers.r10) = (words[2], words[3], 0));
    }

    fn control_at(&self) -> *mut ControlPage {
        phys_to_virt(self.control_frame).cast()
    }

    /// A word of the control page.
    fn control_word(&self, offset: usize) -> *mut u64 {
        self.control_at().cast::<u8>().wrapping_add(offset).cast()
    }

    /// Whether proxy code runs, as the program says.
    pub fn in_proxy(&self) -> bool {
        // SAFETY: the frame belongs to this context; user code may write it, hence volatile.
        unsafe { self.control_word(offset_of!(ControlPage, in_proxy)).read_volatile() != 0 }
    }

    /// Tells the program so: 0 or bits of `ControlPage::in_proxy`.
    pub fn set_in_proxy(&self, word: u64) {
        // SAFETY: as above.
        unsafe { self.control_word(offset_of!(ControlPage, in_proxy)).write_volatile(word) }
    }

    /// Badge bits that interrupt program code.
    pub fn upcall_mask(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.control_word(offset_of!(ControlPage, upcall_mask)).read_volatile() }
    }

    /// The program's registers.
    pub fn program(&self) -> ProgramRegisters {
        let from = self.control_at().cast::<u8>().wrapping_add(offset_of!(ControlPage, program));
        // SAFETY: as above; any bytes are valid numbers.
        unsafe { from.cast::<ProgramRegisters>().read_volatile() }
    }

    /// Stores the program's registers and the cause of the interruption.
    pub fn set_program(&self, program: &ProgramRegisters, exception: ExceptionInfo) {
        let at = self.control_at().cast::<u8>();
        // SAFETY: as above.
        unsafe {
            at.wrapping_add(offset_of!(ControlPage, program)).cast::<ProgramRegisters>().write_volatile(*program);
            at.wrapping_add(offset_of!(ControlPage, exception)).cast::<ExceptionInfo>().write_volatile(exception);
        }
    }

    /// Stores the registers that a Linux call changes; the others stay in place.
    pub fn set_call(&self, [rip, rsp, rflags, number]: [u64; 4]) {
        let program = offset_of!(ControlPage, program);
        let words = [
            (offset_of!(ProgramRegisters, rip), rip),
            (offset_of!(ProgramRegisters, rsp), rsp),
            (offset_of!(ProgramRegisters, rflags), rflags),
            (offset_of!(ProgramRegisters, rax), number),
        ];
        for (offset, value) in words {
            // SAFETY: as above.
            unsafe { self.control_word(program + offset).write_volatile(value) }
        }
    }
}

/// What `ContextAlloc` sets for good.
#[derive(Clone, Copy)]
pub struct Options {
    /// Has vector registers.
    pub has_vectors: bool,
    /// May call `ContextProxy`.
    pub is_linux: bool,
    /// The highest priority of time that it may make.
    pub priority_max: usize,
}

impl Ptr<Context> {
    /// A context of `domain` with its control page at `control`; not started. The domain keeps one
    /// reference, the caller gets another.
    pub fn create(
        kernel: &mut Kernel,
        ram: Ptr<Ram>,
        domain: Ptr<Domain>,
        control: PageRun,
        options: Options,
    ) -> Made<Context> {
        let segment = Ptr::<Segment>::new_contiguous(kernel, ram, 1)?;
        let frame = segment.base().expect("contiguous");
        let open = protection::READ | protection::WRITE;
        let made = domain
            .range()
            .map(kernel, control, segment, 0, [open, open])
            .and_then(|()| kernel.create(ram, |header| Context::new(header, domain, segment, frame, options)));
        match made {
            Ok(context) => {
                kernel.retain(domain);
                kernel.retain(context);
                domain.contexts.push_back(context);
            }
            Err(_) => {
                // `map` refuses a place that is taken, so only its own mapping can be there.
                if domain.range().at(control.start).is_some_and(|mapping| mapping.segment() == Some(segment)) {
                    domain.range().unmap(kernel, control, &mut Budget::all())?;
                }
                kernel.release(segment);
            }
        }
        made
    }

    pub(crate) fn first_donor(self) -> Option<Ptr<Context>> {
        self.donors.first()
    }

    pub(crate) fn next_donor(self) -> Option<Ptr<Context>> {
        self.of_callee.next()
    }
}

impl Context {
    fn new(header: Header, domain: Ptr<Domain>, control: Ptr<Segment>, frame: PhysAddr, options: Options) -> Self {
        Context {
            header,
            domain,
            state: Cell::new(State::New),
            pending: Cell::new(0),
            proxy: Cell::new(None),
            wants_preemption_upcalls: Cell::new(false),
            schedule: Cell::new(None),
            control: Cell::new(Some(control)),
            control_frame: frame,
            is_linux: options.is_linux,
            priority_max: options.priority_max,
            has_vectors: options.has_vectors,
            of_domain: Link::new(),
            donors: List::new(),
            of_callee: Link::new(),
            callers: List::new(),
            of_queue: Link::new(),
            on_semaphore: Link::new(),
            mailbox_callers: List::new(),
            waking: Link::new(),
            next_to_wake: Cell::new(None),
            depth: Cell::new(0),
            depths: Depths::default(),
            serving: Cell::new(None),
            badge: Cell::new(0),
            timeout: RBTreeLink::new(),
            timeout_ns: Cell::new(0),
            watch: RBTreeLink::new(),
            watch_ns: Cell::new(0),
            watch_left: Cell::new((0, Progress::default())),
            watch_limit_ns: Cell::new(0),
            watch_target: Slot::new(),
            revoked: Slot::new(),
            partial: Slot::new(),
            portals: List::new(),
            registers: UnsafeCell::new(Registers::new()),
            bases: Cell::default(),
            vectors: UnsafeCell::new(VectorArea::new()),
        }
    }
}

impl Kernel {
    /// Starts a new context.
    pub fn start(&mut self, context: Ptr<Context>, rip: u64, rsp: u64, arguments: [u64; 2]) {
        context.with_registers(|registers| {
            registers.rip = rip;
            registers.rsp = rsp;
            [registers.rdi, registers.rsi] = arguments;
            registers.set_exact();
        });
        self.unblock(context);
    }

    /// Sets badge bits of `context`. Never blocks, never fails.
    pub fn signal(&mut self, context: Ptr<Context>, bits: u64) {
        if bits == 0 || context.state() == State::Dead {
            return;
        }
        let before = context.pending.replace(context.pending.get() | bits);
        match context.state() {
            State::Waiting => {
                let taken = context.pending.replace(0);
                self.complete(context, Ok([taken, 0, 0]));
                return;
            }
            State::Donation(callee) if callee.schedule.get().is_some() => self.return_donation(context, callee),
            _ => (),
        }
        if before == 0 {
            self.scheduler.arm_watch(context);
        }
    }

    /// Ends a wait of any kind: takes the context out of its queues, sets the result and unblocks
    /// it.
    pub fn complete(&mut self, context: Ptr<Context>, result: Result<[u64; 3], Error>) {
        hardware::count_work(WAKE_WORK);
        self.detach(context);
        context.set_result(result);
        self.unblock(context);
    }

    /// Takes a blocked context out of every queue. Its state is stale afterwards.
    #[inline(always)]
    fn detach(&mut self, context: Ptr<Context>) {
        self.scheduler.cancel_timeout(context);
        match context.state() {
            State::OnSemaphore(semaphore) => semaphore.leave(self, context),
            State::Queued(callee) => {
                callee.callers.remove(context);
                context.take_back_from(callee);
            }
            State::Served(callee) => {
                callee.serving.set(None);
                context.take_back_from(callee);
                self.scheduler.start_watch(callee);
            }
            State::Donation(callee) => {
                if context.of_queue.is_linked() {
                    callee.mailbox_callers.remove(context);
                }
                context.take_back_from(callee);
            }
            State::New | State::Runnable | State::Waiting | State::Accepting | State::Dead => (),
        }
    }

    /// Ends a context: it never runs again, and its donors are told. Gives how many have been told.
    pub fn end_context(&mut self, context: Ptr<Context>) -> u32 {
        if context.state() == State::Dead {
            return 0;
        }
        hardware::count_work(CONTEXT_WORK);
        self.detach(context);
        self.scheduler.cancel_watch(context);
        context.watch_limit_ns.set(0);
        self.scheduler.set_preemption_upcalls(context, false);
        self.flush_running(context);
        context.set_state(State::Dead);
        let told = self.fail_donors(context);
        self.wake_slots.free_all(context.any());
        self.keep(&context.watch_target, None, None);
        self.keep(&context.revoked, None, None);
        self.keep(&context.partial, None, None);
        while let Some(portal) = context.portals.first() {
            portal.set_callee(None);
        }
        if let Some(schedule) = context.schedule.take() {
            self.scheduler.set_window(schedule, None);
            schedule.context.set(None);
            self.release(schedule);
        }
        if let Some(control) = context.control.take() {
            self.release(control);
        }
        assert!(!context.timeout.is_linked() && !context.watch.is_linked(), "a context that ended has a deadline");
        assert!(!context.of_queue.is_linked() && !context.on_semaphore.is_linked(), "a context that ended is queued");
        assert!(!context.of_callee.is_linked(), "a context that ended donates time");
        context.domain.contexts.remove(context);
        self.release(context.domain);
        self.release(context);
        told
    }
}

pub(super) fn destroy(_: &mut Kernel, context: Ptr<Context>) {
    assert!(context.state() == State::Dead, "its domain holds a reference of a context that lives");
    assert!(context.donors.is_empty() && context.serving.get().is_none(), "a donor holds a reference");
    assert!(context.callers.is_empty() && context.mailbox_callers.is_empty(), "a caller holds a reference");
    assert!(context.portals.is_empty() && context.schedule.get().is_none(), "its end takes them");
    assert!(context.header().wake_slots.get() == 0 && !context.is_waking(), "its end takes them");
    assert!(context.depth.get() == 0, "chains of donations end in it");
    let kept = [&context.watch_target, &context.revoked, &context.partial];
    assert!(kept.iter().all(|slot| slot.get().is_none()), "its end empties its slots");
}
