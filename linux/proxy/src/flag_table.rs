//! Flags, commands, operations and options of calls, and what becomes of each: `flag_table.txt`,
//! read.
//!
//! The page of calls is written from it, and the scenarios `coverage/*` try each row, in Linux
//! too. It knows neither: how a row is tried stands in the scenarios' program.

/// The table. How it is written stands at its head.
pub const TEXT: &str = include_str!("flag_table.txt");

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does what Linux's manual says.
    Honoured,
    /// It is accepted, and nothing comes of it.
    WithoutEffect,
    /// The call fails with this error.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Linux's name; [`UNKNOWN`] for a value that Linux gives none.
    pub name: &'static str,
    /// A number of C.
    pub value: &'static str,
    /// What becomes of it.
    pub state: State,
    /// Linux does the same with it, though it is not honoured.
    pub as_linux: bool,
    /// What else there is to say; may be empty.
    pub because: &'static str,
}

/// The name of a value that has none.
pub const UNKNOWN: &str = "-";

/// Flags that belong to the same argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Calls that have it; the first is the one that is tried.
    pub calls: Vec<&'static str>,
    /// What it is.
    pub argument: &'static str,
    /// In the table's order.
    pub rows: Vec<Row>,
}

impl Group {
    /// What its checks are found by: the first call and the argument, as a word of C.
    pub fn id(&self) -> String {
        let text = format!("{}_{}", self.calls.first().unwrap_or(&""), self.argument);
        text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
    }
}

fn row(line: &'static str) -> Option<Row> {
    let (name, rest) = line.trim().split_once(char::is_whitespace)?;
    let (value, rest) = rest.trim().split_once(char::is_whitespace)?;
    let (state, because) = rest.split_once(": ").unwrap_or((rest, ""));
    let (state, as_linux) = match state.trim().strip_suffix(", as Linux") {
        Some(state) => (state, true),
        None => (state.trim(), false),
    };
    let state = match state.split_once(' ') {
        None if state == "honoured" => State::Honoured,
        Some(("without", "effect")) => State::WithoutEffect,
        Some(("refused", errno)) => State::Refused(errno),
        _ => return None,
    };
    Some(Row { name, value, state, as_linux, because: because.trim() })
}

fn group(line: &'static str) -> Option<Group> {
    let (calls, argument) = line.split_once(": ")?;
    Some(Group { calls: calls.split(' ').collect(), argument, rows: Vec::new() })
}

/// The table's groups. `Err` is a line that is none.
pub fn groups() -> Result<Vec<Group>, &'static str> {
    let mut groups: Vec<Group> = Vec::new();
    for line in TEXT.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let rows = groups.last_mut().map(|group| &mut group.rows).ok_or(line)?;
            rows.push(row(line).ok_or(line)?);
        } else {
            groups.push(group(line).ok_or(line)?);
        }
    }
    Ok(groups)
}
