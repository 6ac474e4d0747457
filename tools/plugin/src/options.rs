//! The plugin's arguments, as the host tool gives them:
//! `mode=count|coherence,turn=CYCLES,out=FILE,names=FILE`, and `speed=CORE/OWN/OF` for each core
//! that does so many cycles of its own in so many modelled ones.

use coherence::{Mode, Names, Speed};
use std::path::PathBuf;

pub struct Options {
    pub mode: Mode,
    /// Cycles.
    pub turn: u64,
    /// Where the report goes.
    pub out: PathBuf,
    pub names: Names,
    /// Of cores that are throttled.
    pub speeds: Vec<(usize, Speed)>,
}

/// Reads the arguments; an error is one line.
pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let (mut mode, mut turn, mut out, mut names) = (None, None, None, Names::default());
    let mut speeds = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some(("mode", "count")) => mode = Some(Mode::Count),
            Some(("mode", "coherence")) => mode = Some(Mode::Coherence),
            Some(("turn", number)) => turn = number.parse().ok(),
            Some(("speed", text)) => speeds.push(speed(text).ok_or_else(|| format!("speed={text} is none"))?),
            Some(("out", path)) => out = Some(PathBuf::from(path)),
            Some(("names", path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
                names = Names::parse(&text).map_err(|line| format!("{path}:{line}: not a line of names"))?;
            }
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    match (mode, turn, out) {
        (Some(mode), Some(turn), Some(out)) => Ok(Options { mode, turn, out, names, speeds }),
        _ => Err("arguments mode, turn and out are needed".into()),
    }
}

/// A core, and its speed.
fn speed(text: &str) -> Option<(usize, Speed)> {
    let (core, part) = text.split_once('/')?;
    let (own, of) = part.split_once('/')?;
    let speed = Speed { own: own.parse().ok()?, of: of.parse().ok()? };
    (speed.own > 0 && speed.of > 0).then_some((core.parse().ok()?, speed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_of_a_core_and_not_zero() {
        assert_eq!(speed("1/3/4"), Some((1, Speed { own: 3, of: 4 })));
        let wrong = ["", "1", "1/2", "1/0/4", "1/4/0", "1/2/3/4", "x/1/2"];
        assert!(wrong.iter().all(|text| speed(text).is_none()));
    }
}
