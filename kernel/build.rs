//! Hands the linker script to the bare-metal build of the kernel's binary; host builds (tests,
//! clippy) link as usual.

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=build.rs");
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if bare {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
        println!("cargo:rustc-link-arg-bins=-T{folder}/link.ld");
        // The image is linked at its final address; whatever the target's default, nothing must be
        // left to relocate.
        println!("cargo:rustc-link-arg-bins=--no-pie");
        println!("cargo:rustc-link-arg-bins=--gc-sections");
    }
}
