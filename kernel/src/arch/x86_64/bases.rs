//! FS and GS base of users. The kernel uses neither, so they stay in the processor until another context runs.

use super::cpu::{self, msr};
use crate::core_local::CoreLocal;
use core::arch::asm;
use core::cell::Cell;

/// The bases of a context; out of date while it is the one whose bases the processor holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Bases {
    /// Canonical, as every base in the processor.
    pub fs: u64,
    /// Canonical.
    pub gs: u64,
}

/// Whether users read and write their bases themselves (CR4.FSGSBASE). Without it only `ContextBase` changes them, and [`Bases`] are never out of date.
static ARE_USERS: CoreLocal<bool> = CoreLocal::new(false);

/// Says whether FSGSBASE is switched on.
pub fn set_fsgsbase(on: bool) {
    ARE_USERS.with(|are_users| *are_users = on);
}

/// Takes the bases of `before`, which the processor holds, out of it and loads those of `next`.
#[inline]
pub fn switch(before: Option<&Cell<Bases>>, next: &Cell<Bases>) {
    let held = before.map(held);
    if let (Some(before), Some(held)) = (before, held) {
        before.set(held);
    }
    if held != Some(next.get()) {
        load(next.get());
    }
}

/// Changes the bases that the processor holds.
pub fn change(of: &Cell<Bases>, change: impl FnOnce(&mut Bases)) {
    let mut bases = held(of);
    change(&mut bases);
    of.set(bases);
    load(bases);
}

#[inline]
fn held(of: &Cell<Bases>) -> Bases {
    if !ARE_USERS.get() {
        return of.get();
    }
    let (fs, gs);
    // SAFETY: reads registers; the instructions exist (`ARE_USERS`).
    unsafe { asm!("rdfsbase {}", "rdgsbase {}", out(reg) fs, out(reg) gs, options(nomem, nostack, preserves_flags)) }
    Bases { fs, gs }
}

#[inline]
fn load(bases: Bases) {
    // SAFETY: canonical addresses, which the kernel never uses.
    unsafe {
        if ARE_USERS.get() {
            asm!("wrfsbase {}", "wrgsbase {}", in(reg) bases.fs, in(reg) bases.gs, options(nomem, nostack, preserves_flags));
        } else {
            cpu::write_msr(msr::FS_BASE, bases.fs);
            cpu::write_msr(msr::GS_BASE, bases.gs);
        }
    }
}
