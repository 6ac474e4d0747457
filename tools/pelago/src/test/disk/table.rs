//! A table of sqlite to which writers add rows: row by row, each with its writer's number, from 1
//! on, and the row's, from 1 on, in columns `w` and `n` of `t`.

use crate::host::child;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// What its answer is judged by.
pub const QUERY: &str = "pragma integrity_check; select w, count(*), max(n) from t group by w order by w";

/// What is missing of the rows of the writers 1, 2 and so on, of which so many were said to be
/// kept. Rows that were not may be there, too, but none behind one that is missing. A journal
/// beside the file is applied.
pub fn missing(file: &Path, kept: &[u64]) -> Result<Option<String>> {
    if kept.iter().all(|rows| *rows == 0) {
        // There may be no table yet.
        return Ok(None);
    }
    let output = child::output(Command::new("sqlite3").arg(file).arg(QUERY), child::SHORT)?;
    let told = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    Ok(of_answer(&told, kept))
}

/// What is missing by sqlite's answer to [`QUERY`].
pub fn of_answer(told: &str, kept: &[u64]) -> Option<String> {
    let Some(groups) = told.strip_prefix("ok\n") else { return Some(format!("sqlite finds: {}", told.trim())) };
    let mut found = vec![0; kept.len()];
    for line in groups.lines() {
        let numbers: Vec<u64> = line.split('|').filter_map(|number| number.parse().ok()).collect();
        let &[writer, count, last] = &numbers[..] else { return Some(format!("sqlite says: {line}")) };
        if count != last {
            return Some(format!("writer {writer} has {count} rows, and the last is {last}"));
        }
        match found.get_mut(writer.wrapping_sub(1) as usize) {
            Some(rows) => *rows = count,
            None => return Some(format!("there is no writer {writer}")),
        }
    }
    let lost = (1..).zip(found.iter().zip(kept)).find(|(_, (found, kept))| found < kept);
    lost.map(|(writer, (found, kept))| format!("writer {writer} has {found} rows, and {kept} were kept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rows_are_missed() {
        assert_eq!(of_answer("ok\n1|5|5\n2|7|7\n", &[5, 6]), None);
        assert_eq!(of_answer("ok\n2|7|7\n", &[0, 7]), None);
        for (told, words) in [
            ("ok\n1|5|5\n2|7|7\n", "writer 2 has 7 rows, and 8 were kept"),
            ("ok\n1|5|5\n", "writer 2 has 0 rows"),
            ("ok\n1|5|6\n2|8|8\n", "writer 1 has 5 rows, and the last is 6"),
            ("ok\n3|1|1\n", "no writer 3"),
            ("row 4 missing from index\n", "sqlite finds: row 4"),
            ("Error: no such table: t\n", "no such table"),
        ] {
            assert!(of_answer(told, &[5, 8]).unwrap().contains(words), "{told}");
        }
    }

    #[test]
    fn sqlite_itself_is_asked() {
        if crate::host::path::find("sqlite3").is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("db");
        assert_eq!(missing(&file, &[0]).unwrap(), None);
        let rows = "create table t(w integer, n integer); insert into t values(1, 1), (1, 2)";
        assert!(Command::new("sqlite3").arg(&file).arg(rows).status().unwrap().success());
        assert_eq!(missing(&file, &[2]).unwrap(), None);
        assert!(missing(&file, &[3]).unwrap().is_some());
    }
}
