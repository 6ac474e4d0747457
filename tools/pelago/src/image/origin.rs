//! Where the program of `run` came from: what is said of that when it ends badly.

use crate::image::archive::Archive;
use crate::image::package;
use crate::image::rootfs::{in_root, text};

/// 128 and SIGHUP, SIGINT, SIGTERM: somebody else ended it.
const BY_OTHERS: [u8; 3] = [129, 130, 143];

/// The guest's files as they were when it started.
pub struct Origin {
    /// All of them.
    pub files: Archive,
    /// The program's path in the guest.
    pub program: String,
    /// Packages that were asked for.
    pub packages: Vec<String>,
}

impl Origin {
    /// What may be missing in the guest, as a remedy: the rest of the program's package, if nobody
    /// asked for that.
    pub fn remedy(&self, status: u8) -> Option<String> {
        if status == 0 || BY_OTHERS.contains(&status) {
            return None;
        }
        let source = self.files.source(&in_root(&self.program))?;
        let package = package::lacking(source, |path| self.files.has_file(&in_root(&text(path))))?;
        if self.packages.contains(&package) {
            return None;
        }
        let name = self.program.rsplit('/').next().unwrap_or_default();
        Some(format!("{name} belongs to {package}: add --package {package}"))
    }
}
