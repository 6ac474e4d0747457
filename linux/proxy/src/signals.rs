//! Signals: the process's actions and pending ones, each thread's mask and pending ones, and which
//! comes next.
//!
//! Invariants: SIGKILL and SIGSTOP are never blocked, caught or ignored; numbers are 1..=64. A stop
//! signal and SIGCONT never wait together: each takes back the other (signal(7)). A signal to the
//! process waits there for whichever thread is first to have it open.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

#[allow(missing_docs)]
pub mod number {
    pub const SIGILL: u8 = 4;
    pub const SIGTRAP: u8 = 5;
    pub const SIGBUS: u8 = 7;
    pub const SIGFPE: u8 = 8;
    pub const SIGKILL: u8 = 9;
    pub const SIGSEGV: u8 = 11;
    pub const SIGPIPE: u8 = 13;
    pub const SIGALRM: u8 = 14;
    pub const SIGCHLD: u8 = 17;
    pub const SIGCONT: u8 = 18;
    pub const SIGSTOP: u8 = 19;
    pub const SIGTSTP: u8 = 20;
    pub const SIGTTIN: u8 = 21;
    pub const SIGTTOU: u8 = 22;
    pub const SIGURG: u8 = 23;
    pub const SIGXCPU: u8 = 24;
    pub const SIGXFSZ: u8 = 25;
    pub const SIGVTALRM: u8 = 26;
    pub const SIGPROF: u8 = 27;
    pub const SIGWINCH: u8 = 28;
}

#[allow(missing_docs)]
pub mod action {
    pub const DEFAULT: u64 = 0;
    pub const IGNORE: u64 = 1;
    pub const SA_ONSTACK: u64 = 0x0800_0000;
    pub const SA_RESTART: u64 = 0x1000_0000;
    pub const SA_NODEFER: u64 = 0x4000_0000;
    pub const SA_RESETHAND: u64 = 0x8000_0000;
    /// Those, and SA_NOCLDSTOP, SA_NOCLDWAIT, SA_SIGINFO, SA_EXPOSE_TAGBITS and SA_RESTORER.
    pub const KNOWN: u64 = 0xdc00_0807;
}

/// `struct kernel_sigaction` of x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Action {
    /// 0 default, 1 ignore, else the handler's address.
    pub handler: u64,
    /// SA_*.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while it runs.
    pub mask: u64,
}

impl Action {
    fn is_default(&self) -> bool {
        self.handler == action::DEFAULT
    }
}

/// `stack_t`: the alternate signal stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AlternateStack {
    /// Lowest address.
    pub base: u64,
    /// SS_ONSTACK 1, SS_DISABLE 2.
    pub flags: u32,
    /// Padding.
    pub reserved: u32,
    /// Size.
    pub bytes: u64,
}

/// SS_DISABLE.
pub const STACK_DISABLED: u32 = 2;
/// SS_ONSTACK.
pub const ON_STACK: u32 = 1;

impl Default for AlternateStack {
    fn default() -> Self {
        AlternateStack { base: 0, flags: STACK_DISABLED, reserved: 0, bytes: 0 }
    }
}

impl AlternateStack {
    /// Is a stack pointer on it?
    pub fn holds(&self, stack_pointer: u64) -> bool {
        self.flags & STACK_DISABLED == 0 && stack_pointer > self.base && stack_pointer - self.base <= self.bytes
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Run the handler.
    Handle(u8, Action),
    /// The process ends.
    End(u8),
    /// The process stops until SIGCONT comes.
    Stop(u8),
}

/// Who sent a pending signal and why, as siginfo has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cause {
    /// si_code.
    pub code: i32,
    /// si_errno.
    pub errno: i32,
    /// What follows in siginfo: sender and user, timer and overrun, or the address of a fault; then
    /// the value that was sent, or the status of a child.
    pub words: [u64; 2],
}

