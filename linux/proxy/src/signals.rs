//! Signals of the process: actions, mask, pending ones, and which comes next.
//!
//! Invariants: SIGKILL and SIGSTOP are never blocked, caught or ignored; numbers are 1..=64. A stop
//! signal and SIGCONT never wait together: each takes back the other (signal(7)).

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

/// Who sent a pending signal and why, for siginfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cause {
    /// si_code.
    pub code: i32,
    /// Sender, for code 0.
    pub process: u32,
    /// Fault address, for code > 0.
    pub address: u64,
}

/// All of it; plain data, inherited by fork except what is pending.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Signals {
    actions: [Action; 64],
    causes: [Cause; 64],
    /// Bit n-1 = signal n.
    pub blocked: u64,
    /// Bit n-1 = signal n.
    pub pending: u64,
    /// 1 if SIGCONT came after the last stop signal.
    continued: u64,
    /// The alternate stack.
    pub alternate: AlternateStack,
}

impl Default for Signals {
    fn default() -> Self {
        Signals {
            actions: [Action::default(); 64],
            causes: [Cause::default(); 64],
            blocked: 0,
            pending: 0,
            continued: 0,
            alternate: AlternateStack::default(),
        }
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
            *slot = Action { mask: action.mask & !UNBLOCKABLE, ..action };
            if self.is_ignored(signal as u8) {
                self.pending &= !bit(signal as u8);
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

    /// A signal came. Nonsense numbers are dropped.
    pub fn post(&mut self, signal: u8, cause: Cause) {
        if signal == number::SIGCONT {
            self.pending &= !STOPS;
            self.continued = 1;
        } else if (1..=64).contains(&signal) && STOPS & bit(signal) != 0 {
            self.pending &= !bit(number::SIGCONT);
            self.continued = 0;
        }
        if (1..=64).contains(&signal) && !(self.is_ignored(signal) && self.blocked & bit(signal) == 0) {
            self.pending |= bit(signal);
            self.causes[usize::from(signal - 1)] = cause;
        }
    }

    /// An exception in program code: cannot wait, so blocked or ignored ends the process, as Linux
    /// does.
    pub fn force(&mut self, signal: u8, cause: Cause) {
        if self.blocked & bit(signal) != 0 || self.is_ignored(signal) {
            self.actions[usize::from(signal - 1) & 63].handler = action::DEFAULT;
            self.blocked &= !bit(signal);
        }
        self.post(signal, cause);
    }

    /// Is there one to act on now?
    pub fn has_deliverable(&self) -> bool {
        self.peek().is_some()
    }

    /// Would the next one to deliver let an interrupted call start again?
    pub fn restarts_calls(&self) -> bool {
        self.peek().is_none_or(|signal| {
            let action = self.actions[usize::from(signal - 1)];
            action.handler == action::DEFAULT || action.flags & action::SA_RESTART != 0
        })
    }

    fn peek(&self) -> Option<u8> {
        let open = self.pending & !self.blocked;
        if open == 0 {
            return None;
        }
        (1..=64u8).find(|signal| open & bit(*signal) != 0 && !self.is_ignored(*signal))
    }

    /// Takes the next one if all it does is to stop the process.
    pub fn take_stop(&mut self) -> Option<u8> {
        let stops = |signal: &u8| STOPS & bit(*signal) != 0 && self.actions[usize::from(*signal - 1)].is_default();
        let signal = self.peek().filter(stops)?;
        self.pending &= !bit(signal);
        Some(signal)
    }

    /// May a stopped process go on? Asked once for each SIGCONT.
    pub fn take_continued(&mut self) -> bool {
        core::mem::take(&mut self.continued) != 0
    }

    /// Takes the next one, lowest number first (faults come before the rest only by number).
    pub fn take(&mut self) -> Option<(Delivery, Cause)> {
        // Asked after every call.
        if self.pending & !self.blocked == 0 {
            return None;
        }
        self.pending &= !(1..=64u8)
            .filter(|signal| self.blocked & bit(*signal) == 0 && self.is_ignored(*signal))
            .fold(0, |all, signal| all | bit(signal));
        let signal = self.peek()?;
        self.pending &= !bit(signal);
        let cause = self.causes[usize::from(signal - 1)];
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

    /// The mask while a handler runs.
    pub fn mask_for(&self, signal: u8, action: &Action) -> u64 {
        let own = if action.flags & action::SA_NODEFER != 0 { 0 } else { bit(signal) };
        (self.blocked | action.mask | own) & !UNBLOCKABLE
    }

    /// exec: handlers go, ignored stays ignored, mask and pending stay.
    pub fn reset_for_exec(&mut self) {
        for action in &mut self.actions {
            if action.handler != action::IGNORE {
                *action = Action::default();
            }
        }
        self.alternate = AlternateStack::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(flags: u64) -> Option<Action> {
        Some(Action { handler: 0x1000, flags, restorer: 0x2000, mask: u64::MAX })
    }

    #[test]
    fn kill_and_stop_stay_out_of_reach() {
        let mut signals = Signals::default();
        assert_eq!(signals.set_action(9, handler(0)), Err(Errno::EINVAL));
        assert_eq!(signals.set_action(0, None), Err(Errno::EINVAL));
        assert_eq!(signals.set_action(65, None), Err(Errno::EINVAL));
        signals.change_mask(2, u64::MAX).unwrap();
        assert_eq!(signals.blocked & (bit(9) | bit(19)), 0);
        assert_eq!(signals.change_mask(3, 0), Err(Errno::EINVAL));
        signals.post(9, Cause::default());
        assert_eq!(signals.take().unwrap().0, Delivery::End(9));
    }

    #[test]
    fn blocked_ones_wait_and_handlers_mask() {
        let mut signals = Signals::default();
        signals.set_action(10, handler(action::SA_RESETHAND)).unwrap();
        signals.change_mask(0, bit(10)).unwrap();
        signals.post(10, Cause { process: 5, ..Cause::default() });
        assert!(!signals.has_deliverable() && signals.take().is_none());
        signals.change_mask(1, bit(10)).unwrap();
        let (Delivery::Handle(10, action), cause) = signals.take().unwrap() else { panic!() };
        assert_eq!(cause.process, 5);
        assert_eq!(signals.mask_for(10, &action), !UNBLOCKABLE);
        signals.post(10, Cause::default());
        assert_eq!(signals.take().unwrap().0, Delivery::End(10), "SA_RESETHAND");
    }

    #[test]
    fn stopping_and_continuing_take_each_other_back() {
        use number::*;
        let mut signals = Signals::default();
        signals.post(SIGTSTP, Cause::default());
        assert!(signals.has_deliverable() && signals.restarts_calls());
        signals.post(SIGCONT, Cause::default());
        assert!(signals.take().is_none() && signals.take_continued() && !signals.take_continued());
        signals.post(SIGCONT, Cause::default());
        signals.post(SIGSTOP, Cause::default());
        assert!(!signals.take_continued());
        assert_eq!(signals.take().unwrap().0, Delivery::Stop(SIGSTOP));
        // A caught one is no stop, and one behind a deadly signal waits.
        signals.set_action(SIGTSTP.into(), handler(0)).unwrap();
        signals.post(SIGTSTP, Cause::default());
        assert_eq!(signals.take_stop(), None);
        assert!(matches!(signals.take().unwrap().0, Delivery::Handle(SIGTSTP, _)));
        signals.post(SIGTTIN, Cause::default());
        assert_eq!((signals.take_stop(), signals.take_stop()), (Some(SIGTTIN), None));
        signals.post(SIGTTIN, Cause::default());
        signals.post(SIGALRM, Cause::default());
        assert_eq!(signals.take_stop(), None);
    }

    #[test]
    fn ignored_ones_vanish_but_faults_end() {
        let mut signals = Signals::default();
        signals.post(number::SIGCHLD, Cause::default());
        signals.post(0, Cause::default());
        signals.post(200, Cause::default());
        assert_eq!(signals.take(), None);
        signals.set_action(11, Some(Action { handler: action::IGNORE, ..Action::default() })).unwrap();
        signals.post(11, Cause::default());
        assert_eq!(signals.take(), None);
        signals.force(11, Cause::default());
        assert_eq!(signals.take().unwrap().0, Delivery::End(11));
        signals.set_action(10, handler(0)).unwrap();
        signals.reset_for_exec();
        assert_eq!(signals.set_action(10, None).unwrap().handler, action::DEFAULT);
    }
}
