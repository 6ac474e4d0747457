//! The program: `measure run WORKERS ROW...`, `measure serve PORT FILE`, `measure model WORKERS ROW...`, `measure list`, `measure first`, `measure nothing`.

use measure_core::rows::{self, ROWS, Setting};
use measure_core::{model, page_server, system, tasks};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Before everything else: this one is measured by how soon it ends.
        [_, tasks::NOTHING] => ExitCode::SUCCESS,
        // As a system's first program it is given words that were meant for the kernel too.
        [_, "first", ..] => {
            println!("measure: first");
            ExitCode::SUCCESS
        }
        [_, "list"] => {
            ROWS.iter().for_each(|row| println!("{}", row.name));
            ExitCode::SUCCESS
        }
        [program, "run", workers, names @ ..] => run(program, workers, names),
        [_, "model", workers, names @ ..] => run_model(workers, names),
        [_, "serve", port, file] => serve(port, file),
        _ => {
            eprintln!(
                "usage: measure run WORKERS ROW... | model WORKERS ROW... | serve PORT FILE | list | first | nothing"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(program: &str, workers: &str, names: &[&str]) -> ExitCode {
    let Ok(workers @ 1..) = workers.parse() else {
        eprintln!("measure: `{workers}` is no number of workers");
        return ExitCode::FAILURE;
    };
    if let Some(unknown) = names.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        eprintln!("measure: there is no row `{unknown}`");
        return ExitCode::FAILURE;
    }
    println!("measure: placement {}", if system::can_pin() { "bound" } else { "free" });
    let setting = Setting { workers, program: program.to_owned() };
    ROWS.iter().filter(|row| names.contains(&row.name)).for_each(|row| rows::run(row, &setting));
    println!("measure: done");
    ExitCode::SUCCESS
}

fn run_model(workers: &str, names: &[&str]) -> ExitCode {
    let Ok(workers @ 1..) = workers.parse() else {
        eprintln!("measure: `{workers}` is no number of workers");
        return ExitCode::FAILURE;
    };
    if let Some(unknown) = names.iter().find(|name| model::ROWS.iter().all(|row| row.name != **name)) {
        eprintln!("measure: the model has no row `{unknown}`");
        return ExitCode::FAILURE;
    }
    match model::run(workers, names) {
        Ok(()) => {
            println!("measure: done");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("measure: model {problem:?}");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: &str, file: &str) -> ExitCode {
    let Ok(port) = port.parse() else {
        eprintln!("measure: `{port}` is no port");
        return ExitCode::FAILURE;
    };
    let page = match std::fs::read(file) {
        Ok(page) => page,
        Err(error) => {
            eprintln!("measure: cannot read {file}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match page_server::serve(port, &page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("measure: serve {problem:?}");
            ExitCode::FAILURE
        }
    }
}