#[allow(missing_docs)]
pub mod code {
    pub const SI_USER: i32 = 0;
    pub const SI_TIMER: i32 = -2;
    pub const SI_TKILL: i32 = -6;
    pub const SI_KERNEL: i32 = 0x80;
    pub const BUS_ADRERR: i32 = 2;
    pub const CLD_EXITED: i32 = 1;
    pub const CLD_KILLED: i32 = 2;
    pub const CLD_STOPPED: i32 = 5;
    pub const CLD_CONTINUED: i32 = 6;
}

impl Cause {
    /// Sent by a process, of user 0.
    pub const fn of_process(code: i32, process: u32) -> Cause {
        Cause { code, errno: 0, words: [process as u64, 0] }
    }

    /// An exception in the program.
    pub const fn fault(code: i32, address: u64) -> Cause {
        Cause { code, errno: 0, words: [address, 0] }
    }

    /// A timer that expired; how often more than once is found out when it is delivered.
    pub const fn timer(timer: u32, value: u64) -> Cause {
        Cause { code: code::SI_TIMER, errno: 0, words: [timer as u64, value] }
    }

    /// The timer it comes from.
    pub fn timer_of(&self) -> Option<u32> {
        (self.code == code::SI_TIMER).then_some(self.words[0] as u32)
    }
}

/// The first signal of which each one sent is delivered (SIGRTMIN).
pub const QUEUED_FIRST: u8 = 32;
/// How many of those wait for a process, and for each thread, at most.
pub const QUEUED_MAX: usize = 64;

/// What became of a signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It waits to be delivered.
    Kept,
    /// One of its number waits already, which stands for both.
    Known,
    /// Nobody wants it.
    Ignored,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Queued {
    signal: u64,
    cause: Cause,
}

/// Signals that came and were not delivered yet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Pending {
    causes: [Cause; 64],
    /// Bit n-1 = signal n.
    set: u64,
    /// Those from [`QUEUED_FIRST`] on, in the order they came; one that finds no room is as the
    /// others.
    queue: [Queued; QUEUED_MAX],
    queued: u64,
}

impl Default for Pending {
    fn default() -> Self {
        Pending { causes: [Cause::default(); 64], set: 0, queue: [Queued::default(); QUEUED_MAX], queued: 0 }
    }
}

impl Pending {
    fn queue(&mut self) -> &mut [Queued] {
        &mut self.queue[..(self.queued as usize).min(QUEUED_MAX)]
    }

    /// Of those from [`QUEUED_FIRST`] on, so many are queued.
    fn put(&mut self, signal: u8, cause: Cause, queued_max: u64) -> Posted {
        let was_there = self.set & bit(signal) != 0;
        self.set |= bit(signal);
        let place = self.queue().len();
        if signal >= QUEUED_FIRST && place < QUEUED_MAX && (place as u64) < queued_max {
            self.queue[place] = Queued { signal: signal.into(), cause };
            self.queued = place as u64 + 1;
            return Posted::Kept;
        }
        if was_there {
            return Posted::Known;
        }
        self.causes[usize::from(signal - 1)] = cause;
        Posted::Kept
    }

    /// Takes one, if it is there.
    fn take(&mut self, signal: u8) -> Option<Cause> {
        if self.set & bit(signal) == 0 {
            return None;
        }
        let is_it = |queued: &Queued| queued.signal == u64::from(signal);
        let Some(place) = self.queue().iter().position(is_it) else {
            self.set &= !bit(signal);
            return Some(self.causes[usize::from(signal - 1)]);
        };
        let cause = self.queue[place].cause;
        self.queue().copy_within(place + 1.., place);
        self.queued -= 1;
        if !self.queue().iter().any(is_it) {
            self.set &= !bit(signal);
        }
        Some(cause)
    }

    /// These are not pending any more.
    fn drop_all(&mut self, signals: u64) {
        if self.set & signals == 0 {
            return;
        }
        for signal in (QUEUED_FIRST..=64).filter(|signal| signals & bit(*signal) != 0) {
            while self.take(signal).is_some() {}
        }
        self.set &= !signals;
    }
}

