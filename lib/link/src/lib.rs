//! Build helper: a program's `build.rs` is `fn main() { pelago_link::component(); }`.
//!
//! Writes the linker script with the wanted base into the build's own folder and hands it to the
//! linker, for the bare target only: on a host the same crates are ordinary test programs.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::{env, fs};

/// `abi::layout::COMPONENT_BASE`; a build helper does not depend on guest crates, so a test says
/// that the two agree.
const COMPONENT_BASE: u64 = 0x1000_0000;
/// `abi::layout::PROXY_BASE`.
const PROXY_BASE: u64 = 0x7000_0000;

/// Links this crate's programs as native components.
pub fn component() {
    at(COMPONENT_BASE);
}

/// Links this crate's programs as the Linux proxy.
pub fn proxy() {
    at(PROXY_BASE);
}

/// Links this crate's programs at `base`.
fn at(base: u64) {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let script = folder.join("link.ld");
    let text = include_str!("../component.ld").replace("@BASE@", &format!("{base:#x}"));
    fs::write(&script, text).expect("OUT_DIR is writable");
    println!("cargo:rustc-link-arg-bins=-T{}", script.display());
    println!("cargo:rustc-link-arg-bins=--gc-sections");
    println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
}
