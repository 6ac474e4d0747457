//! Whether a disk is as a power cut may leave it: `e2fsck` mends it without thinking (it recovers
//! the journal and clears orphans, nothing else), and then finds nothing; and all that was said to
//! be kept is there.

use crate::host::skip::Skip;
use crate::host::{child, path};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Debian's package with all three.
const PACKAGE: &str = "e2fsprogs";
/// What `e2fsck -p` may say, behind the image's name.
const HARMLESS: [&str; 4] = ["recovering journal", "Clearing orphaned inode ", "clean, ", "Truncating orphaned inode "];
/// Status of `e2fsck` (e2fsck(8)): nothing to do; errors corrected.
const CLEAN: i32 = 0;
const CORRECTED: i32 = 1;

/// What `e2fsck -p` may mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// The journal is recovered and orphans are cleared: what any loss of power may need.
    Journal,
    /// All that needs no question: the guest noted that the disk failed, so all of it is looked at.
    Failure,
}

/// Programs of this machine for ext4.
pub struct Programs {
    mkfs: PathBuf,
    e2fsck: PathBuf,
    debugfs: PathBuf,
}

impl Programs {
    /// Looks for them. What is missing is a [`Skip`] that names its package.
    pub fn find() -> Result<Programs> {
        let find = |program| path::find_of_root(program).ok_or(Skip::Package { program, package: PACKAGE });
        Ok(Programs { mkfs: find("mkfs.ext4")?, e2fsck: find("e2fsck")?, debugfs: find("debugfs")? })
    }

    /// Makes a file of so many bytes with an empty file system: whole when it is mounted, so that
    /// Linux does not go on making it in the background.
    pub fn make(&self, image: &Path, bytes: u64) -> Result<()> {
        let file = std::fs::File::create(image).and_then(|file| file.set_len(bytes));
        file.with_context(|| format!("cannot make {}", image.display()))?;
        let mut command = Command::new(&self.mkfs);
        command.args(["-q", "-F", "-b", "4096", "-O", "64bit,metadata_csum", "-E"]);
        command.args(["lazy_itable_init=0,lazy_journal_init=0"]).arg(image);
        let output = child::output(&mut command, child::SHORT)?;
        if !output.status.success() {
            bail!("mkfs.ext4 failed: {}", said(&output));
        }
        Ok(())
    }

