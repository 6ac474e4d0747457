//! Where things are: the checkout, its outputs, the cache, the folders of running instances.

use std::path::PathBuf;

/// The checkout: what `./pelago` says, else the folder that holds this crate's workspace.
pub fn root() -> PathBuf {
    std::env::var_os("PELAGO_ROOT")
        .map(PathBuf::from)
        .or_else(|| {
            std::env::current_dir()
                .ok()?
                .ancestors()
                .find(|folder| folder.join("tools/pelago").is_dir())
                .map(PathBuf::from)
        })
        .unwrap_or_else(|| PathBuf::from("."))
}

/// `out/`: what a build leaves.
pub fn out() -> PathBuf {
    root().join("out")
}

/// The kernel as it is booted.
pub fn kernel() -> PathBuf {
    out().join("pelago.elf")
}

/// One unstripped ELF per program, for backtraces.
pub fn images() -> PathBuf {
    out().join("images")
}

/// Survives between runs; holds only what can be made again.
pub fn cache() -> PathBuf {
    std::env::var_os("PELAGO_CACHE").map_or_else(|| root().join(".toolchain"), PathBuf::from)
}

/// The unpacked package of the Linux kernel that is measured beside us: what `./pelago` says, else
/// where it puts it.
pub fn linux_package() -> PathBuf {
    std::env::var_os("PELAGO_LINUX").map_or_else(|| cache().join("linux"), PathBuf::from)
}

/// A root of Debian's packages that `./pelago test` made, by its name in tools/machine.sh.
pub fn test_root(name: &str) -> PathBuf {
    cache().join("roots").join(name)
}

/// A source whose tests are run, which `./pelago test` fetched, by its name in tools/machine.sh.
pub fn test_source(name: &str) -> PathBuf {
    cache().join("sources").join(name)
}

/// One sub-folder per running instance, named by its process id.
pub fn instances() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(std::env::temp_dir)
        .join("pelago")
}
