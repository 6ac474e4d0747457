//! What one run of a scenario leaves to look at: the console of each machine that it booted, and
//! the frames at its network card. Kept only if the scenario has to be looked at.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files of one run; they go with this value.
pub struct Record {
    folder: tempfile::TempDir,
    machines: AtomicUsize,
}

/// The files of one machine.
pub struct Files {
    /// Every whole line of the console.
    pub console: PathBuf,
    /// The beginning of every frame.
    pub frames: PathBuf,
}

impl Record {
    /// An empty one, below `folder`.
    pub fn create(folder: &Path) -> Result<Record> {
        let folder = tempfile::tempdir_in(folder).context("cannot make a folder for consoles and captures")?;
        Ok(Record { folder, machines: AtomicUsize::new(0) })
    }

    /// Files for the next machine.
    pub fn machine(&self) -> Files {
        let number = 1 + self.machines.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.folder.path().join(format!("{number}.{kind}"));
        Files { console: file("console"), frames: file("pcap") }
    }

    /// Keeps all of it in a folder, with the reason why the scenario failed.
    pub fn keep(&self, kept: &Path, failure: &str) -> Result<()> {
        crate::host::files::write(&kept.join("failure.txt"), format!("{failure}\n").as_bytes())?;
        let problem = || format!("cannot keep consoles and captures in {}", kept.display());
        for file in std::fs::read_dir(self.folder.path()).with_context(problem)?.flatten() {
            std::fs::copy(file.path(), kept.join(file.file_name())).with_context(problem)?;
        }
        Ok(())
    }
}
