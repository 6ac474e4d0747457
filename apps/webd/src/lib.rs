//! What the page server answers: bytes of a request in, bytes of an answer out.
//!
//! Deliberately unknown here: sockets, time.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::format;
use alloc::string::String;

/// Longest head of a request.
pub const HEAD_MAX: usize = 4096;
const HEADERS_MAX: usize = 32;

/// What to do with the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    More,
    /// Send this; then take `taken` bytes as done with and go on if `keep`.
    Answer {
        /// The whole answer.
        bytes: String,
        /// Bytes of the request.
        taken: usize,
        /// The connection stays open.
        keep: bool,
    },
}

/// What the page tells.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Cores of the machine.
    pub cores: u32,
    /// Core this runs on.
    pub core: u32,
    /// Seconds since boot.
    pub uptime_s: u64,
    /// Pages served before this one.
    pub served: u64,
}

/// Looks at what came so far.
pub fn step(request: &[u8], facts: &Facts) -> Step {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let taken = match parsed.parse(request) {
        Ok(httparse::Status::Complete(taken)) => taken,
        Ok(httparse::Status::Partial) if request.len() < HEAD_MAX => return Step::More,
        _ => return refuse("400 Bad Request", request.len()),
    };
    let body = parsed.headers.iter().any(|header| {
        let value = header.value.trim_ascii();
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length") && value != b"0"
    });
    let method = parsed.method.unwrap_or("");
    if body || !matches!(method, "GET" | "HEAD") {
        return refuse("405 Method Not Allowed", taken);
    }
    let connection = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("connection"));
    let says = |word: &[u8]| connection.is_some_and(|header| header.value.eq_ignore_ascii_case(word));
    let keep = if parsed.version == Some(1) { !says(b"close") } else { says(b"keep-alive") };
    let path = parsed.path.unwrap_or("/").split('?').next().unwrap_or("/");
    let (status, page) = match path {
        "/" => ("200 OK", page(facts)),
        _ => (
            "404 Not Found",
            String::from("<!doctype html><title>Pelago</title><p>There is only <a href=\"/\">one page</a> here.\n"),
        ),
    };
    let body = if method == "HEAD" { "" } else { page.as_str() };
    let word = if keep { "keep-alive" } else { "close" };
    let bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: {word}\r\n\r\n{body}",
        page.len()
    );
    Step::Answer { bytes, taken, keep }
}

fn refuse(status: &str, taken: usize) -> Step {
    let bytes = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    Step::Answer { bytes, taken, keep: false }
}

fn page(facts: &Facts) -> String {
    let Facts { cores, core, uptime_s, served } = facts;
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Pelago</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}}td{{padding-right:2em}}</style>\n\
         <h1>Pelago</h1>\n<p>A multikernel operating system. This page came through three components, each a protection domain of its own: \
         a network driver, IP and TCP. Driver and IP may crash while you read; the connection stays.\n\
         <table><tr><td>cores<td>{cores}<tr><td>this server's core<td>{core}<tr><td>seconds since power-on<td>{uptime_s}<tr><td>pages served before<td>{served}</table>\n\
         <p>To run an unmodified Linux server instead: <code>./pelago run -p 8080:80 -v DIR:/www busybox httpd -f -p 80 -h /www</code>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { cores: 2, core: 1, uptime_s: 3, served: 4 };

    fn answer(request: &[u8]) -> (String, usize, bool) {
        match step(request, &FACTS) {
            Step::Answer { bytes, taken, keep } => (bytes, taken, keep),
            Step::More => panic!("wants more"),
        }
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let get = b"GET /?x HTTP/1.1\r\nHost: a\r\n\r\nGET";
        let (bytes, taken, keep) = answer(get);
        assert!(bytes.starts_with("HTTP/1.1 200 OK\r\n") && keep && taken == get.len() - 3);
        assert!(answer(b"HEAD / HTTP/1.0\r\n\r\n").0.ends_with("\r\n\r\n"));
        assert!(!answer(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").2);
        assert!(answer(b"GET /x HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
        assert!(answer(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").0.starts_with("HTTP/1.1 405"));
        assert!(answer(b"\x16\x03\x01\x00").0.starts_with("HTTP/1.1 400"));
        assert_eq!(step(b"GET / HT", &FACTS), Step::More);
        assert!(answer(&[b'a'; HEAD_MAX]).0.starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn no_bytes_panic_it() {
        let good = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        for index in 0..good.len() {
            for value in 0..=255 {
                let mut bad = *good;
                bad[index] = value;
                let _ = step(&bad, &FACTS);
            }
        }
    }
}
