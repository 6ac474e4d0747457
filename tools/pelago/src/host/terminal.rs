//! The user's terminal while a guest has it: the guest's console echoes and edits, so the host's
//! must not.
//!
//! Where the streams have no device, signals stay on: Ctrl-C ends the machine; and output
//! processing stays on, since the tool's own lines use it too. Invariant: the settings found are
//! put back when the value goes.

use nix::sys::termios::{LocalFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
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

    /// Passes every key on, Ctrl-C too. With `draws`, what the guest writes is shown as it is, and
    /// lines of ours end with a return.
    pub fn enter_raw(draws: bool) -> Option<Direct> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        if !draws {
            raw.output_flags = before.output_flags;
        }
        tcsetattr(&stdin, SetArg::TCSANOW, &raw).ok()?;
        Some(Direct { before })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // The terminal may be gone; then nobody misses its settings.
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before);
    }
}
