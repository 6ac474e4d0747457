//! `pelago-sim`: many seeds, or one again. Behind `./pelago sim`.

#![forbid(unsafe_code)]

use capability::Sound;
use clap::Parser;
use sim::{Options, Report, run};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(2);

/// Runs the protocols of many nodes under delays, deaths and restarts, and checks that what they
/// promise holds.
#[derive(Parser)]
#[command(name = "pelago sim")]
struct Arguments {
    /// Run this many seeds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Run this seed only, or begin with it
    #[arg(long)]
    seed: Option<u64>,
    /// Run with this many cores; otherwise seeds take turns with 2 to 8
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
    nodes: Option<u16>,
    /// Make this many calls in each run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    calls: Option<u32>,
    /// Stop this many cores in each run
    #[arg(long)]
    deaths: Option<u32>,
    /// Make only these calls, by number
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<u32>>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            eprintln!("pelago sim: {first}; ./pelago sim --help lists the options");
            return ExitCode::FAILURE;
        }
    };
    let first = arguments.seed.unwrap_or(0);
    let seeds = if arguments.seed.is_some() && arguments.seeds == 100 { 1 } else { arguments.seeds };
    let (start, mut shown) = (Instant::now(), Instant::now());
    let mut total = Report { hash: 0, events: 0, done: 0, refused: 0, slowest_ns: 0 };
    for seed in first..first.saturating_add(seeds) {
        let mut options = Options::new(seed, arguments.nodes.unwrap_or(2 + (seed % 7) as u16));
        options.calls = arguments.calls.unwrap_or(options.calls);
        options.deaths = arguments.deaths.unwrap_or(options.deaths);
        options.only = arguments.only.as_ref().map(|only| only.iter().copied().collect());
        let again = options.clone();
        // A node that finds its own invariant broken panics, which ends this program: it says how
        // to see that again first.
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("{panic}");
            println!("{}", again.again());
        }));
        match run::<Sound>(&options) {
            Ok(report) => {
                total.hash ^= report.hash.rotate_left(seed as u32 % 64);
                total.events += report.events;
                total.done += report.done;
                total.refused += report.refused;
                total.slowest_ns = total.slowest_ns.max(report.slowest_ns);
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        if shown.elapsed() > PROGRESS {
            shown = Instant::now();
            eprintln!("seed {seed}: {} of {seeds}, {} events", seed - first + 1, total.events);
        }
    }
    let Report { hash, events, done, refused, slowest_ns } = total;
    println!(
        "{seeds} seeds held: {events} events, {done} calls done, {refused} refused, slowest answer {} us, {:.1} s, trace {hash:016x}",
        slowest_ns / 1_000,
        start.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
