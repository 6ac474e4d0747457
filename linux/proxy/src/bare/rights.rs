//! Descriptors that go with messages (SCM_RIGHTS): the sender makes tickets, the receiver claims
//! them.

use alloc::vec::Vec;

use contracts::descriptions::{Origin, RIGHTS_MAX, Right};
use personality::Errno;
use personality::descriptors::{Description, server};

use super::counters;
use super::errors::Failure;
use super::fd::close_id;
use super::input_output::description;
use super::proxy::proxy;
use super::user::with_state;

/// S_IFMT begins at this bit of a mode.
const KIND_SHIFT: u32 = 12;
/// Of a right's note: what it is, below its flags.
const NOTE_KIND_BITS: u32 = 4;

fn server_of(origin: Origin) -> u32 {
    match origin {
        Origin::Files => server::FS,
        Origin::Process => server::PROCESS,
        Origin::Console => server::CONSOLE,
        Origin::Network => server::TCP,
        Origin::Volume => server::VOLUME,
    }
}

/// Makes what a message carries of the program's descriptors. `EBADF`, `EINVAL` for too many and
/// for what lives in the program itself (epoll sets, signalfd, directories of its own in /proc).
pub async fn export(descriptors: &[u32]) -> Result<Vec<Right>, Failure> {
    if descriptors.len() > RIGHTS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let find = || -> Result<Vec<Description>, Errno> {
        descriptors.iter().map(|descriptor| description(u64::from(*descriptor))).collect()
    };
    for kept_here in find()?.iter().filter(|found| found.server == server::COUNTER) {
        counters::hand_over(kept_here).await?;
    }
    let found = find()?;
    if found.iter().any(|found| matches!(found.server, server::EPOLL | server::SIGNALS | server::OWN)) {
        return Err(Errno::EINVAL.into());
    }
    let mut rights = Vec::new();
    for Description { id, server, flags, kind, .. } in found {
        let (origin, token) = match server {
            server::FS => (Origin::Files, proxy().server(server)?.export(id).await?),
            server::TCP => (Origin::Network, proxy().server(server)?.export(id).await?),
            server::VOLUME => (Origin::Volume, proxy().server(server)?.export(id).await?),
            server::PROCESS => (Origin::Process, id),
            server::CONSOLE => (Origin::Console, id),
            _ => return Err(Errno::EINVAL.into()),
        };
        rights.push(Right { origin, token, note: u64::from(kind >> KIND_SHIFT | flags << NOTE_KIND_BITS) });
    }
    Ok(rights)
}

/// Gives numbers to what came with a message, and tells whether some of it is lost for want of
/// numbers.
pub async fn take(rights: &[Right], close_on_exec: bool) -> (Vec<u32>, bool) {
    let mut numbers = Vec::new();
    let mut tickets = Vec::new();
    for right in rights {
        let server = server_of(right.origin);
        let id = match right.origin {
            Origin::Process | Origin::Console => Some(right.token),
            Origin::Files | Origin::Network | Origin::Volume => {
                tickets.push(right.token);
                match proxy().server(server) {
                    Ok(exporter) => exporter.claim(right.token).await.ok(),
                    Err(_) => None,
                }
            }
        };
        let Some(id) = id else { continue };
        let note = right.note as u32;
        let kind = (note & ((1 << NOTE_KIND_BITS) - 1)) << KIND_SHIFT;
        let made = Description { id, server, flags: note >> NOTE_KIND_BITS, kind, ..Description::default() };
        let number = with_state(|state| match state.descriptors.find(server, id) {
            // This program has it already: another number for the same, and one reference too many.
            Some(own) => (state.descriptors.duplicate(own, 0, close_on_exec), true),
            None => {
                let added = state.descriptors.add(made, close_on_exec);
                (added, added.is_err())
            }
        });
        let (number, is_surplus) = number;
        if is_surplus {
            close_id(server, id);
        }
        numbers.extend(number.ok().map(|number| number as u32));
    }
    if !tickets.is_empty() {
        // It fails only if the server is gone, and everything with it.
        let _ = proxy().process.claimed(tickets);
    }
    let are_lost = numbers.len() < rights.len();
    (numbers, are_lost)
}
