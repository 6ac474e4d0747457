//! FS and GS base of users. The kernel uses neither, so they stay in the processor until another
//! context runs.

use super::cpu::{self, msr};
use crate::core_local::Shared;
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

/// Whether users read and write their bases themselves (CR4.FSGSBASE). Without it only
/// `ContextBase` changes them, and [`Bases`] are never out of date.
#[unsafe(link_section = ".bss.shared")]
static ARE_USERS: Shared<bool> = Shared::zeroed();

/// Says whether FSGSBASE is switched on, on all cores.
///
/// # Safety
/// Core 0 during boot.
pub unsafe fn set_fsgsbase(on: bool) {
    // SAFETY: by contract nobody else uses it.
    unsafe { *ARE_USERS.write_alone() = on }
}

#[inline(always)]
fn are_users() -> bool {
    // SAFETY: a zero byte is `false`, and it is written before there are other cores.
    unsafe { *ARE_USERS.get() }
}

/// Takes the bases of `before`, which the processor holds, out of it and loads those of `next`.
#[inline(always)]
pub fn switch(before: Option<&Cell<Bases>>, next: &Cell<Bases>) {
    if let Some(before) = before {
        let held = held(before);
        before.set(held);
        if held.fs == next.get().fs && held.gs == next.get().gs {
            return;
        }
    }
    load(next.get());
}

/// Changes the bases that the processor holds.
pub fn change(of: &Cell<Bases>, change: impl FnOnce(&mut Bases)) {
    let mut bases = held(of);
    change(&mut bases);
    of.set(bases);
    load(bases);
}

#[inline(always)]
fn held(of: &Cell<Bases>) -> Bases {
    if !are_users() {
        return of.get();
    }
    let (fs, gs);
    // SAFETY: reads registers; the instructions exist (`ARE_USERS`).
    unsafe { asm!("rdfsbase {}", "rdgsbase {}", out(reg) fs, out(reg) gs, options(nomem, nostack, preserves_flags)) }
    Bases { fs, gs }
}

#[cold]
fn load(bases: Bases) {
    // SAFETY: canonical addresses, which the kernel never uses.
    unsafe {
        if are_users() {
            asm!("wrfsbase {}", "wrgsbase {}", in(reg) bases.fs, in(reg) bases.gs, options(nomem, nostack, preserves_flags));
        } else {
            cpu::write_msr(msr::FS_BASE, bases.fs);
            cpu::write_msr(msr::GS_BASE, bases.gs);
        }
    }
}
