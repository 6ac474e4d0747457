//! Which of the system's own lines a user of `run` sees.
//!
//! What is said while the system comes up is kept back, and shown only if it does not come up: then
//! it tells why. Later lines are news (a component that was restarted, a program that had too
//! little memory) and shown, unless the user wants to be left alone.

use std::collections::VecDeque;

/// Lines kept back, at most; the last ones tell why.
const KEPT_MAX: usize = 40;
const READY: &str = "pelago: ready";
/// Not worth a line: the status is the tool's own, that the page makes way was asked for, and the
/// network may come up a little later than the rest.
const EVERYDAY: [&str; 4] =
    ["pelago: exit ", "pelago: supervisor: webd is done", "pelago: ip: link up", "pelago: ip: address "];

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing, unless the system does not come up.
    Quiet,
    /// What happens once it is up.
    News,
    /// All.
    All,
}

/// See the module's head.
pub struct News {
    detail: Detail,
    kept: VecDeque<String>,
    is_up: bool,
}

impl News {
    /// Nothing was said yet.
    pub fn new(detail: Detail) -> News {
        News { detail, kept: VecDeque::new(), is_up: false }
    }

    /// Takes a line of the system; gives it back if it is to be shown now.
    pub fn line(&mut self, line: String) -> Option<String> {
        if self.detail == Detail::All {
            return Some(line);
        }
        if self.is_up {
            let is_shown = self.detail == Detail::News && !EVERYDAY.iter().any(|start| line.starts_with(start));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(detail: Detail, lines: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut news = News::new(detail);
        let shown = lines.iter().filter_map(|line| news.line(line.to_string())).collect();
        (shown, news.rest().collect())
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
        assert_eq!(told(Detail::News, &lines), (vec!["pelago: ip: restarted".into()], vec![]));
        assert_eq!(told(Detail::All, &lines).0.len(), lines.len());
    }

    #[test]
    fn one_that_does_not_come_up_tells_why() {
        let lines = ["pelago: boot 2 cores", "pelago: panic: no memory"];
        for detail in [Detail::Quiet, Detail::News] {
            assert_eq!(told(detail, &lines), (vec![], lines.map(str::to_owned).to_vec()));
        }
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|number| format!("pelago: {number}")).collect();
        let rest = told(Detail::News, &many.iter().map(String::as_str).collect::<Vec<_>>()).1;
        assert_eq!(rest, many[KEPT_MAX..]);
    }
}
