//! What the guest boots: the system's programs, its description, and the files of the program that
//! runs.

pub mod archive;
pub mod build;
pub mod built;
pub mod container;
pub mod description;
pub mod disk_image;
pub mod elf;
pub mod environment;
pub mod libraries;
pub mod machine_type;
pub mod origin;
pub mod package;
pub mod rootfs;
pub mod set_up;
pub mod symbols;
