//! What the clients transfer, and the programs in the guest that give and take it.
//!
//! All is text of one pool, cut into lines. A file that is downloaded is a run of lines, and so is
//! what is uploaded; which run differs from transfer to transfer, so that bytes of another transfer
//! do not pass for the right ones.
//!
//! Nothing here computes checksums: both ends have all bytes, and compare them.

use crate::image::archive::Archive;
use crate::test::scenarios::recovery;

/// With the line's end.
pub const LINE_BYTES: usize = 16 << 10;
const LINES: usize = 256;
/// Runs begin at one of so many lines.
const FIRSTS: usize = 4;
/// Lines of most transfers, 3 MiB, and of a short one, 256 KiB, so that some begin all the time.
pub const LONG: usize = 192;
pub const SHORT: usize = 16;
/// Serves downloads at one port and uploads at the other.
pub const SERVER: [&str; 4] =
    ["busybox", "sh", "-c", "busybox nc -ll -p 81 -e /bin/take & exec busybox httpd -f -p 80 -h /www"];
pub const DOWNLOAD_PORT: u16 = 80;
pub const UPLOAD_PORT: u16 = 81;
/// Reads a file's name and then what the file has, again and again. Answers each line with its
/// number, so that the client sees that the guest has it.
const TAKE: &str = "#!/bin/awk -f\n\
    substr($0, 1, 1) == \"/\" { close(file); file = $0; line = 0; next }\n\
    (getline expected < file) > 0 && $0 == expected { print ++line; fflush(); next }\n\
    { print \"another line than\", line + 1; exit }\n";

/// A run of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    first: usize,
    lines: usize,
}

impl Run {
    /// The run of a client's transfer of that number.
    pub fn new(client: usize, number: usize, lines: usize) -> Run {
        Run { first: (client + number) % FIRSTS * (LINES / FIRSTS), lines }
    }

    pub fn bytes(self) -> usize {
        self.lines * LINE_BYTES
    }

    /// Its file, as the web server calls it.
    pub fn path(self) -> String {
        format!("/{}-{}", self.first, self.lines)
    }

    /// Its file in the guest.
    pub fn file(self) -> String {
        format!("/www{}", self.path())
    }
}

/// See the module's head.
pub struct Content {
    /// All lines twice, so that each run is one stretch.
    pool: Vec<u8>,
}

impl Content {
    pub fn new() -> Content {
        // Letters: no line looks like a number to awk, which would compare it as one.
        let mut pool: Vec<u8> = recovery::content(LINES * LINE_BYTES).iter().map(|byte| b'a' + byte % 16).collect();
        pool.chunks_mut(LINE_BYTES).for_each(|line| line[LINE_BYTES - 1] = b'\n');
        pool.extend_from_within(..);
        Content { pool }
    }

    /// All bytes of a run.
    pub fn of(&self, run: Run) -> &[u8] {
        &self.pool[run.first * LINE_BYTES..][..run.bytes()]
    }

    /// Puts the files and the program that takes uploads into the guest's root; gives their bytes.
    pub fn fill(&self, root: &mut Archive) -> u64 {
        let runs = (0..FIRSTS).flat_map(|number| [LONG, SHORT].map(|lines| Run::new(0, number, lines)));
        let mut bytes = 0;
        for run in runs {
            bytes += run.bytes() as u64;
            root.file(&format!("root{}", run.file()), 0o644, self.of(run).to_vec());
        }
        root.file("root/bin/take", 0o755, TAKE.into());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_its_file_and_its_lines() {
        let (content, mut root) = (Content::new(), Archive::default());
        content.fill(&mut root);
        for number in 0..2 * FIRSTS {
            let run = Run::new(3, number, LONG);
            assert!(root.has_file(&format!("root{}", run.file())));
            let lines: Vec<_> = content.of(run).split_inclusive(|byte| *byte == b'\n').collect();
            assert!(lines.len() == LONG && lines.iter().all(|line| line.len() == LINE_BYTES));
        }
        assert_ne!(content.of(Run::new(1, 2, SHORT)), content.of(Run::new(1, 3, SHORT)));
        assert_eq!(Run::new(1, 2, LONG).path(), "/192-192");
    }
}
