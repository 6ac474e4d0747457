//! The plugin's arguments, as the host tool gives them:
//! `mode=count|coherence,turn=CYCLES,out=FILE,names=FILE`.

use coherence::{Mode, Names};
use std::path::PathBuf;

pub struct Options {
    pub mode: Mode,
    /// Cycles.
    pub turn: u64,
    /// Where the report goes.
    pub out: PathBuf,
    pub names: Names,
}

/// Reads the arguments; an error is one line.
pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let (mut mode, mut turn, mut out, mut names) = (None, None, None, Names::default());
    for word in words {
        match word.split_once('=') {
            Some(("mode", "count")) => mode = Some(Mode::Count),
            Some(("mode", "coherence")) => mode = Some(Mode::Coherence),
            Some(("turn", number)) => turn = number.parse().ok(),
            Some(("out", path)) => out = Some(PathBuf::from(path)),
            Some(("names", path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
                names = Names::parse(&text).map_err(|line| format!("{path}:{line}: not a line of names"))?;
            }
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    match (mode, turn, out) {
        (Some(mode), Some(turn), Some(out)) => Ok(Options { mode, turn, out, names }),
        _ => Err("arguments mode, turn and out are needed".into()),
    }
}