    /// Judges a disk on which the pieces of work up to `kept` are. None: it is sound; else what is
    /// wrong. The image is changed.
    pub fn judge(&self, image: &Path, kept: u64, mending: Mending) -> Result<Option<String>> {
        let mended = self.check(image, "-p")?;
        if let Some(problem) = of_mending(mended.status.code(), &said(&mended), image, mending) {
            return Ok(Some(problem));
        }
        if let Some(problems) = self.find_problem(image)? {
            return Ok(Some(format!("e2fsck -fn finds more than e2fsck -p mended: {problems}")));
        }
        let read = |name: &str| -> Result<String> {
            let output = self.debug(image, &format!("cat {name}"))?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        Ok(of_content(&read("/rows")?, &read("/state")?, kept))
    }

    /// What `e2fsck -fn` finds; the image stays as it is.
    pub fn find_problem(&self, image: &Path) -> Result<Option<String>> {
        let found = self.check(image, "-fn")?;
        if found.status.code() == Some(CLEAN) {
            return Ok(None);
        }
        let said = said(&found);
        // It tells each pass.
        let problems: Vec<&str> = said.lines().filter(|line| !line.starts_with("Pass ")).collect();
        Ok(Some(problems.join("\n")))
    }

    /// Copies a file of the root directory to a folder, if it is there.
    pub fn copy_out(&self, image: &Path, name: &str, folder: &Path) -> Result<()> {
        self.debug(image, &format!("dump /{name} {}", folder.join(name).display())).map(drop)
    }

    fn check(&self, image: &Path, how: &str) -> Result<Output> {
        child::output(Command::new(&self.e2fsck).arg(how).arg(image), child::SHORT)
    }

    fn debug(&self, image: &Path, request: &str) -> Result<Output> {
        child::output(Command::new(&self.debugfs).args(["-R", request]).arg(image), child::SHORT)
    }
}

/// The last of the marks of one who says of each piece of work, in order, that it is kept.
pub fn last(marks: &[u64]) -> u64 {
    marks.iter().copied().max().unwrap_or(0)
}

fn said(output: &Output) -> String {
    let both = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    both.trim().to_owned()
}

/// What is wrong with what `e2fsck -p` did.
fn of_mending(status: Option<i32>, said: &str, image: &Path, mending: Mending) -> Option<String> {
    let start = format!("{}: ", image.display());
    let is_harmless = |line: &str| {
        let line = line.strip_prefix(&start).unwrap_or(line);
        line.is_empty() || HARMLESS.iter().any(|known| line.starts_with(known))
    };
    let is_well = matches!(status, Some(CLEAN | CORRECTED));
    let is_right = is_well && (mending == Mending::Failure || said.lines().all(is_harmless));
    (!is_right).then(|| format!("e2fsck -p did more than recover the journal: status {status:?}, {said}"))
}

/// What is missing of the pieces of work up to `kept`: odd ones append a row each, even ones
/// replace the state (`writer.sh`).
fn of_content(rows: &str, state: &str, kept: u64) -> Option<String> {
    let wanted: String = (1..=kept).step_by(2).map(row).collect();
    if !rows.starts_with(&wanted) {
        let right = rows.bytes().zip(wanted.bytes()).take_while(|(is, wanted)| is == wanted).count();
        return Some(format!("the rows differ from byte {right} on, of {}, up to row {kept}", wanted.len()));
    }
    let replaced = kept - kept % 2;
    let is: u64 = state.strip_prefix("state ").and_then(|number| number.trim_end().parse().ok()).unwrap_or(0);
    (is < replaced).then(|| format!("the state is `{}`, and {replaced} was kept", state.trim_end()))
}

fn row(number: u64) -> String {
    format!("row {number} {number:0width$}\n", width = (number * 37 % 300 + 1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_journal_and_orphans_are_mended() {
        let image = Path::new("a.img");
        let problem = |status, said| of_mending(Some(status), said, image, Mending::Journal);
        let all = "a.img: recovering journal\na.img: Clearing orphaned inode 12 (uid=0)\na.img: clean, 12/99 files";
        assert_eq!((problem(1, all), problem(0, "")), (None, None));
        let fixed = "a.img: Inode 12, i_size is 0, should be 4096.  FIXED.";
        assert!(problem(4, "").is_some() && problem(1, fixed).is_some());
        let failed = |status| of_mending(status, fixed, image, Mending::Failure).is_some();
        assert_eq!([Some(1), Some(4), None].map(failed), [false, true, true]);
    }

    #[test]
    fn what_was_kept_is_missed() {
        let rows = format!("{}{}", row(1), row(3));
        assert_eq!(row(1), "row 1 00000000000000000000000000000000000001\n");
        for (rows, state, kept, is_sound) in [
            ("", "", 0, true),
            ("", "", 1, false),
            (&rows, "state 2\n", 3, true),
            // More than was said.
            (&rows, "state 4\n", 1, true),
            (&rows, "state 2\n", 4, false),
            (&rows, "", 2, false),
            (&rows[..rows.len() - 1], "state 2\n", 3, false),
            (&rows.replacen("row 1", "row 2", 1), "state 2\n", 3, false),
        ] {
            assert_eq!(of_content(rows, state, kept).is_none(), is_sound, "{rows} {state} {kept}");
        }
    }

    /// With the programs themselves, where they are.
    #[test]
    fn a_new_file_system_is_sound_and_a_broken_one_is_not() {
        let Ok(programs) = Programs::find() else { return };
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk");
        programs.make(&image, 16 << 20).unwrap();
        let judge = |kept| programs.judge(&image, kept, Mending::Journal).unwrap();
        assert_eq!(judge(0), None);
        assert!(judge(1).unwrap().contains("the rows differ from byte 0"));
        let mut bytes = std::fs::read(&image).unwrap();
        bytes[1024..4096].fill(0xff);
        std::fs::write(&image, bytes).unwrap();
        assert!(judge(0).unwrap().contains("e2fsck -p"));
    }
}
