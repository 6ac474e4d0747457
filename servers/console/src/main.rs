//! The console: owns the serial line, serves the terminal on it, and answers control lines.
//!
//! Wiring only; rules are in the library beside it. Runs on core 0, where the kernel's own lines go
//! out too. Needs nobody to start: `process` and `supervisor`, which start later, are asked when
//! first needed.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod serial;

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

use abi::Handle;
use abi::start::Entrance;
use channel::Bulk;
use console_core::commands::Commands;
use console_core::record::{Kept, RECORD_BYTES, REGION, Request};
use console_core::service::{Console, Outside};
use console_core::settings::Settings;
use contracts::descriptions;
use runtime::{Region, Start};

runtime::main!(component);

/// State of a fresh start: the first program is the foreground.
const FRESH: (u16, u16, u32) = (24, 80, 1);

async fn component(start: Start) {
    let device = start.device("serial");
    if device.is_none() {
        runtime::log!("no serial line given: the terminal is silent");
    }
    let memory = start.region(REGION).as_ref().map(Region::memory);
    let state = recovered(&start, memory.as_ref()).unwrap_or_else(|| {
        let (rows, columns, foreground) = FRESH;
        Kept { settings: Settings::default(), rows, columns, foreground, request: Request::NONE }
    });
    let (line, wiring) = (device, start.clone());
    let outside = Outside {
        write: Box::new(move |bytes| {
            if let Some(device) = line {
                serial::write(device.handle, bytes);
            }
        }),
        keep: Box::new(move |state| keep(memory.as_ref(), state)),
        process: Box::new(move || wiring.client("process").ok()),
    };
    let console = Rc::new(Console::new(state, outside));
    let (wiring, monitor, power) = (start.clone(), start.clone(), start.capability("power"));
    let commands = Rc::new(Commands {
        supervisor: Box::new(move || wiring.client("supervisor").ok()),
        lookup: Box::new(move || monitor.client("monitor").ok()),
        power_off: Box::new(move || power_off(power)),
    });
    runtime::spawn(console.clone().send_signals());
    runtime::spawn(commands.clone().answer_requests(console.clone()));
    if runs_no_program(&start) {
        runtime::spawn(commands.answer_person(console.clone()));
    }
    if let Some(device) = device {
        runtime::spawn(serial::receive(device, console.clone()));
    }
    start.serving();
    let mut channels = start.incoming(descriptions::NAME);
    loop {
        let channel = channels.next().await;
        runtime::spawn(descriptions::serve_descriptions(console.clone(), channel));
    }
}

fn recovered(start: &Start, memory: Option<&Bulk>) -> Option<Kept> {
    if start.entrance() == Entrance::Fresh {
        return None;
    }
    let mut record = [0; RECORD_BYTES];
    memory?.read(0, &mut record).ok()?;
    let kept = Kept::decode(&record);
    if kept.is_none() {
        runtime::log!("the state in {REGION} is damaged: starting with the defaults");
    }
    kept
}

/// Without a region the state is simply not kept.
fn keep(memory: Option<&Bulk>, state: &Kept) {
    if let Some(memory) = memory
        && memory.write(0, &state.encode()).is_err()
    {
        runtime::log!("the region {REGION} is too small: state is not kept");
    }
}

/// Then what is typed is commands. An archive that does not tell runs a program, as `process` sees
/// it too.
fn runs_no_program(start: &Start) -> bool {
    let run = start.file(system::RUN_PATH).map(system::decode::<system::Run>);
    matches!(run, Some(Ok(run)) if run.arguments.is_empty())
}

fn power_off(power: Option<Handle>) -> String {
    match power {
        Some(power) => format!("the machine does not end: {:?}", sys::power_off(power, 0)),
        None => "the console may not end the machine; on the host, Ctrl-C does".into(),
    }
}
