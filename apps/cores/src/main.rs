//! Entry of `cores`: see the library.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

runtime::main!(cores_core::run);
