//! Figures that scenarios write down and later ones judge.
//!
//! Invariant: figures are known by who wrote them, so that a scenario which is run again does not
//! add to what it wrote before, and a judge sees nobody's but those it judges.

use std::sync::{Arc, Mutex};

/// What all scenarios of a run wrote; clones are the same.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<Note>>>);

struct Note {
    writer: String,
    name: String,
    figures: Vec<f64>,
}

impl Notes {
    /// Adds to what `writer` wrote under that name.
    pub fn add(&self, writer: &str, name: &str, figures: &[f64]) {
        if let Ok(mut notes) = self.0.lock() {
            notes.push(Note { writer: writer.to_owned(), name: name.to_owned(), figures: figures.to_vec() });
        }
    }

    /// Strikes out what `writer` wrote, all or that of one name.
    pub fn discard(&self, writer: &str, name: Option<&str>) {
        if let Ok(mut notes) = self.0.lock() {
            notes.retain(|note| note.writer != writer || name.is_some_and(|name| note.name != name));
        }
    }

    /// All figures that these writers wrote under that name, sorted.
    pub fn of(&self, is_meant: impl Fn(&str) -> bool, name: &str) -> Vec<f64> {
        let Ok(notes) = self.0.lock() else { return Vec::new() };
        let meant = notes.iter().filter(|note| note.name == name && is_meant(&note.writer));
        let mut all: Vec<f64> = meant.flat_map(|note| note.figures.clone()).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_their_writers() {
        let notes = Notes::default();
        notes.add("kill/1", "stalls", &[3.0, 1.0]);
        notes.add("kill/2", "stalls", &[2.0]);
        notes.add("kill/2", "restarts", &[9.0]);
        notes.add("busy", "stalls", &[99.0]);
        let stalls = || notes.of(|writer| writer.starts_with("kill"), "stalls");
        assert_eq!(stalls(), [1.0, 2.0, 3.0]);
        notes.discard("kill/2", Some("restarts"));
        assert_eq!(stalls(), [1.0, 2.0, 3.0]);
        notes.discard("kill/1", None);
        assert_eq!(stalls(), [2.0]);
        assert!(notes.of(|_| true, "restarts").is_empty());
    }
}
