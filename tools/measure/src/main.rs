//! The program: `measure run WORKERS ROW...`, `measure ask PORT ROW... -- SERVER...`, `measure
//! serve PORT FILE`, `measure model WORKERS ROW...`, `measure list`, `measure first`, `measure
//! nothing`.
//!
//! The C library calls it without the start of Rust's runtime (a signal stack, a look at
//! descriptors and at where the stack is), which would be most of what the rows measure that start
//! it.
#![no_main]

use measure_core::rows::{self, ROWS, Setting};
use measure_core::{model, page_server, requests, system, tasks};
use std::ffi::{CStr, c_char, c_int};

const SUCCESS: c_int = 0;
const FAILURE: c_int = 1;

/// Entry.
///
/// # Safety
/// The C library's promise: `words` points to `count` texts.
#[unsafe(no_mangle)]
unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    let words: Vec<_> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: the caller's promise.
        .map(|index| unsafe { CStr::from_ptr(*words.add(index)) }.to_string_lossy())
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        // Before everything else: this one is measured by how soon it ends.
        [_, tasks::NOTHING] => SUCCESS,
        // As a system's first program it is given words that were meant for the kernel too.
        [_, "first", ..] => {
            println!("measure: first");
            SUCCESS
        }
        [_, "list"] => {
            ROWS.iter().for_each(|row| println!("{}", row.name));
            SUCCESS
        }
        [program, "run", workers, names @ ..] => run(program, workers, names),
        [_, "model", workers, names @ ..] => run_model(workers, names),
        [program, "ask", port, words @ ..] => ask(program, port, words),
        [_, "serve", port, file] => serve(port, file),
        _ => {
            eprintln!(
                "usage: measure run WORKERS ROW... | ask PORT ROW... -- SERVER... | model WORKERS ROW... | serve PORT FILE | list | first | nothing"
            );
            FAILURE
        }
    }
}

fn run(program: &str, workers: &str, names: &[&str]) -> c_int {
    let Ok(workers @ 1..) = workers.parse() else {
        eprintln!("measure: `{workers}` is no number of workers");
        return FAILURE;
    };
    if let Some(unknown) = names.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        eprintln!("measure: there is no row `{unknown}`");
        return FAILURE;
    }
    println!("measure: placement {}", if system::can_pin() { "bound" } else { "free" });
    let setting = Setting { workers, program: program.to_owned() };
    ROWS.iter().filter(|row| names.contains(&row.name)).for_each(|row| rows::run(row, &setting));
    println!("measure: done");
    SUCCESS
}

/// On one core, as instructions are counted.
fn ask(program: &str, port: &str, words: &[&str]) -> c_int {
    let (Ok(port), Some(end)) = (port.parse(), words.iter().position(|word| *word == "--")) else {
        eprintln!("measure: `{port}` is no port, or no `--` stands before the server");
        return FAILURE;
    };
    let (names, server) = (&words[..end], &words[end + 1..]);
    if let Some(unknown) = names.iter().find(|name| !requests::knows(name)) {
        eprintln!("measure: there is no row `{unknown}`");
        return FAILURE;
    }
    let setting = Setting { workers: 1, program: program.to_owned() };
    match requests::run(port, names, server, &setting) {
        Ok(()) => {
            println!("measure: done");
            SUCCESS
        }
        Err(problem) => {
            println!("measure: ask {problem:?}");
            FAILURE
        }
    }
}

fn run_model(workers: &str, names: &[&str]) -> c_int {
    let Ok(workers @ 1..) = workers.parse() else {
        eprintln!("measure: `{workers}` is no number of workers");
        return FAILURE;
    };
    if let Some(unknown) = names.iter().find(|name| model::ROWS.iter().all(|row| row.name != **name)) {
        eprintln!("measure: the model has no row `{unknown}`");
        return FAILURE;
    }
    match model::run(workers, names) {
        Ok(()) => {
            println!("measure: done");
            SUCCESS
        }
        Err(problem) => {
            println!("measure: model {problem:?}");
            FAILURE
        }
    }
}

fn serve(port: &str, file: &str) -> c_int {
    let Ok(port) = port.parse() else {
        eprintln!("measure: `{port}` is no port");
        return FAILURE;
    };
    let page = match std::fs::read(file) {
        Ok(page) => page,
        Err(error) => {
            eprintln!("measure: cannot read {file}: {error}");
            return FAILURE;
        }
    };
    match page_server::serve(port, &page) {
        Ok(()) => SUCCESS,
        Err(problem) => {
            println!("measure: serve {problem:?}");
            FAILURE
        }
    }
}
