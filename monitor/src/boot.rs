//! What monitor 0 does by itself: starts the other cores, and the supervisor with all it needs. And
//! starts the supervisor again if it dies: all it knows it can ask for (spawn and the monitors tell
//! what exists).

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use abi::start::Entrance;
use channel::Memory;
use contracts::monitor::{ChannelPlan, DomainPlan, MonitorError, STALLED};
use monitor_core::Machine;
use runtime::{Backoff, LogLimit, now_ns};
use system::System;

use crate::kernel_calls;
use crate::link::{GREETED, Link};
use crate::service::Service;

/// How often it is said which cores are waited for.
const CORES_STEP_NS: u64 = 2_000_000_000;
/// How often at most: an emulator with more cores than its host needs its time.
const CORES_STEPS: u32 = 15;
/// Cores named in that line.
const MISSING_SHOWN: usize = 8;

/// Says for which devices this system has a driver, and for which not.
pub fn list_devices(system: &System) {
    let kinds: Vec<&str> = system.components.iter().flat_map(|it| it.devices.iter().map(String::as_str)).collect();
    let (mut driven, mut idle) = (Vec::new(), Vec::new());
    let all = (0..).map_while(|index| sys::device_list(index).ok());
    // The clock is ours.
    for device in all.filter(|device| device.hwid != kernel_calls::RTC) {
        match monitor_core::describe(&device, &kinds) {
            (Some(kind), place) => driven.push(format!("{place} {kind}")),
            (None, place) => idle.push(place),
        }
    }
    let or_none = |list: &[String]| if list.is_empty() { "none".into() } else { list.join(", ") };
    runtime::log!("drivers: {}; no driver for: {}", or_none(&driven), or_none(&idle));
}

/// Starts all cores but this one and takes their links.
pub async fn start_cores(service: Rc<Service<impl Machine + 'static>>, cores: u32) {
    let mut waiting: Vec<(Rc<Link>, Memory)> = Vec::new();
    for core in 1..cores {
        match service.start_core(core) {
            Ok(started) => waiting.push(started),
            Err(error) => runtime::log!("core {core} does not start: {}", error.name()),
        }
    }
    let mut steps = CORES_STEPS;
    while !waiting.is_empty() {
        let (up, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(link, _)| link.is_up());
        waiting = rest;
        for (link, memory) in up {
            if let Err(error) = service.link_up(&link, memory) {
                runtime::log!("core {} has no link: {}", link.core(), error.name());
            }
        }
        if !waiting.is_empty() && runtime::timeout(CORES_STEP_NS, runtime::notified(GREETED)).await.is_err() {
            let missing: Vec<u32> = waiting.iter().map(|(link, _)| link.core()).take(MISSING_SHOWN).collect();
            runtime::log!("waiting for the monitors of {} cores, among them {missing:?}", waiting.len());
            steps -= 1;
            if steps == 0 {
                runtime::log!("these cores are halted; the console starts them again (`core NUMBER run`)");
                for (link, _) in waiting {
                    let service = service.clone();
                    runtime::spawn(async move { _ = service.give_up(&link).await });
                }
                return;
            }
        }
    }
}

/// Makes and starts the supervisor and all it needs.
pub fn start_components(
    service: &Rc<Service<impl Machine + 'static>>,
    system: &System,
    cores: u32,
) -> Result<(), String> {
    let channels = wiring::channels(system, cores);
    let first = wiring::first_components(system);
    let is_first = |name: &str| first.iter().any(|component| component.name == name);
    // Also those of later clients: a component has the channels it serves from its start. Clients
    // of these servers are on this core.
    let ours: Vec<ChannelPlan> = channels
        .into_iter()
        .filter(|plan| {
            (is_first(&plan.client) || is_first(&plan.server)) && plan.client_core == 0 && plan.server_core == 0
        })
        .collect();
    for plan in &ours {
        open(service, plan).map_err(|error| format!("channel {} of {}: {error:?}", plan.contract, plan.client))?;
    }
    for component in &first {
        if component.core.is_program() {
            return Err(format!("{}: what starts programs of several cores cannot be one", component.name));
        }
        let mut plans = wiring::domains(component, cores, &ours, 1, Entrance::Fresh as u64);
        let (_, plan) = plans.pop().ok_or("a component has no core")?;
        run(service, &plan).map_err(|error| format!("{}: {error:?}", component.name))?;
        if component.name == wiring::SUPERVISOR {
            guard(service, plan);
        }
    }
    Ok(())
}

fn open(service: &Rc<Service<impl Machine + 'static>>, plan: &ChannelPlan) -> Result<(), MonitorError> {
    service.open_here(plan.clone(), None).map(drop)
}

fn run(service: &Rc<Service<impl Machine + 'static>>, plan: &DomainPlan) -> Result<(), MonitorError> {
    let id = service.create_here(plan.clone())?;
    service.start_here(id.domain)
}

/// What is remembered of the supervisor's deaths.
#[derive(Default)]
struct Guard {
    backoff: RefCell<Backoff>,
    lines: LogLimit,
}

/// Starts the supervisor again whenever it dies: at once if it served, later each time if it does
/// not come to serve.
fn guard(service: &Rc<Service<impl Machine + 'static>>, plan: DomainPlan) {
    let (again, guard) = (service.clone(), Rc::new(Guard::default()));
    let watch = move |name: &str, generation: u64, served_ns: Option<u64>| {
        if name == plan.name {
            let plan = DomainPlan { generation: generation + 1, entrance: Entrance::Recover as u64, ..plan.clone() };
            runtime::spawn(run_again(again.clone(), plan, guard.clone(), served_ns));
        }
    };
    service.deaths.replace(Some(Rc::new(watch)));
}

async fn run_again(
    service: Rc<Service<impl Machine + 'static>>,
    plan: DomainPlan,
    guard: Rc<Guard>,
    mut served_ns: Option<u64>,
) {
    let mut what = format!("{} died, generation {}", plan.name, plan.generation);
    loop {
        let wait_ns = guard.backoff.borrow_mut().failed(now_ns(), served_ns.take());
        if wait_ns > 0 {
            what = format!("{what}; tried again in {} ms", wait_ns.div_ceil(1_000_000));
        }
        guard.lines.log(what);
        runtime::sleep(wait_ns).await;
        what = match service.create_here(plan.clone()) {
            Ok(made) => match service.start_here(made.domain) {
                Ok(()) => return,
                Err(error) => {
                    // Its death leads here again.
                    guard.lines.log(format!("{} is made but does not start: {error:?}", plan.name));
                    let _ = service.registry.borrow_mut().kill(made.domain, STALLED);
                    return;
                }
            },
            Err(error) => format!("{} does not start again: {error:?}", plan.name),
        };
    }
}

#[cfg(test)]
mod tests;
