//! The Linux proxy: a library OS beside each Linux program, in the program's own domain.
//!
//! What Linux looks like is in the library (`personality`); here its rules meet channels, kernel
//! calls and the program's memory. No vector registers, no thread-local storage. Not a security
//! boundary: the program can overwrite it and hurts only itself.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod bare;

#[cfg(not(all(target_os = "none", target_arch = "x86_64")))]
fn main() {}
