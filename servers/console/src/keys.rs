//! Brings the key of the disk from the host to who encrypts: into a region that outlives both, and
//! by a message that says so. The key is in no message, and stays nowhere here.

use abi::start::Entrance;
use alloc::boxed::Box;
use console_core::service::Bringer;
use contracts::keys::{KeysClient, REGION};
use runtime::{Region, Start};

/// Writes a key to its region, and tells who encrypts. A predecessor may have written it and not
/// lived to tell.
pub fn bringer(start: &Start) -> Bringer {
    let (users, region) = (start.clients::<KeysClient>(), start.region(REGION));
    if start.entrance() != Entrance::Fresh {
        tell(&users);
    }
    Box::new(move |key| {
        let written = region.as_ref().map(Region::memory).map(|memory| memory.write(0, key));
        match written {
            Some(Ok(())) => tell(&users),
            Some(Err(_)) => runtime::log!("the key is lost: the region {REGION} is too small"),
            None => runtime::log!("a key has come, and nothing here is encrypted: correct system/*.toml"),
        }
    })
}

fn tell(users: &[(alloc::string::String, KeysClient)]) {
    for (_, user) in users {
        let user = user.clone();
        runtime::spawn(async move {
            // It is told again when the server was restarted. A predecessor may have had no key.
            let _ = user.arrived().await;
        });
    }
}
