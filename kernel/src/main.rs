//! The kernel's binary: the library plus the panic handler. It starts at `pvh_entry` in
//! `arch/x86_64/boot.s`, not at a `main`.
//!
//! On the host there is nothing to run; a `main` exists only so that checks and tests of the
//! workspace build.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    kernel::panic::report(info)
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the kernel runs on the bare machine only: ./pelago run");
}
