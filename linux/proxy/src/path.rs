//! Paths: joining with the working directory and textual clean-up.
//!
//! Deliberately knows no file: symbolic links and `..` through them are the file server's. So `..`
//! is kept here, and only the server resolves it.

use alloc::string::String;

use crate::errno::Errno;

/// Longest absolute path: one message of the files contract carries it.
pub const PATH_MAX: usize = 700;

/// Makes a path absolute against `directory`. `ENOENT` for an empty one, `ENAMETOOLONG`.
pub fn absolute(directory: &str, path: &str) -> Result<String, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut whole = String::new();
    if !path.starts_with('/') {
        whole.push_str(directory);
        if !directory.ends_with('/') {
            whole.push('/');
        }
    }
    whole.push_str(path);
    if whole.len() > PATH_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(whole) }
}

/// The working directory after `chdir(path)`: `.` and `..` taken out as text. The server has said
/// that `path` is a directory.
pub fn clean(path: &str) -> String {
    let mut parts = alloc::vec::Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    let mut whole = String::from("/");
    whole.push_str(&parts.join("/"));
    whole
}

/// Gives the first byte, and the first one after, of a lock (fcntl(2)): `length` bytes from
/// `start`, or before it if negative, or to whatever end if 0; counted from `base`. `EINVAL`,
/// `EOVERFLOW`.
pub fn lock_range(base: i64, start: i64, length: i64) -> Result<(u64, u64), Errno> {
    let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
    let (from, to) = match length {
        0 => (start, None),
        negative if negative < 0 => (start.checked_add(negative).ok_or(Errno::EINVAL)?, Some(start)),
        length => (start, Some(start.checked_add(length).ok_or(Errno::EOVERFLOW)?)),
    };
    if from < 0 {
        return Err(Errno::EINVAL);
    }
    Ok((from as u64, to.map_or(u64::MAX, |to| to as u64)))
}

/// The part after the last slash.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/")
}

/// Interpreter and its one optional argument of a script's first line; `None` if it is no script.
pub fn interpreter(head: &[u8]) -> Option<(&str, Option<&str>)> {
    let line = head.strip_prefix(b"#!")?;
    let line = &line[..line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len()).min(255)];
    let line = core::str::from_utf8(line).ok()?.trim();
    match line.split_once([' ', '\t']) {
        Some((program, argument)) => Some((program, Some(argument.trim()))),
        None if line.is_empty() => None,
        None => Some((line, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_cover_what_fcntl_says() {
        assert_eq!(lock_range(0, 10, 5), Ok((10, 15)));
        assert_eq!(lock_range(100, 10, -5), Ok((105, 110)));
        assert_eq!(lock_range(100, -10, 0), Ok((90, u64::MAX)));
        assert_eq!(lock_range(0, 4, -4), Ok((0, 4)));
        assert_eq!(lock_range(0, -1, 0), Err(Errno::EINVAL));
        assert_eq!(lock_range(0, 4, -5), Err(Errno::EINVAL));
        assert_eq!(lock_range(i64::MAX, 1, 0), Err(Errno::EOVERFLOW));
        assert_eq!(lock_range(0, 1, i64::MAX), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn joins_and_cleans() {
        assert_eq!(absolute("/", "bin/ls").unwrap(), "/bin/ls");
        assert_eq!(absolute("/srv", "../etc").unwrap(), "/srv/../etc");
        assert_eq!(absolute("/srv", "/x"), Ok("/x".into()));
        assert_eq!(absolute("/", ""), Err(Errno::ENOENT));
        assert!(absolute("/", &"a".repeat(PATH_MAX - 1)).is_ok_and(|path| path.len() == PATH_MAX));
        assert_eq!(absolute("/", &"a".repeat(PATH_MAX)), Err(Errno::ENAMETOOLONG));
        assert_eq!(clean("/srv/../etc//./x/"), "/etc/x");
        assert_eq!(clean("/../.."), "/");
        assert_eq!(base_name("/bin/busybox"), "busybox");
        assert_eq!(base_name("/"), "/");
    }

    #[test]
    fn reads_script_lines() {
        assert_eq!(interpreter(b"#!/bin/sh\necho"), Some(("/bin/sh", None)));
        assert_eq!(interpreter(b"#! /usr/bin/env  python -u\n"), Some(("/usr/bin/env", Some("python -u"))));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
        assert_eq!(interpreter(b"#!\xff\xfe\n"), None);
    }
}
