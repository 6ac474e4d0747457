//! Which of the system's own lines a user of `run` sees.
//!
//! What is said while the system comes up is kept back, and shown only if it does not come up: then
//! it tells why. Later lines are news (a component that was restarted, a program that had too
//! little memory) and shown, unless the user wants to be left alone. Why a program and the machine
//! with it ended though nobody asked for that is shown in any case.

use std::collections::VecDeque;

/// Lines kept back, at most; the last ones tell why.
const KEPT_MAX: usize = 40;
const READY: &str = "pelago: ready";
/// Not worth a line: the status is the tool's own, that the page makes way was asked for, and the
/// network may come up a little later than the rest.
const EVERYDAY: [&str; 4] =
    ["pelago: exit ", "pelago: supervisor: webd is done", "pelago: ip: link up", "pelago: ip: address "];

/// Who says that the first program went into the background, and what stands behind its name.
const BACKGROUND: [&str; 2] = ["pelago: process: ", " went into the background, "];
/// What programs say at `/dev/log`.
const OF_PROGRAM: &str = "pelago: process: log of ";
/// What a line has that names the call that a program was refused last, before it ended badly.
const REFUSED: &str = "; last refused: Linux call ";
/// How programs are started so that they stay in front: names, or what they begin with.
const IN_FRONT: [(&str, &str); 14] = [
    ("apache2", "apache2 -D FOREGROUND"),
    ("busybox", "busybox httpd -f, telnetd -F, crond -f"),
    ("cron", "cron -f"),
    ("dnsmasq", "dnsmasq -k"),
    ("dropbear", "dropbear -F"),
    ("haproxy", "haproxy -db"),
    ("lighttpd", "lighttpd -D"),
    ("memcached", "memcached without -d"),
    ("named", "named -f"),
    ("nginx", "nginx -g 'daemon off;'"),
    ("php-fpm", "php-fpm -F"),
    ("redis-server", "redis-server --daemonize no"),
    ("sshd", "sshd -D"),
    ("unbound", "unbound -d"),
];

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing, unless the system does not come up.
    Quiet,
    /// What happens once it is up.
    Events,
    /// All.
    All,
}

/// See the module's head.
pub struct ConsoleFilter {
    detail: Detail,
    kept: VecDeque<String>,
    is_up: bool,
}

impl ConsoleFilter {
    /// Nothing was said yet.
    pub fn new(detail: Detail) -> ConsoleFilter {
        ConsoleFilter { detail, kept: VecDeque::new(), is_up: false }
    }

    /// Takes a line of the system; gives it back if it is to be shown now.
    pub fn line(&mut self, line: String) -> Option<String> {
        if let Some(line) = of_background(&line) {
            return Some(line);
        }
        if line.contains(REFUSED) {
            return Some(line);
        }
        if self.detail == Detail::All {
            return Some(line);
        }
        // What a program says is of no use for why the system does not come up.
        if self.is_up || line.starts_with(OF_PROGRAM) {
            let is_shown = self.detail == Detail::Events && !EVERYDAY.iter().any(|start| line.starts_with(start));
            return is_shown.then_some(line);
        }
        if line == READY {
            self.is_up = true;
            self.kept.clear();
            return None;
        }
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
        None
    }

    /// What was kept back of a system that never came up.
    pub fn rest(self) -> impl Iterator<Item = String> {
        self.kept.into_iter()
    }
}

/// With what to do about it, if a line says that the first program went into the background.
fn of_background(line: &str) -> Option<String> {
    let (name, _) = line.strip_prefix(BACKGROUND[0])?.split_once(BACKGROUND[1])?;
    let known = IN_FRONT.iter().find(|(known, _)| name.starts_with(known));
    let remedy = known.map_or_else(
        || "; start it so that it stays in front".to_owned(),
        |(_, words)| format!("; to keep it in front: {words}"),
    );
    Some(line.to_owned() + &remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(detail: Detail, lines: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut filter = ConsoleFilter::new(detail);
        let shown = lines.iter().filter_map(|line| filter.line(line.to_string())).collect();
        (shown, filter.rest().collect())
    }

    #[test]
    fn a_system_that_comes_up_is_silent_about_it() {
        let lines = [
            "pelago: boot 2 cores",
            READY,
            "pelago: supervisor: webd is done",
            "pelago: ip: restarted",
            "pelago: exit 0",
        ];
        assert_eq!(told(Detail::Quiet, &lines), (vec![], vec![]));
        assert_eq!(told(Detail::Events, &lines), (vec!["pelago: ip: restarted".into()], vec![]));
        assert_eq!(told(Detail::All, &lines).0.len(), lines.len());
    }

    #[test]
    fn a_program_that_went_into_the_background_is_told_how_to_stay() {
        let told = |name: &str| {
            let line = format!("pelago: process: {name} went into the background, and the machine ends");
            // Also before the system is up, which it may never be.
            let (shown, rest) = told(Detail::Quiet, &[&line]);
            assert!(shown.len() == 1 && shown[0].starts_with(&line) && rest.is_empty(), "{shown:?}");
            shown[0].clone()
        };
        assert!(told("nginx").ends_with("; to keep it in front: nginx -g 'daemon off;'"));
        assert!(told("php-fpm8.2").ends_with("php-fpm -F"));
        assert!(told("serverd").ends_with("; start it so that it stays in front"));
        assert_eq!(of_background("pelago: ip: restarted"), None);
    }

    #[test]
    fn a_bad_end_for_something_missing_is_told_to_everybody() {
        let line = "pelago: linux: /bin/tool: ended with status 1; last refused: Linux call 101 ptrace (page)";
        for detail in [Detail::Quiet, Detail::Events, Detail::All] {
            assert_eq!(told(detail, &[line]), (vec![line.to_owned()], vec![]));
            assert_eq!(told(detail, &[READY, line]).0.last().unwrap(), line);
        }
    }

    #[test]
    fn what_a_program_says_is_shown_before_the_system_is_up() {
        let line = "pelago: process: log of serverd: ready";
        assert_eq!(told(Detail::Events, &[line, READY, line]), (vec![line.to_owned(); 2], vec![]));
        assert_eq!(told(Detail::Quiet, &[line, READY, line]), (vec![], vec![]));
    }

    #[test]
    fn one_that_does_not_come_up_tells_why() {
        let lines = ["pelago: boot 2 cores", "pelago: panic: no memory"];
        for detail in [Detail::Quiet, Detail::Events] {
            assert_eq!(told(detail, &lines), (vec![], lines.map(str::to_owned).to_vec()));
        }
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|number| format!("pelago: {number}")).collect();
        let rest = told(Detail::Events, &many.iter().map(String::as_str).collect::<Vec<_>>()).1;
        assert_eq!(rest, many[KEPT_MAX..]);
    }
}
