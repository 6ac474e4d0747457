//! The user's terminal while a guest has it: the guest's console echoes and edits, so the host's
//! must not.
//!
//! Signals stay on: Ctrl-C ends the machine. Output processing stays on, since the tool's own lines
//! use it too. Invariant: the settings found are put back when the value goes.

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::IsTerminal;

/// See the module's head.
pub struct Direct {
    before: Termios,
}

impl Direct {
    /// Passes each key on as it comes; `None` where standard input is no terminal.
    pub fn enter() -> Option<Direct> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut direct = before.clone();
        direct.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSANOW, &direct).ok()?;
        Some(Direct { before })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // The terminal may be gone; then nobody misses its settings.
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before);
    }
}