/// What all threads share; plain data, inherited by fork except what is pending.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Signals {
    actions: [Action; 64],
    pending: Pending,
    /// 1 if SIGCONT came after the last stop signal.
    continued: u64,
    /// How many of those that are queued may wait (RLIMIT_SIGPENDING), for the process and for each
    /// thread.
    queued_max: u64,
}

impl Default for Signals {
    fn default() -> Self {
        let (actions, pending) = ([Action::default(); 64], Pending::default());
        Signals { actions, pending, continued: 0, queued_max: QUEUED_MAX as u64 }
    }
}

/// What is a thread's own.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ThreadSignals {
    pending: Pending,
    /// Bit n-1 = signal n.
    pub blocked: u64,
    /// Blocked ones that a call of the thread waits for (rt_sigtimedwait).
    pub awaited: u64,
    /// The alternate stack.
    pub alternate: AlternateStack,
    mask_to_restore: u64,
    restores_mask: u64,
}

impl ThreadSignals {
    /// SIG_BLOCK 0, SIG_UNBLOCK 1, SIG_SETMASK 2; gives the old mask. `EINVAL`.
    pub fn change_mask(&mut self, how: u64, set: u64) -> Result<u64, Errno> {
        let old = self.blocked;
        self.blocked = match how {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        } & !UNBLOCKABLE;
        Ok(old)
    }

    /// Blocks with another mask until [`ThreadSignals::restore_mask`] (rt_sigsuspend and friends).
    pub fn mask_for_a_call(&mut self, mask: u64) {
        (self.mask_to_restore, self.restores_mask) = (self.blocked, 1);
        self.blocked = mask & !UNBLOCKABLE;
    }

    /// Puts back what `mask_for_a_call` changed; the handler's way back asks for it too.
    pub fn restore_mask(&mut self) {
        if core::mem::take(&mut self.restores_mask) != 0 {
            self.blocked = self.mask_to_restore;
        }
    }

    /// The mask as it is outside of the call that changed it, which is over now.
    pub fn take_lasting_mask(&mut self) -> u64 {
        if core::mem::take(&mut self.restores_mask) != 0 { self.mask_to_restore } else { self.blocked }
    }

    /// The mask while a handler runs.
    pub fn mask_for(&self, signal: u8, action: &Action) -> u64 {
        let own = if action.flags & action::SA_NODEFER != 0 { 0 } else { bit(signal) };
        (self.blocked | action.mask | own) & !UNBLOCKABLE
    }

    /// Would a signal make this thread go on: is it open, or awaited?
    pub fn wants(&self, signal: u8) -> bool {
        (!self.blocked | self.awaited) & bit(signal) != 0
    }

    /// What was zeroes begins as a new thread's, with the mask of the one that makes it.
    pub fn begin(&mut self, blocked: u64) {
        (self.blocked, self.alternate) = (blocked, AlternateStack::default());
    }

    /// What a forked child's thread keeps: mask and alternate stack.
    pub fn become_child(&mut self) {
        (self.pending.set, self.pending.queued, self.awaited) = (0, 0, 0);
    }
}

/// The mask bit of a signal.
pub const fn bit(signal: u8) -> u64 {
    1 << ((signal - 1) & 63)
}

const UNBLOCKABLE: u64 = bit(number::SIGKILL) | bit(number::SIGSTOP);

/// Signals that stop the process by default.
const STOPS: u64 = bit(number::SIGSTOP) | bit(number::SIGTSTP) | bit(number::SIGTTIN) | bit(number::SIGTTOU);

fn ignored_by_default(signal: u8) -> bool {
    use number::*;
    matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH)
}

