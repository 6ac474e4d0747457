//! Entry of `crew` and `ballast`: see the library.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

runtime::main!(crew_core::run);