impl Signals {
    /// Replaces an action, gives the old one. `EINVAL` for bad numbers and for SIGKILL and SIGSTOP.
    pub fn set_action(&mut self, signal: u64, new: Option<Action>) -> Result<Action, Errno> {
        let valid = (1..=64).contains(&signal) && (new.is_none() || UNBLOCKABLE & bit(signal as u8) == 0);
        if !valid {
            return Err(Errno::EINVAL);
        }
        let slot = &mut self.actions[signal as usize - 1];
        let old = *slot;
        if let Some(action) = new {
            // What is not known is not told back, by which programs find out.
            let flags = action.flags & action::KNOWN;
            *slot = Action { mask: action.mask & !UNBLOCKABLE, flags, ..action };
            if self.is_ignored(signal as u8) {
                self.pending.drop_all(bit(signal as u8));
            }
        }
        Ok(old)
    }

    /// Would delivery do nothing?
    pub fn is_ignored(&self, signal: u8) -> bool {
        match self.actions[usize::from(signal - 1) & 63].handler {
            action::DEFAULT => ignored_by_default(signal),
            action::IGNORE => true,
            _ => false,
        }
    }

    /// Did the program itself say SIG_IGN?
    pub fn is_ignored_by_choice(&self, signal: u8) -> bool {
        self.actions[usize::from(signal - 1) & 63].handler == action::IGNORE
    }

    /// So many of those that are queued may wait from now on (RLIMIT_SIGPENDING).
    pub fn set_queued_max(&mut self, limit: u64) {
        self.queued_max = limit.min(QUEUED_MAX as u64);
    }

    /// Can one more be queued with its data, for the process or for a thread?
    pub fn has_room(&self, thread: Option<&ThreadSignals>) -> bool {
        thread.map_or(&self.pending, |thread| &thread.pending).queued < self.queued_max
    }

    /// A signal to the process came. `is_blocked`: the thread that is to see it blocks it; one that
    /// is ignored waits all the same then. Nonsense numbers are dropped.
    pub fn post(&mut self, signal: u8, cause: Cause, is_blocked: bool) -> Posted {
        if !(1..=64).contains(&signal) || !self.accepts(signal, is_blocked) {
            return Posted::Ignored;
        }
        self.pending.put(signal, cause, self.queued_max)
    }

    /// A signal to one thread came.
    pub fn post_to(&mut self, thread: &mut ThreadSignals, signal: u8, cause: Cause) -> Posted {
        if !(1..=64).contains(&signal) || !self.accepts(signal, thread.blocked & bit(signal) != 0) {
            return Posted::Ignored;
        }
        // What stops or continues, does so with the whole process.
        let is_of_all = (STOPS | bit(number::SIGCONT)) & bit(signal) != 0;
        let pending = if is_of_all { &mut self.pending } else { &mut thread.pending };
        pending.put(signal, cause, self.queued_max)
    }

    /// Is it to be kept? Stop signals and SIGCONT take each other back.
    fn accepts(&mut self, signal: u8, is_blocked: bool) -> bool {
        if signal == number::SIGCONT {
            self.pending.set &= !STOPS;
            self.continued = 1;
        } else if STOPS & bit(signal) != 0 {
            self.pending.set &= !bit(number::SIGCONT);
            self.continued = 0;
        }
        is_blocked || !self.is_ignored(signal)
    }

    /// An exception in program code: cannot wait, so blocked or ignored ends the process, as Linux
    /// does.
    pub fn force(&mut self, thread: &mut ThreadSignals, signal: u8, cause: Cause) {
        if thread.blocked & bit(signal) != 0 || self.is_ignored(signal) {
            self.actions[usize::from(signal - 1) & 63].handler = action::DEFAULT;
            thread.blocked &= !bit(signal);
        }
        self.post_to(thread, signal, cause);
    }

    /// Has the thread nothing to see, and no mask to put back? Asked after every call.
    #[inline]
    pub fn is_quiet(&self, thread: &ThreadSignals) -> bool {
        self.pending(thread) & !thread.blocked == 0 && thread.restores_mask == 0
    }

    /// All that came and the thread could see.
    #[inline]
    pub fn pending(&self, thread: &ThreadSignals) -> u64 {
        self.pending.set | thread.pending.set
    }

    /// Is there one to act on now?
    #[inline]
    pub fn has_deliverable(&self, thread: &ThreadSignals) -> bool {
        self.pending(thread) & !thread.blocked != 0 && self.peek(thread).is_some()
    }

    /// Would the next one to deliver end the process?
    pub fn ends(&self, thread: &ThreadSignals) -> bool {
        self.peek(thread)
            .is_some_and(|signal| STOPS & bit(signal) == 0 && self.actions[usize::from(signal - 1)].is_default())
    }

    /// Would the next one to deliver let an interrupted call start again?
    pub fn restarts_calls(&self, thread: &ThreadSignals) -> bool {
        self.peek(thread).is_none_or(|signal| {
            let action = self.actions[usize::from(signal - 1)];
            action.handler == action::DEFAULT || action.flags & action::SA_RESTART != 0
        })
    }

    fn peek(&self, thread: &ThreadSignals) -> Option<u8> {
        let open = self.pending(thread) & !thread.blocked;
        if open == 0 {
            return None;
        }
        (1..=64u8).find(|signal| open & bit(*signal) != 0 && !self.is_ignored(*signal))
    }

    /// Takes one out, the thread's own before the process's.
    fn take_out(&mut self, thread: &mut ThreadSignals, signal: u8) -> Option<Cause> {
        thread.pending.take(signal).or_else(|| self.pending.take(signal))
    }

    /// Takes the first that came of a set, whether or not it is blocked (rt_sigtimedwait).
    pub fn take_of(&mut self, thread: &mut ThreadSignals, set: u64) -> Option<(u8, Cause)> {
        let found = self.pending(thread) & set;
        let signal = (1..=64u8).find(|signal| found & bit(*signal) != 0)?;
        self.take_out(thread, signal).map(|cause| (signal, cause))
    }

    /// Takes the next one if all it does is to stop the process.
    pub fn take_stop(&mut self, thread: &mut ThreadSignals) -> Option<u8> {
        let stops = |signal: &u8| STOPS & bit(*signal) != 0 && self.actions[usize::from(*signal - 1)].is_default();
        let signal = self.peek(thread).filter(stops)?;
        self.take_out(thread, signal).map(|_| signal)
    }

    /// May a stopped process go on? Asked once for each SIGCONT.
    pub fn take_continued(&mut self) -> bool {
        core::mem::take(&mut self.continued) != 0
    }

    /// Takes the next one, lowest number first (faults come before the rest only by number).
    pub fn take(&mut self, thread: &mut ThreadSignals) -> Option<(Delivery, Cause)> {
        let open = self.pending(thread) & !thread.blocked;
        if open == 0 {
            return None;
        }
        let ignored = (1..=64u8)
            .filter(|signal| open & bit(*signal) != 0 && self.is_ignored(*signal))
            .fold(0, |all, signal| all | bit(signal));
        self.pending.drop_all(ignored);
        thread.pending.drop_all(ignored);
        let signal = self.peek(thread)?;
        let cause = self.take_out(thread, signal)?;
        let slot = &mut self.actions[usize::from(signal - 1)];
        let action = *slot;
        if action.is_default() {
            let stops = STOPS & bit(signal) != 0;
            return Some((if stops { Delivery::Stop(signal) } else { Delivery::End(signal) }, cause));
        }
        if action.flags & action::SA_RESETHAND != 0 {
            slot.handler = action::DEFAULT;
        }
        Some((Delivery::Handle(signal, action), cause))
    }

    /// exec: handlers go, ignored stays ignored, masks and pending stay.
    pub fn reset_for_exec(&mut self) {
        for action in &mut self.actions {
            if action.handler != action::IGNORE {
                *action = Action::default();
            }
        }
    }

    /// What does not pass to a forked child goes.
    pub fn become_child(&mut self) {
        (self.pending.set, self.pending.queued) = (0, 0);
    }
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
